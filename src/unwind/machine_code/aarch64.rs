//! The effect of one instruction of arm64 on the known state.
//!
//! Arm Architecture Reference Manual (DDI 0487), C4.1: by bits 28 to 25 an instruction is of one of these groups.
//!
//! ```text
//! 100x  data processing, immediate      adr, add, sub, mov
//! 101x  branches, system                b, bl, ret, svc, hints: signing of return addresses, which changes nothing here
//! x1x0  loads and stores                ([`super::memory`])
//! x101  data processing, registers      add, sub, mov; its others only write a register
//! x111  vectors, floating point         some write a general register
//! 0010  SVE                             the same; its stores are taken to be anywhere on the stack
//! ```
//!
//! Code outside these groups counts as no instruction: then nothing is proved.

use super::abi::{LR, SP};
use super::flow::{Flow, is_fork};
use super::jumps::{Jumps, Width};
use super::memory;
use super::state::{Flags, MachineState, Value};
use super::words::{add, bits, get, is, register, set, signed};

/// System calls that make a thread: `clone`, `clone3`. include/uapi/asm-generic/unistd.h.
const CLONES: [u64; 2] = [CLONE, 435];
const CLONE: u64 = 220;
/// System calls that do not return: `exit`, `exit_group`, `rt_sigreturn`.
const LAST: [u64; 3] = [93, 94, 139];

const NOP: u32 = 0xd503_201f;
const BTI_C: u32 = 0xd503_245f;

#[derive(Clone, Copy)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    pub(crate) word: u32,
}

/// Returns whether an instruction only fills room between functions.
pub(crate) fn is_padding(word: u32) -> bool {
    word == NOP || word == 0
}

/// Returns whether execution never continues behind the instruction.
pub(crate) fn ends_run(Instruction { word, .. }: Instruction) -> bool {
    // b; br, ret and their kind, but not blr; brk, hlt
    is(word, 0xfc00_0000, 0x1400_0000)
        || is(word, 0xfe00_0000, 0xd600_0000) && !is_call_by_register(word)
        || is(word, 0xff00_0000, 0xd400_0000) && matches!(bits(word, 21, 3), 1 | 2)
}

/// Returns whether it is a `blr`, `blraa` or similar.
fn is_call_by_register(word: u32) -> bool {
    is(word, 0xfe60_0000, 0xd620_0000)
}

/// Returns the target of a `bl`.
pub(crate) fn called(address: u64, word: u32) -> Option<u64> {
    is(word, 0xfc00_0000, 0x9400_0000).then(|| address.wrapping_add_signed(signed(word, 0, 26) * 4))
}

/// Returns whether the code begins with `mov x29, 0`, perhaps behind a `bti c`.
pub(crate) fn clears_frame_pointer(code: &[u8]) -> bool {
    let mut words = code.chunks_exact(4).filter_map(|word| word.first_chunk()).map(|word| u32::from_le_bytes(*word));
    words.find(|word| *word != BTI_C) == Some(0xd280_001d)
}

/// Returns whether the instruction is of a group that is understood.
pub(crate) fn is_known(word: u32) -> bool {
    match bits(word, 25, 4) {
        0b1000 | 0b1001 | 0b0101 | 0b1101 | 0b0111 | 0b1111 | 0b0010 => true,
        // The whole group except compare and branch (2024), and encodings without a name.
        0b1010 | 0b1011 => !is(word, 0x7f00_0000, 0x7400_0000) && !is(word, 0x7800_0000, 0x7800_0000),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory::is_known(word),
        _ => false,
    }
}

/// Changes the state to the one behind the instruction, and returns where execution continues.
pub(crate) fn step(instruction: Instruction, state: &mut MachineState) -> Flow {
    let Instruction { address, word } = instruction;
    match bits(word, 25, 4) {
        0b1000 | 0b1001 => immediate(instruction, state),
        0b1010 | 0b1011 => return branch(address, word, state),
        0b0101 | 0b1101 => by_registers(instruction, state),
        0b0111 | 0b1111 => vector(word, state),
        0b0010 => scalable(word, state),
        _ => memory::step(word, state),
    }
    Flow::Next
}

