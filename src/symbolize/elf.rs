//! The parts of an ELF image that naming needs: segments, code sections, symbol tables, build id.
//!
//! Layouts are those of the System V ABI, chapter "Object Files" (<https://gabi.xinuos.com/>), 64-bit little-endian only: the
//! machines flametop runs on are that, and 32-bit processes are not walked. Fields are read by hand at their offsets
//! because buffers read from files are not aligned and nothing but a few fields of each header matters.
//!
//! Every count and length in the file is a claim of a hostile process: each is held against a limit and the file's length
//! before anything is allocated or read.
//!
//! Not by the library `object`: without a mapping it reads through a cache that never lets go and that hostile headers can make
//! larger than the file. Not shared with `collector/unwind/elf.rs`: other parts matter there, and other bounds hold.

use std::ops::Range;

use super::problem::Reason;
use super::relocate::Placed;
use super::source::{Source, u16_at, u32_at, u64_at};
use crate::profile::{BuildId, ElfAddress, FileOffset};

/// Sizes of the headers and of a symbol, fixed by the ABI.
const EHDR: usize = 64;
const PHDR: usize = 56;
const SHDR: usize = 64;
pub(super) const SYM: usize = 24;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;

/// Programs have about a dozen segments; a count past this is an attack.
const MAX_SEGMENTS: u16 = 4096;
/// Executable segments kept; programs have one or two.
const MAX_LOADS: usize = 64;
/// Linked files have some tens of sections; this leaves room for what is linked without merging them (12.8 MB of headers).
const MAX_SECTIONS: u64 = 200_000;
/// Notes are tens of bytes; Go's and package metadata notes some hundred.
const MAX_NOTES: u64 = 64 << 10;
/// Note areas looked at for a build id.
const MAX_NOTE_AREAS: usize = 16;
/// Section names read for the sake of debug sections.
const MAX_SECTION_NAMES: u64 = 16 << 20;
/// Sections given by name; those that anybody asks for are some twenty.
const MAX_NAMED: usize = 256;
/// Longest symbol name read.
const MAX_NAME: usize = 64 << 10;

/// An executable `PT_LOAD` segment.
#[derive(Clone, Debug)]
struct Load {
    file: Range<u64>,
    address: u64,
}

/// A section header's fields that matter.
#[derive(Clone, Copy, Debug)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    entry_size: u64,
}

/// A symbol table and its strings, as places in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Table {
    pub(super) offset: u64,
    pub(super) count: u64,
    pub(super) strings: u64,
    pub(super) strings_size: u64,
}

/// What the code is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Machine {
    X86_64,
    Arm64,
}

impl Machine {
    /// Whether a relocation of this type puts a function's address into a slot: `GLOB_DAT` and `JUMP_SLOT`.
    pub(super) fn fills_slot(self, kind: u32) -> bool {
        match self {
            Machine::X86_64 => matches!(kind, 6 | 7),
            Machine::Arm64 => matches!(kind, 1025 | 1026),
        }
    }
}

/// Which table a symbol is from; also how its string offset is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableKind {
    /// `.symtab`: everything, unless stripped.
    Full,
    /// `.dynsym`: what is imported and exported.
    Dynamic,
}

/// An ELF image whose headers were read and found sound.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) source: Source,
    loads: Vec<Load>,
    code: Vec<Range<u64>>,
    full: Option<Table>,
    dynamic: Option<Table>,
    /// Where the section headers are: read again for debug sections, not kept.
    sections: Option<(u64, u64, u32)>,
    build_id: Option<BuildId>,
    machine: Option<Machine>,
    /// Where its sections are, if it is not linked and somebody has found out.
    pub(super) placed: Option<Placed>,
}

