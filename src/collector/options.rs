//! What to sample, and how.

use super::probes::{Backtrace, EventRequest};
use super::tables;
use crate::collector::sources::walk::Walk;
use crate::profile::Tgid;

/// Stacks a second at events, on each CPU, if nothing else is said. At some 5 to 10 µs each this is at most one percent of it.
pub const EVENT_BUDGET: u32 = 1000;

/// What to sample, and how often.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// Samples a second on each CPU.
    pub frequency: u32,
    /// Whether CPUs that have nothing to do are sampled, too.
    pub include_idle: bool,
    /// Whether this process itself is sampled. If not, its samples and events are only counted; its children are sampled in any case.
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
    /// Where else stacks are taken.
    pub events: Vec<EventRequest>,
    /// The source of the kernel's stack in fentry and fexit programs.
    pub backtrace: Backtrace,
    /// Stacks a second that are taken at events, on each CPU, at most; what happens between is counted.
    pub event_budget: u32,
    /// Bytes that flametop may take. The table of mapped files gets a sixteenth.
    pub memory: usize,
    /// Whether unwind tables are kept on disk, in the cache directory of the user that we run as, for the next run.
    pub cache_tables: bool,
    /// Bytes of the kernel's memory that unwind tables may take.
    pub kernel_memory: u64,
}

impl Default for CollectorOptions {
    /// Everybody's samples at 99 Hz but our own, without idle CPUs, walked by tables, which are kept on disk.
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
            memory: 256 << 20,
            cache_tables: true,
            kernel_memory: tables::KERNEL_MEMORY,
        }
    }
}

/// The processes that are sampled. Samples of others are dropped in the kernel before their stacks are walked.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Everybody's.
    All,
    /// These processes'.
    Processes(Vec<Tgid>),
    /// These processes', their children's, and so on: those that are there and those to come, from their first instruction.
    Families(Vec<Tgid>),
}
