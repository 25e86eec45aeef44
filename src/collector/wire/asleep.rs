//! Samples of threads that still wait. As long as the wait goes on, the stack stays the same, so the kernel sends only the time.
//!
//! Bounds: a record of each thread, [`MOST_BYTES`] in all. If there is no room, the records go that were not used for [`FORGOTTEN`], because
//! their threads wait no more. If that is not enough, those of the user go who has most.

use rustc_hash::FxHashMap;

use super::records::Record;
use crate::profile::UserId;

/// Most bytes that are kept: 20,000 stacks of 100 frames.
const MOST_BYTES: usize = 16 << 20;
/// A thread that waits is named once a second; less often if there are very many. Nanoseconds.
const FORGOTTEN: u64 = 60_000_000_000;

struct Kept {
    /// Its time was told last.
    used: u64,
    user: UserId,
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
        let Some(user) = Record::user_of(record) else { return };
        self.of.remove(&tid).into_iter().for_each(|kept| self.bytes -= kept.record.len());
        if self.bytes + record.len() > MOST_BYTES {
            self.retain(|kept| kept.used + FORGOTTEN > time);
        }
        while self.bytes + record.len() > MOST_BYTES {
            let mut shares: FxHashMap<UserId, usize> = FxHashMap::default();
            self.of.values().for_each(|kept| *shares.entry(kept.user).or_default() += kept.record.len());
            *shares.entry(user).or_default() += record.len();
            match shares.into_iter().max_by_key(|(_, bytes)| *bytes) {
                Some((most, _)) if most != user => self.retain(|kept| kept.user != most),
                _ => return,
            }
        }
        self.bytes += record.len();
        self.of.insert(tid, Kept { used: time, user, record: record.into() });
    }

    fn retain(&mut self, mut wanted: impl FnMut(&Kept) -> bool) {
        self.of.retain(|_, kept| wanted(kept));
        self.bytes = self.of.values().map(|kept| kept.record.len()).sum();
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

    /// A record of this user, a quarter of all that is kept.
    fn large(user: u32) -> Vec<u8> {
        let mut bytes = vec![0; MOST_BYTES / 4];
        bytes[56..60].copy_from_slice(&user.to_ne_bytes());
        bytes
    }

    #[test]
    fn records_of_threads_that_wait_no_more_make_room() {
        let mut asleep = Asleep::default();
        for tid in 0..4 {
            asleep.keep(tid, 1 + u64::from(tid) * FORGOTTEN / 2, &large(1));
        }
        asleep.keep(4, 2 * FORGOTTEN, &large(1));
        assert_eq!(asleep.bytes, MOST_BYTES / 4 * asleep.of.len());
        assert!(asleep.of.contains_key(&4) && !asleep.of.contains_key(&0));
        for tid in 5..10 {
            asleep.keep(tid, 2 * FORGOTTEN, &large(1));
        }
        assert!(asleep.bytes <= MOST_BYTES);
    }

    #[test]
    fn a_user_with_many_threads_takes_no_room_from_others() {
        let mut asleep = Asleep::default();
        asleep.keep(1, 10, &large(1));
        for tid in 2..20 {
            asleep.keep(tid, 10, &large(2));
        }
        asleep.keep(30, 10, &large(3));
        assert!(asleep.of.contains_key(&1) && asleep.of.contains_key(&30));
        assert!(asleep.bytes <= MOST_BYTES);
    }
}
