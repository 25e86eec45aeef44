//! Gives up, after the start, every privilege that the rest of the run does not need.
//!
//! flametop starts with all of root's privileges, and reads files and memory of untrusted processes. An error in that code should
//! give an attacker as little as possible:
//!
//! ```text
//! keep(set) ──► threads of tokio, of `far`, of the unwind tables: drop_unneeded() when they begin
//!     │
//!     ├─► the command is started (it keeps all that root has) ─► BPF programs are loaded, perf events opened
//!     │
//!     └─► the collecting thread: drop_but_reserve() when it has started; the main thread: close() when all has
//! ```
//!
//! | what | for |
//! | --- | --- |
//! | `BPF`, `PERFMON`, `IPC_LOCK` | events that are attached later, CPUs that are switched on; their rings are locked memory |
//! | `SYS_PTRACE`, `CHECKPOINT_RESTORE` | `/proc/PID/{maps,root,exe,map_files}` of other users |
//! | `SYSLOG` | addresses in `/proc/kallsyms` |
//! | `DAC_READ_SEARCH`, `DAC_OVERRIDE`, `CHOWN`, `FOWNER` | files in private directories; saving there, for sudo's caller |
//! | `KILL` | ends a command that runs as another user |
//! | `SETUID`, `SETGID` | the program that fetches debug files runs as another user |
//! | `SYS_NICE` | threads that gave way to others end with the usual priority: the main thread takes it back at the end |
//! | `SYS_ADMIN` | uprobes that are set later: the live view's collecting thread has it while it attaches; all have it before Linux 5.9, which has no `CHECKPOINT_RESTORE` |
//!
//! Capabilities belong to threads, so each thread drops its own; a new thread inherits those of its creator. [`close`] adds a
//! seccomp filter for all threads at once. The filter refuses system calls that flametop never makes after the start. If the kernel
//! refuses one of these steps, the others are still taken.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

/// Reads all users' files.
const READ: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;
/// Reads and writes all users' files.
const FILES: CapabilitySet = READ.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::CHOWN).union(CapabilitySet::FOWNER);
/// Samples, and names the samples' code.
const SAMPLING: CapabilitySet = FILES
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::SYSLOG);

/// The number of `CAP_CHECKPOINT_RESTORE`, the newest that is needed (Linux 5.9).
const NEWEST: u32 = 40;

/// Tasks of the rest of the run. They decide which privileges it keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duties {
    /// Sends what it is handed.
    Sends,
    /// Reads files that the user names.
    Reads,
    /// Reads files that the user names, some with addresses of the kernel, and saves.
    Views,
    /// Samples.
    Samples {
        /// A command was started that may run as another user.
        command: bool,
        /// A program that fetches debug files is started.
        fetches: bool,
        /// Events are attached later that were not requested at the start.
        attaches: bool,
    },
}

impl Duties {
    fn capabilities(self) -> CapabilitySet {
        let when = |condition: bool, set: CapabilitySet| if condition { set } else { CapabilitySet::empty() };
        match self {
            Duties::Sends => CapabilitySet::empty(),
            Duties::Reads => READ,
            Duties::Views => FILES.union(CapabilitySet::SYSLOG),
            Duties::Samples { command, fetches, .. } => {
                SAMPLING
                    | when(command || fetches, CapabilitySet::KILL)
                    | when(fetches, CapabilitySet::SETUID | CapabilitySet::SETGID)
                    | when(newest_known() < NEWEST, CapabilitySet::SYS_ADMIN)
            }
        }
    }
}

/// Returns the newest capability that the kernel knows.
fn newest_known() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    text.trim().parse().unwrap_or(NEWEST)
}

/// The capabilities that threads keep. While this is not set, [`drop_unneeded`] does nothing.
static KEPT: OnceLock<CapabilitySet> = OnceLock::new();
/// Further capabilities of the collecting thread. It holds them only while it attaches to an event: the kernel requires them for uprobes.
static RESERVE: OnceLock<CapabilitySet> = OnceLock::new();

/// The nice value of flametop's start.
static NICE: OnceLock<i32> = OnceLock::new();

