//! Code objects: the name of a function, and its place in the source.

use super::layout::{Instruction, Layout};
use super::lines::Lines;
use super::text;
use crate::runtimes::Memory;

/// Characters of a function's name that are read. The rest is cut off.
pub const MAX_NAME: u64 = 512;
/// Characters of a file's name that are read. The rest is cut off.
pub const MAX_FILE: u64 = 1024;
/// Bytes of a line table that are read: about 2,000 lines. Later lines of a longer function are not known.
const MAX_LINES: u64 = 16 << 10;
/// Offset of the length in a byte string, and offset of its bytes.
const BYTES_LENGTH: u64 = 16;
const BYTES: u64 = 32;

/// A Python function, as its code object describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// Its name. From 3.11 on, it includes the enclosing classes and functions: `Server.handle.<locals>.reply`. `<module>` is the code of a
    /// file.
    pub name: String,
    /// The file it was compiled from. If it begins with `<`, as in `<frozen importlib._bootstrap>`, it is not a path.
    pub file: String,
    /// The line of its `def`.
    pub first_line: u32,
    /// The lines of its instructions.
    pub lines: Lines,
}

impl Code {
    /// Reads the code object at an address. Returns `None` if it cannot be read, or if its name and its file are no strings: then something
    /// else is there.
    pub fn read(memory: &impl Memory, layout: &Layout, address: u64) -> Option<Code> {
        let pointer = |offset: u64| memory.u64(address.checked_add(offset)?);
        let name = text::read(memory, layout, pointer(layout.code_name)?, MAX_NAME)?;
        let file = text::read(memory, layout, pointer(layout.code_file)?, MAX_FILE)?;
        let first_line = memory.u32(address.checked_add(layout.code_first_line)?)?;
        let lines = pointer(layout.code_lines)?;
        let length = memory.u64(lines.checked_add(BYTES_LENGTH)?)?;
        // A function without a line table has no lines, but everything else.
        let table = memory.bytes(lines.checked_add(BYTES)?, length.min(MAX_LINES), MAX_LINES).unwrap_or_default();
        Some(Code { name, file, first_line, lines: Lines::new(layout.lines, table, first_line, length > MAX_LINES) })
    }

    /// Returns a checksum of some words of a code object. If another code object takes its address, the checksum differs. BPF computes the
    /// same one (`code_check`). Returns zero if the memory cannot be read.
    pub fn check(memory: &impl Memory, layout: &Layout, address: u64) -> u32 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut words = [0; 32];
        if !address.checked_add(layout.code_check).is_some_and(|at| memory.read(at, &mut words)) {
            return 0;
        }
        let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        (words.fold(0, |mix: u64, word| (mix ^ word).wrapping_mul(FACTOR)) >> 32) as u32
    }

    /// Returns the bytes of memory that it takes.
    pub fn size(&self) -> usize {
        size_of::<Code>() - size_of::<Lines>() + self.name.len() + self.file.len() + self.lines.size()
    }

    /// Whether the interpreter itself has inserted this function: it is in no source file.
    pub fn is_shim(&self) -> bool {
        matches!((&*self.name, &*self.file), ("__init__", "__init__") | ("<interpreter trampoline>", _) | (_, "<shim>"))
    }
}

impl Layout {
    /// Converts an instruction as BPF sends it (its number, or its distance from the code object) to its place in the bytecode.
    pub fn place_of(&self, instruction: u32) -> i32 {
        match self.instruction {
            Instruction::Index(unit) => instruction.cast_signed().saturating_mul(unit),
            Instruction::Pointer => instruction.wrapping_sub(self.code_bytecode as u32).cast_signed(),
        }
    }

    /// Converts the instruction word of a frame to a place in the bytecode, in bytes. Negative before the first instruction.
    pub(super) fn place(&self, code: u64, word: u64) -> i32 {
        match self.instruction {
            Instruction::Index(unit) => (word as u32).cast_signed().saturating_mul(unit),
            Instruction::Pointer => {
                let begin = code.wrapping_add(self.code_bytecode);
                i32::try_from(word.wrapping_sub(begin).cast_signed()).unwrap_or(-1)
            }
        }
    }
}
