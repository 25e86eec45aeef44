//! The table of the machine's processes and their mappings, updated by events in the order of their time.
//!
//! ```text
//! FORK  the child shares its parent's mappings until one of them changes
//! COMM  with the exec bit: all mappings are gone, a new program follows
//! MMAP2 another piece of executable memory
//! EXIT  of the last thread: the process is kept for some seconds, because samples may be late
//! ```
//!
//! Mappings of processes that existed before flametop are read from `/proc` once, when they are first needed. After the kernel lost
//! events, our mappings may be wrong, so they are read again. All processes are read again at most once a second. A process is read
//! again immediately if a sample of it has an address that is not mapped. Worker threads do the reading ([`reading`](super::reading)).
//! Only samples wait for it ([`parking`](super::parking)).

use crate::collector::sys::kcore;
use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::bounds::Bounds;
use super::dumps::Dumped;
use super::interpreter::may_be_interpreter;
use super::mappings::{FileIndex, Files, MAX_MAPPINGS, Mapping, Mappings};
use super::moved::{MAX_ENTRIES, MovedCode, MovedEntries};
use super::parked::Parking;
use super::proc;
use super::reader::{Answer, ProcessReader, Question, What};
use super::reasons::Reasons;
use super::remapped::Remapped;
use super::scripts::{FunctionReads, Jvms, MAX_JVMS, MAX_RUNTIMES, Runtimes};
use super::state::{Known, ProcessState, UNKNOWN_USER};
use crate::collector::wire::perf_records::{Event, Timed, comm_bytes};
use crate::collector::wire::records::{COMM_LENGTH, Record, UserFrame, comm_text};
use crate::profile::{FrameId, FrameKind, LabelId, Names, Process, Processes, Tgid, Timestamp, UserId};

/// How many recently mapped files are remembered.
const MAX_LATELY: usize = 64;

/// How many thread names are kept before the cache is emptied: a hostile program may make many.
const MAX_COMMS: usize = 65_536;

/// Least time between two readings of a process whose samples have addresses that are not mapped, in nanoseconds.
const BEFORE_ANOTHER_READING: u64 = 20_000_000;

/// Effects of events outside the table.
#[derive(Default, Debug)]
pub(crate) struct Happened {
    /// Processes that ended, in order.
    pub(crate) exited: Vec<Tgid>,
    /// Whether kernel code was loaded or unloaded.
    pub(crate) kernel_symbols_changed: bool,
    /// Events that the kernel could not deliver.
    pub(crate) lost: u64,
}

/// All living processes, and processes that ended a moment ago.
pub(crate) struct ProcessTable {
    /// The name tables, shared with the rest of flametop.
    pub(crate) names: Arc<Names>,
    /// Files that were mapped.
    pub(crate) files: Files,
    /// Frames of kernel addresses, keyed as in [`ProcessState::frames`].
    pub(crate) kernel_frames: FxHashMap<u64, FrameId>,
    /// Why threads wait, read at the first wait.
    pub(super) reasons: Option<Reasons>,
    pub(super) bounds: Bounds,
    /// Bytes of all mappings, as counted last. `mappings_forgotten` counts how often some were forgotten because there were too many.
    pub(super) mappings_memory: usize,
    /// Bytes of all functions of interpreters, as counted last.
    pub(super) functions_memory: usize,
    pub(super) mappings_forgotten: u64,
    /// States by process number. They are boxed: a state is 600 bytes, and the map keeps twice as many slots as there ever were processes.
    pub(super) states: FxHashMap<u32, Box<ProcessState>>,
    pub(super) shared: Arc<Processes>,
    pub(super) comms: FxHashMap<[u8; COMM_LENGTH], LabelId>,
    /// Files that were mapped lately, newest last.
    pub(super) lately: VecDeque<FileIndex>,
    pub(super) exited: VecDeque<(u64, u32)>,
    /// Sampled processes that are gone but not forgotten: exit time, number, bytes of the command line.
    pub(super) remembered: VecDeque<(u64, u32, usize)>,
    pub(super) remembered_bytes: usize,
    /// Processes whose main thread is gone, while our count says that other threads still run.
    pub(super) lingering: Vec<u32>,
    pub(super) distrusted_at: u64,
    /// When events were lost last.
    pub(super) lost_at: u64,
    /// See [`ProcessState::life`].
    pub(super) lives: u64,
    /// How many outdated frames were forgotten.
    pub(super) outdated: usize,
    pub(super) reader: ProcessReader,
    /// Questions that will be asked at the end of this drain.
    pub(super) questions: Vec<Question>,
    pub(super) parking: Parking,
    pub(super) dumped: Dumped,
    pub(super) remapped: Remapped,
    /// Bits of code addresses that may be a signature (arm64).
    pub(super) signature: u64,
    /// Answers that wait until earlier events have been applied.
    pub(super) early: Vec<Answer>,
    /// Processes without a command line that wait for their parent's: number and life.
    pub(super) heirs: Vec<(u32, u64)>,
    /// Processes with interpreters that BPF knows.
    pub(crate) runtimes: Runtimes,
    /// The JVMs among them.
    pub(crate) jvms: Jvms,
    pub(super) reads: FunctionReads,
    /// Anonymous memory whose code BPF knows.
    pub(crate) moved: MovedEntries,
}

