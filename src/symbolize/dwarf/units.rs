//! Opens units of debug information one by one, each at the first lookup of one of its addresses. A unit without lookups is dropped after a
//! while.
//!
//! A context of addr2line begins by reading every unit, and keeps what it has read. In libc these are 2,000 units with 20 MB of
//! abbreviations, while lookups need ten. Here only the needed units are opened. Each gets a separate context over its part of `.debug_info`.
//!
//! ```text
//! .debug_aranges ─┬─► ranges (end, begin, unit), by their ends ─► address ─► unit ─► context
//! .debug_info    ─┘   (for a unit that is not in the list: the ranges of its entry, or of its lines)
//! ```
//!
//! gcc lists the addresses of all units, and clang lists none. A program of rustc lists those of its crates, but not of the standard library.
//!
//! Some units cannot be read alone: they refer to others, or are a skeleton whose rest is in another file. Then all units are read at once.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use addr2line::Context;
use gimli::{
    AbbreviationsCacheStrategy, ArangeHeader, AttributeValue, DebugInfoOffset, EndianSlice, Format, LittleEndian, SectionId,
    UnitRef, UnitSectionOffset, UnitType,
};
use rustc_hash::FxHashMap;

use super::limits::{Abbreviations, MAX_LINES, MAX_UNITS, Tables, check, damaged};
use super::sections::Sections;
use crate::allocator::Meter;
use crate::object::numbers::u64_at;
use crate::object::reason::Reason;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Most ranges in one file. The kernel has 200,000.
const MAX_RANGES: usize = 2 << 20;
/// Most bytes that a unit's abbreviations may take.
const MAX_TABLE: usize = 64 << 20;
/// Most units tried for one address. Nearly always the first that claims the address knows it.
const MAX_AT: usize = 64;
/// Bytes that units opened for one address may take. Above that, no further unit is opened for the address.
const MAX_NEW: usize = 256 << 20;

/// A range of addresses and its unit: 32 bytes.
struct UnitRange {
    end: u64,
    begin: u64,
    /// The lowest begin of this range and all later ones, because ranges overlap.
    least_begin: u64,
    /// Offset of the unit in `.debug_info`.
    unit: usize,
}

/// A unit that was looked up.
enum Unit<'a> {
    Alone(Box<Context<Slice<'a>>>),
    /// It refers to other units.
    NotAlone,
    /// It is skipped, as addr2line skips units that it cannot read.
    Unreadable,
}

/// Maps addresses to units, and holds the units that were opened.
pub(crate) struct Units<'a> {
    sections: &'a Sections,
    dwarf: gimli::Dwarf<Slice<'a>>,
    ranges: Box<[UnitRange]>,
    /// The opened units and the times of their last questions, by the offsets of the units.
    opened: RefCell<FxHashMap<usize, (Unit<'a>, Instant)>>,
}

