//! Loads and stores of arm64: the words of the stack and the registers that they write.
//!
//! ```text
//! stp x29, x30, [sp, -32]!     sp goes down by 32; two words at it are the caller's frame pointer and the return address
//! str x19, [sp, 16]            a word above
//! ldp x29, x30, [sp], 32       both come back, sp goes up
//! ```
//!
//! Arm Architecture Reference Manual, C4.1.94 (of issue K.a): "Loads and Stores".

use super::abi::SP;
use super::jumps::Width;
use super::state::{MachineState, Value};
use super::words::{add, bits, get, register, set, signed};

/// A group of loads and stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// ldxr, stxr, cas, ldar, stlr.
    Exclusive,
    /// ld1, st1 and so on, of vectors.
    Structures,
    /// From a place beside the code.
    Literal,
    /// ldapur, stlur.
    Ordered,
    /// Loads and stores of tags, and copies of memory.
    Other,
    Pair,
    /// With an offset of 9 bits: beside, before, behind.
    Near,
    Atomic,
    /// With an index in a register.
    Indexed,
    /// ldraa.
    Authenticated,
    /// With an offset of 12 bits.
    Far,
}

fn kind(word: u32) -> Option<Kind> {
    let (beside, at) = (bits(word, 24, 1) == 0, bits(word, 10, 2));
    let has_bit_21 = bits(word, 21, 1) == 1;
    match (bits(word, 27, 3), bits(word, 26, 1)) {
        (0b001, 0) if beside => Some(Kind::Exclusive),
        (0b001, 1) if word >> 31 == 0 => Some(Kind::Structures),
        (0b011, _) if beside => Some(Kind::Literal),
        (0b011, 0) if !has_bit_21 && at == 0 => Some(Kind::Ordered),
        (0b011, _) => Some(Kind::Other),
        // Size 3 is new, and for the kernel.
        (0b101, _) if bits(word, 30, 2) != 3 => Some(Kind::Pair),
        (0b111, _) if !beside => Some(Kind::Far),
        (0b111, _) if !has_bit_21 => Some(Kind::Near),
        // Of 64 bytes: more registers than one.
        (0b111, _) if at == 0 && bits(word, 15, 1) == 1 && bits(word, 12, 3) != 4 => None,
        (0b111, _) if at == 0 => Some(Kind::Atomic),
        (0b111, _) if at == 2 => Some(Kind::Indexed),
        (0b111, _) => Some(Kind::Authenticated),
        _ => None,
    }
}

pub(crate) fn is_known(word: u32) -> bool {
    kind(word).is_some()
}

/// Changes the state to the one behind the instruction.
pub(crate) fn step(word: u32, state: &mut MachineState) {
    let (to, at) = (register(word, 0), register(word, 5));
    let unknown = |state: &mut MachineState, registers: &[usize]| {
        registers.iter().for_each(|register| set(state, *register, Value::Unknown));
    };
    match kind(word) {
        Some(Kind::Pair) => pair(word, state),
        Some(Kind::Near | Kind::Far) => one(word, state),
        Some(Kind::Indexed) => indexed(word, state),
        Some(Kind::Literal) if bits(word, 26, 1) == 0 && bits(word, 30, 2) != 3 => unknown(state, &[to]),
        Some(Kind::Literal) | None => {}
        Some(Kind::Exclusive) => {
            let (status, second) = (register(word, 16), register(word, 10));
            if bits(word, 22, 1) == 0 || bits(word, 21, 1) == 1 {
                state.store(state.get(at), 16, Value::Unknown);
            }
            // The pair of registers that memory is compared with: the second is the one after the first.
            unknown(state, &[status, if bits(word, 21, 1) == 1 { (status + 1).min(SP) } else { SP }]);
            if bits(word, 22, 1) == 1 {
                unknown(state, &[to, second]);
            }
        }
        Some(Kind::Ordered) => {
            if bits(word, 22, 2) == 0 {
                state.store(state.get(at), 8, Value::Unknown);
            } else {
                unknown(state, &[to]);
            }
        }
        Some(Kind::Structures) => {
            let (base, bytes) = (state.get(at), structures(word));
            if bits(word, 22, 1) == 0 {
                state.store(base, bytes, Value::Unknown);
            }
            if bits(word, 23, 1) == 1 {
                // Moved by a register, or by the number of bytes.
                let moved = add(base, bytes).filter(|_| register(word, 16) == SP);
                write_back(at, moved.unwrap_or(Value::Unknown), state);
            }
        }
        Some(Kind::Other) => {
            let third = register(word, 16);
            for register in [to, at, third] {
                state.store_anywhere(state.get(register));
            }
            unknown(state, &[to, third]);
            write_back(at, Value::Unknown, state);
        }
        Some(Kind::Atomic) => {
            state.store(state.get(at), 8, Value::Unknown);
            if bits(word, 26, 1) == 0 {
                unknown(state, &[to]);
            }
        }
        Some(Kind::Authenticated) => {
            unknown(state, &[to]);
            if bits(word, 11, 1) == 1 {
                write_back(at, Value::Unknown, state);
            }
        }
    }
}

