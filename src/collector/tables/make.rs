//! The worker threads that make tables, from a job to the table in the kernel.

use crate::allocator;
use crate::collector::sys::machine;
use crate::collector::tables::Made;
use crate::collector::tables::SharedTables;
use crate::collector::tables::store::PAUSE;
use crate::collector::wire::records::ObjectKey;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::WORKERS;
use super::cache::{Cache, Content};
use super::digest::{self, Verified};
use super::files::KnownFile;
use super::housekeeping::Chore;
use super::identity::{self, FoundImage, NotFound};
use super::layout::Layout;
use super::queue::{Job, Next, RATE, ROOT, Sought};
use super::served::FileFor;
use super::status::Summary;
use super::store::{Finished, Inner};
use crate::collector::wire::perf_records::Identity;
use crate::cpu_time;
use crate::object::crew::{JobId, Waits};
use crate::object::io_timeout::{self, FailureDomain};
use crate::object::open::{self, Root};
use crate::profile::{BuildId, Tgid, UserId};
use crate::unwind::{self, Arch, Beside, Code, Control, Ended, FileBytes, OnDisk, ReadAt, Step, Table};

/// Most bytes of a small file's table. The table of a larger file has at most as many bytes as the file takes on its disk. Tables of real
/// programs and libraries have 3 to 7 % of the bytes of their file (libc, bash, git, gdb, librustc_driver, libLLVM; measured with
/// `flametop unwind-check`: rows times bytes per row).
const MOST_BYTES_OF_SMALL: u64 = 64 << 10;

/// Most bytes of code without unwind information that are analysed before the first table is put into the kernel. The analysis takes at
/// most a second, and samples wait that long. If a first table is loaded earlier, the walk guesses in its gaps and may miss callers.
const LITTLE_CODE: u64 = 1 << 20;

/// CPU time after which a conversion ends if nobody runs its file any more (`LONG_WORK`), and after which it ends in any case (`MOST_WORK`).
/// Code that was not analysed by then stays a gap. Chromium without unwind information takes 24 s for 225 MiB of code.
const LONG_WORK: Duration = Duration::from_secs(1);
const MOST_WORK: Duration = Duration::from_secs(60);

/// After this CPU time of a conversion, code of the host's files that no sample has hit is analysed at this rate, in CPU seconds per second.
/// When it is done, later starts of flametop find the whole table in the cache. Files of other users are not slowed down: they would
/// occupy the only worker that may wait for such users.
const UNASKED_WORK: Duration = Duration::from_millis(250);
const UNASKED_RATE: f64 = RATE / 5.0;

/// Time without a look-up after which an object counts as not in use, in units of 2^30 ns.
const UNUSED: u32 = 3;

/// CPU time between two charges to the user of a conversion.
const CHARGED_EVERY: Duration = Duration::from_millis(20);

/// Time until a file is tried again, if its user has no room for its table.
const FULL: Duration = Duration::from_secs(5);

/// Makes tables until the workers must stop, or until there are enough other workers.
pub(super) fn work(shared: &SharedTables) {
    let waits = Waits::default();
    waits.follow_this_thread();
    while let Some((id, job)) = next_job(shared, &waits) {
        let mut stored = 0;
        let before = cpu_time::of_this_thread();
        let charged = Cell::default();
        let making = AssertUnwindSafe(|| make_for(shared, &job, &mut stored, &charged));
        let outcome = catch_unwind(making)
            .unwrap_or_else(|_| Outcome::Refused(job.title(), "making its unwind table failed unexpectedly".to_owned()));
        let cost = cpu_time::since(before);
        let rest = cost.saturating_sub(charged.get());
        let mut inner = shared.lock();
        inner.crew.end(id);
        inner.housekeeping.note(stored);
        inner.queue.charge_wait(job.user, waits.take_waited());
        match outcome {
            Outcome::Made(done) => {
                inner.queue.charge(done.user, rest);
                inner.finish(Finished { cost, ..*done });
            }
            Outcome::Later(user, key, pause) => {
                inner.queue.charge(user, rest);
                key.into_iter().for_each(|key| inner.later(key, job.user, pause));
            }
            Outcome::Known(user) => inner.queue.charge(user, rest),
            Outcome::Named(user, key) => {
                inner.queue.charge(user, rest);
                inner.is_answered(key, job.user);
            }
            Outcome::Refused(path, why) => {
                job.sought.key().into_iter().for_each(|key| inner.refuse(key, job.user, path.clone(), why.clone()));
            }
        }
    }
}

