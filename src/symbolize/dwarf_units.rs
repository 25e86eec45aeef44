//! Units of debug information, each opened when an address of it is asked for.
//!
//! addr2line's context begins with a look at every unit: 2,000 of libc, with 20 MB of abbreviations, for the ten that are ever asked.
//! Where the compiler has left a list of which addresses are whose (`.debug_aranges`), only those are opened: each gets a
//! context of its own, over the part of `.debug_info` that it is.
//!
//! ```text
//! .debug_aranges ─► ranges (end, begin, unit), by their ends ─► address ─► unit ─► context
//! .debug_info    ─► begins of units; ranges of those that the list does not have
//! ```
//!
//! A unit that refers to others, or is a skeleton whose rest is in another file, cannot be read alone. Then, and where there is no
//! list, all are read at once.

use std::cell::{Cell, RefCell};

use addr2line::Context;
use gimli::{DebugInfoOffset, EndianSlice, LittleEndian, SectionId, UnitSectionOffset, UnitType};
use rustc_hash::FxHashMap;

use super::dwarf_check::{MAX_UNITS, Table, damaged};
use super::problem::Reason;
use super::sections::Sections;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Of units that the list does not have, the root is read. Of more than this, none is.
const MAX_UNLISTED: usize = 64;

/// Of addresses: 32 bytes.
struct UnitRange {
    end: u64,
    begin: u64,
    /// The least begin of this and those after it: ranges overlap.
    least_begin: u64,
    /// Where the unit begins in `.debug_info`.
    unit: usize,
}

/// Which unit an address is of, and those that were asked for.
pub(super) struct Units<'a> {
    sections: &'a Sections,
    dwarf: gimli::Dwarf<Slice<'a>>,
    ranges: Box<[UnitRange]>,
    /// `None`: not to be read alone.
    opened: boxcar::Vec<Option<Context<Slice<'a>>>>,
    /// Begin of a unit → its place in `opened`.
    places: RefCell<FxHashMap<usize, usize>>,
    weight: Cell<usize>,
}

impl<'a> Units<'a> {
    /// Of a file; `None` where its units are not listed.
    pub(super) fn of(sections: &'a Sections, dwarf: gimli::Dwarf<Slice<'a>>) -> Result<Option<Units<'a>>, Reason> {
        if dwarf.sup().is_some() {
            return Ok(None);
        }
        let Some(mut ranges) = ranges(&dwarf)? else { return Ok(None) };
        ranges.sort_by_key(|range| range.end);
        let mut least_begin = u64::MAX;
        for range in ranges.iter_mut().rev() {
            least_begin = least_begin.min(range.begin);
            range.least_begin = least_begin;
        }
        let weight = Cell::new(ranges.len() * size_of::<UnitRange>());
        let (opened, places) = (boxcar::Vec::new(), RefCell::default());
        Ok(Some(Units { sections, dwarf, ranges: ranges.into(), opened, places, weight }))
    }

    /// The units that may have an address.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = Result<Option<&Context<Slice<'a>>>, Reason>> {
        let from = self.ranges.partition_point(|range| range.end <= address);
        let rest = self.ranges.get(from..).unwrap_or_default().iter();
        let near = rest.take_while(move |range| range.least_begin <= address);
        near.filter(move |range| range.begin <= address).map(|range| self.unit(range.unit))
    }

    /// Bytes that are held of those that were opened, about. See [`Dwarf::memory`](super::dwarf::Dwarf::memory).
    pub(super) fn weight(&self) -> usize {
        self.weight.get()
    }

    /// `Ok(None)` for one that cannot be read alone.
    fn unit(&self, begin: usize) -> Result<Option<&Context<Slice<'a>>>, Reason> {
        let known = self.places.borrow().get(&begin).copied();
        let place = match known {
            Some(place) => place,
            None => {
                let place = self.opened.push(self.open(begin)?);
                self.places.borrow_mut().insert(begin, place);
                place
            }
        };
        Ok(self.opened.get(place).and_then(Option::as_ref))
    }

    fn open(&self, begin: usize) -> Result<Option<Context<Slice<'a>>>, Reason> {
        let header = self.dwarf.debug_info.header_from_offset(DebugInfoOffset(begin)).map_err(damaged)?;
        let table = Table::at(&self.dwarf, header.debug_abbrev_offset().0);
        if table.refers_to_others || !matches!(header.type_(), UnitType::Compilation) {
            return Ok(None);
        }
        let info = self.sections.section(SectionId::DebugInfo);
        let end = header.length_including_self().checked_add(begin);
        let alone = end.and_then(|end| info.get(begin..end)).ok_or(Reason::MalformedDwarf)?;
        let dwarf = gimli::Dwarf::load(|id| {
            let bytes = match id {
                SectionId::DebugInfo => alone,
                // What it has is the place in the whole section.
                SectionId::DebugAranges => &[],
                id => self.sections.section(id),
            };
            Ok::<_, Reason>(Slice::new(bytes, LittleEndian))
        })?;
        let lines = dwarf.unit(header_of(&dwarf)?).map_err(damaged)?;
        if lines.dwo_id.is_some() {
            return Ok(None);
        }
        let lines = lines.line_program.as_ref().map_or(0, |program| program.header().raw_program_buf().len());
        self.weight.set(self.weight.get() + table.size + alone.len() / 2 + 7 * lines);
        Context::from_dwarf(dwarf).map(Some).map_err(damaged)
    }
}

fn header_of<'a>(dwarf: &gimli::Dwarf<Slice<'a>>) -> Result<gimli::UnitHeader<Slice<'a>>, Reason> {
    dwarf.units().next().map_err(damaged)?.ok_or(Reason::MalformedDwarf)
}

/// The ranges of all units, as the list has them; `None` where there is none, or too many units are not in it.
fn ranges(dwarf: &gimli::Dwarf<Slice<'_>>) -> Result<Option<Vec<UnitRange>>, Reason> {
    let mut lists = dwarf.debug_aranges.headers();
    let mut listed = Vec::new();
    // What is wrong with the list is no reason to believe less of the rest.
    let Ok(()) = (|| {
        while let Some(list) = lists.next()? {
            listed.push((list.debug_info_offset().0, list));
        }
        Ok::<_, gimli::Error>(())
    })() else {
        return Ok(None);
    };
    if listed.is_empty() {
        return Ok(None);
    }
    listed.sort_by_key(|(unit, _)| *unit);
    let (mut ranges, mut unlisted, mut count) = (Vec::new(), 0, 0);
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
            let mut entries = list.entries();
            // An entry that is none, as of an address that is too large, is passed over; after one that cannot be read comes none.
            while let Some(entry) = entries.next().transpose() {
                let Ok(entry) = entry else { continue };
                let range = entry.range();
                ranges.push(UnitRange { end: range.end, begin: range.begin, least_begin: 0, unit });
            }
        }
        let has_code = matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_));
        if is_listed || !has_code {
            continue;
        }
        unlisted += 1;
        if unlisted > MAX_UNLISTED {
            return Ok(None);
        }
        let Ok(root) = dwarf.unit(header) else { continue };
        let Ok(mut of_root) = dwarf.unit_ranges(&root) else { return Ok(None) };
        while let Some(range) = of_root.next().map_err(damaged)? {
            ranges.push(UnitRange { end: range.end, begin: range.begin, least_begin: 0, unit });
        }
    }
    ranges.retain(|range| range.begin < range.end);
    Ok(Some(ranges))
}
