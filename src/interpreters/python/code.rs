//! Code objects: what a function is called, and where it is in the source.

use super::layout::{Instruction, Layout};
use super::lines::Lines;
use super::text;
use crate::interpreters::Memory;

/// Characters of a function's name, and of a file's, that are read.
pub const MAX_NAME: u64 = 512;
/// See [`MAX_NAME`].
pub const MAX_FILE: u64 = 1024;
/// Bytes of a line table that are read: those of some 2,000 lines. Later lines of a longer function are not known.
const MAX_LINES: u64 = 16 << 10;
/// Where the length of a byte string is, and where its bytes begin.
const BYTES_LENGTH: u64 = 16;
const BYTES: u64 = 32;

/// A function of Python, as its code object tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// Its name, from 3.11 on with the classes and functions it is in: `Server.handle.<locals>.reply`. `<module>` for the code of a file.
    pub name: String,
    /// The file it was compiled from. Not a path where it begins with `<`, such as `<frozen importlib._bootstrap>`.
    pub file: String,
    /// The line of its `def`.
    pub first_line: u32,
    /// The lines of its instructions.
    pub lines: Lines,
}

impl Code {
    /// Reads the code object at an address. Returns `None` if something else is there.
    pub fn read(memory: &impl Memory, layout: &Layout, address: u64) -> Option<Code> {
        let pointer = |offset: u64| memory.u64(address.checked_add(offset)?);
        let name = text::read(memory, layout, pointer(layout.code_name)?, MAX_NAME)?;
        let file = text::read(memory, layout, pointer(layout.code_file)?, MAX_FILE)?;
        let first_line = memory.u32(address.checked_add(layout.code_first_line)?)?;
        let lines = pointer(layout.code_lines)?;
        let length = memory.u64(lines.checked_add(BYTES_LENGTH)?)?;
        // A function without a table has no lines, but all the rest.
        let table = memory.bytes(lines.checked_add(BYTES)?, length.min(MAX_LINES), MAX_LINES).unwrap_or_default();
        Some(Code { name, file, first_line, lines: Lines::new(layout.lines, table, first_line, length > MAX_LINES) })
    }

    /// A mix of words of a code object: another one at its address has another. BPF makes the same (`code_check`). Returns zero if the memory
    /// cannot be read.
    pub fn check(memory: &impl Memory, layout: &Layout, address: u64) -> u32 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut words = [0; 32];
        if !address.checked_add(layout.code_check).is_some_and(|at| memory.read(at, &mut words)) {
            return 0;
        }
        let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        (words.fold(0, |mix: u64, word| (mix ^ word).wrapping_mul(FACTOR)) >> 32) as u32
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        size_of::<Code>() - size_of::<Lines>() + self.name.len() + self.file.len() + self.lines.size()
    }

    /// Whether it is a function that the interpreter puts in between, and that nobody has written.
    pub fn is_shim(&self) -> bool {
        matches!((&*self.name, &*self.file), ("__init__", "__init__") | ("<interpreter trampoline>", _) | (_, "<shim>"))
    }
}

impl Layout {
    /// The place in the bytecode of an instruction as BPF sends it: its number, or its distance from the code object.
    pub fn place_of(&self, instruction: u32) -> i32 {
        match self.instruction {
            Instruction::Index(unit) => instruction.cast_signed().saturating_mul(unit),
            Instruction::Pointer => instruction.wrapping_sub(self.code_bytecode as u32).cast_signed(),
        }
    }

    /// The place in the bytecode that a frame's word stands for, in bytes; before the first instruction negative.
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