/// Waits for the next job; `None` if the worker must stop. Does the chores while the queue is empty.
fn next_job(shared: &SharedTables, waits: &Waits) -> Option<(JobId, Job)> {
    let mut inner = shared.lock();
    loop {
        let now = Instant::now();
        // A worker that was left behind has come back, but another worker has taken its place.
        let is_one_too_many = inner.threads.saturating_sub(inner.crew.left(now)) > WORKERS;
        if inner.stop || is_one_too_many {
            inner.threads = inner.threads.saturating_sub(1);
            shared.work.notify_all();
            return None;
        }
        if inner.housekeeping.must_prune(now) {
            drop(inner);
            shared.cache.iter().for_each(Cache::prune);
            inner = shared.lock();
        }
        let Inner { queue, crew, .. } = &mut *inner;
        match queue.pop(now, |user| crew.may_begin(user, now)) {
            Next::Job(job) => {
                return Some((crew.begin(job.user, waits.clone()), job));
            }
            Next::Wait(pause) => {
                inner = shared.work.wait_timeout(inner, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
            Next::Nothing => {
                inner = match inner.housekeeping.next(now) {
                    Chore::Release => {
                        drop(inner);
                        allocator::release_memory();
                        shared.lock()
                    }
                    Chore::Prune => {
                        drop(inner);
                        shared.cache.iter().for_each(Cache::prune);
                        shared.lock()
                    }
                    Chore::Later(pause) => shared.work.wait_timeout(inner, pause).unwrap_or_else(PoisonError::into_inner).0,
                    Chore::Nothing => shared.work.wait(inner).unwrap_or_else(PoisonError::into_inner),
                }
            }
        }
    }
}

/// The outcome of a job, and the user who is charged for its time.
enum Outcome {
    Made(Box<Finished>),
    /// Another job makes the table, or has made it.
    Known(UserId),
    /// The kernel had the table of the file with this key already, or one with the same content.
    Named(UserId, ObjectKey),
    /// The table could not be made now. Has the key of the file, if it is known, and the time until the next attempt.
    Later(UserId, Option<ObjectKey>, Duration),
    Refused(std::sync::Arc<str>, String),
}

/// Returns the failure domain in which the file of a job is read.
fn place_of(job: &Job) -> FailureDomain {
    match job.sought {
        Sought::Sampled(key) => key.place(),
        Sought::Mapped(Identity::Inode(inode)) => FailureDomain::device(inode.device),
        Sought::Mapped(Identity::BuildId(_)) => {
            Root::Process(Tgid(job.tgid)).place(Path::new(job.path.as_deref().unwrap_or_default()))
        }
    }
}

/// Makes the table for a job. Adds to `charged` the CPU time that a user was already charged for.
fn make_for(shared: &SharedTables, job: &Job, stored: &mut u64, charged: &Cell<Duration>) -> Outcome {
    if let Some(key) = job.sought.key()
        && shared.lock().has_object(key, job.user)
    {
        // A job of another user has made the table since.
        return Outcome::Named(job.user, key);
    }
    let opened = {
        let job = job.clone();
        io_timeout::within(job.user.0, place_of(&job), io_timeout::PATIENCE, move || {
            let found = identity::find(&job)?;
            let id = crate::object::build_id::of_image(&FileBytes::new(found.file.clone()));
            Ok((found, id))
        })
    };
    let (found, id) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(NotFound::Gone)) => return Outcome::Later(job.user, job.sought.key(), PAUSE),
        Ok(Err(NotFound::Refused(why))) => return Outcome::Refused(job.title(), why),
        Err(_) => return Outcome::Refused(job.title(), "its file system does not answer".to_owned()),
    };
    let (user, key) = (if found.is_hosts { ROOT } else { job.user }, found.key);
    let known = || KnownFile {
        key,
        modified: Some(found.file.facts.modified),
        build_id: id,
        users: found.users,
        is_hosts: found.is_hosts,
        path: found.path.clone(),
    };
    if job.sought.key().is_none() && !shared.lock().begin(key, job.user) {
        // Another job makes the table, or has made it.
        shared.lock().add_file(known(), job.user);
        return Outcome::Known(user);
    }
    if !shared.lock().may_hold(user) {
        return Outcome::Later(user, Some(key), FULL);
    }
    let maker = Maker {
        shared,
        job,
        found: &found,
        id,
        image: FileBytes::new(found.file.clone()),
        is_whole: Cell::new(true),
        is_unused: Cell::new(false),
        charged,
    };
    let outcome = if found.is_hosts { maker.of_host(stored) } else { maker.of_anybody(stored) };
    if maker.is_unused.get() {
        // The next process that runs it has it analysed from the beginning.
        return Outcome::Later(user, Some(key), PAUSE);
    }
    let (content, made) = match outcome {
        Ok(Some(made)) => made,
        Ok(None) => {
            shared.lock().add_file(known(), job.user);
            return Outcome::Named(user, key);
        }
        Err(Changed) => return Outcome::Later(user, Some(key), PAUSE),
    };
    let made = made.and_then(|(layout, summary)| in_proportion(&layout, found.file.facts.stored).map(|()| (layout, summary)));
    let path = found.path.clone();
    Outcome::Made(Box::new(Finished {
        content: content.filter(|_| made.is_ok()),
        modified: Some(found.file.facts.modified),
        build_id: id,
        is_hosts: found.is_hosts,
        users: found.users,
        asked_by: job.user,
        user,
        ..Finished::of_root(key, path, made)
    }))
}

