//! ELF headers: the one place that knows their layout.
//!
//! Layouts are those of the System V ABI, chapter "Object Files" (<https://gabi.xinuos.com/>). Only 64-bit little-endian files are read:
//! flametop runs on such machines, and 32-bit processes are not walked. Fields are read at their offsets, because buffers read from files
//! are not aligned.
//!
//! A hostile process can claim any count and length. Each is compared with a limit and the file's length before anything is allocated.
//!
//! The library `object` is not used. It reads a file that is not mapped into memory through a cache that never frees memory, and hostile
//! headers can make this cache larger than the file.

use super::numbers::{u16_at, u32_at, u64_at};
use super::read_at::{ReadAt, Unreadable, read};

/// Sizes of the headers, fixed by the ABI.
const FILE_HEADER: usize = 64;
pub(crate) const PROGRAM_HEADER: usize = 56;
pub(crate) const SECTION_HEADER: usize = 64;
/// Size of a symbol.
pub(crate) const SYMBOL: usize = 24;

pub(crate) const ET_EXEC: u16 = 2;
pub(crate) const ET_DYN: u16 = 3;
pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub(crate) const PF_X: u32 = 1;
pub(crate) const SHT_SYMTAB: u32 = 2;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_DYNSYM: u32 = 11;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;
pub(crate) const SHF_COMPRESSED: u64 = 0x800;

/// The instruction set of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The instruction set of this machine.
    pub const OWN: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };
}

/// The header of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileHeader {
    /// `e_type`.
    pub(crate) kind: u16,
    /// `None` for another machine's code.
    pub(crate) arch: Option<Arch>,
    pub(crate) entry: u64,
    program_headers: u64,
    program_header_size: u16,
    program_header_count: u16,
    section_headers: u64,
    section_header_size: u16,
    section_header_count: u16,
    /// `e_shstrndx`: the number of the section of names.
    names: u16,
}

impl FileHeader {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`Unreadable::NotElf`], [`Unreadable::NotOurs`] for 32-bit and big-endian files, and failures of reading.
    pub(crate) fn read(image: &(impl ReadAt + ?Sized)) -> Result<FileHeader, Unreadable> {
        let mut header = [0; FILE_HEADER];
        if image.length() < FILE_HEADER as u64 {
            return Err(Unreadable::NotElf);
        }
        image.read_exact_at(0, &mut header)?;
        FileHeader::parse(&header)
    }

    /// Parses the first bytes of a file.
    pub(crate) fn parse(header: &[u8]) -> Result<FileHeader, Unreadable> {
        let Some([0x7f, b'E', b'L', b'F', class, order, version]) = header.first_chunk() else { return Err(Unreadable::NotElf) };
        if *version != 1 {
            return Err(Unreadable::NotElf);
        }
        if (*class, *order) != (2, 1) {
            return Err(Unreadable::NotOurs);
        }
        let short = |at| u16_at(header, at).ok_or(Unreadable::NotElf);
        let long = |at| u64_at(header, at).ok_or(Unreadable::NotElf);
        Ok(FileHeader {
            kind: short(16)?,
            arch: match short(18)? {
                62 => Some(Arch::X86_64),
                183 => Some(Arch::Aarch64),
                _ => None,
            },
            entry: long(24)?,
            program_headers: long(32)?,
            section_headers: long(40)?,
            program_header_size: short(54)?,
            program_header_count: short(56)?,
            section_header_size: short(58)?,
            section_header_count: short(60)?,
            names: short(62)?,
        })
    }

    /// Reads the program headers. More than `most` are an error.
    pub(crate) fn program_headers(&self, image: &(impl ReadAt + ?Sized), most: u16) -> Result<Vec<ProgramHeader>, Unreadable> {
        const WHAT: &str = "program headers";
        let count = self.program_header_count;
        if count > 0 && (usize::from(self.program_header_size) != PROGRAM_HEADER || count > most) {
            return Err(Unreadable::Damaged(WHAT));
        }
        let table = read(image, self.program_headers, u64::from(count) * PROGRAM_HEADER as u64, u64::MAX, WHAT)?;
        Ok(table.chunks_exact(PROGRAM_HEADER).filter_map(ProgramHeader::parse).collect())
    }

    /// Parses the program headers that lie within the first bytes of a file.
    #[cfg(feature = "live")]
    pub(crate) fn program_headers_in<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = ProgramHeader> + use<'a> {
        let table = usize::try_from(self.program_headers).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        table.chunks_exact(PROGRAM_HEADER).take(self.program_header_count.into()).filter_map(ProgramHeader::parse)
    }

    /// Returns where the section headers are; `None` if there are none.
    ///
    /// # Errors
    ///
    /// If they are damaged or more than `most`.
    pub(crate) fn sections(&self, image: &(impl ReadAt + ?Sized), most: u64) -> Result<Option<SectionHeaders>, Unreadable> {
        const WHAT: &str = "section headers";
        if self.section_headers == 0 {
            return Ok(None);
        }
        if usize::from(self.section_header_size) != SECTION_HEADER {
            return Err(Unreadable::Damaged(WHAT));
        }
        let first = read(image, self.section_headers, SECTION_HEADER as u64, SECTION_HEADER as u64, WHAT)?;
        let first = SectionHeader::parse(&first).ok_or(Unreadable::Damaged(WHAT))?;
        // The first section header has values that do not fit into the 16 bits of the file header.
        let count = if self.section_header_count == 0 { first.size } else { self.section_header_count.into() };
        let names = if self.names == 0xffff { first.link } else { self.names.into() };
        if count > most {
            return Err(Unreadable::TooLarge { what: WHAT, size: count, limit: most });
        }
        Ok(Some(SectionHeaders { offset: self.section_headers, count, names }))
    }
}

