//! Reads a file while a process appends the names of its JIT code to it.
//!
//! Only new bytes are read, a window at a time. For each entry, its addresses and its offset in the file are kept. Its name is read from
//! the file at each lookup. Reading starts over if the file was written anew: it is now shorter, or the bytes before the last read position
//! have changed.
//!
//! The profiled process controls the file. So there are limits on how many bytes are ever read, how far into the file, how many entries are
//! kept ([`MAX_RANGES`](super::code_ranges::MAX_RANGES)), and how long a name is.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use super::code_ranges::{Fresh, Piece, Ranges};
use crate::object::open::OpenFile;
use crate::object::reason::Reason;

/// Bytes read at a time. More than the beginning and name of any entry.
pub(crate) const WINDOW: usize = 64 << 10;
/// Offset beyond which no entry is read. A perf map has about 70 bytes a function; a jitdump also has its code.
const MAX_LENGTH: u64 = 1 << 30;
/// Most bytes ever read of one file, including after starting over: half a second to two seconds of one CPU.
const MAX_READ: u64 = 1 << 29;
/// Bytes of an entry that are searched for its name. Labels are cut at 4,096 characters.
const MAX_ENTRY: usize = 8 << 10;
/// Bytes compared to detect that a file was written anew: longer than an entry's address and size.
const SEAL: usize = 64;

/// A format of entries.
pub(crate) trait Format {
    /// Reads the complete entries at the start of `window`, which holds the bytes at offset `at` of a file of `length` bytes. Returns the
    /// offset of the next read, maybe beyond the window. Returns `at` itself if no entry there is complete.
    ///
    /// A window shorter than [`WINDOW`] ends at the current end of the file.
    fn take(&mut self, window: &[u8], at: u64, length: u64, ranges: &mut Ranges) -> Result<u64, Reason>;

    /// Returns the name in the entry that begins with these bytes and was read for `address`. `None` if the entry is no longer there.
    fn name(entry: &[u8], address: u64) -> Option<&[u8]>;

    /// Returns the bytes held in addition to the ranges.
    fn memory(&self) -> usize {
        0
    }
}

/// The file of one process, as far as it was read.
#[derive(Debug)]
pub(crate) struct CodeFile<F> {
    file: OpenFile,
    /// Device and inode numbers.
    pub(crate) identity: (u64, u64),
    ranges: Ranges,
    format: F,
    /// Offset of the next read.
    offset: u64,
    /// An offset that reading has reached, and the bytes right before it.
    seal: (u64, Vec<u8>),
    read: u64,
    /// Why the rest of the file cannot be read.
    stuck: Option<Reason>,
}

impl<F: Format + Default> CodeFile<F> {
    /// Wraps a file of a process. Nothing is read yet.
    pub(crate) fn new(file: OpenFile) -> CodeFile<F> {
        CodeFile {
            identity: (file.facts.device, file.facts.inode),
            file,
            ranges: Ranges::default(),
            format: F::default(),
            offset: 0,
            seal: Default::default(),
            read: 0,
            stuck: None,
        }
    }

    /// Wraps a file that flametop opened itself.
    pub(crate) fn ours(file: File) -> Result<CodeFile<F>, Reason> {
        Ok(CodeFile::new(OpenFile::ours(file)?))
    }

    /// Reads the new part of the file. Returns whether there was any.
    ///
    /// Fails with the reason why the rest cannot be read. Entries that were read before stay available.
    pub(crate) fn update(&mut self, stopped: &AtomicBool) -> Result<bool, Reason> {
        let length = self.file.opened.ask(|file| Ok(file.metadata()?.len()))?;
        let mut news = false;
        if length < self.offset || !self.is_sealed()? {
            self.forget();
            news = true;
        }
        if let Some(reason) = self.stuck {
            return Err(reason);
        }
        if self.offset >= length {
            return Ok(news);
        }
        let outcome = self.read_to(length, stopped);
        self.stuck = outcome.err();
        outcome.map(|more| news | more)
    }

    fn read_to(&mut self, length: u64, stopped: &AtomicBool) -> Result<bool, Reason> {
        let mut window = vec![0; WINDOW];
        let mut news = false;
        while self.offset < length && !stopped.load(Ordering::Relaxed) {
            if self.offset >= MAX_LENGTH || self.read >= MAX_READ {
                return Err(Reason::CodeMapTooLarge);
            }
            let count = self.read_at(&mut window, self.offset)?;
            let filled = window.get(..count).unwrap_or_default();
            let next = self.format.take(filled, self.offset, length, &mut self.ranges)?;
            // An incomplete entry is read again on each update. Those reads do not count against the limit.
            if next <= self.offset {
                break;
            }
            self.read += count as u64;
            let taken = usize::try_from(next - self.offset).unwrap_or(usize::MAX).min(count);
            let before = filled.get(taken.saturating_sub(SEAL)..taken).unwrap_or_default();
            self.seal = (self.offset + taken as u64, before.to_vec());
            self.offset = next;
            news = true;
        }
        Ok(news)
    }

    /// Reads as many bytes as there are, up to the buffer's length.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Reason> {
        let mut filled = 0;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.file.opened.read_at(room, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    /// Whether the bytes before the last read position are still the same.
    fn is_sealed(&self) -> Result<bool, Reason> {
        let (end, before) = &self.seal;
        let mut now = vec![0; before.len()];
        let count = self.read_at(&mut now, end - before.len() as u64)?;
        Ok(count == before.len() && now == *before)
    }

    /// Returns the process's name for the code at an address. Fails with [`Reason::Changed`] if the file now has something else in place of
    /// that entry; the caller must then update.
    pub(crate) fn name_at(&self, address: u64) -> Result<Option<Vec<u8>>, Reason> {
        let Some(at) = self.ranges.find(address) else { return Ok(None) };
        let entry = self.bytes_at(u64::from(at), MAX_ENTRY)?;
        let name = F::name(&entry, address).ok_or(Reason::Changed)?;
        Ok(Some(name.to_vec()))
    }

    /// Takes the addresses with a new entry since the last call.
    pub(crate) fn fresh(&mut self) -> Fresh {
        self.ranges.fresh()
    }

    /// Returns the file offset of the entry for an address.
    pub(crate) fn place_of(&self, address: u64) -> Option<u32> {
        self.ranges.find(address)
    }

    /// Returns the range around an address that has the same entry.
    pub(crate) fn piece_around(&self, address: u64) -> Option<Piece> {
        self.ranges.around(address)
    }

    /// Reads the bytes at an offset, fewer at the end of the file.
    pub(crate) fn bytes_at(&self, at: u64, length: usize) -> Result<Vec<u8>, Reason> {
        let mut bytes = vec![0; length];
        let count = self.read_at(&mut bytes, at)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Returns the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.ranges.memory() + self.format.memory()
    }
}

impl<F: Default> CodeFile<F> {
    /// Forgets everything that was read, so that it is read again.
    pub(crate) fn forget(&mut self) {
        self.ranges = Ranges::default();
        self.format = F::default();
        self.offset = 0;
        self.seal = Default::default();
        self.stuck = None;
    }
}

impl<F> CodeFile<F> {
    /// Returns the number of known ranges of addresses.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the reader of the entries.
    pub(crate) fn format(&self) -> &F {
        &self.format
    }
}