/// Returns how many bytes of memory ld1, st1 and so on access.
fn structures(word: u32) -> i64 {
    if bits(word, 24, 1) == 0 {
        // Number of registers, each of 8 or 16 bytes.
        let registers = match bits(word, 12, 4) {
            0b0000 | 0b0010 => 4,
            0b0100 | 0b0110 => 3,
            0b0111 => 1,
            _ => 2,
        };
        return registers * if bits(word, 30, 1) == 1 { 16 } else { 8 };
    }
    // One element in each register.
    let (opcode, size) = (bits(word, 13, 3), bits(word, 10, 2));
    let element = match opcode >> 1 {
        0 => 1,
        1 => 2,
        2 if size & 1 == 0 => 4,
        2 => 8,
        _ => 1 << size,
    };
    i64::from(((opcode & 1) << 1 | bits(word, 21, 1)) + 1) * element
}

/// Writes a base register that the instruction also changes. If a stack pointer becomes unknown, it has not changed to another
/// stack.
fn write_back(at: usize, value: Value, state: &mut MachineState) {
    match value {
        Value::Unknown if at == SP => state.lose_stack(),
        value => state.set(at, value),
    }
}

fn pair(word: u32, state: &mut MachineState) {
    let (first, second, at) = (register(word, 0), register(word, 10), register(word, 5));
    let (vector, loads, size) = (bits(word, 26, 1) == 1, bits(word, 22, 1) == 1, bits(word, 30, 2));
    // Of 4, 8, 16 bytes; ldpsw has 4; stgp has 8 and counts by 16.
    let bytes = match (vector, size) {
        (true, size) => 4 << size,
        (false, 0) => 4,
        (false, 1) if loads => 4,
        _ => 8,
    };
    let scale = if !vector && size == 1 && !loads { 16 } else { bytes };
    let mode = bits(word, 23, 2);
    let base = state.get(at);
    let moved = add(base, signed(word, 15, 7) * scale);
    let place = if mode == 1 { base } else { moved.unwrap_or(Value::Unknown) };
    let beside = add(place, bytes).unwrap_or(Value::Unknown);
    if loads {
        let whole = !vector && bytes == 8;
        let values = [place, beside].map(|place| if whole { state.load(place) } else { Value::Unknown });
        if !vector {
            [first, second].into_iter().zip(values).for_each(|(register, value)| set(state, register, value));
        }
    }
    let stored = [first, second].map(|register| if vector || bytes != 8 { Value::Unknown } else { get(state, register) });
    if mode & 1 == 1 {
        write_back(at, moved.unwrap_or(Value::Unknown), state);
    }
    if !loads {
        [place, beside].into_iter().zip(stored).for_each(|(place, value)| state.store(place, bytes, value));
    }
}

/// Returns how many bytes one register has, whether it is loaded, and whether it is a general one.
fn shape(word: u32) -> (i64, bool, bool) {
    let (size, opcode) = (bits(word, 30, 2), bits(word, 22, 2));
    if bits(word, 26, 1) == 1 {
        let bytes = if opcode & 2 == 2 { 16 } else { 1 << size };
        return (bytes, opcode & 1 == 1, false);
    }
    (1 << size, opcode != 0, true)
}

/// Returns whether memory is only prefetched.
fn is_prefetch(word: u32) -> bool {
    bits(word, 26, 1) == 0 && bits(word, 30, 2) == 3 && bits(word, 22, 2) == 2
}

fn one(word: u32, state: &mut MachineState) {
    if is_prefetch(word) {
        return;
    }
    let (to, at) = (register(word, 0), register(word, 5));
    let (bytes, loads, general) = shape(word);
    let far = bits(word, 24, 1) == 1;
    let mode = if far { 0 } else { bits(word, 10, 2) };
    let offset = if far { i64::from(bits(word, 10, 12)) * bytes } else { signed(word, 12, 9) };
    let base = state.get(at);
    let moved = add(base, offset).unwrap_or(Value::Unknown);
    let place = if mode == 1 { base } else { moved };
    let stored = if general && bytes == 8 { get(state, to) } else { Value::Unknown };
    if loads && general {
        let whole = bytes == 8 && bits(word, 22, 2) == 1;
        let value = if whole { state.load(place) } else { Value::Unknown };
        set(state, to, value);
    }
    if mode & 1 == 1 {
        write_back(at, moved, state);
    }
    if !loads {
        state.store(place, bytes, stored);
    }
}

fn indexed(word: u32, state: &mut MachineState) {
    let (bytes, loads, general) = shape(word);
    // The place of a store in an array on the stack does not matter, as with any other pointer.
    if !loads || !general || is_prefetch(word) {
        return;
    }
    let scaled = bits(word, 12, 1) == 1 || bytes == 1;
    let value = match (state.get(register(word, 5)), u8::try_from(bytes)) {
        (Value::Number(table), Ok(bytes)) if scaled => {
            // ldrsb, ldrsh, ldrsw
            Value::TableEntry(table, Width { bytes, signed: bits(word, 23, 1) == 1 || bytes == 8, shift: 0 })
        }
        _ => Value::Unknown,
    };
    set(state, register(word, 0), value);
}
