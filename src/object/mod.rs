//! Files of code: opening what a process names.
//!
//! - [`open`]: the one way to a file whose path a process chose.
//! - [`reach`]: where a file really lies, and who may go there.

pub mod open;
pub mod reach;
