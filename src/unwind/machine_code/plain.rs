//! The quick way through a function of x86_64 that does nothing unusual with its stack: nearly all that compilers make.
//!
//! It finds the same as [`super::function`], or nothing; then that module follows the function. It gives up on stack pointers
//! whose distance from the CFA is not a number, on threads, and on system calls. It also gives up on functions that do not keep
//! to the conventions, and on ways that contradict each other. At the begin of a block, only registers that a function keeps are
//! known. So a table of jumps has to be loaded in the block that jumps by it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::jumps::{Jumps, Width};
use super::known::{Evidence, Known};
use super::outcome::{Budget, Outcome, Row};
use super::plain_block::{Input, Place, RETURN_AT, kept};
use super::quick_frame::{Frame, RETURN, RSP, Value};
use super::quick_x86::{Quick, Step};
use super::text::Text;
use crate::object::headers::Arch;

const MOST_JUMPS: u64 = 1024;
/// Most visits to the instructions of a function, for each byte that it has.
const MOST_VISITS: u64 = 8;

/// A block of instructions, like that of `super::function`. Places count from the begin of the code.
struct Block {
    start: usize,
    input: Input,
    end: usize,
    after: Option<u64>,
    is_padded: bool,
    leaves: bool,
    ends: bool,
    /// How often it was followed. Only rows and ways of the last time are valid.
    turn: u32,
    is_waiting: bool,
}

#[derive(Clone, Copy)]
enum Way {
    Jump,
    Fall,
    Call(u64),
}

/// Why to begin again, or to give up.
enum Again {
    /// That call does not return.
    Ends(u64),
    /// The thorough way would not prove it either.
    Failed(&'static str),
    NotPlain,
}

use Again::NotPlain;

/// Most restarts of a function.
const MOST_TURNS: usize = 16;

/// Follows plain functions.
pub(crate) struct Plain {
    quick: Quick,
    blocks: Vec<Block>,
    /// For each byte of the code, the number of the block that begins there, plus 1.
    begins: Vec<u32>,
    waiting: BinaryHeap<Reverse<(usize, u32)>>,
    /// Block, its turn, bytes.
    rows: Vec<(u32, u32, Range<usize>, Place)>,
    /// Ways from a block in its turn to a place, and whether the place is behind a call.
    ways: Vec<(u32, u32, usize, bool)>,
}

impl Plain {
    pub(crate) fn new() -> Plain {
        Plain {
            quick: Quick::new(),
            blocks: Vec::new(),
            begins: Vec::new(),
            waiting: BinaryHeap::new(),
            rows: Vec::new(),
            ways: Vec::new(),
        }
    }

    /// Follows the function at `start`, if it is plain.
    pub(crate) fn follow(&mut self, text: &Text<'_>, known: &Known<'_>, start: u64, budget: &mut Budget<'_>) -> Option<Outcome> {
        let (base, code) = text.piece_of(start)?;
        if text.arch != Arch::X86_64 || text.is_fixed {
            return None;
        }
        #[cfg(test)]
        if tests::THOROUGHLY.get() {
            return None;
        }
        if self.begins.len() < code.len() {
            self.begins.resize(code.len(), 0);
        }
        let mut ends = Vec::new();
        loop {
            let walk = Walk {
                plain: self,
                text,
                known,
                base,
                code,
                start,
                ends: &ends,
                lowest: usize::MAX,
                highest: 0,
                free: 0..0,
                outcome: Outcome::default(),
                current: 0,
                visits: 0,
            };
            let outcome = walk.function(budget);
            self.clear();
            match outcome {
                Ok(outcome) => return Some(outcome),
                Err(Again::Ends(call)) if ends.len() < MOST_TURNS => ends.push(call),
                Err(_) => return None,
            }
        }
    }

