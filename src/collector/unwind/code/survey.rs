//! Searches code for calls by their first byte, without following it.

use std::ops::Range;

use super::super::control::Control;
use super::super::elf::Elf;
use super::super::rule::Arch;
use super::super::source::{Image, read};
use super::machine::{calls, ends_here};
use super::prover::Stopped;
use super::text::{AT_ONCE, Text};

/// Other code is searched for calls if it is not more than so many times as much: a program with its musl in it.
const LARGEST_OTHER: u64 = 64;

/// Where calls from code that has unwind information may lead: by their first byte, as that code is not followed.
pub(super) fn called_from_elsewhere(elf: &Elf, image: &(impl Image + ?Sized), text: &Text<'_>) -> Vec<u64> {
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

/// Bytes of addresses that share a list, and about as many as a piece has.
pub(super) const REACH: u64 = 1 << 20;

/// A place that is called so often is the begin of a function. What looks like a call in the midst of an instruction hits no place
/// twice.
const SURE: usize = 2;

/// Functions begin at such addresses, mostly.
const ALIGNED: u64 = 16;

/// Where calls in all code seem to lead, in lists for each [`REACH`] bytes of addresses.
pub(super) struct Calls {
    base: u64,
    lists: Vec<Vec<Target>>,
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
    fn new(place: u64, is_sure: bool, is_endless: bool) -> Target {
        Target((place % REACH) as u32 * 4 + u32::from(is_endless) * 2 + u32::from(is_sure))
    }

    fn place(self) -> u64 {
        u64::from(self.0 / 4)
    }

    fn is_sure(self) -> bool {
        self.0 & 1 != 0
    }

    fn is_endless(self) -> bool {
        self.0 & 2 != 0
    }
}

impl Calls {
    /// Searches `code` for calls that lead into `wanted`, both sorted.
    pub(super) fn read(
        elf: &Elf,
        image: &(impl Image + ?Sized),
        wanted: &[Range<u64>],
        control: &dyn Control,
    ) -> Result<Calls, Stopped> {
        let base = wanted.first().map_or(0, |range| range.start / REACH * REACH);
        let end = wanted.last().map_or(0, |range| range.end);
        let mut calls = Calls { base, lists: vec![Vec::new(); ((end - base) / REACH) as usize + 1] };
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
        calls.lists.iter_mut().for_each(count);
        Ok(calls)
    }

    fn add(&mut self, arch: Arch, bytes: &[u8], from: u64, reached: u64, wanted: &[Range<u64>]) {
        for (call, target) in calls(arch, bytes, from) {
            let at = wanted.partition_point(|range| range.start <= target).checked_sub(1).and_then(|at| wanted.get(at));
            let length = if arch == Arch::X86_64 { 5 } else { 4 };
            // What ends in the part before was found there.
            if call + length <= reached || at.is_none_or(|range| target >= range.end) {
                continue;
            }
            let behind = bytes.get((call + length - from) as usize..).unwrap_or_default();
            if let Some(list) = self.lists.get_mut(((target - self.base) / REACH) as usize) {
                list.push(Target::new(target, false, ends_here(arch, behind)));
            }
        }
    }

    fn list(&self, number: usize) -> impl Iterator<Item = (u64, Target)> {
        let base = self.base + number as u64 * REACH;
        self.lists.get(number).into_iter().flatten().map(move |target| (base + target.place(), *target))
    }

    /// Where functions seem to begin.
    pub(super) fn starts(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let number = |address: u64| (address.saturating_sub(self.base) / REACH) as usize;
        let lists = number(range.start)..=number(range.end);
        let targets = lists.flat_map(|number| self.list(number));
        let is_start =
            move |(address, target): &(u64, Target)| range.contains(address) && (target.is_sure() || address % ALIGNED == 0);
        targets.filter(is_start).map(|(address, _)| address)
    }

    /// Functions that seem to be called only to end.
    pub(super) fn endless(&self) -> impl Iterator<Item = u64> {
        let all = (0..self.lists.len()).flat_map(|number| self.list(number));
        all.filter(|(_, target)| target.is_endless()).map(|(address, _)| address)
    }

    /// The first place at an address or behind it, in the same list, where for sure a function begins.
    pub(super) fn first_start(&self, address: u64) -> Option<u64> {
        let mut list = self.list((address.checked_sub(self.base)? / REACH) as usize);
        list.find(|(start, target)| *start >= address && target.is_sure() && start % ALIGNED == 0).map(|(start, _)| start)
    }
}

/// Makes one of all targets with the same place.
fn count(list: &mut Vec<Target>) {
    list.sort_unstable();
    let counted = list.chunk_by(|one, other| one.place() == other.place()).map(|same| {
        let ends = same.iter().filter(|target| target.is_endless()).count();
        let place = same.first().map_or(0, |target| target.place());
        Target::new(place, same.len() >= SURE, ends >= SURE && 2 * ends >= same.len())
    });
    *list = counted.collect();
}
