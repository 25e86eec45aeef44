//! Calling conventions.

use crate::object::headers::Arch;

/// arm64: DWARF's numbers, which are the machine's.
pub(crate) const FP: usize = 29;
pub(crate) const LR: usize = 30;
pub(crate) const SP: usize = 31;

/// x86_64: DWARF's numbers.
pub(crate) const RBP: usize = 6;
pub(crate) const RSP: usize = 7;

/// The duties of functions towards their callers.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Abi {
    pub(crate) arch: Arch,
    /// DWARF's numbers, as everywhere here.
    pub(crate) sp: usize,
    pub(crate) fp: usize,
    /// Registers that a function preserves, except the stack pointer.
    pub(crate) kept: &'static [usize],
    /// Registers that a call may change.
    pub(crate) scratch: &'static [usize],
    /// How far the stack pointer is from the CFA at a function's begin.
    pub(crate) entry: i64,
    /// The register that has the return address at a function's begin; `None` if it is at the stack pointer.
    pub(crate) link: Option<usize>,
}

/// System V AMD64 psABI, 3.2.1: rbx, rbp, r12 to r15 are kept.
static X86_64: Abi = Abi {
    arch: Arch::X86_64,
    sp: RSP,
    fp: RBP,
    kept: &[3, RBP, 12, 13, 14, 15],
    scratch: &[0, 1, 2, 4, 5, 8, 9, 10, 11],
    entry: -8,
    link: None,
};

/// AAPCS64, 6.1.1: x19 to x29 are kept. x18 is the platform's: functions need not preserve it.
static AARCH64: Abi = Abi {
    arch: Arch::Aarch64,
    sp: SP,
    fp: FP,
    kept: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, FP],
    scratch: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, LR],
    entry: 0,
    link: Some(LR),
};

impl Abi {
    pub(crate) fn of(arch: Arch) -> &'static Abi {
        match arch {
            Arch::X86_64 => &X86_64,
            Arch::Aarch64 => &AARCH64,
        }
    }
}
