//! Memory bounds for all processes together. Data that is dropped because of a bound is read again when it is needed.
//!
//! ```text
//! mapped files     a sixteenth of --memory, shared out by user (mappings.rs)
//! mappings         an eighth: beyond it the processes with the most lose theirs, and are read again at their next sample
//! frames           1 million addresses: beyond it the processes with the most lose theirs
//! functions        of interpreters: a sixteenth; beyond it the user with the most loses those of his large processes
//! command lines    a sixty-fourth: beyond it long lines are cut
//! ```

/// The most bytes that mappings, functions and command lines may take.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) mappings: usize,
    pub(super) functions: usize,
    pub(super) command_lines: usize,
}

impl Bounds {
    /// Returns the bounds of a flametop that may take `memory` bytes.
    pub(super) fn of(memory: usize) -> Bounds {
        Bounds { mappings: memory / 8, functions: memory / 16, command_lines: memory / 64 }
    }
}
