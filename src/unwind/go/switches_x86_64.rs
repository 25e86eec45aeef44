//! Rules for functions of Go's runtime that go to another stack and come back, on x86_64. The rules are read from the functions' own
//! code: it tells where they find the stack that they left.
//!
//! ```text
//! systemstack:   mov rax, fs:-8  …  mov rsp, rbx        asmcgocall:  …  mov rsp, [rsi+0x38]; sub rsp, 64; and rsp, -16
//!                call rdi         on the thread's stack               call rax
//!                mov rax, fs:-8       g                               mov rdi, [rsp+0x30]      g
//!                mov rbx, [rax+0x30]  g.m                             mov rsi, [rdi+8]         g.stack.hi
//!                mov rax, [rbx+0xc0]  m.curg                          sub rsi, [rsp+0x28]      less how deep it was
//!                mov rsp, [rax+0x38]  curg.sched.sp                   …  mov rsp, rsi
//!                ret                                                  ret
//! ```
//!
//! The code after the call says what the stack pointer will be. Offsets in the runtime's structures differ between versions of
//! Go, so they are taken from there. `morestack` does not come back. It has saved its caller's program counter and stack pointer
//! where `systemstack` looks, and both are taken from there. The return address on the stack is of no use: Go does not move it with
//! the stack. Only straight code is read, from a call on; all other forms are left to the frame pointer.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::object::headers::Arch;
use crate::unwind::table::packed::Packed;
use crate::unwind::table::rule::{Cfa, Fp, Frame, Invalid, Ra, Rbx, Reg, Rule};

/// Most bytes of a function that are read. These functions have 50 to 200 bytes.
pub(crate) const LONGEST: u64 = 1024;

/// The place of the stack pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stack {
    /// This many bytes below the caller's return address.
    Below(i32),
    /// On another stack, or on its way there.
    Left,
}

/// The contents of a register, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Unknown,
    /// `*(fs + n)`
    Thread(i32),
    /// `*(rsp + n)`
    Slot(i32),
    /// `*(value + n)`
    At(Box<Value>, i32),
    Difference(Box<Value>, Box<Value>),
}

/// The rows of a function that leaves its stack. `goroutine`: where a goroutine's stack is found, if the function's code tells.
pub(crate) struct Switches {
    pub(crate) rows: Vec<(u64, Packed)>,
    pub(crate) goroutine: Option<Cfa>,
}

/// Returns the rules of a function without a frame. Returns `None` if its code does not tell where it finds its stack again. `saved`:
/// where a function that never comes back has saved its caller's stack pointer.
pub(crate) fn rows(code: &[u8], start: u64, saved: Option<Cfa>) -> Option<Switches> {
    let instructions: Vec<Instruction> = Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter().collect();
    let mut found = Switches { rows: Vec::new(), goroutine: None };
    let mut stack = Some(Stack::Below(0));
    // Targets of jumps, all of them forward.
    let mut reached = BTreeMap::new();
    let mut restored = None;
    let mut left = false;
    for (at, instruction) in instructions.iter().enumerate() {
        if instruction.is_invalid() {
            return None;
        }
        let address = instruction.ip();
        if let Some((end, rule)) = restored
            && address < end
        {
            push(&mut found.rows, address, rule);
        } else {
            if restored.take().is_some() {
                stack = Some(Stack::Below(0));
            }
            stack = reached.get(&address).copied().or(stack);
            let call = instruction.flow_control() == FlowControl::Call || instruction.flow_control() == FlowControl::IndirectCall;
            let back = instructions.get(at + 1..).filter(|_| call && stack == Some(Stack::Left)).and_then(comes_back);
            if let Some((end, cfa)) = back {
                if matches!(cfa, Cfa::Goroutine { .. }) {
                    found.goroutine = Some(cfa);
                }
                let rule = frame(cfa);
                push(&mut found.rows, address, rule);
                restored = Some((end, rule));
                left = true;
                continue;
            }
            let rule = match (stack, saved) {
                (Some(Stack::Below(bytes)), _) => frame(Cfa::Register(Arch::X86_64.sp(), bytes.saturating_add(8))),
                (Some(Stack::Left), Some(saved)) if call || left => {
                    left = true;
                    frame_with(saved, Ra::Saved)
                }
                _ => Packed::invalid(Invalid::StackPointer),
            };
            push(&mut found.rows, address, rule);
        }
        if restored.is_none() {
            stack = after(instruction, stack, &mut reached);
        }
    }
    left.then_some(found)
}

