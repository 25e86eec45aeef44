//! Functions of Go's runtime that leave for another stack and come back, on arm64: finds the stack that they left. Go keeps g,
//! the goroutine that it runs, in x28. For x86_64, which keeps it in memory, see [`super::switches_x86_64`].
//!
//! ```text
//! systemstack:  str x30, [sp, -16]!  …  mov sp, x3        nanotime1:  str x30, [sp, -48]!; mov x20, sp
//!               blr x3       on the thread's stack                    ldr x21, [x28, 48]       g.m
//!               ldr x3, [x28, 48]      g.m                            add x2, sp, 48           caller's stack pointer
//!               ldr x28, [x3, 192]     m.curg                         str x2, [x21, 800]       m.vdsoSP
//!               bl save_g                                             …  mov sp, x1
//!               ldr x0, [x28, 56]      curg.sched.sp                  blr x2       the vDSO, on the thread's stack
//!               mov sp, x0                                            …  mov sp, x20
//!               ldp x29, x30, [sp, -8]; add sp, sp, 16; ret           ldp x29, x30, [sp, -8]; add sp, sp, 48; ret
//!
//! asmcgocall:   …  mov sp, x13; str x4, [sp]      g       morestack:  str x0, [x28, 56]     sched.sp: the stack pointer
//!               str x4, [sp, 8]     how deep              (its caller  str x30, [x28, 64]   sched.pc: in f
//!               blr x1                                     is f)       str x3, [x28, 96]    sched.lr: in f's caller, as f
//!               ldr x28, [sp]; bl save_g                               …  mov sp, x0             has not saved x30 yet
//!               ldr x5, [x28, 8]       g.stack.hi                     bl newstack     never comes back
//!               ldr x6, [sp, 8]; sub x5, x5, x6; mov sp, x5
//! ```
//!
//! If the code itself says what the stack pointer will be, or where it has put it, that is the rule; offsets are taken from
//! there. Jumps lead forward. Code of any other form ends the stack, and says so.

use std::collections::BTreeMap;

use super::switches_x86_64::Switches;
use crate::object::headers::Arch;
use crate::unwind::machine_code::words::{bits, register, signed};
use crate::unwind::table::packed::Packed;
use crate::unwind::table::rule::{Cfa, Fp, Frame, Invalid, Ra, Rbx, Reg, Rule};

const G: usize = 28;
const LR: usize = 30;
const SP: usize = 31;
/// The register that has the caller's return address for `morestack`: cmd/internal/obj/arm64, `stacksplit`.
const PROLOGUE_LR: usize = 3;

/// The contents of a register, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    /// The register's value at the begin; for g, the value behind the call.
    Was(usize),
    /// This far from the CFA.
    Frame(i64),
    /// `*(sp + n)`, on the other stack.
    Slot(i32),
    /// `*(value + n)`
    At(Box<Value>, i32),
    Difference(Box<Value>, Box<Value>),
}

type Values = BTreeMap<usize, Value>;

/// The place of the stack pointer, and the known values.
#[derive(Clone)]
struct StackState {
    /// On another stack, or on its way there.
    left: bool,
    values: Values,
}

/// An instruction that is understood.
enum Op {
    /// `ldr xt, [xn, offset]`
    Load(usize, usize, i32),
    Store(usize, usize, i32),
    /// `add xd, xn, number`; also of the stack pointer
    Add(usize, usize, i64),
    /// `mov xd, xm`
    Move(usize, usize),
    /// `sub xd, xn, xm`
    Subtract(usize, usize, usize),
    Call,
    Jump(u64),
    Branch(u64),
    /// ret, br, brk
    End,
    /// Any other instruction. It writes at most that register.
    Writes(usize),
}

