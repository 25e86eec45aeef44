//! Which objects have a table in the kernel, and how others get one.
//!
//! ```text
//! wish of a sample ─► known? ─ no ─► queue ─► worker: open ─► cache on disk, or convert ─► layout ─► kernel ─► `files`
//!                        │
//!                        └ yes: made already, being made, or known to have none
//! ```
//!
//! A wish names a file as the kernel knows it, and where a process has it mapped: that leads to the file, whatever became of
//! its path. Objects with one build id share a table. Tables that were not looked into for longest go when there are too
//! many bytes of them.
//!
//! Promises: the collecting thread never waits for a file or for a table; a wish that could not be fulfilled because its
//! process was gone comes again with the next sample.

mod cache;
mod kernel;
mod layout;
mod pool;

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libbpf_rs::MapHandle;
use rustc_hash::FxHashMap;

use super::records::Wish;
use super::unwind::{self, Arch, FileImage, OnDisk, Table};
use super::{build_id, perf, proc};
use crate::far;
use crate::profile::BuildId;
pub(crate) use cache::Cache;
pub(crate) use kernel::ObjectKey;
use kernel::{Kernel, NotPlaced, Placed};
use layout::Layout;

/// Bytes of tables above which the least used ones go: 42 million rows, all that is on a large desktop, are 200 MB.
const MOST_BYTES: u64 = 384 << 20;

/// A table that was looked into this lately stays, whatever happens: units of 2³⁰ ns.
const RECENTLY: u32 = 30;

/// How long a wish that failed for want of its process is not tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// After how long a file system that did not answer is asked again, by the next sample in one of its files.
const SILENCE: Duration = Duration::from_secs(60);

/// Threads that make tables: two, on one processor too, as a program whose rules are read from its code takes half a second, and the
/// next one shall not wait for it.
const WORKERS: usize = 2;

/// Files whose address of code did not change since they were opened are few in a second: more wait.
const MOST_WAITING: usize = 4096;

/// What is told of an object: see [`unwind::Report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Rows in the kernel.
    pub rows: u64,
    /// Bytes in the kernel: rows, index and rules.
    pub bytes: u64,
    /// Bytes of code.
    pub text: u64,
    /// Bytes of code under a description.
    pub covered: u64,
    /// Bytes of those without a rule.
    pub covered_invalid: u64,
    /// Descriptions that could not be read.
    pub fdes_in_error: u64,
    /// Whether some of it is from a separate file of debugging information.
    pub separate: bool,
}

impl Summary {
    const NUMBERS: usize = 7;

    fn numbers(&self) -> [u64; Summary::NUMBERS] {
        let Summary { rows, bytes, text, covered, covered_invalid, fdes_in_error, separate } = *self;
        [rows, bytes, text, covered, covered_invalid, fdes_in_error, u64::from(separate)]
    }

    fn from_numbers(numbers: [u64; Summary::NUMBERS]) -> Summary {
        let [rows, bytes, text, covered, covered_invalid, fdes_in_error, separate] = numbers;
        Summary { rows, bytes, text, covered, covered_invalid, fdes_in_error, separate: separate != 0 }
    }

    fn of(table: &Table, layout: &Layout) -> Summary {
        let report = &table.report;
        Summary {
            rows: layout.rows.iter().map(|rows| rows.len() as u64).sum(),
            bytes: layout.bytes() as u64,
            text: report.text,
            covered: report.covered,
            covered_invalid: report.covered_invalid,
            fdes_in_error: report.fdes_in_error,
            separate: report.sources.iter().any(|source| unwind::SEPARATE_FILES.contains(source)),
        }
    }
}

/// What became of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectState {
    /// Its table is in the kernel.
    Ready(Summary),
    /// It has none, and why.
    Without(String),
}

/// An object that code ran of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectStatus {
    /// Its path, as its process has it.
    pub path: Arc<str>,
    /// What became of it.
    pub state: ObjectState,
}

/// All tables in figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TablesStatus {
    /// Objects with a table.
    pub ready: usize,
    /// Objects that have none.
    pub without: usize,
    /// Objects whose table is being made or waits.
    pub waiting: usize,
    /// Rows in the kernel.
    pub rows: u64,
    /// Bytes of tables in the kernel.
    pub bytes: u64,
    /// Bytes of the segments that they are in.
    pub segment_bytes: u64,
    /// Tables that were let go for want of room.
    pub evicted: u64,
    /// Tables that were found on disk.
    pub from_cache: u64,
}

/// A file that a table is wanted for.
#[derive(Clone, Debug)]
struct Job {
    key: ObjectKey,
    tgid: u32,
    mapping: (u64, u64),
    /// What it may be called, as its process sees it; the likeliest first.
    paths: Vec<Arc<str>>,
}

