//! A table as the kernel's walk reads it, and a model of that walk's search.
//!
//! ```text
//! page index, one for each 1 KiB of code            rows of a segment, sorted within a page
//! ┌──────────────┬─────────┬───────────┐            ┌──────────────────────┬────────────┐
//! │ first u32    │ n u16   │segment u16│ ─────────► │ address in page u16  │ rule u16   │  × n
//! └──────────────┴─────────┴───────────┘            └──────────────────────┴────────────┘
//! ```
//!
//! A row is a `u32`, address above and rule below, so that rows compare as numbers. Each page begins with a row for its first
//! byte. If no row begins there, the last row of the page before is carried over: so a search never leaves its page. Larger pages
//! and blocks of rows were measured, too. Fewer rows to search are fewer cache misses, and 8 bytes for 1 KiB of code are 0.4 a
//! row. Rows are in segments because a map's value has a fixed size.

use super::rows::{Row, Table};

/// Bytes of code in a page: a power of two, at most 64 KiB.
pub const PAGE: u32 = 1 << 10;

/// Rows in a segment: 2 MiB, one value of a map. A page does not span two.
pub const SEGMENT_ROWS: usize = 1 << 19;

/// Where the rows of a page are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Page {
    /// The first row, counted from the segment's begin.
    pub first: u32,
    /// How many rows; at least one.
    pub count: u16,
    /// The number of the segment, counted from the object's first.
    pub segment: u16,
}

const _: () = assert!(size_of::<Page>() == 8);
// A page has at most one row for each of its bytes, and the number of a byte fits into a row's upper half.
const _: () = assert!(PAGE <= u16::MAX as u32 && PAGE.is_power_of_two());

/// Some code of an object, and its pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// ELF address of the first page.
    pub start: u64,
    /// The pages of this range.
    pub pages: Vec<Page>,
}

/// A table as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paged {
    /// Sorted by address; nothing is known between them.
    pub ranges: Vec<Range>,
    /// The rows, in segments of at most [`SEGMENT_ROWS`].
    pub segments: Vec<Vec<u32>>,
}

/// Gaps longer than this many pages are left out of the index: they cost more than another range does.
const LONG_GAP: u32 = 256;

