//! Resolves one sample: addresses → frames, thread and process names.
//!
//! User frames are cut at the first caller that is no code: see [`ProcessTable::resolve`]. Almost every address was seen before in its
//! process, so a frame usually takes one lookup in a hash map.

use crate::collector::processes::mapped_build_id::MappedFile;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::functions::Runtime;
use super::interpreter::CodeKey;
use super::mappings::{BuildIdOf, FileIndex, Files, Mapping};
use super::moved::file_range;
use super::reader::{Question, What};
use super::scripts::{self, Function, FunctionReads, MAX_ASKED, MAX_PLACES, gone, label_of, missing};
use super::state::{Known, ProcessState};
use super::table::{Parts, ProcessTable};
use crate::collector::wire::perf_records::Identity;
use crate::collector::wire::records::{KERNEL_CUT, Record, UserFrame};
use crate::collector::wire::script::{Part, Role, Script, ScriptFrame};
use crate::collector::{Batch, Collected};
use crate::profile::{
    CgroupId, Cpu, EventSource, FileNamespace, FileOffset, Frame, FrameId, KernelAddress, Language, NameRequest, Names, Object,
    ObjectId, ObjectKind, ProcessAddress, Tgid, Thread, Tid, Timestamp, Unit, UserEnd, UserId,
};

/// Most addresses that are cached for one process, or for the kernel. A full cache is emptied. JIT code may have any number of addresses.
const MAX_CACHED: usize = 1 << 17;

/// The process of a sample, the user who is charged for it, and the namespace of its files.
#[derive(Clone, Copy)]
struct Owner {
    tgid: u32,
    user: UserId,
    files: FileNamespace,
}

/// Whether a sample may wait until its process is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// It may wait.
    MayWait,
    /// It has waited long enough, and is resolved from the known facts.
    NoMore,
    /// Waiting is useless: its process runs another program by now, or has other code at some addresses.
    ForNothing,
}

/// The frame of an interpreter's function.
enum FunctionFrame {
    Shown(FrameId),
    Hidden,
    /// Its user had no reads left, or the sample could not wait for the answer.
    NotRead,
}

/// The result of resolving an address: a frame; nothing is mapped there; or an answer has to come first.
enum NewFrame {
    Frame(FrameId),
    Unmapped,
    Later,
}

