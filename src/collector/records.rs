//! Ring buffer bytes → typed records: the Rust side of `bpf/record.h`.
//!
//! Promises: any bytes give a record or `None`, never a panic; no copy is made. Numbers are in the machine's byte order.

use std::mem::offset_of;

/// Length of a task's name with its zero bytes: `TASK_COMM_LEN`.
pub(crate) const COMM_LENGTH: usize = 16;

/// Most frames of either part: `MAX_KERNEL_FRAMES` and `MAX_USER_FRAMES`.
pub(crate) const MAX_FRAMES: u32 = 127;

/// The kernel stack was cut at its outer side: `SAMPLE_KERNEL_CUT`. Nothing shows it yet.
#[cfg(test)]
pub(crate) const KERNEL_CUT: u16 = 1;

/// The task is in a system call: `SAMPLE_IN_SYSCALL`.
pub(crate) const IN_SYSCALL: u16 = 1 << 1;

/// `struct sample_header`, used for its offsets.
#[repr(C)]
struct SampleHeader {
    time: u64,
    cgroup: u64,
    tgid: u32,
    tid: u32,
    cpu: u32,
    kernel_frames: u16,
    user_frames: u16,
    comm: [u8; COMM_LENGTH],
    user_end: u8,
    kind: u8,
    flags: u16,
    reserved: u32,
}

/// `struct counters`: what became of each tick.
#[repr(C)]
struct Counters {
    taken: u64,
    idle: u64,
    filtered: u64,
    ring_full: u64,
}

/// `struct fork_counters`.
#[repr(C)]
struct ForkCounters {
    followed: u64,
    targets_full: u64,
}

// The same assertions as in bpf/record.h.
const _: () = {
    assert!(offset_of!(SampleHeader, time) == 0);
    assert!(offset_of!(SampleHeader, cgroup) == 8);
    assert!(offset_of!(SampleHeader, tgid) == 16);
    assert!(offset_of!(SampleHeader, tid) == 20);
    assert!(offset_of!(SampleHeader, cpu) == 24);
    assert!(offset_of!(SampleHeader, kernel_frames) == 28);
    assert!(offset_of!(SampleHeader, user_frames) == 30);
    assert!(offset_of!(SampleHeader, comm) == 32);
    assert!(offset_of!(SampleHeader, user_end) == 48);
    assert!(offset_of!(SampleHeader, kind) == 49);
    assert!(offset_of!(SampleHeader, flags) == 50);
    assert!(offset_of!(SampleHeader, reserved) == 52);
    assert!(HEADER == 56);
    assert!(size_of::<Counters>() == 32);
    assert!(size_of::<ForkCounters>() == 16);
};

const HEADER: usize = size_of::<SampleHeader>();

/// The `N` bytes at `offset`.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// The number of two bytes at `offset`.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array_at(bytes, offset).map(u16::from_ne_bytes)
}

/// The number of four bytes at `offset`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array_at(bytes, offset).map(u32::from_ne_bytes)
}

/// The number of eight bytes at `offset`.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array_at(bytes, offset).map(u64::from_ne_bytes)
}

