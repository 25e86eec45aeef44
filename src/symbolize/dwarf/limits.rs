//! Checks of debug information before it is read: memory, stack and time must stay within bounds.
//!
//! The parser gimli accepts any bytes. addr2line may need much more memory than the bytes themselves take. Real programs do none of what
//! the table lists.
//!
//! | a few bytes of | become | bound |
//! | --- | --- | --- |
//! | tables of abbreviations that overlap | a copy of each; in split files, one for each unit | [`MAX_ABBREVIATIONS`] |
//! | functions that share a list of ranges | a copy of the list for each | [`MAX_RANGES`] |
//! | calls inlined into each other | a level of recursion each | [`MAX_DEPTH`] |
//! | a line program | 32 bytes for a row that takes one byte | [`MAX_LINES`] of a unit, and of all units without an address |
//! | file names of a unit | a path each, with its directories | [`MAX_PATHS`] of a unit |
//!
//! If only root or we could have written a file, its entries are not checked: that takes as long as reading them.

use std::collections::hash_map::Entry;

use gimli::{AttributeValue, DwTag, EndianSlice, LittleEndian, Reader};
use rustc_hash::FxHashMap;

use crate::object::reason::Reason;

/// Most units in one file. The kernel has 3,000, Chromium 40,000.
pub(crate) const MAX_UNITS: usize = 400_000;
/// Most bytes that all tables of abbreviations take together, estimated. The kernel's take 90 MB.
const MAX_ABBREVIATIONS: usize = 384 << 20;
/// Most functions and inlined calls in one file. A program of 100 MB has some 500,000.
const MAX_FUNCTIONS: usize = 8_000_000;
/// Most ranges of functions and units in one file.
const MAX_RANGES: usize = 16_000_000;
/// Deepest nesting of entries. A worker's stack of 2 MiB is enough for 4,000 calls inlined into each other.
const MAX_DEPTH: usize = 512;
/// Most bytes of a unit's line program. The largest unit of the kernel has 200 KB. It is also the bound of all programs together that are read
/// when a file is opened.
pub(crate) const MAX_LINES: usize = 16 << 20;
/// Most bytes of all paths of a unit.
const MAX_PATHS: usize = 64 << 20;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;

/// The holder of a table of abbreviations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Each unit holds its own.
    OfEachUnit,
    /// Units share it: see `gimli::AbbreviationsCacheStrategy::Duplicates`.
    Shared,
}

/// Refuses debug information that would take unbounded memory, stack or time.
pub(crate) fn check(dwarf: &Dwarf<'_>, trusted: bool, holders: Tables) -> Result<(), Reason> {
    let mut tables: FxHashMap<usize, usize> = FxHashMap::default();
    let (mut units, mut abbreviations) = (0, 0usize);
    let mut sums = Sums::default();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next().map_err(damaged)? {
        units += 1;
        let offset = header.debug_abbrev_offset();
        let (size, is_new) = match tables.entry(offset.0) {
            Entry::Occupied(size) => (*size.get(), false),
            Entry::Vacant(place) => (*place.insert(Abbreviations::at(dwarf, offset.0).size), true),
        };
        if is_new || holders == Tables::OfEachUnit {
            abbreviations = abbreviations.saturating_add(size);
        }
        if units > MAX_UNITS || abbreviations > MAX_ABBREVIATIONS {
            return Err(Reason::TooLarge);
        }
        if !trusted {
            check_unit(dwarf, header, &mut sums)?;
        }
    }
    Ok(())
}

pub(crate) fn damaged(_: gimli::Error) -> Reason {
    Reason::MalformedDwarf
}

/// A table of abbreviations.
#[derive(Default)]
pub(crate) struct Abbreviations {
    /// Bytes that gimli takes for it, estimated.
    pub(crate) size: usize,
    /// Whether an entry may refer to an entry of another unit or of another file.
    pub(crate) refers_to_others: bool,
}

