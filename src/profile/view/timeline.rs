//! When something ran: a weight for each second, and for each fiftieth of it.

use std::collections::VecDeque;

use crate::profile::{Sample, Timestamp};

pub(super) const SECOND: u64 = 1_000_000_000;

/// Parts of a second that are told apart: 20 ms each, some two samples of a busy CPU at 99 Hz.
pub const SLOTS: usize = 50;

/// Seconds kept at most: twelve days.
const MOST_SECONDS: usize = 1 << 20;

/// Weight per second of what passes target and filters, whatever the range.
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
    pub seconds: Vec<[u64; SLOTS]>,
}

/// Seconds without a gap; 408 bytes each.
#[derive(Default)]
pub(super) struct Seconds {
    pub(super) first: u64,
    pub(super) seconds: VecDeque<Second>,
}

#[derive(Clone, Copy)]
pub(super) struct Second {
    pub(super) weight: u64,
    pub(super) slots: [u64; SLOTS],
}

const NOTHING: Second = Second { weight: 0, slots: [0; SLOTS] };

fn slot_of(sample: &Sample) -> usize {
    (sample.time.0 % SECOND / (SECOND / SLOTS as u64)) as usize
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
        second.weight = second.weight.wrapping_add(sample.weight);
        let slot = &mut second.slots[slot_of(sample)];
        *slot = slot.wrapping_add(sample.weight);
    }

    pub(super) fn take_back(&mut self, sample: &Sample) {
        let second = (sample.time.0 / SECOND).saturating_sub(self.first) as usize;
        if let Some(second) = self.seconds.get_mut(second) {
            second.weight = second.weight.wrapping_sub(sample.weight);
            let slot = &mut second.slots[slot_of(sample)];
            *slot = slot.wrapping_sub(sample.weight);
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
    pub(super) fn up_to(&self, now: Timestamp) -> impl Iterator<Item = &Second> {
        let seconds = usize::try_from((now.0 / SECOND + 1).saturating_sub(self.first)).unwrap_or(0);
        let idle = seconds.min(MOST_SECONDS).saturating_sub(self.seconds.len());
        self.seconds.iter().chain(std::iter::repeat_n(&NOTHING, idle))
    }
}