/// Returns the address behind the first instruction that puts another stack into the stack pointer.
pub(crate) fn leaves_at(code: &[u8], start: u64) -> Option<u64> {
    let mut instructions = Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter();
    let leaves = |instruction: &Instruction| after(instruction, Some(Stack::Below(0)), &mut BTreeMap::new()) == Some(Stack::Left);
    instructions.find(leaves).map(|instruction| instruction.next_ip())
}

fn push(rows: &mut Vec<(u64, Packed)>, address: u64, rule: Packed) {
    if rows.last().is_none_or(|(_, last)| *last != rule) {
        rows.push((address, rule));
    }
}

fn frame(cfa: Cfa) -> Packed {
    frame_with(cfa, Ra::AtCfa(-8))
}

fn frame_with(cfa: Cfa, ra: Ra) -> Packed {
    let frame = Frame { cfa, ra, fp: Fp::Unchanged, rbx: Rbx::Unknown, interrupted: false, skips: false };
    Packed::new(Rule::Frame(frame), Arch::X86_64).unwrap_or(Packed::invalid(Invalid::DoesNotFit))
}

/// Returns the place of the stack pointer behind an instruction; `None` if execution does not continue there.
fn after(instruction: &Instruction, stack: Option<Stack>, reached: &mut BTreeMap<u64, Stack>) -> Option<Stack> {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            if let Some(stack) = stack {
                reached.entry(instruction.near_branch_target()).or_insert(stack);
            }
            return stack.filter(|_| instruction.flow_control() == FlowControl::ConditionalBranch);
        }
        FlowControl::Return | FlowControl::IndirectBranch => return None,
        _ => {}
    }
    let Some(Stack::Below(bytes)) = stack else { return stack };
    let change = instruction.stack_pointer_increment();
    if instruction.flow_control() == FlowControl::Next && matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop) {
        return Some(Stack::Below(bytes.saturating_sub(change)));
    }
    if instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP {
        let by = i32::try_from(instruction.try_immediate(1).unwrap_or(u64::MAX).cast_signed()).ok();
        return Some(match (instruction.mnemonic(), by) {
            (Mnemonic::Cmp | Mnemonic::Test, _) => Stack::Below(bytes),
            (Mnemonic::Sub, Some(by)) => Stack::Below(bytes.saturating_add(by)),
            (Mnemonic::Add, Some(by)) => Stack::Below(bytes.saturating_sub(by)),
            _ => Stack::Left,
        });
    }
    stack
}

/// Follows the code behind a call. Returns the end of the instruction that puts the stack pointer back, and the frame's end (the CFA).
fn comes_back(instructions: &[Instruction]) -> Option<(u64, Cfa)> {
    let mut registers: BTreeMap<Register, Value> = BTreeMap::new();
    for instruction in instructions {
        if instruction.flow_control() != FlowControl::Next {
            return None;
        }
        if instruction.op0_kind() != OpKind::Register {
            continue;
        }
        let target = instruction.op0_register();
        let known = |register| registers.get(&register).cloned().unwrap_or(Value::Unknown);
        let operand = match instruction.op1_kind() {
            OpKind::Register => known(instruction.op1_register()),
            OpKind::Memory => load(instruction, known),
            _ => Value::Unknown,
        };
        let value = match instruction.mnemonic() {
            Mnemonic::Mov => operand,
            Mnemonic::Sub => Value::Difference(Box::new(known(target)), Box::new(operand)),
            _ => Value::Unknown,
        };
        if target.full_register() == Register::RSP {
            return Some((instruction.next_ip(), place(&value)?));
        }
        registers.insert(target, if target.is_gpr64() { value } else { Value::Unknown });
        if !target.is_gpr64() {
            registers.remove(&target.full_register());
        }
    }
    None
}

fn load(instruction: &Instruction, known: impl Fn(Register) -> Value) -> Value {
    let displacement = i32::try_from(instruction.memory_displacement64().cast_signed());
    let (Ok(displacement), Register::None) = (displacement, instruction.memory_index()) else { return Value::Unknown };
    match (instruction.memory_segment(), instruction.memory_base()) {
        (Register::FS, Register::None) => Value::Thread(displacement),
        (Register::FS, _) | (_, Register::None | Register::RIP) => Value::Unknown,
        (_, Register::RSP) => Value::Slot(displacement),
        (_, base) => Value::At(Box::new(known(base)), displacement),
    }
}

