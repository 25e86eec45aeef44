//! What others read about processes for us: questions, and answers applied.
//!
//! ```text
//! known:  No ─ first sample, or fork ─► Asked ─ answer ─► Yes
//!                                         └─ 1 s ─► Unread ─ answer, however late ─► Yes
//! ```
//!
//! Events that come while a question is on its way are noted ([`State::since`]) and put over what was read. An answer counts for the
//! program that was asked about only ([`State::life`]), and is applied when all events before it are.

use std::sync::Arc;

use super::super::mappings::{FileIndex, Mapping, Mappings};
use super::super::proc::MappedList;
use super::super::reader::{Answer, Found, Question, What};
use super::super::records::comm_text;
use super::{Known, ProcessTable};
use crate::profile::{Tgid, UserId};

/// How many processes are told by name.
const TOLD: usize = 8;

/// How many processes may wait for their parents' command lines. More stay without one.
const MAX_HEIRS: usize = 1024;

/// Processes about which nothing could be read.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Living processes whose mappings are not known, as reading them takes longer than anybody waits.
    pub processes: usize,
    /// Some of them: number, name, user.
    pub some: Vec<(Tgid, String, UserId)>,
    /// Samples so far that had waited in vain, or found no room to wait.
    pub samples: u64,
    /// Threads that wait for an answer now.
    pub threads: usize,
    /// Mapped files so far for which there was no room.
    pub refused_files: u64,
    /// Processes so far whose list of mappings was longer than what is read of it.
    pub cut: u64,
    /// How often mappings were forgotten because those of all processes were too many.
    pub forgotten: u64,
}

impl ProcessTable {
    /// Asks for the mappings of a process unless they are known.
    ///
    /// They are those of now, not of the sample's time: a program that was there before us and runs another one in the
    /// moment between its first sample and our reading would get frames of the other.
    pub(super) fn want_mappings(&mut self, tgid: u32) {
        let Some(known) = self.states.get(&tgid).map(|state| state.known) else { return };
        if known != Known::Yes && !self.inherit(tgid) && known == Known::No {
            self.states.get_mut(&tgid).into_iter().for_each(|state| state.known = Known::Asked);
            self.ask(tgid, What::Mappings);
        }
    }

