//! Finds out whether anonymous memory holds the code of the file behind it, on the threads of [`reader`](super::reader).
//!
//! ```text
//! 00400000-00401000 r--p 00000000  /opt/node
//! 00401000-00e00000 r-xp           anonymous   compared with the file at many places
//! 00e00000-00e40000 r-xp 00a00000  /opt/node   its program headers say which code belongs before it
//! ```
//!
//! Programs copy their code to anonymous memory to have it in large pages.

use std::ops::Range;

use super::mapped_build_id::{self, MappedFile};
use super::proc::{self, Mapped};
use super::process_memory::ProcessMemory;
use crate::collector::wire::perf_records::Identity;
use crate::object::headers::{FileHeader, PT_LOAD, ProgramHeader};
use crate::object::read_at::{FileBytes, ReadAt};
use crate::profile::{Tgid, UserId};
use crate::runtimes::Memory;

/// Most program headers that a file may have: see `MAX_SEGMENTS` of the images that name functions.
const MAX_SEGMENTS: u16 = 4096;
/// Most segments of a file that are compared with each other, and most places in the file where the code may be. Programs have about four segments, and one place,
/// or two if a page of the file belongs to two segments.
const MAX_LOADS: usize = 64;
const MAX_PLACES: usize = 16;
/// Parts that are compared at each place, and their bytes: 256 KiB at a place, 4 MiB for a question. Smaller memory is compared whole.
const PARTS: u64 = 64;
const BYTES: usize = 4096;

/// Code of a file in anonymous memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MovedText {
    /// The mapping of the file right behind it.
    pub(crate) beside: MappedFile,
    /// Offset in the file of its first address. May be negative, modulo 2^64, if the memory begins before the code.
    pub(crate) offset: u64,
}

/// Returns the file whose code a process has in this executable memory without a file. May wait for the file. `user` is charged.
pub(crate) fn find(user: UserId, tgid: Tgid, range: &Range<u64>) -> Option<MovedText> {
    let behind = proc::behind(tgid.0, range)?;
    let Identity::Inode(inode) = behind.identity else { return None };
    if inode.number == 0 {
        return None;
    }
    let beside = MappedFile { start: behind.start, end: behind.end, path: behind.path.as_str().into(), file: Some(inode) };
    let file = FileBytes::new(mapped_build_id::find(user, tgid, &beside).ok()?);
    let segments = FileHeader::read(&file).ok()?.program_headers(&file, MAX_SEGMENTS).ok()?;
    let memory = ProcessMemory::open(tgid.0)?;
    let same = |place: &Place| has_same_bytes(&memory, &file, range, place);
    let place = places(&segments, &behind, range, rustix::param::page_size() as u64).into_iter().find(same)?;
    Some(MovedText { beside, offset: place.offset })
}

/// A place in a file whose code may be in a range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    /// Offset in the file of the first address.
    offset: u64,
    /// Bytes from there to the end of the code.
    length: u64,
}

