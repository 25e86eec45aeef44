//! Converts all unwind information of one object to one table.

use crate::unwind::go::gopclntab;
use crate::unwind::table::block::Block;
use std::ops::Range;
use std::time::Duration;

use super::cfi::entries::{Entries, Fde, Format, Section};
use super::cfi::machine::{CfaState, CfiRow, Machine, Program};
use super::cfi::translate::Translation;
use super::control::{Control, Ended, Step, Unhurried};
use super::debug_frame_files::{self, Beside};
use super::known_code::{self};
use super::machine_code;
use super::sections::{Elf, Information};
use super::table::packed::Packed;
use super::table::rows::{Builder, Code, Table};
use super::table::rule::{Invalid, RBX, Rule};
use crate::object::headers::Arch;
use crate::object::read_at::{ReadAt, Unreadable};

/// Makes the table of an ELF image.
///
/// # Errors
///
/// If the image is no ELF file for these machines, or its headers lead nowhere. Damage in unwind information is not an error: it
/// is counted in the table's report, and only the damaged functions lose their rules.
pub fn convert(image: &(impl ReadAt + ?Sized), beside: &dyn Beside) -> Result<Table, Unreadable> {
    let (mut table, evidence) = Evidence::of_information(image, beside)?;
    machine_code::fill(&evidence.elf, image, &mut table, &Unhurried, Duration::MAX, &mut |_| {});
    Ok(table)
}

/// Makes the table of an ELF image in steps: first the rules of unwind information, then those proved from machine code.
///
/// `publish` gets a table at least once, then at most every 250 ms of CPU time. Each table is better than the one before; the
/// last equals the table of [`convert`]. If code adds nothing to a table, it is not published again.
///
/// # Errors
///
/// As [`convert`]; then nothing was published.
pub fn convert_in_steps(
    image: &(impl ReadAt + ?Sized),
    beside: &dyn Beside,
    control: &dyn Control,
    publish: &mut dyn FnMut(Step<'_>),
) -> Result<Ended, Unreadable> {
    convert_by(image, beside, control, machine_code::PUBLISHED_EVERY, publish)
}

/// Does the work of [`convert_in_steps`] with another time between tables.
pub(crate) fn convert_by(
    image: &(impl ReadAt + ?Sized),
    beside: &dyn Beside,
    control: &dyn Control,
    every: Duration,
    publish: &mut dyn FnMut(Step<'_>),
) -> Result<Ended, Unreadable> {
    let (mut table, evidence) = Evidence::of_information(image, beside)?;
    publish(Step { table: &table, unknown: &machine_code::gaps(&table, &evidence.elf.code()) });
    Ok(machine_code::fill(&evidence.elf, image, &mut table, control, every, publish))
}

/// The sources of a table.
pub(crate) struct Evidence {
    pub(crate) elf: Elf,
    pub(crate) sources: Vec<Information>,
    pub(crate) blocks: Vec<Block>,
    /// Code whose only evidence is the machine code itself.
    pub(crate) from_code: Vec<Range<u64>>,
}

impl Evidence {
    /// Reads an image and its code. If little of its code is covered, reads separate files, too.
    pub(crate) fn read(image: &(impl ReadAt + ?Sized), beside: &dyn Beside) -> Result<(Table, Evidence), Unreadable> {
        let (mut table, mut evidence) = Evidence::of_information(image, beside)?;
        let before = machine_code::gaps(&table, &evidence.elf.code());
        machine_code::fill(&evidence.elf, image, &mut table, &Unhurried, Duration::MAX, &mut |_| {});
        evidence.from_code = machine_code::without(&before, &machine_code::gaps(&table, &evidence.elf.code()));
        Ok((table, evidence))
    }

    /// Reads an image as [`Evidence::read`] does, but not its code.
    fn of_information(image: &(impl ReadAt + ?Sized), beside: &dyn Beside) -> Result<(Table, Evidence), Unreadable> {
        let elf = Elf::read(image)?;
        let (sources, failed) = sources(&elf, image);
        let mut blocks: Vec<Block> = gopclntab::find(&elf, image).into_iter().collect();
        blocks.extend(known_code::find(&elf, image));
        let mut evidence = Evidence { elf, sources, blocks, from_code: Vec::new() };
        let mut table = evidence.table(image);
        // Unwind information covers more than 95 % of a library. An object with less may have assembly; asking for files that do
        // not exist costs little.
        if table.report.covered < table.report.text / 10 * 9 {
            let more = debug_frame_files::find(&evidence.elf, image, beside);
            if !more.is_empty() {
                evidence.sources.extend(more);
                table = evidence.table(image);
            }
        }
        table.report.fdes_in_error += failed;
        Ok((table, evidence))
    }

    /// Returns the table without the rules from code.
    pub(crate) fn table(&self, image: &(impl ReadAt + ?Sized)) -> Table {
        build(&self.elf, image, &self.sources, &self.blocks)
    }
}

/// Returns all unwind information of the file itself, that for exceptions first, and how many sections could not be read.
fn sources(elf: &Elf, image: &(impl ReadAt + ?Sized)) -> (Vec<Information>, u64) {
    let by_section = elf.information(image, ".eh_frame", Format::EhFrame);
    let eh_frame = by_section.or_else(|| elf.eh_frame_by_header(image));
    let debug_frame = elf.information(image, ".debug_frame", Format::DebugFrame);
    let mut failed = 0;
    let found = [eh_frame, debug_frame].into_iter().flatten();
    let readable = found.filter_map(|information| information.map_err(|_| failed += 1).ok()).collect();
    (readable, failed)
}

/// A section with its address space and machine.
fn section<'a>(elf: &Elf, information: &'a Information) -> Section<'a> {
    let address = |name| elf.section(name).map_or(0, |section| section.address);
    Section {
        bytes: &information.bytes,
        address: information.address,
        format: information.format,
        terminated: information.terminated,
        arch: elf.arch,
        text: address(".text"),
        data: address(".got"),
    }
}

