//! Queue of unnamed frames by object. It decides which object is next.

use std::collections::hash_map::Entry;
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::object::crew::{Crew, JobId, Waits};
use crate::object::mapped_file::Host;
use crate::profile::{FrameId, ObjectId, UserId};

/// Processes remembered for a waiting object: if one has exited, another may still be alive.
const MAX_HOSTS: usize = 4;

/// Most users whose turns are remembered.
const MAX_TURNS: usize = 256;

/// Frames of one object that need names.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    pub(crate) frames: Vec<FrameId>,
    pub(crate) hosts: Vec<Host>,
}

/// The next job of a worker.
#[derive(Debug)]
pub(crate) enum Job {
    /// Open the file of an object that was not seen before, before its process ends. Its symbols are read later.
    Open(ObjectId, Vec<Host>),
    /// Name these frames by their symbols.
    Name(ObjectId, Waiting),
    /// Find the functions inlined into these frames, which are named or have no symbol.
    Inline(ObjectId, Vec<FrameId>),
    /// Retry unnamed JIT code.
    Again(ObjectId),
}

impl Job {
    pub(crate) fn object(&self) -> ObjectId {
        match self {
            Job::Open(object, _) | Job::Name(object, _) | Job::Inline(object, _) | Job::Again(object) => *object,
        }
    }
}

/// Objects that wait. One worker at a time works on an object.
pub(crate) struct Queue {
    waiting: FxHashMap<ObjectId, Waiting>,
    /// Frames whose symbols were looked up, and that now wait for debug information.
    deeper: FxHashMap<ObjectId, Vec<FrameId>>,
    /// Objects that were seen for the first time and not yet opened; the newest of each user is last.
    new: FxHashMap<UserId, Vec<ObjectId>>,
    /// Objects that were seen, with their users.
    known: FxHashMap<ObjectId, UserId>,
    /// When each user last had a turn.
    turns: FxHashMap<UserId, u64>,
    /// Objects to retry when there is nothing else to do.
    again: Vec<ObjectId>,
    busy: FxHashMap<ObjectId, JobId>,
    crew: Crew,
}

impl Queue {
    /// Returns an empty queue for `workers` workers, without those that are left behind.
    pub(crate) fn new(workers: usize) -> Queue {
        Queue {
            waiting: FxHashMap::default(),
            deeper: FxHashMap::default(),
            new: FxHashMap::default(),
            known: FxHashMap::default(),
            turns: FxHashMap::default(),
            again: Vec::new(),
            busy: FxHashMap::default(),
            crew: Crew::new(workers),
        }
    }

