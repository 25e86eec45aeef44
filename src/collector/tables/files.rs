//! Finds what the kernel knows a file by, from what events tell of its mappings. Pure.
//!
//! Samples name a file by [`ObjectKey`], events of mappings by path and build id, or by device and inode. A build id can be forged. So
//! one of a file that others than root can write counts only for the processes of the user who ran it: they mislead nobody else.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::kernel::ObjectKey;
use crate::collector::events::Identity;
use crate::profile::{BuildId, UserId};

/// Whose processes a build id counts for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum For {
    /// Everybody's: only root can write the file.
    All,
    /// This user's.
    User(UserId),
}

/// The files that lead to a table.
#[derive(Default, Debug)]
pub(super) struct Files {
    by_build_id: FxHashMap<(BuildId, For), (ObjectKey, Arc<str>)>,
    by_inode: FxHashMap<(u64, u64), ObjectKey>,
}

impl Files {
    /// Adds a file that a process of `user` runs; it may call the file `path`. `is_hosts`: only root can write it.
    pub(super) fn insert(&mut self, key: ObjectKey, build_id: Option<BuildId>, user: UserId, is_hosts: bool, path: Arc<str>) {
        self.by_inode.insert((key.device(), key.inode), key);
        if let Some(id) = build_id {
            let whose = if is_hosts { For::All } else { For::User(user) };
            self.by_build_id.insert((id, whose), (key, path));
        }
    }

    /// Returns the key of a file that a process of `user` has mapped.
    pub(super) fn key_of(&self, path: &str, identity: Identity, user: UserId) -> Option<ObjectKey> {
        match identity {
            Identity::Inode(device, inode) => self.by_inode.get(&(device, inode)).copied(),
            Identity::BuildId(id) => {
                let hosts = self.by_build_id.get(&(id, For::All));
                let own = self.by_build_id.get(&(id, For::User(user)));
                let known = hosts.filter(|(_, known)| **known == *path).or(own).or(hosts);
                known.map(|(key, _)| *key)
            }
        }
    }

    /// Removes files for which `stays` is false.
    pub(super) fn retain(&mut self, stays: impl Fn(&ObjectKey) -> bool) {
        self.by_build_id.retain(|_, (key, _)| stays(key));
        self.by_inode.retain(|_, key| stays(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_counts_for_its_user_or_for_all() {
        let key = |inode| ObjectKey { inode, device: 8 << 20 | 1, generation: 0 };
        let id = BuildId::new(&[1, 2, 3]).unwrap();
        let (root, alice, bob) = (UserId(0), UserId(1000), UserId(1001));
        let mut files = Files::default();
        files.insert(key(1), Some(id), root, true, "/lib/libc.so.6".into());
        files.insert(key(2), Some(id), alice, false, "/home/alice/libc.so.6".into());
        files.insert(key(3), None, alice, false, "/home/alice/other".into());
        let by_id = |path: &str, user| files.key_of(path, Identity::BuildId(id), user);
        assert_eq!(by_id("/lib/libc.so.6", root), Some(key(1)));
        assert_eq!(by_id("/lib/libc.so.6", alice), Some(key(1)));
        assert_eq!(by_id("/home/alice/libc.so.6", alice), Some(key(2)));
        assert_eq!(by_id("/home/alice/libc.so.6", root), Some(key(1)));
        assert_eq!(by_id("/home/alice/libc.so.6", bob), Some(key(1)));
        let device = rustix::fs::makedev(8, 1);
        assert_eq!(files.key_of("/anything", Identity::Inode(device, 3), bob), Some(key(3)));
        files.retain(|known| known.inode != 1);
        assert_eq!(files.key_of("/lib/libc.so.6", Identity::BuildId(id), root), None);
        assert_eq!(files.key_of("/lib/libc.so.6", Identity::Inode(device, 1), root), None);
        assert_eq!(files.key_of("/home/alice/libc.so.6", Identity::BuildId(id), alice), Some(key(2)));
    }
}
