//! Threads as samples saw them.
//!
//! A thread that is renamed, calls exec or moves to another cgroup becomes a new row, so that each sample keeps the names of its time.

use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use crate::profile::ids::{CgroupId, LabelId, Tgid, ThreadIndex, Tid};

/// A thread as a sample saw it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Thread {
    /// The process.
    pub tgid: Tgid,
    /// The thread; equal to the process's number for the main thread.
    pub tid: Tid,
    /// The process's name: a label of kind `Process`.
    pub process: LabelId,
    /// The thread's own name: a label of kind `Process`.
    pub name: LabelId,
    /// The cgroup it was in; 0 if that is not known.
    pub cgroup: CgroupId,
}

/// Rows of threads; grows until the store is compacted.
#[derive(Default)]
pub struct ThreadTable {
    rows: Vec<Thread>,
    index: HashTable<u32>,
}

fn hash(thread: &Thread) -> u64 {
    let mut hasher = FxHasher::default();
    thread.hash(&mut hasher);
    hasher.finish()
}

impl ThreadTable {
    /// Returns the row of this thread. Makes it if it is new. There are at most `u32::MAX` rows; after that, the last row is returned.
    pub fn intern(&mut self, thread: Thread) -> ThreadIndex {
        let wanted = hash(&thread);
        let same = |&id: &u32| self.rows.get(id as usize) == Some(&thread);
        if let Some(&found) = self.index.find(wanted, same) {
            return ThreadIndex(found);
        }
        let Ok(id) = u32::try_from(self.rows.len()) else { return ThreadIndex(u32::MAX - 1) };
        self.rows.push(thread);
        self.index.insert_unique(wanted, id, |&id| self.rows.get(id as usize).map_or(0, hash));
        ThreadIndex(id)
    }

    /// Keeps only the marked rows (`u32::MAX`), in their order. Leaves in `marks` the new number of each kept row.
    pub(crate) fn keep(&mut self, marks: &mut [u32]) {
        self.index = HashTable::new();
        let mut kept = 0;
        for id in 0..self.rows.len() {
            if let Some(mark) = marks.get_mut(id).filter(|mark| **mark == u32::MAX) {
                *mark = u32::try_from(kept).unwrap_or(u32::MAX);
                self.rows[kept] = self.rows[id];
                kept += 1;
            }
        }
        self.rows.truncate(kept);
        self.rows.shrink_to(kept + kept / 4);
        self.index.reserve(kept + kept / 4, |_| 0);
        for (id, thread) in (0..).zip(&self.rows) {
            self.index.insert_unique(hash(thread), id, |&id| self.rows.get(id as usize).map_or(0, hash));
        }
    }

    /// Changes the labels of each row.
    pub(crate) fn rename(&mut self, mut rename: impl FnMut(&mut LabelId)) {
        for row in &mut self.rows {
            rename(&mut row.process);
            rename(&mut row.name);
        }
        self.index.clear();
        for (id, thread) in (0..).zip(&self.rows) {
            self.index.insert_unique(hash(thread), id, |&id| self.rows.get(id as usize).map_or(0, hash));
        }
    }

    /// Returns the row, or `None` for an index of another table.
    pub fn get(&self, index: ThreadIndex) -> Option<Thread> {
        self.rows.get(index.0 as usize).copied()
    }

    /// Returns all rows, in the order they were first seen.
    pub fn rows(&self) -> &[Thread] {
        &self.rows
    }

    /// Returns the cgroups of all rows, each once.
    pub fn cgroups(&self) -> Vec<CgroupId> {
        let mut cgroups: Vec<CgroupId> = self.rows.iter().map(|row| row.cgroup).collect();
        cgroups.sort_unstable();
        cgroups.dedup();
        cgroups
    }

    /// Returns the bytes held: 24 for each row, and 5 for each slot of the index.
    pub fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<Thread>() + self.index.capacity() * 8 / 7 * 5
    }
}
