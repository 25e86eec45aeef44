//! Forgets data that is no longer needed, and keeps all data within its bounds.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::mappings::Mappings;
use super::state::ProcessState;
use super::table::{Happened, ProcessTable};
use crate::collector::sys::machine;
use crate::collector::wire::perf_records::Identity;
use crate::profile::{FrameId, Process, Tgid, Timestamp, UserId};

/// How long an exited process is kept for late samples, in nanoseconds. Far more than a drain takes.
pub(super) const KEEP_EXITED: u64 = 3_000_000_000;
/// Most exited processes that stay in the shared table, for their names. Only processes with samples stay.
const MAX_REMEMBERED: usize = 16_384;
/// Most bytes of their command lines.
const MAX_REMEMBERED_BYTES: usize = 4 << 20;
/// Most processes that exited and are kept for late samples.
const MAX_EXITED: usize = 16_384;
/// Addresses in the caches of all processes together: about 24 bytes each.
const MAX_FRAMES: usize = 1 << 20;
/// Bytes that are kept of a long command line, if all command lines together are too long.
const SHORT_COMMAND_LINE: usize = 128;

impl ProcessTable {
    /// Notes the exit of processes that are gone although not all their threads were seen to exit. Then forgets data that is no longer
    /// needed. To be called about once a second.
    pub(crate) fn tidy(&mut self, now: u64, happened: &mut Happened) {
        for tgid in std::mem::take(&mut self.lingering) {
            let waiting = self.states.get(&tgid).is_some_and(|state| state.leader_gone && state.exited.is_none());
            if waiting && machine::exists(tgid) {
                self.lingering.push(tgid);
            } else if waiting {
                self.finish(tgid, now, happened);
            }
        }
        while let Some(&(time, tgid)) = self.exited.front()
            && now.saturating_sub(time) > KEEP_EXITED
        {
            self.exited.pop_front();
            self.forget(time, tgid);
        }
        while self.exited.len() > MAX_EXITED {
            let Some((time, tgid)) = self.exited.pop_front() else { break };
            self.forget(time, tgid);
        }
        while self.remembered.len() > MAX_REMEMBERED || self.remembered_bytes > MAX_REMEMBERED_BYTES {
            self.forget_oldest();
        }
        self.keep_bounds();
        self.tidy_files();
    }

    /// Forgets remembered processes that ended before this time: that of the oldest sample kept.
    pub(crate) fn forget_before(&mut self, time: Timestamp) {
        while self.remembered.front().is_some_and(|(exited, ..)| *exited < time.0) {
            self.forget_oldest();
        }
    }

    /// Forgets the process that has been remembered longest.
    fn forget_oldest(&mut self) {
        let Some((time, tgid, bytes)) = self.remembered.pop_front() else { return };
        self.remembered_bytes -= bytes;
        self.remove_shared(time, tgid);
    }

    /// Removes files that no process maps, if a sweep is worth its time. Then has processes read again whose files had no room in the table
    /// before and would find it now.
    pub(super) fn tidy_files(&mut self) {
        if !self.files.is_to_be_swept() {
            return;
        }
        let of_states = self.states.values().flat_map(|state| state.mappings.iter().chain(state.since.iter()));
        let mapped = of_states.chain(self.dumped.mappings().flat_map(Mappings::iter));
        let moved = self.states.values().flat_map(|state| &state.moved).filter_map(|moved| moved.code.file());
        self.files.sweep(mapped.map(|mapping| mapping.file).chain(moved).chain(self.lately.iter().copied()));
        for state in self.states.values_mut().filter(|state| state.lacks_files && state.exited.is_none()) {
            if self.files.has_room_again(state.user) {
                state.lacks_files = false;
                state.begin_reading();
            }
        }
    }

    /// Returns the identities of the files that processes map, and of some that none maps any more.
    pub(crate) fn mapped_files(&self) -> impl Iterator<Item = Identity> {
        self.files.iter().map(|file| file.identity)
    }

    /// Forgets the state of a process that exited at `time`. If it had samples, it stays in the shared table and is remembered.
    pub(super) fn forget(&mut self, time: u64, tgid: u32) {
        // Another process may have this number by now.
        if self.states.get(&tgid).is_none_or(|state| state.exited != Some(time)) {
            return;
        }
        match self.states.remove(&tgid) {
            Some(state) if state.sampled => {
                let bytes = state.command_line.len();
                self.remembered_bytes += bytes;
                self.remembered.push_back((time, tgid, bytes));
            }
            _ => self.remove_shared(time, tgid),
        }
    }

