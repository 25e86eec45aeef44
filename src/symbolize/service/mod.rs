//! The workers of [`Symbolizer`](super::Symbolizer). They run while frames wait and end when none do.
//!
//! ```text
//! request ──► inbox ──► queue by object ──► workers ─────────────┬──► names.name_frame
//!          ▲       └──► kernel frames ────► kernel worker ───────┘
//!          └─── to be looked up in its debug information ─┘
//! ```
//!
//! An object's frames are named twice. Symbols name them first, at once. Debug information comes second: it has the inlined functions and
//! takes longer. The second step begins only when no frame waits for the first.
//!
//! JIT code counts as an object of its process ([`jit`]). Unnamed JIT code is retried; see [`Service::look_again_later`].
//!
//! Workers are tokio blocking tasks. They return when nothing is left to do, so the runtime can shut down. If a job panics, only its object
//! stays unnamed.

pub(crate) mod debuginfod;
mod fetching;
pub(crate) mod inlined;
pub(crate) mod latest;
pub(crate) mod locate;
pub(crate) mod objects;
pub(crate) mod queue;
mod unnamed;
use crate::symbolize::kernel::modules::module_in;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::jit::{self, JitNames};
use super::kernel::modules::Modules;
use super::kernel::names::KernelNames;
use super::service::debuginfod::Fetch;
use super::service::objects::{Entry, EntryState, Objects};
use super::service::queue::{Job, Queue, Waiting};
use super::service::unnamed::Unnamed;
use super::source_files::hosts::Hosts;
use super::source_files::maps::{Script, SourceMaps};
use super::symbols::demangle::{Detail, demangle};
use super::symbols::index::{NameRef, SymbolIndex};
use crate::locks::lock;
use crate::object::crew::{PROMPT, Waits};
use crate::object::mapped_file::Host;
use crate::object::object_files::Images;
use crate::object::reason::Reason;
use crate::profile::{
    Frame, FrameId, FrameKind, LabelId, NameRequest, Names, Object, ObjectId, ObjectKind, Renewed, Tgid, UserId,
};

/// Workers for objects, without the kernel's and those that are left behind ([`crew`](crate::object::crew)). Reading symbols is mostly
/// waiting for the page cache and sorting; more than two would take CPU time from the measured programs. The third is for root's objects
/// only.
const WORKERS: usize = 3;
/// Most attempts at a batch whose file was written to meanwhile.
const MAX_ROUNDS: usize = 2;
/// How long debug information that exceeds the limit for all objects is held after its last question. The kernel's takes 100 MB and is
/// opened in a quarter of a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two searches for unused tables.
const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// State shared by all handles and workers.
pub(super) struct Service {
    pub(super) names: Arc<Names>,
    pub(super) handle: Handle,
    /// This process, and the program file that it runs.
    own: Tgid,
    own_path: Option<String>,
    pub(super) inbox: Mutex<Inbox>,
    pub(super) queue: Mutex<Queue>,
    pub(super) objects: Objects,
    kernel_lane: Mutex<KernelLane>,
    pub(super) kernel: Arc<KernelNames>,
    pub(super) modules: Modules,
    pub(super) jit: Arc<JitNames>,
    pub(super) fetch: Fetch,
    pub(super) hosts: Hosts,
    pub(super) source_maps: SourceMaps,
    pending: AtomicUsize,
    pub(super) idle: Notify,
    pub(super) stopped: AtomicBool,
    /// Whether the task of [`Service::let_go_later`] runs.
    letting_go: AtomicBool,
    /// Whether the task of [`Service::watch`] runs.
    watching: AtomicBool,
}

/// Requests that are not yet sorted into the queue.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) requests: Vec<NameRequest>,
    /// Objects whose JIT code is to be retried.
    again: Vec<ObjectId>,
    /// Kernel frames to look up in the debug information of the kernel or of its modules.
    deeper: Vec<(ObjectId, Vec<FrameId>)>,
    /// Frames to name again, with their objects.
    renewed: Vec<(ObjectId, Vec<FrameId>)>,
    workers: usize,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.again.is_empty() && self.deeper.is_empty() && self.renewed.is_empty()
    }

    /// Takes everything out. The number of workers stays.
    fn take(&mut self) -> Inbox {
        let workers = self.workers;
        std::mem::replace(self, Inbox { workers, ..Inbox::default() })
    }
}

