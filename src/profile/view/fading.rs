//! A picture in which the past fades: the weight of a sample halves with each half-life.
//!
//! Making all old samples lighter for each picture would change every node of a tree. Instead, new samples are added with more weight
//! ("forward decay", Cormode and others, 2009). A sample of time t is added with
//!
//! ```text
//! weight · 2^(first + (t − base) / half-life)
//! ```
//!
//! and a picture is divided by the factor of the picture's moment. The factor depends only on the sample's time, so a sample can be removed
//! exactly.
//!
//! Sums have 62 bits. `first` is chosen so that the present weights still fit when the base reaches its greatest age. It is 16 for samples
//! of the clock, and less than 0 for nanoseconds. Observations have a separate power, because their sums are smaller than those of weights.

use crate::profile::{Sample, Timestamp};

/// The value of a weight of 1 of this moment, in a picture of samples or events. It is large enough that a sample six half-lives old still
/// shows.
pub(in crate::profile) const ONE: u64 = 64;

/// Half-lives after which a sample is removed: by then it has a four-thousandth of its weight.
const AGES: u64 = 12;

/// The largest `first`. Weights are whole numbers, and the first weights must be exact enough.
const LARGEST_FIRST: i32 = 16;

/// Greatest age of a base, in half-lives. Then all samples are added anew from a new base. A new base is already [`AGES`] old, so this
/// happens every 12 half-lives.
const MOST: u64 = 24;

/// Bits of a sum. A word has two more: one for the sign of an addition, one as room for samples that come after `first` was chosen.
const BITS: i32 = 62;

/// From this size on, the factors of samples and of pictures are rounded to whole numbers. So a sample of now counts as one, not a little
/// less.
const LARGE: f64 = 65_536.0;

/// Expected sums of weights and of observations, which must fit.
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
    /// The moment when the factors are 2^`weights` and 2^`observations`. It lies before the machine's start if the machine started a moment
    /// ago.
    base: i64,
    weights: i32,
    observations: i32,
}

/// A factor of weights. Its form ensures that parts never become more than their sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rescale {
    DivideBy(u64),
    /// Multiplies by this number of 2^−32.
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

/// Returns the largest exponent of two that still fits as a factor of sums of about `sum`.
fn first(sum: u64) -> i32 {
    let bits = 64 - sum.leading_zeros();
    (BITS - MOST as i32 - bits.cast_signed()).min(LARGEST_FIRST)
}

impl Fading {
    pub(super) fn new(half_life: u64, until: Timestamp, now: Timestamp, expected: Expected) -> Fading {
        let base = now.min(until).0.cast_signed().saturating_sub_unsigned(half_life.saturating_mul(AGES));
        Fading { half_life, until, base, weights: first(expected.weight), observations: first(expected.observations) }
    }

    /// Lowers the factor of weights by this number of bits, so that sums can become 2^`bits` times as large.
    pub(super) fn with_room(self, bits: i32) -> Fading {
        Fading { weights: self.weights - bits, ..self }
    }

    /// Returns the range of times in which samples have weight: from its begin to before its end.
    pub(super) fn range(half_life: u64, until: Timestamp, now: Timestamp) -> (u64, u64) {
        (now.min(until).0.saturating_sub(half_life.saturating_mul(AGES)), until.0)
    }

    /// Returns the weight that a sample adds: its own weight times the factor.
    pub(super) fn weight(self, sample: &Sample) -> u64 {
        self.scaled(sample.weight, self.weights, sample.time)
    }

    /// Returns the observations that a sample adds: its own number times the factor.
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

    /// Returns the factor from sums of weights to a picture of this moment. In the picture, a weight of 1 of this moment counts as `one`.
    pub(super) fn weights_at(self, now: Timestamp, one: u64) -> Rescale {
        Rescale::by(one as f64 / self.factor(self.weights, now.min(self.until)))
    }

    /// Returns the factor from sums of observations to a picture of this moment. An observation of this moment counts as one.
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
