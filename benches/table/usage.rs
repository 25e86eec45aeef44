//! CPU time, memory and BPF time of a process, as counted by the kernel.

use super::*;

/// Resources that a process and its descendants have used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: f64,
    pub(crate) peak_mb: f64,
    /// Seconds that its BPF programs ran. 0 if it has none, or if the kernel does not count.
    pub(crate) bpf: f64,
}

/// Returns the usage of a process that still runs.
pub(crate) fn usage_of(pid: u32) -> Usage {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may contain blanks and brackets, so fields are counted from the last bracket on. In proc(5) utime and stime are the
    // 14th and 15th field: the 12th and 13th after the bracket.
    let fields: Vec<u64> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let ticks = fields.get(11).unwrap_or(&0) + fields.get(12).unwrap_or(&0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kb: f64 = peak.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0.0);
    Usage { cpu: ticks as f64 / rustix::param::clock_ticks_per_second() as f64, peak_mb: peak_kb / 1024.0, bpf: 0.0 }
}

/// Runs a program to its end; `None` when it cannot be started or fails.
pub(crate) fn run(program: &str, args: &[&str]) -> Option<Usage> {
    // `Child` must not wait for it: that would take the status away from wait4.
    #[allow(clippy::zombie_processes)]
    let child = Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok()?;
    let pid = child.id();
    // BPF programs disappear when their process ends, so they are read while it runs.
    let (done, last_seen) = (AtomicBool::new(false), Mutex::new(0.0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let seen = bpf_time(pid);
                if seen > 0.0 {
                    *last_seen.lock().expect("nothing panics while holding it") = seen;
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let usage = wait_for_usage(pid);
        done.store(true, Ordering::Relaxed);
        usage
    })
    .map(|usage| Usage { bpf: *last_seen.lock().expect("nothing panics while holding it"), ..usage })
}

/// Seconds that the BPF programs of a process have run since they were loaded, as far as the kernel has counted.
pub(crate) fn bpf_time(pid: u32) -> f64 {
    let ids: Vec<u32> = bpf_programs_of(pid).into_iter().map(|program| program.id).collect();
    let programs = libbpf_rs::query::ProgInfoIter::default().filter(|program| ids.contains(&program.id));
    programs.map(|program| program.run_time_ns as f64 / 1e9).sum()
}

/// Makes the kernel count the time of BPF programs until this is dropped.
pub(crate) struct BpfStats {
    before: Option<String>,
}

const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl BpfStats {
    pub(crate) fn switch_on() -> BpfStats {
        let before = std::fs::read_to_string(BPF_STATS).ok();
        if std::fs::write(BPF_STATS, "1").is_err() {
            eprintln!("the kernel will not count the time of BPF programs: it is left out");
        }
        BpfStats { before }
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = std::fs::write(BPF_STATS, before);
        }
    }
}

#[allow(unsafe_code)]
fn wait_for_usage(pid: u32) -> Option<Usage> {
    let mut status = 0;
    // SAFETY: rusage is a plain structure of numbers, so all zeros is a valid value. wait4 gets valid pointers to it and to the
    // status. The process is our child, and no other code waits for it.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(libc::pid_t::try_from(pid).ok()?, &raw mut status, 0, &raw mut usage), usage)
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    (waited > 0 && status == 0).then_some(Usage { cpu, peak_mb: usage.ru_maxrss as f64 / 1024.0, bpf: 0.0 })
}
