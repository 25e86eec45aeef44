//! Names code that processes make at run time. The names come from files that the runtimes write: from a jitdump if it has the address,
//! else from the perf map.
//!
//! ```text
//! request ─► look for the files ─► read what is new ─► part with what is other code now ─► name what waits ─► the rest waits ─┐
//!                    ▲                                                                                                        │
//!                    └────────────────────── a request for the same process, or once in a while ◄─────────────────────────────┘
//! ```
//!
//! Runtimes write about a function when they make it or a moment later (V8 writes its dump in pieces of 2 MB). So an unnamed frame may get
//! a name soon. Such frames count as done and stay `[anon]`. They are retried as long as their process lives, less and less often while
//! nothing is new.
//!
//! # Memory that is used again
//!
//! A runtime reuses the memory of a function for another one. The frame that has the first function's name keeps it. When the second
//! function is written down, the address gets a new frame ([`Names::outdate`]) with the new name. Maps do not record when code was freed
//! and when the new code was made. So samples of the new code count as the first function until the entry is read here, at most about a
//! second.
//!
//! # Bounds
//!
//! Each file has bounds ([`growing_file`]). In addition, all processes together have [`MAX_MEMORY`] of entries and [`MAX_FILES`] open
//! files. The least recently used go first. Entries are read again when they are needed.

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

/// Most bytes of entries of all processes together: 600,000 entries.
const MAX_MEMORY: usize = 24 << 20;
/// Most open files of all processes together.
const MAX_FILES: usize = 64;
/// Most waiting frames of one process. Frames beyond that get no late names.
const MAX_WAITING: usize = 1 << 16;
/// Time between two retries for a process with unnamed frames. It grows up to [`LONGEST_PAUSE`] while retries find nothing new.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// How long the files of an exited process are kept for its last samples.
const KEEP_GONE: Duration = Duration::from_secs(10);
/// The object in labels. All processes share it, so that processes of one program merge.
const OBJECT: &str = "[jit]";

/// The JIT code of all processes.
#[derive(Default)]
pub(super) struct JitNames {
    codes: DashMap<ObjectId, Arc<Code>, FxBuildHasher>,
    /// Whether the task of periodic retries runs.
    pub(super) ticking: AtomicBool,
}

/// A function's machine code.
pub(super) struct MadeCode {
    /// Its addresses in the process.
    pub(super) range: Range<u64>,
    /// Whether other code has replaced its begin.
    pub(super) is_rest: bool,
    /// Its bytes, from the range's begin on.
    pub(super) bytes: Vec<u8>,
    /// Where the bytes were read from.
    pub(super) file: String,
}

/// A process's entry for an address.
#[derive(PartialEq, Eq)]
struct Known {
    piece: Piece,
    name: Vec<u8>,
    /// Whether it is from the jitdump; else it is from the perf map.
    of_dump: bool,
}

/// The JIT code of one process.
#[derive(Default)]
struct Code {
    state: Mutex<JitState>,
    told: Mutex<JitStatus>,
    /// Set for the last retry: it looks for the files even during a pause.
    is_last_look: AtomicBool,
}

/// Status that can be read without waiting for the worker on the state.
#[derive(Default)]
struct JitStatus {
    program: String,
    reason: Option<Reason>,
    named: u64,
    unnamed: u64,
    memory: usize,
    files: usize,
    used: Option<Instant>,
    /// When to retry the waiting frames.
    next: Option<Instant>,
    gone: bool,
}

#[derive(Default)]
struct JitState {
    process: Option<Process>,
    /// The user who is charged for its files.
    payer: UserId,
    gone: bool,
    /// When its files were last searched for; `None` if never, or if they were closed since.
    looked: Option<Instant>,
    map: Option<Box<CodeFile<PerfMap>>>,
    dump: Option<Box<CodeFile<JitDump>>>,
    /// Why there is no perf map, or why it is not read to its end.
    map_failed: Option<Reason>,
    dump_failed: Option<Reason>,
    waiting: Vec<FrameId>,
    /// Named frames, by address and by whether they are return addresses.
    named: BTreeMap<(u64, bool), FrameId>,
    patience: Duration,
    /// When to search for its files again, for the waiting frames.
    look_at: Option<Instant>,
}

