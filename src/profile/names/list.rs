//! A list that many threads append to and read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::locks::lock;

/// A list that only grows. It consists of pieces of `PIECE` entries. Reading takes no lock.
///
/// All pieces have the same size. So a new list fits into the memory of a list that was dropped, and little memory is taken ahead.
pub(in crate::profile) struct List<T, const PIECE: usize> {
    pieces: boxcar::Vec<Box<[OnceLock<T>]>>,
    /// The index of the next entry.
    next: AtomicUsize,
    /// Locked while a piece is added.
    adding: Mutex<()>,
}

impl<T, const PIECE: usize> Default for List<T, PIECE> {
    fn default() -> Self {
        List { pieces: boxcar::Vec::new(), next: AtomicUsize::new(0), adding: Mutex::default() }
    }
}

impl<T, const PIECE: usize> List<T, PIECE> {
    /// Appends an entry and returns its index.
    pub(in crate::profile) fn push(&self, value: T) -> usize {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let (piece, place) = (index / PIECE, index % PIECE);
        let slots = if let Some(slots) = self.pieces.get(piece) { slots } else { self.add(piece) };
        // No other call gets this index.
        let _ = slots[place].set(value);
        index
    }

    /// Adds pieces up to this one, and returns it.
    fn add(&self, piece: usize) -> &[OnceLock<T>] {
        let _adding = lock(&self.adding);
        loop {
            if let Some(added) = self.pieces.get(piece) {
                return added;
            }
            self.pieces.push(std::iter::repeat_with(OnceLock::new).take(PIECE).collect());
        }
    }

    /// Returns the entry at an index, or `None` if there is none yet.
    pub(in crate::profile) fn get(&self, index: usize) -> Option<&T> {
        self.pieces.get(index / PIECE)?.get(index % PIECE)?.get()
    }

    /// Returns the number of entries, including those that are being appended at this moment.
    pub(in crate::profile) fn len(&self) -> usize {
        self.next.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_append_and_each_entry_has_its_index() {
        let list = List::<u64, 16>::default();
        assert_eq!((list.len(), list.get(0)), (0, None));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || {
                    for number in 0..5000 {
                        let value = thread << 32 | number;
                        assert_eq!(list.get(list.push(value)), Some(&value));
                    }
                });
            }
        });
        assert_eq!((list.len(), list.get(20_000)), (20_000, None));
        let mut all: Vec<u64> = (0..20_000).filter_map(|index| list.get(index).copied()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), list.pieces.count()), (20_000, 1250));
    }
}
