//! Opens files that processes name, and finds out which users may reach them.
//!
//! - [`open`]: the only way to a file whose path a process chose.
//! - [`process`]: the directory in `/proc` that shows a process's files.
//! - [`reach`]: finds a file's real place, and whether a user may reach it.

pub(crate) mod build_id;
pub(crate) mod bytes;
pub(crate) mod copies;
pub mod crew;
pub(crate) mod debug_files;
pub(crate) mod debug_link;
pub(crate) mod elf;
#[cfg(feature = "live")]
pub(crate) mod exported;
pub(crate) mod function_bounds;
pub(crate) mod gopclntab;
pub mod headers;
pub mod io_timeout;
pub(crate) mod mapped;
pub(crate) mod mapped_file;
pub(crate) mod numbers;
pub(crate) mod object_files;
pub mod open;
pub(crate) mod plt;
pub mod process;
pub mod reach;
pub mod read_at;
pub(crate) mod reason;
pub(crate) mod relocate;
pub(crate) mod unpack;
pub(crate) mod vdso;
