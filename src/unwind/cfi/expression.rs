//! Evaluates DWARF expressions that have a rule's form, by computing with unknowns.
//!
//! An expression runs on a stack of values such as "rsp + 8·r9 + 16" or "the contents of memory there, plus 8". Its operations do
//! not matter: it has a rule's form if it leaves such a value. DWARF 5, section 2.5.

use crate::object::numbers::Cursor;

/// `base + scale·index + offset`, registers by DWARF number; without registers a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) base: Option<u64>,
    pub(crate) index: Option<(u64, i64)>,
    pub(crate) offset: i64,
}

/// The result of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    /// The sum itself.
    Sum(Sum),
    /// `*(sum) + offset`
    Loaded(Sum, i64),
    /// `*(*(sum) + middle) + offset`
    LoadedTwice {
        /// Where the first load is from.
        sum: Sum,
        /// Added to the loaded value, before the second load.
        middle: i64,
        /// Added to the value of the second load.
        offset: i64,
    },
    /// See [`crate::unwind::table::rule::Rule::Plt`].
    Plt {
        /// The first byte of the stub where the number is on the stack.
        pushed: u8,
    },
}

/// Longer expressions have no rule's form. The longest that has one, that of the linkage table, has 11 bytes.
const LONGEST: usize = 64;

/// `rsp + 8 + ((rip & 15 ≥ pushed) << 3)`, as GNU ld, gold and glibc write it; `None` is the place of `lit0 + pushed`.
const PLT: [Option<u8>; 11] = [
    Some(0x77), // breg7 (rsp)
    Some(8),
    Some(0x80), // breg16 (rip)
    Some(0),
    Some(0x3f), // lit15
    Some(0x1a), // and
    None,
    Some(0x2a), // ge
    Some(0x33), // lit3
    Some(0x24), // shl
    Some(0x22), // plus
];

/// Returns the result of an expression, if it has a rule's form. A register's expression finds the CFA on its stack; if it uses
/// that CFA, it has no rule's form. No compiler writes such expressions.
pub(crate) fn evaluate(code: &[u8]) -> Option<Value> {
    if code.len() > LONGEST {
        return None;
    }
    if let Some(pushed) = plt(code) {
        return Some(Value::Plt { pushed });
    }
    let mut cursor = Cursor::new(code);
    let mut stack: Vec<Value> = Vec::new();
    while let Some(operation) = cursor.u8() {
        let value = match operation {
            // lit0 … lit31
            0x30..=0x4f => constant(i64::from(operation - 0x30)),
            0x08 => constant(i64::from(cursor.u8()?)),
            0x09 => constant(i64::from(cursor.u8()?.cast_signed())),
            0x0a => constant(i64::from(cursor.u16()?)),
            0x0b => constant(i64::from(cursor.u16()?.cast_signed())),
            0x0c => constant(i64::from(cursor.u32()?)),
            0x0d => constant(i64::from(cursor.u32()?.cast_signed())),
            0x0e | 0x0f => constant(cursor.u64()?.cast_signed()),
            0x10 => constant(cursor.uleb()?.cast_signed()),
            0x11 => constant(cursor.sleb()?),
            // breg0 … breg31
            0x70..=0x8f => register(u64::from(operation - 0x70), cursor.sleb()?),
            0x92 => register(cursor.uleb()?, cursor.sleb()?),
            0x06 => match stack.pop()? {
                Value::Sum(sum) => Value::Loaded(sum, 0),
                Value::Loaded(sum, middle) => Value::LoadedTwice { sum, middle, offset: 0 },
                _ => return None,
            },
            0x23 => add(stack.pop()?, constant(i64::try_from(cursor.uleb()?).ok()?))?,
            0x22 => add(stack.pop()?, stack.pop()?)?,
            // minus
            0x1c => {
                let right = as_constant(stack.pop()?)?;
                add(stack.pop()?, constant(right.checked_neg()?))?
            }
            // mul, shl
            0x1e => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                match (as_constant(left), as_constant(right)) {
                    (_, Some(factor)) => scale(left, factor)?,
                    (Some(factor), _) => scale(right, factor)?,
                    _ => return None,
                }
            }
            0x24 => {
                let shift = u32::try_from(as_constant(stack.pop()?)?).ok().filter(|shift| *shift < 8)?;
                scale(stack.pop()?, 1 << shift)?
            }
            // nop
            0x96 => continue,
            _ => return None,
        };
        stack.push(value);
    }
    // More than one value is allowed: the topmost counts.
    stack.pop()
}

