//! The queue of files that need a table, with a budget of CPU time for each user. Pure.
//!
//! Making a table takes from a few milliseconds to a second of CPU time, and any user can run new programs. So each user has a budget of
//! CPU time. Tables use it up, and it is refilled at a fixed rate:
//!
//! ```text
//! a quarter of one CPU ─┬─ half: root ─────────── at most 8 s saved up: enough for all programs of a starting desktop
//!                       └─ half: users in equal parts ── at most 3 s each
//!                          (a share that its user cannot save goes to the others)
//! ```
//!
//! Time spent waiting for a user's files is charged like CPU time: while a worker waits, it makes no tables for others.
//!
//! A user whose budget is used up waits until it is positive again. A job that has begun is finished, and may leave a debt. Users with time
//! left are served in turns.
//!
//! The host's files that only root can write are charged to root, even if another user runs them: only installed files can cause this
//! cost, and other users cannot install any.

use crate::collector::wire::records::ObjectKey;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::collector::wire::perf_records::Identity;
use crate::profile::{FileNamespace, UserId};

/// Number of threads that make tables. Threads that are left behind, because they wait for a file, are not counted: others take their
/// places. Analysing a large program takes seconds. With several threads, the next program need not wait for it. One thread is kept for
/// root.
pub(super) const WORKERS: usize = 3;

/// CPU seconds per second that tables may take.
pub(super) const RATE: f64 = 0.25;

/// CPU seconds that root, and any other user, can save up.
const SAVED_BY_ROOT: f64 = 8.0;
const SAVED: f64 = 3.0;

/// Most jobs of all users that wait. A user other than root may have a quarter of this number.
const MOST_WAITING: usize = 4096;
const MOST_WAITING_OF_USER: usize = MOST_WAITING / 4;

/// Most users that are remembered. A user who has no jobs and a full budget is forgotten.
const MOST_USERS: usize = 256;

pub(super) const ROOT: UserId = UserId(0);

/// The known identity of a job's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sought {
    /// The kernel's key of the file: the kernel's walk of a sample hit the file.
    Sampled(ObjectKey),
    /// The identity from the event of the file's mapping: a sample with a caller in the file waits for the table, and no walk in the
    /// kernel has hit the file.
    Mapped(Identity),
}

impl Sought {
    /// Returns the kernel's key of the file, if it is known.
    pub(super) fn key(self) -> Option<ObjectKey> {
        match self {
            Sought::Sampled(key) => Some(key),
            Sought::Mapped(_) => None,
        }
    }
}

/// A request for the table of a file.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) sought: Sought,
    pub(super) tgid: u32,
    /// The user who is charged for it.
    pub(super) user: UserId,
    /// The namespace of the paths.
    pub(super) files: FileNamespace,
    /// First address of the file's mapping in process `tgid`, and the address after its last.
    pub(super) mapping: (u64, u64),
    /// The path of the file, as its process sees it. A job that comes before the event that names its mapping has none.
    pub(super) path: Option<Arc<str>>,
    /// Paths of other files that any process has mapped lately. If the job's process is gone, these paths are tried.
    pub(super) lately: Vec<Arc<str>>,
    /// The path that the link of the mapping has; shared by all clones of the job. It is read only if the path is not known.
    pub(super) link: Arc<OnceLock<Arc<str>>>,
}

impl Job {
    /// Returns the path of the file, if it is known so far.
    pub(super) fn path(&self) -> Option<Arc<str>> {
        self.path.as_ref().or_else(|| self.link.get()).cloned()
    }

    /// Returns words that name the file: its path, or else its process.
    pub(super) fn title(&self) -> Arc<str> {
        self.path().unwrap_or_else(|| format!("a file of process {}", self.tgid).into())
    }
}

/// The jobs of a user, and the user's remaining CPU time.
#[derive(Debug)]
struct Line {
    jobs: VecDeque<Job>,
    /// CPU seconds left. Negative after a job that took more than was left.
    left: f64,
    most: f64,
}

impl Line {
    fn new(user: UserId) -> Line {
        let most = if user == ROOT { SAVED_BY_ROOT } else { SAVED };
        Line { jobs: VecDeque::new(), left: most, most }
    }

    /// Whether a job waits, and the user has time left.
    fn may_go_on(&self) -> bool {
        self.left > 0.0 && !self.jobs.is_empty()
    }
}

/// The result of [`Queue::pop`].
#[derive(Debug)]
pub(super) enum Next {
    Job(Job),
    /// There are jobs, but each of their users either has no time left or may have no further worker. Ask again after this time.
    Wait(Duration),
    Nothing,
}

/// The jobs of all users.
#[derive(Debug)]
pub(super) struct Queue {
    users: BTreeMap<u32, Line>,
    /// The user who was served last.
    last: u32,
    length: usize,
    refilled: Instant,
    /// CPU time spent so far.
    spent: Duration,
}

