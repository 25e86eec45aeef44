//! The table of one object: ranges of addresses and their rules.
//!
//! It is made front to back. Equal neighbours become one row. If a description ends and no other begins within [`PADDING`] bytes,
//! a row says [`Rule::Gap`]: a hole is not the end of a stack.

use crate::unwind::table::block::Block;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use rustc_hash::FxHasher;

use super::packed::Packed;
use super::rule::{Invalid, REASONS, Rule};
use crate::object::headers::Arch;
/// Most bytes between two functions that inherit the rule before them: they align functions to 16 bytes. Nothing runs there.
pub const PADDING: u64 = 15;

/// More rows than any object has: libLLVM has 1.3 million. In a hostile file, rows beyond this number are a gap.
pub const MOST_ROWS: usize = 16 << 20;

/// A row: the rule holds from here to the next row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// From [`Table::base`].
    pub offset: u32,
    /// Index into [`Table::rules`].
    pub rule: u16,
}

/// The table of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The machine whose registers the rules name.
    pub arch: Arch,
    /// The lowest address of executable code. All addresses here are ELF addresses.
    pub base: u64,
    /// Sorted, each at another address, no two neighbours equal. The last is a gap.
    pub rows: Vec<Row>,
    /// Each rule once. The first is the gap, then one for each [`Invalid`], then those of the object.
    pub rules: Vec<Packed>,
    /// The code that it is about: executable segments.
    pub code: Vec<Code>,
    /// The report of the conversion.
    pub report: Report,
}

/// A piece of code: an executable segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// Its ELF address.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// The contents of an object, and how they were used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Sources of descriptions: `.eh_frame`, `.debug_frame`, ….
    pub sources: Vec<&'static str>,
    /// Descriptions of code.
    pub fdes: u64,
    /// Descriptions that could not be read, wholly or in part.
    pub fdes_in_error: u64,
    /// Descriptions of code that does not exist: of functions that the linker threw away.
    pub discarded: u64,
    /// Descriptions that begin inside another one, which won.
    pub overlapping: u64,
    /// Rows, before equal neighbours became one.
    pub rows: u64,
    /// Rows that were equal to the row before.
    pub merged: u64,
    /// Rows without a rule, by reason, in the order of [`REASONS`].
    pub invalid: [u64; REASONS.len()],
    /// Rows from machine code that has no description.
    pub from_code: u64,
    /// Places where no description follows.
    pub gaps: u64,
    /// Bytes of code: of executable sections, or of executable segments where no section is named.
    pub text: u64,
    /// Bytes of that code under a description.
    pub covered: u64,
    /// Bytes under a description, but without a rule.
    pub covered_invalid: u64,
    /// Whether rbx is followed.
    pub rbx: bool,
}

impl Report {
    /// Returns the number of rows without a rule.
    pub fn invalid_rows(&self) -> u64 {
        self.invalid.iter().sum()
    }
}

impl Table {
    /// Returns the rule at an address, by binary search.
    pub fn lookup(&self, address: u64) -> Packed {
        let Some(offset) = address.checked_sub(self.base).and_then(|offset| u32::try_from(offset).ok()) else {
            return Packed::GAP;
        };
        let after = self.rows.partition_point(|row| row.offset <= offset);
        let row = after.checked_sub(1).and_then(|before| self.rows.get(before));
        row.and_then(|row| self.rules.get(usize::from(row.rule))).copied().unwrap_or(Packed::GAP)
    }
}

impl Table {
    /// Returns the table with all gaps outside of `unknown` marked as [`Packed::FINAL_GAP`]. `unknown` is sorted.
    pub fn with_final_gaps(&self, unknown: &[Range<u64>]) -> Table {
        let Ok(last) = u16::try_from(self.rules.len()) else { return self.clone() };
        let is_gap = |row: &Row| self.rules.get(usize::from(row.rule)) == Some(&Packed::GAP);
        let mut rows = Vec::with_capacity(self.rows.len() + 2 * unknown.len());
        let mut push = |address: u64, rule: u16| {
            rows.extend(self.offset(address).map(|offset| Row { offset, rule }));
        };
        let starts = self.rows.iter().map(|row| self.base + u64::from(row.offset));
        let ends = starts.clone().skip(1).chain([u64::MAX]);
        for (row, (mut at, end)) in self.rows.iter().zip(starts.zip(ends)) {
            if !is_gap(row) {
                push(at, row.rule);
                continue;
            }
            let first = unknown.partition_point(|range| range.end <= at);
            for range in unknown.iter().skip(first).take_while(|range| range.start < end) {
                if at < range.start {
                    push(at, last);
                }
                push(at.max(range.start), row.rule);
                at = range.end;
            }
            if at < end {
                push(at, last);
            }
        }
        let rules = self.rules.iter().copied().chain([Packed::FINAL_GAP]).collect();
        Table { rows, rules, code: self.code.clone(), report: self.report.clone(), ..*self }
    }

