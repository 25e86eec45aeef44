//! Asks worker threads about processes, and applies their answers.
//!
//! ```text
//! known:  No ─ first sample, or fork ─► Asked ─ answer ─► Yes
//!                                         └─ 1 s ─► Unread ─ answer, however late ─► Yes
//! ```
//!
//! Events that come while a question is pending are noted ([`ProcessState::since`](super::state::ProcessState::since)) and replace the
//! mappings that were read. An answer counts only for the program that the question named
//! ([`ProcessState::life`](super::state::ProcessState::life)). It is applied when all earlier events have been applied.

use std::sync::Arc;
use std::time::Duration;

use super::functions::Runtime;
use super::interpreter::may_be_interpreter;
use super::mappings::{Engine, FileIndex, Mapping, Mappings};
use super::proc::MappedList;
use super::reader::{Answer, PROMPT, Question, Reply, What};
use super::state::Known;
use super::table::ProcessTable;
use crate::collector::wire::records::comm_text;
use crate::profile::{Tgid, UserId};

/// Most processes that [`Unread`] names.
const TOLD: usize = 8;

/// Time until a page of code is read again, in nanoseconds, and most pages of one process in this time.
const CODE_AGAIN: u64 = 1_000_000_000;
const MAX_CODE_READ: usize = 16;

/// How many processes may wait for their parents' command lines. Any further process stays without one.
const MAX_HEIRS: usize = 1024;

/// The answer to a question that took more CPU time than [`PROMPT`] counts as a read of a function for each such part of the time.
const CPU_OF_A_READ: Duration = Duration::from_micros(40);

/// Processes whose mappings could not be read, and related counts.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Living processes whose mappings are not known, because reading them took longer than samples wait.
    pub processes: usize,
    /// Examples of such processes: number, name, user.
    pub some: Vec<(Tgid, String, UserId)>,
    /// Samples so far that waited without result or found no room to wait.
    pub samples: u64,
    /// Worker threads that such a process blocks now.
    pub threads: usize,
    /// Mapped files so far that were refused for lack of room.
    pub refused_files: u64,
    /// Lists of mappings so far that were too long and were read in part.
    pub cut: u64,
    /// How often mappings were forgotten because all processes together had too many.
    pub forgotten: u64,
}

impl ProcessTable {
    /// Asks for the mappings of a process unless they are known.
    ///
    /// The answer contains the current mappings, not those of the sample's time. If a process that existed before flametop runs another
    /// program between its first sample and our reading, the sample gets frames of the new program.
    pub(super) fn want_mappings(&mut self, tgid: u32) {
        let Some(known) = self.states.get(&tgid).map(|state| state.known) else { return };
        if known != Known::Yes && !self.inherit(tgid) && known == Known::No {
            self.states.get_mut(&tgid).into_iter().for_each(|state| state.known = Known::Asked);
            self.ask(tgid, What::Mappings);
        }
    }

    /// Asks for the command line of a process unless it is known. Called for sampled processes, and for parents when they fork, but not
    /// for all processes that exist at the start.
    pub(super) fn want_command_line(&mut self, tgid: u32) {
        let Some(state) = self.states.get_mut(&tgid).filter(|state| state.command_line_known == Known::No) else { return };
        state.command_line_known = Known::Asked;
        self.ask(tgid, What::CommandLine);
    }

