//! The parts of an ELF64 file that unwinding needs: executable segments, sections by name, where `.eh_frame` is.
//!
//! Headers are hostile: their numbers are bounded, nothing is allocated by what they claim beyond what the file has.
//! Not by the library `object`, for the reason that `symbolize/elf.rs` gives, whose parts and bounds are others.

use super::bytes::Cursor;
use super::entries::Format;
use super::rule::Arch;
use super::source::{Compression, Image, LARGEST_SECTION, Unreadable, read, unpack};

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const SHT_NOBITS: u32 = 8;
const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
/// `STT_NOTYPE`, `STT_FUNC`, `STT_GNU_IFUNC`.
const SYMBOL_LABEL: u8 = 0;
const SYMBOL_FUNCTION: u8 = 2;
const SYMBOL_CHOOSER: u8 = 10;
/// Of a symbol's name so much is looked at.
const LONGEST_SYMBOL: usize = 512;

/// Sections beyond these are not looked at; programs have some 40.
const MOST_SECTIONS: u64 = 4096;
/// Loadable segments beyond these are not looked at; programs have 4 or 5. Some searches are linear in them.
const MOST_SEGMENTS: usize = 64;
const LARGEST_NAMES: u64 = 1 << 20;

/// A loadable segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) offset: u64,
    /// Bytes that come from the file; those are what code is in.
    pub(super) size: u64,
    pub(super) executable: bool,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// A section header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SectionHeader {
    pub(super) name: Vec<u8>,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    kind: u32,
    flags: u64,
    /// The number of the section of names, for symbols.
    link: u32,
}

/// The headers of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Elf {
    pub(super) arch: Arch,
    pub(super) entry: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) sections: Vec<SectionHeader>,
    /// ELF address of `.eh_frame_hdr`, from the program headers.
    eh_frame_hdr: Option<u64>,
}

/// Unwind information, in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Information {
    pub(super) name: &'static str,
    pub(super) format: Format,
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether a zero length ends it: its size is not known.
    pub(super) terminated: bool,
}

impl Elf {
    pub(super) fn read(image: &(impl Image + ?Sized)) -> Result<Elf, Unreadable> {
        let mut header = [0; 64];
        if image.length() < 64 {
            return Err(Unreadable::NotElf);
        }
        image.read_exact_at(0, &mut header)?;
        Elf::parse(&header, image)
    }

    fn parse(header: &[u8; 64], image: &(impl Image + ?Sized)) -> Result<Elf, Unreadable> {
        let damaged = || Unreadable::Damaged("file header");
        let [0x7f, b'E', b'L', b'F', class, order, ..] = header else { return Err(Unreadable::NotElf) };
        if (*class, *order) != (2, 1) {
            return Err(Unreadable::NotOurs);
        }
        let mut cursor = Cursor::new(header);
        cursor.take(16).ok_or_else(damaged)?;
        let kind = cursor.u16().ok_or_else(damaged)?;
        let arch = match cursor.u16() {
            Some(EM_X86_64) if matches!(kind, ET_EXEC | ET_DYN) => Arch::X86_64,
            Some(EM_AARCH64) if matches!(kind, ET_EXEC | ET_DYN) => Arch::Aarch64,
            _ => return Err(Unreadable::NotOurs),
        };
        cursor.u32().ok_or_else(damaged)?;
        let mut number = || cursor.u64().ok_or_else(damaged);
        let (entry, segments_at, sections_at) = (number()?, number()?, number()?);
        cursor.take(6).ok_or_else(damaged)?;
        let mut number = || cursor.u16().ok_or_else(damaged);
        let (segment_size, segment_count) = (number()?, number()?);
        let (section_size, section_count, names) = (number()?, number()?, number()?);
        let mut elf = Elf { arch, entry, segments: Vec::new(), sections: Vec::new(), eh_frame_hdr: None };
        if segment_count > 0 && segment_size != 56 {
            return Err(Unreadable::Damaged("program headers"));
        }
        let table = read(image, segments_at, u64::from(segment_count) * 56, u64::MAX, "program headers")?;
        for header in table.chunks_exact(56) {
            elf.segment(header, image.length()).ok_or(Unreadable::Damaged("program headers"))?;
        }
        // Without section headers there is still PT_GNU_EH_FRAME.
        if sections_at != 0 && section_size == 64 {
            drop(elf.read_sections(image, sections_at, section_count.into(), names.into()));
        }
        Ok(elf)
    }

