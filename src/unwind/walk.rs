//! Walks a copied stack: the walk of `bpf/walk/walk.h` in user space, by the same packed rules.
//!
//! ```text
//! registers ─► pc ─► rule ─► the caller's pc, stack pointer, frame pointer ─► its rule ─► …   up to a root
//!                     ▲ [`Code::at`]            ▲ [`Memory::word`]
//! ```
//!
//! [`rule`](super::table::rule) defines what each rule means. Two things differ from the walk in the kernel:
//!
//! - Only copied memory can be read. A step that needs more ends the walk with [`UserEnd::Dump`]: frames beyond are unknown, not
//!   wrong.
//! - Code cannot be read, so nothing is guessed. A gap ends the walk. A change of stacks ends it, too: such a rule may only be
//!   used if a call ends at the address that it leads to.
//!
//! Pure: the caller says what is mapped where. The mappings must be those of the time when the stack was copied.

use super::table::packed::Packed;
use super::table::rule::{Cfa, Fp, Frame, RBX, Ra, Rbx, Reg, Rule};
use crate::object::headers::Arch;
use crate::profile::UserEnd;

/// Most frames of a walk: `MAX_USER_FRAMES` of bpf/record.h.
const MOST_FRAMES: usize = 2048;
/// Most changes of stacks: `MAX_SWITCHES` of bpf/walk/step.h.
const MOST_SWITCHES: u8 = 8;
/// x28 of arm64, where Go keeps g, the goroutine that it runs. `NO_SIGNAL` is no register, but has a bit in the same mask of known
/// registers: the bit is cleared when the walk passes a signal frame.
const G: u8 = 28;
const NO_SIGNAL: u8 = 18;
/// Link register of arm64.
const LR: Reg = Reg(30);

/// The registers of a frame.
#[derive(Clone, Debug)]
pub struct Registers {
    /// Program counter.
    pub pc: u64,
    /// General registers by their DWARF numbers.
    pub values: [u64; 32],
    /// A bit for each register that is known; on arm64 also `NO_SIGNAL`.
    pub valid: u32,
    /// Whether `pc` is a return address: then it is looked up one byte before.
    pub is_return: bool,
    /// Whether the frame was found without unwind information.
    pub guessed: bool,
    /// Stacks that were left for another one so far.
    pub switches: u8,
}

/// A frame that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkedFrame {
    /// Program counter of the frame.
    pub pc: u64,
    /// Whether a call returns there. Otherwise the instruction there was interrupted.
    pub is_return: bool,
    /// Whether the frame was found without unwind information.
    pub guessed: bool,
    /// Stack pointer of the frame.
    pub sp: u64,
}

/// The code at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Code of an object with a table: the rule there.
    Rule(Packed),
    /// Code of an object whose table is not there yet.
    NoTable,
    /// Code of no file.
    Anonymous,
    /// No code.
    Nothing,
}

/// The code of a process.
pub trait Code {
    /// Returns the code at an address.
    fn at(&mut self, address: u64) -> At;

    /// Whether all code without rules there keeps frame pointers, as V8's does.
    fn keeps_frame_pointers(&mut self, address: u64) -> bool {
        let _ = address;
        false
    }
}

/// A piece of memory that was copied.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }
}

/// Memory that was copied, in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a>(pub &'a [Piece]);

impl Memory<'_> {
    /// Returns the word at an address, if it was copied. Unaligned words are never part of a frame.
    fn word(&self, address: u64) -> Result<u64, UserEnd> {
        if !address.is_multiple_of(8) {
            return Err(UserEnd::BadFrame);
        }
        self.0.iter().find_map(|piece| piece.word(address)).ok_or(UserEnd::Dump)
    }
}

/// A machine, as far as walks differ.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The architecture of the rules.
    pub arch: Arch,
    /// Bits of code addresses that may be a signature (pointer authentication of arm64).
    pub signature: u64,
}

