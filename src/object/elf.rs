//! The parts of an ELF image that naming needs: segments, code sections, symbol tables, build id.

use std::ops::Range;
use std::sync::OnceLock;

use super::bytes::Source;
use super::function_bounds::FunctionBounds;
use super::headers::{
    Arch, FileHeader, PT_NOTE, ProgramHeader, SHF_ALLOC, SHF_COMPRESSED, SHF_EXECINSTR, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE,
    SHT_RELA, SHT_SYMTAB, SYMBOL, SectionHeader, SectionHeaders,
};
use super::read_at::Unreadable;
use super::reason::Reason;
use crate::profile::{BuildId, ElfAddress, FileOffset};

/// Most segments. Programs have about a dozen; a larger count is an attack.
const MAX_SEGMENTS: u16 = 4096;
/// Executable segments kept; programs have one or two.
const MAX_LOADS: usize = 64;
/// Most sections. Linked files have some tens; this leaves room for files that are linked without merging sections (12.8 MB of headers).
const MAX_SECTIONS: u64 = 200_000;
/// Notes are tens of bytes; Go's and package metadata notes some hundred.
const MAX_NOTES: u64 = 64 << 10;
/// Most note areas that are searched for a build id.
const MAX_NOTE_AREAS: usize = 16;
/// Bytes of section names that are read, to find debug sections.
const MAX_SECTION_NAMES: u64 = 16 << 20;
/// Most sections that are returned by name; callers need about twenty.
const MAX_NAMED: usize = 256;
/// Longest symbol name read.
const MAX_NAME: usize = 64 << 10;

/// An executable `PT_LOAD` segment.
#[derive(Clone, Debug)]
struct Load {
    file: Range<u64>,
    address: u64,
}

/// A symbol table and its strings, as places in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SymbolTable {
    pub(crate) offset: u64,
    pub(crate) count: u64,
    pub(crate) strings: u64,
    pub(crate) strings_size: u64,
}

/// Whether a relocation of this type puts a function's address into a slot: `GLOB_DAT` and `JUMP_SLOT`.
pub(crate) fn fills_slot(arch: Arch, kind: u32) -> bool {
    match arch {
        Arch::X86_64 => matches!(kind, 6 | 7),
        Arch::Aarch64 => matches!(kind, 1025 | 1026),
    }
}

/// The symbol table of a symbol. It also tells how the symbol's string offset is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableKind {
    /// `.symtab`: everything, unless stripped.
    Full,
    /// `.dynsym`: imported and exported symbols.
    Dynamic,
}

/// Addresses of the sections of a file that is not linked, by section number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed(pub(crate) Vec<Option<u64>>);

/// An ELF image whose headers were read and found sound.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) source: Source,
    loads: Vec<Load>,
    code: Vec<Range<u64>>,
    full: Option<SymbolTable>,
    dynamic: Option<SymbolTable>,
    /// The place of the section headers. They are read again for debug sections, and not kept.
    sections: Option<SectionHeaders>,
    build_id: Option<BuildId>,
    arch: Option<Arch>,
    /// The begins and ends of its functions, read at the first use.
    functions: OnceLock<Option<FunctionBounds>>,
    /// The addresses of its sections, if it is not linked and they are known.
    pub(crate) placed: Option<Placed>,
}

impl Image {
    /// Reads the headers. Fails with the reason why this image can never name anything.
    pub(crate) fn read(source: Source) -> Result<Image, Reason> {
        let header = FileHeader::read(&source)?;
        let segments = header.program_headers(&source, MAX_SEGMENTS)?;
        let place = header.sections(&source, MAX_SECTIONS)?;
        let sections = place.map(|place| place.read(&source)).transpose()?.unwrap_or_default();
        let loads = loads(&segments);
        let code = code_ranges(&sections, &loads);
        let build_id = read_build_id(&source, &segments, &sections);
        let full = find_table(&sections, SHT_SYMTAB);
        let dynamic = find_table(&sections, SHT_DYNSYM);
        let (arch, functions) = (header.arch, OnceLock::new());
        Ok(Image { source, loads, code, full, dynamic, sections: place, build_id, arch, functions, placed: None })
    }

