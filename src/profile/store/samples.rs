//! Samples, and the bounded, time-ordered store of them.
//!
//! Samples lie in chunks of 1,024. A full chunk is sealed and shared by reference count, so a view can keep the ones it has
//! counted while the store lets them go. Memory is bounded twice: by age (`window`) and by bytes (`memory`); what is let go
//! is counted. Names count against the same bytes: the more of them there are, the fewer samples are kept.

use crate::profile::ids::Id;
use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::capabilities::Capabilities;
use super::clock::Clock;
use super::held::Held;
use super::stacks::StackTable;
use super::threads::{Thread, ThreadTable};
use crate::profile::ids::{Cpu, EventSource, FrameId, StackId, ThreadIndex, Timestamp, UserId};
use crate::profile::names::table::Names;
use crate::profile::unit::Unit;

/// Why the user part of a stack ends where it does. The numbers are those of `bpf/record.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum UserEnd {
    /// Nothing was said: files do not tell.
    #[default]
    Unspecified = 0,
    /// A kernel thread: there is no user stack to miss.
    KernelThread = 1,
    /// The chain of frame pointers ended; whether at a root is told by the outermost function.
    FramePointerEnd = 2,
    /// Deeper than the walker's limit: the leaf side is kept.
    Cut = 3,
    /// The user stack could not be read.
    Unreadable = 4,
    /// What should be the caller is no code.
    NoCode = 5,
    /// The outermost frame, marked as such by its unwind information: complete.
    Root = 6,
    /// The unwind table of the outermost frame's object was not there yet.
    NoTable = 7,
    /// Code that its object's unwind information does not cover.
    Gap = 8,
    /// Unwind information that is wrong, or that no rule can say.
    Invalid = 9,
    /// A rule needs a register that only the interrupted function knows.
    Register = 10,
    /// A frame would lie below its callee's, or not at a multiple of 8.
    BadFrame = 11,
    /// Code of no file, made at run time, that keeps no frame pointers.
    Anonymous = 12,
    /// The return address, or the frame pointer where only that is followed, is 0.
    Zero = 13,
    /// The process's mappings were being changed.
    Changing = 14,
    /// The process was exiting: its memory was gone.
    NoMemory = 15,
    /// A program of 32 bits.
    Bits32 = 16,
    /// There were no registers of user mode that can be trusted.
    Registers = 17,
    /// The walk had taken the time that one may take: the leaf side is kept.
    Time = 18,
    /// The process's mappings could not be read in time. The collector says so, no program in the kernel.
    Unread = 19,
    /// The unwind table of a frame came after the sample, and the copy of the stack ends before the root. The collector says so, no program
    /// in the kernel.
    Dump = 20,
}

impl UserEnd {
    /// All of them, in the order of their numbers.
    pub const ALL: [UserEnd; 21] = [
        UserEnd::Unspecified,
        UserEnd::KernelThread,
        UserEnd::FramePointerEnd,
        UserEnd::Cut,
        UserEnd::Unreadable,
        UserEnd::NoCode,
        UserEnd::Root,
        UserEnd::NoTable,
        UserEnd::Gap,
        UserEnd::Invalid,
        UserEnd::Register,
        UserEnd::BadFrame,
        UserEnd::Anonymous,
        UserEnd::Zero,
        UserEnd::Changing,
        UserEnd::NoMemory,
        UserEnd::Bits32,
        UserEnd::Registers,
        UserEnd::Time,
        UserEnd::Unread,
        UserEnd::Dump,
    ];

