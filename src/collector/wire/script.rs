//! The functions of an interpreter in a sample: `struct script_record` of `bpf/record.h`.
//!
//! ```text
//! native frames, innermost first      sp 0 … sp 1 … sp 2 … sp 3 …
//! functions, in runs                  f f f │ f f │
//!                                           └ anchor: an address between sp 1 and sp 2, so the run is behind frame 1
//! ```

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;

use crate::object::numbers::{u32_at, u64_at};

/// The kind of the record: `RECORD_SCRIPT`.
const SCRIPT: u8 = 254;

/// Kinds of words: `enum script_word`.
const KIND_SHIFT: u32 = 56;
const FUNCTION: u64 = 1;
const RUN_ENDS: u64 = 2;
const AGAIN: u64 = 3;
const NEXT_STATE: u64 = 4;
const IN_FRAME: u64 = 5;
const COMPILED: u64 = 6;
const INTERPRETED: u64 = 7;
const STUB: u64 = 8;
const FROZEN: u64 = 9;
/// Bits of the number of a frame, in the word behind its function. Above them are those of the instruction.
const FRAME_BITS: u32 = 11;
const _: () = assert!(FRAME_BITS + 21 == 32);
const ADDRESS: u64 = (1 << KIND_SHIFT) - 1;
const COUNT_SHIFT: u32 = 32;

/// Most functions of a sample: `MAX_SCRIPT_FRAMES`.
pub(crate) const MAX_FUNCTIONS: usize = 4096;

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

/// Kinds of code objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Of {
    /// A function of Python or V8.
    Function,
    /// Compiled code of a JVM. The check is its number.
    Compiled,
    /// A method that a JVM interprets.
    Interpreted,
    /// Other code of a JVM.
    Stub,
    /// The place of frames of a virtual thread that are in the heap.
    Frozen,
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

    fn lacks_functions(self) -> bool {
        matches!(self, ScriptEnd::Cut | ScriptEnd::Unreadable)
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
    /// The outermost functions, which the walk did not reach.
    Missing,
}

/// The part of the program to which a native frame belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A call of its loop.
    Loop,
    /// Another function in the interpreter's file.
    Interpreter,
    /// Other code.
    Other,
}

/// An entry of a record. A word that counts repeated functions gives an item for each of them.
enum Item {
    Function(ScriptFrame),
    RunEnds(Option<u64>),
    /// The functions of another state of the thread follow. Those before end so.
    NextState(ScriptEnd),
}

