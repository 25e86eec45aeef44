//! The common interface of the two machines: instructions, one after the other.

use super::flow::Flow;
use super::jumps::Jumps;
use super::state::MachineState;
use super::{aarch64, x86};
use crate::object::headers::Arch;

pub(crate) enum Instruction {
    X86(iced_x86::Instruction),
    Aarch64(aarch64::Instruction),
}

impl Instruction {
    pub(crate) fn address(&self) -> u64 {
        match self {
            Instruction::X86(instruction) => instruction.ip(),
            Instruction::Aarch64(instruction) => instruction.address,
        }
    }

    /// Returns whether it only fills room between functions.
    pub(crate) fn is_padding(&self) -> bool {
        match self {
            Instruction::X86(instruction) => x86::is_padding(instruction),
            Instruction::Aarch64(instruction) => aarch64::is_padding(instruction.word),
        }
    }

    /// Returns whether a return takes arguments off the stack as well.
    pub(crate) fn pops(&self) -> bool {
        matches!(self, Instruction::X86(instruction) if instruction.op_count() > 0)
    }

    /// Returns whether execution never continues behind it.
    pub(crate) fn ends_run(&self) -> bool {
        match self {
            Instruction::X86(instruction) => x86::ends_run(instruction),
            Instruction::Aarch64(instruction) => aarch64::ends_run(*instruction),
        }
    }

    /// Returns an address in the code that the instruction takes: mostly of a function that will be called.
    pub(crate) fn reference(&self, state: &MachineState, is_fixed: bool) -> Option<u64> {
        match self {
            Instruction::X86(instruction) => x86::reference(instruction, is_fixed),
            Instruction::Aarch64(instruction) => aarch64::reference(*instruction, state),
        }
    }

    /// Returns the states where a branch is taken and where it is not. The branch itself may add facts to each.
    pub(crate) fn branches(&self, state: &MachineState) -> (MachineState, MachineState) {
        match self {
            Instruction::X86(instruction) => x86::branches(instruction, state),
            Instruction::Aarch64(instruction) => aarch64::branches(*instruction, state),
        }
    }

    /// Returns the table of an indirect jump, if it jumps by a table.
    pub(crate) fn table(&self, state: &MachineState) -> Option<Jumps> {
        match self {
            Instruction::X86(instruction) => x86::table_of(instruction, state),
            Instruction::Aarch64(instruction) => aarch64::table_of(*instruction, state),
        }
    }

    /// Returns whether an indirect jump leads to the return address, which is in its register.
    pub(crate) fn returns_by_register(&self, state: &MachineState) -> bool {
        match self {
            Instruction::X86(instruction) => x86::returns_by_register(instruction, state),
            Instruction::Aarch64(instruction) => aarch64::returns_by_register(*instruction, state),
        }
    }
}

/// Instructions of a piece of code.
pub(crate) enum Decoder<'c> {
    X86(Box<iced_x86::Decoder<'c>>),
    Aarch64 { address: u64, code: &'c [u8] },
}

impl<'c> Decoder<'c> {
    pub(crate) fn new(arch: Arch, code: &'c [u8], address: u64) -> Decoder<'c> {
        match arch {
            Arch::X86_64 => Decoder::X86(Box::new(iced_x86::Decoder::with_ip(64, code, address, iced_x86::DecoderOptions::NONE))),
            Arch::Aarch64 => Decoder::Aarch64 { address, code },
        }
    }

    /// Returns the address of the next instruction.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Decoder::X86(decoder) => decoder.ip(),
            Decoder::Aarch64 { address, .. } => *address,
        }
    }

    pub(crate) fn can_decode(&self) -> bool {
        match self {
            Decoder::X86(decoder) => decoder.can_decode(),
            Decoder::Aarch64 { code, .. } => code.len() >= 4,
        }
    }

    /// Returns the next instruction; `None` if the bytes are none. Steps over such bytes are not reliable.
    pub(crate) fn decode(&mut self) -> Option<Instruction> {
        match self {
            Decoder::X86(decoder) => {
                let instruction = decoder.decode();
                (!instruction.is_invalid()).then_some(Instruction::X86(instruction))
            }
            Decoder::Aarch64 { address, code } => {
                let (word, rest) = code.split_first_chunk()?;
                let instruction = aarch64::Instruction { address: *address, word: u32::from_le_bytes(*word) };
                (*address, *code) = (address.wrapping_add(4), rest);
                aarch64::is_known(instruction.word).then_some(Instruction::Aarch64(instruction))
            }
        }
    }
}

