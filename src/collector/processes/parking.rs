//! Samples that wait until their process is read.
//!
//! A sample waits at most for [`PATIENCE`]. Then it is taken without user frames, because the files of its code are not known. Almost
//! always the answer comes within the drain that took the sample. If it comes later, the sample keeps its time, but is stored after the
//! samples that came meanwhile.
//!
//! Bounds: waiting samples take at most 16 MB, those of root 8 MB, those of any other user 1 MB.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::super::Batch;
use super::super::reader::Answer;
use super::super::records::Record;
use super::super::resolve::Waits;
use super::ProcessTable;
use crate::profile::UserId;

/// Longest wait of a sample in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
/// Time for which a drain waits for answers to its questions, so that its samples need not wait for the next drain.
const AT_ONCE: Duration = Duration::from_millis(30);
/// Time for which the last drain of a run waits for answers.
const AT_THE_END: Duration = Duration::from_millis(300);
/// Most bytes of waiting samples: of all users, of root, and of any other user.
const MAX_BYTES: usize = 16 << 20;
const MAX_BYTES_OF_ROOT: usize = 8 << 20;
const MAX_BYTES_OF_USER: usize = 1 << 20;

/// A waiting sample.
struct Parked {
    record: Box<[u8]>,
    tgid: u32,
    user: UserId,
    /// The process's `life` and `changes` when the sample was taken. If one of them differs later, addresses may have another meaning.
    life: u64,
    changes: u64,
    until: u64,
}

/// The waiting samples, in the order in which they came.
#[derive(Default)]
pub(super) struct Parking {
    samples: VecDeque<Parked>,
    bytes: usize,
    of_user: FxHashMap<UserId, usize>,
    /// Number of samples that waited in vain or found no room to wait.
    pub(super) in_vain: u64,
    /// See [`Unread::cut`](super::Unread::cut).
    pub(super) cut: u64,
}

impl Parking {
    /// The processes of the waiting samples, with repetitions.
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

    /// Takes out all samples. The caller pushes those that go on waiting.
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
    /// Adds a sample to the batch, at once or when its process has been read.
    pub(crate) fn take(&mut self, record: &Record, bytes: &[u8], batch: &mut Batch) {
        self.prepare(record);
        self.place(record, bytes, batch);
    }

    /// The same for a prepared process.
    pub(super) fn place(&mut self, record: &Record, bytes: &[u8], batch: &mut Batch) {
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

    /// Applies answers, and adds samples to the batch that waited for them or have waited too long.
    ///
    /// `is_early` tells whether an event that is not applied yet begins another program in a process. Then the answer may be about that
    /// program, and is kept for the next drain.
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
            // Samples that waited come before the others of this drain, which are younger and already in order.
            batch.samples.sort_by_key(|sample| sample.time);
        }
    }

    /// Adds a sample that waited to the batch, or lets it wait on.
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

    /// Whether questions are waiting or being answered.
    #[cfg(test)]
    pub(crate) fn is_expecting(&self) -> bool {
        !self.parking.samples.is_empty() || self.reader.is_expecting()
    }

    /// Time for which a drain waits for answers, all rounds together.
    pub(crate) fn patience(is_last: bool) -> Duration {
        if is_last { AT_THE_END } else { AT_ONCE }
    }

    /// Returns the answers that have come. With `asked`, also waits for answers until `until`.
    pub(crate) fn answers(&mut self, asked: bool, until: Instant) -> Vec<Answer> {
        let mut answers = std::mem::take(&mut self.early);
        let patience = until.saturating_duration_since(Instant::now());
        answers.extend(if asked { self.reader.answers_within(patience) } else { self.reader.answers() });
        answers
    }
}
