//! The samples of a run, and the tables that they point into. Memory is bounded twice: by age (`window`) and by bytes (`memory`). Dropped
//! samples are counted. Names count against the same bytes: if there are more names, fewer samples are kept.

use crate::profile::ids::Id;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::alike::Alike;
use super::capabilities::Capabilities;
use super::clock::Clock;
use super::held::Held;
use super::samples::{Sample, SampleStore};
use super::stacks::StackTable;
use super::threads::{Thread, ThreadTable};
use crate::profile::ids::{EventSource, FrameId, StackId, ThreadIndex, Timestamp, UserId};
use crate::profile::names::table::Names;
use crate::profile::store::events::EventStatus;
use crate::profile::unit::Unit;

/// Limits of what a profile may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Samples older than this are dropped: nanoseconds.
    pub window: u64,
    /// Bytes of samples, stacks, threads, names and symbol tables together.
    pub memory: usize,
}

impl Default for Limits {
    /// Returns ten minutes and 256 MB.
    fn default() -> Self {
        Limits { window: 600_000_000_000, memory: 256_000_000 }
    }
}

impl Limits {
    /// No limits: files keep all samples.
    pub const NONE: Limits = Limits { window: u64::MAX, memory: usize::MAX };

    /// Returns how much of the memory symbol tables and debug information may take. 48 MB name everything on a busy machine.
    pub fn tables(&self) -> usize {
        (self.memory / 4).min(48 << 20)
    }

    /// Returns how much of the memory [`Names`] may take. Names are freed only now and then, so samples need a part that names cannot take.
    /// Both parts have to be large for the picture to be fine. (256 MB hold about 450,000 addresses and 2 million samples in 5 million
    /// nodes.)
    pub fn names(&self) -> usize {
        self.memory / 2
    }
}

/// Samples that are missing from the store, counted by reason since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The kernel's ring buffer was full.
    pub ring_full: u64,
    /// Mapping, fork and exit events that the kernel could not deliver. Frames may be unnamed because of them.
    pub events_lost: u64,
    /// Older than the window.
    pub aged_out: u64,
    /// Dropped because memory was full.
    pub over_memory: u64,
    /// Malformed records from the kernel.
    pub malformed: u64,
    /// Addresses and names that were refused because names had filled their memory. No sample is lost by it, but the function is shown as
    /// `[more addresses of …]`.
    pub coarse: u64,
    /// The user with the most refused names, and their number: this user's share of the memory for names is used up.
    pub coarse_most: Option<(UserId, u64)>,
}

/// Samples, and the tables that they point into.
#[derive(Default)]
pub struct Profile {
    /// The samples.
    pub samples: SampleStore,
    /// Their stacks.
    pub stacks: StackTable,
    /// Their threads.
    pub threads: ThreadTable,
    /// Samples and names that are missing.
    pub losses: Losses,
    /// The counts of each source of events, read after the newest sample was.
    pub events: Arc<[EventStatus]>,
    limits: Limits,
    capabilities: Capabilities,
    /// The units of sources whose unit is not the usual one.
    units: FxHashMap<EventSource, Unit>,
    clock: Option<Clock>,
    /// All samples from before this moment are in the store.
    complete_to: Option<Timestamp>,
    epoch: u64,
    stacks_at_compaction: usize,
    threads_at_compaction: usize,
    /// The number of the first sample.
    first_at_compaction: u64,
    names: Option<Arc<Names>>,
    /// See [`Profile::set_aside`].
    aside: usize,
    /// See [`Profile::alike`].
    alike: OnceLock<Option<Alike>>,
    aside_since: Option<Timestamp>,
    /// See [`Profile::set_beside`].
    tables: usize,
    known: usize,
}

impl Profile {
    /// Returns an empty profile for samples of a live run, within `limits`. Names are not counted.
    pub fn new(limits: Limits) -> Profile {
        Profile { limits, capabilities: Capabilities::LIVE, ..Profile::default() }
    }

    /// Returns an empty profile without limits, for samples that have all been taken. It drops none of them.
    pub fn fixed(capabilities: Capabilities) -> Profile {
        Profile { limits: Limits::NONE, capabilities: Capabilities { live: false, ..capabilities }, ..Profile::default() }
    }