    /// From the number on the wire; unknown numbers are [`UserEnd::Unspecified`].
    pub fn from_wire(number: u8) -> UserEnd {
        UserEnd::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Whether there was a user stack to walk. Kernel threads have none; a process that exits or is in execve has none any more.
    pub fn has_stack(self) -> bool {
        !matches!(self, UserEnd::Unspecified | UserEnd::KernelThread | UserEnd::NoMemory | UserEnd::Registers)
    }

    /// One line that says what it means and what helps.
    pub fn explain(self) -> (&'static str, &'static str) {
        match self {
            UserEnd::Unspecified => ("not told by the file", ""),
            UserEnd::KernelThread => ("kernel threads", ""),
            UserEnd::FramePointerEnd => (
                "the chain of frame pointers ended",
                "complete if that was in _start or a thread's entry; code built with -fno-omit-frame-pointer gets there",
            ),
            UserEnd::Cut => (
                "deeper than the walk goes, cut at the root side",
                "2,048 frames are kept; with --unwind fp as many as kernel.perf_event_max_stack says",
            ),
            UserEnd::NoCode => (
                "what should be the caller is no code",
                "with --unwind fp: the program or a library is built without frame pointers; else its unwind information is wrong",
            ),
            UserEnd::Unreadable => {
                ("the stack's memory was not readable", "the page was not in memory: it was never written, or it is swapped out")
            }
            UserEnd::Root => ("ended at the outermost function", ""),
            UserEnd::NoTable => {
                ("the unwind table of its object was still being made", "passes in a moment; kept for the next start")
            }
            UserEnd::Gap => (
                "code without usable unwind information",
                "it was stripped, is assembly, or its file cannot be used: see below. Debug symbols or -fasynchronous-unwind-tables help",
            ),
            UserEnd::Invalid => {
                ("unwind information that is wrong or too special", "flametop unwind-check FILE tells what it is")
            }
            UserEnd::Register => ("needs a register that is not known in callers", "hand-written assembly: nothing helps"),
            UserEnd::BadFrame => {
                ("a caller's frame would lie below its callee's", "the unwind information or the stack is damaged")
            }
            UserEnd::Anonymous => {
                ("code made at run time without frame pointers", "Java: -XX:+PreserveFramePointer; Node.js and .NET keep them")
            }
            UserEnd::Zero => {
                ("the return address or frame pointer was 0", "the outermost frame of programs without unwind information there")
            }
            UserEnd::Changing => ("mappings were being changed at that moment", ""),
            UserEnd::NoMemory => ("exiting: the process's memory was gone", ""),
            UserEnd::Bits32 => ("a program of 32 bits", "those are not walked"),
            UserEnd::Unread => (
                "the process's mappings could not be read in time",
                "it was gone before; or something holds its memory lock, and `ps` waits as well",
            ),
            UserEnd::Dump => (
                "the copy of the stack was too short",
                "until a program's unwind table is there, its samples are walked in a copy of 16 to 64 KiB",
            ),
            UserEnd::Registers => ("in execve: one program was gone, the next had not begun", ""),
            UserEnd::Time => (
                "walking took too long, cut at the root side",
                "a walk may take 100 µs, all of a CPU together 8 % of its time: lower -F if many stacks are cut",
            ),
        }
    }
}

/// A stack that was seen, once or several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sample {
    /// When it was seen; zero where times are not known.
    pub time: Timestamp,
    /// User frames, then kernel frames, as a path in the trie.
    pub stack: StackId,
    /// The thread that ran.
    pub thread: ThreadIndex,
    /// What it counts for, in the [`Unit`](crate::profile::Unit) of its source: 1 for a tick of the clock, the events since the last sample
    /// for a source of events, the count for a line of a folded file.
    pub weight: u64,
    /// How often the stack was seen. More than 1 only in profiles that have no times. At most `u32::MAX` are told apart.
    pub observations: u32,
    /// The CPU that ran it.
    pub cpu: Cpu,
    /// The clock, or the source of events.
    pub source: EventSource,
    /// Why the user stack ends.
    pub user_end: UserEnd,
}

impl Default for Sample {
    /// One tick of the clock, with the empty stack.
    fn default() -> Sample {
        Sample {
            time: Timestamp(0),
            stack: StackId(0),
            thread: ThreadIndex(0),
            weight: 1,
            observations: 1,
            cpu: Cpu(0),
            source: EventSource::CLOCK,
            user_end: UserEnd::Unspecified,
        }
    }
}

const _: () = assert!(size_of::<Sample>() <= 32, "rule 3 of the architecture");

const CHUNK: usize = 1024;

/// Samples that a reader takes in under one lock; about a millisecond's work.
pub(crate) const SLICE: usize = 16_384;

/// Samples in the order of their time.
#[derive(Default)]
pub struct SampleStore {
    sealed: VecDeque<Arc<[Sample]>>,
    open: Vec<Sample>,
    /// Number of the first sample that is still here; numbers count all samples ever stored.
    first: u64,
}

