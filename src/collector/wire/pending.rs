//! Records between the ring buffer and the process table: each waits until all CPUs' records up to its time have come.

use rustc_hash::FxHashMap;

use super::asleep::Asleep;
use super::records::{ObjectKey, Record, StackDump, Wish};
use super::script::Script;
use crate::unwind::Arch;

/// Most questions that wait. All others are among the requests.
const MAX_QUESTIONS: usize = 4096;

/// Records from the ring buffer that wait for their turn.
#[derive(Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    /// Time of each record, and its place in `bytes`.
    index: Vec<(u64, usize, usize)>,
    /// Requests for tables that samples lacked.
    wishes: Vec<Wish>,
    /// See [`take_questions`](Pending::take_questions).
    questions: Vec<Wish>,
    /// Dumps, by the CPU and time of their samples.
    dumps: FxHashMap<(u32, u64), StackDump>,
    /// The last functions of an interpreter from each CPU, with the time of their sample, which comes next.
    scripts: FxHashMap<u32, (u64, Vec<u8>)>,
    asleep: Asleep,
    malformed: u64,
}

impl Pending {
    /// Adds a record as it came out of the ring buffer.
    pub(crate) fn push(&mut self, record: &[u8]) {
        if let Some(wish) = Wish::parse(record) {
            if wish.key == ObjectKey::MOVED && self.questions.len() < MAX_QUESTIONS {
                self.questions.push(wish);
            }
            return self.wishes.push(wish);
        }
        if let Some((cpu, time)) = Script::sample_of(record) {
            self.scripts.insert(cpu, (time, record.to_vec()));
            return;
        }
        if let Some(tid) = Record::sleeps_on(record) {
            match self.asleep.repeated(tid, record) {
                Some((time, bytes)) => {
                    self.index.push((time, self.bytes.len(), bytes.len()));
                    self.bytes.extend_from_slice(&bytes);
                }
                None => self.malformed += 1,
            }
            return;
        }
        match Record::time_of(record) {
            Some(time) => {
                let script = Some(record).filter(|record| Record::wants_script(record)).and_then(Record::cpu_of);
                let script = script.and_then(|cpu| self.scripts.remove(&cpu)).filter(|(of, _)| *of == time);
                let script = script.map(|(_, bytes)| bytes).unwrap_or_default();
                let from = self.bytes.len();
                self.bytes.extend_from_slice(record);
                self.bytes.extend_from_slice(&script);
                self.index.push((time, from, self.bytes.len() - from));
                if let Some(tid) = Record::asleep(record) {
                    self.asleep.keep(tid, time, self.bytes.get(from..).unwrap_or_default());
                }
            }
            None => self.malformed += 1,
        }
    }

    /// Adds a stack dump as it came out of the dumps' ring buffer.
    pub(crate) fn push_dump(&mut self, bytes: &[u8]) {
        match StackDump::parse(bytes, Arch::OWN.sp().0.into()) {
            Some(dump) => drop(self.dumps.insert(dump.of, dump)),
            None => self.malformed += 1,
        }
    }

    /// Takes the dumps of samples up to `watermark`.
    pub(crate) fn take_dumps(&mut self, watermark: u64) -> FxHashMap<(u32, u64), StackDump> {
        self.dumps.extract_if(|(_, time), _| *time <= watermark).collect()
    }

    /// Sorts the records by time. They are almost sorted already: CPUs take turns in the buffer.
    pub(crate) fn sort(&mut self) {
        self.index.sort_unstable();
    }

    /// Returns the records up to `watermark`, oldest first, with their times. Call `sort` first.
    pub(crate) fn until(&self, watermark: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let ready = self.index.partition_point(|(time, ..)| *time <= watermark);
        self.index.iter().take(ready).filter_map(|(time, from, length)| Some((*time, self.bytes.get(*from..from + length)?)))
    }

    /// Takes the requests of samples up to `watermark` that ask which code is in anonymous memory, oldest first. They are also among those of
    /// [`take_wishes`](Self::take_wishes), but a process that has just begun is known only when its sample is due.
    pub(crate) fn take_questions(&mut self, watermark: u64) -> Vec<Wish> {
        let mut due: Vec<Wish> = self.questions.extract_if(.., |wish| wish.time <= watermark).collect();
        due.sort_by_key(|wish| wish.time);
        due
    }

    /// Takes the requests for tables.
    pub(crate) fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    /// Drops the records that `until` returned.
    pub(crate) fn forget_until(&mut self, watermark: u64) {
        let ready = self.index.partition_point(|(time, ..)| *time <= watermark);
        let old = std::mem::take(&mut self.bytes);
        let index = std::mem::take(&mut self.index);
        for (time, from, length) in index.into_iter().skip(ready) {
            self.index.push((time, self.bytes.len(), length));
            self.bytes.extend_from_slice(old.get(from..from + length).unwrap_or_default());
        }
        if self.bytes.is_empty() {
            // Keeps the memory for later records.
            self.bytes = old;
            self.bytes.clear();
        }
    }

    /// Counts malformed records.
    pub(crate) fn malformed(&mut self, count: u64) {
        self.malformed += count;
    }

    /// Returns the number of malformed records so far.
    pub(crate) fn count_of_malformed(&self) -> u64 {
        self.malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::wire::records::tests::record_bytes;

    #[test]
    fn questions_come_in_the_order_of_time_up_to_the_watermark_and_with_the_requests_too() {
        let mut pending = Pending::default();
        for (time, generation) in [(30, 1u8), (10, 1), (20, 2), (50, 1)] {
            let mut bytes = vec![0; 64];
            (bytes[0], bytes[44], bytes[49]) = (time, generation, 255);
            assert!(Wish::parse(&bytes).is_some());
            pending.push(&bytes);
        }
        let times = |wishes: Vec<Wish>| wishes.into_iter().map(|wish| wish.time).collect::<Vec<_>>();
        assert_eq!(times(pending.take_wishes()), [30, 10, 20, 50]);
        assert_eq!(times(pending.take_questions(40)), [10, 30]);
        assert_eq!(times(pending.take_questions(60)), [50]);
        assert!(pending.take_questions(60).is_empty());
    }

    #[test]
    fn pending_records_come_in_the_order_of_time_up_to_the_watermark() {
        let mut pending = Pending::default();
        for time in [30, 10, 20, 40] {
            pending.push(&record_bytes(time, 1, b"x", &[], &[time], 0));
        }
        pending.push(b"short");
        pending.sort();
        let times = |pending: &Pending, until| pending.until(until).map(|(time, _)| time).collect::<Vec<_>>();
        assert_eq!(times(&pending, 25), [10, 20]);
        pending.forget_until(25);
        pending.push(&record_bytes(35, 1, b"x", &[], &[35], 0));
        pending.sort();
        assert_eq!(times(&pending, 100), [30, 35, 40]);
        let frames: Vec<u64> =
            pending.until(100).filter_map(|(_, bytes)| Some(Record::parse(bytes)?.user().next()?.address)).collect();
        assert_eq!(frames, [30, 35, 40]);
        assert_eq!(pending.malformed, 1);
    }
}
