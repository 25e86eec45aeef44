//! Which objects have a table in the kernel, and how others get one.
//!
//! ```text
//! wish of a sample ─► known? ─ no ─► queue by user ─► worker: open ─► whose is it? ─► made before, here or on disk? ─► convert ─┐
//!                        │           (CPU budget)                                                                     │
//!                        └ yes: made already, being made, or known to have none       `files` ◄─ kernel, if there is room ◄─┘
//! ```
//!
//! A wish names a file as the kernel knows it, and where a process has it mapped: that leads to the file, whatever became of
//! its path ([`identity`]). A table counts for more or fewer files, depending on who can write its file:
//!
//! | file | its table is identified by | kept on disk | debug files |
//! | --- | --- | --- | --- |
//! | only root can write it and its directories, and our own path leads to it, too | build id and length | yes | such files only |
//! | any other file | SHA-256 of its bytes, checked again as they are read ([`digest`]) | yes | none |
//! | too large for that, sparse, remote, or covered only with its debug file | the file | no | as its process sees them |
//!
//! Room in the kernel is bounded and shared out by user ([`store`], [`shares`]), and so is the CPU time for making tables ([`queue`]).
//!
//! Promises: the collecting thread never waits for a file or for a table; a wish that could not be fulfilled because its
//! process was gone comes again with the next sample.

mod cache;
mod digest;
mod files;
mod housekeeping;
mod identity;
mod kernel;
mod layout;
mod make;
mod pool;
mod queue;
mod shared;
mod shares;
mod status;
mod store;

use crate::collector::tables::status::Made;
use crate::collector::wire::records::ObjectKey;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libbpf_rs::MapHandle;

use super::wire::perf_records::Identity;
use super::wire::records::Wish;
use crate::object::{crew, vdso};
use crate::profile::UserId;
use crate::unwind;
pub(crate) use cache::{Cache, any_table};
pub(crate) use identity::device_of_any_mount;
pub(crate) use queue::MappedRequest;
use queue::{Job, Sought, WORKERS};
use shared::SharedTables;
pub use status::{ObjectState, ObjectStatus, Summary, TablesStatus};
pub(crate) use store::RuleAt;
use store::{Inner, TableState};

/// Default limit of the kernel's memory for tables, in bytes. All objects of a large desktop are 42 million rows and take 200 MB.
pub(crate) const KERNEL_MEMORY: u64 = 384_000_000;

/// How long the end waits for workers that compute. They look every 20 ms whether to go on.
const END_WITHIN: Duration = Duration::from_millis(200);

/// Returns the number of descriptors that tables may need: one for each segment, and two for each worker.
pub(crate) fn descriptors(kernel_memory: u64) -> u64 {
    kernel_memory / u64::from(kernel::SEGMENT_BYTES) + 2 * (WORKERS + crew::MAX_LEFT_OF_ROOT + crew::MAX_LEFT_OF_OTHERS) as u64
}

/// The tables of one collector. Dropping it ends its workers; those that wait for a file are left behind, and end when it answers.
pub(crate) struct Tables {
    shared: Arc<SharedTables>,
}

impl Tables {
    /// Starts the workers. The maps are those of bpf/lookup/tables.h; segments take at most `kernel_memory` bytes. The vDSO's table is made at
    /// once, because every process has it.
    pub(crate) fn start(
        segments: MapHandle,
        objects: MapHandle,
        files: MapHandle,
        cache: Option<Cache>,
        kernel_memory: u64,
    ) -> Tables {
        let mut inner = Inner::new(kernel::Kernel::new(segments, objects, files, kernel_memory));
        inner.finish(store::Finished::of_root(ObjectKey::VDSO, "[vdso]".into(), table_of_vdso()));
        let shared = Arc::new(SharedTables { inner: Mutex::new(inner), work: Condvar::new(), time: Condvar::new(), cache });
        let tables = Tables { shared };
        tables.start_workers(&mut tables.shared.lock());
        tables
    }

