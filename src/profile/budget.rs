//! How many bytes names may take, shared out by user.
//!
//! Each entry is paid for by the user whose process made it necessary. A user gets new entries while
//!
//! ```text
//! used by the user  <  share × (limit − used by all)         share: 7 for root, 1 for the others
//! ```
//!
//! so the last bytes are never one user's alone, whoever comes first: root alone may take 7/8 of the limit, another user alone 1/2, two
//! of them 1/3 each, and there is always something left for who comes next. (These are the dynamic thresholds by which switches share
//! their buffers: Choudhury and Hahne, 1998.) Names and objects of addresses that were taken already have another eighth of the limit.
//!
//! What is refused is counted, and stands in the picture as `[more addresses of libc.so.6]`, `[more names]` or
//! `[more objects]`: samples keep their weight and their place, only their innermost detail is coarser.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use super::ids::UserId;

/// Users with an account of their own; those who come later have one together. Root of a container may become anybody.
const MAX_USERS: usize = 4096;
/// The account of those.
const REST: UserId = UserId(u32::MAX);
/// See the module.
const SHARE_OF_ROOT: usize = 7;

/// Bytes for names, and what did not fit. Shared by the tables of one [`Names`](super::Names).
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
    by_user: DashMap<UserId, usize, FxBuildHasher>,
    refused: DashMap<UserId, u64, FxBuildHasher>,
    refused_all: AtomicU64,
}

impl Default for Budget {
    /// Without a limit: for files.
    fn default() -> Self {
        Budget::new(usize::MAX)
    }
}

impl Budget {
    pub(super) fn new(limit: usize) -> Budget {
        Budget {
            limit,
            used: AtomicUsize::new(0),
            by_user: DashMap::default(),
            refused: DashMap::default(),
            refused_all: AtomicU64::new(0),
        }
    }

    fn account(&self, user: UserId) -> UserId {
        let known = user == UserId(0) || self.by_user.contains_key(&user) || self.by_user.len() < MAX_USERS;
        if known { user } else { REST }
    }

    /// Counts what was made for a user.
    pub(super) fn take(&self, user: UserId, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        *self.by_user.entry(self.account(user)).or_default() += bytes;
    }

    /// Whether no new address is taken any more for this user.
    pub(super) fn is_full(&self, user: UserId) -> bool {
        self.is_over(user, self.limit)
    }

    /// Whether not even names of addresses that were taken are.
    pub(super) fn is_overfull(&self, user: UserId) -> bool {
        self.is_over(user, self.limit.saturating_add(self.limit / 8))
    }

    fn is_over(&self, user: UserId, limit: usize) -> bool {
        let left = limit.saturating_sub(self.used());
        let account = self.account(user);
        let share = if account == UserId(0) { SHARE_OF_ROOT } else { 1 };
        self.used_by(account) >= left.saturating_mul(share)
    }

    /// Takes over what another budget has counted as refused.
    pub(super) fn remember_refused(&self, other: &Budget) {
        self.refused_all.store(other.refused(), Ordering::Relaxed);
        for entry in &other.refused {
            self.refused.insert(*entry.key(), *entry.value());
        }
    }

    /// Counts what was not made.
    pub(super) fn refuse(&self, user: UserId) {
        self.refused_all.fetch_add(1, Ordering::Relaxed);
        *self.refused.entry(self.account(user)).or_default() += 1;
    }

    /// Bytes taken.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes taken by one user.
    pub(super) fn used_by(&self, user: UserId) -> usize {
        self.by_user.get(&user).map_or(0, |used| *used)
    }

    /// How often something was refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused_all.load(Ordering::Relaxed)
    }

    /// The user who was refused most, and how often.
    pub(super) fn refused_most(&self) -> Option<(UserId, u64)> {
        self.refused.iter().map(|entry| (*entry.key(), *entry.value())).max_by_key(|(_, count)| *count)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes until it is refused; bytes that the user has then.
    fn fill(budget: &Budget, user: u32) -> usize {
        while !budget.is_full(UserId(user)) {
            budget.take(UserId(user), 10);
        }
        budget.used_by(UserId(user))
    }

    #[test]
    fn nobody_takes_what_others_need() {
        let budget = Budget::new(84_000);
        assert_eq!(fill(&budget, 1000), 42_000, "half of all");
        assert_eq!(fill(&budget, 1001), 21_000, "half of the rest");
        assert!(fill(&budget, 0) > 18_000, "root has nearly all that is left");
        assert!(fill(&budget, 1002) > 1_000, "and the next has something");
        assert!(budget.used() < 84_000);
        assert!(!budget.is_overfull(UserId(1002)) && budget.is_overfull(UserId(1000)));
        let alone = Budget::new(8_000);
        assert_eq!(fill(&alone, 0), 7_000);
    }

    #[test]
    fn users_without_end_have_one_account() {
        let budget = Budget::new(usize::MAX);
        for user in 0..10_000 {
            budget.take(UserId(user), 1);
            budget.refuse(UserId(7));
        }
        assert!(budget.by_user.len() <= MAX_USERS + 1);
        assert_eq!(budget.used(), 10_000);
        assert_eq!(budget.refused_most(), Some((UserId(7), 10_000)));
    }
}
