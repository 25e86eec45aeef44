//! Samples as they are handed over.

use std::ops::Range;

use crate::profile::{Cpu, EventSource, FrameId, Losses, NameRequest, Tgid, Thread, Timestamp, Unit, UserEnd};

/// What [`Collector::drain`](super::Collector::drain) hands over. Reused from drain to drain, so that it costs no allocation.
#[derive(Default, Debug)]
pub struct Batch {
    /// The samples, oldest first.
    pub samples: Vec<Collected>,
    /// Their frames.
    pub frames: Vec<FrameId>,
    /// Frames never seen before.
    pub wanted: Vec<NameRequest>,
    /// The kernel got or lost code (BPF programs, trampolines): its names are to be read again.
    pub kernel_symbols_changed: bool,
    /// What was lost since the start; `aged_out` and `over_memory` are the store's and stay 0.
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
    /// Who.
    pub thread: Thread,
    /// Where in [`Batch::frames`] its stack is, root first: user root … user leaf, kernel root … kernel leaf.
    pub frames: Range<usize>,
    /// When.
    pub time: Timestamp,
    /// Where.
    pub cpu: Cpu,
    /// Why the user stack ends.
    pub user_end: UserEnd,
    /// The source of events that it was taken at.
    pub source: EventSource,
    /// What it stands for: 1 for a tick of the clock, or the events since the last sample of this source on this CPU.
    pub weight: u64,
    /// The unit of the weight.
    pub unit: Unit,
    /// How many of its frames are the kernel's: the last ones.
    pub kernel_frames: usize,
    /// The kernel stack is known to lack its outer side.
    pub kernel_cut: bool,
    /// The sample before once more, walked in another way; with [`Walk::Compared`](super::Walk), [`Backtrace::Both`](super::Backtrace) and
    /// [`Backtrace::Scan`](super::Backtrace) only. Not to be counted.
    pub compared: bool,
}
