//! The line about the item under the cursor: the parts that several views draw.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::messages::Problem;
use super::paint::{put, put_right};
use super::scene::Scene;
use super::text;
use super::theme::Theme;
use crate::profile::{FrameKind, Label, SourceLocation};

/// The line, and the parts of it that all views share.
#[derive(Clone, Copy)]
pub(super) struct DetailLine<'a> {
    /// Its area.
    pub area: Rect,
    /// Looks.
    pub theme: &'a Theme,
    /// The search's result, from the longest wording to the shortest. Empty without a search.
    pub searched: &'a [String],
    /// The hottest source line of the function under the cursor.
    pub hottest: Option<&'a SourceLocation>,
}

impl DetailLine<'_> {
    /// Draws the search's result at the right end, in its longest wording. Returns the rest of the line.
    pub(super) fn draw_searched(&self, buffer: &mut Buffer) -> Rect {
        self.draw_right(self.searched.first().map_or("", String::as_str), buffer)
    }

    /// Draws words at the right end. Returns the rest of the line.
    pub(super) fn draw_right(&self, words: &str, buffer: &mut Buffer) -> Rect {
        let area = self.area;
        let end = if words.is_empty() { area.right() } else { put_right(buffer, area, area.y, words, self.theme.strong()) };
        Rect { width: end.saturating_sub(area.x), ..area }
    }

    /// Draws why a function has no name and how to fix that, from `x` on. Returns whether there is such a reason.
    pub(super) fn draw_reason(&self, scene: &Scene, label: &Label, area: Rect, x: u16, buffer: &mut Buffer) -> bool {
        let Some(reason) = scene.why_unnamed(label) else { return false };
        put(buffer, area, x + 2, area.y, &reason, self.theme.dim());
        true
    }

    /// Draws the function's hottest source line, from `x` on. If there is not enough room, only its end is drawn, which says
    /// most.
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
    /// Returns why a function has no name and how to fix that. `None` if it has a name or the reason is not known.
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