    /// Returns the function that holds an address, according to the unwind information.
    pub(crate) fn function_around(&self, address: ElfAddress) -> Option<Range<u64>> {
        self.functions()?.around(&self.source, address)
    }

    /// Returns the latest possible end of code that begins at an address: see [`FunctionBounds::end_of`].
    pub(crate) fn end_of_code_at(&self, address: ElfAddress) -> Option<u64> {
        self.functions()?.end_of(&self.source, address)
    }

    fn functions(&self) -> Option<&FunctionBounds> {
        self.functions.get_or_init(|| FunctionBounds::of(&self.source)).as_ref()
    }

    /// Returns the instruction set of its code, if we support it.
    pub(crate) fn arch(&self) -> Option<Arch> {
        self.arch
    }

    /// Returns the build id, which the linker gave this build.
    pub(crate) fn build_id(&self) -> Option<BuildId> {
        self.build_id
    }

    /// Whether the image still has its full symbol table.
    pub(crate) fn has_full_table(&self) -> bool {
        self.full.is_some()
    }

    /// Returns the place of a symbol table in the file.
    pub(crate) fn table(&self, kind: TableKind) -> Option<SymbolTable> {
        match kind {
            TableKind::Full => self.full,
            TableKind::Dynamic => self.dynamic,
        }
    }

    /// Returns the virtual address of a position in the file, from the executable segment that holds it:
    ///
    /// ```text
    /// address = p_vaddr + (offset − p_offset)    where p_offset ≤ offset < p_offset + p_filesz
    /// ```
    ///
    /// The distance between the two differs by segment: lld and mold move each segment by one more page. It makes no difference whether the
    /// file is position-independent, since the load address is not part of the result.
    pub(crate) fn elf_address(&self, offset: FileOffset) -> Option<ElfAddress> {
        let load = self.loads.iter().find(|load| load.file.contains(&offset.0))?;
        load.address.checked_add(offset.0 - load.file.start).map(ElfAddress)
    }

    /// Returns the position in the file of a virtual address of code: the inverse of [`Image::elf_address`].
    pub(crate) fn file_offset(&self, address: ElfAddress) -> Option<FileOffset> {
        self.loads.iter().find_map(|load| {
            let within = address.0.checked_sub(load.address)?;
            let offset = load.file.start.checked_add(within)?;
            load.file.contains(&offset).then_some(FileOffset(offset))
        })
    }

    /// Returns the code section that holds an address. If there are no sections, returns the executable segment.
    pub(crate) fn code_around(&self, address: u64) -> Option<&Range<u64>> {
        let after = self.code.partition_point(|range| range.start <= address);
        self.code.get(after.checked_sub(1)?).filter(|range| range.contains(&address))
    }

    /// Returns a name from a string table: the bytes before the NUL, or `None` if there is no NUL within 64 KiB.
    pub(crate) fn string(&self, kind: TableKind, offset: u32) -> Result<Option<Vec<u8>>, Reason> {
        let Some(table) = self.table(kind) else { return Ok(None) };
        self.string_in(table.strings, table.strings_size, offset)
    }

