//! Lines: the ends of a script's lines, and the positions of instructions.

use super::heap::{Flat, Heap, smi};
use crate::runtimes::Memory;

/// Bytes of a table of positions that are read: some 5,000 entries. Later instructions of a longer function have the line of the last entry.
const MAX_POSITIONS: u64 = 16 << 10;
/// Most lines of a script whose ends V8 has listed.
const MAX_LINES: u64 = 1 << 20;
/// Offsets in an array: its length, and its first element.
const LENGTH: u64 = 8;
const ELEMENTS: u64 = 16;

/// The lines of a function's instructions: the place of the first instruction of each line, and the line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lines(Box<[(i32, u32)]>);

impl Lines {
    /// Returns the line of an instruction, by its place in the bytecode.
    pub fn line(&self, place: i32) -> Option<u32> {
        let next = self.0.partition_point(|(begin, _)| *begin <= place);
        self.0.get(next.checked_sub(1)?).map(|(_, line)| *line)
    }

    /// Returns the bytes of memory that it takes.
    pub fn size(&self) -> usize {
        size_of::<Lines>() + size_of_val(&*self.0)
    }

    /// Reads a function's table of positions. `ends` has the ends of the script's lines.
    pub(super) fn read<M: Memory>(heap: &Heap<'_, M>, table: u64, ends: &Ends) -> Lines {
        let read = || {
            let length = u64::try_from(smi(heap.field(table, LENGTH)?)?).ok()?.min(MAX_POSITIONS);
            heap.memory.bytes(super::heap::address(table)?.checked_add(ELEMENTS)?, length, MAX_POSITIONS)
        };
        let mut lines: Vec<(i32, u32)> = Vec::new();
        for (place, position) in positions(&read().unwrap_or_default(), heap.layout.positions_have_flags) {
            let line = ends.line_of(position);
            if lines.last().is_none_or(|(_, before)| *before != line) {
                lines.push((place, line));
            }
        }
        Lines(lines.into())
    }
}

/// The ends of a script's lines, as positions in it, and the number of its first line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ends {
    ends: Vec<u32>,
    first: u32,
}

impl Ends {
    /// Returns the line of a position.
    pub(super) fn line_of(&self, position: u32) -> u32 {
        let line = self.ends.partition_point(|end| *end < position);
        self.first.saturating_add(u32::try_from(line).unwrap_or(u32::MAX))
    }

    /// Reads the ends that V8 has listed, or finds them in the source, of which at most `limit` bytes are read. Returns them with the number of
    /// bytes that were read. `None`: the script is longer, or it has no text.
    pub(super) fn read<M: Memory>(heap: &Heap<'_, M>, script: u64, limit: u64) -> Option<(Ends, u64)> {
        /// In a Script: the number of lines before it in its file. Next to the name in all versions.
        const LINE_OFFSET: u64 = 24;
        let before = heap.field(script, LINE_OFFSET).and_then(smi).and_then(|before| u32::try_from(before).ok()).unwrap_or(0);
        let first = before.saturating_add(1);
        let listed = heap.field(script, heap.layout.script_line_ends)?;
        if heap.type_of(listed) == Some(heap.layout.type_fixed_array) {
            let count = u64::try_from(smi(heap.field(listed, LENGTH)?)?).ok()?;
            let bytes =
                heap.memory.bytes(super::heap::address(listed)?.checked_add(ELEMENTS)?, count.checked_mul(8)?, 8 * MAX_LINES)?;
            let ends =
                bytes.as_chunks().0.iter().map(|word| smi(u64::from_le_bytes(*word)).and_then(|end| u32::try_from(end).ok()));
            return Some((Ends { ends: ends.collect::<Option<_>>()?, first }, bytes.len() as u64));
        }
        let source = heap.flat(heap.field(script, heap.layout.script_source)?)?;
        let Flat { address, length, is_one_byte } = source;
        let size = u64::from(length) * if is_one_byte { 1 } else { 2 };
        let bytes = heap.memory.bytes(address, size, limit)?;
        let ends = match is_one_byte {
            true => ends_of(bytes.iter().map(|byte| u16::from(*byte))),
            false => ends_of(bytes.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit))),
        };
        Some((Ends { ends, first }, size))
    }
}

