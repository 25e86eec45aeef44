//! What waits to be named, by object; and which object is next.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::object::mapped_file::Host;
use crate::profile::{FrameId, ObjectId, UserId};

/// Processes remembered for an object that waits: if one is gone, another may still be there.
const MAX_HOSTS: usize = 4;

/// Most users whose turns are remembered.
const MAX_TURNS: usize = 256;

/// Frames of one object that want names.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    pub(crate) frames: Vec<FrameId>,
    pub(crate) hosts: Vec<Host>,
}

/// What a worker does next.
#[derive(Debug)]
pub(crate) enum Job {
    /// Open the file of an object that was not seen before, before its process ends. Reading symbols comes later.
    Open(ObjectId, Vec<Host>),
    /// Name these frames by their symbols.
    Name(ObjectId, Waiting),
    /// Find what was inlined into these, which are named or have no symbol.
    Inline(ObjectId, Vec<FrameId>),
    /// Look again for names of JIT code that had none yet.
    Again(ObjectId),
}

impl Job {
    pub(crate) fn object(&self) -> ObjectId {
        match self {
            Job::Open(object, _) | Job::Name(object, _) | Job::Inline(object, _) | Job::Again(object) => *object,
        }
    }
}

/// Objects that wait. An object is worked on by one worker at a time.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: FxHashMap<ObjectId, Waiting>,
    /// Those that have been named by their symbols.
    deeper: FxHashMap<ObjectId, Vec<FrameId>>,
    /// Seen for the first time, not yet opened.
    new: Vec<ObjectId>,
    /// Objects that were seen, with their user.
    known: FxHashMap<ObjectId, UserId>,
    /// When each user last had a turn.
    turns: FxHashMap<UserId, u64>,
    /// To be looked at again, when there is nothing else.
    again: Vec<ObjectId>,
    busy: FxHashSet<ObjectId>,
}