/// Steps over instructions.
pub(crate) struct Stepper(x86::Stepper);

impl Stepper {
    pub(crate) fn new() -> Stepper {
        Stepper(x86::Stepper::new())
    }

    /// Changes the state to the one behind the instruction, and returns where execution continues.
    pub(crate) fn step(&mut self, instruction: &Instruction, state: &mut MachineState) -> Flow {
        match instruction {
            Instruction::X86(instruction) => self.0.step(instruction, state),
            Instruction::Aarch64(instruction) => aarch64::step(*instruction, state),
        }
    }
}

/// Returns whether code marks its frame as the outermost by its first instruction: psABI for AMD64, 3.4.1; AAPCS64, 6.4.6.
pub(crate) fn clears_frame_pointer(arch: Arch, code: &[u8]) -> bool {
    match arch {
        Arch::X86_64 => x86::clears_frame_pointer(code),
        Arch::Aarch64 => aarch64::clears_frame_pointer(code),
    }
}

/// Returns how many bytes at the begin only fill room: nops, int3, zeros.
pub(crate) fn padding(arch: Arch, code: &[u8]) -> usize {
    match arch {
        Arch::X86_64 => x86::padding(code),
        Arch::Aarch64 => {
            let word = |word: &&[u8]| word.first_chunk().is_none_or(|word| aarch64::is_padding(u32::from_le_bytes(*word)));
            // An incomplete instruction is no padding.
            code.chunks(4).take_while(word).map(<[u8]>::len).sum()
        }
    }
}

/// Returns the number of bytes up to the end of the code that runs in sequence.
pub(crate) fn run_length(arch: Arch, code: &[u8]) -> usize {
    let mut decoder = Decoder::new(arch, code, 0);
    while decoder.can_decode() {
        let Some(instruction) = decoder.decode() else { break };
        if instruction.ends_run() {
            break;
        }
    }
    (decoder.address() as usize).max(1)
}

/// Returns where calls in code that is not followed may lead, with the calls: by their first byte or word.
pub(crate) fn calls(arch: Arch, code: &[u8], address: u64) -> Vec<(u64, u64)> {
    match arch {
        Arch::X86_64 => memchr::memchr_iter(0xe8, code)
            .filter_map(|at| {
                let displacement = i32::from_le_bytes(*code.get(at + 1..)?.first_chunk()?);
                let call = address + at as u64;
                Some((call, call.wrapping_add(5).wrapping_add_signed(displacement.into())))
            })
            .collect(),
        Arch::Aarch64 => (address..)
            .step_by(4)
            .zip(code.chunks_exact(4).filter_map(|word| word.first_chunk()))
            .filter_map(|(call, word)| Some((call, aarch64::called(call, u32::from_le_bytes(*word))?)))
            .collect(),
    }
}

/// Returns whether the code behind a call shows that the call never returns: a trap.
pub(crate) fn ends_here(arch: Arch, behind: &[u8]) -> bool {
    match arch {
        // int3; ud2
        Arch::X86_64 => matches!(behind, [0xcc, ..] | [0x0f, 0x0b, ..]),
        // brk
        Arch::Aarch64 => behind.first_chunk().is_some_and(|word| u32::from_le_bytes(*word) & 0xffe0_001f == 0xd420_0000),
    }
}
