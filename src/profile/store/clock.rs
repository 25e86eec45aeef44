//! How CPUs are sampled.

use crate::profile::ids::Timestamp;

/// The clock that samples CPUs. A CPU that is busy all the time has a sample in each period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Nanoseconds from one sample of a busy CPU to the next. A sample covers the period before it.
    pub period: u64,
    /// CPUs that are sampled.
    pub cpus: u32,
    /// When sampling began.
    pub since: Timestamp,
    /// When it ended, if it has.
    pub until: Option<Timestamp>,
}
