//! Bytes of an ELF image that can be read at any place, with bounds on what is allocated.
//!
//! Files are read with `pread`, never mapped: if a file's owner truncated it under a mapping, SIGBUS would end us.

use std::io;

use super::open::{OpenError, OpenFile};

/// Largest ratio of a piece of a file to the whole file on its disk, plus [`LITTLE`]. A piece can be larger than the file on the disk if
/// the file is sparse, or if its file system compresses.
const MOST_SPARSE: u64 = 8;

/// Bytes that may always be read or unpacked.
pub(crate) const LITTLE: u64 = 1 << 20;

/// The reason why the parts of an ELF file that unwinding needs cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Reading failed.
    #[error("failed to read it: {0}")]
    Io(#[from] io::Error),
    /// It could not be opened.
    #[error("failed to open it: {0}")]
    Open(#[from] OpenError),
    /// Another kind of file.
    #[error("not an ELF file")]
    NotElf,
    /// An ELF file that does not run here.
    #[error("not a 64-bit program or library for x86_64 or arm64 Linux")]
    NotOurs,
    /// Headers that point outside the file or contradict each other.
    #[error("the ELF headers are damaged: {0}")]
    Damaged(&'static str),
    /// The file ends before a part of it does.
    #[error("the file ends before its {0}")]
    Truncated(&'static str),
    /// More bytes than are ever read.
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The bound.
        limit: u64,
    },
}

/// Bytes that can be read at any place.
pub trait ReadAt {
    /// Returns the number of bytes.
    fn length(&self) -> u64;

    /// Returns the number of bytes on the disk. It is less than the length if the file has holes.
    fn stored(&self) -> u64 {
        self.length()
    }

    /// Fills the buffer from `offset`.
    ///
    /// # Errors
    ///
    /// Where the bytes end before the buffer is full, or reading fails.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// The bytes of an open file, as many as it had when it was opened.
#[derive(Clone, Debug)]
pub struct FileBytes(OpenFile);

impl FileBytes {
    /// Returns the bytes of an open file.
    pub fn new(file: OpenFile) -> FileBytes {
        FileBytes(file)
    }

    /// Returns the file.
    pub fn file(&self) -> &OpenFile {
        &self.0
    }
}

impl ReadAt for FileBytes {
    fn length(&self) -> u64 {
        self.0.facts.length
    }

    fn stored(&self) -> u64 {
        self.0.facts.stored
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.opened.read_exact_at(buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let from = start.and_then(|start| self.get(start..)?.get(..buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        Ok(())
    }
}

/// Reads `length` bytes at `offset`. Fails if they are more than `limit`, or far more than the file has on its disk.
pub(crate) fn read(
    bytes: &(impl ReadAt + ?Sized),
    offset: u64,
    length: u64,
    limit: u64,
    what: &'static str,
) -> Result<Vec<u8>, Unreadable> {
    if length > limit {
        return Err(Unreadable::TooLarge { what, size: length, limit });
    }
    if offset.checked_add(length).is_none_or(|end| end > bytes.length()) {
        return Err(Unreadable::Truncated(what));
    }
    let sparse = bytes.stored().saturating_mul(MOST_SPARSE).saturating_add(LITTLE);
    if length > sparse {
        return Err(Unreadable::TooLarge { what, size: length, limit: sparse });
    }
    let size = usize::try_from(length).map_err(|_| Unreadable::TooLarge { what, size: length, limit })?;
    let mut buffer = vec![0; size];
    bytes.read_exact_at(offset, &mut buffer)?;
    Ok(buffer)
}

/// Computes the CRC-32 of all bytes, a megabyte at a time. Returns `None` if there are more than `limit`, or if they cannot be read.
pub(crate) fn checksum(bytes: &(impl ReadAt + ?Sized), limit: u64) -> Option<u32> {
    const PIECE: u64 = 1 << 20;
    let length = bytes.length();
    if length > limit {
        return None;
    }
    let mut crc = flate2::Crc::new();
    for offset in (0..length).step_by(PIECE as usize) {
        let piece = (length - offset).min(PIECE);
        crc.update(&read(bytes, offset, piece, PIECE, "a debug file").ok()?);
    }
    Some(crc.sum())
}
