//! Files mapped for reading, safe against changes by their owners.
//!
//! Debug information is large, and only a little of it is read. A mapping uses page cache, which the kernel can take back, and none of our
//! own memory. But if the owner truncates the file, access to a lost page raises SIGBUS, which would end us. So a handler of SIGBUS puts
//! zeros in the place of such pages. The mapping is [torn](Mapped::is_torn) from then on, and data read from it is not used.
//!
//! ```text
//!   bytes()  ├── page ──┼── page ──┼── page ──┤
//!   file     ├── page ──┼─ cut here
//!                            ▲ SIGBUS → anonymous zero pages from here to the end of the mapping, torn = true
//! ```
//!
//! This is the only module of this room with unsafe code.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::reason::Reason;

/// Most mappings at one time. There are some tens of objects with debug information, but a program built with split DWARF has a file for
/// each of its sources.
const MAX_MAPPED: usize = 8192;

/// A mapping as the handler sees it. A slot with `start` 0 is free.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    torn: AtomicBool,
}

static SLOTS: [Slot; MAX_MAPPED] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), torn: AtomicBool::new(false) } }; MAX_MAPPED];
/// One past the last slot that was ever taken: the handler searches only the slots before it.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The earlier action of SIGBUS, and the size of a page.
struct Before {
    action: libc::sigaction,
    page: usize,
}

static BEFORE: OnceLock<Option<Before>> = OnceLock::new();

/// A file's bytes, mapped privately for reading.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    length: usize,
    slot: usize,
}

// SAFETY: the mapping belongs to the process and is only ever read.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a regular file of `length` bytes from its start.
    ///
    /// Fails if there are too many mappings already, or if the kernel refuses one.
    pub(crate) fn new(file: &File, length: u64) -> Result<Mapped, Reason> {
        let length = usize::try_from(length).ok().filter(|length| *length > 0).ok_or(Reason::Malformed)?;
        if BEFORE.get_or_init(install).is_none() {
            return Err(Reason::Io(std::io::ErrorKind::Unsupported));
        }
        let slot = reserve().ok_or(Reason::Io(std::io::ErrorKind::OutOfMemory))?;
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory of ours.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_NORESERVE, file.as_raw_fd(), 0)
        };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast::<u8>()) };
        let (Some(place), Some(start)) = (SLOTS.get(slot), start) else {
            release(slot);
            return Err(Reason::from(std::io::Error::last_os_error()));
        };
        place.torn.store(false, Ordering::Relaxed);
        place.end.store(start.as_ptr() as usize + length, Ordering::Release);
        place.start.store(start.as_ptr() as usize, Ordering::Release);
        Ok(Mapped { start, length, slot })
    }

    /// Returns the file's bytes. Each access sees the file's present contents, and zeros where the file has been cut.
    ///
    /// If the file is written to meanwhile, the result mixes old and new bytes. Readers must accept any bytes. Whether they were the right
    /// ones is checked afterwards, from the file's times and [`is_torn`](Self::is_torn).
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for reading from `new` to `drop`. Pages that the file has lost become zeros instead of a fault. Others may write
        // to the file, so no reader may rely on these bytes to stay the same.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// Whether the file was cut under the mapping, and zeros were read in place of its bytes.
    pub(crate) fn is_torn(&self) -> bool {
        SLOTS.get(self.slot).is_none_or(|slot| slot.torn.load(Ordering::Acquire))
    }

    /// Frees the pages that were read. They stay in the page cache, and the next access finds them there.
    pub(crate) fn give_back(&self) {
        // SAFETY: a private mapping that was never written to, so dropped pages are read again from the file.
        let _ = unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, libc::MADV_DONTNEED) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(slot) = SLOTS.get(self.slot) {
            // Freed before the mapping is removed, because another mapping may get these addresses at once.
            slot.end.store(0, Ordering::Release);
        }
        // SAFETY: our mapping, of this length, without any borrow left. (Parts of it may have become zero pages.)
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        release(self.slot);
    }
}

/// Takes a free slot. Its `start` becomes 1, which marks a slot that is taken and not yet in use.
fn reserve() -> Option<usize> {
    let free = |slot: &Slot| slot.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let slot = SLOTS.iter().position(free)?;
    USED.fetch_max(slot + 1, Ordering::AcqRel);
    Some(slot)
}

fn release(slot: usize) {
    if let Some(slot) = SLOTS.get(slot) {
        slot.end.store(0, Ordering::Release);
        slot.start.store(0, Ordering::Release);
    }
}

/// Installs our handler of SIGBUS. It passes other faults to the earlier handler: Rust's own runtime has one that reports stack overflows.
fn install() -> Option<Before> {
    let page = rustix::param::page_size();
    // SAFETY: a sigaction of zeros is a valid one: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both are whole structures that live during the call. The handler does only what a signal handler may: it reads
    // and writes atomics and makes system calls.
    let failed = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } != 0;
    (!failed).then_some(Before { action: before, page })
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a whole siginfo to a handler with SA_SIGINFO. For SIGBUS it has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    // Not yet set: the signal came before the first mapping was made, so it is not ours.
    let Some(Some(before)) = BEFORE.get() else { return };
    let used = USED.load(Ordering::Acquire).min(MAX_MAPPED);
    let mut hit = None;
    for slot in SLOTS.iter().take(used) {
        let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
        // Between the two reads another thread may have given the slot to another mapping.
        let is_one = slot.start.load(Ordering::Acquire) == start;
        if start > 1 && is_one && (start..end).contains(&at) {
            hit = Some((slot, end));
            break;
        }
    }
    if let Some((slot, end)) = hit {
        let from = at & !(before.page - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: these addresses are a mapping of ours that is only read, and the new pages can be read as well.
        let zeros = unsafe { libc::mmap(from as *mut libc::c_void, end - from, libc::PROT_READ, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            slot.torn.store(true, Ordering::Release);
            return;
        }
    }
    // SAFETY: the earlier action. The failed instruction runs again and fails again, now under that action.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const before.action, ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_is_cut_while_it_is_mapped_reads_as_zeros_and_is_torn() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 64 << 10]).unwrap();
        let mapped = Mapped::new(&file, 64 << 10).unwrap();
        let other = Mapped::new(&file, 64 << 10).unwrap();
        assert!(mapped.bytes().iter().all(|byte| *byte == 7) && !mapped.is_torn());
        mapped.give_back();
        assert_eq!(mapped.bytes()[40_000], 7);
        file.set_len(8192).unwrap();
        assert_eq!((mapped.bytes()[8191], mapped.bytes()[8192], mapped.bytes()[65_535]), (7, 0, 0));
        assert!(mapped.is_torn() && !other.is_torn(), "each for itself");
        let page = rustix::param::page_size();
        if page <= 8192 {
            assert_eq!(other.bytes()[60_000], 0);
            assert!(other.is_torn());
        }
    }

    #[test]
    fn slots_are_used_again() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"x").unwrap();
        for _ in 0..3 * MAX_MAPPED {
            let mapped = Mapped::new(&file, 1).unwrap();
            assert_eq!(mapped.bytes(), b"x");
        }
        assert_eq!(Mapped::new(&file, 0).err(), Some(Reason::Malformed));
    }
}
