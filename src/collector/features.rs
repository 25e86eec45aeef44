//! Finds by trying what this kernel and this machine support: for `flametop doctor`, and for errors that say what is missing.

use crate::collector::machine::parse_release;
use crate::collector::sys::machine;
use crate::collector::sys::perf_ring;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::error::{CollectorError, HOW_TO_BE_ALLOWED};
use super::kernel_memory::KernelNames;
use super::probes::Mechanism;
use super::sources::clock::{self, Reading, Sampler};
use crate::collector::sys::perf_event::{self, Clock};

/// Oldest kernel that has all helpers of the BPF programs: `bpf_task_pt_regs` came with 5.15.
const OLDEST: (u32, u32) = (5, 15);

/// The inode of the initial PID namespace: `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The state of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// The feature is there and works.
    Good,
    /// flametop works without it, but shows less.
    Limited,
    /// flametop cannot work without it.
    Missing,
}

/// A feature that flametop needs, or works better with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Its state.
    pub state: Support,
    /// The result of the check: a version, a value, an error.
    pub found: String,
    /// The meaning and the remedy, in a sentence; empty if all is well.
    pub remedy: String,
}

/// Checks all features. Takes some milliseconds, and leaves nothing behind.
pub fn probe() -> Vec<Feature> {
    let sampler = clock::for_trying();
    let sampler = sampler.as_ref();
    let mut features =
        vec![kernel_version(), btf(), lockdown(), pid_namespace(), capabilities(), sampling_program(sampler.map(drop))];
    // If the sampler could not be loaded, the line before says so.
    features.extend(sampler.map(|sampler| reading_of_stacks(sampler.reading())));
    features.extend([
        following_forks(),
        cpu_clock(),
        cycles(),
        events(),
        paranoid(),
        kernel_symbols(),
        python_functions(),
        unprivileged_bpf(),
        max_stack(),
    ]);
    features.extend(sampler.map(events_by_mechanism).unwrap_or_default());
    features
}

/// Checks the mechanisms of `-e`, which take stacks at events instead of the clock's ticks.
fn events_by_mechanism(sampler: &Sampler) -> Vec<Feature> {
    let Ok(shared) = sampler.share() else { return Vec::new() };
    let describe = |(mechanism, tried): (Mechanism, Result<(), String>)| {
        let (name, needs) = match mechanism {
            Mechanism::Fentry => (
                "fentry:FUNC",
                "Needs CONFIG_FUNCTION_TRACER and CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS, on arm64 also Linux 6.4. FUNC \
                 without a prefix uses a mechanism that works.",
            ),
            Mechanism::Fexit => ("fexit:FUNC", "Same requirements as fentry."),
            Mechanism::KprobeMulti => ("kprobe.multi:FUNC", "Needs CONFIG_FPROBE and Linux 5.18, on arm64 Linux 6.14."),
            Mechanism::KretprobeMulti => ("kretprobe.multi:FUNC", "Same requirements as kprobe.multi."),
            Mechanism::Kprobe => ("kprobe:FUNC", "Needs CONFIG_KPROBE_EVENTS."),
            Mechanism::Kretprobe => ("kretprobe:FUNC", "Needs CONFIG_KPROBE_EVENTS and CONFIG_KRETPROBES."),
            Mechanism::Uprobe => ("uprobe:FILE:FUNC", "Needs CONFIG_UPROBE_EVENTS."),
            Mechanism::Uretprobe => ("uretprobe:FILE:FUNC", "Needs CONFIG_UPROBE_EVENTS."),
            Mechanism::Tracepoint => ("tracepoint:CAT:NAME", "Needs CONFIG_TRACEPOINTS and tracefs (root can mount it)."),
            Mechanism::PerfEvent => ("perf counters", "Needs CONFIG_PERF_EVENTS."),
        };
        match tried {
            Ok(()) => feature(name, Support::Good, "works", ""),
            Err(why) => feature(name, Support::Limited, why, needs),
        }
    };
    super::probes::try_all(shared).into_iter().map(describe).collect()
}