/// Decides once which capabilities threads keep. Call it before the first thread begins.
pub fn keep(duties: Duties) {
    let _ = KEPT.set(duties.capabilities());
    let _ = NICE.set(own_nice());
    if matches!(duties, Duties::Samples { attaches: true, .. }) {
        let _ = RESERVE.set(CapabilitySet::SYS_ADMIN);
    }
}

/// Returns the nice value of the calling thread.
fn own_nice() -> i32 {
    getpriority_process(Some(rustix::thread::gettid())).unwrap_or(0)
}

/// Gives the calling thread precedence over most programs. For the thread that drains the rings: beside many busy programs the rings would
/// fill before its turn comes. It does little for each sample. Threads that it starts begin with this priority, until they call
/// [`drop_unneeded`].
pub fn take_precedence() {
    /// About ten times the CPU time of a process at nice 0.
    const BEFORE_OTHERS: i32 = -10;
    // Only root may do so.
    let _ = setpriority_process(Some(rustix::thread::gettid()), BEFORE_OTHERS);
}

/// Whether the run ends: no thread gives way any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Gives a worker the lowest priority, until the end of the run. For workers that were left behind and may be computing, for users other
/// than root: these users should get CPU time in their own processes only.
pub fn give_way(thread: Pid) {
    /// The scheduler gives the smallest share for it: 15, where a process at nice 0 gets 1,024.
    const LOWEST: i32 = 19;
    if !ENDING.load(Ordering::SeqCst) {
        // On Linux, this is the priority of one thread. The thread may have ended.
        let _ = setpriority_process(Some(thread), LOWEST);
    }
}

/// Gives the threads that gave way the nice value of flametop's start. To call in the main thread at the end of the run. A process has
/// ended when its last thread has ended, and beside busy programs a thread of the lowest priority may wait a second for its turn.
pub fn give_way_no_more() {
    ENDING.store(true, Ordering::SeqCst);
    let Some(nice) = NICE.get() else { return };
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    with_permitted(|| {
        for thread in threads.filter(|thread| getpriority_process(Some(*thread)).is_ok_and(|its| its > *nice)) {
            let _ = setpriority_process(Some(thread), *nice);
        }
    });
}

/// Drops all capabilities but the kept ones, in the calling thread and in threads that it will start. Programs that these threads
/// start get the same limit. Also drops the precedence that the calling thread has from the thread that started it.
pub fn drop_unneeded() {
    return_precedence();
    drop_but(CapabilitySet::empty());
}

fn return_precedence() {
    if let Some(nice) = NICE.get().filter(|nice| own_nice() < **nice) {
        let _ = setpriority_process(Some(rustix::thread::gettid()), *nice);
    }
}

/// Drops capabilities of the collecting thread. It can take back those that [`attaching`] needs.
pub fn drop_but_reserve() {
    drop_but(RESERVE.get().copied().unwrap_or(CapabilitySet::empty()));
}

fn drop_but(reserve: CapabilitySet) {
    let Some(kept) = KEPT.get() else { return };
    let _ = set_no_new_privs(true);
    if let Ok(CapabilitySets { permitted, .. }) = capabilities(None) {
        let _ = rustix::thread::clear_ambient_capability_set();
        set(permitted & *kept, permitted & (*kept | reserve));
    }
}

fn set(effective: CapabilitySet, permitted: CapabilitySet) {
    let _ = set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() });
}

/// Attaches to an event, with the capabilities reserved for that.
pub fn attaching<T>(work: impl FnOnce() -> T) -> T {
    if RESERVE.get().is_some() { with_permitted(work) } else { work() }
}

/// Calls `work` with all capabilities that the calling thread may have: the reserved capabilities as well.
fn with_permitted<T>(work: impl FnOnce() -> T) -> T {
    let Ok(CapabilitySets { effective, permitted, .. }) = capabilities(None) else { return work() };
    set(permitted, permitted);
    let outcome = work();
    set(effective, permitted);
    outcome
}