    fn segment(&mut self, header: &[u8], file_length: u64) -> Option<()> {
        let mut cursor = Cursor::new(header);
        let (kind, flags) = (cursor.u32()?, cursor.u32()?);
        let (offset, address) = (cursor.u64()?, cursor.u64()?);
        cursor.u64()?;
        let (file_size, memory_size) = (cursor.u64()?, cursor.u64()?);
        if kind == PT_GNU_EH_FRAME {
            self.eh_frame_hdr = Some(address);
        }
        if kind == PT_LOAD && self.segments.len() < MOST_SEGMENTS {
            let size = file_size.min(memory_size).min(file_length.saturating_sub(offset)).min(u64::MAX - address);
            self.segments.push(Segment { address, offset, size, executable: flags & PF_X != 0 });
        }
        Some(())
    }

    fn read_sections(&mut self, image: &(impl Image + ?Sized), at: u64, count: u64, names: u64) -> Result<(), Unreadable> {
        let first = read(image, at, 64, 64, "section headers")?;
        // More than 65,279 sections, or names among those: the numbers are in the first header.
        let first = parse_section(&first).ok_or(Unreadable::Damaged("section headers"))?;
        let count = if count == 0 { first.1.size } else { count };
        let names = if names == 0xffff { u64::from(first.2) } else { names };
        let table = read(image, at, count.min(MOST_SECTIONS) * 64, MOST_SECTIONS * 64, "section headers")?;
        let parsed: Vec<_> = table.chunks_exact(64).filter_map(parse_section).collect();
        let names = usize::try_from(names).ok().and_then(|names| parsed.get(names));
        let (_, names, _) = names.ok_or(Unreadable::Damaged("section names"))?;
        let names = read(image, names.offset, names.size, LARGEST_NAMES, "section names")?;
        for (name, mut section, _) in parsed {
            let name = usize::try_from(name).ok().and_then(|name| names.get(name..));
            // Names that matter are short.
            let name = name.and_then(|rest| rest.get(..memchr::memchr(0, rest)?)).filter(|name| name.len() < 64);
            section.name = name.unwrap_or_default().to_vec();
            self.sections.push(section);
        }
        Ok(())
    }

    /// The first section of that name which has bytes.
    pub(super) fn section(&self, name: &str) -> Option<&SectionHeader> {
        self.sections.iter().find(|section| section.name == name.as_bytes() && section.kind != SHT_NOBITS)
    }

    /// A section's bytes, unpacked if need be.
    pub(super) fn bytes(&self, image: &(impl Image + ?Sized), section: &SectionHeader) -> Result<Vec<u8>, Unreadable> {
        let bytes = read(image, section.offset, section.size, LARGEST_SECTION, "a section")?;
        if section.flags & SHF_COMPRESSED == 0 {
            return Ok(bytes);
        }
        let mut header = Cursor::new(&bytes);
        let fields = (header.u32(), header.u32(), header.u64(), header.u64());
        match fields {
            (Some(1), Some(_), Some(size), Some(_)) => unpack(header.rest(), Compression::Zlib, size),
            (Some(2), Some(_), Some(size), Some(_)) => unpack(header.rest(), Compression::Zstd, size),
            _ => Err(Unreadable::Damaged("a compressed section")),
        }
    }

    /// The unwind information in a section, or why it cannot be had; `None` if there is none.
    pub(super) fn information(
        &self,
        image: &(impl Image + ?Sized),
        name: &'static str,
        format: Format,
    ) -> Option<Result<Information, Unreadable>> {
        let section = self.section(name).filter(|section| section.size > 0)?;
        let bytes = self.bytes(image, section);
        Some(bytes.map(|bytes| Information { name, format, address: section.address, bytes, terminated: false }))
    }

    /// `.eh_frame` by the program headers, for files without section headers: it has no length there, and ends with a zero
    /// word or with its segment. LSB 5.0, 10.6.2 "The .eh_frame_hdr section".
    pub(super) fn eh_frame_by_header(&self, image: &(impl Image + ?Sized)) -> Option<Result<Information, Unreadable>> {
        let header_at = self.eh_frame_hdr?;
        let mut header = [0; 16];
        image.read_exact_at(self.file_offset(header_at)?, &mut header).ok()?;
        let mut cursor = Cursor::new(&header);
        let (version, encoding) = (cursor.u8()?, cursor.u8()?);
        cursor.u16()?;
        let pointer_at = header_at.checked_add(4)?;
        let address = match encoding {
            // Relative to itself, 4 signed bytes: what all linkers write. Relative to the header; absolute.
            0x1b => pointer_at.wrapping_add_signed(cursor.u32()?.cast_signed().into()),
            0x3b => header_at.wrapping_add_signed(cursor.u32()?.cast_signed().into()),
            0x1c => pointer_at.wrapping_add(cursor.u64()?),
            0x03 => cursor.u32()?.into(),
            0x00 | 0x04 => cursor.u64()?,
            _ => return None,
        };
        if version != 1 {
            return None;
        }
        let segment = self.segment_of(address)?;
        let inside = address - segment.address;
        let bytes = read(image, segment.offset.checked_add(inside)?, segment.size - inside, LARGEST_SECTION, ".eh_frame");
        Some(bytes.map(|bytes| Information { name: ".eh_frame_hdr", format: Format::EhFrame, address, bytes, terminated: true }))
    }

