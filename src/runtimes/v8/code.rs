//! Compiled code: from an instruction to the functions that it belongs to.
//!
//! ```text
//! instructions, behind a header ─► Code ─┬─► table of positions: of each instruction, its position and the inlined function it is of
//!                                        └─► deoptimisation data: the function, those inlined into it, and the position of each call
//! ```
//!
//! Nothing in a frame leads to its code, and a function may have several. So the header is searched backwards from the instruction. Meanwhile the
//! program may free code or move it: code counts only if its function is that of the frame.

use std::collections::BTreeMap;

use super::heap::{Heap, address, smi};
use super::layout::Header;
use super::lines::{ELEMENTS, LENGTH, Position, positions};
use crate::runtimes::Memory;

/// Pages that are searched for the header of code: 256 KB.
const MAX_PAGES: u64 = 64;
const PAGE: u64 = 4096;
/// Most codes whose place is kept, for a process.
const MAX_CODES: usize = 1 << 15;
/// Bytes of a table of positions that are read: of code with some 100,000 instructions.
const MAX_POSITIONS: u64 = 256 << 10;
/// Most functions that are inlined into each other.
const MAX_INLINED: usize = 64;

/// Codes that were found: where their instructions begin, and the object.
#[derive(Default, Debug)]
pub(super) struct Codes(BTreeMap<u64, u64>);

/// Code of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compiled {
    object: u64,
    begin: u64,
    size: u32,
    is_optimized: bool,
}

/// A place in a function: its SharedFunctionInfo, and a position in its script.
pub(super) type Place = (u64, u32);

impl Codes {
    /// Returns the code that contains an instruction. `left` is the number of words that may still be read.
    pub(super) fn at<M: Memory>(&mut self, heap: &Heap<'_, M>, instruction: u64, left: &mut u32) -> Option<Compiled> {
        let known = self.0.range(..=instruction).next_back().and_then(|(_, object)| Compiled::read(heap, *object));
        if let Some(known) = known.filter(|code| code.contains(instruction)) {
            return Some(known);
        }
        let found = search(heap, instruction, left)?;
        if self.0.len() >= MAX_CODES {
            self.0.clear();
        }
        self.0.insert(found.begin, found.object);
        Some(found)
    }
}

/// Searches backwards for the header of the code that contains an instruction.
fn search<M: Memory>(heap: &Heap<'_, M>, instruction: u64, left: &mut u32) -> Option<Compiled> {
    let mut page = instruction & !(PAGE - 1);
    for _ in 0..MAX_PAGES {
        let bytes = heap.memory.bytes(page, PAGE, PAGE)?;
        let words = bytes.as_chunks().0.iter().enumerate().map(|(at, word)| (page + 8 * at as u64, word)).rev();
        let is_address = |word: u64| word & 7 == 1 && word >> 48 == 0 && word > PAGE;
        for (at, word) in words.filter(|(at, _)| *at < instruction) {
            let word = u64::from_le_bytes(*word);
            if !is_address(word) {
                continue;
            }
            *left = left.checked_sub(1)?;
            let object = match heap.layout.code_header {
                Header::Object => at + 1,
                Header::Pointer if leads_back(heap, word, at) => word,
                Header::Pointer => continue,
            };
            if let Some(code) = Compiled::read(heap, object) {
                // The instruction may be in free space behind other code.
                return Some(code).filter(|code| code.contains(instruction));
            }
        }
        page = page.checked_sub(PAGE)?;
    }
    None
}

/// Whether a Code's instructions begin behind a header with this word: in V8 11, the word is the header's last, later the third last.
fn leads_back<M: Memory>(heap: &Heap<'_, M>, object: u64, word: u64) -> bool {
    let begin = heap.field(object, heap.layout.code_begin);
    begin.and_then(|begin| begin.checked_sub(word)).is_some_and(|distance| matches!(distance, 8 | 24))
}

impl Compiled {
    fn read<M: Memory>(heap: &Heap<'_, M>, object: u64) -> Option<Compiled> {
        let layout = heap.layout;
        let field = |offset: u64| heap.memory.u32(address(object)?.checked_add(offset)?);
        if heap.type_of(object)? != layout.type_code {
            return None;
        }
        let begin = match layout.code_header {
            Header::Object => address(object)?.checked_add(layout.code_begin)?,
            Header::Pointer => heap.field(object, layout.code_begin)?,
        };
        let kind = field(layout.code_flags)? & layout.code_kinds;
        Some(Compiled { object, begin, size: field(layout.code_size)?, is_optimized: kind > layout.code_baseline })
    }

    fn contains(&self, instruction: u64) -> bool {
        instruction.checked_sub(self.begin).is_some_and(|offset| offset < u64::from(self.size))
    }

