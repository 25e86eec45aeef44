//! The known functions of interpreters, for each process.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::functions::{Code, HeapOfProcess};
use super::interpreter::CodeKey;
use super::jvms::JvmOfProcess;
use super::kernel_entries::KernelEntries;
use super::pauses::Pauses;
use super::v8_memory::{Asked, Calls};
use crate::collector::wire::records::UserFrame;
use crate::collector::wire::script::{Of, Script, ScriptEnd, ScriptFrame};
use crate::profile::{Begin, FrameId, FrameKind, LabelId, Language, Names, UserId};
use crate::runtimes::hotspot::{self, JvmBytes};
use crate::runtimes::python::Layout;
use crate::runtimes::{RuntimeBytes, v8};

/// Most functions, and most frames of them, that are cached for one process. A full cache is emptied.
const MAX_FUNCTIONS: usize = 1 << 15;
pub(super) const MAX_PLACES: usize = 1 << 17;
/// Most instructions whose functions are kept until their frames are made.
const MAX_CALLS: usize = 4096;
/// Nanoseconds until the functions of instructions are read again.
const CALLS_AGAIN: u64 = 10_000_000_000;
/// Most functions in one question.
pub(super) const MAX_ASKED: usize = 512;
/// Nanoseconds between the first two readings of a process that runs no Python function yet. Each pause is twice as long as the one before,
/// until it has been doubled this often. Then it is 20 s, for as long as there are samples: a program may load Python long before it uses it.
const BEFORE_SECOND_READING: u64 = 20_000_000;
const MAX_DOUBLINGS: u32 = 10;

/// Functions that are read for one user in a second, and in one burst after a pause. A large program needs the burst when it begins.
/// (`a_false_interpreter…` of `tests/attack/names.rs` measures the cost of a hostile program.)
const READS_A_SECOND: u64 = 1000;
const MOST_READS: i64 = 10_000;
/// Reads that must be left for a question about functions. Otherwise a program with new functions in each sample would have a question, and a
/// waiting sample, for each millisecond.
const LEAST_READS: i64 = 64;
/// Reading an interpreter's file counts as this many reads of functions, because its symbols may be 3 MB.
pub(super) const READS_OF_AN_INTERPRETER: usize = 20;
/// Each further 1 KB of a function counts as one more read, because long line tables cost time and memory.
pub(super) const BYTES_OF_A_READ: usize = 1024;
/// Most users whose reads are counted.
const MAX_USERS: usize = 4096;

/// Counts of samples and functions of interpreters.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ScriptCounts {
    /// Samples with functions, or of a thread that runs none.
    pub samples: u64,
    /// Samples with all of their functions.
    pub whole: u64,
    /// Samples that lack functions, because there were too many or the walk's time was used up.
    pub cut: u64,
    /// Fewest and most functions of those samples.
    pub cut_to: (u64, u64),
    /// Samples whose functions end at memory that could not be read.
    pub unreadable: u64,
    /// Functions whose code objects were gone or replaced before their names were read.
    pub gone: u64,
    /// Samples with functions that were not read, because their user had too many.
    pub refused: u64,
    /// Samples with functions that were not read, because the answer came too late or there was no room to wait for it.
    pub late: u64,
    /// Processes whose interpreter found no room.
    pub processes_refused: u64,
}

/// Budgets of functions that may still be read, for each user. Costs that are known only afterwards may leave a debt.
#[derive(Default)]
pub(crate) struct FunctionReads {
    left: FxHashMap<UserId, (i64, u64)>,
    pub(crate) counts: ScriptCounts,
}

impl FunctionReads {
    /// Whether the user has too few reads left for another question.
    pub(super) fn is_used_up(&mut self, user: UserId, now: u64) -> bool {
        *self.left(user, now) < LEAST_READS
    }

    /// Returns the user's remaining reads.
    fn left(&mut self, user: UserId, now: u64) -> &mut i64 {
        if self.left.len() >= MAX_USERS {
            self.left.clear();
        }
        let (left, time) = self.left.entry(user).or_insert((MOST_READS, now));
        let new = now.saturating_sub(*time).saturating_mul(READS_A_SECOND) / 1_000_000_000;
        if new > 0 {
            (*left, *time) = (left.saturating_add_unsigned(new).min(MOST_READS), now);
        }
        left
    }

