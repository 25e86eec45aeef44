//! Finds begin and end of functions without symbols. The unwind information has them, and strip(1) does not remove it.
//!
//! ```text
//! .eh_frame_hdr   version 1 · encodings 3 · address of .eh_frame 4 · count 4 · entries      by its segment, PT_GNU_EH_FRAME
//! entry           first address 4 · address of the FDE 4, both from .eh_frame_hdr on; sorted
//! FDE             length 4 · distance to the CIE 4 · first address 4 or 8 · length of the function 4 or 8 · …
//! ```
//!
//! Source: LSB Core, "Exception Frames". Chromium has 20 MB of it, so a look-up reads only a few hundred bytes: a binary search for the
//! entry, then the entry's FDE. The CIE says how the FDE writes addresses, but it is not read. Instead, each form is tried: the right one
//! gives the first address, which is known from the entry.

use std::ops::Range;

use super::bytes::Source;
use super::headers::{FileHeader, PT_LOAD, ProgramHeader};
use super::numbers::{u32_at, u64_at};
use crate::profile::ElfAddress;

const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// Most program headers that are read.
const MAX_HEADERS: u16 = 256;
/// Bytes of `.eh_frame_hdr` before its entries.
const HEADER: u64 = 12;
/// Version 1; the address of `.eh_frame`, relative to its own place, 4 bytes; the count, 4 bytes; entries relative to the header, 4 bytes
/// each: `DW_EH_PE_pcrel | sdata4`, `udata4`, `datarel | sdata4`. All linkers write this form.
const KIND: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const ENTRY: u64 = 8;
/// Bytes of an FDE that are read: all needed fields are in the first 24.
const FDE: u64 = 24;

/// The table of one file's functions.
#[derive(Debug)]
pub(crate) struct FunctionBounds {
    segments: Vec<ProgramHeader>,
    /// The address of `.eh_frame_hdr`, and its place in the file.
    header: (u64, u64),
    count: u64,
}

impl FunctionBounds {
    /// Reads the headers. Returns `None` if the file has no table of functions, or one of an unknown kind.
    pub(crate) fn of(source: &Source) -> Option<FunctionBounds> {
        let segments = FileHeader::read(source).ok()?.program_headers(source, MAX_HEADERS).ok()?;
        let header = segments.iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
        let (address, offset, size) = (header.address, header.offset, header.file_size);
        let bytes = source.read(offset, HEADER, HEADER).ok()?;
        if bytes.get(..4)? != KIND {
            return None;
        }
        let count = u64::from(u32_at(&bytes, 8)?).min(size.checked_sub(HEADER)? / ENTRY);
        Some(FunctionBounds { segments, header: (address, offset), count })
    }

    /// Returns the function that holds an address.
    pub(crate) fn around(&self, source: &Source, address: ElfAddress) -> Option<Range<u64>> {
        let after = self.first_after(source, address)?;
        self.before(source, after, address)
    }

    /// Returns the latest possible end of code that begins at an address: the end of the function that holds it, or else the begin of the
    /// next function. `None` if no function is known from there on.
    pub(crate) fn end_of(&self, source: &Source, address: ElfAddress) -> Option<u64> {
        let after = self.first_after(source, address)?;
        let around = self.before(source, after, address);
        around.map(|around| around.end).or_else(|| (after < self.count).then(|| Some(self.entry(source, after)?.0)).flatten())
    }

    /// Returns the index of the first entry that begins after an address.
    fn first_after(&self, source: &Source, address: ElfAddress) -> Option<u64> {
        let (mut least, mut most) = (0, self.count);
        while least < most {
            let middle = least.midpoint(most);
            if self.entry(source, middle)?.0 <= address.0 { least = middle + 1 } else { most = middle }
        }
        Some(least)
    }