fn branch(address: u64, word: u32, state: &mut MachineState) -> Flow {
    let near = |low, count| address.wrapping_add_signed(signed(word, low, count) * 4);
    match bits(word, 29, 3) {
        0b000 => Flow::Jump(near(0, 26)),
        0b100 => Flow::Call(Some(near(0, 26))),
        // tbz, tbnz; cbz, cbnz
        0b001 | 0b101 if word >> 25 & 1 == 1 => Flow::Branch(near(5, 14)),
        0b001 | 0b101 => Flow::Branch(near(5, 19)),
        // b.al, b.nv: always
        0b010 if bits(word, 1, 3) == 7 => Flow::Jump(near(5, 19)),
        0b010 => Flow::Branch(near(5, 19)),
        _ if word >> 25 & 1 == 1 => by_register(word),
        _ => system(word, state),
    }
}

fn by_register(word: u32) -> Flow {
    match bits(word, 21, 4) {
        0b0001 | 0b1001 => Flow::Call(None),
        // retaa, retab have no register.
        0b0010 if register(word, 5) == LR || bits(word, 10, 6) != 0 => Flow::Return,
        0b0000 | 0b1000 | 0b0010 => Flow::Indirect,
        // eret, drps: the kernel's
        _ => Flow::End,
    }
}

fn system(word: u32, state: &mut MachineState) -> Flow {
    if word >> 24 == 0xd4 {
        return match (bits(word, 21, 3), bits(word, 0, 2)) {
            (0, 1) => system_call(state),
            (1 | 2, _) => Flow::End,
            _ => Flow::Next,
        };
    }
    // Hints: chkfeat writes x16, signing by pairs of registers writes x17. After signing, x30 still counts as the return address.
    if is(word, 0xffff_f01f, 0xd503_201f) {
        match bits(word, 5, 7) {
            8 | 10 | 12 | 14 => state.set(17, Value::Unknown),
            40 => state.set(16, Value::Unknown),
            _ => {}
        }
    } else if word >> 21 & 1 == 1 {
        // mrs, sysl; of two registers
        set(state, register(word, 0), Value::Unknown);
        if word >> 22 & 1 == 1 {
            set(state, register(word, 0) + 1, Value::Unknown);
        }
    }
    Flow::Next
}

fn system_call(state: &mut MachineState) -> Flow {
    let after = match state.get(8) {
        Value::Number(call) if LAST.contains(&call) => return Flow::End,
        Value::Number(CLONE) if is_fork(state.get(0)) => Value::Unknown,
        Value::Number(call) if CLONES.contains(&call) => Value::Cloned,
        _ => Value::Unknown,
    };
    state.set(0, after);
    Flow::Next
}

/// Writes the result of an addition, also to the stack pointer.
fn write_sum(address: u64, to: usize, from: Value, sum: Option<Value>, state: &mut MachineState) {
    let value = sum.unwrap_or_else(|| match from {
        // Moved down by an unknown amount, or aligned: another place of the same stack.
        Value::Stack(..) if to == SP => state.new_base(address),
        _ => Value::Unknown,
    });
    state.set(to, value);
}

fn immediate(Instruction { address, word }: Instruction, state: &mut MachineState) {
    let (to, from, wide) = (register(word, 0), register(word, 5), word >> 31 == 1);
    match bits(word, 23, 3) {
        0b000 | 0b001 => set(state, to, Value::Number(address_of(address, word))),
        0b010 => {
            let number = summand(word);
            let value = state.get(from);
            if word >> 29 & 1 == 1 {
                state.flags = compared(word, value, Some(number.unsigned_abs()));
                let sum = add(value, number).filter(|_| wide).unwrap_or(Value::Unknown);
                return set(state, to, sum);
            }
            write_sum(address, to, value, add(value, number).filter(|_| wide), state);
        }
        // addg, subg and others: never of a stack pointer that matters.
        0b011 => state.set(to, Value::Unknown),
        0b100 if bits(word, 29, 2) == 3 => {
            state.flags = Flags::Unknown;
            set(state, to, Value::Unknown);
        }
        0b100 => {
            // and sp, x1, -16
            let value = get(state, from);
            let aligned = bits(word, 29, 2) == 0 && wide && matches!(value, Value::Stack(..));
            let value = if aligned { state.new_base(address) } else { Value::Unknown };
            state.set(to, value);
        }
        0b101 => {
            let (shift, number) = (16 * bits(word, 21, 2), u64::from(bits(word, 5, 16)));
            let value = match (bits(word, 29, 2), get(state, to)) {
                (0, _) if wide => Value::Number(!(number << shift)),
                (2, _) => Value::Number(number << shift),
                (3, Value::Number(before)) => Value::Number(before & !(0xffff << shift) | number << shift),
                _ => Value::Unknown,
            };
            set(state, to, value);
        }
        // Parts of registers; rd is 31 where an address is authenticated.
        _ => set(state, to, Value::Unknown),
    }
}