    /// Takes up to `wanted` reads from the user's budget. Returns how many it took.
    pub(super) fn take(&mut self, user: UserId, wanted: usize, now: u64) -> usize {
        let left = self.left(user, now);
        let taken = wanted.min(usize::try_from(*left).unwrap_or(0));
        *left -= taken as i64;
        taken
    }

    /// Subtracts reads that were already done from the user's budget.
    pub(super) fn charge(&mut self, user: UserId, done: usize, now: u64) {
        let left = self.left(user, now);
        *left = left.saturating_sub_unsigned(done as u64);
    }

    /// Counts the end of the functions of a sample.
    pub(super) fn count(&mut self, script: &Script<'_>) {
        let counts = &mut self.counts;
        match script.end {
            ScriptEnd::Whole => counts.whole += 1,
            ScriptEnd::Cut => {
                let functions = script.functions().count() as u64;
                let (least, most) = if counts.cut == 0 { (functions, functions) } else { counts.cut_to };
                counts.cut_to = (least.min(functions), most.max(functions));
                counts.cut += 1;
            }
            ScriptEnd::Unreadable => counts.unreadable += 1,
            // The thread runs no interpreter: nothing is missing.
            ScriptEnd::NoState => counts.whole += 1,
        }
        counts.samples += 1;
    }
}

/// A code object, read or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Function {
    /// It was read, and is shown.
    Shown(Arc<Code>),
    /// Not shown: the interpreter made it, and no programmer wrote it.
    Hidden,
    /// It was gone before it was read.
    Gone,
}

/// A function that runs in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Running {
    pub(super) of: Of,
    pub(super) function: ScriptFrame,
    /// Its instruction, if the function's code was compiled: of a JVM, the address times two, plus one if it is a return address. Otherwise 0.
    pub(super) address: u64,
}

impl Running {
    /// In a frame of compiled code, nothing tells the instruction of an interpreter.
    pub(super) fn compiled(function: ScriptFrame, frame: UserFrame) -> Running {
        let address = frame.address.saturating_sub(u64::from(frame.is_return));
        Running { of: Of::Function, function: ScriptFrame { instruction: 0, ..function }, address }
    }

    pub(super) fn interpreted(function: ScriptFrame) -> Running {
        Running { of: Of::Function, function, address: 0 }
    }

    /// Code of a JVM that runs in a frame.
    pub(super) fn in_jvm(of: Of, function: ScriptFrame, frame: UserFrame) -> Running {
        let address = frame.address << 1 | u64::from(frame.is_return);
        Running { of, function, address: if of == Of::Compiled { address } else { 0 } }
    }

    pub(super) fn key(self) -> CodeKey {
        (self.function.code, self.function.check)
    }
}

/// Frames by what runs: those that were inlined first. Hidden functions have none.
#[derive(Clone, Default)]
pub(super) struct Places {
    frames: FxHashMap<Running, Box<[FrameId]>>,
    /// The frames of all places, at least one for each.
    count: usize,
}

impl Places {
    pub(super) fn get(&self, running: &Running) -> Option<&[FrameId]> {
        self.frames.get(running).map(|frames| &**frames)
    }

    pub(super) fn insert(&mut self, running: Running, frames: Box<[FrameId]>) {
        if self.count >= MAX_PLACES {
            *self = Places::default();
        }
        self.count += frames.len().max(1);
        self.frames.insert(running, frames);
    }

    fn forget_compiled(&mut self) {
        self.frames.retain(|running, _| running.address == 0);
        self.count = self.frames.values().map(|frames| frames.len().max(1)).sum();
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.frames.capacity() * (size_of::<(Running, Box<[FrameId]>)>() + 1) + self.count * size_of::<FrameId>()
    }
}

/// The known functions of a process.
#[derive(Clone, Default, Debug)]
pub(super) struct Functions {
    by_code: FxHashMap<CodeKey, Function>,
    bytes: usize,
}

