//! The line about what is under the cursor: what several views draw in it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::messages::Problem;
use super::paint::{put, put_right};
use super::scene::Scene;
use super::text;
use super::theme::Theme;
use crate::profile::{FrameKind, Label, SourceLocation};

/// The line, and what stands in it whatever the view.
#[derive(Clone, Copy)]
pub(super) struct DetailLine<'a> {
    /// Where it is.
    pub area: Rect,
    /// Looks.
    pub theme: &'a Theme,
    /// What a search found, in more words and in fewer; empty without a search.
    pub searched: &'a [String],
    /// Where in the source the function under the cursor is hottest.
    pub hottest: Option<&'a SourceLocation>,
}

impl DetailLine<'_> {
    /// Draws what a search found at the right end, in the most words. Returns what is left of the line.
    pub(super) fn draw_searched(&self, buffer: &mut Buffer) -> Rect {
        self.draw_right(self.searched.first().map_or("", String::as_str), buffer)
    }

    /// Draws words at the right end. Returns what is left of the line.
    pub(super) fn draw_right(&self, words: &str, buffer: &mut Buffer) -> Rect {
        let area = self.area;
        let end = if words.is_empty() { area.right() } else { put_right(buffer, area, area.y, words, self.theme.strong()) };
        Rect { width: end.saturating_sub(area.x), ..area }
    }

    /// Draws why a function has no name, and what helps, from `x` on. Returns whether there is such a reason.
    pub(super) fn draw_reason(&self, scene: &Scene, label: &Label, area: Rect, x: u16, buffer: &mut Buffer) -> bool {
        let Some(reason) = scene.why_unnamed(label) else { return false };
        put(buffer, area, x + 2, area.y, &reason, self.theme.dim());
        true
    }

    /// Draws where the function is hottest, from `x` on. Where there is no room for all of it, its end is drawn, which tells most.
    pub(super) fn draw_hottest(&self, area: Rect, x: u16, buffer: &mut Buffer) {
        let Some(place) = self.hottest else { return };
        let words = format!("{}:{}", place.file, place.line);
        let room = usize::from(area.right().saturating_sub(x + 3));
        let words =
            if text::width(&words) <= room { words } else { format!("…{}", text::tail(&words, room.saturating_sub(1))) };
        if room >= 8 {
            put(buffer, area, x + 2, area.y, &words, self.theme.dim());
        }
    }
}

impl Scene {
    /// Why a function has no name, and what helps. `None` if it has a name or the reason is not known.
    fn why_unnamed(&self, label: &Label) -> Option<String> {
        if label.kind != FrameKind::Unknown {
            return None;
        }
        let is_of_object = |path: &str| path.rsplit('/').next() == Some(&*label.object);
        let is_made_at_run_time = &*label.object == "[anon]";
        let problem = self.status.problems.iter().find(|problem| match is_made_at_run_time {
            true => problem.path.starts_with("JIT code"),
            false => is_of_object(&problem.path),
        })?;
        let Problem { path, reason, remedy, .. } = problem;
        let of = if is_made_at_run_time { format!("{path}: ") } else { String::new() };
        Some(if remedy.is_empty() { format!("{of}{reason}") } else { format!("{of}{reason}; {remedy}") })
    }
}
