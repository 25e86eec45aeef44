//! Clocks, CPUs, descriptors and processes of this machine.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::profile::Timestamp;

/// Returns the current time, by the clock of samples and events.
pub(crate) fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let whole = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    Timestamp(whole + u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns a time in units of 2^30 ns, in which the kernel's walk notes the last use of an unwind table.
pub(crate) fn coarse(time: Timestamp) -> u32 {
    (time.0 >> 30) as u32
}

/// Returns the nanoseconds that this machine has slept since it started. During sleep all CPUs but one are offline, and the kernel silently
/// drops their events.
pub(crate) fn slept() -> u64 {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let whole = u64::try_from(boot.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    (whole + u64::try_from(boot.tv_nsec).unwrap_or(0)).saturating_sub(now().0)
}

/// Raises the soft limit of descriptors to this number, if it is lower and the hard limit allows it. It is raised only if needed: programs
/// that flametop starts inherit the limit, and some old programs cannot cope with a high one.
pub(crate) fn allow_descriptors(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let current = Some(limit.maximum.map_or(count, |maximum| maximum.min(count)));
        // If this fails, opening a descriptor fails later, with a better message.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}

/// Returns the generation of an open file's inode, if its file system tells it. A file that reuses the inode number has another generation.
pub(crate) fn inode_generation(file: &std::fs::File) -> Option<u32> {
    /// `FS_IOC_GETVERSION`: `_IOR('v', 1, long)`. File systems write only 4 bytes. All architectures that flametop supports encode the
    /// number like this.
    const GET_VERSION: libc::c_ulong = 0x8008_7601;
    let mut generation = [0u32; 2];
    // SAFETY: the kernel writes at most one `long` to an array of that size, which lives until the call is over.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION as _, generation.as_mut_ptr()) };
    let [generation, _] = generation;
    (result == 0).then_some(generation)
}

/// Tells whether the initial user namespace owns an open namespace: then only root can have made it and can have changed it.
pub(crate) fn is_owned_by_initial_user_namespace(namespace: &std::fs::File) -> bool {
    /// `NS_GET_USERNS` of linux/nsfs.h: `_IO(0xb7, 0x1)`.
    const GET_USER_NAMESPACE: libc::c_ulong = 0xb701;
    /// The inode number of the initial user namespace: `USER_NS_INIT_INO` of linux/nsfs.h.
    const INITIAL: u64 = 0xefff_fffd;
    // SAFETY: the call takes no memory. It returns a new descriptor, or -1.
    let owner = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_USER_NAMESPACE as _) };
    if owner < 0 {
        return false;
    }
    // SAFETY: the descriptor is new, so nobody else closes it.
    let owner = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(owner) });
    owner.metadata().is_ok_and(|about| about.ino() == INITIAL)
}

/// Returns the CPUs that are online, in order.
pub(crate) fn online_cpus() -> io::Result<Vec<u32>> {
    cpus_in("/sys/devices/system/cpu/online")
}

/// Returns all CPUs that the machine can ever have.
pub(crate) fn possible_cpus() -> io::Result<Vec<u32>> {
    cpus_in("/sys/devices/system/cpu/possible")
}

fn cpus_in(file: &str) -> io::Result<Vec<u32>> {
    let list = std::fs::read_to_string(file)?;
    parse_cpu_list(list.trim()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not a list of CPUs: {list:?}")))
}

/// Parses a list of CPUs: `0-3,8` → 0, 1, 2, 3, 8. The kernel's limit is 8,192 CPUs.
fn parse_cpu_list(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last.min(8191));
    }
    Some(cpus)
}

/// Tells whether a process of this number exists. A process that has ended but was not waited for exists.
pub(crate) fn exists(tgid: u32) -> bool {
    let Some(pid) = i32::try_from(tgid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    // EPERM: the process exists and belongs to another user.
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Returns the process that a thread belongs to. For the number of a process, returns that process.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Tells whether this kernel has at least that version. Returns `false` if the version cannot be read.
pub(crate) fn kernel_is_at_least(version: (u32, u32)) -> bool {
    parse_release(&std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())
        .is_some_and(|release| release >= version)
}

pub(crate) fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("0-99999").map(|cpus| cpus.len()), Some(8192));
        assert_eq!(parse_cpu_list("a-b"), None);
    }
}