impl Functions {
    pub(super) fn get(&self, key: &CodeKey) -> Option<&Function> {
        self.by_code.get(key)
    }

    pub(super) fn contains(&self, key: &CodeKey) -> bool {
        self.by_code.contains_key(key)
    }

    pub(super) fn insert(&mut self, key: CodeKey, function: Function) {
        if self.by_code.len() >= MAX_FUNCTIONS {
            *self = Functions::default();
        }
        self.bytes += size_of::<(CodeKey, Function)>();
        if let Function::Shown(code) = &function {
            self.bytes += code.size();
        }
        self.by_code.insert(key, function);
    }

    /// Returns the approximate bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The interpreter of a process.
#[derive(Clone, Default)]
pub(crate) struct Scripts {
    /// Where fields are in the interpreter's objects, once that is known.
    pub(super) layout: Option<Layout>,
    /// The path of the interpreter's file, as the process sees it.
    pub(super) file: Option<Arc<str>>,
    /// The code of its evaluation loop. Needed where frames do not show which of them are the loop.
    pub(super) evaluation: Range<u64>,
    /// CPython's part of the entry in the map `runtimes`.
    pub(super) runtime: Option<RuntimeBytes>,
    /// Where fields are in V8's objects, if the process has V8, and the path of V8's file.
    pub(super) engine: Option<(Arc<v8::Layout>, Arc<str>)>,
    /// Speeds up reading its functions.
    pub(super) heap: HeapOfProcess,
    /// Its JVM.
    pub(super) jvm: JvmOfProcess,
    /// Whether a file that it maps may contain V8 or HotSpot, and was not read.
    pub(super) looks_for_engine: bool,
    /// When such a file is read again whose data were not there: the process began, or was gone.
    pub(super) engine_pauses: Pauses,
    /// Its functions. Copies of the process share them until one copy adds a function.
    pub(super) functions: Arc<Functions>,
    /// The frames of its functions.
    pub(super) places: Places,
    /// The functions of instructions that are not among the places yet, and when all instructions are read again.
    pub(super) calls: FxHashMap<Asked, Calls>,
    pub(super) calls_until: u64,
    /// Frames that mark native code as serving to run functions, by the plain frame of the same place. Code of other files maps to its
    /// plain frame.
    pub(super) serving: FxHashMap<FrameId, FrameId>,
    /// Functions in the question that is not answered yet.
    pub(super) asked: FxHashSet<Asked>,
    /// Functions for the next question: of Python, of JavaScript and of Java.
    pub(super) next_asked: [FxHashSet<Asked>; 3],
    /// Readings so far, whether one is under way, and when the next one is due. `u64::MAX`: not before a file is mapped.
    pub(super) readings: u32,
    pub(super) is_reading: bool,
    pub(super) next: u64,
    /// The user had no reads left: until then there is no attempt, even if a file is mapped.
    pub(super) paused_until: u64,
}

impl Scripts {
    /// Whether the process has V8 or a JVM.
    pub(super) fn has_engine(&self) -> bool {
        self.engine.is_some() || self.jvm.is_some()
    }

    /// Starts the readings again, because a file was mapped that may contain an interpreter.
    pub(super) fn look_again(&mut self) {
        (self.readings, self.next) = (0, 0);
    }

    pub(super) fn is_due(&self, now: u64) -> bool {
        self.layout.is_none() && !self.is_reading && self.next.max(self.paused_until) <= now
    }

    /// Notes that a reading begins.
    pub(super) fn begin_reading(&mut self, now: u64) {
        self.is_reading = true;
        self.next = now + (BEFORE_SECOND_READING << self.readings.min(MAX_DOUBLINGS));
        self.readings = self.readings.saturating_add(1);
    }

    /// Returns the part that a copy of the process inherits.
    pub(super) fn of_copy(&self) -> Scripts {
        Scripts {
            layout: self.layout,
            file: self.file.clone(),
            evaluation: self.evaluation.clone(),
            runtime: self.runtime,
            engine: self.engine.clone(),
            looks_for_engine: self.looks_for_engine,
            functions: Arc::clone(&self.functions),
            ..Scripts::default()
        }
    }

