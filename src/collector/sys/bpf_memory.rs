//! BPF maps that are mapped into memory, to read and write them without bpf(2) calls.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Size of the words in which maps are read.
const WORD: usize = size_of::<u64>();

/// A mapped part of a BPF map. It counts as flametop's memory, so seldom used parts are mapped only while they are read.
pub(super) struct MappedPart {
    page: *mut libc::c_void,
    mapped: usize,
    /// Offset of the part in the first page.
    slack: usize,
}

impl MappedPart {
    /// Maps `length` bytes of a map, starting at `offset`.
    pub(super) fn new(map: BorrowedFd<'_>, offset: usize, length: usize, protection: libc::c_int) -> io::Result<MappedPart> {
        let slack = offset % rustix::param::page_size();
        let mapped = slack + length;
        let at = i64::try_from(offset - slack).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory. The kernel refuses a range that exceeds
        // the map's value.
        let page = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, libc::MAP_SHARED, map.as_raw_fd(), at) };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(MappedPart { page, mapped, slack }) }
    }

    /// Returns a pointer to the first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.page.cast::<u8>().wrapping_add(self.slack)
    }

    /// Returns the bytes of these words of the part.
    fn read(&self, words: Range<usize>) -> Vec<u8> {
        debug_assert!(words.end * WORD <= self.mapped - self.slack);
        let mut bytes = Vec::with_capacity(words.len() * WORD);
        for word in words {
            // SAFETY: the word is inside the mapping, and aligned: the mapping begins with a page. BPF programs may write to it meanwhile,
            // so each word is read once, as volatile.
            let word = unsafe { self.start().cast::<u64>().add(word).read_volatile() };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

impl Drop for MappedPart {
    fn drop(&mut self) {
        // SAFETY: the length is that of the mapping, and nothing points into it any more.
        unsafe { libc::munmap(self.page, self.mapped) };
    }
}

/// Writes into the value of a mappable BPF map, starting at byte `offset`.
pub(crate) fn write_mapped(map: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let part = MappedPart::new(map, offset, bytes.len(), libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: this many bytes are mapped and writable, and no reference points into them. BPF programs read them only after this call, when
    // they learn of them. Or the bytes are numbers that need not belong to the same moment.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), part.start(), bytes.len()) };
    Ok(())
}

/// Reads bytes of a mappable BPF map, starting at `offset`. `offset` and `length` are multiples of 8. No bpf(2) call is made: during such a
/// call the kernel keeps programs at probes from running on this CPU.
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

// SAFETY: the mapping belongs to the process, and is only read.
unsafe impl Send for MappedWords {}

impl MappedWords {
    /// Maps `bytes` bytes of a map, starting at `offset`. The two numbers are multiples of 4.
    pub(crate) fn new(map: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<MappedWords> {
        Ok(MappedWords { part: MappedPart::new(map, offset, bytes, libc::PROT_READ)?, words: bytes / 4 })
    }

    /// Returns the word of this number.
    pub(crate) fn get(&self, number: usize) -> Option<u32> {
        if number >= self.words {
            return None;
        }
        // SAFETY: the word is inside the mapping, and aligned: the mapping begins with a page, the part with a word. Other threads may
        // write to it meanwhile, so the read is volatile.
        Some(unsafe { self.part.start().cast::<u32>().add(number).read_volatile() })
    }
}

/// Counters that programs keep in a mappable map. For each number, the map has one element for each CPU, one after the other. They are read
/// ten times a second, so the map stays mapped.
pub(crate) struct Counters {
    part: MappedPart,
    /// Words of an element.
    words: usize,
    cpus: usize,
    numbers: usize,
}

// SAFETY: the mapping belongs to the process, and is only read.
unsafe impl Send for Counters {}

impl Counters {
    /// Maps the counters of a map. An element has `size` bytes, a multiple of 8. The map has `numbers` times `cpus` elements.
    pub(crate) fn new(map: BorrowedFd<'_>, size: usize, cpus: u32, numbers: u8) -> io::Result<Counters> {
        if !size.is_multiple_of(WORD) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (words, cpus, numbers) = (size / WORD, cpus as usize, usize::from(numbers));
        let part = MappedPart::new(map, 0, words * WORD * cpus * numbers, libc::PROT_READ)?;
        Ok(Counters { part, words, cpus, numbers })
    }

    /// Returns the sum of one counter over all CPUs.
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
