//! The effect of one instruction of x86_64 on the known state.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess,
    OpKind, Register,
};

use super::abi::{RBP, RSP};
use super::flow::{Flow, is_fork};
use super::jumps::{Jumps, Width};
use super::state::{CFA, Flags, MachineState, Value};

/// DWARF's numbers.
const RAX: usize = 0;
const RCX: usize = 2;
const RDI: usize = 5;
const R11: usize = 11;

/// The usual entry of a jump table: the target's distance from the table.
const OFFSET: Width = Width::signed(4);

/// System calls that make a thread: `clone`, `clone3`. arch/x86/entry/syscalls/syscall_64.tbl.
const CLONES: [u64; 2] = [CLONE, 435];
const CLONE: u64 = 56;
/// System calls that do not return: `rt_sigreturn`, `exit`, `exit_group`.
const LAST: [u64; 3] = [15, 60, 231];

/// Steps over instructions of x86_64.
pub(crate) struct Stepper {
    factory: InstructionInfoFactory,
}

/// Returns the DWARF number of a general register of 64 bits, or of the one that a smaller register is a part of.
fn number(register: Register) -> Option<usize> {
    const DWARF: [usize; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    if !register.is_gpr() {
        return None;
    }
    let hardware = register.full_register().number();
    Some(DWARF.get(hardware).copied().unwrap_or(hardware))
}

/// Returns whether an instruction only fills room between functions.
pub(crate) fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// Returns whether execution never continues behind the instruction.
pub(crate) fn ends_run(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
    ) || matches!(instruction.mnemonic(), Mnemonic::Hlt | Mnemonic::Int3)
}

/// Returns how many bytes at the begin only fill room.
pub(crate) fn padding(code: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    loop {
        let at = decoder.position();
        if !decoder.can_decode() {
            return at;
        }
        if code.get(at..).is_some_and(|rest| rest.starts_with(&[0, 0])) {
            if decoder.set_position(at + 2).is_err() {
                return at;
            }
            continue;
        }
        decoder.decode_out(&mut instruction);
        if !is_padding(&instruction) {
            return if code.get(at..) == Some(&[0]) { code.len() } else { at };
        }
    }
}

/// Returns whether the first instruction that does anything clears rbp.
pub(crate) fn clears_frame_pointer(code: &[u8]) -> bool {
    let mut instructions = Decoder::new(64, code, DecoderOptions::NONE).into_iter();
    let first = instructions.find(|instruction| instruction.mnemonic() != Mnemonic::Endbr64);
    first.is_some_and(|first| {
        first.mnemonic() == Mnemonic::Xor
            && first.op0_register() == first.op1_register()
            && first.op0_register().full_register() == Register::RBP
    })
}

fn immediate(instruction: &Instruction, operand: u32) -> Option<i64> {
    instruction.try_immediate(operand).ok().map(u64::cast_signed)
}

/// Returns the number of an operand that is a general register of 64 bits.
fn wide(instruction: &Instruction, operand: u32) -> Option<usize> {
    let register = if instruction.op_kind(operand) == OpKind::Register { instruction.op_register(operand) } else { return None };
    if register.is_gpr64() { number(register) } else { None }
}

/// Returns the number of an operand that is a general register of any width.
fn any(instruction: &Instruction, operand: u32) -> Option<usize> {
    if instruction.op_kind(operand) == OpKind::Register { number(instruction.op_register(operand)) } else { None }
}

impl Stepper {
    pub(crate) fn new() -> Stepper {
        Stepper { factory: InstructionInfoFactory::new() }
    }

