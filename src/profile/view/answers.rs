//! What a view tells: its tree, its sums, and what pickers list.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profile::{CgroupId, Cpu};

use super::{CallTree, Profile, RECENT, Thread, TimeRange, Timestamp, UserEnd, ViewBuilder};

/// What a thread did within the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityRow {
    /// Who.
    pub thread: Thread,
    /// Weight within the range, filters and target not applied: for pickers.
    pub all: u64,
    /// Weight that the view shows.
    pub shown: u64,
    /// Weight shown whose user stack reached a root.
    pub complete: u64,
    /// Weight shown that has a user stack to complete.
    pub user: u64,
    /// Weight of the last three seconds, target and filters not applied.
    pub recent: u64,
}

/// Sums over the samples that are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Samples shown.
    pub samples: u64,
    /// Those whose user stack reached a root.
    pub complete: u64,
    /// Those that have a user stack to complete and whose source tells why it ended.
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

/// Stacks that are not complete, of one reason and one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortStacks {
    /// Why they end.
    pub end: UserEnd,
    /// The path of the object that their outermost user frame is in.
    pub object: Arc<str>,
    /// How much they weigh.
    pub weight: u64,
}

impl ViewBuilder {
    /// The tree as it is now.
    pub fn tree(&mut self) -> CallTree {
        self.tree.snapshot()
    }

    /// The same in the memory of a tree that is not needed any more.
    pub fn tree_into(&mut self, tree: &mut CallTree) {
        self.tree.snapshot_into(tree);
    }

    /// Takes the finished tree out and leaves the sums; for a profile that will not grow. The next query starts again.
    pub fn take_tree(&mut self) -> CallTree {
        self.node_of = FxHashMap::default();
        self.node_of_ungrouped = Vec::new();
        self.stack_complete = Vec::new();
        self.stack_filter_bits = Vec::new();
        std::mem::take(&mut self.tree).finish()
    }

    /// Starts again at the next update if most of the tree weighs nothing any more: processes and threads that are gone leave
    /// their branches behind.
    pub fn tidy(&mut self, tree: &CallTree) {
        const WORTH_IT: usize = 1 << 16;
        let live = || tree.nodes().iter().filter(|node| node.total > 0).count();
        self.stale = tree.nodes().len() > WORTH_IT && tree.nodes().len() > 4 * live();
    }

    /// Changes whenever the tree or the sums did.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Number of the next sample to see.
    pub fn seen(&self) -> u64 {
        self.next
    }

    /// Sums over what is shown.
    pub fn totals(&self, now: Timestamp) -> Totals {
        let one = self.sample_of(now);
        let Totals { samples, complete, user, ends, incomplete } = self.totals;
        Totals {
            samples: samples / one,
            complete: complete / one,
            user: user / one,
            ends: ends.map(|end| end / one),
            incomplete: incomplete.map(|end| end / one),
        }
    }

    /// What each thread did, in the order they were first seen; only those that did anything in the range.
    pub fn activity(&self, profile: &Profile, now: Timestamp) -> Vec<ActivityRow> {
        let mut recent = vec![0u64; profile.threads.rows().len()];
        let mut number = profile.samples.end();
        // Of a picture that was frozen or a range that was selected, the last seconds are those before its end.
        let now = match self.query.range {
            TimeRange::Between(_, to) | TimeRange::Fading(_, to) => now.min(to),
            TimeRange::All | TimeRange::Last(_) => now,
        };
        let one = self.sample_of(now);
        while let Some(sample) = number.checked_sub(1).and_then(|number| profile.samples.get(number)) {
            if now.since(sample.time) > RECENT {
                break;
            }
            if sample.time <= now
                && let Some(slot) = recent.get_mut(sample.thread.0 as usize)
            {
                *slot += sample.weight;
            }
            number -= 1;
        }
        let rows = profile.threads.rows().iter().zip(&self.sums).zip(recent);
        rows.filter(|((_, sums), _)| sums.all >= one)
            .map(|((thread, sums), recent)| ActivityRow {
                thread: *thread,
                all: sums.all / one,
                shown: sums.shown / one,
                complete: sums.complete / one,
                user: sums.user / one,
                recent,
            })
            .collect()
    }

    /// What ran in each cgroup within the range, target and filters not applied: for the picker. The heaviest first.
    pub fn cgroups(&self, profile: &Profile, now: Timestamp) -> Vec<(CgroupId, u64)> {
        let one = self.sample_of(now);
        let sums = profile.cgroups.iter().copied().zip(self.cgroup_sums.iter().map(|weight| weight / one));
        let mut sums: Vec<_> = sums.filter(|(_, weight)| *weight > 0).collect();
        sums.sort_by_key(|(id, weight)| (std::cmp::Reverse(*weight), *id));
        sums
    }

    /// What ran on each CPU within the range, likewise, by number.
    pub fn cpus(&self, now: Timestamp) -> Vec<(Cpu, u64)> {
        let one = self.sample_of(now);
        (0..=u16::MAX).map(Cpu).zip(self.cpu_sums.iter().map(|weight| weight / one)).filter(|(_, weight)| *weight > 0).collect()
    }

    /// Where stacks that are not complete ended: why, in which object, and how many. The heaviest of each reason first.
    pub fn short_stacks(&self, now: Timestamp) -> Vec<ShortStacks> {
        let one = self.sample_of(now);
        let mut all: Vec<ShortStacks> = self
            .short
            .iter()
            .map(|((end, object), weight)| {
                let object = self.names.objects.get(*object).map(|object| object.path.clone()).unwrap_or_default();
                ShortStacks { end: UserEnd::from_wire(*end), object, weight: weight / one }
            })
            .collect();
        all.retain(|short| short.weight > 0);
        all.sort_by(|a, b| (a.end as u8, b.weight, &a.object).cmp(&(b.end as u8, a.weight, &b.object)));
        all
    }

    /// How far back [`ActivityRow::recent`] looks, in nanoseconds.
    pub const RECENT: u64 = RECENT;
}
