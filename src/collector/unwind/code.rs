//! Rules from machine code, for code that has no unwind information: musl's, and assembly.
//!
//! ```text
//! gaps of the table ─► starts of functions ─► each followed, all ways ─► proved? ─► rows ─► the gaps are filled
//!                          ▲ calls, addresses taken ──┘
//!
//!   push rbp              rsp = CFA − 8           *(CFA − 8) = return address
//!   sub rsp, 32           rsp = CFA − 16          *(CFA − 16) = rbp
//!   je 1f                 rsp = CFA − 48
//!   call g                rsp = CFA − 48          behind it as before: it gives back rbx, rbp, r12 to r15
//! 1: add rsp, 32          rsp = CFA − 48          on both ways, or nothing is said
//!   pop rbp               rsp = CFA − 16
//!   ret                   rsp = CFA − 8           as at the begin: proved
//! ```
//!
//! The stack of a function is what its own instructions make it. From its begin, where the return address is at the stack
//! pointer, values are followed forward through all ways until none gives less than before: which registers are how far from the
//! CFA, which words of the stack have which register of the caller ([`state`], [`step`], [`function`]).
//!
//! A function is *proved*, and has rows, if nothing contradicts: each `ret` and each jump to another function finds the stack
//! pointer as at the begin; no way leaves the code; each jump by a table has its table; no instruction is none. One that
//! contradicts has none, all of it: it stays a gap. Where two ways meet with different sizes of the frame that place has none
//! (and by what is saved there, mostly the function has none either).
//!
//! Where functions begin, by how much that is worth:
//!
//! | [`Evidence`] | | |
//! | --- | --- | --- |
//! | `Called` | a proved function calls it | there the return address *is* at the stack pointer |
//! | `Symbol` | a symbol says that it is a function | wrong for parts that the compiler put elsewhere (`.cold`): who jumps there with a frame shows it |
//! | `Taken` | its address is taken, or a label | |
//! | `Gap` | code behind the end of other code | believed only if it returns, with all that it is to give back as it was |
//! | `Part` | somebody jumped there with a frame | no function: only what falls into it behind a call ends there |
//!
//! Calls that do not return (`exit`, `abort`) have what they like behind them. A function whose ways all end nowhere is known as
//! such, and so are calls behind which the same code would have two sizes of the frame. And a function that does not give back
//! what it ought to (assembly calls its own parts as it likes) is known to its callers, which are followed again.
//!
//! Nobody called the first code of a program, which clears the frame pointer (psABI, 3.4.1) and does not return; nor that of a
//! thread: where the result of `clone` is 0, on ways that call something and never return.
//!
//! Code whose callees take arguments off the stack (V8's, in node) keeps to other conventions than these: nothing of it is believed.
//!
//! Promises: time and memory in proportion to the code, of which 16 MiB are looked at.

pub(super) mod aarch64;
mod function;
mod machine;
mod map;
mod memory;
mod state;
mod text;
mod x86;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use function::{Known, Outcome, Row, follow};
use machine::{Stepper, calls, padding, run_length};
use map::Map;
use text::Text;

use super::elf::Elf;
use super::packed::Packed;
use super::rows::Table;
use super::rule::Arch;
use super::source::{Image, read};
use super::stubs::Block;

/// Why a place is taken for the begin of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Evidence {
    Part,
    Gap,
    Taken,
    Symbol,
    Called,
}

/// Instructions that are looked at: for each byte, and at most. Debian's musl takes 0.55 for each byte.
const VISITS_A_BYTE: u64 = 4;
const MOST_VISITS: u64 = 16 << 20;

/// Other code is searched for calls if it is not more than so many times as much: a program with its musl in it.
const LARGEST_OTHER: u64 = 64;

/// How often what was learned of called functions is taken back to their callers.
const MOST_ROUNDS: usize = 6;

/// Symbol tables are read up to so many bytes for each byte of code: those of large programs with a handful of bytes without
/// unwind information are not worth it.
const SYMBOLS_A_BYTE: u64 = 16;
const FEW_SYMBOLS: u64 = 64 << 10;

/// So many calls without anything behind them make a function one that does not return.
const MOST_SILENT: usize = 2;

