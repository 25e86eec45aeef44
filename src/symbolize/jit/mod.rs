//! Names of code that processes make at run time, from what their runtimes write about it: a jitdump where there is one and it
//! knows the address, else the perf map.
//!
//! ```text
//! request ─► look for the files ─► read what is new ─► part with what is other code now ─► name what waits ─► the rest waits ─┐
//!                    ▲                                                                                                        │
//!                    └────────────────────── a request for the same process, or once in a while ◄─────────────────────────────┘
//! ```
//!
//! Runtimes write of a function when it is made or a moment later (V8 writes its dump in pieces of 2 MB), so what has no name now
//! may have one soon: such frames count as done, stay `[anon]`, and are looked for again, as long as their process lives and less
//! and less often while nothing is new.
//!
//! # Memory that is used again
//!
//! A runtime gives the memory of a function to another one. The frame that was named by the first stays as it is; once the second is
//! written down, the address means a new frame ([`Names::outdate`]), which has the new name. Maps do not tell when code was given up
//! and when the new was made: what is sampled from then until it is read here, at most about a second, still counts as the
//! first.
//!
//! # Bounds
//!
//! Beyond those of each file ([`code_file`](super::jit::growing_file)): all processes together have [`MAX_MEMORY`] of entries and
//! [`MAX_FILES`] open; what was used least recently goes first, and entries are read again when they are needed.

pub(crate) mod code_ranges;
pub(crate) mod growing_file;
pub(crate) mod jitdump;
pub(crate) mod jitdump_lines;
mod names;
pub(crate) mod perf_map;
pub(crate) mod process;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::dwarf::location;
use super::jit::code_ranges::{Fresh, Piece};
use super::jit::growing_file::CodeFile;
use super::jit::jitdump::JitDump;
use super::jit::names::readable;
use super::jit::perf_map::PerfMap;
use super::jit::process::Process;
use crate::locks::lock;
use crate::object::open::{OpenFile, in_time};
use crate::object::reason::{Counts, Problem, Reason};
use crate::profile::{FrameId, FrameKind, LabelId, Names, Object, ObjectId, SourceLocation, Tgid, UserId, sanitize};

/// Entries of all processes together, in bytes: 600,000.
const MAX_MEMORY: usize = 24 << 20;
/// Files of all processes together.
const MAX_FILES: usize = 64;
/// Frames of one process that wait; of more than that, names do not come late.
const MAX_WAITING: usize = 1 << 16;
/// From one look to the next, of a process that has frames without names: at first, and when nothing has come of it for long.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// How long files of a process that is gone are kept for its last samples.
const KEEP_GONE: Duration = Duration::from_secs(10);
/// The object in labels: the same for all processes, so that those of one program merge.
const OBJECT: &str = "[jit]";

/// The JIT code of all processes.
#[derive(Default)]
pub(super) struct JitNames {
    codes: DashMap<ObjectId, Arc<Code>, FxBuildHasher>,
    /// Whether somebody looks again once in a while.
    pub(super) ticking: AtomicBool,
}

/// A function, to be read.
pub(super) struct MadeCode {
    /// Where it is in its process.
    pub(super) range: Range<u64>,
    /// Whether other code has come over its begin.
    pub(super) is_rest: bool,
    /// From the range's begin on.
    pub(super) bytes: Vec<u8>,
    /// Where they are from.
    pub(super) file: String,
}

/// What a process has written down about an address.
#[derive(PartialEq, Eq)]
struct Known {
    piece: Piece,
    name: Vec<u8>,
    /// In its jitdump, not in its perf map.
    of_dump: bool,
}

/// That of one process.
#[derive(Default)]
struct Code {
    state: Mutex<JitState>,
    told: Mutex<JitStatus>,
    /// The last names are waited for: its files are looked for next time, however long the pause would still be.
    is_last_look: AtomicBool,
}

/// What is told without waiting for who works on it.
#[derive(Default)]
struct JitStatus {
    program: String,
    reason: Option<Reason>,
    named: u64,
    unnamed: u64,
    memory: usize,
    files: usize,
    used: Option<Instant>,
    /// When to look again for what waits.
    next: Option<Instant>,
    gone: bool,
}