fn plt(code: &[u8]) -> Option<u8> {
    let code: &[u8; PLT.len()] = code.try_into().ok()?;
    let same = code.iter().zip(&PLT).all(|(have, want)| want.is_none_or(|want| *have == want));
    let [_, _, _, _, _, _, literal, ..] = code;
    literal.checked_sub(0x30).filter(|pushed| same && *pushed < 16)
}

fn constant(offset: i64) -> Value {
    Value::Sum(Sum { offset, ..Sum::default() })
}

fn register(number: u64, offset: i64) -> Value {
    Value::Sum(Sum { base: Some(number), index: None, offset })
}

fn as_constant(value: Value) -> Option<i64> {
    match value {
        Value::Sum(Sum { base: None, index: None, offset }) => Some(offset),
        _ => None,
    }
}

fn add(left: Value, right: Value) -> Option<Value> {
    match (left, right) {
        (Value::Sum(a), Value::Sum(b)) => {
            let offset = a.offset.checked_add(b.offset)?;
            let (base, index) = match (a.base, b.base, a.index.or(b.index)) {
                _ if a.index.is_some() && b.index.is_some() => return None,
                (base, None, index) | (None, base, index) => (base, index),
                (Some(base), Some(other), None) => (Some(base), Some((other, 1))),
                _ => return None,
            };
            Some(Value::Sum(Sum { base, index, offset }))
        }
        (Value::Loaded(sum, offset), other) | (other, Value::Loaded(sum, offset)) => {
            Some(Value::Loaded(sum, offset.checked_add(as_constant(other)?)?))
        }
        (Value::LoadedTwice { sum, middle, offset }, other) | (other, Value::LoadedTwice { sum, middle, offset }) => {
            Some(Value::LoadedTwice { sum, middle, offset: offset.checked_add(as_constant(other)?)? })
        }
        _ => None,
    }
}

fn scale(value: Value, factor: i64) -> Option<Value> {
    match value {
        Value::Sum(Sum { base, index: None, offset }) => {
            let offset = offset.checked_mul(factor)?;
            Some(Value::Sum(Sum { base: None, index: base.map(|base| (base, factor)), offset }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_of_the_linkage_table_is_told_by_all_its_constants() {
        let mut code = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(evaluate(&code), Some(Value::Plt { pushed: 11 }));
        code[6] = 0x3a;
        assert_eq!(evaluate(&code), Some(Value::Plt { pushed: 10 }));
        for at in 0..code.len() {
            let mut other = code;
            other[at] ^= 1;
            assert_ne!(evaluate(&other), Some(Value::Plt { pushed: 10 }), "byte {at}");
        }
    }

    #[test]
    fn realigned_stacks_and_openssls_loads_are_seen_in_each_spelling() {
        // breg6 -8; deref
        let loaded = Value::Loaded(Sum { base: Some(6), index: None, offset: -8 }, 0);
        assert_eq!(evaluate(&[0x76, 0x78, 0x06]), Some(loaded));
        // breg7 56; deref; plus_uconst 0; deref; plus_uconst 8
        let sum = Sum { base: Some(7), index: None, offset: 56 };
        let twice = Value::LoadedTwice { sum, middle: 0, offset: 8 };
        assert_eq!(evaluate(&[0x77, 56, 0x06, 0x23, 0, 0x06, 0x23, 8]), Some(twice));
        // breg7 152; deref; plus_uconst 8
        let loaded = Value::Loaded(Sum { base: Some(7), index: None, offset: 152 }, 8);
        assert_eq!(evaluate(&[0x77, 0x98, 0x01, 0x06, 0x23, 8]), Some(loaded));
        // breg7 0; breg9 0; lit8; mul; plus; deref; plus_uconst 8
        let loaded = Value::Loaded(Sum { base: Some(7), index: Some((9, 8)), offset: 0 }, 8);
        assert_eq!(evaluate(&[0x77, 0, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 8]), Some(loaded));
        // Again with lit3; shl, and with the constant first.
        assert_eq!(evaluate(&[0x77, 0, 0x79, 0, 0x33, 0x24, 0x22, 0x06, 0x23, 8]), Some(loaded));
        assert_eq!(evaluate(&[0x77, 0, 0x38, 0x79, 0, 0x1e, 0x22, 0x06, 0x23, 8]), Some(loaded));
    }

    #[test]
    fn what_has_no_form_is_refused() {
        // Three loads; no operand; an unknown operation; an empty stack; too long.
        for code in [&[0x76u8, 0, 0x06, 0x06, 0x06][..], &[0x22], &[0xe0], &[], &[0x96; 65], &[0x77]] {
            assert_eq!(evaluate(code), None, "{code:x?}");
        }
    }
}
