//! Labels: the name of a frame and its kind of code, safe to print. Trees merge frames by label.

use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dashmap::{DashMap, DashSet, Entry};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, hashed, listed, shared};
use super::language::Language;
use super::list::List;
use super::text::sanitize;
use crate::profile::ids::{FirstId, LabelId, UserId};

/// The kind of a frame, shown by its colour and its mark.
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
    /// A function that a runtime of this language runs.
    Script(Language),
    /// Why a thread waits: a [reason](crate::profile::WaitReason).
    Wait,
    /// Only the address is known.
    Unknown,
}

impl FrameKind {
    /// All kinds, in the order of legends.
    pub const ALL: [FrameKind; 10] = [
        FrameKind::Process,
        FrameKind::User,
        FrameKind::Kernel,
        FrameKind::Inlined,
        FrameKind::Jit,
        FrameKind::Script(Language::Python),
        FrameKind::Script(Language::JavaScript),
        FrameKind::Script(Language::Java),
        FrameKind::Wait,
        FrameKind::Unknown,
    ];

    /// Returns the mark that is shown beside the name where colours may be missing. It is `""` for plain user code.
    pub fn mark(self) -> &'static str {
        match self {
            FrameKind::Kernel => "[k]",
            FrameKind::Inlined => "(inl)",
            FrameKind::Jit => "~jit",
            FrameKind::Script(language) => language.mark(),
            FrameKind::Process | FrameKind::User | FrameKind::Wait | FrameKind::Unknown => "",
        }
    }

    /// Returns a few words for legends.
    pub fn describe(self) -> &'static str {
        match self {
            FrameKind::Process => "process or thread",
            FrameKind::User => "user code",
            FrameKind::Kernel => "kernel",
            FrameKind::Inlined => "inlined",
            FrameKind::Jit => "made at run time",
            FrameKind::Script(language) => language.word(),
            FrameKind::Wait => "why it waits",
            FrameKind::Unknown => "no name was found",
        }
    }

    /// Returns FlameGraph's annotation of a folded frame: `_[k]` kernel, `_[i]` inlined, `_[j]` JIT. Those of [languages](Language) are our own.
    pub fn annotation(self) -> &'static str {
        match self {
            FrameKind::Kernel => "_[k]",
            FrameKind::Inlined => "_[i]",
            FrameKind::Jit => "_[j]",
            FrameKind::Script(language) => language.annotation(),
            FrameKind::Process | FrameKind::User | FrameKind::Wait | FrameKind::Unknown => "",
        }
    }
}

/// The name and the kind of a frame. Trees merge frames with the same label.
#[derive(Debug)]
pub struct Label {
    /// Safe to print: no control characters, at most 4,096 characters.
    pub name: Arc<str>,
    /// The object's short name (`libc.so.6`, `kernel`); empty where there is none. For a function of a [language](Language), the path of its file and
    /// the [place](super::begin::Begin) where it begins: many files have the same name.
    pub object: Arc<str>,
    /// The kind of the frame.
    pub kind: FrameKind,
    /// Whether it is a placeholder (`module+0x1234`) until the symbolizer has the name.
    pub provisional: bool,
    /// The label that replaced a provisional one: label id + 1, or 0.
    replaced_by: AtomicU32,
    /// The user who pays for it.
    user: UserId,
}

impl Label {
    /// Returns the object's name as it is shown: of a path, the last two parts (`shop/views.py:12`).
    pub fn short_object(&self) -> &str {
        let ends_second = self.object.rfind('/').unwrap_or(0);
        let begins_second = self.object.get(..ends_second).and_then(|before| before.rfind('/')).map_or(0, |slash| slash + 1);
        match self.kind {
            FrameKind::Script(_) => self.object.get(begins_second..).unwrap_or(&self.object),
            _ => &self.object,
        }
    }

    /// Whether threads or processes begin in this function. A stack with such a function as its root is complete.
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

/// The table of all labels. It only grows, until another table follows ([`Renewals`](crate::profile::Renewals)). Reading takes no lock.
#[derive(Default)]
pub struct LabelTable {
    first: FirstId,
    labels: List<Label, 512>,
    /// The labels with names, by the hash of their words. If another label has the same hash, the next number that is free is the key.
    ids: DashMap<u64, LabelId, FxBuildHasher>,
    /// The keys are not predictable, because processes choose the words.
    hashes: RandomState,
    /// The short names of objects. The labels of an object share one.
    objects: DashSet<Arc<str>, FxBuildHasher>,
    budget: Arc<Budget>,
}

impl LabelTable {
    /// Returns an empty table whose labels are charged to `budget`.
    pub(crate) fn new(budget: Arc<Budget>) -> LabelTable {
        LabelTable { budget, ..LabelTable::default() }
    }

    /// Returns an empty table with ids that come after those of this one.
    pub(crate) fn successor(&self, budget: Arc<Budget>) -> LabelTable {
        LabelTable { first: self.first.after(self.labels.len()), ..LabelTable::new(budget) }
    }

    /// Copies a label of another table: returns the label with the same words, made if it is new. For a provisional label, makes a new
    /// provisional one.
    pub(crate) fn adopt(&self, label: &Label) -> LabelId {
        let Label { name, object, kind, user, provisional, .. } = label;
        if *provisional {
            return self.push(*user, Arc::clone(name), object, *kind, true);
        }
        self.find_or_push((*user, true), Arc::clone(name), object, *kind).unwrap_or_default()
    }

    /// Returns the label with the same words, if there is one.
    pub fn find(&self, label: &Label) -> Option<LabelId> {
        let mut hash = self.hashes.hash_one((&*label.name, &*label.object, label.kind));
        loop {
            let id = *self.ids.get(&hash)?;
            if self.has_words(id, (&label.name, &label.object, label.kind)) {
                return Some(id);
            }
            hash = hash.wrapping_add(1);
        }
    }

