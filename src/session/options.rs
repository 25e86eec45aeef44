//! Translates the options of sampling into settings of the session.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cli::Sampling;
use crate::privileges::Duties;
use crate::profile::{Folding, Limits};
use crate::symbolize::{DEBUGINFOD_FIND, program_called};

/// Returns the tasks of a sampling run, after its start.
pub(super) fn duties(sampling: &Sampling, program: &[OsString], attaches: bool) -> Duties {
    Duties::Samples { command: !program.is_empty(), fetches: sampling.debuginfod, attaches }
}

/// Returns the program that fetches debug files, if it can do so here.
pub(super) fn debuginfod_find() -> Result<PathBuf> {
    if std::env::var_os("DEBUGINFOD_URLS").is_none_or(|urls| urls.is_empty()) {
        bail!(
            "`--debuginfod` needs DEBUGINFOD_URLS, which is not set: set it to your distribution's server (sudo keeps it with \
             --preserve-env=DEBUGINFOD_URLS)"
        );
    }
    program_called(DEBUGINFOD_FIND).with_context(|| {
        format!(
            "`--debuginfod` needs the program {DEBUGINFOD_FIND}, which was not found; install the package debuginfod or elfutils"
        )
    })
}

/// Returns which frames the options hide.
pub(super) fn folding(options: &Sampling) -> Folding {
    Folding { inlined: options.no_inline, interpreter: !options.interpreter, recursion: false }
}

/// Returns the limits that the options set. `window` is the time limit if the options have none.
pub(super) fn limits(options: &Sampling, window: Option<Duration>) -> Limits {
    let window = options.window.or(window).and_then(|window| u64::try_from(window.as_nanos()).ok());
    Limits { window: window.unwrap_or(u64::MAX), memory: options.memory }
}