/// So many functions may take arguments off the stack: OpenSSL has 3 that seem to.
const FEW_POPS: usize = 8;

/// So many functions may never return and go on by a jump to anywhere: calls of virtual functions at the end of one do.
const FEW_JUMPS: usize = 32;

/// Padding up to so many bytes has the rule before it: nothing runs there.
const PADDING: usize = 63;

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    /// The code of which something is known, in the order of addresses.
    pub(super) blocks: Vec<Block>,
    /// The same with all that is known.
    #[cfg_attr(not(test), expect(dead_code, reason = "compared with unwind information by the tests"))]
    pub(super) rows: Vec<(u64, Row)>,
    /// Functions that were looked at, and why they are not proved.
    #[cfg_attr(not(test), expect(dead_code, reason = "printed by the tests"))]
    pub(super) functions: Vec<(u64, Option<&'static str>)>,
}

/// Rules for what a table has none for.
pub(super) fn find(elf: &Elf, image: &(impl Image + ?Sized), table: &Table) -> Found {
    let gaps = gaps(table, &elf.code());
    let mut found = of_ranges(elf, image, &whole(elf.arch, &gaps), table.report.rbx);
    found.blocks.iter_mut().for_each(|block| clip(block, &gaps));
    found
}

/// Ranges of whole instructions. A return from a signal handler begins a byte before its code: in the instruction before, of which
/// the rest is still to be understood.
fn whole(arch: Arch, gaps: &[Range<u64>]) -> Vec<Range<u64>> {
    if arch == Arch::X86_64 {
        return gaps.to_vec();
    }
    let mut ranges: Vec<Range<u64>> = Vec::with_capacity(gaps.len());
    for gap in gaps {
        let reached = ranges.last().map_or(0, |range| range.end);
        let range = (gap.start & !3).max(reached)..gap.end.next_multiple_of(4);
        if range.start < range.end {
            ranges.push(range);
        }
    }
    ranges
}

/// Leaves of a block what is in a gap.
fn clip(block: &mut Block, gaps: &[Range<u64>]) {
    let Some(gap) = gaps.get(gaps.partition_point(|gap| gap.end <= block.start)) else { return };
    block.start = block.start.max(gap.start);
    block.end = block.end.min(gap.end).max(block.start);
    let start = block.start;
    let before = block.rows.iter().take_while(|(address, _)| *address <= start).count();
    block.rows.drain(..before.saturating_sub(1));
    block.rows.iter_mut().take(1).for_each(|(address, _)| *address = start);
    block.rows.retain(|(address, _)| *address < block.end);
}

/// Rules of all code in these ranges.
pub(super) fn of_ranges(elf: &Elf, image: &(impl Image + ?Sized), ranges: &[Range<u64>], rbx: bool) -> Found {
    let read_at =
        |address, buffer: &mut [u8]| elf.file_offset(address).is_some_and(|offset| image.read_exact_at(offset, buffer).is_ok());
    let text = Text::new(elf, image, ranges, &read_at);
    if text.pieces.is_empty() {
        return Found::default();
    }
    let budget = (text.size() * VISITS_A_BYTE + 4096).min(MOST_VISITS);
    let mut prover = Prover {
        text: &text,
        known: Known::default(),
        done: BTreeMap::new(),
        queue: Vec::new(),
        silent: HashMap::new(),
        fresh: Vec::new(),
        budget,
        pops: HashSet::new(),
        jumps: HashSet::new(),
        is_foreign: false,
        stepper: Stepper::new(),
        root: elf.entry,
    };
    for (address, is_function) in elf.functions(image, text.size() * SYMBOLS_A_BYTE + FEW_SYMBOLS) {
        prover.start(address, if is_function { Evidence::Symbol } else { Evidence::Taken });
    }
    if prover.is_root(elf.entry) {
        prover.start(elf.entry, Evidence::Symbol);
    }
    for address in called_from_elsewhere(elf, image, &text) {
        prover.start(address, Evidence::Taken);
    }
    prover.rounds();
    if prover.is_foreign {
        return Found::default();
    }
    prover.budget = prover.budget.min(text.size());
    prover.sweep(rbx);
    prover.rounds();
    prover.found(rbx)
}

