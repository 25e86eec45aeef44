//! Finds names for addresses. Kernel names come from the kernel, program names from symbols, inlined functions and lines from DWARF.
//!
//! [`Symbolizer`] takes requests from the collector and writes names into the shared [`Names`], in the background. If a frame cannot be
//! named, its address becomes its name, and [`Symbolizer::problems`] reports the reason.
//!
//! # Promises
//!
//! - A wrong name is worse than none. A file is used only when it is certainly the one that was mapped. An address outside of every symbol
//!   has no name.
//! - Names come in two steps, so that no frame waits for the slow one: symbols first, for everything; then debug information.
//! - Files are hostile: every count and length is checked against a limit, and only regular files are opened. Only debug information is
//!   mapped, in a way that survives truncation of the file. A reader that fails on one object continues with the next.
//! - Memory is bounded: 16 bytes a symbol; at most 48 MB of tables and parsed debug information, unless a single object in use is larger;
//!   256 files open. JIT code may take 24 MB and 64 files more.
//!
//! # Sources of names, best first
//!
//! ```text
//! functions      .symtab of the debug file, or of the object, or in .gnu_debugdata · .dynsym · stubs: name@plt · Go's .gopclntab
//! JIT code       /tmp/perf-PID.map and jit-PID.dump, as runtimes write them
//! the kernel     the kernel itself, or /proc/kallsyms; inlined, lines: vmlinux and modules of the same build id, where installed
//! inlined, lines .debug_* of the object, or of its debug file (by build id, then by debug link and checksum), compressed or not,
//!                with what dwz took out, and what is in .dwo and .dwp files
//! ```
//!
//! # Modules
//!
//! | | |
//! | --- | --- |
//! | `service` | the queue of unnamed frames, the cached files and tables of each object, debuginfod |
//! | `symbols` | symbol tables, demangling, functions by name |
//! | `dwarf` | inlined functions, files and lines |
//! | `kernel` | the kernel's names and lines |
//! | `jit` | code made at run time: perf maps and jitdumps |
//! | `listing` | source and instructions of one function |
//! | [`Resolver`] | all of this for a file without a process: `flametop names` |

#![deny(clippy::indexing_slicing)]

mod dwarf;
#[cfg(test)]
mod hostile;
mod jit;
pub(crate) mod kernel;
mod listing;
mod resolver;
mod service;
mod source_files;
pub(crate) mod symbols;
mod tally;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

pub use crate::object::open::own_files;
pub use crate::object::reason::{Counts, Problem, Reason};
pub use crate::symbolize::kernel::vmlinux::{kernel_debug_information, runs_here};
#[doc(hidden)]
pub use crate::symbolize::service::debuginfod::path_in_answer;
pub use crate::symbolize::service::debuginfod::{DEBUGINFOD_FIND, program_called};
pub use crate::symbolize::symbols::demangle::{Detail, demangle};
pub use crate::symbolize::symbols::file_functions::{FunctionPlace, code_at, functions_of};
#[doc(hidden)]
pub use listing::fuzzing::ListingReader;
pub use resolver::{Function, Resolver, code_names};

use crate::locks;
use crate::object::crew;
use crate::object::mapped_file::US;
use crate::profile::{
    AskKernel, FrameId, FrameWeight, LabelId, Listing, NameRequest, Names, ProcessAddress, Renewed, SourceLocation, Tgid, UserId,
};
use crate::symbolize::service::locate::Locator;
use listing::{Lister, Question};
use service::Service;

/// Most blocking threads that a [`Symbolizer`] uses at once, including threads that wait for a file that does not answer.
pub const BLOCKING_THREADS: usize = 6 + crew::MAX_LEFT_OF_ROOT + crew::MAX_LEFT_OF_OTHERS;

/// Names frames in the background. Cheap to clone. Work that has not begun is dropped with the last clone.
#[derive(Clone)]
pub struct Symbolizer {
    work: Arc<RwLock<Arc<Work>>>,
}

/// The services that work on one set of name tables.
struct Work {
    service: Arc<Service>,
    locator: Locator,
    lister: Lister,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.service.stopped.store(true, Ordering::Relaxed);
    }
}

/// Bytes of an open file: its segments, its sections, and the places of its debug files. (Measured: 0.76 MB for 256 files.)
const OF_A_FILE: usize = 3000;

/// Memory and files that the symbolizer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the objects' symbol tables, of JIT code maps, of source maps, and of what is known about open files.
    pub tables: usize,
    /// Bytes of the kernel's symbols.
    pub kernel: usize,
    /// Files held open.
    pub files: usize,
}

impl Symbolizer {
    /// Starts a service on the blocking threads of `handle`'s runtime. At most three threads name objects, without those that are left
    /// behind (see `object::crew`). One names the kernel, one finds source lines, one fetches debug files. No thread is held while nothing
    /// waits. The runtime must have its timer on: while JIT code waits for names, a task sleeps.
    pub fn start(names: Arc<Names>, handle: tokio::runtime::Handle) -> Symbolizer {
        let service = Arc::new(Service::new(names, handle));
        let work = Work { service, locator: Locator::default(), lister: Lister::default() };
        Symbolizer { work: Arc::new(RwLock::new(Arc::new(work))) }
    }

    fn work(&self) -> Arc<Work> {
        Arc::clone(&locks::read(&self.work))
    }

    /// Names frames of these tables from now on. Objects that the new tables also have keep their open files and what was read of them.
    /// Frames of the old tables that still wait get no name.
    pub fn use_names(&self, renewed: &Renewed) {
        let old = self.work();
        let service = Arc::new(old.service.successor(renewed));
        let work = Work { service, locator: Locator::default(), lister: Lister::default() };
        *locks::write(&self.work) = Arc::new(work);
    }

