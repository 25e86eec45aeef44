//! Asks for the interpreters of processes and for their functions, and applies the answers.
//!
//! ```text
//! a program python3.11 at the start ─► What::Mappings
//! a mapping of python3.11 ─► What::Interpreter ─► struct runtime into the map `runtimes`     BPF walks its functions from now on
//! a sample with functions ─► What::Functions   ─► names of code objects                      the sample waits for them, as for mappings
//! ```

use std::sync::Arc;

use super::functions::FunctionsRead;
use super::interpreter::{Interpreter, MappedPart, Places, is_library, may_be_interpreter, may_tell_threads};
use super::mapped_build_id::MappedFile;
use super::reader::What;
use super::scripts::{BYTES_OF_A_READ, Function, READS_OF_AN_INTERPRETER, ScriptCounts, Scripts};
use super::state::Known;
use super::table::ProcessTable;
use crate::collector::wire::perf_records::Identity;
use crate::profile::UserId;

/// Most files of a process that may contain its interpreter and are read.
const MAX_FILES: usize = 4;
/// Most files in which flametop looks up the size of a thread's record.
const MAX_THREAD_LIBRARIES: usize = 2;

/// Nanoseconds until the next attempt to read an interpreter whose user has no reads left.
const PAUSE_OF_A_BUSY_USER: u64 = 100_000_000;

impl ProcessTable {
    /// Asks for the mappings of a process that existed before flametop and runs an interpreter for this user. The mappings lead to the
    /// interpreter.
    pub(crate) fn expect_interpreter(&mut self, tgid: u32, user: UserId) {
        self.set_user(tgid, user);
        self.want_mappings(tgid);
    }

    /// Asks for the interpreter of a process whose mappings are known, if it may have one.
    pub(super) fn want_interpreter(&mut self, tgid: u32, now: u64) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| state.known == Known::Yes && state.scripts.is_due(now))
        else {
            return;
        };
        let files = &mut self.files;
        let mut parts = |is_wanted: fn(&str) -> bool| -> Vec<MappedPart> {
            let parts = state.mappings.iter().filter_map(|mapping| {
                let file = files.get_mut(mapping.file).filter(|file| is_wanted(&file.path))?;
                let inode = match file.identity {
                    Identity::Inode(inode) => Some(inode),
                    Identity::BuildId(_) => None,
                };
                let mapped = MappedFile { start: mapping.start, end: mapping.end, path: file.path.clone(), file: inode };
                Some(MappedPart { mapped, offset: mapping.offset })
            });
            parts.collect()
        };
        // Libraries come first: a program that maps an interpreter's library seldom contains an interpreter itself.
        let mut interpreters = parts(may_be_interpreter);
        interpreters.sort_by_key(|part| !is_library(&part.mapped.path));
        interpreters.dedup_by(|one, other| one.mapped.path == other.mapped.path);
        interpreters.truncate(MAX_FILES);
        let mut threads = if cfg!(target_arch = "aarch64") { parts(may_tell_threads) } else { Vec::new() };
        threads.truncate(MAX_THREAD_LIBRARIES);
        let places = Places { interpreters, threads };
        let (scripts, user) = (&mut state.scripts, state.user);
        if places.interpreters.is_empty() {
            // Until a file is mapped that may have one.
            scripts.next = u64::MAX;
            return;
        }
        // Another user may begin any number of programs that look like an interpreter. Only a later sample tries again, because each
        // attempt goes through all mappings of the process.
        let reads = READS_OF_AN_INTERPRETER * (places.interpreters.len() + places.threads.len());
        let is_dear = user != UserId(0) && self.reads.take(user, reads, now) < reads;
        if is_dear {
            scripts.paused_until = now + PAUSE_OF_A_BUSY_USER;
            return;
        }
        scripts.begin_reading(now);
        self.ask(tgid, What::Interpreter(Box::new(places)));
    }

    /// Applies the answer about an interpreter.
    pub(super) fn told_interpreter(&mut self, tgid: u32, found: Option<Interpreter>) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.scripts.is_reading = false;
        if let Some(Interpreter { layout, file, evaluation, runtime }) = found {
            let scripts = &mut state.scripts;
            (scripts.layout, scripts.file, scripts.evaluation) = (Some(layout), Some(file), evaluation);
            scripts.runtime = Some(runtime);
            self.tell_runtime(tgid);
        }
    }

    /// Tells BPF the runtimes of a process. If there is no room for them, the process has none.
    pub(super) fn tell_runtime(&mut self, tgid: u32) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        let Some(runtime) = state.scripts.entry() else { return self.runtimes.remove(tgid) };
        let jvm = state.scripts.jvm.runs().map(|jvm| jvm.bytes);
        let has_room = jvm.is_none_or(|jvm| self.jvms.add(tgid, state.user, jvm)) && self.runtimes.add(tgid, state.user, runtime);
        if !has_room {
            self.jvms.remove(tgid);
            state.scripts = Scripts::default();
            self.reads.counts.processes_refused += 1;
        }
    }

    /// Notes that the question about an interpreter found no room. A later sample asks again.
    pub(super) fn interpreter_not_asked(&mut self, tgid: u32) {
        let Some(scripts) = self.states.get_mut(&tgid).map(|state| &mut state.scripts) else { return };
        scripts.is_reading = false;
        scripts.readings = scripts.readings.saturating_sub(1);
    }

    /// Applies the answer with what was read.
    pub(super) fn told_functions(&mut self, tgid: u32, user: UserId, read: FunctionsRead, now: u64) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        let scripts = &mut state.scripts;
        let functions = Arc::make_mut(&mut scripts.functions);
        let mut bytes = 0;
        for (key, code) in read.functions {
            scripts.asked.remove(&(key, 0));
            let function = match code {
                Some(code) if code.is_hidden() => Function::Hidden,
                Some(code) => {
                    bytes += code.size();
                    Function::Shown(Arc::new(code))
                }
                None => {
                    self.reads.counts.gone += 1;
                    Function::Gone
                }
            };
            functions.insert(key, function);
        }
        for (asked, calls) in read.calls {
            scripts.asked.remove(&asked);
            scripts.add_calls(asked, calls);
        }
        // The process is gone, and so are its functions.
        for (key, instruction) in std::mem::take(&mut scripts.asked) {
            if instruction == 0 {
                self.reads.counts.gone += 1;
                Arc::make_mut(&mut scripts.functions).insert(key, Function::Gone);
            } else {
                scripts.add_calls((key, instruction), Box::new([(key, 0)]));
            }
        }
        self.reads.charge(user, bytes / BYTES_OF_A_READ, now);
    }

    /// Returns the counts of samples and functions of interpreters.
    pub(crate) fn script_counts(&self) -> ScriptCounts {
        self.reads.counts
    }
}