/// Where calls from code that has unwind information may lead: by their first byte, as that code is not followed.
fn called_from_elsewhere(elf: &Elf, image: &(impl Image + ?Sized), text: &Text<'_>) -> Vec<u64> {
    let code = elf.code();
    let size: u64 = code.iter().map(|range| range.end - range.start).sum();
    let mut found = Vec::new();
    if size > text.size().saturating_mul(LARGEST_OTHER) {
        return found;
    }
    for range in code {
        let mut from = range.start;
        while from < range.end {
            // Calls across the border of two pieces are in both.
            let length = (range.end - from).min(text::AT_ONCE);
            let Some(offset) = elf.file_offset(from) else { break };
            let Ok(bytes) = read(image, offset, length, text::AT_ONCE, "code") else { break };
            let calls = calls(elf.arch, &bytes, from).into_iter();
            found
                .extend(calls.filter(|(call, target)| text.contains(*target) && !text.contains(*call)).map(|(_, target)| target));
            from += if length > 4 && from + length < range.end { length - 4 } else { length };
        }
    }
    found
}

/// What of the code a table has no rule for, though nothing says that there is none.
fn gaps(table: &Table, code: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut code = code.iter();
    let Some(mut piece) = code.next().cloned() else { return gaps };
    let first = table.rows.first().map_or(u64::MAX, |row| table.base + u64::from(row.offset));
    let starts = table.rows.iter().map(|row| table.base + u64::from(row.offset));
    let ends = starts.clone().skip(1).chain([u64::MAX]);
    let is_gap = |rule: u16| table.rules.get(usize::from(rule)) == Some(&Packed::GAP);
    let known = table.rows.iter().zip(starts.zip(ends)).filter(|(row, _)| is_gap(row.rule)).map(|(_, range)| range);
    for (start, end) in [(0, first)].into_iter().chain(known) {
        loop {
            let part = piece.start.max(start)..piece.end.min(end);
            if part.start < part.end {
                gaps.push(part);
            }
            if piece.end > end {
                break;
            }
            let Some(next) = code.next() else { return gaps };
            piece = next.clone();
        }
    }
    gaps
}

struct Prover<'t> {
    text: &'t Text<'t>,
    known: Known,
    done: BTreeMap<u64, Outcome>,
    queue: Vec<u64>,
    /// Functions, and calls of them that have nothing behind them to come back to: `abort` in a library, called through a stub.
    silent: HashMap<u64, HashSet<u64>>,
    /// Of `done` those that were done last.
    fresh: Vec<u64>,
    budget: u64,
    /// Functions that take arguments off the stack.
    pops: HashSet<u64>,
    /// Functions that never return, and go on by a jump to anywhere.
    jumps: HashSet<u64>,
    /// Calls do other things to the stack here than C's: V8's callees take their arguments off it, and an indirect call does not
    /// tell which callee it is; Haskell's code is jumped to, and has no return address.
    is_foreign: bool,
    stepper: Stepper,
    root: u64,
}

