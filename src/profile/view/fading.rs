//! A picture in which the past fades: what a sample weighs halves with each half-life.
//!
//! Nothing in a tree can be made a little lighter with each picture without touching all of it. So instead of the old becoming
//! lighter, the new comes in heavier ("forward decay", Cormode and others, 2009): a sample of time t is added with 2^(16 + (t − base) /
//! half-life), and a picture is divided by what a sample of its own moment would weigh. What a sample was added with follows from
//! its time alone, so it is taken back exactly.

use crate::profile::{CallTree, Sample, Timestamp};

use super::ViewBuilder;

/// What a sample of this moment weighs in a picture: so that one of six half-lives ago is still there.
pub(in crate::profile) const UNIT: u64 = 64;

/// Half-lives after which a sample is taken back: it weighs a four-thousandth.
const AGES: u64 = 12;

/// What a sample of the base is added with, as a power of two: weights are whole numbers, and the first are to be exact enough.
const FIRST: f64 = 16.0;

/// Half-lives from the base after which all is added anew from a new base: 2^(16 + 24) leaves room for eight million samples in a
/// sum of 63 bits, and half of the time passes without it.
const MOST: u64 = 24;

/// How samples lose weight.
#[derive(Clone, Copy)]
pub(super) struct Fading {
    half_life: u64,
    until: Timestamp,
    base: u64,
}

impl Fading {
    pub(super) fn new(half_life: u64, until: Timestamp, now: Timestamp) -> Fading {
        Fading { half_life, until, base: Fading::range(half_life, until, now).0 }
    }

    /// From when to before when samples weigh anything.
    pub(super) fn range(half_life: u64, until: Timestamp, now: Timestamp) -> (u64, u64) {
        (now.min(until).0.saturating_sub(half_life.saturating_mul(AGES)), until.0)
    }

    /// What a sample is counted with.
    pub(super) fn weight(self, sample: &Sample) -> u64 {
        sample.weight.saturating_mul(self.factor(sample.time)).min(i64::MAX as u64)
    }

    fn factor(self, time: Timestamp) -> u64 {
        (FIRST + time.0.saturating_sub(self.base) as f64 / self.half_life.max(1) as f64).exp2() as u64
    }

    pub(super) fn is_used_up(self, now: Timestamp) -> bool {
        now.min(self.until).0.saturating_sub(self.base) > self.half_life.saturating_mul(MOST)
    }
}

impl ViewBuilder {
    /// By what sums are to be divided to be in samples of this moment.
    pub(super) fn sample_of(&self, now: Timestamp) -> u64 {
        self.fading.map_or(1, |fading| fading.factor(now.min(fading.until)).max(1))
    }

    /// Whether each moment has another picture, even if nothing happens.
    pub(in crate::profile) fn fades(&self) -> bool {
        self.fading.is_some()
    }

    /// Brings the weights of a tree that fades down to `unit` for a sample of this moment.
    pub(in crate::profile) fn fade(&self, tree: &mut CallTree, unit: u64, now: Timestamp) {
        if self.fading.is_some() {
            tree.divide((self.sample_of(now) / unit).max(1));
        }
    }
}