#[derive(Default)]
struct JitState {
    process: Option<Process>,
    /// The user who is charged for its files.
    payer: UserId,
    gone: bool,
    /// When its files were last looked for, if they were since they were closed.
    looked: Option<Instant>,
    map: Option<Box<CodeFile<PerfMap>>>,
    dump: Option<Box<CodeFile<JitDump>>>,
    /// Why there is no perf map, or why it is not read to its end.
    map_failed: Option<Reason>,
    dump_failed: Option<Reason>,
    waiting: Vec<FrameId>,
    /// Frames with names, by address and by whether they return there.
    named: BTreeMap<(u64, bool), FrameId>,
    patience: Duration,
    /// When to look for its files again, for the sake of what waits.
    look_at: Option<Instant>,
}

impl JitNames {
    /// Names frames of one object and what waits of it. `again` when nobody asked for it.
    pub(super) fn name(
        &self,
        names: &Names,
        (id, object): (ObjectId, &Object),
        frames: Vec<FrameId>,
        again: bool,
        stopped: &AtomicBool,
    ) {
        let Some((tgid, _)) = object.file else { return };
        let code = self.codes.entry(id).or_default().clone();
        let mut state = lock(&code.state);
        state.payer = object.user;
        let asked = frames.len() as u64;
        let waited = state.waiting.len();
        state.waiting.extend(frames.into_iter().take(MAX_WAITING.saturating_sub(waited)));
        let is_last_look = code.is_last_look.swap(false, Ordering::AcqRel);
        let in_pause = state.look_at.is_some_and(|at| at > Instant::now());
        let watched = again && (state.waiting.is_empty() || in_pause && !is_last_look);
        let tgid = Tgid(u32::try_from(tgid).unwrap_or(u32::MAX));
        let news = if watched { state.watch(stopped) } else { state.look_and_read(tgid, again, stopped) };
        if news {
            state.part_with_outdated(names);
        }
        // What waited before was looked for in all that was known before.
        let named = state.name_what_waits(names, if news { 0 } else { waited });
        if state.gone {
            (state.waiting, state.named) = Default::default();
        }
        let mut told = lock(&code.told);
        told.named += named;
        told.unnamed = (told.unnamed + asked).saturating_sub(named);
        if !watched {
            told.used = Some(Instant::now());
            state.be_patient(news, again);
        }
        state.tell(&mut told, news);
    }

    /// The file and line of a frame, if its process has written that down and the code there is still what the frame is called.
    pub(super) fn locate(&self, names: &Names, id: FrameId, stopped: &AtomicBool) -> Option<SourceLocation> {
        let frame = names.frames.get(id)?;
        let address = frame.called_from();
        // What was let go of is read again, and what is new taken in.
        self.name(names, (frame.object(), names.objects.get(frame.object())?), Vec::new(), false, stopped);
        let code = Arc::clone(&*self.codes.get(&frame.object())?);
        let state = lock(&code.state);
        let dump = state.dump.as_ref()?;
        let name = dump.name_at(address).ok()??;
        let (file, line) = dump.line_at(address, &name).filter(|_| is_called(names, id, &name))?;
        Some(location((&file, line)))
    }

