//! Labels: what a frame is called and what kind of code it is, safe to print. Trees merge frames by them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dashmap::{DashMap, Entry};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, hashed, listed, shared};
use super::text::sanitize;
use crate::profile::ids::{FirstId, LabelId, UserId};

/// What a frame is, told by its colour and its mark.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum FrameKind {
    /// A process or a thread, as a level of the tree above its functions.
    Process,
    /// Compiled code in user space.
    User,
    /// The kernel, a module or a BPF program.
    Kernel,
    /// A function the compiler inlined into the frame below it.
    Inlined,
    /// Code made at run time.
    Jit,
    /// A function of Python, which an interpreter runs.
    Python,
    /// Nothing is known but an address.
    Unknown,
}

impl FrameKind {
    /// All kinds, in the order of legends.
    pub const ALL: [FrameKind; 7] = [
        FrameKind::Process,
        FrameKind::User,
        FrameKind::Kernel,
        FrameKind::Inlined,
        FrameKind::Jit,
        FrameKind::Python,
        FrameKind::Unknown,
    ];

    /// The mark shown beside the name where colour may not be seen, and `""` for plain user code.
    pub fn mark(self) -> &'static str {
        match self {
            FrameKind::Kernel => "[k]",
            FrameKind::Inlined => "(inl)",
            FrameKind::Jit => "~jit",
            FrameKind::Python => "[py]",
            FrameKind::Process | FrameKind::User | FrameKind::Unknown => "",
        }
    }

    /// A few words for legends.
    pub fn describe(self) -> &'static str {
        match self {
            FrameKind::Process => "process or thread",
            FrameKind::User => "user code",
            FrameKind::Kernel => "kernel",
            FrameKind::Inlined => "inlined",
            FrameKind::Jit => "made at run time",
            FrameKind::Python => "Python",
            FrameKind::Unknown => "no name was found",
        }
    }

    /// FlameGraph's annotation of a folded frame: `_[k]` kernel, `_[i]` inlined, `_[j]` JIT; and ours, `_[p]` Python.
    pub fn annotation(self) -> &'static str {
        match self {
            FrameKind::Kernel => "_[k]",
            FrameKind::Inlined => "_[i]",
            FrameKind::Jit => "_[j]",
            FrameKind::Python => "_[p]",
            FrameKind::Process | FrameKind::User | FrameKind::Unknown => "",
        }
    }
}

/// What a frame is called; trees merge frames whose labels are the same.
#[derive(Debug)]
pub struct Label {
    /// Safe to print: no control characters, at most 4,096 characters.
    pub name: Arc<str>,
    /// The object's short name (`libc.so.6`, `kernel`); empty where there is none.
    pub object: Arc<str>,
    /// What the frame is.
    pub kind: FrameKind,
    /// Stands in until the symbolizer is done (`module+0x1234`).
    pub provisional: bool,
    /// For a provisional label, what replaced it: label id + 1, or 0.
    replaced_by: AtomicU32,
    /// The user who pays for it.
    user: UserId,
}

impl Label {
    /// Whether this is a function in which threads and processes begin, so that a stack whose root it is is complete.
    pub fn is_entry(&self) -> bool {
        const ENTRIES: [&str; 13] = [
            "_start",
            "__libc_start_main",
            "__libc_start_call_main",
            "__libc_start_main_impl",
            "_start_c",
            "_dl_start",
            "_dl_start_user",
            "start_thread",
            "thread_start",
            "__clone",
            "clone",
            "clone3",
            "__clone3",
        ];
        const PREFIXES: [&str; 4] = ["runtime.goexit", "runtime.mstart", "runtime.rt0_go", "__libc_start_main@"];
        self.kind == FrameKind::User
            && (ENTRIES.contains(&&*self.name) || PREFIXES.iter().any(|prefix| self.name.starts_with(prefix)))
    }
}

type LabelKey = (Arc<str>, Arc<str>, FrameKind);

/// Every label there is. Grows only, until another table follows ([`Renewals`](crate::profile::Renewals)); reading takes no lock.
#[derive(Default)]
pub struct LabelTable {
    first: FirstId,
    labels: boxcar::Vec<Label>,
    ids: DashMap<LabelKey, LabelId, FxBuildHasher>,
    budget: Arc<Budget>,
}

impl LabelTable {
    /// An empty table whose labels are paid for out of `budget`.
    pub(crate) fn new(budget: Arc<Budget>) -> LabelTable {
        LabelTable { budget, ..LabelTable::default() }
    }

