//! Runtimes of other languages: finds their functions in memory, and the names of these functions.
//!
//! PURE: memory is read through [`Memory`]. The memory belongs to a profiled process and is hostile. So each read has a bound, and each
//! chain of pointers has one, too. Damaged data gives `None`, never a panic.
//!
//! - [`hotspot`]: the JVM of JDK 11 to 27
//! - [`python`]: CPython 3.7 to 3.15
//! - [`v8`]: V8 9.4 to 14.6, in Node.js 16 to 26

pub mod hotspot;
mod memory;
pub mod python;
pub mod v8;

pub use memory::Memory;

/// The bytes of a `struct runtime` of `bpf/record.h`: what BPF needs to find the functions of a process.
pub type RuntimeBytes = [u8; 64];
