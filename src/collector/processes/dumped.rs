//! Samples that wait for an unwind table, because their walk met code without one.
//!
//! ```text
//! sample ─┬─ no dump ─► resolved at once
//!         └─ dump ─► tables loaded? ─ yes ─► walk continues in the dump ─► resolved
//!                      ▲      └─ no ─► waits, at most 2.5 s ─┐          ▲ the better one of the two stacks
//!                      └───────── a table came ◄─────────────┘          └ after 2.5 s: the kernel's stack
//! ```
//!
//! When a walk meets such code, the kernel copies registers and stack (`bpf/walk/dump.h`), and continues by guessing where that is safe.
//! A waiting sample keeps its time, but is stored after the samples that came meanwhile.
//!
//! Bounds: waiting samples take at most 32 MB, those of root 24 MB, those of any other user 8 MB. If a sample finds no room for a long
//! copy, it waits with the first 16 KiB of the copy.

use std::ops::Range;

use std::sync::Arc;

use super::super::Batch;
use super::super::tables::{RuleAt, Rules};
use super::at_sample::Since;
use super::dumps::{DumpCounts, Waiting};
use super::mappings::{BuildIdOf, FileIndex, Files, Mapping, Mappings};
use super::moved::{Moved, file_range, is_asked};
use super::resolve::Waits;
use super::state::Known;
use super::table::ProcessTable;
use crate::collector::tables::MappedRequest;
use crate::collector::wire::perf_records::Identity;
use crate::collector::wire::records::ObjectKey;
use crate::collector::wire::records::{Record, StackDump};
use crate::profile::{UserEnd, UserId};
use crate::unwind::Arch;
use crate::unwind::walk::{At, Code, Machine, Memory, Walked};

/// Longest wait of a sample in nanoseconds. Ended processes are kept longer (`KEEP_EXITED`).
const PATIENCE: u64 = 2_500_000_000;
/// Source of the unwind rules of files.
pub(crate) trait RuleSource {
    /// Returns the key of a mapped file, if the tables know it. `path` is the path of the mapping; `user` runs the process.
    fn key_of(&mut self, path: &str, identity: Identity, user: UserId) -> Option<ObjectKey>;
    /// Returns the rule at an offset in a file that a process of `user` has mapped.
    fn at(&mut self, key: ObjectKey, user: UserId, offset: u64) -> RuleAt;
}

impl RuleSource for Rules<'_> {
    fn key_of(&mut self, path: &str, identity: Identity, user: UserId) -> Option<ObjectKey> {
        self.key(path, identity, user)
    }

    fn at(&mut self, key: ObjectKey, user: UserId, offset: u64) -> RuleAt {
        self.rule(key, user, offset)
    }
}

/// The code of a process, found through its known mappings.
struct MappedCode<'a> {
    mappings: &'a Mappings,
    moved: &'a [Moved],
    files: &'a mut Files,
    user: UserId,
    /// The file of the last lookup, and its key.
    last: Option<(FileIndex, ObjectKey)>,
    /// The mapping of a file that the tables do not know.
    unknown: Option<Mapping>,
    rules: &'a mut dyn RuleSource,
    /// The path of V8's file, if the process has V8.
    engine: Option<&'a Arc<str>>,
}