    /// The segment that an address is in.
    pub(super) fn segment_of(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| (segment.address..segment.end()).contains(&address))
    }

    /// Where in the file an address is.
    pub(super) fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.segment_of(address)?;
        segment.offset.checked_add(address - segment.address)
    }

    /// How many bytes of code there are. Executable segments may have read-only data, too; sections tell, if they are there.
    pub(super) fn code_size(&self) -> u64 {
        let code = self.sections.iter().filter(|section| section.flags & SHF_EXECINSTR != 0 && section.kind != SHT_NOBITS);
        let size = code.fold(0u64, |sum, section| sum.saturating_add(section.size));
        if size > 0 { size } else { self.text().iter().map(|range| range.end - range.start).sum() }
    }

    /// Where code is: executable sections inside of executable segments, or those as a whole; sorted, without overlaps.
    pub(super) fn code(&self) -> Vec<std::ops::Range<u64>> {
        let text = self.text();
        let sections = self.sections.iter().filter(|section| section.flags & SHF_EXECINSTR != 0 && section.kind != SHT_NOBITS);
        let mut code: Vec<_> = sections
            .filter_map(|section| {
                let segment = text.iter().find(|segment| segment.contains(&section.address))?;
                Some(section.address..section.address.saturating_add(section.size).min(segment.end))
            })
            .collect();
        if code.is_empty() {
            return text;
        }
        code.sort_by_key(|range| range.start);
        let mut end = 0;
        code.retain_mut(|range| {
            range.start = range.start.max(end);
            end = end.max(range.end);
            range.start < range.end
        });
        code
    }

    /// Addresses of functions by symbol tables of up to `most` bytes, and whether it is said that they are functions. Parts that
    /// compilers put elsewhere (`f.cold`) are said to be, and are none.
    pub(super) fn functions(&self, image: &(impl Image + ?Sized), most: u64) -> Vec<(u64, bool)> {
        let tables =
            self.sections.iter().filter(|section| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM) && section.size <= most);
        let mut found = Vec::new();
        for table in tables {
            let bytes = self.bytes(image, table).unwrap_or_default();
            let names = self.sections.get(table.link as usize).filter(|names| names.size <= most);
            let names = names.and_then(|names| self.bytes(image, names).ok()).unwrap_or_default();
            found.extend(bytes.chunks_exact(24).filter_map(|symbol| {
                let mut cursor = Cursor::new(symbol);
                let name = usize::try_from(cursor.u32()?).ok();
                let (info, _, section) = (cursor.u8()?, cursor.u8()?, cursor.u16()?);
                let kind = info & 15;
                let is_code = section != 0 && matches!(kind, SYMBOL_LABEL | SYMBOL_FUNCTION | SYMBOL_CHOOSER);
                let name = name.and_then(|name| names.get(name..)).unwrap_or_default();
                // Names that are longer have it elsewhere than in their end; they show it themselves.
                let name = name.get(..LONGEST_SYMBOL).unwrap_or(name).split(|byte| *byte == 0).next().unwrap_or_default();
                let is_part = memchr::memmem::find(name, b".cold").is_some();
                Some((cursor.u64()?, kind != SYMBOL_LABEL)).filter(|_| is_code && !is_part)
            }));
        }
        found
    }

    /// Executable segments: sorted, without overlaps, `start..end`.
    pub(super) fn text(&self) -> Vec<std::ops::Range<u64>> {
        let executable = self.segments.iter().filter(|segment| segment.executable && segment.size > 0);
        let mut text: Vec<_> = executable.map(|segment| segment.address..segment.end()).collect();
        text.sort_by_key(|range| range.start);
        let mut end = 0;
        text.retain_mut(|range| {
            range.start = range.start.max(end);
            end = end.max(range.end);
            range.start < range.end
        });
        text
    }
}

/// Offset of the name, the header without its name, and `sh_link`.
fn parse_section(header: &[u8]) -> Option<(u32, SectionHeader, u32)> {
    let mut cursor = Cursor::new(header);
    let (name, kind) = (cursor.u32()?, cursor.u32()?);
    let (flags, address) = (cursor.u64()?, cursor.u64()?);
    let (offset, size) = (cursor.u64()?, cursor.u64()?);
    let link = cursor.u32()?;
    Some((name, SectionHeader { name: Vec::new(), address, offset, size, kind, flags, link }, link))
}
