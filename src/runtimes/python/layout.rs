//! Offsets of the fields in CPython's objects, by version.

use crate::runtimes::Memory;

/// A minor version of CPython, such as 3.12.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// 3.
    pub major: u8,
    /// 12.
    pub minor: u8,
}

impl Version {
    /// Returns the version in `Py_Version`, which exists from 3.11 on, or in a build's debug offsets: `0x030c01f0` is 3.12.1.
    pub fn of_hex(hex: u32) -> Version {
        Version { major: (hex >> 24) as u8, minor: (hex >> 16) as u8 }
    }

    /// Returns the version in a file's name: `libpython3.10.so.1.0`, `python3.10`.
    pub fn of_file(path: &str) -> Option<Version> {
        let name = path.rsplit('/').next()?;
        let minor = name.split_once("python3.")?.1;
        let end = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some(Version { major: 3, minor: minor.get(..end)?.parse().ok()? })
    }
}

/// The way in which a frame identifies the instruction that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Instruction {
    /// By its number, in units of this many bytes.
    Index(i32),
    /// By its address.
    Pointer,
}

/// The form of a line table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineTable {
    /// Up to 3.9: steps in bytes and lines.
    Steps,
    /// 3.10: ranges, each with a step in lines.
    Ranges,
    /// From 3.11 on: locations.
    Locations,
}

/// The way from the state of a thread to its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Innermost {
    /// A pointer to the frame, at this offset.
    Frame(u64),
    /// A pointer to a structure on the C stack. Each call of the evaluation loop has such a structure.
    Loop {
        /// Offset in the state of the pointer to the structure.
        at: u64,
        /// Offset of the frame in the structure.
        frame: u64,
        /// Offset in the structure of the pointer to the caller's structure.
        previous: u64,
    },
    /// Both: a pointer to the frame, and a pointer to the structures, which do not lead to frames.
    Both {
        /// Offset in the state of the pointer to the frame.
        frame: u64,
        /// Offset in the state of the pointer to the structure.
        at: u64,
        /// Offset in the structure of the pointer to the caller's structure.
        previous: u64,
    },
}

/// The mark of a frame that began a call of the evaluation loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// No mark: each frame is a separate call.
    Each,
    /// A flag in the first frame of a call, at this offset.
    Flag(u64),
    /// A frame between the calls, on the C stack, that belongs to no function. Its owner, a number at this offset, is [`NO_FUNCTION`] or
    /// more.
    Between(u64),
}

/// The smallest owner number of frames that belong to no function.
pub(super) const NO_FUNCTION: u8 = 3;

/// Offsets of the fields in a version's objects, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub(super) innermost: Innermost,
    /// In the state: the thread's `pthread_self()`.
    pub(super) thread_id: u64,
    pub(super) frame_previous: u64,
    pub(super) frame_code: u64,
    pub(super) frame_instruction: u64,
    pub(super) entry: Entry,
    pub(super) instruction: Instruction,
    /// Bits of the pointer to a code object that are part of the address.
    pub(super) code_mask: u64,
    pub(super) code_file: u64,
    /// The qualified name (`Class.method`), or the plain name in versions without a qualified name.
    pub(super) code_name: u64,
    pub(super) code_lines: u64,
    pub(super) code_first_line: u64,
    /// The begin of the bytecode; 0 if instructions are identified by number.
    pub(super) code_bytecode: u64,
    pub(super) lines: LineTable,
    /// The begin of a string's characters: of an ASCII string, and of other strings.
    pub(super) ascii_text: u64,
    pub(super) other_text: u64,
    /// In a code object: words that do not change, and that differ in another code object at the same address.
    pub(super) code_check: u64,
    /// In `_PyRuntime`: the key (`pthread_getspecific`) under which each thread keeps its state. `None` if a thread-local variable has it.
    pub(super) runtime_key: Option<u64>,
    /// In `_PyRuntime`: a pointer to the youngest interpreter. In an interpreter: a pointer to the next one.
    pub(super) runtime_interpreters: u64,
    pub(super) interpreter_next: u64,
    /// In an interpreter: a pointer to the state of a thread. In a state: a pointer to the next one.
    pub(super) interpreter_threads: u64,
    pub(super) thread_next: u64,
}

/// The first bytes of `_PyRuntime` from 3.13 on.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// Size of the part of `_PyRuntime` that holds all offsets, in bytes.
const DEBUG_OFFSETS: usize = 760;
/// Largest offset accepted: the fields that we read are nearer to the begin of their structure.
const MAX_OFFSET: u64 = 16 << 10;

impl Layout {
    /// Returns the layout of a version whose `_PyRuntime` is at this address. Returns `None` for an unknown version.
    pub fn of(version: Version, memory: &impl Memory, runtime: u64) -> Option<Layout> {
        let table = Layout::of_version(version)?;
        if version.minor < 13 {
            return Some(table);
        }
        // If the debug offsets are damaged, the version's table is still right.
        Some(table.with_debug_offsets(version, memory, runtime).unwrap_or(table))
    }

    /// Whether each call of the evaluation loop leaves an address on the C stack. It does from 3.10 on. Before 3.10, each call runs one
    /// function.
    pub fn has_anchors(&self) -> bool {
        self.entry != Entry::Each || !matches!(self.innermost, Innermost::Frame(_))
    }