/// Checks the requirements that nothing works without. It tries nothing, and serves clear errors at the start.
pub(crate) fn required() -> Result<(), CollectorError> {
    let release = read("/proc/sys/kernel/osrelease");
    if parse_release(&release).is_some_and(|version| version < OLDEST) {
        return Err(CollectorError::KernelTooOld { release });
    }
    if !has_btf() {
        return Err(CollectorError::NoBtf);
    }
    if let Some(mode) = lockdown_mode().filter(|mode| mode == "confidentiality") {
        return Err(CollectorError::LockedDown { mode });
    }
    if in_pid_namespace() {
        return Err(CollectorError::PidNamespace);
    }
    Ok(())
}

fn feature(name: &'static str, state: Support, found: impl Into<String>, remedy: impl Into<String>) -> Feature {
    let remedy = if state == Support::Good { String::new() } else { remedy.into() };
    Feature { name, state, found: found.into(), remedy }
}

fn good_or(state: Support, good: bool) -> Support {
    if good { Support::Good } else { state }
}

/// Returns the text of a small file of the kernel, or an empty text.
fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
}

fn kernel_version() -> Feature {
    let release = read("/proc/sys/kernel/osrelease");
    let new_enough = parse_release(&release).is_none_or(|version| version >= OLDEST);
    feature("kernel", good_or(Support::Missing, new_enough), release, "flametop needs Linux 5.15 or later.")
}

fn has_btf() -> bool {
    fs::metadata("/sys/kernel/btf/vmlinux").is_ok()
}

fn btf() -> Feature {
    let found = if has_btf() { "/sys/kernel/btf/vmlinux" } else { "none" };
    feature("BTF", good_or(Support::Missing, has_btf()), found, CollectorError::NoBtf.to_string())
}

/// Returns the mode in brackets: `none [integrity] confidentiality` → `integrity`. Returns `None` if the kernel has no lockdown.
fn lockdown_mode() -> Option<String> {
    let modes = fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    Some(modes.split_once('[')?.1.split_once(']')?.0.to_string())
}

fn lockdown() -> Feature {
    let mode = lockdown_mode().unwrap_or_else(|| "none".to_string());
    let state = good_or(Support::Missing, mode != "confidentiality");
    let remedy = CollectorError::LockedDown { mode: mode.clone() }.to_string();
    feature("lockdown", state, mode, remedy)
}

fn in_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace.as_os_str() != INITIAL_PID_NAMESPACE)
}

fn pid_namespace() -> Feature {
    let found = if in_pid_namespace() { "of a container" } else { "the host's" };
    feature("process numbers", good_or(Support::Missing, !in_pid_namespace()), found, CollectorError::PidNamespace.to_string())
}

/// Checks which of the needed capabilities are in effect. The bits are those of linux/capability.h.
fn capabilities() -> Feature {
    const SYS_ADMIN: u32 = 21;
    const USED: [(&str, u32); 6] = [
        ("CAP_BPF", 39),
        ("CAP_PERFMON", 38),
        ("CAP_SYS_PTRACE", 19),
        ("CAP_DAC_READ_SEARCH", 2),
        ("CAP_CHECKPOINT_RESTORE", 40),
        ("CAP_SYSLOG", 34),
    ];
    let status = read("/proc/self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    let effective = u64::from_str_radix(effective.trim(), 16).unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    // CAP_SYS_ADMIN includes BPF, PERFMON and CHECKPOINT_RESTORE, which were split from it in 5.8 and 5.9.
    let covered =
        |name: &str, bit| has(bit) || has(SYS_ADMIN) && matches!(name, "CAP_BPF" | "CAP_PERFMON" | "CAP_CHECKPOINT_RESTORE");
    let missing: Vec<&str> = USED.iter().filter(|(name, bit)| !covered(name, *bit)).map(|(name, _)| *name).collect();
    let needed = missing.iter().any(|name| matches!(*name, "CAP_BPF" | "CAP_PERFMON"));
    let state = if needed { Support::Missing } else { good_or(Support::Limited, missing.is_empty()) };
    let found = if missing.is_empty() { "all".to_string() } else { format!("without {}", missing.join(", ")) };
    feature("capabilities", state, found, format!("To see everything, {HOW_TO_BE_ALLOWED}."))
}

/// The reason why an attempt failed.
enum Failure {
    /// The attempt is not permitted, so the result is unknown.
    NotPermitted,
    /// The kernel's error.
    Said(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Failure::NotPermitted,
            Some(libc::ENOENT) => Failure::Said("none".to_string()),
            _ => Failure::Said(error.to_string()),
        }
    }
}