/// How it stands with a file.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Waits or is being made.
    Asked,
    /// Could not be opened; not before then again.
    Later(Instant),
    /// Has an object.
    Done,
}

struct Object {
    /// `None`: taken out of the kernel.
    placed: Option<Placed>,
    keys: Vec<ObjectKey>,
    build_id: Option<(BuildId, u64)>,
    status: ObjectStatus,
    /// When its file is looked at again, if that did not answer.
    again: Option<Instant>,
}

struct Inner {
    kernel: Kernel,
    states: FxHashMap<ObjectKey, State>,
    objects: Vec<Object>,
    by_build_id: FxHashMap<(BuildId, u64), usize>,
    queue: VecDeque<Job>,
    /// Bytes of tables above which the least used ones go.
    most_bytes: u64,
    evicted: u64,
    from_cache: u64,
    stop: bool,
}

struct Shared {
    inner: Mutex<Inner>,
    work: Condvar,
    cache: Option<Cache>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tables of one collector. Dropping it ends its workers.
pub(crate) struct Tables {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Tables {
    /// With the maps of bpf/tables.h. The vDSO's table is made at once: every process has it.
    pub(crate) fn start(segments: MapHandle, objects: MapHandle, files: MapHandle, cache: Option<Cache>) -> Tables {
        let inner = Inner {
            kernel: Kernel::new(segments, objects, files),
            states: FxHashMap::default(),
            objects: Vec::new(),
            by_build_id: FxHashMap::default(),
            queue: VecDeque::new(),
            most_bytes: MOST_BYTES,
            evicted: 0,
            from_cache: 0,
            stop: false,
        };
        let shared = Arc::new(Shared { inner: Mutex::new(inner), work: Condvar::new(), cache });
        let vdso = vdso();
        shared.lock().finish(ObjectKey::VDSO, "[vdso]".into(), None, vdso);
        let start = |number| {
            let shared = shared.clone();
            std::thread::Builder::new().name(format!("unwind-{number}")).spawn(move || work(&shared)).ok()
        };
        let workers = (0..WORKERS).filter_map(start).collect();
        Tables { shared, workers }
    }

    /// A sample ran code without a table. `paths` are what its process may call the file.
    pub(crate) fn wish(&self, wish: &Wish, paths: impl FnOnce() -> Vec<Arc<str>>) {
        let mut inner = self.shared.lock();
        match inner.states.get(&wish.key) {
            Some(State::Asked | State::Done) => return,
            Some(State::Later(until)) if Instant::now() < *until => return,
            _ if inner.queue.len() >= MOST_WAITING => return,
            _ => {}
        }
        inner.states.insert(wish.key, State::Asked);
        let job = Job { key: wish.key, tgid: wish.tgid, mapping: (wish.start, wish.end), paths: paths() };
        inner.queue.push_back(job);
        self.shared.work.notify_one();
    }

    /// To be called about once a second.
    pub(crate) fn tidy(&self, now: u64) {
        let mut inner = self.shared.lock();
        inner.kernel.collect();
        if inner.kernel.bytes().0 > inner.most_bytes {
            inner.evict((now >> 30) as u32);
        }
        inner.forget_silent(Instant::now());
    }

    pub(crate) fn status(&self) -> TablesStatus {
        let inner = self.shared.lock();
        let (bytes, segment_bytes) = inner.kernel.bytes();
        let mut status =
            TablesStatus { bytes, segment_bytes, evicted: inner.evicted, from_cache: inner.from_cache, ..Default::default() };
        for object in inner.objects.iter().filter(|object| object.placed.is_some()) {
            match &object.status.state {
                ObjectState::Ready(summary) => {
                    status.ready += 1;
                    status.rows += summary.rows;
                }
                ObjectState::Without(_) => status.without += 1,
            }
        }
        status.waiting = inner.states.values().filter(|state| matches!(state, State::Asked)).count();
        status
    }

