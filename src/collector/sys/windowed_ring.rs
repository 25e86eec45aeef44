//! A BPF ring buffer that is mapped one record at a time.
//!
//! Readers usually map a ring twice in a row, so that no record is cut, and all of that counts as their memory. Here each record is mapped
//! only while it is read. This suits a ring of few large records: each record takes two system calls and the faults of its pages.
//!
//! ```text
//! page 0   how far we have read, a count of bytes   the only page that is ours to write
//! page 1   how far programs have written
//! page 2…  records, then the same pages again: a header of 8 bytes, which begins with length and state, then the record
//! ```
//!
//! Sources: kernel/bpf/ringbuf.c, and Documentation/bpf/ringbuf.rst in the kernel.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::MapCore;
use rustix::param::page_size;

use super::bpf_memory::MappedPart;

/// Bytes before a record.
const HEADER: usize = 8;
/// State bits beside a header's length: the record is still being written, or it was discarded.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// A ring that is read record by record.
pub(crate) struct WindowedRing {
    map: OwnedFd,
    read: MappedPart,
    written: MappedPart,
    /// Bytes of the ring.
    size: usize,
    /// Most bytes of a record.
    most: usize,
}

// SAFETY: the mappings belong to the process. `&mut` ensures that a ring has one reader at a time.
unsafe impl Send for WindowedRing {}

impl WindowedRing {
    /// A ring whose records have at most `most` bytes.
    pub(crate) fn new(map: &impl MapCore, most: usize) -> io::Result<WindowedRing> {
        let (page, both) = (page_size(), libc::PROT_READ | libc::PROT_WRITE);
        let read = MappedPart::new(map.as_fd(), 0, page, both)?;
        let written = MappedPart::new(map.as_fd(), page, page, libc::PROT_READ)?;
        let (size, map) = (map.max_entries() as usize, map.as_fd().try_clone_to_owned()?);
        Ok(WindowedRing { map, read, written, size, most })
    }

    /// Gives each complete record to `take`, oldest first.
    ///
    /// # Errors
    ///
    /// If a record cannot be mapped. The next call reads it.
    pub(crate) fn read(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let (read, written) = (count_in(&self.read), count_in(&self.written));
        let mut at = read.load(Ordering::Relaxed);
        while at < written.load(Ordering::Acquire) {
            let from = usize::try_from(at).unwrap_or_default() & (self.size - 1);
            let length = (HEADER + self.most).min(2 * self.size - from);
            let window = MappedPart::new(self.map.as_fd(), 2 * page_size() + from, length, libc::PROT_READ)?;
            // SAFETY: the header is mapped, and aligned: records begin at multiples of 8. Programs write to it by atomic operations.
            let header = unsafe { &*window.start().cast::<AtomicU32>() }.load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let bytes = (header & !DISCARDED) as usize;
            if header & DISCARDED == 0 {
                let bytes = bytes.min(length - HEADER);
                // SAFETY: these bytes are mapped, and no program writes to a complete record until it is marked as read.
                take(unsafe { std::slice::from_raw_parts(window.start().add(HEADER), bytes) });
            }
            at += (HEADER + bytes).next_multiple_of(8) as u64;
            read.store(at, Ordering::Release);
        }
        Ok(())
    }
}

/// Returns the count at the beginning of a mapped page.
fn count_in(page: &MappedPart) -> &AtomicU64 {
    // SAFETY: the word is aligned and lives as long as the page is mapped. The kernel changes it by atomic operations.
    unsafe { &*page.start().cast::<AtomicU64>() }
}