/// The functions of one state of a thread. Other states of it have other interpreters, which run each other.
struct Chain {
    /// Functions of each call of the interpreter's loop, and its anchor.
    runs: VecDeque<(Vec<ScriptFrame>, Option<u64>)>,
    /// Functions whose call was not reached.
    rest: Vec<ScriptFrame>,
    end: ScriptEnd,
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
    fn items(&self) -> impl Iterator<Item = Item> + Clone + use<'a> {
        let words = self.words;
        let mut at = 0;
        let mut again: Option<(ScriptFrame, u64)> = None;
        let function = move |at: usize| {
            let word = u64_at(words, at).filter(|word| word >> KIND_SHIFT == FUNCTION)?;
            let rest = u64_at(words, at + 8)?;
            Some(ScriptFrame { code: word & ADDRESS, instruction: rest as u32, check: (rest >> 32) as u32 })
        };
        let mut left = MAX_FUNCTIONS;
        std::iter::from_fn(move || {
            if let Some((function, count)) = again {
                left = left.checked_sub(1)?;
                again = Some((function, count - 1)).filter(|(_, count)| *count > 0);
                return Some(Item::Function(function));
            }
            let word = u64_at(words, at)?;
            at += 8;
            match word >> KIND_SHIFT {
                FUNCTION => {
                    left = left.checked_sub(1)?;
                    at += 8;
                    Some(Item::Function(function(at - 16)?))
                }
                AGAIN => {
                    left = left.checked_sub(1)?;
                    let function = function((word as u32 as usize).checked_mul(8)?)?;
                    again = Some((function, ((word & ADDRESS) >> COUNT_SHIFT).saturating_sub(1))).filter(|(_, count)| *count > 0);
                    Some(Item::Function(function))
                }
                RUN_ENDS => Some(Item::RunEnds(Some(word & ADDRESS).filter(|anchor| *anchor > 0))),
                NEXT_STATE => Some(Item::NextState(ScriptEnd::from_wire(word as u8))),
                // The functions in frames come last.
                _ => None,
            }
        })
    }

    /// Returns all functions, innermost first.
    pub(crate) fn functions(&self) -> impl Iterator<Item = ScriptFrame> + Clone + use<'a> {
        self.items().filter_map(|item| match item {
            Item::Function(function) => Some(function),
            Item::RunEnds(_) | Item::NextState(_) => None,
        })
    }

    /// Returns the functions of native frames, each with the number of its frame. The frames are in order. The instruction is one more than the
    /// number that the runtime has in the frame; 0: not known.
    pub(crate) fn in_frames(&self) -> impl Iterator<Item = (usize, Of, ScriptFrame)> + Clone + use<'a> {
        let words = self.words;
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                let word = u64_at(words, at)?;
                at += 8;
                let of = match word >> KIND_SHIFT {
                    IN_FRAME => Of::Function,
                    COMPILED => Of::Compiled,
                    INTERPRETED => Of::Interpreted,
                    STUB => Of::Stub,
                    FROZEN => Of::Frozen,
                    other => {
                        at += if other == FUNCTION { 8 } else { 0 };
                        continue;
                    }
                };
                let rest = u64_at(words, at)?;
                at += 8;
                let instruction = rest as u32 >> FRAME_BITS;
                let frame = (rest & ((1 << FRAME_BITS) - 1)) as usize;
                return Some((frame, of, ScriptFrame { code: word & ADDRESS, instruction, check: (rest >> 32) as u32 }));
            }
        })
    }

    /// Returns the functions of each state.
    fn chains(&self) -> Vec<Chain> {
        let (mut chains, mut runs, mut run) = (Vec::new(), VecDeque::new(), Vec::new());
        for item in self.items() {
            match item {
                Item::Function(function) => run.push(function),
                Item::RunEnds(anchor) => runs.push_back((std::mem::take(&mut run), anchor)),
                Item::NextState(end) => {
                    chains.push(Chain { runs: std::mem::take(&mut runs), rest: std::mem::take(&mut run), end });
                }
            }
        }
        chains.push(Chain { runs, rest: run, end: self.end });
        chains
    }

    /// Whether these are functions of one interpreter.
    pub(crate) fn is_of_one_state(&self) -> bool {
        !self.items().any(|item| matches!(item, Item::NextState(_)))
    }

    /// Whether there are more functions than the record has.
    pub(crate) fn lacks_functions(&self) -> bool {
        let before = self.items().filter_map(|item| if let Item::NextState(end) = item { Some(end) } else { None });
        before.chain([self.end]).any(ScriptEnd::lacks_functions)
    }

    /// Calls `each` for native frames and functions in the order of the stack, innermost first. `native` is the number of native frames,
    /// and `role` returns the role of each.
    ///
    /// A run follows the native frame whose stack contains the run's anchor. If the native walk has ended before that frame, the run comes
    /// last. If the walk of functions ended before it found the run's anchor, the run follows the innermost call of the loop that is left.
    /// The runs of several states are inside each other.
    pub(crate) fn merge(&self, native: usize, role: impl Fn(usize) -> Role, mut each: impl FnMut(Part)) {
        let stack_pointer = |frame: usize| {
            let distance = u32_at(self.stack_pointers, frame.checked_mul(4)?)?;
            Some(self.base.wrapping_add(u64::from(distance) << 3))
        };
        let mut chains = self.chains();
        let mut next = 0;
        let place = |chain: &Chain| chain.runs.front().map(|(_, anchor)| anchor.unwrap_or(u64::MAX));
        let mut is_closed = vec![false; chains.len()];
        let inner = |chains: &[Chain]| (0..chains.len()).filter_map(|chain| Some((place(chains.get(chain)?)?, chain))).min();
        while let Some((_, chain)) = inner(&chains)
            && let Some((run, anchor)) = chains.get_mut(chain).and_then(|chain| chain.runs.pop_front())
        {
            // True for all frames up to the frame that contains the anchor.
            let lies_beyond = |frame: usize| stack_pointer(frame).zip(anchor).is_none_or(|(pointer, anchor)| pointer <= anchor);
            while next < native && lies_beyond(next) {
                each(Part::Native(next));
                next += 1;
            }
            run.into_iter().for_each(|frame| each(Part::Function(frame)));
            is_closed.get_mut(chain).into_iter().for_each(|is_closed| *is_closed = true);
        }
        for (Chain { rest, end, .. }, is_closed) in chains.into_iter().zip(is_closed) {
            let lacks = end.lacks_functions();
            // Otherwise the walk has ended within a run, or before the first one.
            let is_placed = rest.is_empty() && (is_closed || !lacks);
            let behind = match is_placed {
                true => next,
                false => innermost_loop(next..native, &role).map_or(native, |frame| frame + 1),
            };
            (next..behind).for_each(|frame| each(Part::Native(frame)));
            next = behind;
            rest.into_iter().for_each(|frame| each(Part::Function(frame)));
            lacks.then_some(Part::Missing).into_iter().for_each(&mut each);
        }
        (next..native).for_each(|frame| each(Part::Native(frame)));
    }

    /// Merges functions without anchors. Each of them has a call of the interpreter's loop, so it has a native frame. `is_loop` says for
    /// each native frame whether it is the loop's. `is_whole` says whether these are all native frames.
    ///
    /// If the counts differ, the outermost functions and loops are paired, provided that both ends are known: a function may be about to
    /// begin, or may have just ended. A function without a loop is placed next to the nearest loop.
    pub(crate) fn merge_by_count(&self, is_loop: &[bool], is_whole: bool, mut each: impl FnMut(Part)) {
        let missing = self.lacks_functions().then_some(Part::Missing);
        let mut functions = self.functions().map(Part::Function).chain(missing);
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
                functions.by_ref().take(std::mem::take(&mut more) + 1).for_each(&mut each);
            }
        }
        functions.for_each(each);
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