fn op(address: u64, word: u32) -> Option<Op> {
    let (to, from, other) = (register(word, 0), register(word, 5), register(word, 16));
    let near = |low, count| address.wrapping_add_signed(signed(word, low, count) * 4);
    let far = || i32::try_from(bits(word, 10, 12) * 8).ok();
    let is = |mask: u32, value: u32| word & mask == value;
    Some(if is(0xffc0_0000, 0xf940_0000) {
        Op::Load(to, from, far()?)
    } else if is(0xffc0_0000, 0xf900_0000) {
        Op::Store(to, from, far()?)
    } else if is(0xffc0_0000, 0x9100_0000) {
        Op::Add(to, from, i64::from(bits(word, 10, 12)))
    } else if is(0xffc0_0000, 0xd100_0000) {
        Op::Add(to, from, -i64::from(bits(word, 10, 12)))
    } else if is(0xffe0_ffe0, 0xaa00_03e0) {
        Op::Move(to, other)
    } else if is(0xffe0_fc00, 0xcb00_0000) {
        Op::Subtract(to, from, other)
    } else if is(0xfc00_0000, 0x9400_0000) || is(0xffff_fc1f, 0xd63f_0000) {
        Op::Call
    } else if is(0xfc00_0000, 0x1400_0000) {
        Op::Jump(near(0, 26))
    } else if is(0x7e00_0000, 0x3400_0000) || is(0xff00_0010, 0x5400_0000) {
        Op::Branch(near(5, 19))
    } else if is(0x7e00_0000, 0x3600_0000) {
        Op::Branch(near(5, 14))
    } else if is(0xffff_fc1f, 0xd61f_0000) || is(0xffff_fc1f, 0xd65f_0000) || is(0xffe0_001f, 0xd420_0000) {
        Op::End
    } else if is(0xffe0_0000, 0xf800_0000) || is(0x3b00_0000, 0x3900_0000) && bits(word, 22, 2) == 0 {
        // Stores; those of the prologue move the stack pointer, which pcsp knows.
        Op::Writes(SP)
    } else if is(0x7fc0_0000, 0x2900_0000) || is(0xffc0_0000, 0xa980_0000) || is(0xffff_ffff, 0xd400_0001) {
        Op::Writes(if word == 0xd400_0001 { 0 } else { SP })
    } else if is(0x7fc0_0000, 0x2940_0000) || is(0x7ec0_0000, 0x28c0_0000) {
        // A pair is loaded: the registers of an epilogue. Their values do not matter behind it.
        Op::Writes(to)
    } else {
        match bits(word, 25, 4) {
            // Other writes of the stack pointer are not understood.
            0b1000 | 0b1001 if to == SP && bits(word, 29, 2) != 3 && !is(0x7f00_0000, 0x7100_0000) => return None,
            0b1000 | 0b1001 | 0b0101 | 0b1101 => Op::Writes(to),
            // Loads of all kinds.
            0b0100 | 0b1100 if is(0x3f40_0000, 0x3940_0000) || is(0x3f80_0000, 0x3980_0000) || is(0xffe0_0000, 0xf840_0000) => {
                Op::Writes(to)
            }
            0b1010 | 0b1011 if is(0xffc0_0000, 0xd500_0000) => Op::Writes(if bits(word, 21, 1) == 1 { to } else { SP }),
            _ => return None,
        }
    })
}

