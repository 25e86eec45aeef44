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
<<<<<<< HEAD
//! - [`collector`]: everything that touches the kernel.
//! - `symbolize`: addresses to names.
<<<<<<< HEAD
=======
//! - `collector`: everything that touches the kernel.
//! - [`symbolize`]: addresses to names.
>>>>>>> symbolize
//! - `formats`: one file a format, reading and writing.
=======
//! - [`formats`]: one file a format, reading and writing.
>>>>>>> formats
//! - `ui`: the screen and its keys.
//!
//! ARCHITECTURE.md has the rules; tests/architecture.rs holds them.

<<<<<<< HEAD
pub mod collector;
pub mod formats;
pub mod profile;
pub mod symbolize;
pub mod ui;
