//! The state at one instruction: values of registers and of words on the stack, and the rule that follows.

use super::abi::Abi;
use super::jumps::{Jumps, Width};
use crate::object::headers::Arch;
use crate::unwind::table::packed::Packed;
use crate::unwind::table::rule::{Cfa, Fp, Frame, Invalid, RBX, Ra, Rbx, Reg, Rule};

/// Most words of the stack that are followed at once.
const MOST_SLOTS: usize = 48;

/// Larger frames are not followed.
const FARTHEST: i64 = 1 << 22;

/// The base of a [`Value::Stack`] that counts from the CFA. Other bases are addresses of instructions that made a pointer to an
/// unknown place in the stack: `and rsp, -64`, `sub rsp, rax`.
pub(crate) const CFA: u64 = 0;

/// The value of a register or of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    /// Anything.
    Unknown,
    /// The value that the register of this number had when the function was called.
    Entry(u8),
    /// A pointer into this stack: its base, and the distance from it.
    Stack(u64, i64),
    /// The return address.
    Return,
    /// A stack pointer that does not belong to this frame: `longjmp` loads one.
    Foreign,
    /// This number.
    Number(u64),
    /// An entry of the table at this address.
    TableEntry(u64, Width),
    /// The address that an entry of this table means.
    Target(Jumps),
    /// The result of `clone`: 0 in the thread that it made.
    Cloned,
}

/// The last comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flags {
    Unknown,
    /// Something was compared with this number.
    Compared(u64),
    /// The result of `clone` was compared with 0.
    Cloned,
}

/// A word of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    base: u64,
    offset: i64,
    value: Value,
}

/// All facts at an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MachineState {
    abi: &'static Abi,
    registers: [Value; 32],
    slots: Vec<Slot>,
    pub(crate) flags: Flags,
    /// An unsigned comparison has shown an index to be below this number.
    pub(crate) limit: Option<u64>,
    /// The code has no caller: a thread that `clone` made, a program's first code.
    pub(crate) root: bool,
}

/// The facts about a row of code; [`Facts::rule`] is the rule in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) arch: Arch,
    /// How far stack pointer and frame pointer are above the CFA, if that is known.
    pub(crate) sp: Option<i32>,
    pub(crate) fp: Option<i32>,
    /// Whether the frame pointer still is the caller's, and where from the CFA the caller's is saved.
    pub(crate) kept: bool,
    pub(crate) saved: Option<i32>,
    /// Whether the return address still is in its register.
    pub(crate) link: bool,
    pub(crate) rule: Rule,
}

impl MachineState {
    /// Returns the state at the first instruction of a function.
    pub(crate) fn at_entry(abi: &'static Abi) -> MachineState {
        let mut registers = [Value::Unknown; 32];
        for (number, register) in (0u8..).zip(&mut registers) {
            if abi.kept.contains(&usize::from(number)) {
                *register = Value::Entry(number);
            } else if abi.sp == usize::from(number) {
                *register = Value::Stack(CFA, abi.entry);
            } else if abi.link == Some(usize::from(number)) {
                *register = Value::Return;
            }
        }
        let pushed = abi.link.is_none().then_some(Slot { base: CFA, offset: abi.entry, value: Value::Return });
        MachineState { abi, registers, slots: pushed.into_iter().collect(), flags: Flags::Unknown, limit: None, root: false }
    }

    pub(crate) fn stack_pointer(&self) -> Value {
        self.get(self.abi.sp)
    }

    pub(crate) fn get(&self, register: usize) -> Value {
        self.registers.get(register).copied().unwrap_or(Value::Unknown)
    }