/// Returns the places in a file whose code belongs at `range`, if the file is mapped as `mapped` says.
///
/// A page of a file may belong to two segments. So `mapped` may be a part of any segment that it touches, and each may say something else.
/// They all differ. Looks at [`MAX_LOADS`] segments and returns at most [`MAX_PLACES`], so a hostile file is not compared for long.
fn places(segments: &[ProgramHeader], mapped: &Mapped, range: &Range<u64>, page: u64) -> Vec<Place> {
    let loads = || segments.iter().filter(|segment| segment.kind == PT_LOAD).take(MAX_LOADS);
    let of_mapped = loads().filter(move |load| {
        let first = load.offset / page * page;
        (first..load.offset.saturating_add(load.file_size)).contains(&mapped.offset)
    });
    let found = of_mapped.flat_map(move |load| {
        // From the file's addresses to the process's.
        let distance = mapped.start.wrapping_sub(mapped.offset).wrapping_sub(load.address.wrapping_sub(load.offset));
        let start = range.start.wrapping_sub(distance);
        loads().filter(|segment| segment.is_code()).filter_map(move |code| {
            let lead = code.address % page;
            let (first, end) = (code.address - lead, code.address.saturating_add(code.file_size));
            if !(first..end).contains(&start) {
                return None;
            }
            let offset = start.wrapping_sub(code.address).wrapping_add(code.offset);
            Some(Place { offset, length: (end - start).min(range.end - range.start) })
        })
    });
    let mut places = Vec::new();
    for place in found {
        if places.len() < MAX_PLACES && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Compares memory and file: at the begin, at the end, and at parts in between.
fn has_same_bytes(memory: &dyn Memory, file: &(impl ReadAt + ?Sized), range: &Range<u64>, place: &Place) -> bool {
    let last = place.length.saturating_sub(BYTES as u64);
    let step = (last / (PARTS - 1)).max(BYTES as u64);
    let offsets = (0..PARTS - 1).map(|number| number * step).take_while(|offset| *offset < last).chain([last]);
    let bytes = place.length.min(BYTES as u64) as usize;
    let (mut there, mut expected) = ([0; BYTES], [0; BYTES]);
    let (Some(there), Some(expected)) = (there.get_mut(..bytes), expected.get_mut(..bytes)) else { return false };
    let mut same = |offset: u64| {
        memory.read(range.start + offset, there)
            && file.read_exact_at(place.offset.wrapping_add(offset), expected).is_ok()
            && there == expected
    };
    bytes > 0 && offsets.into_iter().all(&mut same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::wire::perf_records::Inode;

    const PAGE: u64 = 0x1000;

    fn load(flags: u32, offset: u64, address: u64, size: u64) -> ProgramHeader {
        let (file_size, memory_size) = (size, size);
        ProgramHeader { kind: PT_LOAD, flags, offset, address, physical: address, file_size, memory_size, align: PAGE }
    }

    fn mapped(start: u64, offset: u64) -> Mapped {
        let identity = Identity::Inode(Inode { device: 1, number: 2, generation: None });
        Mapped { start, end: start + PAGE, offset, identity, path: "/x".to_owned() }
    }

    #[test]
    fn program_headers_say_which_code_belongs_before_a_mapping() {
        let of = |segments: &[ProgramHeader], mapped, range| places(segments, &mapped, &range, PAGE);
        // As GNU ld lays a program out: the whole code, and all but the part of it that stayed.
        let plain = [load(4, 0, 0, 0x700), load(5, 0x1000, 0x1000, 0x1069), load(4, 0x3000, 0x3000, 0x100)];
        let whole = of(&plain, mapped(0x58000, 0x3000), 0x56000..0x58000);
        assert_eq!(whole, [Place { offset: 0x1000, length: 0x1069 }]);
        let part = of(&plain, mapped(0x57000, 0x2000), 0x56000..0x57000);
        assert_eq!(part, [Place { offset: 0x1000, length: 0x1000 }]);
        // As lld does: each segment is one page further from its place in the file, and one page of the file is in both.
        let moved = [load(5, 0x1560, 0x20_2560, 0x4000), load(4, 0x5560, 0x20_7560, 0x100)];
        let whole = of(&moved, mapped(0x20_7000, 0x5000), 0x20_2000..0x20_7000);
        assert!(whole.contains(&Place { offset: 0x1000, length: 0x4560 }), "{whole:x?}");
        // Memory without code of the file.
        assert_eq!(of(&plain, mapped(0x59000, 0x4000), 0x58000..0x59000), []);
        assert_eq!(of(&[], mapped(0x58000, 0), 0x59000..0x5a000), []);
        let hostile = [load(5, u64::MAX - 5, u64::MAX - 9, u64::MAX), load(5, 0, u64::MAX, u64::MAX)];
        of(&hostile, mapped(u64::MAX - 0x2000, u64::MAX - 5), u64::MAX - 0x1000..u64::MAX);
    }

    #[test]
    fn a_file_with_thousands_of_segments_has_few_places() {
        // Each pair of data and code says the same; then, each pair of data and code says something else.
        let segments = |differ: u64| -> Vec<ProgramHeader> {
            let pair =
                |number: u64| [load(4, 0x20_0000, 0x20_0000 + number * differ, 0x1000), load(5, 0x1000, 0x1000, 0x100_0000)];
            (0..2048).flat_map(pair).collect()
        };
        let of = |segments: &[ProgramHeader]| places(segments, &mapped(0x100_0000, 0x20_0000), &(0xf0_0000..0x100_0000), PAGE);
        assert_eq!(of(&segments(0)), [Place { offset: 0x10_0000, length: 0x10_0000 }]);
        assert_eq!(of(&segments(PAGE)).len(), MAX_PLACES);
    }

    /// Memory that begins at an address.
    struct Bytes(u64, Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let from = address.checked_sub(self.0).and_then(|from| usize::try_from(from).ok());
            let bytes = from.and_then(|from| self.1.get(from..from + buffer.len()));
            bytes.map(|bytes| buffer.copy_from_slice(bytes)).is_some()
        }
    }

    #[test]
    fn all_of_little_memory_and_both_ends_of_much_are_compared() {
        for length in [1, 5, BYTES, BYTES + 1, 64 * BYTES, 1 << 20] {
            let file: Vec<u8> = (0..length + 100).map(|number| (number * 7 + number / 4096) as u8).collect();
            let place = Place { offset: 100, length: length as u64 };
            let range = 0x1000..0x1000 + length as u64;
            let same = |bytes: Vec<u8>| has_same_bytes(&Bytes(range.start, bytes), file.as_slice(), &range, &place);
            let text = file.get(100..).unwrap().to_vec();
            assert!(same(text.clone()), "{length}");
            for at in [0, length - 1] {
                let mut other = text.clone();
                *other.get_mut(at).unwrap() ^= 1;
                assert!(!same(other), "{length}: {at}");
            }
            if length <= 64 * BYTES {
                let differs = |at: usize| {
                    let mut other = text.clone();
                    *other.get_mut(at).unwrap() ^= 1;
                    !same(other)
                };
                assert!((0..length).step_by(911).all(differs), "{length}");
            }
            assert!(!same(text.get(1..).unwrap().to_vec()), "memory that cannot be read");
        }
        let nothing = Place { offset: 0, length: 0 };
        assert!(!has_same_bytes(&Bytes(0, vec![0; 9]), [0u8; 9].as_slice(), &(0..9), &nothing));
    }
}