    /// Has the code at an address brought into memory, because a walk could not look at it. The same page is read at most once in
    /// [`CODE_AGAIN`].
    pub(crate) fn want_code(&mut self, tgid: u32, address: u64, user: UserId, now: u64) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        let page = address / rustix::param::page_size() as u64;
        state.code_read.retain(|(_, time)| now.saturating_sub(*time) < CODE_AGAIN);
        if state.code_read.len() >= MAX_CODE_READ || state.code_read.iter().any(|(read, _)| *read == page) {
            return;
        }
        if user != UserId(0) && self.reads.take(user, 1, now) == 0 {
            return;
        }
        state.code_read.push((page, now));
        self.ask(tgid, What::Code(address));
    }

    pub(super) fn ask(&mut self, tgid: u32, what: What) {
        let Some(state) = self.states.get(&tgid) else { return };
        self.questions.push(Question { tgid, life: state.life, user: state.user, what });
    }

    /// Copies the mappings of the process's parent at its fork, if the parent's are known and its own are not. Returns whether it did.
    fn inherit(&mut self, tgid: u32) -> bool {
        let from = self.states.get(&tgid).filter(|state| state.known != Known::Yes).and_then(|state| state.forked_from);
        let parent = from.and_then(|(parent, life)| self.states.get(&parent).filter(|state| state.life == life));
        let parent = parent.filter(|state| state.known == Known::Yes);
        let Some((mappings, read_at)) = parent.map(|state| (state.mappings.clone(), state.read_at)) else { return false };
        self.set_mappings(tgid, mappings, read_at);
        true
    }

    /// Whether the parent's mappings are known or requested.
    fn may_inherit(&self, tgid: u32) -> bool {
        let from = self.states.get(&tgid).and_then(|state| state.forked_from);
        let parent = from.and_then(|(parent, life)| self.states.get(&parent).filter(|state| state.life == life));
        parent.is_some_and(|state| matches!(state.known, Known::Asked | Known::Yes))
    }

    /// Sets the mappings of a process. Newer mappings that events have reported since replace the old ones.
    fn set_mappings(&mut self, tgid: u32, mut mappings: Mappings, read_at: u64) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        for mapping in std::mem::take(&mut state.since).iter() {
            mappings.insert(*mapping);
        }
        let files = &mut self.files;
        let mut has_interpreter = |mappings: &Mappings| {
            mappings.iter().any(|mapping| files.get_mut(mapping.file).is_some_and(|file| may_be_interpreter(&file.path)))
        };
        // The event that should have reported the interpreter's mapping was lost.
        if has_interpreter(&mappings) && !has_interpreter(&state.mappings) {
            state.scripts.look_again();
        }
        state.scripts.looks_for_engine = !state.scripts.has_engine();
        state.frames.clear();
        state.mappings = mappings;
        state.known = Known::Yes;
        state.read_at = read_at;
        self.map_moved(tgid);
    }

    /// Sends the questions of this drain. Returns whether any were sent.
    pub(crate) fn send_questions(&mut self) -> bool {
        if self.questions.is_empty() {
            self.reader.tick();
            return false;
        }
        // A process that has exited has no arguments any more: reading them would wake a worker for nothing.
        let states = &self.states;
        let is_gone = |question: &Question| {
            let state = states.get(&question.tgid).filter(|state| state.life == question.life);
            question.what == What::CommandLine && state.is_some_and(|state| state.exited.is_some())
        };
        let (gone, questions): (Vec<_>, Vec<_>) = std::mem::take(&mut self.questions).into_iter().partition(is_gone);
        for question in gone {
            self.read_command_line(question.tgid, "");
        }
        if questions.is_empty() {
            self.reader.tick();
            return false;
        }
        let refused = self.reader.ask(questions);
        for question in refused {
            let Some(state) = self.states.get_mut(&question.tgid).filter(|state| state.life == question.life) else { continue };
            match question.what {
                // The next sample asks again.
                What::Mappings => state.known = Known::No,
                What::CommandLine => state.command_line_known = Known::No,
                What::Status | What::Code(_) => {}
                What::BuildId(mapped) => self.files.not_asked(&mapped),
                What::Interpreter(..) => self.interpreter_not_asked(question.tgid),
                What::Engine(file, namespace, part) => {
                    self.files.told_engine(file, &part.mapped.path, (namespace, question.user), Engine::Unknown);
                }
                What::CodeHeaps(..) => state.scripts.jvm.not_asked(),
                What::Moved(range) => self.moved_not_asked(question.tgid, &range),
                What::Functions(..) => state.scripts.asked.clear(),
            }
        }
        true
    }

    /// Applies an answer.
    pub(crate) fn apply_answer(&mut self, answer: Answer) {
        let Answer { question: Question { tgid, life, what, user }, found, time, cpu } = answer;
        // Lines are counted in scripts of up to 16 MB, code is searched for, and an instruction of Java may have 64 methods. Root of a container pays
        // for that, too: he is the user root.
        let is_dear = matches!(what, What::Functions(Runtime::JavaScript(..) | Runtime::Java(_), _));
        if is_dear || user != UserId(0) && cpu >= PROMPT {
            self.reads.charge(user, (cpu.as_micros() / CPU_OF_A_READ.as_micros()) as usize, time);
        }
        if let (What::BuildId(mapped), Reply::BuildId(found)) = (&what, &found) {
            return self.files.told_build_id(mapped, *found, time);
        }
        if let (What::Engine(file, namespace, part), Reply::Engine(found)) = (&what, &found) {
            self.files.told_engine(*file, &part.mapped.path, (*namespace, user), found.clone());
            if *found == Engine::Unknown {
                let state = self.states.get_mut(&tgid).filter(|state| state.life == life);
                state.into_iter().for_each(|state| state.scripts.looks_for_engine &= state.scripts.engine_pauses.begin(time));
            }
            return self.want_engine(tgid, time);
        }
        let Some(known) = self.states.get(&tgid).filter(|state| state.life == life).map(|state| state.known) else { return };
        match found {
            Reply::Mappings(Some(list)) if known != Known::Yes => self.read_mappings(tgid, list, time),
            Reply::Mappings(None) if known != Known::Yes => self.is_gone_unread(tgid),
            Reply::Mappings(_) | Reply::BuildId(_) | Reply::Code | Reply::Engine(_) => {}
            Reply::CodeHeaps(found) => self.told_jvm(tgid, found.map(|found| *found)),
            Reply::Interpreter(found) => self.told_interpreter(tgid, found.map(|found| *found)),
            Reply::Moved(found) => {
                if let What::Moved(range) = what {
                    self.told_moved(tgid, &range, found.map(|found| *found));
                }
            }
            Reply::Functions(read) => self.told_functions(tgid, user, read, time),
            Reply::CommandLine(line) => self.read_command_line(tgid, &line),
            Reply::Status(found) => {
                let Some(found) = found else { return };
                self.count_threads(tgid, |threads| threads.max(found.threads));
                self.shared.get_mut(&Tgid(tgid)).into_iter().for_each(|mut process| process.parent = Tgid(found.parent));
            }
        }
    }

    /// Handles a process that is gone before its mappings were read: it gets its parent's, or keeps those that events reported.
    fn is_gone_unread(&mut self, tgid: u32) {
        self.find_original(tgid);
        if !self.inherit(tgid) && !self.may_inherit(tgid) {
            self.states.get_mut(&tgid).into_iter().for_each(|state| state.known = Known::Yes);
        }
    }

    /// Finds the parent of a process that was a copy of it when we began. Both must have the same name: if the parent has gone, the
    /// process is now a child of init.
    fn find_original(&mut self, tgid: u32) {
        let Some(state) = self.states.get_mut(&tgid) else { return };
        let (Some(parent), comm) = (state.young_copy_of.take(), state.comm) else { return };
        let Some(life) = self.states.get(&parent).filter(|parent| parent.comm == comm).map(|parent| parent.life) else { return };
        self.states.get_mut(&tgid).into_iter().for_each(|state| state.forked_from = Some((parent, life)));
        self.want_mappings(parent);
    }

    fn read_mappings(&mut self, tgid: u32, list: MappedList, time: u64) {
        self.parking.cut += u64::from(list.cut);
        let Some(user) = self.states.get(&tgid).map(|state| state.user) else { return };
        let (mut mappings, mut refused) = (Mappings::default(), false);
        for piece in list.mapped {
            let file = self.files.intern(&piece.path, piece.identity, user);
            refused |= file == FileIndex::REFUSED;
            mappings.insert(Mapping { start: piece.start, end: piece.end, offset: piece.offset, file });
        }
        self.set_mappings(tgid, mappings, time);
        self.states.get_mut(&tgid).into_iter().for_each(|state| state.lacks_files = refused);
        self.want_interpreter(tgid, time);
        self.want_engine(tgid, time);
    }

    fn read_command_line(&mut self, tgid: u32, line: &str) {
        let Some(life) = self.states.get(&tgid).map(|state| state.life) else { return };
        if !self.set_command_line(tgid, line) {
            if self.heirs.len() < MAX_HEIRS {
                self.heirs.push((tgid, life));
            }
            return;
        }
        // Children whose own answers came earlier copy this line, and their children copy it from them.
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

    /// Sets a process's command line. A process that is ending has none any more, so it gets its parent's. Returns false if the question
    /// about the parent is not answered yet.
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

    /// Lets processes with waiting samples copy their parents' mappings, if these have been read meanwhile.
    pub(super) fn inherit_answers(&mut self) {
        let mut waiting: Vec<u32> = self.parking.processes().collect();
        waiting.dedup();
        for tgid in waiting {
            self.inherit(tgid);
        }
    }

    /// Stops waiting for the mappings of a process.
    pub(super) fn give_up(&mut self, tgid: u32) {
        if let Some(state) = self.states.get_mut(&tgid).filter(|state| state.known == Known::Asked) {
            state.known = Known::Unread;
        }
    }

    /// Returns the processes whose mappings could not be read, and related counts.
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