/// One sample, as it lies in the ring buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) time: u64,
    /// The task's cgroup.
    pub(crate) cgroup: u64,
    /// The process.
    pub(crate) tgid: u32,
    /// The thread.
    pub(crate) tid: u32,
    /// Where it ran.
    pub(crate) cpu: u32,
    /// The thread's name, ended by a zero byte.
    pub(crate) comm: [u8; COMM_LENGTH],
    /// A number of `UserEnd`.
    pub(crate) user_end: u8,
    /// Bits of `enum sample_flags`.
    pub(crate) flags: u16,
    kernel: &'a [u8],
    user: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record in `bytes`, or `None` when its frame counts and its length disagree.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let kernel_frames = usize::from(u16_at(bytes, offset_of!(SampleHeader, kernel_frames))?);
        let user_frames = usize::from(u16_at(bytes, offset_of!(SampleHeader, user_frames))?);
        let frames = bytes.get(HEADER..)?;
        if frames.len() != (kernel_frames + user_frames) * 8 {
            return None;
        }
        let (kernel, user) = frames.split_at_checked(kernel_frames * 8)?;
        Some(Record {
            time: Record::time_of(bytes)?,
            cgroup: u64_at(bytes, offset_of!(SampleHeader, cgroup))?,
            tgid: u32_at(bytes, offset_of!(SampleHeader, tgid))?,
            tid: u32_at(bytes, offset_of!(SampleHeader, tid))?,
            cpu: u32_at(bytes, offset_of!(SampleHeader, cpu))?,
            comm: array_at(bytes, offset_of!(SampleHeader, comm))?,
            user_end: *bytes.get(offset_of!(SampleHeader, user_end))?,
            flags: u16_at(bytes, offset_of!(SampleHeader, flags))?,
            kernel,
            user,
        })
    }

    /// The time alone, for sorting.
    pub(crate) fn time_of(bytes: &[u8]) -> Option<u64> {
        u64_at(bytes, offset_of!(SampleHeader, time))
    }

    /// Kernel addresses, innermost first.
    pub(crate) fn kernel(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        addresses(self.kernel)
    }

    /// User addresses, innermost first.
    pub(crate) fn user(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        addresses(self.user)
    }

    /// Whether the innermost user address is a return address: so it is in a system call, whose instruction is over.
    pub(crate) fn user_leaf_is_return(&self) -> bool {
        !self.kernel.is_empty() && self.flags & IN_SYSCALL != 0
    }
}

fn addresses(bytes: &[u8]) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_ne_bytes(*chunk))
}

/// Ticks that found the ring buffer full, from one CPU's `struct counters`.
pub(crate) fn ring_full(counters: &[u8]) -> Option<u64> {
    u64_at(counters, offset_of!(Counters, ring_full))
}

/// Forks that found no room among the targets, from one CPU's `struct fork_counters`.
pub(crate) fn targets_full(counters: &[u8]) -> Option<u64> {
    u64_at(counters, offset_of!(ForkCounters, targets_full))
}

/// The name before the first zero byte, with what is not UTF-8 replaced.
pub(crate) fn comm_text(comm: &[u8]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The bytes of a record, for tests of what reads them.
    pub(crate) fn record_bytes(time: u64, tgid: u32, comm: &[u8], kernel: &[u64], user: &[u64], flags: u16) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(0, &time.to_ne_bytes());
        put(8, &77u64.to_ne_bytes());
        put(16, &tgid.to_ne_bytes());
        put(20, &tgid.to_ne_bytes());
        put(24, &3u32.to_ne_bytes());
        put(28, &u16::try_from(kernel.len()).unwrap().to_ne_bytes());
        put(30, &u16::try_from(user.len()).unwrap().to_ne_bytes());
        put(32, comm);
        put(48, &[2]);
        put(50, &flags.to_ne_bytes());
        kernel.iter().chain(user).for_each(|frame| bytes.extend(frame.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bytes =
            record_bytes(5, 42, b"worker", &[0xffff_0000, 0xffff_0001], &[0x1000, 0x2000, 0x3000], IN_SYSCALL | KERNEL_CUT);
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((record.time, record.cgroup, record.tgid, record.tid, record.cpu), (5, 77, 42, 42, 3));
        assert_eq!(comm_text(&record.comm), "worker");
        assert_eq!(record.kernel().collect::<Vec<_>>(), [0xffff_0000, 0xffff_0001]);
        assert_eq!(record.user().collect::<Vec<_>>(), [0x1000, 0x2000, 0x3000]);
        assert!(record.user_leaf_is_return());
        assert_eq!(record.user_end, 2);
    }

    #[test]
    fn a_record_whose_length_does_not_fit_its_counts_is_refused() {
        let bytes = record_bytes(5, 42, b"x", &[1], &[2, 3], 0);
        for length in 0..bytes.len() {
            assert!(Record::parse(&bytes[..length]).is_none(), "{length} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Record::parse(&longer).is_none());
        assert!(Record::parse(&bytes).is_some());
    }

    #[test]
    fn a_name_without_zero_byte_and_not_utf8_is_readable() {
        assert_eq!(comm_text(b"sixteen-letters!"), "sixteen-letters!");
        assert_eq!(comm_text(b"a\xffb\0cd"), "a\u{fffd}b");
    }
}
