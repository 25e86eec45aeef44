//! Who maps what, when: the processes of the machine, kept by events in the order of their time.
//!
//! ```text
//! FORK  the child shares its parent's mappings until one of them changes
//! COMM  with the exec bit: all mappings are gone, a new program follows
//! MMAP2 another piece of executable memory
//! EXIT  of the last thread: kept for some seconds, samples may be late
//! ```
//!
//! Mappings of processes that were there before us are read from `/proc` when they are first needed, once; and again
//! after the kernel lost events, when what we know may be wrong.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::events::{Event, Timed, comm_bytes};
use super::mappings::{FileIndex, Files, MAX_MAPPINGS, Mapping, Mappings};
use super::perf;
use super::proc;
use super::records::{COMM_LENGTH, comm_text};
use crate::profile::{FrameId, FrameKind, LabelId, Names, ObjectId, Process, Processes, Tgid, Timestamp};

/// How long an exited process is kept for samples that come late: nanoseconds. Far more than a drain takes.
const KEEP_EXITED: u64 = 3_000_000_000;

/// How many exited processes that had samples stay in the shared table, for their names.
const MAX_REMEMBERED: usize = 16_384;

/// How many files are remembered as mapped lately.
const MAX_LATELY: usize = 64;

/// How many names of threads are kept before starting again: a hostile program may make many.
const MAX_COMMS: usize = 65_536;

/// What one process is, for us.
pub(crate) struct State {
    /// Its executable memory.
    pub(crate) mappings: Mappings,
    /// Frames of addresses: `address << 1 | is_return`. Emptied when an address may mean something else.
    pub(crate) frames: FxHashMap<u64, FrameId>,
    /// The object of its code without a file, once a frame was found there.
    pub(crate) anonymous: Option<ObjectId>,
    /// Tells this program from others that had or will have the process's number: each exec and each fork begins another.
    pub(crate) life: u64,
    /// The main thread's name.
    pub(crate) name: LabelId,
    comm: [u8; COMM_LENGTH],
    /// Whether `mappings` are known: told by events from exec on, or read.
    mappings_known: bool,
    command_line_known: bool,
    sampled: bool,
    threads: u32,
    leader_gone: bool,
    exited: Option<u64>,
}

/// What came of events, besides the table itself.
#[derive(Default, Debug)]
pub(crate) struct Happened {
    /// Processes that ended, in order.
    pub(crate) exited: Vec<Tgid>,
    /// The kernel got or lost code.
    pub(crate) kernel_symbols_changed: bool,
    /// Events that the kernel could not deliver.
    pub(crate) lost: u64,
}

/// Every living process, and those that ended a moment ago.
pub(crate) struct ProcessTable {
    /// The tables shared with the other rooms.
    pub(crate) names: Arc<Names>,
    /// Files that were mapped.
    pub(crate) files: Files,
    /// Frames of kernel addresses, keyed as in [`State::frames`].
    pub(crate) kernel_frames: FxHashMap<u64, FrameId>,
    states: FxHashMap<u32, State>,
    shared: Arc<Processes>,
    comms: FxHashMap<[u8; COMM_LENGTH], LabelId>,
    /// Files that were mapped lately, newest last.
    lately: VecDeque<FileIndex>,
    exited: VecDeque<(u64, u32)>,
    remembered: VecDeque<(u64, u32)>,
    /// Processes whose main thread is gone and whose others are, by our count, not.
    lingering: Vec<u32>,
    distrusted_at: u64,
    /// See [`State::life`].
    lives: u64,
    /// How many outdated frames were let go of.
    outdated: usize,
}

impl ProcessTable {
    pub(crate) fn new(names: Arc<Names>, shared: Arc<Processes>) -> ProcessTable {
        ProcessTable {
            names,
            files: Files::default(),
            kernel_frames: FxHashMap::default(),
            states: FxHashMap::default(),
            shared,
            comms: FxHashMap::default(),
            lately: VecDeque::new(),
            exited: VecDeque::new(),
            remembered: VecDeque::new(),
            lingering: Vec::new(),
            distrusted_at: 0,
            lives: 0,
            outdated: 0,
        }
    }

