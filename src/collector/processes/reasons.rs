//! Finds out why a thread has waited, by the functions of the kernel in which it waited.
//!
//! The table below has names of functions. The first of them, from the innermost frame outwards, says why; but a disk that a page fault needs
//! is a page fault. Their addresses come from
//! `/proc/kallsyms`, once: 24 bytes for each function with a reason.
//!
//! A wait has two parts, which are two samples: until the thread was woken, and then until it had a CPU.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use crate::collector::wire::records::Record;
use crate::collector::{Batch, Collected};
use crate::profile::{FrameKind, Names, WaitReason};

/// Functions of the kernel, and why a thread waits in them. `*` at the end: all functions whose names begin like this. Compilers' suffixes
/// (`.isra.0`) do not matter.
const FUNCTIONS: &[(WaitReason, &[&str])] = &[
    (WaitReason::Sleep, &["do_nanosleep", "hrtimer_nanosleep", "msleep*", "usleep_range*"]),
    (
        WaitReason::Lock,
        &[
            "futex_wait*",
            "__futex_wait",
            "futex_do_wait",
            "futex_lock_pi",
            "do_semtimedop",
            "__do_semtimedop",
            "locks_lock_inode_wait",
            "flock_lock_inode_wait",
            "fcntl_setlk",
            "do_msgrcv",
            "do_msgsnd",
            "wq_sleep",
        ],
    ),
    (
        WaitReason::Poll,
        &[
            "ep_poll",
            "do_epoll_wait",
            "poll_schedule_timeout",
            "do_select",
            "do_poll",
            "do_sys_poll",
            "do_sigtimedwait",
            "sigsuspend",
            "__do_sys_pause",
            "__x64_sys_pause",
            "__x64_sys_rt_sigsuspend",
            "__arm64_sys_rt_sigsuspend",
            "io_cqring_wait*",
            "signalfd_dequeue",
            "inotify_read",
            "fanotify_read",
            "read_events",
        ],
    ),
    (
        WaitReason::Network,
        &[
            "sk_wait_data",
            "__skb_wait_for_more_packets",
            "inet_csk_accept",
            "inet_csk_wait_for_connect",
            "unix_stream_read_generic",
            "unix_stream_data_wait",
            "unix_wait_for_peer",
            "sk_stream_wait_memory",
            "sk_stream_wait_connect",
            "sk_stream_wait_close",
            "sock_alloc_send_pskb",
            "vsock_*",
            "tls_rx_rec_wait",
        ],
    ),
    (
        WaitReason::Pipe,
        &[
            "pipe_read",
            "pipe_write",
            "anon_pipe_read",
            "anon_pipe_write",
            "fifo_pipe_read",
            "fifo_pipe_write",
            "pipe_wait_readable",
            "pipe_wait_writable",
            "wait_for_partner",
            "eventfd_read",
            "eventfd_write",
            "n_tty_read",
            "n_tty_write",
            "tty_wait_until_sent",
        ],
    ),
    (
        WaitReason::Disk,
        &[
            "io_schedule",
            "io_schedule_timeout",
            "folio_wait_bit_common",
            "wait_on_page_bit_common",
            "blk_mq_get_tag",
            "blk_execute_rq",
            "submit_bio_wait",
            "rq_qos_wait",
            "__wait_on_buffer",
            "balance_dirty_pages",
            "jbd2_log_wait_commit",
            "wait_transaction_locked",
            "xlog_*",
            "__iomap_dio_rw",
            "blkdev_issue_flush",
            "rpc_wait_bit_killable",
            "nfs_wait_bit_killable",
            "request_wait_answer",
        ],
    ),
    (WaitReason::Child, &["do_wait", "kernel_wait4", "kernel_waitid", "wait_for_vfork_done"]),
    (
        WaitReason::KernelLock,
        &[
            "__mutex_lock*",
            "mutex_lock*",
            "rwsem_down_*",
            "down_read*",
            "down_write*",
            "__down*",
            "percpu_rwsem_wait",
            "__percpu_down_read",
            "rt_mutex_slowlock*",
            "__rt_mutex_slowlock*",
            "rtlock_slowlock*",
            "__lock_sock",
        ],
    ),
    (
        WaitReason::Stopped,
        &["do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator", "do_jobctl_trap", "cgroup_enter_frozen"],
    ),
    (WaitReason::Quota, &["throttle_cfs_rq_work"]),
    (
        WaitReason::PageFault,
        &["handle_mm_fault", "__handle_mm_fault", "handle_userfault", "exc_page_fault", "do_page_fault", "do_user_addr_fault"],
    ),
];

