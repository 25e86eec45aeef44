//! View 2: functions by self and total, with callers and callees of the open one.

mod draw;
mod rows;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

pub(in crate::ui) use rows::Functions;

use super::behaviour::{Button, Opened, ViewBehaviour};
use crate::profile::{LabelId, Request};
use crate::ui::detail::DetailLine;
use crate::ui::keys::Action;
use crate::ui::paint::put;
use crate::ui::scene::Scene;

impl ViewBehaviour for Functions {
    fn ask(&self, request: &mut Request) {
        request.functions = Some(self.sort);
        request.neighbours_of = self.open;
    }

    fn refresh(&mut self, scene: &Scene) {
        self.follow_rows(&scene.names, &scene.snapshot, scene.areas().table_lines());
    }

    fn rename(&mut self, rename: &dyn Fn(LabelId) -> LabelId) {
        self.rename_labels(rename);
    }

    fn show_top(&mut self) {
        self.go_to_top(false);
    }

    fn draw(&self, scene: &Scene, area: Rect, buffer: &mut Buffer) {
        draw::draw(self, scene, area, buffer);
    }

    fn draw_detail(&self, scene: &Scene, line: DetailLine<'_>, buffer: &mut Buffer) {
        let left = line.draw_searched(buffer);
        if let Some(label) = self.selected_label(scene).and_then(|label| scene.names.labels.get(label)) {
            let x = put(buffer, left, left.x + 1, left.y, &label.name, scene.theme.strong());
            let x = put(buffer, left, x + 2, left.y, &label.object, scene.theme.dim());
            line.draw_hottest(left, x, buffer);
        }
    }

    fn go(&mut self, scene: &Scene, action: Action) {
        self.step(action, &scene.snapshot, scene.areas().table_lines());
    }

    fn zoom_in(&mut self, scene: &mut Scene) -> Opened {
        self.enter(&scene.snapshot);
        Opened::Here
    }

    fn zoom_out(&mut self) -> bool {
        self.open.take().is_some()
    }

    fn next_order(&mut self) -> bool {
        self.next_sort();
        true
    }

    fn selected_label(&self, scene: &Scene) -> Option<LabelId> {
        self.label_under_cursor(&scene.snapshot)
    }

    fn next_match(&mut self, scene: &Scene, found: &dyn Fn(LabelId) -> bool, forward: bool) -> Option<bool> {
        Some(self.find_next(&scene.snapshot, found, forward, scene.areas().table_lines()))
    }

    fn click(&mut self, scene: &Scene, at: Position, button: Button) -> Option<Action> {
        // The first line is the heading; a click there sorts.
        let Some(line) = usize::from(at.y - scene.areas().body.y).checked_sub(1) else { return Some(Action::Order) };
        let before = self.position;
        self.select(before.scroll + line, &scene.snapshot);
        (before == self.position || button == Button::Right).then_some(Action::ZoomIn)
    }
}