    /// Returns the line of an instruction of a function, as BPF found it. If that is not known, returns the line where the function begins.
    pub(super) fn line_of(&self, code: &Code, instruction: u32) -> Option<u32> {
        match code {
            Code::Python(code) => code.lines.line(self.layout?.place_of(instruction)),
            Code::JavaScript(function) => {
                let place = instruction.checked_sub(1).zip(self.engine.as_ref()).map(|(word, (layout, _))| layout.place_of(word));
                place.and_then(|place| function.lines.line(place)).or(Some(function.first_line))
            }
            Code::Java(method) => {
                let place = instruction.checked_sub(1).and_then(|place| u16::try_from(place).ok());
                place.and_then(|place| method.lines.line(place)).or_else(|| method.lines.first())
            }
            Code::Stub(_) => None,
        }
    }

    /// Returns the entry in the map `runtimes`.
    pub(super) fn entry(&self) -> Option<RuntimeBytes> {
        let jvm = self.jvm.runs();
        if self.engine.is_none() && jvm.is_none() {
            return self.runtime;
        }
        let mut entry = self.runtime.unwrap_or([0; size_of::<RuntimeBytes>()]);
        self.engine.iter().for_each(|(engine, _)| engine.add_to(&mut entry));
        if jvm.is_some() {
            hotspot::add_to(&mut entry);
        }
        Some(entry)
    }

    /// Forgets which functions instructions are of, from time to time: V8 may have made other code of the same function there.
    pub(super) fn forget_old_calls(&mut self, now: u64) {
        if now >= self.calls_until {
            self.calls_until = now + CALLS_AGAIN;
            self.places.forget_compiled();
            self.calls = FxHashMap::default();
        }
    }

    /// Adds the functions of an instruction.
    pub(super) fn add_calls(&mut self, asked: Asked, calls: Calls) {
        if self.calls.len() >= MAX_CALLS {
            self.calls = FxHashMap::default();
        }
        self.calls.insert(asked, calls);
    }

    /// Returns what must be asked before what runs in a frame can be shown.
    pub(super) fn unknown(&self, running: Running) -> impl Iterator<Item = Asked> {
        let key = running.key();
        let is_known = self.places.get(&running).is_some();
        let calls = self.calls.get(&(key, running.address)).filter(|_| !is_known);
        let instruction = Some((key, running.address)).filter(|_| !is_known && running.address > 0 && calls.is_none());
        // The address of compiled code of a JVM is no method's.
        let own = Some(key).filter(|_| !is_known && calls.is_none() && running.of != Of::Compiled);
        let functions = own.into_iter().chain(calls.into_iter().flatten().map(|(key, _)| *key));
        functions.filter(|key| !self.functions.contains(key)).map(|key| (key, 0)).chain(instruction)
    }

    /// Whether this was answered.
    pub(super) fn is_answered(&self, asked: &Asked) -> bool {
        let (key, instruction) = asked;
        if *instruction > 0 { self.calls.contains_key(asked) } else { self.functions.contains(key) }
    }

    /// Forgets ids of frames.
    pub(super) fn forget_frames(&mut self) {
        self.places = Places::default();
        self.serving = FxHashMap::default();
    }