/// Returns the positions of characters that end a line. Of `\r\n`, the second one does.
fn ends_of(characters: impl Iterator<Item = u16>) -> Vec<u32> {
    let mut characters = characters.enumerate().peekable();
    let mut ends = Vec::new();
    while let Some((at, character)) = characters.next() {
        let is_end = match character {
            0x0a | 0x2028 | 0x2029 => true,
            0x0d => characters.peek().is_none_or(|(_, next)| *next != 0x0a),
            _ => false,
        };
        if is_end {
            ends.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
    }
    ends
}

/// Reads a table of positions: of each entry, the place of an instruction and a position in the script.
///
/// An entry is two numbers, each a difference from the entry before: of the place, and of the position. A number has 7 bits a byte, the low ones
/// first; its lowest bit is the sign. A negative step of the place counts one more than its complement, and means an expression. With flags, the
/// step has no sign: its two lowest bits are the flags. A position is
/// `inlined function + 1 : 16 │ position + 1 : 30 │ is external : 1`.
fn positions(table: &[u8], has_flags: bool) -> impl Iterator<Item = (i32, u32)> {
    let mut bytes = table.iter();
    let mut number = move || {
        let mut value = 0u64;
        for (at, byte) in bytes.by_ref().enumerate().take(10) {
            value |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    };
    let signed = |value: u64| (value >> 1) as i64 ^ -((value & 1) as i64);
    let (mut place, mut position) = (-1i64, 0i64);
    std::iter::from_fn(move || {
        let (step, moved) = (number()?, number()?);
        let step = match has_flags {
            true => (step >> 2) as i64,
            false => signed(step).max(!signed(step)),
        };
        place = place.checked_add(step)?;
        position = position.checked_add(signed(moved))?;
        Some((i32::try_from(place).ok()?, ((position >> 1) as u64 & 0x3fff_ffff) as u32))
    })
    .map(|(place, position)| (place, position.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_all_line_terminators() {
        let text: Vec<u16> = "a\nb\r\nc\rd\u{2028}e".encode_utf16().collect();
        let ends = Ends { ends: ends_of(text.into_iter()), first: 1 };
        assert_eq!(ends.ends, [1, 4, 6, 8]);
        let lines: Vec<u32> = (0..=9).map(|position| ends.line_of(position)).collect();
        assert_eq!(lines, [1, 1, 2, 2, 2, 3, 3, 4, 4, 5]);
    }

    /// The table of a function in Node.js 24 and in Node.js 26: `function inner(rounds) { const local = { rounds }; return leaf(local.rounds) + 1; }`
    /// from position 106 of its script on.
    #[test]
    fn positions_are_steps_from_the_entry_before() {
        let signed = [0x01, 0xac, 0x03, 0x02, 0x74, 0x0f, 0x08, 0x0e, 0x38, 0x07, 0x48, 0x0b, 0x2b, 0x09, 0x4c, 0x06, 0x10];
        let flags = [0x02, 0xac, 0x03, 0x07, 0x74, 0x1e, 0x08, 0x1f, 0x38, 0x0e, 0x48, 0x16, 0x2b, 0x12, 0x4c, 0x0f, 0x10];
        let entries: Vec<_> = positions(&signed, false).collect();
        assert_eq!(entries, [(-1, 106), (0, 135), (7, 137), (14, 151), (17, 169), (22, 158), (26, 177), (29, 181)]);
        assert_eq!(positions(&flags, true).collect::<Vec<_>>(), entries);
        assert_eq!(positions(&[0xff; 40], false).count(), 0);
        assert_eq!(positions(&[0x02], false).count(), 0);
    }
}
