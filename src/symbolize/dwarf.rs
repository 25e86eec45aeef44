//! File and line of an address, from the object's own DWARF by way of addr2line.
//!
//! A first step: only debug information inside the object itself and uncompressed is read, all of its sections at once and
//! only for as long as a lookup takes. Separate debug files and inlined functions will come here.

use std::sync::Arc;

use addr2line::Context;
use addr2line::gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};

use super::elf::Image;
use super::problem::Reason;
use crate::profile::{ElfAddress, sanitize};

/// Debug sections held during a lookup, together. What is larger is left alone: it would be most of our memory.
const MAX_SECTIONS: u64 = 64 << 20;

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct SourceLocation {
    /// The file as the compiler wrote it down; safe to print.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
}

/// The debug sections of one image. Units are found again by each lookup, which saves us a structure that borrows
/// from itself.
pub(super) struct Lines {
    sections: DwarfSections<Vec<u8>>,
    size: usize,
}

impl Lines {
    /// Reads what finding a line needs.
    pub(super) fn read(image: &Image) -> Result<Lines, Reason> {
        let mut size = 0;
        let sections = DwarfSections::load(|id| {
            let bytes = if is_needed(id) { image.debug_section(id.name(), MAX_SECTIONS - size)? } else { Vec::new() };
            size += bytes.len() as u64;
            Ok::<_, Reason>(bytes)
        })?;
        Ok(Lines { sections, size: usize::try_from(size).unwrap_or(usize::MAX) })
    }

    /// Bytes of debug sections held.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Where an address comes from.
    pub(super) fn find(&self, address: ElfAddress) -> Option<SourceLocation> {
        let dwarf = self.sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
        let context = Context::from_dwarf(dwarf).ok()?;
        let location = context.find_location(address.0).ok()??;
        let (file, line) = (location.file?, location.line.filter(|line| *line > 0)?);
        Some(SourceLocation { file: sanitize(file).into(), line })
    }
}

fn is_needed(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}