    /// Changes the state to the one behind the instruction, and returns where execution continues.
    pub(crate) fn step(&mut self, instruction: &Instruction, state: &mut MachineState) -> Flow {
        match instruction.mnemonic() {
            // An instruction of the kernel. C libraries use it to end code that must not continue.
            Mnemonic::Hlt => return Flow::End,
            Mnemonic::Syscall => return system_call(state),
            _ => {}
        }
        let near = || instruction.near_branch_target();
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch => return if is_far(instruction) { Flow::End } else { Flow::Jump(near()) },
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                return if is_far(instruction) { Flow::Next } else { Flow::Branch(near()) };
            }
            FlowControl::IndirectBranch => return Flow::Indirect,
            FlowControl::Return => return Flow::Return,
            FlowControl::Call => return if is_far(instruction) { Flow::Next } else { self.call(instruction, state) },
            FlowControl::IndirectCall => return Flow::Call(None),
            FlowControl::Exception => return Flow::End,
            // int3 fills room; other interrupts come back.
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => return Flow::End,
            FlowControl::Interrupt => {}
        }
        if !known(instruction, state) {
            self.anything(instruction, state);
        }
        if instruction.rflags_modified() != 0 {
            state.flags = flags(instruction, state);
        }
        Flow::Next
    }

    fn call(&mut self, instruction: &Instruction, state: &mut MachineState) -> Flow {
        let target = instruction.near_branch_target();
        if target == instruction.next_ip() {
            // The code learns its own address by popping the return address.
            push(state, Value::Unknown, 8);
            return Flow::Next;
        }
        Flow::Call(Some(target))
    }

    /// Forgets all registers and memory that an instruction writes.
    fn anything(&mut self, instruction: &Instruction, state: &mut MachineState) {
        let info = self.factory.info_options(instruction, InstructionInfoOptions::NONE);
        let writes =
            |access| matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
        for memory in info.used_memory().iter().filter(|memory| writes(memory.access())) {
            if memory.index() == Register::None
                && !matches!(memory.segment(), Register::FS | Register::GS)
                && let Some(base) = number(memory.base())
                && let Some(pointer) = add(state.get(base), memory.displacement().cast_signed())
            {
                state.store(pointer, i64::try_from(memory.memory_size().size()).unwrap_or(8), Value::Unknown);
            }
        }
        for register in info.used_registers().iter().filter(|register| writes(register.access())) {
            if let Some(register) = number(register.register()) {
                state.set(register, Value::Unknown);
            }
        }
    }
}

fn is_far(instruction: &Instruction) -> bool {
    !matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

fn system_call(state: &mut MachineState) -> Flow {
    let after = match state.get(RAX) {
        Value::Number(call) if LAST.contains(&call) => return Flow::End,
        Value::Number(CLONE) if is_fork(state.get(RDI)) => Value::Unknown,
        Value::Number(call) if CLONES.contains(&call) => Value::Cloned,
        _ => Value::Unknown,
    };
    state.set(RAX, after);
    state.set(RCX, Value::Unknown);
    state.set(R11, Value::Unknown);
    Flow::Next
}

fn add(value: Value, offset: i64) -> Option<Value> {
    match value {
        Value::Stack(base, at) => Some(Value::Stack(base, at.checked_add(offset)?)),
        Value::Number(number) => Some(Value::Number(number.wrapping_add_signed(offset))),
        _ => None,
    }
}

fn push(state: &mut MachineState, value: Value, size: i64) {
    let top = add(state.get(RSP), -size).unwrap_or(Value::Unknown);
    state.set(RSP, top);
    state.store(top, size, value);
}

/// Returns the pointer of a memory operand, if it is a number or points to the stack.
fn pointer(instruction: &Instruction, state: &MachineState) -> Option<Value> {
    if matches!(instruction.memory_segment(), Register::FS | Register::GS) || instruction.memory_index() != Register::None {
        return None;
    }
    if instruction.is_ip_rel_memory_operand() {
        return Some(Value::Number(instruction.ip_rel_memory_address()));
    }
    let base = instruction.memory_base();
    let displacement = instruction.memory_displacement64().cast_signed();
    if base == Register::None {
        return Some(Value::Number(displacement.cast_unsigned()));
    }
    if base.is_gpr64() { add(state.get(number(base)?), displacement) } else { None }
}

/// Applies an instruction that moves stack pointers or saved registers. Returns whether it was one.
fn known(instruction: &Instruction, state: &mut MachineState) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Push => {
            let size = i64::from(-instruction.stack_pointer_increment());
            let value = wide(instruction, 0).map_or(Value::Unknown, |register| state.get(register));
            push(state, value, size);
        }
        Mnemonic::Pushfq => push(state, Value::Unknown, 8),
        Mnemonic::Pop if instruction.stack_pointer_increment() == 8 && instruction.op0_kind() == OpKind::Register => {
            let (top, Some(register)) = (state.get(RSP), wide(instruction, 0)) else { return false };
            let value = state.load(top);
            state.set(RSP, add(top, 8).unwrap_or(Value::Unknown));
            state.set(register, value);
        }
        Mnemonic::Popfq => {
            let top = add(state.get(RSP), 8).unwrap_or(Value::Unknown);
            state.set(RSP, top);
        }
        Mnemonic::Leave => {
            let frame = state.get(RBP);
            let saved = state.load(frame);
            match add(frame, 8) {
                Some(top @ Value::Stack(..)) => state.set(RSP, top),
                _ => state.lose_stack(),
            }
            state.set(RBP, saved);
        }
        Mnemonic::Mov | Mnemonic::Movsxd => return moves(instruction, state),
        Mnemonic::Lea => return loads_address(instruction, state),
        // lock or [rsp], 0: a barrier, which does not change the return address.
        Mnemonic::Or | Mnemonic::Add if instruction.op0_kind() == OpKind::Memory && immediate(instruction, 1) == Some(0) => {}
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Xor => return computes(instruction, state),
        Mnemonic::Xchg => {
            let (Some(one), Some(other)) = (wide(instruction, 0), wide(instruction, 1)) else { return false };
            let (first, second) = (state.get(one), state.get(other));
            state.set(one, second);
            state.set(other, first);
        }
        _ => return false,
    }
    true
}

