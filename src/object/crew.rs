//! Workers that open files of processes, and may have to wait for them. The crew records which workers work or wait, and decides which may
//! begin.
//!
//! A file that answers late blocks the thread that opens it. So a worker that waits longer than [`PROMPT`] is left behind, and another
//! worker may begin in its place:
//!
//! ```text
//! begin(user) ─► works ──────────────────► end
//!                  └─ waits for 30 ms ─► left behind ─► has its answer ─► end
//! ```
//!
//! Bounds: among the workers that are not left behind, one is kept for root. No worker begins for a user while that user's files have left
//! [`MAX_LEFT_OF_USER`] workers behind, or files of all users but root have left [`MAX_LEFT_OF_OTHERS`]. Root has only its own bound,
//! [`MAX_LEFT_OF_ROOT`]. Workers that work already when a bound is reached may still be left behind, beyond the bound.
//!
//! [`io_timeout`](super::io_timeout) notes the waits of a thread in [`Waits`].

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::profile::UserId;

/// A worker that waits for this long is left behind. Files on a disk are opened in less than a millisecond, files of a network in a few
/// milliseconds.
pub const PROMPT: Duration = Duration::from_millis(30);

/// While files of one user other than root have left this many workers behind, none begins for that user.
pub const MAX_LEFT_OF_USER: usize = 4;
/// While files of all users but root have left this many workers behind, none begins for any of these users.
pub const MAX_LEFT_OF_OTHERS: usize = 24;
/// While files of root have left this many workers behind, none begins for root.
pub const MAX_LEFT_OF_ROOT: usize = 8;

const ROOT: UserId = UserId(0);

/// Whether a thread waits for a file, since when, and how long it waited before: the sum of waits that [`Waits::take_waited`] takes.
#[derive(Clone, Default, Debug)]
pub struct Waits(Arc<Times>);

#[derive(Default, Debug)]
struct Times {
    /// When the wait began, by [`nanoseconds`]; 0: it does not wait.
    since: AtomicU64,
    /// Nanoseconds of the waits that have ended and were not taken yet.
    waited: AtomicU64,
}

/// The time of the first question. [`nanoseconds`] counts it as 1, because 0 means that a thread does not wait.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn nanoseconds(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*EPOCH).as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}

thread_local! {
    static OF_THIS_THREAD: RefCell<Option<Waits>> = const { RefCell::new(None) };
}

impl Waits {
    /// From now on, notes the waits of this thread: until the thread ends, or other [`Waits`] follow it.
    pub fn follow_this_thread(&self) {
        OF_THIS_THREAD.with(|of_this| *of_this.borrow_mut() = Some(self.clone()));
    }

    /// Returns how long the thread has been waiting; zero if it does not.
    pub fn waits_for(&self, now: Instant) -> Duration {
        match self.0.since.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => Duration::from_nanos(nanoseconds(now).saturating_sub(since)),
        }
    }

    /// Returns how long the waits took that have ended since the last call.
    pub fn take_waited(&self) -> Duration {
        Duration::from_nanos(self.0.waited.swap(0, Ordering::AcqRel))
    }
}

/// As long as it lives, the waits of this thread say that the thread waits.
pub(super) struct Waiting(Option<Waits>);

impl Waiting {
    pub(super) fn begin() -> Waiting {
        let waits = OF_THIS_THREAD.with(|of_this| of_this.borrow().clone());
        if let Some(Waits(times)) = &waits {
            times.since.store(nanoseconds(Instant::now()), Ordering::Release);
        }
        Waiting(waits)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(Waits(times)) = &self.0 {
            let since = times.since.swap(0, Ordering::AcqRel);
            times.waited.fetch_add(nanoseconds(Instant::now()).saturating_sub(since), Ordering::AcqRel);
        }
    }
}

/// A job that a worker works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobId(u64);

struct Running {
    id: JobId,
    user: UserId,
    waits: Waits,
}

impl Running {
    fn is_left(&self, now: Instant) -> bool {
        self.waits.waits_for(now) >= PROMPT
    }
}

/// The jobs that are worked on.
pub struct Crew {
    /// Most workers that are not left behind.
    workers: usize,
    running: Vec<Running>,
    next: u64,
}

impl Crew {
    /// Returns a crew. At most `workers` of it work at a time.
    pub fn new(workers: usize) -> Crew {
        Crew { workers, running: Vec::new(), next: 0 }
    }

    /// Notes that a worker begins a job for a user; [`Crew::end`] must follow.
    pub fn begin(&mut self, user: UserId, waits: Waits) -> JobId {
        let id = JobId(self.next);
        self.next += 1;
        self.running.push(Running { id, user, waits });
        id
    }

