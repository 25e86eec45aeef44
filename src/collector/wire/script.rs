//! The functions of an interpreter in a sample: `struct script_record` of `bpf/record.h`.
//!
//! ```text
//! native frames, innermost first      sp 0 … sp 1 … sp 2 … sp 3 …
//! functions, in runs                  f f f │ f f │
//!                                           └ anchor: an address between sp 1 and sp 2, so the run is behind frame 1
//! ```

use std::mem::offset_of;

use crate::object::numbers::{u32_at, u64_at};

/// The kind of the record: `RECORD_SCRIPT`.
const SCRIPT: u8 = 254;

/// Kinds of words: `enum script_word`.
const KIND_SHIFT: u32 = 56;
const FUNCTION: u64 = 1;
const RUN_ENDS: u64 = 2;
const ADDRESS: u64 = (1 << KIND_SHIFT) - 1;

/// `struct script_record`, used for its offsets.
#[repr(C)]
struct ScriptRecord {
    time: u64,
    base: u64,
    tgid: u32,
    tid: u32,
    cpu: u32,
    frames: u32,
    end: u8,
    reserved: [u8; 16],
    kind: u8,
    reserved2: [u8; 14],
}

// These assertions are also in bpf/record.h.
const _: () = {
    assert!(offset_of!(ScriptRecord, base) == 8);
    assert!(offset_of!(ScriptRecord, cpu) == 24);
    assert!(offset_of!(ScriptRecord, frames) == 28);
    assert!(offset_of!(ScriptRecord, end) == 32);
    assert!(offset_of!(ScriptRecord, kind) == 49);
    assert!(HEADER == 64);
};

const HEADER: usize = size_of::<ScriptRecord>();

/// A function, as the BPF program found it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ScriptFrame {
    /// Address of its code object.
    pub(crate) code: u64,
    /// The instruction, read from the function's frame.
    pub(crate) instruction: u32,
    /// A hash of the code object's contents.
    pub(crate) check: u32,
}

/// The reason why the list of a sample's functions ends: `enum script_end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScriptEnd {
    /// The outermost function was reached.
    Whole,
    /// There are more functions.
    Cut,
    /// The thread runs no interpreter.
    NoState,
    /// The memory could not be read.
    Unreadable,
}

impl ScriptEnd {
    fn from_wire(number: u8) -> ScriptEnd {
        match number {
            1 => ScriptEnd::Whole,
            2 => ScriptEnd::Cut,
            3 => ScriptEnd::NoState,
            _ => ScriptEnd::Unreadable,
        }
    }
}

/// The functions of an interpreter in one sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script<'a> {
    base: u64,
    pub(crate) end: ScriptEnd,
    stack_pointers: &'a [u8],
    words: &'a [u8],
}

/// A part of a stack with functions in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The native frame of this number, counted from the innermost one.
    Native(usize),
    /// A function.
    Function(ScriptFrame),
}

impl<'a> Script<'a> {
    /// Returns CPU and time of a record's sample, or `None` for other records.
    pub(crate) fn sample_of(record: &[u8]) -> Option<(u32, u64)> {
        if record.get(offset_of!(ScriptRecord, kind)) != Some(&SCRIPT) {
            return None;
        }
        Some((u32_at(record, offset_of!(ScriptRecord, cpu))?, u64_at(record, offset_of!(ScriptRecord, time))?))
    }

