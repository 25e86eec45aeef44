//! Address ranges that processes mapped while samples of them wait.
//!
//! A sample may wait until its process is read, or until an unwind table is loaded. By then the process may have mapped another file
//! at an address of the sample. Such an address is unknown. All other addresses still mean the same.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::mappings::Mappings;
use crate::collector::wire::records::COMM_LENGTH;
use crate::profile::UserId;

/// Most ranges of one process. If there are more, none of its addresses is known.
const MAX_RANGES: usize = 1024;

/// The ranges of each process that has waiting samples.
#[derive(Default)]
pub(super) struct Remapped {
    of: FxHashMap<u32, Log>,
}

#[derive(Default)]
struct Log {
    ranges: Vec<Range<u64>>,
    /// Whether ranges are missing.
    is_incomplete: bool,
}

impl Remapped {
    /// Begins to note the ranges of a process for a sample, unless they are noted already. Returns the number of ranges so far.
    pub(super) fn begin(&mut self, tgid: u32) -> usize {
        let log = self.of.entry(tgid).or_default();
        if log.is_incomplete { usize::MAX } else { log.ranges.len() }
    }

    /// Notes a range of addresses that may have another meaning from now on.
    pub(super) fn note(&mut self, tgid: u32, range: Range<u64>) {
        let Some(log) = self.of.get_mut(&tgid) else { return };
        log.is_incomplete |= log.ranges.len() >= MAX_RANGES;
        if !log.is_incomplete {
            log.ranges.push(range);
        }
    }

    /// Notes that any address of any process may have another meaning from now on.
    pub(super) fn note_all(&mut self) {
        self.of.values_mut().for_each(|log| log.is_incomplete = true);
    }

    /// Returns the ranges of a process since [`begin`](Remapped::begin) returned `number`. `None` if they are not known.
    pub(super) fn since(&self, tgid: u32, number: usize) -> Option<&[Range<u64>]> {
        let log = self.of.get(&tgid).filter(|log| !log.is_incomplete)?;
        log.ranges.get(number..)
    }

    /// Forgets the ranges of processes whose samples no longer wait.
    pub(super) fn retain(&mut self, is_waiting: impl Fn(u32) -> bool) {
        self.of.retain(|tgid, _| is_waiting(*tgid));
    }

    /// Whether ranges of any process are noted.
    pub(super) fn is_any(&self) -> bool {
        !self.of.is_empty()
    }
}

/// A process at the time of a sample. When the sample is resolved, the process may run another program or be gone.
#[derive(Clone)]
pub(super) struct AtSample {
    pub(super) tgid: u32,
    /// See [`ProcessState::life`](super::state::ProcessState::life).
    pub(super) life: u64,
    pub(super) user: UserId,
    pub(super) comm: [u8; COMM_LENGTH],
    /// Its mappings if they were known, else only the mappings that events had reported.
    pub(super) told: Mappings,
    pub(super) was_known: bool,
    /// Number of ranges that were noted before the sample began to wait.
    pub(super) remapped: usize,
}

impl AtSample {
    /// Returns the mappings of the sample's time, if they were known then.
    pub(super) fn known_mappings(&self) -> Option<Mappings> {
        self.was_known.then(|| self.told.clone())
    }
}