/// A stack as far as it was walked.
#[derive(Clone, Debug)]
pub struct Walked {
    /// The frames, innermost first.
    pub frames: Vec<WalkedFrame>,
    /// The registers where the walk ended: mostly those of the outermost frame. After [`UserEnd::Cut`], and after [`UserEnd::NoCode`] at a
    /// caller, those of the caller that was not added.
    pub registers: Registers,
    /// Most frames that it may have.
    room: usize,
}

impl Walked {
    /// Starts a walk with the frame of these registers. `before` frames of its stack are known already, and count towards the
    /// limit.
    pub fn from(registers: &Registers, before: usize) -> Walked {
        Walked { frames: Vec::new(), registers: registers.clone(), room: MOST_FRAMES.saturating_sub(before) }
    }

    /// Walks to the root, and returns why the walk ended. A walk that ended at code without a table can be continued by the same call.
    pub fn go_on(&mut self, machine: Machine, memory: Memory<'_>, code: &mut impl Code) -> UserEnd {
        // The outermost frame so far is found once more, by its registers.
        self.frames.pop();
        let mut walk = Walk { machine, registers: self.registers.clone(), memory };
        let end = loop {
            match walk.step(code, &mut self.frames) {
                Ok(()) if self.frames.len() >= self.room => break UserEnd::Cut,
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        self.registers = walk.registers;
        end
    }

    /// Returns the address of the code where the walk ended: after a call, the address of the call, not of the instruction behind it.
    pub fn code_address(&self) -> u64 {
        self.registers.pc.wrapping_sub(self.registers.is_return.into())
    }
}

struct Walk<'a> {
    machine: Machine,
    registers: Registers,
    memory: Memory<'a>,
}

impl Walk<'_> {
    /// Adds the current frame and goes to its caller.
    fn step(&mut self, code: &mut impl Code, frames: &mut Vec<WalkedFrame>) -> Result<(), UserEnd> {
        let Registers { pc, is_return, guessed, .. } = self.registers;
        let at = code.at(pc.wrapping_sub(u64::from(is_return)));
        if at == At::Nothing && !frames.is_empty() {
            return Err(UserEnd::NoCode);
        }
        let sp = self.get(self.machine.arch.sp()).unwrap_or(0);
        frames.push(WalkedFrame { pc, is_return, guessed, sp });
        let rule = match at {
            At::Rule(rule) => rule.rule(self.machine.arch).ok_or(UserEnd::Invalid)?,
            At::NoTable => return Err(UserEnd::NoTable),
            At::Anonymous => return self.follow_frame_pointer(code, UserEnd::Anonymous),
            At::Nothing => return Err(UserEnd::NoCode),
        };
        match rule {
            Rule::Root => Err(UserEnd::Root),
            Rule::Gap => self.follow_frame_pointer(code, UserEnd::Gap),
            Rule::Invalid(_) => Err(UserEnd::Invalid),
            Rule::Signal => self.leave_signal(),
            Rule::Plt { pushed } => {
                let above = if self.registers.pc & 15 >= u64::from(pushed) { 8 } else { 0 };
                let cfa = self.get(self.machine.arch.sp())?.wrapping_add(8 + above);
                let frame = Frame {
                    cfa: Cfa::Register(self.machine.arch.sp(), 0),
                    ra: Ra::AtCfa(-8),
                    fp: Fp::Unchanged,
                    rbx: Rbx::Unchanged,
                    interrupted: false,
                    skips: false,
                };
                self.go_to_caller(&frame, cfa)
            }
            Rule::Frame(frame) => {
                let cfa = self.cfa(&frame.cfa)?;
                self.go_to_caller(&frame, cfa)
            }
        }
    }

    /// Goes to the caller of code without rules by the frame pointer, if the code keeps one. An interrupted function may not have set it yet.
    fn follow_frame_pointer(&mut self, code: &mut impl Code, end: UserEnd) -> Result<(), UserEnd> {
        let Registers { pc, is_return, .. } = self.registers;
        let (arch, valid) = (self.machine.arch, self.registers.valid);
        if !is_return || valid >> arch.fp().0 & 1 == 0 || !code.keeps_frame_pointers(pc.wrapping_sub(1)) {
            return Err(end);
        }
        let frame = Frame {
            cfa: Cfa::Register(arch.fp(), 16),
            ra: Ra::AtCfa(-8),
            fp: Fp::AtCfa(-16),
            rbx: Rbx::Unknown,
            interrupted: false,
            skips: false,
        };
        let cfa = self.cfa(&frame.cfa)?;
        self.go_to_caller(&frame, cfa)?;
        self.registers.guessed = true;
        Ok(())
    }