/// The source of the rules for some code.
#[derive(Clone, Copy)]
enum Cover {
    /// A description: number of the section, number in it.
    Fde(u32, u32),
    /// Number of the block.
    Block(u32),
}

fn build(elf: &Elf, image: &(impl ReadAt + ?Sized), sources: &[Information], blocks: &[Block]) -> Table {
    let sections: Vec<Section<'_>> = sources.iter().map(|source| section(elf, source)).collect();
    let entries: Vec<Entries<'_>> = sections.iter().map(Section::entries).collect();
    let mut covers = covers(&entries, blocks);
    // Stable: of two that begin together, the one found first stays first.
    covers.sort_by_key(|(start, _)| *start);
    let text = elf.text();
    let names = sources.iter().map(|source| source.name).collect();
    let object = Object { elf, image, sections, entries, blocks, covers, text, names };
    let table = object.table(false);
    if table.report.rbx { object.table(true) } else { table }
}

fn covers(entries: &[Entries<'_>], blocks: &[Block]) -> Vec<(u64, Cover)> {
    let mut covers = Vec::with_capacity(entries.iter().map(|entries| entries.fdes.len()).sum::<usize>() + blocks.len());
    let numbered = blocks.iter().zip(0u32..);
    let (first, last): (Vec<_>, Vec<_>) = numbered.partition(|(block, _)| block.wins);
    covers.extend(first.iter().map(|(block, number)| (block.start, Cover::Block(*number))));
    for (source, entries) in entries.iter().enumerate() {
        let numbered = entries.fdes.iter().zip(0u32..);
        covers.extend(numbered.map(|(fde, number)| (fde.start, Cover::Fde(source as u32, number))));
    }
    covers.extend(last.iter().map(|(block, number)| (block.start, Cover::Block(*number))));
    covers
}

struct Object<'o, 'a, I: ?Sized> {
    elf: &'o Elf,
    image: &'o I,
    sections: Vec<Section<'a>>,
    entries: Vec<Entries<'a>>,
    blocks: &'o [Block],
    covers: Vec<(u64, Cover)>,
    text: Vec<Range<u64>>,
    names: Vec<&'static str>,
}

impl<'a, I: ReadAt + ?Sized> Object<'_, 'a, I> {
    /// Makes the table. If a CFA is computed from rbx, `report.rbx` says so; then the table is made again, and follows rbx.
    fn table(&self, rbx: bool) -> Table {
        let base = self.text.first().map_or(0, |range| range.start);
        let mut builder = Builder::new(base);
        let mut machine = Machine::default();
        let initial: Vec<Vec<Result<CfiRow<'a>, Invalid>>> = self
            .sections
            .iter()
            .zip(&self.entries)
            .map(|(section, entries)| entries.cies.iter().map(|cie| machine.initial(section, cie)).collect())
            .collect();
        let mut needs_rbx = false;
        let mut covered_by = 0;
        for (start, cover) in &self.covers {
            let (end, source) = match cover {
                Cover::Fde(source, number) => (self.fde(*source, *number).map_or(0, |fde| fde.end), *source),
                Cover::Block(number) => (self.blocks.get(*number as usize).map_or(0, |block| block.end), u32::MAX),
            };
            let is_fde = source != u32::MAX;
            builder.report.fdes += u64::from(is_fde);
            let segment = self.text.iter().find(|range| range.contains(start));
            // A table reaches 4 GiB. Functions that the linker threw away begin at 0.
            let segment = segment.filter(|range| *start > 0 && range.end - base <= u64::from(u32::MAX));
            let Some(segment) = segment.filter(|_| *start < end) else {
                builder.report.discarded += u64::from(is_fde);
                continue;
            };
            let from = (*start).max(builder.end());
            if *start < builder.end() {
                // `.debug_frame` repeats descriptions of `.eh_frame`.
                builder.report.overlapping += u64::from(is_fde && source == covered_by);
            }
            let end = end.min(segment.end);
            if from >= end {
                continue;
            }
            covered_by = source;
            builder.begin(from);
            match cover {
                Cover::Block(number) => {
                    let rows = self.blocks.get(*number as usize).map(|block| block.rows.as_slice()).unwrap_or_default();
                    let ends = rows.iter().skip(1).map(|(address, _)| *address).chain([end]);
                    for ((address, rule), to) in rows.iter().zip(ends) {
                        builder.add((*address).max(from), to.min(end), *rule);
                    }
                }
                Cover::Fde(source, number) => {
                    let initial = initial.get(*source as usize).map(Vec::as_slice).unwrap_or_default();
                    let clip = from..end;
                    needs_rbx |= self.describe(&mut machine, &mut builder, initial, (*source, *number), clip, rbx);
                }
            }
        }
        builder.report.fdes_in_error += self.entries.iter().map(|entries| entries.unreadable).sum::<u64>();
        builder.report.fdes += self.entries.iter().map(|entries| entries.unreadable).sum::<u64>();
        builder.report.text = self.elf.code_size();
        builder.report.rbx = needs_rbx;
        let mut table = builder.finish(self.elf.arch);
        let executable = self.elf.segments.iter().filter(|segment| segment.executable && segment.size > 0);
        table.code.extend(executable.map(|segment| Code {
            address: segment.address,
            offset: segment.offset,
            size: segment.size,
        }));
        table.report.sources = self.source_names();
        table
    }

    fn source_names(&self) -> Vec<&'static str> {
        let mut names = self.names.clone();
        for block in self.blocks {
            if !names.contains(&block.source) {
                names.push(block.source);
            }
        }
        names
    }

    fn fde(&self, source: u32, number: u32) -> Option<&Fde<'a>> {
        self.entries.get(source as usize)?.fdes.get(number as usize)
    }

    /// Adds the rows of a description inside `clip`. Returns whether a CFA is computed from rbx.
    fn describe(
        &self,
        machine: &mut Machine<'a>,
        builder: &mut Builder,
        initial: &[Result<CfiRow<'a>, Invalid>],
        (source, number): (u32, u32),
        clip: Range<u64>,
        rbx: bool,
    ) -> bool {
        let section = self.sections.get(source as usize);
        let fde = self.fde(source, number);
        let cie = fde.and_then(|fde| self.entries.get(source as usize)?.cies.get(fde.cie as usize));
        let (Some(section), Some(fde), Some(cie)) = (section, fde, cie) else { return false };
        let initial = match initial.get(fde.cie as usize) {
            Some(Ok(initial)) => initial,
            failed => {
                let reason = failed.and_then(|failed| failed.err()).unwrap_or(Invalid::Malformed);
                builder.report.fdes_in_error += 1;
                builder.add(clip.start, clip.end, Packed::invalid(reason));
                return false;
            }
        };
        if cie.signal && known_code::is_restorer(self.elf, self.image, fde.start) {
            let rule = Packed::new(Rule::Signal, self.elf.arch).unwrap_or(Packed::GAP);
            builder.add(clip.start, clip.end, rule);
            return false;
        }
        let translation = Translation { arch: self.elf.arch, interrupted: cie.signal, rbx };
        let mut needs_rbx = false;
        let mut before: Option<(CfiRow<'a>, Packed)> = None;
        let mut row = |from: u64, to: u64, state: &CfiRow<'a>| {
            let (from, to) = (from.max(clip.start), to.min(clip.end));
            if from < to {
                needs_rbx |= matches!(state.cfa, CfaState::Register(register, _) if register == u64::from(RBX.0));
                let packed = match &before {
                    Some((same, packed)) if same == state => *packed,
                    _ => translation.packed(state),
                };
                before = Some((*state, packed));
                builder.add(from, to, packed);
            }
        };
        let program = Program { section, cie, initial: Some(initial) };
        let (mut state, mut address) = (*initial, fde.start);
        let outcome = machine.run(&program, fde.instructions, &mut address, &mut state, &mut row);
        match outcome {
            Ok(()) => row(address, clip.end, &state),
            Err(reason) => {
                builder.report.fdes_in_error += 1;
                builder.add(address.max(clip.start), clip.end, Packed::invalid(reason));
            }
        }
        needs_rbx && self.elf.arch == Arch::X86_64
    }
}