/// Drops the main thread's capabilities. At the end it can take back `SYS_NICE` (see [`give_way_no_more`]). For all threads, system calls
/// that are no longer needed are refused from now on (`EPERM`).
pub fn close() {
    return_precedence();
    drop_but(CapabilitySet::SYS_NICE);
    if let Some(filter) = filter(&[]) {
        let _ = apply_filter_all_threads(&filter);
    }
}

/// Drops all privileges of a process that only sends what it is handed. To call before it has other threads. It can write no file, start no program,
/// and reach no other process.
pub fn close_for_sending() {
    keep(Duties::Sends);
    drop_unneeded();
    if let Some(filter) = filter(REFUSED_TO_SENDER) {
        let _ = apply_filter_all_threads(&filter);
    }
}

/// Returns a filter that refuses [`REFUSED`] and these calls, and allows all others. `None` on architectures that the library does not know.
fn filter(further: &[i64]) -> Option<BpfProgram> {
    let mut rules: BTreeMap<i64, _> = REFUSED.iter().chain(REFUSED_HERE).chain(further).map(|call| (*call, Vec::new())).collect();
    if !further.is_empty() {
        rules.extend(OPENING.iter().map(|(call, flags)| (*call, opening_to_write(*flags))));
    }
    let architecture = std::env::consts::ARCH.try_into().ok()?;
    let eperm = SeccompAction::Errno(rustix::io::Errno::PERM.raw_os_error().unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, eperm, architecture).ok()?.try_into().ok()
}

/// System calls that flametop never makes after its start, and that would help an attacker who took it over. They load code into
/// the kernel, stop the kernel, change mounts and namespaces, read other processes' memory, set the clock, or use devices and keys.
const REFUSED: &[i64] = &[
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_userfaultfd,
    libc::SYS_memfd_secret,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
];

/// System calls that a process that only sends never makes. They change files, start programs, or reach other processes.
const REFUSED_TO_SENDER: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_prlimit64,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_memfd_create,
    libc::SYS_openat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_mq_open,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
];

/// System calls that open files, and the number of the argument that has the flags.
const OPENING: &[(i64, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Returns rules for calls that open a file to write it, or make one.
fn opening_to_write(flags: u8) -> Vec<SeccompRule> {
    let any_of = [
        (libc::O_ACCMODE, libc::O_WRONLY),
        (libc::O_ACCMODE, libc::O_RDWR),
        (libc::O_CREAT, libc::O_CREAT),
        (libc::O_TRUNC, libc::O_TRUNC),
    ];
    let rule = |(mask, value): (i32, i32)| {
        let compared = SeccompCmpOp::MaskedEq(u64::from(mask.unsigned_abs()));
        let condition = SeccompCondition::new(flags, SeccompCmpArgLen::Dword, compared, u64::from(value.unsigned_abs()));
        SeccompRule::new(vec![condition.ok()?]).ok()
    };
    any_of.into_iter().filter_map(rule).collect()
}

/// Refused system calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_mknod, libc::SYS_uselib];
/// Refused system calls that only this architecture has: none.
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_grows_with_the_duties() {
        let plain = Duties::Samples { command: false, fetches: false, attaches: false }.capabilities();
        let all = Duties::Samples { command: true, fetches: true, attaches: true }.capabilities();
        assert!(all.contains(plain) && plain.contains(Duties::Views.capabilities()));
        assert!(Duties::Views.capabilities().contains(Duties::Reads.capabilities()));
        assert!(
            !all.intersects(
                CapabilitySet::SYS_MODULE | CapabilitySet::SYS_RAWIO | CapabilitySet::SETPCAP | CapabilitySet::SYS_BOOT
            )
        );
        assert!(!plain.intersects(CapabilitySet::KILL | CapabilitySet::SETUID | CapabilitySet::SETGID));
        assert_eq!(newest_known() < NEWEST, all.contains(CapabilitySet::SYS_ADMIN));
    }

    #[test]
    fn the_filter_can_be_made_here() {
        assert!(filter(&[]).is_some_and(|filter| filter.len() > REFUSED.len()));
    }

    #[test]
    fn nothing_is_dropped_before_it_was_decided_what_to_keep() {
        let before = capabilities(None).unwrap();
        drop_unneeded();
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
