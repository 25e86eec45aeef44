//! Counts the named and unnamed frames of an object, and keeps the reason why some have no name.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::lock;
use crate::object::reason::{Counts, Reason};

/// The counts of one object.
#[derive(Default)]
pub(crate) struct Tally {
    reason: Mutex<Option<Reason>>,
    named: AtomicU64,
    unnamed: AtomicU64,
}

impl Tally {
    /// Records an error; `None` if there is none any more.
    pub(crate) fn set_reason(&self, reason: Option<Reason>) {
        *lock(&self.reason) = reason;
    }

    /// Returns the last error.
    pub(crate) fn reason(&self) -> Option<Reason> {
        *lock(&self.reason)
    }

    /// Counts frames that were named and frames that were given up.
    pub(crate) fn count(&self, named: u64, unnamed: u64) {
        self.named.fetch_add(named, Ordering::Relaxed);
        self.unnamed.fetch_add(unnamed, Ordering::Relaxed);
    }

    /// Resets counts and reason.
    pub(crate) fn clear(&self) {
        self.set_reason(None);
        self.named.store(0, Ordering::Relaxed);
        self.unnamed.store(0, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub(crate) fn counts(&self) -> Counts {
        Counts { named: self.named.load(Ordering::Relaxed), unnamed: self.unnamed.load(Ordering::Relaxed) }
    }
}
