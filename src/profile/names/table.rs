//! The name tables that every room shares.
//!
//! A [`Frame`] gets a provisional [`Label`](crate::profile::Label) at once, such as `libc.so.6+0x1234`. It gets a better label when the
//! symbolizer has found the name. Trees merge frames by label: two addresses of one function have one label. The three tables only grow,
//! until other tables replace them ([`Renewals`](crate::profile::store::renewal::Renewals)), so they can be read without a lock. All rooms share them through [`Names`]. Their growth
//! is bounded: see [`Names::bounded`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dashmap::{DashMap, Entry};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, hashed, listed};
use super::folding::Folding;
use super::frame::{Frame, PackedFrame};
use super::labels::{FrameKind, LabelTable};
use super::language::Language;
use super::list::List;
use super::objects::{Object, ObjectKind, ObjectTable};
use crate::profile::ids::{FirstId, FrameId, LabelId, ObjectId, Tgid, UserId};

pub(in crate::profile) struct FrameEntry {
    pub(in crate::profile) frame: PackedFrame,
    /// A label id; or, if the top bit is set, an index into `chains`.
    pub(in crate::profile) naming: AtomicU32,
}

pub(in crate::profile) const CHAIN: u32 = 1 << 31;

/// The table of all frames and their labels. It only grows, until another table follows (see [`Renewals`](crate::profile::Renewals)).
/// Reading takes no lock.
#[derive(Default)]
pub struct FrameTable {
    pub(in crate::profile) first: FirstId,
    pub(in crate::profile) frames: List<FrameEntry, 1024>,
    pub(in crate::profile) ids: DashMap<PackedFrame, FrameId, FxBuildHasher>,
    pub(in crate::profile) chains: boxcar::Vec<Box<[LabelId]>>,
}

impl FrameTable {
    /// Returns the frame, or `None` for an id of another table.
    pub fn get(&self, id: FrameId) -> Option<Frame> {
        self.entry(id).map(|entry| entry.frame.into())
    }

    pub(in crate::profile) fn entry(&self, id: FrameId) -> Option<&FrameEntry> {
        self.frames.get(self.index(id)?)
    }

    /// Returns the index of a frame in this table, for arrays; `None` for a frame of an older table.
    pub fn index(&self, id: FrameId) -> Option<usize> {
        self.first.index(id.0)
    }

    /// Returns the ids of all frames.
    pub fn ids(&self) -> impl Iterator<Item = FrameId> + use<> {
        let first = self.first;
        (0..self.len()).map(move |index| FrameId(first.id(index)))
    }

    pub(in crate::profile) fn push(&self, frame: Frame, naming: u32) -> FrameId {
        FrameId(self.first.id(self.frames.push(FrameEntry { frame: frame.into(), naming: AtomicU32::new(naming) })))
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The three tables that every room shares, and a counter of changes: a view compares it to see whether names have changed.
pub struct Names {
    /// The objects that hold code.
    pub objects: ObjectTable,
    /// The labels of frames.
    pub labels: LabelTable,
    /// The frames.
    pub frames: FrameTable,
    pub(in crate::profile) generation: AtomicU64,
    /// Frames that had a name and got another one: functions inlined into them were found, or the name of JIT code.
    pub(in crate::profile) renamed: boxcar::Vec<FrameId>,
    /// Frames whose address has other code by now.
    pub(in crate::profile) outdated: boxcar::Vec<FrameId>,
    pub(in crate::profile) budget: Arc<Budget>,
    /// The label of all JIT code that has no name.
    pub(in crate::profile) anonymous: OnceLock<LabelId>,
    /// The part of `budget` that addresses of JIT code may take.
    pub(in crate::profile) jit: Budget,
    pub(in crate::profile) limit: usize,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("frames", &self.frames.len()).field("labels", &self.labels.len()).finish_non_exhaustive()
    }
}

impl Default for Names {
    /// Returns tables without a bound, for files.
    fn default() -> Self {
        Names::bounded(usize::MAX)
    }
}

/// Divisor of JIT code's share: JIT code may take 2/`JIT_SHARE` of the budget. Root alone gets 7/8 of that, which is a quarter of the whole
/// budget. The share is limited because an address of JIT code belongs to one process. Without the limit, short-lived programs would fill
/// the budget, and the files that all programs share would have no room.
const JIT_SHARE: usize = 7;

impl Names {
    /// Returns empty tables that accept no new address once they hold `limit` bytes. Refused addresses share one frame for each object,
    /// such as `[more addresses of libc.so.6]`. Names of addresses that were accepted earlier have another eighth of the limit.
    pub fn bounded(limit: usize) -> Names {
        let budget = Arc::new(Budget::new(limit));
        Names {
            objects: ObjectTable::new(Arc::clone(&budget)),
            labels: LabelTable::new(Arc::clone(&budget)),
            frames: FrameTable::default(),
            generation: AtomicU64::new(0),
            renamed: boxcar::Vec::new(),
            outdated: boxcar::Vec::new(),
            budget,
            anonymous: OnceLock::new(),
            jit: Budget::new(limit / JIT_SHARE * 2),
            limit,
        }
    }

