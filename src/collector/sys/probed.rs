//! Functions of flametop that are probed to measure what a probe costs.
//!
//! The kernel carries out some instructions of a probed place itself. Others it has the processor run alone, as a single step, which takes a
//! second trap: in a virtual machine thirty times as long (0.5 and 15 µs). So there is a function of each kind.

use std::arch::naked_asm;

/// Begins with an instruction that the kernel carries out itself. Does nothing.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) extern "C" fn carried_out() {
    naked_asm!("push rbp", "pop rbp", "ret")
}

/// Begins with an instruction that is run as a single step. Does nothing.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) extern "C" fn stepped() {
    naked_asm!("mov eax, 1", "ret")
}

/// Begins with an instruction that the kernel carries out itself. Does nothing.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) extern "C" fn carried_out() {
    naked_asm!("nop", "ret")
}

/// Begins with an instruction that is run as a single step. Does nothing.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) extern "C" fn stepped() {
    naked_asm!("mov w0, #1", "ret")
}