/// The error when a file's bytes changed between digest and conversion.
struct Changed;

/// A table and the content that identifies it; `None` if the kernel already had the table.
type Known = Option<(Option<Content>, Made)>;

struct Maker<'a> {
    shared: &'a SharedTables,
    job: &'a Job,
    found: &'a FoundImage,
    id: Option<BuildId>,
    image: FileBytes,
    /// Whether the last conversion ran to its end, and whether it ended because nobody runs the file any more.
    is_whole: Cell<bool>,
    is_unused: Cell<bool>,
    /// CPU time that the user was already charged for.
    charged: &'a Cell<Duration>,
}

impl Maker<'_> {
    /// Makes the table of a file that only root can write. Its build id can be trusted.
    fn of_host(&self, stored: &mut u64) -> Result<Known, Changed> {
        let content = self.id.map(|id| Content::Hosts(id, self.found.file.facts.length));
        let directory = Path::new(&*self.found.path).parent().map(Path::to_owned);
        let beside = OfHost { directory, id: self.id };
        if let Some(content) = content {
            if self.is_there(content) {
                return Ok(None);
            }
            if let Some(cached) = self.cached(&content, &beside) {
                return Ok(Some((Some(content), Ok(cached))));
            }
        }
        let made = self.make(&self.image, &beside);
        self.keep(content, &made, stored);
        Ok(Some((content, made)))
    }

    /// Makes the table of any other file. All bytes of the file identify the table, or else the file itself does.
    fn of_anybody(&self, stored: &mut u64) -> Result<Known, Changed> {
        let facts = &self.found.file.facts;
        let root = Root::Process(Tgid(self.job.tgid));
        let beside = OnDisk::under(self.job.user, root, Path::new(&*self.found.path).parent().map(Path::to_owned), self.id);
        let is_whole = facts.stored >= facts.length / 2 || facts.length <= MOST_BYTES_OF_SMALL;
        if self.found.file.opened.near().is_none() || facts.length > digest::LARGEST || !is_whole {
            return Ok(Some((None, self.make(&self.image, &beside))));
        }
        let verified = Verified::new(&self.image).map_err(|_| Changed)?;
        let content = Content::Bytes(verified.digest());
        if self.is_there(content) {
            return Ok(None);
        }
        if let Some(cached) = self.cached(&content, &beside) {
            return Ok(Some((Some(content), Ok(cached))));
        }
        let made = self.make(&verified, &unwind::Nowhere);
        if verified.has_changed() {
            return Err(Changed);
        }
        // A separate debug file may cover more code. A table made with a debug file counts for this file alone.
        let is_poor = made.as_ref().map_or(true, |(_, summary)| !is_well_covered(summary));
        if is_poor && unwind::has_separate_file(&beside) {
            return Ok(Some((None, self.make(&self.image, &beside))));
        }
        self.keep(Some(content), &made, stored);
        Ok(Some((Some(content), made)))
    }

    /// Makes a table. Each partial table goes into the kernel at once.
    fn make(&self, image: &(impl ReadAt + ?Sized), beside: &dyn Beside) -> Made {
        let user = if self.found.is_hosts { ROOT } else { self.job.user };
        let work = Work::begin(self.shared, self.job, self.found.key, user);
        let made = make(image, beside, &work, &self.is_whole, &mut |layout, summary| {
            if in_proportion(&layout, self.found.file.facts.stored).is_err() {
                return;
            }
            self.shared.lock().finish(Finished {
                modified: Some(self.found.file.facts.modified),
                build_id: self.id,
                is_hosts: self.found.is_hosts,
                users: self.found.users,
                asked_by: self.job.user,
                user,
                is_partial: true,
                ..Finished::of_root(self.found.key, self.found.path.clone(), Ok((layout, summary)))
            });
        });
        self.charged.set(self.charged.get() + work.charged.get());
        self.is_unused.set(work.is_unused.get());
        made
    }

    /// Whether a table with this content is in the kernel. If so, this file leads to it from now on.
    fn is_there(&self, content: Content) -> bool {
        let file = FileFor { key: self.found.key, users: self.found.users };
        self.shared.lock().name_by_content(file, self.job.user, content)
    }

    fn cached(&self, content: &Content, beside: &dyn Beside) -> Option<(Layout, Summary)> {
        let cached = self.shared.cache.as_ref()?.load(content)?;
        // If much code is not covered, a debug file that covers more may have been installed since.
        let is_enough = cached.1.separate || is_well_covered(&cached.1) || !unwind::has_separate_file(beside);
        if !is_enough {
            return None;
        }
        self.shared.lock().from_cache += 1;
        Some(cached)
    }

    fn keep(&self, content: Option<Content>, made: &Made, stored: &mut u64) {
        let Ok((layout, summary)) = made else { return };
        let is_small = in_proportion(layout, self.found.file.facts.stored).is_ok();
        if let (Some(cache), Some(content), true) = (&self.shared.cache, content, is_small && self.is_whole.get()) {
            // An error does no harm, because the next run makes the table again.
            if cache.store(&content, layout, summary).is_ok() {
                *stored += layout.bytes() as u64;
            }
        }
    }
}

