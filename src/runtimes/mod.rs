//! Runtimes of other languages: finds their functions in memory, and the names of these functions.
//!
//! PURE: memory is read through [`Memory`]. The memory belongs to a profiled process and is hostile. So each read has a bound, and each
//! chain of pointers has one, too. Damaged data gives `None`, never a panic.
//!
//! - [`python`]: CPython 3.7 to 3.15

mod memory;
pub mod python;

pub use memory::Memory;