    /// Starts workers until there are enough that are not left behind.
    fn start_workers(&self, inner: &mut Inner) {
        let left = inner.crew.left(Instant::now());
        while inner.threads < WORKERS + left {
            let shared = self.shared.clone();
            let named = std::thread::Builder::new().name(format!("unwind-{}", inner.threads));
            let body = move || {
                crate::privileges::drop_unneeded();
                make::work(&shared);
            };
            if named.spawn(body).is_err() {
                return;
            }
            inner.threads += 1;
        }
    }

    /// Lets others take the place of workers that wait for a file. To be called at each drain.
    pub(crate) fn tick(&self) {
        let mut inner = self.shared.lock();
        if inner.queue.len() > 0 {
            self.start_workers(&mut inner);
        }
    }

    /// A sample ran code without a table. `paths` are what its process may call the file.
    pub(crate) fn wish(&self, wish: &Wish, paths: impl FnOnce() -> Vec<Arc<str>>) {
        let mut inner = self.shared.lock();
        if !inner.is_wanted(wish) {
            return;
        }
        inner.states.insert(wish.key, TableState::Asked);
        inner.queue.push(Job {
            sought: Sought::Sampled(wish.key),
            tgid: wish.tgid,
            user: wish.user,
            files: wish.files,
            mapping: (wish.start, wish.end),
            paths: paths(),
        });
        self.shared.work.notify_one();
    }

    /// A waiting sample has a caller in a file whose table no sample has asked for.
    pub(crate) fn request(&self, request: MappedRequest) {
        let mut inner = self.shared.lock();
        if !inner.is_sought(&request) {
            return;
        }
        let MappedRequest { tgid, user, files, mapping, path, identity } = request;
        inner.queue.push(Job { sought: Sought::Mapped(identity), tgid, user, files, mapping, paths: vec![path] });
        self.shared.work.notify_one();
    }

    /// Notes that events of mappings were lost.
    pub(crate) fn events_were_lost(&self) {
        self.shared.lock().files.events_were_lost();
    }

    /// Locks the tables, to look up rules.
    pub(crate) fn rules(&self) -> Rules<'_> {
        Rules(self.shared.lock())
    }

    /// To be called about once a second.
    pub(crate) fn tidy(&self, now: u64) {
        self.shared.lock().tidy((now >> 30) as u32, Instant::now());
    }

    /// Bytes held about files and their tables in the kernel.
    pub(crate) fn memory(&self) -> usize {
        self.shared.lock().memory()
    }

    pub(crate) fn status(&self) -> TablesStatus {
        self.shared.lock().status()
    }

    /// Every object that code ran of.
    pub(crate) fn objects(&self) -> Vec<ObjectStatus> {
        self.shared.lock().objects()
    }
}

/// The rules of all tables, while nobody changes them.
pub(crate) struct Rules<'a>(MutexGuard<'a, Inner>);

impl Rules<'_> {
    /// Returns what the tables know a file by, if they have met it: the file of a mapping with this path, in a process of this user.
    pub(crate) fn key(&mut self, path: &str, identity: Identity, user: UserId) -> Option<ObjectKey> {
        self.0.files.key_of(path, identity, user)
    }

    /// Returns the rule at an offset in a file.
    pub(crate) fn rule(&mut self, key: ObjectKey, offset: u64) -> RuleAt {
        self.0.rule(key, offset)
    }

    /// Counts changes: as long as it is the same, the rules are the same.
    pub(crate) fn version(&self) -> u64 {
        self.0.version
    }

    /// Whether a table may come soon: not one whose file does not answer.
    pub(crate) fn is_any_coming(&self) -> bool {
        self.0.is_any_coming(Instant::now())
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.stop = true;
        inner.queue.clear();
        drop(inner);
        self.shared.work.notify_all();
        self.shared.time.notify_all();
        let until = Instant::now() + END_WITHIN;
        let mut inner = self.shared.lock();
        while inner.threads > inner.crew.left(Instant::now()) && Instant::now() < until {
            inner = self.shared.work.wait_timeout(inner, Duration::from_millis(10)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Our own vDSO, read from memory: it is everybody's.
fn table_of_vdso() -> Made {
    let image = vdso::bytes().map_err(|reason| reason.to_string())?;
    let table = unwind::convert(image.as_slice(), &unwind::Nowhere).map_err(|error| error.to_string())?;
    make::finish_table(&table)
}

#[cfg(test)]
mod tests;
