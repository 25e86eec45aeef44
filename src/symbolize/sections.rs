//! The DWARF sections of one file: mapped where they are stored plainly, unpacked where they are compressed.
//!
//! What is unpacked and large goes into a file of its own that has no name and is mapped like any other: page cache that the
//! kernel can have back, not our own memory.

use std::io::{Read, Seek, Write};

use gimli::SectionId;

use super::elf::{Image, NamedSection};
use super::mapped::Mapped;
use super::problem::Reason;
use super::source::{Source, u32_at, u64_at};

/// Sections of one file, together, once unpacked. Chromium's debug information has some gigabytes.
const MAX_TOTAL: u64 = 8 << 30;
/// Unpacked sections up to this size are kept in memory.
const IN_MEMORY: u64 = 1 << 20;
/// `Elf64_Chdr`: `ch_type` u32, reserved u32, `ch_size` u64, `ch_addralign` u64.
const CHDR: usize = 24;

/// Bytes of one section.
#[derive(Debug)]
enum Bytes {
    /// A part of the file's mapping.
    InFile(std::ops::Range<usize>),
    /// Unpacked and small.
    InMemory(Box<[u8]>),
    /// Unpacked and large.
    Unpacked(Mapped),
}

/// The DWARF sections of a file.
#[derive(Debug, Default)]
pub(super) struct Sections {
    file: Option<Mapped>,
    memory: Box<[u8]>,
    sections: Vec<(Box<str>, Bytes)>,
}

impl Sections {
    /// Finds and, where needed, unpacks the sections that naming needs. `Ok(None)` where the file has no DWARF.
    pub(super) fn read(image: &Image) -> Result<Option<Sections>, Reason> {
        let named = image.sections_named(is_needed)?;
        if !named.iter().any(|section| matches!(plain_name(&section.name), ".debug_info" | ".debug_info.dwo")) {
            return Ok(None);
        }
        Sections::of(image, named).map(Some)
    }

    /// Likewise for an index of split DWARF.
    pub(super) fn read_package(image: &Image) -> Result<Option<Sections>, Reason> {
        // Its index has the place of a unit's part in each section, and is refused where one is missing.
        let named = image.sections_named(|name| name.starts_with(".debug_") || name.starts_with(".zdebug_"))?;
        let is_package = named.iter().any(|section| &*section.name == ".debug_cu_index");
        is_package.then(|| Sections::of(image, named)).transpose()
    }

    fn of(image: &Image, named: Vec<NamedSection>) -> Result<Sections, Reason> {
        let mut sections = Sections::default();
        match &image.source {
            Source::File(file, _) => sections.file = Some(Mapped::new(file, image.source.length())?),
            Source::Memory(bytes) => sections.memory = bytes.clone(),
        }
        let mut left = MAX_TOTAL;
        for section in named {
            let (start, end) = (section.file.start, section.file.end);
            let range = usize::try_from(start).ok().zip(usize::try_from(end).ok()).map(|(start, end)| start..end);
            let range = range.filter(|range| sections.whole().get(range.clone()).is_some()).ok_or(Reason::Truncated)?;
            let packed = sections.whole().get(range.clone()).unwrap_or_default();
            let bytes = match (section.name.strip_prefix(".zdebug"), section.compressed) {
                (Some(_), _) => unpack_old(packed, &mut left)?,
                (None, true) => unpack(packed, &mut left)?,
                (None, false) => Bytes::InFile(range),
            };
            let name = section.name.strip_prefix(".z").map_or(section.name.clone(), |rest| format!(".{rest}").into());
            sections.sections.push((name, bytes));
        }
        Ok(sections)
    }

    fn whole(&self) -> &[u8] {
        self.file.as_ref().map_or(&self.memory, Mapped::bytes)
    }

    /// The bytes of a section; none where there is no such section.
    pub(super) fn get(&self, name: &str) -> &[u8] {
        match self.sections.iter().find(|(known, _)| &**known == name) {
            Some((_, Bytes::InFile(range))) => self.whole().get(range.clone()).unwrap_or_default(),
            Some((_, Bytes::InMemory(bytes))) => bytes,
            Some((_, Bytes::Unpacked(mapped))) => mapped.bytes(),
            None => &[],
        }
    }

