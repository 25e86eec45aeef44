//! The activity of threads, alone or beside a baseline.

use rustc_hash::FxHashMap;

use super::sides::Sides;
use crate::profile::Thread;
use crate::profile::Timestamp;
use crate::profile::ids::{Tgid, Tid};

/// The weights of a thread or process within the range, and its newest sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Weight within the range. Filters and target are not applied: for pickers.
    pub all: u64,
    /// Weight that the view shows.
    pub shown: u64,
    /// Weight shown whose user stack reached a root.
    pub complete: u64,
    /// Weight shown that has a user stack to complete.
    pub user: u64,
    /// Weight of the last three seconds. Target and filters are not applied.
    pub recent: u64,
    /// Weight that the baseline shows, if two sides are compared.
    pub before: u64,
    /// The time of the newest sample that was counted.
    pub last: Timestamp,
}

impl Activity {
    /// Adds another activity.
    pub fn add(&mut self, other: &Activity) {
        // The pattern names all fields, so a new field does not compile until it is added here.
        let Activity { all, shown, complete, user, recent, before, last } = other;
        self.all += all;
        self.shown += shown;
        self.complete += complete;
        self.user += user;
        self.recent += recent;
        self.before += before;
        self.last = self.last.max(*last);
    }

    /// Returns whether the view shows any of it, now or in the baseline.
    pub fn is_shown(&self) -> bool {
        self.shown > 0 || self.before > 0
    }

    /// Returns the weights on the two sides of a comparison, as a part of `whole`.
    pub fn sides(&self, whole: Sides) -> Sides {
        Sides::estimated(self.shown, self.before, whole)
    }
}

/// The activity of a thread within the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityRow {
    /// The thread.
    pub thread: Thread,
    /// What it did.
    pub weights: Activity,
}

/// Adds the activity of a baseline to the activity of now. Threads that only the baseline has come last.
pub(super) fn beside(mut now: Vec<ActivityRow>, before: &[ActivityRow]) -> Vec<ActivityRow> {
    let mut place: FxHashMap<(Tgid, Tid), usize> = FxHashMap::default();
    for (at, row) in now.iter().enumerate() {
        place.insert((row.thread.tgid, row.thread.tid), at);
    }
    for row in before.iter().filter(|row| row.weights.shown > 0) {
        let at = *place.entry((row.thread.tgid, row.thread.tid)).or_insert(now.len());
        if at == now.len() {
            now.push(ActivityRow { thread: row.thread, ..ActivityRow::default() });
        }
        now[at].weights.before += row.weights.shown;
    }
    now
}

impl Sides {
    /// Estimates how often a part of `whole` was seen, from its weights: only sums over stacks count observations.
    fn estimated(now: u64, before: u64, whole: Sides) -> Sides {
        let seen = |weight: u64, seen: u64, of: u64| match of {
            0 => 0,
            of => (u128::from(weight) * u128::from(seen) / u128::from(of)) as u64,
        };
        let (seen_now, seen_before) = (seen(now, whole.seen_now, whole.now), seen(before, whole.seen_before, whole.before));
        Sides { now, before, seen_now, seen_before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_both_sides_are_one_row_and_others_come_last() {
        let row = |tgid, tid, shown| ActivityRow {
            thread: Thread { tgid: Tgid(tgid), tid: Tid(tid), ..Thread::default() },
            weights: Activity { all: 9, shown, ..Activity::default() },
        };
        let rows = beside(vec![row(1, 1, 5), row(1, 2, 3)], &[row(1, 2, 4), row(2, 2, 6), row(1, 2, 1), row(3, 3, 0)]);
        let told: Vec<_> =
            rows.iter().map(|row| (row.thread.tgid.0, row.thread.tid.0, row.weights.shown, row.weights.before)).collect();
        assert_eq!(told, [(1, 1, 5, 0), (1, 2, 3, 5), (2, 2, 0, 6)]);
        assert_eq!(rows[2].weights.all, 0, "a picker does not have it");
    }

    #[test]
    fn observations_are_estimated_from_weights() {
        let whole = Sides { now: 1000, before: 0, seen_now: 10, seen_before: 0 };
        assert_eq!(Sides::estimated(300, 5, whole), Sides { now: 300, before: 5, seen_now: 3, seen_before: 0 });
    }
}
