//! Sums over what a view shows.

use crate::profile::UserEnd;

/// Sums over the samples that are shown, in weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All that is shown.
    pub weight: u64,
    /// Those whose user stack reached a root.
    pub complete: u64,
    /// Samples with a user stack: see [`UserEnd::has_stack`].
    pub user: u64,
    /// How the user stacks ended, by [`UserEnd`].
    pub ends: [u64; UserEnd::ALL.len()],
    /// The same of the user stacks that are not complete.
    pub incomplete: [u64; UserEnd::ALL.len()],
}

impl Totals {
    /// Why user stacks are not complete, and how many for each reason: the most frequent first.
    pub fn reasons(&self) -> Vec<(UserEnd, u64)> {
        let mut reasons: Vec<_> = UserEnd::ALL.into_iter().zip(self.incomplete).filter(|(_, weight)| *weight > 0).collect();
        reasons.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
        reasons
    }
}
