//! BPF maps that are mapped into memory, read and written without bpf(2) calls.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Bytes of the words that maps are read by.
const WORD: usize = size_of::<u64>();

/// A part of a BPF map that can be mapped. It counts as our memory, so seldom used parts are mapped only while they are read.
pub(super) struct MappedPart {
    page: *mut libc::c_void,
    mapped: usize,
    /// Where the part begins in the first page.
    slack: usize,
}

impl MappedPart {
    /// Maps `length` bytes of a map from `offset` on.
    pub(super) fn new(map: BorrowedFd<'_>, offset: usize, length: usize, protection: libc::c_int) -> io::Result<MappedPart> {
        let slack = offset % rustix::param::page_size();
        let mapped = slack + length;
        let at = i64::try_from(offset - slack).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory of ours. The kernel refuses what goes
        // beyond the map's value.
        let page = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, libc::MAP_SHARED, map.as_raw_fd(), at) };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(MappedPart { page, mapped, slack }) }
    }

    /// Its first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.page.cast::<u8>().wrapping_add(self.slack)
    }

    /// The bytes of these words of the part.
    fn read(&self, words: Range<usize>) -> Vec<u8> {
        debug_assert!(words.end * WORD <= self.mapped - self.slack);
        let mut bytes = Vec::with_capacity(words.len() * WORD);
        for word in words {
            // SAFETY: within what is mapped, and aligned: the mapping begins with a page. The kernel's programs may write to it
            // meanwhile, so it is read as what changes by itself, a word at a time.
            let word = unsafe { self.start().cast::<u64>().add(word).read_volatile() };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

impl Drop for MappedPart {
    fn drop(&mut self) {
        // SAFETY: with the length that it was mapped with, and nothing points into it any more.
        unsafe { libc::munmap(self.page, self.mapped) };
    }
}

/// Writes into the value of a BPF map that can be mapped, from byte `offset` on.
pub(crate) fn write_mapped(map: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let part = MappedPart::new(map, offset, bytes.len(), libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: as many bytes are mapped and writable, and no reference points into them: the kernel's programs read them, but only once
    // they are told of them, after this, or numbers that need not be of one moment.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), part.start(), bytes.len()) };
    Ok(())
}

/// The bytes of a BPF map that can be mapped, from `offset` on, both multiples of 8: without a bpf(2) call, for whose time the kernel
/// keeps programs at probes from running on this CPU.
pub(crate) fn read_mapped(map: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Vec<u8>> {
    if length == 0 || !offset.is_multiple_of(WORD) || !length.is_multiple_of(WORD) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(MappedPart::new(map, offset, length, libc::PROT_READ)?.read(0..length / WORD))
}

/// Words of a BPF map's value, mapped for reading.
pub(crate) struct MappedWords {
    part: MappedPart,
    words: usize,
}

// SAFETY: the mapping belongs to the process, and is only ever read.
unsafe impl Send for MappedWords {}

impl MappedWords {
    /// Maps `bytes` bytes of a map from `offset` on, both multiples of 4.
    pub(crate) fn new(map: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<MappedWords> {
        Ok(MappedWords { part: MappedPart::new(map, offset, bytes, libc::PROT_READ)?, words: bytes / 4 })
    }

    /// Returns the word of this number.
    pub(crate) fn get(&self, number: usize) -> Option<u32> {
        if number >= self.words {
            return None;
        }
        // SAFETY: within what is mapped, and aligned: the mapping begins with a page, the part with a word. Other threads of ours may write
        // to it meanwhile, so the read is volatile.
        Some(unsafe { self.part.start().cast::<u32>().add(number).read_volatile() })
    }
}

/// Counters that programs keep: in a map that can be mapped and has, for each number, one element after the other for each CPU. Looked at
/// ten times a second, so it stays mapped.
pub(crate) struct Counters {
    part: MappedPart,
    /// Words of an element.
    words: usize,
    cpus: usize,
    numbers: usize,
}

// SAFETY: the mapping belongs to the process, and is only ever read.
unsafe impl Send for Counters {}

impl Counters {
    /// Those of a map whose elements have `size` bytes, a multiple of 8, for so many CPUs and numbers.
    pub(crate) fn new(map: BorrowedFd<'_>, size: usize, cpus: u32, numbers: u8) -> io::Result<Counters> {
        if !size.is_multiple_of(WORD) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (words, cpus, numbers) = (size / WORD, cpus as usize, usize::from(numbers));
        let part = MappedPart::new(map, 0, words * WORD * cpus * numbers, libc::PROT_READ)?;
        Ok(Counters { part, words, cpus, numbers })
    }

    /// The sum of one counter over all CPUs.
    pub(crate) fn total(&self, number: u8, counter: impl Fn(&[u8]) -> Option<u64>) -> u64 {
        let number = usize::from(number);
        if number >= self.numbers {
            return 0;
        }
        let words = self.words * self.cpus;
        let bytes = self.part.read(number * words..(number + 1) * words);
        bytes.chunks_exact(self.words * WORD).filter_map(counter).sum()
    }
}