    /// Puts rules into gaps. Blocks are in the order of addresses, each inside of one gap.
    pub(crate) fn fill(&mut self, blocks: &[Block]) {
        // In the same memory: rows move to its end, and from there to their places. A block adds its rows, and a gap behind it.
        let (before, more) = (self.rows.len(), blocks.iter().map(|block| block.rows.len() + 1).sum::<usize>());
        self.rows.reserve_exact(more);
        self.rows.resize(before + more, Row { offset: 0, rule: 0 });
        self.rows.copy_within(..before, more);
        let mut filled = Filled { rows: std::mem::take(&mut self.rows), length: 0, rest: more, merged: 0 };
        let mut places: HashMap<u64, u16, BuildHasherDefault<FxHasher>> = HashMap::default();
        places.extend(self.rules.iter().map(|rule| rule.0).zip(0u16..));
        for block in blocks {
            let (Some(start), Some(end)) = (self.offset(block.start), self.offset(block.end)) else { continue };
            filled.keep_before(start.into());
            for (address, rule) in &block.rows {
                let Some(offset) = self.offset(*address) else { continue };
                let next = u16::try_from(self.rules.len());
                let place = match (places.get(&rule.0), next) {
                    (Some(place), _) => *place,
                    (None, Ok(place)) => {
                        self.rules.push(*rule);
                        places.insert(rule.0, place);
                        place
                    }
                    // There are too many rules: this code stays a gap.
                    (None, Err(_)) => 0,
                };
                filled.push(Row { offset, rule: place });
                self.report.rows += 1;
                self.report.from_code += 1;
            }
            self.report.covered += block.end - block.start;
            // The gap began there.
            if filled.next().is_some_and(|row| row.offset == start) {
                filled.rest += 1;
            }
            if filled.next().is_none_or(|row| row.offset > end) {
                filled.push(Row { offset: end, rule: 0 });
            }
        }
        filled.keep_before(u64::MAX);
        self.report.merged += filled.merged;
        self.rows = filled.rows;
        self.rows.truncate(filled.length);
    }

    /// Removes the rows that [`Table::fill`] has put into a range: blocks with `rows` rows and `covered` bytes. `before` is the
    /// table before all that.
    pub(crate) fn take_back(&mut self, range: Range<u64>, rows: u64, covered: u64, before: &Table) {
        let (Some(start), Some(end)) = (self.offset(range.start), self.offset(range.end)) else { return };
        let rule_at = |rows: &[Row], offset: u32| {
            let next = rows.partition_point(|row| row.offset <= offset);
            next.checked_sub(1).and_then(|at| rows.get(at)).map_or(0, |row| row.rule)
        };
        // Rules have the same numbers in both.
        let inside = before.rows.iter().filter(|row| (start + 1..end).contains(&row.offset)).copied();
        let first = Row { offset: start, rule: rule_at(&before.rows, start) };
        let last = Row { offset: end, rule: rule_at(&self.rows, end) };
        let new: Vec<Row> = [first].into_iter().chain(inside).chain([last]).collect();
        let from = self.rows.partition_point(|row| row.offset < start);
        let to = self.rows.partition_point(|row| row.offset <= end);
        self.rows.splice(from..to, new);
        self.rows.dedup_by_key(|row| row.rule);
        self.report.rows -= rows;
        self.report.from_code -= rows;
        self.report.covered -= covered;
    }

    /// Numbers the rules from `known` on by the first of their rows, so that equal tables are equal however they were filled.
    pub(crate) fn sort_rules(&mut self, known: usize) {
        let mut numbers: Vec<Option<u16>> =
            (0..self.rules.len()).map(|number| u16::try_from(number).ok().filter(|_| number < known)).collect();
        let mut rules = self.rules.clone();
        rules.truncate(known);
        for row in &mut self.rows {
            let Some(number) = numbers.get_mut(usize::from(row.rule)) else { continue };
            row.rule = *number.get_or_insert_with(|| {
                rules.extend(self.rules.get(usize::from(row.rule)));
                rules.len().saturating_sub(1) as u16
            });
        }
        self.rules = rules;
    }

