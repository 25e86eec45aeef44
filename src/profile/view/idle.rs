//! Threads that only wait for work: pools, daemons, timers. A picture of waits would show little else.
//!
//! A thread is idle if it spent [`IDLE_SHARE`] percent of the range in one place: at one stack, without the reason of the wait. So it ran
//! little, and had no other long waits. Only reasons of threads without work count: see [`WaitReason::may_be_idle`]. A thread that wants a
//! lock is not idle, however long it waits: see [`takes_a_lock`].
//!
//! ```text
//!  range       |---------------------------------------|
//!  thread 1    =====epoll_wait=====.======epoll_wait====    idle
//!  thread 2    ==read==..==futex====..==read===.==futex=    not idle: two places
//!  thread 3         ........====futex===================    from its first wait on: idle
//! ```
//!
//! If all threads that the target selects are idle, all are shown: a program that hangs is to be seen.

use crate::profile::FrameKind;
use crate::profile::ids::{StackId, ThreadIndex, Timestamp};
use crate::profile::names::reason::WaitReason;
use crate::profile::names::table::Names;
use crate::profile::store::profile::Profile;
use crate::profile::store::samples::Sample;
use crate::profile::view::timeline::SECOND;

use rustc_hash::FxHashMap;

/// Percent of its time that an idle thread spends in one place.
const IDLE_SHARE: u64 = 99;
/// An unfinished wait is told once a second, or once in two seconds if many threads sleep. Until then, a thread is as it was.
const TOLD_WITHIN: u64 = 3 * SECOND;
/// Time after which threads are judged again. If the answer changes, the view begins again.
const JUDGED_FOR: u64 = SECOND;

/// The idle threads, and the sums that decide.
#[derive(Default)]
pub(super) struct IdleThreads {
    /// Nanoseconds that a thread waited in a place. Only waits for a reason of idle threads.
    places: FxHashMap<(ThreadIndex, StackId), u64>,
    /// When each thread's first wait began.
    begun: FxHashMap<ThreadIndex, Timestamp>,
    /// The place of each stack that was seen; `None` if it is no wait that counts.
    place_of: FxHashMap<StackId, Option<StackId>>,
    /// The threads that are left out, as they were judged. In order.
    idle: Vec<ThreadIndex>,
    judged: Option<Timestamp>,
}

impl IdleThreads {
    /// Returns the state for a view that begins again: the judgement stays, the sums do not.
    pub(super) fn anew(self) -> IdleThreads {
        IdleThreads { idle: self.idle, judged: self.judged, ..IdleThreads::default() }
    }

    /// Whether the thread is idle, as it was judged last.
    pub(super) fn has(&self, thread: ThreadIndex) -> bool {
        self.idle.binary_search(&thread).is_ok()
    }

    /// Returns the threads that are idle.
    pub(super) fn threads(&self) -> &[ThreadIndex] {
        &self.idle
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.places.capacity() * (size_of::<((ThreadIndex, StackId), u64)>() + 1)
            + self.begun.capacity() * (size_of::<(ThreadIndex, Timestamp)>() + 1)
            + self.place_of.capacity() * (size_of::<(StackId, Option<StackId>)>() + 1)
            + size_of_val(self.idle.as_slice())
    }

    /// Adds a wait, or takes it back.
    pub(super) fn count(&mut self, profile: &Profile, names: &Names, sample: &Sample, is_added: bool) {
        if is_added {
            let begin = Timestamp(sample.time.0.saturating_sub(sample.weight));
            let begun = self.begun.entry(sample.thread).or_insert(begin);
            *begun = begin.min(*begun);
        }
        let place = *self.place_of.entry(sample.stack).or_insert_with(|| place(profile, names, sample.stack));
        let Some(key) = place.map(|place| (sample.thread, place)) else { return };
        let sum = self.places.entry(key).or_default();
        *sum = if is_added { sum.saturating_add(sample.weight) } else { sum.saturating_sub(sample.weight) };
        if *sum == 0 {
            self.places.remove(&key);
        }
    }