    /// Returns the value of a register, if it is known in this frame.
    fn get(&self, register: Reg) -> Result<u64, UserEnd> {
        let known = self.registers.valid.checked_shr(register.0.into()).unwrap_or(0) & 1 != 0;
        let value = self.registers.values.get(usize::from(register.0)).copied().filter(|_| known);
        value.ok_or(UserEnd::Register)
    }

    fn set(&mut self, register: Reg, value: u64) {
        self.registers.values.iter_mut().skip(register.0.into()).take(1).for_each(|place| *place = value);
    }

    fn cfa(&self, cfa: &Cfa) -> Result<u64, UserEnd> {
        let add = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
        match *cfa {
            Cfa::Register(register, offset) => Ok(add(self.get(register)?, offset)),
            Cfa::Deref(register, inner, outer) => {
                let place = add(self.get(register)?, inner);
                Ok(add(self.memory.word(place)?, outer))
            }
            Cfa::Indexed { base, index, scale, inner, outer } => {
                let scaled = self.get(index)?.wrapping_mul(scale.into());
                let place = add(self.get(base)?.wrapping_add(scaled), inner);
                Ok(add(self.memory.word(place)?, outer))
            }
            // On another stack, which was not copied.
            Cfa::DerefTwice { .. } | Cfa::Goroutine { .. } | Cfa::BelowTop { .. } | Cfa::Thread { .. } => Err(UserEnd::Dump),
        }
    }

    /// Goes to the caller of an ordinary frame.
    fn go_to_caller(&mut self, frame: &Frame, cfa: u64) -> Result<(), UserEnd> {
        let Machine { arch, signature } = self.machine;
        let sp = self.get(arch.sp())?;
        let ra_in_register = matches!(frame.ra, Ra::Register(_));
        if !cfa.is_multiple_of(8) {
            return Err(UserEnd::BadFrame);
        }
        if cfa < sp || cfa == sp && !ra_in_register {
            // Stacks grow downwards: callers lie above, except where a function comes back to another stack.
            let may_switch = match frame.cfa {
                Cfa::Register(register, _) => may_switch_by(arch, register),
                Cfa::Indexed { .. } => false,
                _ => true,
            };
            let switches = may_switch && self.registers.switches < MOST_SWITCHES;
            return Err(if switches { UserEnd::Dump } else { UserEnd::BadFrame });
        }
        if frame.skips {
            return Err(UserEnd::Dump);
        }
        let fp = self.caller_fp(frame, cfa, sp)?;
        let pc = match frame.ra {
            Ra::Register(register) => self.get(register)?,
            Ra::AtCfa(offset) => self.memory.word(cfa.wrapping_add_signed(offset.into()))?,
            Ra::Saved | Ra::Prologue(_) => return Err(UserEnd::Dump),
        };
        let pc = pc & !signature;
        let kept = self.kept_registers(frame, cfa);
        if pc == 0 {
            // A program's first code clears x29 and x30 (AAPCS64, 6.4.6).
            return Err(if arch == Arch::Aarch64 && fp == Some(0) { UserEnd::Root } else { UserEnd::Zero });
        }
        self.registers.valid = kept | 1 << arch.sp().0;
        if let Some(fp) = fp {
            self.registers.valid |= 1 << arch.fp().0;
            self.set(arch.fp(), fp);
        }
        self.set(arch.sp(), cfa);
        self.registers.pc = pc;
        self.registers.is_return = !frame.interrupted;
        self.registers.guessed = false;
        Ok(())
    }