#[derive(Default)]
struct KernelLane {
    frames: Vec<FrameId>,
    running: bool,
}

impl Service {
    /// Returns the object whose debug information covers a kernel frame: the kernel, or the module that has the function. `None` for frames
    /// of neither, such as BPF programs.
    pub(crate) fn has_debug_information_of(&self, frame: FrameId) -> Option<ObjectId> {
        let label = self.names.labels.get(self.symbol_of(frame)?)?;
        let Some(name) = module_in(&label.object) else { return Some(ObjectId::KERNEL) };
        self.modules.object_of(name, &self.objects.root, &self.names)
    }

    /// Returns the script with this object.
    pub(super) fn script<'a>(&'a self, id: ObjectId, about: &'a Object) -> Script<'a> {
        Script { id, about, hosts: &self.hosts }
    }

    pub(super) fn new(names: Arc<Names>, handle: Handle) -> Service {
        Service {
            names,
            handle,
            own: Tgid(std::process::id()),
            own_path: std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned)),
            inbox: Mutex::default(),
            queue: Mutex::new(Queue::new(WORKERS)),
            objects: Objects::default(),
            kernel_lane: Mutex::default(),
            kernel: Arc::default(),
            modules: Modules::default(),
            jit: Arc::default(),
            fetch: Fetch::default(),
            hosts: Hosts::default(),
            source_maps: SourceMaps::default(),
            pending: AtomicUsize::new(0),
            idle: Notify::new(),
            stopped: AtomicBool::new(false),
            letting_go: AtomicBool::new(false),
            watching: AtomicBool::new(false),
        }
    }

    /// Returns a service for new tables. It keeps the files and tables of the objects that the new tables also have.
    pub(super) fn successor(&self, renewed: &Renewed) -> Service {
        let next = Service::new(Arc::clone(&renewed.names), self.handle.clone());
        if let Some(program) = self.fetch.program.get() {
            let _ = next.fetch.program.set(program.clone());
        }
        let hosts = self.hosts.successor(renewed);
        Service { objects: self.objects.successor(&renewed.objects), kernel: Arc::clone(&self.kernel), hosts, ..next }
    }

    /// Leaves requests for the workers. Takes a lock that is held for a few instructions only.
    pub(super) fn request(self: &Arc<Self>, requests: Vec<NameRequest>) {
        if requests.is_empty() {
            return;
        }
        self.hosts.remember(&self.names, &requests);
        self.pending.fetch_add(requests.len(), Ordering::AcqRel);
        lock(&self.inbox).requests.extend(requests);
        self.start_worker(1);
    }

    /// Returns the number of requested frames that are not done.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Counts frames as pending until they are [finished](Self::finished).
    pub(super) fn begun(&self, count: usize) {
        self.pending.fetch_add(count, Ordering::AcqRel);
    }

    /// Queues all of these frames of an object to be named again.
    pub(super) fn name_again(self: &Arc<Self>, object: ObjectId, frames: Vec<FrameId>) {
        self.begun(frames.len());
        lock(&self.inbox).renewed.push((object, frames));
        self.start_worker(1);
    }

    pub(super) fn finished(&self, count: usize) {
        if self.pending.fetch_sub(count, Ordering::AcqRel) == count {
            self.idle.notify_waiters();
        }
    }

    /// Starts a worker unless `limit` workers already run, without those that are left behind.
    fn start_worker(self: &Arc<Self>, limit: usize) {
        let left = lock(&self.queue).left(Instant::now());
        {
            let mut inbox = lock(&self.inbox);
            if inbox.workers >= limit + left {
                drop(inbox);
                return self.watch();
            }
            inbox.workers += 1;
        }
        let service = Arc::clone(self);
        drop(self.handle.spawn_blocking(move || service.work()));
    }

    /// Starts a task that replaces workers that wait for a file. It runs as long as any object waits for a worker.
    fn watch(self: &Arc<Self>) {
        if self.watching.swap(true, Ordering::AcqRel) {
            return;
        }
        let service = Arc::downgrade(self);
        drop(self.handle.spawn(async move {
            loop {
                tokio::time::sleep(PROMPT).await;
                let Some(service) = service.upgrade().filter(|service| !service.stopped.load(Ordering::Relaxed)) else { return };
                let (has_work, is_empty) = {
                    let queue = lock(&service.queue);
                    (queue.has_work(Instant::now()), queue.is_empty())
                };
                let has_mail = !lock(&service.inbox).is_empty();
                if has_work || has_mail {
                    service.start_worker(WORKERS);
                } else if is_empty {
                    service.watching.store(false, Ordering::Release);
                    // A request that came meanwhile did not start another task.
                    let is_idle = lock(&service.inbox).is_empty() && lock(&service.queue).is_empty();
                    if is_idle || service.watching.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
            }
        }));
    }

    /// Whether names of these users are being found, or will be without waiting for a file that does not answer.
    pub(super) fn works_for(&self, is_one: impl Fn(UserId) -> bool) -> bool {
        let has_mail = !lock(&self.inbox).is_empty();
        let others = lock(&self.kernel_lane).running || self.fetch.works_for(&is_one);
        has_mail || others || lock(&self.queue).works_for(is_one, Instant::now())
    }

    fn work(self: Arc<Self>) {
        let waits = Waits::default();
        waits.follow_this_thread();
        while !self.stopped.load(Ordering::Relaxed) {
            self.distribute();
            let (job, more, rest) = {
                let mut queue = lock(&self.queue);
                let now = Instant::now();
                (queue.next(now, &waits), queue.has_work(now), !queue.is_empty())
            };
            let Some(job) = job else {
                // A request that comes after this sees the lower count and starts a worker.
                let mut inbox = lock(&self.inbox);
                if inbox.is_empty() {
                    inbox.workers -= 1;
                    return;
                }
                continue;
            };
            if more {
                self.start_worker(WORKERS);
            } else if rest {
                self.watch();
            }
            let object = job.object();
            self.run(job);
            lock(&self.queue).done(object);
            self.objects.shrink();
            self.let_go_later();
        }
        lock(&self.inbox).workers -= 1;
    }

    /// Sorts the inbox into the queue, by object.
    fn distribute(self: &Arc<Self>) {
        let Inbox { requests, again, deeper, renewed, .. } = lock(&self.inbox).take();
        let (mut kernel, mut nothing_to_do) = (Vec::new(), 0);
        {
            let mut queue = lock(&self.queue);
            for (object, frames) in deeper {
                queue.push_deeper(object, frames);
            }
            for (object, frames) in renewed {
                frames.into_iter().for_each(|frame| queue.push(object, frame, None));
            }
            nothing_to_do += again.into_iter().filter(|object| !queue.push_again(*object)).count();
            for request in requests {
                let object = self.names.frames.get(request.frame).map(|frame| frame.object());
                let kind = object.and_then(|object| Some((object, self.names.objects.get(object)?.kind)));
                match kind {
                    Some((_, ObjectKind::Kernel)) => kernel.push(request.frame),
                    Some((object, ObjectKind::Elf | ObjectKind::Anonymous)) if object != ObjectId::ANONYMOUS => {
                        queue.push(object, request.frame, Some(Host::of(request)));
                    }
                    Some((object, ObjectKind::Vdso)) => queue.push(object, request.frame, None),
                    // These frames already have their final name.
                    Some((
                        _,
                        ObjectKind::Named | ObjectKind::Elf | ObjectKind::Anonymous | ObjectKind::Script | ObjectKind::Unmapped,
                    ))
                    | None => {
                        nothing_to_do += 1;
                    }
                }
            }
        }
        if nothing_to_do > 0 {
            self.finished(nothing_to_do);
        }
        if !kernel.is_empty() {
            self.start_kernel_worker(kernel);
        }
    }

    fn start_kernel_worker(self: &Arc<Self>, frames: Vec<FrameId>) {
        {
            let mut lane = lock(&self.kernel_lane);
            lane.frames.extend(frames);
            if lane.running {
                return;
            }
            lane.running = true;
        }
        let service = Arc::clone(self);
        drop(self.handle.spawn_blocking(move || service.work_on_kernel()));
    }

    fn work_on_kernel(self: &Arc<Self>) {
        loop {
            let frames = {
                let mut lane = lock(&self.kernel_lane);
                if lane.frames.is_empty() || self.stopped.load(Ordering::Relaxed) {
                    lane.running = false;
                    return;
                }
                std::mem::take(&mut lane.frames)
            };
            let entry = self.objects.entry(ObjectId::KERNEL);
            let work = || self.kernel.name(&self.names, &entry.tally, &frames, &self.stopped);
            let named = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                entry.tally.set_reason(Some(Reason::Crashed));
                Vec::new()
            });
            let mut deeper: FxHashMap<ObjectId, Vec<FrameId>> = FxHashMap::default();
            for frame in named {
                if let Some(object) = self.has_debug_information_of(frame) {
                    deeper.entry(object).or_default().push(frame);
                }
            }
            deeper.retain(|object, _| self.objects.entry(*object).may_have_dwarf());
            let left: usize = deeper.values().map(Vec::len).sum();
            if left > 0 {
                lock(&self.inbox).deeper.extend(deeper);
                self.start_worker(1);
            }
            self.finished(frames.len() - left);
        }
    }

    fn run(self: &Arc<Self>, job: Job) {
        let id = job.object();
        let Some(object) = self.names.objects.get(id) else { return };
        if object.kind == ObjectKind::Anonymous {
            return self.run_jit(id, object, job);
        }
        let entry = self.objects.entry(id);
        // Set inside the work, so that the frames are known if it panics.
        let mut frames = Vec::new();
        let mut deeper = Vec::new();
        let has_symbols = matches!(job, Job::Inline(..));
        let work = || match job {
            Job::Open(_, hosts) => {
                let _ = self.objects.images(&mut entry.state(), object, &hosts);
            }
            Job::Name(_, waiting) => {
                frames.clone_from(&waiting.frames);
                deeper = self.name((id, object), &entry, waiting);
            }
            Job::Inline(_, waiting) => {
                frames.clone_from(&waiting);
                deeper = self.name_inlined(object, &entry, waiting);
            }
            Job::Again(_) => {}
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.crashed(object, &entry, &frames, has_symbols);
            deeper = Vec::new();
        }
        let left = deeper.len();
        if left > 0 {
            lock(&self.queue).push_deeper(id, deeper);
        }
        self.finished(frames.len() - left.min(frames.len()));
    }

    /// Finishes the frames of a job that panicked. Frames that have a name keep it. An object with symbols is not given up: only its debug
    /// information failed. That is no longer held, so it is not asked again.
    fn crashed(&self, object: &Object, entry: &Entry, frames: &[FrameId], has_symbols: bool) {
        entry.tally.set_reason(Some(Reason::Crashed));
        if !has_symbols {
            self.objects.give_up(&mut entry.state(), Reason::Crashed);
        }
        let mut unnamed = 0;
        for frame in frames {
            if self.is_waiting(*frame) {
                self.leave_unnamed(object, &mut Unnamed::default(), *frame);
                unnamed += 1;
            }
        }
        entry.tally.count(0, unnamed);
    }

    /// Whether a frame has no name yet and was not given up.
    pub(super) fn is_waiting(&self, frame: FrameId) -> bool {
        let mut waiting = false;
        self.names.labels_of(frame, |label| waiting |= self.names.labels.get(label).is_some_and(|label| label.provisional));
        waiting
    }

    /// Names JIT code of one process: the requested frames, and earlier ones that have no name.
    fn run_jit(self: &Arc<Self>, id: ObjectId, object: &Object, job: Job) {
        let (frames, again) = match job {
            Job::Open(..) => (Vec::new(), false),
            Job::Name(_, waiting) => (waiting.frames, false),
            Job::Inline(_, frames) => (frames, false),
            Job::Again(_) => (Vec::new(), true),
        };
        let count = frames.len();
        let work = || self.jit.name(&self.names, (id, object), frames, again, &self.stopped);
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.jit.crashed(id, count as u64);
        }
        self.jit.shrink();
        self.finished(count + usize::from(again));
        self.look_again_later();
    }

    /// Retries unnamed JIT code at once. Counts as pending until that is done.
    pub(super) fn look_again(self: &Arc<Self>, objects: Vec<ObjectId>) {
        if objects.is_empty() {
            return;
        }
        self.pending.fetch_add(objects.len(), Ordering::AcqRel);
        lock(&self.inbox).again.extend(objects);
        self.start_worker(1);
    }

    /// Starts a task that drops tables that are no longer used. It ends when none are held.
    fn let_go_later(self: &Arc<Self>) {
        if !self.objects.holds_tables() || self.letting_go.swap(true, Ordering::AcqRel) {
            return;
        }
        let service = Arc::downgrade(self);
        drop(self.handle.spawn(async move {
            let (mut before, mut asked) = (0, Instant::now());
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(service) = service.upgrade().filter(|service| !service.stopped.load(Ordering::Relaxed)) else { return };
                let questions = service.objects.questions();
                if questions != before {
                    (before, asked) = (questions, Instant::now());
                }
                let sweeping = Arc::clone(&service);
                let lets_go = move || {
                    if asked.elapsed() >= PATIENCE {
                        sweeping.objects.let_go();
                    }
                    sweeping.objects.let_go_unused();
                };
                let _ = tokio::task::spawn_blocking(lets_go).await;
                if !service.objects.holds_tables() {
                    service.letting_go.store(false, Ordering::Release);
                    // A worker that read tables meanwhile did not start this task, because it still ran.
                    return service.let_go_later();
                }
            }
        }));
    }

    /// Starts a task that retries unnamed JIT code periodically. It ends when no such code waits. No thread is held meanwhile.
    fn look_again_later(self: &Arc<Self>) {
        if self.jit.due(false).is_none() || self.jit.ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        let service = Arc::downgrade(self);
        drop(self.handle.spawn(async move {
            loop {
                tokio::time::sleep(jit::PAUSE).await;
                let Some(service) = service.upgrade().filter(|service| !service.stopped.load(Ordering::Relaxed)) else { return };
                let Some(due) = service.jit.due(false) else {
                    service.jit.ticking.store(false, Ordering::Release);
                    // Requests that came meanwhile did not start this task, because it still ran.
                    return service.look_again_later();
                };
                service.look_again(due);
            }
        }));
    }

    /// Names the frames of one object by its symbols, or gives them up with a reason. Returns the frames that are to be looked up in its
    /// debug information.
    fn name(self: &Arc<Self>, (id, object): (ObjectId, &Object), entry: &Entry, waiting: Waiting) -> Vec<FrameId> {
        let Waiting { mut frames, hosts } = waiting;
        self.sort_by_address(&mut frames);
        let mut state = entry.state();
        let mut outcome = Err(Reason::Changed);
        for _ in 0..MAX_ROUNDS {
            outcome = self.find_all(object, &mut state, &frames, &hosts);
            if !matches!(outcome, Err(Reason::Changed)) {
                break;
            }
        }
        // flametop's own code is not looked up: reading megabytes of debug information is not worth it for the few samples.
        let is_us = self.own_path.as_deref() == Some(&*object.path) && hosts.iter().all(|host| host.tgid == self.own);
        let goes_on = outcome.is_ok() && !is_us && Objects::may_have_dwarf(&state);
        let wanted = if outcome.is_ok() && !is_us && self.fetch.is_on() { Objects::wanted(&mut state) } else { None };
        let mut without_name = Unnamed::of(outcome.as_ref().ok().and_then(|_| state.images()));
        drop(state);
        let FoundNames { labels, reason } =
            outcome.unwrap_or_else(|reason| FoundNames { labels: Vec::new(), reason: Some(reason) });
        let mut named = 0;
        for (index, frame) in frames.iter().enumerate() {
            match labels.get(index).copied().flatten() {
                Some(label) => {
                    self.names.name_frame(*frame, &[label]);
                    named += 1;
                }
                None if goes_on => {}
                // It was named before, from a file that cannot be read any more.
                None if self.symbol_of(*frame).is_some() => named += 1,
                None => self.leave_unnamed(object, &mut without_name, *frame),
            }
        }
        let unnamed = frames.len() as u64 - named;
        if goes_on {
            entry.tally.count(named, 0);
        } else {
            entry.tally.count(named, unnamed);
        }
        if unnamed > 0 {
            entry.tally.set_reason(reason);
        }
        if let Some(wanted) = wanted {
            self.fetch_later(id, wanted);
        }
        if goes_on { frames } else { Vec::new() }
    }

    pub(super) fn sort_by_address(&self, frames: &mut [FrameId]) {
        frames.sort_unstable_by_key(|frame| self.names.frames.get(*frame).map(Frame::called_from));
    }

    /// Looks up all frames. Publishes no name before it is certain that the file was not written to meanwhile.
    fn find_all(
        &self,
        object: &Object,
        state: &mut EntryState,
        frames: &[FrameId],
        hosts: &[Host],
    ) -> Result<FoundNames, Reason> {
        let images = self.objects.images(state, object, hosts)?;
        let index = self.objects.index(state, &images)?;
        let mut labels = Vec::with_capacity(frames.len());
        let mut failed = None;
        for frame in frames {
            let found = self.names.frames.get(*frame).and_then(|frame| {
                let address = images.elf_address(frame)?;
                index.find(address)
            });
            let label = found.map(|name| self.label(object, state, &images, name)).transpose();
            failed = failed.or(label.as_ref().err().copied());
            labels.push(label.ok().flatten().flatten());
        }
        images.check_unchanged()?;
        Ok(FoundNames { labels, reason: failed.or(Some(why_unnamed(&images, &index))) })
    }

    /// Returns the label of a function. Reads it from the file the first time.
    fn label(&self, object: &Object, state: &mut EntryState, images: &Images, name: NameRef) -> Result<Option<LabelId>, Reason> {
        if let Some(label) = state.labels.get(&name) {
            return Ok(Some(*label));
        }
        let Some(symbol) = name.read(images)?.filter(|symbol| !symbol.is_empty()) else { return Ok(None) };
        let readable = demangle(&symbol, Detail::default());
        let label = self.names.labels.intern_for(object.user, &readable, object.short_name(), FrameKind::User);
        state.remember(name, label);
        Ok(Some(label))
    }

    /// Gives a frame its address for a name, for good.
    fn leave_unnamed(&self, object: &Object, unnamed: &mut Unnamed, id: FrameId) {
        let Some(frame) = self.names.frames.get(id) else { return };
        let short = object.short_name();
        let name = format!("{short}+{:#x}", unnamed.place(frame));
        let label = self.names.labels.intern_for(object.user, &name, short, FrameKind::Unknown);
        self.names.name_frame(id, &[label]);
    }
}