impl ProcessTable {
    /// Adds a sample of a [prepared](ProcessTable::prepare) process to the batch: frames root first, user part before kernel part. If the
    /// sample has to wait, adds nothing and returns `false`.
    pub(crate) fn resolve(&mut self, record: &Record, batch: &mut Batch, waits: Waits) -> bool {
        let name = self.label_for(record.uid, record.comm);
        let process = self.process_label(record.tgid);
        let Some(Parts { state, files, names, kernel_frames, questions, reads }) = self.parts(record.tgid) else {
            return self.resolve_forgotten(record, batch);
        };
        let from = batch.frames.len();
        let owner = Owner { tgid: record.tgid, user: record.uid, files: record.files };
        let mut user_end = UserEnd::from_wire(record.user_end);

        // A process that ended before it was read has no known mappings. A process in the midst of execve has none either, but then its
        // walk has found that its registers belong to the previous program.
        let is_empty = state.mappings.len() == 0 && user_end != UserEnd::Registers;
        let unread = record.user().len() > 0 && (state.known != Known::Yes || waits == Waits::ForNothing || is_empty);
        if unread && state.known == Known::Asked && waits == Waits::MayWait {
            return false;
        }
        if unread {
            batch.frames.push(unmapped(names));
            // The mappings that are known now are newer than the sample.
            let changed = waits == Waits::ForNothing && state.known == Known::Yes;
            user_end = if changed { UserEnd::Changing } else { UserEnd::Unread };
        }
        let script = record.script().filter(|_| !unread);
        if let Some(script) = script
            && waits == Waits::MayWait
            && !knows_functions(state, script, (owner, record.time), questions, reads)
        {
            return false;
        }
        if !unread {
            let place = Place { state, files, names, questions, owner, waits, now: record.time };
            let mut user = UserPart {
                place,
                frames: &mut batch.frames,
                wanted: &mut batch.wanted,
                end: user_end,
                ended: false,
                has_unread: false,
                not_read: None,
            };
            let whole = match script {
                Some(script) => user.functions_and_frames(record, script),
                None => user.frames(record),
            };
            user_end = match script.is_some_and(|script| script.lacks_functions()) {
                true if user.end == UserEnd::Root => UserEnd::Functions,
                _ => user.end,
            };
            let has_unread = user.has_unread;
            if whole.is_none() {
                batch.frames.truncate(from);
                return false;
            }
            script.into_iter().for_each(|script| reads.count(&script));
            match waits {
                Waits::MayWait => reads.counts.refused += u64::from(has_unread),
                Waits::NoMore | Waits::ForNothing => reads.counts.late += u64::from(has_unread),
            }
        }
        if let Some(user) = batch.frames.get_mut(from..) {
            user.reverse();
        }
        // The first kernel frame is an instruction pointer. All further kernel frames are return addresses.
        let kernel = record.kernel();
        let mut callers = kernel.len();
        for address in kernel.rev() {
            callers -= 1;
            let is_return = callers > 0;
            // All kernel addresses have the top bit set, so it may be shifted out.
            let key = address << 1 | u64::from(is_return);
            let frame = kernel_frames.get(&key).copied().unwrap_or_else(|| {
                let (frame, new) = names.intern_frame(Frame::Kernel { address: KernelAddress(address), is_return });
                if new {
                    batch.wanted.push(request(frame, owner, 0..0));
                }
                if kernel_frames.len() >= MAX_CACHED {
                    kernel_frames.clear();
                }
                kernel_frames.insert(key, frame);
                frame
            });
            batch.frames.push(frame);
        }
        batch.samples.push(Collected {
            thread: Thread { tgid: Tgid(record.tgid), tid: Tid(record.tid), process, name, cgroup: CgroupId(record.cgroup) },
            frames: from..batch.frames.len(),
            time: Timestamp(record.time),
            cpu: Cpu(u16::try_from(record.cpu).unwrap_or(u16::MAX)),
            user_end,
            source: EventSource(record.source),
            unit: if EventSource(record.source) == EventSource::CLOCK { Unit::Samples } else { Unit::Events },
            weight: record.weight,
            kernel_frames: record.kernel().len(),
            kernel_cut: record.flags & KERNEL_CUT != 0,
            compared: record.compared,
        });
        true
    }
}

/// The user part of a sample while it is built: innermost frame first, as on the wire.
struct UserPart<'a> {
    place: Place<'a>,
    frames: &'a mut Vec<FrameId>,
    wanted: &'a mut Vec<NameRequest>,
    end: UserEnd,
    /// Whether the last frame is no code, so that the addresses after it are no callers.
    ended: bool,
    /// Whether functions of a runtime were not read.
    has_unread: bool,
    /// The frame of functions of JavaScript that were not read.
    not_read: Option<FrameId>,
}

