//! Runs call frame instructions, and tells the range of addresses of each row of rules. DWARF 5, section 6.4.2.
//!
//! Only four columns are followed: return address, frame pointer, stack pointer, rbx. So a state is small and copied by value,
//! and `DW_CFA_remember_state` costs nothing worth counting. A CIE is run once, not for each of its FDEs. Both make this several
//! times as fast as a general interpreter. gimli is such an interpreter, and serves as the oracle of the tests and of
//! `flametop unwind-check` (`gimli_check.rs`). The two readers were written apart and must agree.

use super::entries::{Cie, Section};
use crate::object::headers::Arch;
use crate::object::numbers::Cursor;
use crate::unwind::table::rule::{Invalid, RBX};

/// The rule for the CFA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CfaState<'a> {
    /// Nothing.
    #[default]
    None,
    /// Register and offset.
    Register(u64, i64),
    /// An expression whose value it is.
    Expression(&'a [u8]),
}

/// The rule for a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Column<'a> {
    /// Nothing: the ABI decides.
    #[default]
    Default,
    /// Not known in the caller.
    Undefined,
    /// Not changed.
    SameValue,
    /// In memory at CFA + offset.
    Offset(i64),
    /// In another register.
    Register(u64),
    /// In memory where the expression says.
    Expression(&'a [u8]),
    /// CFA + offset itself.
    ValOffset(i64),
    /// The value of an expression.
    ValExpression,
}

/// The rules at one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CfiRow<'a> {
    pub(crate) cfa: CfaState<'a>,
    pub(crate) ra: Column<'a>,
    pub(crate) fp: Column<'a>,
    pub(crate) sp: Column<'a>,
    pub(crate) rbx: Column<'a>,
}

/// Deepest nesting of remembered states. No file of a Debian system nests deeper than the 32 that the oracle holds. This is far
/// more, and bounds the memory that a hostile file can make us hold: about 150 KiB.
const DEEPEST: usize = 1024;

/// Runs instructions; reused from FDE to FDE.
#[derive(Default)]
pub(crate) struct Machine<'a> {
    remembered: Vec<CfiRow<'a>>,
}

/// The result of a program: complete, or why it failed. Nothing is known from the address of the failure on.
pub(crate) type Outcome = Result<(), Invalid>;

/// The input of [`Machine::run`] besides instructions.
pub(crate) struct Program<'p, 'a> {
    pub(crate) section: &'p Section<'a>,
    pub(crate) cie: &'p Cie<'a>,
    /// The rules after the CIE's instructions, for `DW_CFA_restore`; `None` while those themselves are run.
    pub(crate) initial: Option<&'p CfiRow<'a>>,
}

impl<'a> Machine<'a> {
    /// Runs the CIE's instructions.
    pub(crate) fn initial(&mut self, section: &Section<'a>, cie: &Cie<'a>) -> Result<CfiRow<'a>, Invalid> {
        let mut state = CfiRow::default();
        let mut moved = false;
        let program = Program { section, cie, initial: None };
        self.run(&program, cie.instructions, &mut 0, &mut state, |_, _, _| moved = true)?;
        if moved { Err(Invalid::Malformed) } else { Ok(state) }
    }

    /// Runs `code` from `address` on. Calls `row` at each change of address with the rules that hold from the first to the second
    /// address. The rules that hold from the last address on stay in `state`. On an error, `address` is where it happened.
    pub(crate) fn run(
        &mut self,
        program: &Program<'_, 'a>,
        code: &'a [u8],
        address: &mut u64,
        state: &mut CfiRow<'a>,
        mut row: impl FnMut(u64, u64, &CfiRow<'a>),
    ) -> Outcome {
        self.remembered.clear();
        let cie = program.cie;
        let mut cursor = Cursor::new(code);
        while let Some(byte) = cursor.u8() {
            let operand = u64::from(byte & 0x3f);
            match byte >> 6 {
                1 => advance(address, operand, cie, state, &mut row)?,
                2 => {
                    let offset = factored(cursor.uleb(), cie)?;
                    set(program, state, operand, Column::Offset(offset));
                }
                3 => restore(program, state, operand)?,
                _ => match byte {
                    // Advances by an operand, or to an address.
                    0x01..=0x04 | 0x1d => {
                        let delta = match byte {
                            0x01 => {
                                let to = program.section.address(cie, &mut cursor).ok_or(Invalid::Malformed)?;
                                if to < *address {
                                    return Err(Invalid::Malformed);
                                }
                                row(*address, to, state);
                                *address = to;
                                continue;
                            }
                            0x02 => cursor.u8().map(u64::from),
                            0x03 => cursor.u16().map(u64::from),
                            0x04 => cursor.u32().map(u64::from),
                            _ => cursor.u64(),
                        };
                        advance(address, delta.ok_or(Invalid::Malformed)?, cie, state, &mut row)?;
                    }
                    0x0a => {
                        if self.remembered.len() >= DEEPEST {
                            return Err(Invalid::StateStack);
                        }
                        self.remembered.push(*state);
                    }
                    0x0b => *state = self.remembered.pop().ok_or(Invalid::StateStack)?,
                    _ => instruction(byte, &mut cursor, program, state)?,
                },
            }
        }
        Ok(())
    }
}

fn advance<'a>(
    address: &mut u64,
    delta: u64,
    cie: &Cie<'a>,
    state: &CfiRow<'a>,
    row: &mut impl FnMut(u64, u64, &CfiRow<'a>),
) -> Outcome {
    let to = delta.checked_mul(cie.code_factor).and_then(|delta| address.checked_add(delta)).ok_or(Invalid::Malformed)?;
    row(*address, to, state);
    *address = to;
    Ok(())
}