struct FoundNames {
    /// The label of each frame.
    labels: Vec<Option<LabelId>>,
    /// Why some frames have no label.
    reason: Option<Reason>,
}

fn why_unnamed(images: &Images, index: &SymbolIndex) -> Reason {
    match (index.len(), images.has_full_table()) {
        (0, _) => Reason::NoSymbols,
        (_, false) => Reason::Stripped,
        (_, true) => Reason::NoSymbolThere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::FileOffset;

    #[test]
    fn a_panic_over_debug_information_costs_no_name_and_no_symbol() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let service = Service::new(Arc::default(), runtime.handle().clone());
        let names = &service.names;
        let path: Arc<str> = std::env::current_exe().unwrap().to_str().unwrap().into();
        let object = Object { kind: ObjectKind::Elf, path, build_id: None, file: None, ..Object::default() };
        let id = names.objects.intern(object.clone());
        let frame = |address| names.intern_frame(Frame::File { object: id, offset: FileOffset(address), is_return: false }).0;
        let (named, nameless) = (frame(0x10), frame(0x20));
        names.name_frame(named, &[names.labels.intern("function", "prog", FrameKind::User)]);
        let entry = service.objects.entry(id);
        let label = |frame| {
            let mut found = None;
            names.labels_of(frame, |label| found = names.labels.get(label));
            found.map(|label| (label.name.to_string(), label.provisional)).unwrap()
        };
        service.crashed(&object, &entry, &[named, nameless], true);
        assert_eq!(label(named), ("function".to_owned(), false));
        assert_eq!(label(nameless), (format!("{}+0x20", object.short_name()), false), "given up");
        assert_eq!((entry.tally.counts().named, entry.tally.counts().unnamed), (0, 1));
        let mine = Object { file: own_inode(&object.path), ..object.clone() };
        assert!(service.objects.images(&mut entry.state(), &mine, &[]).is_ok(), "its symbols are still read");
        service.crashed(&object, &entry, &[named, nameless], false);
        assert_eq!(entry.tally.counts().unnamed, 1, "nothing is given up twice");
        assert_eq!(service.objects.images(&mut entry.state(), &mine, &[]).err(), Some(Reason::Crashed));
    }

    fn own_inode(path: &str) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::metadata(path).unwrap();
        Some((meta.dev(), meta.ino()))
    }
}