    fn clear(&mut self) {
        for block in self.blocks.drain(..) {
            if let Some(begin) = self.begins.get_mut(block.start) {
                *begin = 0;
            }
        }
        self.waiting.clear();
        self.rows.clear();
        self.ways.clear();
        self.quick.references.clear();
    }
}

struct Walk<'w, 't> {
    plain: &'w mut Plain,
    text: &'w Text<'t>,
    known: &'w Known<'w>,
    base: u64,
    code: &'w [u8],
    start: u64,
    /// Calls that do not return.
    ends: &'w [u64],
    /// Where the first block begins.
    lowest: usize,
    /// Where the last followed block ends.
    highest: usize,
    /// No other function is known to begin between the ends of this range.
    free: Range<u64>,
    outcome: Outcome,
    current: u32,
    visits: u64,
}

impl Walk<'_, '_> {
    fn function(mut self, budget: &mut Budget<'_>) -> Result<Outcome, Again> {
        let start = usize::try_from(self.start - self.base).map_err(|_| NotPlain)?;
        self.begin(start, Input::at_entry(), None);
        while let Some(Reverse((_, number))) = self.plain.waiting.pop() {
            let before = self.visits;
            match self.block(number) {
                Ok(()) => {}
                Err(Again::Failed(why)) => {
                    self.outcome.failed = Some(why);
                    return Ok(self.finish(start));
                }
                Err(again) => return Err(again),
            }
            let size: u64 = 64 + self.plain.blocks.len() as u64 * 16;
            if !budget.take_many(self.visits - before) || self.visits > size * MOST_VISITS {
                return Err(NotPlain);
            }
        }
        // See Function::turn.
        let padded =
            self.plain.blocks.iter().filter(|block| block.is_padded).min_by_key(|block| (block.after.is_none(), block.start));
        if let Some(call) = padded.and_then(|block| block.after) {
            return Err(Again::Ends(call));
        }
        Ok(self.finish(start))
    }

    fn begin(&mut self, start: usize, input: Input, after: Option<u64>) {
        let number = self.plain.blocks.len() as u32;
        // A block that ran through this address must now end here.
        self.lowest = self.lowest.min(start);
        let begins = self.plain.begins.get(self.lowest..start).filter(|_| start < self.highest).unwrap_or_default();
        let before = begins.iter().rev().find(|begin| **begin != 0).and_then(|begin| begin.checked_sub(1));
        if let Some(before) = before
            && self.plain.blocks.get(before as usize).is_some_and(|block| block.end > start)
        {
            self.wait(before);
        }
        if let Some(begin) = self.plain.begins.get_mut(start) {
            *begin = number + 1;
        }
        self.plain.blocks.push(Block {
            start,
            input,
            end: start,
            after,
            is_padded: false,
            leaves: false,
            ends: false,
            turn: 0,
            is_waiting: false,
        });
        self.wait(number);
    }

    fn wait(&mut self, number: u32) {
        if let Some(block) = self.plain.blocks.get_mut(number as usize)
            && !std::mem::replace(&mut block.is_waiting, true)
        {
            self.plain.waiting.push(Reverse((block.start, number)));
        }
    }

    fn block(&mut self, number: u32) -> Result<(), Again> {
        self.current = number;
        let block = self.plain.blocks.get_mut(number as usize).ok_or(NotPlain)?;
        (block.is_padded, block.leaves, block.ends, block.is_waiting) = (false, false, false, false);
        block.turn += 1;
        let (start, turn, after) = (block.start, block.turn, block.after);
        let mut frame = block.input.frame();
        let (mut at, mut idle, mut is_padded) = (start, after, false);
        let mut row: Option<(usize, Place)> = None;
        let mut limit = self.next_start(start);
        let mut skipped = 0;
        loop {
            let is_begin = at != start && self.plain.begins.get(at).is_none_or(|begin| *begin != 0);
            while limit < at {
                limit = self.next_start(at - 1);
            }
            if is_begin || at == limit {
                self.close(number, turn, at, row);
                if at >= self.code.len() {
                    return Err(NotPlain);
                }
                return self.edge(self.base + at as u64, &frame, idle.map_or(Way::Fall, Way::Call));
            }
            let Value::Stack(rsp) = frame.get(RSP) else { return Err(NotPlain) };
            let rest = self.code.get(at..).unwrap_or_default();
            if idle.is_some() {
                if is_padding(rest) {
                    skipped += 1;
                } else {
                    is_padded |= skipped > 0;
                    idle = None;
                }
            }
            if std::mem::take(&mut frame.is_changed) {
                let place = Place::of(&frame, rsp);
                if row.is_none_or(|(_, before)| before != place)
                    && let Some((from, before)) = row.replace((at, place))
                {
                    self.plain.rows.push((number, turn, from..at, before));
                }
            }
            let address = self.base + at as u64;
            let (step, length) = self.plain.quick.step(rest, address, &mut frame);
            self.visits += 1;
            if step == Step::Next {
                at += length;
                continue;
            }
            if step == Step::Hard {
                // Most places that are only tried are no functions.
                let is_tried = self.known.starts.get(&self.start) == Some(&Evidence::Gap);
                return Err(if is_tried && frame.is_lost { Again::Failed("returns with a frame") } else { NotPlain });
            }
            let next = at + length;
            self.close(number, turn, next, row);
            if let Some(block) = self.plain.blocks.get_mut(number as usize) {
                block.is_padded = is_padded;
            }
            return self.leave(step, &mut frame, address, self.base + next as u64);
        }
    }