impl ProcessTable {
    #[cfg(test)]
    pub(crate) fn new(names: Arc<Names>, shared: Arc<Processes>) -> ProcessTable {
        ProcessTable::bounded(names, shared, Files::LIMIT * 16)
    }

    /// Returns an empty table for a flametop that may take `memory` bytes.
    pub(crate) fn bounded(names: Arc<Names>, shared: Arc<Processes>, memory: usize) -> ProcessTable {
        ProcessTable {
            names,
            files: Files::bounded(memory / 16),
            reasons: None,
            bounds: Bounds::of(memory),
            mappings_memory: 0,
            functions_memory: 0,
            mappings_forgotten: 0,
            kernel_frames: FxHashMap::default(),
            states: FxHashMap::default(),
            shared,
            comms: FxHashMap::default(),
            lately: VecDeque::new(),
            exited: VecDeque::new(),
            remembered: VecDeque::new(),
            remembered_bytes: 0,
            lingering: Vec::new(),
            distrusted_at: 0,
            lost_at: 0,
            lives: 0,
            outdated: 0,
            reader: ProcessReader::default(),
            questions: Vec::new(),
            parking: Parking::default(),
            dumped: Dumped::default(),
            remapped: Remapped::default(),
            signature: kcore::signature_mask(),
            early: Vec::new(),
            heirs: Vec::new(),
            runtimes: Runtimes::new(MAX_RUNTIMES),
            jvms: Jvms::new(MAX_JVMS),
            reads: FunctionReads::default(),
            moved: MovedEntries::new(MAX_ENTRIES),
        }
    }

    /// Forgets all ids of frames and labels, and makes new ones in these tables.
    pub(crate) fn use_names(&mut self, names: Arc<Names>) {
        self.names = names;
        self.kernel_frames = FxHashMap::default();
        self.comms = FxHashMap::default();
        self.outdated = 0;
        self.files.forget_objects();
        for state in self.states.values_mut() {
            state.frames = FxHashMap::default();
            state.anonymous = None;
            state.label = None;
            state.scripts.forget_frames();
        }
    }

    /// Returns the state of a new program, with only its name known.
    pub(super) fn begin(&mut self, comm: [u8; COMM_LENGTH]) -> ProcessState {
        self.lives += 1;
        ProcessState { life: self.lives, ..ProcessState::new(comm) }
    }

    /// Adds a process that existed before flametop.
    pub(crate) fn add_found(&mut self, found: proc::FoundProcess) {
        let young_copy_of = found.is_young_copy.then_some(found.parent);
        let state = ProcessState { threads: found.threads.max(1), young_copy_of, ..self.begin(found.comm) };
        self.states.insert(found.tgid, Box::new(state));
        self.shared
            .insert(Tgid(found.tgid), Process { parent: Tgid(found.parent), threads: found.threads.max(1), ..unknown_process() });
    }

    /// Returns the label of a thread's name. The user is charged if the label is new. Called for samples only: names that appear only in
    /// events get no label.
    pub(crate) fn label_for(&mut self, user: UserId, comm: [u8; COMM_LENGTH]) -> LabelId {
        if let Some(label) = self.comms.get(&comm) {
            return *label;
        }
        if self.comms.len() >= MAX_COMMS {
            self.comms.clear();
        }
        let label = self.names.labels.intern_for(user, &comm_text(&comm), "", FrameKind::Process);
        self.comms.insert(comm, label);
        label
    }