    /// The function that a frame is in, at most so many bytes of it: from the memory of its process, else as that has written it down,
    /// which may be from before its references were put in (LLVM). The error is the end of a sentence.
    pub(super) fn code(&self, names: &Names, id: FrameId, most: u64, stopped: &AtomicBool) -> Result<MadeCode, &'static str> {
        let made = self.code_of(names, id, most, stopped);
        self.shrink();
        made
    }

    fn code_of(&self, names: &Names, id: FrameId, most: u64, stopped: &AtomicBool) -> Result<MadeCode, &'static str> {
        const UNKNOWN: &str = "its process has not written down where it is";
        const OTHER: &str = "other code is there by now";
        const GONE: &str = "its process has ended, or the code is there no more";
        let frame = names.frames.get(id).ok_or(UNKNOWN)?;
        let object = names.objects.get(frame.object()).ok_or(UNKNOWN)?;
        // What is new is taken in, for all that wait for it.
        let update = || self.name(names, (frame.object(), object), Vec::new(), false, stopped);
        let address = frame.called_from();
        update();
        let code = Arc::clone(&*self.codes.get(&frame.object()).ok_or(UNKNOWN)?);
        let (entry, process, written) = {
            let state = lock(&code.state);
            let entry = state.entry_at(address).ok_or(if state.gone { GONE } else { UNKNOWN })?;
            if !is_called(names, id, &entry.name) {
                return Err(OTHER);
            }
            let dump = state.dump.as_ref().filter(|_| entry.of_dump);
            let written = dump.and_then(|dump| dump.code_of(&entry.piece, &entry.name, most));
            (entry, state.process.clone().ok_or(GONE)?, written)
        };
        let range = entry.piece.range.clone();
        let end = range.end.min(range.start.saturating_add(most));
        let (place, theirs) = (process.place_of_memory(), process.clone());
        let read =
            in_time(process.user(), place, move || Ok(theirs.memory(range.start..end))).unwrap_or_else(|error| Err(error.into()));
        let (bytes, file) = match (read, written) {
            (Ok(bytes), _) => (bytes, format!("memory of {}", process.name)),
            (Err(_), Some(bytes)) => (bytes, format!("jitdump of {}", process.name)),
            (Err(Reason::PermissionDenied), None) => return Err("its memory may not be read: that takes CAP_SYS_PTRACE"),
            (Err(Reason::NotAnswering), None) => return Err("its memory is of a file system that does not answer"),
            (Err(_), None) => return Err(GONE),
        };
        // Something else may have been put there since the map was read.
        update();
        if lock(&code.state).entry_at(address).as_ref() != Some(&entry) {
            return Err(OTHER);
        }
        Ok(MadeCode { range: entry.piece.range, is_rest: entry.piece.from > 0, bytes, file })
    }

    /// What an object's process calls the code at an address, made readable, and where that begins.
    pub(super) fn name_at(&self, object: ObjectId, address: u64) -> Option<(u64, String)> {
        let code = Arc::clone(&*self.codes.get(&object)?);
        let entry = lock(&code.state).entry_at(address)?;
        Some((entry.piece.range.start, readable(&entry.name).into_owned()))
    }

    /// The reader has failed on an object: a bug of ours. It is not tried again.
    pub(super) fn crashed(&self, id: ObjectId, frames: u64) {
        let code = self.codes.entry(id).or_default().clone();
        *lock(&code.state) = JitState { gone: true, ..JitState::default() };
        let mut told = lock(&code.told);
        *told =
            JitStatus { reason: Some(Reason::Crashed), unnamed: told.unnamed + frames, gone: true, ..std::mem::take(&mut *told) };
        told.next = None;
    }

    /// Objects to look at again: those whose time has come, or all that wait. `None` when none waits.
    pub(super) fn due(&self, all: bool) -> Option<Vec<ObjectId>> {
        let now = Instant::now();
        let mut any = false;
        let mut due = Vec::new();
        for entry in &self.codes {
            let Some(next) = lock(&entry.told).next else { continue };
            any = true;
            entry.is_last_look.fetch_or(all, Ordering::AcqRel);
            if all || next <= now {
                due.push(*entry.key());
            }
        }
        any.then_some(due)
    }

    /// Brings memory and files back within their bounds. No state may be held.
    pub(super) fn shrink(&self) {
        self.shrink_to(MAX_MEMORY, MAX_FILES);
    }

    fn shrink_to(&self, most_memory: usize, most_files: usize) {
        let (mut memory, mut files) = self.usage();
        let mut by_use = Vec::new();
        for entry in &self.codes {
            let told = lock(&entry.told);
            let Some(used) = told.used.filter(|_| told.files > 0) else { continue };
            by_use.push((!(told.gone && used.elapsed() > KEEP_GONE), used, Arc::clone(&entry)));
        }
        by_use.sort_unstable_by_key(|(wanted, used, _)| (*wanted, *used));
        for (wanted, _, code) in by_use {
            let close = !wanted || files > most_files;
            if !close && memory <= most_memory {
                return;
            }
            let Ok(mut state) = code.state.try_lock() else { continue };
            let mut told = lock(&code.told);
            memory = memory.saturating_sub(told.memory);
            files = files.saturating_sub(if close { told.files } else { 0 });
            if close {
                // To be looked for at once when they are needed again.
                (state.map, state.dump, state.looked) = (None, None, None);
            } else {
                state.map.iter_mut().for_each(|map| map.forget());
                state.dump.iter_mut().for_each(|dump| dump.forget());
            }
            (told.memory, told.files) = (0, if close { 0 } else { told.files });
        }
    }

    /// Bytes of entries, and open files.
    pub(super) fn usage(&self) -> (usize, usize) {
        self.codes.iter().map(|code| lock(&code.told).held()).fold((0, 0), |sum, held| (sum.0 + held.0, sum.1 + held.1))
    }

    /// Frames of all processes.
    pub(super) fn counts(&self) -> Counts {
        self.codes.iter().fold(Counts::default(), |sum, code| {
            let told = lock(&code.told);
            Counts { named: sum.named + told.named, unnamed: sum.unnamed + told.unnamed }
        })
    }

    /// What stands in the way of names, a line for each program: its processes, which come and go, mostly have the same.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut found: FxHashMap<(String, Reason), Problem> = FxHashMap::default();
        for entry in &self.codes {
            let told = lock(&entry.told);
            let Some(reason) = told.reason.filter(|_| told.unnamed > 0) else { continue };
            let path = match told.program.as_str() {
                "" => "JIT code".to_owned(),
                program => format!("JIT code of {}", sanitize(program)),
            };
            let problem = found.entry((path.clone(), reason)).or_insert_with(|| Problem {
                object: *entry.key(),
                path: path.into(),
                reason,
                named: 0,
                unnamed: 0,
            });
            problem.object = problem.object.min(*entry.key());
            problem.named += told.named;
            problem.unnamed += told.unnamed;
        }
        found.into_values().collect()
    }
}

