//! Cached state of each object: open files, symbol table, debug information, errors and counts.
//!
//! There are two bounds. Symbol tables and parsed debug information together stay below a number of bytes, and open files below a number of
//! descriptors. The table (or file) that was not used for the longest time goes first. A table is read again from the file that is still
//! open.

use crate::symbolize::tally::Tally;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::allocator::release_memory;
use crate::locks::lock;
use crate::object::debug_files::Fetched;
use crate::object::mapped_file::Host;
use crate::object::object_files::Images;
use crate::object::reason::{Counts, Problem, Reason};
use crate::profile::{BuildId, LabelId, Names, Object, ObjectId, ObjectKind, sanitize};
use crate::symbolize::dwarf::Dwarf;
use crate::symbolize::kernel::modules;
use crate::symbolize::kernel::vmlinux::{self, Root};
use crate::symbolize::symbols::index::{NameRef, SymbolIndex};

/// Most bytes of symbol tables and parsed debug information together, if no lower limit was set. The table of node takes 1.2 MB, that of
/// the Rust compiler's library 1.4 MB. The debug information of libc takes 10 MB once all of it was read.
const MAX_TABLES: usize = 48 << 20;
/// Most open files. A process has 1,024 descriptors by default.
const MAX_FILES: usize = 256;
/// How long the tables of an object are held after its last question. The shorter time is for tables that are quickly read again: a program
/// of some hundred kilobytes takes a millisecond.
const UNUSED: Duration = Duration::from_secs(30);
const UNUSED_SMALL: Duration = Duration::from_secs(4);
const SMALL: usize = 256 << 10;
/// Most bytes of all such small tables together. Many short programs fill 20 MB in 4 s, and hardly any of these tables is asked again.
const MAX_SMALL: usize = 4 << 20;
/// Units of debug information that take fewer bytes are not worth a search for memory that the system can have back.
const WORTH_RELEASING: usize = 1 << 20;
/// Small tables are counted each time that all tables have grown by this many bytes.
const LOOK_EVERY: usize = 1 << 20;
/// Names remembered per object, so that a function's name is read and demangled once.
const MAX_LABELS: usize = 8192;
/// Processes tried for an object whose file could not be opened.
const MAX_ATTEMPTS: u32 = 8;
/// Changes after which a file that is written to again and again is given up. It limits patience, not descriptors.
const MAX_CHANGES: u32 = 4;

/// One object's state.
#[derive(Default)]
pub(crate) struct Entry {
    state: Mutex<EntryState>,
    pub(crate) tally: Arc<Tally>,
}

#[derive(Default)]
pub(crate) struct EntryState {
    id: ObjectId,
    /// Whether it is in [`Objects::holders`].
    is_listed: bool,
    images: Option<Arc<Images>>,
    index: Option<Arc<SymbolIndex>>,
    dwarf: Debug,
    /// Labels of functions that were already named.
    pub(crate) labels: FxHashMap<NameRef, LabelId>,
    /// Labels of names in debug information, by the name's address and length in memory.
    pub(crate) called: FxHashMap<(usize, usize), LabelId>,
    /// Processes that had it mapped when it was last opened. It is opened again through them.
    hosts: Vec<Host>,
    /// A debug file that was fetched.
    fetched: Option<Fetched>,
    /// Whether a debug file was requested.
    asked_for: bool,
    used: u64,
    /// Time of its last question.
    asked: Option<Instant>,
    attempts: u32,
    /// How often debug information could not be opened.
    refused: u32,
    changes: u32,
    failed: Option<Reason>,
}

/// Bytes that are counted until it is dropped, which a panic does as well.
struct Counted<'a> {
    tables: &'a AtomicUsize,
    bytes: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.tables.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// State of an object's debug information.
#[derive(Default)]
enum Debug {
    /// Not searched yet.
    #[default]
    Unknown,
    /// There is none, or none that can be read.
    None,
    /// It is open. The number is the bytes that it held after its last question.
    Open(Box<Dwarf>, usize),
}

