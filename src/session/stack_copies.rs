//! Walks the stacks that `perf record --call-graph dwarf` has copied.

use crate::formats::{CodeAt, StackCopy, StackWalker};
use crate::profile::{Names, UserEnd};
use crate::unwind::Arch;
use crate::unwind::recorded::FileTables;
use crate::unwind::walk::{At, Code, Machine, Memory, Piece, Registers, Walked};

/// Bits of code addresses that may be a signature on arm64. Programs have 48 bits, unless they ask for more.
const SIGNATURE: u64 = match Arch::OWN {
    Arch::Aarch64 => 0x7f << 48,
    Arch::X86_64 => 0,
};

/// The bit of [`Registers::valid`] that says that no signal frame was passed.
const NO_SIGNAL: u32 = match Arch::OWN {
    Arch::Aarch64 => 1 << 18,
    Arch::X86_64 => 0,
};

/// Walks copies by the tables of this machine's files.
pub(super) struct CopyWalker {
    tables: FileTables,
    memory: [Piece; 1],
}

impl CopyWalker {
    pub(super) fn boxed() -> Option<Box<dyn StackWalker>> {
        let memory = [Piece { start: 0, bytes: Vec::new() }];
        Some(Box::new(CopyWalker { tables: FileTables::default(), memory }))
    }
}

impl StackWalker for CopyWalker {
    fn walk(
        &mut self,
        names: &Names,
        copy: &StackCopy<'_>,
        code: &dyn Fn(u64) -> CodeAt,
        frames: &mut Vec<(u64, bool)>,
    ) -> UserEnd {
        let [piece] = &mut self.memory;
        piece.start = copy.registers.get(usize::from(Arch::OWN.sp().0)).copied().unwrap_or(0);
        piece.bytes.clear();
        piece.bytes.extend_from_slice(copy.memory);
        let registers = Registers {
            pc: copy.pc,
            values: copy.registers,
            valid: copy.known | NO_SIGNAL,
            is_return: false,
            guessed: false,
            switches: 0,
        };
        let mut walked = Walked::from(&registers, 0);
        let machine = Machine { arch: Arch::OWN, signature: SIGNATURE };
        let end = walked.go_on(machine, Memory(&self.memory), &mut CopiedCode { names, tables: &mut self.tables, code });
        frames.extend(walked.frames.iter().map(|frame| (frame.pc, frame.is_return)));
        end
    }
}

/// The code of the process whose stack is walked.
struct CopiedCode<'a> {
    names: &'a Names,
    tables: &'a mut FileTables,
    code: &'a dyn Fn(u64) -> CodeAt,
}

impl Code for CopiedCode<'_> {
    fn at(&mut self, address: u64) -> At {
        match (self.code)(address) {
            CodeAt::File(object, offset) => self.tables.rule(self.names, object, offset),
            CodeAt::NoFile => At::Anonymous,
            CodeAt::Nothing => At::Nothing,
        }
    }
}