/// Returns the address that `adr` or `adrp` loads.
fn address_of(address: u64, word: u32) -> u64 {
    let offset = signed(word, 5, 19) << 2 | i64::from(bits(word, 29, 2));
    if word >> 31 == 1 { (address & !0xfff).wrapping_add_signed(offset << 12) } else { address.wrapping_add_signed(offset) }
}

/// Returns the number that `add` or `sub` of an immediate adds.
fn summand(word: u32) -> i64 {
    let number = i64::from(bits(word, 10, 12)) << if word >> 22 & 1 == 1 { 12 } else { 0 };
    if word >> 30 & 1 == 1 { -number } else { number }
}

/// Returns the flags of an addition or subtraction that sets them.
fn compared(word: u32, first: Value, by: Option<u64>) -> Flags {
    match (word >> 30 & 1 == 1, first, by) {
        (true, Value::Cloned, Some(0)) => Flags::Cloned,
        (true, _, Some(number)) => Flags::Compared(number),
        _ => Flags::Unknown,
    }
}

fn by_registers(Instruction { address, word }: Instruction, state: &mut MachineState) {
    let (to, wide) = (register(word, 0), word >> 31 == 1);
    let sets_flags = word >> 29 & 1 == 1;
    if is(word, 0x1f00_0000, 0x0b00_0000) {
        let extends = word >> 21 & 1 == 1;
        // The stack pointer is only among the extended ones.
        let first = if extends { state.get(register(word, 5)) } else { get(state, register(word, 5)) };
        let other = get(state, register(word, 16));
        let shift = if extends { bits(word, 10, 3) } else { bits(word, 10, 6) };
        let whole = if extends { bits(word, 13, 2) == 3 } else { bits(word, 22, 2) == 0 };
        let number = match other {
            Value::Number(number) if whole && shift < 64 => Some(number << shift),
            _ => None,
        };
        let sum = number.filter(|_| wide).and_then(|number| {
            let number = number.cast_signed();
            add(first, if word >> 30 & 1 == 1 { number.checked_neg()? } else { number })
        });
        if sets_flags {
            state.flags = compared(word, first, number);
            return set(state, to, sum.unwrap_or(Value::Unknown));
        }
        let adds = word >> 30 & 1 == 0 && wide;
        let target = if adds { target(word, first, other, extends, shift) } else { None };
        if extends {
            write_sum(address, to, first, sum.or(target), state);
        } else {
            set(state, to, sum.or(target).unwrap_or(Value::Unknown));
        }
        return;
    }
    // mov: orr with zero
    if is(word, 0xffe0_ffe0, 0xaa00_03e0) {
        let value = get(state, register(word, 16));
        return set(state, to, value);
    }
    // A move of 32 bits keeps only the facts that matter here.
    if is(word, 0xffe0_ffe0, 0x2a00_03e0) {
        let value = match get(state, register(word, 16)) {
            Value::Cloned => Value::Cloned,
            Value::Number(number) => Value::Number(number & 0xffff_ffff),
            _ => Value::Unknown,
        };
        return set(state, to, value);
    }
    // Signing and authenticating by one register: the address stays what it is.
    if is(word, 0xffff_0000, 0xdac1_0000) {
        return;
    }
    // ccmp and ccmn write flags and no register; also ands, bics, and adcs with its neighbours
    let conditional = is(word, 0x1fe0_0000, 0x1a40_0000);
    if conditional || is(word, 0x7f00_0000, 0x6a00_0000) || is(word, 0x1fe0_0000, 0x1a00_0000) {
        state.flags = Flags::Unknown;
    }
    if !conditional {
        set(state, to, Value::Unknown);
    }
}

/// Returns the sum of a table's entry and the place that the entry counts from.
fn target(word: u32, first: Value, other: Value, extends: bool, shift: u32) -> Option<Value> {
    let (base, table, width, shift) = match (first, other) {
        (Value::Number(base), Value::TableEntry(table, width)) => (base, table, width, shift),
        (Value::TableEntry(table, width), Value::Number(base)) if shift == 0 && !extends => (base, table, width, 0),
        _ => return None,
    };
    let mut width = Width { shift: u8::try_from(shift).ok()?, ..width };
    if extends {
        // sxtb, sxth, sxtw: the entry again, now with its sign.
        let (bytes, signed) = (1 << bits(word, 13, 2), bits(word, 15, 1) == 1);
        if bytes == width.bytes && !width.signed {
            width.signed = signed;
        } else if bytes < 8 && (bytes <= width.bytes || width.signed) {
            return None;
        }
    }
    Some(Value::Target(Jumps { table, base, width }))
}

