//! The code to analyse, and its jump tables.

use std::ops::Range;

use super::jumps::Jumps;
use super::machine::padding;
use crate::object::headers::Arch;
use crate::object::read_at::{ReadAt, read};
use crate::unwind::sections::Elf;

/// Most code without unwind information that is analysed at once: larger code is analysed in pieces. Code beyond stays a gap.
const LARGEST: usize = 16 << 20;

/// Bytes of a file that are read at once: the gaps between functions of libraries are small and many.
pub(crate) const AT_ONCE: u64 = 256 << 10;

/// Reads bytes at an ELF address. Returns whether they exist.
type TextReader<'t> = dyn Fn(u64, &mut [u8]) -> bool + 't;

/// Pieces of code: sorted, none touches another.
pub(crate) struct Text<'t> {
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
    pub(crate) arch: Arch,
    /// Whether it is loaded at the addresses in the file: then numbers may be addresses.
    pub(crate) is_fixed: bool,
    read: &'t TextReader<'t>,
}

impl<'t> Text<'t> {
    /// Reads the ranges, which are sorted, without the padding at their begin.
    pub(crate) fn new(elf: &Elf, image: &(impl ReadAt + ?Sized), ranges: &[Range<u64>], read_at: &'t TextReader<'t>) -> Text<'t> {
        let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut total, mut window) = (0, (0, Vec::new()));
        for range in ranges {
            let Some(segment) = elf.segment_of(range.start).filter(|segment| range.end <= segment.end()) else { continue };
            let wanted = |window: &(u64, Vec<u8>)| {
                let from = usize::try_from(range.start.checked_sub(window.0)?).ok()?;
                let length = usize::try_from(range.end - range.start).ok()?;
                Some(window.1.get(from..from.checked_add(length)?)?.to_vec())
            };
            let bytes = wanted(&window).or_else(|| {
                let size = (range.end - range.start).max(AT_ONCE).min(segment.end() - range.start);
                let offset = segment.offset.checked_add(range.start - segment.address)?;
                window = (range.start, read(image, offset, size, LARGEST as u64, "code").ok()?);
                wanted(&window)
            });
            let Some(mut bytes) = bytes else { continue };
            let padding = padding(elf.arch, &bytes);
            if padding == bytes.len() {
                continue;
            }
            total += bytes.len();
            if total > LARGEST {
                break;
            }
            bytes.drain(..padding);
            pieces.push((range.start + padding as u64, bytes));
        }
        let is_fixed = elf.segments.iter().all(|segment| segment.address > 0);
        Text { pieces, arch: elf.arch, is_fixed, read: read_at }
    }

    pub(crate) fn size(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Returns the bytes from an address to the end of its piece.
    pub(crate) fn from(&self, address: u64) -> Option<&[u8]> {
        let (start, bytes) = self.pieces.get(self.piece(address)?)?;
        bytes.get(usize::try_from(address - start).ok()?..).filter(|rest| !rest.is_empty())
    }

    /// Returns the piece that an address is in, and where it begins.
    pub(crate) fn piece_of(&self, address: u64) -> Option<(u64, &[u8])> {
        let (start, bytes) = self.pieces.get(self.piece(address)?)?;
        Some((*start, bytes.as_slice())).filter(|_| address - start < bytes.len() as u64)
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.from(address).is_some()
    }

    fn piece(&self, address: u64) -> Option<usize> {
        self.pieces.partition_point(|(start, _)| *start <= address).checked_sub(1)
    }

    /// Maps an address to its byte's place when all pieces are put together.
    pub(crate) fn places(&self) -> Places {
        let mut before = 0;
        let starts = self.pieces.iter().map(|(start, bytes)| {
            let place = before;
            before += bytes.len();
            (*start, place)
        });
        Places(starts.collect())
    }

    /// Returns the targets of a table's entries, as long as they lead into this code.
    pub(crate) fn jumps(&self, jumps: Jumps, limit: usize) -> Vec<u64> {
        let mut targets = Vec::new();
        let width = usize::from(jumps.width.bytes).clamp(1, 8);
        let mut table = vec![0; limit * width];
        // Tables are seldom at the end of the readable bytes. If one is, it is read entry by entry.
        let is_whole = (self.read)(jumps.table, &mut table);
        for (number, bytes) in (0u64..).zip(table.chunks_exact_mut(width)) {
            let place = jumps.table.wrapping_add(number * width as u64);
            if !is_whole && !(self.read)(place, bytes) {
                break;
            }
            let mut entry = [0; 8];
            entry.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            let unused = 64 - 8 * width as u32;
            let entry = u64::from_le_bytes(entry).unbounded_shl(unused);
            let entry = if jumps.width.signed {
                entry.cast_signed().unbounded_shr(unused).cast_unsigned()
            } else {
                entry.unbounded_shr(unused)
            };
            let target = jumps.base.wrapping_add(entry.unbounded_shl(jumps.width.shift.into()));
            if !self.contains(target) {
                break;
            }
            targets.push(target);
        }
        targets
    }
}

/// See [`Text::places`].
pub(crate) struct Places(Vec<(u64, usize)>);

impl Places {
    /// Returns the place of an address inside of a piece.
    pub(crate) fn of(&self, address: u64) -> usize {
        let piece = self.0.partition_point(|(start, _)| *start <= address).saturating_sub(1);
        self.0.get(piece).map_or(0, |(start, place)| place + (address - start) as usize)
    }
}