    /// An empty table whose ids come after those of this one.
    pub(crate) fn successor(&self, budget: Arc<Budget>) -> LabelTable {
        LabelTable { first: self.first.after(self.labels.count()), ..LabelTable::new(budget) }
    }

    /// The label of another table here: the one of the same words, made if it is new; of one that stands in, another one that does.
    pub(crate) fn adopt(&self, label: &Label) -> LabelId {
        let Label { name, object, kind, user, provisional, .. } = label;
        if *provisional {
            return self.push(*user, Arc::clone(name), Arc::clone(object), *kind, true);
        }
        self.find_or_push((*user, true), (Arc::clone(name), Arc::clone(object), *kind)).unwrap_or_default()
    }

    /// The label of the same words, if it is known.
    pub fn find(&self, label: &Label) -> Option<LabelId> {
        self.ids.get(&(Arc::clone(&label.name), Arc::clone(&label.object), label.kind)).map(|id| *id)
    }

    /// The place of a label among those of this table, for arrays; `None` for one of an older table.
    pub fn index(&self, id: LabelId) -> Option<usize> {
        self.first.index(id.0)
    }

    /// The label at a place.
    pub fn id(&self, index: usize) -> LabelId {
        LabelId(self.first.id(index))
    }

    /// A label that stands in until a better one is found: each call makes one, so that what replaces it is the name of one
    /// frame only.
    pub(crate) fn stand_in(&self, user: UserId, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.push(user, sanitize(name).into(), sanitize(object).into(), kind, true)
    }

    fn push(&self, user: UserId, name: Arc<str>, object: Arc<str>, kind: FrameKind, provisional: bool) -> LabelId {
        self.budget.take(user, listed::<Label>() + shared(&name) + shared(&object));
        let label = Label { name, object, kind, provisional, replaced_by: AtomicU32::new(0), user };
        self.id(self.labels.push(label))
    }

    /// The label of this name, object and kind, made if it is new. Control characters are replaced first. When names have
    /// filled their memory, a new one is `[more names]`.
    pub fn intern(&self, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.intern_for(UserId(0), name, object, kind)
    }

    /// Returns the label of this name, object and kind. The user pays for it if it is new.
    pub fn intern_for(&self, user: UserId, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.find_or_make((user, !self.budget.is_overfull(user)), name, object, kind).unwrap_or_else(|| {
            self.budget.refuse(user);
            self.intern_always("[more names]", "", kind)
        })
    }

    /// The same for the few labels that stand for all that is refused.
    pub(crate) fn intern_always(&self, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.find_or_make((UserId(0), true), name, object, kind).unwrap_or_default()
    }

    fn find_or_make(&self, (user, make): (UserId, bool), name: &str, object: &str, kind: FrameKind) -> Option<LabelId> {
        self.find_or_push((user, make), (sanitize(name).into(), sanitize(object).into(), kind))
    }

    fn find_or_push(&self, (user, make): (UserId, bool), key: LabelKey) -> Option<LabelId> {
        match self.ids.entry(key) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(entry) => make.then(|| {
                let (name, object, kind) = entry.key().clone();
                self.budget.take(user, hashed::<(LabelKey, LabelId)>());
                let id = self.push(user, name, object, kind, false);
                entry.insert(id);
                id
            }),
        }
    }

    /// The label, or `None` for an id of another table.
    pub fn get(&self, id: LabelId) -> Option<&Label> {
        self.labels.get(self.index(id)?)
    }

    /// The name, or `"?"` for an id of another table.
    pub fn name(&self, id: LabelId) -> &str {
        self.get(id).map_or("?", |label| &label.name)
    }

    /// What a provisional label has become, so that a cursor stays where it was when names arrive.
    pub fn current(&self, id: LabelId) -> LabelId {
        match self.get(id).map(|label| label.replaced_by.load(Ordering::Acquire)) {
            Some(next) if next > 0 => LabelId(next - 1),
            _ => id,
        }
    }

    pub(crate) fn replace(&self, old: LabelId, new: LabelId) {
        if let Some(label) = self.get(old).filter(|label| label.provisional && old != new) {
            label.replaced_by.store(new.0 + 1, Ordering::Release);
        }
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.labels.count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_interned_once_and_safe() {
        let labels = LabelTable::default();
        let a = labels.intern("evil\x1b[31m\nname", "lib.so", FrameKind::User);
        assert_eq!(labels.intern("evil\x1b[31m\nname", "lib.so", FrameKind::User), a);
        assert_eq!(labels.name(a), "evil·[31m·name");
        assert_ne!(labels.intern("evil·[31m·name", "lib.so", FrameKind::Kernel), a);
    }
}
