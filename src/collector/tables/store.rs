//! Keeps a record of the tables in the kernel: by file, by content, and by the user who is charged.
//!
//! ```text
//! states:     file, user or all ─► asked, not before …, done          by_content: content ─► object
//! objects:    number ─► place, names, charged user                     unplaced:   made, and waits for room
//! ```
//!
//! No user decides for another. A request, a pause and a refusal are those of one user. If another user runs the same file, the file is
//! requested again, and waits in that user's line of the queue. The first table serves all users if flametop has opened the file
//! that is mapped, and ends all other requests. Else it serves the user who has mapped the file: see [`identity`](super::identity).
//!
//! Bounds: there are at most as many objects, and as many names, as the kernel has places. Those that nothing needs go before: [`unused`].
//! A file without an object is forgotten at the time when it may be requested again. At most [`MOST_UNPLACED`] bytes of tables wait for
//! room.

mod unused;

use crate::collector::sys::machine;
use crate::collector::tables::Made;
use crate::collector::tables::MappedRequest;
use crate::collector::wire::records::ObjectKey;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::cache::Content;
use super::files::{Files, KnownFile};
use super::housekeeping::Housekeeping;
use super::kernel::{Held, Kernel, MAX_OBJECTS, NotPlaced, Placed};
use super::queue::{Queue, ROOT, WORKERS};
use super::served::{FileFor, For};
use super::shares::{Among, Candidate, choose};
use super::status::{ObjectState, ObjectStatus, TablesStatus};
use crate::collector::wire::perf_records::Identity;
use crate::collector::wire::records::Wish;
use crate::object::crew::Crew;
use crate::profile::{BuildId, UserId};
use crate::unwind::Packed;

/// Most bytes of finished tables that wait for room. Users other than root together may have half of them.
const MOST_UNPLACED: usize = 64 << 20;
const MOST_UNPLACED_TABLES: usize = 256;

/// Longest time that a table waits for room. [`Kernel::collect`] frees the room of evicted tables after 10 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time until a file that found no room may be requested again.
const FULL: Duration = Duration::from_secs(10);

/// An evicted table is not made again for this many times the CPU time that it took, at most [`SILENCE`]. So making it repeatedly takes at
/// most 1/21 of a CPU. Root's tables need not wait.
const REST: u32 = 20;

/// Most hints (offsets in a file that lack a rule) that are kept for the conversion.
const MOST_HINTS: usize = 256;

/// Time until waiting samples may request the same file again, and the most files that are remembered for this. Root may have twice
/// as many.
const SOUGHT_AGAIN: Duration = Duration::from_secs(1);
const MOST_SOUGHT: usize = 4096;

/// Most files that are remembered, in any state.
const MOST_STATES: usize = 4 * MAX_OBJECTS as usize;

/// The state of a file for one user or for all.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableState {
    /// Its table waits to be made or is being made. Only for a user.
    Asked,
    /// It could not be opened, or its table could not be placed. Requests before this time are ignored. Only for a user.
    Later(Instant),
    /// It leads to the object of this number.
    Done(u64),
}

/// The rule at an offset in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuleAt {
    Rule(Packed),
    /// There is no table yet, or a part of it is still being made.
    NotYet,
}

/// Time until a wish is tried again that failed because its process was gone.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Time until a file system that did not answer is tried again, by the next sample in one of its files.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// A finished table, or why there is none, with its file and user.
pub(super) struct Finished {
    pub(super) key: ObjectKey,
    pub(super) path: Arc<str>,
    /// When the file was modified; `None` if it was not opened.
    pub(super) modified: Option<(i64, u32)>,
    pub(super) content: Option<Content>,
    pub(super) build_id: Option<BuildId>,
    /// Whether only root can write the file.
    pub(super) is_hosts: bool,
    /// The users whom the table serves.
    pub(super) users: For,
    /// Whether a better table follows.
    pub(super) is_partial: bool,
    /// The user whose process needed the table.
    pub(super) asked_by: UserId,
    /// The user who is charged.
    pub(super) user: UserId,
    pub(super) made: Made,
    /// CPU time that it took.
    pub(super) cost: Duration,
    /// When the file may be requested again, if the reason for the failure may pass.
    pub(super) again: Option<Instant>,
}

