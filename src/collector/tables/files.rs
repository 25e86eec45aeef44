//! Finds the kernel's key of a file from the events of its mappings. Pure.
//!
//! Samples name a file by [`ObjectKey`]. Events of mappings name it by path and build id, or by device and inode.
//!
//! A build id can be forged. So if users other than root can write a file, its build id counts only for the processes of the user who ran
//! it, and misleads no other user.
//!
//! File systems give the inode number of a removed file to another file, so the generation is compared too. The previous file is kept,
//! because samples of it may still wait for the table of a library. Mappings that were read from `/proc` have no known generation. They
//! are older than the files that are known here, so the inode number still belongs to the mapped file, unless events were lost.

use crate::collector::wire::records::ObjectKey;
use std::collections::HashSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::identity::content;
use super::served::For;
use crate::collector::wire::perf_records::{Identity, Inode};
use crate::profile::{BuildId, UserId};

/// The files that lead to a table.
#[derive(Default, Debug)]
pub(super) struct Files {
    by_build_id: FxHashMap<(BuildId, For), (ObjectKey, Arc<str>)>,
    /// The files that have had an inode number, the newest last.
    by_inode: FxHashMap<(u64, u64), Vec<ByInode>>,
}

/// Most files that are kept for one inode number.
const MOST_OF_INODE: usize = 4;

/// A file that an inode number leads to.
#[derive(Clone, Copy, Debug)]
struct ByInode {
    key: ObjectKey,
    modified: Option<(i64, u32)>,
    /// Whether no event was lost since the file was added.
    is_certain: bool,
}

impl ByInode {
    /// Whether generation and modification time prove that it is the file.
    fn has_generation_of(&self, inode: Inode) -> bool {
        let known = inode.generation.zip(self.modified);
        known.is_some_and(|(generation, modified)| content(generation, modified) == self.key.generation)
    }

    /// Whether it counts as the file, provided that no later file has the inode.
    fn is(&self, inode: Inode) -> bool {
        match (inode.generation, self.modified) {
            (Some(_), Some(_)) => self.has_generation_of(inode),
            // A file that was not opened has no table, so it cannot mislead.
            (Some(_), None) => true,
            (None, _) => self.is_certain,
        }
    }
}

/// The facts about a file that are known when its table is requested.
#[derive(Debug)]
pub(super) struct KnownFile {
    pub(super) key: ObjectKey,
    /// When it was modified; `None` if it was not opened.
    pub(super) modified: Option<(i64, u32)>,
    pub(super) build_id: Option<BuildId>,
    /// The users whom its table serves.
    pub(super) users: For,
    /// Whether only root can write it.
    pub(super) is_hosts: bool,
    /// A possible path of the file, as the process that ran it sees it.
    pub(super) path: Arc<str>,
}

impl Files {
    /// Returns the approximate bytes held.
    pub(super) fn memory(&self) -> usize {
        self.by_build_id.capacity() * (size_of::<((BuildId, For), (ObjectKey, Arc<str>))>() + 1)
            + self.by_inode.capacity() * (size_of::<((u64, u64), Vec<ByInode>)>() + 1)
            + self.by_inode.len() * 2 * size_of::<ByInode>()
    }

    /// Adds a file that a process of `user` runs.
    pub(super) fn insert(&mut self, file: KnownFile, user: UserId) {
        let KnownFile { key, modified, build_id, users, is_hosts, path } = file;
        let of_inode = self.by_inode.entry((key.device(), key.inode)).or_default();
        // Facts about a verified file stay.
        if users == For::All || !of_inode.iter().any(|known| known.key == key) {
            of_inode.retain(|known| known.key != key);
            if of_inode.len() == MOST_OF_INODE {
                of_inode.remove(0);
            }
            of_inode.push(ByInode { key, modified: modified.filter(|_| users == For::All), is_certain: true });
        }
        if let Some(id) = build_id {
            let whose = if is_hosts { For::All } else { For::User(user) };
            self.by_build_id.insert((id, whose), (key, path));
        }
    }

    /// Returns the key of a file that a process of `user` has mapped.
    pub(super) fn key_of(&self, path: &str, identity: Identity, user: UserId) -> Option<ObjectKey> {
        match identity {
            Identity::Inode(inode) => {
                let of_inode = self.by_inode.get(&(inode.device, inode.number))?;
                // Without proof, only the newest counts as the file.
                let newest = || of_inode.last().filter(|known| known.is(inode));
                of_inode.iter().find(|known| known.has_generation_of(inode)).or_else(newest).map(|known| known.key)
            }
            Identity::BuildId(id) => {
                let hosts = self.by_build_id.get(&(id, For::All));
                let own = self.by_build_id.get(&(id, For::User(user)));
                let known = hosts.filter(|(_, known)| **known == *path).or(own).or(hosts);
                known.map(|(key, _)| *key)
            }
        }
    }

    /// Returns the keys of all known files that may be one of these, of all users.
    pub(super) fn keys_among(&self, identities: impl Iterator<Item = Identity>) -> FxHashSet<ObjectKey> {
        // The default hasher, because build ids are hostile.
        let (mut build_ids, mut inodes) = (HashSet::new(), HashSet::new());
        for identity in identities {
            match identity {
                Identity::BuildId(id) => build_ids.insert(id),
                Identity::Inode(inode) => inodes.insert((inode.device, inode.number)),
            };
        }
        let by_build_id = self.by_build_id.iter().filter(|((id, _), _)| build_ids.contains(id)).map(|(_, (key, _))| *key);
        let by_inode = self.by_inode.iter().filter(|(inode, _)| inodes.contains(*inode)).flat_map(|(_, files)| files);
        by_build_id.chain(by_inode.map(|file| file.key)).collect()
    }