impl Abbreviations {
    /// Measures the table at an offset. A damaged table ends at the damage, as gimli's copy does.
    pub(crate) fn at(dwarf: &Dwarf<'_>, offset: usize) -> Abbreviations {
        const OF_ABBREVIATION: usize = 136;
        const OF_ATTRIBUTE: usize = 16;
        const OUTSIDE: [gimli::DwForm; 5] = [
            gimli::DW_FORM_ref_addr,
            gimli::DW_FORM_ref_sup4,
            gimli::DW_FORM_ref_sup8,
            gimli::DW_FORM_GNU_ref_alt,
            // The entry itself says which of these forms it has.
            gimli::DW_FORM_indirect,
        ];
        let mut table = Abbreviations::default();
        let mut bytes = *gimli::Section::reader(&dwarf.debug_abbrev);
        let mut read = || -> gimli::Result<()> {
            bytes.skip(offset)?;
            while bytes.read_uleb128()? != 0 {
                bytes.read_uleb128()?;
                bytes.read_u8()?;
                table.size += OF_ABBREVIATION;
                loop {
                    let (name, form) = (bytes.read_uleb128()?, bytes.read_uleb128()?);
                    if (name, form) == (0, 0) {
                        break;
                    }
                    if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                        bytes.read_sleb128()?;
                    }
                    table.size += OF_ATTRIBUTE;
                    table.refers_to_others |= OUTSIDE.iter().any(|outside| u64::from(outside.0) == form);
                }
            }
            Ok(())
        };
        let _ = read();
        table
    }
}

/// Counts over all units.
#[derive(Default)]
struct Sums {
    functions: usize,
    ranges: usize,
}

fn check_unit(dwarf: &Dwarf<'_>, header: gimli::UnitHeader<Slice<'_>>, sums: &mut Sums) -> Result<(), Reason> {
    // addr2line skips units that it cannot read.
    let Ok(unit) = dwarf.unit(header) else { return Ok(()) };
    if let Some(program) = &unit.line_program {
        let header = program.header();
        let directories = header.include_directories().iter();
        let longest = directories.filter_map(|path| dwarf.attr_string(&unit, *path).ok()).map(|path| path.len()).max();
        let base = longest.unwrap_or(0) + unit.comp_dir.map_or(0, |path| path.len());
        let names = header.file_names().iter().filter_map(|file| dwarf.attr_string(&unit, file.path_name()).ok());
        let paths = names.fold(0usize, |sum, name| sum.saturating_add(base).saturating_add(name.len()));
        if header.raw_program_buf().len() > MAX_LINES || paths > MAX_PATHS {
            return Err(Reason::TooLarge);
        }
    }
    check_entries(dwarf, &unit, sums)
}

fn check_entries(dwarf: &Dwarf<'_>, unit: &gimli::Unit<Slice<'_>>, sums: &mut Sums) -> Result<(), Reason> {
    const FUNCTIONS: [DwTag; 2] = [gimli::DW_TAG_subprogram, gimli::DW_TAG_inlined_subroutine];
    let mut entries = unit.entries_raw(None).map_err(damaged)?;
    let mut depth = 0usize;
    while !entries.is_empty() {
        let abbreviation = match entries.read_abbreviation() {
            Ok(Some(abbreviation)) => abbreviation,
            Ok(None) => {
                depth = depth.saturating_sub(1);
                continue;
            }
            // addr2line still reads the entries before the damaged one.
            Err(_) => return Ok(()),
        };
        sums.functions += usize::from(FUNCTIONS.contains(&abbreviation.tag()));
        depth += usize::from(abbreviation.has_children());
        let has_ranges = abbreviation.attributes().iter().any(|spec| spec.name() == gimli::DW_AT_ranges);
        if has_ranges {
            for spec in abbreviation.attributes() {
                let Ok(attribute) = entries.read_attribute(*spec) else { return Ok(()) };
                if attribute.name() == gimli::DW_AT_ranges {
                    count_ranges(dwarf, unit, attribute.value(), &mut sums.ranges)?;
                }
            }
        } else if entries.skip_attributes(abbreviation.attributes()).is_err() {
            return Ok(());
        }
        if depth > MAX_DEPTH || sums.functions > MAX_FUNCTIONS {
            return Err(Reason::TooLarge);
        }
    }
    Ok(())
}

fn count_ranges(
    dwarf: &Dwarf<'_>,
    unit: &gimli::Unit<Slice<'_>>,
    value: AttributeValue<Slice<'_>>,
    sum: &mut usize,
) -> Result<(), Reason> {
    let Ok(Some(offset)) = dwarf.attr_ranges_offset(unit, value) else { return Ok(()) };
    let Ok(mut list) = dwarf.raw_ranges(unit, offset) else { return Ok(()) };
    while let Ok(Some(_)) = list.next() {
        *sum += 1;
        if *sum > MAX_RANGES {
            return Err(Reason::TooLarge);
        }
    }
    Ok(())
}