impl EntryState {
    /// Returns its files, while they are open.
    pub(super) fn images(&self) -> Option<Arc<Images>> {
        self.images.clone()
    }

    /// Remembers the label of a name in debug information.
    pub(crate) fn remember_called(&mut self, key: (usize, usize), label: LabelId) {
        if self.called.len() >= MAX_LABELS {
            self.called.clear();
        }
        self.called.insert(key, label);
    }

    /// Remembers a function's label.
    pub(crate) fn remember(&mut self, name: NameRef, label: LabelId) {
        if self.labels.len() >= MAX_LABELS {
            self.labels.clear();
        }
        self.labels.insert(name, label);
    }

    /// Forgets everything that was read, so that it is read again.
    fn forget(&mut self) {
        self.images = None;
        self.index = None;
        self.labels = FxHashMap::default();
        self.called = FxHashMap::default();
    }
}

impl Entry {
    fn new(state: EntryState, tally: Arc<Tally>) -> Arc<Entry> {
        Arc::new(Entry { state: Mutex::new(state), tally })
    }

    /// Locks the state. One worker at a time works on an object and holds this lock.
    pub(crate) fn state(&self) -> MutexGuard<'_, EntryState> {
        lock(&self.state)
    }

    /// Whether the object may have debug information. Does not wait for the worker on the object.
    pub(crate) fn may_have_dwarf(&self) -> bool {
        self.state.try_lock().map_or(true, |state| Objects::may_have_dwarf(&state))
    }
}

/// All objects that were ever requested.
#[derive(Default)]
pub(crate) struct Objects {
    entries: DashMap<ObjectId, Arc<Entry>, FxBuildHasher>,
    clock: AtomicU64,
    /// The objects that hold tables, and some that no longer do.
    holders: Mutex<Vec<ObjectId>>,
    /// Bytes of all tables.
    tables: AtomicUsize,
    /// Small tables are counted next when `tables` has this value.
    next_look: AtomicUsize,
    files: AtomicUsize,
    /// Most bytes that tables may take, if that is less than [`MAX_TABLES`]. 0 if no lower limit was set.
    limit: AtomicUsize,
    /// Whether debug information was dropped since memory was released.
    freed: AtomicBool,
    /// The root directory of the kernel's files.
    pub(crate) root: Root,
}

impl Objects {
    /// Returns the objects that continue under new ids, with their files and tables. An object that a worker uses now starts empty.
    pub(crate) fn successor(&self, ids: &FxHashMap<ObjectId, ObjectId>) -> Objects {
        let next = Objects { root: self.root.clone(), ..Objects::default() };
        next.limit_tables(self.limit.load(Ordering::Relaxed));
        next.clock.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        for entry in &self.entries {
            let id = if entry.key().0 <= ObjectId::MORE.0 { Some(entry.key()) } else { ids.get(entry.key()) };
            let Some((id, mut state)) = id.zip(entry.state.try_lock().ok()) else { continue };
            // The labels belong to the old tables.
            let (labels, called) = (FxHashMap::default(), FxHashMap::default());
            let mut state = EntryState { id: *id, is_listed: false, labels, called, ..std::mem::take(&mut *state) };
            let held = Objects::held(&state);
            next.tables.fetch_add(held, Ordering::Relaxed);
            next.files.fetch_add(state.images.as_ref().map_or(0, |images| images.count()), Ordering::Relaxed);
            if held > 0 {
                next.list(&mut state);
            }
            next.entries.insert(*id, Entry::new(state, Arc::clone(&entry.tally)));
        }
        next
    }

    /// Returns the entry of an object, and makes it if it is new.
    pub(crate) fn entry(&self, id: ObjectId) -> Arc<Entry> {
        if let Some(entry) = self.entries.get(&id) {
            return Arc::clone(&entry);
        }
        let new = || Entry::new(EntryState { id, ..EntryState::default() }, Arc::default());
        Arc::clone(&self.entries.entry(id).or_insert_with(new))
    }

    /// Remembers that the object holds tables.
    fn list(&self, state: &mut EntryState) {
        if !std::mem::replace(&mut state.is_listed, true) {
            lock(&self.holders).push(state.id);
        }
    }

