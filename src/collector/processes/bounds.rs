//! Bounds on memory for what all processes have together. What is let go is read again when it is needed.
//!
//! ```text
//! mapped files     a sixteenth of --memory, shared out by user (mappings.rs)
//! mappings         an eighth: beyond it processes with the most lose theirs, and are read again at their next sample
//! frames           1 million addresses: the same
//! command lines    a sixty-fourth: beyond it the long ones are cut
//! ```

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::mappings::{Mapping, Mappings};
use super::{ProcessTable, State};
use crate::profile::FrameId;

/// Addresses in the caches of all processes together: about 24 bytes each.
const MAX_FRAMES: usize = 1 << 20;
/// The length that command lines are cut to where all together are too long.
const SHORT_COMMAND_LINE: usize = 128;

/// The most bytes that each may take.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    mappings: usize,
    command_lines: usize,
}

impl Bounds {
    /// Shares of a flametop that may take so many bytes.
    pub(super) fn of(memory: usize) -> Bounds {
        Bounds { mappings: memory / 8, command_lines: memory / 64 }
    }
}

impl State {
    /// Bytes of its mappings. Those that it shares with others count for each of them in part.
    fn mappings_memory(&self) -> usize {
        (self.mappings.own_len() + self.since.own_len()) * size_of::<Mapping>()
    }
}

impl ProcessTable {
    /// Brings everything within its bound. To be called about once a second.
    pub(super) fn keep_bounds(&mut self) {
        let held = self.states.values().map(State::mappings_memory).sum::<usize>();
        self.mappings_memory = held;
        if held > self.bounds.mappings {
            self.forget_mappings();
        }
        self.tidy_frames();
        self.cut_command_lines();
    }

    /// Bytes held about processes. Mappings are counted once a second.
    pub(crate) fn memory(&self) -> usize {
        let of_states = self.states.capacity() * (size_of::<State>() + 8);
        let frames = self.states.values().map(|state| state.frames.capacity()).sum::<usize>() + self.kernel_frames.capacity();
        let dumped = self.dumped.memory();
        self.mappings_memory + of_states + frames * (size_of::<(u64, FrameId)>() + 1) + self.files.memory() + dumped
    }

    fn forget_mappings(&mut self) {
        let most = self.states.values().map(State::mappings_memory).max().unwrap_or(0);
        let many = self.states.values_mut().filter(|state| state.mappings_memory() > most / 4);
        for state in many {
            state.begin_reading();
            (state.mappings, state.since) = (Mappings::default(), Mappings::default());
        }
        self.mappings_forgotten += 1;
    }

    /// Starts the caches of frames anew if they are too many together: of the processes that have the most.
    fn tidy_frames(&mut self) {
        let total: usize = self.states.values().map(|state| state.frames.len()).sum();
        if total > MAX_FRAMES {
            let most = self.states.values().map(|state| state.frames.len()).max().unwrap_or(0);
            let many = self.states.values_mut().filter(|state| state.frames.len() > most / 4);
            many.for_each(|state| state.frames = FxHashMap::default());
        }
    }

    /// Cuts long command lines if all of them together are too long. Forks share those of their parents.
    fn cut_command_lines(&mut self) {
        let own = |line: &Arc<str>| line.len() / Arc::strong_count(line).max(1);
        let total: usize = self.shared.iter().map(|process| own(&process.command_line)).sum();
        if total <= self.bounds.command_lines {
            return;
        }
        let short = |line: &Arc<str>| -> Option<Arc<str>> {
            let end = line.char_indices().map(|(at, _)| at).take_while(|at| *at <= SHORT_COMMAND_LINE).last()?;
            (line.len() > SHORT_COMMAND_LINE + 4).then(|| format!("{}…", &line[..end]).into())
        };
        for mut process in self.shared.iter_mut() {
            if let Some(line) = short(&process.command_line) {
                process.command_line = line;
            }
        }
        for state in self.states.values_mut() {
            if let Some(line) = short(&state.command_line) {
                state.command_line = line;
            }
        }
    }
}
