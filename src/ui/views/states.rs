//! The state of all views.

use super::behaviour::ViewBehaviour;
use super::flame::Flame;
use super::functions::Functions;
use super::health::Health;
use super::processes::Processes;
use super::time::TimeMap;
use crate::ui::view::View;

/// The state of all views.
#[derive(Default)]
pub struct Views {
    /// State of the flame graph.
    pub flame: Flame,
    /// State of the table of functions.
    pub functions: Functions,
    /// State of the table of processes.
    pub processes: Processes,
    /// State of the map of time.
    pub time: TimeMap,
    /// State of the health view.
    pub health: Health,
}

impl Views {
    pub(in crate::ui) fn get(&self, view: View) -> &dyn ViewBehaviour {
        match view {
            View::Flame => &self.flame,
            View::Functions => &self.functions,
            View::Processes => &self.processes,
            View::Time => &self.time,
            View::Health => &self.health,
        }
    }

    pub(in crate::ui) fn get_mut(&mut self, view: View) -> &mut dyn ViewBehaviour {
        match view {
            View::Flame => &mut self.flame,
            View::Functions => &mut self.functions,
            View::Processes => &mut self.processes,
            View::Time => &mut self.time,
            View::Health => &mut self.health,
        }
    }

    /// Calls a function for each state.
    pub(in crate::ui) fn each(&mut self, mut with: impl FnMut(&mut dyn ViewBehaviour)) {
        View::ALL.into_iter().for_each(|view| with(self.get_mut(view)));
    }
}
