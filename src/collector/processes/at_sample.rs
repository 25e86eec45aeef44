//! Processes as they were when a sample of them was taken.

use rustc_hash::FxHashSet;

use super::mappings::Mappings;
use super::remapped::AtSample;
use super::state::{Known, ProcessState};
use super::table::ProcessTable;
use crate::collector::wire::records::COMM_LENGTH;

/// How a process's mappings have changed since a sample was taken.
pub(super) enum Since {
    /// The known addresses of the sample still have the same meaning.
    Unchanged,
    /// They have changed. Holds the known mappings of the sample's time.
    Remapped(Mappings),
    /// The mappings of the sample's time are not known.
    Lost,
}

impl ProcessTable {
    /// Records the state of a process when a sample of it begins to wait.
    pub(super) fn at_sample(&mut self, tgid: u32) -> AtSample {
        let remapped = self.remapped.begin(tgid);
        let none = ProcessState::new([0; COMM_LENGTH]);
        let state = self.states.get(&tgid).map_or(&none, |state| state);
        let was_known = state.known == Known::Yes;
        let told = if was_known { &state.mappings } else { &state.since };
        AtSample { tgid, life: state.life, user: state.user, comm: state.comm, told: told.clone(), was_known, remapped }
    }

    /// Whether the known addresses of a process still have the meaning that they had when a sample was taken.
    pub(super) fn is_unchanged(&self, then: &AtSample) -> bool {
        let is_same = self.states.get(&then.tgid).is_some_and(|state| state.life == then.life);
        is_same && self.remapped.since(then.tgid, then.remapped).is_some_and(<[_]>::is_empty)
    }

    /// Returns how the mappings have changed since a sample was taken.
    pub(super) fn since(&self, then: &AtSample) -> Since {
        if self.is_unchanged(then) {
            return Since::Unchanged;
        }
        if then.was_known {
            return Since::Remapped(then.told.clone());
        }
        let state = self.states.get(&then.tgid).filter(|state| state.life == then.life);
        match state.zip(self.remapped.since(then.tgid, then.remapped)) {
            Some((state, _)) if state.known != Known::Yes => Since::Unchanged,
            Some((state, ranges)) => {
                let mut mappings = state.mappings.without(ranges);
                for mapping in then.told.iter() {
                    mappings.insert(*mapping);
                }
                Since::Remapped(mappings)
            }
            None if then.told.len() > 0 => Since::Remapped(then.told.clone()),
            None => Since::Lost,
        }
    }

    /// Runs `resolve` while the process has the state that it had when a sample was taken. Without `mappings`, the process counts as not
    /// read.
    pub(super) fn resolve_as_it_was<T>(
        &mut self,
        then: &AtSample,
        mappings: Option<Mappings>,
        resolve: impl FnOnce(&mut ProcessTable) -> T,
    ) -> T {
        let known = if mappings.is_some() { Known::Yes } else { Known::Unread };
        let mappings = mappings.unwrap_or_default();
        let lacks_remapped = !then.was_known;
        let old =
            ProcessState { life: then.life, known, mappings, lacks_remapped, user: then.user, ..ProcessState::new(then.comm) };
        let present = self.states.insert(then.tgid, Box::new(old));
        let resolved = resolve(self);
        match present {
            Some(state) => drop(self.states.insert(then.tgid, state)),
            None => drop(self.states.remove(&then.tgid)),
        }
        resolved
    }

    /// Forgets the noted ranges of processes whose samples no longer wait.
    pub(super) fn forget_remapped(&mut self) {
        if self.remapped.is_any() {
            let waiting: FxHashSet<u32> = self.parking.processes().chain(self.dumped.processes()).collect();
            self.remapped.retain(|tgid| waiting.contains(&tgid));
        }
    }
}