fn vector(word: u32, state: &mut MachineState) {
    // fcmp; fccmp
    if is(word, 0xff20_fc00, 0x1e20_2000) || is(word, 0xff20_0c00, 0x1e20_0400) {
        state.flags = Flags::Unknown;
    }
    let opcode = bits(word, 16, 3);
    let writes = is(word, 0x5f20_fc00, 0x1e20_0000) && !matches!(opcode, 2 | 3 | 7) // fcvt.., fmov
        || is(word, 0x5f20_0000, 0x1e00_0000) && matches!(opcode, 0 | 1) // the same of fixed point
        || is(word, 0xbfe0_fc00, 0x0e00_2c00) // smov
        || is(word, 0xbfe0_fc00, 0x0e00_3c00); // umov
    if writes {
        set(state, register(word, 0), Value::Unknown);
    }
}

/// Applies an instruction of SVE. A list of the registers that each instruction writes would be long. The field of the written
/// register may name a general register or another kind, so both count as written. A store's place is a multiple of a length that
/// is unknown here.
fn scalable(word: u32, state: &mut MachineState) {
    let to = register(word, 0);
    state.flags = Flags::Unknown;
    // addvl, addpl; addsvl, addspl
    if is(word, 0xffa0_f000, 0x0420_5000) {
        let value = if to == SP { state.new_base(u64::from(word)) } else { Value::Unknown };
        return state.set(to, value);
    }
    if word >> 29 == 7 {
        return state.store_anywhere(state.get(register(word, 5)));
    }
    set(state, to, Value::Unknown);
}

/// Returns the states where a branch is taken and where it is not. The branch itself may add facts to each.
pub(crate) fn branches(Instruction { word, .. }: Instruction, state: &MachineState) -> (MachineState, MachineState) {
    let (mut taken, mut not) = (state.clone(), state.clone());
    // cbz, cbnz
    if is(word, 0x7e00_0000, 0x3400_0000) {
        if get(state, register(word, 0)) == Value::Cloned {
            let thread = if word >> 24 & 1 == 0 { &mut taken } else { &mut not };
            thread.root = true;
        }
        return (taken, not);
    }
    if word >> 24 != 0x54 {
        return (taken, not);
    }
    const EQ: u32 = 0;
    const NE: u32 = 1;
    const HS: u32 = 2;
    const LO: u32 = 3;
    const HI: u32 = 8;
    const LS: u32 = 9;
    match (bits(word, 0, 4), state.flags) {
        (EQ, Flags::Cloned) => taken.root = true,
        (NE, Flags::Cloned) => not.root = true,
        (HI, Flags::Compared(number)) => not.limit = number.checked_add(1),
        (LS, Flags::Compared(number)) => taken.limit = number.checked_add(1),
        (HS, Flags::Compared(number)) => not.limit = Some(number),
        (LO, Flags::Compared(number)) => taken.limit = Some(number),
        _ => {}
    }
    (taken, not)
}

/// Returns the table of an indirect jump, if it jumps by a table.
pub(crate) fn table_of(Instruction { word, .. }: Instruction, state: &MachineState) -> Option<Jumps> {
    match state.get(register(word, 5)) {
        Value::Target(jumps) => Some(jumps),
        Value::TableEntry(table, Width { bytes: 8, .. }) => Some(Jumps::absolute(table)),
        _ => None,
    }
}

/// Returns whether an indirect jump leads to the return address, in another register than its own.
pub(crate) fn returns_by_register(Instruction { word, .. }: Instruction, state: &MachineState) -> bool {
    state.get(register(word, 5)) == Value::Return && state.stack_pointer() == Value::Stack(super::state::CFA, 0)
}

/// Returns an address in the code that the instruction takes.
pub(crate) fn reference(Instruction { address, word }: Instruction, state: &MachineState) -> Option<u64> {
    // adr; add to what adrp has loaded
    if is(word, 0x9f00_0000, 0x1000_0000) {
        return Some(address_of(address, word));
    }
    match state.get(register(word, 5)) {
        Value::Number(page) if is(word, 0xff00_0000, 0x9100_0000) => Some(page.wrapping_add_signed(summand(word))),
        _ => None,
    }
}