    /// Returns the bytes held, counted as entries are made.
    pub fn memory(&self) -> usize {
        self.budget.used()
    }

    /// Returns how often an address, a name or an object was refused because names had filled their memory.
    pub fn refused(&self) -> u64 {
        self.budget.refused()
    }

    /// Returns the user with the most refused entries, and their number.
    pub fn refused_most(&self) -> Option<(UserId, u64)> {
        self.budget.refused_most()
    }

    /// Returns the frame's id. A new frame is named `module+0x1234`, and the result has `true`: the caller should have the frame looked up.
    pub fn intern_frame(&self, frame: Frame) -> (FrameId, bool) {
        if let Some(id) = self.frames.ids.get(&frame.into()) {
            return (*id, false);
        }
        let object = frame.object();
        let (is_jit, user) = (self.is_jit(object), self.payer(object));
        let is_full = self.budget.is_full(user) || is_jit && self.jit.is_full(user);
        if object == ObjectId::MORE || is_full && self.has_many_addresses(object) {
            self.budget.refuse(user);
            // All processes share one frame for JIT code. It is no name, and unnamed JIT code has only one label anyway.
            return (self.more_addresses(if is_jit { ObjectId::ANONYMOUS } else { object }), false);
        }
        let (id, new) = self.insert_frame(frame, |frame| self.first_label(frame));
        if new && is_jit {
            self.jit.take(user, Self::OF_A_FRAME);
        }
        (id, new)
    }

    /// Returns whether these frames are in different files that different users run. Then no line of source is true of all of them: another
    /// user's program may have a function and a file of the same name.
    pub fn users_differ(&self, frames: impl Iterator<Item = FrameId>) -> bool {
        let objects = frames.filter_map(|frame| self.objects.get(self.frames.get(frame)?.object()));
        let mut objects = objects.filter(|object| object.kind != ObjectKind::Kernel);
        let Some(first) = objects.next() else { return false };
        let file = |object: &Object| (object.kind, object.build_id, object.file, object.files);
        objects.any(|object| object.user != first.user && (object.path != first.path || file(object) != file(first)))
    }

    /// Returns the object for the code that a process of `user` made at run time. `life` distinguishes the process from others that had its
    /// number, and from itself before it ran another program. Returns [`ObjectId::ANONYMOUS`] when JIT code has filled its share of the
    /// memory.
    pub fn jit_object(&self, user: UserId, tgid: Tgid, life: u64) -> ObjectId {
        if self.budget.is_full(user) || self.jit.is_full(user) {
            self.budget.refuse(user);
            return ObjectId::ANONYMOUS;
        }
        let before = self.budget.used_by(user);
        let file = Some((u64::from(tgid.0), life));
        let object = Object { kind: ObjectKind::Anonymous, path: "[anon]".into(), file, user, ..Object::default() };
        let object = self.objects.intern(object);
        // Other threads may charge the budget meanwhile. That is harmless: it matters only that this share fills as objects come.
        self.jit.take(user, self.budget.used_by(user).saturating_sub(before));
        if object == ObjectId::MORE { ObjectId::ANONYMOUS } else { object }
    }

    /// Returns the user who is charged for a frame and its names.
    pub fn user_of(&self, frame: FrameId) -> UserId {
        self.frames.get(frame).map_or(UserId(0), |frame| self.payer(frame.object()))
    }

