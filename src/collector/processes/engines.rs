//! Finds V8, the engine of JavaScript, and HotSpot, the JVM, in the files that processes map.
//!
//! ```text
//! a mapping of 8 MiB of code ─► is its file known? ─┬─► no: What::Engine ─► the numbers of its symbols ─► Layout, kept with the file
//!                                                   ├─► V8 ─► struct runtime into the map `runtimes`      BPF finds functions from now on
//!                                                   └─► HotSpot ─► the code heaps of the process: jvms.rs
//! ```
//!
//! A file is recognised by its symbols, whatever its name. They are read once for each file and owner. Processes that map a known file wait for
//! nothing. If the file cannot be read, because its process is gone, the next process asks again.

use std::sync::Arc;

use super::interpreter::MappedPart;
use super::jvm_memory::Jvm;
use super::jvms::JvmOfProcess;
use super::mapped_build_id::MappedFile;
use super::mappings::Engine;
use super::reader::{Question, What};
use super::scripts::READS_OF_AN_INTERPRETER;
use super::state::{Known, UNKNOWN_USER};
use super::table::ProcessTable;
use crate::collector::wire::perf_records::Identity;
use crate::profile::UserId;
use crate::runtimes::{hotspot, v8};

/// Most files with an engine that one list has.
const MAX_TOLD: usize = 10;

/// An engine that a file contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundEngine {
    /// V8 of this version.
    V8(v8::Version),
    /// V8 whose functions cannot be read.
    UnfitV8(v8::Unfit),
    /// HotSpot of this JDK.
    HotSpot(u32),
    /// HotSpot whose methods cannot be read.
    UnfitHotSpot(hotspot::Unfit),
}

impl ProcessTable {
    /// Returns the mapped files with an engine.
    pub(crate) fn engines(&self) -> Vec<(Arc<str>, FoundEngine)> {
        let mut found: Vec<(Arc<str>, FoundEngine)> = Vec::new();
        for (path, engine) in self.files.engines() {
            let about = match engine {
                Engine::V8(layout) => FoundEngine::V8(layout.version),
                Engine::UnfitV8(unfit) => FoundEngine::UnfitV8(*unfit),
                Engine::HotSpot(layout) => FoundEngine::HotSpot(layout.version),
                Engine::UnfitHotSpot(unfit) => FoundEngine::UnfitHotSpot(*unfit),
                Engine::Unknown | Engine::Asked | Engine::None => continue,
            };
            if found.len() < MAX_TOLD && !found.iter().any(|(known, other)| **known == **path && *other == about) {
                found.push((Arc::clone(path), about));
            }
        }
        found
    }

    /// Finds out whether a process has V8 or HotSpot, once for all its mappings.
    pub(super) fn want_engine(&mut self, tgid: u32, now: u64) {
        let Some(state) = self
            .states
            .get_mut(&tgid)
            .filter(|state| state.known == Known::Yes && state.scripts.looks_for_engine && state.user != UNKNOWN_USER)
        else {
            return;
        };
        // Only a sample tells it.
        let Some(whose) = state.files.map(|files| (files, state.user)) else { return };
        let (mut found, mut waits, mut java) = (None, false, None);
        for mapping in state.mappings.iter().filter(|mapping| mapping.may_hold_engine()) {
            let Some(file) = self.files.get_mut(mapping.file) else { continue };
            match (file.engine(whose), file.identity) {
                (Engine::V8(layout), _) => found = Some((layout, file.path.clone())),
                (Engine::HotSpot(layout), _) => java = Some((layout, mapping.start)),
                (Engine::None | Engine::UnfitV8(_) | Engine::UnfitHotSpot(_), _) => {}
                (Engine::Asked, _) => waits = true,
                (Engine::Unknown, _) if !state.scripts.engine_pauses.is_over(now) => waits = true,
                (Engine::Unknown, identity) => {
                    waits = true;
                    // Another user may begin any number of programs. Only a later sample asks again.
                    let is_allowed = state.user == UserId(0)
                        || self.reads.take(state.user, READS_OF_AN_INTERPRETER, now) == READS_OF_AN_INTERPRETER;
                    if !is_allowed {
                        continue;
                    }
                    file.set_engine(whose, Engine::Asked);
                    let inode = match identity {
                        Identity::Inode(inode) => Some(inode),
                        Identity::BuildId(_) => None,
                    };
                    let mapped = MappedFile { start: mapping.start, end: mapping.end, path: file.path.clone(), file: inode };
                    let part = MappedPart { mapped, offset: mapping.offset };
                    let index = mapping.file;
                    self.questions.push(Question {
                        tgid,
                        life: state.life,
                        user: state.user,
                        what: What::Engine(index, whose.0, Box::new(part)),
                    });
                }
            }
        }
        state.scripts.looks_for_engine = waits && found.is_none() && java.is_none();
        if let Some((layout, start)) = java {
            state.scripts.jvm.begins(layout, start);
        }
        if let Some((layout, file)) = found {
            state.scripts.engine = Some((layout, file));
            self.tell_runtime(tgid);
        }
    }

    /// Asks for the code heaps of a process with a JVM, if they are not known.
    pub(super) fn want_jvm(&mut self, tgid: u32, now: u64) {
        let question = self.states.get_mut(&tgid).and_then(|state| state.scripts.jvm.question(now));
        question.into_iter().for_each(|what| self.ask(tgid, what));
    }

    /// Applies the answer.
    pub(super) fn told_jvm(&mut self, tgid: u32, found: Option<Jvm>) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        let jvm = &mut state.scripts.jvm;
        jvm.not_asked();
        if let Some(found) = found.filter(|_| jvm.runs().is_none()) {
            *jvm = JvmOfProcess::Runs(Arc::new(found));
            self.tell_runtime(tgid);
        }
    }
}
