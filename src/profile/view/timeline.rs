//! When something ran: a weight for each second, and for each fiftieth of it.

use std::collections::VecDeque;

use crate::profile::{Sample, Timestamp};

use super::{SECOND, ViewBuilder};

/// Parts of a second that are told apart: 20 ms each, some two samples of a busy CPU at 99 Hz.
pub const SLOTS: usize = 50;

/// Seconds kept at most: twelve days.
const MOST_SECONDS: usize = 1 << 20;

/// CPU use per second of what passes target and filters, whatever the range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Second of `CLOCK_MONOTONIC` at which `weights` begins.
    pub first_second: u64,
    /// Weight in each second.
    pub weights: Vec<u64>,
}

/// The same for each fiftieth of a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatMap {
    /// Second of `CLOCK_MONOTONIC` at which `seconds` begins.
    pub first_second: u64,
    /// Weight in each part of each second.
    pub seconds: Vec<[u32; SLOTS]>,
}

/// Seconds without a gap; 208 bytes each.
#[derive(Default)]
pub(super) struct Seconds {
    first: u64,
    seconds: VecDeque<Second>,
}

#[derive(Clone, Copy)]
struct Second {
    weight: u64,
    slots: [u32; SLOTS],
}

const NOTHING: Second = Second { weight: 0, slots: [0; SLOTS] };

fn slot_of(sample: &Sample) -> usize {
    (sample.time.0 % SECOND / (SECOND / SLOTS as u64)) as usize
}

/// A count of a file may be larger than what one clock can tick in 20 ms.
fn small(weight: u64) -> u32 {
    u32::try_from(weight).unwrap_or(u32::MAX)
}

impl Seconds {
    /// Begins with the second of this moment.
    pub(super) fn begin(&mut self, at: Timestamp) {
        self.first = at.0 / SECOND;
    }

    pub(super) fn add(&mut self, sample: &Sample) {
        let second = (sample.time.0 / SECOND).saturating_sub(self.first);
        let second = usize::try_from(second).unwrap_or(usize::MAX).min(MOST_SECONDS);
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, NOTHING);
        }
        let second = &mut self.seconds[second];
        second.weight += sample.weight;
        let slot = &mut second.slots[slot_of(sample)];
        *slot = slot.saturating_add(small(sample.weight));
    }

    pub(super) fn take_back(&mut self, sample: &Sample) {
        let second = (sample.time.0 / SECOND).saturating_sub(self.first) as usize;
        if let Some(second) = self.seconds.get_mut(second) {
            second.weight = second.weight.saturating_sub(sample.weight);
            let slot = &mut second.slots[slot_of(sample)];
            *slot = slot.saturating_sub(small(sample.weight));
        }
    }

    /// Leaves out what lies before the second of this moment; begins with it as long as nothing was added.
    pub(super) fn forget_before(&mut self, oldest: Timestamp) {
        let oldest = oldest.0 / SECOND;
        while self.first < oldest && self.seconds.len() > 1 {
            self.seconds.pop_front();
            self.first += 1;
        }
        if self.seconds.is_empty() {
            self.first = oldest;
        }
    }

    /// The seconds up to that of `now`: what is idle has seconds without weight.
    fn up_to(&self, now: Timestamp) -> impl Iterator<Item = &Second> {
        let seconds = usize::try_from((now.0 / SECOND + 1).saturating_sub(self.first)).unwrap_or(0);
        let idle = seconds.min(MOST_SECONDS).saturating_sub(self.seconds.len());
        self.seconds.iter().chain(std::iter::repeat_n(&NOTHING, idle))
    }
}

impl ViewBuilder {
    /// CPU use per second, up to the second of `now`.
    pub fn timeline(&self, now: Timestamp) -> Timeline {
        let weights = self.timeline.up_to(now).map(|second| second.weight).collect();
        Timeline { first_second: self.timeline.first, weights }
    }

    /// The same for each fiftieth of a second.
    pub fn heat(&self, now: Timestamp) -> HeatMap {
        HeatMap { first_second: self.timeline.first, seconds: self.timeline.up_to(now).map(|second| second.slots).collect() }
    }
}