impl SampleStore {
    /// Adds a sample. A time before the last one's is set to the last one's: the store stays ordered.
    pub fn push(&mut self, mut sample: Sample) {
        if let Some(last) = self.last_time() {
            sample.time = sample.time.max(last);
        }
        self.open.push(sample);
        if self.open.len() == CHUNK {
            self.sealed.push_back(std::mem::replace(&mut self.open, Vec::with_capacity(CHUNK)).into());
        }
    }

    /// How many samples are here.
    pub fn len(&self) -> usize {
        self.sealed.len() * CHUNK + self.open.len()
    }

    /// Whether no sample is here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the oldest sample here.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number that the next sample will get.
    pub fn end(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// The sample of this number, if it is still here.
    pub fn get(&self, number: u64) -> Option<&Sample> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        match self.sealed.get(index / CHUNK) {
            Some(chunk) => chunk.get(index % CHUNK),
            None => self.open.get(index - self.sealed.len() * CHUNK),
        }
    }

    /// The samples from number `from` on, oldest first, in slices.
    pub fn slices_from(&self, from: u64) -> impl Iterator<Item = &[Sample]> {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let chunks = self.sealed.iter().map(|chunk| &**chunk).chain(std::iter::once(&*self.open));
        chunks
            .enumerate()
            .skip(skip / CHUNK)
            .filter_map(move |(index, slice)| slice.get(skip.saturating_sub(index * CHUNK)..).filter(|rest| !rest.is_empty()))
    }

    /// The full chunks that begin at number `from` or later, each with the number of its first sample.
    pub(crate) fn sealed_from(&self, from: u64) -> impl Iterator<Item = (u64, Arc<[Sample]>)> + '_ {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX).div_ceil(CHUNK);
        let numbered = self.sealed.iter().enumerate().skip(skip);
        numbered.map(|(index, chunk)| (self.first + (index * CHUNK) as u64, Arc::clone(chunk)))
    }

    /// Time of the oldest sample.
    pub fn first_time(&self) -> Option<Timestamp> {
        self.sealed.front().and_then(|chunk| chunk.first()).or(self.open.first()).map(|sample| sample.time)
    }

    /// Time of the newest sample.
    pub fn last_time(&self) -> Option<Timestamp> {
        self.open.last().or_else(|| self.sealed.back().and_then(|chunk| chunk.last())).map(|sample| sample.time)
    }

    /// Lets the oldest chunk go; returns how many samples that were.
    fn drop_oldest_chunk(&mut self) -> usize {
        let gone = self.sealed.pop_front().map_or(0, |chunk| chunk.len());
        self.first += gone as u64;
        gone
    }

    /// Changes each sample, oldest first. A chunk that somebody else still reads is changed in a copy.
    fn for_each_mut(&mut self, mut change: impl FnMut(&mut Sample)) {
        for chunk in &mut self.sealed {
            Arc::make_mut(chunk).iter_mut().for_each(&mut change);
        }
        self.open.iter_mut().for_each(change);
    }

    fn memory(&self) -> usize {
        self.sealed.len() * CHUNK * size_of::<Sample>() + self.open.capacity() * size_of::<Sample>()
    }
}

/// How much a profile may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Samples older than this are let go: nanoseconds.
    pub window: u64,
    /// Bytes of samples, stacks, threads, names and symbol tables together.
    pub memory: usize,
}

impl Default for Limits {
    /// Ten minutes, 256 MB.
    fn default() -> Self {
        Limits { window: 600_000_000_000, memory: 256_000_000 }
    }
}

impl Limits {
    /// Nothing is ever let go: for files.
    pub const NONE: Limits = Limits { window: u64::MAX, memory: usize::MAX };

    /// How much of it symbol tables and debug information may take. 48 MB name all of a busy machine.
    pub fn tables(&self) -> usize {
        (self.memory / 4).min(48 << 20)
    }

    /// How much of it [`Names`] may take. They are given back only now and then, so samples need a part that is safe from them; and both
    /// have to be large for the picture to be fine. (256 MB hold about 450,000 addresses and 2 million samples in 5 million nodes.)
    pub fn names(&self) -> usize {
        self.memory / 2
    }
}