    /// Returns the index of a label in this table, for arrays; `None` for a label of an older table.
    pub fn index(&self, id: LabelId) -> Option<usize> {
        self.first.index(id.0)
    }

    /// Returns the label at an index.
    pub fn id(&self, index: usize) -> LabelId {
        LabelId(self.first.id(index))
    }

    /// Makes a provisional label, which is used until the name is found. Each call makes a new one, so its replacement is the name of one
    /// frame only.
    pub(crate) fn stand_in(&self, user: UserId, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.push(user, sanitize(name).into(), &sanitize(object), kind, true)
    }

    fn push(&self, user: UserId, name: Arc<str>, object: &str, kind: FrameKind, provisional: bool) -> LabelId {
        self.budget.take(user, listed::<Label>() + shared(&name));
        let object = self.object(user, object);
        let label = Label { name, object, kind, provisional, replaced_by: AtomicU32::new(0), user };
        self.id(self.labels.push(label))
    }

    /// Returns the label with this name, object and kind. Makes it if it is new. Control characters are replaced first. When names have
    /// filled their memory, a new label becomes `[more names]`.
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

    /// Like [`intern_for`](Self::intern_for), but never refuses. For the few labels that replace refused ones.
    pub(crate) fn intern_always(&self, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.find_or_make((UserId(0), true), name, object, kind).unwrap_or_default()
    }

    fn find_or_make(&self, (user, make): (UserId, bool), name: &str, object: &str, kind: FrameKind) -> Option<LabelId> {
        self.find_or_push((user, make), sanitize(name), &sanitize(object), kind)
    }

    fn find_or_push(
        &self,
        (user, make): (UserId, bool),
        name: impl Deref<Target = str> + Into<Arc<str>>,
        object: &str,
        kind: FrameKind,
    ) -> Option<LabelId> {
        let mut hash = self.hashes.hash_one((&*name, object, kind));
        loop {
            match self.ids.entry(hash) {
                Entry::Occupied(entry) if self.has_words(*entry.get(), (&name, object, kind)) => return Some(*entry.get()),
                Entry::Occupied(_) => hash = hash.wrapping_add(1),
                Entry::Vacant(entry) => {
                    return make.then(|| {
                        self.budget.take(user, hashed::<(u64, LabelId)>());
                        *entry.insert(self.push(user, name.into(), object, kind, false))
                    });
                }
            }
        }
    }

    /// Whether a label has this name, object and kind.
    fn has_words(&self, id: LabelId, words: (&str, &str, FrameKind)) -> bool {
        self.get(id).is_some_and(|label| (&*label.name, &*label.object, label.kind) == words)
    }

    /// Returns the shared short name of an object.
    fn object(&self, user: UserId, object: &str) -> Arc<str> {
        if let Some(known) = self.objects.get(object) {
            return Arc::clone(&known);
        }
        let new: Arc<str> = object.into();
        self.budget.take(user, hashed::<Arc<str>>() + shared(&new));
        self.objects.insert(Arc::clone(&new));
        new
    }

    /// Returns the label, or `None` for an id of another table.
    pub fn get(&self, id: LabelId) -> Option<&Label> {
        self.labels.get(self.index(id)?)
    }

    /// Returns the name, or `"?"` for an id of another table.
    pub fn name(&self, id: LabelId) -> &str {
        self.words(id).0
    }

    /// Returns the name and the object; `"?"` and nothing for an id of another table.
    pub fn words(&self, id: LabelId) -> (&str, &str) {
        self.get(id).map_or(("?", ""), |label| (&label.name, &label.object))
    }

    /// Returns the replacement of a provisional label, so that a cursor stays on its frame when names arrive. Other labels are returned
    /// unchanged.
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

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.labels.len()
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

    #[test]
    fn of_a_python_functions_file_two_parts_are_shown() {
        let labels = LabelTable::default();
        let shown = |place: &str, kind| labels.get(labels.intern("run", place, kind)).unwrap().short_object().to_owned();
        assert_eq!(shown("/srv/shop/views.py:1", FrameKind::Script(Language::Python)), "shop/views.py:1");
        assert_eq!(shown("/views.py:1", FrameKind::Script(Language::Python)), "/views.py:1");
        assert_eq!(shown("shop/views.py:1", FrameKind::Script(Language::Python)), "shop/views.py:1");
        assert_eq!(shown("<frozen posixpath>:1", FrameKind::Script(Language::Python)), "<frozen posixpath>:1");
        assert_eq!(shown("libc.so.6", FrameKind::User), "libc.so.6");
    }

    #[test]
    fn labels_whose_hashes_are_equal_or_neighbours_are_told_apart() {
        let labels = LabelTable::default();
        let a = labels.intern("a", "lib.so", FrameKind::User);
        // As if three labels had got the places of "b" and its successors.
        let hash = labels.hashes.hash_one(("b", "lib.so", FrameKind::User));
        for next in 0..3 {
            labels.ids.insert(hash.wrapping_add(next), a);
        }
        let b = labels.intern("b", "lib.so", FrameKind::User);
        assert_ne!(a, b);
        assert_eq!(labels.intern("b", "lib.so", FrameKind::User), b);
        assert_eq!(labels.find(labels.get(b).unwrap()), Some(b));
        assert_eq!((labels.len(), *labels.ids.get(&hash.wrapping_add(3)).unwrap()), (2, b));
        let [a, b] = [a, b].map(|label| &labels.get(label).unwrap().object);
        assert!(Arc::ptr_eq(a, b), "one short name for both");
    }
}
