//! The frames of interpreters' functions, among the native frames of a sample.

use super::moved::file_range;
use super::resolve::{Owner, Place, UserPart, request};
use super::scripts::{self, Function, MAX_PLACES, gone, label_of, missing};
use crate::collector::wire::records::Record;
use crate::collector::wire::script::{Part, Role, Script, ScriptFrame};
use crate::profile::{Frame, FrameId, Language, NameRequest, Object, ObjectKind, UserEnd};

/// The frame of an interpreter's function.
enum FunctionFrame {
    Shown(FrameId),
    Hidden,
    /// Its user had no reads left, or the sample could not wait for the answer.
    NotRead,
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
}
