//! Sources of scripts: the line of a position.
//!
//! The source of a bundle may have 10 MB. So its line ends are counted once, in blocks, and the counts are kept. For the line of a position, one
//! block is read again.

use std::ops::Range;

use super::heap::{Flat, Heap, smi};
use crate::runtimes::Memory;

/// Characters of a block.
const BLOCK: u32 = 4096;
/// Most characters of a source. In a longer one, no line is known.
const MAX_LENGTH: u32 = 16 << 20;
/// Most blocks whose counts are kept: 64 KB, for 64 MB of source.
const MAX_BLOCKS: usize = 16 << 10;
/// Blocks that are read at a time.
const AT_ONCE: u32 = 16;

/// Counts of line ends in the sources of a process's scripts, the last used ones last.
#[derive(Default, Debug)]
pub(super) struct Sources(Vec<Counted>);

/// The counts of one source: of the line ends before each block.
#[derive(Debug)]
struct Counted {
    /// The Script, its source, and the source's length. Another script at the same address has another source.
    key: (u64, u64, u32),
    before: Box<[u32]>,
}

/// The source of a script.
pub(super) struct Source<'a, M> {
    heap: Heap<'a, M>,
    flat: Flat,
    before: &'a [u32],
    /// The number of the first line.
    first: u32,
    /// The number of the last block that was read, and where its lines end.
    block: Option<(u32, Vec<usize>)>,
}

impl Sources {
    /// Returns the source of a script. Counts its lines if they are not known; `left` are the bytes that may be read for that. Returns `None` if
    /// the script has no text, or too much.
    pub(super) fn of<'a, M: Memory>(&'a mut self, heap: Heap<'a, M>, script: u64, left: &mut u64) -> Option<Source<'a, M>> {
        /// In a Script: the number of lines before it in its file. Next to the name in all versions.
        const LINE_OFFSET: u64 = 24;
        let before = heap.field(script, LINE_OFFSET).and_then(smi).and_then(|before| u32::try_from(before).ok()).unwrap_or(0);
        let source = heap.field(script, heap.layout.script_source)?;
        let flat = heap.flat(source)?;
        let key = (script, source, flat.length);
        match self.0.iter().position(|counted| counted.key == key) {
            // Nearly always it is the last one.
            Some(at) => self.0.get_mut(at..)?.rotate_left(1),
            None => {
                let counted = Counted { key, before: count(heap, flat, left)? };
                self.0.push(counted);
            }
        }
        while self.0.iter().map(|counted| counted.before.len()).sum::<usize>() > MAX_BLOCKS && self.0.len() > 1 {
            self.0.remove(0);
        }
        Some(Source { heap, flat, before: &self.0.last()?.before, first: before.saturating_add(1), block: None })
    }
}

impl<M: Memory> Source<'_, M> {
    /// Returns the line of a position.
    pub(super) fn line_of(&mut self, position: u32) -> Option<u32> {
        let (number, within) = self.block_of(position);
        let ends = self.ends(number)?.partition_point(|end| *end < within);
        let before = *self.before.get(number as usize)?;
        Some(self.first.saturating_add(before).saturating_add(u32::try_from(ends).ok()?))
    }

    /// Returns the column of a position, from 1.
    pub(super) fn column_of(&mut self, position: u32) -> Option<u32> {
        let (number, within) = self.block_of(position);
        let ends = self.ends(number)?;
        let begin = match ends.partition_point(|end| *end < within).checked_sub(1) {
            Some(last) => number * BLOCK + u32::try_from(*ends.get(last)?).ok()? + 1,
            // The line begins in an earlier block: the last one with a line end.
            None => {
                let before = *self.before.get(number as usize)?;
                match self.before.partition_point(|ends| *ends < before).checked_sub(1) {
                    Some(block) => {
                        let block = u32::try_from(block).ok()?;
                        block * BLOCK + u32::try_from(self.ends(block)?.iter().rfind(|end| **end < BLOCK as usize)? + 1).ok()?
                    }
                    None => 0,
                }
            }
        };
        Some(position.min(self.flat.length).saturating_sub(begin) + 1)
    }

    fn block_of(&self, position: u32) -> (u32, usize) {
        let position = position.min(self.flat.length);
        (position / BLOCK, (position % BLOCK) as usize)
    }

    /// Returns where lines end in a block, and with the first character of the next one.
    fn ends(&mut self, number: u32) -> Option<&[usize]> {
        if self.block.as_ref().is_none_or(|(known, _)| *known != number) {
            let text = characters(self.heap, self.flat, number * BLOCK, BLOCK + 1)?;
            self.block = Some((number, (0..text.len()).filter(|at| is_end(&text, *at)).collect()));
        }
        self.block.as_ref().map(|(_, ends)| &**ends)
    }
}

/// Counts the line ends before each block.
fn count<M: Memory>(heap: Heap<'_, M>, flat: Flat, left: &mut u64) -> Option<Box<[u32]>> {
    let size = u64::from(flat.length) * flat.width();
    if flat.length > MAX_LENGTH || size > *left {
        return None;
    }
    *left -= size;
    let (mut before, mut ends) = (Vec::new(), 0u32);
    for begin in (0..=flat.length).step_by((AT_ONCE * BLOCK) as usize) {
        let text = characters(heap, flat, begin, AT_ONCE * BLOCK + 1)?;
        let whole = text.len().min((AT_ONCE * BLOCK) as usize);
        for block in (0..whole.max(1)).step_by(BLOCK as usize) {
            before.push(ends);
            ends = ends.saturating_add(ends_in(&text, block..whole.min(block + BLOCK as usize)));
        }
    }
    Some(before.into())
}