impl UserPart<'_> {
    /// Adds all frames of a sample without functions. `None` if an answer has to come first.
    fn frames(&mut self, record: &Record) -> Option<()> {
        for (depth, frame) in record.user().enumerate() {
            let (frame, _) = self.native(depth, frame)?;
            self.frames.push(frame);
            if self.ended {
                break;
            }
        }
        Some(())
    }

    /// Adds all frames and functions of a sample. `None` if an answer has to come first.
    fn functions_and_frames(&mut self, record: &Record, script: Script<'_>) -> Option<()> {
        let scripts = &self.place.state.scripts;
        let mut merged = Vec::new();
        if scripts.layout.is_some_and(|layout| !layout.has_anchors()) {
            let is_loop: Vec<bool> = record.user().map(|frame| scripts.evaluation.contains(&frame.address)).collect();
            script.merge_by_count(&is_loop, self.end == UserEnd::Root, |part| merged.push(part));
        } else {
            let addresses: Vec<u64> = match script.lacks_functions() {
                true => record.user().map(|frame| frame.address).collect(),
                false => Vec::new(),
            };
            let role = |frame: usize| addresses.get(frame).map_or(Role::Other, |address| self.place.role_of(*address));
            script.merge(record.user().len(), role, |part| merged.push(part));
        }
        // The native frame right before a function is the interpreter's loop. From the innermost loop on, frames of the interpreter serve
        // to run functions. The outermost frame stays, because it shows whether the stack is whole.
        let is_function = |part: &Part| matches!(part, Part::Function(_) | Part::Missing);
        let serving = match merged.iter().position(is_function) {
            Some(first) => first.saturating_sub(1)..merged.iter().rposition(|part| !is_function(part)).unwrap_or(0),
            None => 0..0,
        };
        let mut natives = record.user();
        // V8's code is its file's only code without unwind information.
        let guessed: Vec<bool> = record.user().map(|frame| frame.guessed).collect();
        let is_caller_guessed = |depth: usize| guessed.get(depth + 1) == Some(&true);
        let mut in_frames = script.in_frames().peekable();
        let (mut after_function, mut not_read) = (false, None);
        for (index, part) in merged.into_iter().enumerate() {
            let is_caller = std::mem::replace(&mut after_function, is_function(&part));
            match part {
                Part::Function(function) => match self.place.frame_of_function(function, Language::Python, self.wanted) {
                    FunctionFrame::Shown(frame) => self.frames.push(frame),
                    FunctionFrame::Hidden => {}
                    // They have one frame together.
                    FunctionFrame::NotRead if is_caller && not_read.is_some_and(|frame| self.frames.last() == Some(&frame)) => {}
                    FunctionFrame::NotRead => {
                        let frame = || scripts::not_read(self.place.names, Language::Python);
                        self.frames.push(*not_read.get_or_insert_with(frame));
                        self.has_unread = true;
                    }
                },
                Part::Missing => self.frames.push(missing(self.place.names, self.place.language())),
                Part::Native(depth) => {
                    let Some(frame) = natives.next().filter(|_| !self.ended) else { continue };
                    let (mut frame, key) = self.native(depth, frame)?;
                    // Code of no file that calls the loop is a trampoline (`python3 -X perf`), one for each function: that function.
                    if is_caller && matches!(self.place.names.frames.get(frame), Some(Frame::Process { .. })) {
                        continue;
                    }
                    let function = in_frames.next_if(|(number, _)| *number == depth).map(|(_, function)| function);
                    // V8's code may run a function that is not known.
                    let is_known = function.is_some() || self.end != UserEnd::Functions;
                    if serving.contains(&index) || is_known && is_caller_guessed(depth) && self.place.is_of_engine(frame) {
                        frame = self.place.serving_frame(frame, key, self.wanted);
                    }
                    self.frame_of_engine(frame, function);
                }
            }
        }
        Some(())
    }

    /// Adds a native frame and the function of JavaScript that runs in it. Code made at run time is the function itself. Other code of V8 runs
    /// the function.
    fn frame_of_engine(&mut self, native: FrameId, function: Option<ScriptFrame>) {
        let place = &mut self.place;
        let kind = place.names.frames.get(native);
        let is_made = matches!(kind, Some(Frame::Process { .. }));
        let Some(function) = function.filter(|_| is_made || matches!(kind, Some(Frame::Interpreter { .. }))) else {
            return self.frames.push(native);
        };
        if !is_made {
            self.frames.push(native);
        }
        match place.frame_of_function(function, Language::JavaScript, self.wanted) {
            FunctionFrame::Shown(frame) => self.frames.push(frame),
            FunctionFrame::Hidden => {}
            FunctionFrame::NotRead => {
                let names = place.names;
                let frame = *self.not_read.get_or_insert_with(|| scripts::not_read(names, Language::JavaScript));
                // They have one frame together.
                if self.frames.last() != Some(&frame) {
                    self.frames.push(frame);
                }
                self.has_unread = true;
            }
        }
    }

    /// Returns the frame of an address of the sample, and its key in [`ProcessState::frames`]. `None` if an answer has to come first.
    ///
    /// Below a system call, the user part begins after the instruction that made the call: its first address is a return address. Below
    /// an interrupt, a fault or a signal, its first address is the instruction that was running.
    fn native(&mut self, depth: usize, frame: UserFrame) -> Option<(FrameId, u64)> {
        let UserFrame { address, is_return, guessed } = frame;
        let key = address << 1 | u64::from(is_return);
        if address == 0 && guessed {
            // The walk marks missing frames this way.
            return Some((unmapped(self.place.names), key));
        }
        if let Some(known) = self.place.state.frames.get(&key) {
            return Some((*known, key));
        }
        match self.place.new_user_frame(address, is_return, self.wanted) {
            NewFrame::Frame(frame) => return Some((frame, key)),
            NewFrame::Later => return None,
            NewFrame::Unmapped if self.place.state.lacks_remapped => self.end = UserEnd::Changing,
            // Code built without frame pointers uses the frame pointer's register for other values, and the kernel follows them through the
            // stack. An address without code is not a return address, so the addresses after it are no callers either.
            NewFrame::Unmapped if depth > 0 => {
                self.end = UserEnd::NoCode;
                self.ended = true;
            }
            NewFrame::Unmapped => {}
        }
        Some((unmapped(self.place.names), key))
    }
}

