//! flametop: a live flame graph of everything a Linux machine runs, in the terminal.
//!
//! Overview, in the order of the data flow:
//!
//! ```text
//! bpf/*.bpf.c ──► collector ──► profile ──► ui ──► terminal
//!                     ▲           ▲  └────► formats ──► svg, folded
//!                 symbolize ──────┘
//! ```
//!
//! - [`profile`]: the model; pure. It has samples, stacks, names, queries and trees.
//! - [`collector`]: everything that touches the kernel.
//! - [`symbolize`]: converts addresses to names.
//! - [`object`]: files of code. It opens the files that a process names, and reads ELF; [`collector`] and [`symbolize`] use it.
//! - [`runtimes`]: finds functions of Python in memory; pure.
//! - [`unwind`]: converts unwind information to compact tables; pure.
//! - [`allocator`]: memory that the C library's allocator keeps.
//! - [`privileges`]: drops privileges after the start, in all threads.
//! - [`palette`]: colours of boxes, on the screen and in saved pictures.
//! - [`formats`]: one module a file format, for reading and writing.
//! - [`fleet`]: sends profiles to the engines that collect them from many machines.
//! - [`ui`]: the screen and its keys.
//! - [`session`]: builds these parts and connects them for one run. [`cli`] chooses the parts.
//!
//! ARCHITECTURE.md has the rules; tests/architecture/main.rs checks them.

pub mod allocator;
pub mod cli;
#[cfg(feature = "live")]
pub mod collector;
mod cpu_time;
#[cfg(feature = "live")]
pub mod fleet;
pub mod formats;
mod locks;
pub mod object;
pub mod palette;
pub mod privileges;
pub mod profile;
pub mod runtimes;
pub mod session;
pub mod symbolize;
pub mod ui;
pub mod unwind;
