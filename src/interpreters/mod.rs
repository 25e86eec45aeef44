//! Interpreters of other languages: where their functions are in memory, and what they are called.
//!
//! PURE: memory is read through [`Memory`]. All that is read belongs to a profiled process, and is hostile: each read has a bound, and so has
//! each chain that is followed. What is damaged gives `None`, never a panic.
//!
//! - [`python`]: CPython 3.7 to 3.15

mod memory;
pub mod python;

pub use memory::Memory;