/// What did not make it into the store, and why. All counts are of samples since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The kernel's ring buffer was full.
    pub ring_full: u64,
    /// Mapping, fork and exit events that the kernel could not deliver; frames may be unnamed for it.
    pub events_lost: u64,
    /// Older than the window.
    pub aged_out: u64,
    /// Let go because memory was full.
    pub over_memory: u64,
    /// Records from the kernel that made no sense.
    pub malformed: u64,
    /// Addresses and names that were not taken in because names had filled their memory. Nothing of a sample is lost by it, but
    /// `[more addresses of …]` stands for the function.
    pub coarse: u64,
    /// The user for whom that was so most often, and how often: whose share of the memory for names is used up.
    pub coarse_most: Option<(UserId, u64)>,
}

/// Everything known about what ran: samples and the tables that they point into.
#[derive(Default)]
pub struct Profile {
    /// The samples.
    pub samples: SampleStore,
    /// Their stacks.
    pub stacks: StackTable,
    /// Their threads.
    pub threads: ThreadTable,
    /// What is not here.
    pub losses: Losses,
    limits: Limits,
    capabilities: Capabilities,
    /// The units of sources whose unit is not samples.
    units: FxHashMap<EventSource, Unit>,
    clock: Option<Clock>,
    /// Samples from before this moment are here.
    complete_to: Option<Timestamp>,
    epoch: u64,
    stacks_at_compaction: usize,
    threads_at_compaction: usize,
    names: Option<Arc<Names>>,
    /// See [`Profile::set_aside`].
    aside: usize,
    aside_since: Option<Timestamp>,
    /// See [`Profile::set_beside`].
    tables: usize,
    known: usize,
}

impl Profile {
    /// An empty profile of samples that are being taken, within `limits`, names not counted.
    pub fn new(limits: Limits) -> Profile {
        Profile { limits, capabilities: Capabilities::LIVE, ..Profile::default() }
    }

    /// An empty profile for samples that are all there, of which nothing is ever let go.
    pub fn fixed(capabilities: Capabilities) -> Profile {
        Profile { limits: Limits::NONE, capabilities: Capabilities { live: false, ..capabilities }, ..Profile::default() }
    }

    /// An empty profile that keeps to `limits` together with these names, whose own bound is to be [`Limits::names`].
    pub fn beside(names: &Arc<Names>, limits: Limits) -> Profile {
        Profile { names: Some(Arc::clone(names)), ..Profile::new(limits) }
    }

    /// The tables that its ids are of; `None` where those never change.
    pub fn names(&self) -> Option<&Arc<Names>> {
        self.names.as_ref()
    }

    /// Whether its ids are of these tables.
    pub(crate) fn is_named_by(&self, names: &Arc<Names>) -> bool {
        self.names.as_ref().is_none_or(|own| Arc::ptr_eq(own, names))
    }

