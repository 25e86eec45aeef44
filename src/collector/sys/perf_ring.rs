//! The ring through which the kernel tells of processes: mappings, names, forks, exits.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings as sys;

use crate::collector::sys::perf_event::{attributes, open};

/// An event on one CPU that never ticks but tells of mappings, names, forks, exits and kernel symbols.
fn open_events(cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = attributes(sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_DUMMY));
    attributes.sample_type = u64::from(sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME);
    attributes.set_sample_id_all(1);
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_task(1);
    // The clock of bpf_ktime_get_ns, so that samples and events can be put in order.
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
    // Nobody sleeps on these rings: no wake-ups.
    attributes.set_watermark(1);
    attributes.wakeup_watermark = u32::MAX;
    let cpu = i32::try_from(cpu).unwrap_or(i32::MAX);
    // Build ids are of 5.12, kernel symbols of 5.1; what refuses one of them may still give the other.
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

/// The side-band events of one CPU and the ring they are written into.
pub(crate) struct EventRing {
    /// Keeps the event alive; closed after the ring was unmapped.
    _event: OwnedFd,
    page: NonNull<sys::perf_event_mmap_page>,
    mapped: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; `drain` takes `&mut self`, so it has one reader at a time.
unsafe impl Send for EventRing {}

impl EventRing {
    /// Opens the events of a CPU with a ring of `size` bytes, a power of two.
    pub(crate) fn open(cpu: u32, size: usize) -> io::Result<EventRing> {
        let event = open_events(cpu)?;
        let mapped = size + rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory of ours.
        let page = unsafe {
            libc::mmap(ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(EventRing { _event: event, page, mapped })
    }

    /// Moves what the kernel has written into `bytes`, at its end: whole records, oldest first.
    pub(crate) fn drain(&mut self, bytes: &mut Vec<u8>) {
        let page = self.page.as_ptr();
        // SAFETY: `page` is the first page of a perf ring, mapped until `self` is dropped; `data_head` is written by the
        // kernel and `data_tail` by us alone, both are aligned words.
        let (head, tail) =
            unsafe { (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail)) };
        // Acquire: records before this head are whole (Documentation of data_head in linux/perf_event.h).
        let (end, start) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        // SAFETY: as above; the kernel sets these two once, before the mapping is made.
        let (offset, size) = unsafe { ((*page).data_offset, (*page).data_size) };
        let (offset, size) = (offset as usize, size as usize);
        let length = end.wrapping_sub(start) as usize;
        if length == 0 || length > size || offset + size > self.mapped {
            tail.store(end, Ordering::Release);
            return;
        }
        let first = start as usize % size;
        let before_wrap = length.min(size - first);
        bytes.reserve(length);
        // SAFETY: `first + before_wrap` and `length - before_wrap` are at most `size`, and `offset + size` lies in the
        // mapping (checked above). The kernel writes outside of tail..head only, until we move the tail. The vector has
        // room for `length` bytes more.
        unsafe {
            let data = page.cast::<u8>().add(offset);
            let to = bytes.as_mut_ptr().add(bytes.len());
            ptr::copy_nonoverlapping(data.add(first), to, before_wrap);
            ptr::copy_nonoverlapping(data, to.add(before_wrap), length - before_wrap);
            bytes.set_len(bytes.len() + length);
        }
        // Release: our copy is done before the kernel may write there again.
        tail.store(end, Ordering::Release);
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length, and nothing points into it: `drain` copies.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::sys::machine::{now, online_cpus};
    use crate::collector::wire::perf_records::{self, Event, Parsed};

    #[test]
    fn a_program_that_runs_is_told_from_fork_to_exit() {
        let mut rings: Vec<EventRing> =
            online_cpus().unwrap().iter().map(|cpu| EventRing::open(*cpu, 1 << 17).expect("this test needs root")).collect();
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let tgid = child.id();
        child.wait().unwrap();
        let mut bytes = Vec::new();
        rings.iter_mut().for_each(|ring| ring.drain(&mut bytes));
        let mut seen = Vec::new();
        let rest = perf_records::split(&bytes, |record| {
            if let Parsed::Event(timed) = perf_records::parse(record) {
                seen.push(timed);
            }
        });
        assert_eq!(rest, 0);
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