    /// Returns the user who is charged for an object's frames.
    pub(in crate::profile) fn payer(&self, object: ObjectId) -> UserId {
        self.objects.get(object).map_or(UserId(0), |object| object.user)
    }

    /// Whether the object is the JIT code of one process.
    pub(in crate::profile) fn is_jit(&self, object: ObjectId) -> bool {
        object != ObjectId::ANONYMOUS && self.objects.get(object).is_some_and(|object| object.kind == ObjectKind::Anonymous)
    }

    pub(in crate::profile) const OF_A_FRAME: usize = listed::<FrameEntry>() + hashed::<(PackedFrame, FrameId)>();

    pub(in crate::profile) fn insert_frame(&self, frame: Frame, label: impl FnOnce(Frame) -> LabelId) -> (FrameId, bool) {
        match self.frames.ids.entry(frame.into()) {
            Entry::Occupied(entry) => (*entry.get(), false),
            Entry::Vacant(entry) => {
                let label = label(frame);
                self.budget.take(self.payer(frame.object()), Self::OF_A_FRAME);
                let id = self.frames.push(frame, label.0);
                entry.insert(id);
                (id, true)
            }
        }
    }

    /// Whether the object's frames are addresses. Frames of other objects are names, or there is one frame for the whole object.
    pub(in crate::profile) fn has_many_addresses(&self, object: ObjectId) -> bool {
        let kind = self.objects.get(object).map(|object| object.kind);
        matches!(kind, Some(ObjectKind::Elf | ObjectKind::Kernel | ObjectKind::Vdso | ObjectKind::Script)) || self.is_jit(object)
    }

    /// Returns the frame that all refused addresses of an object share.
    pub(in crate::profile) fn more_addresses(&self, object: ObjectId) -> FrameId {
        let frame = Frame::AnyOf(object);
        if let Some(id) = self.frames.ids.get(&frame.into()) {
            return *id;
        }
        let label = |_| {
            let short = self.objects.get(object).map_or("", Object::short_name);
            let kind = match object {
                ObjectId::KERNEL => FrameKind::Kernel,
                ObjectId::ANONYMOUS => FrameKind::Jit,
                _ => match self.objects.get(object).filter(|object| object.kind == ObjectKind::Script) {
                    Some(file) => FrameKind::Script(Language::of_file(&file.path).unwrap_or(Language::Python)),
                    None => FrameKind::Unknown,
                },
            };
            match object {
                ObjectId::MORE => self.labels.intern_always(short, "", kind),
                _ => self.labels.intern_always(&format!("[more addresses of {short}]"), short, kind),
            }
        };
        self.insert_frame(frame, label).0
    }

    /// Returns the frame that is only this name.
    pub fn intern_named(&self, label: LabelId) -> FrameId {
        self.intern_frame(Frame::Named(label)).0
    }

    pub(in crate::profile) fn first_label(&self, frame: Frame) -> LabelId {
        if let Frame::Named(label) | Frame::Script { label, .. } = frame {
            return label;
        }
        let Some(object) = self.objects.get(frame.object()) else {
            return self.labels.intern_always("[unknown]", "", FrameKind::Unknown);
        };
        let short = object.short_name();
        match object.kind {
            ObjectKind::Anonymous => self.anonymous_label(),
            ObjectKind::Unmapped => self.labels.intern_always("[unknown]", "", FrameKind::Unknown),
            kind => {
                let shown = if kind == ObjectKind::Kernel { FrameKind::Kernel } else { FrameKind::Unknown };
                self.labels.stand_in(object.user, &format!("{short}+{:#x}", frame.address()), short, shown)
            }
        }
    }

    /// Returns the label of JIT code without a name. All such code has this one label, so that trees merge it.
    pub(in crate::profile) fn anonymous_label(&self) -> LabelId {
        *self.anonymous.get_or_init(|| self.labels.intern_always("[anon]", "", FrameKind::Jit))
    }

    /// Whether a frame is JIT code without a name, which may yet get one. The label cannot show whether the frame gets a name: all such
    /// frames share it, and it is never replaced. [`Names::renamed_since`] reports the frame instead.
    #[cfg(test)]
    pub(in crate::profile) fn is_anonymous(&self, id: FrameId) -> bool {
        let Some(entry) = self.frames.entry(id) else { return false };
        let naming = LabelId(entry.naming.load(Ordering::Acquire));
        self.anonymous.get() == Some(&naming) && self.is_jit(Frame::from(entry.frame).object())
    }