    /// The section that gimli means.
    pub(super) fn section(&self, id: SectionId) -> &[u8] {
        self.get(id.name())
    }

    /// The same in a file of split DWARF.
    pub(super) fn split_section(&self, id: SectionId) -> &[u8] {
        id.dwo_name().map_or(&[], |name| self.get(name))
    }

    /// Whether zeros were read where the file has been cut.
    pub(super) fn is_torn(&self) -> bool {
        self.file.as_ref().is_some_and(Mapped::is_torn)
    }

    /// Gives the pages that were looked at back.
    pub(super) fn give_back(&self) {
        self.file.iter().for_each(Mapped::give_back);
        for (_, bytes) in &self.sections {
            if let Bytes::Unpacked(mapped) = bytes {
                mapped.give_back();
            }
        }
    }

    /// Bytes of our own memory.
    pub(super) fn memory(&self) -> usize {
        let unpacked = self.sections.iter().map(|(_, bytes)| if let Bytes::InMemory(bytes) = bytes { bytes.len() } else { 0 });
        self.memory.len() + unpacked.sum::<usize>()
    }
}

/// `.debug_info` for `.zdebug_info`, too.
fn plain_name(name: &str) -> &str {
    if name == ".zdebug_info" { ".debug_info" } else { name }
}

fn is_needed(name: &str) -> bool {
    let Some(name) = name.strip_prefix(".debug_").or_else(|| name.strip_prefix(".zdebug_")) else { return false };
    matches!(
        name.strip_suffix(".dwo").unwrap_or(name),
        "abbrev" | "addr" | "aranges" | "info" | "line" | "line_str" | "ranges" | "rnglists" | "str" | "str_offsets"
    )
}

/// A compressed section: `Elf64_Chdr`, then zlib (1) or zstd (2). (gABI, "Compressed sections".)
fn unpack(packed: &[u8], left: &mut u64) -> Result<Bytes, Reason> {
    let (kind, size) = u32_at(packed, 0).zip(u64_at(packed, 8)).ok_or(Reason::Truncated)?;
    let stream = packed.get(CHDR..).ok_or(Reason::Truncated)?;
    match kind {
        1 => unpack_from(flate2::read::ZlibDecoder::new(stream), size, left),
        2 => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(stream).map_err(|_| Reason::MalformedDwarf)?;
            unpack_from(decoder, size, left)
        }
        _ => Err(Reason::MalformedDwarf),
    }
}

/// As compilers did before: `ZLIB`, the size as eight big-endian bytes, then zlib.
fn unpack_old(packed: &[u8], left: &mut u64) -> Result<Bytes, Reason> {
    let stream = packed.strip_prefix(b"ZLIB").ok_or(Reason::MalformedDwarf)?;
    let (size, stream) = stream.split_first_chunk().ok_or(Reason::MalformedDwarf)?;
    unpack_from(flate2::read::ZlibDecoder::new(stream), u64::from_be_bytes(*size), left)
}

/// Grows as bytes come: a size that a hostile file only claims costs nothing.
fn unpack_from(reader: impl Read, size: u64, left: &mut u64) -> Result<Bytes, Reason> {
    *left = left.checked_sub(size).ok_or(Reason::TooLarge)?;
    let mut reader = reader.take(size);
    let unpacked = if size <= IN_MEMORY {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|_| Reason::MalformedDwarf)?;
        (bytes.len() as u64 == size).then(|| Bytes::InMemory(bytes.into()))
    } else {
        let mut file = tempfile::tempfile()?;
        let mut chunk = vec![0; 256 << 10];
        loop {
            let count = reader.read(&mut chunk).map_err(|_| Reason::MalformedDwarf)?;
            if count == 0 {
                break;
            }
            file.write_all(chunk.get(..count).unwrap_or_default())?;
        }
        (file.stream_position()? == size).then(|| Mapped::new(&file, size).map(Bytes::Unpacked)).transpose()?
    };
    unpacked.ok_or(Reason::MalformedDwarf)
}
