//! Samples that wait until their process was read.
//!
//! A sample waits at most for [`PATIENCE`]. Then it is taken as it is: where its code is, is unknown. Almost always the answer comes
//! within the drain that took the sample; a later one keeps its own time, but its place in the store is behind what came meanwhile.
//!
//! Bounds: 16 MB, of which root's samples have 8 and those of any other user 1.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::super::Batch;
use super::super::reader::Answer;
use super::super::records::Record;
use super::super::resolve::Waits;
use super::ProcessTable;
use crate::profile::UserId;

/// How long a sample waits.
const PATIENCE: u64 = 1_000_000_000;
/// How long a drain waits for answers to its own questions, so that its samples need not wait for the next one.
const AT_ONCE: Duration = Duration::from_millis(30);
/// The same at the end of a run, when there is no next one.
const AT_THE_END: Duration = Duration::from_millis(300);
/// Bytes of samples that wait.
const MAX_BYTES: usize = 16 << 20;
const MAX_BYTES_OF_ROOT: usize = 8 << 20;
const MAX_BYTES_OF_USER: usize = 1 << 20;

/// A sample that waits.
struct Parked {
    record: Box<[u8]>,
    tgid: u32,
    user: UserId,
    /// Of its process when it was taken: addresses mean something else in another life, and after a change.
    life: u64,
    changes: u64,
    until: u64,
}

/// The samples that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct Parking {
    samples: VecDeque<Parked>,
    bytes: usize,
    of_user: FxHashMap<UserId, usize>,
    /// Samples that waited in vain, or found no room to wait.
    pub(super) in_vain: u64,
    /// See [`Unread::cut`](super::Unread::cut).
    pub(super) cut: u64,
}

impl Parking {
    /// The processes of the samples.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.samples.iter().map(|parked| parked.tgid)
    }

    fn push(&mut self, parked: Parked) -> bool {
        let (bytes, limit) = (parked.cost(), if parked.user == UserId(0) { MAX_BYTES_OF_ROOT } else { MAX_BYTES_OF_USER });
        let of_user = self.of_user.entry(parked.user).or_default();
        if *of_user + bytes > limit || self.bytes + bytes > MAX_BYTES {
            return false;
        }
        *of_user += bytes;
        self.bytes += bytes;
        self.samples.push_back(parked);
        true
    }

    /// Takes all out; those that go on waiting are pushed again.
    fn take(&mut self) -> VecDeque<Parked> {
        self.bytes = 0;
        self.of_user.clear();
        std::mem::take(&mut self.samples)
    }
}

impl Parked {
    fn cost(&self) -> usize {
        self.record.len() + size_of::<Parked>() + 16
    }
}

impl ProcessTable {
    /// Adds a sample to the batch, at once or when its process was read.
    pub(crate) fn take(&mut self, record: &Record, bytes: &[u8], batch: &mut Batch) {
        self.prepare(record);
        if self.resolve(record, batch, Waits::MayWait) {
            return;
        }
        let (life, changes) = self.states.get(&record.tgid).map_or((0, 0), |state| (state.life, state.changes));
        let (tgid, user, until) = (record.tgid, record.uid, record.time.saturating_add(PATIENCE));
        if !self.parking.push(Parked { record: bytes.into(), tgid, user, life, changes, until }) {
            self.parking.in_vain += 1;
            self.resolve(record, batch, Waits::NoMore);
        }
    }

    /// Applies answers, and adds the samples that waited for them, or have waited long enough, to the batch.
    ///
    /// `is_early` tells whether events that are not applied yet begin another program of this process: then the answer may be about
    /// that, and is kept for the next drain.
    pub(crate) fn settle(&mut self, now: u64, answers: Vec<Answer>, batch: &mut Batch, is_early: impl Fn(u32) -> bool) {
        let any = !answers.is_empty();
        for answer in answers {
            if is_early(answer.question.tgid) {
                self.early.push(answer);
            } else {
                self.apply_answer(answer);
            }
        }
        let is_due = self.parking.samples.front().is_some_and(|parked| parked.until <= now);
        if self.parking.samples.is_empty() || !any && !is_due {
            return;
        }
        self.inherit_answers();
        let from = batch.samples.len();
        for parked in self.parking.take() {
            self.release(parked, now, batch);
        }
        if batch.samples.len() > from {
            // The other samples of this drain are younger, and in order among themselves.
            batch.samples.sort_by_key(|sample| sample.time);
        }
    }

    /// Adds a sample that waited to the batch, unless it is to go on waiting.
    fn release(&mut self, parked: Parked, now: u64, batch: &mut Batch) {
        let Some(record) = Record::parse(&parked.record) else { return };
        let state = self.states.get(&parked.tgid);
        let same = state.is_some_and(|state| (state.life, state.changes) == (parked.life, parked.changes));
        let waits = match (same, parked.until <= now) {
            (false, _) => Waits::ForNothing,
            (true, true) => Waits::NoMore,
            (true, false) => Waits::MayWait,
        };
        let done = self.resolve(&record, batch, waits);
        if done {
            self.parking.in_vain += u64::from(waits != Waits::MayWait);
            if waits == Waits::NoMore {
                self.give_up(parked.tgid);
            }
        } else if !self.parking.push(parked) {
            self.parking.in_vain += 1;
        }
    }

    /// Whether answers are on their way.
    #[cfg(test)]
    pub(crate) fn is_expecting(&self) -> bool {
        !self.parking.samples.is_empty() || self.reader.is_expecting()
    }

    /// How long a drain waits for answers, in all.
    pub(crate) fn patience(is_last: bool) -> Duration {
        if is_last { AT_THE_END } else { AT_ONCE }
    }

    /// The answers that are there; if questions were asked a moment ago, also those that come until then.
    pub(crate) fn answers(&mut self, asked: bool, until: Instant) -> Vec<Answer> {
        let mut answers = std::mem::take(&mut self.early);
        let patience = until.saturating_duration_since(Instant::now());
        answers.extend(if asked { self.reader.answers_within(patience) } else { self.reader.answers() });
        answers
    }
}