    /// Gives a frame its labels, root first: the function itself, then the functions that were inlined into it.
    ///
    /// An empty slice changes nothing.
    pub fn name_frame(&self, id: FrameId, labels: &[LabelId]) {
        let (Some(entry), Some(&first)) = (self.frames.entry(id), labels.first()) else {
            return;
        };
        let naming = if labels.len() == 1 {
            first.0
        } else {
            self.budget
                .take(self.payer(Frame::from(entry.frame).object()), listed::<Box<[LabelId]>>() + size_of_val(labels) + 16);
            u32::try_from(self.frames.chains.push(labels.into())).map_or(first.0, |index| CHAIN | index)
        };
        let before = entry.naming.swap(naming, Ordering::AcqRel);
        if before & CHAIN == 0 {
            self.labels.replace(LabelId(before), first);
        }
        let had_a_name = before & CHAIN != 0 || self.labels.get(LabelId(before)).is_some_and(|label| !label.provisional);
        if before != naming && had_a_name {
            self.budget.take(self.payer(Frame::from(entry.frame).object()), listed::<FrameId>());
            self.renamed.push(id);
        }
        if before != naming {
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns a number that changes whenever the frame gets other labels.
    pub(crate) fn naming(&self, id: FrameId) -> Option<u32> {
        Some(self.frames.entry(id)?.naming.load(Ordering::Acquire))
    }

    /// Visits the labels of a frame, root first. There is almost always one.
    pub fn labels_of(&self, id: FrameId, mut each: impl FnMut(LabelId)) {
        let Some(entry) = self.frames.entry(id) else { return };
        let naming = entry.naming.load(Ordering::Acquire);
        if naming & CHAIN == 0 {
            each(LabelId(naming));
        } else if let Some(chain) = self.frames.chains.get((naming & !CHAIN) as usize) {
            chain.iter().copied().for_each(each);
        }
    }

    /// Visits the labels of a frame that are shown, root first. A folded frame has none.
    ///
    /// A file of folded stacks has a frame for each inlined function: with [`Folding::inlined`] that frame has no label either.
    pub fn labels_shown(&self, id: FrameId, folding: Folding, mut each: impl FnMut(LabelId)) {
        if folding.interpreter && self.frames.entry(id).is_some_and(|entry| entry.frame.is_of_interpreter()) {
            return;
        }
        let mut first = true;
        self.labels_of(id, |label| {
            let hidden = || !first || self.labels.get(label).is_some_and(|label| label.kind == FrameKind::Inlined);
            if !(folding.inlined && hidden()) {
                each(label);
            }
            first = false;
        });
    }

    /// Returns how many frames that had a name got another one; see [`Names::renamed_since`].
    pub(crate) fn renamed(&self) -> usize {
        self.renamed.count()
    }

    /// Visits the renamed frames from number `from` on. Returns the number to begin with in the next call.
    pub(crate) fn renamed_since(&self, from: usize, mut each: impl FnMut(FrameId)) -> usize {
        let mut next = from;
        // A frame that is being added at this moment is visited the next time.
        while let Some(frame) = self.renamed.get(next) {
            each(*frame);
            next += 1;
        }
        next
    }

    /// Notes that other code was made at a frame's address. Later samples there belong to a new frame. This frame keeps its meaning and its
    /// name.
    pub fn outdate(&self, id: FrameId) {
        let Some(frame) = self.frames.get(id) else { return };
        if self.frames.ids.remove_if(&frame.into(), |_, now| *now == id).is_some() {
            self.outdated.push(id);
        }
    }

    /// Visits the outdated frames from number `from` on. Returns the number to begin with in the next call. Caches of frame ids by address
    /// must drop these frames.
    pub fn outdated_since(&self, from: usize, mut each: impl FnMut(Frame)) -> usize {
        let mut next = from;
        while let Some(id) = self.outdated.get(next) {
            self.frames.get(*id).into_iter().for_each(&mut each);
            next += 1;
        }
        next
    }

    /// Returns a number that changes whenever a frame was renamed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::FileOffset;

    use crate::profile::ProcessAddress;

    #[test]
    pub(in crate::profile) fn an_outdated_frame_keeps_its_name_and_its_address_is_another_frame() {
        let names = Names::default();
        let object = names.jit_object(UserId(0), Tgid(7), 1);
        let frame = Frame::File { object, offset: FileOffset(0x7000), is_return: true };
        let (old, new) = names.intern_frame(frame);
        assert!(new && !names.intern_frame(frame).1);
        let label = names.labels.intern("old", "[jit]", FrameKind::Jit);
        names.name_frame(old, &[label]);
        names.outdate(old);
        let (young, wanted) = names.intern_frame(frame);
        assert!(young != old && wanted, "somebody should look it up");
        let label_of = |id| {
            let mut found = None;
            names.labels_of(id, |label| found = Some(label));
            found.unwrap()
        };
        assert!(label_of(old) == label && label_of(young) != label);
        // A second call changes nothing: the address belongs to another frame now.
        names.outdate(old);
        let mut told = Vec::new();
        let next = names.outdated_since(0, |frame| told.push(frame));
        assert_eq!((told.as_slice(), next), ([frame].as_slice(), 1));
        assert_eq!(names.outdated_since(next, |_| panic!("told before")), 1);
    }

    #[test]
    pub(in crate::profile) fn a_provisional_label_leads_to_the_name_that_replaced_it() {
        let names = Names::default();
        let object = names.objects.intern(Object {
            kind: ObjectKind::Elf,
            path: "/usr/lib/libfoo.so".into(),
            build_id: None,
            file: Some((1, 2)),
            ..Object::default()
        });
        let (frame, new) = names.intern_frame(Frame::File { object, offset: FileOffset(0x1234), is_return: true });
        assert!(new);
        let mut before = Vec::new();
        names.labels_of(frame, |label| before.push(label));
        assert_eq!(names.labels.name(before[0]), "libfoo.so+0x1234");
        let generation = names.generation();
        let outer = names.labels.intern("outer", "libfoo.so", FrameKind::User);
        let inner = names.labels.intern("inner", "libfoo.so", FrameKind::Inlined);
        names.name_frame(frame, &[outer, inner]);
        assert_ne!(names.generation(), generation);
        assert_eq!(names.labels.current(before[0]), outer);
        let mut after = Vec::new();
        names.labels_of(frame, |label| after.push(label));
        assert_eq!(after, [outer, inner]);
        let shown = |frame, fold| {
            let mut shown = Vec::new();
            let folding = Folding { inlined: fold, interpreter: false, recursion: false };
            names.labels_shown(frame, folding, |label| shown.push(label));
            shown
        };
        assert_eq!((shown(frame, false), shown(frame, true)), (vec![outer, inner], vec![outer]));
        assert_eq!(shown(names.intern_named(inner), true), []);
    }

    #[test]
    pub(in crate::profile) fn names_that_fill_their_memory_become_coarser_and_are_counted() {
        let names = Names::bounded(100_000);
        let elf = |path: &str| Object {
            kind: ObjectKind::Elf,
            path: path.into(),
            build_id: None,
            file: Some((1, 2)),
            ..Object::default()
        };
        let object = names.objects.intern(elf("/usr/lib/libfoo.so"));
        let at = |address| names.intern_frame(Frame::File { object, offset: FileOffset(address), is_return: true });
        let (first, _) = at(0);
        let mut taken = 1u64;
        while at(taken).1 {
            taken += 1;
        }
        assert!((200..2000).contains(&taken), "{taken} addresses in 100 kB");
        assert_eq!(at(0), (first, false), "what was taken stays");
        let (more, wanted) = at(taken + 1);
        assert!(!wanted, "nobody is to look it up");
        let label_of = |frame| {
            let mut found = String::new();
            names.labels_of(frame, |label| found = names.labels.name(label).to_owned());
            found
        };
        assert_eq!(label_of(more), "[more addresses of libfoo.so]");
        assert_eq!(names.refused(), 2);
        // An address that was accepted still gets its name, from the last eighth. After that, new names and objects are refused.
        let label = names.labels.intern("function", "libfoo.so", FrameKind::User);
        names.name_frame(first, &[label]);
        assert_eq!(label_of(first), "function");
        for number in 0..100_000 {
            names.labels.intern(&format!("f{number}"), "libfoo.so", FrameKind::User);
            names.objects.intern(elf(&format!("/tmp/{number}")));
        }
        assert!(names.memory() < 115_000, "{}", names.memory());
        assert_eq!(names.labels.name(names.labels.intern("late", "libfoo.so", FrameKind::User)), "[more names]");
        let late = names.objects.intern(elf("/usr/lib/late.so"));
        assert_eq!(late, ObjectId::MORE);
        let (frame, wanted) = names.intern_frame(Frame::File { object: late, offset: FileOffset(77), is_return: false });
        assert_eq!((label_of(frame).as_str(), wanted), ("[more objects]", false));
        let anonymous = Frame::Process { object: ObjectId::ANONYMOUS, address: ProcessAddress(0), is_return: false };
        assert!(names.refused() > 100_000 && label_of(names.intern_frame(anonymous).0) == "[anon]");
    }

    #[test]
    pub(in crate::profile) fn jit_code_is_anonymous_until_it_is_named_and_two_processes_do_not_share_addresses() {
        let names = Names::default();
        let (one, other) = (names.jit_object(UserId(0), Tgid(7), 1), names.jit_object(UserId(0), Tgid(7), 2));
        assert_eq!(names.jit_object(UserId(0), Tgid(7), 1), one);
        assert_ne!(one, other, "the number was given to another process");
        let at = |object| names.intern_frame(Frame::File { object, offset: FileOffset(0x7000), is_return: true });
        let ((first, new), (second, _)) = (at(one), at(other));
        assert!(new && first != second);
        let label_of = |frame| {
            let mut found = LabelId(0);
            names.labels_of(frame, |label| found = label);
            found
        };
        assert_eq!(label_of(first), label_of(second), "trees merge what has no name");
        assert_eq!(names.labels.get(label_of(first)).map(|label| (&*label.name, label.kind)), Some(("[anon]", FrameKind::Jit)));
        assert!(names.is_anonymous(first) && names.is_anonymous(second));
        let generation = names.generation();
        names.name_frame(first, &[names.labels.intern("JS:*run", "[jit]", FrameKind::Jit)]);
        assert_ne!(names.generation(), generation);
        assert!(!names.is_anonymous(first) && names.is_anonymous(second), "the other's label is as it was");
        assert_eq!(names.labels.name(label_of(second)), "[anon]");
        let plain =
            names.intern_frame(Frame::Process { object: ObjectId::ANONYMOUS, address: ProcessAddress(0), is_return: false }).0;
        assert!(!names.is_anonymous(plain), "nobody looks for its name");
    }

    #[test]
    pub(in crate::profile) fn jit_code_takes_a_share_of_the_memory_and_leaves_the_rest_to_files() {
        let names = Names::bounded(1_000_000);
        let elf = Object {
            kind: ObjectKind::Elf,
            path: "/usr/lib/libfoo.so".into(),
            build_id: None,
            file: Some((1, 2)),
            ..Object::default()
        };
        let elf = names.objects.intern(elf);
        let label_of = |frame| {
            let mut found = String::new();
            names.labels_of(frame, |label| found = names.labels.name(label).to_owned());
            found
        };
        let jit = names.jit_object(UserId(0), Tgid(1), 1);
        for address in 0..100_000 {
            names.intern_frame(Frame::Process { object: jit, address: ProcessAddress(address), is_return: false });
        }
        assert!((250_000..300_000).contains(&names.memory()), "{}", names.memory());
        let (more, wanted) =
            names.intern_frame(Frame::Process { object: jit, address: ProcessAddress(200_000), is_return: true });
        assert_eq!((label_of(more).as_str(), wanted), ("[more addresses of [anon]]", false));
        assert_eq!(names.jit_object(UserId(0), Tgid(2), 2), ObjectId::ANONYMOUS);
        assert!(
            names.intern_frame(Frame::File { object: elf, offset: FileOffset(0x1234), is_return: true }).1,
            "files have room"
        );

        let storm = Names::bounded(1_000_000);
        for life in 0..100_000 {
            storm.jit_object(UserId(0), Tgid(1), life);
        }
        assert!(storm.memory() < 300_000, "{}", storm.memory());
    }
}
