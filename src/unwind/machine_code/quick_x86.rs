//! The effect of one instruction of x86_64 on a stack frame, decoded no further than needed.
//!
//! Most instructions of compilers write one general register, and memory outside the frame. This module reads such instructions;
//! iced-x86 reads the rest, as in [`super::x86`]. Instructions that [`super::plain`] does not follow are [`Step::Hard`]. Intel's
//! manual (SDM), volume 2, appendix A.

use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register};

use super::quick_frame::{Frame, RAX, RBP, RDX, RSP, Value};

/// Where execution continues after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Next,
    Jump(i32),
    /// There or behind it; the condition has its number in the instruction.
    Branch(i32, u8),
    Call(Option<i32>),
    Return,
    /// By a register, or by memory.
    Indirect(Option<u8>),
    /// Nowhere.
    End,
    /// The instruction is left to the thorough way.
    Hard,
}

/// An operand in a register or in memory, as `modrm` has it.
struct Operand {
    register: usize,
    /// The number of its register; `None` if it is in memory.
    direct: Option<usize>,
    base: Option<usize>,
    index: Option<(usize, u8)>,
    displacement: i32,
    is_relative: bool,
}

/// Reads instructions.
struct InstructionReader<'c> {
    code: &'c [u8],
    at: usize,
}

impl InstructionReader<'_> {
    #[inline]
    fn u8(&mut self) -> Option<u8> {
        let byte = self.code.get(self.at).copied();
        self.at += 1;
        byte
    }

    #[inline]
    fn i8(&mut self) -> Option<i32> {
        self.u8().map(|byte| i32::from(byte.cast_signed()))
    }

    #[inline]
    fn i32(&mut self) -> Option<i32> {
        let bytes = self.code.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(i32::from_le_bytes(*bytes))
    }

    #[inline]
    fn skip(&mut self, count: usize) -> Option<()> {
        self.at += count;
        (self.at <= self.code.len()).then_some(())
    }

    #[inline]
    fn operand(&mut self, rex: u8) -> Option<Operand> {
        let modrm = self.u8()?;
        let (mode, low) = (modrm >> 6, modrm & 7);
        let (r, x, b) = (usize::from(rex & 4) << 1, usize::from(rex & 2) << 2, usize::from(rex & 1) << 3);
        let register = usize::from(modrm >> 3 & 7) | r;
        let mut operand = Operand { register, direct: None, base: None, index: None, displacement: 0, is_relative: false };
        if mode == 3 {
            operand.direct = Some(usize::from(low) | b);
            return Some(operand);
        }
        let mut displacement = [0, 1, 4, 0].get(usize::from(mode)).copied().unwrap_or(0);
        if low == 4 {
            let sib = self.u8()?;
            let index = usize::from(sib >> 3 & 7) | x;
            operand.index = (index != 4).then_some((index, sib >> 6));
            if sib & 7 == 5 && mode == 0 {
                displacement = 4;
            } else {
                operand.base = Some(usize::from(sib & 7) | b);
            }
        } else if low == 5 && mode == 0 {
            operand.is_relative = true;
            displacement = 4;
        } else {
            operand.base = Some(usize::from(low) | b);
        }
        operand.displacement = match displacement {
            0 => 0,
            1 => self.i8()?,
            _ => self.i32()?,
        };
        Some(operand)
    }
}

/// Prefixes of an instruction.
struct Prefixes {
    rex: u8,
    is_short: bool,
    repeat: u8,
    is_thread: bool,
}

/// Follows instructions.
pub(crate) struct Quick {
    factory: InstructionInfoFactory,
    /// Addresses in code that instructions have taken.
    pub(crate) references: Vec<u64>,
}

impl Quick {
    pub(crate) fn new() -> Quick {
        Quick { factory: InstructionInfoFactory::new(), references: Vec::new() }
    }