impl JitStatus {
    fn held(&self) -> (usize, usize) {
        (self.memory, self.files)
    }
}

impl JitState {
    /// Finds the process and its files; not for each of many requests.
    fn look(&mut self, tgid: Tgid, again: bool) {
        if !again && self.looked.is_some_and(|looked| looked.elapsed() < PAUSE) {
            return;
        }
        let first = self.looked.replace(Instant::now()).is_none();
        if self.process.is_none() && !self.gone {
            self.process = Process::read(tgid);
        }
        let Some(process) = self.process.as_ref().filter(|process| !self.gone && process.is_alive()) else {
            self.gone = true;
            return;
        };
        let (place, payer, theirs) = (process.place(), self.payer, process.clone());
        let opened = in_time(payer, place, move || Ok(theirs.perf_map(payer)));
        match opened.unwrap_or_else(|error| Err(error.into())) {
            Ok(file) if self.map.as_ref().is_some_and(|map| is_same(map.identity, &file)) => self.map_failed = None,
            Ok(file) => (self.map, self.map_failed) = (Some(Box::new(CodeFile::new(file))), None),
            // One that was opened stays good when its name is taken away.
            Err(reason) if self.map.is_none() => self.map_failed = Some(reason),
            Err(_) => {}
        }
        // To find it takes the list of all mappings, which may be long, and which the process waits for: seldom.
        if self.dump.is_none() && (first || again) {
            let theirs = process.clone();
            let found = in_time(payer, place, move || Ok(theirs.jitdump(payer)));
            self.dump = found.ok().flatten().map(|file| Box::new(CodeFile::new(file)));
        }
    }

    fn look_and_read(&mut self, tgid: Tgid, again: bool, stopped: &AtomicBool) -> bool {
        self.look(tgid, again);
        self.read(stopped)
    }

    /// The same without a look for files; if nothing waits, of those whose entries are held.
    fn watch(&mut self, stopped: &AtomicBool) -> bool {
        self.gone |= !self.process.as_ref().is_some_and(Process::is_alive);
        let held = self.map.as_ref().is_some_and(|map| map.len() > 0) || self.dump.as_ref().is_some_and(|dump| dump.len() > 0);
        (held || !self.waiting.is_empty()) && self.read(stopped)
    }

    /// Parts with frames whose name is not that of the code which is at their address by now.
    fn part_with_outdated(&mut self, names: &Names) {
        let fresh = self.map.as_mut().map(|map| map.fresh()).into_iter().chain(self.dump.as_mut().map(|dump| dump.fresh()));
        let fresh: Vec<Range<u64>> = fresh.flat_map(Fresh::ranges).collect();
        for range in fresh {
            // One that returns to the end of a range is in it: its call is.
            let frames = self.named.range((range.start, false)..=(range.end, true));
            let frames: Vec<((u64, bool), FrameId)> = frames.map(|(key, id)| (*key, *id)).collect();
            for (key, id) in frames {
                let Some(name) = names.frames.get(id).and_then(|frame| self.name_at(frame.called_from())) else { continue };
                if !is_called(names, id, &name) {
                    self.named.remove(&key);
                    names.outdate(id);
                }
            }
        }
    }

    /// What is known of an address. A file that was written to since it was read has no name there now; the next reading sees it.
    fn entry_at(&self, address: u64) -> Option<Known> {
        let of_dump = || {
            let dump = self.dump.as_ref()?;
            Some(Known { name: dump.name_at(address).ok()??, piece: dump.piece_around(address)?, of_dump: true })
        };
        let of_map = || {
            let map = self.map.as_ref()?;
            Some(Known { name: map.name_at(address).ok()??, piece: map.piece_around(address)?, of_dump: false })
        };
        of_dump().or_else(of_map)
    }

