//! Fields of an arm64 instruction, and the registers that they name.

use super::abi::SP;
use super::state::{MachineState, Value};

/// Returns `count` bits from bit `low` on.
pub(crate) fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

/// Returns `count` bits from bit `low` on, as a number with a sign.
pub(crate) fn signed(word: u32, low: u32, count: u32) -> i64 {
    i64::from((bits(word, low, count) << (32 - count)).cast_signed() >> (32 - count))
}

/// Returns whether the bits of `mask` are those of `value`.
pub(crate) fn is(word: u32, mask: u32, value: u32) -> bool {
    word & mask == value
}

/// Returns the register's number at a bit.
pub(crate) fn register(word: u32, low: u32) -> usize {
    bits(word, low, 5) as usize
}

/// Returns the value of a register; number 31 is zero.
pub(crate) fn get(state: &MachineState, register: usize) -> Value {
    if register == SP { Value::Number(0) } else { state.get(register) }
}

/// Writes a register; a value for number 31 is thrown away.
pub(crate) fn set(state: &mut MachineState, register: usize, value: Value) {
    if register != SP {
        state.set(register, value);
    }
}

pub(crate) fn add(value: Value, offset: i64) -> Option<Value> {
    match value {
        Value::Stack(base, at) => Some(Value::Stack(base, at.checked_add(offset)?)),
        Value::Number(number) => Some(Value::Number(number.wrapping_add_signed(offset))),
        _ => None,
    }
}