impl Finished {
    pub(super) fn of_root(key: ObjectKey, path: Arc<str>, made: Made) -> Finished {
        Finished {
            key,
            path,
            modified: None,
            content: None,
            build_id: None,
            is_hosts: false,
            users: For::All,
            is_partial: false,
            asked_by: ROOT,
            user: ROOT,
            made,
            cost: Duration::ZERO,
            again: None,
        }
    }

    fn bytes(&self) -> usize {
        self.made.as_ref().map_or(0, |(layout, _)| layout.bytes())
    }
}

/// A file that leads to an object.
#[derive(Clone, Copy)]
struct Named {
    file: FileFor,
    /// The user who needed it.
    user: UserId,
    /// Since when, in units of 2^30 ns.
    since: u32,
}

struct Object {
    placed: Placed,
    /// The files that lead to the object, the oldest first.
    keys: VecDeque<Named>,
    content: Option<Content>,
    status: ObjectStatus,
    user: UserId,
    /// When it was put into the kernel, in units of 2³⁰ ns.
    since: u32,
    cost: Duration,
    /// When its file may be requested again, if the file gave no answer.
    again: Option<Instant>,
    /// Whether a better table follows.
    is_partial: bool,
}

pub(super) struct Inner {
    kernel: Kernel,
    pub(super) states: FxHashMap<FileFor, TableState>,
    /// The files that lead to an object, and some files that no longer do.
    pub(super) files: Files,
    objects: BTreeMap<u64, Object>,
    next: u64,
    by_content: FxHashMap<Content, u64>,
    pub(super) queue: Queue,
    /// Hints: offsets in files where samples lacked a rule. Only for files whose tables are being made.
    hints: FxHashMap<ObjectKey, Vec<u64>>,
    /// Files that waiting samples of a user requested, and when.
    sought: HashMap<(Arc<str>, Identity, UserId), Instant>,
    /// The jobs on which workers work, and which of these workers are left behind.
    pub(super) crew: Crew,
    pub(super) housekeeping: Housekeeping,
    pub(super) threads: usize,
    /// Workers that wait in the middle of a conversion until its user has CPU time again.
    pub(super) throttled: usize,
    unplaced: Vec<(Instant, Finished)>,
    /// Number of files that lead to an object: `names` for all users, `names_of_others` for users other than root.
    names: usize,
    names_of_others: usize,
    /// Bytes of tables above which idle tables are evicted.
    pub(super) most_bytes: u64,
    evicted: u64,
    pub(super) from_cache: u64,
    /// Counts the changes after which [`Inner::rule`] may return another result.
    pub(super) version: u64,
    turned_away: u64,
    pub(super) stop: bool,
}

impl Inner {
    pub(super) fn new(kernel: Kernel) -> Inner {
        Inner {
            most_bytes: kernel.bound() / 10 * 9,
            kernel,
            states: FxHashMap::default(),
            files: Files::default(),
            objects: BTreeMap::new(),
            next: 0,
            by_content: FxHashMap::default(),
            queue: Queue::new(Instant::now()),
            hints: FxHashMap::default(),
            sought: HashMap::new(),
            crew: Crew::new(WORKERS),
            housekeeping: Housekeeping::default(),
            threads: 0,
            throttled: 0,
            unplaced: Vec::new(),
            names: 0,
            names_of_others: 0,
            evicted: 0,
            from_cache: 0,
            version: 0,
            turned_away: 0,
            stop: false,
        }
    }