/// The kernel's functions that have a reason.
pub(super) struct Reasons {
    /// In the order of their addresses. None overlaps another one.
    functions: Box<[(Range<u64>, WaitReason)]>,
    /// The functions of the scheduler, which only say that a thread waits.
    scheduler: Range<u64>,
}

impl Reasons {
    /// Reads where the kernel's functions are. If the kernel does not tell, no function has a reason.
    pub(super) fn read() -> Reasons {
        let lines = File::open("/proc/kallsyms").map(|file| BufReader::new(file).lines().map_while(Result::ok));
        Reasons::of(lines.into_iter().flatten())
    }

    /// Finds them in lines of `/proc/kallsyms`: address, type, name, module.
    fn of(lines: impl Iterator<Item = String>) -> Reasons {
        let mut scheduler = 0..0;
        let symbol = |line: String| {
            let mut fields = line.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let is_code = matches!(fields.next()?, "t" | "T" | "w" | "W");
            let name = fields.next().filter(|_| is_code)?;
            match name {
                "__sched_text_start" => scheduler.start = address,
                "__sched_text_end" => scheduler.end = address,
                _ => {}
            }
            Some((address, reason_of(name)))
        };
        let mut symbols: Vec<(u64, Option<WaitReason>)> = lines.filter_map(symbol).collect();
        // Several names may have the same address. The one with a reason comes first.
        symbols.sort_unstable_by_key(|(address, reason)| (*address, reason.is_none()));
        symbols.dedup_by_key(|(address, _)| *address);
        let ends = symbols.iter().skip(1).map(|(address, _)| *address);
        let functions = symbols.iter().zip(ends).filter_map(|((begin, reason), end)| Some((*begin..end, (*reason)?)));
        Reasons { functions: functions.collect(), scheduler }
    }

    /// Counts the innermost addresses of a wait in the scheduler's functions. They are the same in all waits, and in samples of threads that
    /// are asleep the kernel leaves them out.
    pub(super) fn frames_of_scheduler(&self, record: &Record) -> usize {
        record.kernel().take_while(|address| self.scheduler.contains(address)).count()
    }

    /// Returns the reason of a wait, as the kernel's functions tell it.
    fn of_wait(&self, record: &Record) -> WaitReason {
        match self.of_stack(record.kernel(), record.is_asleep()) {
            WaitReason::Other if record.is_io() => WaitReason::Disk,
            WaitReason::Other if record.is_uninterruptible() => WaitReason::KernelLock,
            reason => reason,
        }
    }

    /// Returns the reason that the kernel's part of a stack tells, whose innermost address comes first. All others are return addresses; that
    /// one is, too, if the thread is asleep.
    fn of_stack(&self, addresses: impl Iterator<Item = u64>, is_asleep: bool) -> WaitReason {
        let of_code = |address: u64| {
            let at = self.functions.partition_point(|(function, _)| function.end <= address);
            self.functions.get(at).filter(|(function, _)| function.contains(&address)).map(|(_, reason)| *reason)
        };
        let places = addresses.enumerate().map(|(depth, address)| address.wrapping_sub(u64::from(depth > 0 || is_asleep)));
        let mut reasons = places.filter_map(of_code);
        match reasons.next() {
            // The page comes from there.
            Some(WaitReason::Disk) if reasons.any(|reason| reason == WaitReason::PageFault) => WaitReason::PageFault,
            reason => reason.unwrap_or(WaitReason::Other),
        }
    }