impl From<&CollectorError> for Failure {
    fn from(error: &CollectorError) -> Failure {
        match error {
            CollectorError::NotPermitted { .. } => Failure::NotPermitted,
            other => Failure::Said(other.to_string()),
        }
    }
}

fn tried<E: Into<Failure>>(name: &'static str, worst: Support, tried: Result<(), E>, remedy: &str) -> Feature {
    match tried.map_err(Into::into) {
        Ok(()) => feature(name, Support::Good, "works", ""),
        Err(Failure::NotPermitted) => feature(name, worst, "not permitted", "Try again with the capabilities named above."),
        Err(Failure::Said(said)) => feature(name, worst, said, remedy),
    }
}

fn sampling_program(loaded: Result<(), &CollectorError>) -> Feature {
    tried(
        "BPF sampling program",
        Support::Missing,
        loaded,
        "flametop cannot sample without it: please report this message and the kernel's version.",
    )
}

/// Checks whether stacks are read in place, through the kernel's direct map. On arm64 they never are.
fn reading_of_stacks(reading: Reading) -> Feature {
    let remedy = "Equally correct, but a third slower. Reading in place needs Linux 6.2, /proc/kcore if the kernel's addresses \
                  are randomized (KASLR), at most 64 TiB of memory, no failed memory (HardwareCorrupted in /proc/meminfo), and \
                  no Xen PV guest.";
    let in_place = reading == Reading::InPlace;
    let found = if in_place { "in place; if this kernel ever misbehaves, try --unwind copied first" } else { "copied" };
    feature("reading user stacks", good_or(Support::Limited, in_place || cfg!(target_arch = "aarch64")), found, remedy)
}

fn following_forks() -> Feature {
    let remedy = "Children of a command or process cannot be followed: sample all processes and search for them. The kernel needs \
                  BTF and CONFIG_DEBUG_INFO_BTF=y for typed tracepoints.";
    tried("BPF tracepoints (tp_btf)", Support::Limited, clock::try_following_forks().as_ref().copied(), remedy)
}

fn cpu_clock() -> Feature {
    tried(
        "cpu-clock",
        Support::Missing,
        perf_event::try_clock(Clock::CpuClock),
        "flametop needs perf events: run it as root, on a kernel with CONFIG_PERF_EVENTS=y, outside sandboxes that forbid perf_event_open.",
    )
}

fn cycles() -> Feature {
    let remedy = "No cycle counter (usual in virtual machines): the timer cpu-clock is used instead, which sees sections with \
                  interrupts disabled only at their end.";
    tried("hardware cycles", Support::Limited, perf_event::try_clock(Clock::Cycles), remedy)
}

fn events() -> Feature {
    let opened = machine::online_cpus().and_then(|cpus| match cpus.first() {
        Some(cpu) => perf_ring::EventRings::open(*cpu, 2 * rustix::param::page_size()).map(drop),
        None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    });
    tried(
        "mapping and exec events",
        Support::Missing,
        opened,
        "flametop follows programs by perf's side-band events; run it as root or with CAP_PERFMON.",
    )
}

fn paranoid() -> Feature {
    let value = read("/proc/sys/kernel/perf_event_paranoid");
    // Values above 2 exist in Debian and Ubuntu: without CAP_PERFMON, no process may use perf events there.
    feature("kernel.perf_event_paranoid", Support::Good, value, "")
}

/// Most processes that are tried.
const TRIED: usize = 256;