/// Returns the rules of a function; `None` where it does something else. `pcsp`: from each address on, how far the stack pointer
/// is below the CFA while it is on this stack. `goroutine`: where a goroutine's stack is found, for `morestack`, which does not
/// come back.
pub(crate) fn rows(code: &[u8], start: u64, pcsp: &[(u64, i64)], goroutine: Option<Cfa>) -> Option<Switches> {
    let words = code.chunks_exact(4).filter_map(|word| word.first_chunk()).map(|word| u32::from_le_bytes(*word));
    let ops: Vec<(u64, Option<Op>)> = (start..).step_by(4).zip(words).map(|(at, word)| (at, op(at, word))).collect();
    let depth = |address: u64| pcsp.iter().take_while(|(from, _)| *from <= address).last().map_or(0, |(_, depth)| *depth);
    let mut found = Switches { rows: Vec::new(), goroutine: None };
    let mut state = Some(StackState { left: false, values: (0..SP).map(|register| (register, Value::Was(register))).collect() });
    let mut reached: BTreeMap<u64, StackState> = BTreeMap::new();
    let mut kept = Kept::default();
    // The rule for the code behind a call that puts the stack pointer back, and the end of its range.
    let mut restored: Option<(u64, Packed)> = None;
    let is_frameless = pcsp.iter().all(|(_, depth)| *depth == 0);
    let (mut any, inside) = (false, start..start.checked_add(code.len() as u64)?);
    for (at, (address, op)) in ops.iter().enumerate() {
        state = match (state, reached.remove(address)) {
            (Some(state), Some(other)) => Some(meet(&state, &other)),
            (state, other) => state.or(other),
        };
        if restored.take_if(|(end, _)| address >= end).is_some()
            && let Some(state) = &mut state
        {
            state.left = false;
        }
        let is_left = state.as_ref().is_some_and(|state| state.left);
        if matches!(op, Some(Op::Call)) && is_left && restored.is_none() {
            if let Some((end, cfa)) = comes_back(ops.get(at + 1..)?) {
                restored = left(cfa, depth(end)).map(|rule| (end, rule));
                found.goroutine = Some(cfa).filter(|cfa| matches!(cfa, Cfa::Goroutine { .. })).or(found.goroutine);
            } else if let Some(goroutine) = goroutine {
                // Holds up to the function's end.
                restored = kept.prologue(goroutine).map(|rule| (u64::MAX, rule));
            }
        }
        let rule = match (&state, restored) {
            // After its own call, x30 is an address in the function itself.
            (Some(state @ StackState { left: false, .. }), _) if is_frameless && state.get(LR) != Some(Value::Was(LR)) => None,
            (Some(StackState { left: false, .. }), _) => Some(own(depth(*address))),
            (_, Some((_, rule))) => Some(rule),
            (Some(state), None) => {
                // Where nothing was called, a signal may have interrupted it, and the signal's handler may have called the vDSO,
                // too. Then its own registers tell; all of them are known.
                let own = || if matches!(op, Some(Op::Call)) { None } else { state.own_stack() };
                kept.thread.and_then(|thread| left(own().unwrap_or(thread), depth(*address)))
            }
            (None, None) => None,
        };
        any |= is_left && rule.is_some();
        let rule = rule.unwrap_or(Packed::invalid(Invalid::StackPointer));
        if found.rows.last().is_none_or(|(_, last)| *last != rule) {
            found.rows.push((*address, rule));
        }
        // No way leads here.
        let Some(now) = &mut state else { continue };
        let Some(op) = op else {
            // After the last call of a function that never comes back.
            goroutine?;
            state = None;
            continue;
        };
        kept.store(op, now);
        now.step(op, depth(address + 4));
        match op {
            Op::Jump(target) | Op::Branch(target) if !inside.contains(target) => {}
            Op::Jump(target) | Op::Branch(target) if *target > *address => {
                let both = reached.get(target).map_or_else(|| now.clone(), |other| meet(now, other));
                reached.insert(*target, both);
            }
            // A loop: the facts at its begin held only once.
            Op::Jump(_) | Op::Branch(_) => return None,
            _ => {}
        }
        if matches!(op, Op::Jump(_) | Op::End) {
            state = None;
        }
    }
    any.then_some(found)
}

/// Returns the facts that hold on both of two ways.
fn meet(one: &StackState, other: &StackState) -> StackState {
    let same = one.values.iter().filter(|(register, value)| other.values.get(register) == Some(value));
    StackState { left: one.left || other.left, values: same.map(|(register, value)| (*register, value.clone())).collect() }
}

impl StackState {
    fn get(&self, register: usize) -> Option<Value> {
        self.values.get(&register).cloned()
    }

