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
//! The stack of a function depends only on its own instructions. At its begin the return address is at the stack pointer. From
//! there, values are followed forward through all ways until no way takes away facts any more: how far registers are from the
//! CFA, and which words of the stack have which register of the caller ([`state`], [`function`]).
//!
//! A function is *proved*, and has rows, if nothing contradicts. Each `ret` and each jump to another function finds the stack
//! pointer as at the begin. No way leaves the code. Each jump by a table has its table. All bytes on its ways are instructions. A
//! function that contradicts has no rows: all of it stays a gap. A place where two ways meet with different sizes of the frame
//! has no row. (Because of the values saved there, mostly the function has none either.)
//!
//! Evidence that a function begins at a place, strongest first.
//!
//! | [`Evidence`] | | |
//! | --- | --- | --- |
//! | `Called` | a proved function calls it | there the return address *is* at the stack pointer |
//! | `Symbol` | a symbol says that it is a function | wrong for parts that compilers put elsewhere (`.cold`): jumps with a frame show it |
//! | `Taken` | its address is taken, or a label | |
//! | `Gap` | code behind the end of other code | used only if it returns and preserves all that it ought to |
//! | `Part` | a jump leads there with a frame | no function: only code that falls into it behind a call ends there |
//!
//! Calls that do not return (`exit`, `abort`) may have anything behind them. A function whose ways all end nowhere is known not
//! to return. The same holds for a call if the code behind it would have two sizes of the frame. A function may also change
//! registers that it ought to preserve (assembly calls its own parts as it likes). Its callers learn that, and are followed
//! again.
//!
//! The first code of a program has no caller. It clears the frame pointer (psABI, 3.4.1) and does not return. The first code of a
//! thread has no caller either: it runs where the result of `clone` is 0, on ways that call something and never return.
//!
//! Code whose callees take arguments off the stack (V8's, in node) keeps to other conventions: none of its results are used.
//!
//! Up to 4 MiB of code are analysed as a whole, larger code in pieces of about 1 MiB ([`pieces`]).
//!
//! Nearly all functions that compilers make are followed by a quicker way first. It finds the same rows, or leaves the function
//! to the thorough way ([`plain`]).
//!
//! Promises: time and memory in proportion to the code. The caller can stop it ([`Control`]).

mod aarch64;
mod abi;
mod flow;
mod function;
mod gaps;
mod jumps;
mod known;
mod machine;
mod map;
mod memory;
mod outcome;
mod pieces;
mod plain;
mod plain_block;
mod prover;
mod quick_frame;
mod quick_x86;
mod state;
mod survey;
mod text;
pub(crate) mod words;
mod x86;

use std::ops::Range;

use super::machine_code::gaps::{clip, size, whole};
pub(crate) use super::machine_code::gaps::{gaps, without};
use super::machine_code::known::{Evidence, Known, Others};
use super::machine_code::outcome::Findings;
pub(crate) use super::machine_code::pieces::PUBLISHED_EVERY;
use super::machine_code::pieces::Pieces;
use super::machine_code::prover::{Prover, Stopped};
use super::machine_code::text::Text;

use super::control::{Control, Ended, Step};
use super::sections::Elf;
use super::table::rows::Table;
use crate::object::read_at::ReadAt;

/// Code up to this size is analysed as a whole: musl has 0.4 MB. The analysis of a megabyte takes some 10 MB of memory meanwhile.
const LARGEST_WHOLE: u64 = 4 << 20;

/// Symbol tables are read up to this many bytes for each byte of code. Large programs have large ones, which are not worth
/// reading for a handful of bytes without unwind information.
const SYMBOLS_A_BYTE: u64 = 16;
const FEW_SYMBOLS: u64 = 64 << 10;

/// Fills the gaps of a table with rules proved from code. `publish` gets the table each time that it has become better, but not
/// before `every` CPU time has passed since the last time.
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
        publish(Step { table, unknown: &[] });
    }
    Ended::Whole
}

/// Finds rules where a table has none, as long as that code is not analysed in pieces.
#[cfg(test)]
fn find(elf: &Elf, image: &(impl ReadAt + ?Sized), table: &Table) -> Findings {
    let gaps = gaps(table, &elf.code());
    let mut found = of_ranges(elf, image, &whole(elf.arch, &gaps), table.report.rbx);
    found.blocks.iter_mut().for_each(|block| clip(block, &gaps));
    found
}

/// Finds the rules of all code in these ranges.
#[cfg(test)]
fn of_ranges(elf: &Elf, image: &(impl ReadAt + ?Sized), ranges: &[Range<u64>], rbx: bool) -> Findings {
    let found = of_ranges_unless_stopped(elf, image, ranges, rbx, &super::control::Unhurried);
    found.unwrap_or_else(|Stopped| Findings::default())
}

fn of_ranges_unless_stopped(
    elf: &Elf,
    image: &(impl ReadAt + ?Sized),
    ranges: &[Range<u64>],
    rbx: bool,
    control: &dyn Control,
) -> Result<Findings, Stopped> {
    let read_at =
        |address, buffer: &mut [u8]| elf.file_offset(address).is_some_and(|offset| image.read_exact_at(offset, buffer).is_ok());
    let text = Text::new(elf, image, ranges, &read_at);
    if text.pieces.is_empty() {
        return Ok(Findings::default());
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

#[cfg(test)]
use {super::machine_code::prover::FEW_JUMPS, std::collections::BTreeMap};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_aarch64;
#[cfg(test)]
mod tests_pieces;