    /// Gives the last sample of the batch, which was made of this record, its reason as innermost frame. If the thread had a CPU to wait for
    /// as well, adds a second sample for that part.
    pub(super) fn tell(&self, record: &Record, names: &Names, batch: &mut Batch) {
        let Some(sample) = batch.samples.last_mut() else { return };
        let frame = |reason: WaitReason| names.intern_named(names.labels.intern(reason.label(), "", FrameKind::Wait));
        let wanted = record.wanted();
        let for_cpu = if record.has_quota() { WaitReason::Quota } else { WaitReason::Cpu };
        let rest = sample.weight.saturating_sub(wanted);
        let frames = sample.frames.clone();
        let reason = if rest > 0 { self.of_wait(record) } else { for_cpu };
        sample.frames.end += 1;
        sample.kernel_frames += 1;
        batch.frames.push(frame(reason));
        if rest == 0 || wanted == 0 {
            return;
        }
        sample.weight = rest;
        let begin = batch.frames.len();
        let second = Collected { frames: begin..begin + frames.len() + 1, weight: wanted, ..sample.clone() };
        batch.frames.extend_from_within(frames);
        batch.frames.push(frame(for_cpu));
        batch.samples.push(second);
    }
}

fn reason_of(name: &str) -> Option<WaitReason> {
    let name = name.split_once('.').map_or(name, |(name, _)| name);
    let is_it = |pattern: &&str| pattern.strip_suffix('*').map_or(name == *pattern, |begin| name.starts_with(begin));
    FUNCTIONS.iter().find(|(_, patterns)| patterns.iter().any(is_it)).map(|(reason, _)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T _text
ffffffff81001000 t futex_wait
ffffffff81001100 t futex_wait_setup
ffffffff81002000 T schedule
ffffffff81002100 T io_schedule
ffffffff81002200 T __SCT__io
ffffffff81003000 t pipe_read.isra.0
ffffffff81003000 t __pfx_other
ffffffff81003100 T do_syscall_64
ffffffff81003200 T exc_page_fault
ffffffff81003300 T asm_exc_page_fault
ffffffffc0000000 t nfs_wait_bit_killable\t[nfs]
ffffffffc0000100 t nfs_other\t[nfs]
";

    fn reason(stack: &[u64]) -> WaitReason {
        Reasons::of(KALLSYMS.lines().map(str::to_owned))
            .of_stack(stack.iter().map(|address| 0xffff_ffff_8100_0000 + address), false)
    }

    #[test]
    fn the_innermost_function_with_a_reason_tells_it() {
        assert_eq!(reason(&[0x2010, 0x1050, 0x3110]), WaitReason::Lock);
        assert_eq!(reason(&[0x2010, 0x2150, 0x1050]), WaitReason::Disk);
        assert_eq!(reason(&[0x2010, 0x3050, 0x3110]), WaitReason::Pipe);
        assert_eq!(reason(&[0x2010, 0x3110]), WaitReason::Other);
        assert_eq!(reason(&[0x2010, 0x2150, 0x3250, 0x3310]), WaitReason::PageFault);
        assert_eq!(reason(&[0x2010, 0x1050, 0x3250, 0x3310]), WaitReason::Lock);
        assert_eq!(reason(&[]), WaitReason::Other);
        assert_eq!(reason(&[0x2010, 0x3f00_0080]), WaitReason::Disk, "in a module");
    }

    #[test]
    fn a_return_address_behind_a_function_is_in_it() {
        assert_eq!(reason(&[0x2010, 0x2200]), WaitReason::Disk, "io_schedule ends with the call");
        assert_eq!(reason(&[0x2200]), WaitReason::Other, "an instruction is where it is");
    }

    #[test]
    fn this_kernels_functions_have_reasons() {
        let all = Reasons::read();
        for (reason, _) in FUNCTIONS.iter().filter(|(reason, _)| *reason != WaitReason::Quota) {
            assert!(all.functions.iter().any(|(_, known)| known == reason), "{reason:?} has no function");
        }
        assert!(all.functions.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start));
        assert!(all.functions.iter().all(|(function, _)| function.start >= 1 << 63), "this test needs root");
    }
}
