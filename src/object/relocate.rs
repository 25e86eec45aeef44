//! Relocations of files that are not linked: what a linker, or for its modules the kernel, would write into their sections.
//!
//! ```text
//! .rela.debug_info    offset 8 | type 4 | symbol 4 | addend 8, one behind the other, by offset
//! written at offset   address of the symbol's section + value of the symbol + addend        in 8 bytes or in 4, by type
//! ```
//!
//! (System V ABI, "Relocation"; its supplements for x86_64 and for AArch64.) Sections of debug information stay where they are, at
//! 0: what points into them are offsets. Other sections are where whoever asks says; what points to those that are nowhere, and to
//! symbols of other files, is 0 and the addend.
//!
//! Written while the section is read, so that of large ones nothing is held: relocations must be in order, as compilers and linkers
//! write them.

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
/// Symbols looked at; those of amdgpu, the largest module of all, are 100,000.
const MAX_SYMBOLS: u64 = 4_000_000;
/// Sections of their own have other numbers: undefined, absolute, common, too large to be told.
const SHN_LORESERVE: u16 = 0xff00;
const SHN_ABS: u16 = 0xfff1;
/// Bytes of a section that are worked on at once.
const CHUNK: usize = 64 << 10;

/// What symbols of a file stand for.
pub(crate) struct Symbols(Vec<u64>);

impl Symbols {
    /// Of an image whose sections are placed.
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

/// Bytes that are written over those of a section.
#[derive(Clone, Copy)]
struct Patch {
    offset: u64,
    value: u64,
    /// 4 or 8.
    size: usize,
}

/// A section as it would be in a linked file.
pub(crate) struct Relocated<'a, R> {
    section: R,
    relocations: BufReader<ByteReader<'a>>,
    arch: Arch,
    symbols: &'a Symbols,
    /// The next one to be written.
    next: Option<Patch>,
    /// Bytes that were read and not given away; those before `ready` are done with.
    chunk: Vec<u8>,
    given: usize,
    ready: usize,
    /// Where in the section the chunk begins.
    offset: u64,
}

impl<'a, R: Read> Relocated<'a, R> {
    /// `section` with the relocations in this part of the image's file.
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

    /// The next relocation that writes anything, which must not be before this offset.
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

    /// Reads on, and writes what belongs into what was read.
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
        // One that reaches over the end of what was read waits for the rest.
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
