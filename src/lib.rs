//! flametop: a live flame graph of everything a Linux machine runs, in the terminal.
//!
//! The map of the house, in the order in which data flows:
//!
//! ```text
//! bpf/*.bpf.c ──► collector ──► profile ──► ui ──► terminal
//!                     ▲           ▲  └────► formats ──► svg, folded
//!                 symbolize ──────┘
//! ```
//!
//! - [`profile`]: the model; pure. Samples, stacks, names, queries, trees.
//! - [`collector`]: everything that touches the kernel.
//! - [`symbolize`]: addresses to names.
//! - [`object`]: files of code: opening what a process names, reading ELF; for both of these.
//! - [`interpreters`]: functions of Python in memory; pure.
//! - [`unwind`]: unwind information to compact tables; pure.
//! - [`allocator`]: what the C library's allocator keeps.
//! - [`privileges`]: what is given up after the start, in all threads.
//! - [`palette`]: colours of boxes, on the screen and in saved pictures.
//! - [`formats`]: one file a format, reading and writing.
//! - [`ui`]: the screen and its keys.
//! - [`session`]: builds the rooms and connects them for one run; [`cli`] says which.
//!
//! ARCHITECTURE.md has the rules; tests/architecture/main.rs holds them.

pub mod allocator;
pub mod cli;
#[cfg(feature = "live")]
pub mod collector;
pub mod formats;
pub mod interpreters;
mod locks;
pub mod object;
pub mod palette;
pub mod privileges;
pub mod profile;
pub mod session;
pub mod symbolize;
pub mod ui;
pub mod unwind;