    /// Returns the wanted objects among those that hold tables. Leaves out objects in use.
    fn holders(&self, is_wanted: impl Fn(&EntryState) -> bool) -> Vec<Arc<Entry>> {
        let mut wanted = Vec::new();
        lock(&self.holders).retain(|id| {
            let Some(entry) = self.entries.get(id).map(|entry| Arc::clone(&entry)) else { return false };
            let Ok(mut state) = entry.state.try_lock() else { return true };
            state.is_listed = Objects::held(&state) > 0;
            let (is_listed, is_wanted) = (state.is_listed, is_wanted(&state));
            drop(state);
            if is_listed && is_wanted {
                wanted.push(entry);
            }
            is_listed
        });
        wanted
    }

    /// Returns the object's files. Opens them if they were not yet opened or had to be closed.
    pub(crate) fn images(&self, state: &mut EntryState, object: &Object, hosts: &[Host]) -> Result<Arc<Images>, Reason> {
        state.used = self.clock.fetch_add(1, Ordering::Relaxed);
        state.asked = Some(Instant::now());
        let remembered = std::mem::take(&mut state.hosts);
        let hosts = if hosts.is_empty() { remembered } else { hosts.to_vec() };
        state.hosts.clone_from(&hosts);
        if let Some(images) = &state.images {
            match images.check_unchanged() {
                Ok(()) => return Ok(Arc::clone(images)),
                Err(reason) => {
                    self.drop_images(state);
                    state.changes += 1;
                    if state.changes > MAX_CHANGES {
                        state.failed = Some(Reason::Rewritten);
                        return Err(reason);
                    }
                }
            }
        }
        if let Some(reason) = state.failed {
            let hopeless = hosts.is_empty() || !reason.may_pass() || state.attempts >= MAX_ATTEMPTS;
            if hopeless {
                return Err(reason);
            }
        }
        state.attempts += 1;
        let opened = match object.kind {
            ObjectKind::Kernel if modules::module_in(&object.path).is_some() => modules::open(&self.root, object),
            ObjectKind::Kernel => vmlinux::open(&self.root),
            _ => Images::open(object, &hosts, state.fetched.as_ref()),
        };
        match opened {
            Ok(images) => {
                let images = Arc::new(images);
                self.files.fetch_add(images.count(), Ordering::Relaxed);
                state.images = Some(Arc::clone(&images));
                (state.failed, state.attempts) = (None, 0);
                Ok(images)
            }
            Err(reason) => {
                state.failed = Some(reason);
                Err(reason)
            }
        }
    }