    /// Whether threads are to be judged again.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.judged.is_none_or(|judged| now.since(judged) >= JUDGED_FOR)
    }

    /// Judges threads by a range, and returns whether the answer changed. `last` returns the end of a thread's last known wait, or `None` if it
    /// has no wait there, or the target does not select it.
    pub(super) fn judge(
        &mut self,
        (from, to): (Timestamp, Timestamp),
        now: Timestamp,
        mut last: impl FnMut(ThreadIndex) -> Option<Timestamp>,
    ) -> bool {
        self.judged = Some(now);
        let mut longest: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
        for ((thread, _), sum) in &self.places {
            let longest = longest.entry(*thread).or_default();
            *longest = (*longest).max(*sum);
        }
        let (mut idle, mut others) = (Vec::new(), false);
        for (thread, begun) in &self.begun {
            let Some(last) = last(*thread) else { continue };
            let end = if to.since(last) <= TOLD_WITHIN { last.min(to) } else { to };
            let time = end.since(from.max(*begun));
            let waited = longest.get(thread).copied().unwrap_or(0);
            if time > 0 && u128::from(waited) * 100 >= u128::from(time) * u128::from(IDLE_SHARE) {
                idle.push(*thread);
            } else {
                others = true;
            }
        }
        if !others {
            idle.clear();
        }
        idle.sort_unstable();
        let changed = idle != self.idle;
        self.idle = idle;
        changed
    }
}

/// Returns the place of a wait that counts: its stack without the reason.
fn place(profile: &Profile, names: &Names, stack: StackId) -> Option<StackId> {
    let (place, innermost) = profile.stacks.split(stack)?;
    let mut reason = None;
    names.labels_of(innermost, |label| {
        reason = names
            .labels
            .get(label)
            .filter(|label| label.kind == FrameKind::Wait)
            .and_then(|label| WaitReason::named(&label.name));
    });
    let reason = reason.filter(|reason| reason.may_be_idle())?;
    let wants_a_lock = || {
        profile.stacks.frames(place).any(|frame| {
            let mut found = false;
            names.labels_of(frame, |label| found |= takes_a_lock(names.labels.name(label)));
            found
        })
    };
    (reason != WaitReason::Lock || !wants_a_lock()).then_some(place)
}

/// Ends of names of functions that wait until a lock is free, in C, C++, Rust, Go, Python, Java and the kernel. A thread that waits for a
/// condition or a semaphore is in another function.
const LOCKING: [&str; 17] = [
    "mutex_lock",
    "mutex_timedlock",
    "mutex_clocklock",
    "mutex_cond_lock",
    "lll_lock_wait",
    "lll_lock_wait_private",
    "rwlock_rdlock",
    "rwlock_wrlock",
    "lock_contended",
    "read_contended",
    "write_contended",
    "lock_slow",
    "lock_shared_slow",
    "lock_exclusive_slow",
    ".lockSlow",
    "take_gil",
    "lock_inode_wait",
];