/// Whether an attempt to read the memory of this process tells something: it is a program, and not our own user's.
fn is_of_another(tgid: u32) -> bool {
    let own = rustix::process::geteuid();
    let directory = format!("/proc/{tgid}");
    let is_of_kernel = fs::read_link(format!("{directory}/exe")).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let is_other = own.is_root() || fs::metadata(directory).is_ok_and(|about| about.uid() != own.as_raw());
    tgid != std::process::id() && is_other && !is_of_kernel
}

/// Checks whether the memory of other processes may be read. A process may forbid it for itself (init does on some machines), so one that
/// allows it is enough.
fn python_functions() -> Feature {
    let remedy = "Functions of Python and JavaScript have no names. Needs CAP_SYS_PTRACE, and the sysctl kernel.yama.ptrace_scope below 3.";
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let tried = numbers.filter(|tgid| is_of_another(*tgid)).take(TRIED).map(|tgid| fs::File::open(format!("/proc/{tgid}/mem")));
    let refused = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
    match tried.reduce(|best, next| if best.is_ok() { best } else { next }).unwrap_or_else(refused) {
        Ok(_) => feature(
            "languages",
            Support::Good,
            "CPython 3.7 to 3.15, V8 9.4 to 14.6 (Node.js 16 to 26), from the memory of programs",
            "",
        ),
        Err(error) => {
            feature("languages", Support::Limited, format!("the memory of other processes cannot be read: {error}"), remedy)
        }
    }
}

fn kernel_symbols() -> Feature {
    if KernelNames::load().is_ok() {
        return feature("kernel symbols", Support::Good, "read from the running kernel (bpf_snprintf)", "");
    }
    let value = read("/proc/sys/kernel/kptr_restrict");
    let shown = fs::read_to_string("/proc/kallsyms").is_ok_and(|text| {
        // If addresses are hidden, every line begins with zeros.
        text.lines()
            .take(100)
            .any(|line| line.split(' ').next().is_some_and(|address| address.bytes().any(|digit| digit != b'0')))
    });
    let found = format!(
        "not readable with BPF; kptr_restrict {value}, addresses in /proc/kallsyms {}",
        if shown { "shown" } else { "hidden" }
    );
    let remedy = "Kernel functions have no names: run flametop as root (or with CAP_SYSLOG), and if that is not enough, set sysctl \
                  kernel.kptr_restrict=1.";
    feature("kernel symbols", good_or(Support::Limited, shown), found, remedy)
}

fn unprivileged_bpf() -> Feature {
    let found = match read("/proc/sys/kernel/unprivileged_bpf_disabled").as_str() {
        "" => "unknown".to_string(),
        "0" => "0: every user may load some kinds of BPF programs, but not flametop's".to_string(),
        value => format!("{value}: only privileged processes may load BPF programs"),
    };
    feature("unprivileged BPF", Support::Good, found, "")
}

fn max_stack() -> Feature {
    let value = read("/proc/sys/kernel/perf_event_max_stack");
    let state = good_or(Support::Limited, value.parse().is_ok_and(|depth: u32| depth >= 127));
    feature(
        "kernel.perf_event_max_stack",
        state,
        value,
        "Stacks deeper than this are cut: set sysctl kernel.perf_event_max_stack=127.",
    )
}

/// Returns the numbers of the CPUs that are switched on. Returns none if the kernel does not tell.
pub fn cpus_on() -> Vec<u16> {
    machine::online_cpus().unwrap_or_default().into_iter().filter_map(|cpu| u16::try_from(cpu).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_understood() {
        assert_eq!(parse_release("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(parse_release("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(parse_release("7.0-rc1"), Some((7, 0)));
        assert_eq!(parse_release("unknown"), None);
    }

    #[test]
    fn whatever_is_not_good_says_what_helps() {
        let features = probe();
        for feature in &features {
            assert!(!feature.found.is_empty(), "{feature:?}");
            assert_eq!(feature.state == Support::Good, feature.remedy.is_empty(), "{feature:?}");
        }
        let of = |name| features.iter().find(|feature| feature.name == name).map(|feature| feature.state);
        assert_eq!(of("BPF sampling program"), Some(Support::Good), "this test needs root: {features:#?}");
        assert_eq!(of("cpu-clock"), Some(Support::Good), "this test needs root: {features:#?}");
    }
}
