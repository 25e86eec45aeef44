//! Cursor movement, zoom, and switching between views.

use crate::profile::{Target, Tgid, Tid};

use super::app::App;
use super::span::Span;
use super::view::View;
use super::views::Opened;

impl App {
    pub(super) fn zoom_in(&mut self) {
        if let Opened::Target(tgids, tid) = self.views.get_mut(self.scene.view).zoom_in(&mut self.scene) {
            self.aim(tgids, tid);
            self.scene.view = View::Flame;
        }
    }

    /// Leaves one level. Does nothing at the outermost level.
    pub(super) fn zoom_out(&mut self) {
        let selected = matches!(self.scene.span, Span::Between(..));
        if self.go_back() {
            return;
        }
        let left = self.views.get_mut(self.scene.view).zoom_out()
            || selected && self.scene.leave_range()
            || self.scene.query.filters.pop().is_some();
        if left {
        } else if !self.scene.query.target.is_everything() {
            self.scene.query.target = Target::default();
        } else if self.scene.compare.on {
            self.scene.leave_difference();
        } else {
            self.scene.search = None;
        }
    }

    /// Selects these processes, or one thread of one process.
    pub fn aim(&mut self, tgids: Vec<Tgid>, tid: Option<Tid>) {
        self.scene.query.target = Target { tgids, tid, ..Target::default() };
        self.views.flame.reset();
    }

    pub(super) fn turn_view(&mut self, by: usize) {
        let at = View::ALL.iter().position(|view| *view == self.scene.view).unwrap_or(0);
        self.show(View::ALL[(at + by) % View::ALL.len()]);
    }

    /// Shows a view. The view before it is not remembered.
    pub(super) fn show(&mut self, view: View) {
        self.came_from = None;
        self.scene.view = view;
        self.views.get_mut(view).refresh(&self.scene);
    }

    /// Returns from callers and callees to the view in which they were opened. Returns whether there was such a view.
    pub(super) fn go_back(&mut self) -> bool {
        let Some(view) = self.came_from.take().filter(|_| self.scene.view == View::Functions) else { return false };
        self.views.functions.close();
        self.scene.view = view;
        true
    }
}