/// Reads some characters of a source: fewer at its end.
fn characters<M: Memory>(heap: Heap<'_, M>, flat: Flat, begin: u32, count: u32) -> Option<Vec<u16>> {
    let count = u64::from(flat.length.saturating_sub(begin).min(count));
    let at = flat.address.checked_add(u64::from(begin) * flat.width())?;
    let bytes = heap.memory.bytes(at, count * flat.width(), count * flat.width())?;
    Some(match flat.is_one_byte {
        true => bytes.into_iter().map(u16::from).collect(),
        false => bytes.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect(),
    })
}

/// Counts the line ends in a range of a text ([`is_end`]), many characters at a time.
fn ends_in(text: &[u16], range: Range<usize>) -> u32 {
    let (end, block) = (range.end, text.get(range).unwrap_or_default());
    let line_ends = block.iter().filter(|unit| matches!(unit, 0x0a | 0x2028 | 0x2029)).count();
    let returns = block.iter().filter(|unit| **unit == 0x0d).count();
    let pairs = block.iter().zip(block.iter().skip(1)).filter(|pair| *pair == (&0x0d, &0x0a)).count();
    let is_last_a_pair = block.last() == Some(&0x0d) && text.get(end) == Some(&0x0a);
    (line_ends + returns - pairs) as u32 - u32::from(is_last_a_pair)
}

/// Whether a line ends with this character. Of `\r\n`, the second one ends it.
fn is_end(text: &[u16], at: usize) -> bool {
    match text.get(at) {
        Some(0x0a | 0x2028 | 0x2029) => true,
        Some(0x0d) => text.get(at + 1) != Some(&0x0a),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::v8::Layout;

    /// A script whose source is a string of two-byte characters, at the addresses 0x1000, 0x2000 and 0x3000; its map is at 0x100.
    struct Script(Vec<u16>);

    impl Memory for Script {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let word: u64 = match address {
                0x1008 => 0x2001,
                0x1018 => 4 << 32,
                0x2000 => 0x101,
                0x10c => 0,
                0x200c => self.0.len() as u64,
                0x2010.. => {
                    let from = (address - 0x2010) as usize;
                    let bytes: Vec<u8> = self.0.iter().flat_map(|unit| unit.to_le_bytes()).collect();
                    return bytes.get(from..from + buffer.len()).map(|bytes| buffer.copy_from_slice(bytes)).is_some();
                }
                _ => return false,
            };
            buffer.copy_from_slice(&word.to_le_bytes()[..buffer.len()]);
            true
        }
    }

    fn lines(text: &str) -> Vec<u32> {
        of_each(text, |source, position| source.line_of(position))
    }

    /// Returns an answer for each position.
    fn of_each(text: &str, answer: impl Fn(&mut Source<'_, Script>, u32) -> Option<u32>) -> Vec<u32> {
        let value = |name: &str| {
            Some(match name {
                name if name.contains("instance_type") => 12,
                name if name.contains("source") => 8,
                name if name.contains("Nonstring") => 128,
                name if name.contains("major") => 10,
                _ => 0,
            })
        };
        let (memory, layout) = (Script(text.encode_utf16().collect()), Layout::of(value).unwrap());
        let mut sources = Sources::default();
        let mut left = 1 << 20;
        let mut source = sources.of(Heap { memory: &memory, layout: &layout }, 0x1001, &mut left).unwrap();
        (0..=memory.0.len() as u32).map(|position| answer(&mut source, position).unwrap()).collect()
    }

    #[test]
    fn lines_end_at_all_line_terminators() {
        // The script begins at line 5 of its file.
        assert_eq!(lines("a\nb\r\nc\rd\u{2028}e"), [5, 5, 6, 6, 6, 7, 7, 8, 8, 9, 9]);
        assert_eq!(lines(""), [5]);
    }

    #[test]
    fn columns_count_from_the_begin_of_the_line() {
        let columns = |text: &str| of_each(text, |source, position| source.column_of(position));
        assert_eq!(columns("a\nb\r\nc\rd\u{2028}e"), [1, 2, 1, 2, 3, 1, 2, 1, 2, 1, 2]);
        for before in [0, 4094, 4095, 4096, 4097] {
            for end in ["\n", "\r\n", "\r"] {
                let columns = columns(&["x".repeat(before), end.to_owned(), "y".repeat(5000)].concat());
                let begin = before + end.len();
                assert!((0..begin).all(|at| columns[at] == at as u32 + 1), "{before} {end:?}");
                assert!((begin..columns.len()).all(|at| columns[at] == (at - begin) as u32 + 1), "{before} {end:?}");
            }
        }
    }

    #[test]
    fn ends_are_counted_as_they_are_found() {
        const CHARACTERS: [u16; 5] = [0x0a, 0x0d, 0x2028, 0x2029, 0x61];
        for number in 0..5u32.pow(5) {
            let text: Vec<u16> = (0..5).map(|place| CHARACTERS[(number / 5u32.pow(place) % 5) as usize]).collect();
            for range in [0..5, 0..4, 1..4, 4..5, 5..5] {
                let found = range.clone().filter(|at| is_end(&text, *at)).count();
                assert_eq!(ends_in(&text, range), found as u32, "{text:?}");
            }
        }
    }

    #[test]
    fn lines_are_right_where_blocks_meet() {
        for before in 4090..4100 {
            for (ends, more) in [("\n", 1), ("\r\n", 1), ("\r", 1), ("\r\r", 2), ("\n\r\n", 2)] {
                let text = ["x".repeat(before), ends.to_owned(), "y".repeat(70_000)].concat();
                let lines = lines(&text);
                assert_eq!(
                    (lines[before], lines[before + ends.len()], lines[text.len()]),
                    (5, 5 + more, 5 + more),
                    "{before} {ends:?}"
                );
            }
        }
    }
}
