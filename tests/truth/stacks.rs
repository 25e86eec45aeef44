//! Compares sampled stacks with the declared calls of a program.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use flametop::profile::{Frame, Names, ObjectId, ObjectKind, UserEnd};

use super::grammar::{Grammar, Place, Verdict};
use super::images::{Call, Image};

/// All files needed so far, each read once.
#[derive(Default)]
pub(crate) struct Images(HashMap<Arc<str>, Option<Arc<Image>>>);

impl Images {
    pub(crate) fn of(&mut self, names: &Names, id: ObjectId) -> Option<Arc<Image>> {
        let object = names.objects.get(id).filter(|object| object.kind == ObjectKind::Elf)?;
        let path = object.path.strip_suffix(" (deleted)").unwrap_or(&object.path);
        let read = || Image::read(Path::new(path)).map(Arc::new);
        self.0.entry(path.into()).or_insert_with(read).clone()
    }
}

/// Functions of libgcc that replace their return address. `uw_install_context` takes the registers of the frame that will
/// continue, with its return address, and copies them over the registers that these functions have saved. Then the functions jump
/// there. In between, neither the stack in memory nor anything else shows the callers.
const REPLACE_RETURN: [&str; 4] =
    ["_Unwind_RaiseException", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow", "_Unwind_ForcedUnwind"];

/// Facts about a frame, for one grammar.
struct Known {
    place: Place,
    nodes: Vec<usize>,
    image: Option<Arc<Image>>,
    /// The address that the symbols of its file use.
    address: u64,
    lookup: u64,
    /// A handler of a signal returns here: its caller was interrupted, and called nothing.
    is_restorer: bool,
    /// In the vDSO, where on arm64 that is.
    is_vdso: bool,
    /// About to jump to a handler of an exception: see [`REPLACE_RETURN`].
    replaces_return: bool,
    text: String,
}

/// Judges stacks of one program.
pub(crate) struct Judge<'a> {
    grammar: &'a Grammar,
    names: &'a Names,
    images: &'a mut Images,
    known: HashMap<Frame, usize>,
    frames: Vec<Known>,
    calls: HashMap<(usize, usize), bool>,
}

/// Result for one stack.
pub(crate) enum Outcome {
    Whole,
    /// No stack is in memory: an exception is about to continue in its handler.
    Replaced,
    /// The reason that the walker gave.
    Incomplete(String),
    /// Describes the fault.
    Wrong(String),
}