fn moves(instruction: &Instruction, state: &mut MachineState) -> bool {
    let from_memory = instruction.op1_kind() == OpKind::Memory;
    if instruction.mnemonic() == Mnemonic::Movsxd {
        // movslq (table, index, 4), register
        let Some(register) = wide(instruction, 0).filter(|_| from_memory && instruction.memory_index_scale() == 4) else {
            return false;
        };
        let base = number(instruction.memory_base()).map(|base| state.get(base));
        let Some(Value::Number(table)) = base.filter(|_| instruction.memory_index() != Register::None) else { return false };
        state.set(register, Value::TableEntry(table.wrapping_add(instruction.memory_displacement64()), OFFSET));
        return true;
    }
    if let Some(register) = wide(instruction, 0) {
        if let Some(other) = wide(instruction, 1) {
            state.set(register, state.get(other));
            return true;
        }
        if let Some(value) = immediate(instruction, 1) {
            state.set(register, Value::Number(value.cast_unsigned()));
            return true;
        }
        if from_memory {
            let value = pointer(instruction, state).map_or(Value::Unknown, |pointer| state.load(pointer));
            state.set(register, value);
            return true;
        }
        return false;
    }
    if let Some(register) = any(instruction, 0) {
        let (Some(value), operand) = (immediate(instruction, 1), instruction.op_register(0)) else { return false };
        let value = match (state.get(register), operand) {
            _ if operand.is_gpr32() => Value::Number(u64::from(value as u32)),
            // mov $56, %al
            (Value::Number(before), _) if operand.is_gpr8() && operand == low_byte(register) => {
                Value::Number(before & !0xff | u64::from(value as u8))
            }
            _ => Value::Unknown,
        };
        state.set(register, value);
        return true;
    }
    if instruction.op0_kind() == OpKind::Memory && instruction.memory_index() == Register::None {
        let value = wide(instruction, 1).map_or(Value::Unknown, |register| state.get(register));
        if let Some(pointer) = pointer(instruction, state) {
            state.store(pointer, i64::try_from(instruction.memory_size().size()).unwrap_or(8), value);
        }
        // Only memory is written.
        return true;
    }
    false
}

/// Returns the low byte of rax. Other registers do not matter.
fn low_byte(register: usize) -> Register {
    if register == RAX { Register::AL } else { Register::None }
}

fn loads_address(instruction: &Instruction, state: &mut MachineState) -> bool {
    let Some(register) = wide(instruction, 0) else { return false };
    if let Some(value) = pointer(instruction, state) {
        state.set(register, value);
        return true;
    }
    let base = number(instruction.memory_base()).map(|base| state.get(base));
    let value = if matches!(base, Some(Value::Stack(..))) { state.new_base(instruction.ip()) } else { Value::Unknown };
    state.set(register, value);
    true
}

