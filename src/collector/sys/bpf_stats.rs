//! Has the kernel count and time the runs of BPF programs.

use std::os::fd::{FromRawFd, OwnedFd};

/// Returns a descriptor: while it is open, runs are counted and timed. `None` if this kernel (before 5.8) or a lack of privileges
/// (`CAP_SYS_ADMIN`) does not allow it.
pub(crate) fn count_runs() -> Option<OwnedFd> {
    // SAFETY: the call takes a number, and returns a new descriptor or an error.
    let descriptor = unsafe { libbpf_rs::libbpf_sys::bpf_enable_stats(libbpf_rs::libbpf_sys::BPF_STATS_RUN_TIME) };
    // SAFETY: nothing else owns the new descriptor.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}
