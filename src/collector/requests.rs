//! Requests for unwind tables, on their way from the ring buffer to the workers.
//!
//! A request names a mapping of a process. The file of the mapping is known only after the process's mappings are read, and after the
//! events up to the request are applied. The process may be gone a moment later. So each request is made at once, while the process may
//! still be there. It is repeated when its events have been applied. Repeating costs one look-up if the table exists or is being made.

use std::collections::VecDeque;

use super::processes::table::ProcessTable;
use super::tables::Tables;
use super::wire::records::{ObjectKey, Wish};

/// Pauses before a request is repeated: nanoseconds after the first time.
const AGAIN: [u64; 2] = [120_000_000, 500_000_000];

/// Most requests that wait to be repeated, in each queue.
const MOST: usize = 4096;

/// Waiting requests.
#[derive(Default)]
pub(super) struct Requests {
    /// Requests that came before the mappings of their process were read: their files have no paths yet.
    early: Vec<Wish>,
    /// Requests to repeat, with the time: oldest first, one queue for each pause of [`AGAIN`].
    again: [VecDeque<(u64, Wish)>; 2],
}

impl Requests {
    /// Makes a request, or keeps it until its process is read.
    pub(super) fn make(&mut self, wish: Wish, now: u64, tables: Option<&Tables>, table: &mut ProcessTable) {
        if wish.key == ObjectKey::MOVED {
            return table.want_moved(wish.tgid, wish.start..wish.end, wish.user, now);
        }
        if wish.key == ObjectKey::CODE {
            return table.want_code(wish.tgid, wish.start, wish.user, now);
        }
        if !table.is_read(wish.tgid) {
            self.early.push(wish);
            return;
        }
        tables.into_iter().for_each(|tables| tables.wish(&wish, || table.paths_of(wish.tgid, wish.start)));
        for (queue, pause) in self.again.iter_mut().zip(AGAIN) {
            if queue.len() < MOST {
                queue.push_back((now + pause, wish));
            }
        }
    }

    /// Makes the requests that are due.
    pub(super) fn make_due(&mut self, now: u64, tables: Option<&Tables>, table: &mut ProcessTable) {
        let early = std::mem::take(&mut self.early);
        let due = self.again.iter_mut().flat_map(|queue| {
            let count = queue.partition_point(|(time, _)| *time <= now);
            queue.drain(..count).map(|(_, wish)| wish)
        });
        for wish in early.into_iter().chain(due) {
            tables.into_iter().for_each(|tables| tables.wish(&wish, || table.paths_of(wish.tgid, wish.start)));
        }
    }
}