    /// Asks the kernel for its functions' names and code from now on. `/proc/kallsyms` is read only once the kernel does not answer.
    pub fn ask_kernel_by(&self, ask: Box<dyn AskKernel>) {
        self.work().service.kernel.ask_by(ask);
    }

    /// Uses this program from now on to fetch debug files that are not installed: see [`DEBUGINFOD_FIND`].
    pub fn fetch_by(&self, program: PathBuf) {
        let _ = self.work().service.fetch.program.set(program);
    }

    /// Limits symbol tables and parsed debug information to `bytes` bytes. The object in use may take more.
    pub fn limit_tables(&self, bytes: usize) {
        self.work().service.objects.limit_tables(bytes);
    }

    /// Requests the names of frames. Returns at once; names appear in the shared tables, most-wanted objects first.
    pub fn request(&self, requests: impl IntoIterator<Item = NameRequest>) {
        self.work().service.request(requests.into_iter().collect());
    }

    /// Requests the names of frames that no process has: their files are those that paths lead to here.
    pub fn request_here(&self, frames: impl IntoIterator<Item = FrameId>) {
        let (tgid, files, nowhere) = (Tgid(std::process::id()), own_files(), ProcessAddress(0)..ProcessAddress(0));
        let request = |frame| NameRequest { frame, tgid, user: US, files, mapping: nowhere.clone() };
        self.request(frames.into_iter().map(request));
    }

    /// Records that a module or BPF program was loaded or unloaded. Addresses outside of the core kernel are then named from symbols that
    /// are read after this call.
    pub fn kernel_symbols_changed(&self) {
        let work = self.work();
        work.service.kernel.changed();
        work.service.modules.changed();
    }

    /// Returns the number of requested frames that are not done.
    pub fn pending(&self) -> usize {
        self.work().service.pending()
    }

    /// Whether names are being found for one of these users, or will be without waiting for a file that does not answer.
    pub fn works_for(&self, is_one: impl Fn(UserId) -> bool) -> bool {
        self.work().service.works_for(is_one)
    }

    /// Waits until nothing is pending, at most for `deadline`. Returns whether nothing is pending any more. Needs a runtime with its timer
    /// on.
    ///
    /// Unnamed JIT code is looked up once more. After that it does not count as pending, because its name may never come.
    pub async fn settled(&self, deadline: Duration) -> bool {
        let work = self.work();
        work.service.look_again(work.service.jit.due(true).unwrap_or_default());
        let wait = async {
            loop {
                let idle = work.service.idle.notified();
                tokio::pin!(idle);
                idle.as_mut().enable();
                if work.service.pending() == 0 {
                    return;
                }
                idle.await;
            }
        };
        tokio::time::timeout(deadline, wait).await.is_ok()
    }

    /// Returns objects with unnamed frames, and the reason. Objects with the most such frames come first.
    pub fn problems(&self) -> Vec<Problem> {
        let work = self.work();
        let service = &work.service;
        let mut problems = [service.jit.problems(), service.objects.problems(&service.names)].concat();
        problems.sort_by_key(|problem| (std::cmp::Reverse(problem.unnamed), problem.object));
        problems
    }

    /// Counts the frames that have a name and those that were given up.
    pub fn counts(&self) -> Counts {
        let work = self.work();
        let (files, jit) = (work.service.objects.counts(), work.service.jit.counts());
        Counts { named: files.named + jit.named, unnamed: files.unnamed + jit.unnamed }
    }

    /// Returns the memory and files held.
    pub fn usage(&self) -> Usage {
        let work = self.work();
        let (tables, files) = work.service.objects.usage();
        let (maps, map_files) = work.service.jit.usage();
        let files = files + map_files;
        let source_maps = work.service.source_maps.size();
        Usage { tables: tables + maps + source_maps + files * OF_A_FILE, files, kernel: work.service.kernel.memory() }
    }

    /// Finds the file and line of a frame in the object's own debug information. Only the newest question is kept. If an older one has not
    /// begun, its receiver gets an error. `None` if nothing is known.
    pub fn locate(&self, frame: FrameId) -> oneshot::Receiver<Option<SourceLocation>> {
        let work = self.work();
        work.locator.ask(&work.service, frame)
    }

    /// Like [`locate`](Self::locate), for some addresses of the function with this name. Those without a known line are left out.
    pub fn locate_named(&self, label: LabelId, frames: Vec<FrameId>) -> oneshot::Receiver<Vec<(FrameId, SourceLocation)>> {
        let work = self.work();
        work.locator.ask_named(&work.service, label, frames)
    }

    /// Finds the hottest line of each of these functions, by its heaviest addresses. Each answer comes when it is found; a caller drops the
    /// receiver when it waits no longer. Functions without debug information get no answer.
    pub fn locate_all(&self, functions: Vec<(LabelId, Vec<FrameWeight>)>) -> mpsc::UnboundedReceiver<(LabelId, SourceLocation)> {
        Locator::ask_all(&self.work().service, functions)
    }

    /// Lists a function's source and instructions, with the row of each of these addresses. The heaviest address comes first in `frames`.
    /// If several functions have this name, it lists the one at the address `by`; without `by`, the one with the heaviest address. Only the
    /// newest question is kept. The error says in a sentence why there is neither source nor code.
    pub fn listing(
        &self,
        label: LabelId,
        frames: Vec<FrameWeight>,
        by: Option<FrameId>,
    ) -> oneshot::Receiver<Result<Listing, String>> {
        let work = self.work();
        work.lister.ask(&work.service, Question { label, frames, by })
    }
}
