//! How many bytes names may take: counted as they are made, since tables that are read without a lock never give any back.
//!
//! ```text
//!  0 ──────────────── limit ──────── limit + 1/8
//!    all is taken            names and objects of the addresses
//!                            that were taken already; no new address
//! ```
//!
//! What is refused is counted, and stands in the picture as `[more addresses of libc.so.6]`, `[more names]` or
//! `[more objects]`: samples keep their weight and their place, only their innermost detail is coarser. The alternative, to take
//! names back with the samples that used them, would need every holder of an id (process caches, waiting symbol look-ups,
//! trees on the screen) to learn of it; a frame under a recycled number would be a wrong name, which is worse than a coarse one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes for names, and what did not fit. Shared by the tables of one [`Names`](super::Names).
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

impl Default for Budget {
    /// Without a limit: for files.
    fn default() -> Self {
        Budget::new(usize::MAX)
    }
}

impl Budget {
    pub(super) fn new(limit: usize) -> Budget {
        Budget { limit, used: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    /// Counts what was made.
    pub(super) fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether no new address is taken any more.
    pub(super) fn is_full(&self) -> bool {
        self.used() >= self.limit
    }

    /// Whether not even names of addresses that were taken are.
    pub(super) fn is_overfull(&self) -> bool {
        self.used() >= self.limit.saturating_add(self.limit / 8)
    }

    /// Counts what was not made.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that may be taken for addresses.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes taken.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often something was refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// What an entry of a hash table takes. hashbrown doubles when 7/8 of the slots are taken, so an entry has 1.1 to 2.3 slots, each
/// with a byte of control.
pub(super) const fn hashed<T>() -> usize {
    2 * (size_of::<T>() + 1)
}

/// What an entry of a `boxcar::Vec` takes: itself and a flag. (Its buckets double, but pages that were never written take none.)
pub(super) const fn listed<T>() -> usize {
    size_of::<T>() + align_of::<T>()
}

/// What a shared string takes: two counts before it, and the allocator's eight bytes and step of sixteen.
pub(super) fn shared(text: &str) -> usize {
    (text.len() + 16 + 8).next_multiple_of(16)
}