    /// Applies one event. Events must come in the order of their time, and before later samples.
    pub(crate) fn apply(&mut self, timed: Timed, happened: &mut Happened) {
        match timed.event {
            Event::Map { tgid, start, end, offset, identity, path } => {
                let user = self.states.get(&tgid).map_or(UNKNOWN_USER, |state| state.user);
                let file = self.files.intern(&path, identity, user);
                self.forget_moved(tgid, &(start..end), timed.time);
                self.map(tgid, Mapping { start, end, offset, file });
                self.map_moved(tgid);
                if !self.lately.contains(&file) {
                    self.lately.push_back(file);
                    if self.lately.len() > MAX_LATELY {
                        self.lately.pop_front();
                    }
                }
            }
            Event::Name { tgid, exec: true, comm } => self.exec(tgid, comm, timed.time),
            Event::Name { tgid, exec: false, comm } => self.rename(tgid, comm),
            Event::Fork { tgid, parent } => self.fork(tgid, parent),
            Event::Exit { tgid, tid } => self.exit(tgid, tid, timed.time, happened),
            Event::KernelSymbol => happened.kernel_symbols_changed = true,
            Event::Lost(count) => {
                happened.lost += count;
                self.lost_at = timed.time;
                self.distrust_all(timed.time);
            }
            Event::Full => self.lost_at = timed.time,
        }
    }

