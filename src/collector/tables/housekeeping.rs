//! Chores of workers: they release memory to the system, and prune the cache on disk.
//!
//! When many short programs run, the queue becomes empty many times a second. Releasing memory takes a millisecond, and the cache may have
//! thousands of files, so the chores are not done each time. If many bytes were stored, the cache is also pruned while tables wait to be
//! made.

use std::time::{Duration, Instant};

/// Time from one release of memory to the next.
const RELEASE_EVERY: Duration = Duration::from_secs(2);
/// Time from one pruning of the cache to the next.
const PRUNE_EVERY: Duration = Duration::from_secs(30);
/// Bytes that are stored at most before the cache is pruned. So the cache never exceeds its bound by more.
const MOST_UNPRUNED: u64 = 32 << 20;

/// A chore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Chore {
    /// Give memory back to the system.
    Release,
    /// Prune the cache.
    Prune,
    /// A chore follows after this time.
    Later(Duration),
    /// No chore.
    Nothing,
}

/// Schedule of the chores: which are needed, and when each was last done.
#[derive(Default)]
pub(super) struct Housekeeping {
    /// Whether tables were made since memory was released.
    worked: bool,
    /// Bytes that were stored since the cache was pruned.
    stored: u64,
    released: Option<Instant>,
    pruned: Option<Instant>,
}

impl Housekeeping {
    /// Notes that a table was made, and that `stored` bytes went into the cache.
    pub(super) fn note(&mut self, stored: u64) {
        self.worked = true;
        self.stored += stored;
    }

    /// Takes the chore that does not wait until the queue is empty. Returns whether the cache must be pruned now.
    pub(super) fn must_prune(&mut self, now: Instant) -> bool {
        let must = self.stored >= MOST_UNPRUNED;
        if must {
            (self.stored, self.pruned) = (0, Some(now));
        }
        must
    }

    /// Takes the next chore of an empty queue. It counts as done.
    pub(super) fn next(&mut self, now: Instant) -> Chore {
        let left = |done: Option<Instant>, every: Duration| {
            done.map_or(Duration::ZERO, |done| every.saturating_sub(now.saturating_duration_since(done)))
        };
        let (release, prune) = (left(self.released, RELEASE_EVERY), left(self.pruned, PRUNE_EVERY));
        let has_stored = self.stored > 0;
        if self.worked && release.is_zero() {
            (self.worked, self.released) = (false, Some(now));
            Chore::Release
        } else if has_stored && prune.is_zero() {
            (self.stored, self.pruned) = (0, Some(now));
            Chore::Prune
        } else if self.worked || has_stored {
            Chore::Later(if self.worked { release } else { prune })
        } else {
            Chore::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chores_are_done_at_once_and_then_seldom() {
        let (mut housekeeping, begun) = (Housekeeping::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(housekeeping.next(at(0)), Chore::Nothing);
        housekeeping.note(1);
        assert_eq!([0; 3].map(|second| housekeeping.next(at(second))), [Chore::Release, Chore::Prune, Chore::Nothing]);
        housekeeping.note(1);
        assert_eq!(housekeeping.next(at(1)), Chore::Later(Duration::from_secs(1)));
        assert_eq!(housekeeping.next(at(2)), Chore::Release);
        assert_eq!(housekeeping.next(at(2)), Chore::Later(Duration::from_secs(28)));
        housekeeping.note(0);
        assert_eq!(housekeeping.next(at(30)), Chore::Release);
        assert_eq!([30; 2].map(|second| housekeeping.next(at(second))), [Chore::Prune, Chore::Nothing]);
        housekeeping.note(MOST_UNPRUNED - 1);
        assert!(!housekeeping.must_prune(at(31)));
        housekeeping.note(1);
        assert_eq!([31; 2].map(|second| housekeeping.must_prune(at(second))), [true, false]);
    }
}
