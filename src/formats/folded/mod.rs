//! Folded stacks: one stack a line, root first. Frames are joined by `;`; a space and the stack's count follow.
//!
//! ```text
//! nginx;main;handle request;sys_read_[k] 42
//! └─ frames, root first ──┘         │    └ count: after the last space or tab
//!                                   └ FlameGraph's annotation: kernel
//! ```
//!
//! The format has no specification. Reading and writing follow FlameGraph's `flamegraph.pl` and `stackcollapse-perf.pl`
//! (<https://github.com/brendangregg/FlameGraph>).
//!
//! - Names may hold spaces. They cannot hold `;`: it is written as `:`, as `stackcollapse-perf.pl` does.
//! - An annotation at the end of a name gives the frame's kind: `_[k]` kernel, `_[i]` inlined, `_[j]` JIT, and those of
//!   [`Language`](crate::profile::Language). `_[w]` (a waker) is
//!   removed and has no meaning here. Names without an annotation are user code. That includes the first frame of a line: many
//!   tools put the command's name there, many do not, and nothing in the file shows the difference.
//! - `[unknown]` is [`FrameKind::Unknown`](crate::profile::FrameKind::Unknown); a frame without a name becomes `[unknown]`.
//! - A line `#`, or a line that begins with `# `, is a comment. Blank lines are ignored. Every other line that is not frames and a
//!   count is left out and counted.

mod line;
mod read;
mod write;

pub use super::lines::Encoding;
pub(super) use line::begins_with_a_stack;
pub(super) use read::open;
pub use read::{ReadReport, read};
pub(super) use write::write_part;
pub use write::{FoldedOptions, Written, write, write_difference};

/// Name of frames without a name.
const UNKNOWN: &str = "[unknown]";
