//! Searching and filtering from the screen: what is proposed, what comes of it, and the way from match to match.

use std::sync::Arc;

use crate::profile::{Filter, FilterMode, LabelId, MAX_FILTERS, Pattern, Target};

use super::app::{App, Chip, View};
use super::keys::Action;
use super::messages::Message;

impl App {
    pub(super) fn search_selected(&mut self) {
        if let Some(label) = self.selected_label() {
            self.search = Pattern::new(&Pattern::exactly(self.names.labels.name(label))).ok();
        }
    }

    pub(super) fn filter_proposal(&self) -> String {
        match (&self.search, self.selected_label()) {
            (Some(pattern), _) => pattern.source().to_owned(),
            (None, Some(label)) => Pattern::exactly(self.names.labels.name(label)),
            (None, None) => String::new(),
        }
    }

    /// Adds a chip; too many are refused with a word.
    pub fn add_filter(&mut self, mode: FilterMode, pattern: Pattern) {
        if self.query.filters.len() == MAX_FILTERS {
            self.message = Some(Message {
                text: format!("{MAX_FILTERS} filters are the most; {} removes one", self.keys.first(Action::RemoveFilter)),
                bad: true,
            });
        } else {
            self.query.filters.push(Filter { mode, pattern });
        }
    }

    /// Takes a chip away.
    pub fn remove_chip(&mut self, chip: Chip) {
        match chip {
            Chip::Filter(index) if index < self.query.filters.len() => drop(self.query.filters.remove(index)),
            Chip::Filter(_) => {}
            Chip::Target => self.query.target = Target::default(),
            Chip::Difference => self.compare.on = false,
            Chip::Folded => self.fold_inlined(false),
        }
    }

    pub(super) fn next_match(&mut self, forward: bool) {
        let Some(pattern) = self.search.clone() else {
            return self.say(format!("nothing is searched for; {} searches", self.keys.first(Action::Search)));
        };
        // Whoever types on does not wait for an answer: until that is there, names are looked at here.
        let snapshot = Arc::clone(&self.snapshot);
        let answer = snapshot.search.as_ref().filter(|found| found.pattern == pattern);
        let names = Arc::clone(&self.names);
        let found = |label: LabelId| match answer {
            Some(found) => found.matches(label),
            None => pattern.matches(names.labels.name(label)),
        };
        let moved = match self.view {
            View::Functions => self.functions.next_match(&snapshot, found, forward, self.areas().table_lines()),
            _ => {
                self.view = View::Flame;
                let body = self.areas().body;
                let layout = self.flame.layout(&self.snapshot.tree, &self.names.labels, &self.theme, body);
                self.flame.next_match(&self.snapshot.tree, &layout, found, forward, usize::from(body.height))
            }
        };
        if !moved {
            self.message = Some(Message { text: format!("no match of /{}/ in view", pattern.source()), bad: true });
        }
    }
}