/// Returns whether the names of all functions of a sample are known. Asks for the missing names.
fn knows_functions(
    state: &mut ProcessState,
    script: Script<'_>,
    (owner, now): (Owner, u64),
    questions: &mut Vec<Question>,
    reads: &mut FunctionReads,
) -> bool {
    let scripts = &mut state.scripts;
    let is_new = |function: &ScriptFrame| !scripts.places.contains_key(function);
    let key = |function: ScriptFrame| Some((function.code, function.check)).filter(|key| !scripts.functions.contains(key));
    let of_chains = || script.functions().filter(is_new).filter_map(key);
    let in_frames = || script.in_frames().map(|(_, function)| function).filter(is_new).filter_map(key);
    // One question at a time. Its answer brings this sample back here. The next question is about the functions of all samples that wait.
    if !scripts.asked.is_empty() {
        let room = |next: &FxHashSet<CodeKey>| MAX_ASKED.saturating_sub(next.len());
        let [python, javascript] = [
            of_chains().take(room(&scripts.next_asked[0])).collect::<Vec<_>>(),
            in_frames().take(room(&scripts.next_asked[1])).collect(),
        ];
        scripts.next_asked[0].extend(python);
        scripts.next_asked[1].extend(javascript);
        return false;
    }
    // Unknown functions stay unread. A hostile program has new ones in each sample.
    if reads.is_used_up(owner.user, now) {
        return true;
    }
    let (has_python, has_javascript) = (of_chains().next().is_some(), in_frames().next().is_some());
    let known = &scripts.functions;
    let of_all = |next: &mut FxHashSet<CodeKey>| next.drain().filter(|key| !known.contains(key)).collect::<Vec<_>>();
    // Functions of one runtime at a time.
    let (runtime, mut unknown) = match (scripts.layout, scripts.engine.as_ref()) {
        (Some(layout), _) if has_python => {
            let mut unknown: Vec<_> = of_chains().collect();
            unknown.extend(of_all(&mut scripts.next_asked[0]));
            (Runtime::Python(Box::new(layout)), unknown)
        }
        (_, Some((engine, _))) if has_javascript => {
            let mut unknown: Vec<_> = in_frames().collect();
            unknown.extend(of_all(&mut scripts.next_asked[1]));
            (Runtime::JavaScript(Arc::clone(engine), scripts.sources.clone()), unknown)
        }
        _ => return true,
    };
    unknown.sort_unstable();
    unknown.dedup();
    unknown.truncate(MAX_ASKED);
    let allowed = reads.take(owner.user, unknown.len(), now);
    unknown.truncate(allowed);
    state.scripts.asked.extend(&unknown);
    let what = What::Functions(runtime, unknown);
    questions.push(Question { tgid: owner.tgid, life: state.life, user: owner.user, what });
    false
}

fn request(frame: FrameId, owner: Owner, mapping: Range<u64>) -> NameRequest {
    let Owner { tgid, user, files } = owner;
    NameRequest { frame, tgid: Tgid(tgid), user, files, mapping: ProcessAddress(mapping.start)..ProcessAddress(mapping.end) }
}

fn unmapped(names: &Names) -> FrameId {
    names.intern_frame(Frame::Unmapped).0
}

/// The state that is needed to resolve an address of a sample.
struct Place<'a> {
    state: &'a mut ProcessState,
    files: &'a mut Files,
    names: &'a Names,
    questions: &'a mut Vec<Question>,
    owner: Owner,
    waits: Waits,
    /// The time of the sample.
    now: u64,
}

