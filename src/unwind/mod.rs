//! Converts unwind information of an object to a compact table of rules. With it stacks are walked without frame pointers.
//!
//! ```text
//! ELF image ─ sections ─► .eh_frame, .debug_frame ─ cfi ─► rules ─┐
//!                         .gopclntab ─ go ────────────────────────┼─► table ─► the kernel's layout of it
//!                         stubs and entry points ─ known_code ────┤
//!                         code without any of those ─ machine_code┘
//! ```
//!
//! - `cfi`: call frame information, run instruction by instruction.
//! - `go`: Go's own table, and the functions of its runtime that change stacks.
//! - `known_code`: code that is known by its bytes: the procedure linkage table, entry points, returns from signals.
//! - `machine_code`: what code does to its stack, where nothing else tells.
//! - [`table`]: rules, rows, and the table as BPF reads it.
//! - [`walk`]: the walk of a copied stack, by the same rules.
//! - `recorded`: the tables for stacks that another program has copied.
//! - [`check`]: the same tables compared with what gimli reads.
//!
//! Pure: bytes in, rows out. Every address of an object has a rule, a reason why it has none, or is a gap. A rule says the same
//! as the object's own unwind information, or is proved from its code. Damage costs only the function that it is in. Memory and
//! time are in proportion to the file. Bytes are hostile.

pub(crate) mod cfi;
pub mod check;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod debug_frame_files;
pub(crate) mod go;
pub(crate) mod known_code;
pub(crate) mod machine_code;
pub(crate) mod recorded;
pub(crate) mod sections;
pub mod table;
#[cfg(test)]
mod tests;
pub mod walk;

pub use check::{Checked, check_file};
pub use control::{Control, Ended, Step, Unhurried};
pub use convert::{convert, convert_in_steps};
pub use debug_frame_files::{Beside, Nowhere, OnDisk, SEPARATE_FILES, has_separate_file};
pub use table::packed::Packed;
pub use table::paged::{Page, Paged};
pub use table::rows::{Code, Report, Table};
pub use table::rule::Rule;

pub use crate::object::headers::Arch;
pub use crate::object::read_at::{FileBytes, ReadAt, Unreadable};
