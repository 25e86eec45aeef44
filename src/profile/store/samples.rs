//! Samples, and the time-ordered store of them.
//!
//! Samples lie in chunks of 1,024. A full chunk is sealed and shared by reference count, so a view can keep the chunks that it has counted
//! while the store drops them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::profile::ids::{Cpu, EventSource, StackId, ThreadIndex, Timestamp};

/// The reason why the user part of a stack ends. The numbers are those of `bpf/record.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum UserEnd {
    /// Not known: files do not have it.
    #[default]
    Unspecified = 0,
    /// A kernel thread: it has no user stack.
    KernelThread = 1,
    /// The chain of frame pointers ended. The outermost function shows whether this is a root.
    FramePointerEnd = 2,
    /// Deeper than the walker's limit: the inner frames are kept.
    Cut = 3,
    /// The user stack could not be read.
    Unreadable = 4,
    /// The caller's address is not in code.
    NoCode = 5,
    /// The outermost frame, marked as such by its unwind information: complete.
    Root = 6,
    /// The unwind table of the outermost frame's object was not there yet.
    NoTable = 7,
    /// The object's unwind information does not cover this code.
    Gap = 8,
    /// Unwind information that is wrong, or that no rule can express.
    Invalid = 9,
    /// A rule needs a register that only the interrupted function knows.
    Register = 10,
    /// A frame would lie below its callee's frame, or not at a multiple of 8.
    BadFrame = 11,
    /// Code that was made at run time, has no file, and keeps no frame pointers.
    Anonymous = 12,
    /// The return address is 0. Where only the frame pointer is followed, it is the frame pointer that is 0.
    Zero = 13,
    /// The process's mappings were being changed.
    Changing = 14,
    /// The process was exiting: its memory was gone.
    NoMemory = 15,
    /// A program of 32 bits.
    Bits32 = 16,
    /// There were no user-mode registers that can be trusted.
    Registers = 17,
    /// The walk reached its time limit: the inner frames are kept.
    Time = 18,
    /// The process's mappings could not be read in time. The collector sets this reason, not a program in the kernel.
    Unread = 19,
    /// The unwind table of a frame came after the sample, and the copy of the stack ends before the root. The collector sets this reason,
    /// not a program in the kernel.
    Dump = 20,
    /// The walk reached the root, but the outermost functions of an interpreter are missing. The collector sets this reason, not a program
    /// in the kernel.
    Functions = 21,
    /// The walk reached the root, but frames of a virtual thread of Java are missing. The collector sets this reason, not a program in the
    /// kernel.
    Frozen = 22,
}

impl UserEnd {
    /// All reasons, in the order of their numbers.
    pub const ALL: [UserEnd; 23] = [
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
        UserEnd::Functions,
        UserEnd::Frozen,
    ];

    /// Returns the reason for a number on the wire. Unknown numbers are [`UserEnd::Unspecified`].
    pub fn from_wire(number: u8) -> UserEnd {
        UserEnd::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Whether there was a user stack to walk. Kernel threads have none. A process that exits or is in execve has none any more.
    pub fn has_stack(self) -> bool {
        !matches!(self, UserEnd::Unspecified | UserEnd::KernelThread | UserEnd::NoMemory | UserEnd::Registers)
    }

    /// Returns one line with the meaning, and one with a remedy.
    pub fn explain(self) -> (&'static str, &'static str) {
        match self {
            UserEnd::Unspecified => ("not recorded in the file", ""),
            UserEnd::KernelThread => ("kernel threads", ""),
            UserEnd::FramePointerEnd => (
                "the chain of frame pointers ended",
                "complete if it ended in _start or a thread's entry; else build the code with -fno-omit-frame-pointer",
            ),
            UserEnd::Cut => (
                "deeper than the limit, cut at the root side",
                "the limit is 2,048 frames; with --unwind fp it is kernel.perf_event_max_stack",
            ),
            UserEnd::NoCode => (
                "the caller's address is not code",
                "with --unwind fp: program or library built without frame pointers; otherwise its unwind information is wrong",
            ),
            UserEnd::Unreadable => {
                ("the stack's memory was not readable", "the page was not in memory: never written, or swapped out")
            }
            UserEnd::Root => ("ended at the outermost function", ""),
            UserEnd::NoTable => {
                ("the unwind table of its object was still being made", "temporary; the table is kept for the next start")
            }
            UserEnd::Gap => (
                "code without usable unwind information",
                "stripped, assembly, or an unusable file (see below); debug symbols or -fasynchronous-unwind-tables help",
            ),
            UserEnd::Invalid => {
                ("the unwind information is wrong or not supported", "`flametop unwind-check FILE` shows details")
            }
            UserEnd::Register => ("needs a register whose value is unknown", "hand-written assembly; there is no remedy"),
            UserEnd::BadFrame => {
                ("a caller's frame would lie below its callee's", "the unwind information or the stack is damaged")
            }
            UserEnd::Anonymous => (
                "code made at run time without frame pointers",
                "Java that flametop does not know (see below): -XX:+PreserveFramePointer; Node.js and .NET keep them",
            ),
            UserEnd::Zero => {
                ("the return address or frame pointer was 0", "usual at the outermost frame if it has no unwind information")
            }
            UserEnd::Changing => ("mappings were being changed at that moment", ""),
            UserEnd::NoMemory => ("exiting: the process's memory was gone", ""),
            UserEnd::Bits32 => ("a 32-bit program", "stacks of 32-bit programs are not walked"),
            UserEnd::Unread => (
                "the process's mappings could not be read in time",
                "it had already ended, or something holds its memory lock (then `ps` waits too)",
            ),
            UserEnd::Dump => (
                "the copy of the stack was too short",
                "until the unwind table is ready, samples are walked in a copy of 16 to 64 KiB of the stack",
            ),
            UserEnd::Functions => (
                "some functions of Python, JavaScript or Java are missing",
                "more than 4,096 of them, or the walk's time was used up, or an unwind table was being made (see below)",
            ),
            UserEnd::Frozen => (
                "frames of a virtual thread of Java are missing",
                "once it has waited, only its innermost frames are on the stack; [frozen frames] is in the place of the others",
            ),
            UserEnd::Registers => ("in execve: the old program was gone, the new one had not started", ""),
            UserEnd::Time => (
                "walking took too long, cut at the root side",
                "the limit is 100 µs for a walk, and 8 % of a CPU's time for all: lower -F if many stacks are cut",
            ),
        }
    }
}

/// A stack that was seen, once or several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sample {
    /// When it was seen; zero if times are not known.
    pub time: Timestamp,
    /// User frames, then kernel frames, as a path in the trie.
    pub stack: StackId,
    /// The thread that ran.
    pub thread: ThreadIndex,
    /// Its weight, in the [`Unit`](crate::profile::Unit) of its source. A tick of the clock weighs 1. A sample of a source of events weighs
    /// the events since the last sample. A line of a folded file weighs its count.
    pub weight: u64,
    /// How often the stack was seen. More than 1 only in profiles that have no times. Larger counts than `u32::MAX` are stored as
    /// `u32::MAX`.
    pub observations: u32,
    /// The CPU that ran it.
    pub cpu: Cpu,
    /// The clock, or the source of events.
    pub source: EventSource,
    /// The reason why the user stack ends.
    pub user_end: UserEnd,
}

