//! What is in the kernel, by file and by content, and who is charged for it.
//!
//! ```text
//! states:     file ─► asked, not before …, done          by_content: content ─► object
//! objects:    number ─► place, names, charged user        unplaced:   made, and waits for room
//! ```
//!
//! Bounds: objects and names as many as the kernel has places; files that were asked for in vain are forgotten after their time;
//! at most [`MOST_UNPLACED`] bytes of tables wait for room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::cache::Content;
use super::kernel::{Held, Kernel, MAX_OBJECTS, NotPlaced, ObjectKey, Placed};
use super::make::Made;
use super::queue::Queue;
use super::shares::{Among, Candidate, choose};
use super::status::{ObjectState, ObjectStatus, TablesStatus};
use super::{PAUSE, SILENCE};
use crate::collector::perf;
use crate::collector::records::Wish;
use crate::profile::UserId;

pub(super) const ROOT: UserId = UserId(0);

/// Bytes of tables that are made and wait for room; half of them for users other than root.
const MOST_UNPLACED: usize = 64 << 20;
const MOST_UNPLACED_TABLES: usize = 256;

/// How long a table waits for room: a little more than [`Kernel::collect`] takes to free what was let go.
const PATIENCE: Duration = Duration::from_secs(30);

/// When a file is asked for again for which there is no room.
const FULL: Duration = Duration::from_secs(10);

/// A table that was let go is not made again before so many times the time that it took: one part in 21 of a CPU.
const REST: u32 = 20;

/// Files that are remembered, whatever is known of them.
const MOST_STATES: usize = 4 * MAX_OBJECTS as usize;

/// How it stands with a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// Waits or is being made.
    Asked,
    /// Could not be opened or placed; not before then again.
    Later(Instant),
    /// Has an object.
    Done,
}

/// A table that was made, or why there is none, and whose it is.
pub(super) struct Finished {
    pub(super) key: ObjectKey,
    pub(super) path: Arc<str>,
    pub(super) content: Option<Content>,
    /// Whose process asked.
    pub(super) asked_by: UserId,
    /// Who is charged.
    pub(super) user: UserId,
    pub(super) made: Made,
    /// What it took.
    pub(super) cost: Duration,
    /// When it is forgotten, if that is sure to be wrong one day.
    pub(super) again: Option<Instant>,
}

impl Finished {
    pub(super) fn of_root(key: ObjectKey, path: Arc<str>, made: Made) -> Finished {
        Finished { key, path, content: None, asked_by: ROOT, user: ROOT, made, cost: Duration::ZERO, again: None }
    }

    fn bytes(&self) -> usize {
        self.made.as_ref().map_or(0, |(layout, _)| layout.bytes())
    }
}

struct Object {
    placed: Placed,
    /// The files that lead to it, the oldest first, and who had them.
    keys: VecDeque<(ObjectKey, UserId)>,
    content: Option<Content>,
    status: ObjectStatus,
    user: UserId,
    /// When it was put there: units of 2³⁰ ns.
    since: u32,
    cost: Duration,
    /// When its file is looked at again, if that did not answer.
    again: Option<Instant>,
}

pub(super) struct Inner {
    kernel: Kernel,
    pub(super) states: FxHashMap<ObjectKey, State>,
    objects: BTreeMap<u64, Object>,
    next: u64,
    by_content: FxHashMap<Content, u64>,
    pub(super) queue: Queue,
    /// Being made at this moment.
    pub(super) working: usize,
    unplaced: Vec<(Instant, Finished)>,
    /// Names of files, of all users and of those but root.
    names: usize,
    names_of_others: usize,
    /// Bytes of tables above which idle ones go.
    pub(super) most_bytes: u64,
    evicted: u64,
    pub(super) from_cache: u64,
    turned_away: u64,
    pub(super) stop: bool,
}

impl Inner {
    pub(super) fn new(kernel: Kernel) -> Inner {
        Inner {
            most_bytes: kernel.bound() / 10 * 9,
            kernel,
            states: FxHashMap::default(),
            objects: BTreeMap::new(),
            next: 0,
            by_content: FxHashMap::default(),
            queue: Queue::new(Instant::now()),
            working: 0,
            unplaced: Vec::new(),
            names: 0,
            names_of_others: 0,
            evicted: 0,
            from_cache: 0,
            turned_away: 0,
            stop: false,
        }
    }

    /// Whether somebody is to look at the file of a wish.
    pub(super) fn is_wanted(&mut self, wish: &Wish) -> bool {
        let is_known = match self.states.get(&wish.key) {
            Some(State::Asked | State::Done) => true,
            Some(State::Later(until)) => Instant::now() < *until,
            None => false,
        };
        if is_known {
            return false;
        }
        let has_room = self.queue.has_room(wish.user) && self.states.len() < MOST_STATES;
        self.turned_away += u64::from(!has_room);
        has_room
    }

    /// Not before so long again.
    pub(super) fn later(&mut self, key: ObjectKey, pause: Duration) {
        self.states.insert(key, State::Later(Instant::now() + pause));
    }