    /// Follows the instruction at the begin of `code`, which is at `address`. Returns its effect and its length.
    #[inline]
    pub(crate) fn step(&mut self, code: &[u8], address: u64, frame: &mut Frame) -> (Step, usize) {
        let mut reader = InstructionReader { code, at: 0 };
        match self.read(&mut reader, address, frame) {
            Some(step) if reader.at <= code.len() => (step, reader.at),
            Some(_) => (Step::Hard, 0),
            None => self.by_iced(code, address, frame),
        }
    }

    /// Follows an instruction; `None` for one that iced-x86 is to read. Nothing was changed then.
    fn read(&mut self, reader: &mut InstructionReader<'_>, address: u64, frame: &mut Frame) -> Option<Step> {
        let mut prefixes = Prefixes { rex: 0, is_short: false, repeat: 0, is_thread: false };
        let opcode = loop {
            let byte = reader.u8()?;
            match byte {
                0x66 => prefixes.is_short = true,
                0xf2 | 0xf3 => prefixes.repeat = byte,
                0x64 | 0x65 => prefixes.is_thread = true,
                0x2e | 0x3e | 0xf0 => {}
                // ud1 with a number for debuggers: clang's trap.
                0x67 if reader.code.get(1..3) == Some(&[0x0f, 0xb9]) && reader.at == 1 => {
                    reader.at = 3;
                    reader.operand(0)?;
                    return Some(Step::End);
                }
                0x40..=0x4f => {
                    prefixes.rex = byte;
                    break reader.u8()?;
                }
                _ => break byte,
            }
        };
        let done = |is_plain| Some(if is_plain { Step::Next } else { Step::Hard });
        let Prefixes { rex, is_short, .. } = prefixes;
        let is_wide = rex & 8 != 0;
        let immediate = if is_short { 2 } else { 4 };
        let high = usize::from(rex & 1) << 3;
        match opcode {
            0x0f => return self.two_bytes(reader, address, frame, &prefixes),
            0x00..=0x3f => {
                let (kind, is_compare) = (opcode >> 3 & 7, opcode >> 3 == 7);
                match opcode & 7 {
                    form @ (0 | 1) => {
                        let operand = reader.operand(rex)?;
                        if is_compare {
                            frame.compared = None;
                            return done(true);
                        }
                        frame.compared = None;
                        let size = if form == 0 { 1 } else { size_of_word(&prefixes) };
                        let source = frame.get(operand.register);
                        return done(match operand.direct {
                            Some(to) if form == 1 && is_wide => add_register(frame, kind, to, source),
                            _ => write(frame, &operand, &prefixes, size, Value::Unknown),
                        });
                    }
                    form @ (2 | 3) => {
                        let operand = reader.operand(rex)?;
                        frame.compared = None;
                        if is_compare {
                            return done(true);
                        }
                        let source = operand.direct.map_or(Value::Unknown, |register| frame.get(register));
                        return done(if form == 2 {
                            frame.set(narrow(operand.register, rex), Value::Unknown)
                        } else if is_wide {
                            add_register(frame, kind, operand.register, source)
                        } else {
                            frame.set(operand.register, Value::Unknown)
                        });
                    }
                    form @ (4 | 5) => {
                        let number = if form == 4 {
                            i32::from(reader.u8()?)
                        } else if is_short {
                            reader.skip(2).map(|()| -1)?
                        } else {
                            reader.i32()?
                        };
                        frame.compared = u64::try_from(number).ok().filter(|_| is_compare);
                        return done(is_compare || frame.set(RAX, Value::Unknown));
                    }
                    _ => return None,
                }
            }
            0x50..=0x57 => {
                if is_short {
                    return None;
                }
                let value = frame.get(usize::from(opcode & 7) | high);
                return done(push(frame, value));
            }
            0x58..=0x5f => {
                let Value::Stack(top) = frame.get(RSP) else { return Some(Step::Hard) };
                if is_short {
                    return None;
                }
                let (register, value) = (usize::from(opcode & 7) | high, frame.load(top));
                return done(register != RSP && frame.set(RSP, Value::Stack(top + 8)) && frame.set(register, value));
            }
            0x63 => {
                let operand = reader.operand(rex)?;
                let value = match (operand.base.map(|base| frame.get(base)), operand.index) {
                    (Some(Value::Number(table)), Some((_, 2))) if is_wide => {
                        Value::TableEntry(table.wrapping_add_signed(operand.displacement.into()))
                    }
                    _ => Value::Unknown,
                };
                return done(frame.set(operand.register, value));
            }
            0x68 | 0x6a if !is_short => {
                if opcode == 0x68 {
                    reader.i32()?
                } else {
                    reader.i8()?
                };
                return done(push(frame, Value::Unknown));
            }
            0x69 | 0x6b => {
                let operand = reader.operand(rex)?;
                reader.skip(if opcode == 0x69 { immediate } else { 1 })?;
                frame.compared = None;
                return done(frame.set(operand.register, Value::Unknown));
            }
            0x70..=0x7f => return Some(Step::Branch(reader.i8()?, opcode & 15)),
            0x80 | 0x81 | 0x83 => {
                let operand = reader.operand(rex)?;
                let number = match opcode {
                    0x81 if is_short => reader.skip(2).map(|()| i32::MIN)?,
                    0x81 => reader.i32()?,
                    0x80 => i32::from(reader.u8()?),
                    _ => reader.i8()?,
                };
                let kind = operand.register & 7;
                frame.compared = None;
                if kind == 7 {
                    frame.compared = u64::try_from(number).ok();
                    return done(true);
                }
                if let (Some(to), true) = (operand.direct, is_wide) {
                    let value = match (kind, frame.get(to)) {
                        (0, Value::Stack(at)) => at.checked_add(number).map_or(Value::Unknown, Value::Stack),
                        (5, Value::Stack(at)) => at.checked_sub(number).map_or(Value::Unknown, Value::Stack),
                        _ => Value::Unknown,
                    };
                    return done(frame.set(to, value));
                }
                // lock or [rsp], 0: a barrier.
                if matches!(kind, 0 | 1) && number == 0 && operand.direct.is_none() {
                    return done(true);
                }
                let size = if opcode == 0x80 { 1 } else { size_of_word(&prefixes) };
                return done(write(frame, &operand, &prefixes, size, Value::Unknown));
            }
            0x84 | 0x85 => {
                reader.operand(rex)?;
                frame.compared = None;
            }
            0x88 | 0x89 => {
                let operand = reader.operand(rex)?;
                let value = if is_wide && opcode == 0x89 { frame.get(operand.register) } else { Value::Unknown };
                let size = if opcode == 0x88 { 1 } else { size_of_word(&prefixes) };
                return done(write(frame, &operand, &prefixes, size, value));
            }
            0x8a => {
                let operand = reader.operand(rex)?;
                return done(frame.set(narrow(operand.register, rex), Value::Unknown));
            }
            0x8b => {
                let operand = reader.operand(rex)?;
                let value = match (operand.direct, place(frame, &operand, &prefixes)) {
                    _ if !is_wide => Value::Unknown,
                    (Some(from), _) => frame.get(from),
                    (None, Some(at)) => frame.load(at),
                    _ => Value::Unknown,
                };
                return done(frame.set(operand.register, value));
            }
            0x8d => {
                let operand = reader.operand(rex)?;
                let value = if operand.is_relative {
                    let to = address.wrapping_add(reader.at as u64).wrapping_add_signed(operand.displacement.into());
                    self.references.push(to);
                    Value::Number(to)
                } else {
                    let at = operand.base.map(|base| frame.get(base)).filter(|_| operand.index.is_none());
                    match at {
                        Some(Value::Stack(at)) => at.checked_add(operand.displacement).map_or(Value::Unknown, Value::Stack),
                        _ => Value::Unknown,
                    }
                };
                return done(frame.set(operand.register, if is_wide { value } else { Value::Unknown }));
            }
            0x90 if rex & 1 == 0 => {}
            0x98 => return done(frame.set(RAX, Value::Unknown)),
            0x99 => return done(frame.set(RDX, Value::Unknown)),
            0xa8 | 0xa9 => {
                reader.skip(if opcode == 0xa8 { 1 } else { immediate })?;
                frame.compared = None;
            }
            0xb0..=0xb7 => {
                reader.skip(1)?;
                return done(frame.set(narrow(usize::from(opcode & 7) | high, rex), Value::Unknown));
            }
            0xb8..=0xbf => {
                reader.skip(if is_wide { 8 } else { immediate })?;
                return done(frame.set(usize::from(opcode & 7) | high, Value::Unknown));
            }
            0xc0 | 0xc1 | 0xd0..=0xd3 => {
                let operand = reader.operand(rex)?;
                reader.skip(usize::from(opcode < 0xd0))?;
                frame.compared = None;
                let size = if opcode & 1 == 0 { 1 } else { size_of_word(&prefixes) };
                return done(write(frame, &operand, &prefixes, size, Value::Unknown));
            }
            0xc3 => return Some(Step::Return),
            0xc6 | 0xc7 => {
                let operand = reader.operand(rex)?;
                if operand.register & 7 != 0 {
                    return None;
                }
                reader.skip(if opcode == 0xc6 { 1 } else { immediate })?;
                let size = if opcode == 0xc6 { 1 } else { size_of_word(&prefixes) };
                return done(write(frame, &operand, &prefixes, size, Value::Unknown));
            }
            0xc9 if !is_short => {
                let Value::Stack(at) = frame.get(RBP) else { return Some(Step::Hard) };
                let value = frame.load(at);
                return done(frame.set(RSP, Value::Stack(at + 8)) && frame.set(RBP, value));
            }
            0xcc | 0xf4 => return Some(Step::End),
            0xe8 if !is_short => {
                let to = reader.i32()?;
                return Some(if to == 0 { Step::Hard } else { Step::Call(Some(to)) });
            }
            0xe9 if !is_short => return Some(Step::Jump(reader.i32()?)),
            0xeb => return Some(Step::Jump(reader.i8()?)),
            0xf6 | 0xf7 => {
                let operand = reader.operand(rex)?;
                let size = if opcode == 0xf6 { 1 } else { size_of_word(&prefixes) };
                frame.compared = None;
                match operand.register & 7 {
                    0 | 1 => reader.skip(if opcode == 0xf6 { 1 } else { immediate })?,
                    2 | 3 => return done(write(frame, &operand, &prefixes, size, Value::Unknown)),
                    _ => return done(frame.set(RAX, Value::Unknown) && frame.set(RDX, Value::Unknown)),
                }
            }
            0xfe | 0xff => {
                let operand = reader.operand(rex)?;
                let size = if opcode == 0xfe { 1 } else { size_of_word(&prefixes) };
                match operand.register & 7 {
                    0 | 1 => {
                        frame.compared = None;
                        return done(write(frame, &operand, &prefixes, size, Value::Unknown));
                    }
                    2 if opcode == 0xff && !is_short => return Some(Step::Call(None)),
                    4 if opcode == 0xff && !is_short => {
                        // By a table of addresses: seldom.
                        if operand.index.is_some() {
                            return Some(Step::Hard);
                        }
                        return Some(Step::Indirect(operand.direct.map(|register| register as u8)));
                    }
                    6 if opcode == 0xff && !is_short => {
                        let value = operand.direct.map_or(Value::Unknown, |register| frame.get(register));
                        return done(push(frame, value));
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(Step::Next)
    }

    fn two_bytes(&mut self, reader: &mut InstructionReader<'_>, _: u64, frame: &mut Frame, prefixes: &Prefixes) -> Option<Step> {
        let done = |is_plain| Some(if is_plain { Step::Next } else { Step::Hard });
        let Prefixes { rex, is_short, repeat, .. } = *prefixes;
        let opcode = reader.u8()?;
        match opcode {
            0x0b => return Some(Step::End),
            0x05 => return Some(Step::Hard),
            0x80..=0x8f if !is_short => return Some(Step::Branch(reader.i32()?, opcode & 15)),
            // nop, prefetches, endbr64
            0x0d | 0x18 | 0x1f => {
                reader.operand(rex)?;
            }
            0x1e if repeat == 0xf3 && reader.code.get(reader.at) == Some(&0xfa) => reader.skip(1)?,
            // Vectors, to registers of vectors
            0x10
            | 0x12
            | 0x14..=0x16
            | 0x28
            | 0x2a
            | 0x51..=0x6f
            | 0x74..=0x76
            | 0xd0..=0xd5
            | 0xd8..=0xe6
            | 0xe8..=0xef
            | 0xf1..=0xf6
            | 0xf8..=0xfe => {
                reader.operand(rex)?;
            }
            0x70..=0x73 | 0xc2 | 0xc6 => {
                reader.operand(rex)?;
                reader.skip(1)?;
            }
            0x2e | 0x2f => {
                reader.operand(rex)?;
                frame.compared = None;
            }
            // To memory or registers of vectors
            0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7f | 0xd6 | 0xe7 => {
                let operand = reader.operand(rex)?;
                let size = match (opcode, repeat) {
                    (0x11, 0xf3) => 4,
                    (0x11, 0xf2) | (0x13 | 0x17 | 0xd6, _) => 8,
                    (0x7f | 0xe7, 0) if !is_short => 8,
                    _ => 16,
                };
                return done(operand.direct.is_some() || write(frame, &operand, prefixes, size, Value::Unknown));
            }
            // movd, movq to general registers or memory
            0x7e => {
                let operand = reader.operand(rex)?;
                let size = if rex & 8 != 0 { 8 } else { 4 };
                return done(repeat == 0xf3 || write(frame, &operand, prefixes, size, Value::Unknown));
            }
            // Instructions that write a general register: cvtt../movmskps/cmov/imul/popcnt/movzx/bsf/bsr/movsx/pmovmskb
            0xb8 if repeat != 0xf3 => return None,
            0x2c | 0x2d | 0x40..=0x50 | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf | 0xd7 => {
                let operand = reader.operand(rex)?;
                if matches!(opcode, 0xaf | 0xb8 | 0xbc | 0xbd) {
                    frame.compared = None;
                }
                // mmx has other numbers than general registers.
                if matches!(opcode, 0x2c | 0x2d) && repeat == 0 {
                    return done(true);
                }
                return done(frame.set(operand.register, Value::Unknown));
            }
            0x90..=0x9f => {
                let operand = reader.operand(rex)?;
                return done(write(frame, &operand, prefixes, 1, Value::Unknown));
            }
            0xa3 => {
                reader.operand(rex)?;
                frame.compared = None;
            }
            0xa4 | 0xa5 | 0xac | 0xad | 0xab | 0xb3 | 0xbb => {
                let operand = reader.operand(rex)?;
                reader.skip(usize::from(matches!(opcode, 0xa4 | 0xac)))?;
                frame.compared = None;
                return done(write(frame, &operand, prefixes, size_of_word(prefixes), Value::Unknown));
            }
            0xba => {
                let operand = reader.operand(rex)?;
                reader.skip(1)?;
                frame.compared = None;
                match operand.register & 7 {
                    4 => {}
                    5..=7 => return done(write(frame, &operand, prefixes, size_of_word(prefixes), Value::Unknown)),
                    _ => return Some(Step::Hard),
                }
            }
            0xc8..=0xcf => return done(frame.set(usize::from(opcode & 7) | usize::from(rex & 1) << 3, Value::Unknown)),
            0xc5 => {
                let operand = reader.operand(rex)?;
                reader.skip(1)?;
                return done(frame.set(operand.register, Value::Unknown));
            }
            _ => return None,
        }
        Some(Step::Next)
    }

    /// Follows an instruction that iced-x86 decodes, by the registers and memory that it writes.
    #[cold]
    fn by_iced(&mut self, code: &[u8], address: u64, frame: &mut Frame) -> (Step, usize) {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let hard = (Step::Hard, 0);
        if instruction.is_invalid()
            || instruction.flow_control() != FlowControl::Next
            || instruction.mnemonic() == Mnemonic::Syscall
        {
            return hard;
        }
        let info = self.factory.info(&instruction);
        let writes =
            |access| matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
        for memory in info.used_memory().iter().filter(|memory| writes(memory.access())) {
            if memory.index() == Register::None
                && !matches!(memory.segment(), Register::FS | Register::GS)
                && memory.base().is_gpr()
                && let Value::Stack(at) = frame.get(memory.base().full_register().number())
            {
                let at = i32::try_from(memory.displacement().cast_signed()).ok().and_then(|by| at.checked_add(by));
                let size = i32::try_from(memory.memory_size().size()).unwrap_or(8);
                if !at.is_some_and(|at| frame.store(at, size, Value::Unknown)) {
                    return hard;
                }
            }
        }
        for register in info.used_registers().iter().filter(|register| writes(register.access())) {
            if register.register().is_gpr() && !frame.set(register.register().full_register().number(), Value::Unknown) {
                return hard;
            }
        }
        if instruction.rflags_modified() != 0 {
            frame.compared = None;
        }
        (Step::Next, instruction.len())
    }
}

/// Returns the size in bytes of an operand that is no single byte.
fn size_of_word(prefixes: &Prefixes) -> i32 {
    match (prefixes.rex & 8 != 0, prefixes.is_short) {
        (true, _) => 8,
        (_, true) => 2,
        _ => 4,
    }
}

/// Returns the register that contains a register of one byte.
fn narrow(register: usize, rex: u8) -> usize {
    if rex == 0 && (4..8).contains(&register) { register - 4 } else { register }
}

/// Returns the place of an operand in the frame.
fn place(frame: &Frame, operand: &Operand, prefixes: &Prefixes) -> Option<i32> {
    if operand.index.is_some() || prefixes.is_thread {
        return None;
    }
    match frame.get(operand.base?) {
        Value::Stack(at) => at.checked_add(operand.displacement),
        _ => None,
    }
}

/// Writes an operand of `size` bytes.
#[inline]
fn write(frame: &mut Frame, operand: &Operand, prefixes: &Prefixes, size: i32, value: Value) -> bool {
    match operand.direct {
        Some(to) if size == 1 => frame.set(narrow(to, prefixes.rex), Value::Unknown),
        Some(to) => frame.set(to, value),
        None => place(frame, operand, prefixes).is_none_or(|at| frame.store(at, size, value)),
    }
}

/// Adds a register to another, or combines both in another way: `kind` as the first byte's bits have it.
fn add_register(frame: &mut Frame, kind: u8, to: usize, source: Value) -> bool {
    let value = match (kind, frame.get(to), source) {
        (0, Value::Number(base), Value::TableEntry(table)) | (0, Value::TableEntry(table), Value::Number(base))
            if base == table =>
        {
            Value::Target(table)
        }
        _ => Value::Unknown,
    };
    frame.set(to, value)
}

fn push(frame: &mut Frame, value: Value) -> bool {
    let Value::Stack(top) = frame.get(RSP) else { return false };
    frame.set(RSP, Value::Stack(top - 8)) && frame.store(top - 8, 8, value)
}