    pub(super) fn map(&mut self, tgid: u32, mapping: Mapping) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.lacks_files |= mapping.file == FileIndex::REFUSED;
        let is_changed = state.mappings.insert(mapping);
        // The address may have had no meaning before: a sample may be older than the mapping.
        if self.files.get_mut(mapping.file).is_some_and(|file| may_be_interpreter(&file.path)) {
            state.scripts.look_again();
        }
        if mapping.may_hold_engine() && !state.scripts.has_engine() {
            state.scripts.looks_for_engine = true;
        }
        if is_changed {
            state.frames.clear();
        }
        if state.known != Known::Yes {
            state.since.insert(mapping);
        }
        // If the process was not read, its earlier mapping at this address is not known.
        if is_changed || state.known != Known::Yes {
            self.remapped.note(tgid, mapping.range());
        }
        if state.mappings.len() > MAX_MAPPINGS {
            self.remapped.note(tgid, 0..u64::MAX);
            state.begin_reading();
            state.mappings = Mappings::default();
        }
    }

    pub(super) fn exec(&mut self, tgid: u32, comm: [u8; COMM_LENGTH], time: u64) {
        let before = self.states.get(&tgid);
        let sampled = before.is_some_and(|state| state.sampled);
        // A process of root may have changed its user before it ran the program. Only a sample will show that. A process of another user
        // stays charged to that user until a sample shows another user.
        let user = before.map(|state| state.user).filter(|user| *user != UserId(0)).unwrap_or(UNKNOWN_USER);
        let state = ProcessState { known: Known::Yes, read_at: time, user, sampled, ..self.begin(comm) };
        self.runtimes.remove(tgid);
        self.jvms.remove(tgid);
        self.drop_moved(tgid);
        self.states.insert(tgid, Box::new(state));
        let mut process = self.shared.entry(Tgid(tgid)).or_insert_with(unknown_process);
        process.command_line = Arc::default();
        process.threads = 1;
        process.exited = None;
    }

    pub(super) fn rename(&mut self, tgid: u32, comm: [u8; COMM_LENGTH]) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| state.comm != comm) else { return };
        state.comm = comm;
        state.label = None;
    }

    pub(super) fn fork(&mut self, tgid: u32, parent: u32) {
        if tgid == parent {
            return self.count_threads(tgid, |threads| threads.saturating_add(1));
        }
        // The parent's command line may be another program's by now, or gone. So the child's own is read at its first sample.
        let command_line_known = self.states.get(&parent).is_some_and(|state| state.command_line_known == Known::Yes);
        // Ask now, while the parent can be read: the child may be gone before its first sample is processed.
        self.want_mappings(parent);
        self.want_command_line(parent);
        self.lives += 1;
        let none = ProcessState::new([0; COMM_LENGTH]);
        let from = self.states.get(&parent).map_or(&none, |state| state);
        let child = ProcessState {
            mappings: from.mappings.clone(),
            known: if from.known == Known::Yes { Known::Yes } else { Known::No },
            read_at: from.read_at,
            since: from.since.clone(),
            lacks_files: from.lacks_files,
            forked_from: Some((parent, from.life)),
            user: from.user,
            label: from.label,
            command_line: from.command_line.clone(),
            command_line_known: if command_line_known { Known::Yes } else { Known::No },
            // The copy has the same memory, so its interpreter and functions are at the same addresses.
            scripts: from.scripts.of_copy(),
            moved: from.moved.iter().filter(|moved| moved.code != MovedCode::Asked).cloned().collect(),
            life: self.lives,
            ..ProcessState::new(from.comm)
        };
        let user = Some(child.user).filter(|user| *user != UNKNOWN_USER);
        let process = Process { command_line: child.command_line.clone(), parent: Tgid(parent), user, threads: 1, exited: None };
        self.drop_moved(tgid);
        self.states.insert(tgid, Box::new(child));
        self.tell_runtime(tgid);
        self.copy_moved(tgid);
        self.shared.insert(Tgid(tgid), process);
    }

    /// Notes that a process has another number of threads.
    pub(super) fn count_threads(&mut self, tgid: u32, count: impl FnOnce(u32) -> u32) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.threads = count(state.threads);
        let threads = state.threads;
        self.shared.get_mut(&Tgid(tgid)).into_iter().for_each(|mut process| process.threads = threads);
    }

    pub(super) fn exit(&mut self, tgid: u32, tid: u32, time: u64, happened: &mut Happened) {
        if self.states.get(&tgid).is_none_or(|state| state.exited.is_some()) {
            return;
        }
        self.count_threads(tgid, |threads| threads.saturating_sub(1));
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.leader_gone |= tgid == tid;
        if state.leader_gone && state.threads == 0 {
            self.finish(tgid, time, happened);
        } else if tgid == tid {
            // Either it continues without its main thread, or our count is wrong because a thread was made while /proc was read.
            self.lingering.push(tgid);
        }
    }

    pub(super) fn finish(&mut self, tgid: u32, time: u64, happened: &mut Happened) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.exited = Some(time);
        self.runtimes.remove(tgid);
        self.jvms.remove(tgid);
        self.drop_moved(tgid);
        if let Some(mut process) = self.shared.get_mut(&Tgid(tgid)) {
            process.exited = Some(Timestamp(time));
        }
        self.exited.push_back((time, tgid));
        happened.exited.push(Tgid(tgid));
    }

    /// Whether a process with this number is alive, according to the events.
    pub(crate) fn is_alive(&self, tgid: u32) -> bool {
        self.states.get(&tgid).is_some_and(|state| state.exited.is_none())
    }

    /// Marks all mappings as not known, because events were lost and any mapping may be wrong. Does so at most once a second, because
    /// reading all of them again costs time.
    pub(super) fn distrust_all(&mut self, time: u64) {
        if time.saturating_sub(self.distrusted_at) < 1_000_000_000 && self.distrusted_at > 0 {
            return;
        }
        self.distrusted_at = time;
        self.remapped.note_all();
        for state in self.states.values_mut().filter(|state| state.exited.is_none()) {
            state.begin_reading();
        }
    }

    /// Sets the user of a process. Returns its state if the user has changed.
    pub(super) fn set_user(&mut self, tgid: u32, user: UserId) -> Option<&mut ProcessState> {
        let state = self.states.get_mut(&tgid).filter(|state| state.user != user)?;
        state.user = user;
        self.shared.get_mut(&Tgid(tgid)).into_iter().for_each(|mut process| process.user = Some(user));
        Some(state)
    }

    /// Prepares a process for a sample of its thread: adds and names it, and asks for the facts that are not known.
    pub(crate) fn prepare(&mut self, record: &Record) {
        let (tgid, comm) = (record.tgid, record.comm);
        self.forget_outdated();
        if !self.states.contains_key(&tgid) {
            // Its fork was lost, or it began while /proc was read.
            self.add_found(proc::FoundProcess { tgid, parent: 0, threads: 1, comm, is_young_copy: false });
            self.ask(tgid, What::Status);
        }
        self.states.get_mut(&tgid).into_iter().for_each(|state| state.files = Some(record.files));
        if let Some(state) = self.set_user(tgid, record.uid) {
            // Its files were refused while another user was charged for it. This user may have room.
            if std::mem::take(&mut state.lacks_files) {
                state.begin_reading();
            }
        }
        if record.user().len() > 0 {
            self.doubt(record);
            self.want_mappings(tgid);
            self.want_interpreter(tgid, record.time);
            self.want_engine(tgid, record.time);
            self.want_jvm(tgid, record.time);
        }
        self.want_command_line(tgid);
        // Idle tasks are all of process 0, and each has its CPU's name.
        let comm = if tgid == 0 { comm_bytes(b"swapper") } else { comm };
        if tgid == record.tid {
            self.rename(tgid, comm);
        }
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.sampled = true;
    }

    /// Marks the mappings of a sample's process as not known, if events were lost since they were read and they lack an address of the
    /// sample.
    fn doubt(&mut self, record: &Record) {
        let lost_at = self.lost_at;
        let Some(state) = self.states.get_mut(&record.tgid).filter(|state| state.known == Known::Yes) else { return };
        if state.read_at > lost_at || record.time < state.read_at.saturating_add(BEFORE_ANOTHER_READING) {
            return;
        }
        let is_mapped = |frame: UserFrame| {
            frame.guessed || state.mappings.find(frame.address.saturating_sub(frame.is_return.into())).is_some()
        };
        if !record.user().all(is_mapped) {
            state.begin_reading();
        }
    }

    /// Returns the label of a process's name.
    pub(crate) fn process_label(&mut self, tgid: u32) -> LabelId {
        let Some(state) = self.states.get(&tgid) else { return LabelId::default() };
        let (comm, label, user) = (state.comm, state.label, state.user);
        label.unwrap_or_else(|| {
            let label = self.label_for(user, comm);
            self.states.get_mut(&tgid).into_iter().for_each(|state| state.label = Some(label));
            label
        })
    }

    /// Forgets cached frames whose JIT code has been replaced. The next sample at such an address gets a new frame.
    pub(super) fn forget_outdated(&mut self) {
        let (names, states) = (&self.names, &mut self.states);
        self.outdated = names.outdated_since(self.outdated, |frame| {
            let tgid = names.objects.get(frame.object()).and_then(|object| object.file).map(|(tgid, _)| tgid);
            let state = tgid.and_then(|tgid| states.get_mut(&u32::try_from(tgid).ok()?));
            if let Some(state) = state.filter(|state| state.anonymous == Some(frame.object())) {
                state.frames.remove(&(frame.address() << 1 | u64::from(frame.is_return())));
            }
        });
    }

    /// Returns the path of the file that a process has mapped at an address, and the paths of all other files that were mapped lately. The
    /// others serve if the process has unmapped its file since, or is gone.
    pub(crate) fn paths_of(&mut self, tgid: u32, address: u64) -> (Option<Arc<str>>, Vec<Arc<str>>) {
        self.want_mappings(tgid);
        let now = self.states.get(&tgid).and_then(|state| state.mappings.find(address)).map(|mapping| mapping.file);
        let lately = self.lately.iter().rev().copied().filter(|file| Some(*file) != now);
        let lately: Vec<FileIndex> = lately.collect();
        let mut path_of = |file| Some(self.files.get_mut(file)?.path.clone());
        (now.and_then(&mut path_of), lately.into_iter().filter_map(path_of).collect())
    }

    /// Returns whether the mappings of a process are known, and asks for them if not.
    pub(crate) fn is_read(&mut self, tgid: u32) -> bool {
        self.want_mappings(tgid);
        self.states.get(&tgid).is_some_and(|state| state.known == Known::Yes)
    }

    /// Returns the state of a process and the tables that are needed to resolve its frames.
    pub(crate) fn parts(&mut self, tgid: u32) -> Option<Parts<'_>> {
        let state = self.states.get_mut(&tgid)?;
        let (files, names, kernel_frames) = (&mut self.files, &*self.names, &mut self.kernel_frames);
        let (questions, reads, reasons) = (&mut self.questions, &mut self.reads, &mut self.reasons);
        Some(Parts { state, files, names, kernel_frames, questions, reads, reasons })
    }
}

/// The parts of the table that are needed to resolve the frames of one process.
pub(crate) struct Parts<'a> {
    pub(crate) state: &'a mut ProcessState,
    pub(crate) files: &'a mut Files,
    pub(crate) names: &'a Names,
    pub(crate) kernel_frames: &'a mut FxHashMap<u64, FrameId>,
    pub(crate) questions: &'a mut Vec<Question>,
    pub(crate) reads: &'a mut FunctionReads,
    pub(super) reasons: &'a mut Option<Reasons>,
}

fn unknown_process() -> Process {
    Process { command_line: Arc::default(), parent: Tgid(0), user: None, threads: 1, exited: None }
}

#[cfg(test)]
mod tests;
