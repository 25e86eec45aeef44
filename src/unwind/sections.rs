//! The parts of an ELF file that unwinding needs: executable segments, sections by name, where `.eh_frame` is.
//!
//! Headers are hostile: their numbers are bounded, and no allocation trusts a number that is larger than the file.

use super::cfi::entries::Format;
use crate::object::headers::{
    Arch, ET_DYN, ET_EXEC, FileHeader, PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader, SHF_COMPRESSED, SHT_DYNSYM, SHT_NOBITS,
    SHT_SYMTAB, SYMBOL, SectionHeader,
};
use crate::object::numbers::Cursor;
use crate::object::read_at::{ReadAt, Unreadable, read};
use crate::object::unpack::{Compression, LARGEST_SECTION, unpack};

/// `STT_NOTYPE`, `STT_FUNC`, `STT_GNU_IFUNC`.
const SYMBOL_LABEL: u8 = 0;
const SYMBOL_FUNCTION: u8 = 2;
const SYMBOL_CHOOSER: u8 = 10;
/// Most bytes of a symbol's name that are read.
const LONGEST_SYMBOL: usize = 512;

/// Sections beyond this number are ignored; programs have some 40.
const MOST_SECTIONS: u64 = 4096;
/// Loadable segments beyond this number are ignored; programs have 4 or 5. Some searches are linear in them.
const MOST_SEGMENTS: usize = 64;
const LARGEST_NAMES: u64 = 1 << 20;

/// A loadable segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) offset: u64,
    /// Bytes that come from the file. Code is in these.
    pub(crate) size: u64,
    pub(crate) executable: bool,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// A section and its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Section {
    pub(crate) name: Vec<u8>,
    pub(crate) header: SectionHeader,
}

/// The headers of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Elf {
    pub(crate) arch: Arch,
    pub(crate) entry: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sections: Vec<Section>,
    /// ELF address of `.eh_frame_hdr`, from the program headers.
    eh_frame_hdr: Option<u64>,
}

/// Unwind information, in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Information {
    pub(crate) name: &'static str,
    pub(crate) format: Format,
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
    /// Whether a zero length ends it, because its size is not known.
    pub(crate) terminated: bool,
}

impl Elf {
    pub(crate) fn read(image: &(impl ReadAt + ?Sized)) -> Result<Elf, Unreadable> {
        let header = FileHeader::read(image)?;
        let arch = header.arch.filter(|_| matches!(header.kind, ET_EXEC | ET_DYN)).ok_or(Unreadable::NotOurs)?;
        let mut elf = Elf { arch, entry: header.entry, segments: Vec::new(), sections: Vec::new(), eh_frame_hdr: None };
        for segment in header.program_headers(image, u16::MAX)? {
            elf.add(&segment, image.length());
        }
        // Without section headers there is still PT_GNU_EH_FRAME.
        elf.sections = sections(&header, image).unwrap_or_default();
        Ok(elf)
    }

    fn add(&mut self, header: &ProgramHeader, file_length: u64) {
        let ProgramHeader { offset, address, .. } = *header;
        if header.kind == PT_GNU_EH_FRAME {
            self.eh_frame_hdr = Some(address);
        }
        if header.kind == PT_LOAD && self.segments.len() < MOST_SEGMENTS {
            let size = header.file_size.min(header.memory_size);
            let size = size.min(file_length.saturating_sub(offset)).min(u64::MAX - address);
            self.segments.push(Segment { address, offset, size, executable: header.is_code() });
        }
    }

    /// Returns the first section of that name which has bytes.
    pub(crate) fn section(&self, name: &str) -> Option<&SectionHeader> {
        let mut headers = self.sections.iter().filter(|section| section.name == name.as_bytes()).map(|section| &section.header);
        headers.find(|header| header.kind != SHT_NOBITS)
    }

