//! Applies relocations to files that are not linked: writes the values that a linker (for modules, the kernel) would write into their
//! sections.
//!
//! ```text
//! .rela.debug_info    offset 8 | type 4 | symbol 4 | addend 8, one behind the other, by offset
//! written at offset   address of the symbol's section + value of the symbol + addend        in 8 bytes or in 4, by type
//! ```
//!
//! Source: System V ABI, "Relocation"; its supplements for x86_64 and for AArch64. Sections of debug information stay at address 0, so
//! values that point into them are offsets. The caller gives the addresses of other sections. A section without an address counts as one at
//! 0, and the value of a symbol of another file counts as 0.
//!
//! Values are written while the section is read, so large sections are not held in memory. For this, relocations must be in order, as
//! compilers and linkers write them.

use crate::object::elf::Placed;
use std::io::{self, BufReader, Read};
use std::ops::Range;

use super::bytes::ByteReader;
use super::elf::{Image, TableKind};
use super::headers::{Arch, SYMBOL};
use super::numbers::{u16_at, u32_at, u64_at};
use super::reason::Reason;

/// `Elf64_Rela`.
const RELA: usize = 24;
/// Most symbols that are read. amdgpu, the largest of all modules, has 100,000.
const MAX_SYMBOLS: u64 = 4_000_000;
/// From here on, numbers are not those of sections: undefined, absolute, common, or too large for the field.
const SHN_LORESERVE: u16 = 0xff00;
const SHN_ABS: u16 = 0xfff1;
/// Bytes of a section that are processed at once.
const CHUNK: usize = 64 << 10;

/// The addresses of a file's symbols.
pub(crate) struct Symbols(Vec<u64>);

impl Symbols {
    /// Reads the symbols of an image whose sections have addresses.
    pub(crate) fn read(image: &Image, placed: &Placed) -> Result<Symbols, Reason> {
        let table = image.table(TableKind::Full).ok_or(Reason::NoSymbols)?;
        let size = table.count.checked_mul(SYMBOL as u64).ok_or(Reason::Malformed)?;
        let bytes = image.source.read(table.offset, size, MAX_SYMBOLS * SYMBOL as u64)?;
        let value = |symbol: &[u8]| {
            let (section, value) = u16_at(symbol, 6).zip(u64_at(symbol, 8)).unwrap_or_default();
            match section {
                0 | SHN_LORESERVE.. if section != SHN_ABS => 0,
                SHN_ABS => value,
                _ => placed.0.get(usize::from(section)).copied().flatten().unwrap_or(0).wrapping_add(value),
            }
        };
        Ok(Symbols(bytes.chunks_exact(SYMBOL).map(value).collect()))
    }
}

/// A value to be written over bytes of a section.
#[derive(Clone, Copy)]
struct Patch {
    offset: u64,
    value: u64,
    /// Bytes of the value: 4 or 8.
    size: usize,
}

/// A section as it would be in a linked file.
pub(crate) struct Relocated<'a, R> {
    section: R,
    relocations: BufReader<ByteReader<'a>>,
    arch: Arch,
    symbols: &'a Symbols,
    /// The next value to be written.
    next: Option<Patch>,
    /// Bytes that were read and not yet returned. The bytes before `ready` are final.
    chunk: Vec<u8>,
    given: usize,
    ready: usize,
    /// The chunk's offset in the section.
    offset: u64,
}

impl<'a, R: Read> Relocated<'a, R> {
    /// Wraps `section` with its relocations, which are in this part of the image's file.
    pub(crate) fn new(
        section: R,
        image: &'a Image,
        relocations: Range<u64>,
        symbols: &'a Symbols,
    ) -> Result<Relocated<'a, R>, Reason> {
        let arch = image.arch().ok_or(Reason::Unsupported)?;
        let relocations = BufReader::with_capacity(RELA << 10, image.source.reader(relocations));
        let (chunk, next) = (Vec::new(), None);
        let mut relocated = Relocated { section, relocations, arch, symbols, next, chunk, given: 0, ready: 0, offset: 0 };
        relocated.next = relocated.following(0).map_err(|_| Reason::MalformedDwarf)?;
        Ok(relocated)
    }

    /// Returns the next relocation that writes anything. It must not be before the offset `least`.
    fn following(&mut self, least: u64) -> io::Result<Option<Patch>> {
        loop {
            let mut entry = [0; RELA];
            match self.relocations.read_exact(&mut entry) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                other => other?,
            }
            let field = |at| u64_at(&entry, at).unwrap_or(0);
            let (kind, symbol) = u32_at(&entry, 8).zip(u32_at(&entry, 12)).unwrap_or_default();
            let size = match (self.arch, kind) {
                (_, 0) => continue,
                // R_X86_64_64, _32, _32S
                (Arch::X86_64, 1) | (Arch::Aarch64, 257) => 8,
                (Arch::X86_64, 10 | 11) | (Arch::Aarch64, 258) => 4,
                _ => return Err(io::ErrorKind::Unsupported.into()),
            };
            let symbol = self.symbols.0.get(symbol as usize).ok_or(io::ErrorKind::InvalidData)?;
            let patch = Patch { offset: field(0), value: symbol.wrapping_add(field(16)), size };
            return if patch.offset < least { Err(io::ErrorKind::InvalidData.into()) } else { Ok(Some(patch)) };
        }
    }

    /// Reads the next bytes, and writes the relocated values into them.
    fn fill(&mut self) -> io::Result<()> {
        self.chunk.drain(..self.ready);
        self.offset += self.ready as u64;
        (self.given, self.ready) = (0, 0);
        let room = CHUNK as u64;
        self.section.by_ref().take(room).read_to_end(&mut self.chunk)?;
        let end = self.offset + self.chunk.len() as u64;
        while let Some(patch) = self.next {
            let Some(behind) = patch.offset.checked_add(patch.size as u64).filter(|behind| *behind <= end) else { break };
            let at = usize::try_from(patch.offset - self.offset).map_err(|_| io::ErrorKind::InvalidData)?;
            let bytes = patch.value.to_le_bytes();
            let place = self.chunk.get_mut(at..at + patch.size).ok_or(io::ErrorKind::InvalidData)?;
            place.copy_from_slice(bytes.get(..patch.size).unwrap_or_default());
            self.next = self.following(behind)?;
        }
        // A value that reaches past the bytes read so far waits for the next bytes.
        let next = self.next.map_or(end, |patch| patch.offset.min(end));
        self.ready = usize::try_from(next - self.offset).map_err(|_| io::ErrorKind::InvalidData)?;
        if self.ready == 0 && !self.chunk.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<R: Read> Read for Relocated<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready {
            self.fill()?;
        }
        let left = self.chunk.get(self.given..self.ready).unwrap_or_default();
        let count = left.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), left.get(..count)) {
            to.copy_from_slice(from);
        }
        self.given += count;
        Ok(count)
    }
}