impl Default for Sample {
    /// Returns one tick of the clock, with the empty stack.
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
    pub(super) sealed: VecDeque<Arc<[Sample]>>,
    open: Vec<Sample>,
    /// Number of the oldest sample in the store. Numbers count all samples ever stored.
    first: u64,
}

impl SampleStore {
    /// Adds a sample. If its time is before the last sample's time, it gets that time, so the store stays ordered.
    pub fn push(&mut self, mut sample: Sample) {
        if let Some(last) = self.last_time() {
            sample.time = sample.time.max(last);
        }
        self.add(sample);
    }

    /// Adds a sample with its own time. If samples are added out of order, [`sort`](Self::sort) must follow.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.open.push(sample);
        if self.open.len() == CHUNK {
            self.sealed.push_back(std::mem::replace(&mut self.open, Vec::with_capacity(CHUNK)).into());
        }
    }

    /// Orders the samples by time. Samples of the same time keep their order.
    pub(crate) fn sort(&mut self) {
        if self.slices_from(0).flatten().is_sorted_by_key(|sample| sample.time) {
            return;
        }
        let mut all: Vec<Sample> = self.slices_from(0).flatten().copied().collect();
        *self = SampleStore { first: self.first, ..SampleStore::default() };
        all.sort_by_key(|sample| sample.time);
        all.into_iter().for_each(|sample| self.add(sample));
    }

    /// Returns the number of samples in the store.
    pub fn len(&self) -> usize {
        self.sealed.len() * CHUNK + self.open.len()
    }

    /// Whether the store has no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the oldest sample in the store.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number that the next sample will get.
    pub fn end(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// Returns the sample with this number, if it is still in the store.
    pub fn get(&self, number: u64) -> Option<&Sample> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        match self.sealed.get(index / CHUNK) {
            Some(chunk) => chunk.get(index % CHUNK),
            None => self.open.get(index - self.sealed.len() * CHUNK),
        }
    }

    /// Returns the samples from number `from` on, oldest first, in slices.
    pub fn slices_from(&self, from: u64) -> impl Iterator<Item = &[Sample]> {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let chunks = self.sealed.iter().map(|chunk| &**chunk).chain(std::iter::once(&*self.open));
        chunks
            .enumerate()
            .skip(skip / CHUNK)
            .filter_map(move |(index, slice)| slice.get(skip.saturating_sub(index * CHUNK)..).filter(|rest| !rest.is_empty()))
    }

    /// Returns the full chunks that begin at number `from` or later, each with the number of its first sample.
    pub(crate) fn sealed_from(&self, from: u64) -> impl Iterator<Item = (u64, Arc<[Sample]>)> + '_ {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX).div_ceil(CHUNK);
        let numbered = self.sealed.iter().enumerate().skip(skip);
        numbered.map(|(index, chunk)| (self.first + (index * CHUNK) as u64, Arc::clone(chunk)))
    }

    /// Returns the time of the oldest sample.
    pub fn first_time(&self) -> Option<Timestamp> {
        self.sealed.front().and_then(|chunk| chunk.first()).or(self.open.first()).map(|sample| sample.time)
    }

    /// Returns the time of the newest sample.
    pub fn last_time(&self) -> Option<Timestamp> {
        self.open.last().or_else(|| self.sealed.back().and_then(|chunk| chunk.last())).map(|sample| sample.time)
    }

    /// Drops the oldest chunk. Returns the number of its samples.
    pub(super) fn drop_oldest_chunk(&mut self) -> usize {
        let gone = self.sealed.pop_front().map_or(0, |chunk| chunk.len());
        self.first += gone as u64;
        gone
    }

    /// Changes each sample, oldest first. If a reader still holds a chunk, a copy of the chunk is changed.
    pub(super) fn for_each_mut(&mut self, mut change: impl FnMut(&mut Sample)) {
        for chunk in &mut self.sealed {
            Arc::make_mut(chunk).iter_mut().for_each(&mut change);
        }
        self.open.iter_mut().for_each(change);
    }

    pub(super) fn memory(&self) -> usize {
        self.sealed.len() * CHUNK * size_of::<Sample>() + self.open.capacity() * size_of::<Sample>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
