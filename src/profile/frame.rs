//! Frames (what the walker saw), objects (where code lives) and labels (what a frame is called).
//!
//! A frame is an address in an object. It is given a [`Label`] at once, a provisional one such as `libc.so.6+0x1234`, and
//! a better one when the symbolizer has found it. Labels are what trees merge by: two addresses of one function have one
//! label. All three tables only grow and can be read without a lock; they are shared by every room through [`Names`]. How far
//! they grow is bounded: see [`Names::bounded`].

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dashmap::{DashMap, Entry};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, hashed, listed, shared};
use super::ids::{BuildId, FrameId, LabelId, ObjectId};

/// Longest name kept, in characters; what is longer is cut and ends in `…`. Names come from hostile processes.
const MAX_NAME: usize = 4096;

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
    /// Code made at run time, or an interpreted function.
    Jit,
    /// Nothing is known but an address.
    Unknown,
}

impl FrameKind {
    /// The mark shown beside the name where colour may not be seen, and `""` for plain user code.
    pub fn mark(self) -> &'static str {
        match self {
            FrameKind::Kernel => "[k]",
            FrameKind::Inlined => "(inl)",
            FrameKind::Jit => "~jit",
            FrameKind::Process | FrameKind::User | FrameKind::Unknown => "",
        }
    }

    /// FlameGraph's annotation of a folded frame: `_[k]` kernel, `_[i]` inlined, `_[j]` JIT.
    pub fn annotation(self) -> &'static str {
        match self {
            FrameKind::Kernel => "_[k]",
            FrameKind::Inlined => "_[i]",
            FrameKind::Jit => "_[j]",
            FrameKind::Process | FrameKind::User | FrameKind::Unknown => "",
        }
    }
}

/// One address of one object, as a stack holds it.
///
/// `is_return` tells the two kinds of code address apart: an instruction pointer names the instruction that was running,
/// a return address the one after a call. [`Frame::lookup_address`] is the one place where that matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Where the code lives.
    pub object: ObjectId,
    /// Whether `address` is where a call will return to.
    pub is_return: bool,
    /// For ELF objects the offset in the file; for the kernel the address itself; for named frames the label.
    pub address: u64,
}

impl Frame {
    /// A frame that is a name and nothing else, as folded files have them.
    pub fn named(label: LabelId) -> Frame {
        Frame { object: ObjectId::NAMED, is_return: false, address: u64::from(label.0) }
    }

