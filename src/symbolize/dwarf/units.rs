//! Units of debug information, each opened when an address of it is asked for.
//!
//! addr2line's context begins with a look at every unit: 2,000 of libc, with 20 MB of abbreviations, for the ten that are ever asked.
//! Where the compiler has left a list of which addresses are whose (`.debug_aranges`), only those are opened: each gets a
//! context of its own, over the part of `.debug_info` that it is.
//!
//! ```text
//! .debug_aranges ─► ranges (end, begin, unit), by their ends ─► address ─► unit ─► context
//! .debug_info    ─► begins of units; whether one that has code is not in the list
//! ```
//!
//! A unit that refers to others, or is a skeleton whose rest is in another file, cannot be read alone. Then, and where there is no
//! whole list, all are read at once.

use std::cell::RefCell;

use addr2line::Context;
use gimli::{ArangeHeader, DebugInfoOffset, EndianSlice, Format, LittleEndian, SectionId, UnitSectionOffset, UnitType};
use rustc_hash::FxHashMap;

use super::limits::{Abbreviations, MAX_UNITS, damaged};
use super::sections::Sections;
use crate::allocator::Meter;
use crate::object::numbers::u64_at;
use crate::object::reason::Reason;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Ranges of one file; the kernel has 200,000.
const MAX_RANGES: usize = 2 << 20;
/// Bytes that a unit's abbreviations may take.
const MAX_TABLE: usize = 64 << 20;
/// Units looked at for one address: of those that say that they have it, the first nearly always does.
const MAX_AT: usize = 64;
/// Bytes taken by what was opened for one address, after which no more is.
const MAX_NEW: usize = 256 << 20;

/// Of addresses: 32 bytes.
struct UnitRange {
    end: u64,
    begin: u64,
    /// The least begin of this and those after it: ranges overlap.
    least_begin: u64,
    /// Where the unit begins in `.debug_info`.
    unit: usize,
}

/// One that was asked for.
#[allow(clippy::large_enum_variant)]
enum Unit<'a> {
    Alone(Context<Slice<'a>>),
    /// Refers to others.
    NotAlone,
    /// Passed over, as addr2line does with those that it cannot read.
    Unreadable,
}

/// Which unit an address is of, and those that were asked for.
pub(crate) struct Units<'a> {
    sections: &'a Sections,
    dwarf: gimli::Dwarf<Slice<'a>>,
    ranges: Box<[UnitRange]>,
    opened: boxcar::Vec<Unit<'a>>,
    /// Begin of a unit → its place in `opened`.
    places: RefCell<FxHashMap<usize, usize>>,
}

impl<'a> Units<'a> {
    /// Of a file; `None` where its units are not all listed.
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
        let (opened, places) = (boxcar::Vec::new(), RefCell::default());
        Ok(Some(Units { sections, dwarf, ranges: ranges.into(), opened, places }))
    }

    /// Asks the units that may have an address, until one knows it. `Ok(false)` where that is to be asked of all at once.
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
            match new.measure(|| self.unit(range.unit)) {
                Unit::Unreadable => {}
                Unit::NotAlone => return Ok(false),
                Unit::Alone(unit) => match new.measure(|| ask(unit))? {
                    Asked::Known => return Ok(true),
                    Asked::Unknown => {}
                    Asked::Elsewhere => return Ok(false),
                },
            }
            if asked.len() == MAX_AT || new.bytes() > MAX_NEW {
                break;
            }
        }
        Ok(true)
    }

    fn unit(&self, begin: usize) -> &Unit<'a> {
        let known = self.places.borrow().get(&begin).copied();
        let place = known.unwrap_or_else(|| {
            let place = self.opened.push(self.open(begin).unwrap_or(Unit::Unreadable));
            self.places.borrow_mut().insert(begin, place);
            place
        });
        self.opened.get(place).unwrap_or(&Unit::Unreadable)
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
                // What it has is the place in the whole section.
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
        Ok(Unit::Alone(Context::from_dwarf(dwarf).map_err(damaged)?))
    }
}

/// What a unit says of an address.
pub(crate) enum Asked {
    Known,
    Unknown,
    /// What it says is in another file.
    Elsewhere,
}

/// Bytes of a unit's line program.
fn lines_of(unit: &gimli::Unit<Slice<'_>>) -> usize {
    unit.line_program.as_ref().map_or(0, |program| program.header().raw_program_buf().len())
}

/// The ranges of all units, as the list has them; `None` where there is none, or a unit with code is not in it.
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
        // Whatever is between two units is of none.
        while lists.next_if(|(of, _)| *of < unit).is_some() {}
        let mut is_listed = false;
        while let Some((_, list)) = lists.next_if(|(of, _)| *of == unit) {
            is_listed = true;
            ranges.extend(list.chunks_exact(16).filter_map(|entry| {
                let (begin, length) = u64_at(entry, 0).zip(u64_at(entry, 8))?;
                // What was left out by the linker begins at the end of all addresses.
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

/// Of each list the unit and the bytes of its entries, ordered by units; `None` where there are none, or not such as compilers
/// for machines of 64 bits write.
///
/// Entries are read here: gimli calls itself for each that is nothing, and takes addresses of one byte.
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

/// The entries: an address and a length each, aligned to both (DWARF 5, 6.1.2).
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
