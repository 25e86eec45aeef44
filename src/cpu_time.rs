//! CPU time of this program. Unlike wall-clock time, it hardly depends on what else runs on the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of the calling thread.
pub(crate) fn of_this_thread() -> Duration {
    told_by(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of the calling thread since `begin`, an earlier result of [`of_this_thread`] on the same thread.
pub(crate) fn since(begin: Duration) -> Duration {
    of_this_thread().saturating_sub(begin)
}

/// Returns the CPU time of all threads of this process.
#[cfg(feature = "live")]
pub(crate) fn of_this_process() -> Duration {
    told_by(ClockId::ProcessCPUTime)
}

fn told_by(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