    /// A program of which nothing is known but its name.
    fn begin(&mut self, comm: [u8; COMM_LENGTH], name: LabelId) -> State {
        self.lives += 1;
        State { life: self.lives, ..State::new(comm, name) }
    }

    /// Puts in a process that was there before us.
    pub(crate) fn add_found(&mut self, found: proc::Found) {
        let name = self.label(found.comm);
        let state = State { threads: found.threads.max(1), ..self.begin(found.comm, name) };
        self.states.insert(found.tgid, state);
        let process = Process { name, command_line: Arc::default(), parent: Tgid(found.parent), exited: None };
        self.shared.insert(Tgid(found.tgid), process);
    }

    /// The label of a thread's name.
    pub(crate) fn label(&mut self, comm: [u8; COMM_LENGTH]) -> LabelId {
        if let Some(label) = self.comms.get(&comm) {
            return *label;
        }
        if self.comms.len() >= MAX_COMMS {
            self.comms.clear();
        }
        let label = self.names.labels.intern(&comm_text(&comm), "", FrameKind::Process);
        self.comms.insert(comm, label);
        label
    }

    /// Applies one event. Events are to come in the order of their time, and before samples that are later.
    pub(crate) fn apply(&mut self, timed: Timed, happened: &mut Happened) {
        match timed.event {
            Event::Map { tgid, start, end, offset, identity, path } => {
                let file = self.files.intern(&path, identity);
                self.map(tgid, Mapping { start, end, offset, file });
                if !self.lately.contains(&file) {
                    self.lately.push_back(file);
                    if self.lately.len() > MAX_LATELY {
                        self.lately.pop_front();
                    }
                }
            }
            Event::Name { tgid, exec: true, comm, .. } => self.exec(tgid, comm),
            Event::Name { tgid, tid, exec: false, comm } => {
                if tgid == tid {
                    self.rename(tgid, comm);
                }
            }
            Event::Fork { tgid, parent } => self.fork(tgid, parent),
            Event::Exit { tgid, tid } => self.exit(tgid, tid, timed.time, happened),
            Event::KernelSymbol => happened.kernel_symbols_changed = true,
            Event::Lost(count) => {
                happened.lost += count;
                self.distrust_all(timed.time);
            }
        }
    }

