//! Summaries of a view: its tree, its sums, and the lists for pickers.

use crate::profile::Activity;
use crate::profile::ActivityRow;
use crate::profile::Addresses;
use crate::profile::CallTree;
use crate::profile::FrameWeight;
use crate::profile::HeatMap;
use crate::profile::LabelId;
use crate::profile::Names;
use crate::profile::Profile;
use crate::profile::Sample;
use crate::profile::TimeRange;
use crate::profile::Timeline;
use crate::profile::Timestamp;
use crate::profile::Totals;
use crate::profile::UserEnd;
use crate::profile::ViewBuilder;
use crate::profile::view::addresses::Counter;
use crate::profile::view::builder::RECENT;
use crate::profile::view::idle::IdleThreads;
use crate::profile::view::query::Query;
use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profile::{CgroupId, Cpu, NodeId, StackId, Tgid, UserId};

/// Facts of a process besides its weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its arguments joined by spaces; empty if they are not known.
    pub command: Arc<str>,
    /// Whether it has exited.
    pub exited: bool,
    /// Number of its threads that exist.
    pub threads: u32,
    /// Its user, if that is known.
    pub user: Option<UserId>,
    /// The function with the most self weight in the last three seconds, if [`Request::hottest`](crate::profile::Request::hottest) requests
    /// it.
    pub hottest: Option<LabelId>,
}

/// Incomplete stacks with the same reason and the same object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortStacks {
    /// The reason why they end.
    pub end: UserEnd,
    /// The path of the object that holds their outermost user frame.
    pub object: Arc<str>,
    /// Their weight.
    pub weight: u64,
}

impl ViewBuilder {
    /// Bytes held, without samples.
    pub(crate) fn memory(&self) -> usize {
        let of_stacks = self.node_of_ungrouped.capacity() * size_of::<u32>()
            + self.stack_filter_bits.capacity() * size_of::<u16>()
            + self.stack_complete.capacity()
            + self.node_of.capacity() * (size_of::<(u64, NodeId)>() + 1)
            + self.recursions.capacity() * size_of::<(StackId, u32)>();
        let of_threads = size_of_val(self.sums.as_slice()) + size_of_val(self.facts.as_slice());
        let of_idle = self.idle.as_ref().map_or(0, IdleThreads::memory);
        self.tree.memory() + of_stacks + of_threads + of_idle + self.frames.capacity() * size_of::<u64>()
    }

    /// Returns a copy of the current tree.
    pub fn tree(&mut self) -> CallTree {
        self.tree.snapshot()
    }

    /// Like [`ViewBuilder::tree`], but reuses the memory of a tree that is not needed any more.
    pub fn tree_into(&mut self, tree: &mut CallTree) {
        self.tree.snapshot_into(tree);
    }

    /// Takes the finished tree out and leaves the sums; for a profile that will not grow. The next query starts again.
    pub fn take_tree(&mut self) -> CallTree {
        self.node_of = FxHashMap::default();
        self.node_of_ungrouped = Vec::new();
        self.recursions = FxHashMap::default();
        self.stack_complete = Vec::new();
        self.stack_filter_bits = Vec::new();
        std::mem::take(&mut self.tree).finish()
    }

    /// Makes the next update start again if most of the tree weighs nothing any more. Processes and threads that are gone leave their
    /// branches behind.
    pub fn tidy(&mut self, tree: &CallTree) {
        const WORTH_IT: usize = 1 << 16;
        let live = || tree.nodes().iter().filter(|node| node.total > 0).count();
        self.stale = tree.nodes().len() > WORTH_IT && tree.nodes().len() > 4 * live();
    }

    /// Returns a number that changes whenever the tree or the sums change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of the next sample to see.
    pub fn seen(&self) -> u64 {
        self.next
    }

    /// Returns the sums over the samples that are shown.
    pub fn totals(&self, now: Timestamp) -> Totals {
        let amount = self.amounts(now);
        let Totals { weight, complete, user, ends, incomplete } = self.totals;
        Totals {
            weight: amount(weight),
            complete: amount(complete),
            user: amount(user),
            ends: ends.map(&amount),
            incomplete: incomplete.map(&amount),
        }
    }