impl Image {
    /// Reads the headers. Fails with the reason why this image will never name anything.
    pub(super) fn read(source: Source) -> Result<Image, Reason> {
        let mut header = [0; EHDR];
        match source.read_exact(0, &mut header) {
            Err(Reason::Truncated) => return Err(Reason::Malformed),
            other => other?,
        }
        let [magic @ .., class, data, version] = header.first_chunk::<7>().copied().unwrap_or_default();
        if magic != *b"\x7fELF" || version != 1 {
            return Err(Reason::Malformed);
        }
        if (class, data) != (2, 1) {
            return Err(Reason::Unsupported);
        }
        let (loads, note_segments) = read_segments(&source, &header)?;
        let (sections, place) = read_sections(&source, &header)?;
        let code = code_ranges(&sections, &loads);
        let build_id = read_build_id(&source, &note_segments, &sections);
        let full = find_table(&sections, SHT_SYMTAB);
        let dynamic = find_table(&sections, SHT_DYNSYM);
        let machine = match u16_at(&header, 18) {
            Some(62) => Some(Machine::X86_64),
            Some(183) => Some(Machine::Arm64),
            _ => None,
        };
        Ok(Image { source, loads, code, full, dynamic, sections: place, build_id, machine, placed: None })
    }

    /// What its code is for, where it is one of ours.
    pub(super) fn machine(&self) -> Option<Machine> {
        self.machine
    }

    /// What the linker called this build.
    pub(super) fn build_id(&self) -> Option<BuildId> {
        self.build_id
    }

    /// Whether the image still has its full symbol table.
    pub(super) fn has_full_table(&self) -> bool {
        self.full.is_some()
    }

    /// The place of a symbol table in the file.
    pub(super) fn table(&self, kind: TableKind) -> Option<Table> {
        match kind {
            TableKind::Full => self.full,
            TableKind::Dynamic => self.dynamic,
        }
    }

    /// The virtual address of a position in the file, by the executable segment that holds it:
    ///
    /// ```text
    /// address = p_vaddr + (offset − p_offset)    where p_offset ≤ offset < p_offset + p_filesz
    /// ```
    ///
    /// Each segment has its own distance between the two: lld and mold move each one by a page more. Position-independent
    /// or not makes no difference, since the load address is not part of it.
    pub(super) fn elf_address(&self, offset: FileOffset) -> Option<ElfAddress> {
        let load = self.loads.iter().find(|load| load.file.contains(&offset.0))?;
        load.address.checked_add(offset.0 - load.file.start).map(ElfAddress)
    }

    /// The position in the file of a virtual address of code: the other way round.
    pub(super) fn file_offset(&self, address: ElfAddress) -> Option<FileOffset> {
        self.loads.iter().find_map(|load| {
            let within = address.0.checked_sub(load.address)?;
            let offset = load.file.start.checked_add(within)?;
            load.file.contains(&offset).then_some(FileOffset(offset))
        })
    }

    /// The code section (or, where there are no sections, the executable segment) that holds an address.
    pub(super) fn code_around(&self, address: u64) -> Option<&Range<u64>> {
        let after = self.code.partition_point(|range| range.start <= address);
        self.code.get(after.checked_sub(1)?).filter(|range| range.contains(&address))
    }

    /// A name from a string table: what comes before the NUL, or `None` where there is none within 64 KiB.
    pub(super) fn string(&self, kind: TableKind, offset: u32) -> Result<Option<Vec<u8>>, Reason> {
        let Some(table) = self.table(kind) else { return Ok(None) };
        self.string_in(table.strings, table.strings_size, offset)
    }

    /// The same from `size` bytes of names at `strings`.
    pub(super) fn string_in(&self, strings: u64, size: u64, offset: u32) -> Result<Option<Vec<u8>>, Reason> {
        // 240 bytes hold 98 % of node's names and 87 % of librustc_driver's; the longest of both has 1,222.
        const STEPS: [usize; 3] = [240, 4096, MAX_NAME];
        let left = size.saturating_sub(u64::from(offset));
        for step in STEPS {
            let length = left.min(step as u64);
            let mut bytes = self.source.read(strings.saturating_add(u64::from(offset)), length, MAX_NAME as u64)?;
            if let Some(end) = memchr::memchr(0, &bytes) {
                bytes.truncate(end);
                return Ok(Some(bytes));
            }
            if length == left {
                break;
            }
        }
        Ok(None)
    }

