//! What one row of an unwind table says: how the caller's registers follow from the callee's.
//!
//! Words: *CFA* is the canonical frame address, what the stack pointer was before the call pushed (x86_64) or would have
//! pushed (arm64) anything: the caller's stack pointer after the return. `*x` is the 8 bytes in memory at `x`.
//!
//! A walk carries few registers from frame to frame: program counter, stack pointer, frame pointer (rbp, x29), and rbx on
//! x86_64, x28 on arm64. All others are known in the interrupted frame alone; a rule that reads one of them fails anywhere else, by the
//! mask of valid registers that the walk keeps.
//!
//! Packed ([`crate::unwind::Packed`]), a rule is 8 bytes that are copied by value: the walk's cache holds them beside their address.

use crate::object::headers::Arch;

/// A register by its DWARF number, below 32. System V AMD64 psABI 3.6.2: rax 0, rdx 1, rcx 2, rbx 3, rsi 4, rdi 5, rbp 6,
/// rsp 7, r8 to r15. AADWARF64 4.1: x0 to x30, sp 31.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reg(pub u8);

impl Arch {
    /// The stack pointer.
    pub fn sp(self) -> Reg {
        Reg(if self == Arch::X86_64 { 7 } else { 31 })
    }

    /// The frame pointer.
    pub fn fp(self) -> Reg {
        Reg(if self == Arch::X86_64 { 6 } else { 29 })
    }

    /// DWARF's column of the return address: on arm64 the link register, x30; on x86_64 no register.
    pub fn ra(self) -> u64 {
        if self == Arch::X86_64 { 16 } else { 30 }
    }

    /// A register that can be in a rule: a general one.
    pub fn reg(self, number: u64) -> Option<Reg> {
        let known = if self == Arch::X86_64 { number < 16 } else { number < 32 };
        u8::try_from(number).ok().filter(|_| known).map(Reg)
    }
}

/// DWARF's number of rbx.
pub const RBX: Reg = Reg(3);

/// A row of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// Covered by nothing: code without unwind information. Not the end of a stack.
    Gap,
    /// Covered, but the information is wrong or cannot be said in a rule.
    Invalid(Invalid),
    /// No caller: the return address is undefined. The stack is complete here.
    Root,
    /// The kernel's return from a signal handler: all registers are in the `ucontext` at the stack pointer.
    ///
    /// `x86_64: *(rsp + 40 + 8·i) = r8 … r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip`;
    /// `arm64: *(sp + 312 + 8·i) = x0 … x30, sp, pc`.
    Signal,
    /// A stub of the procedure linkage table, 16 bytes of code each, that has pushed a number from byte `pushed` on; x86_64.
    ///
    /// `CFA = rsp + 8 + (rip & 15 ≥ pushed ? 8 : 0); RA = *(CFA − 8); rbp unchanged`
    Plt {
        /// The first byte of the stub where the number is on the stack.
        pushed: u8,
    },
    /// An ordinary frame.
    Frame(Frame),
}

/// An ordinary frame: `sp = CFA` in the caller, program counter by `ra`, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Where the frame ends.
    pub cfa: Cfa,
    /// The return address.
    pub ra: Ra,
    /// The caller's frame pointer: rbp or x29.
    pub fp: Fp,
    /// The caller's rbx, in objects that need it; x28 on arm64.
    pub rbx: Rbx,
    /// The caller was interrupted, not calling: its program counter is looked up as it is, not one byte before.
    pub interrupted: bool,
    /// What this leads to is not the caller but one further out; those between are not known. By `CFA = FP + 16` in a
    /// function that has no frame and runs on another stack than its caller.
    pub skips: bool,
}

/// The canonical frame address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cfa {
    /// `CFA = register + offset`
    Register(Reg, i32),
    /// `CFA = *(register + inner) + outer`
    Deref(Reg, i32, i32),
    /// `CFA = *(*(base + inner) + middle) + outer`: a stack whose owner has its stack pointer. OCaml 5's fibers.
    DerefTwice {
        /// The register.
        base: Reg,
        /// Added before the first load.
        inner: i32,
        /// Added before the second.
        middle: i32,
        /// Added to what was loaded.
        outer: i32,
    },
    /// `CFA = *(register + scale·index + inner) + outer`, OpenSSL's AES for blocks in parallel
    Indexed {
        /// The register.
        base: Reg,
        /// The other register.
        index: Reg,
        /// 1, 2, 4, or 8.
        scale: u8,
        /// Added before the load.
        inner: i32,
        /// Added to what was loaded.
        outer: i32,
    },
    /// `CFA = *(*(*(*(FS + tls) + m) + curg) + sp) + outer`: the stack of the goroutine that a thread of Go runs, while it is on
    /// its own; FS is the thread's base. On arm64 `CFA = *(*(*(x28 + m) + curg) + sp) + outer`.
    Goroutine {
        /// Where the thread has what it runs, g; 0 on arm64.
        tls: i32,
        /// Where g has its thread, m.
        m: i32,
        /// Where m has the goroutine that it runs.
        curg: i32,
        /// Where that has its saved stack pointer.
        sp: i32,
        /// Added to it.
        outer: i32,
    },
    /// `CFA = *(*(SP + object) + top) − *(SP + depth) + outer`: a stack that may have been moved meanwhile, by how deep it was.
    BelowTop {
        /// Where the stack's owner is.
        object: i32,
        /// Where that has the upper end of its stack.
        top: i32,
        /// Where the depth is.
        depth: i32,
        /// Added to it.
        outer: i32,
    },
    /// `CFA = *(*(x28 + m) + sp) + outer`: what a thread of Go has put down while it is in the vDSO. arm64
    Thread {
        /// Where g has its thread, m.
        m: i32,
        /// Where that has the stack pointer.
        sp: i32,
        /// Added to it.
        outer: i32,
    },
}

