//! Facts from the kernel: whether we are root, and which BPF programs are loaded.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A BPF program in the kernel. The kernel never reuses its id; its name has at most 15 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BpfProgram {
    /// The kernel's id.
    pub(crate) id: u32,
    /// The name of its C function, cut to 15 bytes.
    pub(crate) name: String,
}

/// Fails the test when it does not run as root.
///
/// Not skipped: a test that quietly does nothing is worse than one that says what it needs.
#[track_caller]
pub(crate) fn root_or_fail() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test loads BPF programs and needs root: run `make test`, which asks sudo for it"
    );
}

/// Runs tests that need root and measure one at a time, as long as the guard lives: they would disturb each other.
#[track_caller]
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    root_or_fail();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All BPF programs the kernel holds now, of whatever process.
pub(crate) fn loaded_bpf_programs() -> Vec<BpfProgram> {
    // The iterator of libbpf-rs ends early when a program is unloaded between being listed and being queried. Programs of other
    // tests are unloaded all the time. So this returns the union of a few walks.
    let mut programs = BTreeSet::new();
    for _ in 0..3 {
        programs.extend(
            libbpf_rs::query::ProgInfoIter::default()
                .map(|info| BpfProgram { id: info.id, name: info.name.to_string_lossy().into_owned() }),
        );
    }
    programs.into_iter().collect()
}

/// Returns the BPF programs that process `pid` holds by file descriptors.
///
/// To check that a program cleans up, take its ids while it runs, and search for them in [`loaded_bpf_programs`] afterwards.
/// Other tests may run at the same time, so a list of names proves nothing.
pub(crate) fn bpf_programs_of(pid: u32) -> Vec<BpfProgram> {
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
        let Ok(info) = std::fs::read_to_string(entry.path()) else { continue };
        let id = info.lines().find_map(|line| line.strip_prefix("prog_id:"));
        ids.extend(id.and_then(|id| id.trim().parse::<u32>().ok()));
    }
    loaded_bpf_programs().into_iter().filter(|program| ids.contains(&program.id)).collect()
}

/// CPU time of a process in steps of 10 ms, as the kernel counts it: proc_pid_stat(5), `utime` and `stime`.
pub(crate) fn cpu_of(pid: u32) -> Duration {
    cpu_told_by(Path::new(&format!("/proc/{pid}")))
}

/// CPU time of a process or a thread, by its directory in `/proc`. See [`cpu_of`].
pub(crate) fn cpu_told_by(directory: &Path) -> Duration {
    let stat = std::fs::read_to_string(directory.join("stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