/// Returns the innermost call of the interpreter's loop among these native frames.
///
/// The loop's code may not be known there: it may be many functions, and compilers move code that rarely runs. Then it is in one of the
/// groups of frames that follow each other in the interpreter's file. A group with a loop has a function that calls the loop, so it has
/// two frames or more. Other code calls the innermost group for memory and locks more often than to run functions. So the group after it
/// is taken if there is one, and the outermost frame of that group.
fn innermost_loop(frames: Range<usize>, role: &impl Fn(usize) -> Role) -> Option<usize> {
    let is_loop = |frame: &usize| role(*frame) == Role::Loop;
    let is_its_code = |frame: usize| role(frame) == Role::Interpreter;
    let of_groups =
        || frames.clone().filter(|frame| is_its_code(*frame) && !(frames.contains(&(frame + 1)) && is_its_code(frame + 1)));
    let last_of_groups = of_groups().filter(|last| *last > frames.start && is_its_code(last - 1));
    frames.clone().find(is_loop).or_else(|| last_of_groups.take(2).last())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that was met before, at this word.
    fn again(word: u64, count: u64) -> u64 {
        AGAIN << KIND_SHIFT | count << COUNT_SHIFT | word
    }

    fn function(number: u64) -> [u64; 2] {
        [FUNCTION << KIND_SHIFT | number, number << 32 | 7]
    }

    fn end(anchor: u64) -> u64 {
        RUN_ENDS << KIND_SHIFT | anchor
    }

    /// A record of frames with these stack pointers, and of all functions.
    fn record(stack_pointers: &[u64], words: &[u64]) -> Vec<u8> {
        let base = stack_pointers.first().copied().unwrap_or_default();
        let mut bytes = vec![0; HEADER];
        bytes[offset_of!(ScriptRecord, base)..][..8].copy_from_slice(&base.to_ne_bytes());
        bytes[offset_of!(ScriptRecord, frames)..][..4].copy_from_slice(&(stack_pointers.len() as u32).to_ne_bytes());
        bytes[offset_of!(ScriptRecord, kind)] = SCRIPT;
        bytes[offset_of!(ScriptRecord, end)] = 1;
        bytes.extend(stack_pointers.iter().flat_map(|pointer| (((pointer - base) >> 3) as u32).to_ne_bytes()));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    /// Native frames as numbers, functions as letters, missing ones as `…`.
    fn letter(part: Part) -> char {
        match part {
            Part::Native(frame) => char::from(b'0' + frame as u8),
            Part::Function(frame) => char::from(b'a' + frame.code as u8),
            Part::Missing => '…',
        }
    }

    /// Merges a record with as many native frames as there are letters: `L` is the loop, `i` other code of the interpreter.
    fn merged_with(bytes: &[u8], roles: &str) -> String {
        let role = |frame: usize| match roles.as_bytes()[frame] {
            b'L' => Role::Loop,
            b'i' => Role::Interpreter,
            _ => Role::Other,
        };
        let mut text = String::new();
        Script::parse(bytes).unwrap().merge(roles.len(), role, |part| text.push(letter(part)));
        text
    }

    fn merged(bytes: &[u8], native: usize) -> String {
        merged_with(bytes, &".".repeat(native))
    }

    #[test]
    fn functions_in_frames_come_after_those_of_chains() {
        let in_frame =
            |frame: u64, instruction: u64| [IN_FRAME << KIND_SHIFT | 0x7f01, 9 << 32 | instruction << FRAME_BITS | frame];
        let words = [&function(3)[..], &[again(0, 5), end(0x1100)], &in_frame(1, 77), &in_frame(2047, (1 << 21) - 1)].concat();
        let bytes = record(&[0x1000, 0x1200], &words);
        let script = Script::parse(&bytes).unwrap();
        let found: Vec<_> = script.in_frames().map(|(frame, _, function)| (frame, function.instruction)).collect();
        assert_eq!(found, [(1, 77), (2047, (1 << 21) - 1)]);
        let expected = ScriptFrame { code: 0x7f01, instruction: 77, check: 9 };
        assert_eq!(script.in_frames().next().map(|(_, _, function)| function), Some(expected));
        assert_eq!(script.functions().count(), 6);
        // A word is missing.
        let cut = Script::parse(&bytes[..bytes.len() - 8]).unwrap();
        assert_eq!(cut.in_frames().count(), 1);
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
    }

    #[test]
    fn functions_whose_call_was_not_reached_lie_behind_the_innermost_loop() {
        let cut = |stack_pointers: &[u64], words: &[u64]| {
            let mut bytes = record(stack_pointers, words);
            bytes[offset_of!(ScriptRecord, end)] = 2;
            bytes
        };
        let pointers = [0x1000, 0x1100, 0x1200, 0x1300, 0x1400, 0x1500];
        let one_run = cut(&pointers, &[function(0), function(1)].concat());
        assert_eq!(merged_with(&one_run, "..LiL."), "012ab…345");
        // The loop's code is not known there.
        assert_eq!(merged_with(&one_run, "..ii.i"), "0123ab…45");
        assert_eq!(merged_with(&one_run, ".ii.ii"), "012345ab…", "the innermost function frees memory");
        assert_eq!(merged_with(&one_run, "......"), "012345ab…");
        // The loop of an earlier run is not taken once more.
        let mut words = function(0).to_vec();
        words.push(end(0x1210));
        words.extend(function(1));
        assert_eq!(merged_with(&cut(&pointers, &words), "..LiL."), "012a34b…5");
        // 3.10 to 3.12 know the call's anchor before they know its functions.
        words.push(end(0x1310));
        assert_eq!(merged_with(&cut(&pointers, &words), "..LiL."), "012a3b…45");
        assert_eq!(merged_with(&cut(&pointers, &[]), "..LiL."), "012…345");
        // Nothing is missing.
        assert_eq!(merged_with(&record(&pointers, &[]), "..LiL."), "012345");
    }

    #[test]
    fn functions_of_two_states_lie_inside_each_other() {
        let next = |end: u64| NEXT_STATE << KIND_SHIFT | end;
        let mut words = function(0).to_vec();
        words.push(end(0x1310));
        words.extend(function(1));
        words.extend([end(0x1410), next(1)]);
        words.extend(function(2));
        words.push(end(0x1110));
        words.extend(function(3));
        words.push(end(0x1350));
        let pointers = [0x1000, 0x1100, 0x1200, 0x1300, 0x1400, 0x1500];
        let bytes = record(&pointers, &words);
        assert_eq!(merged(&bytes, 6), "01c23ad4b5");
        assert_eq!(Script::parse(&bytes).unwrap().functions().count(), 4);
        // The first state's outer functions are missing.
        words.truncate(3);
        words.push(next(2));
        words.extend(function(2));
        words.push(end(0x1110));
        let bytes = record(&pointers, &words);
        assert!(Script::parse(&bytes).unwrap().lacks_functions());
        assert_eq!(merged(&bytes, 6), "01c23a…45");
    }

    #[test]
    fn a_recursion_is_sent_once_and_counted() {
        let mut words = function(0).to_vec();
        words.extend(function(1));
        words.extend([again(2, 3), again(0, 1), end(0x1110)]);
        words.extend(function(2));
        words.extend([again(0, 2), end(0x1210)]);
        let bytes = record(&[0x1000, 0x1100, 0x1200], &words);
        assert_eq!(merged(&bytes, 3), "01abbbba2caa");
        assert_eq!(Script::parse(&bytes).unwrap().functions().count(), 9);
        let more = Script::with_user(&bytes, 0, [0x1000, 0x1080, 0x1100, 0x1200].into_iter()).unwrap();
        assert_eq!(merged(&more, 4), "012abbbba3caa");
        // Counts and places that no sampler makes.
        for word in [again(0, 0xff_ffff), again(1, 1), again(99, 1), again(0, 0)] {
            let bytes = record(&[], &[&function(0)[..], &[word, word]].concat());
            assert!(Script::parse(&bytes).unwrap().functions().count() <= MAX_FUNCTIONS);
        }
    }

    #[test]
    fn functions_without_anchors_lie_behind_their_loops() {
        let words = [function(0), function(1), function(2)].concat();
        let mut bytes = record(&[0x1000; 6], &words);
        let merged = |bytes: &[u8], loops: &str, is_whole| {
            let mut text = String::new();
            let loops: Vec<bool> = loops.chars().map(|c| c == 'L').collect();
            Script::parse(bytes).unwrap().merge_by_count(&loops, is_whole, |part| text.push(letter(part)));
            text
        };
        assert_eq!(merged(&bytes, ".L.LL.", true), "01a23b4c5");
        // A loop is about to begin, and the loop of a function is not recognized.
        assert_eq!(merged(&bytes, "L.LLL.", true), "012a3b4c5");
        assert_eq!(merged(&bytes, "..L.L.", true), "012ab34c5");
        // Stacks that end early are paired at the innermost end.
        assert_eq!(merged(&bytes, "L.L", false), "0a12bc");
        bytes[offset_of!(ScriptRecord, end)] = 2;
        assert_eq!(merged(&bytes, "LLLLL", true), "0a1b2c3…4");
        assert_eq!(merged(&bytes, "LL", true), "0a1bc…");
    }

    #[test]
    fn what_is_damaged_gives_less_and_does_no_harm() {
        let bytes = record(&[0x1000, 0x1100], &function(0));
        for length in 0..bytes.len() {
            if let Some(script) = Script::parse(&bytes[..length]) {
                script.merge(3, |_| Role::Loop, |_| ());
            }
        }
        let mut bytes = bytes;
        bytes[offset_of!(ScriptRecord, frames)..][..4].fill(0xff);
        assert!(Script::parse(&bytes).is_none());
    }
}
