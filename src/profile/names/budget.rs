//! Memory limit of names, shared between users.
//!
//! Each entry is charged to the user whose process caused it. A user gets new entries while
//!
//! ```text
//! used by the user  <  share × (limit − used by all)         share: 7 for root, 1 for the others
//! ```
//!
//! so no user can take everything: root alone may take 7/8 of the limit, another user alone 1/2, two of them 1/3 each. A part of the limit
//! is always left for the next user. The method is that of dynamic thresholds for the buffers of network switches (Choudhury and Hahne,
//! 1998). Names and objects of addresses that were accepted earlier have another eighth of the limit.
//!
//! Refused entries are counted. The flame graph shows `[more addresses of libc.so.6]`, `[more names]` or `[more objects]` in their place:
//! samples keep their weight and their place, and lose detail only.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use crate::profile::ids::UserId;

/// Number of users that are accounted one by one. Later users share one account: root of a container can become any user.
const MAX_USERS: usize = 4096;
/// The account of all later users.
const REST: UserId = UserId(u32::MAX);
/// Root's factor in the formula above.
const SHARE_OF_ROOT: usize = 7;

/// Counts the bytes of names by user, and the entries that were refused. Shared by the tables of one [`Names`](crate::profile::Names).
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
    by_user: DashMap<UserId, usize, FxBuildHasher>,
    refused: DashMap<UserId, u64, FxBuildHasher>,
    refused_all: AtomicU64,
}

impl Default for Budget {
    /// Returns a budget without a limit, for files.
    fn default() -> Self {
        Budget::new(usize::MAX)
    }
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Budget {
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

    /// Charges bytes to a user.
    pub(crate) fn take(&self, user: UserId, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        *self.by_user.entry(self.account(user)).or_default() += bytes;
    }

    /// Whether new addresses of this user are refused.
    pub(crate) fn is_full(&self, user: UserId) -> bool {
        self.is_over(user, self.limit)
    }

    /// Whether names of this user's addresses are refused as well.
    pub(crate) fn is_overfull(&self, user: UserId) -> bool {
        self.is_over(user, self.limit.saturating_add(self.limit / 8))
    }

    fn is_over(&self, user: UserId, limit: usize) -> bool {
        let left = limit.saturating_sub(self.used());
        let account = self.account(user);
        let share = if account == UserId(0) { SHARE_OF_ROOT } else { 1 };
        self.used_by(account) >= left.saturating_mul(share)
    }

    /// Takes over another budget's counts of refused entries.
    pub(crate) fn remember_refused(&self, other: &Budget) {
        self.refused_all.store(other.refused(), Ordering::Relaxed);
        for entry in &other.refused {
            self.refused.insert(*entry.key(), *entry.value());
        }
    }

    /// Counts a refused entry.
    pub(crate) fn refuse(&self, user: UserId) {
        self.refused_all.fetch_add(1, Ordering::Relaxed);
        *self.refused.entry(self.account(user)).or_default() += 1;
    }

    /// Returns the bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes charged to one user.
    pub(crate) fn used_by(&self, user: UserId) -> usize {
        self.by_user.get(&user).map_or(0, |used| *used)
    }

    /// Returns the number of refused entries.
    pub(crate) fn refused(&self) -> u64 {
        self.refused_all.load(Ordering::Relaxed)
    }

    /// Returns the user with the most refused entries, and their number.
    pub(crate) fn refused_most(&self) -> Option<(UserId, u64)> {
        self.refused.iter().map(|entry| (*entry.key(), *entry.value())).max_by_key(|(_, count)| *count)
    }
}

/// Bytes of an entry of a hash table. hashbrown doubles when 7/8 of its slots are taken, so an entry has 1.1 to 2.3 slots, each with a
/// control byte.
pub(crate) const fn hashed<T>() -> usize {
    2 * (size_of::<T>() + 1)
}

/// Bytes of an entry of a [`List`](super::list::List) or a `boxcar::Vec`: the value and a flag.
pub(crate) const fn listed<T>() -> usize {
    size_of::<T>() + align_of::<T>()
}

/// Bytes of a shared string: the text, two reference counts, and the allocator's header of 8 bytes, rounded up to 16.
pub(crate) fn shared(text: &str) -> usize {
    (text.len() + 16 + 8).next_multiple_of(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Charges a user until the budget refuses; returns the user's bytes.
    fn fill(budget: &Budget, user: u32) -> usize {
        while !budget.is_full(UserId(user)) {
            budget.take(UserId(user), 10);
        }
        budget.used_by(UserId(user))
    }

    #[test]
    fn no_user_can_take_everything() {
        let budget = Budget::new(84_000);
        assert_eq!(fill(&budget, 1000), 42_000, "half of all");
        assert_eq!(fill(&budget, 1001), 21_000, "half of what was left");
        assert!(fill(&budget, 0) > 18_000, "root has nearly all that is left");
        assert!(fill(&budget, 1002) > 1_000, "and the next has something");
        assert!(budget.used() < 84_000);
        assert!(!budget.is_overfull(UserId(1002)) && budget.is_overfull(UserId(1000)));
        let alone = Budget::new(8_000);
        assert_eq!(fill(&alone, 0), 7_000);
    }

    #[test]
    fn users_beyond_the_maximum_share_one_account() {
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
