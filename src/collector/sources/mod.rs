//! Sources of samples that are not attached to code: the sampling clock.

pub(crate) mod clock;
pub(crate) mod rings;
pub(crate) mod walk;