    /// Returns the function of the entry before this one, if it holds an address.
    fn before(&self, source: &Source, entry: u64, address: ElfAddress) -> Option<Range<u64>> {
        let (start, place) = self.entry(source, entry.checked_sub(1)?)?;
        let length = self.length(source, start, place)?;
        Some(start..start.checked_add(length)?).filter(|range| range.contains(&address.0))
    }

    /// Returns the first address of a function, and the address of its FDE.
    fn entry(&self, source: &Source, index: u64) -> Option<(u64, u64)> {
        let (address, offset) = self.header;
        let bytes = source.read(offset.checked_add(HEADER + index * ENTRY)?, ENTRY, ENTRY).ok()?;
        let from_header = |at| Some(address.wrapping_add_signed(i64::from(u32_at(&bytes, at)?.cast_signed())));
        Some((from_header(0)?, from_header(4)?))
    }

    /// Returns the length of the function that begins at `start`, from its FDE.
    fn length(&self, source: &Source, start: u64, fde: u64) -> Option<u64> {
        let holds = |segment: &&ProgramHeader| {
            segment.kind == PT_LOAD && fde.checked_sub(segment.address).is_some_and(|within| within < segment.file_size)
        };
        let segment = self.segments.iter().find(holds)?;
        let offset = segment.offset.checked_add(fde - segment.address)?;
        let bytes = source.read(offset, FDE, FDE).ok()?;
        // The address is written relative to its own place, or absolute.
        let (place, narrow, wide) = (fde.wrapping_add(8), u32_at(&bytes, 8)?, u64_at(&bytes, 8)?);
        let is_narrow = place.wrapping_add_signed(i64::from(narrow.cast_signed())) == start || u64::from(narrow) == start;
        let is_wide = place.wrapping_add(wide) == start || wide == start;
        match (is_narrow, is_wide) {
            (true, _) => Some(u64::from(u32_at(&bytes, 12)?)),
            (false, true) => u64_at(&bytes, 16),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// readelf's FDEs are the oracle: each function of a program and of a library, at its first and last byte.
    #[test]
    fn functions_are_those_that_readelf_tells() {
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.lines().find_map(|line| line.split_whitespace().last().filter(|path| path.contains("libc.so"))).unwrap();
        for path in [std::env::current_exe().unwrap().to_str().unwrap(), libc] {
            let source = Source::file(std::fs::File::open(path).unwrap()).unwrap();
            let bounds = FunctionBounds::of(&source).unwrap();
            let told = Command::new("readelf").args(["--debug-dump=frames", path]).output().unwrap();
            let told = String::from_utf8_lossy(&told.stdout);
            let mut count = 0u32;
            // "00000018 0000000000000014 0000001c FDE cie=00000000 pc=000000000001f0a0..000000000001f0c1"
            for range in told.lines().filter(|line| line.contains(" FDE ")).filter_map(|line| line.split_once("pc=")) {
                let (start, end) = range.1.split_once("..").unwrap();
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                let (start, end) = (number(start), number(end));
                count += 1;
                // Looking all up takes a minute.
                if start < end && count.is_multiple_of(16) {
                    assert_eq!(bounds.around(&source, ElfAddress(start)), Some(start..end), "{path}: {start:#x}");
                    assert_eq!(bounds.around(&source, ElfAddress(end - 1)), Some(start..end), "{path}: {end:#x}");
                }
            }
            assert!(count > 1000, "{path}: {count} functions");
            assert_eq!(bounds.around(&source, ElfAddress(0)), None);
            let first = bounds.entry(&source, 0).unwrap().0;
            assert_eq!(bounds.end_of(&source, ElfAddress(0)), Some(first));
            assert_eq!(
                bounds.end_of(&source, ElfAddress(first)),
                bounds.around(&source, ElfAddress(first)).map(|range| range.end)
            );
            assert_eq!(bounds.end_of(&source, ElfAddress(u64::MAX)), None);
            assert_eq!(bounds.around(&source, ElfAddress(u64::MAX)), None);
        }
    }
}