    /// Returns a section's bytes, unpacked if they are compressed.
    pub(crate) fn bytes(&self, image: &(impl ReadAt + ?Sized), section: &SectionHeader) -> Result<Vec<u8>, Unreadable> {
        let damaged = || Unreadable::Damaged("a compressed section");
        let bytes = read(image, section.offset, section.size, LARGEST_SECTION, "a section")?;
        if section.flags & SHF_COMPRESSED == 0 {
            return Ok(bytes);
        }
        let mut header = Cursor::new(&bytes);
        let (Some(kind), Some(_), Some(size), Some(_)) = (header.u32(), header.u32(), header.u64(), header.u64()) else {
            return Err(damaged());
        };
        unpack(header.rest(), Compression::of(kind).ok_or_else(damaged)?, size)
    }

    /// Returns the unwind information in a section, or why it cannot be read; `None` if there is none.
    pub(crate) fn information(
        &self,
        image: &(impl ReadAt + ?Sized),
        name: &'static str,
        format: Format,
    ) -> Option<Result<Information, Unreadable>> {
        let section = self.section(name).filter(|section| section.size > 0)?;
        let bytes = self.bytes(image, section);
        Some(bytes.map(|bytes| Information { name, format, address: section.address, bytes, terminated: false }))
    }

    /// Finds `.eh_frame` by the program headers, for files without section headers. It has no length there, and ends with a zero
    /// word or with its segment. LSB 5.0, 10.6.2 "The .eh_frame_hdr section".
    pub(crate) fn eh_frame_by_header(&self, image: &(impl ReadAt + ?Sized)) -> Option<Result<Information, Unreadable>> {
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

    /// Returns the segment that an address is in.
    pub(crate) fn segment_of(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| (segment.address..segment.end()).contains(&address))
    }

    /// Returns the offset of an address in the file.
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.segment_of(address)?;
        segment.offset.checked_add(address - segment.address)
    }

    /// Returns how many bytes of code there are. Executable segments may have read-only data, too; sections tell, if they are
    /// there.
    pub(crate) fn code_size(&self) -> u64 {
        let code = self.sections.iter().map(|section| &section.header).filter(|section| section.is_code());
        let size = code.fold(0u64, |sum, section| sum.saturating_add(section.size));
        if size > 0 { size } else { self.text().iter().map(|range| range.end - range.start).sum() }
    }

    /// Returns where code is: executable sections inside of executable segments, or those segments as a whole. The ranges are
    /// sorted, without overlaps.
    pub(crate) fn code(&self) -> Vec<std::ops::Range<u64>> {
        let text = self.text();
        let sections = self.sections.iter().map(|section| &section.header).filter(|section| section.is_code());
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

    /// Returns addresses of functions by symbol tables of up to `most` bytes, and whether their symbols call them functions.
    /// Symbols of parts that compilers put elsewhere (`f.cold`) say so too, and are wrong.
    pub(crate) fn functions(&self, image: &(impl ReadAt + ?Sized), most: u64) -> Vec<(u64, bool)> {
        let headers = || self.sections.iter().map(|section| &section.header);
        let tables = headers().filter(|section| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM) && section.size <= most);
        let mut found = Vec::new();
        for table in tables {
            let bytes = self.bytes(image, table).unwrap_or_default();
            let names = headers().nth(table.link as usize).filter(|names| names.size <= most);
            let names = names.and_then(|names| self.bytes(image, names).ok()).unwrap_or_default();
            found.extend(bytes.chunks_exact(SYMBOL).filter_map(|symbol| {
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

    /// Returns the executable segments: sorted, without overlaps, `start..end`.
    pub(crate) fn text(&self) -> Vec<std::ops::Range<u64>> {
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

/// Reads the sections. Those beyond [`MOST_SECTIONS`] are left out.
fn sections(header: &FileHeader, image: &(impl ReadAt + ?Sized)) -> Option<Vec<Section>> {
    let named = header.sections(image, MOST_SECTIONS).ok()??.read_named(image, LARGEST_NAMES).ok()?;
    // Names that matter are short.
    let name = |header| named.name(header).filter(|name| name.len() < 64).unwrap_or_default().to_vec();
    Some(named.headers.iter().map(|header| Section { name: name(header), header: *header }).collect())
}