/// Returns the frame's end (the CFA) if the stack pointer has this value. There the stack pointer points to the return address, and the
/// frame ends behind it.
fn place(value: &Value) -> Option<Cfa> {
    let outer = 8;
    match value {
        Value::Slot(offset) => Some(Cfa::Deref(Reg(7), *offset, outer)),
        Value::Difference(top, depth) => match (&**top, &**depth) {
            (Value::At(object, top), Value::Slot(depth)) => match **object {
                Value::Slot(object) => Some(Cfa::BelowTop { object, top: *top, depth: *depth, outer }),
                _ => None,
            },
            _ => None,
        },
        Value::At(curg, sp) => match &**curg {
            Value::At(m, curg) => match &**m {
                Value::At(g, m) => match **g {
                    Value::Thread(tls) => Some(Cfa::Goroutine { tls, m: *m, curg: *curg, sp: *sp, outer }),
                    _ => None,
                },
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

    /// `systemstack` as Go 1.19 has it, its jumps and calls to elsewhere included.
    const SYSTEMSTACK: &str = "488b7c2408 64488b0425f8ffffff 488b5830 483b4350 745b 488b13 4839d0 7453 483b83c0000000 7552 \
        e8d2f1ffff 6448891425f8ffffff 4989d6 488b5a38 4889dc 4889fa 488b3f ffd7 64488b0425f8ffffff 488b5830 488b83c0000000 \
        6448890425f8ffffff 488b6038 48c7403800000000 c3 4889fa 488b3f ffe7 488d055e460000 ffd0 cd03";

    const ASMCGOCALL: &str = "488b442408 488b5c2410 4889e2 64488b3c25f8ffffff 4883ff00 7467 4c8b4730 498b7050 4839f7 745a 498b30 \
        4839f7 7452 e86ad3ffff 6448893425f8ffffff 488b6638 4883ec40 4883e4f0 48897c2430 488b7f08 4829d7 48897c2428 4889df 4889d9 \
        ffd0 488b7c2430 488b7708 482b742428 6448893c25f8ffffff 4889f4 89442418 c3 4883ec40 4883e4f0 48c744243000000000 \
        4889542428 4889df 4889d9 ffd0 488b742428 4889f4 89442418 c3";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn by_stack(bytes: i32) -> Packed {
        frame(Cfa::Register(Reg(7), bytes))
    }

    const AWAY: Packed = Packed(Invalid::StackPointer as u64 * 8);

    #[test]
    fn systemstack_looks_where_the_goroutine_was_saved() {
        let found = rows(&bytes(SYSTEMSTACK), 0xba20, None).unwrap();
        let goroutine = Cfa::Goroutine { tls: -8, m: 0x30, curg: 0xc0, sp: 0x38, outer: 8 };
        assert_eq!(found.goroutine, Some(goroutine));
        let expected = [(0xba20, by_stack(8)), (0xba61, AWAY), (0xba67, frame(goroutine)), (0xba8a, by_stack(8))];
        assert_eq!(found.rows, expected);
    }

    #[test]
    fn asmcgocall_looks_on_the_stack_it_went_to() {
        let found = rows(&bytes(ASMCGOCALL), 0xd880, None).unwrap();
        let below = Cfa::BelowTop { object: 0x30, top: 8, depth: 0x28, outer: 8 };
        let expected = [
            (0xd880, by_stack(8)),
            (0xd8c3, AWAY),
            (0xd8e2, frame(below)),
            (0xd8fe, by_stack(8)),
            (0xd907, by_stack(72)),
            (0xd90b, AWAY),
            (0xd91f, frame(Cfa::Deref(Reg(7), 0x28, 8))),
            (0xd929, by_stack(8)),
        ];
        assert_eq!(found.rows, expected);
    }

    #[test]
    fn gogo_is_on_the_threads_stack_until_it_has_left_it() {
        // mov fs:-8, rdx; mov r14, rdx; mov rsp, [rbx]; mov rax, [rbx+0x20]; mov rbx, [rbx+8]; jmp rbx
        let code = bytes("6448891425f8ffffff 4989d6 488b23 488b4320 488b5b08 ffe3");
        assert_eq!(leaves_at(&code, 0x1000), Some(0x100f));
        assert_eq!(leaves_at(&bytes("4989d6 ffe3"), 0x1000), None);
    }

    #[test]
    fn what_does_not_come_back_is_where_it_was_saved() {
        // mov rbx, fs:-8; mov rsp, [rbx+0x38]; call; call; ret
        let code = bytes("64488b1c25f8ffffff 488b6338 e875450000 e8111e0000 c3");
        let saved = Cfa::Goroutine { tls: -8, m: 0x30, curg: 0xc0, sp: 0x38, outer: 0 };
        let found = rows(&code, 0x1000, Some(saved)).unwrap();
        assert_eq!(found.rows, [(0x1000, by_stack(8)), (0x100d, frame_with(saved, Ra::Saved))]);
        assert!(rows(&code, 0x1000, None).is_none());
        assert!(rows(&[0x06, 0xc3], 0x1000, None).is_none(), "no code");
    }
}
