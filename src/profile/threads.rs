//! Who ran: a thread of a process under the names both had then.
//!
//! A thread that is renamed, or a process that calls exec, becomes a new row, so that a sample keeps the names of its time.

use rustc_hash::FxHashMap;

use super::ids::{LabelId, Tgid, ThreadIndex, Tid};

/// A thread as a sample saw it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Thread {
    /// The process.
    pub tgid: Tgid,
    /// The thread; equal to the process's number for the main thread.
    pub tid: Tid,
    /// The process's name: a label of kind `Process`.
    pub process: LabelId,
    /// The thread's own name: a label of kind `Process`.
    pub name: LabelId,
}

/// Rows of threads; grows until the store is compacted.
#[derive(Default)]
pub struct ThreadTable {
    rows: Vec<Thread>,
    ids: FxHashMap<Thread, u32>,
}

impl ThreadTable {
    /// The row of this thread, made if it is new.
    pub fn intern(&mut self, thread: Thread) -> ThreadIndex {
        let rows = &mut self.rows;
        let id = *self.ids.entry(thread).or_insert_with(|| {
            rows.push(thread);
            u32::try_from(rows.len() - 1).unwrap_or(u32::MAX)
        });
        ThreadIndex(id)
    }

    /// The row, or `None` for an index of another table.
    pub fn get(&self, index: ThreadIndex) -> Option<Thread> {
        self.rows.get(index.0 as usize).copied()
    }

    /// All rows in the order they were first seen.
    pub fn rows(&self) -> &[Thread] {
        &self.rows
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<Thread>() + self.ids.capacity() * (size_of::<Thread>() + 5)
    }
}