impl Prover<'_> {
    /// A function may begin there.
    fn start(&mut self, address: u64, evidence: Evidence) {
        if !self.text.contains(address) {
            return;
        }
        let known = self.known.starts.entry(address).or_insert(evidence);
        if *known == Evidence::Part && evidence < Evidence::Called {
            return;
        }
        *known = evidence.max(*known);
        if !self.done.contains_key(&address) {
            self.queue.push(address);
        }
    }

    /// Whether the program's first code marks its frame as the outermost.
    fn is_root(&self, address: u64) -> bool {
        let code = self.text.from(address).filter(|_| address == self.root);
        code.is_some_and(|code| machine::clears_frame_pointer(self.text.arch, code))
    }

    /// Follows all functions that wait.
    fn drain(&mut self) {
        while let Some(start) = self.queue.pop() {
            if self.is_foreign {
                return;
            }
            let is_function = self.known.starts.get(&start).is_some_and(|evidence| *evidence > Evidence::Part);
            if is_function && !self.done.contains_key(&start) {
                self.follow(start);
            }
        }
    }

    fn follow(&mut self, start: u64) {
        let evidence = self.known.starts.get(&start).copied().unwrap_or(Evidence::Part);
        let is_root = self.is_root(start);
        let mut outcome = follow(self.text, &self.known, start, is_root, &mut self.budget, &mut self.stepper);
        let is_sure = match evidence {
            Evidence::Called | Evidence::Symbol => true,
            Evidence::Taken => !outcome.is_crooked,
            Evidence::Part => false,
            Evidence::Gap => !outcome.is_crooked && outcome.proof && outcome.changed == 0 && outcome.inside.is_empty(),
        };
        if outcome.failed.is_none() && !is_sure {
            outcome.failed = Some("nothing says that it is a function");
        }
        let proved = outcome.failed.is_none();
        for inside in outcome.inside.iter().filter(|_| proved) {
            self.known.starts.insert(*inside, Evidence::Part);
            self.done.remove(inside);
        }
        for target in &outcome.calls {
            if evidence > Evidence::Gap || proved {
                self.start(*target, if proved { Evidence::Called } else { Evidence::Taken });
            }
        }
        let own = |address: &u64| outcome.rows.iter().any(|row| (row.start..row.end).contains(address));
        for target in outcome.references.iter().filter(|target| proved && !own(target)) {
            self.start(*target, Evidence::Taken);
        }
        for (call, target) in &outcome.silent {
            let calls = self.silent.entry(*target).or_default();
            calls.insert(*call);
            // At once, not with the next round: all who call it would be begun again. Of what can be followed itself that will tell.
            if calls.len() >= MOST_SILENT && !self.text.contains(*target) {
                self.known.endless.insert(*target);
            }
        }
        // What is tried out may be data.
        if outcome.failed == Some(function::POPS) && evidence > Evidence::Gap {
            self.pops.insert(start);
            self.is_foreign |= self.pops.len() > FEW_POPS && self.pops.len() > self.done.len() / 32;
        }
        if proved && outcome.jumps && !outcome.proof {
            self.jumps.insert(start);
            self.is_foreign |= self.jumps.len() > FEW_JUMPS && self.jumps.len() > self.done.len() / 8;
        }
        self.fresh.push(start);
        self.done.insert(start, outcome);
    }

    /// Follows functions, and again those whose callees turned out not to do what callees do.
    fn rounds(&mut self) {
        self.drain();
        for _ in 0..MOST_ROUNDS {
            if self.is_foreign {
                return;
            }
            let (endless, changes) = self.learned();
            let news = |target: &u64| {
                endless.contains(target) != self.known.endless.contains(target)
                    || changes.get(target) != self.known.changes.get(target)
            };
            // And those that went on into what turned out to be another function.
            let others = |start: &u64, outcome: &Outcome| {
                let mut inside = outcome.rows.iter().flat_map(|row| self.known.starts.range(row.start..row.end));
                inside.any(|(other, evidence)| other != start && *evidence > Evidence::Gap && !outcome.inside.contains(other))
            };
            let again = self.done.iter().filter(|(start, outcome)| outcome.calls.iter().any(news) || others(start, outcome));
            let again: Vec<u64> = again.map(|(start, _)| *start).collect();
            (self.known.endless, self.known.changes) = (endless, changes);
            if again.is_empty() {
                break;
            }
            for start in again {
                self.done.remove(&start);
                self.queue.push(start);
            }
            self.drain();
        }
    }

    /// Functions that never come back, and what those change that do.
    fn learned(&self) -> (HashSet<u64>, HashMap<u64, u16>) {
        let proved = || self.done.iter().filter(|(_, outcome)| outcome.failed.is_none());
        let mut endless: HashSet<u64> = proved().filter(|(_, outcome)| !outcome.returns).map(|(start, _)| *start).collect();
        endless.extend(self.silent_now());
        let mut changes: HashMap<u64, u16> =
            proved().filter(|(_, outcome)| outcome.changed != 0).map(|(start, outcome)| (*start, outcome.changed)).collect();
        let pops = self.done.iter().filter(|(_, outcome)| outcome.failed == Some(function::POPS));
        changes.extend(pops.map(|(start, _)| (*start, function::STACK)));
        // What it ends by jumping to comes back for it. As often as such jumps follow each other.
        loop {
            let mut more = false;
            for (start, outcome) in proved().filter(|(_, outcome)| !outcome.tails.is_empty()) {
                if endless.contains(start) && outcome.tails.iter().any(|tail| !endless.contains(tail)) {
                    endless.remove(start);
                    more = true;
                }
                let before = changes.get(start).copied().unwrap_or(0);
                let after = outcome.tails.iter().filter_map(|tail| changes.get(tail)).fold(before, |mask, tail| mask | tail);
                if after != before {
                    changes.insert(*start, after);
                    more = true;
                }
            }
            if !more {
                return (endless, changes);
            }
        }
    }

    /// Of functions that were looked at last, those called so.
    fn silent_now(&self) -> impl Iterator<Item = u64> {
        let mut calls: Vec<(u64, u64)> =
            self.done.values().flat_map(|outcome| &outcome.silent).map(|(call, target)| (*target, *call)).collect();
        calls.sort_unstable();
        calls.dedup();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        calls.iter().for_each(|(target, _)| *counts.entry(*target).or_default() += 1);
        counts.retain(|target, count| *count >= MOST_SILENT && !self.returns(*target));
        // What is called elsewhere: as soon as it was seen often enough.
        let elsewhere = self.silent.iter().filter(|(target, calls)| calls.len() >= MOST_SILENT && !self.text.contains(**target));
        counts.extend(elsewhere.map(|(target, calls)| (*target, calls.len())));
        counts.into_keys()
    }

    /// Whether a function was seen to return.
    fn returns(&self, start: u64) -> bool {
        self.done.get(&start).is_some_and(|outcome| outcome.failed.is_none() && outcome.returns)
    }

    /// Looks at what is left, from the end of each piece of code that was followed on.
    fn sweep(&mut self, rbx: bool) {
        let text = self.text;
        let mut map = Map::new(text, rbx);
        for outcome in self.done.values().filter(|outcome| outcome.failed.is_none()) {
            map.paint(outcome);
        }
        for (start, bytes) in &text.pieces {
            let mut at = 0;
            while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                let address = start + at as u64;
                let known = map.painted(address, rest.len());
                if known > 0 {
                    at += known;
                    continue;
                }
                let filled = padding(text.arch, rest);
                if filled > 0 {
                    at += filled;
                    continue;
                }
                if !self.try_gap(address, &mut map) {
                    at += run_length(text.arch, rest);
                }
            }
        }
    }

    /// Whether a function begins there that nothing speaks of.
    fn try_gap(&mut self, address: u64, map: &mut Map) -> bool {
        if self.known.starts.contains_key(&address) {
            return false;
        }
        self.fresh.clear();
        self.start(address, Evidence::Gap);
        self.drain();
        let fits = self.done.get(&address).is_some_and(|outcome| outcome.failed.is_none() && map.fits(outcome));
        // With what it calls, of which nothing was known before.
        for start in std::mem::take(&mut self.fresh) {
            match self.done.get(&start) {
                Some(outcome) if fits && outcome.failed.is_none() => map.paint(outcome),
                Some(_) if !fits => {
                    self.known.starts.remove(&start);
                    self.done.remove(&start);
                }
                _ => {}
            }
        }
        fits && map.painted(address, 1) > 0
    }

    fn found(self, rbx: bool) -> Found {
        let mut map = Map::new(self.text, rbx);
        for outcome in self.done.values().filter(|outcome| outcome.failed.is_none()) {
            map.paint(outcome);
        }
        let blocks = map.blocks(self.text);
        let functions = self.done.iter().map(|(start, outcome)| (*start, outcome.failed)).collect();
        let proved = self.done.into_iter().filter(|(_, outcome)| outcome.failed.is_none());
        let mut rows: Vec<(u64, Row)> =
            proved.flat_map(|(start, outcome)| outcome.rows.into_iter().map(move |row| (start, row))).collect();
        rows.retain(|(_, row)| !map.is_disputed(row));
        rows.sort_by_key(|(_, row)| row.start);
        Found { blocks, rows, functions }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_aarch64;