    /// Returns the object that a user's processes with this file use.
    fn object_of(&self, key: ObjectKey, user: UserId) -> Option<u64> {
        let number = |file| match self.states.get(&file) {
            Some(TableState::Done(number)) => Some(*number),
            _ => None,
        };
        number(FileFor::all(key)).or_else(|| number(FileFor::user(key, user)))
    }

    /// Whether a file leads to an object for a user.
    pub(super) fn has_object(&self, key: ObjectKey, user: UserId) -> bool {
        self.object_of(key, user).is_some()
    }

    /// Whether a wish needs a job: its file is not known, and the queue has room.
    pub(super) fn is_wanted(&mut self, wish: &Wish) -> bool {
        let is_asked = match self.states.get(&FileFor::user(wish.key, wish.user)) {
            Some(TableState::Asked) => true,
            Some(TableState::Later(until)) => Instant::now() < *until,
            _ => false,
        };
        if is_asked || self.has_object(wish.key, wish.user) {
            return false;
        }
        let has_room = self.queue.has_room(wish.user) && self.states.len() < MOST_STATES;
        self.turned_away += u64::from(!has_room);
        has_room
    }

    /// Notes that the table of a file waits to be made for a user.
    pub(super) fn ask(&mut self, key: ObjectKey, user: UserId) {
        self.states.insert(FileFor::user(key, user), TableState::Asked);
    }

    /// Notes that the table of a file no longer waits to be made for a user.
    pub(super) fn is_answered(&mut self, key: ObjectKey, user: UserId) {
        let file = FileFor::user(key, user);
        if matches!(self.states.get(&file), Some(TableState::Asked)) {
            self.states.remove(&file);
        }
    }

    /// Returns the rule at an offset in a file that a process of `user` has mapped.
    pub(super) fn rule(&mut self, key: ObjectKey, user: UserId, offset: u64) -> RuleAt {
        let Some(object) = self.object_of(key, user).and_then(|number| self.objects.get(&number)) else { return RuleAt::NotYet };
        match self.kernel.rule(&object.placed, offset) {
            Packed::GAP if object.is_partial => {
                let hints = self.hints.entry(key).or_default();
                if hints.len() < MOST_HINTS {
                    hints.push(offset);
                }
                RuleAt::NotYet
            }
            rule => RuleAt::Rule(rule),
        }
    }

    /// Ignores requests of a user for a file until `pause` is over. Removes the first part of a table that was not finished.
    pub(super) fn later(&mut self, key: ObjectKey, user: UserId, pause: Duration) {
        if let Some(number) = self.object_of(key, user)
            && self.objects.get(&number).is_none_or(|object| object.is_partial)
        {
            self.take_out(number, false);
        }
        self.states.insert(FileFor::user(key, user), TableState::Later(Instant::now() + pause));
    }

    #[cfg(test)]
    pub(super) fn hint(&mut self, key: ObjectKey, offset: u64) {
        self.hints.entry(key).or_default().push(offset);
    }

    /// Whether there are hints of a file.
    pub(super) fn has_hints(&self, key: ObjectKey) -> bool {
        self.hints.contains_key(&key)
    }

    /// Returns when the kernel's walk last looked up a rule of a file: in units of 2^30 ns of `CLOCK_MONOTONIC`.
    pub(super) fn last_use(&self, key: ObjectKey, user: UserId) -> Option<u32> {
        let object = self.objects.get(&self.object_of(key, user)?)?;
        self.kernel.last_use(&object.placed).map(|used| used.max(object.since))
    }

    /// Takes the hints of a file: the offsets where samples lacked a rule while its table was being made.
    pub(super) fn take_hints(&mut self, key: ObjectKey) -> Vec<u64> {
        self.hints.remove(&key).unwrap_or_default()
    }

    /// Notes that the table of a file is being made for a user. Returns `false` if the table existed already or was already being made.
    pub(super) fn begin(&mut self, key: ObjectKey, user: UserId) -> bool {
        let is_asked = matches!(self.states.get(&FileFor::user(key, user)), Some(TableState::Asked));
        let is_known = is_asked || self.has_object(key, user);
        if !is_known {
            self.ask(key, user);
        }
        !is_known
    }