    fn set(&mut self, register: usize, value: Option<Value>) {
        self.values.remove(&register);
        self.values.extend(value.filter(|_| register != SP).map(|value| (register, value)));
    }

    /// Returns the CFA, by a register that was given the stack pointer and that calls keep.
    fn own_stack(&self) -> Option<Cfa> {
        self.values.iter().find_map(|(register, value)| match value {
            Value::Frame(at) if (19..G).contains(register) => {
                Some(Cfa::Register(Reg(u8::try_from(*register).ok()?), i32::try_from(-at).ok()?))
            }
            _ => None,
        })
    }

    /// Applies an instruction. `depth`: how far the stack pointer is below the CFA behind the instruction, if it is on its own
    /// stack.
    fn step(&mut self, op: &Op, depth: i64) {
        match op {
            Op::Load(to, SP, offset) if self.left => self.set(*to, Some(Value::Slot(*offset))),
            Op::Load(to, SP, _) => self.set(*to, None),
            Op::Load(to, at, offset) => self.set(*to, self.get(*at).map(|value| Value::At(Box::new(value), *offset))),
            Op::Add(SP, from, number) => {
                // Its own frame, which pcsp knows, or another stack.
                let back = self.get(*from) == Some(Value::Frame(-depth)) && *number == 0;
                self.left = !(back || *from == SP && !self.left);
            }
            Op::Add(to, SP, number) => self.set(*to, (!self.left).then_some(Value::Frame(number - depth))),
            Op::Add(to, from, number) => {
                let value = match self.get(*from) {
                    Some(Value::Frame(at)) => Some(Value::Frame(at + number)),
                    value => value.filter(|_| *number == 0),
                };
                self.set(*to, value);
            }
            Op::Move(to, from) => self.set(*to, self.get(*from)),
            Op::Subtract(to, first, other) => {
                let both = self.get(*first).zip(self.get(*other));
                self.set(*to, both.map(|(top, depth)| Value::Difference(Box::new(top), Box::new(depth))));
            }
            // C's and the runtime's own functions keep x19 to x28.
            Op::Call => self.values.retain(|register, _| (19..=G).contains(register)),
            Op::Writes(to) => self.set(*to, None),
            Op::Store(..) | Op::Jump(_) | Op::Branch(_) | Op::End => {}
        }
    }
}

/// Values that a function has stored for others to find.
#[derive(Default)]
struct Kept {
    /// Its caller's stack pointer.
    thread: Option<Cfa>,
    /// Offsets in g: of the stack pointer, the return address, and its caller's return address.
    saved: [Option<i32>; 3],
}

impl Kept {
    fn store(&mut self, op: &Op, state: &StackState) {
        let Op::Store(what, at, offset) = op else { return };
        let (Some(value), Some(at)) = (state.get(*what), state.get(*at)) else { return };
        match (&at, &value) {
            (Value::At(g, m), Value::Frame(0)) if **g == Value::Was(G) => {
                self.thread = Some(Cfa::Thread { m: *m, sp: *offset, outer: 0 });
            }
            (Value::Was(G), _) => {
                let what = [Value::Frame(0), Value::Was(LR), Value::Was(PROLOGUE_LR)].iter().position(|what| *what == value);
                if let Some(saved) = what.and_then(|what| self.saved.get_mut(what)) {
                    *saved = Some(*offset);
                }
            }
            _ => {}
        }
    }

    /// Returns the rule for a caller that is in its prologue. It has saved nothing yet, and is found by the values saved here.
    fn prologue(&self, goroutine: Cfa) -> Option<Packed> {
        let [Some(own), Some(pc), Some(lr)] = self.saved else { return None };
        match goroutine {
            Cfa::Goroutine { tls, m, curg, sp, .. } if sp == own && pc == sp + 8 => {
                frame(Cfa::Goroutine { tls, m, curg, sp, outer: 0 }, Ra::Prologue(lr - sp))
            }
            _ => None,
        }
    }
}

