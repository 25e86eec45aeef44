//! What is counted where stacks are taken at events instead of by a clock.

use crate::profile::ids::EventSource;

/// How it stands with a source of events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventStatus {
    /// Its number, which its samples bear.
    pub source: EventSource,
    /// As it was asked for.
    pub name: String,
    /// By which means, such as `fentry`.
    pub how: &'static str,
    /// At how many places.
    pub places: usize,
    /// Events so far: exact.
    pub events: u64,
    /// Stacks that were taken of them.
    pub stacks: u64,
    /// Events at which the kernel passed our program over, because that CPU was about a BPF program or map already. Among `events`.
    pub missed: u64,
    /// The same where only some processes are watched: of those or of others, and among no count.
    pub unsure: u64,
    /// Stacks whose kernel part is known to lack its outer side.
    pub cut: u64,
    /// Stacks that were due and not taken, because another one was being taken on that CPU: the next one stands for them.
    pub busy: u64,
    /// Events of flametop itself, which were left out: among no other count. Those in `missed` cannot be told apart.
    pub own: u64,
}