    /// Every object that code ran of.
    pub(crate) fn objects(&self) -> Vec<ObjectStatus> {
        self.shared.lock().objects.iter().filter(|object| object.placed.is_some()).map(|object| object.status.clone()).collect()
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.stop = true;
        inner.queue.clear();
        drop(inner);
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has nothing more to do either.
            let _ = worker.join();
        }
    }
}

/// A table that is to be put into the kernel, or why there is none.
type Made = Result<(Layout, Summary), String>;

impl Inner {
    /// Puts what was made into the kernel, under its file's name.
    fn finish(&mut self, key: ObjectKey, path: Arc<str>, build_id: Option<(BuildId, u64)>, made: Made) {
        let (placed, state) = match made {
            Ok((layout, summary)) => match self.kernel.put(&layout) {
                Ok(placed) => (Ok(placed), ObjectState::Ready(summary)),
                // Tried again when there is room.
                Err(NotPlaced::Full) => {
                    self.states.insert(key, State::Later(Instant::now() + PAUSE));
                    return;
                }
                Err(error) => (self.kernel.put_nothing(), ObjectState::Without(error.to_string())),
            },
            Err(reason) => (self.kernel.put_nothing(), ObjectState::Without(reason)),
        };
        // Where the same has been before, if it was taken out.
        let is_former = |object: &Object| object.placed.is_none() && object.status.path == path;
        let number = self.objects.iter().position(is_former).unwrap_or(self.objects.len());
        let status = ObjectStatus { path, state };
        let object = Object { placed: placed.ok(), keys: Vec::new(), build_id, status, again: None };
        match self.objects.get_mut(number) {
            Some(former) => *former = object,
            None => self.objects.push(object),
        }
        if let Some(id) = build_id {
            self.by_build_id.insert(id, number);
        }
        self.name(key, number);
    }

    /// A file whose file system does not answer: it has no table, until it is asked again.
    fn silent(&mut self, key: ObjectKey, path: Arc<str>, again: Instant) {
        self.finish(key, path, None, Err("its file system does not answer".to_owned()));
        let object = self.objects.iter_mut().find(|object| object.keys.contains(&key));
        object.into_iter().for_each(|object| object.again = Some(again));
    }

    /// Forgets that files did not answer that may by now.
    fn forget_silent(&mut self, now: Instant) {
        for number in 0..self.objects.len() {
            if self.objects.get(number).is_some_and(|object| object.again.is_some_and(|again| again <= now)) {
                self.take_out(number);
            }
        }
    }

    /// Takes an object out of the kernel, so that the next sample in it wishes for a table.
    fn take_out(&mut self, number: usize) -> bool {
        let Some(object) = self.objects.get_mut(number) else { return false };
        let Some(placed) = object.placed.take() else { return false };
        object.again = None;
        let keys = std::mem::take(&mut object.keys);
        self.states.retain(|key, _| !keys.contains(key));
        if let Some(id) = object.build_id {
            self.by_build_id.remove(&id);
        }
        self.kernel.take_out(&keys, placed);
        true
    }

    /// A file whose object is there already.
    fn name(&mut self, key: ObjectKey, number: usize) {
        let Some(object) = self.objects.get_mut(number) else { return };
        let named = object.placed.as_ref().is_some_and(|placed| self.kernel.name(key, placed).is_ok());
        if named {
            object.keys.push(key);
        }
        self.states.insert(key, if named { State::Done } else { State::Later(Instant::now() + PAUSE) });
    }

    /// A file whose content may be there already, as another one; whether it is.
    fn name_by_build_id(&mut self, key: ObjectKey, id: (BuildId, u64)) -> bool {
        let known = self.by_build_id.get(&id).copied();
        known.into_iter().for_each(|number| self.name(key, number));
        known.is_some()
    }