    /// Adds the known facts about a file: see [`Files::insert`].
    pub(super) fn add_file(&mut self, file: KnownFile, user: UserId) {
        self.files.insert(file, user);
        self.version += 1;
    }

    /// Whether a request of a waiting sample needs a job. A user gets at most one job for a file in [`SOUGHT_AGAIN`].
    pub(super) fn is_sought(&mut self, request: &MappedRequest) -> bool {
        let sought = (request.path.clone(), request.identity, request.user);
        if self.sought.contains_key(&sought) {
            return false;
        }
        let most = if request.user == ROOT { 2 * MOST_SOUGHT } else { MOST_SOUGHT };
        let has_room = self.queue.has_room(request.user) && self.sought.len() < most;
        if has_room {
            self.sought.insert(sought, Instant::now());
        }
        has_room
    }

    /// Whether there could be room in the kernel for another table of a user.
    pub(super) fn may_hold(&self, user: UserId) -> bool {
        let waiting = self.unplaced.iter().filter(|(_, other)| other.user != ROOT).count();
        user == ROOT || self.kernel.others_may_hold(0) && waiting < MOST_UNPLACED_TABLES / 2
    }

    /// Puts a finished table into the kernel and lets its file lead to it. Without room, the table waits.
    pub(super) fn finish(&mut self, mut done: Finished) {
        let file = FileFor { key: done.key, users: done.users };
        let before = match self.states.get(&file) {
            Some(TableState::Done(before)) => Some(*before),
            _ => None,
        };
        if before.and_then(|before| self.objects.get(&before)).is_some_and(|object| !object.is_partial) {
            // A job of another user has made the table meanwhile.
            self.is_answered(done.key, done.asked_by);
            return;
        }
        let placed = match &done.made {
            Ok((layout, _)) => self.kernel.put(layout, done.user, done.is_partial),
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
            // The first part stays until there is room for the whole table.
            if !done.is_partial {
                self.wait_for_room(done);
            }
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
            status: ObjectStatus { path: done.path.clone(), state },
            user: done.user,
            since: machine::coarse(machine::now()),
            cost: done.cost,
            again: done.again,
            is_partial: done.is_partial,
        };
        self.objects.insert(number, object);
        if let Some(content) = done.content {
            self.by_content.insert(content, number);
        }
        let Finished { key, modified, build_id, users, is_hosts, path, .. } = done;
        self.files.insert(KnownFile { key, modified, build_id, users, is_hosts, path }, done.asked_by);
        match before {
            Some(before) => self.replace(before, number),
            None => self.name(file, done.asked_by, number),
        }
        self.is_answered(key, done.asked_by);
    }