    pub(crate) fn set(&mut self, register: usize, value: Value) {
        let value = match value {
            Value::Stack(_, offset) if !(-FARTHEST..FARTHEST).contains(&offset) => Value::Unknown,
            value => value,
        };
        // A new value of the stack pointer always points to a stack, known or not, unless two ways already contradict each other.
        let is_sp = register == self.abi.sp;
        let value = match (value, self.stack_pointer()) {
            (value, _) if !is_sp => value,
            (Value::Stack(..), _) => value,
            (_, Value::Unknown) => Value::Unknown,
            _ => Value::Foreign,
        };
        let before = self.get(register);
        if let Some(place) = self.registers.get_mut(register) {
            *place = value;
        }
        // Released stack space may be overwritten from then on.
        let is_down = matches!((before, value), (Value::Stack(of, from), Value::Stack(base, to)) if of == base && to <= from);
        if is_sp && !is_down {
            self.forget_below();
        }
    }

    /// Forgets the stack pointer: two ways contradict each other, or the parts of its value are not known.
    pub(crate) fn lose_stack(&mut self) {
        if let Some(place) = self.registers.get_mut(self.abi.sp) {
            *place = Value::Unknown;
        }
    }

    /// Forgets the words below the stack pointer: signal handlers and callees may have overwritten them.
    pub(crate) fn forget_below(&mut self) {
        if let Value::Stack(base, top) = self.stack_pointer() {
            self.slots.retain(|slot| slot.base != base || slot.offset >= top);
        }
    }

    /// Returns a pointer with a new base. Values that counted from this base before are of an earlier turn, and are forgotten.
    pub(crate) fn new_base(&mut self, instruction: u64) -> Value {
        let base = instruction.max(CFA + 1);
        self.slots.retain(|slot| slot.base != base && !matches!(slot.value, Value::Stack(of, _) if of == base));
        for register in &mut self.registers {
            if matches!(register, Value::Stack(of, _) if *of == base) {
                *register = Value::Unknown;
            }
        }
        Value::Stack(base, 0)
    }

    pub(crate) fn load(&self, pointer: Value) -> Value {
        let Value::Stack(base, offset) = pointer else { return Value::Unknown };
        let slot = self.slots.iter().find(|slot| slot.base == base && slot.offset == offset);
        slot.map_or(Value::Unknown, |slot| slot.value)
    }

    /// Writes `size` bytes. If they are a word, `value` is the word's value.
    pub(crate) fn store(&mut self, pointer: Value, size: i64, value: Value) {
        let Value::Stack(base, offset) = pointer else { return };
        self.slots.retain(|slot| slot.base != base || slot.offset + 8 <= offset || slot.offset >= offset + size);
        // Code that has the address of another kind of value may change it. These values nobody else changes, so only they are
        // followed.
        let kept = matches!(value, Value::Entry(_) | Value::Stack(..) | Value::Return);
        if kept && size == 8 && self.slots.len() < MOST_SLOTS {
            let at = self.slots.partition_point(|slot| (slot.base, slot.offset) < (base, offset));
            self.slots.insert(at, Slot { base, offset, value });
        }
    }

    /// Forgets all words with the same base as a pointer: each may have been written.
    pub(crate) fn store_anywhere(&mut self, pointer: Value) {
        if let Value::Stack(base, _) = pointer {
            self.slots.retain(|slot| slot.base != base);
        }
    }

    /// Applies a call, and keeps the facts that survive it. `changed` are registers by the bits of [`MachineState::changed`].
    pub(crate) fn after_call(&mut self, changed: u16) {
        for register in self.abi.scratch {
            self.set(*register, Value::Unknown);
        }
        for (bit, register) in self.abi.kept.iter().enumerate() {
            if changed >> bit & 1 != 0 {
                self.set(*register, Value::Unknown);
            }
        }
        self.flags = Flags::Unknown;
        self.limit = None;
        self.forget_below();
    }

    /// Returns whether stack pointer and return address are as at a function's begin.
    pub(crate) fn is_at_entry(&self) -> bool {
        let at = Value::Stack(CFA, self.abi.entry);
        self.stack_pointer() == at && self.abi.link.map_or_else(|| self.load(at), |link| self.get(link)) == Value::Return
    }

    /// Returns the registers that a function ought to preserve and that have another value now: a bit for each of [`Abi::kept`].
    pub(crate) fn changed(&self) -> u16 {
        let kept = self.abi.kept.iter().enumerate();
        kept.filter(|(_, register)| self.get(**register) != Value::Entry(**register as u8))
            .fold(0, |mask, (bit, _)| mask | 1 << bit)
    }

