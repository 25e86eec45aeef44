//! Opens units of debug information one by one, each at the first lookup of one of its addresses. A unit without lookups is dropped after a
//! while.
//!
//! A context of addr2line begins by reading every unit. In libc these are 2,000 units with 20 MB of abbreviations, while lookups need ten.
//! The compiler may have listed the addresses of each unit (`.debug_aranges`). With such a list only the needed units are opened. Each gets
//! a separate context over its part of `.debug_info`.
//!
//! ```text
//! .debug_aranges ─► ranges (end, begin, unit), by their ends ─► address ─► unit ─► context
//! .debug_info    ─► begins of units; whether one that has code is not in the list
//! ```
//!
//! Some units cannot be read alone: they refer to others, or are a skeleton whose rest is in another file. Then all units are read at once,
//! and also if the list is incomplete.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use addr2line::Context;
use gimli::{ArangeHeader, DebugInfoOffset, EndianSlice, Format, LittleEndian, SectionId, UnitSectionOffset, UnitType};
use rustc_hash::FxHashMap;

use super::limits::{Abbreviations, MAX_UNITS, damaged};
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
    /// Reads the ranges of a file. `None` if the file does not list all of its units.
    pub(crate) fn of(sections: &'a Sections, dwarf: gimli::Dwarf<Slice<'a>>) -> Result<Option<Units<'a>>, Reason> {
        if dwarf.sup().is_some() {
            return Ok(None);
        }
        let Some(mut ranges) = ranges(&dwarf)? else { return Ok(None) };
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

/// Returns the bytes of a unit's line program.
fn lines_of(unit: &gimli::Unit<Slice<'_>>) -> usize {
    unit.line_program.as_ref().map_or(0, |program| program.header().raw_program_buf().len())
}

/// Reads the listed ranges of all units. `None` if there is no list, or if a unit with code is missing from it.
fn ranges(dwarf: &gimli::Dwarf<Slice<'_>>) -> Result<Option<Vec<UnitRange>>, Reason> {
    let Some(listed) = lists(dwarf) else { return Ok(None) };
    let (mut ranges, mut count) = (Vec::new(), 0);
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
        let has_code = matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_));
        if !is_listed && has_code && dwarf.unit(header).map_or(true, |unit| unit.dwo_id.is_some() || lines_of(&unit) > 0) {
            return Ok(None);
        }
    }
    Ok(Some(ranges))
}

/// Returns, for each list, its unit and the bytes of its entries, ordered by units. `None` if there are no lists, or if 64-bit compilers do
/// not write such lists.
///
/// Entries are parsed here because gimli recurses once for each empty entry and accepts addresses of one byte.
fn lists<'a>(dwarf: &gimli::Dwarf<Slice<'a>>) -> Option<Vec<(usize, &'a [u8])>> {
    let section = gimli::Section::reader(&dwarf.debug_aranges).slice();
    let mut headers = dwarf.debug_aranges.headers();
    let mut lists = Vec::new();
    while let Some(header) = headers.next().ok()? {
        lists.push((header.debug_info_offset().0, entries(section, &header)?));
        if lists.len() > MAX_UNITS {
            return None;
        }
    }
    lists.sort_unstable_by_key(|(unit, _)| *unit);
    (!lists.is_empty()).then_some(lists)
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
