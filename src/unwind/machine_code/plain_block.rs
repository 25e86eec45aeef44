//! The facts at the begin of a block, and the facts that decide a row's rule, on the quick way: see [`super::plain`].

use super::quick_frame::{Frame, NOTHING, RBP, RBX, RETURN, RSP, SLOTS, Value};
use super::state::Facts;
use crate::object::headers::Arch;
use crate::unwind::table::rule::{Cfa, Fp, Frame as RuleFrame, Ra, Rbx, Rule};

/// Where the return address is.
pub(crate) const RETURN_AT: i32 = -8;
/// Values of the frame pointer at the begin of a block, besides numbers: as at the function's begin; anything.
pub(crate) const ENTRY: i32 = i32::MAX;
pub(crate) const UNKNOWN: i32 = i32::MAX - 1;
/// Registers that functions keep, in the order of [`super::state::MachineState::changed`].
pub(crate) const KEPT: [usize; 6] = [RBX, RBP, 12, 13, 14, 15];

/// The facts at the begin of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Input {
    pub(crate) rsp: i32,
    pub(crate) rbp: i32,
    /// Registers that are as at the function's begin: a bit for each of [`KEPT`].
    pub(crate) kept: u8,
    pub(crate) slots: [u8; SLOTS],
    pub(crate) limit: Option<u64>,
    /// The number in the comparison that ended the block before.
    pub(crate) compared: Option<u64>,
    /// Addresses in registers of [`KEPT`], or 0: tables of jumps are loaded before loops.
    pub(crate) tables: [u64; KEPT.len()],
}

impl Input {
    pub(crate) fn at_entry() -> Input {
        let mut slots = [NOTHING; SLOTS];
        slots.iter_mut().take(1).for_each(|slot| *slot = RETURN);
        Input { rsp: RETURN_AT, rbp: ENTRY, kept: 0x3f, slots, limit: None, compared: None, tables: [0; KEPT.len()] }
    }

    pub(crate) fn of(frame: &Frame, rsp: i32) -> Input {
        let tables = KEPT.map(|register| if let Value::Number(table) = frame.get(register) { table } else { 0 });
        Input {
            tables,
            rsp,
            rbp: rbp(frame),
            kept: kept(frame),
            slots: frame.slots,
            limit: frame.limit,
            compared: frame.compared,
        }
    }

    pub(crate) fn frame(&self) -> Frame {
        let mut registers = [Value::Unknown; 16];
        for (bit, register) in KEPT.into_iter().enumerate() {
            if self.kept >> bit & 1 != 0
                && let Some(place) = registers.get_mut(register)
            {
                *place = Value::Entry(register as u8);
            }
        }
        for (register, table) in KEPT.into_iter().zip(self.tables).filter(|(_, table)| *table != 0) {
            registers.iter_mut().skip(register).take(1).for_each(|place| *place = Value::Number(table));
        }
        if let Some(place) = registers.get_mut(RSP) {
            *place = Value::Stack(self.rsp);
        }
        if let (Some(place), false) = (registers.get_mut(RBP), matches!(self.rbp, ENTRY | UNKNOWN)) {
            *place = Value::Stack(self.rbp);
        }
        Frame { registers, slots: self.slots, compared: self.compared, limit: self.limit, is_changed: true, is_lost: false }
    }

    /// Keeps the facts that hold on both of two ways. Returns whether they are fewer than before.
    pub(crate) fn join(&mut self, other: &Input) -> bool {
        let before = *self;
        if self.rbp != other.rbp {
            self.rbp = UNKNOWN;
        }
        self.kept &= other.kept;
        if self.limit != other.limit {
            self.limit = None;
        }
        if self.compared != other.compared {
            self.compared = None;
        }
        for (ours, theirs) in self.tables.iter_mut().zip(other.tables) {
            if *ours != theirs {
                *ours = 0;
            }
        }
        for (ours, theirs) in self.slots.iter_mut().zip(&other.slots) {
            if ours != theirs {
                *ours = NOTHING;
            }
        }
        *self != before
    }
}

pub(crate) fn rbp(frame: &Frame) -> i32 {
    match frame.get(RBP) {
        Value::Entry(register) if usize::from(register) == RBP => ENTRY,
        Value::Stack(at) => at,
        _ => UNKNOWN,
    }
}

/// Returns the registers that are as at the function's begin: a bit for each of [`KEPT`].
pub(crate) fn kept(frame: &Frame) -> u8 {
    let is_kept = |register: usize| frame.get(register) == Value::Entry(register as u8);
    KEPT.into_iter().enumerate().fold(0, |mask, (bit, register)| mask | u8::from(is_kept(register)) << bit)
}

/// The facts that decide the rule of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rsp: i32,
    pub(crate) rbp: i32,
    pub(crate) rbp_saved: Option<i32>,
    pub(crate) rbx_kept: bool,
    pub(crate) rbx_saved: Option<i32>,
}

impl Place {
    pub(crate) fn of(frame: &Frame, rsp: i32) -> Place {
        let saved = |register: usize| {
            let words = usize::try_from(-rsp / 8).unwrap_or(0).min(SLOTS);
            let slots = frame.slots.get(..words).unwrap_or_default();
            slots.iter().rposition(|slot| usize::from(*slot) == register).map(|place| -8 * (place as i32 + 1))
        };
        let rbx_kept = frame.get(RBX) == Value::Entry(RBX as u8);
        Place { rsp, rbp: rbp(frame), rbp_saved: saved(RBP), rbx_kept, rbx_saved: saved(RBX) }
    }

    pub(crate) fn facts(&self) -> Facts {
        let pointer = (!matches!(self.rbp, ENTRY | UNKNOWN)).then_some(self.rbp);
        let cfa = match pointer {
            Some(at) => Cfa::Register(Arch::X86_64.fp(), -at),
            None => Cfa::Register(Arch::X86_64.sp(), -self.rsp),
        };
        let fp = match (self.rbp, self.rbp_saved) {
            (ENTRY, _) => Fp::Unchanged,
            (_, Some(at)) => Fp::AtCfa(at),
            _ => Fp::Undefined,
        };
        let rbx = match (self.rbx_kept, self.rbx_saved) {
            (true, _) => Rbx::Unchanged,
            (_, Some(at)) => Rbx::AtCfa(at),
            _ => Rbx::Unknown,
        };
        let frame = RuleFrame { cfa, ra: Ra::AtCfa(RETURN_AT), fp, rbx, interrupted: false, skips: false };
        Facts {
            arch: Arch::X86_64,
            sp: Some(self.rsp),
            fp: pointer,
            kept: self.rbp == ENTRY,
            saved: self.rbp_saved,
            link: false,
            rule: Rule::Frame(frame),
        }
    }
}
