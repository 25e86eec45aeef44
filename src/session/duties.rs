//! What a session has still to do after its start: it gives up the privileges for everything else.

use crate::session::Duties;
use crate::session::Sampling;
use std::ffi::OsString;

/// The tasks of a run that samples, after its start.
pub(super) fn duties(sampling: &Sampling, program: &[OsString], attaches: bool) -> Duties {
    Duties::Samples { command: !program.is_empty(), fetches: sampling.debuginfod, attaches }
}