    /// Returns the end of the range, or now if the range has not ended. The last seconds are the seconds before it.
    fn end_of_range(&self, now: Timestamp) -> Timestamp {
        match self.query.range {
            TimeRange::Between(_, to) | TimeRange::Fading(_, to) => now.min(to),
            TimeRange::All | TimeRange::Last(_) => now,
        }
    }

    /// Returns the samples of the last seconds, the newest first.
    fn recent<'a>(&self, profile: &'a Profile, now: Timestamp) -> impl Iterator<Item = &'a Sample> {
        let now = self.end_of_range(now);
        let numbers = (profile.samples.first()..profile.samples.end()).rev();
        let newest_first = numbers.filter_map(|number| profile.samples.get(number));
        newest_first.take_while(move |sample| now.since(sample.time) <= RECENT).filter(move |sample| sample.time <= now)
    }

    /// Returns the function with the most self weight of each process in the last seconds. Target and filters are not applied.
    pub fn hottest(&self, profile: &Profile, now: Timestamp) -> FxHashMap<Tgid, LabelId> {
        let mut weights: FxHashMap<(Tgid, LabelId), u64> = FxHashMap::default();
        for sample in self.recent(profile, now).filter(|sample| self.is_of_source(sample)) {
            let innermost = profile.stacks.frames(sample.stack).find_map(|frame| {
                let mut innermost = None;
                self.names.labels_shown(frame, self.query.folding, |label| innermost = Some(label));
                innermost
            });
            if let Some((label, thread)) = innermost.zip(profile.threads.get(sample.thread)) {
                *weights.entry((thread.tgid, label)).or_default() += sample.weight;
            }
        }
        // The name decides between functions of the same weight. Labels have other numbers in each run.
        let key = |(weight, label)| (weight, Reverse(self.names.labels.words(label)));
        let mut hottest: FxHashMap<Tgid, (u64, LabelId)> = FxHashMap::default();
        for ((tgid, label), weight) in weights {
            let most = hottest.entry(tgid).or_insert((weight, label));
            if key((weight, label)) > key(*most) {
                *most = (weight, label);
            }
        }
        hottest.into_iter().map(|(tgid, (_, label))| (tgid, label)).collect()
    }

    /// Returns the activity of each thread that did anything in the range. The threads that were seen first come first.
    pub fn activity(&self, profile: &Profile, now: Timestamp) -> Vec<ActivityRow> {
        let mut recent = vec![0u64; profile.threads.rows().len()];
        for sample in self.recent(profile, now) {
            if let Some(slot) = recent.get_mut(sample.thread.0 as usize) {
                *slot = slot.saturating_add(sample.weight);
            }
        }
        let amount = self.amounts(self.end_of_range(now));
        let rows = profile.threads.rows().iter().zip(&self.sums).zip(recent);
        rows.map(|((thread, sums), recent)| ActivityRow {
            thread: *thread,
            weights: Activity {
                all: amount(sums.all),
                shown: amount(sums.shown),
                complete: amount(sums.complete),
                user: amount(sums.user),
                recent,
                before: 0,
                last: sums.last,
            },
        })
        .filter(|row| row.weights.all > 0)
        .collect()
    }

    /// Returns the weight of each cgroup within the range, the heaviest first. Target and filters are not applied: the list is for the
    /// picker.
    pub fn cgroups(&self, profile: &Profile, now: Timestamp) -> Vec<(CgroupId, u64)> {
        let amount = self.amounts(now);
        let mut sums: FxHashMap<CgroupId, u64> = FxHashMap::default();
        for (thread, of_thread) in profile.threads.rows().iter().zip(&self.sums) {
            *sums.entry(thread.cgroup).or_default() += of_thread.all;
        }
        let mut sums: Vec<_> =
            sums.into_iter().map(|(id, weight)| (id, amount(weight))).filter(|(_, weight)| *weight > 0).collect();
        sums.sort_by_key(|(id, weight)| (Reverse(*weight), *id));
        sums
    }

    /// Returns the weight of each CPU within the range, by CPU number. Target and filters are not applied.
    pub fn cpus(&self, now: Timestamp) -> Vec<(Cpu, u64)> {
        let amount = self.amounts(now);
        (0..=u16::MAX)
            .map(Cpu)
            .zip(self.cpu_sums.iter().map(|weight| amount(*weight)))
            .filter(|(_, weight)| *weight > 0)
            .collect()
    }

    /// Returns where incomplete stacks ended: the reason, the object and the weight. For each reason, the heaviest come first.
    pub fn short_stacks(&self, now: Timestamp) -> Vec<ShortStacks> {
        let amount = self.amounts(now);
        let mut all: Vec<ShortStacks> = self
            .short
            .iter()
            .map(|((end, object), weight)| {
                let object = self.names.objects.get(*object).map(|object| object.path.clone()).unwrap_or_default();
                ShortStacks { end: UserEnd::from_wire(*end), object, weight: amount(*weight) }
            })
            .collect();
        all.retain(|short| short.weight > 0);
        all.sort_by(|a, b| (a.end as u8, b.weight, &a.object).cmp(&(b.end as u8, a.weight, &b.object)));
        all
    }

    /// Returns the number of threads that were left out because they only wait for work.
    pub fn idle_threads(&self) -> usize {
        self.idle.as_ref().map_or(0, |idle| idle.threads().len())
    }

    /// How far back [`Activity::recent`] looks, in nanoseconds.
    pub const RECENT: u64 = RECENT;
}

