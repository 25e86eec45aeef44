//! Loads unwind tables into the kernel when samples need them, and evicts tables when room is short.
//!
//! ```text
//! wish of a sample ─► known? ─ no ─► queue by user ─► worker: open ─► whose is it? ─► made before, here or on disk? ─► convert ─┐
//!                        │           (CPU budget)                                                                     │
//!                        └ yes: made already, being made, or known to have none       `files` ◄─ kernel, if there is room ◄─┘
//! ```
//!
//! A wish is a sample's request for a table. It contains the kernel's key of a file, and the addresses where a process has the file
//! mapped. The mapping leads to the file, even if its path was renamed or removed ([`identity`]).
//!
//! How many files share a table depends on who can write the file:
//!
//! | file | its table is identified by | kept on disk | debug files |
//! | --- | --- | --- | --- |
//! | only root can write it and its directories, and our own path leads to it | build id and length | yes | such files only |
//! | any other file | SHA-256 of its bytes, checked again during reading ([`digest`]) | yes | none |
//! | too large for that, sparse, remote, or covered only with its debug file | the file | no | as its process sees them |
//!
//! Room in the kernel is bounded and shared out by user ([`store`], [`shares`]), and so is the CPU time for making tables ([`queue`]).
//!
//! Promises: the collecting thread never waits for a file or for a table. If a wish fails because its process is gone, the next sample
//! repeats it.

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
mod served;
mod shared;
mod shares;
mod status;
mod store;

use crate::collector::tables::status::Made;
use crate::collector::wire::records::ObjectKey;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libbpf_rs::MapHandle;

use super::sys::machine;
use super::wire::perf_records::Identity;
use super::wire::records::Wish;
use crate::object::{crew, vdso};
use crate::profile::{Timestamp, UserId};
use crate::unwind;
pub(crate) use cache::{Cache, any_table};
pub(crate) use identity::device_of_any_mount;
pub(crate) use queue::MappedRequest;
use queue::{Job, Sought, WORKERS};
use shared::SharedTables;
pub use status::{ObjectState, ObjectStatus, Summary, TablesStatus};
use store::Inner;
pub(crate) use store::RuleAt;

/// Default limit of the kernel's memory for tables, in bytes. The objects of a large desktop have 42 million rows, which take 200 MB.
pub(crate) const KERNEL_MEMORY: u64 = 384_000_000;

/// How long the shutdown waits for workers that compute. Such a worker checks every 20 ms whether it should stop.
const END_WITHIN: Duration = Duration::from_millis(200);

/// Returns the number of descriptors that tables may need: one for each segment, and two for each worker.
pub(crate) fn descriptors(kernel_memory: u64) -> u64 {
    kernel_memory / u64::from(kernel::SEGMENT_BYTES) + 2 * (WORKERS + crew::MAX_LEFT_OF_ROOT + crew::MAX_LEFT_OF_OTHERS) as u64
}

/// The tables of one collector. Dropping it ends its workers. A worker that waits for a file is left behind, and ends when the file
/// answers.
pub(crate) struct Tables {
    shared: Arc<SharedTables>,
}

impl Tables {
    /// Starts the workers. The maps are those of bpf/lookup/tables.h; segments take at most `kernel_memory` bytes. The vDSO's table is made
    /// immediately, because every process has the vDSO.
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

    /// Starts workers until [`WORKERS`] of them are not left behind.
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

    /// Starts workers in the place of workers that wait for a file. To be called at each drain.
    pub(crate) fn tick(&self) {
        let mut inner = self.shared.lock();
        if inner.queue.len() > 0 {
            self.start_workers(&mut inner);
        }
    }

    /// Requests a table, because a sample hit code without one. `paths` returns the path of the file, as its process sees it, and those
    /// of all files that were mapped lately.
    pub(crate) fn wish(&self, wish: &Wish, paths: impl FnOnce() -> (Option<Arc<str>>, Vec<Arc<str>>)) {
        let mut inner = self.shared.lock();
        if !inner.is_wanted(wish) {
            return;
        }
        inner.ask(wish.key, wish.user);
        let (path, lately) = paths();
        inner.queue.push(Job {
            sought: Sought::Sampled(wish.key),
            tgid: wish.tgid,
            user: wish.user,
            files: wish.files,
            mapping: (wish.start, wish.end),
            path,
            lately,
            link: Arc::default(),
        });
        self.shared.work.notify_one();
    }

    /// Requests a table for a caller of a waiting sample. The kernel's walk has not hit the caller's file, so no wish names it.
    pub(crate) fn request(&self, request: MappedRequest) {
        let mut inner = self.shared.lock();
        if !inner.is_sought(&request) {
            return;
        }
        let MappedRequest { tgid, user, files, mapping, path, identity } = request;
        let (sought, path, lately) = (Sought::Mapped(identity), Some(path), Vec::new());
        inner.queue.push(Job { sought, tgid, user, files, mapping, path, lately, link: Arc::default() });
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

    /// Keeps the tables within their bounds. To be called about once a second.
    pub(crate) fn tidy(&self, now: u64) {
        self.shared.lock().tidy(machine::coarse(Timestamp(now)), Instant::now());
    }

    /// Forgets files and tables that nothing needs any longer: see [`Inner::forget_unused`]. To be called each ten seconds.
    pub(crate) fn forget_unused(&self, now: u64, mapped: impl Iterator<Item = Identity>) {
        self.shared.lock().forget_unused(machine::coarse(Timestamp(now)), mapped);
    }

    /// Returns the bytes of user memory that describe files and their tables in the kernel.
    pub(crate) fn memory(&self) -> usize {
        self.shared.lock().memory()
    }

    pub(crate) fn status(&self) -> TablesStatus {
        self.shared.lock().status()
    }

    /// Returns the status of every object whose code was sampled.
    pub(crate) fn objects(&self) -> Vec<ObjectStatus> {
        self.shared.lock().objects()
    }
}

/// The rules of all tables, locked against changes.
pub(crate) struct Rules<'a>(MutexGuard<'a, Inner>);

impl Rules<'_> {
    /// Returns the key of a mapped file, if the tables know it. `path` is the path of the mapping; `user` runs the process.
    pub(crate) fn key(&mut self, path: &str, identity: Identity, user: UserId) -> Option<ObjectKey> {
        self.0.files.key_of(path, identity, user)
    }

    /// Returns the rule at an offset in a file that a process of `user` has mapped.
    pub(crate) fn rule(&mut self, key: ObjectKey, user: UserId, offset: u64) -> RuleAt {
        self.0.rule(key, user, offset)
    }

    /// Returns a count of changes. The rules stay the same as long as this count stays the same.
    pub(crate) fn version(&self) -> u64 {
        self.0.version
    }

    /// Whether a table may come soon. A table whose file does not answer does not count.
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

/// Makes the table of our own vDSO, read from memory. All processes have the same vDSO.
fn table_of_vdso() -> Made {
    let image = vdso::bytes().map_err(|reason| reason.to_string())?;
    let table = unwind::convert(image.as_slice(), &unwind::Nowhere).map_err(|error| error.to_string())?;
    make::finish_table(&table)
}

#[cfg(test)]
mod tests;