/// An unsigned operand, in units of the CIE's data alignment.
fn factored(operand: Option<u64>, cie: &Cie<'_>) -> Result<i64, Invalid> {
    operand.map(|operand| operand.cast_signed().wrapping_mul(cie.data_factor)).ok_or(Invalid::Malformed)
}

/// A signed operand, likewise.
fn factored_signed(operand: Option<i64>, cie: &Cie<'_>) -> Result<i64, Invalid> {
    operand.map(|operand| operand.wrapping_mul(cie.data_factor)).ok_or(Invalid::Malformed)
}

/// Returns the column of a register, if it is followed.
fn column<'s, 'a>(program: &Program<'_, 'a>, state: &'s mut CfiRow<'a>, register: u64) -> Option<&'s mut Column<'a>> {
    let arch = program.section.arch;
    if register == program.cie.ra {
        Some(&mut state.ra)
    } else if register == u64::from(arch.fp().0) {
        Some(&mut state.fp)
    } else if register == u64::from(arch.sp().0) {
        Some(&mut state.sp)
    } else if register == u64::from(RBX.0) && arch == Arch::X86_64 {
        Some(&mut state.rbx)
    } else {
        None
    }
}

fn set<'a>(program: &Program<'_, 'a>, state: &mut CfiRow<'a>, register: u64, rule: Column<'a>) {
    if let Some(column) = column(program, state, register) {
        *column = rule;
    }
}

fn restore<'a>(program: &Program<'_, 'a>, state: &mut CfiRow<'a>, register: u64) -> Outcome {
    let mut initial = *program.initial.ok_or(Invalid::Malformed)?;
    if let Some(before) = column(program, &mut initial, register).map(|before| *before) {
        set(program, state, register, before);
    }
    Ok(())
}

/// Runs an instruction that neither changes the address nor remembers or restores a state.
fn instruction<'a>(byte: u8, cursor: &mut Cursor<'a>, program: &Program<'_, 'a>, state: &mut CfiRow<'a>) -> Outcome {
    let cie = program.cie;
    let bad = Invalid::Malformed;
    let number = |cursor: &mut Cursor<'a>| cursor.uleb().ok_or(bad);
    match byte {
        // nop
        0x00 => {}
        // offset_extended
        0x05 => {
            let register = number(cursor)?;
            set(program, state, register, Column::Offset(factored(cursor.uleb(), cie)?));
        }
        // restore_extended, undefined, same_value
        0x06 => restore(program, state, number(cursor)?)?,
        0x07 => set(program, state, number(cursor)?, Column::Undefined),
        0x08 => set(program, state, number(cursor)?, Column::SameValue),
        // register
        0x09 => {
            let register = number(cursor)?;
            set(program, state, register, Column::Register(number(cursor)?));
        }
        // def_cfa
        0x0c => state.cfa = CfaState::Register(number(cursor)?, number(cursor)?.cast_signed()),
        // def_cfa_register, def_cfa_offset
        0x0d => match &mut state.cfa {
            CfaState::Register(register, _) => *register = number(cursor)?,
            _ => return Err(bad),
        },
        0x0e => match &mut state.cfa {
            CfaState::Register(_, offset) => *offset = number(cursor)?.cast_signed(),
            _ => return Err(bad),
        },
        // def_cfa_expression
        0x0f => state.cfa = CfaState::Expression(block(cursor)?),
        // expression
        0x10 => {
            let register = number(cursor)?;
            set(program, state, register, Column::Expression(block(cursor)?));
        }
        // offset_extended_sf
        0x11 => {
            let register = number(cursor)?;
            set(program, state, register, Column::Offset(factored_signed(cursor.sleb(), cie)?));
        }
        // def_cfa_sf
        0x12 => state.cfa = CfaState::Register(number(cursor)?, factored_signed(cursor.sleb(), cie)?),
        // def_cfa_offset_sf
        0x13 => match &mut state.cfa {
            CfaState::Register(_, offset) => *offset = factored_signed(cursor.sleb(), cie)?,
            _ => return Err(bad),
        },
        // val_offset, val_offset_sf
        0x14 => {
            let register = number(cursor)?;
            set(program, state, register, Column::ValOffset(factored(cursor.uleb(), cie)?));
        }
        0x15 => {
            let register = number(cursor)?;
            set(program, state, register, Column::ValOffset(factored_signed(cursor.sleb(), cie)?));
        }
        // val_expression
        0x16 => {
            let register = number(cursor)?;
            block(cursor)?;
            set(program, state, register, Column::ValExpression);
        }
        // AARCH64_negate_ra_state, also the form with a program counter: signatures are cut off in any case. On SPARC the same
        // number means a register window.
        0x2c | 0x2d if program.section.arch == Arch::Aarch64 => {}
        // GNU_args_size: what is pushed for a call, for exceptions only
        0x2e => drop(number(cursor)?),
        // GNU_negative_offset_extended
        0x2f => {
            let register = number(cursor)?;
            set(program, state, register, Column::Offset(factored(cursor.uleb(), cie)?.wrapping_neg()));
        }
        _ => return Err(Invalid::Instruction),
    }
    Ok(())
}

fn block<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Invalid> {
    let length = cursor.uleb().and_then(|length| usize::try_from(length).ok());
    length.and_then(|length| cursor.take(length)).ok_or(Invalid::Malformed)
}
