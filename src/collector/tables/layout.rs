//! Lays out a table in the form that the kernel's walk reads, by offset in the file. Pure.
//!
//! Unwind information uses ELF addresses; a mapping has offsets in the file. Each executable segment has its own distance between the
//! two. So a range of pages is cut at the borders of segments and moved, and the walk needs no bias.

use crate::unwind::table::paged::PAGE;
use crate::unwind::{Arch, Code, Packed, Page, Paged, Table};

/// Most ranges: `MAX_RANGES` of bpf/record.h.
pub(crate) const MAX_RANGES: usize = 8;

/// Most pages of one range: its index is in one segment, two words a page. 256 MiB of code.
const MAX_PAGES: usize = 1 << 18;

/// A contiguous range of an object's code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    /// Offset in the file, in pages of [`PAGE`] bytes.
    pub(crate) first_page: u32,
    /// The place of each page's rows. `segment` counts from the object's first segment.
    pub(crate) pages: Vec<Page>,
}

/// A table, ready to be put into the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) arch: Arch,
    /// At most [`MAX_RANGES`], sorted, without overlaps.
    pub(crate) ranges: Vec<Range>,
    /// Rows in pieces of at most a segment.
    pub(crate) rows: Vec<Vec<u32>>,
    pub(crate) rules: Vec<Packed>,
}

impl Layout {
    /// Lays out a table. Code that finds no room becomes a gap: more ranges than [`MAX_RANGES`], offsets beyond 4 GiB, or segments whose
    /// addresses do not fit their offsets.
    pub(crate) fn new(table: &Table) -> Layout {
        let paged = Paged::new(table);
        let mut ranges: Vec<Range> = Vec::new();
        for code in &table.code {
            for range in &paged.ranges {
                for piece in cut(range.start, &range.pages, code).into_iter().flat_map(in_pieces) {
                    ranges.push(piece);
                }
            }
        }
        ranges.sort_by_key(|range| range.first_page);
        // Two segments may share a page. Their bytes differ, and one page cannot hold the rows of both.
        let mut end = 0u32;
        for range in &mut ranges {
            let before = end.saturating_sub(range.first_page);
            range.pages.drain(..range.pages.len().min(before as usize));
            range.first_page += before;
            end = end.max(range.first_page.saturating_add(range.pages.len() as u32));
        }
        ranges.retain(|range| !range.pages.is_empty());
        // If there are too many ranges, the largest stay.
        if ranges.len() > MAX_RANGES {
            ranges.sort_by_key(|range| std::cmp::Reverse(range.pages.len()));
            ranges.truncate(MAX_RANGES);
            ranges.sort_by_key(|range| range.first_page);
        }
        Layout { arch: table.arch, ranges, rows: paged.segments, rules: table.rules.clone() }
    }

    /// Returns the bytes that the table takes in the kernel.
    pub(crate) fn bytes(&self) -> usize {
        let pages: usize = self.ranges.iter().map(|range| range.pages.len()).sum();
        let rows: usize = self.rows.iter().map(Vec::len).sum();
        pages * size_of::<Page>() + rows * 4 + self.rules.len() * 8
    }
}

/// Returns the pages of a range that belong to a segment, by offset in the file.
fn cut(start: u64, pages: &[Page], code: &Code) -> Option<Range> {
    let page = u64::from(PAGE);
    // The ABI requires that address and offset are equal modulo the page size of memory, which is larger than our page.
    if code.address % page != code.offset % page {
        return None;
    }
    let end = start.checked_add(pages.len() as u64 * page)?;
    let from = start.max(code.address / page * page);
    let to = end.min(code.address.checked_add(code.size)?.checked_next_multiple_of(page)?);
    if from >= to {
        return None;
    }
    let pages = pages.get(usize::try_from((from - start) / page).ok()?..usize::try_from((to - start) / page).ok()?)?;
    let offset = from.wrapping_sub(code.address).wrapping_add(code.offset);
    // Offsets have 32 bits in the key of a rule.
    let last = offset.checked_add(pages.len() as u64 * page)?;
    let first_page = u32::try_from(offset / page).ok().filter(|_| last <= 1 << 32)?;
    Some(Range { first_page, pages: pages.to_vec() })
}

fn in_pieces(range: Range) -> Vec<Range> {
    if range.pages.len() <= MAX_PAGES {
        return vec![range];
    }
    let firsts = (range.first_page..).step_by(MAX_PAGES);
    range.pages.chunks(MAX_PAGES).zip(firsts).map(|(pages, first_page)| Range { first_page, pages: pages.to_vec() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::table::rows::Row;

    fn table(base: u64, rows: &[(u32, u16)], code: &[(u64, u64, u64)]) -> Table {
        let rows = rows.iter().map(|(offset, rule)| Row { offset: *offset, rule: *rule }).collect();
        let code = code.iter().map(|(address, offset, size)| Code { address: *address, offset: *offset, size: *size }).collect();
        let rules = vec![Packed::GAP, Packed(5), Packed(6)];
        Table { arch: Arch::X86_64, base, rows, rules, code, report: Default::default() }
    }

    #[test]
    fn pages_are_numbered_by_where_they_are_in_the_file() {
        let table = table(0x20_15c0, &[(0, 1), (0x400, 2), (0x900, 0)], &[(0x20_15c0, 0x15c0, 0x900)]);
        let layout = Layout::new(&table);
        let ranges: Vec<_> = layout.ranges.iter().map(|range| (range.first_page, range.pages.len())).collect();
        // 0x15c0 is in page 5 (0x1400), 0x1ec0 in page 7.
        assert_eq!(ranges, [(5, 3)]);
    }

    #[test]
    fn segments_that_are_moved_by_different_distances_are_ranges_of_their_own() {
        let rows = [(0, 1), (0x1000, 2), (0x2000, 0)];
        let layout = Layout::new(&table(0x1000, &rows, &[(0x1000, 0x1000, 0x1000), (0x2000, 0x5000, 0x1000)]));
        let ranges: Vec<_> = layout.ranges.iter().map(|range| (range.first_page, range.pages.len())).collect();
        assert_eq!(ranges, [(4, 4), (20, 4)]);
    }

    #[test]
    fn hostile_segments_leave_gaps_and_never_overlap() {
        let rows = [(0, 1), (0x4000, 0)];
        let code = [
            (0x1000, 0x1001, 0x1000),
            (0x1000, u64::MAX - 0xfff, 0x1000),
            (u64::MAX - 0xfff, 0x1000, u64::MAX),
            (0x1000, 0x3000, 0x4000),
            (0x2000, 0x3000, 0x4000),
        ];
        let layout = Layout::new(&table(0x1000, &rows, &code));
        assert!(!layout.ranges.is_empty());
        for pair in layout.ranges.windows(2) {
            assert!(pair[0].first_page + pair[0].pages.len() as u32 <= pair[1].first_page);
        }
    }
}