impl<'a> Units<'a> {
    /// Finds the ranges of a file's units by `read`, which may have filled its cache of abbreviations. `None` if there are too many, or if a
    /// unit's rest is in another file. `dwarf` is the same file, for lookups.
    pub(crate) fn of(
        sections: &'a Sections,
        read: &mut gimli::Dwarf<Slice<'a>>,
        dwarf: gimli::Dwarf<Slice<'a>>,
    ) -> Result<Option<Units<'a>>, Reason> {
        if read.sup().is_some() {
            return Ok(None);
        }
        let Some(mut ranges) = ranges(read)? else { return Ok(None) };
        ranges.sort_unstable_by_key(|range| (range.end, range.unit));
        let mut least_begin = u64::MAX;
        for range in ranges.iter_mut().rev() {
            least_begin = least_begin.min(range.begin);
            range.least_begin = least_begin;
        }
        Ok(Some(Units { sections, dwarf, ranges: ranges.into(), opened: RefCell::default() }))
    }

    /// Calls `ask` for the units that may have an address, until one knows it. `Ok(false)` means that all units must be read at once.
    pub(crate) fn ask(
        &self,
        address: u64,
        mut ask: impl FnMut(&Context<Slice<'a>>) -> Result<Asked, Reason>,
    ) -> Result<bool, Reason> {
        let from = self.ranges.partition_point(|range| range.end <= address);
        let rest = self.ranges.get(from..).unwrap_or_default().iter();
        let near = rest.take_while(|range| range.least_begin <= address).filter(|range| range.begin <= address);
        let new = Meter::default();
        let mut asked = Vec::new();
        for range in near {
            if asked.contains(&range.unit) {
                continue;
            }
            asked.push(range.unit);
            let unit = new.measure(|| self.take(range.unit));
            let asked_unit = match &unit {
                Unit::Unreadable => Ok(Asked::Unknown),
                Unit::NotAlone => Ok(Asked::Elsewhere),
                Unit::Alone(unit) => new.measure(|| ask(unit)),
            };
            self.opened.borrow_mut().insert(range.unit, (unit, Instant::now()));
            match asked_unit? {
                Asked::Known => return Ok(true),
                Asked::Unknown => {}
                Asked::Elsewhere => return Ok(false),
            }
            if asked.len() == MAX_AT || new.bytes() > MAX_NEW {
                break;
            }
        }
        Ok(true)
    }

    /// Drops the units without a question for this long. Returns whether there were any.
    pub(super) fn drop_unused(&self, unused: Duration) -> bool {
        let mut opened = self.opened.borrow_mut();
        let before = opened.len();
        opened.retain(|_, (_, asked)| asked.elapsed() < unused);
        opened.shrink_to_fit();
        opened.len() < before
    }

    /// Takes a unit out of the opened ones, or opens it.
    fn take(&self, begin: usize) -> Unit<'a> {
        let opened = self.opened.borrow_mut().remove(&begin);
        opened.map_or_else(|| self.open(begin).unwrap_or(Unit::Unreadable), |(unit, _)| unit)
    }

    fn open(&self, begin: usize) -> Result<Unit<'a>, Reason> {
        let header = self.dwarf.debug_info.header_from_offset(DebugInfoOffset(begin)).map_err(damaged)?;
        let table = Abbreviations::at(&self.dwarf, header.debug_abbrev_offset().0);
        if table.refers_to_others || !matches!(header.type_(), UnitType::Compilation) {
            return Ok(Unit::NotAlone);
        }
        let info = self.sections.section(SectionId::DebugInfo);
        let end = header.length_including_self().checked_add(begin);
        let alone = end.and_then(|end| info.get(begin..end)).ok_or(Reason::MalformedDwarf)?;
        if table.size > MAX_TABLE {
            return Err(Reason::TooLarge);
        }
        let dwarf = gimli::Dwarf::load(|id| {
            let bytes = match id {
                SectionId::DebugInfo => alone,
                // The list has offsets in the whole section, so it does not fit this part.
                SectionId::DebugAranges => &[],
                id => self.sections.section(id),
            };
            Ok::<_, Reason>(Slice::new(bytes, LittleEndian))
        })?;
        let header = dwarf.units().next().map_err(damaged)?.ok_or(Reason::MalformedDwarf)?;
        let unit = dwarf.unit(header).map_err(damaged)?;
        if unit.dwo_id.is_some() {
            return Ok(Unit::NotAlone);
        }
        Ok(Unit::Alone(Box::new(Context::from_dwarf(dwarf).map_err(damaged)?)))
    }
}

/// A unit's answer for an address.
pub(crate) enum Asked {
    Known,
    Unknown,
    /// The answer is in another file.
    Elsewhere,
}

/// Returns the ranges of all units. `None` if there are too many, or if a unit's rest is in another file.
fn ranges(dwarf: &mut gimli::Dwarf<Slice<'_>>) -> Result<Option<Vec<UnitRange>>, Reason> {
    let listed = lists(dwarf);
    let (mut ranges, mut unlisted, mut count) = (Vec::new(), Vec::new(), 0);
    let mut lists = listed.iter().peekable();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next().map_err(damaged)? {
        count += 1;
        let UnitSectionOffset(unit) = header.offset();
        if count > MAX_UNITS {
            return Err(Reason::TooLarge);
        }
        // A list for an offset between two units belongs to no unit.
        while lists.next_if(|(of, _)| *of < unit).is_some() {}
        let mut is_listed = false;
        while let Some((_, list)) = lists.next_if(|(of, _)| *of == unit) {
            is_listed = true;
            ranges.extend(list.chunks_exact(16).filter_map(|entry| {
                let (begin, length) = u64_at(entry, 0).zip(u64_at(entry, 8))?;
                // Code that the linker left out begins at the end of all addresses.
                let end = begin.checked_add(length).filter(|end| *end > begin)?;
                Some(UnitRange { end, begin, least_begin: 0, unit })
            }));
            if ranges.len() > MAX_RANGES {
                return Ok(None);
            }
        }
        if !is_listed && matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
            unlisted.push(DebugInfoOffset(unit));
        }
    }
    if !unlisted.is_empty() {
        // Many units share a table.
        check(dwarf, true, Tables::Shared)?;
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    }
    let mut lines_left = MAX_LINES;
    for offset in unlisted {
        // addr2line skips units that it cannot read.
        let Ok(unit) = dwarf.debug_info.header_from_offset(offset).and_then(|header| dwarf.unit(header)) else { continue };
        if unit.dwo_id.is_some() {
            return Ok(None);
        }
        let unit = UnitRef::new(dwarf, &unit);
        if add_own_ranges(&unit, &mut ranges) == Ok(Declared::No)
            && let Some(left) = lines_left.checked_sub(lines_of(&unit))
        {
            lines_left = left;
            let _ = add_ranges_of_lines(&unit, &mut ranges);
        }
        if ranges.len() > MAX_RANGES {
            return Ok(None);
        }
    }
    Ok(Some(ranges))
}