    /// Keeps the facts that hold on both of two ways. Returns whether they are fewer than before.
    pub(crate) fn join(&mut self, other: &MachineState) -> bool {
        let mut less = false;
        for (ours, theirs) in self.registers.iter_mut().zip(&other.registers) {
            if ours != theirs && *ours != Value::Unknown {
                *ours = Value::Unknown;
                less = true;
            }
        }
        let before = self.slots.len();
        self.slots.retain(|slot| other.load(Value::Stack(slot.base, slot.offset)) == slot.value);
        less |= self.slots.len() != before;
        if self.flags != other.flags && self.flags != Flags::Unknown {
            self.flags = Flags::Unknown;
            less = true;
        }
        if self.limit != other.limit && self.limit.is_some() {
            self.limit = None;
            less = true;
        }
        if self.root != other.root {
            less |= self.root || self.stack_pointer() != Value::Unknown;
            self.root = false;
            self.lose_stack();
        }
        less
    }

    /// Returns whether both stack pointers are known and differ.
    pub(crate) fn contradicts(&self, other: &MachineState) -> bool {
        let (ours, theirs) = (self.stack_pointer(), other.stack_pointer());
        self.root != other.root || ours != theirs && matches!((ours, theirs), (Value::Stack(..), Value::Stack(..)))
    }

    /// Returns the facts for a table; `None` where nothing can be said.
    pub(crate) fn facts(&self) -> Option<Facts> {
        let above = |register| match self.get(register) {
            Value::Stack(CFA, offset) => i32::try_from(offset).ok(),
            _ => None,
        };
        let fp = self.abi.fp;
        let kept = self.get(fp) == Value::Entry(fp as u8);
        let link = self.abi.link.is_some_and(|link| self.get(link) == Value::Return);
        let (sp, saved, arch) = (above(self.abi.sp), self.saved(fp), self.abi.arch);
        let facts = |rule| Facts { arch, sp, fp: above(fp), kept, saved, link, rule };
        if self.root {
            return Some(facts(Rule::Root));
        }
        match self.frame() {
            Some(frame) => Some(facts(Rule::Frame(frame))),
            // On the way to another stack: no guess is made about either stack.
            None if self.stack_pointer() == Value::Foreign => Some(facts(Rule::Invalid(Invalid::StackPointer))),
            None => None,
        }
    }

    fn frame(&self) -> Option<Frame> {
        let cfa = self.cfa()?;
        let ra = match self.return_place() {
            Some(offset) => Ra::AtCfa(offset),
            // `vfork` keeps it in a register, as its child overwrites the place. On arm64 it stays in a register until it is
            // saved.
            None => Ra::Register(self.register_with(Value::Return)?),
        };
        Some(Frame { cfa, ra, fp: self.fp(), rbx: self.rbx(), interrupted: false, skips: false })
    }

    /// Returns where from the CFA the return address is on the stack. A function may keep a copy of it elsewhere
    /// (`__builtin_return_address`), hand out the copy's address, and have the copy changed. So on arm64 the place is the one
    /// beside the saved frame pointer, or else the one saved first, which is highest.
    fn return_place(&self) -> Option<i32> {
        if self.abi.link.is_none() {
            let is_there = self.load(Value::Stack(CFA, self.abi.entry)) == Value::Return && !self.is_below(self.abi.entry);
            return i32::try_from(self.abi.entry).ok().filter(|_| is_there);
        }
        let of = |value: Value| {
            let slots = self.slots.iter().rev();
            slots
                .filter(move |slot| slot.value == value && slot.base == CFA && !self.is_below(slot.offset))
                .map(|slot| slot.offset)
        };
        let beside = of(Value::Return).find(|offset| of(Value::Entry(self.abi.fp as u8)).any(|fp| fp + 8 == *offset));
        beside.or_else(|| of(Value::Return).next()).and_then(|offset| i32::try_from(offset).ok())
    }

