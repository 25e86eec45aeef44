//! A picture in which the past fades: the weight of a sample halves with each half-life.
//!
//! To make the old lighter with each picture, all of a tree would have to be touched. So the new comes in heavier instead ("forward decay",
//! Cormode and others, 2009): a sample of time t is added with
//!
//! ```text
//! weight · 2^(first + (t − base) / half-life)
//! ```
//!
//! and a picture is divided by what a weight of 1 is added with at its own moment. The factor follows from the sample's time alone, so a
//! sample is taken back exactly.
//!
//! Sums have 62 bits. `first` is chosen so that the weights that are there fit in when the base is as old as it gets: 16 for samples of the
//! clock, less than 0 for nanoseconds. Observations have a power of their own, because they are fewer than what they weigh.

use crate::profile::{Sample, Timestamp};

/// What a weight of 1 of this moment weighs in a picture of samples or events: so that one of six half-lives ago is still there.
pub(in crate::profile) const ONE: u64 = 64;

/// Half-lives after which a sample is taken back: it weighs a four-thousandth.
const AGES: u64 = 12;

/// The largest `first`: weights are whole numbers, and the first are to be exact enough.
const LARGEST_FIRST: i32 = 16;

/// Half-lives from the base after which all is added anew from a new base. Half of the time passes without it.
const MOST: u64 = 24;

/// Bits of a sum. One is for the sign of what is added, one for samples that come after `first` was chosen.
const BITS: i32 = 62;

/// From this on the factors of samples and of pictures are whole numbers: so one sample of now is one, not a little less.
const LARGE: f64 = 65_536.0;

/// Sums of weights and observations that are to fit in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Expected {
    pub(super) weight: u64,
    pub(super) observations: u64,
}

/// How samples lose weight.
#[derive(Clone, Copy)]
pub(super) struct Fading {
    pub(super) half_life: u64,
    pub(super) until: Timestamp,
    /// When the factors are 2^`weights` and 2^`observations`; before the machine's start, if that was a moment ago.
    base: i64,
    weights: i32,
    observations: i32,
}

/// A factor of weights, so that parts never become more than their sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rescale {
    DivideBy(u64),
    /// In 2^−32.
    MultiplyBy(u64),
}

impl Rescale {
    fn by(factor: f64) -> Rescale {
        let divisor = 1.0 / factor;
        if divisor < LARGE { Rescale::MultiplyBy((factor * 2f64.powi(32)) as u64) } else { Rescale::DivideBy(divisor as u64) }
    }

    pub(super) fn of(self, weight: u64) -> u64 {
        match self {
            Rescale::DivideBy(by) => weight / by,
            Rescale::MultiplyBy(by) => u64::try_from((u128::from(weight) * u128::from(by)) >> 32).unwrap_or(u64::MAX),
        }
    }
}

/// The largest power of two with which sums of about `sum` fit in.
fn first(sum: u64) -> i32 {
    let bits = 64 - sum.leading_zeros();
    (BITS - MOST as i32 - bits.cast_signed()).min(LARGEST_FIRST)
}

impl Fading {
    pub(super) fn new(half_life: u64, until: Timestamp, now: Timestamp, expected: Expected) -> Fading {
        let base = now.min(until).0.cast_signed().saturating_sub_unsigned(half_life.saturating_mul(AGES));
        Fading { half_life, until, base, weights: first(expected.weight), observations: first(expected.observations) }
    }

    /// Leaves room for so many times more.
    pub(super) fn with_room(self, bits: i32) -> Fading {
        Fading { weights: self.weights - bits, ..self }
    }

    /// From when to before when samples weigh anything.
    pub(super) fn range(half_life: u64, until: Timestamp, now: Timestamp) -> (u64, u64) {
        (now.min(until).0.saturating_sub(half_life.saturating_mul(AGES)), until.0)
    }

    /// The weight that a sample is counted with.
    pub(super) fn weight(self, sample: &Sample) -> u64 {
        self.scaled(sample.weight, self.weights, sample.time)
    }

    /// The number of observations that a sample is counted with.
    pub(super) fn observations(self, sample: &Sample) -> u64 {
        self.scaled(u64::from(sample.observations), self.observations, sample.time)
    }

    fn scaled(self, number: u64, first: i32, time: Timestamp) -> u64 {
        let factor = self.factor(first, time);
        let scaled = if factor < LARGE { (number as f64 * factor) as u64 } else { number.saturating_mul(factor as u64) };
        scaled.min(i64::MAX as u64)
    }

    fn factor(self, first: i32, time: Timestamp) -> f64 {
        let age = i128::from(time.0) - i128::from(self.base);
        (f64::from(first) + age.max(0) as f64 / self.half_life.max(1) as f64).exp2()
    }

    /// Brings sums of weights to a picture of this moment, in which a weight of 1 of that moment weighs `one`.
    pub(super) fn weights_at(self, now: Timestamp, one: u64) -> Rescale {
        Rescale::by(one as f64 / self.factor(self.weights, now.min(self.until)))
    }

    /// The same for observations; one of that moment is one.
    pub(super) fn observations_at(self, now: Timestamp) -> Rescale {
        Rescale::by(1.0 / self.factor(self.observations, now.min(self.until)))
    }

    /// Whether the base is too old.
    pub(super) fn is_used_up(self, now: Timestamp) -> bool {
        let age = i128::from(now.min(self.until).0) - i128::from(self.base);
        age > i128::from(self.half_life) * i128::from(MOST)
    }

    /// Whether a sum has no room for more.
    pub(super) fn is_full(sum: u64) -> bool {
        sum >> (BITS - 1) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn samples_of_the_clock_keep_sixteen_bits_and_nanoseconds_fit_in() {
        assert_eq!(first(100_000), 16);
        assert_eq!(first(1 << 49), -12);
        // Ten minutes of a thousand threads that wait, a second at a time.
        let expected = Expected { weight: 600_000 * SECOND, observations: 600_000 };
        let start = 5_000 * SECOND;
        let fading = Fading::new(60 * SECOND, Timestamp(u64::MAX), Timestamp(start), expected);
        let mut sum = 0u64;
        for second in 0..600 {
            let sample = Sample { time: Timestamp(start + second * SECOND), weight: SECOND, ..Sample::default() };
            sum = sum.checked_add(fading.weight(&sample).checked_mul(1000).unwrap()).unwrap();
        }
        assert!(!Fading::is_full(sum));
        let now = Timestamp(start + 599 * SECOND);
        let seen = fading.weights_at(now, 1).of(sum) as f64 / SECOND as f64;
        let exact: f64 = (0..600).map(|age| 1000.0 * 0.5f64.powf(f64::from(age) / 60.0)).sum();
        assert!((seen - exact).abs() < exact / 1000.0, "{seen} instead of {exact}");
    }

    #[test]
    fn parts_are_never_more_than_their_sum() {
        for by in [Rescale::by(5.7), Rescale::by(1.0), Rescale::by(1.0 / 81_920.3)] {
            for (a, b) in [(1, 2), (1 << 50, (1 << 53) + 1), (99_999, 77_777), (0, 1)] {
                assert!(by.of(a) + by.of(b) <= by.of(a + b), "{by:?} of {a} and {b}");
            }
        }
        assert_eq!(Rescale::by(1.0).of(7), 7);
    }
}