    /// Of processes that were sampled, and of those whose children may be: of most that are there at the start nobody asks.
    pub(super) fn want_command_line(&mut self, tgid: u32) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| state.command_line_known == Known::No) else { return };
        state.command_line_known = Known::Asked;
        self.ask(tgid, What::CommandLine);
    }

    pub(super) fn ask(&mut self, tgid: u32, what: What) {
        let Some(state) = self.states.get(&tgid) else { return };
        self.questions.push(Question { tgid, life: state.life, user: state.user, what });
    }

    /// Takes over the mappings of the process that this one was forked from, if only those are known. Whether they were.
    fn inherit(&mut self, tgid: u32) -> bool {
        let from = self.states.get(&tgid).filter(|state| state.known != Known::Yes).and_then(|state| state.forked_from);
        let parent = from.and_then(|(parent, life)| self.states.get(&parent).filter(|state| state.life == life));
        let Some(mappings) = parent.filter(|state| state.known == Known::Yes).map(|state| state.mappings.clone()) else {
            return false;
        };
        self.set_mappings(tgid, mappings);
        true
    }

    /// Whether the parent's mappings may still come.
    fn may_inherit(&self, tgid: u32) -> bool {
        let from = self.states.get(&tgid).and_then(|state| state.forked_from);
        let parent = from.and_then(|(parent, life)| self.states.get(&parent).filter(|state| state.life == life));
        parent.is_some_and(|state| matches!(state.known, Known::Asked | Known::Yes))
    }

    /// The mappings that a process had at a moment, before what events have told since.
    fn set_mappings(&mut self, tgid: u32, mut mappings: Mappings) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        for mapping in std::mem::take(&mut state.since).iter() {
            mappings.insert(*mapping);
        }
        state.frames.clear();
        state.mappings = mappings;
        state.known = Known::Yes;
    }

    /// Sends what was asked for in this drain; whether that is anything.
    pub(crate) fn send_questions(&mut self) -> bool {
        if self.questions.is_empty() {
            self.reader.tick();
            return false;
        }
        let refused = self.reader.ask(self.questions.drain(..));
        for question in refused {
            let Some(state) = self.states.get_mut(&question.tgid).filter(|state| state.life == question.life) else { continue };
            match question.what {
                // Asked again at the next sample.
                What::Mappings => state.known = Known::No,
                What::CommandLine => state.command_line_known = Known::No,
                What::Status => {}
                What::BuildId(mapped) => self.files.not_asked(&mapped),
            }
        }
        true
    }

    /// Applies an answer.
    pub(crate) fn apply_answer(&mut self, answer: Answer) {
        let Answer { question: Question { tgid, life, what, .. }, found, .. } = answer;
        if let (What::BuildId(mapped), Found::BuildId(found)) = (&what, &found) {
            return self.files.told_build_id(mapped, *found, answer.time);
        }
        let Some(known) = self.states.get(&tgid).filter(|state| state.life == life).map(|state| state.known) else { return };
        match found {
            Found::Mappings(Some(list)) if known != Known::Yes => self.read_mappings(tgid, list),
            // One that is gone keeps what events told, or what its parent has.
            Found::Mappings(None) if known != Known::Yes && !self.inherit(tgid) && !self.may_inherit(tgid) => {
                self.states.get_mut(&tgid).into_iter().for_each(|state| state.known = Known::Yes);
            }
            Found::Mappings(_) | Found::BuildId(_) => {}
            Found::CommandLine(line) => self.read_command_line(tgid, &line),
            Found::Status(found) => {
                let Some((state, found)) = self.states.get_mut(&tgid).zip(found) else { return };
                state.threads = found.threads.max(state.threads);
                self.shared.get_mut(&Tgid(tgid)).into_iter().for_each(|mut process| process.parent = Tgid(found.parent));
            }
        }
    }

    fn read_mappings(&mut self, tgid: u32, list: MappedList) {
        self.parking.cut += u64::from(list.cut);
        let Some(user) = self.states.get(&tgid).map(|state| state.user) else { return };
        let (mut mappings, mut refused) = (Mappings::default(), false);
        for piece in list.mapped {
            let file = self.files.intern(&piece.path, piece.identity, user);
            refused |= file == FileIndex::REFUSED;
            mappings.insert(Mapping { start: piece.start, end: piece.end, offset: piece.offset, file });
        }
        self.set_mappings(tgid, mappings);
        self.states.get_mut(&tgid).into_iter().for_each(|state| state.lacks_files = refused);
    }

    fn read_command_line(&mut self, tgid: u32, line: &str) {
        let Some(life) = self.states.get(&tgid).map(|state| state.life) else { return };
        if !self.set_command_line(tgid, line) {
            if self.heirs.len() < MAX_HEIRS {
                self.heirs.push((tgid, life));
            }
            return;
        }
        // Children whose own answers came first take over this one's, and their children theirs.
        let mut heirs = std::mem::take(&mut self.heirs);
        loop {
            let before = heirs.len();
            heirs.retain(|(child, life)| {
                self.states.get(child).is_some_and(|state| state.life == *life) && !self.set_command_line(*child, "")
            });
            if heirs.len() == before {
                break;
            }
        }
        self.heirs = heirs;
    }

    /// Sets a process's command line. A process that ends has none any more: it may have its parent's. Returns false if the question
    /// about the parent is still on its way.
    fn set_command_line(&mut self, tgid: u32, line: &str) -> bool {
        let Some(state) = self.states.get(&tgid) else { return true };
        let line = if line.is_empty() && state.command_line.is_empty() {
            let from = state.forked_from;
            let parent = from.and_then(|(parent, life)| self.states.get(&parent).filter(|state| state.life == life));
            if parent.is_some_and(|parent| parent.command_line.is_empty() && parent.command_line_known == Known::Asked) {
                return false;
            }
            parent.map(|parent| parent.command_line.clone()).unwrap_or_default()
        } else {
            line.into()
        };
        let Some(state) = self.states.get_mut(&tgid) else { return true };
        state.command_line_known = Known::Yes;
        if !line.is_empty() {
            state.command_line = Arc::clone(&line);
            self.shared.get_mut(&Tgid(tgid)).into_iter().for_each(|mut process| process.command_line = Arc::clone(&line));
        }
        true
    }

    /// Processes whose samples wait take over what their parents' answers have brought.
    pub(super) fn inherit_answers(&mut self) {
        let mut waiting: Vec<u32> = self.parking.processes().collect();
        waiting.dedup();
        for tgid in waiting {
            self.inherit(tgid);
        }
    }

    /// Nobody waits for the mappings of a process any more.
    pub(super) fn give_up(&mut self, tgid: u32) {
        if let Some(state) = self.states.get_mut(&tgid).filter(|state| state.known == Known::Asked) {
            state.known = Known::Unread;
        }
    }

    /// About whom nothing could be read.
    pub(crate) fn unread(&self) -> Unread {
        let unread = || self.states.iter().filter(|(_, state)| state.known == Known::Unread && state.exited.is_none());
        let some = unread().take(TOLD).map(|(tgid, state)| (Tgid(*tgid), comm_text(&state.comm), state.user));
        Unread {
            processes: unread().count(),
            some: some.collect(),
            samples: self.parking.in_vain,
            threads: self.reader.left_behind(),
            refused_files: self.files.refused,
            cut: self.parking.cut,
            forgotten: self.mappings_forgotten,
        }
    }
}