impl Code for MappedCode<'_> {
    fn at(&mut self, address: u64) -> At {
        let Some(mapping) = self.mappings.find(address) else { return At::Nothing };
        let (key, offset) = match mapping.file {
            FileIndex::ANONYMOUS if is_asked(self.moved, address) => return At::NoTable,
            FileIndex::ANONYMOUS => return At::Anonymous,
            FileIndex::VDSO => (Some(ObjectKey::VDSO), address - mapping.start),
            file => {
                if self.files.get_mut(file).is_some_and(|file| file.build_id == BuildIdOf::NotElf) {
                    return At::Anonymous;
                }
                let key = self.key_of(file);
                self.unknown = key.is_none().then_some(*mapping);
                (key, mapping.file_offset(address))
            }
        };
        match key.map(|key| self.rules.at(key, self.user, offset)) {
            Some(RuleAt::Rule(rule)) => At::Rule(rule),
            Some(RuleAt::NotYet) | None => At::NoTable,
        }
    }

    fn keeps_frame_pointers(&mut self, address: u64) -> bool {
        let (Some(engine), Some(mapping)) = (self.engine, self.mappings.find(address)) else { return false };
        mapping.file == FileIndex::ANONYMOUS || self.files.get_mut(mapping.file).is_some_and(|file| file.path == *engine)
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
    /// Turns on the comparison: each dump is walked in addition to its sample.
    pub(crate) fn compare_dumps(&mut self) {
        self.dumped.compares = true;
    }

    /// Returns the counts of samples that met code without a table.
    pub(crate) fn dump_counts(&self) -> DumpCounts {
        self.dumped.counts
    }

    /// Takes the requests for tables that waiting samples need and the kernel's walk has not requested.
    pub(crate) fn take_requests(&mut self) -> Vec<MappedRequest> {
        std::mem::take(&mut self.dumped.requests)
    }

    /// Whether samples wait for tables.
    pub(crate) fn is_any_dumped(&self) -> bool {
        self.dumped.is_any()
    }

    /// Counts samples that should have a dump but have none.
    pub(crate) fn dumps_refused(&mut self, count: u64) {
        self.dumped.counts.refused += count;
    }

    /// Adds a sample with a dump to the batch, at once or when its tables are loaded.
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
        if !self.states.contains_key(&record.tgid) {
            return self.place(record, bytes, batch);
        }
        let then = self.at_sample(record.tgid);
        let mappings = then.known_mappings();
        let (tgid, user, until) = (record.tgid, record.uid, record.time.saturating_add(PATIENCE));
        let waiting = Box::new(Waiting { record: bytes.into(), dump, tgid, user, then, mappings, so_far: None, until });
        self.go_on(waiting, false, rules, batch);
    }

    /// Tries the waiting samples again, if tables have changed or samples have waited long enough. `version` counts the changes of tables.
    /// With `give_up`, no sample stays waiting.
    pub(crate) fn settle_dumped(&mut self, now: u64, version: u64, give_up: bool, rules: &mut dyn RuleSource, batch: &mut Batch) {
        self.keep_mappings();
        let is_due = self.dumped.samples.front().is_some_and(|waiting| waiting.until <= now);
        if !self.dumped.is_any() || Some(version) == self.dumped.version && !is_due && !give_up {
            return;
        }
        self.dumped.version = Some(version);
        let from = batch.samples.len();
        for waiting in self.dumped.take() {
            let is_due = give_up || waiting.until <= now;
            self.go_on(waiting, is_due, rules, batch);
        }
        self.forget_remapped();
        if batch.samples.len() > from {
            batch.samples.sort_by_key(|sample| sample.time);
        }
    }

    /// Copies the mappings of processes that were read after their samples were taken, before these mappings change.
    fn keep_mappings(&mut self) {
        let mut samples = std::mem::take(&mut self.dumped.samples);
        for waiting in samples.iter_mut().filter(|waiting| waiting.mappings.is_none()) {
            let Some(state) = self.states.get(&waiting.tgid).filter(|state| state.known == Known::Yes) else { continue };
            match self.since(&waiting.then) {
                Since::Unchanged => waiting.mappings = Some(state.mappings.clone()),
                Since::Remapped(mappings) => waiting.mappings = Some(mappings),
                Since::Lost => {}
            }
        }
        self.dumped.samples = samples;
    }

    /// Adds a sample to the batch if its stack can be walked, or if it `is_due`. Otherwise the sample waits longer.
    fn go_on(&mut self, waiting: Box<Waiting>, is_due: bool, rules: &mut dyn RuleSource, batch: &mut Batch) {
        if self.is_unchanged(&waiting.then) {
            return self.walk_and_resolve(waiting, is_due, false, rules, batch);
        }
        let (then, mappings) = (waiting.then.clone(), waiting.mappings.clone());
        self.resolve_as_it_was(&then, mappings, |table| table.walk_and_resolve(waiting, is_due, true, rules, batch));
    }

    /// Walks and resolves a sample whose process has the state of the sample's time. `is_changed`: that state was restored for this call.
    fn walk_and_resolve(
        &mut self,
        mut waiting: Box<Waiting>,
        is_due: bool,
        is_changed: bool,
        rules: &mut dyn RuleSource,
        batch: &mut Batch,
    ) {
        let Some(record) = Record::parse(&waiting.record) else { return };
        let so_far = waiting.so_far.take();
        match self.walk_on(&record, &waiting.dump, so_far, rules) {
            Ok((walked, end)) if end != UserEnd::NoTable => {
                let frames = walked.frames;
                // BPF has not looked for functions in V8's frames that were found here.
                let lacks_functions = frames.iter().skip(1).any(|frame| frame.guessed);
                let end = if end == UserEnd::Root && lacks_functions { UserEnd::Functions } else { end };
                self.dumped.counts.whole += u64::from(end == UserEnd::Root);
                let before = waiting.dump.frames;
                let is_better = matches!(end, UserEnd::Root | UserEnd::Functions)
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
            outcome => {
                waiting.so_far = outcome.map_or_else(|so_far| so_far, |(walked, _)| Some(walked));
                if let Err(waiting) = self.dumped.push(waiting)
                    && let Some(record) = Record::parse(&waiting.record)
                {
                    self.dumped.counts.refused += 1;
                    self.resolve(&record, batch, Waits::NoMore);
                }
            }
        }
    }

    /// Continues the walk in a dump where the last try ended. Fails while the mappings of its process are not known.
    fn walk_on(
        &mut self,
        record: &Record,
        dump: &StackDump,
        so_far: Option<Box<Walked>>,
        rules: &mut dyn RuleSource,
    ) -> Result<(Box<Walked>, UserEnd), Option<Box<Walked>>> {
        let Some(state) = self.states.get(&record.tgid).filter(|state| state.known == Known::Yes) else { return Err(so_far) };
        // The kernel knows the file of the first frame, even if another file has its path or inode by now.
        let first = dump.registers.pc.wrapping_sub(dump.registers.is_return.into());
        let last = state.mappings.find(first).map(|mapping| mapping.file).zip(dump.key);
        let mut code = MappedCode {
            mappings: &state.mappings,
            moved: &state.moved,
            files: &mut self.files,
            user: record.uid,
            last,
            unknown: None,
            rules,
            engine: state.scripts.engine.as_ref().map(|(_, path)| path),
        };
        let memory = Memory(&dump.stack);
        let machine = Machine { arch: Arch::OWN, signature: self.signature };
        let walked = match so_far {
            Some(walked) if code.at(walked.code_address()) == At::NoTable => (walked, UserEnd::NoTable),
            so_far => {
                let mut walked = so_far.unwrap_or_else(|| Box::new(Walked::from(&dump.registers, dump.frames)));
                let end = walked.go_on(machine, memory, &mut code);
                (walked, end)
            }
        };
        if let Some(mapping) = code.unknown
            && let Some(file) = self.files.get_mut(mapping.file)
        {
            let (path, identity) = (file.path.clone(), file.identity);
            let Range { start, end } = file_range(&state.moved, &mapping);
            let (tgid, user, files, mapping) = (record.tgid, record.uid, record.files, (start, end));
            self.dumped.requests.push(MappedRequest { tgid, user, files, mapping, path, identity });
        }
        Ok(walked)
    }

    /// Adds the walk in a dump to the batch, to be compared with the previous sample.
    fn compare(&mut self, record: &Record, bytes: &[u8], dump: &StackDump, rules: &mut dyn RuleSource, batch: &mut Batch) {
        let Ok((walked, end)) = self.walk_on(record, dump, None, rules) else { return };
        let Some(mut bytes) = Record::with_user(bytes, &walked.frames, dump.frames, end) else { return };
        Record::set_compared(&mut bytes);
        if let Some(record) = Record::parse(&bytes) {
            self.resolve(&record, batch, Waits::NoMore);
        }
    }
}

#[cfg(test)]
mod tests;
