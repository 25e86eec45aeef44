//! The weight of each second, and of each fiftieth of a second.

use std::collections::VecDeque;

use crate::profile::{Sample, Timestamp};

pub(super) const SECOND: u64 = 1_000_000_000;

/// Slots of a second: 20 ms each. A busy CPU at 99 Hz has about two samples in a slot.
pub const SLOTS: usize = 50;

/// The value of a weight of 1 in a [`HeatMap`]. A sample of the clock covers the time since the sample before it. Its weight is divided
/// among the slots in that time. Without this, a slot of 20 ms has two samples or one, and a constant load seems to pause.
pub const PARTS: u64 = 1000;

/// Nanoseconds of a slot.
const SLOT: u64 = SECOND / SLOTS as u64;

/// Seconds kept at most: twelve days.
const MOST_SECONDS: usize = 1 << 20;

/// Weight per second of the samples that pass target and filters, whatever the range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The first second of `weights`, by `CLOCK_MONOTONIC`.
    pub first_second: u64,
    /// Weight in each second.
    pub weights: Vec<u64>,
}

/// Weight per fiftieth of a second of the samples that pass target and filters, whatever the range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatMap {
    /// The first second of `seconds`, by `CLOCK_MONOTONIC`.
    pub first_second: u64,
    /// Weight in each slot of each second, in [`PARTS`].
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

/// Divides the weight of a sample among the slots of its period. Yields the number of each slot, counted from the start of the clock, and
/// its part.
fn parts_of(sample: &Sample, period: u64) -> impl Iterator<Item = (u64, u64)> {
    let to = sample.time.0;
    let from = to.saturating_sub(period);
    let weight = u128::from(sample.weight) * u128::from(PARTS);
    // Nearly all products fit into 64 bits, where a division takes a tenth of the time.
    let small = u64::try_from(weight).ok().filter(|weight| weight.checked_mul(to - from).is_some());
    // The weight before a moment. If there is no period, all weight is at the end.
    let before = move |at: u64| match (to - from, small) {
        (0, _) if at > to => weight,
        (0, _) => 0,
        (length, Some(weight)) => u128::from(weight * (at.clamp(from, to) - from) / length),
        (length, None) => weight * u128::from(at.clamp(from, to) - from) / u128::from(length),
    };
    let last = if from == to { to } else { to - 1 };
    (from / SLOT..=last / SLOT).map(move |slot| {
        let part = before((slot + 1) * SLOT) - before(slot * SLOT);
        (slot, u64::try_from(part).unwrap_or(u64::MAX))
    })
}

impl Seconds {
    /// Begins with the second of this moment.
    pub(super) fn begin(&mut self, at: Timestamp) {
        self.first = at.0 / SECOND;
    }

    /// Adds a sample that covers the `period` before it.
    pub(super) fn add(&mut self, sample: &Sample, period: u64) {
        let second = (sample.time.0 / SECOND).saturating_sub(self.first);
        let second = usize::try_from(second).unwrap_or(usize::MAX).min(MOST_SECONDS);
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, NOTHING);
        }
        let second = &mut self.seconds[second];
        second.weight = second.weight.wrapping_add(sample.weight);
        self.share_out(sample, period, u64::wrapping_add);
    }

    pub(super) fn take_back(&mut self, sample: &Sample, period: u64) {
        let second = (sample.time.0 / SECOND).saturating_sub(self.first) as usize;
        if let Some(second) = self.seconds.get_mut(second) {
            second.weight = second.weight.wrapping_sub(sample.weight);
        }
        self.share_out(sample, period, u64::wrapping_sub);
    }

    /// Changes each slot of a sample's period by its part. Ignores time before the first second.
    fn share_out(&mut self, sample: &Sample, period: u64, change: impl Fn(u64, u64) -> u64) {
        let mut change = |slot: u64, part: u64| {
            let second = (slot / SLOTS as u64).checked_sub(self.first).and_then(|second| self.seconds.get_mut(second as usize));
            if let Some(weight) = second.and_then(|second| second.slots.get_mut((slot % SLOTS as u64) as usize)) {
                *weight = change(*weight, part);
            }
        };
        // At a high frequency, most samples cover a part of one slot only.
        let (from, last) = (sample.time.0.saturating_sub(period), sample.time.0.saturating_sub(u64::from(period > 0)));
        match sample.weight.checked_mul(PARTS) {
            Some(all) if from / SLOT == last / SLOT => change(from / SLOT, all),
            _ => parts_of(sample, period).for_each(|(slot, part)| change(slot, part)),
        }
    }

    /// Drops the seconds before the second of this moment. If nothing was added yet, the timeline begins with that second.
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

    /// Returns the seconds up to that of `now`. Seconds without samples have weight 0.
    pub(super) fn up_to(&self, now: Timestamp) -> impl Iterator<Item = &Second> {
        let seconds = usize::try_from((now.0 / SECOND + 1).saturating_sub(self.first)).unwrap_or(0);
        let idle = seconds.min(MOST_SECONDS).saturating_sub(self.seconds.len());
        self.seconds.iter().chain(std::iter::repeat_n(&NOTHING, idle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: u64) -> Sample {
        Sample { time: Timestamp(time), ..Sample::default() }
    }

    #[test]
    fn a_constant_load_is_the_same_in_each_part_of_a_second() {
        for frequency in [1, 7, 49, 99, 997] {
            let period = SECOND / frequency;
            let mut seconds = Seconds::default();
            seconds.begin(Timestamp(0));
            let samples: Vec<Sample> = (1..=10 * frequency).map(|number| sample(number * period)).collect();
            samples.iter().for_each(|sample| seconds.add(sample, period));
            // In each of them a fiftieth of the samples of a second.
            let (wanted, most) = (frequency * PARTS / SLOTS as u64, 1 + frequency / SLOTS as u64);
            for slot in seconds.seconds.iter().take(9).flat_map(|second| second.slots) {
                assert!(slot.abs_diff(wanted) <= most, "{slot} instead of {wanted} at {frequency} Hz");
            }
            samples.iter().for_each(|sample| seconds.take_back(sample, period));
            assert!(seconds.seconds.iter().all(|second| second.slots == [0; SLOTS] && second.weight == 0));
        }
    }

    #[test]
    fn nothing_of_a_sample_gets_lost_and_an_event_is_in_one_place() {
        let parts = |time, period| parts_of(&sample(time), period).collect::<Vec<_>>();
        assert_eq!(parts(3 * SLOT + 1, 0), [(3, PARTS)]);
        assert_eq!(parts(3 * SLOT, 0), [(3, PARTS)]);
        assert_eq!(parts(3 * SLOT, SLOT), [(2, PARTS)]);
        assert_eq!(parts(3 * SLOT + SLOT / 4, SLOT), [(2, 750), (3, 250)]);
        for (time, period) in [(SECOND + 7, SECOND / 99), (12_345_678_901, SECOND / 3), (5, SECOND)] {
            assert_eq!(parts(time, period).iter().map(|(_, part)| part).sum::<u64>(), PARTS, "{time} {period}");
            // A weight whose product with the period needs 128 bits.
            let heavy = Sample { weight: 1 << 40, ..sample(time) };
            assert_eq!(parts_of(&heavy, period).map(|(_, part)| part).sum::<u64>(), PARTS << 40, "{time} {period}");
        }
    }
}
