//! Weights on the two sides of a comparison.

/// A weight on each of the two sides, and how often the stacks behind it were seen there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sides {
    /// Weight in the current view.
    pub now: u64,
    /// Weight in the baseline.
    pub before: u64,
    /// Observations in the current view.
    pub seen_now: u64,
    /// Observations in the baseline.
    pub seen_before: u64,
}

impl Sides {
    /// Returns weights that equal their numbers of observations.
    pub fn of(now: u64, before: u64) -> Sides {
        Sides { now, before, seen_now: now, seen_before: before }
    }

    /// Combines two values: takes the `now` fields of each, and puts the second's in the `before` fields.
    pub fn beside(now: Sides, before: Sides) -> Sides {
        Sides { before: before.now, seen_before: before.seen_now, ..now }
    }

    /// Subtracts a part.
    pub fn less(self, part: Sides) -> Sides {
        Sides {
            now: self.now.saturating_sub(part.now),
            before: self.before.saturating_sub(part.before),
            seen_now: self.seen_now.saturating_sub(part.seen_now),
            seen_before: self.seen_before.saturating_sub(part.seen_before),
        }
    }

    /// Adds another value.
    pub fn plus(self, other: Sides) -> Sides {
        Sides {
            now: self.now + other.now,
            before: self.before + other.before,
            seen_now: self.seen_now + other.seen_now,
            seen_before: self.seen_before + other.seen_before,
        }
    }
}
