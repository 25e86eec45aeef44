//! Compares two walks of the same stacks.

use crate::profile::FrameId;
use crate::profile::Tid;
use crate::profile::Timestamp;
use std::collections::HashMap;

/// How two ways of finding the same stack compare: `--backtrace both`.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) equal: u64,
    pub(super) different: u64,
    /// Kernel's parts of which the other form has not come yet.
    pub(super) waiting: HashMap<(Timestamp, Tid), Vec<FrameId>>,
}

/// So many wait at most: more are of events that have no other form.
pub(super) const MAX_WAITING: usize = 4096;

impl Comparison {
    /// In words.
    pub(super) fn describe(&self) -> Option<String> {
        let any = self.equal + self.different > 0;
        any.then(|| format!("backtraces by the kernel and by hand: {} equal, {} different", self.equal, self.different))
    }
}
