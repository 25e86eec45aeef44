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
//! Up to 4 MiB of code are analysed as a whole, more in pieces of about 1 MiB ([`pieces`]).
//!
//! Nearly all functions that compilers make are followed by a quicker way first, which finds the same or leaves it ([`plain`]).
//!
//! Promises: time and memory in proportion to the code. The caller can stop it ([`Control`]).

pub(crate) mod aarch64;
mod function;
mod machine;
mod map;
mod memory;
mod pieces;
mod plain;
mod plain_block;
mod prover;
mod quick_frame;
mod quick_x86;
mod state;
mod survey;
mod text;
mod x86;

use crate::unwind::table::block::Block;
use std::ops::Range;

use super::machine_code::function::{Known, Others};
pub(crate) use super::machine_code::pieces::PUBLISHED_EVERY;
use super::machine_code::pieces::Pieces;
use super::machine_code::prover::{Prover, Stopped};
use super::machine_code::text::Text;

use super::control::{Control, Ended, Step};
use super::sections::Elf;
use super::table::packed::Packed;
use super::table::rows::Table;
use crate::object::headers::Arch;
use crate::object::read_at::ReadAt;

/// Why a place is taken for the begin of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Evidence {
    Part,
    Gap,
    Taken,
    Symbol,
    Called,
}

/// Code up to this size is analysed as a whole: musl has 0.4 MB. A megabyte takes some 10 MB of memory meanwhile.
const LARGEST_WHOLE: u64 = 4 << 20;

/// Symbol tables are read up to so many bytes for each byte of code: those of large programs with a handful of bytes without
/// unwind information are not worth it.
const SYMBOLS_A_BYTE: u64 = 16;
const FEW_SYMBOLS: u64 = 64 << 10;

/// Padding up to so many bytes has the rule before it: nothing runs there.
const PADDING: usize = 63;

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    /// The code of which something is known, in the order of addresses.
    pub(crate) blocks: Vec<Block>,
    /// The same with all that is known.
    #[cfg(test)]
    pub(crate) rows: Vec<(u64, function::Row)>,
    /// Functions that were looked at, and why they are not proved.
    #[cfg(test)]
    pub(crate) functions: Vec<(u64, Option<&'static str>)>,
}

/// Fills the gaps of a table by what is proved from code. `publish` gets the table each time that it has got better, after so much
/// CPU time at least.
pub(crate) fn fill(
    elf: &Elf,
    image: &(impl ReadAt + ?Sized),
    table: &mut Table,
    control: &dyn Control,
    every: std::time::Duration,
    publish: &mut dyn FnMut(Step<'_>),
) -> Ended {
    let gaps = gaps(table, &elf.code());
    let ranges = whole(elf.arch, &gaps);
    if size(&ranges) > LARGEST_WHOLE {
        return Pieces::new(elf, image, &gaps, ranges, table.report.rbx).fill(table, control, every, publish);
    }
    let Ok(mut found) = of_ranges_unless_stopped(elf, image, &ranges, table.report.rbx, control) else { return Ended::Stopped };
    found.blocks.iter_mut().for_each(|block| clip(block, &gaps));
    if !found.blocks.is_empty() {
        table.fill(&found.blocks);
        publish(Step { table, left: 0 });
    }
    Ended::Whole
}

/// Rules for what a table has none for, as long as that is not analysed in pieces.
#[cfg(test)]
fn find(elf: &Elf, image: &(impl ReadAt + ?Sized), table: &Table) -> Found {
    let gaps = gaps(table, &elf.code());
    let mut found = of_ranges(elf, image, &whole(elf.arch, &gaps), table.report.rbx);
    found.blocks.iter_mut().for_each(|block| clip(block, &gaps));
    found
}

/// Bytes of code without unwind information.
pub(crate) fn left(elf: &Elf, table: &Table) -> u64 {
    size(&gaps(table, &elf.code()))
}

/// Ranges without others, both sorted.
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

fn size(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
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
#[cfg(test)]
fn of_ranges(elf: &Elf, image: &(impl ReadAt + ?Sized), ranges: &[Range<u64>], rbx: bool) -> Found {
    let found = of_ranges_unless_stopped(elf, image, ranges, rbx, &super::control::Unhurried);
    found.unwrap_or_else(|Stopped| Found::default())
}

fn of_ranges_unless_stopped(
    elf: &Elf,
    image: &(impl ReadAt + ?Sized),
    ranges: &[Range<u64>],
    rbx: bool,
    control: &dyn Control,
) -> Result<Found, Stopped> {
    let read_at =
        |address, buffer: &mut [u8]| elf.file_offset(address).is_some_and(|offset| image.read_exact_at(offset, buffer).is_ok());
    let text = Text::new(elf, image, ranges, &read_at);
    if text.pieces.is_empty() {
        return Ok(Found::default());
    }
    let others = Others::default();
    let mut prover = Prover::new(&text, Known::new(&others), elf.entry, control);
    for (address, is_function) in elf.functions(image, text.size() * SYMBOLS_A_BYTE + FEW_SYMBOLS) {
        prover.start(address, if is_function { Evidence::Symbol } else { Evidence::Taken });
    }
    for address in survey::called_from_elsewhere(elf, image, &text) {
        prover.start(address, Evidence::Taken);
    }
    Ok(prover.prove(rbx)?.found)
}

/// What of the code a table has no rule for, though nothing says that there is none.
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

#[cfg(test)]
use {super::machine_code::prover::FEW_JUMPS, std::collections::BTreeMap};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_aarch64;
#[cfg(test)]
mod tests_pieces;
