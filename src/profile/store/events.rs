//! Sources of events: stacks are taken at events instead of by a clock.

use std::borrow::Cow;

use crate::profile::ids::EventSource;

/// The status of a source of events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventStatus {
    /// Its number, which is in its samples.
    pub source: EventSource,
    /// Its name, as the user gave it.
    pub name: String,
    /// The method of attachment, such as `fentry`.
    pub how: Cow<'static, str>,
    /// The number of places where it is attached.
    pub places: usize,
    /// Number of events so far: exact.
    pub events: u64,
    /// If the events are waits: nanoseconds that they lasted together.
    pub waited: Option<u64>,
    /// Stacks that were taken of these events.
    pub stacks: u64,
    /// Events that did not run our program: the kernel skipped it, because that CPU was already busy with a BPF program or map. They are
    /// included in `events`.
    pub missed: u64,
    /// Such events while only some processes are watched. It is unknown whether a watched process caused them, so no other count includes
    /// them.
    pub unsure: u64,
    /// If the events are waits: how often a thread left its CPU that is not followed, for lack of memory. No other count includes them.
    pub unknown: u64,
    /// Stacks whose kernel part is known to lack its outer frames.
    pub cut: u64,
    /// Stacks that were due but not taken, because another stack was being taken on that CPU. The next stack counts for them as well.
    pub busy: u64,
    /// Events that flametop itself caused. They were left out: no other count includes them. Only `missed` does, because there flametop's
    /// own events cannot be separated.
    pub own: u64,
    /// Nanoseconds of CPU that all programs together have lost to this source so far, about. 0 if that is not known.
    pub cost: u64,
}
