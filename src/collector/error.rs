//! Errors of the collector: each says what failed, on what, and what to do.

use std::io;

use crate::profile::Tgid;

/// How to get the privileges that a collector needs; part of several messages.
pub(crate) const HOW_TO_BE_ALLOWED: &str = "run it with sudo, or give it the capabilities CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE and \
     CAP_SYSLOG (setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_checkpoint_restore,cap_syslog+ep flametop)";

/// The reason why the collector could not start or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectorError {
    /// The kernel allows this only to privileged processes.
    #[error("flametop needs root to {what}: {HOW_TO_BE_ALLOWED}")]
    NotPermitted {
        /// The refused action, after "to".
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Kernel lockdown forbids BPF programs to read memory.
    #[error(
        "the kernel is locked down ({mode}) and does not let BPF programs read kernel memory: boot with lockdown=none or \
         lockdown=integrity, or switch Secure Boot off"
    )]
    LockedDown {
        /// The mode of the lockdown: `confidentiality`.
        mode: String,
    },
    /// The kernel has no BTF, which describes its types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing): use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as in \
         current distributions"
    )]
    NoBtf,
    /// The kernel is too old for the BPF programs.
    #[error("this kernel is {release}; flametop needs Linux 5.15 or later")]
    KernelTooOld {
        /// The kernel's release, as in `uname -r`.
        release: String,
    },
    /// flametop runs in a PID namespace, so its process numbers differ from the kernel's.
    #[error(
        "flametop runs in a PID namespace, where process numbers differ from the kernel's: run it on the host, or in a \
         container with the host's PIDs (docker run --pid=host)"
    )]
    PidNamespace,
    /// A BPF program did not load or attach.
    #[error("failed to {what}: {message}; `flametop doctor` shows what this kernel supports")]
    Bpf {
        /// The failed step: "load the BPF programs".
        what: &'static str,
        /// The message of libbpf or the verifier.
        message: String,
    },
    /// An event could not be opened.
    #[error("failed to open {event} on CPU {cpu}: {source}{remedy}")]
    Event {
        /// The event.
        event: &'static str,
        /// The CPU.
        cpu: u32,
        /// The kernel's error.
        source: io::Error,
        /// The remedy, with a leading semicolon; empty if none is known.
        remedy: &'static str,
    },
    /// A source of events could not be attached.
    #[error("failed to take stacks at {event}: {why}; `flametop doctor` shows what this kernel supports")]
    NotAttached {
        /// The event, as the user wrote it.
        event: String,
        /// The kernel's errors, for each way that was tried.
        why: String,
    },
    /// Taking part in these events costs the programs much time, and nobody agreed to that.
    #[error("{event} happens {per_second} times a second; to take stacks there costs the programs about {cpus:.2} CPUs")]
    Costly {
        /// The event, as the user wrote it.
        event: String,
        /// Number of events in a second.
        per_second: u64,
        /// CPUs that the programs lose.
        cpus: f64,
    },
    /// The kernel has no function of this name.
    #[error("failed to take stacks at {event}: the kernel has no such function{near}")]
    NoSuchFunction {
        /// The event, as the user wrote it.
        event: String,
        /// Similar names, as `: is it a, b?`; or nothing.
        near: String,
    },
    /// The kernel has no tracepoint of this name.
    #[error("failed to take stacks at {event}: the kernel has no such tracepoint{near}")]
    NoSuchTracepoint {
        /// The event, as the user wrote it.
        event: String,
        /// Similar names, as `: is it a, b?`; or nothing.
        near: String,
    },
    /// A pattern matches more functions than can be attached.
    #[error("{event} matches {found} functions; at most {limit} are possible this way: write a narrower pattern")]
    TooManyFunctions {
        /// The event, as the user wrote it.
        event: String,
        /// Number of functions that match.
        found: usize,
        /// Most functions that are allowed.
        limit: usize,
    },
    /// All numbers of sources are in use.
    #[error("too many events: at most {limit} sources at a time")]
    TooManyEvents {
        /// Most sources that are allowed.
        limit: usize,
    },
    /// The frequency is higher than the kernel allows.
    #[error(
        "the kernel allows at most {limit} samples a second, not {frequency}: choose a lower frequency, or raise \
         kernel.perf_event_max_sample_rate with sysctl"
    )]
    TooFrequent {
        /// The frequency that the user chose.
        frequency: u32,
        /// `kernel.perf_event_max_sample_rate`.
        limit: u64,
    },
    /// With a frequency of 0, nothing would ever be sampled.
    #[error("a frequency of 0 takes no samples: choose 1 or more samples a second")]
    NoFrequency,
    /// There is no such process.
    #[error("there is no process {0}: check the number, or whether it has ended")]
    NoSuchProcess(Tgid),
    /// The number belongs to a thread.
    #[error("{thread} is a thread of process {process}: give {process}, and choose the thread in the live view (T)")]
    IsThread {
        /// The number that was given.
        thread: Tgid,
        /// The process that the thread belongs to.
        process: Tgid,
    },
    /// The collector was started for all processes and cannot be given targets.
    #[error("all processes are sampled already: no process can be added")]
    NotFiltering,
    /// There are more targets than the map holds.
    #[error("too many processes to follow: the limit is {limit}; sample all processes instead")]
    TooManyTargets {
        /// Most processes that the map holds.
        limit: u32,
    },
    /// A file of the kernel could not be read.
    #[error("failed to read {path}: {source}")]
    Read {
        /// The file.
        path: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl CollectorError {
    /// Returns the error of opening an event, with its remedy.
    pub(crate) fn event(event: &'static str, cpu: u32, source: io::Error) -> CollectorError {
        let remedy = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                return CollectorError::NotPermitted { what: "watch the whole machine with perf events", source };
            }
            Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
            Some(libc::ENOSPC | libc::EBUSY) => "; another profiler may hold the counters: stop it",
            Some(libc::ENOMEM) => {
                "; the kernel has no memory for the ring buffer: free some memory, or raise kernel.perf_event_mlock_kb"
            }
            Some(libc::ENOSYS) => "; the kernel was built without CONFIG_PERF_EVENTS, or a sandbox forbids the call",
            _ => "",
        };
        CollectorError::Event { event, cpu, source, remedy }
    }
}