    fn close(&mut self, number: u32, turn: u32, end: usize, row: Option<(usize, Place)>) {
        self.highest = self.highest.max(end);
        if let Some(block) = self.plain.blocks.get_mut(number as usize) {
            block.end = end;
        }
        self.plain.rows.extend(row.map(|(from, place)| (number, turn, from..end, place)));
    }

    /// Returns the place in the code where the next known function begins.
    fn next_start(&mut self, place: usize) -> usize {
        let address = self.base + place as u64;
        if !self.free.contains(&address) {
            let before = self.known.starts.range(..=address).next_back().map_or(0, |(start, _)| *start);
            let next = self.known.starts.range(address + 1..).next().map_or(u64::MAX, |(start, _)| *start);
            self.free = before..next;
        }
        usize::try_from(self.free.end.saturating_sub(self.base)).unwrap_or(usize::MAX)
    }

    fn here(&mut self) -> Result<&mut Block, Again> {
        self.plain.blocks.get_mut(self.current as usize).ok_or(NotPlain)
    }

    fn leave(&mut self, step: Step, frame: &mut Frame, address: u64, next: u64) -> Result<(), Again> {
        let target = |by: i32| next.wrapping_add_signed(by.into());
        match step {
            Step::Next | Step::Hard => Err(NotPlain),
            Step::End => {
                self.here()?.ends = true;
                Ok(())
            }
            Step::Jump(by) => {
                frame.compared = None;
                self.edge(target(by), frame, Way::Jump)
            }
            Step::Branch(by, condition) => {
                let (before, compared) = (frame.limit, frame.compared);
                let (taken, not) = match (condition, compared) {
                    // ja, jae, jbe, jb
                    (7, Some(number)) => (before, number.checked_add(1)),
                    (3, Some(number)) => (before, Some(number)),
                    (6, Some(number)) => (number.checked_add(1), before),
                    (2, Some(number)) => (Some(number), before),
                    _ => (before, before),
                };
                (frame.limit, frame.compared) = (taken, None);
                self.edge(target(by), frame, Way::Jump)?;
                (frame.limit, frame.compared) = (not, compared);
                self.edge(next, frame, Way::Fall)
            }
            Step::Call(by) => {
                let called = by.map(target);
                let Value::Stack(rsp) = frame.get(RSP) else { return Err(NotPlain) };
                self.outcome.is_crooked |= rsp % 16 != 0;
                if let Some(called) = called {
                    self.outcome.calls.push(called);
                    if self.known.is_endless(called) {
                        self.here()?.ends = true;
                        return Ok(());
                    }
                    if !self.ends.contains(&address) && self.known.changed(called) != 0 {
                        return Err(NotPlain);
                    }
                }
                if self.ends.contains(&address) {
                    self.outcome.silent.extend(called.map(|called| (address, called)));
                    return Ok(());
                }
                frame.after_call();
                self.edge_of_call(next, frame, address, called)
            }
            Step::Return => self.returns(frame),
            Step::Indirect(register) => {
                if let Some(Value::Target(table)) = register.map(|register| frame.get(register.into())) {
                    return self.jumps(table, frame);
                }
                // Perhaps by a table that was loaded earlier.
                if !Walk::is_at_entry(frame) {
                    return Err(NotPlain);
                }
                let proof = self.outcome.proof;
                self.returns(frame)?;
                self.outcome.proof = proof;
                self.outcome.jumps = true;
                Ok(())
            }
        }
    }

