//! Samples whose walk met code without an unwind table, and that wait for it.
//!
//! ```text
//! sample ─┬─ no dump ─► resolved at once
//!         └─ dump ─► tables there? ─ yes ─► walked on in the dump ─► resolved
//!                      ▲      └─ no ─► waits, at most 2.5 s ─┐          ▲ of the two stacks the better one
//!                      └───────── a table came ◄─────────────┘          └ after 2.5 s: as the kernel walked it
//! ```
//!
//! The kernel copies registers and stack where a walk meets such code (`bpf/dump.h`), and goes on by guessing where that is safe. A waiting
//! sample keeps its time, but is stored after the samples that came meanwhile.
//!
//! Bounds: waiting samples take at most 32 MB, those of root 24 MB, those of any other user 8 MB. A sample that finds no room with a long copy
//! waits with the first 16 KiB of it.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::super::Batch;
use super::super::events::Identity;
use super::super::mappings::{FileIndex, Files, Mapping, Mappings};
use super::super::records::{COMM_LENGTH, Record, StackDump};
use super::super::resolve::Waits;
use super::super::tables::{MappedRequest, ObjectKey, RuleAt};
use super::super::unwind::Arch;
use super::super::unwind::walk::{self, At, Code, Found, Machine, Memory};
use super::{Known, ProcessTable, State};
use crate::profile::{UserEnd, UserId};

/// Longest wait of a sample in nanoseconds. Less than processes are known after their end.
const PATIENCE: u64 = 2_500_000_000;
/// Most bytes of waiting samples: of all users, of root, and of any other user.
const MAX_BYTES: usize = 32 << 20;
const MAX_BYTES_OF_ROOT: usize = 24 << 20;
const MAX_BYTES_OF_USER: usize = 8 << 20;
/// Bytes of a stack that are kept where there is little room.
const SHORT: usize = 16 << 10;

/// This machine.
pub(crate) const ARCH: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };

/// Where the rules of files are looked up.
pub(crate) trait RuleSource {
    /// Returns what the tables know a file by, if they have met it: the file of a mapping with this path, in a process of this user.
    fn key_of(&mut self, path: &str, identity: Identity, user: UserId) -> Option<ObjectKey>;
    /// Returns the rule at an offset in a file.
    fn at(&mut self, key: ObjectKey, offset: u64) -> RuleAt;
}

/// What became of samples that met code without a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DumpCounts {
    /// Samples with a copy of their stack.
    pub dumped: u64,
    /// Those that were walked to a root in the copy.
    pub whole: u64,
    /// Those whose table did not come in time.
    pub late: u64,
    /// Samples without a copy, because too many were made at that moment, or too many waited.
    pub refused: u64,
}

/// A sample that waits.
struct Waiting {
    record: Box<[u8]>,
    dump: StackDump,
    tgid: u32,
    user: UserId,
    /// The process when the sample was taken.
    then: Then,
    /// The code without a table that the last try came to. As long as it has none, there is no other try.
    stuck: Option<u64>,
    until: u64,
}

/// A process when a sample of it was taken. It may run another program by the time that the sample is walked.
struct Then {
    /// Its `life` and `changes`. If one of them differs later, addresses may have another meaning.
    life: u64,
    changes: u64,
    /// Its mappings, if they were known.
    mappings: Option<Mappings>,
    comm: [u8; COMM_LENGTH],
}

impl Waiting {
    fn cost(&self) -> usize {
        self.record.len() + self.dump.stack.len() + size_of::<Waiting>() + 32
    }
}

/// The waiting samples, in the order in which they came.
#[derive(Default)]
pub(super) struct Dumped {
    samples: VecDeque<Box<Waiting>>,
    bytes: usize,
    of_user: FxHashMap<UserId, usize>,
    counts: DumpCounts,
    /// Tables that no sample has asked for.
    requests: Vec<MappedRequest>,
    /// The version of the tables when they were last tried.
    version: u64,
    /// Whether each dump is walked in addition, to be compared: [`Walk::Dumped`](super::super::Walk::Dumped).
    pub(super) compares: bool,
}

impl Dumped {
    fn push(&mut self, mut waiting: Box<Waiting>) -> Result<(), Box<Waiting>> {
        let limit = if waiting.user == UserId(0) { MAX_BYTES_OF_ROOT } else { MAX_BYTES_OF_USER };
        let of_user = self.of_user.entry(waiting.user).or_default();
        // Long copies may have three quarters.
        let is_tight = |bytes: usize| (*of_user + bytes) * 4 > limit * 3 || (self.bytes + bytes) * 4 > MAX_BYTES * 3;
        if waiting.dump.stack.len() > SHORT && is_tight(waiting.cost()) {
            waiting.dump.stack = waiting.dump.stack.get(..SHORT).unwrap_or_default().into();
        }
        let bytes = waiting.cost();
        if *of_user + bytes > limit || self.bytes + bytes > MAX_BYTES {
            return Err(waiting);
        }
        *of_user += bytes;
        self.bytes += bytes;
        self.samples.push_back(waiting);
        Ok(())
    }