    /// The address to look up: a call may be the last instruction of its function, so a return address is looked up one
    /// byte earlier.
    pub fn lookup_address(self) -> u64 {
        if self.is_return { self.address.saturating_sub(1) } else { self.address }
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

/// Every label there is. Grows only; reading takes no lock.
#[derive(Default)]
pub struct LabelTable {
    labels: boxcar::Vec<Label>,
    ids: DashMap<LabelKey, LabelId, FxBuildHasher>,
    budget: Arc<Budget>,
}

impl LabelTable {
    /// A label that stands in until a better one is found: each call makes one, so that what replaces it is the name of one
    /// frame only.
    fn stand_in(&self, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.push(sanitize(name).into(), sanitize(object).into(), kind, true)
    }

    fn push(&self, name: Arc<str>, object: Arc<str>, kind: FrameKind, provisional: bool) -> LabelId {
        self.budget.take(listed::<Label>() + shared(&name) + shared(&object));
        let label = Label { name, object, kind, provisional, replaced_by: AtomicU32::new(0) };
        LabelId(u32::try_from(self.labels.push(label)).unwrap_or(0))
    }

    /// The label of this name, object and kind, made if it is new. Control characters are replaced first. When names have
    /// filled their memory, a new one is `[more names]`.
    pub fn intern(&self, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.find_or_make(name, object, kind, !self.budget.is_overfull()).unwrap_or_else(|| {
            self.budget.refuse();
            self.intern_always("[more names]", "", kind)
        })
    }

    /// The same for the few labels that stand for all that is refused.
    fn intern_always(&self, name: &str, object: &str, kind: FrameKind) -> LabelId {
        self.find_or_make(name, object, kind, true).unwrap_or_default()
    }

    fn find_or_make(&self, name: &str, object: &str, kind: FrameKind, make: bool) -> Option<LabelId> {
        let key: LabelKey = (sanitize(name).into(), sanitize(object).into(), kind);
        match self.ids.entry(key) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(entry) => make.then(|| {
                let (name, object, ..) = entry.key().clone();
                self.budget.take(hashed::<(LabelKey, LabelId)>());
                let id = self.push(name, object, kind, false);
                entry.insert(id);
                id
            }),
        }
    }

    /// The label, or `None` for an id of another table.
    pub fn get(&self, id: LabelId) -> Option<&Label> {
        self.labels.get(id.0 as usize)
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

    fn replace(&self, old: LabelId, new: LabelId) {
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

/// What kind of image an object is, which decides how its addresses are named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObjectKind {
    /// Names only, no addresses: frames of folded files.
    Named,
    /// The running kernel with its modules and BPF programs; addresses are absolute.
    Kernel,
    /// An ELF file; addresses are file offsets.
    Elf,
    /// The kernel's vDSO as mapped into processes; addresses are offsets in the image.
    Vdso,
    /// Executable memory without a file: JIT code. Addresses are absolute in the process.
    Anonymous,
    /// No mapping was known for the address.
    Unmapped,
}

/// One executable image: an ELF file, the vDSO, JIT memory, the kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Object {
    /// What it is.
    pub kind: ObjectKind,
    /// As the process that mapped it calls it; for display and for finding the file.
    pub path: Arc<str>,
    /// From the mapping event or the file, where known.
    pub build_id: Option<BuildId>,
    /// Device and inode, where the build id is not known: what tells two files of one path apart.
    pub file: Option<(u64, u64)>,
}

impl Object {
    /// The last part of the path, for display.
    pub fn short_name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
    }
}

/// Every object there is. Grows only; reading takes no lock.
pub struct ObjectTable {
    objects: boxcar::Vec<Object>,
    ids: DashMap<Object, ObjectId, FxBuildHasher>,
    budget: Arc<Budget>,
}

/// What is charged for an object besides its entries: open files and symbol tables have bounds of their own, but what went wrong
/// and how many frames were named is kept by the symbolizer for each object ever seen.
const OF_AN_OBJECT: usize = 512;

impl ObjectId {
    /// Frames that are names only.
    pub const NAMED: ObjectId = ObjectId(0);
    /// The running kernel.
    pub const KERNEL: ObjectId = ObjectId(1);
    /// The vDSO: one image a kernel (32-bit processes are not walked).
    pub const VDSO: ObjectId = ObjectId(2);
    /// Executable memory without a file.
    pub const ANONYMOUS: ObjectId = ObjectId(3);
    /// Addresses for which no mapping was known.
    pub const UNMAPPED: ObjectId = ObjectId(4);
    /// Objects that were first seen when names had filled their memory: what they are is not kept.
    pub const MORE: ObjectId = ObjectId(5);
}

impl Default for ObjectTable {
    fn default() -> Self {
        ObjectTable::new(Arc::default())
    }
}

impl ObjectTable {
    fn new(budget: Arc<Budget>) -> ObjectTable {
        let table = ObjectTable { objects: boxcar::Vec::new(), ids: DashMap::default(), budget };
        let fixed = [
            (ObjectKind::Named, ""),
            (ObjectKind::Kernel, "kernel"),
            (ObjectKind::Vdso, "[vdso]"),
            (ObjectKind::Anonymous, "[anon]"),
            (ObjectKind::Unmapped, "[unmapped]"),
            (ObjectKind::Unmapped, "[more objects]"),
        ];
        for (kind, path) in fixed {
            table.intern(Object { kind, path: path.into(), build_id: None, file: None });
        }
        table
    }

    /// The object's id, made if it is new; [`ObjectId::MORE`] when names have filled their memory.
    pub fn intern(&self, object: Object) -> ObjectId {
        match self.ids.entry(object) {
            Entry::Occupied(entry) => *entry.get(),
            // The fixed ones come first, whatever the limit.
            Entry::Vacant(_) if self.budget.is_overfull() && self.objects.count() > ObjectId::MORE.0 as usize => {
                self.budget.refuse();
                ObjectId::MORE
            }
            Entry::Vacant(entry) => {
                let path = shared(&entry.key().path);
                self.budget.take(listed::<Object>() + hashed::<(Object, ObjectId)>() + path + OF_AN_OBJECT);
                let id = ObjectId(u32::try_from(self.objects.push(entry.key().clone())).unwrap_or(0));
                entry.insert(id);
                id
            }
        }
    }

    /// The object, or `None` for an id of another table.
    pub fn get(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id.0 as usize)
    }

    /// How many objects there are, the six fixed ones included.
    pub fn len(&self) -> usize {
        self.objects.count()
    }

    /// Never: six objects are always there.
    pub fn is_empty(&self) -> bool {
        false
    }
}

struct FrameEntry {
    frame: Frame,
    /// A label id; or, with the top bit set, an index into `chains`.
    naming: AtomicU32,
}

const CHAIN: u32 = 1 << 31;

/// Every frame there is and what it is called. Grows only; reading takes no lock.
#[derive(Default)]
pub struct FrameTable {
    frames: boxcar::Vec<FrameEntry>,
    ids: DashMap<Frame, FrameId, FxBuildHasher>,
    chains: boxcar::Vec<Box<[LabelId]>>,
}