    /// Links all files of an object to a better object, and takes the old object out. A walk that has found the old object finds the better
    /// one at its next lookup, so no file is without a table meanwhile.
    fn replace(&mut self, before: u64, number: u64) {
        let Some(old) = self.objects.remove(&before) else { return };
        if let Some(content) = old.content.filter(|content| self.by_content.get(content) == Some(&before)) {
            self.by_content.insert(content, number);
        }
        let mut keys = VecDeque::new();
        for named in old.keys {
            let is_named = self.objects.get(&number).is_some_and(|object| self.kernel.name(named.file, &object.placed).is_ok());
            if is_named {
                self.states.insert(named.file, TableState::Done(number));
                keys.push_back(named);
            } else {
                self.forget_name(named);
                self.later(named.file.key, named.user, PAUSE);
            }
        }
        self.objects.get_mut(&number).into_iter().for_each(|object| object.keys.append(&mut keys));
        self.kernel.take_out(&[], old.placed);
        self.version += 1;
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
            self.later(done.key, done.asked_by, FULL);
            return;
        }
        self.unplaced.push((Instant::now(), done));
    }

    /// Notes that a file has no table for a user, because it does not answer that user's processes or cannot be verified. The user's samples
    /// may request it again after [`SILENCE`].
    pub(super) fn refuse(&mut self, key: ObjectKey, user: UserId, path: Arc<str>, why: String) {
        let again = Some(Instant::now() + SILENCE);
        self.finish(Finished { asked_by: user, user, users: For::User(user), again, ..Finished::of_root(key, path, Err(why)) });
    }

    /// Takes an object out of the kernel, so that the next sample in it requests a table.
    /// With `pause`, such requests are ignored for a while.
    fn take_out(&mut self, number: u64, pause: bool) -> bool {
        let Some(object) = self.objects.remove(&number) else { return false };
        let rest = (pause && object.user != ROOT).then(|| Instant::now() + (object.cost * REST).min(SILENCE));
        for Named { file, user, .. } in &object.keys {
            self.names -= 1;
            self.names_of_others -= usize::from(*user != ROOT);
            self.states.remove(file);
            if let Some(until) = rest {
                self.states.insert(FileFor::user(file.key, *user), TableState::Later(until));
            }
        }
        if let Some(content) = object.content.filter(|content| self.by_content.get(content) == Some(&number)) {
            self.by_content.remove(&content);
        }
        let files: Vec<FileFor> = object.keys.iter().map(|named| named.file).collect();
        self.kernel.take_out(&files, object.placed);
        true
    }

    /// Lets a file lead to an object that is in the kernel.
    fn name(&mut self, file: FileFor, user: UserId, number: u64) {
        while user != ROOT && self.names_of_others >= MAX_OBJECTS as usize / 2 && self.forget_oldest_name(true) {}
        while self.names >= MAX_OBJECTS as usize * 9 / 10 && self.forget_oldest_name(false) {}
        let Some(object) = self.objects.get_mut(&number) else { return };
        if self.kernel.name(file, &object.placed).is_err() {
            self.later(file.key, user, PAUSE);
            return;
        }
        object.keys.push_back(Named { file, user, since: machine::coarse(machine::now()) });
        self.names += 1;
        self.names_of_others += usize::from(user != ROOT);
        self.states.insert(file, TableState::Done(number));
        self.version += 1;
    }

    /// Forgets the oldest names of the object with the most names. With `of_others`, only names of users other than root count. If a name
    /// is still used, the next sample requests it again.
    fn forget_oldest_name(&mut self, of_others: bool) -> bool {
        let counts = |user: UserId| !of_others || user != ROOT;
        let has_name = |object: &&mut Object| object.keys.iter().any(|named| counts(named.user));
        let Some(object) = self.objects.values_mut().filter(has_name).max_by_key(|object| object.keys.len()) else {
            return false;
        };
        // Forgets a quarter in one call, because finding the object takes longer than forgetting a name.
        let count = (object.keys.len() / 4).max(1);
        let keys = std::mem::take(&mut object.keys);
        let mut gone = Vec::new();
        for named in keys {
            match counts(named.user) && gone.len() < count {
                true => gone.push(named),
                false => object.keys.push_back(named),
            }
        }
        for named in gone {
            self.forget_name(named);
        }
        true
    }

    /// Forgets a file that its object no longer lists.
    fn forget_name(&mut self, named: Named) {
        self.kernel.forget_name(named.file);
        self.states.remove(&named.file);
        self.names -= 1;
        self.names_of_others -= usize::from(named.user != ROOT);
    }

    /// Lets a file lead to the object with the same content, if there is one. Returns whether there is.
    pub(super) fn name_by_content(&mut self, file: FileFor, user: UserId, content: Content) -> bool {
        let Some(number) = self.by_content.get(&content).copied() else { return false };
        if !matches!(self.states.get(&file), Some(TableState::Done(_))) {
            self.name(file, user, number);
        }
        true
    }

    /// Frees the room of evicted tables, places waiting ones, and evicts more if room is short. To be called once a second.
    /// `now` is in units of 2³⁰ ns of `CLOCK_MONOTONIC`.
    pub(super) fn tidy(&mut self, now: u32, clock: Instant) {
        self.kernel.forget_views();
        self.kernel.collect();
        self.place_waiting(clock);
        self.make_room(now);
        let silent = |object: &Object| object.again.is_some_and(|again| again <= clock);
        let silent: Vec<u64> = self.objects.iter().filter(|(_, object)| silent(object)).map(|(number, _)| *number).collect();
        for number in silent {
            self.take_out(number, false);
        }
        self.states.retain(|_, state| !matches!(state, TableState::Later(until) if *until <= clock));
        self.sought.retain(|_, since| clock.saturating_duration_since(*since) < SOUGHT_AGAIN);
        let known: FxHashSet<ObjectKey> = self.states.keys().map(|file| file.key).collect();
        self.files.retain(|key| known.contains(key));
        let partial = self.objects.values().filter(|object| object.is_partial);
        let partial: FxHashSet<ObjectKey> = partial.flat_map(|object| &object.keys).map(|named| named.file.key).collect();
        self.hints.retain(|key, _| partial.contains(key));
    }

    /// Returns the approximate bytes held.
    pub(super) fn memory(&self) -> usize {
        /// Bytes of an object: its entry, a path, a place in the kernel, and the files that lead to it.
        const OF_OBJECT: usize = size_of::<(u64, Object)>() + 400;
        self.states.capacity() * (size_of::<(FileFor, TableState)>() + 1)
            + self.by_content.capacity() * (size_of::<(Content, u64)>() + 1)
            + self.objects.len() * OF_OBJECT
            + self.files.memory()
    }

    /// Tries to place the waiting tables, root's first.
    fn place_waiting(&mut self, clock: Instant) {
        let mut waiting = std::mem::take(&mut self.unplaced);
        waiting.sort_by_key(|(since, done)| (done.user != ROOT, *since));
        for (since, done) in waiting {
            let layout = done.made.as_ref().map(|(layout, _)| layout);
            let fits = done.user == ROOT || self.kernel.others_may_hold(layout.map_or(0, |layout| layout.bytes() as u64));
            if !fits && clock.saturating_duration_since(since) > PATIENCE {
                self.later(done.key, done.asked_by, FULL);
            } else if !fits {
                self.unplaced.push((since, done));
            } else {
                self.finish(done);
            }
        }
    }

    /// Evicts tables if bytes or places are nearly used up, or if tables wait for room.
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
            // Tables in use are evicted only if tables wait for room; root's only if root's tables wait.
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

    /// Evicts tables until those that stay are at most `most`. The vDSO's always stays.
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

    /// Frees the room of evicted tables at once. For tests, which evict more in a second than real programs cause.
    #[cfg(test)]
    pub(super) fn forget_the_grace(&mut self) {
        self.kernel.forget_the_grace();
    }

    /// Whether a table may come soon. Tables whose file does not answer, or whose user has no time left, do not count.
    pub(super) fn is_any_coming(&self, now: Instant) -> bool {
        let may_come = |user| !self.crew.is_held_up(user, now);
        self.crew.working(now) > 0 || !self.unplaced.is_empty() || self.queue.has_job(may_come)
    }

    pub(super) fn status(&self) -> TablesStatus {
        let (bytes, segment_bytes) = self.kernel.bytes();
        let mut status = TablesStatus {
            bytes,
            segment_bytes,
            bound: self.kernel.bound(),
            evicted: self.evicted,
            from_cache: self.from_cache,
            waiting: self.queue.len() + self.crew.working(Instant::now()),
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

    /// Returns the status of every object whose code was sampled.
    pub(super) fn objects(&self) -> Vec<ObjectStatus> {
        self.objects.values().map(|object| object.status.clone()).collect()
    }
}