    /// Returns whether a word of this frame is below the stack pointer.
    fn is_below(&self, offset: i64) -> bool {
        matches!(self.stack_pointer(), Value::Stack(CFA, top) if offset < top)
    }

    fn register_with(&self, value: Value) -> Option<Reg> {
        let found = (0u8..).zip(&self.registers).find(|(_, register)| **register == value);
        found.map(|(number, _)| Reg(number))
    }

    fn cfa(&self) -> Option<Cfa> {
        let small = |offset: i64| i32::try_from(offset).ok();
        // First the two registers that are known in every frame. A frame pointer keeps its value, whatever a callee takes off the
        // stack.
        let (fp, sp) = (self.abi.fp, self.abi.sp);
        let order = [fp, sp].into_iter().chain((0..self.registers.len()).filter(|register| *register != sp && *register != fp));
        for register in order {
            if let Value::Stack(CFA, offset) = self.get(register) {
                return Some(Cfa::Register(Reg(register as u8), small(offset.checked_neg()?)?));
            }
        }
        // A place where the CFA was saved.
        let bases = [sp, fp].into_iter().filter_map(|register| match self.get(register) {
            Value::Stack(base, offset) => Some((register, base, offset)),
            _ => None,
        });
        for (register, base, offset) in bases {
            let slot = |slot: &&Slot| slot.base == base && matches!(slot.value, Value::Stack(CFA, _)) && slot.offset >= offset;
            if let Some(Slot { offset: place, value: Value::Stack(_, outer), .. }) = self.slots.iter().find(slot) {
                return Some(Cfa::Deref(Reg(register as u8), small(place - offset)?, small(outer.checked_neg()?)?));
            }
        }
        None
    }

    /// Returns where from the CFA a register's value of the entry is.
    fn saved(&self, register: usize) -> Option<i32> {
        self.place_of(Value::Entry(register as u8))
    }

    fn place_of(&self, value: Value) -> Option<i32> {
        let slot = self.slots.iter().find(|slot| slot.value == value && slot.base == CFA && !self.is_below(slot.offset));
        slot.and_then(|slot| i32::try_from(slot.offset).ok())
    }

    fn fp(&self) -> Fp {
        let fp = self.abi.fp;
        let saved = Value::Entry(fp as u8);
        if self.get(fp) == saved {
            return Fp::Unchanged;
        }
        if let Some(offset) = self.saved(fp) {
            return Fp::AtCfa(offset);
        }
        if let Value::Stack(base, top) = self.stack_pointer() {
            let slot = self.slots.iter().find(|slot| slot.value == saved && slot.base == base && slot.offset >= top);
            if let Some(Ok(offset)) = slot.map(|slot| i32::try_from(slot.offset - top)) {
                return Fp::AtSp(offset);
            }
        }
        self.register_with(saved).map_or(Fp::Undefined, Fp::Register)
    }

    fn rbx(&self) -> Rbx {
        if self.abi.arch == Arch::Aarch64 {
            // Go needs to know whether the vDSO keeps x28.
            return if self.get(28) == Value::Entry(28) { Rbx::Unchanged } else { Rbx::Unknown };
        }
        let rbx = usize::from(RBX.0);
        if self.get(rbx) == Value::Entry(RBX.0) {
            return Rbx::Unchanged;
        }
        self.saved(rbx).map_or(Rbx::Unknown, Rbx::AtCfa)
    }
}

impl Facts {
    /// Returns the rule of the table. The place of rbx is left out if rbx is not followed or the place does not fit.
    pub(crate) fn packed(&self, rbx: bool) -> Option<Packed> {
        let without = |rule| match rule {
            Rule::Frame(frame) => Rule::Frame(Frame { rbx: frame.rbx.unless_saved(), ..frame }),
            rule => rule,
        };
        let with = Packed::new(self.rule, self.arch).filter(|_| rbx || self.arch == Arch::Aarch64);
        with.or_else(|| Packed::new(without(self.rule), self.arch))
    }
}
