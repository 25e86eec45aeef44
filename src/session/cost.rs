//! flametop's own cost: always on screen, and printed at the end of a recording.

use std::time::{Duration, Instant};

/// flametop's own cost.
pub(super) struct Cost {
    cpu: Duration,
    at: Instant,
}

impl Cost {
    pub(super) fn new() -> Cost {
        Cost { cpu: own_cpu_time(), at: Instant::now() }
    }

    /// Returns the CPU time since the last call, in per cent of one CPU.
    pub(super) fn measure(&mut self) -> f64 {
        let (cpu, at) = (own_cpu_time(), Instant::now());
        let wall = at.duration_since(self.at).as_secs_f64().max(0.001);
        let share = (cpu.saturating_sub(self.cpu)).as_secs_f64() * 100.0 / wall;
        (self.cpu, self.at) = (cpu, at);
        share
    }
}

/// Returns the CPU time of all threads of this process.
pub(super) fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the resident bytes, and how many of them are files and buffers of the kernel: the second and third number of /proc/self/statm,
/// which are in pages.
pub(super) fn own_memory() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|pages| pages.parse().unwrap_or(0) * rustix::param::page_size());
    let (resident, mapped) = (numbers.nth(1), numbers.next());
    (resident.unwrap_or(0), mapped.unwrap_or(0))
}