/// Returns the bytes of line programs that addr2line reads when it opens all units at once: those of units without an address.
pub(super) fn lines_at_opening(dwarf: &gimli::Dwarf<Slice<'_>>) -> Result<usize, Reason> {
    let (mut headers, mut sum, mut ranges) = (dwarf.units(), 0usize, Vec::new());
    while let Some(header) = headers.next().map_err(damaged)? {
        let Ok(unit) = dwarf.unit(header) else { continue };
        ranges.clear();
        let _ = add_own_ranges(&UnitRef::new(dwarf, &unit), &mut ranges);
        if ranges.is_empty() {
            sum = sum.saturating_add(lines_of(&unit));
        }
    }
    Ok(sum)
}

/// Returns the bytes of a unit's line program.
fn lines_of(unit: &gimli::Unit<Slice<'_>>) -> usize {
    unit.line_program.as_ref().map_or(0, |program| program.header().raw_program_buf().len())
}

/// Whether a unit's own entry tells its addresses.
#[derive(PartialEq, Eq)]
enum Declared {
    Yes,
    No,
}

/// Adds the ranges that a unit has by its own entry.
fn add_own_ranges(unit: &UnitRef<'_, Slice<'_>>, ranges: &mut Vec<UnitRange>) -> gimli::Result<Declared> {
    let mut entries = unit.entries_raw(None)?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(Declared::No) };
    let (mut low, mut high, mut size, mut list) = (None, None, None, None);
    for spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(*spec)?;
        match (attribute.name(), attribute.value()) {
            (gimli::DW_AT_low_pc, value) => low = unit.attr_address(value)?,
            (gimli::DW_AT_high_pc, AttributeValue::Udata(bytes)) => size = Some(bytes),
            (gimli::DW_AT_high_pc, value) => high = unit.attr_address(value)?,
            (gimli::DW_AT_ranges, value) => list = unit.attr_ranges_offset(value)?,
            _ => {}
        }
    }
    if let Some(list) = list {
        let mut list = unit.ranges(list)?;
        while let Some(range) = list.next()? {
            add(unit, ranges, range.begin, range.end);
        }
    } else if let Some((low, high)) = low.zip(high.or_else(|| low?.checked_add(size?))) {
        add(unit, ranges, low, high);
    } else {
        return Ok(Declared::No);
    }
    Ok(Declared::Yes)
}

/// Adds the ranges of a unit's lines.
fn add_ranges_of_lines(unit: &UnitRef<'_, Slice<'_>>, ranges: &mut Vec<UnitRange>) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let (mut rows, mut begin) = (program.rows(), None);
    while let Some((_, row)) = rows.next_row()? {
        let from = *begin.get_or_insert(row.address());
        if row.end_sequence() {
            add(unit, ranges, from, row.address());
            begin = None;
        }
    }
    Ok(())
}

/// Adds a range, unless it is empty: then the linker has left out its function. Adds at most one more than [`MAX_RANGES`].
fn add(unit: &UnitRef<'_, Slice<'_>>, ranges: &mut Vec<UnitRange>, begin: u64, end: u64) {
    let UnitSectionOffset(unit) = unit.header.offset();
    if begin < end && ranges.len() <= MAX_RANGES {
        ranges.push(UnitRange { end, begin, least_begin: 0, unit });
    }
}

/// Returns, for each list, its unit and the bytes of its entries, ordered by units. Empty if a list is not one that compilers for 64-bit
/// machines write.
///
/// Entries are parsed here because gimli recurses once for each empty entry and accepts addresses of one byte.
fn lists<'a>(dwarf: &gimli::Dwarf<Slice<'a>>) -> Vec<(usize, &'a [u8])> {
    let mut lists = read_lists(dwarf).unwrap_or_default();
    lists.sort_unstable_by_key(|(unit, _)| *unit);
    lists
}

fn read_lists<'a>(dwarf: &gimli::Dwarf<Slice<'a>>) -> Option<Vec<(usize, &'a [u8])>> {
    let section = gimli::Section::reader(&dwarf.debug_aranges).slice();
    let mut headers = dwarf.debug_aranges.headers();
    let mut lists = Vec::new();
    while let Some(header) = headers.next().ok()? {
        lists.push((header.debug_info_offset().0, entries(section, &header)?));
        if lists.len() > MAX_UNITS {
            return None;
        }
    }
    Some(lists)
}

/// Returns the entries: an address and a length each, aligned to both (DWARF 5, 6.1.2).
fn entries<'a>(section: &'a [u8], header: &ArangeHeader<Slice<'a>>) -> Option<&'a [u8]> {
    let (header_length, begins) = match header.encoding().format {
        Format::Dwarf32 => (4, 16),
        Format::Dwarf64 => (12, 32),
    };
    let start = header.offset().0;
    let end = start.checked_add(header_length)?.checked_add(header.length())?;
    let list = section.get(start..end)?;
    (header.encoding().address_size == 8).then(|| list.get(begins..).unwrap_or_default())
}