    /// Takes out all samples. The caller pushes those that go on waiting.
    fn take(&mut self) -> VecDeque<Box<Waiting>> {
        self.bytes = 0;
        self.of_user.clear();
        std::mem::take(&mut self.samples)
    }

    /// Mappings of processes when their samples were taken.
    pub(super) fn mappings(&self) -> impl Iterator<Item = &Mappings> {
        self.samples.iter().filter_map(|waiting| waiting.then.mappings.as_ref())
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.bytes
    }

    /// Whether samples wait.
    pub(super) fn is_any(&self) -> bool {
        !self.samples.is_empty()
    }
}

/// The code of a process, by what is known of its mappings.
struct MappedCode<'a> {
    mappings: &'a Mappings,
    files: &'a mut Files,
    user: UserId,
    /// The file that was asked for last, and its key.
    last: Option<(FileIndex, ObjectKey)>,
    /// The mapping of a file that the tables do not know.
    unknown: Option<Mapping>,
    rules: &'a mut dyn RuleSource,
}

impl Code for MappedCode<'_> {
    fn at(&mut self, address: u64) -> At {
        let Some(mapping) = self.mappings.find(address) else { return At::Nothing };
        let (key, offset) = match mapping.file {
            FileIndex::ANONYMOUS => return At::Anonymous,
            FileIndex::VDSO => (Some(ObjectKey::VDSO), address - mapping.start),
            file => {
                let key = self.key_of(file);
                self.unknown = key.is_none().then_some(*mapping);
                (key, mapping.file_offset(address))
            }
        };
        match key.map(|key| self.rules.at(key, offset)) {
            Some(RuleAt::Rule(rule)) => At::Rule(rule),
            Some(RuleAt::NotYet) | None => At::NoTable,
        }
    }
}

impl MappedCode<'_> {
    fn key_of(&mut self, index: FileIndex) -> Option<ObjectKey> {
        if let Some((_, key)) = self.last.filter(|(last, _)| *last == index) {
            return Some(key);
        }
        let file = self.files.get_mut(index)?;
        let key = self.rules.key_of(&file.path, file.identity, self.user)?;
        self.last = Some((index, key));
        Some(key)
    }
}

impl ProcessTable {
    /// Lets each dump be walked beside its sample, for comparing the two.
    pub(crate) fn compare_dumps(&mut self) {
        self.dumped.compares = true;
    }

    /// Returns what became of samples that met code without a table.
    pub(crate) fn dump_counts(&self) -> DumpCounts {
        self.dumped.counts
    }

    /// Takes the tables that waiting samples need and no sample has asked for.
    pub(crate) fn take_requests(&mut self) -> Vec<MappedRequest> {
        std::mem::take(&mut self.dumped.requests)
    }

    /// Whether samples wait for tables.
    pub(crate) fn is_any_dumped(&self) -> bool {
        self.dumped.is_any()
    }

    /// Counts samples without a dump that should have one.
    pub(crate) fn dumps_refused(&mut self, count: u64) {
        self.dumped.counts.refused += count;
    }

    /// Adds a sample with a dump to the batch, at once or when its tables are there.
    pub(crate) fn take_dumped(
        &mut self,
        record: &Record,
        bytes: &[u8],
        dump: StackDump,
        rules: &mut dyn RuleSource,
        batch: &mut Batch,
    ) {
        self.prepare(record);
        if self.dumped.compares {
            self.place(record, bytes, batch);
            self.compare(record, bytes, &dump, rules, batch);
            return;
        }
        self.dumped.counts.dumped += 1;
        let Some(state) = self.states.get(&record.tgid) else { return };
        let mappings = (state.known == Known::Yes).then(|| state.mappings.clone());
        let then = Then { life: state.life, changes: state.changes, mappings, comm: state.comm };
        let (tgid, user, until) = (record.tgid, record.uid, record.time.saturating_add(PATIENCE));
        let waiting = Box::new(Waiting { record: bytes.into(), dump, tgid, user, then, stuck: None, until });
        self.go_on(waiting, false, rules, batch);
    }

    /// Tries again what waits: if tables have changed, or samples have waited long enough. `version` counts the changes of tables. With
    /// `give_up`, nothing goes on waiting.
    pub(crate) fn settle_dumped(&mut self, now: u64, version: u64, give_up: bool, rules: &mut dyn RuleSource, batch: &mut Batch) {
        self.keep_mappings();
        let is_due = self.dumped.samples.front().is_some_and(|waiting| waiting.until <= now);
        if !self.dumped.is_any() || version == self.dumped.version && !is_due && !give_up {
            return;
        }
        self.dumped.version = version;
        let from = batch.samples.len();
        for waiting in self.dumped.take() {
            let is_due = give_up || waiting.until <= now;
            self.go_on(waiting, is_due, rules, batch);
        }
        if batch.samples.len() > from {
            batch.samples.sort_by_key(|sample| sample.time);
        }
    }