    /// Returns the object's symbols. Reads them if they are not held.
    pub(crate) fn index(&self, state: &mut EntryState, images: &Images) -> Result<Arc<SymbolIndex>, Reason> {
        if let Some(index) = &state.index {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(SymbolIndex::build(images)?);
        self.tables.fetch_add(index.memory(), Ordering::Relaxed);
        state.index = Some(Arc::clone(&index));
        self.list(state);
        Ok(index)
    }

    /// Lends the object's debug information to `ask`. Opens it if it is not held; `None` if there is none.
    ///
    /// If it cannot be opened, the first call returns the reason. After that there is none.
    pub(crate) fn with_dwarf<T>(
        &self,
        state: &mut EntryState,
        images: &Images,
        ask: impl FnOnce(&mut EntryState, &Dwarf) -> T,
    ) -> Result<Option<T>, Reason> {
        let (dwarf, held) = match std::mem::replace(&mut state.dwarf, Debug::None) {
            Debug::None => return Ok(None),
            Debug::Open(dwarf, held) => (dwarf, held),
            Debug::Unknown => {
                let (image, alternative) = images.dwarf();
                state.called = FxHashMap::default();
                match Dwarf::open(image, alternative, images.places.clone()) {
                    Ok(Some(dwarf)) => (Box::new(dwarf), 0),
                    Ok(None) => return Ok(None),
                    Err(reason) => {
                        // A full disk or a refused mapping is not the file's fault: try again, but not forever.
                        state.refused += 1;
                        if matches!(reason, Reason::Io(_)) && state.refused < MAX_ATTEMPTS {
                            state.dwarf = Debug::Unknown;
                        }
                        return Err(reason);
                    }
                }
            }
        };
        let counted = Counted { tables: &self.tables, bytes: held };
        let answer = ask(state, &dwarf);
        let holds = dwarf.memory();
        self.tables.fetch_add(holds, Ordering::Relaxed);
        drop(counted);
        state.dwarf = Debug::Open(dwarf, holds);
        self.list(state);
        Ok(Some(answer))
    }

    /// Whether the object may have debug information. False only after a search that found none.
    pub(crate) fn may_have_dwarf(state: &EntryState) -> bool {
        !matches!(state.dwarf, Debug::None)
    }

    /// Remembers that there is no debug information.
    pub(crate) fn without_dwarf(state: &mut EntryState) {
        state.dwarf = Debug::None;
    }

    /// Returns the build id of a missing debug file, the first time that the file is wanted.
    pub(crate) fn wanted(state: &mut EntryState) -> Option<BuildId> {
        let wanted = state.images.as_ref()?.wanted?;
        (!std::mem::replace(&mut state.asked_for, true)).then_some(wanted)
    }

    /// Attaches a fetched debug file. The counts start again, because all frames are named again. The object's own file stays open: it may
    /// be the file of an exited process.
    pub(crate) fn take_fetched(&self, entry: &Entry, fetched: Fetched) {
        let mut state = entry.state();
        self.drop_index(&mut state);
        state.dwarf = Debug::Unknown;
        if let Some(images) = &state.images {
            self.files.fetch_add(images.attach(&fetched), Ordering::Relaxed);
        }
        state.fetched = Some(fetched);
        entry.tally.clear();
    }

    /// Gives up an object for good.
    pub(crate) fn give_up(&self, state: &mut EntryState, reason: Reason) {
        self.drop_images(state);
        state.failed = Some(reason);
    }

    /// Returns the bytes of an object's tables.
    fn held(state: &EntryState) -> usize {
        let dwarf = if let Debug::Open(_, held) = &state.dwarf { *held } else { 0 };
        dwarf + state.index.as_ref().map_or(0, |index| index.memory())
    }

    /// Drops the files and tables of an object.
    pub(crate) fn drop_images(&self, state: &mut EntryState) {
        self.drop_index(state);
        state.dwarf = Debug::Unknown;
        if let Some(images) = &state.images {
            self.files.fetch_sub(images.count(), Ordering::Relaxed);
        }
        state.forget();
    }

    /// Drops the parsed debug information of an object. It is opened again at the next question.
    pub(crate) fn drop_dwarf(&self, state: &mut EntryState) {
        if let Debug::Open(_, held) = &state.dwarf {
            self.tables.fetch_sub(*held, Ordering::Relaxed);
            state.dwarf = Debug::Unknown;
            state.called = FxHashMap::default();
            self.freed.store(true, Ordering::Relaxed);
        }
    }

    fn drop_unused_units(&self, state: &mut EntryState) {
        let Debug::Open(dwarf, held) = &mut state.dwarf else { return };
        if dwarf.drop_unused_units(UNUSED) {
            let before = std::mem::replace(held, dwarf.memory());
            self.tables.fetch_sub(before.saturating_sub(*held), Ordering::Relaxed);
            if before.saturating_sub(*held) >= WORTH_RELEASING {
                self.freed.store(true, Ordering::Relaxed);
            }
        }
    }

    fn drop_index(&self, state: &mut EntryState) {
        self.drop_dwarf(state);
        if let Some(index) = state.index.take() {
            self.tables.fetch_sub(index.memory(), Ordering::Relaxed);
            state.labels = FxHashMap::default();
        }
    }

    /// Limits tables to `bytes` bytes.
    pub(crate) fn limit_tables(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    fn max_tables(&self) -> usize {
        match self.limit.load(Ordering::Relaxed) {
            0 => MAX_TABLES,
            limit => limit.min(MAX_TABLES),
        }
    }

    /// Brings tables and files back within their bounds, and an eighth below them, because each call examines all objects. Skips objects
    /// that are in use. The caller must not hold any state.
    pub(crate) fn shrink(&self) {
        let (tables, files) = self.usage();
        if tables > self.max_tables() || files > MAX_FILES {
            self.shrink_to(self.max_tables() / 8 * 7, MAX_FILES / 8 * 7, true);
        }
        // Tables may have become fewer since the last look.
        if tables >= self.next_look.fetch_min(tables + LOOK_EVERY, Ordering::Relaxed) {
            self.shrink_small_tables(SMALL, MAX_SMALL);
            self.next_look.store(self.usage().0 + LOOK_EVERY, Ordering::Relaxed);
        }
    }

    /// Drops tables of at most `small` bytes if they take more than `most` bytes together. The least recently used go first, until half of
    /// that is left.
    fn shrink_small_tables(&self, small: usize, most: usize) {
        let small = self.holders(|state| Objects::held(state) <= small);
        let of = |entry: Arc<Entry>| {
            let (used, held) = entry.state.try_lock().map(|state| (state.used, Objects::held(&state))).ok()?;
            Some((used, held, entry))
        };
        let mut by_use: Vec<(u64, usize, Arc<Entry>)> = small.into_iter().filter_map(of).collect();
        let mut held: usize = by_use.iter().map(|(_, held, _)| held).sum();
        if held <= most {
            return;
        }
        by_use.sort_unstable_by_key(|(used, ..)| *used);
        for (_, its, entry) in by_use {
            if held <= most / 2 {
                break;
            }
            if let Ok(mut state) = entry.state.try_lock() {
                self.drop_index(&mut state);
                held -= its;
            }
        }
    }

    /// Likewise, after a while without questions. Then even a single object that is larger than the bound is dropped.
    pub(crate) fn let_go(&self) {
        self.shrink_to(self.max_tables(), MAX_FILES, false);
    }

    /// Drops the tables of objects without questions for some time, and units of debug information without questions. Releases memory if
    /// any were dropped since the last time.
    pub(crate) fn let_go_unused(&self) {
        for entry in self.holders(|_| true) {
            let Ok(mut state) = entry.state.try_lock() else { continue };
            let unused = if Objects::held(&state) <= SMALL { UNUSED_SMALL } else { UNUSED };
            if state.asked.is_some_and(|asked| asked.elapsed() >= unused) {
                self.drop_index(&mut state);
            } else {
                self.drop_unused_units(&mut state);
            }
        }
        if self.freed.swap(false, Ordering::Relaxed) {
            release_memory();
        }
    }

    /// Whether any tables are held.
    pub(crate) fn holds_tables(&self) -> bool {
        self.tables.load(Ordering::Relaxed) > 0
    }

    /// Returns a number that grows with each question.
    pub(crate) fn questions(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn shrink_to(&self, tables: usize, files: usize, in_use: bool) {
        let over = || (self.tables.load(Ordering::Relaxed) > tables, self.files.load(Ordering::Relaxed) > files);
        if over() == (false, false) {
            return;
        }
        let entries: Vec<Arc<Entry>> = self.entries.iter().map(|entry| Arc::clone(&entry)).collect();
        let mut by_use: Vec<(u64, &Arc<Entry>)> =
            entries.iter().filter_map(|entry| Some((entry.state.try_lock().ok()?.used, entry))).collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        let last = by_use.last().map(|(used, _)| *used);
        for (used, entry) in by_use {
            // The object in use would be read again at once, and Chromium's debug information alone exceeds the bound.
            if in_use && Some(used) == last && !over().1 {
                break;
            }
            let Ok(mut state) = entry.state.try_lock() else { continue };
            match over() {
                (false, false) => break,
                (_, true) => self.drop_images(&mut state),
                (true, false) => self.drop_index(&mut state),
            }
        }
    }

    /// Returns the bytes of all tables and the number of open files.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.tables.load(Ordering::Relaxed), self.files.load(Ordering::Relaxed))
    }

    /// Returns objects with unnamed frames, the most such frames first. Also returns objects whose debug information could not be used.
    pub(crate) fn problems(&self, names: &Names) -> Vec<Problem> {
        let problem = |id: ObjectId, entry: &Entry| {
            let Counts { named, unnamed } = entry.tally.counts();
            // A missing symbol is recorded as the reason before debug information names the frame. So the reason may be obsolete.
            let reason = entry.tally.reason().filter(|reason| unnamed > 0 || reason.costs_lines())?;
            let path = names.objects.get(id).map_or("", |object| &object.path);
            Some(Problem { object: id, path: sanitize(path).into(), reason, named, unnamed })
        };
        let mut problems: Vec<Problem> = self.entries.iter().filter_map(|entry| problem(*entry.key(), entry.value())).collect();
        problems.sort_by_key(|problem| (std::cmp::Reverse(problem.unnamed), problem.object));
        problems
    }

    /// Returns the counts of frames, summed over all objects.
    pub(crate) fn counts(&self) -> Counts {
        self.entries.iter().map(|entry| entry.tally.counts()).fold(Counts::default(), |sum, counts| Counts {
            named: sum.named + counts.named,
            unnamed: sum.unnamed + counts.unnamed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FileNamespace, Tgid, UserId};

    fn own_executable() -> Object {
        executable(&std::env::current_exe().unwrap())
    }

    fn executable(path: &std::path::Path) -> Object {
        use std::os::unix::fs::MetadataExt;
        let meta = path.metadata().unwrap();
        Object {
            kind: ObjectKind::Elf,
            path: path.to_str().unwrap().into(),
            build_id: None,
            file: Some((meta.dev(), meta.ino())),
            ..Object::default()
        }
    }

    #[test]
    fn tables_then_files_are_given_up_when_there_are_too_many_and_come_back() {
        let objects = Objects::default();
        let object = own_executable();
        for id in 10..13 {
            let entry = objects.entry(ObjectId(id));
            let images = objects.images(&mut entry.state(), &object, &[]).unwrap();
            objects.index(&mut entry.state(), &images).unwrap();
        }
        let (tables, files) = objects.usage();
        assert!(tables > 0 && files == 3);
        objects.shrink_to(tables - 1, 3, true);
        assert_eq!(objects.usage(), (tables / 3 * 2, 3), "one table went, no file");
        assert!(objects.entry(ObjectId(10)).state().index.is_none(), "the one used least recently");
        objects.shrink_to(tables, 1, true);
        assert_eq!(objects.usage(), (tables / 3, 1));
        let entry = objects.entry(ObjectId(10));
        let images = objects.images(&mut entry.state(), &object, &[]).unwrap();
        objects.index(&mut entry.state(), &images).unwrap();
        assert_eq!(objects.usage(), (tables / 3 * 2, 2));
        objects.shrink_to(1, 1, true);
        assert_eq!(objects.usage(), (tables / 3, 1), "what is worked with stays");
        objects.shrink_to(1, 1, false);
        assert_eq!(objects.usage(), (0, 1), "until nothing is asked any more");
    }

    #[test]
    fn tables_that_nobody_asks_for_go_and_come_back() {
        let (objects, object) = (Objects::default(), own_executable());
        let read = |id| {
            let entry = objects.entry(ObjectId(id));
            let images = objects.images(&mut entry.state(), &object, &[]).unwrap();
            objects.index(&mut entry.state(), &images).unwrap();
        };
        read(10);
        read(11);
        let (tables, files) = objects.usage();
        objects.let_go_unused();
        assert_eq!(objects.usage(), (tables, files));
        objects.entry(ObjectId(10)).state().asked = Instant::now().checked_sub(Duration::from_secs(60));
        objects.let_go_unused();
        assert_eq!(objects.usage(), (tables / 2, files), "the file stays open");
        assert!(objects.entry(ObjectId(10)).state().index.is_none());
        read(10);
        assert_eq!(objects.usage(), (tables, files));
    }

    #[test]
    fn debug_information_is_counted_while_it_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (directory.path().join("a.c"), directory.path().join("a"));
        std::fs::write(&source, "int main(void) { return 0; }").unwrap();
        let compiled = std::process::Command::new("gcc").arg("-g").arg(&source).arg("-o").arg(&program).status();
        assert!(compiled.expect("this test needs gcc").success());
        let objects = Objects::default();
        let object = executable(&program);
        let entry = objects.entry(ObjectId(10));
        let mut state = entry.state();
        let images = objects.images(&mut state, &object, &[]).unwrap();
        let mut ask =
            || objects.with_dwarf(&mut state, &images, |_, dwarf| (objects.usage().0, dwarf.memory())).unwrap().unwrap();
        assert_eq!(ask().0, 0);
        let (counted, held) = ask();
        assert!(held > 0 && counted == held, "{counted} of {held}");
        assert_eq!(objects.usage().0, held, "and once afterwards");
    }

    #[test]
    fn small_tables_have_a_bound_of_their_own() {
        let (objects, object) = (Objects::default(), own_executable());
        let held = |id| {
            let entry = objects.entry(ObjectId(id));
            let state = entry.state();
            (Objects::held(&state), state.is_listed)
        };
        for id in 10..14 {
            let entry = objects.entry(ObjectId(id));
            let images = objects.images(&mut entry.state(), &object, &[]).unwrap();
            objects.index(&mut entry.state(), &images).unwrap();
        }
        let one = objects.usage().0 / 4;
        objects.shrink_small_tables(one, 4 * one);
        assert_eq!(objects.usage(), (4 * one, 4));
        objects.shrink_small_tables(one - 1, 1);
        assert_eq!(objects.usage(), (4 * one, 4), "none is small");
        objects.shrink_small_tables(one, 4 * one - 1);
        assert_eq!(objects.usage(), (one, 4), "half of the bound is left");
        assert_eq!([10, 12, 13].map(held), [(0, true), (0, true), (one, true)]);
        objects.let_go_unused();
        assert_eq!([10, 12, 13].map(held), [(0, false), (0, false), (one, true)], "the others are no longer listed");
        let next_look = || objects.next_look.load(Ordering::Relaxed);
        objects.tables.fetch_add(10 << 20, Ordering::Relaxed);
        objects.shrink();
        assert_eq!(next_look(), one + (10 << 20) + LOOK_EVERY);
        objects.tables.fetch_sub(10 << 20, Ordering::Relaxed);
        objects.shrink();
        assert_eq!(next_look(), one + LOOK_EVERY, "fewer tables are counted again as soon");
    }

    #[test]
    fn an_object_all_of_whose_frames_were_named_in_the_end_is_no_problem() {
        let (objects, names) = (Objects::default(), Names::default());
        let listed = || objects.problems(&names).into_iter().map(|problem| problem.unnamed).collect::<Vec<_>>();
        let entry = objects.entry(ObjectId(10));
        entry.tally.set_reason(Some(Reason::Stripped));
        entry.tally.count(3, 0);
        assert!(listed().is_empty());
        entry.tally.set_reason(Some(Reason::MalformedDwarf));
        assert_eq!(listed(), [0], "without lines, and told so");
        entry.tally.set_reason(Some(Reason::Stripped));
        entry.tally.count(0, 2);
        assert_eq!(listed(), [2]);
    }

    #[test]
    fn a_file_that_could_not_be_opened_is_tried_again_with_another_process_but_not_for_ever() {
        let objects = Objects::default();
        let missing = Object { path: "/no/such/file".into(), ..own_executable() };
        let entry = objects.entry(ObjectId(10));
        let host = Host { tgid: Tgid(u32::MAX), user: UserId(0), files: FileNamespace(0), mapping: Default::default() };
        for _ in 0..20 {
            assert!(objects.images(&mut entry.state(), &missing, std::slice::from_ref(&host)).is_err());
        }
        assert_eq!(entry.state().attempts, MAX_ATTEMPTS);
    }
}
