//! Samples that wait until their process is read.
//!
//! A sample waits at most for [`PATIENCE`]. Then it is taken without user frames, because the files of its code are not known. The
//! answer almost always comes within the drain that took the sample. If it comes later, the sample keeps its time, but is stored after
//! the samples that came meanwhile.
//!
//! Bounds: waiting samples take at most 16 MB, those of root 8 MB, those of any other user 1 MB.

use std::time::{Duration, Instant};

use super::super::Batch;
use super::at_sample::Since;
use super::parked::Parked;
use super::reader::Answer;
use super::resolve::Waits;
use super::state::{Known, ProcessState};
use super::table::ProcessTable;
use crate::collector::wire::records::Record;

/// Longest wait of a sample in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
/// How long a drain waits for answers to its questions. It waits so that its samples need not wait for the next drain.
const AT_ONCE: Duration = Duration::from_millis(30);
/// How long the last drain of a run waits for answers.
const AT_THE_END: Duration = Duration::from_millis(300);
impl ProcessTable {
    /// Adds a sample to the batch, at once or when its process has been read.
    pub(crate) fn take(&mut self, record: &Record, bytes: &[u8], batch: &mut Batch) {
        self.prepare(record);
        self.place(record, bytes, batch);
    }

    /// Adds a sample whose process was forgotten while the sample waited. The sample keeps its kernel stack, and its process counts as not
    /// read.
    pub(crate) fn resolve_forgotten(&mut self, record: &Record, batch: &mut Batch) -> bool {
        let state = ProcessState { known: Known::Unread, user: record.uid, ..ProcessState::new(record.comm) };
        self.states.insert(record.tgid, Box::new(state));
        let is_done = self.resolve(record, batch, Waits::NoMore);
        self.states.remove(&record.tgid);
        is_done
    }

    /// Adds a sample of a prepared process to the batch, or lets it wait until its process is read.
    pub(super) fn place(&mut self, record: &Record, bytes: &[u8], batch: &mut Batch) {
        if self.resolve(record, batch, Waits::MayWait) {
            return;
        }
        let then = self.at_sample(record.tgid);
        let (tgid, user, until) = (record.tgid, record.uid, record.time.saturating_add(PATIENCE));
        if !self.parking.push(Parked { record: bytes.into(), tgid, user, then, until }) {
            self.parking.in_vain += 1;
            self.resolve(record, batch, Waits::NoMore);
        }
    }

    /// Applies answers. Adds to the batch the samples that waited for these answers, and samples that have waited too long.
    ///
    /// `is_early` returns whether an event that is not applied yet begins another program in a process. Then the answer may be about that
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
        self.forget_remapped();
        if batch.samples.len() > from {
            // Samples that waited come before the samples of this drain, which are younger and already in order.
            batch.samples.sort_by_key(|sample| sample.time);
        }
    }

    /// Adds a waiting sample to the batch, or lets it wait longer.
    fn release(&mut self, parked: Parked, now: u64, batch: &mut Batch) {
        let Some(record) = Record::parse(&parked.record) else { return };
        let since = self.since(&parked.then);
        let waits = match (&since, parked.until <= now) {
            (Since::Lost, _) => Waits::ForNothing,
            (_, true) => Waits::NoMore,
            (_, false) => Waits::MayWait,
        };
        let done = match since {
            Since::Remapped(mappings) => {
                self.resolve_as_it_was(&parked.then, Some(mappings), |table| table.resolve(&record, batch, waits))
            }
            Since::Unchanged | Since::Lost => self.resolve(&record, batch, waits),
        };
        if done {
            self.parking.in_vain += u64::from(waits != Waits::MayWait);
            if waits == Waits::NoMore {
                self.give_up(parked.tgid);
            }
        } else if !self.parking.push(parked) {
            self.parking.in_vain += 1;
        }
    }

    /// Whether any sample waits for an answer.
    pub(crate) fn is_sample_waiting(&self) -> bool {
        !self.parking.samples.is_empty()
    }

    /// Whether questions are waiting or being answered.
    #[cfg(test)]
    pub(crate) fn is_expecting(&self) -> bool {
        !self.parking.samples.is_empty() || self.reader.is_expecting()
    }

    /// Returns how long a drain waits for answers, all rounds together.
    pub(crate) fn patience(is_last: bool) -> Duration {
        if is_last { AT_THE_END } else { AT_ONCE }
    }

    /// Returns the answers that have come. With `waits`, also waits for answers until `until`.
    pub(crate) fn answers(&mut self, waits: bool, until: Instant) -> Vec<Answer> {
        let mut answers = std::mem::take(&mut self.early);
        let patience = until.saturating_duration_since(Instant::now());
        answers.extend(if waits { self.reader.answers_within(patience) } else { self.reader.answers() });
        answers
    }
}
