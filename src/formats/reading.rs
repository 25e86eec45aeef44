//! The input and the output of readers.

use std::io::BufRead;

use super::FormatError;
use super::about::About;
use crate::profile::{
    BuildId, EventSource, FileNamespace, FileOffset, Frame, FrameId, FrameKind, LabelId, Names, Object, ObjectId, ObjectKind,
    Processes, Profile, Timestamp, Unit, UserEnd, WaitReason,
};

/// Most frames of a stack that a file may bring. The deepest stack that flametop takes has about 7,000.
pub(super) const DEEPEST: usize = 16_384;

/// The tables that a reader fills.
pub struct Destination<'a> {
    /// The names.
    pub names: &'a Names,
    /// The processes.
    pub processes: &'a Processes,
    /// The samples.
    pub profile: &'a mut Profile,
    /// The baseline's samples, if the file is a difference. `None` if they are not wanted.
    pub before: Option<&'a mut Profile>,
    /// The machine that can name addresses.
    pub machine: ThisMachine,
}

/// This machine, as far as readers must know it to make frames that can be named on it.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine {
    /// The files that paths lead to.
    pub files: FileNamespace,
    /// Whether this kernel runs here.
    pub runs_here: fn(&Kernel<'_>) -> bool,
    /// Makes the walker of copied stacks.
    pub walker: fn() -> Option<Box<dyn StackWalker>>,
}

impl Default for ThisMachine {
    /// A machine that knows no kernel and walks no stacks.
    fn default() -> ThisMachine {
        ThisMachine { files: FileNamespace::default(), runs_here: |_| false, walker: || None }
    }
}

/// A thread's registers, and a copy of the memory of its stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackCopy<'a> {
    /// The program counter.
    pub pc: u64,
    /// General registers by their DWARF numbers.
    pub registers: [u64; 32],
    /// A bit for each register that is known.
    pub known: u32,
    /// The memory from the stack pointer on.
    pub memory: &'a [u8],
}

/// The code at an address of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeAt {
    /// A place in an object.
    File(ObjectId, FileOffset),
    /// Code of no file.
    NoFile,
    /// No code.
    Nothing,
}

/// Walks copied stacks.
pub trait StackWalker {
    /// Appends the frames of a stack, innermost first: the address of each, and whether a call returns there. Returns why the walk ended.
    /// `code` says what was mapped where.
    fn walk(
        &mut self,
        names: &Names,
        copy: &StackCopy<'_>,
        code: &dyn Fn(u64) -> CodeAt,
        frames: &mut Vec<(u64, bool)>,
    ) -> UserEnd;
}

/// A kernel of one boot.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// The name of one of its symbols.
    pub symbol: &'a str,
    /// That symbol's address: a kernel lies elsewhere after each start.
    pub address: u64,
    /// Its build id, if that is known.
    pub build_id: Option<BuildId>,
}

/// Facts from a file besides its samples.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Opened {
    /// Defects of the file, and how its numbers were changed: half a sentence each.
    pub remarks: Vec<String>,
    /// Whether the file is a difference.
    pub is_difference: bool,
    /// The source of samples that is shown first, if there are several.
    pub source: Option<EventSource>,
    /// Facts about the run and its machine, if the file has them.
    pub about: Option<Box<About>>,
    /// When the last sample was taken or sampling ended. `None` if samples have no times.
    pub until: Option<Timestamp>,
    /// Frames that have addresses and no names.
    pub wanted: Vec<FrameId>,
}

/// Reads a file's content into the tables.
pub(super) type ReadFn = fn(&mut dyn BufRead, &mut Destination<'_>) -> Result<Opened, FormatError>;

/// Returns the frame of a function; with its line, if the file tells it.
pub(super) fn frame_at(names: &Names, label: LabelId, file: &str, line: u64) -> FrameId {
    match u32::try_from(line) {
        Ok(line @ 1..) if !file.is_empty() => {
            let object = names.objects.intern(Object { kind: ObjectKind::Script, path: file.into(), ..Object::default() });
            names.intern_frame(Frame::Script { object, label, line }).0
        }
        _ => names.intern_named(label),
    }
}

/// Returns the kind of a frame with this name. Formats that have kinds have none for the reasons of waits.
pub(super) fn kind_named(name: &str, kind: FrameKind) -> FrameKind {
    if kind == FrameKind::User && WaitReason::named(name).is_some() { FrameKind::Wait } else { kind }
}

/// Returns the unit that a file calls `word`, and the value of 1 in it. `name` is that of the values.
pub(super) fn unit_called(name: &str, word: &str) -> (Unit, u64) {
    match word {
        "nanoseconds" | "ns" => (Unit::Nanoseconds, 1),
        "microseconds" | "us" => (Unit::Nanoseconds, 1_000),
        "milliseconds" | "ms" => (Unit::Nanoseconds, 1_000_000),
        "seconds" | "s" => (Unit::Nanoseconds, 1_000_000_000),
        "bytes" | "byte" | "By" => (Unit::Bytes, 1),
        "kilobytes" | "kb" => (Unit::Bytes, 1 << 10),
        "megabytes" | "mb" => (Unit::Bytes, 1 << 20),
        _ if name == "samples" => (Unit::Samples, 1),
        _ => (Unit::Events, 1),
    }
}