    fn offset(&self, address: u64) -> Option<u32> {
        u32::try_from(address.checked_sub(self.base)?).ok()
    }
}

/// The rows of a table, each at another address, no two neighbours equal. The rows to come are behind them, in the same memory.
///
/// ```text
/// rows │ done │ free │ to come │
///             ^ length
///                    ^ rest
/// ```
struct Filled {
    rows: Vec<Row>,
    length: usize,
    rest: usize,
    merged: u64,
}

impl Filled {
    /// Returns the next row that was there before.
    fn next(&self) -> Option<Row> {
        self.rows.get(self.rest).copied()
    }

    /// Keeps the rows that were there before, up to an offset.
    fn keep_before(&mut self, offset: u64) {
        while let Some(row) = self.next().filter(|row| u64::from(row.offset) < offset) {
            self.rest += 1;
            self.push(row);
        }
    }

    fn push(&mut self, row: Row) {
        let last = |length: usize| length.checked_sub(1).and_then(|last| self.rows.get(last));
        if last(self.length).is_some_and(|last| last.offset == row.offset) {
            self.length -= 1;
        }
        let last = self.length.checked_sub(1).and_then(|last| self.rows.get(last));
        let row = match (last, self.length) {
            (Some(last), _) if last.rule == row.rule => {
                self.merged += 1;
                return;
            }
            (_, ..MOST_ROWS) => row,
            (_, MOST_ROWS) => Row { rule: 0, ..row },
            _ => return,
        };
        if let Some(place) = self.rows.get_mut(self.length) {
            *place = row;
            self.length += 1;
        }
    }
}

/// Makes a table from rows in the order of their addresses.
pub(crate) struct Builder {
    base: u64,
    rows: Vec<Row>,
    rules: Vec<Packed>,
    places: HashMap<u64, u16, BuildHasherDefault<FxHasher>>,
    last: Option<Packed>,
    end: u64,
    pub(crate) report: Report,
}

impl Builder {
    pub(crate) fn new(base: u64) -> Builder {
        let mut builder = Builder {
            base,
            rows: Vec::new(),
            rules: Vec::new(),
            places: HashMap::default(),
            last: None,
            end: base,
            report: Report::default(),
        };
        builder.place(Packed::GAP);
        for reason in REASONS {
            builder.place(Packed::invalid(reason));
        }
        builder
    }

    /// Returns the end of the added code: blocks begin here or later.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Begins a block of code at `start`, which is not before [`Builder::end`].
    pub(crate) fn begin(&mut self, start: u64) {
        if start > self.end {
            if start - self.end > PADDING || self.rows.is_empty() {
                self.close();
            }
            self.end = start;
        }
    }

    /// Adds a rule for `from..to`, which follows the range that was added last.
    pub(crate) fn add(&mut self, from: u64, to: u64, rule: Packed) {
        if from >= to {
            return;
        }
        self.report.rows += 1;
        self.report.covered += to - from;
        if let Some(reason) = invalid(rule) {
            self.report.covered_invalid += to - from;
            if let Some(count) = self.report.invalid.get_mut(reason) {
                *count += 1;
            }
        }
        if self.last == Some(rule) {
            self.report.merged += 1;
        } else {
            self.push(from, rule);
        }
        self.end = to;
    }

    fn close(&mut self) {
        if !self.rows.is_empty() && self.last != Some(Packed::GAP) {
            self.report.gaps += 1;
            self.push(self.end, Packed::GAP);
        }
    }

    fn push(&mut self, address: u64, rule: Packed) {
        let rule = match self.rows.len() {
            ..MOST_ROWS => rule,
            MOST_ROWS => Packed::GAP,
            _ => return,
        };
        let rule_place = self.place(rule);
        // Code beyond 4 GiB from the first is never given to a builder.
        let Ok(offset) = u32::try_from(address.saturating_sub(self.base)) else { return };
        self.last = Some(rule);
        self.rows.push(Row { offset, rule: rule_place });
    }

