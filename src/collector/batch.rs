//! Samples as the collector hands them over.

use std::ops::Range;

use crate::profile::{Cpu, EventSource, FrameId, Losses, NameRequest, Tgid, Thread, Timestamp, Unit, UserEnd};

/// Result of [`Collector::drain`](super::Collector::drain). It is reused from drain to drain, to save allocations.
#[derive(Default, Debug)]
pub struct Batch {
    /// The samples, oldest first. A sample that waited for its process or for a table may be older than samples of earlier batches, by
    /// about 2.5 s at most.
    pub samples: Vec<Collected>,
    /// The frames of all samples.
    pub frames: Vec<FrameId>,
    /// Frames that were never seen before.
    pub wanted: Vec<NameRequest>,
    /// The kernel got or lost code (BPF programs, trampolines), so its names must be read again.
    pub kernel_symbols_changed: bool,
    /// Losses since the start. `aged_out` and `over_memory` belong to the store and stay 0.
    pub losses: Losses,
    /// Processes that ended.
    pub exited: Vec<Tgid>,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.frames.clear();
        self.wanted.clear();
        self.exited.clear();
        self.kernel_symbols_changed = false;
    }
}

/// One sample.
#[derive(Clone, Debug)]
pub struct Collected {
    /// Its thread.
    pub thread: Thread,
    /// Its stack: a range of [`Batch::frames`], root first: user root … user leaf, kernel root … kernel leaf.
    pub frames: Range<usize>,
    /// Its time.
    pub time: Timestamp,
    /// Its CPU.
    pub cpu: Cpu,
    /// Why the user stack ends.
    pub user_end: UserEnd,
    /// The source of events that it came from.
    pub source: EventSource,
    /// Its weight: 1 for a tick of the clock, or the number of events since the last sample of this source on this CPU.
    pub weight: u64,
    /// The unit of the weight.
    pub unit: Unit,
    /// How many of its frames are kernel frames: the last ones of the range.
    pub kernel_frames: usize,
    /// Whether the kernel stack is known to lack its outer side.
    pub kernel_cut: bool,
    /// Whether this is the sample before, walked in another way. Only with [`Walk::Compared`](super::Walk),
    /// [`Backtrace::Both`](super::Backtrace) and [`Backtrace::Scan`](super::Backtrace). Such a sample must not be counted.
    pub compared: bool,
}
