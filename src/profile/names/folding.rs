//! Frames that are not shown.

/// The frames that are folded into their callers. They are not shown, and their weight counts for the caller. A search or a filter does not
/// see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folding {
    /// Functions that the compiler has inlined.
    pub inlined: bool,
    /// Frames of an interpreter that serve to run its functions ([`Frame::Interpreter`](crate::profile::Frame::Interpreter)).
    pub interpreter: bool,
    /// Direct recursion: of a function that calls itself, the outermost frame is shown for all. [`CallTree::repeats`] tells how deep it went.
    ///
    /// [`CallTree::repeats`]: crate::profile::CallTree::repeats
    pub recursion: bool,
}

impl Default for Folding {
    fn default() -> Folding {
        Folding { inlined: false, interpreter: true, recursion: false }
    }
}