    /// Takes out the tables that were not looked into for longest, until there is some room.
    fn evict(&mut self, now: u32) {
        let kernel = &self.kernel;
        let used = |object: &Object| object.placed.as_ref().map(|placed| kernel.used(placed));
        let mut order: Vec<(u32, usize)> =
            self.objects.iter().enumerate().skip(1).filter_map(|(number, object)| Some((used(object)?, number))).collect();
        order.sort_unstable();
        for (used, number) in order {
            if self.kernel.bytes().0 < self.most_bytes / 10 * 9 || now.saturating_sub(used) < RECENTLY {
                break;
            }
            self.evicted += u64::from(self.take_out(number));
        }
    }
}

fn work(shared: &Shared) {
    let (mut worked, mut stored) = (false, false);
    loop {
        let mut inner = shared.lock();
        let job = loop {
            if inner.stop {
                return;
            }
            match inner.queue.pop_front() {
                Some(job) => break job,
                None if worked => {
                    drop(inner);
                    worked = false;
                    perf::release_memory();
                    if std::mem::take(&mut stored) {
                        shared.cache.iter().for_each(Cache::prune);
                    }
                    inner = shared.lock();
                }
                None => inner = shared.work.wait(inner).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(inner);
        worked = true;
        let opened = {
            let job = job.clone();
            far::within(job.key.place(), far::PATIENCE, move || open(&job))
        };
        let (image, path, build_id) = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => {
                shared.lock().states.insert(job.key, State::Later(Instant::now() + PAUSE));
                continue;
            }
            Err(_) => {
                let path = job.paths.first().cloned().unwrap_or_default();
                shared.lock().silent(job.key, path, Instant::now() + SILENCE);
                continue;
            }
        };
        if build_id.is_some_and(|id| shared.lock().name_by_build_id(job.key, id)) {
            continue;
        }
        let beside = beside(&job, &path, build_id.map(|(id, _)| id));
        let cached = shared.cache.as_ref().zip(build_id).and_then(|(cache, (id, size))| cache.load(id, size));
        // Where much code is not covered, a file with more of it may have been installed since.
        let cached = cached.filter(|(_, summary)| {
            summary.separate || summary.covered >= summary.text / 10 * 9 || !unwind::has_separate_file(&beside)
        });
        let from_cache = cached.is_some();
        let made = cached.map_or_else(|| make(&image, &beside), Ok);
        if let (Ok((layout, summary)), Some(cache), Some((id, size)), false) = (&made, &shared.cache, build_id, from_cache) {
            // Only the time of the next run depends on it.
            stored |= cache.store(id, size, layout, summary).is_ok();
        }
        let mut inner = shared.lock();
        inner.from_cache += u64::from(from_cache);
        inner.finish(job.key, path, build_id, made);
    }
}

/// A file, its path, and its build id with its length, which a table is known by.
type Found = (FileImage, Arc<str>, Option<(BuildId, u64)>);

/// The file of a mapping.
fn open(job: &Job) -> Option<Found> {
    let (file, path) = find(job)?;
    let build_id = build_id::of_file(&file).zip(file.metadata().ok().map(|metadata| metadata.len()));
    Some((FileImage::new(file).ok()?, path, build_id))
}

/// The file of a mapping, and its path: through the mapping itself, or, if the process has unmapped it or is gone, by what it
/// may be called.
///
/// It must have the inode's number; the device is not compared: overlay file systems tell the kernel's programs one and stat
/// another. (Nor are the upper bits of the number, where they put which of their layers it is in.)
fn find(job: &Job) -> Option<(File, Arc<str>)> {
    let (start, end) = job.mapping;
    let is_it =
        |file: &File| file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.ino() as u32 == job.key.inode as u32);
    let link = format!("/proc/{}/map_files/{start:x}-{end:x}", job.tgid);
    if let Some(file) = File::open(&link).ok().filter(is_it) {
        // The event that names the mapping may be a moment younger than the sample.
        let named = || std::fs::read_link(&link).map(|path| path.to_string_lossy().into()).unwrap_or_default();
        return Some((file, job.paths.first().cloned().unwrap_or_else(named)));
    }
    let root = PathBuf::from(format!("/proc/{}/root", job.tgid));
    let root = if root.exists() { root } else { PathBuf::from("/") };
    let place = OnDisk::under(root, None, None);
    let mut paths = job.paths.iter().filter(|path| path.starts_with('/') && !path.ends_with(" (deleted)"));
    paths.find_map(|path| {
        let file = unwind::Beside::open(&place, Path::new(&**path)).filter(is_it)?;
        Some((file, path.clone()))
    })
}

/// Where files of debugging information are, as the process sees it.
fn beside(job: &Job, path: &str, build_id: Option<BuildId>) -> OnDisk {
    let directory = Path::new(path).parent().map(Path::to_owned);
    OnDisk::under(PathBuf::from(format!("/proc/{}/root", job.tgid)), directory, build_id)
}

fn make(image: &FileImage, beside: &OnDisk) -> Made {
    let table = unwind::convert(image, beside).map_err(|error| error.to_string())?;
    finish_table(&table)
}

fn finish_table(table: &Table) -> Made {
    let own = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };
    if table.arch != own {
        return Err("built for another machine".to_string());
    }
    let layout = Layout::new(table);
    let summary = Summary::of(table, &layout);
    if summary.rows == 0 { Err("has no unwind information".to_string()) } else { Ok((layout, summary)) }
}

/// Our own vDSO, read from memory: it is everybody's.
fn vdso() -> Made {
    let mapped = proc::maps(std::process::id()).unwrap_or_default();
    let mapped = mapped.into_iter().find(|mapped| mapped.path == "[vdso]").ok_or("there is none")?;
    let mut image = vec![0; usize::try_from(mapped.end - mapped.start).unwrap_or(0)];
    let memory = File::open("/proc/self/mem").map_err(|error| error.to_string())?;
    memory.read_exact_at(&mut image, mapped.start).map_err(|error| error.to_string())?;
    let table = unwind::convert(image.as_slice(), &unwind::Nowhere).map_err(|error| error.to_string())?;
    finish_table(&table)
}

#[cfg(test)]
mod tests;