fn is_well_covered(summary: &Summary) -> bool {
    summary.covered >= summary.text / 10 * 9
}

/// Refuses a table that is larger than its file, because such a file was written to waste memory.
fn in_proportion(layout: &Layout, stored: u64) -> Result<(), String> {
    let (bytes, most) = (layout.bytes() as u64, stored.max(MOST_BYTES_OF_SMALL));
    if bytes <= most {
        return Ok(());
    }
    Err(format!("its unwind table would take {} kB; the limit for a file of its size is {} kB", bytes / 1000, most / 1000))
}

/// The debug files of a host's file. Only debug files that only root can write count.
struct OfHost {
    directory: Option<PathBuf>,
    id: Option<BuildId>,
}

impl Beside for OfHost {
    fn directory(&self) -> Option<PathBuf> {
        self.directory.clone()
    }

    fn open(&self, path: &Path) -> Option<FileBytes> {
        let (place, path) = (FailureDomain::beside(Path::new("/"), path), path.to_owned());
        let file = open::in_time(ROOT, place, move || {
            let file = open::path_now(ROOT, &Root::Own, &path)?;
            let is_hosts = file.is_hosts(&path);
            Ok(Some(file).filter(|_| is_hosts))
        });
        file.ok()?.map(FileBytes::new)
    }

    fn build_id(&self) -> Option<BuildId> {
        self.id
    }
}

/// Makes a table in steps. `publish` gets every table except the last. The first table contains the unwind information; later tables add
/// rules that were proved from machine code.
fn make(
    image: &(impl ReadAt + ?Sized),
    beside: &dyn Beside,
    work: &Work<'_>,
    is_whole: &Cell<bool>,
    publish: &mut dyn FnMut(Layout, Summary),
) -> Made {
    let mut last = Err(String::new());
    let mut step = |step: Step<'_>| {
        last = finish_step(&step);
        work.code.borrow_mut().clone_from(&step.table.code);
        // The last table is returned. If little code is left, analysing it takes less time than putting two tables into the kernel.
        if step.left() > LITTLE_CODE
            && let Ok((layout, summary)) = &last
        {
            publish(layout.clone(), *summary);
        }
    };
    let ended = unwind::convert_in_steps(image, beside, work, &mut step).map_err(|error| error.to_string())?;
    is_whole.set(ended == Ended::Whole);
    last
}