    /// Whether what a user has made could be put into the kernel.
    pub(super) fn may_hold(&self, user: UserId) -> bool {
        let waiting = self.unplaced.iter().filter(|(_, other)| other.user != ROOT).count();
        user == ROOT || self.kernel.others_may_hold(0) && waiting < MOST_UNPLACED_TABLES / 2
    }

    /// Puts what was made into the kernel, under its file's name; or has it wait for room.
    pub(super) fn finish(&mut self, mut done: Finished) {
        let placed = match &done.made {
            Ok((layout, _)) => self.kernel.put(layout, done.user),
            Err(_) => self.kernel.put_nothing(done.user),
        };
        let placed = match placed {
            Err(NotPlaced::Refused(reason)) => {
                done.made = Err(NotPlaced::Refused(reason).to_string());
                self.kernel.put_nothing(done.user)
            }
            placed => placed,
        };
        let Ok(placed) = placed else {
            self.wait_for_room(done);
            return;
        };
        let state = match done.made {
            Ok((_, summary)) => ObjectState::Ready(summary),
            Err(reason) => ObjectState::Without(reason),
        };
        let number = self.next;
        self.next += 1;
        let object = Object {
            placed,
            keys: VecDeque::new(),
            content: done.content,
            status: ObjectStatus { path: done.path, state },
            user: done.user,
            since: (perf::now().0 >> 30) as u32,
            cost: done.cost,
            again: done.again,
        };
        self.objects.insert(number, object);
        if let Some(content) = done.content {
            self.by_content.insert(content, number);
        }
        self.name(done.key, done.asked_by, number);
    }

    fn wait_for_room(&mut self, done: Finished) {
        let of_class = |other: &Finished| done.user == ROOT || other.user != ROOT;
        let (count, bytes) = self
            .unplaced
            .iter()
            .filter(|(_, other)| of_class(other))
            .fold((0, 0), |(count, bytes), (_, other)| (count + 1, bytes + other.bytes()));
        let part = if done.user == ROOT { 1 } else { 2 };
        if count >= MOST_UNPLACED_TABLES / part || bytes + done.bytes() > MOST_UNPLACED / part {
            self.later(done.key, FULL);
            return;
        }
        self.unplaced.push((Instant::now(), done));
    }

    /// A file that does not answer, or cannot be told from another: it has no table, until it is asked again.
    pub(super) fn refuse(&mut self, key: ObjectKey, user: UserId, path: Arc<str>, why: String) {
        let again = Some(Instant::now() + SILENCE);
        self.finish(Finished { asked_by: user, user, again, ..Finished::of_root(key, path, Err(why)) });
    }

    /// Takes an object out of the kernel, so that the next sample in it wishes for a table.
    /// With `pause`, not at once.
    fn take_out(&mut self, number: u64, pause: bool) -> bool {
        let Some(object) = self.objects.remove(&number) else { return false };
        let rest = (pause && object.user != ROOT).then(|| Instant::now() + (object.cost * REST).min(SILENCE));
        for (key, user) in &object.keys {
            self.names -= 1;
            self.names_of_others -= usize::from(*user != ROOT);
            match rest {
                Some(until) => self.states.insert(*key, State::Later(until)),
                None => self.states.remove(key),
            };
        }
        if let Some(content) = object.content.filter(|content| self.by_content.get(content) == Some(&number)) {
            self.by_content.remove(&content);
        }
        let keys: Vec<ObjectKey> = object.keys.iter().map(|(key, _)| *key).collect();
        self.kernel.take_out(&keys, object.placed);
        true
    }

    /// A file whose object is there already.
    fn name(&mut self, key: ObjectKey, user: UserId, number: u64) {
        while user != ROOT && self.names_of_others >= MAX_OBJECTS as usize / 2 && self.forget_oldest_name(true) {}
        while self.names >= MAX_OBJECTS as usize * 9 / 10 && self.forget_oldest_name(false) {}
        let Some(object) = self.objects.get_mut(&number) else { return };
        if self.kernel.name(key, &object.placed).is_err() {
            self.later(key, PAUSE);
            return;
        }
        object.keys.push_back((key, user));
        self.names += 1;
        self.names_of_others += usize::from(user != ROOT);
        self.states.insert(key, State::Done);
    }

    /// Forgets the oldest name of the object that has most, of users other than root or of all. If it is used, a sample asks again.
    fn forget_oldest_name(&mut self, of_others: bool) -> bool {
        let counts = |user: UserId| !of_others || user != ROOT;
        let has_name = |object: &&mut Object| object.keys.iter().any(|(_, user)| counts(*user));
        let Some(object) = self.objects.values_mut().filter(has_name).max_by_key(|object| object.keys.len()) else {
            return false;
        };
        // Many at once: looking for the object takes longer than forgetting a name.
        let count = (object.keys.len() / 4).max(1);
        let keys = std::mem::take(&mut object.keys);
        let mut gone = Vec::new();
        for (key, user) in keys {
            match counts(user) && gone.len() < count {
                true => gone.push((key, user)),
                false => object.keys.push_back((key, user)),
            }
        }
        for (key, user) in gone {
            self.kernel.forget_name(key);
            self.states.remove(&key);
            self.names -= 1;
            self.names_of_others -= usize::from(user != ROOT);
        }
        true
    }

