//! Fresh name tables that hold only the names that samples still need. In this way the memory of unused names is freed.
//!
//! The tables of [`Names`] only grow, so they can be read without a lock. When many entries may be unused, the frames and labels that
//! samples still point to are copied to new tables. The old tables are freed when their last user drops them.
//!
//! ```text
//! collecting thread   Renewals::step()   copies some thousand frames at each drain
//!                     finish             gives the profile's stacks and threads the new ids, and the profile the new tables (`names`):
//!                                        its epoch changes
//! collector           begins its caches of frames and labels again
//! symbolizer          takes over what it holds of the objects that were copied
//! engine              sees that the profile has other names, and builds its trees again
//! screen              gets the new tables with the next snapshot, and finds its labels there by their words
//! ```
//!
//! Ids of the new tables come after those of the old ones, so a request with an old id finds nothing.
//!
//! Two kinds of frames are copied only for the samples that have them: frames of JIT code, and frames that still wait for their name. The
//! copies are not found by their address. So the next sample at such an address makes a new frame and a new request. For JIT code the
//! symbolizer needs this request: it has to follow the code from its first sample on.

use crate::profile::ids::Id;
use crate::profile::names::budget::listed;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};

use rustc_hash::FxHashMap;

use crate::locks;
use crate::profile::ids::{FrameId, LabelId, ObjectId, Timestamp};
use crate::profile::names::frame::Frame;
use crate::profile::names::table::{CHAIN, FrameTable, Names};
use crate::profile::store::profile::Profile;

/// Names are copied when two conditions hold. Names take 1.5 times as much memory as after the last renewal, and more than this part
/// of their limit. And the samples that have gone since then are at least half as many as the present ones.
const LEAST_PART: usize = 32;
/// Instead of the first condition, it is enough that an entry was refused since the last renewal and that this pause is over: nanoseconds.
const PAUSE: u64 = 60_000_000_000;
/// The shortest pause between two renewals: nanoseconds.
const LEAST_PAUSE: u64 = 10_000_000_000;
/// How long a renewal waits for frames that still have no name: nanoseconds.
const PATIENCE: u64 = 10_000_000_000;
/// Nodes of the stack trie that one step visits: some milliseconds of work.
const STEP: usize = 1 << 15;

/// The copy of a frame of the old tables.
#[derive(Clone, Copy)]
struct Copied {
    frame: FrameId,
    /// Its naming when it was copied.
    naming: u32,
}

/// New tables that replace old ones, and the new ids of the copied objects.
#[derive(Debug)]
pub struct Renewed {
    /// The new tables.
    pub names: Arc<Names>,
    /// The objects that were copied: old id, new id.
    pub objects: FxHashMap<ObjectId, ObjectId>,
}

/// Copies names from one set of tables to another.
pub(crate) struct Renewal {
    old: Arc<Names>,
    new: Arc<Names>,
    /// The copy of each frame, by the old frame's index.
    frames: Vec<Option<Copied>>,
    labels: FxHashMap<LabelId, LabelId>,
    objects: FxHashMap<ObjectId, ObjectId>,
}

impl Names {
    /// Returns empty tables with the same limits, and with ids that come after the ids of these tables.
    fn successor(&self) -> Names {
        let next = Names::bounded(self.limit);
        next.budget.remember_refused(&self.budget);
        let labels = self.labels.successor(Arc::clone(&next.budget));
        let frames = FrameTable { first: self.frames.first.after(self.frames.len()), ..FrameTable::default() };
        Names { labels, frames, ..next }
    }

    /// Adds a frame that another table had; `is_found` says whether it is found by its address.
    fn adopt_frame(&self, frame: Frame, naming: u32, is_found: bool) -> FrameId {
        let user = self.payer(frame.object());
        let add = || {
            self.budget.take(user, Self::OF_A_FRAME);
            if self.is_jit(frame.object()) {
                self.jit.take(user, Self::OF_A_FRAME);
            }
            self.frames.push(frame, naming)
        };
        if is_found { *self.frames.ids.entry(frame.into()).or_insert_with(add) } else { add() }
    }
}

impl Renewal {
    /// Returns a renewal from one set of tables to another, which has copied nothing yet.
    pub(crate) fn between(old: &Arc<Names>, new: &Arc<Names>) -> Renewal {
        Renewal {
            old: Arc::clone(old),
            new: Arc::clone(new),
            frames: Vec::new(),
            labels: FxHashMap::default(),
            objects: FxHashMap::default(),
        }
    }

    fn label(&mut self, id: LabelId) -> LabelId {
        if let Some(copied) = self.labels.get(&id) {
            return *copied;
        }
        let copied = self.old.labels.get(id).map_or(LabelId(0), |label| self.new.labels.adopt(label));
        self.labels.insert(id, copied);
        copied
    }

    fn object(&mut self, id: ObjectId) -> ObjectId {
        if id.0 <= ObjectId::MORE.0 {
            return id;
        }
        let (old, new) = (&self.old, &self.new);
        *self.objects.entry(id).or_insert_with(|| {
            let Some(object) = old.objects.get(id) else { return ObjectId::MORE };
            let before = new.budget.used_by(object.user);
            let copied = new.objects.adopt(object.clone());
            if new.is_jit(copied) {
                new.jit.take(object.user, new.budget.used_by(object.user).saturating_sub(before));
            }
            copied
        })
    }

    fn labels_in(&mut self, naming: u32) -> Vec<LabelId> {
        if naming & CHAIN == 0 {
            return vec![self.label(LabelId(naming))];
        }
        let old = Arc::clone(&self.old);
        let chain = old.frames.chains.get((naming & !CHAIN) as usize).map_or(&[][..], |chain| chain);
        chain.iter().map(|label| self.label(*label)).collect()
    }

