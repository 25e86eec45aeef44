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

/// Runtimes of a process, bits: `enum runtime_kind`.
const HAS_V8: u16 = 2;
const HAS_HOTSPOT: u16 = 4;
/// Where these bits are: `runtime::has`.
const HAS: usize = 56;

/// Adds a runtime to those of a process. Returns the bytes behind.
fn add_runtime(runtime: &mut RuntimeBytes, kind: u16) -> &mut [u8] {
    let (before, behind) = runtime.split_at_mut(HAS + 2);
    let place = before.last_chunk_mut();
    place.into_iter().for_each(|place| *place = (u16::from_ne_bytes(*place) | kind).to_ne_bytes());
    behind
}
