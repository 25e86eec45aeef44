//! The frames of interpreters' functions, among the native frames of a sample.

use std::borrow::Cow;

use super::functions::Code;
use super::moved::file_range;
use super::resolve::{Owner, Place, UserPart, request};
use super::scripts::{self, Function, MAX_PLACES, Running, gone, label_of, missing};
use crate::collector::wire::records::{Record, UserFrame};
use crate::collector::wire::script::{Of, Part, Role, Script, ScriptFrame};
use crate::profile::{Frame, FrameId, Language, NameRequest, Object, ObjectId, ObjectKind, UserEnd};

/// The frames of the functions that run in a frame. If not all of them were read, because the user had no reads left or the sample could not wait,
/// there are those that are known.
struct Shown<'a> {
    frames: Cow<'a, [FrameId]>,
    is_read: bool,
}

impl UserPart<'_> {
    /// Adds all frames and functions of a sample. `None` if an answer has to come first.
    pub(super) fn functions_and_frames(&mut self, record: &Record, script: Script<'_>) -> Option<()> {
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
        let mut after_function = false;
        for (index, part) in merged.into_iter().enumerate() {
            let is_caller = std::mem::replace(&mut after_function, is_function(&part));
            match part {
                Part::Function(function) => self.functions(Running::interpreted(function), Language::Python),
                Part::Missing => self.frames.push(missing(self.place.names, self.place.language())),
                Part::Native(depth) => {
                    let Some(frame) = natives.next().filter(|_| !self.ended) else { continue };
                    let (mut native, key) = self.native(depth, frame)?;
                    // Code of no file that calls the loop is a trampoline (`python3 -X perf`), one for each function: that function.
                    if is_caller && matches!(self.place.names.frames.get(native), Some(Frame::Process { .. })) {
                        continue;
                    }
                    let function = in_frames.next_if(|(number, ..)| *number == depth).map(|(_, of, function)| (of, function));
                    // V8's code may run a function that is not known.
                    let is_known = function.is_some() || self.end != UserEnd::Functions;
                    if serving.contains(&index) || is_known && is_caller_guessed(depth) && self.place.is_of_engine(native) {
                        native = self.place.serving_frame(native, key, self.wanted);
                    }
                    self.frame_of_engine(native, frame, function);
                }
            }
        }
        Some(())
    }

    /// Adds a native frame and the function of JavaScript that runs in it. Code made at run time is the function itself. Other code of V8 runs
    /// the function.
    fn frame_of_engine(&mut self, native: FrameId, frame: UserFrame, function: Option<(Of, ScriptFrame)>) {
        let kind = self.place.names.frames.get(native);
        let is_made = matches!(kind, Some(Frame::Process { .. }));
        let Some((of, function)) = function.filter(|_| is_made || matches!(kind, Some(Frame::Interpreter { .. }))) else {
            return self.push_native(native, frame.address);
        };
        if of == Of::Frozen {
            return self.frames.push(scripts::frozen(self.place.names));
        }
        if of != Of::Function {
            return self.functions(Running::in_jvm(of, function, frame), Language::Java);
        }
        if !is_made {
            self.frames.push(native);
        }
        let running = if is_made { Running::compiled(function, frame) } else { Running::interpreted(function) };
        self.functions(running, Language::JavaScript);
    }

    /// Adds a native frame. If it is code that was made at run time, and no function of V8 runs in it, asks for its name.
    pub(super) fn push_native(&mut self, native: FrameId, address: u64) {
        self.frames.push(native);
        let Place { state, names, owner, .. } = &mut self.place;
        let is_made = || matches!(names.frames.get(native), Some(Frame::Process { object, .. }) if object != ObjectId::ANONYMOUS);
        if !state.scripts.has_engine() || state.scripts.serving.contains_key(&native) || !is_made() {
            return;
        }
        let mapping = state.mappings.find(address).map_or(0..0, |mapping| file_range(&state.moved, mapping));
        self.wanted.push(request(native, *owner, mapping));
        state.scripts.serving.insert(native, native);
    }

    /// Adds the functions that run in a frame.
    fn functions(&mut self, running: Running, language: Language) {
        let Shown { frames, is_read } = self.place.frames_of(running, language, self.wanted);
        self.frames.extend_from_slice(&frames);
        self.has_unread |= !is_read;
        if is_read || !frames.is_empty() {
            return;
        }
        let known = self.not_read.filter(|(known, _)| *known == language);
        let (_, frame) = known.unwrap_or_else(|| (language, scripts::not_read(self.place.names, language)));
        self.not_read = Some((language, frame));
        // They have one frame together.
        if self.frames.last() != Some(&frame) {
            self.frames.push(frame);
        }
    }
}

impl Place<'_> {
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
        let scripts = &self.state.scripts;
        match (&scripts.layout, &scripts.engine) {
            (Some(_), _) => Language::Python,
            (_, Some(_)) => Language::JavaScript,
            (None, None) => Language::Java,
        }
    }

    /// Returns the frames of the functions that run in a frame, at their lines.
    fn frames_of(&mut self, running: Running, language: Language, wanted: &mut Vec<NameRequest>) -> Shown<'_> {
        if self.state.scripts.places.get(&running).is_none() {
            let scripts = &self.state.scripts;
            let calls = scripts.calls.get(&(running.key(), running.address));
            let own = (running.key(), 0);
            let functions = calls.map_or(std::slice::from_ref(&own), |calls| calls);
            let (mut frames, mut is_read, mut is_final) = (Vec::new(), calls.is_some() || running.address == 0, true);
            for (key, line) in functions {
                match scripts.functions.get(key) {
                    Some(Function::Shown(code)) => {
                        let line =
                            if *line > 0 { *line } else { scripts.line_of(code, running.function.instruction).unwrap_or(0) };
                        frames.push(self.frame_of_code(code, line, wanted));
                    }
                    Some(Function::Hidden) => {}
                    // Another sample may find the function again, or read it.
                    Some(Function::Gone) => {
                        frames.push(gone(self.names, language));
                        is_final = false;
                    }
                    None => is_read = false,
                }
            }
            if !is_read || !is_final {
                return Shown { frames: frames.into(), is_read };
            }
            let scripts = &mut self.state.scripts;
            scripts.calls.remove(&(running.key(), running.address));
            scripts.places.insert(running, frames.into());
        }
        let frames = self.state.scripts.places.get(&running).unwrap_or_default();
        Shown { frames: frames.into(), is_read: true }
    }

    /// Returns the frame of a function at a line.
    fn frame_of_code(&self, code: &Code, line: u32, wanted: &mut Vec<NameRequest>) -> FrameId {
        let Self { names, owner, .. } = *self;
        let Owner { user, files, .. } = owner;
        let label = label_of(names, user, code);
        let Some(path) = code.file() else { return names.intern_named(label) };
        let file = Object { kind: ObjectKind::Script, path: path.into(), user, files, ..Object::default() };
        let object = names.objects.intern(file);
        let (frame, new) = names.intern_frame(Frame::Script { object, label, line });
        if new {
            wanted.push(request(frame, owner, 0..0));
        }
        frame
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
}
