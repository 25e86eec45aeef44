//! The rings of perf's side-band events: one for mappings, forks and exits, and one for names and program starts.
//!
//! A thread can give itself a million names a second. In a separate ring, names can displace only names, and not mappings.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings as sys;

use crate::collector::sys::perf_event::{attributes, open};

/// The kind of events in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tells {
    /// Executable mappings, forks, exits, kernel symbols.
    Mappings,
    /// Names of threads, and program starts.
    Names,
}

/// Opens an event on one CPU that never ticks, but writes side-band records. It wakes its poller each time half of `size` bytes were
/// written.
fn open_events(cpu: u32, tells: Tells, size: usize) -> io::Result<OwnedFd> {
    let mut attributes = attributes(sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_DUMMY));
    attributes.sample_type = u64::from(sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME);
    attributes.set_sample_id_all(1);
    match tells {
        Tells::Mappings => {
            attributes.set_mmap(1);
            attributes.set_mmap2(1);
            attributes.set_task(1);
        }
        Tells::Names => {
            attributes.set_comm(1);
            attributes.set_comm_exec(1);
        }
    }
    // The clock of bpf_ktime_get_ns, so that samples and events can be sorted together.
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
    attributes.set_watermark(1);
    attributes.wakeup_watermark = u32::try_from(size / 2).unwrap_or(u32::MAX);
    let cpu = i32::try_from(cpu).unwrap_or(i32::MAX);
    if tells == Tells::Names {
        return open(attributes, -1, cpu);
    }
    // Build ids need Linux 5.12, kernel symbols 5.1. A kernel that refuses one of them may still support the other.
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for (build_id, ksymbol) in [(1, 1), (0, 1), (0, 0)] {
        attributes.set_build_id(build_id);
        attributes.set_ksymbol(ksymbol);
        match open(attributes, -1, cpu) {
            Ok(fd) => return Ok(fd),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// The side-band events of one CPU.
pub(crate) struct EventRings {
    mappings: EventRing,
    names: EventRing,
}

impl EventRings {
    /// Opens the events of a CPU: a ring of `size` bytes for mappings, and a ring of half that size for names. `size` is a power of two,
    /// and at least two pages.
    pub(crate) fn open(cpu: u32, size: usize) -> io::Result<EventRings> {
        let (mappings, names) = (Tells::Mappings, Tells::Names);
        Ok(EventRings { mappings: EventRing::open(cpu, mappings, size)?, names: EventRing::open(cpu, names, size / 2)? })
    }

    /// Appends all new records to `names` and `mappings`: whole records, those of each ring oldest first. Returns whether the ring of
    /// mappings was so full that some may be lost. The kernel reports lost records only with the next record, which may come much later.
    ///
    /// The kernel writes forks and exits into both rings (`perf_event_task_match`). The caller counts each once: from the ring of mappings, or
    /// from the ring of names if the ring of mappings was full.
    pub(crate) fn drain(&mut self, names: &mut Vec<u8>, mappings: &mut Vec<u8>) -> bool {
        self.names.drain(names);
        self.mappings.drain(mappings) < LONGEST_RECORD
    }

    /// Returns the descriptors that become readable when half of a ring was written.
    pub(crate) fn wakes(&self) -> [BorrowedFd<'_>; 2] {
        [self.mappings.event.as_fd(), self.names.event.as_fd()]
    }
}

/// Upper limit for the length of a record: the longest is a mapping with a path of 4,096 bytes.
const LONGEST_RECORD: usize = 4096 + 128;

/// Side-band events of one CPU, and their ring.
struct EventRing {
    /// Keeps the event alive; closed after the ring was unmapped.
    event: OwnedFd,
    page: NonNull<sys::perf_event_mmap_page>,
    mapped: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread. `drain` takes `&mut self`, so the ring has one reader at a time.
unsafe impl Send for EventRing {}

impl EventRing {
    fn open(cpu: u32, tells: Tells, size: usize) -> io::Result<EventRing> {
        let event = open_events(cpu, tells, size)?;
        let mapped = size + rustix::param::page_size();
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let page = unsafe {
            libc::mmap(ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(EventRing { event, page, mapped })
    }

    /// Appends all new records to `bytes`: whole records, oldest first. Returns how many bytes of the ring were free.
    fn drain(&mut self, bytes: &mut Vec<u8>) -> usize {
        let page = self.page.as_ptr();
        // SAFETY: `page` is the first page of a perf ring, mapped until `self` is dropped. The kernel writes `data_head`, and only this
        // process writes `data_tail`. The two words are aligned.
        let (head, tail) =
            unsafe { (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail)) };
        // Acquire: all records before this head are complete (documentation of data_head in linux/perf_event.h).
        let (end, start) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        // SAFETY: as above; the kernel sets these two words once, before the mapping is made.
        let (offset, size) = unsafe { ((*page).data_offset, (*page).data_size) };
        let (offset, size) = (offset as usize, size as usize);
        let length = end.wrapping_sub(start) as usize;
        if length == 0 || length > size || offset + size > self.mapped {
            tail.store(end, Ordering::Release);
            return size.saturating_sub(length);
        }
        let first = start as usize % size;
        let before_wrap = length.min(size - first);
        bytes.reserve(length);
        // SAFETY: `first + before_wrap` and `length - before_wrap` are at most `size`, and `offset + size` lies in the mapping (checked
        // above). Until the tail is moved, the kernel writes only outside of tail..head. The vector has room for `length` more bytes.
        unsafe {
            let data = page.cast::<u8>().add(offset);
            let to = bytes.as_mut_ptr().add(bytes.len());
            ptr::copy_nonoverlapping(data.add(first), to, before_wrap);
            ptr::copy_nonoverlapping(data, to.add(before_wrap), length - before_wrap);
            bytes.set_len(bytes.len() + length);
        }
        // Release: the copy is complete before the kernel may write there again.
        tail.store(end, Ordering::Release);
        size - length
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `open` with this length, and nothing points into it: `drain` copies.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::sys::machine::{now, online_cpus};
    use crate::collector::wire::perf_records::{self, Event, Parsed, Timed};

    #[test]
    fn a_program_that_runs_is_told_from_fork_to_exit() {
        let mut rings: Vec<EventRings> =
            online_cpus().unwrap().iter().map(|cpu| EventRings::open(*cpu, 1 << 17).expect("this test needs root")).collect();
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let tgid = child.id();
        child.wait().unwrap();
        let (mut names, mut mappings) = (Vec::new(), Vec::new());
        assert!(!rings.iter_mut().any(|ring| ring.drain(&mut names, &mut mappings)), "there was room for more");
        let events = |bytes: &[u8]| {
            let mut seen = Vec::new();
            let rest = perf_records::split(bytes, |record| {
                if let Parsed::Event(timed) = perf_records::parse(record) {
                    seen.push(timed);
                }
            });
            assert_eq!(rest, 0);
            seen
        };
        let begins_or_ends = |timed: &Timed| match &timed.event {
            Event::Fork { tgid: child, .. } | Event::Exit { tgid: child, .. } => *child == tgid,
            _ => false,
        };
        let mut seen = events(&mappings);
        let named = events(&names);
        for ring in [&seen, &named] {
            assert_eq!(ring.iter().filter(|timed| begins_or_ends(timed)).count(), 2, "each ring has both");
        }
        seen.extend(named.into_iter().filter(|timed| !begins_or_ends(timed)));
        seen.sort_by_key(|timed| timed.time);
        let of_child: Vec<&Event> = seen.iter().map(|timed| &timed.event).collect();
        let at = |wanted: &dyn Fn(&Event) -> bool| of_child.iter().position(|event| wanted(event)).expect("the event was told");
        let forked = at(&|event| matches!(event, Event::Fork { tgid: child, .. } if *child == tgid));
        let exec = at(&|event| matches!(event, Event::Name { tgid: child, exec: true, .. } if *child == tgid));
        let mapped =
            at(&|event| matches!(event, Event::Map { tgid: child, path, .. } if *child == tgid && path.contains("libc")));
        let exited = at(&|event| matches!(event, Event::Exit { tgid: child, .. } if *child == tgid));
        assert!(forked < exec && exec < mapped && mapped < exited);
        let before = seen.first().map(|timed| timed.time).unwrap();
        assert!(before < now().0 && now().0 - before < 60_000_000_000, "events are on our clock");
    }
}