    /// Parses the record in these bytes. Returns `None` if they are shorter than the record says.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Script<'a>> {
        let frames = u32_at(bytes, offset_of!(ScriptRecord, frames))? as usize;
        let (stack_pointers, words) = bytes.get(HEADER..)?.split_at_checked(frames.checked_add(1)? / 2 * 8)?;
        let stack_pointers = stack_pointers.get(..frames * 4)?;
        let base = u64_at(bytes, offset_of!(ScriptRecord, base))?;
        Some(Script { base, end: ScriptEnd::from_wire(*bytes.get(offset_of!(ScriptRecord, end))?), stack_pointers, words })
    }

    /// Returns functions and ends of runs, innermost first.
    fn words(&self) -> impl Iterator<Item = u64> + 'a {
        self.words.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
    }

    /// Returns all functions, innermost first.
    pub(crate) fn functions(&self) -> impl Iterator<Item = ScriptFrame> + 'a {
        let mut words = self.words();
        std::iter::from_fn(move || {
            loop {
                let word = words.next()?;
                if word >> KIND_SHIFT == FUNCTION {
                    let rest = words.next()?;
                    return Some(ScriptFrame { code: word & ADDRESS, instruction: rest as u32, check: (rest >> 32) as u32 });
                }
            }
        })
    }

    /// Calls `each` for native frames and functions in the order of the stack, innermost first. `native` is the number of native frames.
    ///
    /// A run follows the native frame whose stack contains the run's anchor. If the native walk has ended before that frame, the run comes
    /// last. A run without an end comes right after the run before it.
    pub(crate) fn merge(&self, native: usize, mut each: impl FnMut(Part)) {
        let stack_pointer = |frame: usize| {
            let distance = u32_at(self.stack_pointers, frame.checked_mul(4)?)?;
            Some(self.base.wrapping_add(u64::from(distance) << 3))
        };
        let mut next = 0;
        let mut run = Vec::new();
        let mut words = self.words();
        let mut close = |run: &mut Vec<ScriptFrame>, anchor: Option<u64>, each: &mut dyn FnMut(Part)| {
            // True for all frames up to the frame that contains the anchor.
            let lies_beyond = |frame: usize| stack_pointer(frame).zip(anchor).is_none_or(|(pointer, anchor)| pointer <= anchor);
            while next < native && lies_beyond(next) {
                each(Part::Native(next));
                next += 1;
            }
            run.drain(..).for_each(|frame| each(Part::Function(frame)));
        };
        while let Some(word) = words.next() {
            match word >> KIND_SHIFT {
                FUNCTION => {
                    let Some(rest) = words.next() else { break };
                    run.push(ScriptFrame { code: word & ADDRESS, instruction: rest as u32, check: (rest >> 32) as u32 });
                }
                RUN_ENDS => close(&mut run, Some(word & ADDRESS).filter(|anchor| *anchor > 0), &mut each),
                _ => break,
            }
        }
        // The walk has ended within a run. The native frame that runs these functions is unknown.
        run.into_iter().for_each(|frame| each(Part::Function(frame)));
        (next..native).for_each(|frame| each(Part::Native(frame)));
    }

    /// Merges functions without anchors. Each of them has a call of the interpreter's loop, so it has a native frame. `is_loop` says for
    /// each native frame whether it is the loop's. `is_whole` says whether these are all native frames.
    ///
    /// If the counts differ, the outermost functions and loops are paired, provided that both ends are known: a function may be about to
    /// begin, or may have just ended. A function without a loop is placed next to the nearest loop.
    pub(crate) fn merge_by_count(&self, is_loop: &[bool], is_whole: bool, mut each: impl FnMut(Part)) {
        let mut functions = self.functions();
        let (mut idle, mut more) = (0, 0);
        if is_whole && self.end == ScriptEnd::Whole {
            let (loops, count) = (is_loop.iter().filter(|is_loop| **is_loop).count(), self.functions().count());
            (idle, more) = (loops.saturating_sub(count), count.saturating_sub(loops));
        }
        for (frame, is_loop) in is_loop.iter().copied().enumerate() {
            each(Part::Native(frame));
            if is_loop && idle > 0 {
                idle -= 1;
            } else if is_loop {
                functions.by_ref().take(std::mem::take(&mut more) + 1).for_each(|function| each(Part::Function(function)));
            }
        }
        functions.for_each(|function| each(Part::Function(function)));
    }

    /// Returns the bytes of a record whose sample has these user frames after the first `before`, each with a stack pointer.
    pub(crate) fn with_user(bytes: &[u8], before: usize, stack_pointers: impl Iterator<Item = u64>) -> Option<Vec<u8>> {
        let script = Script::parse(bytes)?;
        let mut new = bytes.get(..HEADER)?.to_vec();
        new.extend(script.stack_pointers.get(..before.checked_mul(4)?)?);
        for pointer in stack_pointers {
            let distance = pointer.wrapping_sub(script.base) >> 3;
            new.extend(u32::try_from(distance).unwrap_or(u32::MAX).to_ne_bytes());
        }
        let frames = u32::try_from((new.len() - HEADER) / 4).ok()?;
        new.resize(new.len().next_multiple_of(8), 0);
        new.extend(script.words);
        new.get_mut(offset_of!(ScriptRecord, frames)..)?.first_chunk_mut().map(|place| *place = frames.to_ne_bytes())?;
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(number: u64) -> [u64; 2] {
        [FUNCTION << KIND_SHIFT | number, number << 32 | 7]
    }

    fn end(anchor: u64) -> u64 {
        RUN_ENDS << KIND_SHIFT | anchor
    }

    /// A record of frames with these stack pointers.
    fn record(stack_pointers: &[u64], words: &[u64]) -> Vec<u8> {
        let base = stack_pointers.first().copied().unwrap_or_default();
        let mut bytes = vec![0; HEADER];
        bytes[offset_of!(ScriptRecord, base)..][..8].copy_from_slice(&base.to_ne_bytes());
        bytes[offset_of!(ScriptRecord, frames)..][..4].copy_from_slice(&(stack_pointers.len() as u32).to_ne_bytes());
        bytes[offset_of!(ScriptRecord, kind)] = SCRIPT;
        bytes.extend(stack_pointers.iter().flat_map(|pointer| (((pointer - base) >> 3) as u32).to_ne_bytes()));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    /// Returns native frames as numbers, functions as letters.
    fn merged(bytes: &[u8], native: usize) -> String {
        let mut text = String::new();
        Script::parse(bytes).unwrap().merge(native, |part| {
            text.push(match part {
                Part::Native(frame) => char::from(b'0' + frame as u8),
                Part::Function(frame) => char::from(b'a' + frame.code as u8),
            });
        });
        text
    }

    #[test]
    fn functions_lie_behind_the_frame_that_has_their_anchor() {
        let mut words = Vec::new();
        words.extend([function(0), function(1)].concat());
        words.push(end(0x1210));
        words.extend(function(2));
        words.push(end(0x1300));
        let bytes = record(&[0x1000, 0x1100, 0x1200, 0x1300, 0x1400], &words);
        assert_eq!(merged(&bytes, 5), "012ab3c4");
        // The walk was continued in user space.
        let more = Script::with_user(&bytes, 2, [0x1200, 0x1280, 0x1300].into_iter()).unwrap();
        assert_eq!(merged(&more, 5), "012ab34c");
        assert_eq!(Script::parse(&bytes).unwrap().functions().count(), 3);
    }

    #[test]
    fn functions_of_a_stack_that_ends_early_come_last() {
        let mut words = function(0).to_vec();
        words.push(end(0x1010));
        words.extend(function(1));
        words.push(end(0x9000));
        words.extend(function(2));
        assert_eq!(merged(&record(&[0x1000, 0x1100], &words), 2), "0a1bc");
        assert_eq!(merged(&record(&[], &words), 0), "abc");
        assert_eq!(merged(&record(&[], &words), 3), "012abc", "frames without stack pointers");
        words.truncate(5);
        assert_eq!(merged(&record(&[0x1000, 0x1100, 0x1200], &words), 3), "0ab12", "functions that end early");
    }

    #[test]
    fn functions_without_anchors_lie_behind_their_loops() {
        let words = [function(0), function(1), function(2)].concat();
        let mut bytes = record(&[0x1000; 6], &words);
        bytes[offset_of!(ScriptRecord, end)] = 1;
        let merged = |bytes: &[u8], loops: &str, is_whole| {
            let mut text = String::new();
            let loops: Vec<bool> = loops.chars().map(|c| c == 'L').collect();
            Script::parse(bytes).unwrap().merge_by_count(&loops, is_whole, |part| {
                text.push(match part {
                    Part::Native(frame) => char::from(b'0' + frame as u8),
                    Part::Function(frame) => char::from(b'a' + frame.code as u8),
                });
            });
            text
        };
        assert_eq!(merged(&bytes, ".L.LL.", true), "01a23b4c5");
        // A loop is about to begin, and the loop of a function is not recognized.
        assert_eq!(merged(&bytes, "L.LLL.", true), "012a3b4c5");
        assert_eq!(merged(&bytes, "..L.L.", true), "012ab34c5");
        // Stacks that end early are paired at the innermost end.
        assert_eq!(merged(&bytes, "L.L", false), "0a12bc");
        bytes[offset_of!(ScriptRecord, end)] = 2;
        assert_eq!(merged(&bytes, "LLLLL", true), "0a1b2c34");
    }

    #[test]
    fn what_is_damaged_gives_less_and_does_no_harm() {
        let bytes = record(&[0x1000, 0x1100], &function(0));
        for length in 0..bytes.len() {
            if let Some(script) = Script::parse(&bytes[..length]) {
                script.merge(3, |_| ());
            }
        }
        let mut bytes = bytes;
        bytes[offset_of!(ScriptRecord, frames)..][..4].fill(0xff);
        assert!(Script::parse(&bytes).is_none());
    }
}
