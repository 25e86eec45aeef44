//! Samples of threads that still wait. As long as the wait goes on, the stack stays the same, so the kernel sends only the time.
//!
//! Bounds: a record of each thread, [`MOST_BYTES`] in all. A record that was not used for [`FORGOTTEN`] goes when there is no room: the
//! thread waits no more.

use rustc_hash::FxHashMap;

use super::records::Record;

/// Most bytes that are kept: 20,000 stacks of 100 frames.
const MOST_BYTES: usize = 16 << 20;
/// A thread that waits is named once a second; less often if there are very many. Nanoseconds.
const FORGOTTEN: u64 = 60_000_000_000;

struct Kept {
    /// Its time was told last.
    used: u64,
    record: Box<[u8]>,
}

/// The last sample of each thread that waits.
#[derive(Default)]
pub(super) struct Asleep {
    of: FxHashMap<u32, Kept>,
    bytes: usize,
}

impl Asleep {
    /// Keeps the record of a thread that waits.
    pub(super) fn keep(&mut self, tid: u32, time: u64, record: &[u8]) {
        self.forget(tid);
        if self.bytes + record.len() > MOST_BYTES {
            self.of.retain(|_, kept| kept.used + FORGOTTEN > time);
            self.bytes = self.of.values().map(|kept| kept.record.len()).sum();
        }
        if self.bytes + record.len() <= MOST_BYTES {
            self.bytes += record.len();
            self.of.insert(tid, Kept { used: time, record: record.into() });
        }
    }

    fn forget(&mut self, tid: u32) {
        self.bytes -= self.of.remove(&tid).map_or(0, |kept| kept.record.len());
    }

    /// Returns the record of a thread whose wait goes on, with its new time.
    pub(super) fn repeated(&mut self, tid: u32, later: &[u8]) -> Option<(u64, Vec<u8>)> {
        let time = Record::time_of(later)?;
        let kept = self.of.get_mut(&tid)?;
        kept.used = time;
        Some((time, Record::repeated(&kept.record, later)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::wire::records::tests::record_bytes;

    #[test]
    fn a_wait_that_goes_on_has_its_stack_again_with_another_time_and_weight() {
        let mut asleep = Asleep::default();
        let first = record_bytes(10, 7, b"x", &[1], &[2, 3], 0);
        asleep.keep(7, 10, &first);
        let mut later = record_bytes(20, 7, b"", &[], &[], 0);
        later[64..72].copy_from_slice(&99u64.to_ne_bytes());
        let (time, bytes) = asleep.repeated(7, &later).unwrap();
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((time, record.time, record.weight), (20, 20, 99));
        assert_eq!((record.kernel().count(), record.user().count()), (1, 2));
        assert_eq!(asleep.repeated(8, &later), None);
    }

    #[test]
    fn records_of_threads_that_wait_no_more_make_room() {
        let mut asleep = Asleep::default();
        let large = vec![0; MOST_BYTES / 4];
        for tid in 0..4 {
            asleep.keep(tid, 1 + u64::from(tid) * FORGOTTEN / 2, &large);
        }
        asleep.keep(4, 2 * FORGOTTEN, &large);
        assert_eq!(asleep.bytes, MOST_BYTES / 4 * asleep.of.len());
        assert!(asleep.of.contains_key(&4) && !asleep.of.contains_key(&0));
        for tid in 5..10 {
            asleep.keep(tid, 2 * FORGOTTEN, &large);
        }
        assert!(asleep.bytes <= MOST_BYTES);
    }
}