fn computes(instruction: &Instruction, state: &mut MachineState) -> bool {
    let mnemonic = instruction.mnemonic();
    if mnemonic == Mnemonic::Xor {
        let same = instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op_register(0) == instruction.op_register(1)
            && (instruction.op_register(0).is_gpr32() || instruction.op_register(0).is_gpr64());
        return same && any(instruction, 0).map(|register| state.set(register, Value::Number(0))).is_some();
    }
    let Some(register) = wide(instruction, 0) else { return false };
    let value = state.get(register);
    let by = immediate(instruction, 1);
    let result = match (mnemonic, value, by) {
        (Mnemonic::Add, _, Some(by)) => add(value, by),
        (Mnemonic::Sub, _, Some(by)) => by.checked_neg().and_then(|by| add(value, by)),
        (Mnemonic::Add, _, None) => match (value, wide(instruction, 1).map(|other| state.get(other))) {
            (Value::Number(base), Some(Value::TableEntry(table, width)))
            | (Value::TableEntry(table, width), Some(Value::Number(base))) => {
                (table == base).then_some(Value::Target(Jumps { table, base, width }))
            }
            _ => None,
        },
        _ => None,
    };
    let result = result.unwrap_or_else(|| match value {
        // Moved down by an unknown amount, or aligned: another place of the same stack.
        Value::Stack(..) if register == RSP || mnemonic == Mnemonic::And => state.new_base(instruction.ip()),
        _ => Value::Unknown,
    });
    state.set(register, result);
    true
}

fn flags(instruction: &Instruction, state: &MachineState) -> Flags {
    let same = instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op_register(0) == instruction.op_register(1);
    let first = any(instruction, 0).map(|register| state.get(register));
    match (instruction.mnemonic(), immediate(instruction, 1)) {
        (Mnemonic::Test, _) if same && first == Some(Value::Cloned) => Flags::Cloned,
        (Mnemonic::Cmp, Some(0)) if first == Some(Value::Cloned) => Flags::Cloned,
        (Mnemonic::Cmp, Some(number)) if number >= 0 => Flags::Compared(number.cast_unsigned()),
        _ => Flags::Unknown,
    }
}

/// Returns the states where a branch is taken and where it is not. The branch itself may add facts to each.
pub(crate) fn branches(instruction: &Instruction, state: &MachineState) -> (MachineState, MachineState) {
    let (mut taken, mut not) = (state.clone(), state.clone());
    match (instruction.mnemonic(), state.flags) {
        (Mnemonic::Je, Flags::Cloned) => taken.root = true,
        (Mnemonic::Jne, Flags::Cloned) => not.root = true,
        (Mnemonic::Ja, Flags::Compared(number)) => not.limit = number.checked_add(1),
        (Mnemonic::Jae, Flags::Compared(number)) => not.limit = Some(number),
        (Mnemonic::Jbe, Flags::Compared(number)) => taken.limit = number.checked_add(1),
        (Mnemonic::Jb, Flags::Compared(number)) => taken.limit = Some(number),
        _ => {}
    }
    (taken, not)
}

/// Returns the table of an indirect jump, if it jumps by a table.
pub(crate) fn table_of(instruction: &Instruction, state: &MachineState) -> Option<Jumps> {
    if let Some(register) = wide(instruction, 0) {
        return match state.get(register) {
            Value::Target(jumps) => Some(jumps),
            _ => None,
        };
    }
    if instruction.op0_kind() != OpKind::Memory
        || instruction.memory_index() == Register::None
        || instruction.memory_index_scale() != 8
    {
        return None;
    }
    let displacement = instruction.memory_displacement64();
    match number(instruction.memory_base()).map(|base| state.get(base)) {
        None if instruction.memory_base() == Register::None => Some(Jumps::absolute(displacement)),
        Some(Value::Number(table)) => Some(Jumps::absolute(table.wrapping_add(displacement))),
        _ => None,
    }
}

/// Returns whether an indirect jump leads to the return address, which is in its register.
pub(crate) fn returns_by_register(instruction: &Instruction, state: &MachineState) -> bool {
    let at = wide(instruction, 0).map(|register| state.get(register));
    at == Some(Value::Return) && state.get(RSP) == Value::Stack(CFA, 0)
}

/// Returns an address in the code that the instruction takes: mostly of a function that will be called.
pub(crate) fn reference(instruction: &Instruction, is_fixed: bool) -> Option<u64> {
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
        // Only in programs that can be loaded at one place only.
        Mnemonic::Mov | Mnemonic::Push if is_fixed => {
            let operand = u32::from(instruction.mnemonic() == Mnemonic::Mov);
            immediate(instruction, operand).map(i64::cast_unsigned)
        }
        _ => None,
    }
}
