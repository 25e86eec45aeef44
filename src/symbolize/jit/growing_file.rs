//! A file to which a process writes what it calls the code that it makes, read as it grows.
//!
//! Only what is new is read, a window at a time; of each entry is kept which addresses it covers and where it stands. Its name
//! is read from there when it is asked for. A file that is now shorter, or whose bytes before the place where reading ended
//! are others, was written anew: reading starts over.
//!
//! The file is the profiled process's to write. Bounded are: how much is ever read of it, how far into it, how many entries
//! are kept ([`MAX_RANGES`](super::code_ranges::MAX_RANGES)), and how long a name is.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use super::code_ranges::{Fresh, Piece, Ranges};
use crate::object::open::OpenFile;
use crate::object::reason::Reason;

/// Bytes read at a time. More than any entry's beginning and name.
pub(crate) const WINDOW: usize = 64 << 10;
/// No entry beyond this is read. A perf map has about 70 bytes a function, a jitdump its code as well.
const MAX_LENGTH: u64 = 1 << 30;
/// Bytes that are ever read of one file, starting over included: half a second or two of one CPU.
const MAX_READ: u64 = 1 << 29;
/// Bytes of an entry that are looked at for its name; labels are cut at 4,096 characters.
const MAX_ENTRY: usize = 8 << 10;
/// Bytes compared to see whether a file was written anew: longer than an entry's address and size.
const SEAL: usize = 64;

/// How entries are written.
pub(crate) trait Format {
    /// Takes in what is whole at the start of `window`, which holds the bytes at offset `at` of a file of `length` bytes.
    /// Returns the offset from which to go on, maybe beyond the window: `at` itself when nothing there is whole.
    ///
    /// A window shorter than [`WINDOW`] ends where the file ends now.
    fn take(&mut self, window: &[u8], at: u64, length: u64, ranges: &mut Ranges) -> Result<u64, Reason>;

    /// The name in the entry that begins with these bytes and was taken in for `address`; `None` where it is not there any more.
    fn name(entry: &[u8], address: u64) -> Option<&[u8]>;

    /// Bytes held besides the ranges.
    fn memory(&self) -> usize {
        0
    }
}

/// The file of one process, as far as it was read.
#[derive(Debug)]
pub(crate) struct CodeFile<F> {
    file: OpenFile,
    /// Device and inode.
    pub(crate) identity: (u64, u64),
    ranges: Ranges,
    format: F,
    /// Where reading goes on.
    offset: u64,
    /// The bytes right before a place that was read to, and that place.
    seal: (u64, Vec<u8>),
    read: u64,
    /// What keeps the rest of the file from being read.
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

    /// Reads what is new. Tells whether anything is.
    ///
    /// Fails with what keeps the rest from being read; what was read before is still there then.
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
            // What is waited for is looked at again and again, and costs nothing by that.
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

    /// As many bytes as there are, up to the buffer's length.
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

    /// Whether the bytes before the place where reading ended are those that were read.
    fn is_sealed(&self) -> Result<bool, Reason> {
        let (end, before) = &self.seal;
        let mut now = vec![0; before.len()];
        let count = self.read_at(&mut now, end - before.len() as u64)?;
        Ok(count == before.len() && now == *before)
    }

    /// What the process calls the code at an address. Fails with [`Reason::Changed`] when the file has something else now at the
    /// place where that stood: it must be updated.
    pub(crate) fn name_at(&self, address: u64) -> Result<Option<Vec<u8>>, Reason> {
        let Some(at) = self.ranges.find(address) else { return Ok(None) };
        let entry = self.bytes_at(u64::from(at), MAX_ENTRY)?;
        let name = F::name(&entry, address).ok_or(Reason::Changed)?;
        Ok(Some(name.to_vec()))
    }

    /// Addresses of which something was said since this was asked before.
    pub(crate) fn fresh(&mut self) -> Fresh {
        self.ranges.fresh()
    }

    /// Where the entry of an address is.
    pub(crate) fn place_of(&self, address: u64) -> Option<u32> {
        self.ranges.find(address)
    }

    /// The addresses around this one that have the same entry.
    pub(crate) fn piece_around(&self, address: u64) -> Option<Piece> {
        self.ranges.around(address)
    }

    /// The bytes at a place, fewer where the file ends.
    pub(crate) fn bytes_at(&self, at: u64, length: usize) -> Result<Vec<u8>, Reason> {
        let mut bytes = vec![0; length];
        let count = self.read_at(&mut bytes, at)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.ranges.memory() + self.format.memory()
    }
}

impl<F: Default> CodeFile<F> {
    /// Forgets what was read, so that it is read again.
    pub(crate) fn forget(&mut self) {
        self.ranges = Ranges::default();
        self.format = F::default();
        self.offset = 0;
        self.seal = Default::default();
        self.stuck = None;
    }
}

impl<F> CodeFile<F> {
    /// How many ranges of addresses are known.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// How entries were written.
    pub(crate) fn format(&self) -> &F {
        &self.format
    }
}
