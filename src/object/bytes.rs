//! The source of an ELF image's bytes. It is read piece by piece, and never past the image's end.
//!
//! Files are read with `pread`, not mapped. If a file's owner truncated it under a mapping, SIGBUS would end us. And a mapping of a 100 MB
//! library shows up in our resident memory.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use super::read_at::ReadAt;
use super::reason::Reason;
use crate::object::open::OpenFile;
use crate::profile::UserId;

/// Length and times of a file. A change means that the file was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Stamp> {
        let meta = file.metadata()?;
        Ok(Stamp { length: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()), changed: (meta.ctime(), meta.ctime_nsec()) })
    }

    /// Whether the contents are the same. The change time alone is no sign: unlinking or renaming the file moves it too.
    fn same_contents(&self, other: &Stamp) -> bool {
        self.length == other.length && self.modified == other.modified
    }
}

/// An open file, its stamp when it was opened, and whether it is trusted.
#[derive(Debug)]
pub(crate) struct OnDisk {
    file: OpenFile,
    stamp: Stamp,
    trusted: bool,
}

/// An image's bytes.
#[derive(Debug)]
pub(crate) enum Source {
    /// A regular file.
    File(Box<OnDisk>),
    /// A copy of a small image: the vDSO.
    Memory(Box<[u8]>),
}

impl Source {
    /// Wraps an open file. `is_ours`: it was reached in our own mount namespace, not in one that a process has made.
    pub(crate) fn of(file: OpenFile, is_ours: bool) -> Source {
        let facts = &file.facts;
        let stamp = Stamp {
            length: facts.length,
            modified: (facts.modified.0, facts.modified.1.into()),
            changed: (facts.changed.0, facts.changed.1.into()),
        };
        // If we are not root, files of our own user are trusted: they can do only what that user can do anyway.
        let user = UserId(rustix::process::geteuid().as_raw());
        let is_our_users = user != UserId(0) && facts.owner == user && facts.mode & 0o022 == 0 && file.opened.near().is_some();
        let trusted = is_ours && (file.only_root_writes() || is_our_users);
        Source::File(Box::new(OnDisk { file, stamp, trusted }))
    }

    /// Wraps a file that our own tests have written.
    #[cfg(test)]
    pub(crate) fn file(file: File) -> Result<Source, Reason> {
        Ok(Source::of(OpenFile::ours(file)?, true))
    }

    /// Returns the file, if it is on this machine and may be mapped.
    pub(crate) fn near(&self) -> Option<&File> {
        let Source::File(on_disk) = self else { return None };
        on_disk.file.opened.near()
    }

    /// Returns the user who is charged for copies of its bytes, and its bytes on the disk; `None` for an image in memory.
    pub(crate) fn stored(&self) -> Option<(UserId, u64)> {
        let Source::File(on_disk) = self else { return None };
        Some((on_disk.file.user, on_disk.file.facts.stored))
    }

    /// Whether no other user can have written it or can write it while it is read. That is so for a file of root, or of our own user, on a
    /// local file system, reached in our own mount namespace. Files of a container are not trusted, because its root can write them.
    pub(crate) fn is_trusted(&self) -> bool {
        matches!(self, Source::File(on_disk) if on_disk.trusted)
    }

    /// Returns a reader of the bytes from `range.start` to `range.end`.
    pub(crate) fn reader(&self, range: Range<u64>) -> ByteReader<'_> {
        ByteReader { source: self, range }
    }

    /// Returns the length of the image.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Source::File(on_disk) => on_disk.stamp.length,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fails with [`Reason::Changed`] if the file was written to since it was opened. Bytes that were read earlier and bytes that are read
    /// now would not belong together.
    pub(crate) fn check_unchanged(&self) -> Result<(), Reason> {
        match self {
            Source::File(of) if !of.file.opened.ask(Stamp::of)?.same_contents(&of.stamp) => Err(Reason::Changed),
            _ => Ok(()),
        }
    }

    /// Returns when the file was written to, in seconds and nanoseconds since 1970.
    pub(crate) fn modified(&self) -> Option<(i64, i64)> {
        match self {
            Source::File(on_disk) => Some(on_disk.stamp.modified),
            Source::Memory(_) => None,
        }
    }

    /// Fills `buffer` from `offset`. Fails with [`Reason::Truncated`] if the image ends before the buffer is full.
    pub(crate) fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Reason> {
        let end = offset.checked_add(buffer.len() as u64).ok_or(Reason::Malformed)?;
        if end > self.length() {
            return Err(Reason::Truncated);
        }
        Ok(self.read_exact_at(offset, buffer)?)
    }

    /// Returns `length` bytes from `offset`. Fails with [`Reason::TooLarge`] if that is more than `limit`, before anything is allocated.
    pub(crate) fn read(&self, offset: u64, length: u64, limit: u64) -> Result<Vec<u8>, Reason> {
        if length > limit {
            return Err(Reason::TooLarge);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.length()) {
            return Err(Reason::Truncated);
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| Reason::TooLarge)?];
        self.read_exact(offset, &mut bytes)?;
        Ok(bytes)
    }
}

impl ReadAt for Source {
    fn length(&self) -> u64 {
        Source::length(self)
    }

    fn stored(&self) -> u64 {
        Source::stored(self).map_or(self.length(), |(_, bytes)| bytes)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Source::File(on_disk) => on_disk.file.opened.read_exact_at(buffer, offset),
            Source::Memory(bytes) => (**bytes).read_exact_at(offset, buffer),
        }
    }
}

/// A part of an image, read from its begin to its end.
pub(crate) struct ByteReader<'a> {
    source: &'a Source,
    range: Range<u64>,
}

impl Read for ByteReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        let Some(room) = buffer.get_mut(..count) else { return Ok(0) };
        self.source.read_exact(self.range.start, room).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        self.range.start += count as u64;
        Ok(count)
    }
}
