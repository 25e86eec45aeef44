//! Maps addresses of a process to entries of its JIT code map. Pure.
//!
//! Runtimes free memory and put other code there, so a later entry replaces all earlier ones that it covers:
//!
//! ```text
//! entries, in the file's order   aaaaaaaaaa
//!                                    bbb        cc
//! found at each address          aaaabbbaaa     cc
//! ```
//!
//! The parts of `a` that are left keep its name, as with perf (`tools/perf/util/symbol.c`).

use std::collections::BTreeMap;
use std::ops;

/// Most entries of one process: 40 bytes each. A large application in Node.js has some 20,000.
pub(crate) const MAX_RANGES: usize = 1 << 18;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    /// The end address, exclusive.
    end: u64,
    /// Offset of the entry in the file.
    at: u32,
    /// Distance in bytes from the entry's first address to the begin of this range.
    from: u32,
}

/// A range of addresses that have the same entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) range: ops::Range<u64>,
    /// Offset of the entry in the file.
    pub(crate) at: u32,
    /// Distance in bytes from the entry's first address to the begin of this range. Above 0 if other code replaced the entry's begin. The
    /// entry may have been moved since.
    pub(crate) from: u32,
}

/// Most new entries remembered one by one between two calls of [`Ranges::fresh`].
const MAX_FRESH: usize = 1 << 12;

/// Non-overlapping ranges of addresses, each with the offset of its name's entry in the file.
#[derive(Default, Debug)]
pub(crate) struct Ranges {
    by_start: BTreeMap<u64, Range>,
    fresh: Fresh,
}

/// Addresses with a new entry.
#[derive(Default, Debug)]
pub(crate) struct Fresh {
    ranges: Vec<ops::Range<u64>>,
    /// Set if there were too many to remember one by one: then all addresses count as new.
    all: bool,
}

impl Fresh {
    /// Returns ranges that cover all new addresses. Some may overlap.
    pub(crate) fn ranges(self) -> Vec<ops::Range<u64>> {
        if self.all { std::iter::once(0..u64::MAX).collect() } else { self.ranges }
    }

    fn add(&mut self, range: ops::Range<u64>) {
        if self.ranges.len() >= MAX_FRESH {
            (self.ranges, self.all) = (Vec::new(), true);
        }
        if !self.all {
            self.ranges.push(range);
        }
    }
}

impl Ranges {
    /// Inserts an entry and replaces earlier ones there. Returns `false` if there are too many already, or if it is empty.
    pub(crate) fn insert(&mut self, start: u64, size: u64, at: u32) -> bool {
        start.checked_add(size).is_some_and(|end| self.put(Piece { range: start..end, at, from: 0 }))
    }

    fn put(&mut self, Piece { range: ops::Range { start, end }, at, from }: Piece) -> bool {
        if end <= start || self.by_start.len() >= MAX_RANGES {
            return false;
        }
        self.fresh.add(start..end);
        // Returns the part of an old range that lies after the new one; `began` is the old range's begin.
        let rest = |began: u64, old: Range| {
            let further = u32::try_from(end - began).ok().and_then(|skipped| old.from.checked_add(skipped));
            Range { from: further.unwrap_or(u32::MAX), ..old }
        };
        if let Some((&began, before)) = self.by_start.range_mut(..start).next_back()
            && before.end > start
        {
            let whole = *before;
            before.end = start;
            if whole.end > end {
                self.by_start.insert(end, rest(began, whole));
            }
        }
        while let Some((&covered, &old)) = self.by_start.range(start..end).next() {
            self.by_start.remove(&covered);
            if old.end > end {
                self.by_start.insert(end, rest(covered, old));
            }
        }
        self.by_start.insert(start, Range { end, at, from });
        true
    }

    /// Moves the range that begins at `old` to `new`. Returns the offset of its entry and whether there was room; `None` if no range begins
    /// at `old`.
    pub(crate) fn relocate(&mut self, old: u64, new: u64) -> Option<(u32, bool)> {
        let Range { end, at, from } = self.by_start.remove(&old)?;
        let moved = new.checked_add(end - old).is_some_and(|end| self.put(Piece { range: new..end, at, from }));
        Some((at, moved))
    }

    /// Returns the file offset of the entry for an address.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        self.around(address).map(|piece| piece.at)
    }

    /// Returns the range around an address that has the same entry.
    pub(crate) fn around(&self, address: u64) -> Option<Piece> {
        let (&start, &Range { end, at, from }) = self.by_start.range(..=address).next_back()?;
        (address < end).then_some(Piece { range: start..end, at, from })
    }

    /// Takes the addresses that are new since the last call.
    pub(crate) fn fresh(&mut self) -> Fresh {
        std::mem::take(&mut self.fresh)
    }

    /// Returns the number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Returns the bytes held: a node of the tree has room for 11 keys and values and is two thirds full.
    pub(crate) fn memory(&self) -> usize {
        self.by_start.len() * 40
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_later_entry_wins_where_it_overlaps() {
        let mut ranges = Ranges::default();
        assert!(ranges.insert(10, 10, 1) && ranges.insert(14, 3, 2));
        let found: Vec<_> = [9, 10, 13, 14, 16, 17, 19, 20].map(|address| ranges.find(address)).into();
        assert_eq!(found, [None, Some(1), Some(1), Some(2), Some(2), Some(1), Some(1), None]);
        assert!(!ranges.insert(5, 0, 3) && !ranges.insert(u64::MAX, 2, 3));
        assert_eq!(ranges.fresh().ranges(), [10..20, 14..17]);
        assert_eq!(ranges.fresh().ranges(), []);
        let piece = |range, at, from| Some(Piece { range, at, from });
        assert_eq!([ranges.around(13), ranges.around(18)], [piece(10..14, 1, 0), piece(17..20, 1, 7)]);
        assert_eq!((ranges.relocate(14, 18), ranges.relocate(15, 30)), (Some((2, true)), None));
        assert_eq!([ranges.around(15), ranges.around(20)], [None, piece(18..21, 2, 0)]);
        // The remaining part of an entry, once moved, is still the same part.
        assert_eq!(ranges.relocate(17, 40), Some((1, true)));
        assert_eq!(ranges.around(40), piece(40..41, 1, 7));
    }

    #[test]
    fn there_are_never_too_many() {
        let mut ranges = Ranges::default();
        for start in 0..MAX_RANGES as u64 {
            assert!(ranges.insert(start * 2, 1, 0));
        }
        assert!(!ranges.insert(1, 1, 0));
        assert_eq!(ranges.fresh().ranges().first(), Some(&(0..u64::MAX)), "too many to be told one by one");
        assert!(ranges.memory() < 12 << 20, "{}", ranges.memory());
    }

    proptest! {
        #[test]
        fn each_address_has_the_last_entry_put_over_it(entries in prop::collection::vec((0u64..64, 1u64..16), 1..40)) {
            let mut ranges = Ranges::default();
            let mut plain = [None; 96];
            for (at, (start, size)) in (0u32..).zip(entries) {
                ranges.insert(start, size, at);
                for address in start..start + size {
                    plain[usize::try_from(address).unwrap()] = Some(at);
                }
            }
            for (address, expected) in (0u64..).zip(plain) {
                prop_assert_eq!(ranges.find(address), expected);
            }
        }
    }
}