    /// Changes the ids of frames and labels to those of other tables. Stack and thread ids stay, but views must start again.
    pub(crate) fn rename(&mut self, names: &Arc<Names>, rename: &mut dyn FnMut(Id<'_>)) {
        self.stacks.rename(|frame| rename(Id::Frame(frame)));
        self.threads.rename(|label| rename(Id::Label(label)));
        if self.names.is_some() {
            self.names = Some(Arc::clone(names));
        }
        self.epoch += 1;
    }

    /// Changes when stack and thread ids were given out anew; views must start again.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What it can answer.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Samples of this source are weighed in this unit.
    pub fn set_unit(&mut self, source: EventSource, unit: Unit) {
        match unit {
            Unit::Samples => self.units.remove(&source),
            unit => self.units.insert(source, unit),
        };
    }

    /// The unit of samples of this source.
    pub fn unit(&self, source: EventSource) -> Unit {
        self.units.get(&source).copied().unwrap_or_default()
    }

    /// Samples of the clock are taken like this.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// How samples of the clock are taken, if that is known.
    pub fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// All samples from before this moment are here.
    pub fn set_complete_to(&mut self, at: Timestamp) {
        self.complete_to = Some(at);
    }

    /// Sampling has ended.
    pub fn end_clock(&mut self, at: Timestamp) {
        self.clock = self.clock.map(|clock| Clock { until: clock.until.or(Some(at)), ..clock });
    }

    /// Returns the time, as of `now`, whose samples are all here. It begins with the oldest sample if older samples were dropped.
    pub fn sampled(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let clock = self.clock?;
        let has_let_go = self.losses.aged_out + self.losses.over_memory > 0;
        let oldest = self.samples.first_time().filter(|_| has_let_go).unwrap_or_default();
        let window = Timestamp(now.0.saturating_sub(self.limits.window));
        let complete = self.complete_to.unwrap_or(now);
        Some((clock.since.max(oldest).max(window), clock.until.unwrap_or(complete).min(now)))
    }

    /// The time that a sample of this source covers, in nanoseconds. It is 0 for events.
    pub fn period(&self, source: EventSource) -> u64 {
        self.clock.filter(|_| source == EventSource::CLOCK).map_or(0, |clock| clock.period)
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Bytes held by samples, stacks, threads, names and symbol tables, and by what is kept beside them.
    pub fn memory(&self) -> usize {
        self.samples.memory()
            + self.stacks.memory()
            + self.threads.memory()
            + self.names.as_ref().map_or(0, |names| names.memory())
            + self.aside
            + self.tables.min(self.limits.tables())
            + self.known.min(self.limits.memory / 8)
    }

    /// The same by what it is for, without limits and without trees.
    pub fn held(&self) -> Held {
        Held {
            samples: self.samples.memory() + self.stacks.memory() + self.threads.memory() + self.aside,
            names: self.names.as_ref().map_or(0, |names| names.memory()),
            tables: self.tables,
            known: self.known,
            trees: 0,
        }
    }

    /// Counts these bytes as held, instead of those that were told before: the baseline has them. Its oldest sample is of `since`.
    pub fn set_aside(&mut self, bytes: usize, since: Option<Timestamp>) {
        (self.aside, self.aside_since) = (bytes, since);
    }

    /// The time of the oldest sample that is here or set aside, or else `now`. No sample needs processes that ended before it.
    pub fn oldest(&self, now: Timestamp) -> Timestamp {
        let first = self.samples.first_time().unwrap_or(now);
        self.aside_since.map_or(first, |since| since.min(first))
    }

    /// Counts as held, instead of what was told before, so many bytes of symbol tables and debug information, and of what is known of
    /// processes and of the kernel.
    ///
    /// At most [`Limits::tables`] of the first: one object's may be more while it is worked with, and that takes no samples. At most an
    /// eighth of the memory of the second, which is bounded where it is kept.
    pub fn set_beside(&mut self, tables: usize, known: usize) {
        (self.tables, self.known) = (tables, known);
    }

    /// Lets go what is too old or too much as of `now`. To be called about once a second.
    pub fn trim(&mut self, now: Timestamp) {
        let too_old = now.0.saturating_sub(self.limits.window);
        while self.samples.sealed.front().and_then(|chunk| chunk.last()).is_some_and(|last| last.time.0 < too_old) {
            self.losses.aged_out += self.samples.drop_oldest_chunk() as u64;
        }
        let many = |now: usize, before: usize| now > 2 * before.max(1 << 14);
        if many(self.threads.rows().len(), self.threads_at_compaction)
            || self.losses.aged_out > 0 && many(self.stacks.len(), self.stacks_at_compaction.max(1 << 16))
        {
            self.compact();
        }
        // A tenth is for what is not counted: what the allocator keeps between names and chunks of samples that come and go.
        if self.memory() > self.limits.memory / 10 * 9 {
            // Threads and stacks of samples that are gone first; then a quarter of the samples, so that this is rare.
            self.compact();
            if self.memory() < self.limits.memory / 10 * 8 {
                return;
            }
            let goal = self.samples.sealed.len().div_ceil(4);
            for _ in 0..goal {
                self.losses.over_memory += self.samples.drop_oldest_chunk() as u64;
            }
            self.compact();
        }
    }

    /// Leaves in the tables only what samples still point to, in the memory they have. All stack and thread ids change.
    pub fn compact(&mut self) {
        let mut stacks = vec![0; self.stacks.len()];
        let mut threads = vec![0; self.threads.rows().len()];
        for sample in self.samples.slices_from(0).flatten() {
            for (marks, id) in [(&mut stacks, sample.stack.0), (&mut threads, sample.thread.0)] {
                if let Some(mark) = marks.get_mut(id as usize) {
                    *mark = u32::MAX;
                }
            }
        }
        self.stacks.keep(&mut stacks);
        self.threads.keep(&mut threads);
        let now = |marks: &[u32], id: u32| marks.get(id as usize).copied().unwrap_or(0);
        self.samples.for_each_mut(|sample| {
            sample.stack = StackId(now(&stacks, sample.stack.0));
            sample.thread = ThreadIndex(now(&threads, sample.thread.0));
        });
        self.epoch += 1;
        self.stacks_at_compaction = self.stacks.len();
        self.threads_at_compaction = self.threads.rows().len();
    }

    /// Interns a thread and a stack and stores the sample; for sources that have no ids yet.
    pub fn record(&mut self, thread: Thread, frames_root_first: impl IntoIterator<Item = FrameId>, sample: Sample) {
        let thread = self.threads.intern(thread);
        let stack = self.stacks.intern(frames_root_first);
        self.samples.push(Sample { thread, stack, ..sample });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ids::{LabelId, Tgid, Tid};

    fn profile_of(count: u64, limits: Limits) -> Profile {
        let mut profile = Profile::new(limits);
        let thread = Thread { tgid: Tgid(1), tid: Tid(1), process: LabelId(0), name: LabelId(0), ..Thread::default() };
        for i in 0..count {
            let frames = [1, 2, 100 + u32::try_from(i % 50).unwrap_or(0)].map(FrameId);
            profile.record(thread, frames, Sample { time: Timestamp(i * 1_000), ..Sample::default() });
        }
        profile
    }

    #[test]
    fn slices_from_any_number_hold_the_rest_in_order() {
        let profile = profile_of(5000, Limits::NONE);
        for from in [0u64, 1, 1023, 1024, 1025, 4999, 5000] {
            let times: Vec<u64> = profile.samples.slices_from(from).flatten().map(|sample| sample.time.0).collect();
            assert_eq!(times, (from..5000).map(|i| i * 1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_older_than_the_window_goes_and_is_counted() {
        let mut profile = profile_of(5000, Limits { window: 1_000_000, memory: usize::MAX });
        profile.trim(Timestamp(5_000_000));
        assert_eq!(profile.losses.aged_out, 3072);
        assert_eq!(profile.samples.first(), 3072);
        assert_eq!(profile.samples.end(), 5000);
        assert_eq!(profile.samples.get(3072).map(|sample| sample.time.0), Some(3_072_000));
        assert!(profile.samples.get(3071).is_none());
        let now = Timestamp(6_000_000);
        assert_eq!(profile.oldest(now), Timestamp(3_072_000));
        profile.set_aside(100, Some(Timestamp(7_000)));
        assert_eq!(profile.oldest(now), Timestamp(7_000));
        assert_eq!(Profile::default().oldest(now), now);
    }

    #[test]
    fn memory_is_bounded_and_stacks_survive_compaction() {
        let mut profile = profile_of(20_000, Limits { window: u64::MAX, memory: 300_000 });
        let frames = |profile: &Profile| -> Vec<Vec<FrameId>> {
            let samples = profile.samples.slices_from(18_000).flatten();
            samples.map(|sample| profile.stacks.frames(sample.stack).collect()).collect()
        };
        let before = frames(&profile);
        let epoch = profile.epoch();
        while profile.memory() > 300_000 {
            profile.trim(Timestamp(0));
        }
        assert!(profile.losses.over_memory > 0);
        assert_ne!(profile.epoch(), epoch);
        assert_eq!(frames(&profile), before);
    }

    #[test]
    fn the_store_stays_ordered_when_a_sample_comes_late() {
        let mut store = SampleStore::default();
        for time in [5, 3, 7] {
            store.push(Sample { time: Timestamp(time), ..Sample::default() });
        }
        let times: Vec<u64> = store.slices_from(0).flatten().map(|sample| sample.time.0).collect();
        assert_eq!(times, [5, 5, 7]);
    }
}