    /// Returns the layout of a version, taken from the debug information of builds of each version.
    fn of_version(version: Version) -> Option<Layout> {
        if version.major != 3 {
            return None;
        }
        // Up to 3.10 each frame is a separate Python object.
        let old = Layout {
            innermost: Innermost::Frame(24),
            thread_id: 176,
            frame_previous: 24,
            frame_code: 32,
            frame_instruction: 104,
            entry: Entry::Each,
            instruction: Instruction::Index(1),
            code_mask: !0,
            code_file: 104,
            code_name: 112,
            code_lines: 120,
            code_first_line: 40,
            code_bytecode: 0,
            lines: LineTable::Steps,
            ascii_text: 48,
            other_text: 72,
            code_check: 32,
            runtime_key: Some(584),
            runtime_interpreters: 32,
            interpreter_next: 0,
            interpreter_threads: 8,
            thread_next: 8,
        };
        let new = Layout {
            innermost: Innermost::Frame(72),
            thread_id: 152,
            frame_previous: 8,
            frame_code: 0,
            frame_instruction: 56,
            entry: Entry::Between(70),
            instruction: Instruction::Pointer,
            code_file: 112,
            code_name: 128,
            code_lines: 136,
            code_first_line: 68,
            code_check: 68,
            interpreter_next: 7264,
            interpreter_threads: 7344,
            lines: LineTable::Locations,
            ascii_text: 40,
            other_text: 56,
            ..old
        };
        Some(match version.minor {
            7 => Layout {
                code_file: 96,
                code_name: 104,
                code_lines: 112,
                code_first_line: 36,
                runtime_key: Some(1504),
                runtime_interpreters: 24,
                ..old
            },
            8 => Layout { runtime_key: Some(1392), ..old },
            9 => old,
            10 => Layout {
                innermost: Innermost::Both { frame: 24, at: 48, previous: 8 },
                frame_instruction: 96,
                instruction: Instruction::Index(2),
                lines: LineTable::Ranges,
                ..old
            },
            11 => Layout {
                innermost: Innermost::Loop { at: 56, frame: 8, previous: 16 },
                frame_previous: 48,
                frame_code: 32,
                entry: Entry::Flag(68),
                code_first_line: 72,
                code_check: 72,
                interpreter_next: 0,
                interpreter_threads: 16,
                runtime_interpreters: 40,
                code_bytecode: 184,
                ascii_text: 48,
                other_text: 72,
                runtime_key: Some(592),
                ..new
            },
            12 => Layout {
                innermost: Innermost::Loop { at: 56, frame: 0, previous: 8 },
                thread_id: 136,
                interpreter_next: 0,
                interpreter_threads: 72,
                runtime_interpreters: 40,
                code_bytecode: 192,
                runtime_key: Some(1544),
                ..new
            },
            13 => Layout { code_bytecode: 200, runtime_key: Some(2160), runtime_interpreters: 632, ..new },
            14 => Layout {
                entry: Entry::Between(74),
                code_bytecode: 208,
                code_mask: !3,
                runtime_key: Some(2336),
                runtime_interpreters: 808,
                interpreter_next: 7272,
                ..new
            },
            15 => Layout {
                entry: Entry::Between(74),
                code_bytecode: 208,
                code_mask: !3,
                thread_id: 176,
                runtime_key: None,
                runtime_interpreters: 936,
                interpreter_threads: 7336,
                ..new
            },
            _ => return None,
        })
    }

    /// Replaces offsets by those that the interpreter itself gives.
    fn with_debug_offsets(self, version: Version, memory: &impl Memory, runtime: u64) -> Option<Layout> {
        let mut bytes = [0; DEBUG_OFFSETS];
        if !memory.read(runtime, &mut bytes) || !bytes.starts_with(COOKIE) {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        let offset = |at: usize| word(at).filter(|offset| *offset < MAX_OFFSET);
        if u32::try_from(word(1)?).ok().map(Version::of_hex) != Some(version) {
            return None;
        }
        // Three words, then groups of words: of the runtime (three words), of the interpreter, of the state of a thread, of the frame, of
        // code objects, and later of strings.
        let (state, thread_id, of_state, of_frame, types) = match version.minor {
            13 => (3 + 3 + 13, 5, 9, 6, TYPES_13),
            14 => (3 + 3 + 16, 5, 9, 8, TYPES_14),
            _ => (3 + 3 + 16, 8, 17, 8, TYPES_15),
        };
        let frame = state + of_state;
        let code = frame + of_frame;
        let text = code + types;
        Some(Layout {
            innermost: Innermost::Frame(offset(state + 4)?),
            thread_id: offset(state + thread_id)?,
            frame_previous: offset(frame + 1)?,
            frame_code: offset(frame + 2)?,
            frame_instruction: offset(frame + 3)?,
            entry: Entry::Between(offset(frame + 5)?),
            code_file: offset(code + 1)?,
            code_name: offset(code + 3)?,
            code_lines: offset(code + 4)?,
            code_first_line: offset(code + 5)?,
            code_bytecode: offset(code + 9)?,
            ascii_text: offset(text + 3)?,
            runtime_interpreters: offset(3 + 2)?,
            interpreter_next: offset(3 + 3 + 2)?,
            interpreter_threads: offset(3 + 3 + 3)?,
            thread_next: offset(state + 2)?,
            ..self
        })
    }
}

/// Words from the begin of the group of code objects to the begin of the group of strings, in 3.13.
const TYPES_13: usize = 10 + 2 + 4 + 3 + 3 + 3 + 2 + 3 + 3;
/// The same distance in 3.14: code objects have one word more, and the group of sets comes after the group of lists.
const TYPES_14: usize = 11 + 2 + 4 + 3 + 3 + 4 + 3 + 2 + 3 + 3;
/// The same distance in 3.15: types have two words more, and a group of two words about types on the heap follows.
const TYPES_15: usize = 11 + 2 + 6 + 2 + 3 + 3 + 4 + 3 + 2 + 3 + 3;