impl JitNames {
    /// Names these frames of one object and its waiting frames. `again` marks a periodic retry instead of a request.
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
        // Without new entries, the frames that waited before were already looked up in all known entries.
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

    /// Returns the file and line of a frame, if its process has written them down and the code there still has the frame's name.
    pub(super) fn locate(&self, names: &Names, id: FrameId, stopped: &AtomicBool) -> Option<SourceLocation> {
        let frame = names.frames.get(id)?;
        let address = frame.called_from();
        // Reads closed files again, and new entries of open ones.
        self.name(names, (frame.object(), names.objects.get(frame.object())?), Vec::new(), false, stopped);
        let code = Arc::clone(&*self.codes.get(&frame.object())?);
        let state = lock(&code.state);
        let dump = state.dump.as_ref()?;
        let name = dump.name_at(address).ok()??;
        let (file, line) = dump.line_at(address, &name).filter(|_| is_called(names, id, &name))?;
        Some(location((&file, line)))
    }

    /// Reads the function of a frame, at most `most` bytes. The bytes come from the memory of its process, or else from the process's
    /// jitdump. The jitdump's copy may be from before references were resolved (LLVM). The error is the end of a sentence.
    pub(super) fn code(&self, names: &Names, id: FrameId, most: u64, stopped: &AtomicBool) -> Result<MadeCode, &'static str> {
        let made = self.code_of(names, id, most, stopped);
        self.shrink();
        made
    }

    fn code_of(&self, names: &Names, id: FrameId, most: u64, stopped: &AtomicBool) -> Result<MadeCode, &'static str> {
        const UNKNOWN: &str = "its process did not record where it is";
        const OTHER: &str = "other code is at its address now";
        const GONE: &str = "its process has ended, or the code is gone";
        let frame = names.frames.get(id).ok_or(UNKNOWN)?;
        let object = names.objects.get(frame.object()).ok_or(UNKNOWN)?;
        // Reads new entries, for all waiting frames of the process.
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
            (Err(Reason::PermissionDenied), None) => return Err("reading its memory needs CAP_SYS_PTRACE"),
            (Err(Reason::NotAnswering), None) => return Err("its memory is on a file system that does not answer"),
            (Err(_), None) => return Err(GONE),
        };
        // The runtime may have put other code there since the map was read.
        update();
        if lock(&code.state).entry_at(address).as_ref() != Some(&entry) {
            return Err(OTHER);
        }
        Ok(MadeCode { range: entry.piece.range, is_rest: entry.piece.from > 0, bytes, file })
    }

    /// Returns the begin of the code at an address, and the process's name for it, made readable.
    pub(super) fn name_at(&self, object: ObjectId, address: u64) -> Option<(u64, String)> {
        let code = Arc::clone(&*self.codes.get(&object)?);
        let entry = lock(&code.state).entry_at(address)?;
        Some((entry.piece.range.start, readable(&entry.name).into_owned()))
    }

    /// Records that the reader has panicked on an object: a bug of ours. The object is not tried again.
    pub(super) fn crashed(&self, id: ObjectId, frames: u64) {
        let code = self.codes.entry(id).or_default().clone();
        *lock(&code.state) = JitState { gone: true, ..JitState::default() };
        let mut told = lock(&code.told);
        *told =
            JitStatus { reason: Some(Reason::Crashed), unnamed: told.unnamed + frames, gone: true, ..std::mem::take(&mut *told) };
        told.next = None;
    }

    /// Returns objects to retry: those whose time has come, or with `all` every object with waiting frames. `None` if none waits.
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

    /// Brings memory and files back within their bounds. The caller must not hold any state.
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
                // The next request then looks for the files at once.
                (state.map, state.dump, state.looked) = (None, None, None);
            } else {
                state.map.iter_mut().for_each(|map| map.forget());
                state.dump.iter_mut().for_each(|dump| dump.forget());
            }
            (told.memory, told.files) = (0, if close { 0 } else { told.files });
        }
    }

    /// Returns the bytes of entries and the number of open files.
    pub(super) fn usage(&self) -> (usize, usize) {
        self.codes.iter().map(|code| lock(&code.told).held()).fold((0, 0), |sum, held| (sum.0 + held.0, sum.1 + held.1))
    }

    /// Counts the frames of all processes.
    pub(super) fn counts(&self) -> Counts {
        self.codes.iter().fold(Counts::default(), |sum, code| {
            let told = lock(&code.told);
            Counts { named: sum.named + told.named, unnamed: sum.unnamed + told.unnamed }
        })
    }

    /// Returns why names are missing, a line for each program: its processes come and go, and mostly have the same reason.
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
    /// Finds the process and its files. Requests do so at most once in [`PAUSE`].
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
            // A perf map that is open stays valid when its file is removed.
            Err(reason) if self.map.is_none() => self.map_failed = Some(reason),
            Err(_) => {}
        }
        // Finding a dump takes the list of all mappings. The list may be long, and the process waits meanwhile. So it is read seldom.
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

    /// Reads new entries without searching for files. If no frame waits, does so only while entries are held.
    fn watch(&mut self, stopped: &AtomicBool) -> bool {
        self.gone |= !self.process.as_ref().is_some_and(Process::is_alive);
        let held = self.map.as_ref().is_some_and(|map| map.len() > 0) || self.dump.as_ref().is_some_and(|dump| dump.len() > 0);
        (held || !self.waiting.is_empty()) && self.read(stopped)
    }

    /// Outdates frames whose name differs from the current code at their address.
    fn part_with_outdated(&mut self, names: &Names) {
        let fresh = self.map.as_mut().map(|map| map.fresh()).into_iter().chain(self.dump.as_mut().map(|dump| dump.fresh()));
        let fresh: Vec<Range<u64>> = fresh.flat_map(Fresh::ranges).collect();
        for range in fresh {
            // A return address at the end of a range belongs to it, because its call does.
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

    /// Returns the entry for an address. `None` if the file was written to since it was read; the next reading sees the change.
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

    /// Returns the name of the code at an address.
    fn name_at(&self, address: u64) -> Option<Vec<u8>> {
        self.entry_at(address).map(|known| known.name)
    }

    /// Reads the new part of both files. Returns whether there was any.
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

    /// Names waiting frames, from index `from` on, whose entries are known by now. Returns how many were named.
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

    /// Returns why some frames have no name.
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

    /// Decides when to search for files again: later and later while searches find nothing new.
    fn be_patient(&mut self, news: bool, again: bool) {
        if news || self.patience.is_zero() {
            self.patience = PAUSE;
        } else if again {
            self.patience = (self.patience * 2).min(LONGEST_PAUSE);
        }
        // Frequent requests must not postpone the search indefinitely.
        let then = Instant::now() + self.patience;
        self.look_at = Some(self.look_at.filter(|_| !again).map_or(then, |before| before.min(then)));
    }

    fn tell(&self, told: &mut JitStatus, news: bool) {
        if let Some(process) = &self.process {
            told.program.clone_from(&process.name);
        }
        // The reason of an exited process stays, unless there are new entries.
        if told.unnamed == 0 {
            told.reason = None;
        } else if !self.gone || told.reason.is_none() || news {
            told.reason = Some(self.reason());
        }
        told.memory = self.map.as_ref().map_or(0, |map| map.memory()) + self.dump.as_ref().map_or(0, |dump| dump.memory());
        told.files = usize::from(self.map.is_some()) + usize::from(self.dump.is_some());
        told.gone = self.gone;
        // Checking an open file for new entries costs only microseconds.
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

/// Whether a frame has the label of this function.
fn is_called(names: &Names, id: FrameId, name: &[u8]) -> bool {
    let (label, mut found) = (label(names, id, name), false);
    names.labels_of(id, |known| found |= known == label);
    found
}