impl FrameTable {
    /// The frame, or `None` for an id of another table.
    pub fn get(&self, id: FrameId) -> Option<Frame> {
        self.frames.get(id.0 as usize).map(|entry| entry.frame)
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.frames.count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The three tables that every room shares, and the count of changes that tells a view when to look again.
pub struct Names {
    /// Where code lives.
    pub objects: ObjectTable,
    /// What frames are called.
    pub labels: LabelTable,
    /// The frames.
    pub frames: FrameTable,
    generation: AtomicU64,
    budget: Arc<Budget>,
}

impl Default for Names {
    /// Without a bound: for files.
    fn default() -> Self {
        Names::bounded(usize::MAX)
    }
}

/// The address of the frame that stands for all of an object's addresses that are refused. No file is that long.
const MORE_ADDRESSES: u64 = u64::MAX;

impl Names {
    /// Empty tables that take no new address once they hold `limit` bytes: those become one frame an object, such as
    /// `[more addresses of libc.so.6]`. Names of addresses that were taken before have another eighth.
    pub fn bounded(limit: usize) -> Names {
        let budget = Arc::new(Budget::new(limit));
        Names {
            objects: ObjectTable::new(Arc::clone(&budget)),
            labels: LabelTable { budget: Arc::clone(&budget), ..LabelTable::default() },
            frames: FrameTable::default(),
            generation: AtomicU64::new(0),
            budget,
        }
    }

    /// Bytes held, as counted by what was made.
    pub fn memory(&self) -> usize {
        self.budget.used()
    }

    /// How often an address, a name or an object was not taken because names had filled their memory.
    pub fn refused(&self) -> u64 {
        self.budget.refused()
    }

    pub(super) fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }

    /// The frame's id. A new frame gets `module+0x1234` for a name and `true` comes back: somebody should look it up.
    pub fn intern_frame(&self, frame: Frame) -> (FrameId, bool) {
        if let Some(id) = self.frames.ids.get(&frame) {
            return (*id, false);
        }
        if frame.object == ObjectId::MORE || self.budget.is_full() && self.has_many_addresses(frame.object) {
            self.budget.refuse();
            return (self.more_addresses(frame.object), false);
        }
        self.insert_frame(frame, |frame| self.first_label(frame))
    }

    fn insert_frame(&self, frame: Frame, label: impl FnOnce(Frame) -> LabelId) -> (FrameId, bool) {
        match self.frames.ids.entry(frame) {
            Entry::Occupied(entry) => (*entry.get(), false),
            Entry::Vacant(entry) => {
                let label = label(frame);
                self.budget.take(listed::<FrameEntry>() + hashed::<(Frame, FrameId)>());
                let slot = self.frames.frames.push(FrameEntry { frame, naming: AtomicU32::new(label.0) });
                let id = FrameId(u32::try_from(slot).unwrap_or(0));
                entry.insert(id);
                (id, true)
            }
        }
    }

    /// Whether the object's frames are addresses: others are names, or one frame for all.
    fn has_many_addresses(&self, object: ObjectId) -> bool {
        let kind = self.objects.get(object).map(|object| object.kind);
        matches!(kind, Some(ObjectKind::Elf | ObjectKind::Kernel | ObjectKind::Vdso))
    }

    /// The frame of all addresses of an object that are refused.
    fn more_addresses(&self, object: ObjectId) -> FrameId {
        let frame = Frame { object, is_return: false, address: MORE_ADDRESSES };
        if let Some(id) = self.frames.ids.get(&frame) {
            return *id;
        }
        let label = |_| {
            let short = self.objects.get(object).map_or("", Object::short_name);
            let kind = if object == ObjectId::KERNEL { FrameKind::Kernel } else { FrameKind::Unknown };
            match object {
                ObjectId::MORE => self.labels.intern_always(short, "", kind),
                _ => self.labels.intern_always(&format!("[more addresses of {short}]"), short, kind),
            }
        };
        self.insert_frame(frame, label).0
    }

    /// A frame that is only a name.
    pub fn intern_named(&self, label: LabelId) -> FrameId {
        self.intern_frame(Frame::named(label)).0
    }

    fn first_label(&self, frame: Frame) -> LabelId {
        if frame.object == ObjectId::NAMED {
            return LabelId(u32::try_from(frame.address).unwrap_or(0));
        }
        let Some(object) = self.objects.get(frame.object) else {
            return self.labels.intern_always("[unknown]", "", FrameKind::Unknown);
        };
        let short = object.short_name();
        match object.kind {
            ObjectKind::Anonymous => self.labels.intern_always("[anon]", "", FrameKind::Jit),
            ObjectKind::Unmapped => self.labels.intern_always("[unknown]", "", FrameKind::Unknown),
            kind => {
                let shown = if kind == ObjectKind::Kernel { FrameKind::Kernel } else { FrameKind::Unknown };
                self.labels.stand_in(&format!("{short}+{:#x}", frame.address), short, shown)
            }
        }
    }

    /// Gives a frame its name: root first, the function itself first and what was inlined into it after.
    ///
    /// An empty slice leaves the frame as it is.
    pub fn name_frame(&self, id: FrameId, labels: &[LabelId]) {
        let (Some(entry), Some(&first)) = (self.frames.frames.get(id.0 as usize), labels.first()) else {
            return;
        };
        let naming = if labels.len() == 1 {
            first.0
        } else {
            self.budget.take(listed::<Box<[LabelId]>>() + size_of_val(labels) + 16);
            u32::try_from(self.frames.chains.push(labels.into())).map_or(first.0, |index| CHAIN | index)
        };
        let before = entry.naming.swap(naming, Ordering::AcqRel);
        if before & CHAIN == 0 {
            self.labels.replace(LabelId(before), first);
        }
        if before != naming {
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// The labels of a frame, root first; almost always one.
    pub fn labels_of(&self, id: FrameId, mut each: impl FnMut(LabelId)) {
        let Some(entry) = self.frames.frames.get(id.0 as usize) else { return };
        let naming = entry.naming.load(Ordering::Acquire);
        if naming & CHAIN == 0 {
            each(LabelId(naming));
        } else if let Some(chain) = self.frames.chains.get((naming & !CHAIN) as usize) {
            chain.iter().copied().for_each(each);
        }
    }

    /// Changes whenever a frame was renamed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// A name that can be printed anywhere: each control, format or line-separating character becomes `·`, and what is longer
/// than 4,096 characters ends in `…`.
pub fn sanitize(name: &str) -> Cow<'_, str> {
    let harmless = |c: char| !is_unsafe_to_print(c);
    if name.len() <= MAX_NAME && name.chars().all(harmless) {
        return Cow::Borrowed(name);
    }
    let mut safe: String = name.chars().take(MAX_NAME).map(|c| if harmless(c) { c } else { '·' }).collect();
    if name.chars().nth(MAX_NAME).is_some() {
        safe.push('…');
    }
    Cow::Owned(safe)
}

/// Control characters (C0, C1, DEL), line and paragraph separators, and the invisible or direction-changing format
/// characters that can make a terminal line read differently from what it holds.
fn is_unsafe_to_print(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{180e}' | '\u{e0000}'..='\u{e007f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
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
    fn a_name_of_ten_thousand_characters_is_cut_and_says_so() {
        let long = "x".repeat(10_000);
        let cut = sanitize(&long);
        assert_eq!(cut.chars().count(), MAX_NAME + 1);
        assert!(cut.ends_with('…'));
        assert_eq!(sanitize("plain"), "plain");
        assert_eq!(sanitize("a\u{202e}b\u{200b}c\u{9b}d"), "a·b·c·d");
    }

    #[test]
    fn a_provisional_label_leads_to_the_name_that_replaced_it() {
        let names = Names::default();
        let object = names.objects.intern(Object {
            kind: ObjectKind::Elf,
            path: "/usr/lib/libfoo.so".into(),
            build_id: None,
            file: Some((1, 2)),
        });
        let (frame, new) = names.intern_frame(Frame { object, is_return: true, address: 0x1234 });
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
    }

    #[test]
    fn names_that_fill_their_memory_become_coarser_and_are_counted() {
        let names = Names::bounded(100_000);
        let elf = |path: &str| Object { kind: ObjectKind::Elf, path: path.into(), build_id: None, file: Some((1, 2)) };
        let object = names.objects.intern(elf("/usr/lib/libfoo.so"));
        let at = |address| names.intern_frame(Frame { object, is_return: true, address });
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
        // An address that was taken still gets its name, from the last eighth; then there are no more names and objects.
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
        let (frame, wanted) = names.intern_frame(Frame { object: late, is_return: false, address: 77 });
        assert_eq!((label_of(frame).as_str(), wanted), ("[more objects]", false));
        let anonymous = Frame { object: ObjectId::ANONYMOUS, is_return: false, address: 0 };
        assert!(names.refused() > 100_000 && label_of(names.intern_frame(anonymous).0) == "[anon]");
    }

    #[test]
    fn a_return_address_is_looked_up_one_byte_earlier() {
        let frame = Frame { object: ObjectId::KERNEL, is_return: true, address: 0x1000 };
        assert_eq!(frame.lookup_address(), 0xfff);
        assert_eq!(Frame { is_return: false, ..frame }.lookup_address(), 0x1000);
    }
}
