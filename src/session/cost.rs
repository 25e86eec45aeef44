//! What flametop itself costs: always in view, and told at the end of a recording.

use std::time::{Duration, Instant};

/// What flametop itself costs.
pub(super) struct Cost {
    cpu: Duration,
    at: Instant,
}

impl Cost {
    pub(super) fn new() -> Cost {
        Cost { cpu: own_cpu_time(), at: Instant::now() }
    }

    /// CPU in per cent of one since the last call, and resident bytes.
    pub(super) fn measure(&mut self) -> (f64, usize) {
        let (cpu, at) = (own_cpu_time(), Instant::now());
        let wall = at.duration_since(self.at).as_secs_f64().max(0.001);
        let share = (cpu.saturating_sub(self.cpu)).as_secs_f64() * 100.0 / wall;
        (self.cpu, self.at) = (cpu, at);
        (share, own_memory())
    }
}

/// CPU time of all threads of this process.
pub(super) fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Resident bytes: the second number of /proc/self/statm, in pages.
pub(super) fn own_memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size()
}
