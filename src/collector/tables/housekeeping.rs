//! Chores of workers that have no table to make: they give memory back, and prune the cache on disk.
//!
//! Programs that come and go empty the queue many times a second. Memory is walked through for a millisecond, and the cache may have
//! thousands of files, so neither is done each time.

use std::time::{Duration, Instant};

/// Time from one release of memory to the next.
const RELEASE_EVERY: Duration = Duration::from_secs(2);
/// Time from one pruning of the cache to the next.
const PRUNE_EVERY: Duration = Duration::from_secs(30);

/// A chore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Chore {
    /// Give memory back to the system.
    Release,
    /// Prune the cache.
    Prune,
    /// Something, after this time.
    Later(Duration),
    /// Nothing.
    Nothing,
}

/// Work that may be needed, and when it was done.
#[derive(Default)]
pub(super) struct Housekeeping {
    /// Whether tables were made since memory was released.
    worked: bool,
    /// Whether tables were stored since the cache was pruned.
    stored: bool,
    released: Option<Instant>,
    pruned: Option<Instant>,
}

impl Housekeeping {
    /// A table was made, and maybe stored.
    pub(super) fn note(&mut self, stored: bool) {
        self.worked = true;
        self.stored |= stored;
    }

    /// Takes the next chore. It counts as done.
    pub(super) fn next(&mut self, now: Instant) -> Chore {
        let left = |done: Option<Instant>, every: Duration| {
            done.map_or(Duration::ZERO, |done| every.saturating_sub(now.saturating_duration_since(done)))
        };
        let (release, prune) = (left(self.released, RELEASE_EVERY), left(self.pruned, PRUNE_EVERY));
        if self.worked && release.is_zero() {
            (self.worked, self.released) = (false, Some(now));
            Chore::Release
        } else if self.stored && prune.is_zero() {
            (self.stored, self.pruned) = (false, Some(now));
            Chore::Prune
        } else if self.worked || self.stored {
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
        housekeeping.note(true);
        assert_eq!([0; 3].map(|second| housekeeping.next(at(second))), [Chore::Release, Chore::Prune, Chore::Nothing]);
        housekeeping.note(true);
        assert_eq!(housekeeping.next(at(1)), Chore::Later(Duration::from_secs(1)));
        assert_eq!(housekeeping.next(at(2)), Chore::Release);
        assert_eq!(housekeeping.next(at(2)), Chore::Later(Duration::from_secs(28)));
        housekeeping.note(false);
        assert_eq!(housekeeping.next(at(30)), Chore::Release);
        assert_eq!([30; 2].map(|second| housekeeping.next(at(second))), [Chore::Prune, Chore::Nothing]);
    }
}
