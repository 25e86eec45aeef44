//! The DWARF sections of one file: plain sections are mapped, compressed sections unpacked.
//!
//! | the file | a plain section | a compressed one |
//! | --- | --- | --- |
//! | root's or our own | a part of the mapped file | unpacked |
//! | another user's | copied | unpacked |
//!
//! Sections of an unlinked file are copied as well if relocations write into them: see [`relocate`](crate::object::relocate).
//!
//! A user who may write to a file can change a byte between two reads of it, and DWARF readers read names and paths more than once. So
//! sections of files that others can write are copied. [`copies`](crate::object::copies) bounds the copies.

use std::io::{BufReader, Read};
use std::ops::Range;

use gimli::SectionId;

use crate::object::bytes::Source;
use crate::object::copies::Copy;
use crate::object::elf::{Image, NamedSection};
use crate::object::mapped::Mapped;
use crate::object::numbers::{u32_at, u64_at};
use crate::object::reason::Reason;
use crate::object::relocate::{Relocated, Symbols};
use crate::object::unpack::Compression;

/// Most bytes of sections in a file that others may write to. Chromium's sections take more, but root owns them where Chromium is
/// installed.
const MAX_FOREIGN: u64 = 1 << 30;
/// `Elf64_Chdr`: `ch_type` u32, reserved u32, `ch_size` u64, `ch_addralign` u64.
const CHDR: u64 = 24;

/// The bytes of one section.
#[derive(Debug)]
enum Bytes {
    /// A part of the file's mapping.
    InFile(Range<usize>),
    /// Copied or unpacked.
    Copied(Copy),
}

/// The DWARF sections of a file.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    file: Option<Mapped>,
    sections: Vec<(Box<str>, Bytes)>,
    trusted: bool,
}

impl Sections {
    /// Finds the sections that naming needs, and unpacks them where needed. `Ok(None)` if the file has no DWARF.
    pub(crate) fn read(image: &Image) -> Result<Option<Sections>, Reason> {
        let named = image.sections_named(is_needed)?;
        if !named.iter().any(|section| matches!(plain_name(&section.name), ".debug_info" | ".debug_info.dwo")) {
            return Ok(None);
        }
        Sections::of(image, named).map(Some)
    }

    /// Finds and unpacks all debug sections of a package of split DWARF. `Ok(None)` if the file is no package.
    pub(crate) fn read_package(image: &Image) -> Result<Option<Sections>, Reason> {
        // The package's index has the offset of a unit's part in each section. The index is refused if a section is missing.
        let named = image.sections_named(|name| name.starts_with(".debug_") || name.starts_with(".zdebug_"))?;
        let is_package = named.iter().any(|section| &*section.name == ".debug_cu_index");
        is_package.then(|| Sections::of(image, named)).transpose()
    }

    fn of(image: &Image, named: Vec<NamedSection>) -> Result<Sections, Reason> {
        let trusted = image.source.is_trusted();
        let size = |section: &NamedSection| section.file.end.saturating_sub(section.file.start);
        if !trusted
            && named.iter().map(size).try_fold(0u64, |sum, size| sum.checked_add(size)).is_none_or(|sum| sum > MAX_FOREIGN)
        {
            return Err(Reason::TooLarge);
        }
        let mut sections = Sections { trusted, ..Sections::default() };
        if let (Some(file), true) = (image.source.near(), trusted) {
            sections.file = Some(Mapped::new(file, image.source.length())?);
        }
        let symbols = image.placed.as_ref().map(|placed| Symbols::read(image, placed)).transpose()?;
        let relocations = if symbols.is_some() { image.relocations()? } else { Vec::new() };
        for section in named {
            if section.file.end > image.source.length() {
                return Err(Reason::Truncated);
            }
            let relocated = relocations.iter().find(|(of, _)| *of == section.index).zip(symbols.as_ref());
            let is_plain = !section.compressed && !section.name.starts_with(".z");
            let (source, range) = (&image.source, section.file.clone());
            let bytes = match relocated {
                None if is_plain && sections.file.is_some() => {
                    let place = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
                    Bytes::InFile(place.map(|(start, end)| start..end).ok_or(Reason::TooLarge)?)
                }
                None if is_plain => Bytes::Copied(Copy::plain(source, range)?),
                None => {
                    let (reader, size) = contents(source, &section)?;
                    Bytes::Copied(Copy::unpacked(source, range, reader, size)?)
                }
                Some(((_, entries), symbols)) => {
                    let (reader, size) = contents(source, &section)?;
                    let relocated = Relocated::new(reader, image, entries.clone(), symbols)?;
                    Bytes::Copied(if is_plain {
                        Copy::of(source, relocated, size)?
                    } else {
                        Copy::unpacked(source, range, relocated, size)?
                    })
                }
            };
            let name = section.name.strip_prefix(".z").map_or(section.name.clone(), |rest| format!(".{rest}").into());
            sections.sections.push((name, bytes));
        }
        Ok(sections)
    }