impl Paged {
    /// Lays out a table.
    pub fn new(table: &Table) -> Paged {
        let mut paged = Paged::default();
        let base_page = table.base / u64::from(PAGE);
        // Offsets in the table count from its base; those in pages from the page's begin.
        let slack = (table.base % u64::from(PAGE)) as u32;
        let mut rest = table.rows.as_slice();
        let mut carried = 0;
        let mut page = 0;
        while let Some(next) = rest.first() {
            let next_page = page_of(next, slack);
            let gap = table.rules.get(usize::from(carried)) == Some(&super::packed::Packed::GAP);
            if paged.ranges.is_empty() || gap && next_page - page > LONG_GAP {
                page = next_page;
                paged.ranges.push(Range { start: (base_page + u64::from(page)) * u64::from(PAGE), pages: Vec::new() });
            }
            let count = rest.iter().take_while(|row| page_of(row, slack) == page).count();
            let (own, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = others;
            let place = paged.page(carried, own, slack);
            if let Some(range) = paged.ranges.last_mut() {
                range.pages.push(place);
            }
            carried = own.last().map_or(carried, |row| row.rule);
            page += 1;
        }
        paged
    }

    /// Adds the rows of a page.
    fn page(&mut self, carried: u16, own: &[Row], slack: u32) -> Page {
        let in_page = |row: &Row| ((u64::from(row.offset) + u64::from(slack)) % u64::from(PAGE)) as u32;
        let carry = own.first().is_none_or(|first| in_page(first) != 0);
        let count = own.len() + usize::from(carry);
        if self.segments.last().is_none_or(|segment| segment.len() + count > SEGMENT_ROWS) {
            self.segments.push(Vec::new());
        }
        let number = self.segments.len().saturating_sub(1) as u16;
        let Some(segment) = self.segments.last_mut() else { return Page { first: 0, count: 0, segment: 0 } };
        // A page in the midst of a long function has the row of the page before.
        if own.is_empty() && segment.last() == Some(&u32::from(carried)) {
            return Page { first: segment.len() as u32 - 1, count: 1, segment: number };
        }
        let first = segment.len() as u32;
        if carry {
            segment.push(u32::from(carried));
        }
        segment.extend(own.iter().map(|row| in_page(row) << 16 | u32::from(row.rule)));
        Page { first, count: count as u16, segment: number }
    }

    /// Returns the number of the rule at an address; `None` outside all ranges. Written like the kernel's program: steps of
    /// halving lengths, without a branch that depends on rows.
    pub fn lookup(&self, address: u64) -> Option<u16> {
        let range = self.ranges.iter().rev().find(|range| range.start <= address)?;
        let offset = address - range.start;
        let page = range.pages.get(usize::try_from(offset / u64::from(PAGE)).ok()?)?;
        let segment = self.segments.get(usize::from(page.segment))?;
        let key = ((offset % u64::from(PAGE)) as u32) << 16 | 0xffff;
        let mut at = page.first as usize;
        let mut length = usize::from(page.count);
        while length > 1 {
            let half = length / 2;
            // The row in the middle is not after the address: continue from there.
            let step = usize::from(*segment.get(at + half)? <= key) * half;
            at += step;
            length -= half;
        }
        segment.get(at).map(|row| (row & 0xffff) as u16)
    }

    /// Returns the bytes in the kernel: rows and index, without the rules.
    pub fn bytes(&self) -> usize {
        let rows: usize = self.segments.iter().map(Vec::len).sum();
        let pages: usize = self.ranges.iter().map(|range| range.pages.len()).sum();
        rows * size_of::<u32>() + pages * size_of::<Page>()
    }
}

fn page_of(row: &Row, slack: u32) -> u32 {
    ((u64::from(row.offset) + u64::from(slack)) / u64::from(PAGE)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::headers::Arch;
    use crate::unwind::table::packed::Packed;
    use crate::unwind::table::rows::Builder;
    use proptest::prelude::*;

    fn table(base: u64, steps: &[(u32, u8)]) -> Table {
        let mut builder = Builder::new(base);
        let mut address = base;
        for (length, rule) in steps {
            let end = address + u64::from(*length);
            if *rule > 0 {
                builder.begin(address);
                builder.add(address, end, Packed(5 | u64::from(*rule) << 40));
            }
            address = end;
        }
        builder.finish(Arch::X86_64)
    }

    fn compare(table: &Table) {
        let paged = Paged::new(table);
        let end = table.base + table.rows.last().map_or(0, |row| u64::from(row.offset));
        let at_rows = table.rows.iter().map(|row| table.base + u64::from(row.offset));
        let probes = at_rows.flat_map(|at| [at.saturating_sub(1), at, at + 1]).chain((table.base..end).step_by(509));
        for address in probes {
            let found = paged.lookup(address).and_then(|rule| table.rules.get(usize::from(rule))).copied();
            assert_eq!(found.unwrap_or(Packed::GAP), table.lookup(address), "{address:#x}");
        }
        for page in paged.ranges.iter().flat_map(|range| &range.pages) {
            let rows = &paged.segments[usize::from(page.segment)][page.first as usize..][..usize::from(page.count)];
            assert!(rows[0] >> 16 == 0 && rows.is_sorted(), "{page:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn pages_say_what_a_linear_table_says(
            base in 0u64..1 << 40,
            steps in proptest::collection::vec((prop_oneof![1u32..20, 1u32..3000, 1u32..2_000_000], 0u8..5), 0..200)
        ) {
            compare(&table(base, &steps));
        }
    }

    #[test]
    fn dense_code_fills_its_pages_and_segments() {
        let steps: Vec<(u32, u8)> = (0..SEGMENT_ROWS as u32 + 5000).map(|at| (1, 1 + (at % 3) as u8)).collect();
        let table = table(0x400_123, &steps);
        let paged = Paged::new(&table);
        assert_eq!(paged.segments.len(), 2);
        assert!(paged.segments.iter().all(|segment| segment.len() <= SEGMENT_ROWS));
        compare(&table);
    }

    #[test]
    fn a_long_hole_costs_nothing() {
        let paged = Paged::new(&table(0, &[(64, 1), (1 << 30, 0), (64, 2)]));
        assert_eq!(paged.ranges.len(), 2);
        assert!(paged.bytes() < 100, "{}", paged.bytes());
    }
}
