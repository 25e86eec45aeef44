//! How stacks without frame pointers are walked: unwind information of objects → compact tables.
//!
//! ```text
//! ELF image ─ source, elf ─► sections ─ entries ─► FDEs ─ cfi ─► states ─ translate ─► rules ─ rows ─► Table ─ paged ─► Paged
//!                                   stubs, by their code ────────────────────────────────┘     ▲
//!                                   code, what it does to its stack: where all of those say nothing
//! ```
//!
//! Pure: bytes in, rows out. Promises: every address of an object has a rule, a reason why there is none, or is a gap; a
//! rule says what the object's own unwind information says (`oracle` compares it with gimli's reading), or what its code is
//! proved to do; damage costs the
//! function that it is in; memory and time are in proportion to the file. Bytes are hostile.

mod bytes;
mod cfi;
mod check;
mod code;
mod control;
mod elf;
mod entries;
mod expression;
mod golang;
mod object;
pub mod oracle;
mod packed;
pub mod paged;
pub mod rows;
pub mod rule;
mod separate;
pub mod source;
mod stubs;
mod switches;
mod switches_arm64;
mod translate;
pub mod walk;

pub use check::{Checked, check_file};
pub use control::{Control, Ended, Step, Unhurried};
pub use object::{convert, convert_in_steps};
pub use packed::Packed;
pub use paged::{Page, Paged};
pub use rows::{Code, Report, Table};
pub use rule::{Arch, Rule};
pub use separate::{Beside, Nowhere, OnDisk, SEPARATE_FILES, has_separate_file};
pub use source::{FileImage, Image, Unreadable};

#[cfg(test)]
mod tests;
