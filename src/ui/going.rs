//! Going about in the view on screen: the cursor, into what it is on and out again, from view to view.

use crate::profile::{Target, Tgid, Tid};

use super::app::App;
use super::keys::Action;
use super::view::View;

impl App {
    pub(super) fn go(&mut self, action: Action) {
        let body = self.scene.areas().body;
        match self.scene.view {
            View::Flame => {
                let layout = self.flame.layout(&self.scene.snapshot.tree, &self.scene.names.labels, &self.scene.theme, body);
                self.flame.go(action, &self.scene.snapshot.tree, &layout, usize::from(body.height));
            }
            View::Functions => self.functions.go(action, &self.scene.snapshot, self.scene.areas().table_lines()),
            View::Processes => {
                self.processes.go(action, &self.scene.snapshot, &self.scene.names, self.scene.areas().table_lines())
            }
            View::Time => {
                if let Some((heat, grid)) = self.scene.snapshot.heat.clone().zip(self.time_map.grid(&self.scene, body)) {
                    self.time_map.go(action, &heat, &grid);
                }
            }
            View::Health => {
                let page = usize::from(body.height).max(1);
                self.health_scroll = match action {
                    Action::Up => self.health_scroll.saturating_sub(1),
                    Action::Down => self.health_scroll + 1,
                    Action::PageUp => self.health_scroll.saturating_sub(page),
                    Action::PageDown => self.health_scroll + page,
                    Action::Top => 0,
                    _ => self.health_scroll,
                };
            }
        }
    }

    pub(super) fn zoom_in(&mut self) {
        match self.scene.view {
            View::Flame => self.flame.zoom_in(),
            View::Functions => self.functions.enter(&self.scene.snapshot),
            View::Processes => {
                if let Some((tgids, tid)) = self.processes.selected(&self.scene.snapshot, &self.scene.names) {
                    self.aim(tgids, tid);
                    self.scene.view = View::Flame;
                }
            }
            View::Time => self.choose_time(),
            View::Health => {}
        }
    }

    /// One level out; with nothing left to leave, nothing happens.
    pub(super) fn zoom_out(&mut self) {
        let left = self.scene.view == View::Flame && self.flame.zoom_out()
            || self.scene.view == View::Time && self.time_map.anchor.take().is_some()
            || self.scene.view == View::Functions && self.functions.open.take().is_some()
            || self.scene.query.filters.pop().is_some();
        if left {
        } else if !self.scene.query.target.is_everything() {
            self.scene.query.target = Target::default();
        } else if self.scene.compare.on {
            self.scene.compare.on = false;
        } else {
            self.scene.search = None;
        }
    }

    /// Shows these processes, or one thread of one, from now on.
    pub fn aim(&mut self, tgids: Vec<Tgid>, tid: Option<Tid>) {
        self.scene.query.target = Target { tgids, tid, ..Target::default() };
        self.flame.reset();
    }

    pub(super) fn turn_view(&mut self, by: usize) {
        let at = View::ALL.iter().position(|view| *view == self.scene.view).unwrap_or(0);
        self.scene.view = View::ALL[(at + by) % View::ALL.len()];
    }
}