    /// Keeps the files whose key `stays` accepts, and removes all others.
    pub(super) fn retain(&mut self, stays: impl Fn(&ObjectKey) -> bool) {
        self.by_build_id.retain(|_, (key, _)| stays(key));
        self.by_inode.retain(|_, of_inode| {
            of_inode.retain(|known| stays(&known.key));
            !of_inode.is_empty()
        });
    }

    /// Notes that events were lost. A mapping that is read from `/proc` from now on may be younger than the known files.
    pub(super) fn events_were_lost(&mut self) {
        self.by_inode.values_mut().flatten().for_each(|known| known.is_certain = false);
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
        let known = |inode, build_id, is_hosts, path: &str| KnownFile {
            key: key(inode),
            modified: None,
            build_id,
            users: For::All,
            is_hosts,
            path: path.into(),
        };
        files.insert(known(1, Some(id), true, "/lib/libc.so.6"), root);
        files.insert(known(2, Some(id), false, "/home/alice/libc.so.6"), alice);
        files.insert(known(3, None, false, "/home/alice/other"), alice);
        let by_id = |path: &str, user| files.key_of(path, Identity::BuildId(id), user);
        assert_eq!(by_id("/lib/libc.so.6", root), Some(key(1)));
        assert_eq!(by_id("/lib/libc.so.6", alice), Some(key(1)));
        assert_eq!(by_id("/home/alice/libc.so.6", alice), Some(key(2)));
        assert_eq!(by_id("/home/alice/libc.so.6", root), Some(key(1)));
        assert_eq!(by_id("/home/alice/libc.so.6", bob), Some(key(1)));
        let by_inode = |number| Identity::Inode(Inode { device: rustix::fs::makedev(8, 1), number, generation: None });
        assert_eq!(files.key_of("/anything", by_inode(3), bob), Some(key(3)));
        let among = |identities: &[Identity]| {
            let mut inodes: Vec<u64> = files.keys_among(identities.iter().copied()).into_iter().map(|key| key.inode).collect();
            inodes.sort_unstable();
            inodes
        };
        assert_eq!(among(&[Identity::BuildId(id)]), [1, 2], "of all users");
        assert_eq!(among(&[by_inode(3), by_inode(9)]), [3]);
        files.retain(|known| known.inode != 1);
        assert_eq!(files.key_of("/lib/libc.so.6", Identity::BuildId(id), root), None);
        assert_eq!(files.key_of("/lib/libc.so.6", by_inode(1), root), None);
        assert_eq!(files.key_of("/home/alice/libc.so.6", Identity::BuildId(id), alice), Some(key(2)));
    }

    #[test]
    fn a_later_file_with_the_same_inode_is_another_one() {
        let modified = Some((5, 6));
        let key = ObjectKey { inode: 3, device: 8 << 20 | 1, generation: content(7, (5, 6)) };
        let mut files = Files::default();
        let add = |files: &mut Files| {
            files.insert(
                KnownFile { key, modified, build_id: None, users: For::All, is_hosts: false, path: "/x".into() },
                UserId(1),
            );
        };
        let of = |files: &Files, generation| {
            let inode = Inode { device: rustix::fs::makedev(8, 1), number: 3, generation };
            files.key_of("/x", Identity::Inode(inode), UserId(1))
        };
        add(&mut files);
        assert_eq!([of(&files, Some(7)), of(&files, Some(8)), of(&files, None)], [Some(key), None, Some(key)]);
        files.events_were_lost();
        assert_eq!([of(&files, Some(7)), of(&files, None)], [Some(key), None]);
        add(&mut files);
        assert_eq!(of(&files, None), Some(key));
        for generation in 8..11 {
            let key = ObjectKey { generation: content(generation, (5, 6)), ..key };
            files.insert(
                KnownFile { key, modified, build_id: None, users: For::All, is_hosts: false, path: "/x".into() },
                UserId(1),
            );
        }
        let newest = ObjectKey { generation: content(10, (5, 6)), ..key };
        assert_eq!([of(&files, Some(7)), of(&files, None)], [Some(key), Some(newest)], "what waits finds the file before");
        files.retain(|known| *known != newest);
        assert_eq!(of(&files, Some(10)), None);
        for generation in 20..24 {
            let key = ObjectKey { generation: content(generation, (5, 6)), ..key };
            files.insert(
                KnownFile { key, modified, build_id: None, users: For::All, is_hosts: false, path: "/x".into() },
                UserId(1),
            );
        }
        assert_eq!(of(&files, Some(7)), None, "at most four are kept");
        let unopened = ObjectKey { generation: 1, ..key };
        let known =
            |key, modified| KnownFile { key, modified, build_id: None, users: For::All, is_hosts: false, path: "/x".into() };
        files.insert(known(unopened, None), UserId(1));
        let of_23 = ObjectKey { generation: content(23, (5, 6)), ..key };
        assert_eq!([of(&files, Some(23)), of(&files, Some(30))], [Some(of_23), Some(unopened)], "what is certain goes first");
        files.insert(known(key, modified), UserId(1));
        assert_eq!(of(&files, Some(30)), None, "one that was not opened counts only as the newest");
    }
}