impl Place<'_> {
    /// Resolves an address that is not in the process's cache.
    fn new_user_frame(&mut self, address: u64, is_return: bool, wanted: &mut Vec<NameRequest>) -> NewFrame {
        // A return address may be the first byte after its mapping, if a call is the mapping's last instruction.
        let Some(&mapping) = self.state.mappings.find(address.saturating_sub(u64::from(is_return))) else {
            // Not cached: a new mapping there would not empty the cache.
            return NewFrame::Unmapped;
        };
        let of_file = |object, offset| Frame::File { object, offset: FileOffset(offset), is_return };
        let frame = match mapping.file {
            FileIndex::ANONYMOUS if self.waits == Waits::MayWait && self.state.is_asked(address) => return NewFrame::Later,
            FileIndex::ANONYMOUS => self.jit_frame(address, is_return),
            FileIndex::VDSO => of_file(ObjectId::VDSO, address - mapping.start),
            FileIndex::REFUSED => Frame::AnyOf(ObjectId::MORE),
            file => match self.object_of(&mapping, file) {
                Some(ObjectId::ANONYMOUS) => self.jit_frame(address, is_return),
                Some(object) => of_file(object, mapping.file_offset(address)),
                None => return NewFrame::Later,
            },
        };
        let has_object = frame.object() != ObjectId::ANONYMOUS;
        let (frame, new) = self.names.intern_frame(frame);
        if new && has_object {
            wanted.push(request(frame, self.owner, file_range(&self.state.moved, &mapping)));
        }
        if self.state.frames.len() >= MAX_CACHED {
            self.state.frames.clear();
        }
        self.state.frames.insert(address << 1 | u64::from(is_return), frame);
        NewFrame::Frame(frame)
    }

    /// Returns the frame of code without a file.
    fn jit_frame(&mut self, address: u64, is_return: bool) -> Frame {
        match jit_object(self.state, self.names, self.owner) {
            // Code without an object has no names, so all its addresses share one frame.
            object @ ObjectId::ANONYMOUS => Frame::Process { object, address: ProcessAddress(0), is_return: false },
            object => Frame::Process { object, address: ProcessAddress(address), is_return },
        }
    }

    /// Returns what the code at an address of the process is to its interpreter.
    fn role_of(&self, address: u64) -> Role {
        let scripts = &self.state.scripts;
        if scripts.evaluation.contains(&address) {
            return Role::Loop;
        }
        let file = self.state.mappings.find(address).and_then(|mapping| self.files.get(mapping.file));
        match file.is_some_and(|file| Some(&file.path) == scripts.file.as_ref()) {
            true => Role::Interpreter,
            false => Role::Other,
        }
    }

    /// Whether a frame is code of V8's file.
    fn is_of_engine(&self, frame: FrameId) -> bool {
        let Some((_, path)) = &self.state.scripts.engine else { return false };
        let object = self.names.frames.get(frame).filter(|frame| matches!(frame, Frame::File { .. })).map(Frame::object);
        object.and_then(|object| self.names.objects.get(object)).is_some_and(|object| object.path == *path)
    }

    /// Returns the language of functions that are missing.
    fn language(&self) -> Language {
        if self.state.scripts.layout.is_some() { Language::Python } else { Language::JavaScript }
    }

    /// Returns the frame of a function at the line that runs.
    fn frame_of_function(&mut self, function: ScriptFrame, language: Language, wanted: &mut Vec<NameRequest>) -> FunctionFrame {
        let Self { names, owner, .. } = *self;
        let scripts = &mut self.state.scripts;
        if let Some(known) = scripts.places.get(&function) {
            return known.map_or(FunctionFrame::Hidden, FunctionFrame::Shown);
        }
        let frame = match scripts.functions.get(&(function.code, function.check)) {
            Some(Function::Shown(code)) => {
                let line = scripts.line_of(code, function.instruction).unwrap_or(0);
                let Owner { user, files, .. } = owner;
                let label = label_of(names, user, code);
                Some(match code.file() {
                    Some(path) => {
                        let file = Object { kind: ObjectKind::Script, path: path.into(), user, files, ..Object::default() };
                        let object = names.objects.intern(file);
                        let (frame, new) = names.intern_frame(Frame::Script { object, label, line });
                        if new {
                            wanted.push(request(frame, owner, 0..0));
                        }
                        frame
                    }
                    None => names.intern_named(label),
                })
            }
            Some(Function::Hidden) => None,
            // Not cached: another sample may find the function again, or read it.
            Some(Function::Gone) => return FunctionFrame::Shown(gone(names, language)),
            None => return FunctionFrame::NotRead,
        };
        if scripts.places.len() >= MAX_PLACES {
            scripts.places.clear();
        }
        scripts.places.insert(function, frame);
        frame.map_or(FunctionFrame::Hidden, FunctionFrame::Shown)
    }

    /// Returns the frame that marks code as serving to run a function, if the code is in the interpreter's file. Otherwise returns
    /// `frame`. `key` is the key of the address in [`ProcessState::frames`].
    fn serving_frame(&mut self, frame: FrameId, key: u64, wanted: &mut Vec<NameRequest>) -> FrameId {
        let Self { names, owner, .. } = *self;
        let scripts = &mut self.state.scripts;
        if let Some(known) = scripts.serving.get(&frame) {
            return *known;
        }
        let engine = scripts.engine.as_ref().map(|(_, file)| file);
        let is_its_file = |object| {
            let path = names.objects.get(object).map(|object| &object.path);
            path.is_some_and(|path| Some(path) == scripts.file.as_ref() || Some(path) == engine)
        };
        let found = match names.frames.get(frame) {
            Some(Frame::File { object, offset, is_return }) if is_its_file(object) => {
                let (serving, new) = names.intern_frame(Frame::Interpreter { object, offset, is_return });
                if new {
                    let mapping = self.state.mappings.find((key >> 1).saturating_sub(u64::from(is_return)));
                    wanted.push(request(serving, owner, mapping.map_or(0..0, |mapping| file_range(&self.state.moved, mapping))));
                }
                serving
            }
            _ => frame,
        };
        if scripts.serving.len() >= MAX_PLACES {
            scripts.serving.clear();
        }
        scripts.serving.insert(frame, found);
        found
    }

    /// Returns the object of a file, or [`ObjectId::ANONYMOUS`] if it is no program. The object is identified by its build id if that can
    /// be found, else by device and inode. `None` while the build id is being read.
    ///
    /// Files with the same path and build id are different objects for different users, and in different file namespaces. The reason: a
    /// user can mount his own file over any path that he sees, and give it the build id of the original.
    fn object_of(&mut self, mapping: &Mapping, index: FileIndex) -> Option<ObjectId> {
        let Some(file) = self.files.get_mut(index) else { return Some(ObjectId::ANONYMOUS) };
        let whose = (self.owner.files, self.owner.user);
        if let Some(object) = file.objects.get(whose) {
            return Some(object);
        }
        let (build_id, inode) = match file.identity {
            Identity::BuildId(id) => (Some(id), None),
            Identity::Inode(inode) => {
                if file.build_id.is_to_be_asked(self.now) {
                    file.build_id = BuildIdOf::Asked;
                    let path = file.path.clone();
                    let Range { start, end } = file_range(&self.state.moved, mapping);
                    let what = What::BuildId(MappedFile { start, end, path, file: Some(inode) });
                    let Owner { tgid, user, .. } = self.owner;
                    self.questions.push(Question { tgid, life: self.state.life, user, what });
                }
                match file.build_id {
                    BuildIdOf::Asked if self.waits == Waits::MayWait => return None,
                    BuildIdOf::Found(id) => (Some(id), None),
                    _ => (None, Some((inode.device, inode.number))),
                }
            }
        };
        if file.is_anonymous() {
            return Some(ObjectId::ANONYMOUS);
        }
        let (files, user) = whose;
        let object = Object { kind: ObjectKind::Elf, path: file.path.clone(), build_id, file: inode, files, user };
        let object = self.names.objects.intern(object);
        // Not cached if it was not reachable: it may be reachable through another process.
        if !matches!(file.build_id, BuildIdOf::NotReachable(_)) {
            file.objects.set(whose, object);
        }
        Some(object)
    }
}

/// Returns the object of a process's code without a file. Other processes have other code at these addresses.
fn jit_object(state: &mut ProcessState, names: &Names, owner: Owner) -> ObjectId {
    *state.anonymous.get_or_insert_with(|| names.jit_object(owner.user, Tgid(owner.tgid), state.life))
}
