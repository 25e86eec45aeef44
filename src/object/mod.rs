//! Opens files that processes name, and finds out who may reach them.
//!
//! - [`open`]: the only way to a file whose path a process chose.
//! - [`reach`]: where a file really lies, and who may reach it.

pub mod open;
pub mod reach;
