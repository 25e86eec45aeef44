//! Code of files in anonymous memory: asks for the file, and applies the answer.
//!
//! ```text
//! a walk meets anonymous code before a mapping of a file ─► What::Moved ─┬─► the file becomes the mapping's: names, user space's walk
//!   (bpf/lookup/moved.h)   samples with frames there wait ◄── answer ───┴─► an entry of the map `moved`: BPF's walk
//! ```
//!
//! An answer counts until an event reports another mapping there. Copies of a process have the same code.

use std::ops::Range;

use super::mappings::{FileIndex, Mapping};
use super::moved::{FileCode, Moved, MovedCode};
use super::moved_file::MovedText;
use super::reader::What;
use super::state::ProcessState;
use super::table::ProcessTable;
use crate::collector::wire::perf_records::Identity;
use crate::profile::UserId;

/// Most pieces of memory of one process that are known, and most questions about them in its life.
const MAX_PIECES: usize = 16;
const MAX_QUESTIONS: u32 = 64;
/// A question counts as this many reads of functions, because a part of memory and file is read.
const READS_OF_A_QUESTION: usize = 20;

impl ProcessTable {
    /// Asks which file's code a process has in anonymous memory, unless that is known. BPF repeats its request until there is an answer.
    pub(crate) fn want_moved(&mut self, tgid: u32, range: Range<u64>, user: UserId, now: u64) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| state.moved.iter().all(|moved| moved.range != range)) else {
            return;
        };
        if state.moved.len() >= MAX_PIECES || state.moved_questions >= MAX_QUESTIONS || range.is_empty() {
            return;
        }
        let is_dear = user != UserId(0) && self.reads.take(user, READS_OF_A_QUESTION, now) < READS_OF_A_QUESTION;
        if is_dear {
            return;
        }
        state.moved_questions += 1;
        state.moved.push(Moved { range: range.clone(), asked: now, code: MovedCode::Asked });
        self.ask(tgid, What::Moved(range));
    }

    /// Applies the answer about a piece of memory.
    pub(super) fn told_moved(&mut self, tgid: u32, range: &Range<u64>, found: Option<MovedText>) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        let ProcessState { moved, mappings, user, exited, .. } = &mut **state;
        let asked = |moved: &&mut Moved| moved.range == *range && moved.code == MovedCode::Asked;
        let Some(moved) = moved.iter_mut().find(asked) else { return };
        let of_file = found.and_then(|MovedText { beside, offset }| {
            let known = mappings.find(beside.start).map(|mapping| mapping.file);
            let known = known.filter(|file| self.files.get_mut(*file).is_some_and(|file| file.path == beside.path));
            let file = known.or_else(|| Some(self.files.intern(&beside.path, Identity::Inode(beside.file?), *user)))?;
            Some(FileCode { file, offset, beside: beside.start..beside.end })
        });
        moved.code = of_file.map_or(MovedCode::Other, MovedCode::OfFile);
        if let Some(entry) = moved.code.entry().filter(|_| exited.is_none()) {
            // If there is no room, walks in the kernel find no table. User space completes the walks with a copied stack.
            self.moved.add((tgid, range.start), *user, entry);
        }
        self.map_moved(tgid);
        // Samples with copied stacks are tried again.
        self.dumped.version = None;
    }

    /// Notes that a question found no room. BPF's next request asks again.
    pub(super) fn moved_not_asked(&mut self, tgid: u32, range: &Range<u64>) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        state.moved.retain(|moved| moved.range != *range || moved.code != MovedCode::Asked);
    }

    /// Gives anonymous memory with code of a file that file, in the mappings of a process.
    pub(super) fn map_moved(&mut self, tgid: u32) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| !state.moved.is_empty()) else { return };
        let ProcessState { moved, mappings, frames, .. } = &mut **state;
        for Moved { range, code, .. } in moved {
            let MovedCode::OfFile(FileCode { file, offset, .. }) = *code else { continue };
            if mappings.find(range.start).is_some_and(|mapping| mapping.file == FileIndex::ANONYMOUS) {
                mappings.insert(Mapping { start: range.start, end: range.end, offset, file });
                frames.clear();
            }
        }
    }

    /// Forgets what is known about memory that was mapped again at this time.
    pub(super) fn forget_moved(&mut self, tgid: u32, range: &Range<u64>, time: u64) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| !state.moved.is_empty()) else { return };
        let is_gone = |moved: &Moved| {
            moved.asked < time && moved.code != MovedCode::Asked && moved.range.start < range.end && range.start < moved.range.end
        };
        for moved in state.moved.extract_if(.., |moved| is_gone(moved)) {
            self.moved.remove((tgid, moved.range.start));
        }
    }

    /// Removes a process's entries from the map, because the process has ended or begins another program.
    pub(super) fn drop_moved(&mut self, tgid: u32) {
        let Some(state) = self.states.get(&tgid) else { return };
        state.moved.iter().for_each(|moved| self.moved.remove((tgid, moved.range.start)));
    }

    /// Gives a copied process the entries of its original.
    pub(super) fn copy_moved(&mut self, tgid: u32) {
        let Some(state) = self.states.get(&tgid) else { return };
        for moved in &state.moved {
            if let Some(entry) = moved.code.entry() {
                self.moved.add((tgid, moved.range.start), state.user, entry);
            }
        }
    }
}