    /// Returns the caller's frame pointer, if it is known.
    fn caller_fp(&self, frame: &Frame, cfa: u64, sp: u64) -> Result<Option<u64>, UserEnd> {
        let fp = self.get(self.machine.arch.fp()).ok();
        let place = match frame.fp {
            Fp::Unchanged => return Ok(fp),
            Fp::Undefined => return Ok(None),
            Fp::Register(register) => return Ok(self.get(register).ok()),
            Fp::AtCfa(offset) => cfa.wrapping_add_signed(offset.into()),
            Fp::AtSp(offset) => sp.wrapping_add_signed(offset.into()),
            // After its pop, the frame pointer is the caller's already, and points beyond this frame; gcc does not say so.
            Fp::AtFp(offset) => match fp.map(|fp| fp.wrapping_add_signed(offset.into())) {
                Some(place) if place < cfa => place,
                _ => return Ok(fp),
            },
        };
        // Below the stack pointer: the register was popped already. Compilers do not always say so.
        if place < sp {
            return Ok(fp);
        }
        self.memory.word(place).map(Some)
    }

    /// Returns the bits of the registers beside stack and frame pointer that the caller has, and sets them.
    fn kept_registers(&mut self, frame: &Frame, cfa: u64) -> u32 {
        let valid = self.registers.valid;
        match (self.machine.arch, frame.rbx) {
            (Arch::X86_64, Rbx::Unchanged) => valid & 1 << RBX.0,
            (Arch::X86_64, Rbx::AtCfa(offset)) => match self.memory.word(cfa.wrapping_add_signed(offset.into())) {
                Ok(value) => {
                    self.set(RBX, value);
                    1 << RBX.0
                }
                Err(_) => 0,
            },
            (Arch::Aarch64, rbx) => {
                let mut kept = match rbx {
                    Rbx::Unchanged | Rbx::NextGoroutine => valid & (1 << G | 1 << NO_SIGNAL),
                    Rbx::Unknown | Rbx::AtCfa(_) => 0,
                };
                // A handler of Go's has made it look as if the interrupted function had made a call, and has pushed that
                // function's x30.
                if frame.interrupted
                    && let Ok(value) = self.memory.word(cfa.wrapping_sub(16))
                {
                    self.set(LR, value);
                    kept |= 1 << LR.0;
                }
                kept
            }
            _ => 0,
        }
    }

    /// Takes the registers that a signal interrupted: see [`Rule::Signal`].
    fn leave_signal(&mut self) -> Result<(), UserEnd> {
        let sp = self.get(self.machine.arch.sp())?;
        let word = |number: u64, base: u64| self.memory.word(sp.wrapping_add(base + 8 * number));
        let mut registers = Registers { is_return: false, guessed: false, ..self.registers.clone() };
        let order: &[u8] = match self.machine.arch {
            // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp; behind them rip.
            Arch::X86_64 => &[8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7],
            Arch::Aarch64 => &[
                0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
                31,
            ],
        };
        let base = if self.machine.arch == Arch::X86_64 { 40 } else { 312 };
        for (number, register) in (0..).zip(order) {
            let value = word(number, base)?;
            registers.values.iter_mut().skip(usize::from(*register)).take(1).for_each(|place| *place = value);
        }
        registers.pc = word(order.len() as u64, base)?;
        registers.valid = if self.machine.arch == Arch::X86_64 { 0xffff } else { !(1 << NO_SIGNAL) };
        self.registers = registers;
        Ok(())
    }
}

