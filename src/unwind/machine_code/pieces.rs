//! Analyses code that is too large to be analysed as a whole: piece by piece.
//!
//! ```text
//! all code ─ survey ─► places that are called, functions that never return ─► pieces, cut where functions begin
//! piece ─ prover ─► rows                       ─► the table, published every 250 ms of CPU time
//!                 └ what it calls in others, what its functions change ─► pieces that call functions which change too much: again
//! ```
//!
//! The facts in a piece come from its own code and from the survey only. So they do not depend on the order of the analysis, and
//! the last table is always the same. An analysis in pieces differs from an analysis as a whole in four points.
//!
//! - A place that is called in another piece is worth as much as one whose address is taken ([`Evidence::Taken`]).
//! - A jump to another piece counts as a tail call if the stack is as at the function's begin. Otherwise the function is not proved.
//! - A function in another piece is assumed to never return if no code follows its calls. Otherwise it is assumed to return.
//! - In the first pass, a function in another piece is assumed to change only the registers that a function may change, like one
//!   that is called through a pointer. Then pieces are analysed again if they call functions that change others.
//!
//! An analysed piece keeps only its rows and the facts that other pieces need: the functions that it calls elsewhere, and the
//! registers that its functions change. Chromium's 225 MiB of code take 21 s of CPU time and 60 MB (27 of them are the 3.4
//! million rows of the table). A third of that time goes into following each instruction once. The rest goes into work for each
//! function and each byte: functions without direct calls are found by trying, and the facts of all functions of a piece are
//! combined twice.

use crate::unwind::table::block::Block;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::gaps::{clip, size};
use super::known::{Evidence, Known, Others};
use super::prover::{Proved, Prover, Signs, Stopped};
use super::survey::Calls;
use super::text::Text;
use crate::cpu_time;
use crate::object::read_at::ReadAt;
use crate::unwind::control::{Control, Ended, Step};
use crate::unwind::sections::Elf;
use crate::unwind::table::rows::Table;

/// CPU time between two published tables. It is long, because each of them is written to the kernel as a whole.
pub(crate) const PUBLISHED_EVERY: Duration = Duration::from_millis(250);

/// Publishes after each piece, for tests.
#[cfg(test)]
pub(crate) const EVERY_PIECE: Duration = Duration::ZERO;

/// Bytes of a piece. Its analysis takes some 10 MB of memory.
const REACH: u64 = 1 << 20;

/// New rows are put into the table at once when there are more than this many.
const MOST_FRESH: usize = 128 << 10;

/// Most bytes that are analysed: code beyond stays a gap.
const LARGEST: u64 = 1 << 30;

/// Larger symbol tables are not read: calls show nearly as much.
const LARGEST_SYMBOLS: u64 = 16 << 20;

/// How often pieces are analysed again because of the effects of their callees.
const MOST_ROUNDS: usize = 2;

/// The gaps of one object's table, to be filled piece by piece.
pub(crate) struct Pieces<'a, I: ?Sized> {
    elf: &'a Elf,
    image: &'a I,
    gaps: &'a [Range<u64>],
    ranges: Vec<Range<u64>>,
    rbx: bool,
}

/// A piece, and the facts that other pieces need.
#[derive(Default)]
struct Piece {
    ranges: Vec<Range<u64>>,
    is_done: bool,
    /// See [`Proved`].
    changes: Vec<(u64, u16)>,
    called: Vec<u64>,
    signs: Signs,
    /// Rows and bytes that it has put into the table.
    rows: u64,
    covered: u64,
}

impl Piece {
    /// Keeps the facts that are needed later, and returns the rows.
    fn done(&mut self, proved: Proved) -> Vec<Block> {
        let Proved { found, changes, called, signs } = proved;
        (self.is_done, self.changes, self.called, self.signs) = (true, changes, called, signs);
        self.rows = found.blocks.iter().map(|block| block.rows.len() as u64).sum();
        self.covered = found.blocks.iter().map(|block| block.end - block.start).sum();
        found.blocks
    }

    fn start(&self) -> u64 {
        self.ranges.first().map_or(0, |range| range.start)
    }

    fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.end)
    }
}

impl<'a, I: ReadAt + ?Sized> Pieces<'a, I> {
    /// `gaps`: the code that gets rules. `ranges`: the gaps cut at whole instructions, of which the first [`LARGEST`] bytes are
    /// analysed. `rbx`: whether the table follows rbx.
    pub(crate) fn new(elf: &'a Elf, image: &'a I, gaps: &'a [Range<u64>], mut ranges: Vec<Range<u64>>, rbx: bool) -> Self {
        let mut left = LARGEST;
        ranges.retain_mut(|range| {
            range.end = range.end.min(range.start.saturating_add(left));
            left -= range.end - range.start;
            range.start < range.end
        });
        Pieces { elf, image, gaps, ranges, rbx }
    }

