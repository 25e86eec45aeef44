//! The file of `perf record`: samples with addresses, and the mappings that tell what was at these addresses.
//!
//! ```text
//! | PERFILE2 | size of header 8 | size of an attribute 8 | attributes | records | event types | bits of features 32 |   sections: offset 8, size 8
//! records:   | type 4 | misc 2 | size 2 | body |, of all CPUs, nearly in order of time
//! features:  a section for each bit that is set, behind the records: build ids, host name, names of events, …
//! ```
//!
//! From a pipe, the header is only its first 16 bytes, and attributes and features are records. The source is perf's own description of
//! its file format. Only files of little-endian machines are read.
//!
//! The file has no names. The reader makes frames of files and of the kernel, and [`Opened::wanted`](super::Opened::wanted) lists them: the
//! caller finds their names on this machine. A file with the same path and another build id is another file. Addresses of a kernel that
//! does not run here have no names.
//!
//! A sample may have a copy of its registers and of its stack's memory, in place of its user frames (`--call-graph dwarf`). The
//! [`StackWalker`](super::StackWalker) of the caller finds the frames, by the unwind tables of the same files.

mod container;
mod read;
mod record;
mod space;

pub(super) use read::open;

/// Whether a file that begins with these bytes is such a file.
pub(super) fn recognizes(head: &[u8]) -> bool {
    head.starts_with(container::MAGIC)
}