    /// Returns a name from `size` bytes of names at `strings`.
    pub(crate) fn string_in(&self, strings: u64, size: u64, offset: u32) -> Result<Option<Vec<u8>>, Reason> {
        // 240 bytes hold 98 % of node's names and 87 % of librustc_driver's. The longest name of both has 1,222.
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

    /// Returns the sections with contents whose name is `wanted`, in the order of the file.
    ///
    /// Fails if the file ends before its headers or names do.
    pub(crate) fn sections_named(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<NamedSection>, Reason> {
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

    /// Returns all sections that are in memory when the image runs. Debug files have these too, but only their headers.
    pub(crate) fn loaded_sections(&self) -> Result<Vec<LoadedSection>, Reason> {
        let mut loaded = Vec::new();
        self.each_section(|index, name, section| {
            if section.flags & SHF_ALLOC != 0 {
                let is_code = section.flags & SHF_EXECINSTR != 0;
                loaded.push(LoadedSection { index, name: name.into(), size: section.size, is_code });
            }
        })?;
        Ok(loaded)
    }

    /// Returns the number of each section that has relocations, with the place of the relocations in the file.
    pub(crate) fn relocations(&self) -> Result<Vec<(usize, Range<u64>)>, Reason> {
        let mut found = Vec::new();
        self.each_section(|_, _, section| {
            if let Some(end) = section.offset.checked_add(section.size).filter(|_| section.kind == SHT_RELA) {
                found.push((section.info as usize, section.offset..end));
            }
        })?;
        Ok(found)
    }

    /// Visits number, name and header of each section that has a name.
    fn each_section(&self, mut each: impl FnMut(usize, &str, &SectionHeader)) -> Result<(), Reason> {
        let Some(place) = self.sections else { return Ok(()) };
        let sections = match place.read_named(&self.source, MAX_SECTION_NAMES) {
            // No section has a name.
            Err(Unreadable::Damaged(_)) => return Ok(()),
            sections => sections?,
        };
        for (index, section) in sections.headers.iter().enumerate() {
            if let Some(name) = sections.name(section).and_then(|name| std::str::from_utf8(name).ok()) {
                each(index, name, section);
            }
        }
        Ok(())
    }
}

/// A section that is in memory when the image runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoadedSection {
    pub(crate) index: usize,
    pub(crate) name: Box<str>,
    pub(crate) size: u64,
    pub(crate) is_code: bool,
}

/// A section found by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamedSection {
    pub(crate) index: usize,
    pub(crate) name: Box<str>,
    /// Its virtual address, or 0.
    pub(crate) address: u64,
    /// Its place in the file; not compared with the file's length.
    pub(crate) file: Range<u64>,
    /// Whether it begins with an `Elf64_Chdr` and must be unpacked.
    pub(crate) compressed: bool,
    /// Size of its entries as the file claims, if all have one size.
    pub(crate) entry_size: u64,
}

/// Returns the executable segments.
fn loads(segments: &[ProgramHeader]) -> Vec<Load> {
    let code = segments.iter().filter(|segment| segment.is_code());
    let load = |segment: &ProgramHeader| {
        let end = segment.offset.checked_add(segment.file_size)?;
        Some(Load { file: segment.offset..end, address: segment.address })
    };
    code.filter_map(load).take(MAX_LOADS).collect()
}

/// Returns the first symbol table of a kind that has strings.
fn find_table(sections: &[SectionHeader], kind: u32) -> Option<SymbolTable> {
    let table =
        sections.iter().find(|section| section.kind == kind && section.entry_size == SYMBOL as u64 && section.size > 0)?;
    let strings = sections.get(table.link as usize)?;
    (strings.kind != SHT_NOBITS && strings.size > 0).then_some(SymbolTable {
        offset: table.offset,
        count: table.size / SYMBOL as u64,
        strings: strings.offset,
        strings_size: strings.size,
    })
}

/// Returns the ranges of code, in order of address: executable sections, as far as an executable segment holds them. If there are no
/// sections, returns those segments.
fn code_ranges(sections: &[SectionHeader], loads: &[Load]) -> Vec<Range<u64>> {
    let segments = loads.iter().filter_map(|load| {
        let end = load.address.checked_add(load.file.end - load.file.start)?;
        (end > load.address).then_some(load.address..end)
    });
    let segments: Vec<Range<u64>> = segments.collect();
    let is_code = |section: &&SectionHeader| section.is_code() && section.flags & SHF_ALLOC != 0;
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

/// Returns the build id from the note segments. If a file has no note segment, it is taken from the note sections.
fn read_build_id(source: &Source, segments: &[ProgramHeader], sections: &[SectionHeader]) -> Option<BuildId> {
    let segments = segments.iter().filter(|segment| segment.kind == PT_NOTE).take(MAX_NOTE_AREAS);
    let segments = segments.map(|segment| (segment.offset, segment.file_size, segment.align));
    let sections = sections.iter().filter(|section| section.kind == SHT_NOTE).take(MAX_NOTE_AREAS);
    let sections = sections.map(|section| (section.offset, section.size, 4));
    segments
        .chain(sections)
        .filter_map(|(offset, size, align)| Some((source.read(offset, size, MAX_NOTES).ok()?, align)))
        .find_map(|(bytes, align)| BuildId::in_notes(&bytes, align))
}
