//! Go: rules from `.gopclntab`, the table that Go's own runtime uses to walk its stacks. Stripped programs have it, too.
//!
//! Format: `src/internal/abi/symtab.go`, `src/runtime/symtab.go` and `src/cmd/link/internal/ld/pcln.go` of Go 1.16 to 1.25. For
//! each function and program counter, `pcsp` tells how far the stack pointer is below its value at the function's entry. That is
//! right in prologues and epilogues, too, where following frame pointers misses the caller:
//!
//! ```text
//! x86_64:  CFA = rsp + pcsp + 8    RA = *(CFA − 8)       rbp' = *(CFA − 16) if pcsp ≥ 8
//! arm64:   CFA = sp + pcsp         RA = *(CFA − pcsp)    x29' = *(CFA − pcsp − 8) if pcsp > 0, else RA in x30
//! ```
//!
//! Functions that write the stack pointer themselves (`SPWRITE`: systemstack, asmcgocall, morestack, calls of the vDSO) are on
//! another stack in between. They leave the frame pointer alone, so it leads to the old stack:
//! `CFA = rbp + 16; RA = *(CFA − 8); rbp' = *(CFA − 16)` (x86_64 only: on arm64 stacks end there).
//!
//! Three of them have no frame: systemstack, asmcgocall and morestack. They know their old stack from the runtime's structures,
//! as their code tells (`switches`). If the code does not tell, the frame pointer is their caller's, and leads to the caller of
//! their caller. No register tells the caller itself; it is marked as missing ([`Frame::skips`]).
//!
//! The table calls `sigtramp` the outermost frame of the signal's stack. But it returns to `sigreturn`, and from there the walk
//! continues with the interrupted code.

use super::{switches_arm64, switches_x86_64};
use crate::object::gopclntab::Header;
use crate::object::headers::Arch;
use crate::object::numbers::Cursor;
use crate::object::read_at::{ReadAt, read};
use crate::unwind::sections::Elf;
use crate::unwind::table::block::Block;
use crate::unwind::table::packed::Packed;
use crate::unwind::table::rule::{Cfa, Fp, Frame, Invalid, Ra, Rbx, Reg, Rule};

/// `abi.FuncFlag`: the outermost frame of a stack; writes the stack pointer; assembly.
const TOP_FRAME: u8 = 1;
const SP_WRITE: u8 = 2;
const ASSEMBLY: u8 = 4;

/// Names of functions whose caller cannot be followed: those of Go before 1.17, which has no flags, and `mcall`, which leaves a
/// goroutine for good.
const ROOTS: [&[u8]; 6] =
    [b"runtime.goexit", b"runtime.mstart", b"runtime.rt0_go", b"runtime.mcall", b"_rt0_amd64_linux", b"_rt0_arm64_linux"];
/// Functions that the kernel calls for a signal. Their flag says outermost, and yet they return.
const HANDLERS: [&[u8]; 2] = [b"runtime.sigtramp", b"runtime.cgoSigtramp"];
/// Gives the thread its next goroutine. The thread is still on the stack that the last goroutine left for, by `morestack`.
const EXECUTE: &[u8] = b"runtime.execute";
/// Leave the thread's stack for the goroutine's, and jump to where the goroutine continues. They have no frame.
const GOGO: [&[u8]; 2] = [b"runtime.gogo", b"gogo"];
const SWITCHES: [&[u8]; 3] = [b"runtime.systemstack", b"runtime.asmcgocall", b"runtime.morestack"];

/// More rows than the largest programs have; see also [`crate::unwind::table::rows::MOST_ROWS`].
const MOST_ROWS: usize = crate::unwind::table::rows::MOST_ROWS;

/// The code of Go in an object, if there is any.
pub(crate) fn find(elf: &Elf, image: &(impl ReadAt + ?Sized)) -> Option<Block> {
    let section = elf.section(".gopclntab").or_else(|| elf.section(".data.rel.ro.gopclntab"))?;
    let bytes = elf.bytes(image, section).ok()?;
    let code = |start, end| {
        let size = u64::checked_sub(end, start).filter(|size| *size <= switches_x86_64::LONGEST)?;
        read(image, elf.file_offset(start)?, size, switches_x86_64::LONGEST, "code").ok()
    };
    PcTable::new(&bytes, elf, &code)?.block()
}

struct PcTable<'a> {
    arch: Arch,
    header: Header,
    names: &'a [u8],
    steps: &'a [u8],
    entries: &'a [u8],
    /// The code of a function that is not long.
    code: &'a dyn Fn(u64, u64) -> Option<Vec<u8>>,
}

