//! The entries of a hash map that BPF reads, shared out among users. Pure.
//!
//! All users but root share three quarters of the entries, and one user has at most a quarter.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::profile::UserId;

/// A change of a map: the key, and its entry from now on.
pub(crate) type Change<K, V> = (K, Option<V>);

/// The keys in a map, each with the user who is charged.
pub(crate) struct KernelEntries<K, V> {
    /// Entries that the map has room for.
    most: usize,
    users: FxHashMap<K, UserId>,
    of_user: FxHashMap<UserId, usize>,
    changes: Vec<Change<K, V>>,
}

impl<K: Copy + Eq + Hash, V> KernelEntries<K, V> {
    /// Returns an empty map with room for `most` entries.
    pub(super) fn new(most: usize) -> KernelEntries<K, V> {
        KernelEntries { most, users: FxHashMap::default(), of_user: FxHashMap::default(), changes: Vec::new() }
    }

    /// Adds a key, or replaces its entry. Returns `false` if its user has no room.
    pub(super) fn add(&mut self, key: K, user: UserId, entry: V) -> bool {
        self.remove(key);
        let of_user = self.of_user.get(&user).copied().unwrap_or(0);
        let of_root = self.of_user.get(&UserId(0)).copied().unwrap_or(0);
        let others = self.users.len() - of_root;
        let has_room =
            self.users.len() < self.most && (user == UserId(0) || others < self.most / 4 * 3 && of_user < self.most / 4);
        if has_room {
            self.users.insert(key, user);
            self.of_user.insert(user, of_user + 1);
            self.changes.push((key, Some(entry)));
        }
        has_room
    }

    /// Removes a key, if it is there.
    pub(super) fn remove(&mut self, key: K) {
        let Some(user) = self.users.remove(&key) else { return };
        self.changes.push((key, None));
        match self.of_user.get_mut(&user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.of_user.remove(&user)),
        }
    }

    /// Removes the keys of processes that are gone. Needed for processes whose end no event reported.
    pub(super) fn retain(&mut self, is_there: impl Fn(K) -> bool) {
        let gone: Vec<K> = self.users.keys().copied().filter(|key| !is_there(*key)).collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }

    /// Takes the changes since the last time.
    pub(crate) fn take_changes(&mut self) -> Vec<Change<K, V>> {
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use rustc_hash::FxHashSet;

    use super::*;

    #[test]
    fn one_user_takes_no_room_from_others_and_root_always_has_some() {
        let mut entries = KernelEntries::new(4096);
        let added = |entries: &mut KernelEntries<u32, [u8; 56]>, user: u32, tgids: Range<u32>| {
            tgids.filter(|tgid| entries.add(*tgid, UserId(user), [0; 56])).count()
        };
        assert_eq!(added(&mut entries, 1000, 0..2000), 1024);
        assert_eq!(added(&mut entries, 1001, 2000..4000), 1024);
        assert_eq!(added(&mut entries, 1002, 4000..6000), 3072 - 2 * 1024);
        assert_eq!(added(&mut entries, 1003, 6000..6001), 0);
        assert_eq!(added(&mut entries, 0, 10_000..20_000), 4096 - 3072);
        // A process that ends makes room, even if no event reported its end.
        entries.remove(5);
        entries.retain(|tgid| tgid != 6);
        assert_eq!(added(&mut entries, 1000, 7000..7010), 2);
        let mut there = FxHashSet::default();
        for (tgid, entry) in entries.take_changes() {
            let changed = if entry.is_some() { there.insert(tgid) } else { there.remove(&tgid) };
            assert!(changed, "{tgid}");
        }
        assert_eq!(there.len(), 4096);
        assert!(entries.take_changes().is_empty());
    }
}