    /// Returns an empty profile that shares `limits` with these names. The names' own bound must be [`Limits::names`].
    pub fn beside(names: &Arc<Names>, limits: Limits) -> Profile {
        Profile { names: Some(Arc::clone(names)), ..Profile::new(limits) }
    }

    /// Returns the name tables of its ids; `None` if they never change.
    pub fn names(&self) -> Option<&Arc<Names>> {
        self.names.as_ref()
    }

    /// Whether its ids belong to these tables.
    pub(crate) fn is_named_by(&self, names: &Arc<Names>) -> bool {
        self.names.as_ref().is_none_or(|own| Arc::ptr_eq(own, names))
    }

    /// Changes the ids of frames and labels to ids of other tables. Stack and thread ids stay, but views must start again.
    pub(crate) fn rename(&mut self, names: &Arc<Names>, rename: &mut dyn FnMut(Id<'_>)) {
        self.stacks.rename(|frame| rename(Id::Frame(frame)));
        self.threads.rename(|label| rename(Id::Label(label)));
        if self.names.is_some() {
            self.names = Some(Arc::clone(names));
        }
        self.epoch += 1;
    }

    /// Returns a number that changes whenever stack and thread ids are given out anew. Views must start again then.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the questions that it can answer.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Sets the questions that it can answer, once a reader knows what a file tells.
    pub fn set_capabilities(&mut self, capabilities: Capabilities) {
        self.capabilities = capabilities;
    }

    /// Sets the unit of this source's samples.
    pub fn set_unit(&mut self, source: EventSource, unit: Unit) {
        if self.unit(source) != unit {
            self.units.insert(source, unit);
        }
    }

    /// Returns the unit of this source's samples. It is known before the first of them.
    pub fn unit(&self, source: EventSource) -> Unit {
        let usual = if [EventSource::CLOCK, EventSource::FILE].contains(&source) { Unit::Samples } else { Unit::Events };
        self.units.get(&source).copied().unwrap_or(usual)
    }

    /// Sets how samples of the clock are taken.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// Returns how samples of the clock are taken, if that is known.
    pub fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// Notes that all samples from before this moment are in the store.
    pub fn set_complete_to(&mut self, at: Timestamp) {
        self.complete_to = Some(at);
    }

    /// Notes that sampling has ended.
    pub fn end_clock(&mut self, at: Timestamp) {
        self.clock = self.clock.map(|clock| Clock { until: clock.until.or(Some(at)), ..clock });
    }

    /// Returns the span of time, as of `now`, with all its samples in the store. It begins with the oldest sample if older samples were
    /// dropped.
    pub fn sampled(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let clock = self.clock?;
        let has_let_go = self.losses.aged_out + self.losses.over_memory > 0;
        let oldest = self.samples.first_time().filter(|_| has_let_go).unwrap_or_default();
        let window = Timestamp(now.0.saturating_sub(self.limits.window));
        let complete = self.complete_to.unwrap_or(now);
        Some((clock.since.max(oldest).max(window), clock.until.unwrap_or(complete).min(now)))
    }

    /// Returns the nanoseconds before its time that a sample covers. It is 0 for events.
    pub fn covers(&self, sample: &Sample) -> u64 {
        match self.unit(sample.source) {
            Unit::Nanoseconds => sample.weight,
            _ => self.clock.filter(|_| sample.source == EventSource::CLOCK).map_or(0, |clock| clock.period),
        }
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the bytes held by samples, stacks, threads, names and symbol tables, and by the data kept beside them.
    pub fn memory(&self) -> usize {
        self.samples.memory()
            + self.stacks.memory()
            + self.threads.memory()
            + self.names.as_ref().map_or(0, |names| names.memory())
            + self.aside
            + self.alike_memory()
            + self.tables.min(self.limits.tables())
            + self.known.min(self.limits.memory / 8)
    }

    /// Returns the bytes held, by purpose, without limits and without trees.
    pub fn held(&self) -> Held {
        Held {
            samples: self.samples.memory() + self.stacks.memory() + self.threads.memory() + self.aside + self.alike_memory(),
            names: self.names.as_ref().map_or(0, |names| names.memory()),
            tables: self.tables,
            known: self.known,
            trees: 0,
        }
    }

    /// Sets the number of bytes that the baseline holds. They count as held. `since` is the time of the baseline's oldest sample.
    pub fn set_aside(&mut self, bytes: usize, since: Option<Timestamp>) {
        (self.aside, self.aside_since) = (bytes, since);
    }

    /// Returns the time of the oldest sample in the store or in the baseline, or else `now`. No sample needs processes that ended before
    /// it.
    pub fn oldest(&self, now: Timestamp) -> Timestamp {
        let first = self.samples.first_time().unwrap_or(now);
        self.aside_since.map_or(first, |since| since.min(first))
    }

    /// Sets the number of bytes held beside the profile: by symbol tables and debug information (`tables`), and by facts about processes
    /// and the kernel (`known`). They count as held.
    ///
    /// The first counts at most as [`Limits::tables`]: an object's tables may need more while they are in use, and this takes no room from
    /// samples. The second counts at most as an eighth of the memory; its owner bounds it.
    pub fn set_beside(&mut self, tables: usize, known: usize) {
        (self.tables, self.known) = (tables, known);
    }

    /// Drops samples that are too old or too many as of `now`. To be called about once a second.
    pub fn trim(&mut self, now: Timestamp) {
        let too_old = now.0.saturating_sub(self.limits.window);
        while self.samples.sealed.front().and_then(|chunk| chunk.last()).is_some_and(|last| last.time.0 < too_old) {
            self.losses.aged_out += self.samples.drop_oldest_chunk() as u64;
        }
        if self.has_many_unused() {
            self.compact();
        }
        // A tenth is left for bytes that are not counted: free memory that the allocator keeps while names and chunks of samples come and
        // go.
        if self.memory() > self.limits.memory / 10 * 9 {
            // First removes threads and stacks of dropped samples. If that is not enough, drops a quarter of the samples, so that this is
            // rare.
            self.compact();
            if self.memory() < self.limits.memory / 10 * 8 {
                return;
            }
            let goal = self.samples.sealed.len().div_ceil(4);
            for _ in 0..goal {
                self.losses.over_memory += self.samples.drop_oldest_chunk() as u64;
            }
            self.compact();
        }
    }

    /// Whether threads and stacks that no sample needs may take so much memory that it is worth to build all views again.
    ///
    /// Less is enough once as many samples have gone since the last compaction as there are now, which takes a window. So the tables stay
    /// in proportion to the samples, and views are rarely built again.
    fn has_many_unused(&self) -> bool {
        let (threads, stacks) = (self.threads.rows().len(), self.stacks.len());
        let gone = self.samples.first() - self.first_at_compaction;
        if gone >= self.samples.len() as u64 {
            let many = |now: usize, before: usize, few: usize| now > before / 2 * 3 + few;
            return many(threads, self.threads_at_compaction, 1 << 10) || many(stacks, self.stacks_at_compaction, 1 << 13);
        }
        let many = |now: usize, before: usize| now > 2 * before.max(1 << 14);
        many(threads, self.threads_at_compaction)
            || self.losses.aged_out > 0 && many(stacks, self.stacks_at_compaction.max(1 << 16))
    }

    /// Returns the groups of samples that count alike, if all samples have come and groups save time.
    pub(crate) fn alike(&self) -> Option<&Alike> {
        if self.capabilities.live {
            return None;
        }
        let alike = self.alike.get_or_init(|| Alike::of(&self.samples)).as_ref();
        alike.filter(|alike| alike.of.len() == self.samples.len())
    }

    fn alike_memory(&self) -> usize {
        self.alike.get().and_then(Option::as_ref).map_or(0, Alike::memory)
    }

    /// Keeps only the table entries that samples still point to, in the same memory. All stack and thread ids change.
    pub fn compact(&mut self) {
        let mut stacks = vec![0; self.stacks.len()];
        let mut threads = vec![0; self.threads.rows().len()];
        for sample in self.samples.slices_from(0).flatten() {
            for (marks, id) in [(&mut stacks, sample.stack.0), (&mut threads, sample.thread.0)] {
                if let Some(mark) = marks.get_mut(id as usize) {
                    *mark = u32::MAX;
                }
            }
        }
        self.stacks.keep(&mut stacks);
        self.threads.keep(&mut threads);
        let now = |marks: &[u32], id: u32| marks.get(id as usize).copied().unwrap_or(0);
        self.samples.for_each_mut(|sample| {
            sample.stack = StackId(now(&stacks, sample.stack.0));
            sample.thread = ThreadIndex(now(&threads, sample.thread.0));
        });
        self.epoch += 1;
        self.stacks_at_compaction = self.stacks.len();
        self.threads_at_compaction = self.threads.rows().len();
        self.first_at_compaction = self.samples.first();
    }

    /// Interns a thread and a stack and stores the sample; for sources that have no ids yet.
    pub fn record(&mut self, thread: Thread, frames_root_first: impl IntoIterator<Item = FrameId>, sample: Sample) {
        let thread = self.threads.intern(thread);
        let stack = self.stacks.intern(frames_root_first);
        self.samples.push(Sample { thread, stack, ..sample });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ids::{LabelId, Tgid, Tid};

    fn profile_of(count: u64, limits: Limits) -> Profile {
        let mut profile = Profile::new(limits);
        let thread = Thread { tgid: Tgid(1), tid: Tid(1), process: LabelId(0), name: LabelId(0), ..Thread::default() };
        for i in 0..count {
            let frames = [1, 2, 100 + u32::try_from(i % 50).unwrap_or(0)].map(FrameId);
            profile.record(thread, frames, Sample { time: Timestamp(i * 1_000), ..Sample::default() });
        }
        profile
    }

    #[test]
    fn slices_from_any_number_hold_the_rest_in_order() {
        let profile = profile_of(5000, Limits::NONE);
        for from in [0u64, 1, 1023, 1024, 1025, 4999, 5000] {
            let times: Vec<u64> = profile.samples.slices_from(from).flatten().map(|sample| sample.time.0).collect();
            assert_eq!(times, (from..5000).map(|i| i * 1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_older_than_the_window_goes_and_is_counted() {
        let mut profile = profile_of(5000, Limits { window: 1_000_000, memory: usize::MAX });
        profile.trim(Timestamp(5_000_000));
        assert_eq!(profile.losses.aged_out, 3072);
        assert_eq!(profile.samples.first(), 3072);
        assert_eq!(profile.samples.end(), 5000);
        assert_eq!(profile.samples.get(3072).map(|sample| sample.time.0), Some(3_072_000));
        assert!(profile.samples.get(3071).is_none());
        let now = Timestamp(6_000_000);
        assert_eq!(profile.oldest(now), Timestamp(3_072_000));
        profile.set_aside(100, Some(Timestamp(7_000)));
        assert_eq!(profile.oldest(now), Timestamp(7_000));
        assert_eq!(Profile::default().oldest(now), now);
    }

    #[test]
    fn memory_is_bounded_and_stacks_survive_compaction() {
        let mut profile = profile_of(20_000, Limits { window: u64::MAX, memory: 300_000 });
        let frames = |profile: &Profile| -> Vec<Vec<FrameId>> {
            let samples = profile.samples.slices_from(18_000).flatten();
            samples.map(|sample| profile.stacks.frames(sample.stack).collect()).collect()
        };
        let before = frames(&profile);
        let epoch = profile.epoch();
        while profile.memory() > 300_000 {
            profile.trim(Timestamp(0));
        }
        assert!(profile.losses.over_memory > 0);
        assert_ne!(profile.epoch(), epoch);
        assert_eq!(frames(&profile), before);
    }

    #[test]
    fn a_stream_of_short_threads_holds_the_rows_of_two_windows_at_most() {
        const SECOND: u64 = 1_000_000_000;
        let mut profile = Profile::new(Limits { window: 60 * SECOND, memory: usize::MAX });
        let (mut most, mut at_first) = (0, 0);
        for second in 0..1200 {
            for nth in 0..40 {
                let id = second * 40 + nth;
                let thread = Thread { tgid: Tgid(id), tid: Tid(id), ..Thread::default() };
                let time = Timestamp(u64::from(second) * SECOND);
                profile.record(thread, [FrameId(1), FrameId(id)], Sample { time, ..Sample::default() });
            }
            profile.trim(Timestamp(u64::from(second) * SECOND));
            let rows = profile.threads.rows().len();
            // Samples go in chunks of 1,024. So a window has some more.
            assert!(rows < 2 * (60 * 40 + 2 * 1024), "{rows} rows after {second} s");
            most = most.max(profile.stacks.memory() + profile.threads.memory());
            if second == 300 {
                at_first = most;
            }
        }
        assert_eq!(most, at_first, "it does not grow after two windows");
        let epoch = profile.epoch();
        assert!((8..=20).contains(&epoch), "at most once a window: {epoch}");
    }
}