impl Queue {
    /// Adds a frame; `host` is a process in which its object is mapped.
    pub(crate) fn push(&mut self, object: ObjectId, frame: FrameId, host: Option<Host>) {
        let waiting = match self.waiting.entry(object) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                if let Some(host) = &host
                    && self.known.insert(object, host.user).is_none()
                {
                    self.new.push(object);
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

    /// Adds an object whose JIT code is to be looked at again. `false` if it is listed already.
    pub(crate) fn push_again(&mut self, object: ObjectId) -> bool {
        let new = !self.again.contains(&object);
        if new {
            self.again.push(object);
        }
        new
    }

    /// Takes the next job: first objects that were never opened; then users in turns, for each the object with the most waiting frames; then
    /// objects that are only looked at again. [`Queue::done`] must follow.
    pub(crate) fn next(&mut self) -> Option<Job> {
        while let Some(object) = self.new.pop() {
            if let Some(waiting) = self.waiting.get(&object)
                && self.busy.insert(object)
            {
                return Some(Job::Open(object, waiting.hosts.clone()));
            }
        }
        let waiting = self.waiting.iter().map(|(object, waiting)| (*object, waiting.frames.len()));
        if let Some(object) = self.first_of(waiting) {
            let waiting = self.waiting.remove(&object)?;
            self.begin(object);
            return Some(Job::Name(object, waiting));
        }
        // Debug information takes its time: first everything gets the name that is quickly found.
        let deeper = self.deeper.iter().map(|(object, frames)| (*object, frames.len()));
        let Some(object) = self.first_of(deeper) else { return self.next_again() };
        let frames = self.deeper.remove(&object)?;
        self.begin(object);
        Some(Job::Inline(object, frames))
    }

    /// Chooses the next object, given objects with the number of their waiting frames. Users take turns, and a user's object with the most
    /// waiting frames comes first. So no user waits for all requests of another.
    fn first_of(&self, waiting: impl Iterator<Item = (ObjectId, usize)>) -> Option<ObjectId> {
        let free = waiting.filter(|(object, _)| !self.busy.contains(object));
        let first = free.min_by_key(|(object, frames)| {
            let turn = self.turns.get(&self.user_of(*object)).copied().unwrap_or_default();
            (turn, std::cmp::Reverse(*frames), object.0)
        });
        first.map(|(object, _)| object)
    }

    fn user_of(&self, object: ObjectId) -> UserId {
        self.known.get(&object).copied().unwrap_or_default()
    }

    /// Notes that the object is worked on. Its user's next turn comes after those of all others.
    fn begin(&mut self, object: ObjectId) {
        if self.turns.len() >= MAX_TURNS {
            self.turns.clear();
        }
        let last = self.turns.values().max().copied().unwrap_or_default();
        self.turns.insert(self.user_of(object), last + 1);
        self.busy.insert(object);
    }

    /// Adds frames that have been named by their symbols, or have none.
    pub(crate) fn push_deeper(&mut self, object: ObjectId, frames: Vec<FrameId>) {
        self.deeper.entry(object).or_default().extend(frames);
    }

    /// Whether frames wait that have no name at all.
    pub(crate) fn has_nameless(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn next_again(&mut self) -> Option<Job> {
        let free = self.again.iter().position(|object| !self.busy.contains(object))?;
        let object = self.again.swap_remove(free);
        self.busy.insert(object);
        Some(Job::Again(object))
    }

    /// Whether a worker would find something to do.
    pub(crate) fn has_work(&self) -> bool {
        let nameless = self.waiting.keys().chain(&self.again);
        nameless.chain(self.deeper.keys()).any(|object| !self.busy.contains(object))
    }

    /// The object's job is finished.
    pub(crate) fn done(&mut self, object: ObjectId) {
        self.busy.remove(&object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FileNamespace, ProcessAddress, Tgid, UserId};

    fn host(tgid: u32) -> Option<Host> {
        Some(Host { tgid: Tgid(tgid), user: UserId(0), files: FileNamespace(0), mapping: ProcessAddress(0)..ProcessAddress(1) })
    }

    #[test]
    fn new_objects_are_opened_first_then_the_most_wanted_is_named() {
        let mut queue = Queue::default();
        for (object, frames) in [(5, 1), (6, 3), (7, 2)] {
            (0..frames).for_each(|frame| queue.push(ObjectId(object), FrameId(frame), host(9)));
        }
        let mut opened = Vec::new();
        for _ in 0..3 {
            match queue.next() {
                Some(Job::Open(object, hosts)) if hosts.len() == 1 => opened.push(object.0),
                other => panic!("{other:?}"),
            }
        }
        opened.sort_unstable();
        assert_eq!(opened, [5, 6, 7]);
        assert!(queue.next().is_none(), "all are being worked on");
        assert!(!queue.has_work());
        (5..8).for_each(|object| queue.done(ObjectId(object)));
        let order: Vec<u32> = std::iter::from_fn(|| queue.next()).map(|job| job.object().0).collect();
        assert_eq!(order, [6, 7, 5]);
    }

    #[test]
    fn users_take_turns_however_much_one_of_them_wants() {
        let mut queue = Queue::default();
        let of = |user| host(9).map(|host| Host { user: UserId(user), ..host });
        for object in 10..20 {
            (0..100).for_each(|frame| queue.push(ObjectId(object), FrameId(frame), of(65534)));
        }
        queue.push(ObjectId(30), FrameId(1), of(0));
        while let Some(Job::Open(object, _)) = queue.next() {
            queue.done(object);
            if queue.new.is_empty() {
                break;
            }
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.next()).take(3).map(|job| job.object().0).collect();
        assert!(order.iter().position(|object| *object == 30).is_some_and(|at| at < 2), "{order:?}");
    }

    #[test]
    fn what_is_looked_at_again_comes_last_and_once() {
        let mut queue = Queue::default();
        assert!(queue.push_again(ObjectId(5)) && queue.push_again(ObjectId(6)) && !queue.push_again(ObjectId(5)));
        queue.push(ObjectId(7), FrameId(1), None);
        queue.push(ObjectId(5), FrameId(2), None);
        let jobs: Vec<Job> = std::iter::from_fn(|| queue.next()).collect();
        assert!(matches!(jobs.as_slice(), [Job::Name(ObjectId(5), _), Job::Name(ObjectId(7), _), Job::Again(ObjectId(6))]));
        assert!(!queue.has_work(), "5 is being worked on");
        queue.done(ObjectId(5));
        assert!(queue.has_work() && matches!(queue.next(), Some(Job::Again(ObjectId(5)))));
    }

    #[test]
    fn a_few_different_processes_are_remembered() {
        let mut queue = Queue::default();
        for tgid in [1, 1, 2, 3, 4, 5, 6] {
            queue.push(ObjectId(9), FrameId(tgid), host(tgid));
        }
        let waiting = queue.waiting.remove(&ObjectId(9)).unwrap();
        assert_eq!(waiting.frames.len(), 7);
        assert_eq!(waiting.hosts.iter().map(|host| host.tgid.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