    /// Bytes of functions that no other process shares.
    pub(super) fn own_bytes(&self) -> usize {
        self.functions.bytes() / Arc::strong_count(&self.functions)
    }
}

/// Entries of the map `runtimes`: `MAX_RUNTIMES` of bpf/record.h.
pub(super) const MAX_RUNTIMES: usize = 4096;

/// The processes in the map `runtimes`.
pub(crate) type Runtimes = KernelEntries<u32, RuntimeBytes>;

/// Entries of the map `jvms`: `MAX_JVMS` of bpf/record.h.
pub(super) const MAX_JVMS: usize = 1024;

/// The processes in the map `jvms`.
pub(crate) type Jvms = KernelEntries<u32, JvmBytes>;

/// Returns the label of a function: its name, its file, and where it begins. File, line and column distinguish functions with the same name: minified
/// code has thousands in a line.
pub(super) fn label_of(names: &Names, user: UserId, code: &Code) -> LabelId {
    let (name, line, column, language) = match code {
        Code::Python(code) => (&code.name, code.first_line, None, Language::Python),
        Code::JavaScript(function) => (&function.name, function.first_line, Some(function.first_column), Language::JavaScript),
        Code::Java(method) => {
            let name = format!("{}.{}{}", method.class, method.name, method.parameters);
            let begin = Begin { file: &method.file, line: method.lines.first().unwrap_or(0), column: None };
            let begin = if method.file.is_empty() { String::new() } else { begin.to_string() };
            return names.labels.intern_for(user, &name, &begin, FrameKind::Script(Language::Java));
        }
        Code::Stub(name) => {
            return names.labels.intern_for(user, &format!("[jvm {name}]"), "", FrameKind::Script(Language::Java));
        }
    };
    let file = code.file().unwrap_or_default();
    let is_known = language != Language::JavaScript || !file.is_empty() && line > 0;
    let begin = |column| if is_known { Begin { file, line, column }.to_string() } else { file.to_owned() };
    let short = begin(None);
    let short = short.rsplit('/').next().unwrap_or_default();
    let nameless = || if short.is_empty() { "(anonymous)".to_owned() } else { format!("(anonymous {short})") };
    let name = if name.is_empty() { Cow::Owned(nameless()) } else { Cow::Borrowed(&**name) };
    names.labels.intern_for(user, &name, &begin(column), FrameKind::Script(language))
}

/// Returns the frame of functions that were not read, because their user had too many or the answer came too late.
pub(super) fn not_read(names: &Names, language: Language) -> FrameId {
    names.intern_named(names.labels.intern("[functions not read]", "", FrameKind::Script(language)))
}

/// Returns the frame of functions that were gone before they were read.
pub(super) fn gone(names: &Names, language: Language) -> FrameId {
    names.intern_named(names.labels.intern("[function that is gone]", "", FrameKind::Script(language)))
}

/// Returns the frame that is shown in the place of a sample's outermost functions, if the sample lacks them.
pub(super) fn missing(names: &Names, language: Language) -> FrameId {
    names.intern_named(names.labels.intern("[functions missing]", "", FrameKind::Script(language)))
}

/// Returns the frame that is shown in the place of frames of a virtual thread that are in the heap.
pub(super) fn frozen(names: &Names) -> FrameId {
    names.intern_named(names.labels.intern("[frozen frames]", "", FrameKind::Script(Language::Java)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_reads_many_functions_at_first_and_some_each_second() {
        const SECOND: u64 = 1_000_000_000;
        let mut reads = FunctionReads::default();
        let (hostile, other) = (UserId(1000), UserId(1001));
        assert_eq!(reads.take(hostile, 100_000, SECOND), MOST_READS as usize);
        assert_eq!((reads.take(hostile, 1, SECOND), reads.take(other, 100, SECOND)), (0, 100));
        // The steps of the clock make no difference.
        let second: usize = (1..=1000).map(|step| reads.take(hostile, 100, SECOND + step * SECOND / 1000)).sum();
        assert_eq!(second, READS_A_SECOND as usize);
        assert_eq!(reads.take(hostile, 100_000, 100 * SECOND), MOST_READS as usize);
        // Few reads are saved up for one question.
        assert!(reads.is_used_up(hostile, 100 * SECOND + SECOND * 63 / READS_A_SECOND));
        assert!(!reads.is_used_up(hostile, 100 * SECOND + SECOND * 64 / READS_A_SECOND));
        // Long functions count for more.
        reads.charge(other, 9_000, SECOND);
        assert_eq!(reads.take(other, 100_000, SECOND), MOST_READS as usize - 9_100);
        // They leave a debt.
        reads.charge(other, 5_000, SECOND);
        assert_eq!(reads.take(other, 1, 5 * SECOND), 0);
        assert_eq!(reads.take(other, 5_000, 7 * SECOND), 1_000);
    }
}