impl Queue {
    pub(super) fn new(now: Instant) -> Queue {
        let users = BTreeMap::from([(ROOT.0, Line::new(ROOT))]);
        Queue { users, last: 0, length: 0, refilled: now, spent: Duration::ZERO }
    }

    /// Whether there is room for another job of a user.
    pub(super) fn has_room(&self, user: UserId) -> bool {
        let of_user = self.users.get(&user.0).map_or(0, |line| line.jobs.len());
        let is_known = self.users.contains_key(&user.0) || self.users.len() < MOST_USERS;
        is_known && self.length < MOST_WAITING && (user == ROOT || of_user < MOST_WAITING_OF_USER)
    }

    /// Appends a job to its user's jobs. Does not check for room: see [`has_room`](Self::has_room).
    pub(super) fn push(&mut self, job: Job) {
        self.length += 1;
        self.users.entry(job.user.0).or_insert_with(|| Line::new(job.user)).jobs.push_back(job);
    }

    /// Takes the next job. Users take turns, if they have time left and a worker may begin for them now.
    pub(super) fn pop(&mut self, now: Instant, may_begin: impl Fn(UserId) -> bool) -> Next {
        self.refill(now);
        if self.length == 0 {
            return Next::Nothing;
        }
        let may = |(user, line): &(&u32, &Line)| line.may_go_on() && may_begin(UserId(**user));
        let after = self.users.range(self.last.saturating_add(1)..).find(may);
        let next = after.or_else(|| self.users.iter().find(may)).map(|(user, _)| *user);
        let Some(user) = next else { return Next::Wait(Duration::from_millis(50)) };
        self.last = user;
        match self.users.get_mut(&user).and_then(|line| line.jobs.pop_front()) {
            Some(job) => {
                self.length -= 1;
                Next::Job(job)
            }
            None => Next::Nothing,
        }
    }

    /// Subtracts CPU time from the user's budget.
    pub(super) fn charge(&mut self, user: UserId, time: Duration) {
        self.spent += time;
        self.users.entry(user.0).or_insert_with(|| Line::new(user)).left -= time.as_secs_f64();
    }

    /// Subtracts the time spent waiting for the user's files from the user's budget. [`spent`](Self::spent) does not count it.
    pub(super) fn charge_wait(&mut self, user: UserId, time: Duration) {
        if !time.is_zero() {
            self.users.entry(user.0).or_insert_with(|| Line::new(user)).left -= time.as_secs_f64();
        }
    }

    /// Whether a job waits for a user who has time left and whom `may` accepts.
    pub(super) fn has_job(&self, may: impl Fn(UserId) -> bool) -> bool {
        self.users.iter().any(|(user, line)| line.may_go_on() && may(UserId(*user)))
    }

    /// Whether a user has time left.
    pub(super) fn has_time(&mut self, user: UserId, now: Instant) -> bool {
        self.refill(now);
        self.users.get(&user.0).is_none_or(|line| line.left > 0.0)
    }

    /// Shares out the CPU time that has been earned since the last call.
    fn refill(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.refilled).as_secs_f64() * RATE;
        self.refilled = now;
        let mut rest = time;
        // The second round shares out the time that users could not save in the first round. Two rounds are enough for nearly all of it.
        for _ in 0..2 {
            let thirsty = self.users.iter().filter(|(user, line)| **user != ROOT.0 && line.left < line.most).count();
            let root_needs = self.users.get(&ROOT.0).is_some_and(|line| line.left < line.most);
            let for_root = if !root_needs {
                0.0
            } else if thirsty > 0 {
                rest / 2.0
            } else {
                rest
            };
            let for_each = if thirsty > 0 { (rest - for_root) / thirsty as f64 } else { 0.0 };
            for (user, line) in &mut self.users {
                let given = if *user == ROOT.0 { for_root } else { for_each }.min((line.most - line.left).max(0.0));
                line.left += given;
                rest -= given;
            }
        }
        self.users.retain(|user, line| *user == ROOT.0 || line.left < line.most || !line.jobs.is_empty());
    }

    /// Returns the number of jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Drops all jobs. Budgets stay.
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.users.values_mut().for_each(|line| line.jobs.clear());
    }

    /// Returns the CPU time that all users have spent.
    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns the users who wait because their time is used up.
    pub(super) fn held_back(&self) -> Vec<UserId> {
        let waits = |line: &Line| line.left <= 0.0 && !line.jobs.is_empty();
        self.users.iter().filter(|(_, line)| waits(line)).map(|(user, _)| UserId(*user)).collect()
    }
}