    /// Returns the frame in the new tables. `is_settled`: no frame waits for its name.
    fn frame(&mut self, id: FrameId, is_settled: bool) -> FrameId {
        let (Some(index), Some(entry)) = (self.old.frames.index(id), self.old.frames.entry(id)) else { return id };
        if let Some(Some(copied)) = self.frames.get(index) {
            return copied.frame;
        }
        let (frame, naming) = (Frame::from(entry.frame), entry.naming.load(Ordering::Acquire));
        let is_found = self.old.frames.ids.get(&entry.frame).is_some_and(|found| *found == id);
        let waits = || naming & CHAIN == 0 && self.old.labels.get(LabelId(naming)).is_some_and(|label| label.provisional);
        let is_found = is_found && !self.old.is_jit(frame.object()) && (is_settled || !waits());
        let frame = match frame {
            Frame::Named(label) => Frame::Named(self.label(label)),
            Frame::Script { object, label, line } => {
                Frame::Script { object: self.object(object), label: self.label(label), line }
            }
            frame => frame.with_object(self.object(frame.object())),
        };
        let labels = self.labels_in(naming);
        let copy = match labels.as_slice() {
            [label] => self.new.adopt_frame(frame, label.0, is_found),
            labels => {
                let user = self.new.payer(frame.object());
                self.new.budget.take(user, listed::<Box<[LabelId]>>() + size_of_val(labels) + 16);
                let chain = u32::try_from(self.new.frames.chains.push(labels.into())).unwrap_or(0);
                self.new.adopt_frame(frame, CHAIN | chain, is_found)
            }
        };
        if self.frames.len() <= index {
            self.frames.resize(index + 1, None);
        }
        self.frames[index] = Some(Copied { frame: copy, naming });
        copy
    }

    /// Copies the frames that are not copied yet, and the names that copied frames got meanwhile. Gives the profile's stacks and threads
    /// the new ids.
    pub(crate) fn finish(mut self, profile: &mut Profile, is_settled: bool) -> Renewed {
        for index in 0..self.frames.len() {
            let Some(Some(copied)) = self.frames.get(index).copied() else { continue };
            let naming = self.old.frames.frames.get(index).map_or(copied.naming, |entry| entry.naming.load(Ordering::Acquire));
            if naming != copied.naming {
                let labels = self.labels_in(naming);
                self.new.name_frame(copied.frame, &labels);
            }
        }
        let names = Arc::clone(&self.new);
        profile.rename(&names, &mut |step| match step {
            Id::Frame(frame) => *frame = self.frame(*frame, is_settled),
            Id::Label(label) => *label = self.label(*label),
        });
        Renewed { names, objects: self.objects }
    }
}

/// Renews the names of one profile, whenever it is due.
#[derive(Default)]
pub struct Renewals {
    running: Option<Running>,
    /// State at the end of the last renewal: its time, the memory of names, the number of refused entries, and the number of the first
    /// sample.
    last: Timestamp,
    left: usize,
    refused: u64,
    first: u64,
}

struct Running {
    renewal: Renewal,
    since: Timestamp,
    epoch: u64,
    /// The next node to visit.
    next: usize,
}

impl Renewals {
    /// Does one step. Returns the new tables when they have replaced the old ones. The thread that records samples calls this at each
    /// drain. `is_settled` says whether no frame waits for its name.
    pub fn step(&mut self, profile: &RwLock<Profile>, now: Timestamp, is_settled: bool) -> Option<Renewed> {
        let read = || locks::read(profile);
        let write = || locks::write(profile);
        let Some(running) = &mut self.running else {
            if self.is_due(&read(), now) {
                let mut profile = write();
                let names = Arc::clone(profile.names()?);
                profile.compact();
                let renewal = Renewal::between(&names, &Arc::new(names.successor()));
                self.running = Some(Running { renewal, since: now, epoch: profile.epoch(), next: 1 });
            }
            return None;
        };
        {
            let profile = read();
            if profile.epoch() != running.epoch {
                (running.epoch, running.next) = (profile.epoch(), 1);
            }
            let to = profile.stacks.len().min(running.next + STEP);
            for node in running.next..to {
                let frame = profile.stacks.frame_of(node);
                running.renewal.frame(frame, is_settled);
            }
            running.next = to;
            let is_late = now.0.saturating_sub(running.since.0) > PATIENCE;
            if to < profile.stacks.len() || !is_settled && !is_late {
                return None;
            }
        }
        let renewal = self.running.take()?.renewal;
        let renewed = renewal.finish(&mut write(), is_settled);
        (self.last, self.left, self.refused) = (now, renewed.names.memory(), renewed.names.refused());
        self.first = read().samples.first();
        Some(renewed)
    }

    /// Renews names at once, whether it is due or not: for tests.
    #[doc(hidden)]
    pub fn at_once(profile: &RwLock<Profile>) -> Option<Renewed> {
        let mut profile = locks::write(profile);
        let names = Arc::clone(profile.names()?);
        Some(Renewal::between(&names, &Arc::new(names.successor())).finish(&mut profile, true))
    }

    fn is_due(&self, profile: &Profile, now: Timestamp) -> bool {
        let Some(names) = profile.names() else { return false };
        // As long as samples stay, most of their names are needed: a recording would copy all names for nothing.
        let gone = profile.samples.first().saturating_sub(self.first);
        if gone * 2 < profile.samples.len() as u64 || gone == 0 {
            return false;
        }
        let pause = now.0.saturating_sub(self.last.0);
        let has_grown = names.memory() > (self.left / 2 * 3).max(names.limit / LEAST_PART);
        pause > LEAST_PAUSE && has_grown || pause > PAUSE && names.refused() > self.refused
    }
}

#[cfg(test)]
mod tests;