    /// What the code at an address is called.
    fn name_at(&self, address: u64) -> Option<Vec<u8>> {
        self.entry_at(address).map(|known| known.name)
    }

    /// Reads what is new in both files. Tells whether anything is.
    fn read(&mut self, stopped: &AtomicBool) -> bool {
        let mut news = false;
        if let Some(map) = &mut self.map {
            let outcome = map.update(stopped);
            news |= outcome == Ok(true);
            self.map_failed = outcome.err();
        }
        if let Some(dump) = &mut self.dump {
            let outcome = dump.update(stopped);
            news |= outcome == Ok(true);
            self.dump_failed = outcome.err();
        }
        news
    }

    /// Names the frames that are in a map by now, of those from this one on, and tells how many.
    fn name_what_waits(&mut self, names: &Names, from: usize) -> u64 {
        let mut later = self.waiting.split_off(from.min(self.waiting.len()));
        let before = later.len();
        let mut found = Vec::new();
        later.retain(|id| {
            let Some(frame) = names.frames.get(*id) else { return false };
            let Some(name) = self.name_at(frame.called_from()) else { return true };
            names.name_frame(*id, &[label(names, *id, &name)]);
            found.push(((frame.address(), frame.is_return()), *id));
            false
        });
        self.named.extend(found);
        let named = before - later.len();
        self.waiting.append(&mut later);
        named as u64
    }

    /// Why there are frames without a name.
    fn reason(&self) -> Reason {
        let nothing = self.map.is_none() && self.dump.is_none();
        let left_out = self.map.as_ref().map_or(0, |map| map.format().left_out)
            + self.dump.as_ref().map_or(0, |dump| dump.format().left_out);
        let nonsense = self.map.as_ref().is_some_and(|map| map.len() == 0 && map.format().malformed > 0);
        match self.map_failed.filter(|reason| *reason != Reason::NotFound).or(self.dump_failed) {
            Some(reason) => reason,
            None if nothing && self.process.is_none() => Reason::ProcessGone,
            None if nothing => Reason::NoCodeMap,
            None if left_out > 0 => Reason::CodeMapTooLarge,
            None if nonsense => Reason::CodeMapMalformed,
            None => Reason::NotInCodeMap,
        }
    }

    /// Decides when to look for files again: later and later while nothing comes of it.
    fn be_patient(&mut self, news: bool, again: bool) {
        if news || self.patience.is_zero() {
            self.patience = PAUSE;
        } else if again {
            self.patience = (self.patience * 2).min(LONGEST_PAUSE);
        }
        // Requests that come all the time must not put it off for ever.
        let then = Instant::now() + self.patience;
        self.look_at = Some(self.look_at.filter(|_| !again).map_or(then, |before| before.min(then)));
    }

    fn tell(&self, told: &mut JitStatus, news: bool) {
        if let Some(process) = &self.process {
            told.program.clone_from(&process.name);
        }
        // What a process that is gone was, and had, is as it was.
        if told.unnamed == 0 {
            told.reason = None;
        } else if !self.gone || told.reason.is_none() || news {
            told.reason = Some(self.reason());
        }
        told.memory = self.map.as_ref().map_or(0, |map| map.memory()) + self.dump.as_ref().map_or(0, |dump| dump.memory());
        told.files = usize::from(self.map.is_some()) + usize::from(self.dump.is_some());
        told.gone = self.gone;
        // What an open file has more by now costs microseconds to see.
        let soon = Instant::now() + PAUSE;
        told.next = match (told.files > 0, self.waiting.is_empty(), self.named.is_empty()) {
            (_, true, true) | (false, true, false) => None,
            (true, ..) => Some(told.next.map_or(soon, |next| if next > Instant::now() { next } else { soon })),
            (false, false, _) => self.look_at,
        };
    }
}

fn is_same(identity: (u64, u64), file: &OpenFile) -> bool {
    (file.facts.device, file.facts.inode) == identity
}

fn label(names: &Names, id: FrameId, name: &[u8]) -> LabelId {
    names.labels.intern_for(names.user_of(id), &readable(name), OBJECT, FrameKind::Jit)
}

/// Whether a frame has the label of a function.
fn is_called(names: &Names, id: FrameId, name: &[u8]) -> bool {
    let (label, mut found) = (label(names, id, name), false);
    names.labels_of(id, |known| found |= known == label);
    found
}