/// Returns whether a rule may come back to another stack by this register: `MAY_SWITCH_BY` of bpf/arch.
fn may_switch_by(arch: Arch, register: Reg) -> bool {
    match arch {
        Arch::X86_64 => register != arch.sp(),
        Arch::Aarch64 => (19..=29).contains(&register.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::table::rule::Invalid;

    const X86: Machine = Machine { arch: Arch::X86_64, signature: 0 };
    const STACK: u64 = 0x7fff_0000;

    /// Walks from a frame to the root. Returns all frames, innermost first and `registers`' own included, and why the walk ended.
    fn walk(machine: Machine, registers: &Registers, memory: Memory<'_>, code: &mut impl Code) -> (Vec<WalkedFrame>, UserEnd) {
        let mut walked = Walked::from(registers, 0);
        let end = walked.go_on(machine, memory, code);
        (walked.frames, end)
    }

    /// Code in pieces of 16 bytes: a rule for each.
    struct Pieces(Vec<At>);

    impl Code for Pieces {
        fn at(&mut self, address: u64) -> At {
            let piece = address.checked_sub(0x1000).and_then(|offset| usize::try_from(offset / 16).ok());
            piece.and_then(|piece| self.0.get(piece)).copied().unwrap_or(At::Nothing)
        }
    }

    fn rule(arch: Arch, rule: Rule) -> At {
        At::Rule(Packed::new(rule, arch).unwrap())
    }

    fn frame(cfa: Cfa, fp: Fp) -> Rule {
        Rule::Frame(Frame { cfa, ra: Ra::AtCfa(-8), fp, rbx: Rbx::Unknown, interrupted: false, skips: false })
    }

    fn stack(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn registers(pc: u64, set: &[(u8, u64)]) -> Registers {
        let mut registers = Registers { pc, values: [0; 32], valid: 0, is_return: false, guessed: false, switches: 0 };
        for (number, value) in set {
            registers.values[usize::from(*number)] = *value;
            registers.valid |= 1 << number;
        }
        registers
    }

    fn pcs(frames: &[WalkedFrame]) -> Vec<u64> {
        frames.iter().map(|frame| frame.pc).collect()
    }

    /// ```text
    ///  0x1008  CFA = rsp + 16, rbp at CFA − 16      0x1018  CFA = rbp + 16, rbp at CFA − 16      0x1028  root
    /// ```
    #[test]
    fn frames_follow_from_stack_and_frame_pointer() {
        let x86 = |cfa, fp| rule(Arch::X86_64, frame(cfa, fp));
        let mut code = Pieces(vec![
            x86(Cfa::Register(Reg(7), 16), Fp::AtCfa(-16)),
            x86(Cfa::Register(Reg(6), 16), Fp::AtCfa(-16)),
            rule(Arch::X86_64, Rule::Root),
        ]);
        // rsp: saved rbp = STACK + 24, return to 0x1018; there: local, saved rbp, return to 0x1028.
        let bytes = stack(&[STACK + 24, 0x1018, 1, 2, 0x1028]);
        let memory = [Piece { start: STACK, bytes: bytes.clone() }];
        let start = registers(0x1008, &[(7, STACK), (6, 77)]);
        let (frames, end) = walk(X86, &start, Memory(&memory), &mut code);
        assert_eq!((pcs(&frames), end), (vec![0x1008, 0x1018, 0x1028], UserEnd::Root));
        assert_eq!(frames.iter().map(|frame| frame.is_return).collect::<Vec<_>>(), [false, true, true]);

        // The copy ends before the last return address: nothing is made up.
        let (frames, end) = walk(X86, &start, Memory(&[Piece { start: STACK, bytes: bytes[..32].to_vec() }]), &mut code);
        assert_eq!((pcs(&frames), end), (vec![0x1008, 0x1018], UserEnd::Dump));
    }

    #[test]
    fn a_large_frame_needs_only_the_memory_around_it() {
        let mut code = Pieces(vec![
            rule(Arch::X86_64, frame(Cfa::Register(Reg(7), 16), Fp::Unchanged)),
            rule(Arch::X86_64, frame(Cfa::Register(Reg(7), 1 << 20), Fp::Unchanged)),
            rule(Arch::X86_64, frame(Cfa::Register(Reg(7), 16), Fp::Unchanged)),
            rule(Arch::X86_64, Rule::Root),
        ]);
        let far = STACK + 16 + (1 << 20) - 8;
        let pieces =
            [Piece { start: STACK, bytes: stack(&[1, 0x1018]) }, Piece { start: far, bytes: stack(&[0x1028, 2, 0x1038]) }];
        let start = registers(0x1008, &[(7, STACK)]);
        let (frames, end) = walk(X86, &start, Memory(&pieces), &mut code);
        assert_eq!((pcs(&frames), end), (vec![0x1008, 0x1018, 0x1028, 0x1038], UserEnd::Root));
        let (frames, end) = walk(X86, &start, Memory(&pieces[..1]), &mut code);
        assert_eq!((pcs(&frames), end), (vec![0x1008, 0x1018], UserEnd::Dump));
    }

    #[test]
    fn a_return_address_behind_the_last_byte_of_a_function_is_looked_up_in_it() {
        let mut code =
            Pieces(vec![rule(Arch::X86_64, frame(Cfa::Register(Reg(7), 8), Fp::Unchanged)), rule(Arch::X86_64, Rule::Root)]);
        let bytes = stack(&[0x1020]);
        let (frames, end) =
            walk(X86, &registers(0x1000, &[(7, STACK)]), Memory(&[Piece { start: STACK, bytes: bytes.clone() }]), &mut code);
        assert_eq!((pcs(&frames), end), (vec![0x1000, 0x1020], UserEnd::Root));
    }

    #[test]
    fn each_end_has_its_reason() {
        let sp = Cfa::Register(Reg(7), 8);
        for (at, word, end) in [
            (rule(Arch::X86_64, Rule::Gap), 0, UserEnd::Gap),
            (rule(Arch::X86_64, Rule::Invalid(Invalid::Malformed)), 0, UserEnd::Invalid),
            (rule(Arch::X86_64, frame(Cfa::Register(Reg(11), 8), Fp::Unchanged)), 0, UserEnd::Register),
            (rule(Arch::X86_64, frame(Cfa::Register(Reg(7), -16), Fp::Unchanged)), 0, UserEnd::BadFrame),
            (rule(Arch::X86_64, frame(Cfa::Register(Reg(7), 12), Fp::Unchanged)), 0, UserEnd::BadFrame),
            (rule(Arch::X86_64, frame(sp, Fp::Unchanged)), 0, UserEnd::Zero),
            (rule(Arch::X86_64, frame(sp, Fp::Unchanged)), 0x9999, UserEnd::NoCode),
            (At::NoTable, 0, UserEnd::NoTable),
            (At::Anonymous, 0, UserEnd::Anonymous),
            (At::Nothing, 0, UserEnd::NoCode),
        ] {
            let bytes = stack(&[word]);
            let (frames, ended) = walk(
                X86,
                &registers(0x1000, &[(7, STACK)]),
                Memory(&[Piece { start: STACK, bytes: bytes.clone() }]),
                &mut Pieces(vec![at]),
            );
            assert_eq!((pcs(&frames), ended), (vec![0x1000], end));
        }
    }

    #[test]
    fn a_recursion_without_end_is_cut() {
        let mut code = Pieces(vec![rule(Arch::X86_64, frame(Cfa::Register(Reg(7), 8), Fp::Unchanged))]);
        let bytes = stack(&[0x1008; 4000]);
        let (frames, end) =
            walk(X86, &registers(0x1000, &[(7, STACK)]), Memory(&[Piece { start: STACK, bytes: bytes.clone() }]), &mut code);
        assert_eq!((frames.len(), end), (MOST_FRAMES, UserEnd::Cut));
    }

    #[test]
    fn a_signal_gives_back_what_it_interrupted() {
        let mut words = vec![0u64; 5 + 17];
        words[5 + 10] = 0xb9;
        words[5 + 15] = STACK + 22 * 8;
        words[5 + 16] = 0x1010;
        words.push(0x1028);
        let mut code = Pieces(vec![
            rule(Arch::X86_64, Rule::Signal),
            rule(Arch::X86_64, frame(Cfa::Register(Reg(7), 8), Fp::Unchanged)),
            rule(Arch::X86_64, Rule::Root),
        ]);
        let bytes = stack(&words);
        let mut start = registers(0x1008, &[(7, STACK)]);
        start.is_return = true;
        let (frames, end) = walk(X86, &start, Memory(&[Piece { start: STACK, bytes: bytes.clone() }]), &mut code);
        assert_eq!((pcs(&frames), end), (vec![0x1008, 0x1010, 0x1028], UserEnd::Root));
        assert_eq!(frames.iter().map(|frame| frame.is_return).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn arm64_returns_by_the_link_register_and_without_signatures() {
        let arm = Machine { arch: Arch::Aarch64, signature: 0xff << 48 };
        let leaf = Frame {
            cfa: Cfa::Register(Reg(31), 0),
            ra: Ra::Register(Reg(30)),
            fp: Fp::Unchanged,
            rbx: Rbx::Unchanged,
            interrupted: false,
            skips: false,
        };
        let caller = Frame { cfa: Cfa::Register(Reg(31), 32), ra: Ra::AtCfa(-24), fp: Fp::AtCfa(-32), ..leaf };
        let mut code = Pieces([Rule::Frame(leaf), Rule::Frame(caller), Rule::Root].map(|one| rule(Arch::Aarch64, one)).to_vec());
        let bytes = stack(&[0x77, 0x12_0000_0000_1028, 0, 0]);
        let start = registers(0x1000, &[(31, STACK), (30, 0x34_0000_0000_1018), (29, 5)]);
        let (frames, end) = walk(arm, &start, Memory(&[Piece { start: STACK, bytes: bytes.clone() }]), &mut code);
        assert_eq!((pcs(&frames), end), (vec![0x1000, 0x1018, 0x1028], UserEnd::Root));
        // The link register is the leaf's: no later frame returns by it.
        let mut code = Pieces([Rule::Frame(leaf), Rule::Frame(leaf)].map(|one| rule(Arch::Aarch64, one)).to_vec());
        let (_, end) = walk(arm, &start, Memory(&[Piece { start: STACK, bytes: bytes.clone() }]), &mut code);
        assert_eq!(end, UserEnd::Register);
    }

    /// Code whose tables come one after the other: one for each 256 bytes.
    struct Late {
        there: u64,
        asked: u64,
    }

    impl Code for Late {
        fn at(&mut self, address: u64) -> At {
            self.asked += 1;
            let number = (address - 0x1000) / 0x100;
            let caller = frame(Cfa::Register(Reg(7), 8), Fp::Unchanged);
            match number < self.there {
                true => rule(X86.arch, if number == 300 { Rule::Root } else { caller }),
                false => At::NoTable,
            }
        }
    }

    #[test]
    fn a_walk_goes_on_where_it_stuck() {
        let pc = |number: u64| 0x1010 + number * 0x100;
        let words: Vec<u64> = (1..=300).map(pc).collect();
        let bytes = stack(&words);
        let memory = Memory(&[Piece { start: STACK, bytes }]);
        let start = registers(pc(0), &[(7, STACK)]);
        let (mut walked, mut code) = (Walked::from(&start, 0), Late { there: 0, asked: 0 });
        for there in 0..=300 {
            code.there = there;
            assert_eq!(walked.go_on(X86, memory, &mut code), UserEnd::NoTable);
            assert_eq!(walked.code_address(), pc(there) - u64::from(there > 0));
        }
        code.there = 301;
        assert_eq!(walked.go_on(X86, memory, &mut code), UserEnd::Root);
        assert!(code.asked <= 2 * 302, "{} look-ups for 301 frames", code.asked);
        assert_eq!((walked.frames, UserEnd::Root), walk(X86, &start, memory, &mut Late { there: 301, asked: 0 }));
    }

    /// One function that calls itself without end.
    struct Endless;

    impl Code for Endless {
        fn at(&mut self, _: u64) -> At {
            rule(X86.arch, frame(Cfa::Register(Reg(7), 8), Fp::Unchanged))
        }
    }

    #[test]
    fn frames_before_a_copy_count() {
        let bytes = stack(&[0x1020; 3000]);
        let memory = Memory(&[Piece { start: STACK, bytes }]);
        for before in [0, 1, 100, 2047] {
            let mut walked = Walked::from(&registers(0x1010, &[(7, STACK)]), before);
            let end = walked.go_on(X86, memory, &mut Endless);
            assert_eq!((before + walked.frames.len(), end), (MOST_FRAMES, UserEnd::Cut));
        }
    }
}