impl<'a> Judge<'a> {
    pub(crate) fn new(grammar: &'a Grammar, names: &'a Names, images: &'a mut Images) -> Judge<'a> {
        Judge { grammar, names, images, known: HashMap::new(), frames: Vec::new(), calls: HashMap::new() }
    }

    fn known(&mut self, frame: Frame) -> usize {
        if let Some(known) = self.known.get(&frame) {
            return *known;
        }
        let object = self.names.objects.get(frame.object()).expect("each frame has an object");
        let image = self.images.of(self.names, frame.object());
        let lookup = image.as_ref().and_then(|image| image.address(frame.called_from())).unwrap_or(0);
        // The vDSO has no file: only this difference is known.
        let address = lookup + (frame.address() - frame.called_from());
        let place = match (object.kind, &image) {
            (ObjectKind::Vdso, _) => Place::Library("vdso"),
            (_, Some(image)) => image.place(address, lookup),
            (kind, None) => Place::Strange(format!("{kind:?} {}+{:#x}", object.short_name(), frame.address())),
        };
        let is_restorer = image.as_ref().is_some_and(|image| image.is_restorer(address));
        let names = image.as_ref().map(|image| image.names(lookup)).unwrap_or_default();
        let replaces_return = names.iter().any(|name| REPLACE_RETURN.contains(&&**name))
            && image.as_ref().is_some_and(|image| image.jumps_to_handler(address));
        let text = match &place {
            Place::Library("vdso") => format!("{place}+{:#x}", frame.address()),
            Place::Library(_) | Place::Plt => format!("{place}+{address:#x}"),
            _ => format!("{place}"),
        };
        let (nodes, is_vdso) = (self.grammar.nodes_of(&place), object.kind == ObjectKind::Vdso);
        let known = Known { nodes, place, image, address, lookup, is_restorer, is_vdso, replaces_return, text };
        self.frames.push(known);
        self.known.insert(frame, self.frames.len() - 1);
        self.frames.len() - 1
    }

    /// How often a function is in the stack.
    pub(crate) fn count(&mut self, stack: &[Frame], function: &str) -> usize {
        let is_function = |place: &Place| matches!(place, Place::Built(names) if names.iter().any(|name| name == function));
        stack.iter().filter(|frame| is_function(&self.frames[self.known[*frame]].place)).count()
    }

    /// The stack in words, root first; the middle of a long one left out.
    pub(crate) fn text(&mut self, stack: &[Frame]) -> String {
        let known: Vec<usize> = stack.iter().map(|frame| self.known(*frame)).collect();
        let words: Vec<String> = known.iter().map(|known| self.frames[*known].text.clone()).collect();
        if words.len() <= 60 {
            return words.join(" > ");
        }
        format!("{} > … {} more … > {}", words[..20].join(" > "), words.len() - 50, words[words.len() - 30..].join(" > "))
    }

    /// Compares one stack, root first, with the grammar, and each return address with the call before it. Then compares the
    /// walker's stop reason with both results.
    pub(crate) fn judge(&mut self, stack: &[Frame], end: UserEnd) -> Outcome {
        match self.judge_alone(stack) {
            // A thread that is still in the system call that made it has only this frame.
            Outcome::Incomplete(_) if end == UserEnd::Root && self.has_just_begun(stack) => Outcome::Whole,
            Outcome::Whole if end == UserEnd::Root => Outcome::Whole,
            _ if self.is_replaced(stack) => Outcome::Replaced,
            Outcome::Whole => Outcome::Incomplete(format!("{end:?}, though whole")),
            Outcome::Incomplete(_) if end == UserEnd::Root => {
                Outcome::Wrong(format!("said to end at a root, and does not: {}", self.text(stack)))
            }
            Outcome::Incomplete(_) => Outcome::Incomplete(format!("{end:?}")),
            outcome => outcome,
        }
    }

    /// Whether the only frame is in clone, right behind its system call.
    fn has_just_begun(&mut self, stack: &[Frame]) -> bool {
        let [leaf] = stack else { return false };
        let known = self.known(*leaf);
        let known = &self.frames[known];
        known.image.as_ref().is_some_and(|image| image.is_behind_clone(known.address))
    }

    /// Whether the leaf or its caller is about to jump to a handler of an exception. On arm64 a separate function,
    /// `uw_install_context_1`, copies the registers by memcpy: then the jumping function is the caller of both.
    fn is_replaced(&mut self, stack: &[Frame]) -> bool {
        let last: Vec<usize> = stack.iter().rev().take(3).map(|frame| self.known(*frame)).collect();
        let frames = last.iter().map(|known| &self.frames[*known]);
        frames.enumerate().any(|(depth, known)| {
            let is_last_call = || known.image.as_ref().is_some_and(|image| image.jumps_to_handler_soon(known.address));
            known.replaces_return && (depth < 2 || is_last_call())
        })
    }

    /// [`Judge::judge`] without the walker's stop reason.
    pub(crate) fn judge_alone(&mut self, stack: &[Frame]) -> Outcome {
        // The mark that the walker's last address was no code. The stack is the remaining frames.
        let marks = stack.iter().take_while(|frame| frame.object() == ObjectId::UNMAPPED).count();
        let stack = &stack[marks..];
        // The mark that frames are missing, below a function that left its stack.
        if stack.iter().any(|frame| frame.object() == ObjectId::UNMAPPED) {
            return Outcome::Incomplete("frames are missing".to_owned());
        }
        self.judge_side(stack)
    }

    fn judge_side(&mut self, stack: &[Frame]) -> Outcome {
        let known: Vec<usize> = stack.iter().map(|frame| self.known(*frame)).collect();
        for (depth, pair) in known.windows(2).enumerate() {
            if !self.can_call(pair[0], pair[1]) {
                let (caller, callee) = (&self.frames[pair[0]], &self.frames[pair[1]]);
                let call = caller.image.as_ref().map(|image| image.call_before(caller.address));
                let what = match call {
                    Some(Call::To(target)) => format!("is behind a call of {target:#x}"),
                    _ => "is behind no call".to_owned(),
                };
                let frame = stack.len() - 1 - depth;
                let (caller, callee) = (caller.text.clone(), callee.text.clone());
                return Outcome::Wrong(format!(
                    "frame {frame} ({caller}) {what} and cannot have called {callee}: {}",
                    self.text(stack)
                ));
            }
        }
        let nodes: Vec<&[usize]> = known.iter().map(|known| self.frames[*known].nodes.as_slice()).collect();
        match self.grammar.judge(&nodes) {
            Verdict::Whole => Outcome::Whole,
            Verdict::Incomplete => Outcome::Incomplete(String::new()),
            Verdict::Wrong(frame) => {
                let text = known.get(known.len() - 1 - frame).map_or("", |known| &self.frames[*known].text).to_owned();
                Outcome::Wrong(format!("frame {frame} ({text}) does not call what is above it: {}", self.text(stack)))
            }
        }
    }

    /// Whether the caller's address is one that a call of the callee returns to.
    fn can_call(&mut self, caller: usize, callee: usize) -> bool {
        if let Some(can) = self.calls.get(&(caller, callee)) {
            return *can;
        }
        let can = self.look_at_call(&self.frames[caller], &self.frames[callee]);
        self.calls.insert((caller, callee), can);
        can
    }

    fn look_at_call(&self, caller: &Known, callee: &Known) -> bool {
        let Some(image) = &caller.image else { return true };
        let named =
            |known: &Known, name: &str| matches!(&known.place, Place::Built(names) if names.iter().any(|own| own == name));
        // The caller was interrupted, or a handler returns to it. Go makes stacks that begin at an address without a call before
        // it (goexit), and calls where no call instruction is (asyncPreempt).
        if callee.is_restorer
            || caller.is_restorer
            || callee.is_vdso && caller.lookup == caller.address
            || callee.replaces_return
            || named(caller, "runtime.goexit")
            || named(callee, "runtime.asyncPreempt")
        {
            return true;
        }
        match image.call_before(caller.address) {
            Call::None => false,
            Call::Anywhere => true,
            // `systemstack` jumps to the function, instead of calling it, if it is already on the system's stack.
            Call::To(target) if image.names(target).iter().any(|name| name == "runtime.systemstack") => true,
            Call::To(target) => {
                let same = callee.image.as_ref().is_some_and(|other| Arc::ptr_eq(other, image));
                if same { image.leads(target, callee.lookup) } else { image.in_stub(target) || image.leads(target, u64::MAX) }
            }
        }
    }
}