    /// Returns the functions of an instruction, those that were inlined first. `None` if this is no longer code of the function.
    pub(super) fn places<M: Memory>(&self, heap: &Heap<'_, M>, shared: u64, instruction: u64) -> Option<Vec<Place>> {
        let layout = heap.layout;
        let offset = instruction.checked_sub(self.begin)?;
        if !self.is_optimized {
            return None;
        }
        let data = heap.field(self.object, layout.code_data)?;
        let mut own = element(heap, data, layout.deoptimization_shared)?;
        if layout.has_wrapped_shared {
            own = heap.field(own, 8)?;
        }
        if own != shared {
            return None;
        }
        let table = array(heap, heap.field(self.object, layout.code_positions)?, MAX_POSITIONS)?;
        let entries = positions(&table, layout.positions_have_flags);
        let mut position = entries.take_while(|(place, _)| i64::from(*place) <= offset as i64).last()?.1;
        let functions = element(heap, data, layout.deoptimization_literals)?;
        let calls = element(heap, data, layout.deoptimization_inlined)?;
        let mut places = Vec::new();
        while let Some(number) = position.inlined {
            let (call, function) = call(heap, calls, number)?;
            // V8's own functions have none.
            if let Ok(function) = u64::try_from(function) {
                // The pointer may be a weak one.
                places.push((element(heap, functions, function)? & !2, position.at));
            }
            // A function is inlined into one that was inlined before it.
            if call.inlined.is_some_and(|outer| outer >= number) || places.len() > MAX_INLINED {
                return None;
            }
            position = call;
        }
        places.push((shared, position.at));
        Some(places)
    }
}

/// Reads the bytes of an array of bytes, at most `limit`.
fn array<M: Memory>(heap: &Heap<'_, M>, array: u64, limit: u64) -> Option<Vec<u8>> {
    let length = u64::try_from(smi(heap.field(array, LENGTH)?)?).ok()?.min(limit);
    heap.memory.bytes(address(array)?.checked_add(ELEMENTS)?, length, limit)
}

/// Returns an element of an array.
fn element<M: Memory>(heap: &Heap<'_, M>, array: u64, number: u64) -> Option<u64> {
    let length = u64::try_from(smi(heap.field(array, LENGTH)?)?).ok()?;
    if number >= length {
        return None;
    }
    heap.field(array, ELEMENTS + 8 * number)
}