    fn is_at_entry(frame: &Frame) -> bool {
        frame.get(RSP) == Value::Stack(RETURN_AT) && frame.slots.first() == Some(&RETURN)
    }

    fn changed(frame: &Frame) -> u16 {
        u16::from(!kept(frame) & 0x3f)
    }

    fn returns(&mut self, frame: &Frame) -> Result<(), Again> {
        if !Walk::is_at_entry(frame) {
            return Err(Again::Failed("returns with a frame"));
        }
        self.leaves()?;
        (self.outcome.proof, self.outcome.returns) = (true, true);
        self.outcome.changed |= Walk::changed(frame);
        Ok(())
    }

    fn leaves(&mut self) -> Result<(), Again> {
        let block = self.here()?;
        (block.leaves, block.ends) = (true, true);
        Ok(())
    }

    fn edge_of_call(&mut self, next: u64, frame: &Frame, call: u64, called: Option<u64>) -> Result<(), Again> {
        if !self.text.contains(next) || self.known_start(next).is_some() {
            self.outcome.silent.extend(called.map(|called| (call, called)));
            return Ok(());
        }
        self.edge(next, frame, Way::Call(call))
    }

    /// Returns the evidence that another function begins there, if there is any.
    fn known_start(&mut self, target: u64) -> Option<Evidence> {
        if target == self.start || self.free.start < target && target < self.free.end {
            return None;
        }
        self.known.starts.get(&target).copied()
    }

    fn edge(&mut self, target: u64, frame: &Frame, way: Way) -> Result<(), Again> {
        let place = target.checked_sub(self.base).and_then(|place| usize::try_from(place).ok());
        let place = place.filter(|place| *place < self.code.len());
        let Some(place) = place else { return self.outside(target, frame, way) };
        if let Some(evidence) = self.known_start(target) {
            if let Way::Call(_) = way {
                // A block behind padding is left to the thorough way.
                return Err(NotPlain);
            }
            if evidence > Evidence::Part {
                if !Walk::is_at_entry(frame) {
                    return Err(NotPlain);
                }
                self.outcome.proof |= evidence > Evidence::Gap;
                self.leaves()?;
                self.outcome.tails.push(target);
                self.outcome.changed |= Walk::changed(frame);
                return Ok(());
            }
        }
        let after = if let Way::Call(call) = way { Some(call) } else { None };
        let turn = self.here()?.turn;
        self.plain.ways.push((self.current, turn, place, after.is_some()));
        let Value::Stack(rsp) = frame.get(RSP) else { return Err(NotPlain) };
        let input = Input::of(frame, rsp);
        let number = self.plain.begins.get(place).and_then(|begin| begin.checked_sub(1));
        let Some(number) = number else {
            self.begin(place, input, after);
            return Ok(());
        };
        let block = self.plain.blocks.get_mut(number as usize).ok_or(NotPlain)?;
        if block.input.rsp != rsp {
            return Err(after.or(block.after).map_or(NotPlain, Again::Ends));
        }
        block.after = block.after.filter(|call| after == Some(*call));
        if block.input.join(&input) {
            self.wait(number);
        }
        Ok(())
    }

    /// Follows a way to code that has unwind information, is none, or is analysed separately.
    fn outside(&mut self, target: u64, frame: &Frame, way: Way) -> Result<(), Again> {
        if !matches!(way, Way::Jump) || self.text.contains(target) || !Walk::is_at_entry(frame) {
            return Err(NotPlain);
        }
        self.returns(frame)?;
        if self.known.others.contains(target) {
            self.outcome.tails.push(target);
        }
        Ok(())
    }

    fn jumps(&mut self, table: u64, frame: &Frame) -> Result<(), Again> {
        let limit = frame.limit.filter(|limit| *limit <= MOST_JUMPS).and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.ok_or(NotPlain)?;
        let targets = self.text.jumps(Jumps { table, base: table, width: Width::signed(4) }, limit);
        let end = self.known.starts.range(self.start + 1..).find(|(_, evidence)| **evidence >= Evidence::Symbol);
        let range = self.start..end.map_or(u64::MAX, |(end, _)| *end);
        let mut any = false;
        for target in targets.into_iter().take_while(|target| range.contains(target)) {
            any = true;
            self.edge(target, frame, Way::Jump)?;
        }
        if any { Ok(()) } else { Err(Again::Failed("jumps by a table that is none")) }
    }