fn frame(cfa: Cfa, ra: Ra) -> Option<Packed> {
    // A stack that was found through g has another g: g leads there only once. A caller of the vDSO keeps its own g.
    let rbx = if matches!(cfa, Cfa::Thread { .. } | Cfa::Register(..)) { Rbx::Unchanged } else { Rbx::Unknown };
    let frame = Frame { cfa, ra, fp: Fp::Undefined, rbx, interrupted: false, skips: false };
    Packed::new(Rule::Frame(frame), Arch::Aarch64)
}

/// Returns the rule on its own stack.
fn own(depth: i64) -> Packed {
    let Ok(depth) = i32::try_from(depth) else { return Packed::invalid(Invalid::DoesNotFit) };
    let ra = if depth == 0 { Ra::Register(Reg(30)) } else { Ra::AtCfa(-depth) };
    let fp = if depth == 0 { Fp::Unchanged } else { Fp::Undefined };
    let cfa = Cfa::Register(Arch::Aarch64.sp(), depth);
    let frame = Frame { cfa, ra, fp, rbx: Rbx::Unchanged, interrupted: false, skips: false };
    Packed::new(Rule::Frame(frame), Arch::Aarch64).unwrap_or(Packed::invalid(Invalid::DoesNotFit))
}

/// Returns the rule on another stack: the stack pointer will be `depth` below the CFA, and the return address is there.
fn left(cfa: Cfa, depth: i64) -> Option<Packed> {
    let depth = i32::try_from(depth).ok().filter(|depth| *depth > 0)?;
    let cfa = match cfa {
        Cfa::Goroutine { tls, m, curg, sp, .. } => Cfa::Goroutine { tls, m, curg, sp, outer: depth },
        Cfa::BelowTop { object, top, depth: below, .. } => Cfa::BelowTop { object, top, depth: below, outer: depth },
        Cfa::Deref(register, inner, _) => Cfa::Deref(register, inner, depth),
        // Already the caller's.
        cfa => cfa,
    };
    frame(cfa, Ra::AtCfa(-depth))
}

/// Follows the code behind a call. Returns the end of the instruction that puts the stack pointer back, and the CFA.
fn comes_back(ops: &[(u64, Option<Op>)]) -> Option<(u64, Cfa)> {
    let mut state = StackState { left: true, values: Values::from([(G, Value::Was(G))]) };
    for (address, op) in ops {
        match op.as_ref()? {
            Op::Jump(_) | Op::Branch(_) | Op::End => return None,
            Op::Add(SP, from, 0) => return Some((address + 4, place(&state.get(*from)?)?)),
            Op::Add(SP, ..) => return None,
            op => state.step(op, 0),
        }
    }
    None
}