/// Returns the position where a function was inlined, and the number of the function. They are in an array of bytes, 16 for each.
fn call<M: Memory>(heap: &Heap<'_, M>, calls: u64, number: u16) -> Option<(Position, i32)> {
    let length = u64::try_from(smi(heap.field(calls, LENGTH)?)?).ok()?;
    let at = 16 * u64::from(number);
    if at + 16 > length {
        return None;
    }
    let (word, function) = (heap.field(calls, ELEMENTS + at)?, heap.field(calls, ELEMENTS + at + 8)?);
    Some((Position::of(word as i64), function as u32 as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::v8::Layout;

    /// Words of memory; the others are 0.
    struct Words(BTreeMap<u64, u64>);

    impl Memory for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            for (at, byte) in (address..).zip(buffer.iter_mut()) {
                *byte = self.0.get(&(at & !7)).map_or(0, |word| word.to_le_bytes()[(at & 7) as usize]);
            }
            true
        }
    }

    const TYPE_OF_CODE: i32 = 7;
    const FUNCTION: u64 = 0x5001;
    /// Where the instructions begin.
    const BEGIN: u64 = 0x0010_0000;

    fn layout(major: i32) -> Layout {
        Layout::of(|name| {
            Some(match name {
                name if name.ends_with("major_E") => major,
                name if name.ends_with("instance_type__uint16_t") => 12,
                name if name.ends_with("CODE_TYPE") => TYPE_OF_CODE,
                name if name.ends_with("instruction_start__Address") || name.ends_with("FunctionInfoIndex") => return None,
                name if name.ends_with("instruction_start__uintptr_t") => {
                    if major < 11 {
                        96
                    } else {
                        40
                    }
                }
                name if name.ends_with("instruction_size__int") => 56,
                name if name.ends_with("flags__uint32_t") => 52,
                name if name.ends_with("FieldMask") => 15,
                name if name.ends_with("CodeKindBaseline") => 11,
                name if name.ends_with("LiteralArrayIndex") => 2,
                name if name.ends_with("InliningPositionsIndex") => 7,
                _ => 0,
            })
        })
        .unwrap()
    }

    fn number(number: u64) -> u64 {
        number << 32
    }

    /// Code of 0x100 bytes. From 0x10 on it is of the function, from 0x20 on of the second inlined function, which is inlined into the first.
    fn code(layout: &Layout) -> Words {
        let (map, object, data, table, literals, inlined) = (0x1000, 0x2000, 0x3000, 0x4000, 0x6000, 0x7000);
        let object = if layout.code_header == Header::Object { BEGIN - 96 } else { object };
        let mut words = BTreeMap::from([
            (map + 8, (TYPE_OF_CODE as u64) << 32),
            (object, map + 1),
            (object + layout.code_data, data + 1),
            (object + layout.code_positions, table + 1),
            (object + 48, 12 << 32),
            (object + 56, 0x100),
            (data + LENGTH, number(8)),
            (data + ELEMENTS + 8 * 2, literals + 1),
            (data + ELEMENTS + 8 * 6, FUNCTION),
            (data + ELEMENTS + 8 * 7, inlined + 1),
            (literals + LENGTH, number(2)),
            (literals + ELEMENTS, 0x5101),
            // A weak pointer.
            (literals + ELEMENTS + 8, 0x5203),
            (inlined + LENGTH, number(32)),
            // The first function is called at position 30 of the function, the second one at position 40 of the first.
            (inlined + ELEMENTS, 31 << 1),
            (inlined + ELEMENTS + 8, 0),
            (inlined + ELEMENTS + 16, 1 << 31 | 41 << 1),
            (inlined + ELEMENTS + 24, 1),
        ]);
        // From -1 on, steps of 0x11 and 0x10, to position 10, and to position 50 of the second inlined function.
        let steps: [i64; 2] = [11 << 1, 2 << 31 | 51 << 1];
        let mut bytes = Vec::new();
        for (step, moved) in [(0x11i64, steps[0]), (0x10, steps[1] - steps[0])] {
            for mut value in [(step << 1) as u64, (moved << 1) as u64] {
                while value > 0x7f {
                    bytes.push(value as u8 | 0x80);
                    value >>= 7;
                }
                bytes.push(value as u8);
            }
        }
        words.insert(table + LENGTH, number(bytes.len() as u64));
        bytes.resize(16, 0);
        for (at, word) in bytes.as_chunks().0.iter().enumerate() {
            words.insert(table + ELEMENTS + 8 * at as u64, u64::from_le_bytes(*word));
        }
        if layout.code_header == Header::Pointer {
            words.extend([(object + 40, BEGIN), (BEGIN - 24, object + 1)]);
        }
        Words(words)
    }

    fn places(memory: &Words, layout: &Layout, shared: u64, instruction: u64) -> Option<Vec<Place>> {
        let heap = Heap { memory, layout };
        Codes::default().at(&heap, instruction, &mut 1000)?.places(&heap, shared, instruction)
    }

    #[test]
    fn an_instruction_is_of_the_function_and_of_those_that_are_inlined_there() {
        for layout in [layout(10), layout(12)] {
            let memory = code(&layout);
            assert_eq!(places(&memory, &layout, FUNCTION, BEGIN + 0x10), Some(vec![(FUNCTION, 10)]));
            assert_eq!(places(&memory, &layout, FUNCTION, BEGIN + 0x1f), Some(vec![(FUNCTION, 10)]));
            let all = Some(vec![(0x5201, 50), (0x5101, 40), (FUNCTION, 30)]);
            assert_eq!(places(&memory, &layout, FUNCTION, BEGIN + 0x20), all);
            assert_eq!(places(&memory, &layout, FUNCTION, BEGIN + 0xff), all);
            // Before the first position, behind the code, and in another function's frame.
            assert_eq!(places(&memory, &layout, FUNCTION, BEGIN + 4), None);
            assert_eq!(places(&memory, &layout, FUNCTION, BEGIN + 0x100), None);
            assert_eq!(places(&memory, &layout, FUNCTION + 8, BEGIN + 0x10), None);
        }
    }

    #[test]
    fn code_that_was_found_is_looked_at_again() {
        let layout = layout(12);
        let mut memory = code(&layout);
        let (mut codes, mut left) = (Codes::default(), 1000);
        assert!(codes.at(&Heap { memory: &memory, layout: &layout }, BEGIN + 0x10, &mut left).is_some());
        // The code was freed.
        memory.0.insert(0x2000 + 56, 8);
        assert!(codes.at(&Heap { memory: &memory, layout: &layout }, BEGIN + 0x10, &mut left).is_none());
    }

    #[test]
    fn inlined_functions_do_not_run_in_circles() {
        let layout = layout(12);
        let mut memory = code(&layout);
        memory.0.insert(0x7000 + ELEMENTS, 2 << 31 | 31 << 1);
        assert_eq!(places(&memory, &layout, FUNCTION, BEGIN + 0x20), None);
    }
}