    /// The sections with contents whose name is `wanted`, in the order of the file.
    ///
    /// Fails where the file ends before its headers or names do.
    pub(super) fn sections_named(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<NamedSection>, Reason> {
        let mut named = Vec::new();
        self.each_section(|index, name, section| {
            let Some(end) = section.offset.checked_add(section.size) else { return };
            if section.kind != SHT_NOBITS && named.len() < MAX_NAMED && wanted(name) {
                named.push(NamedSection {
                    index,
                    name: name.into(),
                    address: section.address,
                    file: section.offset..end,
                    compressed: section.flags & SHF_COMPRESSED != 0,
                    entry_size: section.entry_size,
                });
            }
        })?;
        Ok(named)
    }

    /// All sections that are in memory when it runs; in debug files, too, which have nothing but their headers.
    pub(super) fn loaded_sections(&self) -> Result<Vec<LoadedSection>, Reason> {
        let mut loaded = Vec::new();
        self.each_section(|index, name, section| {
            if section.flags & SHF_ALLOC != 0 {
                let is_code = section.flags & SHF_EXECINSTR != 0;
                loaded.push(LoadedSection { index, name: name.into(), size: section.size, is_code });
            }
        })?;
        Ok(loaded)
    }

    /// Of each section that has relocations its number, and where in the file they are.
    pub(super) fn relocations(&self) -> Result<Vec<(usize, Range<u64>)>, Reason> {
        let mut found = Vec::new();
        self.each_section(|_, _, section| {
            if let Some(end) = section.offset.checked_add(section.size).filter(|_| section.kind == SHT_RELA) {
                found.push((section.info as usize, section.offset..end));
            }
        })?;
        Ok(found)
    }

    /// Number, name and header of each section that has a name.
    fn each_section(&self, mut each: impl FnMut(usize, &str, &Section)) -> Result<(), Reason> {
        let Some((offset, count, names)) = self.sections else { return Ok(()) };
        let headers = self.source.read(offset, count * SHDR as u64, MAX_SECTIONS * SHDR as u64)?;
        let section = |index: usize| headers.get(index * SHDR..).and_then(parse_section);
        let Some(names) = section(names as usize) else { return Ok(()) };
        let names = self.source.read(names.offset, names.size, MAX_SECTION_NAMES)?;
        for (index, section) in headers.chunks_exact(SHDR).filter_map(parse_section).enumerate() {
            let name = names.get(section.name as usize..).and_then(|rest| rest.split(|byte| *byte == 0).next());
            if let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) {
                each(index, name, &section);
            }
        }
        Ok(())
    }
}

/// A section that is in memory when the image runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LoadedSection {
    pub(super) index: usize,
    pub(super) name: Box<str>,
    pub(super) size: u64,
    pub(super) is_code: bool,
}

/// A section found by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedSection {
    pub(super) index: usize,
    pub(super) name: Box<str>,
    /// Its virtual address, or 0.
    pub(super) address: u64,
    /// Where it is in the file; not held against the file's length.
    pub(super) file: Range<u64>,
    /// Whether it begins with an `Elf64_Chdr` and is unpacked to be read.
    pub(super) compressed: bool,
    /// Size of its entries, where it has any of one size; as the file claims.
    pub(super) entry_size: u64,
}

/// The executable segments, and where notes are.
fn read_segments(source: &Source, header: &[u8]) -> Result<(Vec<Load>, Vec<Note>), Reason> {
    let offset = u64_at(header, 32).ok_or(Reason::Malformed)?;
    let (size, count) = (u16_at(header, 54).unwrap_or(0), u16_at(header, 56).unwrap_or(0));
    if count > 0 && (usize::from(size) != PHDR || count > MAX_SEGMENTS) {
        return Err(Reason::Malformed);
    }
    let length = u64::from(count) * PHDR as u64;
    let bytes = source.read(offset, length, u64::from(MAX_SEGMENTS) * PHDR as u64)?;
    let (mut loads, mut notes) = (Vec::new(), Vec::new());
    for segment in bytes.chunks_exact(PHDR) {
        let kind = u32_at(segment, 0).unwrap_or(0);
        let flags = u32_at(segment, 4).unwrap_or(0);
        let field = |at| u64_at(segment, at).unwrap_or(0);
        let (offset, address, file_size, align) = (field(8), field(16), field(32), field(48));
        let Some(end) = offset.checked_add(file_size) else { continue };
        match kind {
            PT_LOAD if flags & PF_X != 0 && loads.len() < MAX_LOADS => loads.push(Load { file: offset..end, address }),
            PT_NOTE if notes.len() < MAX_NOTE_AREAS => notes.push(Note { offset, size: file_size, align }),
            _ => {}
        }
    }
    Ok((loads, notes))
}

