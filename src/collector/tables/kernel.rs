//! Tables in the kernel: words into segments, objects into their places, files to objects.
//!
//! What BPF may be reading at this moment is never changed. An object comes into sight in this order: words, object, file;
//! and goes in the other: file, then the object's serial is 0, and its room is used again only when no program that saw it
//! before can still be running ([`Kernel::collect`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::layout::{Layout, MAX_RANGES, Range};
use super::pool::{Extent, Pool, SEGMENT_WORDS};
use crate::collector::perf::{self, undisturbed};
use crate::collector::unwind::{Packed, Page};
use crate::far::Place;

/// Places of objects: `MAX_OBJECTS` of bpf/record.h.
const MAX_OBJECTS: u32 = 16_384;

/// `sizeof(struct object)`.
const OBJECT: usize = 16 + 16 * MAX_RANGES;

const SEGMENT_BYTES: u32 = SEGMENT_WORDS * 4;

/// How long a program that has begun to walk may take, and much more: it runs for microseconds, with interrupts off, but a
/// virtual CPU may be stopped in between.
const GRACE: Duration = Duration::from_secs(10);

/// A file's content, as the kernel tells it: `struct object_key`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ObjectKey {
    pub(crate) inode: u64,
    pub(crate) device: u32,
    pub(crate) generation: u32,
}

impl ObjectKey {
    /// The vDSO is of no file.
    pub(crate) const VDSO: ObjectKey = ObjectKey { inode: 0, device: 0, generation: 0 };

    /// What is asked for the file.
    pub(crate) fn place(self) -> Place {
        // As the kernel writes it for itself: 20 bits are the device's minor number.
        Place::device(rustix::fs::makedev(self.device >> 20, self.device & 0xf_ffff))
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (inode, rest) = bytes.split_at_mut(8);
        let (device, generation) = rest.split_at_mut(4);
        inode.copy_from_slice(&self.inode.to_ne_bytes());
        device.copy_from_slice(&self.device.to_ne_bytes());
        generation.copy_from_slice(&self.generation.to_ne_bytes());
        bytes
    }
}

/// An object that is in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    slot: u32,
    serial: u32,
    extents: Vec<Extent>,
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

/// The maps of bpf/tables.h, and what is in them.
pub(crate) struct Kernel {
    segments: MapHandle,
    objects: MapHandle,
    files: MapHandle,
    /// The values of `segments`.
    values: Vec<MapHandle>,
    pool: Pool,
    free_slots: Vec<u32>,
    next_slot: u32,
    serial: u32,
    /// Taken out of sight, and when.
    leaving: Vec<(Instant, Placed)>,
}

impl Kernel {
    /// With the maps of a program that was loaded.
    pub(crate) fn new(segments: MapHandle, objects: MapHandle, files: MapHandle) -> Kernel {
        Kernel {
            segments,
            objects,
            files,
            values: Vec::new(),
            pool: Pool::default(),
            free_slots: Vec::new(),
            next_slot: 0,
            serial: 0,
            leaving: Vec::new(),
        }
    }

