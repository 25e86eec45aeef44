//! Allocates room for tables: segments of words, handed out in extents. Pure.
//!
//! ```text
//! segment 0  │ libc: index rows rules │ node: rows ……………… │ free │     524,288 words of 4 bytes: one value of a map
//! segment 1  │ node: rows … rules │ free                          │
//! ```
//!
//! An extent never spans two segments. A freed extent joins its free neighbours. A segment without an extent can be returned to the
//! kernel ([`Pool::release`]); its number is used again.

/// Words in a segment: `SEGMENT_WORDS` of bpf/record.h.
pub(crate) const SEGMENT_WORDS: u32 = 1 << 19;

/// Most segments (2 GiB), even if the memory limit is higher: `MAX_SEGMENTS` of bpf/record.h.
pub(crate) const MAX_SEGMENTS: u32 = 1024;

/// Extents begin at multiples of this many words: a line of the CPU's cache.
const ALIGN: u32 = 16;

/// Some words of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) segment: u32,
    /// The first word.
    pub(crate) word: u32,
    /// The number of words, a multiple of `ALIGN`.
    pub(crate) words: u32,
}

/// The free words of all segments.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The free extents `(first, words)` of each segment, sorted and never adjacent; `None` where there is no segment.
    free: Vec<Option<Vec<(u32, u32)>>>,
    used: u64,
    /// Most segments.
    most: u32,
}

impl Pool {
    /// Returns a pool of at most `most` segments.
    pub(crate) fn new(most: u32) -> Pool {
        Pool { free: Vec::new(), used: 0, most: most.min(MAX_SEGMENTS) }
    }

    /// Takes `words` words from the smallest free extent that holds them, or from a new segment. `None` if all segments are full.
    pub(crate) fn take(&mut self, words: u32) -> Option<Extent> {
        let words = words.max(1).checked_next_multiple_of(ALIGN).filter(|words| *words <= SEGMENT_WORDS)?;
        let candidates = self.free.iter().enumerate().flat_map(|(segment, free)| {
            free.iter()
                .flatten()
                .enumerate()
                .filter(|(_, (_, room))| *room >= words)
                .map(move |(at, (_, room))| (*room, segment, at))
        });
        let (segment, at) = match candidates.min() {
            Some((_, segment, at)) => (segment, at),
            None if self.segments() < self.most => (self.add_segment(), 0),
            None => return None,
        };
        let free = self.free.get_mut(segment)?.as_mut()?;
        let (word, room) = free.get_mut(at)?;
        let extent = Extent { segment: u32::try_from(segment).ok()?, word: *word, words };
        *word += words;
        *room -= words;
        if *room == 0 {
            free.remove(at);
        }
        self.used += u64::from(words);
        Some(extent)
    }

    /// Adds an empty segment with the lowest unused number.
    fn add_segment(&mut self) -> usize {
        let number = self.free.iter().position(Option::is_none).unwrap_or(self.free.len());
        let whole = Some(vec![(0, SEGMENT_WORDS)]);
        match self.free.get_mut(number) {
            Some(place) => *place = whole,
            None => self.free.push(whole),
        }
        number
    }

    /// Removes all empty segments except one, which the next object will use. Returns their numbers.
    pub(crate) fn release(&mut self) -> Vec<u32> {
        let is_free = |free: &Option<Vec<_>>| free.as_deref() == Some(&[(0, SEGMENT_WORDS)]);
        let empty: Vec<usize> =
            self.free.iter().enumerate().filter(|(_, free)| is_free(free)).map(|(number, _)| number).skip(1).collect();
        for number in &empty {
            self.free.iter_mut().skip(*number).take(1).for_each(|place| *place = None);
        }
        empty.into_iter().filter_map(|number| u32::try_from(number).ok()).collect()
    }

    /// Frees an extent.
    pub(crate) fn give_back(&mut self, extent: Extent) {
        let Some(Some(free)) = self.free.get_mut(extent.segment as usize) else { return };
        let at = free.partition_point(|(word, _)| *word < extent.word);
        free.insert(at, (extent.word, extent.words));
        self.used = self.used.saturating_sub(u64::from(extent.words));
        // Joins the extent with its successor, then with its predecessor.
        for first in [at, at.saturating_sub(1)] {
            if let (Some(&(word, words)), Some(&(next, more))) = (free.get(first), free.get(first + 1))
                && word + words == next
            {
                free.remove(first + 1);
                if let Some(joined) = free.get_mut(first) {
                    joined.1 = words + more;
                }
            }
        }
    }

    /// Returns the number of segments.
    pub(crate) fn segments(&self) -> u32 {
        self.free.iter().flatten().count() as u32
    }

    /// Returns the bytes that are handed out.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_segment_is_used_to_its_end_and_then_another_one() {
        let mut pool = Pool::new(MAX_SEGMENTS);
        let whole = pool.take(SEGMENT_WORDS).unwrap();
        assert_eq!(whole, Extent { segment: 0, word: 0, words: SEGMENT_WORDS });
        let small = pool.take(3).unwrap();
        assert_eq!(small, Extent { segment: 1, word: 0, words: ALIGN });
        assert_eq!(pool.take(SEGMENT_WORDS + 1), None);
        pool.give_back(whole);
        assert_eq!(pool.take(SEGMENT_WORDS - 1).unwrap().segment, 0);
        assert_eq!(pool.segments(), 2);
    }

    #[test]
    fn there_is_an_end_and_empty_segments_are_given_up() {
        let mut pool = Pool::new(3);
        let taken: Vec<Extent> = (0..3).map(|_| pool.take(SEGMENT_WORDS).unwrap()).collect();
        assert_eq!(pool.take(1), None);
        assert!(pool.release().is_empty());
        taken.into_iter().for_each(|extent| pool.give_back(extent));
        assert_eq!((pool.release(), pool.segments()), (vec![1, 2], 1));
        assert_eq!(pool.take(SEGMENT_WORDS).unwrap().segment, 0);
        // The number is used again.
        assert_eq!(pool.take(1).unwrap().segment, 1);
    }

    proptest! {
        #[test]
        fn extents_never_overlap_and_all_comes_back(steps in proptest::collection::vec((1u32..200_000, any::<bool>(), any::<usize>()), 1..200)) {
            let mut pool = Pool::new(MAX_SEGMENTS);
            let mut held: Vec<Extent> = Vec::new();
            for (words, give, which) in steps {
                if give && !held.is_empty() {
                    pool.give_back(held.swap_remove(which % held.len()));
                } else {
                    let extent = pool.take(words).unwrap();
                    prop_assert!(extent.words >= words && extent.word + extent.words <= SEGMENT_WORDS);
                    for other in held.iter().filter(|other| other.segment == extent.segment) {
                        prop_assert!(other.word + other.words <= extent.word || extent.word + extent.words <= other.word);
                    }
                    held.push(extent);
                }
                let words: u64 = held.iter().map(|extent| u64::from(extent.words)).sum();
                prop_assert_eq!(pool.used_bytes(), words * 4);
            }
            held.drain(..).for_each(|extent| pool.give_back(extent));
            prop_assert!(pool.free.iter().flatten().all(|free| *free == [(0, SEGMENT_WORDS)]));
        }
    }
}
