//! Writers of samples. Other writers take the tree of a view.
//!
//! A sink reads the sample store as a view does: it takes slices of samples under the store's lock, from the last one that it took. So it
//! delays the collector as little as a view does, whether samples still come or not.

use std::ops::Range;
use std::sync::Arc;

use super::FormatError;
use super::about::About;
use crate::profile::{Names, Processes, Profile, Sample, Timestamp};

/// Samples that are taken under one lock; about a millisecond's work.
const SLICE: usize = 16_384;

/// Number of a row that is not in the file yet.
pub(super) const NONE: u32 = u32::MAX;

/// Writes samples, with their threads, times and names.
pub trait Sink {
    /// Tells that only samples from the first time to before the second are kept: the file covers no more of the run.
    fn within(&mut self, _from: Timestamp, _to: Timestamp) {}

    /// Takes some of the samples that came since the last call and are to be `kept`, and all changes of names. Returns whether more
    /// samples are there.
    ///
    /// The profile's ids must belong to `names`. Both may be renewed between calls.
    fn take_some(&mut self, profile: &Profile, names: &Arc<Names>, kept: &mut dyn FnMut(&Sample) -> bool) -> bool;

    /// Takes what has changed of the run, its machine and its processes.
    fn tell(&mut self, about: &About, processes: &Processes);

    /// Ends the file.
    fn end(&mut self) -> Result<(), FormatError>;

    /// Returns the bytes of all that was taken since the last call. They belong behind the bytes of that call.
    fn bytes(&mut self) -> Vec<u8>;

    /// Returns how many samples were taken.
    fn samples(&self) -> u64;

    /// Returns how many samples the store had dropped before they could be taken.
    fn missed(&self) -> u64;
}

/// The place of a sink in the sample store.
#[derive(Default)]
pub(super) struct Cursor {
    /// State of the store's tables: see [`Profile::epoch`].
    epoch: u64,
    /// Number of the next sample in the store.
    next: u64,
    /// Number of the first sample that is not taken.
    end: Option<u64>,
    /// Samples that were taken.
    pub(super) samples: u64,
    /// Samples that the store had dropped before they could be taken.
    pub(super) missed: u64,
}

impl Cursor {
    /// Takes only samples with these numbers.
    pub(super) fn of(numbers: Range<u64>) -> Cursor {
        Cursor { next: numbers.start, end: Some(numbers.end), ..Cursor::default() }
    }

    /// Whether the store has renewed the ids of stacks and threads since the last call.
    pub(super) fn has_new_ids(&mut self, profile: &Profile) -> bool {
        std::mem::replace(&mut self.epoch, profile.epoch()) != profile.epoch()
    }

    /// Passes a slice of samples. Returns whether more are there.
    pub(super) fn advance(
        &mut self,
        profile: &Profile,
        kept: &mut dyn FnMut(&Sample) -> bool,
        mut each: impl FnMut(&Sample),
    ) -> bool {
        let end = self.end.unwrap_or(u64::MAX);
        let gone = profile.samples.first().min(end).saturating_sub(self.next);
        (self.missed, self.next) = (self.missed + gone, self.next + gone);
        let mut left = usize::try_from(end.saturating_sub(self.next)).unwrap_or(SLICE).min(SLICE);
        for slice in profile.samples.slices_from(self.next) {
            if left == 0 {
                break;
            }
            let part = slice.get(..left).unwrap_or(slice);
            for sample in part.iter().filter(|sample| kept(sample)) {
                each(sample);
                self.samples += 1;
            }
            left -= part.len();
            self.next += part.len() as u64;
        }
        profile.samples.end().min(end) > self.next
    }
}

/// Numbers of rows in the file, by their numbers in the store.
#[derive(Default)]
pub(super) struct Numbers {
    of: Vec<u32>,
    next: u32,
}

impl Numbers {
    pub(super) fn get(&self, index: usize) -> Option<u32> {
        self.of.get(index).copied().filter(|number| *number != NONE)
    }

    /// Gives a row the next number.
    pub(super) fn add(&mut self, index: usize) -> u32 {
        let number = self.next;
        self.next += 1;
        self.set(index, number);
        number
    }

    /// Gives a row this number.
    pub(super) fn set(&mut self, index: usize, number: u32) {
        if self.of.len() <= index {
            self.of.resize(index + 1, NONE);
        }
        if let Some(place) = self.of.get_mut(index) {
            *place = number;
        }
    }

    /// Forgets the numbers in the store. Rows in the file keep theirs.
    pub(super) fn forget(&mut self) {
        self.of.clear();
    }
}
