//! Finds code without rules, and cuts results to it.

use std::ops::Range;

use crate::object::headers::Arch;
use crate::unwind::table::block::Block;
use crate::unwind::table::packed::Packed;
use crate::unwind::table::rows::Table;

/// Returns the code that has neither a rule nor a reason why there is none.
pub(crate) fn gaps(table: &Table, code: &[Range<u64>]) -> Vec<Range<u64>> {
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

/// Returns `ranges` without `others`; both are sorted.
pub(crate) fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    for range in ranges {
        let mut start = range.start;
        let first = others.partition_point(|other| other.end <= start);
        for other in others.iter().skip(first).take_while(|other| other.start < range.end) {
            rest.push(start..other.start.max(start));
            start = other.end;
        }
        rest.push(start..range.end);
    }
    rest.retain(|range| range.start < range.end);
    rest
}

pub(crate) fn size(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns the ranges cut at whole instructions. A return from a signal handler begins a byte before its code. That byte belongs
/// to the instruction before, and the rest of that instruction must still be understood.
pub(crate) fn whole(arch: Arch, gaps: &[Range<u64>]) -> Vec<Range<u64>> {
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

/// Cuts a block to the part that is in a gap.
pub(crate) fn clip(block: &mut Block, gaps: &[Range<u64>]) {
    let Some(gap) = gaps.get(gaps.partition_point(|gap| gap.end <= block.start)) else { return };
    block.start = block.start.max(gap.start);
    block.end = block.end.min(gap.end).max(block.start);
    let start = block.start;
    let before = block.rows.iter().take_while(|(address, _)| *address <= start).count();
    block.rows.drain(..before.saturating_sub(1));
    block.rows.iter_mut().take(1).for_each(|(address, _)| *address = start);
    block.rows.retain(|(address, _)| *address < block.end);
}
