//! Frames that are not shown.

/// Which frames are folded into their callers: they are not shown, and what ran in them ran in the function that called them. They are
/// neither searched nor filtered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folding {
    /// Functions that the compiler has inlined.
    pub inlined: bool,
    /// Frames of an interpreter that serve to run its functions ([`Frame::Interpreter`](crate::profile::Frame::Interpreter)).
    pub interpreter: bool,
}

impl Default for Folding {
    fn default() -> Folding {
        Folding { inlined: false, interpreter: true }
    }
}
