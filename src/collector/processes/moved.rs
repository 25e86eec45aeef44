//! Known code of files in anonymous memory.

use std::ops::Range;

use super::kernel_entries::KernelEntries;
use super::mappings::{FileIndex, Mapping};

/// Entries of the map `moved`: `MAX_MOVED` of bpf/record.h.
pub(super) const MAX_ENTRIES: usize = 1024;

/// Executable memory without a file that may hold code of the file behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Moved {
    pub(super) range: Range<u64>,
    /// When the worker was asked. Mappings that were made before are known to it.
    pub(super) asked: u64,
    pub(super) code: MovedCode,
}

/// The code in such memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MovedCode {
    /// A worker compares it with the file. Samples wait.
    Asked,
    /// The code of a file.
    OfFile(FileCode),
    /// Other code.
    Other,
}

/// Code of a file in anonymous memory. Its path is in the table of files, whose bytes are bounded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileCode {
    pub(super) file: FileIndex,
    /// Offset in the file of the first address.
    pub(super) offset: u64,
    /// The addresses of the file's mapping behind it.
    pub(super) beside: Range<u64>,
}

/// A key of the map `moved`: the process, and the first address of its memory.
pub(crate) type MovedPlace = (u32, u64);

/// A value of the map `moved`: `struct moved_text`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MovedEntry {
    /// Offset in the file of the first address.
    pub(crate) offset: u64,
    /// An address where the process has the file mapped. 0: the memory has other code.
    pub(crate) beside: u64,
}

/// The entries of the map `moved`.
pub(crate) type MovedEntries = KernelEntries<MovedPlace, MovedEntry>;

impl MovedCode {
    /// Returns the file whose code it is.
    pub(super) fn file(&self) -> Option<FileIndex> {
        match self {
            MovedCode::OfFile(code) => Some(code.file),
            MovedCode::Asked | MovedCode::Other => None,
        }
    }

    /// Returns the value for the map `moved`; `None` while the answer is not known.
    pub(super) fn entry(&self) -> Option<MovedEntry> {
        match self {
            MovedCode::Asked => None,
            MovedCode::Other => Some(MovedEntry { offset: 0, beside: 0 }),
            MovedCode::OfFile(code) => Some(MovedEntry { offset: code.offset, beside: code.beside.start }),
        }
    }
}

/// Whether a worker finds out which code is at this address.
pub(super) fn is_asked(moved: &[Moved], address: u64) -> bool {
    moved.iter().any(|moved| moved.code == MovedCode::Asked && moved.range.contains(&address))
}

/// Returns the addresses that lead to the file of a mapping in `/proc/PID/map_files`: those of the mapping itself. If the mapping is
/// anonymous memory with the file's code, they are those of the file's mapping behind it.
pub(super) fn file_range(moved: &[Moved], mapping: &Mapping) -> Range<u64> {
    let beside = moved.iter().find_map(|moved| match &moved.code {
        MovedCode::OfFile(code) if moved.range == mapping.range() => Some(code.beside.clone()),
        _ => None,
    });
    beside.unwrap_or(mapping.range())
}
