//! Searches code for calls by their first byte, without following it.

use std::ops::Range;

use super::machine::{calls, ends_here};
use super::prover::Stopped;
use super::text::{AT_ONCE, Text};
use crate::object::headers::Arch;
use crate::object::read_at::{ReadAt, read};
use crate::unwind::control::Control;
use crate::unwind::sections::Elf;

/// Other code is searched for calls if it is at most this many times as large: a program with musl in it.
const LARGEST_OTHER: u64 = 64;

/// Returns where calls from code that has unwind information may lead. That code is not followed, so calls are found by their
/// first byte.
pub(crate) fn called_from_elsewhere(elf: &Elf, image: &(impl ReadAt + ?Sized), text: &Text<'_>) -> Vec<u64> {
    let code = elf.code();
    let size: u64 = code.iter().map(|range| range.end - range.start).sum();
    let mut found = Vec::new();
    if size > text.size().saturating_mul(LARGEST_OTHER) {
        return found;
    }
    for range in code {
        let mut from = range.start;
        while from < range.end {
            // Calls across the border of two pieces are in both.
            let length = (range.end - from).min(AT_ONCE);
            let Some(offset) = elf.file_offset(from) else { break };
            let Ok(bytes) = read(image, offset, length, AT_ONCE, "code") else { break };
            let calls = calls(elf.arch, &bytes, from).into_iter();
            found
                .extend(calls.filter(|(call, target)| text.contains(*target) && !text.contains(*call)).map(|(_, target)| target));
            from += if length > 4 && from + length < range.end { length - 4 } else { length };
        }
    }
    found
}

/// Pieces may be longer by this many bytes.
const NEAR: u64 = 256 << 10;

/// Most calls that are kept: Chromium has three million.
const MOST_TARGETS: usize = 32 << 20;

/// A place with this many calls is the begin of a function. Bytes inside an instruction that look like a call hit no place twice.
const SURE: usize = 2;

/// Most functions begin at multiples of this.
const ALIGNED: u64 = 16;

/// Where calls in all code seem to lead.
pub(crate) struct Calls {
    base: u64,
    /// Sorted.
    targets: Vec<Target>,
}

/// A place that seems to be called, in 4 bytes as there are a million of them.
///
/// ```text
/// bit 0              1                          2         32
///     │ SURE or more │ its calls do not return  │ place    │
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Target(u32);

impl Target {
    /// `None` for a place that is too far from the first.
    fn new(place: u64, is_sure: bool, is_endless: bool) -> Option<Target> {
        let flags = u32::from(is_endless) * 2 + u32::from(is_sure);
        u32::try_from(place).ok().filter(|place| *place < 1 << 30).map(|place| Target(place << 2 | flags))
    }

    fn place(self) -> u64 {
        u64::from(self.0 >> 2)
    }

    fn is_sure(self) -> bool {
        self.0 & 1 != 0
    }

    fn is_endless(self) -> bool {
        self.0 & 2 != 0
    }
}

impl Calls {
    /// Searches all code for calls that lead into `wanted`, which is sorted.
    pub(crate) fn read(
        elf: &Elf,
        image: &(impl ReadAt + ?Sized),
        wanted: &[Range<u64>],
        control: &dyn Control,
    ) -> Result<Calls, Stopped> {
        let mut calls = Calls { base: wanted.first().map_or(0, |range| range.start), targets: Vec::new() };
        let mut next = 0;
        for range in elf.code() {
            let mut from = range.start;
            while from < range.end {
                if !control.keep_going() {
                    return Err(Stopped);
                }
                // Calls across the border of two pieces are in both.
                let length = (range.end - from).min(AT_ONCE);
                let Some(offset) = elf.file_offset(from) else { break };
                let Ok(bytes) = read(image, offset, length, AT_ONCE, "code") else { break };
                let reached = std::mem::replace(&mut next, from + length);
                calls.add(elf.arch, &bytes, from, reached, wanted);
                from += if length > 4 && from + length < range.end { length - 4 } else { length };
            }
        }
        calls.count();
        Ok(calls)
    }

    fn add(&mut self, arch: Arch, bytes: &[u8], from: u64, reached: u64, wanted: &[Range<u64>]) {
        let length = if arch == Arch::X86_64 { 5 } else { 4 };
        for (call, target) in calls(arch, bytes, from) {
            let at = wanted.partition_point(|range| range.start <= target).checked_sub(1).and_then(|at| wanted.get(at));
            // A call that ends in the part before was found there.
            if call + length <= reached || at.is_none_or(|range| target >= range.end) {
                continue;
            }
            let behind = bytes.get((call + length - from) as usize..).unwrap_or_default();
            self.targets.extend(Target::new(target - self.base, false, ends_here(arch, behind)));
        }
        // Most targets are called often, or by chance only. Hostile code has a call for each byte.
        if self.targets.len() > MOST_TARGETS {
            self.targets.truncate(MOST_TARGETS);
        }
    }

    /// Merges all targets with the same place.
    fn count(&mut self) {
        self.targets.sort_unstable();
        let (mut from, mut to) = (0, 0);
        while let Some(first) = self.targets.get(from).copied() {
            let same = self.targets.iter().skip(from).take_while(|other| other.place() == first.place());
            let (count, ends) = same.fold((0, 0), |(count, ends), target| (count + 1, ends + usize::from(target.is_endless())));
            if let Some(place) = self.targets.get_mut(to) {
                *place = Target::new(first.place(), count >= SURE, ends >= SURE && 2 * ends >= count).unwrap_or(first);
                to += 1;
            }
            from += count;
        }
        self.targets.truncate(to);
        self.targets.shrink_to_fit();
    }

    fn from(&self, address: u64) -> impl Iterator<Item = (u64, Target)> {
        let first = self.targets.partition_point(|target| self.base + target.place() < address);
        self.targets.iter().skip(first).map(|target| (self.base + target.place(), *target))
    }

    /// Returns where functions seem to begin.
    pub(crate) fn starts(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let targets = self.from(range.start).take_while(move |(address, _)| *address < range.end);
        targets.filter(|(address, target)| target.is_sure() || address % ALIGNED == 0).map(|(address, _)| address)
    }

    /// Returns functions that seem to be called only to end.
    pub(crate) fn endless(&self) -> impl Iterator<Item = u64> {
        self.from(0).filter(|(_, target)| target.is_endless()).map(|(address, _)| address)
    }

    /// Returns the first certain begin of a function at an address or not far behind it.
    pub(crate) fn first_start(&self, address: u64) -> Option<u64> {
        let mut near = self.from(address).take_while(|(start, _)| *start < address + NEAR);
        near.find(|(start, target)| target.is_sure() && start % ALIGNED == 0).map(|(start, _)| start)
    }
}