    /// Whether only root or we could have written the sections.
    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Returns the bytes of a section; none if there is no such section.
    pub(crate) fn get(&self, name: &str) -> &[u8] {
        match self.sections.iter().find(|(known, _)| &**known == name) {
            Some((_, Bytes::InFile(range))) => {
                self.file.as_ref().and_then(|file| file.bytes().get(range.clone())).unwrap_or_default()
            }
            Some((_, Bytes::Copied(copy))) => copy.bytes(),
            None => &[],
        }
    }

    /// Returns the section with gimli's id.
    pub(crate) fn section(&self, id: SectionId) -> &[u8] {
        self.get(id.name())
    }

    /// Returns the section with gimli's id in a file of split DWARF.
    pub(crate) fn split_section(&self, id: SectionId) -> &[u8] {
        id.dwo_name().map_or(&[], |name| self.get(name))
    }

    /// Whether zeros were read because the file was truncated.
    pub(crate) fn is_torn(&self) -> bool {
        self.file.as_ref().is_some_and(Mapped::is_torn)
    }

    /// Frees the pages that were read. They stay in the page cache.
    pub(crate) fn give_back(&self) {
        self.file.iter().for_each(Mapped::give_back);
        for (_, bytes) in &self.sections {
            if let Bytes::Copied(copy) = bytes {
                copy.give_back();
            }
        }
    }

    /// Returns the number of mapped bytes: those of the whole file, if it is mapped, and of all large copies.
    pub(crate) fn mapped(&self) -> u64 {
        let file = self.file.as_ref().map_or(0, |file| file.bytes().len() as u64);
        let copies =
            self.sections.iter().filter_map(|(_, bytes)| if let Bytes::Copied(copy) = bytes { Some(copy) } else { None });
        file + copies.map(Copy::mapped).sum::<u64>()
    }
}

/// Returns `.debug_info` for `.zdebug_info`, and any other name unchanged.
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

/// Returns a reader of the section's unpacked bytes, and their number.
fn contents<'a>(source: &'a Source, section: &NamedSection) -> Result<(Box<dyn Read + 'a>, u64), Reason> {
    let range = section.file.clone();
    match (section.name.starts_with(".z"), section.compressed) {
        (true, _) => unpack_old(source, range),
        (false, true) => unpack(source, range),
        (false, false) => Ok((Box::new(source.reader(range.clone())), range.end.saturating_sub(range.start))),
    }
}

/// Reads a compressed section: `Elf64_Chdr`, then zlib (1) or zstd (2). (gABI, "Compressed sections".)
fn unpack(source: &Source, range: Range<u64>) -> Result<(Box<dyn Read + '_>, u64), Reason> {
    let header = source.read(range.start, CHDR.min(range.end - range.start), CHDR)?;
    let (kind, size) = u32_at(&header, 0).zip(u64_at(&header, 8)).ok_or(Reason::Truncated)?;
    let start = range.start.checked_add(CHDR).filter(|start| *start <= range.end).ok_or(Reason::Truncated)?;
    let packed = BufReader::new(source.reader(start..range.end));
    let reader = Compression::of(kind).and_then(|compression| compression.reader(packed)).ok_or(Reason::MalformedDwarf)?;
    Ok((reader, size))
}

/// Reads the older compressed form: `ZLIB`, the size as eight big-endian bytes, then zlib.
fn unpack_old(source: &Source, range: Range<u64>) -> Result<(Box<dyn Read + '_>, u64), Reason> {
    const HEADER: u64 = 12;
    let header = source.read(range.start, HEADER.min(range.end - range.start), HEADER)?;
    let size = header.strip_prefix(b"ZLIB").and_then(|size| size.first_chunk()).ok_or(Reason::MalformedDwarf)?;
    let packed = BufReader::new(source.reader(range.start + HEADER..range.end));
    Ok((Compression::Zlib.reader(packed).ok_or(Reason::MalformedDwarf)?, u64::from_be_bytes(*size)))
}