struct Note {
    offset: u64,
    size: u64,
    align: u64,
}

/// The section headers, and their place: offset, count, index of the section of names. A file may have none.
#[allow(clippy::type_complexity)]
fn read_sections(source: &Source, header: &[u8]) -> Result<(Vec<Section>, Option<(u64, u64, u32)>), Reason> {
    let offset = u64_at(header, 40).unwrap_or(0);
    let size = u16_at(header, 58).unwrap_or(0);
    let mut count = u64::from(u16_at(header, 60).unwrap_or(0));
    let mut names = u32::from(u16_at(header, 62).unwrap_or(0));
    if offset == 0 {
        return Ok((Vec::new(), None));
    }
    if usize::from(size) != SHDR {
        return Err(Reason::Malformed);
    }
    // Section 0 holds what does not fit into the 16 bits of the file header.
    let first = source.read(offset, SHDR as u64, SHDR as u64)?;
    let first = parse_section(&first).ok_or(Reason::Malformed)?;
    if count == 0 {
        count = first.size;
    }
    if names == 0xffff {
        names = first.link;
    }
    if count > MAX_SECTIONS {
        return Err(Reason::TooLarge);
    }
    let bytes = source.read(offset, count * SHDR as u64, MAX_SECTIONS * SHDR as u64)?;
    let sections = bytes.chunks_exact(SHDR).filter_map(parse_section).collect();
    Ok((sections, Some((offset, count, names))))
}

fn parse_section(bytes: &[u8]) -> Option<Section> {
    Some(Section {
        name: u32_at(bytes, 0)?,
        kind: u32_at(bytes, 4)?,
        flags: u64_at(bytes, 8)?,
        address: u64_at(bytes, 16)?,
        offset: u64_at(bytes, 24)?,
        size: u64_at(bytes, 32)?,
        link: u32_at(bytes, 40)?,
        info: u32_at(bytes, 44)?,
        entry_size: u64_at(bytes, 56)?,
    })
}

/// The first symbol table of a kind that has strings.
fn find_table(sections: &[Section], kind: u32) -> Option<Table> {
    let table = sections.iter().find(|section| section.kind == kind && section.entry_size == SYM as u64 && section.size > 0)?;
    let strings = sections.get(table.link as usize)?;
    (strings.kind != SHT_NOBITS && strings.size > 0).then_some(Table {
        offset: table.offset,
        count: table.size / SYM as u64,
        strings: strings.offset,
        strings_size: strings.size,
    })
}

/// Where code is, in order of address: executable sections as far as an executable segment holds them, or, without
/// sections, those segments.
fn code_ranges(sections: &[Section], loads: &[Load]) -> Vec<Range<u64>> {
    let segments = loads.iter().filter_map(|load| {
        let end = load.address.checked_add(load.file.end - load.file.start)?;
        (end > load.address).then_some(load.address..end)
    });
    let segments: Vec<Range<u64>> = segments.collect();
    let is_code = |section: &&Section| {
        section.flags & (SHF_ALLOC | SHF_EXECINSTR) == SHF_ALLOC | SHF_EXECINSTR && section.kind != SHT_NOBITS
    };
    let mut ranges: Vec<Range<u64>> = sections
        .iter()
        .filter(is_code)
        .filter_map(|section| {
            let segment = segments.iter().find(|segment| segment.contains(&section.address))?;
            let end = section.address.checked_add(section.size)?.min(segment.end);
            (end > section.address).then_some(section.address..end)
        })
        .collect();
    if ranges.is_empty() {
        ranges = segments;
    }
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges
}

/// The build id, from the note segments, or from the note sections where a file has no such segment.
fn read_build_id(source: &Source, segments: &[Note], sections: &[Section]) -> Option<BuildId> {
    let sections = sections.iter().filter(|section| section.kind == SHT_NOTE).take(MAX_NOTE_AREAS);
    let sections = sections.map(|section| Note { offset: section.offset, size: section.size, align: 4 });
    let areas = segments.iter().map(|note| Note { ..*note }).chain(sections);
    areas
        .filter_map(|note| Some((source.read(note.offset, note.size, MAX_NOTES).ok()?, note.align)))
        .find_map(|(bytes, align)| BuildId::in_notes(&bytes, align))
}
