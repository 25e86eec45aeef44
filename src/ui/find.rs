//! Searching and filtering from the screen: proposes texts, applies them, and moves from match to match.

use std::sync::Arc;

use crate::profile::{Filter, FilterMode, LabelId, MAX_FILTERS, Pattern, Target};

use super::app::App;
use super::keys::Action;
use super::scene::Chip;
use super::scene::Scene;
use super::view::View;
use super::views::{Match, ViewBehaviour};

impl App {
    pub(super) fn search_selected(&mut self) {
        if let Some(label) = self.selected_label() {
            self.scene.search = Pattern::new(&Pattern::exactly(self.scene.names.labels.name(label))).ok();
        }
    }

    pub(super) fn filter_proposal(&self) -> String {
        match (&self.scene.search, self.selected_label()) {
            (Some(pattern), _) => pattern.source().to_owned(),
            (None, Some(label)) => Pattern::exactly(self.scene.names.labels.name(label)),
            (None, None) => String::new(),
        }
    }

    /// Removes a chip.
    pub fn remove_chip(&mut self, chip: Chip) {
        match chip {
            Chip::Filter(index) if index < self.scene.query.filters.len() => drop(self.scene.query.filters.remove(index)),
            Chip::Filter(_) => {}
            // A click on the chip of the usual time switches to the next time. A click on the chip of another time removes that
            // time.
            Chip::Range => {
                if !self.scene.leave_range() {
                    self.scene.change_range(Action::CycleRange);
                }
            }
            Chip::Target => self.scene.query.target = Target::default(),
            Chip::Difference => self.scene.leave_difference(),
            Chip::Folded => self.fold_inlined(false),
            Chip::Recursion => self.fold_recursion(true),
            Chip::Interpreter => self.fold_interpreter(true),
            Chip::Idle => self.hide_idle_threads(false),
        }
    }

    pub(super) fn next_match(&mut self, forward: bool) {
        let Some(pattern) = self.scene.search.clone() else {
            return self.scene.say(format!("no search is active; {} starts one", self.scene.keys.first(Action::Search)));
        };
        if self.scene.is_counting() {
            self.match_awaited = true;
            return self.scene.say(format!("counting …; the first match of /{}/ will be shown", pattern.source()));
        }
        // The key must not wait for the engine's answer: until it arrives, names are compared here.
        let snapshot = Arc::clone(&self.scene.snapshot);
        let answer = snapshot.search.as_ref().filter(|found| found.pattern == pattern);
        let names = Arc::clone(&self.scene.names);
        let found = |label: LabelId| match answer {
            Some(found) => found.matches(label),
            None => pattern.matches(names.labels.name(label)),
        };
        let in_view = self.views.get_mut(self.scene.view).next_match(&self.scene, &found, forward);
        // A name that a table does not have may be in the graph.
        let moved = in_view.filter(|moved| moved.of > 0).unwrap_or_else(|| {
            let moved = self.views.flame.next_match(&self.scene, &found, forward).unwrap_or_default();
            if moved.of > 0 {
                self.scene.view = View::Flame;
            }
            moved
        });
        let Match { number, of, is_zoomed } = moved;
        self.scene.say(match of {
            0 => format!("no match of /{}/ in view", pattern.source()),
            _ => {
                let order = if self.scene.view == View::Flame && of > 1 { ", heaviest first" } else { "" };
                let back = self.scene.keys.first(Action::ZoomOut);
                let zoomed = if is_zoomed { format!("; too narrow without this zoom, {back} goes back") } else { String::new() };
                format!("match {number} of {of}{order}{zoomed}")
            }
        });
    }

    /// Moves to the first match of a new search, unless the cursor is on a match.
    pub(super) fn go_to_first_match(&mut self) {
        let Some(pattern) = self.scene.search.as_ref() else { return };
        let label = self.selected_label().and_then(|label| self.scene.names.labels.get(label));
        let is_on_one = label.is_some_and(|label| pattern.matches(&label.name));
        if !is_on_one && matches!(self.scene.view, View::Flame | View::Functions) {
            self.next_match(true);
        }
    }
}

impl Scene {
    /// Adds a filter's chip. If there are too many, a message says so.
    pub fn add_filter(&mut self, mode: FilterMode, pattern: Pattern) {
        if self.query.filters.len() == MAX_FILTERS {
            self.say(format!("at most {MAX_FILTERS} filters; {} removes one", self.keys.first(Action::RemoveFilter)));
        } else {
            self.query.filters.push(Filter { mode, pattern });
        }
    }
}
