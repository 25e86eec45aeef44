//! Puts tables into the kernel's maps: the words into segments, the objects into their places, and the links from files to objects.
//!
//! Memory that BPF may be reading is never changed. A table is added in this order: words, object, file. It is taken out in the reverse
//! order: the file is deleted, then the object's serial becomes 0. Its room is reused only when no BPF program that saw it can still be
//! running ([`Kernel::collect`]). Until then the room counts as held by the user who is charged for it.
//!
//! The segments never take more than [`Kernel::new`] allows. An object that finds no room is refused, and the caller waits. All users
//! other than root together hold at most half of the segments' bytes and half of the places.

use crate::collector::sys::bpf_memory;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rustc_hash::FxHashMap;

use super::layout::{Layout, MAX_RANGES, Range};
use super::pool::{Extent, MAX_SEGMENTS, Pool, SEGMENT_WORDS};
use super::served::FileFor;
use crate::collector::sys::bpf_memory::MappedWords;
use crate::collector::sys::scheduling::undisturbed;
use crate::object::numbers::{u16_at, u32_at};
use crate::profile::UserId;
use crate::unwind::table::paged::PAGE;
use crate::unwind::{Arch, Packed, Page};

/// Places of objects: `MAX_OBJECTS` of bpf/record.h.
pub(crate) const MAX_OBJECTS: u32 = 16_384;

/// `sizeof(struct object)`.
const OBJECT: usize = 16 + 16 * MAX_RANGES;

/// A bit in the number of ranges. It means that a better table follows: `OBJECT_IS_PARTIAL`.
const IS_PARTIAL: u16 = 0x8000;

/// Bytes of a segment.
pub(crate) const SEGMENT_BYTES: u32 = SEGMENT_WORDS * 4;

/// Words of a segment that are mapped together: 16 KiB.
const VIEW_WORDS: u32 = 1 << 12;
/// Most parts of segments that are mapped at a time: 16 MiB. Lookups for one process may use many tables.
const MAX_VIEWS: usize = 1024;

/// Time until the room of a removed table is reused. It is far longer than a BPF program takes to walk: the program runs for
/// microseconds, with interrupts off, but a virtual CPU may be stopped in between.
const GRACE: Duration = Duration::from_secs(10);

/// A range of code and the place of its page index: `struct object_range`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IndexedRange {
    first_page: u32,
    pages: u32,
    index: Extent,
}

/// An object that is in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    slot: u32,
    serial: u32,
    extents: Vec<Extent>,
    ranges: Vec<IndexedRange>,
    /// The place of its rules.
    rules: Option<Extent>,
    /// The user who is charged.
    user: UserId,
}

impl Placed {
    /// Its index in the result of [`Kernel::uses`].
    pub(crate) fn slot(&self) -> usize {
        self.slot as usize
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.words) * 4).sum()
    }
}

/// Bytes and places that are held in the kernel, including those that wait for [`Kernel::collect`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    pub(crate) slots: u32,
}

/// Why an object could not be put into the kernel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPlaced {
    #[error("there is no room for more tables")]
    Full,
    #[error("the kernel refused: {0}")]
    Refused(String),
}

impl From<libbpf_rs::Error> for NotPlaced {
    fn from(error: libbpf_rs::Error) -> NotPlaced {
        NotPlaced::Refused(format!("{error:#}"))
    }
}

impl From<io::Error> for NotPlaced {
    fn from(error: io::Error) -> NotPlaced {
        NotPlaced::Refused(error.to_string())
    }
}

/// The maps of bpf/lookup/tables.h, and an account of their contents.
pub(crate) struct Kernel {
    segments: MapHandle,
    objects: MapHandle,
    files: MapHandle,
    /// The values of `segments`; `None` where there is no segment.
    values: Vec<Option<MapHandle>>,
    /// Parts of the segments that are mapped for reading, by segment and number of the part: see [`Kernel::forget_views`].
    views: FxHashMap<(u32, u32), MappedWords>,
    pool: Pool,
    /// Most bytes that the segments may take.
    bound: u64,
    /// Bytes and places that all users other than root hold.
    others: Held,
    free_slots: Vec<u32>,
    next_slot: u32,
    serial: u32,
    /// Objects that were taken out and whose room is not free yet, each with the time.
    leaving: Vec<(Instant, Placed)>,
}