    /// A file whose content may be there already, as another one; whether it is.
    pub(super) fn name_by_content(&mut self, key: ObjectKey, user: UserId, content: Content) -> bool {
        let known = self.by_content.get(&content).copied();
        known.into_iter().for_each(|number| self.name(key, user, number));
        known.is_some()
    }

    /// Once a second: room that was let go is free again, what waits for it is placed, and more is let go before there is none.
    /// `now` is in units of 2³⁰ ns of `CLOCK_MONOTONIC`.
    pub(super) fn tidy(&mut self, now: u32, clock: Instant) {
        self.kernel.collect();
        self.place_waiting(clock);
        self.make_room(now);
        let silent = |object: &Object| object.again.is_some_and(|again| again <= clock);
        let silent: Vec<u64> = self.objects.iter().filter(|(_, object)| silent(object)).map(|(number, _)| *number).collect();
        for number in silent {
            self.take_out(number, false);
        }
        self.states.retain(|_, state| !matches!(state, State::Later(until) if *until <= clock));
    }

    /// Tries again to place what waits: root's first.
    fn place_waiting(&mut self, clock: Instant) {
        let mut waiting = std::mem::take(&mut self.unplaced);
        waiting.sort_by_key(|(since, done)| (done.user != ROOT, *since));
        for (since, done) in waiting {
            let layout = done.made.as_ref().map(|(layout, _)| layout);
            let fits = done.user == ROOT || self.kernel.others_may_hold(layout.map_or(0, |layout| layout.bytes() as u64));
            if !fits && clock.saturating_duration_since(since) > PATIENCE {
                self.later(done.key, FULL);
            } else if !fits {
                self.unplaced.push((since, done));
            } else {
                self.finish(done);
            }
        }
    }

    /// Lets tables go where bytes, or places, are nearly used up, or something waits for them.
    fn make_room(&mut self, now: u32) {
        let (bound, places) = (self.kernel.bound(), MAX_OBJECTS);
        let waiting: u64 = self.unplaced.iter().map(|(_, done)| done.bytes() as u64).sum();
        let of_others: u64 =
            self.unplaced.iter().filter(|(_, done)| done.user != ROOT).map(|(_, done)| done.bytes() as u64).sum();
        let others = self.kernel.others();
        if others.bytes + of_others > bound / 20 * 9 || others.slots > places / 20 * 9 {
            let most = Held { bytes: (bound / 5 * 2).saturating_sub(of_others), slots: places / 5 * 2 };
            self.evict(most, Among::Others);
        }
        let used = self.kernel.bytes().0;
        if used + waiting > self.most_bytes {
            let most = Held { bytes: (self.most_bytes / 10 * 9).saturating_sub(waiting), slots: places };
            self.evict(most, Among::Idle { now });
            // What is in use goes only when something waits, and root's only for root's.
            if waiting > 0 {
                self.evict(most, Among::Others);
            }
            if waiting > of_others {
                self.evict(most, Among::All);
            }
        }
        if self.kernel.slots() > places / 10 * 7 {
            self.evict(Held { bytes: u64::MAX, slots: places / 10 * 6 }, Among::All);
        }
    }

    /// Lets tables go until those that stay are at most `most`. The vDSO's stays.
    fn evict(&mut self, most: Held, among: Among) {
        let uses = self.kernel.uses();
        let candidate = |(number, object): (&u64, &Object)| Candidate {
            number: *number,
            user: object.user,
            used: uses.get(object.placed.slot()).copied().unwrap_or(0).max(object.since),
            bytes: object.placed.bytes(),
        };
        let candidates: Vec<Candidate> = self.objects.iter().skip(1).map(candidate).collect();
        for number in choose(&candidates, most, self.kernel.bound(), among) {
            self.evicted += u64::from(self.take_out(number, true));
        }
    }

    /// Frees what was let go at once: for tests that let go of more in a second than programs can.
    #[cfg(test)]
    pub(super) fn forget_the_grace(&mut self) {
        self.kernel.forget_the_grace();
    }

    pub(super) fn status(&self) -> TablesStatus {
        let (bytes, segment_bytes) = self.kernel.bytes();
        let mut status = TablesStatus {
            bytes,
            segment_bytes,
            bound: self.kernel.bound(),
            evicted: self.evicted,
            from_cache: self.from_cache,
            waiting: self.queue.len() + self.working,
            waiting_for_room: self.unplaced.len(),
            cpu: self.queue.spent(),
            held_back: self.queue.held_back(),
            turned_away: self.turned_away,
            ..Default::default()
        };
        for object in self.objects.values() {
            match &object.status.state {
                ObjectState::Ready(summary) => {
                    status.ready += 1;
                    status.rows += summary.rows;
                }
                ObjectState::Without(_) => status.without += 1,
            }
        }
        status
    }

    /// Every object that code ran of.
    pub(super) fn objects(&self) -> Vec<ObjectStatus> {
        self.objects.values().map(|object| object.status.clone()).collect()
    }
}