    fn finish(mut self, start: usize) -> Outcome {
        let kept = self.kept(start);
        let blocks = &self.plain.blocks;
        let is_last = |number: u32, turn: u32| blocks.get(number as usize).is_some_and(|block| block.turn == turn);
        let is_kept = |number: u32| kept.as_ref().is_none_or(|kept| kept.get(number as usize).copied().unwrap_or(false));
        let rows = self.plain.rows.iter().filter(|(number, turn, ..)| is_last(*number, *turn) && is_kept(*number));
        let mut rows: Vec<Row> = rows
            .map(|(_, _, range, place)| {
                let (start, end) = (self.base + range.start as u64, self.base + range.end as u64);
                Row { start, end, facts: Some(place.facts()) }
            })
            .collect();
        if !rows.is_sorted_by_key(|row| row.start) {
            rows.sort_unstable_by_key(|row| row.start);
        }
        self.outcome.rows = rows;
        let references = std::mem::take(&mut self.plain.quick.references);
        self.outcome.references = references.into_iter().filter(|target| self.text.contains(*target)).collect();
        for list in [&mut self.outcome.calls, &mut self.outcome.tails, &mut self.outcome.references] {
            list.sort_unstable();
            list.dedup();
        }
        self.outcome
    }

    /// Returns the blocks to keep, see [`super::function::Function::cut_dead_ends`]. `None` if all blocks are kept.
    fn kept(&self, start: usize) -> Option<Vec<bool>> {
        let returns = self.outcome.returns || !self.outcome.tails.is_empty();
        let blocks = &self.plain.blocks;
        let number_at = |place: usize| Some(self.plain.begins.get(place)?.checked_sub(1)? as usize);
        let ways = || {
            let ways = self.plain.ways.iter();
            let ways = ways.filter(|(from, turn, ..)| blocks.get(*from as usize).is_some_and(|block| block.turn == *turn));
            ways.filter_map(|(from, _, to, called)| Some((*from as usize, number_at(*to)?, *called)))
        };
        let mut left: Vec<usize> =
            blocks.iter().map(|block| usize::from(if returns { block.leaves } else { block.ends })).collect();
        ways().for_each(|(from, ..)| left.iter_mut().skip(from).take(1).for_each(|left| *left += 1));
        let mut ends: Vec<usize> = left.iter().enumerate().filter(|(_, left)| **left == 0).map(|(number, _)| number).collect();
        if ends.is_empty() {
            return None;
        }
        let mut before: Vec<(usize, usize)> = ways().map(|(from, to, _)| (to, from)).collect();
        before.sort_unstable();
        let mut dead = vec![false; blocks.len()];
        while let Some(end) = ends.pop() {
            dead.iter_mut().skip(end).take(1).for_each(|dead| *dead = true);
            let first = before.partition_point(|(to, _)| *to < end);
            for (_, from) in before.iter().skip(first).take_while(|(to, _)| *to == end) {
                let Some(count) = left.get_mut(*from) else { continue };
                *count = count.saturating_sub(1);
                if *count == 0 {
                    ends.push(*from);
                }
            }
        }
        let mut after: Vec<(usize, usize, bool)> = ways().collect();
        after.sort_unstable();
        let mut kept = vec![false; blocks.len()];
        let mut waiting: Vec<usize> = number_at(start).into_iter().collect();
        while let Some(number) = waiting.pop() {
            let Some(kept) = kept.get_mut(number).filter(|kept| !**kept) else { continue };
            *kept = true;
            let first = after.partition_point(|(from, ..)| *from < number);
            let next = after.iter().skip(first).take_while(|(from, ..)| *from == number);
            waiting.extend(next.filter(|(_, to, called)| !called || dead.get(*to) == Some(&false)).map(|(_, to, _)| *to));
        }
        Some(kept)
    }
}

/// Returns whether an instruction only fills room: nop, int3.
fn is_padding(code: &[u8]) -> bool {
    let first = code.iter().position(|byte| !matches!(byte, 0x66 | 0x2e)).unwrap_or(0);
    matches!(code.get(first..), Some([0x90 | 0xcc, ..] | [0x0f, 0x1f, ..]))
}

#[cfg(test)]
pub(crate) mod tests;