/// The work of a job: decides whether its conversion continues, and counts the CPU time that its user was charged for.
pub(super) struct Work<'a> {
    shared: &'a SharedTables,
    job: &'a Job,
    key: ObjectKey,
    /// The user who is charged.
    user: UserId,
    begun: Duration,
    since: Instant,
    charged: Cell<Duration>,
    /// Whether samples wait for the code that is analysed.
    is_asked: Cell<bool>,
    /// Whether the conversion ended because nobody runs the file any more.
    is_unused: Cell<bool>,
    /// The object's code; empty until the first table is made.
    code: RefCell<Vec<Code>>,
}

impl Work<'_> {
    pub(super) fn begin<'a>(shared: &'a SharedTables, job: &'a Job, key: ObjectKey, user: UserId) -> Work<'a> {
        let begun = cpu_time::of_this_thread();
        let (since, charged, code) = (Instant::now(), Cell::default(), RefCell::default());
        Work { shared, job, key, user, begun, since, charged, is_asked: Cell::new(true), is_unused: Cell::new(false), code }
    }

    fn spent(&self) -> Duration {
        cpu_time::since(self.begun)
    }

    /// Charges the user for the time since the last charge. Returns whether the conversion should continue.
    ///
    /// If the user's time is used up, waits until there is some, so that a long conversion takes only its share. At least one worker never
    /// waits, and at most one waits for a user other than root. If no further worker may wait, the conversion must end.
    pub(super) fn charge(&self, spent: Duration) -> bool {
        let mut inner = self.shared.lock();
        inner.queue.charge(self.user, spent.saturating_sub(self.charged.replace(spent)));
        // Saved CPU time is meant for first tables. So a long conversion is limited to the rate from its beginning.
        let may_go_on = |inner: &mut Inner| {
            let is_asked = self.user != ROOT || self.is_asked.get() || inner.has_hints(self.key);
            let (saved, rate) = if is_asked { (LONG_WORK, RATE) } else { (UNASKED_WORK, UNASKED_RATE) };
            let earned = saved + self.since.elapsed().mul_f64(rate);
            spent <= earned && inner.queue.has_time(self.user, Instant::now())
        };
        if may_go_on(&mut inner) {
            return !inner.stop;
        }
        let most = if self.user == ROOT { WORKERS - 1 } else { 1 };
        if inner.throttled >= most {
            return false;
        }
        inner.throttled += 1;
        while !inner.stop && !may_go_on(&mut inner) {
            inner = self.shared.time.wait_timeout(inner, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.throttled -= 1;
        !inner.stop
    }

    /// Whether the process that needed the table is there, or another one has run the file's code in the last seconds.
    pub(super) fn is_used(&self) -> bool {
        let now = machine::coarse(machine::now());
        machine::exists(self.job.tgid)
            || self.shared.lock().last_use(self.key, self.job.user).is_some_and(|used| now.saturating_sub(used) <= UNUSED)
    }
}

impl Control for Work<'_> {
    /// Returns whether the conversion should continue. It ends when flametop ends, and after [`MOST_WORK`]. It ends after [`LONG_WORK`] if
    /// nobody runs the file any more.
    fn keep_going(&self) -> bool {
        let spent = self.spent();
        if spent.saturating_sub(self.charged.get()) < CHARGED_EVERY {
            return true;
        }
        if !self.charge(spent) || spent >= MOST_WORK {
            return false;
        }
        self.is_unused.set(spent > LONG_WORK && !self.is_used());
        !self.is_unused.get()
    }

    fn goes_on_with(&self, is_hinted: bool) {
        self.is_asked.set(is_hinted);
    }

    fn take_hints(&self, hints: &mut Vec<u64>) {
        let offsets = self.shared.lock().take_hints(self.key);
        let code = self.code.borrow();
        let address = |offset: u64| {
            let code = code.iter().find(|code| offset.wrapping_sub(code.offset) < code.size)?;
            Some(code.address + (offset - code.offset))
        };
        hints.extend(offsets.into_iter().filter_map(address));
    }
}

/// Lays out a table that is not finished, or the last one.
fn finish_step(step: &Step<'_>) -> Made {
    if step.unknown.is_empty() { finish_table(step.table) } else { finish_table(&step.table.with_final_gaps(step.unknown)) }
}

pub(super) fn finish_table(table: &Table) -> Made {
    let own = Arch::OWN;
    if table.arch != own {
        return Err("built for another CPU architecture".to_string());
    }
    let layout = Layout::new(table);
    let summary = Summary::of(table, &layout);
    if summary.rows == 0 { Err("has no unwind information".to_string()) } else { Ok((layout, summary)) }
}