/// A program header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProgramHeader {
    /// `PT_…`
    pub(crate) kind: u32,
    /// `PF_…`
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) physical: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    pub(crate) align: u64,
}

impl ProgramHeader {
    fn parse(bytes: &[u8]) -> Option<ProgramHeader> {
        Some(ProgramHeader {
            kind: u32_at(bytes, 0)?,
            flags: u32_at(bytes, 4)?,
            offset: u64_at(bytes, 8)?,
            address: u64_at(bytes, 16)?,
            physical: u64_at(bytes, 24)?,
            file_size: u64_at(bytes, 32)?,
            memory_size: u64_at(bytes, 40)?,
            align: u64_at(bytes, 48)?,
        })
    }

    /// Whether it is a segment of code.
    pub(crate) fn is_code(&self) -> bool {
        self.kind == PT_LOAD && self.flags & PF_X != 0
    }
}

/// A section header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectionHeader {
    /// Offset of its name in the section of names.
    pub(crate) name: u32,
    /// `SHT_…`
    pub(crate) kind: u32,
    /// `SHF_…`
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
    pub(crate) info: u32,
    pub(crate) entry_size: u64,
}

impl SectionHeader {
    fn parse(bytes: &[u8]) -> Option<SectionHeader> {
        Some(SectionHeader {
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

    /// Whether the section has code, and has it in the file.
    pub(crate) fn is_code(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0 && self.kind != SHT_NOBITS
    }
}

/// Where the section headers of a file are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionHeaders {
    offset: u64,
    count: u64,
    /// The number of the section of names.
    names: u32,
}

impl SectionHeaders {
    /// Reads all headers.
    pub(crate) fn read(&self, image: &(impl ReadAt + ?Sized)) -> Result<Vec<SectionHeader>, Unreadable> {
        let size = self.count * SECTION_HEADER as u64;
        let table = read(image, self.offset, size, u64::MAX, "section headers")?;
        Ok(table.chunks_exact(SECTION_HEADER).filter_map(SectionHeader::parse).collect())
    }

    /// Reads all headers and their names. Names of more than `most` bytes are an error.
    pub(crate) fn read_named(&self, image: &(impl ReadAt + ?Sized), most: u64) -> Result<NamedHeaders, Unreadable> {
        let headers = self.read(image)?;
        let names = usize::try_from(self.names).ok().and_then(|names| headers.get(names));
        let names = names.ok_or(Unreadable::Damaged("section names"))?;
        let names = read(image, names.offset, names.size, most, "section names")?;
        Ok(NamedHeaders { headers, names })
    }
}

/// Section headers and their names.
pub(crate) struct NamedHeaders {
    pub(crate) headers: Vec<SectionHeader>,
    names: Vec<u8>,
}

impl NamedHeaders {
    /// Returns a section's name; `None` if it does not begin and end within the names.
    pub(crate) fn name(&self, section: &SectionHeader) -> Option<&[u8]> {
        let rest = self.names.get(section.name as usize..)?;
        Some(rest.get(..memchr::memchr(0, rest)?).unwrap_or(rest))
    }
}