    /// Keeps the mappings of processes that were read since their samples were taken, before they change.
    fn keep_mappings(&mut self) {
        for waiting in self.dumped.samples.iter_mut().filter(|waiting| waiting.then.mappings.is_none()) {
            let Some(state) = self.states.get(&waiting.tgid).filter(|state| state.known == Known::Yes) else { continue };
            if (state.life, state.changes) == (waiting.then.life, waiting.then.changes) {
                waiting.then.mappings = Some(state.mappings.clone());
            }
        }
    }

    /// Adds a sample to the batch if its stack can be walked, or if it `is_due`. Otherwise it waits on.
    fn go_on(&mut self, mut waiting: Box<Waiting>, is_due: bool, rules: &mut dyn RuleSource, batch: &mut Batch) {
        let Some(record) = Record::parse(&waiting.record) else { return };
        let own = self.replace_changed(&waiting);
        let walked = self.walk_on(&record, &waiting.dump, waiting.stuck, rules);
        let is_changed = own.is_some();
        match walked {
            Some((frames, end)) if end != UserEnd::NoTable => {
                self.dumped.counts.whole += u64::from(end == UserEnd::Root);
                let before = waiting.dump.frames;
                let is_better = end == UserEnd::Root
                    || UserEnd::from_wire(record.user_end) != UserEnd::Root && before + frames.len() >= record.user().len();
                let bytes = is_better.then(|| Record::with_user(&waiting.record, &frames, before, end)).flatten();
                let bytes = bytes.as_deref().unwrap_or(&waiting.record);
                match Record::parse(bytes) {
                    Some(record) if is_changed => drop(self.resolve(&record, batch, Waits::NoMore)),
                    Some(record) => self.place(&record, bytes, batch),
                    None => {}
                }
            }
            _ if is_due => {
                self.dumped.counts.late += 1;
                match is_changed {
                    true => drop(self.resolve(&record, batch, Waits::NoMore)),
                    false => self.place(&record, &waiting.record, batch),
                }
            }
            walked => {
                let last = walked.as_ref().and_then(|(frames, _)| frames.last());
                waiting.stuck = last.map(|frame| frame.pc.wrapping_sub(frame.is_return.into())).or(waiting.stuck);
                if let Err(waiting) = self.dumped.push(waiting)
                    && let Some(record) = Record::parse(&waiting.record)
                {
                    self.dumped.counts.refused += 1;
                    self.resolve(&record, batch, Waits::NoMore);
                }
            }
        }
        if let Some((tgid, state)) = own {
            self.states.insert(tgid, state);
        }
    }

    /// Puts a process back to how it was when a sample was taken, if it has changed since. Returns its present state, which the caller puts
    /// back.
    fn replace_changed(&mut self, waiting: &Waiting) -> Option<(u32, State)> {
        let state = self.states.get_mut(&waiting.tgid)?;
        let then = &waiting.then;
        if (state.life, state.changes) == (then.life, then.changes) {
            return None;
        }
        let known = if then.mappings.is_some() { Known::Yes } else { Known::Unread };
        let mappings = then.mappings.clone().unwrap_or_default();
        let old = State { life: then.life, known, mappings, user: waiting.user, ..State::new(then.comm) };
        Some((waiting.tgid, std::mem::replace(state, old)))
    }

    /// Walks on from a dump. `None` while the mappings of its process are not known, and as long as the code at `stuck` has no table.
    fn walk_on(
        &mut self,
        record: &Record,
        dump: &StackDump,
        stuck: Option<u64>,
        rules: &mut dyn RuleSource,
    ) -> Option<(Vec<Found>, UserEnd)> {
        let state = self.states.get(&record.tgid).filter(|state| state.known == Known::Yes)?;
        let mut code =
            MappedCode { mappings: &state.mappings, files: &mut self.files, user: record.uid, last: None, unknown: None, rules };
        let memory = Memory { start: dump.start, bytes: &dump.stack };
        let machine = Machine { arch: ARCH, signature: self.signature };
        let is_stuck = stuck.is_some_and(|address| code.at(address) == At::NoTable);
        let walked = (!is_stuck).then(|| walk::walk(machine, &dump.registers, memory, &mut code));
        if let Some(mapping) = code.unknown
            && let Some(file) = self.files.get_mut(mapping.file)
        {
            let (path, identity) = (file.path.clone(), file.identity);
            let (tgid, user, files, mapping) = (record.tgid, record.uid, record.files, (mapping.start, mapping.end));
            self.dumped.requests.push(MappedRequest { tgid, user, files, mapping, path, identity });
        }
        walked
    }

    /// Adds the walk in a dump to the batch, to be compared with the sample before.
    fn compare(&mut self, record: &Record, bytes: &[u8], dump: &StackDump, rules: &mut dyn RuleSource, batch: &mut Batch) {
        let Some((frames, end)) = self.walk_on(record, dump, None, rules) else { return };
        let Some(mut bytes) = Record::with_user(bytes, &frames, dump.frames, end) else { return };
        Record::set_compared(&mut bytes);
        if let Some(record) = Record::parse(&bytes) {
            self.resolve(&record, batch, Waits::NoMore);
        }
    }
}

#[cfg(test)]
mod tests;