    /// See [`super::fill`].
    pub(crate) fn fill(
        &self,
        table: &mut Table,
        control: &dyn Control,
        every: Duration,
        publish: &mut dyn FnMut(Step<'_>),
    ) -> Ended {
        match self.fill_unless_stopped(table, control, every, publish) {
            Ok(()) => Ended::Whole,
            Err(Stopped) => Ended::Stopped,
        }
    }

    fn fill_unless_stopped(
        &self,
        table: &mut Table,
        control: &dyn Control,
        every: Duration,
        publish: &mut dyn FnMut(Step<'_>),
    ) -> Result<(), Stopped> {
        let before = table.clone();
        let before_rules = before.rules.len();
        let calls = Calls::read(self.elf, self.image, &self.ranges, control)?;
        let mut others = Others { code: self.ranges.clone(), endless: calls.endless().collect(), changes: FxHashMap::default() };
        let mut symbols = self.elf.functions(self.image, LARGEST_SYMBOLS);
        symbols.sort_unstable();
        let mut pieces = cut(&self.ranges, &calls);
        let analyse = |piece: &Piece, others: &Others| self.analyse(piece, others, &calls, &symbols, control);
        let (mut order, mut fresh, mut published) = (Order::default(), Vec::new(), cpu_time::of_this_thread());
        let mut left = size(&self.ranges);
        while let Some(piece) = order.next(&pieces, control).and_then(|number| pieces.get_mut(number)) {
            let proved = analyse(piece, &others)?;
            fresh.extend(piece.done(proved));
            left -= size(&piece.ranges);
            if left > 0 && cpu_time::since(published) >= every {
                fill(table, &mut fresh);
                publish(Step { table, unknown: &unknown(&pieces) });
                published = cpu_time::of_this_thread();
            } else if fresh.iter().map(|block: &Block| block.rows.len()).sum::<usize>() > MOST_FRESH {
                fill(table, &mut fresh);
            }
        }
        fill(table, &mut fresh);
        for _ in 0..MOST_ROUNDS {
            let changes = pieces.iter().flat_map(|piece| &piece.changes).copied().collect();
            let before_that = std::mem::replace(&mut others.changes, changes);
            let is_new = |called: &u64| others.changes.get(called) != before_that.get(called);
            let again: Vec<usize> = pieces
                .iter()
                .enumerate()
                .filter(|(_, piece)| piece.called.iter().any(is_new))
                .map(|(number, _)| number)
                .collect();
            if again.is_empty() {
                break;
            }
            for number in again {
                let Some(piece) = pieces.get_mut(number) else { continue };
                let proved = analyse(piece, &others)?;
                table.take_back(piece.start()..piece.end(), piece.rows, piece.covered, &before);
                fresh = piece.done(proved);
                fill(table, &mut fresh);
            }
        }
        let mut signs = Signs::default();
        pieces.iter().for_each(|piece| signs.add(piece.signs));
        if signs.are_foreign() {
            *table = before;
        }
        table.sort_rules(before_rules);
        publish(Step { table, unknown: &[] });
        Ok(())
    }

    fn analyse(
        &self,
        piece: &Piece,
        others: &Others,
        calls: &Calls,
        symbols: &[(u64, bool)],
        control: &dyn Control,
    ) -> Result<Proved, Stopped> {
        let read_at = |address, buffer: &mut [u8]| {
            self.elf.file_offset(address).is_some_and(|offset| self.image.read_exact_at(offset, buffer).is_ok())
        };
        let text = Text::new(self.elf, self.image, &piece.ranges, &read_at);
        let mut prover = Prover::new(&text, Known::new(others), self.elf.entry, control);
        let first = symbols.partition_point(|(address, _)| *address < piece.start());
        for (address, is_function) in symbols.iter().skip(first).take_while(|(address, _)| *address < piece.end()) {
            prover.start(*address, if *is_function { Evidence::Symbol } else { Evidence::Taken });
        }
        for address in calls.starts(piece.start()..piece.end()) {
            prover.start(address, Evidence::Taken);
        }
        let mut proved = prover.prove(self.rbx)?;
        proved.found.blocks.iter_mut().for_each(|block| clip(block, self.gaps));
        Ok(proved)
    }
}

/// Returns the code that is still to be analysed.
fn unknown(pieces: &[Piece]) -> Vec<Range<u64>> {
    let mut unknown: Vec<Range<u64>> = Vec::new();
    for range in pieces.iter().filter(|piece| !piece.is_done).flat_map(|piece| &piece.ranges) {
        match unknown.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => unknown.push(range.clone()),
        }
    }
    unknown
}

/// Puts blocks into a table, and empties the list of blocks.
fn fill(table: &mut Table, blocks: &mut Vec<Block>) {
    blocks.sort_by_key(|block| block.start);
    table.fill(blocks);
    blocks.clear();
}

/// Cuts the ranges into pieces of about [`REACH`] bytes, where functions begin as far as that is known.
fn cut(ranges: &[Range<u64>], calls: &Calls) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut finish = |ranges: &mut Vec<Range<u64>>| {
        let ranges = std::mem::take(ranges);
        pieces.push(Piece { ranges, ..Piece::default() });
    };
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let room = REACH.saturating_sub(size(&piece));
            let at = start.saturating_add(room);
            let end = if at >= range.end { range.end } else { calls.first_start(at).unwrap_or(at).min(range.end) };
            piece.push(start..end);
            start = end;
            if size(&piece) >= REACH {
                finish(&mut piece);
            }
        }
    }
    if !piece.is_empty() {
        finish(&mut piece);
    }
    pieces
}

/// The order of pieces: first those with hints, then by address.
#[derive(Default)]
struct Order {
    hints: Vec<u64>,
    wanted: VecDeque<usize>,
    next: usize,
}

impl Order {
    fn next(&mut self, pieces: &[Piece], control: &dyn Control) -> Option<usize> {
        control.take_hints(&mut self.hints);
        for hint in self.hints.drain(..) {
            let number = pieces.partition_point(|piece| piece.end() <= hint);
            let is_in = |piece: &Piece| piece.ranges.iter().any(|range| range.contains(&hint));
            if pieces.get(number).is_some_and(|piece| !piece.is_done && is_in(piece)) && !self.wanted.contains(&number) {
                self.wanted.push_back(number);
            }
        }
        let wanted = self.wanted.pop_front();
        control.goes_on_with(wanted.is_some());
        if let Some(number) = wanted {
            return Some(number);
        }
        let rest = pieces.get(self.next..)?;
        let number = self.next + rest.iter().position(|piece| !piece.is_done)?;
        self.next = number + 1;
        Some(number)
    }
}
