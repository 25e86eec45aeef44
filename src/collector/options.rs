//! Options of the collector: the processes to sample, and how.

use std::time::Duration;

use super::probes::{Backtrace, EventRequest};
use super::tables;
use crate::collector::sources::walk::Walk;
use crate::profile::Tgid;

/// Default for stacks a second at events, on each CPU. A stack takes some 5 to 10 µs, so this is at most one percent of the CPU.
pub const EVENT_BUDGET: u32 = 1000;

/// Options of the collector.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// Samples a second on each CPU.
    pub frequency: u32,
    /// Whether idle CPUs are sampled as well.
    pub include_idle: bool,
    /// Whether this process itself is sampled. If not, its samples and events are only counted. Its children are sampled in any case.
    pub include_self: bool,
    /// The processes that are sampled.
    pub targets: Targets,
    /// How user stacks are walked.
    pub walk: Walk,
    /// Whether a walk ends after 100 µs, or earlier if all walks together take too much of a CPU: `bpf/walk/budget.h`. Off on emulated
    /// processors, and when two walks are compared.
    pub limit_walks: bool,
    /// Whether samples are taken by the clock.
    pub clock: bool,
    /// Events that stacks are taken at, in addition to the clock.
    pub events: Vec<EventRequest>,
    /// How to unwind the kernel's stack at fentry and fexit.
    pub backtrace: Backtrace,
    /// Most stacks a second at events, on each CPU. All events are counted.
    pub event_budget: u32,
    /// A thread that waits for longer is seen while it waits.
    pub least_wait: Duration,
    /// Bytes that flametop may use. The table of mapped files gets a sixteenth.
    pub memory: usize,
    /// Whether unwind tables are kept on disk for the next run, in the cache directory of the user that flametop runs as.
    pub cache_tables: bool,
    /// Bytes of the kernel's memory that unwind tables may take.
    pub kernel_memory: u64,
}

impl Default for CollectorOptions {
    /// All processes but flametop itself, at 99 Hz, without idle CPUs, walked by tables that are kept on disk.
    fn default() -> CollectorOptions {
        CollectorOptions {
            frequency: 99,
            include_idle: false,
            include_self: false,
            targets: Targets::All,
            walk: Walk::Tables,
            limit_walks: true,
            clock: true,
            events: Vec::new(),
            backtrace: Backtrace::Kernel,
            event_budget: EVENT_BUDGET,
            least_wait: Duration::from_secs(1),
            memory: 256 << 20,
            cache_tables: true,
            kernel_memory: tables::KERNEL_MEMORY,
        }
    }
}

/// The processes that are sampled. Samples of other processes are dropped in the kernel before their stacks are walked.
#[derive(Clone, Debug)]
pub enum Targets {
    /// All processes.
    All,
    /// These processes.
    Processes(Vec<Tgid>),
    /// These processes and all their descendants: present ones, and future ones from their first instruction.
    Families(Vec<Tgid>),
}
