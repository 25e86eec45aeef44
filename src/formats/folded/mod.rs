//! Folded stacks: one stack a line, root first, frames joined by `;`, then a space and what it counts for.
//!
//! ```text
//! nginx;main;handle request;sys_read_[k] 42
//! └─ frames, root first ──┘         │    └ count: after the last space or tab
//!                                   └ FlameGraph's annotation: kernel
//! ```
//!
//! The format has no specification; what is read and written here follows FlameGraph's `flamegraph.pl` and
//! `stackcollapse-perf.pl` (<https://github.com/brendangregg/FlameGraph>).
//!
//! - Names may hold spaces. They cannot hold `;`: it is written as `:`, as `stackcollapse-perf.pl` does.
//! - An annotation at the end of a name tells what the frame is: `_[k]` kernel, `_[i]` inlined, `_[j]` JIT. `_[w]` (a waker)
//!   is taken off and means nothing more here. Names without one are user code, the first of a line too: many tools put
//!   the command's name there, but many do not, and nothing in the file tells which.
//! - `[unknown]` is [`FrameKind::Unknown`](crate::profile::FrameKind::Unknown); a frame without a name becomes `[unknown]`.
//! - A line `#` or one that begins with `# ` is a comment. Blank lines mean nothing. Every other line that is not frames and
//!   a count is left out and counted.

mod line;
mod read;
mod write;

pub use super::input::Encoding;
pub use read::{ReadReport, read};
pub use write::{FoldedOptions, Written, write, write_difference};

/// What a frame without a name is called.
const UNKNOWN: &str = "[unknown]";