/// Returns a value's formula, without the size of the frame.
fn place(value: &Value) -> Option<Cfa> {
    let outer = 0;
    match value {
        Value::Slot(offset) => Some(Cfa::Deref(Reg(31), *offset, outer)),
        Value::Difference(top, depth) => match (&**top, &**depth) {
            (Value::At(object, top), Value::Slot(depth)) => match **object {
                Value::Slot(object) => Some(Cfa::BelowTop { object, top: *top, depth: *depth, outer }),
                _ => None,
            },
            _ => None,
        },
        Value::At(curg, sp) => match &**curg {
            Value::At(m, curg) => match &**m {
                Value::At(g, m) if **g == Value::Was(G) => Some(Cfa::Goroutine { tls: 0, m: *m, curg: *curg, sp: *sp, outer }),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of Go 1.19, calls and jumps to elsewhere included.
    const SYSTEMSTACK: &str = "fe0f1ff8 fd831ff8 fd2300d1 e30f40f9 fa0303aa 841b40f9 852840f9 bf001ceb c0030054 850040f9 bf001ceb 60030054 \
        866040f9 df001ceb a0000054 23000090 63802891 60003fd6 2a090014 15feff97 fc0305aa d30e0094 831f40f9 7f000091 \
        9d3740f9 430340f9 60003fd6 831b40f9 7c6040f9 cb0e0094 801f40f9 1f000091 9d3740f9 9f1f00f9 9f3700f9 fdfb7fa9 \
        ff430091 c0035fd6 430340f9 fe0741f8 fd2300d1 60001fd6";

    const NANOTIME1: &str = "fe0f1df8 fd831ff8 fd2300d1 f4030091 e1030091 951b40f9 a29641f9 a39241f9 e20700f9 e30b00f9 e2c30091 be9601f9 \
        a29201f9 a06240f9 1f001ceb 61000054 a30240f9 611c40f9 218000d1 21ec7c92 3f000091 e0030032 db0800b0 7b030891 \
        620340f9 020200b4 db0800b0 7b2f0091 76034039 560100b5 b62a40f9 160100b4 df021ceb c0000054 d60240f9 dc0200f9 \
        40003fd6 df0200f9 05000014 40003fd6 03000014 280e80d2 010000d4 e30340f9 e50740f9 9f020091 e10b40f9 a19201f9 \
        e10740f9 a19601f9 044099d2 4473a7f2 637c049b 6300058b e31f00f9 fdfb7fa9 ffc30091 c0035fd6";

    const ASMCGOCALL: &str = "fe0f1ff8 fd831ff8 fd2300d1 e10f40f9 e01340f9 e2030091 bc0400b4 e4031caa 881b40f9 032940f9 9f0303eb 00040054 \
        030140f9 9f0303eb a0030054 e90300aa 1cf5ff97 fc0303aa da050094 801f40f9 1f000091 9d3740f9 e00309aa ed030091 \
        ad4100d1 bf010091 e40300f9 840440f9 840002cb e40700f9 20003fd6 e90300aa fc0340f9 cb050094 850740f9 e60740f9 \
        a50006cb e00309aa bf000091 e02b00b9 fdfb7fa9 ff430091 c0035fd6 ed030091 ad4100d1 bf010091 040080d2 e40300f9 \
        e20700f9 20003fd6 e20740f9 5f000091 e01700f9 fdfb7fa9 ff430091 c0035fd6";

    const MORESTACK: &str = "881b40f9 040140f9 9f001ceb 61000054 2c0f0094 0b090014 042940f9 9f001ceb 61000054 2b0f0094 06090014 e0030091 \
        801f00f9 9d3700f9 9e2300f9 833300f9 9a2b00f9 030900f9 e0030091 000500f9 1c0d00f9 1c0140f9 a60e0094 801f40f9 \
        1f000091 9d3740f9 ff0f1ff8 410f0094 0017a7be";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    const AWAY: Packed = Packed(Invalid::StackPointer as u64 * 8);
    const GOROUTINE: Cfa = Cfa::Goroutine { tls: 0, m: 0x30, curg: 0xc0, sp: 0x38, outer: 0 };

    #[test]
    fn systemstack_looks_where_the_goroutine_was_saved() {
        let pcsp = [(0x6abe0, 0), (0x6abe4, 16), (0x6ac74, 0), (0x6ac78, 16), (0x6ac80, 0)];
        let found = rows(&bytes(SYSTEMSTACK), 0x6abe0, &pcsp, None).unwrap();
        assert_eq!(found.goroutine, Some(GOROUTINE));
        let there = left(GOROUTINE, 16).unwrap();
        let expected = [
            (0x6abe0, own(0)),
            (0x6abe4, own(16)),
            (0x6ac40, AWAY),
            (0x6ac48, there),
            (0x6ac60, own(16)),
            (0x6ac74, own(0)),
            (0x6ac78, own(16)),
            (0x6ac80, own(0)),
        ];
        assert_eq!(found.rows, expected);
    }

    #[test]
    fn calls_of_the_vdso_leave_their_caller_with_the_thread() {
        let pcsp = [(0x6e110, 0), (0x6e114, 48), (0x6e1f4, 0)];
        let found = rows(&bytes(NANOTIME1), 0x6e110, &pcsp, None).unwrap();
        let there = left(Cfa::Thread { m: 0x30, sp: 800, outer: 0 }, 48).unwrap();
        let itself = left(Cfa::Register(Reg(20), 48), 48).unwrap();
        let expected = [
            (0x6e110, own(0)),
            (0x6e114, own(48)),
            (0x6e164, itself),
            (0x6e1a0, there),
            (0x6e1a4, itself),
            (0x6e1ac, there),
            (0x6e1b0, itself),
            (0x6e1c8, own(48)),
            (0x6e1f4, own(0)),
        ];
        assert_eq!(found.rows, expected);
        assert_eq!(found.goroutine, None);
        // Its caller may be beyond another switch, and only g leads across.
        assert!(matches!(there.rule(Arch::Aarch64), Some(Rule::Frame(Frame { rbx: Rbx::Unchanged, .. }))));
        // Without `str x2, [x21, 800]` nothing tells.
        let other = NANOTIME1.replace("a29201f9", "1f2003d5");
        assert!(rows(&bytes(&other), 0x6e110, &pcsp, None).is_none());
    }

    #[test]
    fn asmcgocall_looks_on_the_stack_it_went_to() {
        let pcsp = [(0x6cfd0, 0), (0x6cfd4, 16), (0x6d078, 0), (0x6d07c, 16), (0x6d0ac, 0)];
        let found = rows(&bytes(ASMCGOCALL), 0x6cfd0, &pcsp, None).unwrap();
        let expected = [
            (0x6cfd0, own(0)),
            (0x6cfd4, own(16)),
            (0x6d024, AWAY),
            (0x6d048, left(Cfa::BelowTop { object: 0, top: 8, depth: 8, outer: 0 }, 16).unwrap()),
            (0x6d06c, own(16)),
            (0x6d078, own(0)),
            (0x6d07c, own(16)),
            (0x6d088, AWAY),
            (0x6d094, left(Cfa::Deref(Reg(31), 8, 0), 16).unwrap()),
            (0x6d0a0, own(16)),
            (0x6d0ac, own(0)),
        ];
        assert_eq!(found.rows, expected);
    }

    #[test]
    fn what_does_not_come_back_is_where_it_was_saved() {
        let pcsp = [(0x6ac90, 0)];
        let found = rows(&bytes(MORESTACK), 0x6ac90, &pcsp, Some(GOROUTINE)).unwrap();
        let saved = frame(GOROUTINE, Ra::Prologue(40)).unwrap();
        let expected = [
            (0x6ac90, own(0)),
            (0x6aca4, AWAY),
            (0x6aca8, own(0)),
            (0x6acb8, AWAY),
            (0x6acbc, own(0)),
            // Behind `bl save_g`, which has overwritten x30.
            (0x6acec, AWAY),
            (0x6acfc, saved),
        ];
        assert_eq!(found.rows, expected);
        assert!(rows(&bytes(MORESTACK), 0x6ac90, &pcsp, None).is_none());
        // Offsets that do not fit together.
        let other = Cfa::Goroutine { tls: 0, m: 0x30, curg: 0xc0, sp: 0x40, outer: 0 };
        assert!(rows(&bytes(MORESTACK), 0x6ac90, &pcsp, Some(other)).is_none());
    }

    #[test]
    fn loops_and_what_is_no_code_are_not_understood() {
        // mov sp, x0; blr x1; b back
        let code = bytes("1f000091 20003fd6 feffff17");
        assert!(rows(&code, 0x1000, &[(0x1000, 16)], None).is_none());
        assert!(rows(&bytes("ffffffff"), 0x1000, &[(0x1000, 16)], None).is_none());
        assert!(rows(&[], 0x1000, &[], None).is_none());
    }
}