    fn place(&mut self, rule: Packed) -> u16 {
        if let Some(place) = self.places.get(&rule.0) {
            return *place;
        }
        let Ok(place) = u16::try_from(self.rules.len()) else {
            return self.places.get(&Packed::invalid(Invalid::TooManyRules).0).copied().unwrap_or(0);
        };
        self.rules.push(rule);
        self.places.insert(rule.0, place);
        place
    }

    pub(crate) fn finish(mut self, arch: Arch) -> Table {
        self.close();
        self.rows.shrink_to_fit();
        Table { arch, base: self.base, rows: self.rows, rules: self.rules, code: Vec::new(), report: self.report }
    }
}

/// Returns the place in [`REASONS`] of an invalid rule's reason. The architecture does not matter for those.
fn invalid(rule: Packed) -> Option<usize> {
    // Kind 0, see `Packed`. This runs for each row, so the rule is not unpacked.
    if rule.0 & 7 != 0 {
        return None;
    }
    match rule.rule(Arch::X86_64) {
        Some(Rule::Invalid(reason)) => Some(reason as usize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::table::rule::Rule;

    #[test]
    fn neighbours_merge_padding_inherits_and_holes_are_gaps() {
        let (a, b) = (Packed(REGISTER_A), Packed(REGISTER_B));
        let mut builder = Builder::new(0x1000);
        builder.begin(0x1000);
        builder.add(0x1000, 0x1004, a);
        builder.add(0x1004, 0x1008, a);
        builder.add(0x1008, 0x1008, b);
        builder.begin(0x1010);
        builder.add(0x1010, 0x1020, b);
        builder.begin(0x1030);
        builder.add(0x1030, 0x1040, b);
        let table = builder.finish(Arch::X86_64);
        let rows: Vec<(u32, Packed)> = table.rows.iter().map(|row| (row.offset, table.rules[usize::from(row.rule)])).collect();
        assert_eq!(rows, [(0, a), (0x10, b), (0x20, Packed::GAP), (0x30, b), (0x40, Packed::GAP)]);
        assert_eq!((table.report.rows, table.report.merged, table.report.gaps, table.report.covered), (4, 1, 2, 0x28));
        for (address, rule) in [
            (0xfff, Packed::GAP),
            (0x1000, a),
            (0x100f, a),
            (0x1010, b),
            (0x1020, Packed::GAP),
            (0x1030, b),
            (u64::MAX, Packed::GAP),
        ] {
            assert_eq!(table.lookup(address), rule, "{address:#x}");
        }
    }

    #[test]
    fn gaps_are_final_but_for_code_that_is_not_known_yet() {
        let a = Packed(REGISTER_A);
        let mut builder = Builder::new(0x1000);
        for start in [0x1000, 0x2000, 0x3000] {
            builder.begin(start);
            builder.add(start, start + 0x100, a);
        }
        let table = builder.finish(Arch::X86_64);
        for unknown in [
            vec![],
            vec![0x1100..0x2000, 0x8000..0x8100],
            vec![0x1200..0x1300, 0x1400..0x2000, 0x2100..0x2200, 0x3100..0x3200],
            vec![0x800..0x900, 0x1180..0x2800, 0x2900..0x9000],
        ] {
            let marked = table.with_final_gaps(&unknown);
            assert!(marked.rows.is_sorted_by_key(|row| row.offset), "{unknown:x?}");
            for address in (0x1000..0xa000).step_by(0x40) {
                let is_unknown = unknown.iter().any(|range: &Range<u64>| range.contains(&address));
                let expected = match table.lookup(address) {
                    Packed::GAP if !is_unknown => Packed::FINAL_GAP,
                    rule => rule,
                };
                assert_eq!(marked.lookup(address), expected, "{unknown:x?}: {address:#x}");
            }
        }
        assert_eq!(Packed::FINAL_GAP.rule(Arch::X86_64), Some(Rule::Gap));
    }

    #[test]
    fn a_rule_more_than_there_are_numbers_is_invalid() {
        let mut builder = Builder::new(0);
        for number in 0..70_000u64 {
            builder.add(number, number + 1, Packed(REGISTER_A | number << 40));
        }
        let table = builder.finish(Arch::X86_64);
        assert_eq!(table.rules.len(), 65_536);
        assert_eq!(table.lookup(60_000), Packed(REGISTER_A | 60_000 << 40));
        assert_eq!(table.lookup(69_999), Packed::invalid(Invalid::TooManyRules));
    }

    const REGISTER_A: u64 = 5 | 7 << 3;
    const REGISTER_B: u64 = 5 | 6 << 3;
}