/// Whether a function with this name waits for a lock.
fn takes_a_lock(name: &str) -> bool {
    // Without parameters, and without the version of a symbol.
    let name = name.split(['(', '@']).next().filter(|name| !name.is_empty()).unwrap_or(name);
    LOCKING.iter().any(|end| name.ends_with(end)) || name == "ObjectMonitor::enter"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::view::builder::{Progress, ViewBuilder};
    use crate::profile::view::query::{Query, Target, TimeRange};
    use crate::profile::{EventSource, Limits, Tgid, Thread, Tid, Unit};
    use std::sync::Arc;

    const WAITS: EventSource = EventSource(3);
    const MS: u64 = SECOND / 1000;

    struct World {
        names: Arc<Names>,
        profile: Profile,
        view: ViewBuilder,
    }

    fn world(query: Query) -> World {
        let names = Arc::new(Names::default());
        let mut profile = Profile::new(Limits { window: u64::MAX, memory: 1 << 26 });
        profile.set_unit(WAITS, Unit::Nanoseconds);
        let view = ViewBuilder::new(Arc::clone(&names), Query { source: Some(WAITS), without_idle: true, ..query });
        World { names, profile, view }
    }

    impl World {
        /// A thread of process 1 waited until `to`, in milliseconds.
        fn waits(&mut self, tid: u32, (from, to): (u64, u64), path: &[&str], reason: WaitReason) {
            let label = |name: &str, kind| self.names.labels.intern(name, "", kind);
            let process = label("p", FrameKind::Process);
            let thread = Thread { tgid: Tgid(tid / 100), tid: Tid(tid), process, name: process, ..Thread::default() };
            let path = path.iter().map(|name| (*name, FrameKind::User)).chain([(reason.label(), FrameKind::Wait)]);
            let frames: Vec<_> = path.map(|(name, kind)| self.names.intern_named(label(name, kind))).collect();
            let sample = Sample {
                time: Timestamp(to * MS),
                weight: (to - from) * MS,
                source: WAITS,
                observations: 1,
                ..Sample::default()
            };
            self.profile.record(thread, frames, sample);
        }

        /// Returns the milliseconds that are shown, and the number of idle threads.
        fn shown(&mut self, now: u64) -> (u64, usize) {
            let now = Timestamp(now * MS);
            while self.view.update(&self.profile, now, 7) == Progress::More {}
            (self.view.tree().total() / MS, self.view.idle_threads())
        }
    }

    #[test]
    fn a_thread_that_waits_in_one_place_is_left_out_until_it_does_something_else() {
        let mut world = world(Query::default());
        for second in 0..10 {
            let (begin, end) = (second * 1000, second * 1000 + 1000);
            world.waits(100, (begin, end - 5), &["main", "accept"], WaitReason::Network);
            // A worker that is busy half of the time, and one that waits in two places.
            world.waits(101, (begin, end - 500), &["run", "take"], WaitReason::Lock);
            world.waits(102, (begin, end - 300), &["run", "take"], WaitReason::Lock);
            world.waits(102, (end - 300, end), &["run", "fetch"], WaitReason::Network);
        }
        assert_eq!(world.shown(10_000), (15_000, 1));
        // It does something.
        world.waits(100, (10_500, 11_000), &["main", "accept"], WaitReason::Network);
        world.waits(101, (10_000, 11_000), &["run", "take"], WaitReason::Lock);
        assert_eq!(world.shown(11_000), (26_450, 0));
        // All idle again, from then on.
        world.view.set_query(Query { range: TimeRange::Last(5 * SECOND), ..world.view.query().clone() });
        for second in 11..20 {
            let (begin, end) = (second * 1000, second * 1000 + 1000);
            world.waits(101, (begin, end - 500), &["run", "take"], WaitReason::Lock);
            world.waits(100, (begin, end), &["main", "accept"], WaitReason::Network);
        }
        assert_eq!(world.shown(20_000), (2_500, 1));
        world.view.set_query(Query { without_idle: false, ..world.view.query().clone() });
        assert_eq!(world.shown(20_000), (8_500, 0));
    }

    #[test]
    fn waits_for_a_disk_or_a_lock_are_never_those_of_an_idle_thread() {
        let mut world = world(Query::default());
        world.waits(100, (0, 9_990), &["main", "read"], WaitReason::Disk);
        world.waits(101, (0, 9_990), &["run", "pthread_mutex_lock", "__lll_lock_wait"], WaitReason::Lock);
        world.waits(102, (0, 9_990), &["run", "std::sys::sync::mutex::futex::Mutex::lock_contended"], WaitReason::Lock);
        world.waits(103, (0, 9_990), &["run", "pthread_cond_wait@@GLIBC_2.3.2"], WaitReason::Lock);
        assert_eq!(world.shown(10_000), (29_970, 1));
    }

    #[test]
    fn where_all_threads_are_idle_all_are_shown() {
        let of_process = |tgid| Target { tgids: vec![Tgid(tgid)], ..Target::default() };
        let mut world = world(Query { target: of_process(1), ..Query::default() });
        world.waits(100, (0, 10_000), &["main", "join"], WaitReason::Lock);
        world.waits(101, (0, 10_000), &["run", "take"], WaitReason::Lock);
        world.waits(200, (0, 3_000), &["work"], WaitReason::Disk);
        assert_eq!(world.shown(10_000), (20_000, 0));
        world.view.set_query(Query { target: Target::default(), ..world.view.query().clone() });
        assert_eq!(world.shown(10_000), (3_000, 2));
    }

    #[test]
    fn ids_that_change_make_no_difference() {
        let mut world = world(Query::default());
        let limits = Limits { window: 10 * SECOND, memory: 1 << 26 };
        world.profile = Profile::new(limits);
        world.profile.set_unit(WAITS, Unit::Nanoseconds);
        for second in 0..3000u64 {
            let (begin, end) = (second * 1000, second * 1000 + 1000);
            // Threads that come and go, before one that stays.
            world.waits(1000 + second as u32, (begin, end - 900), &["work"], WaitReason::Disk);
            world.waits(100, (begin, end), &["main", "accept"], WaitReason::Network);
            if second % 500 == 499 {
                world.profile.trim(Timestamp(end * MS));
                world.profile.compact();
                assert_eq!(world.shown(end), (1_000, 1), "after {second} s");
            }
        }
    }
}
