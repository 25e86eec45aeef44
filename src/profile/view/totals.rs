//! Sums over what a view shows.

use crate::profile::UserEnd;

/// Sums over the samples that are shown, in weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Weight of all samples that are shown.
    pub weight: u64,
    /// Weight of the samples whose user stack reached a root.
    pub complete: u64,
    /// Weight of the samples with a user stack: see [`UserEnd::has_stack`].
    pub user: u64,
    /// Weight by [`UserEnd`]: how the user stacks ended.
    pub ends: [u64; UserEnd::ALL.len()],
    /// Weight of the incomplete user stacks, by [`UserEnd`].
    pub incomplete: [u64; UserEnd::ALL.len()],
}

impl Totals {
    /// Returns the reasons why user stacks are incomplete, with the weight of each: the most frequent first.
    pub fn reasons(&self) -> Vec<(UserEnd, u64)> {
        let mut reasons: Vec<_> = UserEnd::ALL.into_iter().zip(self.incomplete).filter(|(_, weight)| *weight > 0).collect();
        reasons.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
        reasons
    }
}