    /// Puts a table into the kernel; no file leads to it yet.
    pub(crate) fn put(&mut self, layout: &Layout) -> Result<Placed, NotPlaced> {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.next_slot < MAX_OBJECTS => {
                self.next_slot += 1;
                self.next_slot - 1
            }
            None => return Err(NotPlaced::Full),
        };
        self.serial += 1;
        let mut placed = Placed { slot, serial: self.serial, extents: Vec::new() };
        match self.fill(layout, &mut placed) {
            Ok(()) => Ok(placed),
            Err(error) => {
                self.give_back(placed);
                Err(error)
            }
        }
    }

    /// An object without unwind information: code of it is walked by guessing, and not asked for again.
    pub(crate) fn put_nothing(&mut self) -> Result<Placed, NotPlaced> {
        let arch = if cfg!(target_arch = "aarch64") { super::Arch::Aarch64 } else { super::Arch::X86_64 };
        self.put(&Layout { arch, ranges: Vec::new(), rows: Vec::new(), rules: Vec::new() })
    }

    fn fill(&mut self, layout: &Layout, placed: &mut Placed) -> Result<(), NotPlaced> {
        let mut rows = Vec::with_capacity(layout.rows.len());
        for piece in &layout.rows {
            rows.push(self.store(bytemuck::cast_slice(piece), placed)?);
        }
        let rules: Vec<u8> = layout.rules.iter().flat_map(|Packed(rule)| rule.to_ne_bytes()).collect();
        let rules = self.store(&rules, placed)?;
        let mut object = Vec::with_capacity(OBJECT);
        object.extend(placed.serial.to_ne_bytes());
        object.extend(0u32.to_ne_bytes());
        object.extend(rules.word.to_ne_bytes());
        object.extend((rules.segment as u16).to_ne_bytes());
        object.extend((layout.ranges.len() as u16).to_ne_bytes());
        for range in &layout.ranges {
            let index = index_of(range, &rows);
            let index = self.store(&index, placed)?;
            for number in [range.first_page, range.pages.len() as u32, index.word, index.segment] {
                object.extend(number.to_ne_bytes());
            }
        }
        object.resize(OBJECT, 0);
        undisturbed(|| self.objects.update(&placed.slot.to_ne_bytes(), &object, MapFlags::ANY))?;
        Ok(())
    }

    /// Room for bytes, and the bytes in it.
    fn store(&mut self, bytes: &[u8], placed: &mut Placed) -> Result<Extent, NotPlaced> {
        let words = u32::try_from(bytes.len().div_ceil(4)).map_err(|_| NotPlaced::Full)?;
        let extent = self.pool.take(words).ok_or(NotPlaced::Full)?;
        placed.extents.push(extent);
        while self.values.len() < self.pool.segments() as usize {
            self.add_segment()?;
        }
        let value = self.values.get(extent.segment as usize).ok_or(NotPlaced::Full)?;
        perf::write_mapped(value.as_fd(), extent.word as usize * 4, bytes)?;
        Ok(extent)
    }

    fn add_segment(&mut self) -> Result<(), NotPlaced> {
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let value = MapHandle::create(MapType::Array, Some("unwind_tables"), 4, SEGMENT_BYTES, 1, &options)?;
        let number = u32::try_from(self.values.len()).map_err(|_| NotPlaced::Full)?;
        let fd = value.as_fd().as_raw_fd().to_ne_bytes();
        undisturbed(|| self.segments.update(&number.to_ne_bytes(), &fd, MapFlags::ANY))?;
        self.values.push(value);
        Ok(())
    }

    /// From now on this file's code is walked by that table.
    pub(crate) fn name(&self, key: ObjectKey, placed: &Placed) -> Result<(), NotPlaced> {
        let mut place = [0; 8];
        let (slot, serial) = place.split_at_mut(4);
        slot.copy_from_slice(&placed.slot.to_ne_bytes());
        serial.copy_from_slice(&placed.serial.to_ne_bytes());
        Ok(undisturbed(|| self.files.update(&key.bytes(), &place, MapFlags::ANY))?)
    }

    /// Takes an object out of sight.
    pub(crate) fn take_out(&mut self, keys: &[ObjectKey], placed: Placed) {
        for key in keys {
            // It may never have been named.
            let _ = undisturbed(|| self.files.delete(&key.bytes()));
        }
        let slot = placed.slot.to_ne_bytes();
        if let Ok(Some(mut object)) = undisturbed(|| self.objects.lookup(&slot, MapFlags::ANY)) {
            object.iter_mut().take(4).for_each(|byte| *byte = 0);
            let _ = undisturbed(|| self.objects.update(&slot, &object, MapFlags::ANY));
        }
        self.leaving.push((Instant::now(), placed));
    }

    /// Makes the room of what was taken out long enough ago free again.
    pub(crate) fn collect(&mut self) {
        let gone: Vec<_> = self.leaving.extract_if(.., |(since, _)| since.elapsed() > GRACE).collect();
        gone.into_iter().for_each(|(_, placed)| self.give_back(placed));
    }

    fn give_back(&mut self, placed: Placed) {
        placed.extents.into_iter().for_each(|extent| self.pool.give_back(extent));
        self.free_slots.push(placed.slot);
    }

    /// When the walk last looked into this table, in units of 2³⁰ ns of `CLOCK_MONOTONIC`; 0: never.
    pub(crate) fn used(&self, placed: &Placed) -> u32 {
        let object = undisturbed(|| self.objects.lookup(&placed.slot.to_ne_bytes(), MapFlags::ANY));
        let object = object.ok().flatten().unwrap_or_default();
        object.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    /// Bytes of tables in the kernel, and bytes of the segments that they are in.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.pool.used_bytes(), self.values.len() as u64 * u64::from(SEGMENT_BYTES))
    }
}

/// The index of a range, in the kernel's words: places in the object become places in segments.
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