/// A function: its addresses, and the place of its description.
struct Function {
    start: u64,
    end: u64,
    name: u32,
    steps: u32,
    flags: u8,
}

impl<'a> PcTable<'a> {
    fn new(bytes: &'a [u8], elf: &Elf, code: &'a dyn Fn(u64, u64) -> Option<Vec<u8>>) -> Option<PcTable<'a>> {
        let header = Header::parse(bytes).filter(|header| matches!(header.quantum, 1 | 4))?;
        let part = |at| bytes.get(at..);
        let (names, steps, entries) = (part(header.names())?, part(header.steps())?, part(header.entries())?);
        let mut table = PcTable { arch: elf.arch, header, names, steps, entries, code };
        // At most as many entries as fit, and one more for the end.
        let size = if table.header.wide { 16 } else { 8 };
        let functions = table.header.functions;
        if functions == 0 || functions > entries.len() as u64 / size {
            return None;
        }
        if !table.header.wide && elf.segment_of(table.header.text).is_none_or(|segment| !segment.executable) {
            // Without C code the text of Go is all there is; then the program's entry is a function of Go.
            table.header.text = elf.section(".text")?.address;
            let is_entry = |number| table.function(number).is_some_and(|function| function.start == elf.entry);
            if !(0..functions).any(is_entry) {
                return None;
            }
        }
        Some(table)
    }

    /// Returns the entry of a function and the place of its description. After the last function, the entry is the end.
    fn entry(&self, number: u64) -> Option<(u64, usize)> {
        let (entry, place) = self.header.entry(self.entries, number)?;
        // The end has no description.
        Some((entry, place.unwrap_or(0)))
    }

    fn function(&self, number: u64) -> Option<Function> {
        let (start, at) = self.entry(number)?;
        let (end, _) = self.entry(number.checked_add(1)?)?;
        let mut cursor = Cursor::new(self.entries.get(at..)?);
        cursor.take(if self.header.wide { 8 } else { 4 })?;
        let name = cursor.u32()?;
        cursor.take(8)?;
        let steps = cursor.u32()?;
        // pcfile, pcln, npcdata, cuOffset; from Go 1.20 on startLine; funcID.
        cursor.take(if self.header.has_line { 21 } else { 17 })?;
        let flags = cursor.u8()?;
        Some(Function { start, end, name, steps, flags })
    }

    fn block(&self) -> Option<Block> {
        let (start, _) = self.entry(0)?;
        let (end, _) = self.entry(self.header.functions)?;
        let (mut rows, mut goroutine) = (Vec::new(), None);
        let mut reached = start;
        for number in 0..self.header.functions {
            let Some(function) = self.function(number) else { continue };
            // Functions are sorted and do not share code, so all steps together do not exceed the code.
            if function.start < reached || function.end <= function.start || function.end > end || rows.len() > MOST_ROWS {
                return None;
            }
            reached = function.end;
            self.rows(&function, &mut goroutine, &mut rows);
        }
        Some(Block { source: ".gopclntab", wins: true, start, end, rows })
    }

    /// Adds the rows of a function. `goroutine`: where a goroutine's stack is found, once that is known.
    fn rows(&self, function: &Function, goroutine: &mut Option<Cfa>, rows: &mut Vec<(u64, Packed)>) {
        let mut push = |address, rule: Packed| {
            if rows.last().is_none_or(|(_, last)| *last != rule) {
                rows.push((address, rule));
            }
        };
        let name = self.names.get(function.name as usize..).and_then(|rest| rest.get(..memchr::memchr(0, rest)?));
        let name = name.unwrap_or_default();
        let always = |rule| Packed::new(rule, self.arch).unwrap_or(Packed::GAP);
        if name.starts_with(b"runtime.sigreturn") {
            // A handler returns to its first byte. Return addresses are looked up one byte before: between two functions.
            push(function.start.saturating_sub(1), always(Rule::Signal));
        } else if (function.flags & TOP_FRAME != 0 && !HANDLERS.contains(&name)) || ROOTS.contains(&name) {
            push(function.start, always(Rule::Root));
        } else if self.arch == Arch::X86_64 && GOGO.contains(&name) {
            // The goroutine's stack has no return address for the place where the goroutine continues. No register has it until
            // the last instruction.
            let away =
                (self.code)(function.start, function.end).and_then(|code| switches_x86_64::leaves_at(&code, function.start));
            push(function.start, self.rule(0, true, true));
            push(away.unwrap_or(function.start), Packed::invalid(Invalid::StackPointer));
        } else if self.arch == Arch::Aarch64 && name == b"runtime.asyncPreempt" {
            if self.each_step(function, |address, pcsp| push(address, self.preempted(pcsp))).is_none() {
                push(function.start, Packed::invalid(Invalid::Malformed));
            }
        } else if self.arch == Arch::Aarch64 && (function.flags & SP_WRITE != 0 || SWITCHES.contains(&name)) {
            match self.left_on_arm64(function, name, *goroutine) {
                Some(switches) => {
                    switches.rows.into_iter().for_each(|(address, rule)| push(address, rule));
                    *goroutine = goroutine.or(switches.goroutine);
                }
                // Nothing tells which stack it is on.
                None => push(function.start, Packed::invalid(Invalid::StackPointer)),
            }
        } else if function.flags & SP_WRITE != 0 || SWITCHES.contains(&name) {
            if let Some(switches) = self.left(function, name, *goroutine) {
                switches.rows.into_iter().for_each(|(address, rule)| push(address, rule));
                *goroutine = goroutine.or(switches.goroutine);
            } else if self.switching(function, SWITCHES.contains(&name), &mut push).is_none() {
                push(function.start, Packed::invalid(Invalid::Malformed));
            }
        } else if self.steps(function, name == EXECUTE, &mut push).is_none() {
            push(function.start, Packed::invalid(Invalid::Malformed));
        }
    }

    /// Returns the rules of a function that leaves its stack without a frame, by its code.
    fn left(&self, function: &Function, name: &[u8], goroutine: Option<Cfa>) -> Option<switches_x86_64::Switches> {
        if self.arch != Arch::X86_64 || !SWITCHES.contains(&name) {
            return None;
        }
        // It saves the stack pointer that its caller will have when it begins again: no return address can be found from it.
        let saved = match goroutine {
            Some(Cfa::Goroutine { tls, m, curg, sp, .. }) if name == b"runtime.morestack" => {
                Some(Cfa::Goroutine { tls, m, curg, sp, outer: 0 })
            }
            _ => None,
        };
        let (mut deepest, code) = (0, (self.code)(function.start, function.end)?);
        self.each_step(function, |_, pcsp| deepest = deepest.max(pcsp))?;
        if deepest >= 16 { None } else { switches_x86_64::rows(&code, function.start, saved) }
    }

    /// Returns the rules, on arm64, of any function that writes the stack pointer.
    fn left_on_arm64(&self, function: &Function, name: &[u8], goroutine: Option<Cfa>) -> Option<switches_x86_64::Switches> {
        let code = (self.code)(function.start, function.end)?;
        let mut pcsp = Vec::new();
        self.each_step(function, |address, depth| pcsp.push((address, depth)))?;
        switches_arm64::rows(&code, function.start, &pcsp, goroutine.filter(|_| name == b"runtime.morestack"))
    }

    /// Adds the rules of a function that writes the stack pointer: by `pcsp` at its begin and at its end, by the frame pointer in
    /// between.
    ///
    /// ```text
    /// sub rsp, 16; mov [rsp+8], rbp; lea rbp, [rsp+8];    …    mov rbp, [rsp+8]; add rsp, 16; ret
    ///              5 bytes           5 bytes                                     4 bytes
    /// └─────────────── by pcsp ──────────────────────┘ by rbp                  └──── by pcsp ───┘
    /// ```
    ///
    /// Functions without a frame that return (`skips`) lead to the caller of their caller; `gogo` and its like do not return.
    fn switching(&self, function: &Function, skips: bool, push: &mut impl FnMut(u64, Packed)) -> Option<()> {
        let mut steps = Vec::new();
        self.each_step(function, |address, pcsp| steps.push((address, pcsp)))?;
        // After the frame is made, `pcsp` is about the other stack.
        let frame = steps.iter().map(|(_, pcsp)| *pcsp).find(|pcsp| *pcsp >= 16);
        // Offsets of one byte, so that instructions have the length above.
        let Some(frame) = frame.filter(|frame| self.arch == Arch::X86_64 && *frame < 128) else {
            let never = Packed::invalid(Invalid::StackPointer);
            push(function.start, if frame.is_some() || skips { self.by_frame_pointer(frame.is_none()) } else { never });
            return Some(());
        };
        let by_stack = |pcsp| self.rule(pcsp, function.flags & ASSEMBLY != 0, false);
        let mut made = false;
        for (number, (start, pcsp)) in steps.iter().copied().enumerate() {
            if pcsp < 16 {
                push(start, by_stack(pcsp));
                continue;
            }
            if !made {
                push(start, by_stack(frame));
            }
            let (switched, end) = (if made { start } else { start.saturating_add(10) }, steps.get(number + 1));
            made = true;
            push(switched, self.by_frame_pointer(false));
            if let Some((end, _)) = end.filter(|(end, pcsp)| *pcsp < 16 && *end > switched.saturating_add(4)) {
                push(end.saturating_sub(4), by_stack(frame));
            }
        }
        Some(())
    }

    /// Runs the function's `pcsp`: pairs of how much the value (zigzag) and the program counter change.
    fn each_step(&self, function: &Function, mut step: impl FnMut(u64, i64)) -> Option<()> {
        let mut cursor = Cursor::new(self.steps.get(function.steps as usize..)?);
        let (mut value, mut address) = (-1i64, function.start);
        while address < function.end {
            let change = cursor.uleb()?;
            if change == 0 && address > function.start {
                // The rest aligns the next function.
                return Some(());
            }
            value = value.checked_add((change >> 1).cast_signed() ^ -(change & 1).cast_signed())?;
            let length = cursor.uleb()?.checked_mul(self.header.quantum.into()).filter(|length| *length > 0)?;
            step(address, value);
            address = address.checked_add(length)?;
        }
        Some(())
    }

    fn steps(&self, function: &Function, executes: bool, push: &mut impl FnMut(u64, Packed)) -> Option<()> {
        self.each_step(function, |address, value| push(address, self.rule(value, function.flags & ASSEMBLY != 0, executes)))
    }

    fn rule(&self, pcsp: i64, assembly: bool, executes: bool) -> Packed {
        let Ok(pcsp) = i32::try_from(pcsp) else { return Packed::invalid(Invalid::DoesNotFit) };
        // Assembly saves the frame pointer anywhere or nowhere, once it has a frame.
        let saved = |place| if assembly { Fp::Undefined } else { Fp::AtCfa(place) };
        let (size, ra, fp) = match (self.arch, pcsp) {
            (_, i32::MIN..0) => return Packed::invalid(Invalid::Malformed),
            (Arch::X86_64, 0..8) => (pcsp.saturating_add(8), Ra::AtCfa(-8), Fp::Unchanged),
            (Arch::X86_64, _) => (pcsp.saturating_add(8), Ra::AtCfa(-8), saved(-16)),
            (Arch::Aarch64, 0) => (0, Ra::Register(Reg(30)), Fp::Unchanged),
            (Arch::Aarch64, _) => (pcsp, Ra::AtCfa(-pcsp), saved((-pcsp).saturating_sub(8))),
        };
        // Only functions that go to another stack change g.
        let rbx = match self.arch {
            _ if executes => Rbx::NextGoroutine,
            Arch::Aarch64 => Rbx::Unchanged,
            Arch::X86_64 => Rbx::Unknown,
        };
        let frame = Frame { cfa: Cfa::Register(self.arch.sp(), size), ra, fp, rbx, interrupted: false, skips: false };
        Packed::new(Rule::Frame(frame), self.arch).unwrap_or(Packed::invalid(Invalid::DoesNotFit))
    }

    /// Returns the rule of the function that a preempting signal makes a goroutine call, on arm64. The handler pushes x30 (16
    /// bytes) and puts the interrupted address into x30. `CFA = sp + pcsp + 16; RA = *(sp)`
    fn preempted(&self, pcsp: i64) -> Packed {
        let Ok(pcsp @ 0..0x1_0000) = i32::try_from(pcsp) else { return Packed::invalid(Invalid::DoesNotFit) };
        let ra = if pcsp == 0 { Ra::Register(Reg(30)) } else { Ra::AtCfa(-pcsp - 16) };
        let fp = if pcsp == 0 { Fp::Unchanged } else { Fp::AtCfa(-pcsp - 24) };
        let cfa = Cfa::Register(self.arch.sp(), pcsp + 16);
        let frame = Frame { cfa, ra, fp, rbx: Rbx::Unchanged, interrupted: true, skips: false };
        Packed::new(Rule::Frame(frame), self.arch).unwrap_or(Packed::invalid(Invalid::DoesNotFit))
    }

    fn by_frame_pointer(&self, skips: bool) -> Packed {
        let cfa = Cfa::Register(self.arch.fp(), 16);
        let frame = Frame { cfa, ra: Ra::AtCfa(-8), fp: Fp::AtCfa(-16), rbx: Rbx::Unknown, interrupted: false, skips };
        Packed::new(Rule::Frame(frame), self.arch).unwrap_or(Packed::GAP)
    }
}
