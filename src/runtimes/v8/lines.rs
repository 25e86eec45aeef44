//! Lines of instructions.

use super::heap::{Heap, address, smi};
use super::source::Source;
use crate::runtimes::Memory;

/// Bytes of a table of positions that are read: some 5,000 entries. Later instructions of a longer function have the line of the last entry.
const MAX_POSITIONS: u64 = 16 << 10;
/// Offsets in an array: its length, and its first element.
pub(super) const LENGTH: u64 = 8;
pub(super) const ELEMENTS: u64 = 16;

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

    /// Reads a function's table of positions in its source.
    pub(super) fn read<M: Memory>(heap: &Heap<'_, M>, table: u64, source: &mut Source<'_, M>) -> Lines {
        let read = || {
            let length = u64::try_from(smi(heap.field(table, LENGTH)?)?).ok()?.min(MAX_POSITIONS);
            heap.memory.bytes(address(table)?.checked_add(ELEMENTS)?, length, MAX_POSITIONS)
        };
        let mut lines: Vec<(i32, u32)> = Vec::new();
        for (place, position) in positions(&read().unwrap_or_default(), heap.layout.positions_have_flags) {
            let Some(line) = source.line_of(position.at) else { break };
            if lines.last().is_none_or(|(_, before)| *before != line) {
                lines.push((place, line));
            }
        }
        Lines(lines.into())
    }
}

/// A position in a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// Characters before it.
    pub(super) at: u32,
    /// The number of the inlined function whose script it is.
    pub(super) inlined: Option<u16>,
}

impl Position {
    /// Parses a position: `inlined function + 1 : 16 │ position + 1 : 30 │ is external : 1`.
    pub(super) fn of(word: i64) -> Position {
        let position = (word >> 1) as u32 & 0x3fff_ffff;
        Position { at: position.saturating_sub(1), inlined: ((word >> 31) as u16).checked_sub(1) }
    }
}

/// Reads a table of positions: of each entry, the place of an instruction and a position in the script.
///
/// An entry is two numbers, each a difference from the entry before: of the place, and of the position. A number has 7 bits a byte, the low ones
/// first; its lowest bit is the sign. A negative step of the place counts one more than its complement, and means an expression. With flags, the
/// step has no sign: its two lowest bits are the flags.
pub(super) fn positions(table: &[u8], has_flags: bool) -> impl Iterator<Item = (i32, Position)> {
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
        Some((i32::try_from(place).ok()?, Position::of(position)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of a function in Node.js 24 and in Node.js 26: `function inner(rounds) { const local = { rounds }; return leaf(local.rounds) + 1; }`
    /// from position 106 of its script on.
    #[test]
    fn positions_are_steps_from_the_entry_before() {
        let signed = [0x01, 0xac, 0x03, 0x02, 0x74, 0x0f, 0x08, 0x0e, 0x38, 0x07, 0x48, 0x0b, 0x2b, 0x09, 0x4c, 0x06, 0x10];
        let flags = [0x02, 0xac, 0x03, 0x07, 0x74, 0x1e, 0x08, 0x1f, 0x38, 0x0e, 0x48, 0x16, 0x2b, 0x12, 0x4c, 0x0f, 0x10];
        let entries: Vec<_> = positions(&signed, false).map(|(place, position)| (place, position.at)).collect();
        assert_eq!(entries, [(-1, 106), (0, 135), (7, 137), (14, 151), (17, 169), (22, 158), (26, 177), (29, 181)]);
        assert!(positions(&flags, true).map(|(place, position)| (place, position.at)).eq(entries));
        assert_eq!(positions(&[0xff; 40], false).count(), 0);
        assert_eq!(positions(&[0x02], false).count(), 0);
    }
}
