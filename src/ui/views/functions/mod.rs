//! View 2: functions by self and total, with callers and callees of the open one.

mod detail;
mod draw;
mod rows;
mod sandwich;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use detail::figures;
pub(in crate::ui) use rows::Functions;
use sandwich::Sandwich;

use super::behaviour::{Button, Hint, Match, Opened, ViewBehaviour};
use crate::profile::{LabelId, Request};
use crate::ui::detail::DetailLine;
use crate::ui::keys::Action;
use crate::ui::names::fit_name;
use crate::ui::paint::put;
use crate::ui::place::Branch;
use crate::ui::scene::{Hovered, Scene};
use crate::ui::table;
use crate::ui::text;

/// Below this number of columns, the line about a function leaves out its object.
const NAME_AND_OBJECT: usize = 60;

impl Functions {
    /// Selects a caller or callee. If it is selected already, opens its function.
    fn click_branch(&mut self, scene: &Scene, branch: &Branch, button: Button) {
        let before = self.position;
        self.select_branch(branch, &scene.snapshot, scene.areas().table_lines());
        if let Some(label) = branch.path.last().filter(|_| before == self.position || button == Button::Right) {
            self.open_function(*label);
        }
    }
}

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
        let Some(label) = self.selected_label(scene).and_then(|label| scene.names.labels.get(label)) else { return };
        let figures = figures(scene, self.rows(&scene.snapshot).get(self.position.at));
        // The name needs the room more than the object.
        let object = if usize::from(left.width) < text::width(&figures) + NAME_AND_OBJECT { "" } else { label.short_object() };
        let room = usize::from(left.width).saturating_sub(text::width(&figures) + text::width(object) + 6);
        let x = put(buffer, left, left.x + 1, left.y, &fit_name(&label.name, room.max(8)), scene.theme.strong());
        let x = if object.is_empty() { x } else { put(buffer, left, x + 2, left.y, object, scene.theme.dim()) };
        let x = put(buffer, left, x + 2, left.y, &figures, Style::new());
        if !line.draw_reason(scene, label, left, x, buffer) {
            line.draw_hottest(left, x, buffer);
        }
    }

    fn hints(&self, _: &Scene) -> Vec<Hint> {
        let open = if self.open.is_some() { (Action::ZoomOut, "close") } else { (Action::ZoomIn, "callers, callees") };
        let order = (Action::Order, "order");
        vec![open, (Action::Source, "source"), (Action::Search, "search"), order, (Action::Keep, "keep"), (Action::Drop, "drop")]
    }

    fn go(&mut self, scene: &Scene, action: Action) {
        self.step(action, &scene.snapshot, scene.areas().table_lines());
    }

    fn zoom_in(&mut self, scene: &mut Scene) -> Opened {
        self.enter(&scene.snapshot);
        Opened::Here
    }

    fn zoom_out(&mut self) -> bool {
        self.close()
    }

    fn next_order(&mut self) -> bool {
        self.next_sort();
        true
    }

    fn selected_label(&self, scene: &Scene) -> Option<LabelId> {
        self.label_under_cursor(&scene.snapshot)
    }

    fn next_match(&mut self, scene: &Scene, found: &dyn Fn(LabelId) -> bool, forward: bool) -> Option<Match> {
        Some(self.find_next(&scene.snapshot, found, forward, scene.areas().table_lines()))
    }

    fn hovered(&self, scene: &Scene, at: Position) -> Option<Hovered> {
        let (table, sandwich) = Sandwich::beside(self, scene, scene.areas().body);
        match sandwich {
            Some(sandwich) if !table.contains(at) => sandwich.at(scene, at).map(Hovered::Branch),
            _ => table::hovered_line(scene, at),
        }
    }

    fn click(&mut self, scene: &Scene, at: Position, button: Button) -> Option<Action> {
        let (table, sandwich) = Sandwich::beside(self, scene, scene.areas().body);
        if let Some(sandwich) = sandwich.filter(|_| !table.contains(at)) {
            if let Some(branch) = sandwich.at(scene, at) {
                self.click_branch(scene, &branch, button);
            }
            return None;
        }
        // The first line is the heading; a click there sorts.
        let Some(line) = usize::from(at.y - scene.areas().body.y).checked_sub(1) else { return Some(Action::Order) };
        let before = self.position;
        self.select(before.scroll + line, &scene.snapshot);
        (before == self.position || button == Button::Right).then_some(Action::ZoomIn)
    }
}