    /// Removes a process that exited at `time` from the shared table, unless another process has its number by now.
    pub(super) fn remove_shared(&self, time: u64, tgid: u32) {
        self.shared.remove_if(&Tgid(tgid), |_, process| process.exited == Some(Timestamp(time)));
    }

    /// Brings mappings, frame caches, interpreters' functions and command lines within their bounds. To be called about once a second.
    pub(super) fn keep_bounds(&mut self) {
        let held = self.states.values().map(|state| state.mappings_memory()).sum::<usize>();
        self.mappings_memory = held;
        if held > self.bounds.mappings {
            self.forget_mappings();
        }
        self.tidy_frames();
        self.tidy_functions();
        let states = &self.states;
        let is_there = |tgid: u32| states.get(&tgid).is_some_and(|state| state.exited.is_none());
        self.runtimes.retain(is_there);
        self.jvms.retain(is_there);
        self.moved.retain(|(tgid, _)| is_there(tgid));
        self.cut_command_lines();
    }

    /// Bytes held about processes. Mappings and interpreters' functions are counted once a second.
    pub(crate) fn memory(&self) -> usize {
        let of_states = self.states.len() * (size_of::<ProcessState>() + 16) + self.states.capacity() * 24;
        let of_shared = self.shared.capacity() * (size_of::<(Tgid, Process)>() + 1);
        let frames = self.states.values().map(|state| state.frames.capacity()).sum::<usize>() + self.kernel_frames.capacity();
        let places: usize = self.states.values().map(|state| state.scripts.places.bytes()).sum();
        let serving: usize = self.states.values().map(|state| state.scripts.serving.capacity()).sum();
        let caches = frames * (size_of::<(u64, FrameId)>() + 1) + places + serving * (size_of::<(FrameId, FrameId)>() + 1);
        let dumped = self.dumped.memory();
        self.mappings_memory + self.functions_memory + of_states + of_shared + caches + self.files.memory() + dumped
    }

    fn forget_mappings(&mut self) {
        let most = self.states.values().map(|state| state.mappings_memory()).max().unwrap_or(0);
        let many = self.states.values_mut().filter(|state| state.mappings_memory() > most / 4);
        for state in many {
            state.begin_reading();
            (state.mappings, state.since) = (Mappings::default(), Mappings::default());
        }
        self.mappings_forgotten += 1;
    }

    /// Empties the frame caches of the largest processes, if all caches together have too many frames.
    fn tidy_frames(&mut self) {
        let of_state = |state: &ProcessState| state.frames.len() + state.scripts.places.count() + state.scripts.serving.len();
        let total: usize = self.states.values().map(|state| of_state(state)).sum();
        if total > MAX_FRAMES {
            let most = self.states.values().map(|state| of_state(state)).max().unwrap_or(0);
            let many = self.states.values_mut().filter(|state| of_state(state) > most / 4);
            many.for_each(|state| {
                state.frames = FxHashMap::default();
                state.scripts.forget_frames();
            });
        }
    }

    /// Forgets interpreters' functions if all of them together take too many bytes. The user whose functions take the most bytes loses
    /// those of the user's largest processes. The largest processes of all users would be a worse choice: a user with many small processes
    /// would push out another user's one large process.
    fn tidy_functions(&mut self) {
        let bytes = |state: &ProcessState| state.scripts.own_bytes();
        let mut of_users: FxHashMap<UserId, usize> = FxHashMap::default();
        for state in self.states.values() {
            *of_users.entry(state.user).or_default() += bytes(state);
        }
        self.functions_memory = of_users.values().sum();
        let most = of_users.into_iter().max_by_key(|(_, bytes)| *bytes);
        let Some((user, _)) = most.filter(|_| self.functions_memory > self.bounds.functions) else { return };
        let largest = self.states.values().filter(|state| state.user == user).map(|state| bytes(state)).max().unwrap_or(0);
        let large = self.states.values_mut().filter(|state| state.user == user && bytes(state) > largest / 4);
        large.for_each(|state| state.scripts.functions = Arc::default());
    }

    /// Cuts long command lines if all of them together are too long. A forked process shares its parent's command line.
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