/// The return address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ra {
    /// `RA = *(CFA + offset)`; −8 always on x86_64
    AtCfa(i32),
    /// `RA = register`: x30 in arm64 leaves, rdi in `vfork` of glibc
    Register(Reg),
    /// `RA = *(place of the saved stack pointer + 8)`, with [`Cfa::Goroutine`]: the goroutine was stopped between two calls. Where
    /// its thread has none (any more), the stack is complete.
    Saved,
    /// The same on arm64, of a caller that has not saved its own return address yet: `x30' = *(that place + offset)`
    Prologue(i32),
}

/// The caller's frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fp {
    /// `FP' = FP`
    Unchanged,
    /// `FP' = *(CFA + offset)`
    AtCfa(i32),
    /// `FP' = *(FP + offset)`: functions that realign their stack
    AtFp(i32),
    /// `FP' = *(SP + offset)`
    AtSp(i32),
    /// `FP' = register`
    Register(Reg),
    /// Not known in the caller.
    Undefined,
}

/// The caller's rbx; on arm64 x28, in which Go has what it runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rbx {
    /// Not known in the caller. Where it was saved, that is not followed in objects that have no frame that is found by it.
    Unknown,
    /// `rbx' = rbx`
    Unchanged,
    /// `rbx' = *(CFA + offset)`
    AtCfa(i32),
    /// Not followed on x86_64, unchanged on arm64. In Go's `runtime.execute`: the goroutine that the thread has by now is not the one whose
    /// code has left for this stack.
    NextGoroutine,
}

impl Rbx {
    /// Leaves out the place where rbx was saved. If no frame of an object is found by rbx, the place would only make more rules. Whether
    /// rbx is unchanged stays: callers in other objects may need it.
    pub fn unless_saved(self) -> Rbx {
        if matches!(self, Rbx::AtCfa(_)) { Rbx::Unknown } else { self }
    }
}

/// Why there is no rule. The numbers are in the packed form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Invalid {
    /// The entry cannot be read.
    Malformed,
    /// An instruction that is not known.
    Instruction,
    /// `DW_CFA_remember_state` nested too deep, or restored without.
    StateStack,
    /// The CFA's expression has no rule's form.
    CfaExpression,
    /// The CFA is computed from a register that is not known anywhere.
    CfaRegister,
    /// There is no rule for the CFA.
    NoCfa,
    /// The return address is where no rule looks for it.
    ReturnAddress,
    /// The frame pointer's rule has no rule's form.
    FramePointer,
    /// The caller's stack pointer is not the CFA.
    StackPointer,
    /// A rule that the packed form has no room for.
    DoesNotFit,
    /// More than 65,536 different rules in one object.
    TooManyRules,
}

/// Every reason, in the order of their numbers.
pub const REASONS: [Invalid; 11] = [
    Invalid::Malformed,
    Invalid::Instruction,
    Invalid::StateStack,
    Invalid::CfaExpression,
    Invalid::CfaRegister,
    Invalid::NoCfa,
    Invalid::ReturnAddress,
    Invalid::FramePointer,
    Invalid::StackPointer,
    Invalid::DoesNotFit,
    Invalid::TooManyRules,
];

impl Invalid {
    /// In a few words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Invalid::Malformed => "malformed",
            Invalid::Instruction => "unknown instruction",
            Invalid::StateStack => "remember_state",
            Invalid::CfaExpression => "CFA expression",
            Invalid::CfaRegister => "CFA register",
            Invalid::NoCfa => "no CFA",
            Invalid::ReturnAddress => "return address",
            Invalid::FramePointer => "frame pointer",
            Invalid::StackPointer => "stack pointer",
            Invalid::DoesNotFit => "does not fit",
            Invalid::TooManyRules => "too many rules",
        }
    }
}
