//! Compares two walks of the same stacks.

use crate::profile::FrameId;
use crate::profile::Tid;
use crate::profile::Timestamp;
use std::collections::HashMap;

/// Result of comparing two ways to find the same stack: `--backtrace both`.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) equal: u64,
    pub(super) different: u64,
    /// Kernel parts whose other form has not come yet.
    pub(super) waiting: HashMap<(Timestamp, Tid), Vec<FrameId>>,
}

/// Most kernel parts that wait. If more wait, their events have no other form.
pub(super) const MAX_WAITING: usize = 4096;

impl Comparison {
    /// Describes the result in words.
    pub(super) fn describe(&self) -> Option<String> {
        let any = self.equal + self.different > 0;
        any.then(|| format!("kernel and manual backtraces: {} equal, {} different", self.equal, self.different))
    }
}