/// A request for the table of a mapped file, as an event described the mapping.
#[derive(Clone, Debug)]
pub(crate) struct MappedRequest {
    pub(crate) tgid: u32,
    /// The user who is charged for the process.
    pub(crate) user: UserId,
    /// The namespace of `path`.
    pub(crate) files: FileNamespace,
    /// First address of the mapping, and the address after its last.
    pub(crate) mapping: (u64, u64),
    pub(crate) path: Arc<str>,
    pub(crate) identity: Identity,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(user: u32, inode: u64) -> Job {
        let key = ObjectKey { inode, device: 1, generation: 0 };
        Job {
            sought: Sought::Sampled(key),
            tgid: 1,
            user: UserId(user),
            files: FileNamespace(0),
            mapping: (0, 0),
            path: None,
            lately: Vec::new(),
            link: Arc::default(),
        }
    }

    /// Serves jobs of `cost` each for `seconds` of the clock. Returns the number of jobs done for each user.
    fn serve(queue: &mut Queue, from: Instant, seconds: u64, cost: Duration) -> BTreeMap<u32, u32> {
        let mut done = BTreeMap::new();
        for tick in 0..seconds * 100 {
            if let Next::Job(job) = queue.pop(from + Duration::from_millis(tick * 10), |_| true) {
                queue.charge(job.user, cost);
                *done.entry(job.user.0).or_default() += 1;
            }
        }
        done
    }

    #[test]
    fn users_are_served_one_after_the_other() {
        let now = Instant::now();
        let mut queue = Queue::new(now);
        for number in 0..3 {
            [7, 7, 9, 0].iter().for_each(|user| queue.push(job(*user, number)));
        }
        let mut order = Vec::new();
        while let Next::Job(job) = queue.pop(now, |_| true) {
            order.push(job.user.0);
        }
        assert_eq!(order, [7, 9, 0, 7, 9, 0, 7, 9, 0, 7, 7, 7]);
        assert!(matches!(queue.pop(now, |_| true), Next::Nothing));
    }

    #[test]
    fn one_who_floods_gets_its_part_of_a_quarter_and_root_is_served_at_once() {
        let begun = Instant::now();
        let mut queue = Queue::new(begun);
        (0..1000).for_each(|number| queue.push(job(7, number)));
        assert!(!queue.has_room(UserId(7)) || MOST_WAITING_OF_USER > 1000);
        let done = serve(&mut queue, begun, 30, Duration::from_millis(100));
        // 3 s are saved up, and a quarter of 30 s is earned: no other user wants it.
        assert!((100..=108).contains(&done[&7]), "{done:?}");
        assert_eq!(queue.held_back(), [UserId(7)]);
        queue.push(job(0, 1));
        queue.push(job(8, 1));
        let later = begun + Duration::from_secs(30);
        let first = [queue.pop(later, |_| true), queue.pop(later, |_| true)].map(|next| match next {
            Next::Job(job) => job.user.0,
            other => panic!("{other:?}"),
        });
        assert!(first.contains(&0) && first.contains(&8), "{first:?}");
    }

    #[test]
    fn two_who_flood_share_and_root_keeps_half() {
        let begun = Instant::now();
        let mut queue = Queue::new(begun);
        for number in 0..1000 {
            [0, 7, 9].iter().for_each(|user| queue.push(job(*user, number)));
        }
        [0, 7, 9].iter().for_each(|user| queue.charge(UserId(*user), Duration::from_secs(9)));
        let done = serve(&mut queue, begun, 200, Duration::from_millis(50));
        let (root, one, other) = (done[&0], done.get(&7).copied().unwrap_or(0), done.get(&9).copied().unwrap_or(0));
        assert!(root >= 400 && one.abs_diff(other) <= 2 && root > one + other, "{done:?}");
    }

    #[test]
    fn who_keeps_workers_waiting_pays_for_it_and_is_passed_over() {
        let now = Instant::now();
        let mut queue = Queue::new(now);
        [7, 7, 9].iter().for_each(|user| queue.push(job(*user, 1)));
        assert!(queue.has_job(|user| user == UserId(7)));
        assert!(matches!(queue.pop(now, |user| user != UserId(7)), Next::Job(job) if job.user == UserId(9)));
        assert!(matches!(queue.pop(now, |user| user != UserId(7)), Next::Wait(_)));
        queue.charge_wait(UserId(7), Duration::from_secs(5));
        assert!(!queue.has_job(|_| true) && queue.spent().is_zero());
        assert_eq!(queue.held_back(), [UserId(7)]);
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let mut queue = Queue::new(Instant::now());
        let mut number = 0;
        while queue.has_room(UserId(7)) {
            number += 1;
            queue.push(job(7, number));
        }
        assert_eq!(number, MOST_WAITING_OF_USER as u64);
        assert!(queue.has_room(UserId(8)) && queue.has_room(UserId(0)));
        queue.clear();
        assert!(queue.has_room(UserId(7)) && queue.len() == 0);
    }
}