impl Kernel {
    /// Manages the maps of a loaded program. Segments take at most `bound` bytes, but two segments are always allowed.
    pub(crate) fn new(segments: MapHandle, objects: MapHandle, files: MapHandle, bound: u64) -> Kernel {
        let most = (bound / u64::from(SEGMENT_BYTES)).clamp(2, u64::from(MAX_SEGMENTS)) as u32;
        Kernel {
            segments,
            objects,
            files,
            values: Vec::new(),
            views: FxHashMap::default(),
            pool: Pool::new(most),
            bound: u64::from(most) * u64::from(SEGMENT_BYTES),
            others: Held::default(),
            free_slots: Vec::new(),
            next_slot: 0,
            serial: 0,
            leaving: Vec::new(),
        }
    }

    /// Puts a table into the kernel. No file leads to it yet. `user` is charged. `is_partial`: a better table follows.
    pub(crate) fn put(&mut self, layout: &Layout, user: UserId, is_partial: bool) -> Result<Placed, NotPlaced> {
        if user != UserId(0) && !self.others_may_hold(layout.bytes() as u64) {
            return Err(NotPlaced::Full);
        }
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.next_slot < MAX_OBJECTS => {
                self.next_slot += 1;
                self.next_slot - 1
            }
            None => return Err(NotPlaced::Full),
        };
        self.serial += 1;
        let mut placed = Placed { slot, serial: self.serial, extents: Vec::new(), ranges: Vec::new(), rules: None, user };
        let filled = self.fill(layout, is_partial, &mut placed);
        self.charge(&placed, true);
        match filled {
            Ok(()) => Ok(placed),
            Err(error) => {
                self.give_back(placed);
                Err(error)
            }
        }
    }

    /// Whether users other than root may have another object of `bytes` bytes. They may hold half of the bytes and half of the places.
    pub(crate) fn others_may_hold(&self, bytes: u64) -> bool {
        self.others.bytes + bytes <= self.bound / 2 && self.others.slots < MAX_OBJECTS / 2
    }

    /// Bytes and places that users other than root hold.
    pub(crate) fn others(&self) -> Held {
        self.others
    }

    /// Adds the bytes and the slot of `placed` to the account of users other than root, or subtracts them.
    fn charge(&mut self, placed: &Placed, is_taken: bool) {
        if placed.user == UserId(0) {
            return;
        }
        let (held, bytes) = (&mut self.others, placed.bytes());
        *held = match is_taken {
            true => Held { bytes: held.bytes + bytes, slots: held.slots + 1 },
            false => Held { bytes: held.bytes.saturating_sub(bytes), slots: held.slots.saturating_sub(1) },
        };
    }

    /// Puts in an object without unwind information. Its code is walked by guessing, and no sample requests its table again.
    pub(crate) fn put_nothing(&mut self, user: UserId) -> Result<Placed, NotPlaced> {
        let arch = Arch::OWN;
        self.put(&Layout { arch, ranges: Vec::new(), rows: Vec::new(), rules: Vec::new() }, user, false)
    }

    fn fill(&mut self, layout: &Layout, is_partial: bool, placed: &mut Placed) -> Result<(), NotPlaced> {
        let mut rows = Vec::with_capacity(layout.rows.len());
        for piece in &layout.rows {
            rows.push(self.store(bytemuck::cast_slice(piece), placed)?);
        }
        let rules: Vec<u8> = layout.rules.iter().flat_map(|Packed(rule)| rule.to_ne_bytes()).collect();
        let rules = self.store(&rules, placed)?;
        placed.rules = Some(rules);
        let mut object = Vec::with_capacity(OBJECT);
        object.extend(placed.serial.to_ne_bytes());
        object.extend(0u32.to_ne_bytes());
        object.extend(rules.word.to_ne_bytes());
        object.extend((rules.segment as u16).to_ne_bytes());
        object.extend((layout.ranges.len() as u16 | if is_partial { IS_PARTIAL } else { 0 }).to_ne_bytes());
        for range in &layout.ranges {
            let index = index_of(range, &rows);
            let index = self.store(&index, placed)?;
            let pages = range.pages.len() as u32;
            for number in [range.first_page, pages, index.word, index.segment] {
                object.extend(number.to_ne_bytes());
            }
            placed.ranges.push(IndexedRange { first_page: range.first_page, pages, index });
        }
        object.resize(OBJECT, 0);
        undisturbed(|| self.objects.update(&placed.slot.to_ne_bytes(), &object, MapFlags::ANY))?;
        Ok(())
    }

    /// Takes room for bytes, and writes the bytes there.
    fn store(&mut self, bytes: &[u8], placed: &mut Placed) -> Result<Extent, NotPlaced> {
        let words = u32::try_from(bytes.len().div_ceil(4)).map_err(|_| NotPlaced::Full)?;
        let extent = self.pool.take(words).ok_or(NotPlaced::Full)?;
        placed.extents.push(extent);
        let value = match self.values.get(extent.segment as usize) {
            Some(Some(value)) => value,
            _ => self.add_segment(extent.segment)?,
        };
        bpf_memory::write_mapped(value.as_fd(), extent.word as usize * 4, bytes)?;
        Ok(extent)
    }

    fn add_segment(&mut self, number: u32) -> Result<&MapHandle, NotPlaced> {
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let value = MapHandle::create(MapType::Array, Some("unwind_tables"), 4, SEGMENT_BYTES, 1, &options)?;
        let fd = value.as_fd().as_raw_fd().to_ne_bytes();
        undisturbed(|| self.segments.update(&number.to_ne_bytes(), &fd, MapFlags::ANY))?;
        let place = number as usize;
        self.values.resize_with(self.values.len().max(place + 1), || None);
        let slot = self.values.get_mut(place).ok_or(NotPlaced::Full)?;
        Ok(slot.insert(value))
    }

    /// Returns the rule at an offset in an object's file, like `search_rule` of bpf/lookup/tables.h.
    pub(crate) fn rule(&mut self, placed: &Placed, offset: u64) -> Packed {
        self.search_rule(placed, offset).unwrap_or(Packed::GAP)
    }

    fn search_rule(&mut self, placed: &Placed, offset: u64) -> Option<Packed> {
        let page = u32::try_from(offset / u64::from(PAGE)).ok()?;
        let range = placed.ranges.iter().find(|range| page.wrapping_sub(range.first_page) < range.pages)?;
        // struct table_page: first word, then count and segment.
        let index = range.index.word + 2 * (page - range.first_page);
        let first = self.word(range.index.segment, index)?;
        let rest = self.word(range.index.segment, index + 1)?.to_ne_bytes();
        let (count, segment) = (u32::from(u16_at(&rest, 0)?), u32::from(u16_at(&rest, 2)?));
        // Finds the last row that begins at or before the offset.
        let in_page = (offset % u64::from(PAGE)) as u32;
        let (mut from, mut to) = (first, first.checked_add(count)?);
        while to - from > 1 {
            let middle = from + (to - from) / 2;
            match self.word(segment, middle)? >> 16 <= in_page {
                true => from = middle,
                false => to = middle,
            }
        }
        let rules = placed.rules?;
        let rule = rules.word + 2 * (self.word(segment, from)? & 0xffff);
        let (low, high) = (self.word(rules.segment, rule)?, self.word(rules.segment, rule + 1)?);
        let (low, high) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        Some(Packed(u64::from(low) | u64::from(high) << 32))
    }

    /// Returns a word of a segment.
    fn word(&mut self, segment: u32, number: u32) -> Option<u32> {
        let key = (segment, number / VIEW_WORDS);
        if self.views.len() >= MAX_VIEWS && !self.views.contains_key(&key) {
            self.forget_views();
        }
        let view = match self.views.entry(key) {
            Entry::Occupied(view) => view.into_mut(),
            Entry::Vacant(place) => {
                let value = self.values.get(segment as usize)?.as_ref()?;
                let from = key.1 * VIEW_WORDS;
                let words = VIEW_WORDS.min(SEGMENT_WORDS.checked_sub(from)?);
                place.insert(MappedWords::new(value.as_fd(), from as usize * 4, words as usize * 4).ok()?)
            }
        };
        view.get((number % VIEW_WORDS) as usize)
    }

    /// Unmaps the parts of segments in which rules were looked up. Mapped parts count as our memory, and lookups come in bursts.
    pub(crate) fn forget_views(&mut self) {
        self.views = FxHashMap::default();
    }

    /// Links a file to an object. From now on, the file's code is walked with the object's table.
    pub(super) fn name(&self, file: FileFor, placed: &Placed) -> Result<(), NotPlaced> {
        let mut place = [0; 8];
        let (slot, serial) = place.split_at_mut(4);
        slot.copy_from_slice(&placed.slot.to_ne_bytes());
        serial.copy_from_slice(&placed.serial.to_ne_bytes());
        Ok(undisturbed(|| self.files.update(&file.bytes(), &place, MapFlags::ANY))?)
    }

    /// Removes an object from the maps, so that BPF no longer finds it. Its room is freed later, by [`Kernel::collect`].
    pub(super) fn take_out(&mut self, files: &[FileFor], placed: Placed) {
        for file in files {
            // It may never have been named.
            let _ = undisturbed(|| self.files.delete(&file.bytes()));
        }
        let slot = placed.slot.to_ne_bytes();
        if let Ok(Some(mut object)) = undisturbed(|| self.objects.lookup(&slot, MapFlags::ANY)) {
            object.iter_mut().take(4).for_each(|byte| *byte = 0);
            let _ = undisturbed(|| self.objects.update(&slot, &object, MapFlags::ANY));
        }
        self.leaving.push((Instant::now(), placed));
    }

    /// Removes the link from this file to its object. The object stays.
    pub(super) fn forget_name(&mut self, file: FileFor) {
        // It may be gone already.
        let _ = undisturbed(|| self.files.delete(&file.bytes()));
    }

    /// Frees the room of objects that were taken out at least [`GRACE`] ago, and returns empty segments to the kernel.
    pub(crate) fn collect(&mut self) {
        let gone: Vec<_> = self.leaving.extract_if(.., |(since, _)| since.elapsed() > GRACE).collect();
        let is_any = !gone.is_empty();
        gone.into_iter().for_each(|(_, placed)| self.give_back(placed));
        for number in if is_any { self.pool.release() } else { Vec::new() } {
            // The segment holds no object any more. The kernel frees it when the last program that may have seen it has ended.
            let _ = undisturbed(|| self.segments.delete(&number.to_ne_bytes()));
            self.values.iter_mut().skip(number as usize).take(1).for_each(|value| *value = None);
            self.views.retain(|(segment, _), _| *segment != number);
        }
    }

    #[cfg(test)]
    pub(crate) fn forget_the_grace(&mut self) {
        let gone = std::mem::take(&mut self.leaving);
        gone.into_iter().for_each(|(_, placed)| self.give_back(placed));
    }

    fn give_back(&mut self, placed: Placed) {
        self.charge(&placed, false);
        placed.extents.into_iter().for_each(|extent| self.pool.give_back(extent));
        self.free_slots.push(placed.slot);
    }

    /// Returns when the walk last used each slot's table, in units of 2³⁰ ns of `CLOCK_MONOTONIC`; 0: never.
    pub(crate) fn uses(&self) -> Vec<u32> {
        let bytes = bpf_memory::read_mapped(self.objects.as_fd(), 0, self.next_slot as usize * OBJECT).unwrap_or_default();
        bytes.chunks_exact(OBJECT).map(|object| u32_at(object, 4).unwrap_or(0)).collect()
    }

    /// Returns when an object's rules were last looked up.
    pub(crate) fn last_use(&self, placed: &Placed) -> Option<u32> {
        let bytes = bpf_memory::read_mapped(self.objects.as_fd(), placed.slot() * OBJECT, OBJECT).ok()?;
        u32_at(&bytes, 4)
    }

    /// Counts the places in use, including those that wait for [`Kernel::collect`].
    pub(crate) fn slots(&self) -> u32 {
        self.next_slot - self.free_slots.len() as u32
    }

    /// Returns the bytes of tables in the kernel, and the bytes of the segments that hold them.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.pool.used_bytes(), u64::from(self.pool.segments()) * u64::from(SEGMENT_BYTES))
    }

    /// Most bytes that the segments may take.
    pub(crate) fn bound(&self) -> u64 {
        self.bound
    }
}

/// Returns the index of a range in the kernel's format: places within the object become places in segments.
fn index_of(range: &Range, rows: &[Extent]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(range.pages.len() * size_of::<Page>());
    for page in &range.pages {
        let (word, segment) = rows.get(usize::from(page.segment)).map_or((0, 0), |extent| (extent.word, extent.segment as u16));
        bytes.extend((word + page.first).to_ne_bytes());
        bytes.extend(page.count.to_ne_bytes());
        bytes.extend(segment.to_ne_bytes());
    }
    bytes
}