    /// Notes that a job is done.
    pub fn end(&mut self, id: JobId) {
        self.running.retain(|running| running.id != id);
    }

    /// Counts the workers that are left behind now.
    pub fn left(&self, now: Instant) -> usize {
        self.running.iter().filter(|running| running.is_left(now)).count()
    }

    /// Counts the workers that work now: those that are not left behind.
    pub fn working(&self, now: Instant) -> usize {
        self.running.len() - self.left(now)
    }

    /// Whether a worker that is not left behind works for one of these users.
    pub fn works_for(&self, now: Instant, is_one: impl Fn(UserId) -> bool) -> bool {
        self.running.iter().any(|running| !running.is_left(now) && is_one(running.user))
    }

    /// Whether files of a user have left as many workers behind as they may.
    pub fn is_held_up(&self, user: UserId, now: Instant) -> bool {
        let left = |counts: &dyn Fn(UserId) -> bool| {
            self.running.iter().filter(|running| counts(running.user) && running.is_left(now)).count()
        };
        let of_user = left(&|other| other == user);
        if user == ROOT {
            return of_user >= MAX_LEFT_OF_ROOT;
        }
        of_user >= MAX_LEFT_OF_USER || left(&|other| other != ROOT) >= MAX_LEFT_OF_OTHERS
    }

    /// Whether a worker may begin a job for a user now.
    pub fn may_begin(&self, user: UserId, now: Instant) -> bool {
        let working = self.working(now);
        let of_others = self.running.iter().filter(|running| running.user != ROOT && !running.is_left(now)).count();
        let has_room = working < self.workers && (user == ROOT || of_others + 1 < self.workers);
        has_room && !self.is_held_up(user, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of a thread that has waited for `time`.
    fn waiting(time: Duration) -> Waits {
        let waits = Waits::default();
        // The epoch may be now.
        LazyLock::force(&EPOCH);
        std::thread::sleep(Duration::from_millis(1));
        waits.0.since.store(nanoseconds(Instant::now()), Ordering::Release);
        std::thread::sleep(time);
        waits
    }

    #[test]
    fn who_waits_is_left_behind_and_another_begins_in_its_place() {
        let mut crew = Crew::new(3);
        let user = UserId(7);
        let late = waiting(PROMPT);
        let now = Instant::now();
        let first = crew.begin(user, Waits::default());
        assert!(crew.may_begin(user, now));
        crew.begin(user, Waits::default());
        assert!(!crew.may_begin(user, now) && !crew.may_begin(UserId(8), now), "one is kept for root");
        assert!(crew.may_begin(ROOT, now));
        crew.end(first);
        for _ in 0..MAX_LEFT_OF_USER {
            assert!(crew.may_begin(user, now));
            crew.begin(user, late.clone());
        }
        assert!(crew.is_held_up(user, now) && !crew.may_begin(user, now));
        assert!(crew.may_begin(UserId(8), now) && crew.may_begin(ROOT, now));
        assert_eq!((crew.working(now), crew.left(now)), (1, MAX_LEFT_OF_USER));
        assert!(crew.works_for(now, |other| other == user) && !crew.works_for(now, |other| other == ROOT));
    }

    #[test]
    fn all_users_but_root_together_are_bounded() {
        let mut crew = Crew::new(2);
        let (late, now) = (waiting(PROMPT), Instant::now());
        for number in 0..MAX_LEFT_OF_OTHERS {
            let user = UserId(1000 + number as u32);
            assert!(crew.may_begin(user, now));
            crew.begin(user, late.clone());
        }
        assert!(!crew.may_begin(UserId(5), now) && crew.may_begin(ROOT, now));
        for _ in 0..MAX_LEFT_OF_ROOT {
            assert!(crew.may_begin(ROOT, now));
            crew.begin(ROOT, late.clone());
        }
        assert!(!crew.may_begin(ROOT, now));
    }

    #[test]
    fn waits_of_a_thread_are_noted_and_counted() {
        let waits = Waits::default();
        let theirs = waits.clone();
        std::thread::spawn(move || {
            theirs.follow_this_thread();
            let begun = Instant::now();
            let wait = Waiting::begin();
            std::thread::sleep(Duration::from_millis(20));
            assert!(theirs.waits_for(Instant::now()) >= Duration::from_millis(20));
            drop(wait);
            assert_eq!(theirs.waits_for(Instant::now()), Duration::ZERO);
            let waited = theirs.take_waited();
            assert!(waited >= Duration::from_millis(20) && waited <= begun.elapsed());
        })
        .join()
        .unwrap();
        assert_eq!(waits.take_waited(), Duration::ZERO);
    }
}