    /// Adds a frame. `host` is a process that has its object mapped.
    pub(crate) fn push(&mut self, object: ObjectId, frame: FrameId, host: Option<Host>) {
        let waiting = match self.waiting.entry(object) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                if let Some(host) = &host
                    && self.known.insert(object, host.user).is_none()
                {
                    self.new.entry(host.user).or_default().push(object);
                }
                entry.insert(Waiting::default())
            }
        };
        waiting.frames.push(frame);
        if let Some(host) = host
            && waiting.hosts.len() < MAX_HOSTS
            && waiting.hosts.iter().all(|known| known.tgid != host.tgid)
        {
            waiting.hosts.push(host);
        }
    }

    /// Adds an object whose JIT code is to be retried. Returns `false` if it is already listed.
    pub(crate) fn push_again(&mut self, object: ObjectId) -> bool {
        let new = !self.again.contains(&object);
        if new {
            self.again.push(object);
        }
        new
    }

    /// Takes the next job for the worker of these waits. First come objects that were never opened, the newest of each user. Then come the
    /// objects with the most waiting frames, then JIT code without a name. Within each step users take turns. Users who may not have a
    /// worker now are skipped. [`Queue::done`] must follow.
    pub(crate) fn next(&mut self, now: Instant, waits: &Waits) -> Option<Job> {
        if let Some((object, hosts)) = self.next_new(now) {
            self.begin(object, waits);
            return Some(Job::Open(object, hosts));
        }
        let waiting = self.waiting.iter().map(|(object, waiting)| (*object, waiting.frames.len()));
        if let Some(object) = self.first_of(waiting, now) {
            let waiting = self.waiting.remove(&object)?;
            self.begin(object, waits);
            return Some(Job::Name(object, waiting));
        }
        // Debug information is slow: first every frame gets the name from its symbol.
        let deeper = self.deeper.iter().map(|(object, frames)| (*object, frames.len()));
        if let Some(object) = self.first_of(deeper, now) {
            let frames = self.deeper.remove(&object)?;
            self.begin(object, waits);
            return Some(Job::Inline(object, frames));
        }
        let object = self.first_of(self.again.iter().map(|object| (*object, 0)), now)?;
        self.again.retain(|other| *other != object);
        self.begin(object, waits);
        Some(Job::Again(object))
    }

    /// Takes the next object that was never opened, with processes that have it mapped.
    fn next_new(&mut self, now: Instant) -> Option<(ObjectId, Vec<Host>)> {
        loop {
            self.new.retain(|_, objects| !objects.is_empty());
            let users = self.new.keys().filter(|user| self.crew.may_begin(**user, now));
            let user = *users.min_by_key(|user| (self.turn_of(**user), user.0))?;
            let object = self.new.get_mut(&user)?.pop()?;
            if let Some(waiting) = self.waiting.get(&object)
                && !self.busy.contains_key(&object)
            {
                return Some((object, waiting.hosts.clone()));
            }
        }
    }

    /// Chooses the next object, given objects with the number of their waiting frames. Users take turns, and a user's object with the most
    /// waiting frames comes first. So no user waits for all requests of another.
    fn first_of(&self, waiting: impl Iterator<Item = (ObjectId, usize)>, now: Instant) -> Option<ObjectId> {
        let free = waiting.filter(|(object, _)| self.may_begin(*object, now));
        let first =
            free.min_by_key(|(object, frames)| (self.turn_of(self.user_of(*object)), std::cmp::Reverse(*frames), object.0));
        first.map(|(object, _)| object)
    }

    fn turn_of(&self, user: UserId) -> u64 {
        self.turns.get(&user).copied().unwrap_or_default()
    }

    /// Whether no worker has the object, and a worker may begin with it.
    fn may_begin(&self, object: ObjectId, now: Instant) -> bool {
        !self.busy.contains_key(&object) && self.crew.may_begin(self.user_of(object), now)
    }

    fn user_of(&self, object: ObjectId) -> UserId {
        self.known.get(&object).copied().unwrap_or_default()
    }

    /// Notes that the object is worked on. Its user's next turn comes after those of all others.
    fn begin(&mut self, object: ObjectId, waits: &Waits) {
        if self.turns.len() >= MAX_TURNS {
            self.turns.clear();
        }
        let last = self.turns.values().max().copied().unwrap_or_default();
        let user = self.user_of(object);
        self.turns.insert(user, last + 1);
        self.busy.insert(object, self.crew.begin(user, waits.clone()));
    }

    /// Adds frames whose symbols were looked up.
    pub(crate) fn push_deeper(&mut self, object: ObjectId, frames: Vec<FrameId>) {
        self.deeper.entry(object).or_default().extend(frames);
    }

    /// Whether any frames wait for a first name.
    pub(crate) fn has_nameless(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.waiting.keys().chain(&self.again).chain(self.deeper.keys())
    }

    /// Whether anything waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects().next().is_none()
    }

    /// Whether a worker would find something to do.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        self.objects().any(|object| self.may_begin(*object, now))
    }

    /// Whether names of these users are being found, or will be without waiting for a file that does not answer.
    pub(crate) fn works_for(&self, is_one: impl Fn(UserId) -> bool, now: Instant) -> bool {
        let will = |object: &ObjectId| {
            let user = self.user_of(*object);
            is_one(user) && !self.busy.contains_key(object) && !self.crew.is_held_up(user, now)
        };
        self.crew.works_for(now, &is_one) || self.objects().any(will)
    }

    /// Counts the workers that are left behind.
    pub(crate) fn left(&self, now: Instant) -> usize {
        self.crew.left(now)
    }

    /// Records that the object's job is finished.
    pub(crate) fn done(&mut self, object: ObjectId) {
        self.busy.remove(&object).into_iter().for_each(|job| self.crew.end(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FileNamespace, ProcessAddress, Tgid, UserId};

    fn host(tgid: u32) -> Option<Host> {
        Some(Host { tgid: Tgid(tgid), user: UserId(0), files: FileNamespace(0), mapping: ProcessAddress(0)..ProcessAddress(1) })
    }

    fn next(queue: &mut Queue) -> Option<Job> {
        queue.next(Instant::now(), &Waits::default())
    }

    #[test]
    fn new_objects_are_opened_first_then_the_most_wanted_is_named() {
        let mut queue = Queue::new(9);
        for (object, frames) in [(5, 1), (6, 3), (7, 2)] {
            (0..frames).for_each(|frame| queue.push(ObjectId(object), FrameId(frame), host(9)));
        }
        let mut opened = Vec::new();
        for _ in 0..3 {
            match next(&mut queue) {
                Some(Job::Open(object, hosts)) if hosts.len() == 1 => opened.push(object.0),
                other => panic!("{other:?}"),
            }
        }
        opened.sort_unstable();
        assert_eq!(opened, [5, 6, 7]);
        assert!(next(&mut queue).is_none(), "all are being worked on");
        assert!(!queue.has_work(Instant::now()));
        (5..8).for_each(|object| queue.done(ObjectId(object)));
        let order: Vec<u32> = std::iter::from_fn(|| next(&mut queue)).map(|job| job.object().0).collect();
        assert_eq!(order, [6, 7, 5]);
    }

    #[test]
    fn users_take_turns_however_much_one_of_them_wants() {
        let mut queue = Queue::new(9);
        let of = |user| host(9).map(|host| Host { user: UserId(user), ..host });
        for object in 10..20 {
            (0..100).for_each(|frame| queue.push(ObjectId(object), FrameId(frame), of(65534)));
        }
        queue.push(ObjectId(30), FrameId(1), of(0));
        while let Some(Job::Open(object, _)) = next(&mut queue) {
            queue.done(object);
            if queue.new.values().all(Vec::is_empty) {
                break;
            }
        }
        let order: Vec<u32> = std::iter::from_fn(|| next(&mut queue)).take(3).map(|job| job.object().0).collect();
        assert!(order.iter().position(|object| *object == 30).is_some_and(|at| at < 2), "{order:?}");
    }

    #[test]
    fn new_objects_of_one_user_do_not_come_before_those_of_another() {
        let mut queue = Queue::new(9);
        let of = |user| host(9).map(|host| Host { user: UserId(user), ..host });
        queue.push(ObjectId(30), FrameId(1), of(0));
        (10..20).for_each(|object| queue.push(ObjectId(object), FrameId(object), of(65534)));
        let order: Vec<u32> = std::iter::from_fn(|| next(&mut queue)).take(2).map(|job| job.object().0).collect();
        assert!(order.contains(&30) && order.contains(&19), "{order:?}: the newest of each");
    }

    #[test]
    fn one_worker_is_for_root_only() {
        let mut queue = Queue::new(2);
        let of = |user| host(9).map(|host| Host { user: UserId(user), ..host });
        (10..12).for_each(|object| queue.push(ObjectId(object), FrameId(object), of(1000 + object)));
        assert!(next(&mut queue).is_some() && next(&mut queue).is_none());
        assert!(!queue.has_work(Instant::now()) && !queue.is_empty());
        assert!(queue.works_for(|user| user.0 >= 1000, Instant::now()) && !queue.works_for(|user| user.0 == 0, Instant::now()));
        queue.push(ObjectId(30), FrameId(1), of(0));
        assert!(matches!(next(&mut queue), Some(Job::Open(ObjectId(30), _))));
    }

    #[test]
    fn what_is_looked_at_again_comes_last_and_once() {
        let mut queue = Queue::new(9);
        assert!(queue.push_again(ObjectId(5)) && queue.push_again(ObjectId(6)) && !queue.push_again(ObjectId(5)));
        queue.push(ObjectId(7), FrameId(1), None);
        queue.push(ObjectId(5), FrameId(2), None);
        let jobs: Vec<Job> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert!(matches!(jobs.as_slice(), [Job::Name(ObjectId(5), _), Job::Name(ObjectId(7), _), Job::Again(ObjectId(6))]));
        assert!(!queue.has_work(Instant::now()), "5 is being worked on");
        queue.done(ObjectId(5));
        assert!(queue.has_work(Instant::now()) && matches!(next(&mut queue), Some(Job::Again(ObjectId(5)))));
    }

    #[test]
    fn a_few_different_processes_are_remembered() {
        let mut queue = Queue::new(9);
        for tgid in [1, 1, 2, 3, 4, 5, 6] {
            queue.push(ObjectId(9), FrameId(tgid), host(tgid));
        }
        let waiting = queue.waiting.remove(&ObjectId(9)).unwrap();
        assert_eq!(waiting.frames.len(), 7);
        assert_eq!(waiting.hosts.iter().map(|host| host.tgid.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
