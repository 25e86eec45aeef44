//! View 3: processes and threads, as top shows them.

mod draw;
mod rows;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

pub(in crate::ui) use rows::{Processes, processes_of};

use super::behaviour::{Button, Hint, Opened, ViewBehaviour};
use crate::profile::{LabelId, Request};
use crate::ui::detail::DetailLine;
use crate::ui::keys::Action;
use crate::ui::scene::{Hovered, Scene};
use crate::ui::span::Span;
use crate::ui::table;
use crate::ui::view::View;

impl ViewBehaviour for Processes {
    fn ask(&self, request: &mut Request) {
        request.hottest = true;
    }

    fn refresh(&mut self, scene: &Scene) {
        // Summing up thousands of threads costs too much for a table that is not on screen.
        if scene.view != View::Processes {
            return;
        }
        let moves = scene.has().live && scene.frozen.is_none() && !matches!(scene.span, Span::Between(..));
        self.settle(&scene.snapshot, &scene.names, moves);
        self.follow_rows(&scene.snapshot, &scene.names, scene.areas().table_lines());
    }

    fn rename(&mut self, rename: &dyn Fn(LabelId) -> LabelId) {
        self.rename_labels(rename);
    }

    fn show_top(&mut self) {
        self.go_to_top();
    }

    fn draw(&self, scene: &Scene, area: Rect, buffer: &mut Buffer) {
        draw::draw(self, scene, area, buffer);
    }

    fn draw_detail(&self, scene: &Scene, line: DetailLine<'_>, buffer: &mut Buffer) {
        draw::draw_detail(self, scene, line, buffer);
    }

    fn hints(&self, _: &Scene) -> Vec<Hint> {
        vec![
            (Action::ZoomIn, "flame graph"),
            (Action::Right, "threads"),
            (Action::Order, "order"),
            (Action::CycleRange, "time"),
            (Action::ChooseCgroup, "cgroup"),
            (Action::ChooseCpu, "CPU"),
        ]
    }

    fn go(&mut self, scene: &Scene, action: Action) {
        self.step(action, &scene.snapshot, &scene.names, scene.areas().table_lines());
    }

    fn zoom_in(&mut self, scene: &mut Scene) -> Opened {
        match self.selected(&scene.snapshot, &scene.names) {
            Some((tgids, tid)) => Opened::Target(tgids, tid),
            None => Opened::Here,
        }
    }

    fn next_order(&mut self) -> bool {
        self.next_sort();
        true
    }

    fn hovered(&self, scene: &Scene, at: Position) -> Option<Hovered> {
        table::hovered_line(scene, at)
    }

    fn click(&mut self, scene: &Scene, at: Position, button: Button) -> Option<Action> {
        // The first line is the heading; a click there sorts.
        let Some(line) = usize::from(at.y - scene.areas().body.y).checked_sub(1) else { return Some(Action::Order) };
        let before = self.position;
        self.select(before.scroll + line, &scene.snapshot, &scene.names);
        (before == self.position || button == Button::Right).then_some(Action::ZoomIn)
    }
}