    fn map(&mut self, tgid: u32, mapping: Mapping) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        if state.mappings.insert(mapping) {
            state.frames.clear();
        }
        if state.mappings.len() > MAX_MAPPINGS {
            state.mappings = Mappings::default();
            state.mappings_known = false;
        }
    }

    fn exec(&mut self, tgid: u32, comm: [u8; COMM_LENGTH]) {
        let name = self.label(comm);
        let sampled = self.states.get(&tgid).is_some_and(|state| state.sampled);
        let state = State { mappings_known: true, sampled, ..self.begin(comm, name) };
        self.states.insert(tgid, state);
        let mut process = self.shared.entry(Tgid(tgid)).or_insert_with(|| unknown_process(name));
        process.name = name;
        process.command_line = Arc::default();
        process.exited = None;
    }

    fn rename(&mut self, tgid: u32, comm: [u8; COMM_LENGTH]) {
        let name = self.label(comm);
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.comm = comm;
        state.name = name;
        if let Some(mut process) = self.shared.get_mut(&Tgid(tgid)) {
            process.name = name;
        }
    }

    fn fork(&mut self, tgid: u32, parent: u32) {
        if tgid == parent {
            if let Some(state) = self.states.get_mut(&tgid) {
                state.threads = state.threads.saturating_add(1);
            }
            return;
        }
        // Now, while the parent is there to be read: the child may be gone before its first sample is looked at.
        self.read_mappings(parent);
        // What the parent has by now may be another program's, or gone: the child's own is read at its first sample.
        let command_line_known = self.states.get(&parent).is_some_and(|state| state.command_line_known);
        self.read_command_line(parent);
        self.lives += 1;
        let none = State::new([0; COMM_LENGTH], LabelId::default());
        let from = self.states.get(&parent).unwrap_or(&none);
        let name = from.name;
        let child = State {
            mappings: from.mappings.clone(),
            mappings_known: from.mappings_known,
            command_line_known,
            life: self.lives,
            ..State::new(from.comm, name)
        };
        self.states.insert(tgid, child);
        let command_line = self.shared.get(&Tgid(parent)).map(|process| process.command_line.clone()).unwrap_or_default();
        self.shared.insert(Tgid(tgid), Process { name, command_line, parent: Tgid(parent), exited: None });
    }

    fn exit(&mut self, tgid: u32, tid: u32, time: u64, happened: &mut Happened) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| state.exited.is_none()) else { return };
        state.threads = state.threads.saturating_sub(1);
        state.leader_gone |= tgid == tid;
        if state.leader_gone && state.threads == 0 {
            self.finish(tgid, time, happened);
        } else if tgid == tid {
            // Either it goes on without its main thread, or a thread was made while /proc was read and our count is wrong.
            self.lingering.push(tgid);
        }
    }

    fn finish(&mut self, tgid: u32, time: u64, happened: &mut Happened) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.exited = Some(time);
        if let Some(mut process) = self.shared.get_mut(&Tgid(tgid)) {
            process.exited = Some(Timestamp(time));
        }
        self.exited.push_back((time, tgid));
        happened.exited.push(Tgid(tgid));
    }

    /// Whether a process of this number is there, as far as events tell.
    pub(crate) fn is_alive(&self, tgid: u32) -> bool {
        self.states.get(&tgid).is_some_and(|state| state.exited.is_none())
    }

    /// After lost events any mapping may be wrong. Once a second at most: reading all of them again costs time.
    fn distrust_all(&mut self, time: u64) {
        if time.saturating_sub(self.distrusted_at) < 1_000_000_000 && self.distrusted_at > 0 {
            return;
        }
        self.distrusted_at = time;
        for state in self.states.values_mut().filter(|state| state.exited.is_none()) {
            state.mappings_known = false;
        }
    }

    /// Lets go what is not needed any more. To be called about once a second.
    pub(crate) fn tidy(&mut self, now: u64, happened: &mut Happened) {
        for tgid in std::mem::take(&mut self.lingering) {
            let waiting = self.states.get(&tgid).is_some_and(|state| state.leader_gone && state.exited.is_none());
            if waiting && perf::exists(tgid) {
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
        while self.remembered.len() > MAX_REMEMBERED {
            let Some((time, tgid)) = self.remembered.pop_front() else { break };
            self.remove_shared(time, tgid);
        }
    }

    fn forget(&mut self, time: u64, tgid: u32) {
        // The number may be that of another process by now.
        if self.states.get(&tgid).is_none_or(|state| state.exited != Some(time)) {
            return;
        }
        match self.states.remove(&tgid) {
            Some(state) if state.sampled => self.remembered.push_back((time, tgid)),
            _ => self.remove_shared(time, tgid),
        }
    }

    fn remove_shared(&self, time: u64, tgid: u32) {
        self.shared.remove_if(&Tgid(tgid), |_, process| process.exited == Some(Timestamp(time)));
    }

    /// Reads the mappings of a process from `/proc` unless they are known.
    ///
    /// They are those of now, not of the sample's time: a program that was there before us and runs another one in the
    /// moment between its first sample and our reading would get frames of the other.
    fn read_mappings(&mut self, tgid: u32) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| !state.mappings_known) else { return };
        state.mappings_known = true;
        // One that is gone keeps what events told.
        let Some(mapped) = proc::maps(tgid) else { return };
        state.frames.clear();
        state.mappings = Mappings::default();
        for piece in mapped {
            let file = self.files.intern(&piece.path, piece.identity);
            state.mappings.insert(Mapping { start: piece.start, end: piece.end, offset: piece.offset, file });
        }
    }

    /// Of processes that were sampled, and of those whose children may be: of most that are there at the start nobody asks.
    fn read_command_line(&mut self, tgid: u32) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| !state.command_line_known) else { return };
        state.command_line_known = true;
        let command_line = proc::command_line(tgid);
        // Of one that ends there is none to be read any more; it may have its parent's.
        if let Some(mut process) = self.shared.get_mut(&Tgid(tgid)).filter(|_| !command_line.is_empty()) {
            process.command_line = command_line.into();
        }
    }

    /// Makes a process ready for a sample of its thread `tid` of name `comm`: known, mapped, named.
    pub(crate) fn prepare(&mut self, tgid: u32, tid: u32, comm: [u8; COMM_LENGTH], has_user_frames: bool) {
        self.forget_outdated();
        if !self.states.contains_key(&tgid) {
            // Its fork was lost, or it began while /proc was read.
            self.add_found(proc::stat(tgid).unwrap_or(proc::Found { tgid, parent: 0, threads: 1, comm }));
        }
        if has_user_frames {
            self.read_mappings(tgid);
        }
        self.read_command_line(tgid);
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.sampled = true;
        // Idle tasks are all of process 0, and each has its CPU's name.
        let comm = if tgid == 0 { comm_bytes(b"swapper") } else { comm };
        if tgid == tid && state.comm != comm {
            self.rename(tgid, comm);
        }
    }

    /// Lets go of frames at whose address other code was made since: the next sample there is of a new frame.
    fn forget_outdated(&mut self) {
        let (names, states) = (&self.names, &mut self.states);
        self.outdated = names.outdated_since(self.outdated, |frame| {
            let tgid = names.objects.get(frame.object).and_then(|object| object.file).map(|(tgid, _)| tgid);
            let state = tgid.and_then(|tgid| states.get_mut(&u32::try_from(tgid).ok()?));
            if let Some(state) = state.filter(|state| state.anonymous == Some(frame.object)) {
                state.frames.remove(&(frame.address << 1 | u64::from(frame.is_return)));
            }
        });
    }

    /// What a process may call the file that it had mapped at an address a moment ago: by what we know of it now, and what
    /// was mapped lately by anybody. It may have unmapped it since, or be gone.
    pub(crate) fn paths_of(&mut self, tgid: u32, address: u64) -> Vec<Arc<str>> {
        self.read_mappings(tgid);
        let now = self.states.get(&tgid).and_then(|state| state.mappings.find(address)).map(|mapping| mapping.file);
        let lately = self.lately.iter().rev().copied().filter(|file| Some(*file) != now);
        let files: Vec<FileIndex> = now.into_iter().chain(lately).collect();
        files.into_iter().filter_map(|file| Some(self.files.get_mut(file)?.path.clone())).collect()
    }

    /// The process, and beside it the tables that resolving its frames needs.
    pub(crate) fn parts(&mut self, tgid: u32) -> Option<(&mut State, &mut Files, &Names, &mut FxHashMap<u64, FrameId>)> {
        let state = self.states.get_mut(&tgid)?;
        Some((state, &mut self.files, &self.names, &mut self.kernel_frames))
    }
}

impl State {
    fn new(comm: [u8; COMM_LENGTH], name: LabelId) -> State {
        State {
            mappings: Mappings::default(),
            frames: FxHashMap::default(),
            anonymous: None,
            life: 0,
            name,
            comm,
            mappings_known: false,
            command_line_known: false,
            sampled: false,
            threads: 1,
            leader_gone: false,
            exited: None,
        }
    }
}

fn unknown_process(name: LabelId) -> Process {
    Process { name, command_line: Arc::default(), parent: Tgid(0), exited: None }
}

#[cfg(test)]
mod tests;
