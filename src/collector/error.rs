//! Why collecting could not start or go on: what failed, on what, and what to do.

use std::io;

use crate::profile::Tgid;

/// What a collector needs to be allowed; part of several messages.
pub(crate) const HOW_TO_BE_ALLOWED: &str = "run it with sudo, or give it the capabilities CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE and \
     CAP_SYSLOG (setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_checkpoint_restore,cap_syslog+ep flametop)";

/// Why collecting could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectorError {
    /// The kernel refuses us what only a privileged process may do.
    #[error("flametop needs root to {what}: {HOW_TO_BE_ALLOWED}")]
    NotPermitted {
        /// The thing that it may not do, after "to".
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Kernel lockdown forbids BPF programs to read memory.
    #[error(
        "the kernel is locked down ({mode}) and lets no BPF program read kernel memory: boot with lockdown=none or lockdown=integrity, \
         or switch Secure Boot off"
    )]
    LockedDown {
        /// `confidentiality`.
        mode: String,
    },
    /// The kernel does not describe its own types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing): use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of \
         current distributions are"
    )]
    NoBtf,
    /// The kernel is older than what the BPF programs need.
    #[error("this kernel is {release}; flametop needs Linux 5.15 or later")]
    KernelTooOld {
        /// As `uname -r` tells it.
        release: String,
    },
    /// flametop sees other process numbers than the kernel's own.
    #[error(
        "flametop runs in a PID namespace and could not tell processes apart: run it on the host, or in a container with the host's \
         PIDs (docker run --pid=host)"
    )]
    PidNamespace,
    /// A BPF program did not load or attach.
    #[error("failed to {what}: {message}; `flametop doctor` tells what this kernel offers")]
    Bpf {
        /// What failed: "load the BPF programs".
        what: &'static str,
        /// What libbpf or the verifier said.
        message: String,
    },
    /// An event could not be opened.
    #[error("failed to open {event} on CPU {cpu}: {source}{remedy}")]
    Event {
        /// Which.
        event: &'static str,
        /// Where.
        cpu: u32,
        /// What the kernel said.
        source: io::Error,
        /// What to do, with a leading semicolon; empty where nothing is known.
        remedy: &'static str,
    },
    /// A source of events could not be attached.
    #[error("failed to take stacks at {event}: {why}; `flametop doctor` tells what this kernel offers")]
    NotAttached {
        /// As it was asked for.
        event: String,
        /// By each way that was tried, what the kernel said.
        why: String,
    },
    /// The kernel has no function of this name.
    #[error("failed to take stacks at {event}: the kernel has no such function{near}")]
    NoSuchFunction {
        /// As it was asked for.
        event: String,
        /// Names that are much like it, as `: is it a, b?`; or nothing.
        near: String,
    },
    /// The kernel has no tracepoint of this name.
    #[error("failed to take stacks at {event}: the kernel has no such tracepoint{near}")]
    NoSuchTracepoint {
        /// As it was asked for.
        event: String,
        /// Names that are much like it, as `: is it a, b?`; or nothing.
        near: String,
    },
    /// A pattern means more functions than can be attached to.
    #[error("{event} means {found} functions, and {limit} are the most that can be had that way: write a narrower pattern")]
    TooManyFunctions {
        /// As it was asked for.
        event: String,
        /// Functions that match.
        found: usize,
        /// Functions that there may be.
        limit: usize,
    },
    /// More sources than there are numbers.
    #[error("too many events: {limit} sources of them at one time are the most")]
    TooManyEvents {
        /// Sources that there may be.
        limit: usize,
    },
    /// More samples a second than the kernel allows.
    #[error(
        "the kernel takes at most {limit} samples a second, not {frequency}: choose a lower frequency, or raise \
         kernel.perf_event_max_sample_rate with sysctl"
    )]
    TooFrequent {
        /// What was wanted.
        frequency: u32,
        /// `kernel.perf_event_max_sample_rate`.
        limit: u64,
    },
    /// Nothing would ever be sampled.
    #[error("a frequency of 0 takes no samples: choose 1 or more samples a second")]
    NoFrequency,
    /// A target does not exist.
    #[error("there is no process {0}: check the number, or whether it has ended")]
    NoSuchProcess(Tgid),
    /// The number is that of a thread.
    #[error("{thread} is a thread of process {process}: give {process}, and choose the thread in the live view (T)")]
    IsThread {
        /// The number that was given.
        thread: Tgid,
        /// The process that has the thread.
        process: Tgid,
    },
    /// The collector was started for all processes and cannot be given targets.
    #[error("all processes are sampled: a single one cannot be added")]
    NotFiltering,
    /// More targets than the map holds.
    #[error("too many processes to follow: at most {limit} can be told apart in the kernel; sample all processes instead")]
    TooManyTargets {
        /// Size of the map.
        limit: u32,
    },
    /// A file of the kernel could not be read.
    #[error("failed to read {path}: {source}")]
    Read {
        /// Which.
        path: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl CollectorError {
    /// The error of opening an event, with what helps against it.
    pub(crate) fn event(event: &'static str, cpu: u32, source: io::Error) -> CollectorError {
        let remedy = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                return CollectorError::NotPermitted { what: "watch the whole machine with perf events", source };
            }
            Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
            Some(libc::ENOSPC | libc::EBUSY) => "; another profiler may hold the counters: stop it",
            Some(libc::ENOMEM) => "; the kernel has no memory for the ring: free some, or raise kernel.perf_event_mlock_kb",
            Some(libc::ENOSYS) => "; the kernel was built without CONFIG_PERF_EVENTS, or a sandbox forbids the call",
            _ => "",
        };
        CollectorError::Event { event, cpu, source, remedy }
    }
}