impl ViewBuilder {
    /// Returns a builder that counts the addresses of one function, and makes no tree.
    pub(in crate::profile) fn of_addresses(names: Arc<Names>, query: Query, label: LabelId) -> ViewBuilder {
        ViewBuilder { addresses: Some(Counter::new(&names, label)), ..ViewBuilder::new(names, query) }
    }

    pub(super) fn count_addresses(&mut self, profile: &Profile, sample: &Sample, weight: i64) {
        if let Some(counter) = &mut self.addresses {
            counter.count(profile, &self.names, &mut self.frames, self.query.folding, (sample.stack, weight));
        }
    }

    /// Returns the weights of the function's addresses. Where the past fades, a weight of 1 of now counts as `one`.
    pub(in crate::profile) fn addresses(&self, one: u64, now: Timestamp) -> Addresses {
        let Some(counter) = &self.addresses else { return Addresses::default() };
        let rescale = self.fading.map(|fading| fading.weights_at(now, one));
        let scaled = |weight| rescale.map_or(weight, |rescale| rescale.of(weight));
        let weights = counter.weights.iter().map(|(frame, (own, total))| FrameWeight {
            frame: *frame,
            own: scaled(*own),
            total: scaled(*total),
        });
        let mut frames: Vec<FrameWeight> = weights.filter(|weight| weight.total > 0).collect();
        frames.sort_unstable_by_key(|weight| (Reverse(weight.rank()), weight.frame));
        let users_differ = self.names.users_differ(frames.iter().map(|weight| weight.frame));
        Addresses { label: counter.label, own: scaled(counter.own), total: scaled(counter.total), frames, users_differ }
    }
}

impl ViewBuilder {
    /// Converts sums to weights as of this moment.
    pub(super) fn amounts(&self, now: Timestamp) -> impl Fn(u64) -> u64 {
        let rescale = self.fading.map(|fading| fading.weights_at(now, 1));
        move |sum| rescale.map_or(sum, |rescale| rescale.of(sum))
    }

    /// Whether each moment has another picture, even if nothing happens.
    pub(in crate::profile) fn fades(&self) -> bool {
        self.fading.is_some()
    }

    /// Brings the weights of a tree that fades to this moment. A weight of 1 of this moment then counts as `one`.
    pub(in crate::profile) fn fade(&self, tree: &mut CallTree, one: u64, now: Timestamp) {
        if let Some(fading) = self.fading {
            let (weights, observations) = (fading.weights_at(now, one), fading.observations_at(now));
            tree.rescale(|weight| weights.of(weight), |seen| observations.of(seen));
        }
    }
}

impl ViewBuilder {
    /// Returns the weight per second, up to the second of `now`.
    pub fn timeline(&self, now: Timestamp) -> Timeline {
        let weights = self.timeline.up_to(now).map(|second| second.weight).collect();
        Timeline { first_second: self.timeline.first, weights }
    }

    /// Returns the weight per fiftieth of a second, up to the second of `now`.
    pub fn heat(&self, now: Timestamp) -> HeatMap {
        HeatMap { first_second: self.timeline.first, seconds: self.timeline.up_to(now).map(|second| second.slots).collect() }
    }
}
