//! Which address of a process belongs to which entry of its map of JIT code. Pure.
//!
//! Runtimes give memory back and make other code there, so a later entry takes the place of whatever it covers:
//!
//! ```text
//! entries, in the file's order   aaaaaaaaaa
//!                                    bbb        cc
//! found at each address          aaaabbbaaa     cc
//! ```
//!
//! What is left of `a` keeps its name, as with perf (`tools/perf/util/symbol.c`).

use std::collections::BTreeMap;

/// Entries of one process at most: 40 bytes each. A large application in Node.js has some 20,000.
pub(super) const MAX_RANGES: usize = 1 << 18;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    /// Address after the last.
    end: u64,
    /// Where in the file the entry is.
    at: u32,
}

/// Ranges of addresses without overlaps, each with the place in a file where its name stands.
#[derive(Default, Debug)]
pub(super) struct Ranges(BTreeMap<u64, Range>);

impl Ranges {
    /// Puts an entry in, over what was there. `false` when there are too many already, or it is empty.
    pub(super) fn insert(&mut self, start: u64, size: u64, at: u32) -> bool {
        let Some(end) = start.checked_add(size).filter(|end| *end > start) else { return false };
        if self.0.len() >= MAX_RANGES {
            return false;
        }
        if let Some((_, before)) = self.0.range_mut(..start).next_back()
            && before.end > start
        {
            let rest = Range { end: before.end, at: before.at };
            before.end = start;
            if rest.end > end {
                self.0.insert(end, rest);
            }
        }
        while let Some((&covered, &old)) = self.0.range(start..end).next() {
            self.0.remove(&covered);
            if old.end > end {
                self.0.insert(end, old);
            }
        }
        self.0.insert(start, Range { end, at });
        true
    }

    /// Takes out the range that begins at an address: its size, and where its entry is.
    pub(super) fn remove(&mut self, start: u64) -> Option<(u64, u32)> {
        self.0.remove(&start).map(|range| (range.end - start, range.at))
    }

    /// Where the entry of an address is.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let (_, range) = self.0.range(..=address).next_back()?;
        (address < range.end).then_some(range.at)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes held: a node of the tree has room for 11 keys and values and is two thirds full.
    pub(super) fn memory(&self) -> usize {
        self.0.len() * 40
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
        assert_eq!((ranges.remove(14), ranges.remove(15), ranges.find(15)), (Some((3, 2)), None, None));
    }

    #[test]
    fn there_are_never_too_many() {
        let mut ranges = Ranges::default();
        for start in 0..MAX_RANGES as u64 {
            assert!(ranges.insert(start * 2, 1, 0));
        }
        assert!(!ranges.insert(1, 1, 0));
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
