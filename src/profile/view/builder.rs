//! Turns samples into the data of a view, and keeps it up to date sample by sample.
//!
//! A [`ViewBuilder`] answers one [`Query`]. Each [`ViewBuilder::update`] adds the new samples, and removes the samples that left the time
//! range or the store. So the cost of a live picture depends on the changes, not on the size of the store. The builder starts again when
//! the query changes, when the store was compacted (its ids changed), or when a label in the tree has got its real name.
//!
//! ```text
//!  store:   [first ........................................ end)
//!  counted:        [range_start ..... range_end)                 in tree and rows
//!  seen:    [first ............................... next)         in the timeline
//! ```

use super::addresses::Counter;
use crate::profile::Frame;
use crate::profile::Totals;
use crate::profile::Unit;
use crate::profile::view::addresses::note;
use crate::profile::view::fading::{Expected, Fading};
use crate::profile::view::timeline::SECOND;
use crate::profile::view::timeline::Seconds;
use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::idle::IdleThreads;
use super::query::{FilterMode, Query, TimeRange};
use super::search::LabelMatches;
use super::tree::{NodeId, TreeBuilder};
use crate::profile::ids::EventSource;
use crate::profile::ids::{FrameId, LabelId, ObjectId, StackId, ThreadIndex, Timestamp};
use crate::profile::names::labels::Label;
use crate::profile::names::objects::ObjectKind;
use crate::profile::names::table::Names;
use crate::profile::store::alike::Alike;
use crate::profile::store::capabilities::Capabilities;
use crate::profile::store::profile::Profile;
use crate::profile::store::samples::{Sample, UserEnd};

/// Span of time that "CPU %" covers.
pub(super) const RECENT: u64 = 3 * SECOND;
/// Bits that are taken from the factor of a fading range when its sums are full.
const MORE_ROOM: i32 = 8;
/// Most filters at once. Each needs one bit, and one bit says that the others are known.
pub const MAX_FILTERS: usize = 15;

/// Whether an update counted all samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All samples are counted.
    Done,
    /// More samples wait. Call again, after giving other threads a turn with the profile.
    More,
}

#[derive(Clone, Copy, Default)]
pub(super) struct ThreadSums {
    pub(super) all: u64,
    pub(super) shown: u64,
    pub(super) complete: u64,
    pub(super) user: u64,
    /// The time of the newest sample that was counted. Samples that leave the range are the oldest.
    pub(super) last: Timestamp,
}

/// Facts about a thread under the current query.
#[derive(Clone, Copy)]
pub(super) struct ThreadFacts {
    /// Whether the target has the thread, as far as the thread's own data tell.
    pub(super) passes: bool,
    pub(super) filter_bits: u16,
    pub(super) group: NodeId,
}

pub(super) const KNOWN: u16 = 1 << MAX_FILTERS;
pub(super) const COMPLETE_KNOWN: u8 = 2;
pub(super) const COMPLETE: u8 = 1;

/// Keeps the answer to one query up to date.
pub struct ViewBuilder {
    pub(super) names: Arc<Names>,
    pub(super) query: Query,
    pub(super) epoch: u64,
    pub(super) filters: Vec<LabelMatches>,
    pub(super) tree: TreeBuilder,
    /// Number of the next sample to see.
    pub(super) next: u64,
    /// Numbers of the samples that are counted: `range_start..range_end`.
    pub(super) range_start: u64,
    pub(super) range_end: u64,
    /// Number of the oldest sample in the timeline.
    pub(super) timeline_start: u64,
    pub(super) timeline: Seconds,
    /// The factors of a range that fades, and the bits of room that sums need beyond the estimate.
    pub(super) fading: Option<Fading>,
    pub(super) room: i32,
    pub(super) totals: Totals,
    /// Weight of incomplete stacks, by the number of their [`UserEnd`] and the object in which they ended.
    pub(super) short: FxHashMap<(u8, ObjectId), u64>,
    pub(super) sums: Vec<ThreadSums>,
    /// Weight in the range by CPU. Target and filters are not applied.
    pub(super) cpu_sums: Vec<u64>,
    pub(super) facts: Vec<Option<ThreadFacts>>,
    /// Chunks that the store may drop before their samples are removed here, with the number of their first sample.
    pub(super) held: VecDeque<(u64, Arc<[Sample]>)>,
    pub(super) node_of: FxHashMap<u64, NodeId>,
    /// Used without a grouping level: then the group is always the root, and a plain array is enough.
    pub(super) node_of_ungrouped: Vec<u32>,
    /// The number of frames of a folded recursion, by the stack that ends in it.
    pub(super) recursions: FxHashMap<StackId, u32>,
    pub(super) stack_filter_bits: Vec<u16>,
    pub(super) stack_complete: Vec<u8>,
    /// The counter of one function's addresses. If set, nothing else is counted.
    pub(super) addresses: Option<Counter>,
    /// If the query leaves out threads that are idle, and its samples are waits: which threads those are.
    pub(super) idle: Option<IdleThreads>,
    /// Frames whose names this view has used, a bit for each, and how far [`Names::renamed_since`] was read. If such a frame gets other
    /// names, for example because functions inlined into it are found, the view begins again.
    pub(super) frames: Vec<u64>,
    pub(super) renames: usize,
    /// Labels in the tree that may yet be replaced.
    pub(super) provisional: Vec<LabelId>,
    pub(super) scratch: Vec<LabelId>,
    pub(super) started: bool,
    /// Whether the last update counted all samples.
    pub(super) caught_up: bool,
    /// Whether to start again, to remove nodes without weight.
    pub(super) stale: bool,
    pub(super) changes: u64,
}

impl ViewBuilder {
    /// Returns a builder that has seen no sample.
    pub fn new(names: Arc<Names>, query: Query) -> ViewBuilder {
        // Read before any name is used, so that no renaming is missed.
        let renames = names.renamed();
        let filters = query.filters.iter().take(MAX_FILTERS).map(|filter| LabelMatches::new(filter.pattern.clone())).collect();
        ViewBuilder {
            names,
            query,
            epoch: 0,
            filters,
            tree: TreeBuilder::new(),
            next: 0,
            range_start: 0,
            range_end: 0,
            timeline_start: 0,
            timeline: Seconds::default(),
            fading: None,
            room: 0,
            totals: Totals::default(),
            short: FxHashMap::default(),
            sums: Vec::new(),
            cpu_sums: Vec::new(),
            facts: Vec::new(),
            held: VecDeque::new(),
            node_of: FxHashMap::default(),
            node_of_ungrouped: Vec::new(),
            recursions: FxHashMap::default(),
            stack_filter_bits: Vec::new(),
            stack_complete: Vec::new(),
            addresses: None,
            idle: None,
            frames: Vec::new(),
            renames,
            provisional: Vec::new(),
            scratch: Vec::new(),
            started: false,
            caught_up: false,
            stale: false,
            changes: 0,
        }
    }

    /// Returns the query that it answers.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Changes the query. Keeps the data that the new query can use.
    pub fn set_query(&mut self, query: Query) {
        if query != self.query {
            self.forget(query);
        }
    }

    /// Begins again without any sample.
    pub(super) fn forget(&mut self, query: Query) {
        let (changes, addresses) = (self.changes + 1, self.addresses.as_ref().map(|counter| counter.anew(&self.names)));
        *self = ViewBuilder { changes, addresses, ..ViewBuilder::new(Arc::clone(&self.names), query) };
    }

    /// Adds new samples, and removes samples that left the range or the store, as of `now`. Adds at most `budget` samples in a call.
    pub fn update(&mut self, profile: &Profile, now: Timestamp, budget: usize) -> Progress {
        if self.caught_up {
            self.stale |= self.a_frame_was_renamed();
        }
        if !self.started
            || self.epoch != profile.epoch()
            // Between two slices names may keep coming, so a pass that has begun is finished first.
            || self.caught_up && (self.stale || self.a_label_in_the_tree_was_renamed())
            || self.missed_what_the_store_let_go(profile)
            || self.fading.is_some_and(|fading| fading.is_used_up(now) || self.is_full())
        {
            let query = std::mem::take(&mut self.query);
            let idle = self.idle.take().filter(|_| self.epoch == profile.epoch());
            let room = if self.is_full() { self.room + MORE_ROOM } else { self.room };
            self.forget(query);
            self.room = room;
            self.started = true;
            self.epoch = profile.epoch();
            self.idle = self.leaves_out_idle(profile).then(|| idle.unwrap_or_default().anew());
            self.next = profile.samples.first();
            (self.range_start, self.range_end, self.timeline_start) = (self.next, self.next, self.next);
            // Begins with the first sample, not with the second in which the machine was switched on.
            self.timeline.begin(profile.samples.first_time().unwrap_or(now));
            self.fading = match self.query.range {
                TimeRange::Fading(half_life, until) => {
                    Some(Fading::new(half_life, until, now, self.expected(profile)).with_room(self.room))
                }
                TimeRange::All | TimeRange::Last(_) | TimeRange::Between(..) => None,
            };
        }
        self.take_back_what_the_store_let_go(profile);
        // Done before new samples are seen. So the counted samples stay one run of numbers, even if some samples came too late to count.
        self.take_back_what_left_the_range(profile, now);
        if let Some(alike) = self.counts_alike(profile) {
            self.see_all(profile, alike);
        }
        let mut seen = 0;
        'slices: for slice in profile.samples.slices_from(self.next) {
            for sample in slice {
                self.see(profile, sample, now);
                seen += 1;
                if seen == budget {
                    break 'slices;
                }
            }
        }
        self.hold_sealed_chunks(profile);
        self.caught_up = self.next >= profile.samples.end();
        // Where other threads are idle than before, all is counted once more.
        self.stale |= self.caught_up && self.judge_idle_threads(profile, now);
        if self.caught_up && !self.stale { Progress::Done } else { Progress::More }
    }

    /// Whether the query leaves out threads that are idle, and its samples may be waits.
    fn leaves_out_idle(&self, profile: &Profile) -> bool {
        let Capabilities { time, threads, .. } = profile.capabilities();
        let unit = profile.unit(self.query.source.unwrap_or(EventSource::CLOCK));
        self.query.without_idle && unit == Unit::Nanoseconds && time && threads
    }

    /// Finds out which threads are idle, if that is due. Returns whether the answer changed.
    fn judge_idle_threads(&mut self, profile: &Profile, now: Timestamp) -> bool {
        let Some(mut idle) = self.idle.take_if(|idle| idle.is_due(now)) else { return false };
        let (from, to) = self.range_cut(profile, now);
        let end = now.min(profile.samples.last_time().unwrap_or(now));
        let changed = idle.judge((Timestamp(from), end.min(Timestamp(to))), now, |thread| {
            let last = self.sums.get(thread.0 as usize).filter(|sums| sums.all > 0)?.last;
            self.thread_facts(profile, thread).filter(|facts| facts.passes).map(|_| last)
        });
        self.idle = Some(idle);
        changed
    }

    /// Whether sums that fade have no room for more.
    fn is_full(&self) -> bool {
        self.fading.is_some() && (Fading::is_full(self.totals.weight) || self.sums.iter().any(|sums| Fading::is_full(sums.all)))
    }

    /// Estimates the sums of all samples in the store from the newest thousand.
    fn expected(&self, profile: &Profile) -> Expected {
        let newest = profile.samples.end().saturating_sub(1024);
        let (mut count, mut sum) = (0u64, Expected::default());
        for sample in profile.samples.slices_from(newest).flatten().filter(|sample| self.is_of_source(sample)) {
            count += 1;
            sum.weight = sum.weight.saturating_add(sample.weight);
            sum.observations = sum.observations.saturating_add(u64::from(sample.observations));
        }
        let times = profile.samples.len() as u64 / count.max(1) + 1;
        Expected { weight: sum.weight.saturating_mul(times), observations: sum.observations.saturating_mul(times) }
    }

    /// Whether the next update begins again, because names have changed since the last update that counted all samples.
    pub(crate) fn has_old_names(&mut self) -> bool {
        // Remembered, because a renaming is reported only once.
        self.stale |= self.caught_up && self.a_frame_was_renamed();
        self.stale || self.a_label_in_the_tree_was_renamed()
    }

    pub(super) fn a_label_in_the_tree_was_renamed(&self) -> bool {
        self.provisional.iter().any(|label| self.names.labels.current(*label) != *label)
            || self.addresses.as_ref().is_some_and(|counter| counter.a_label_was_renamed(&self.names))
    }

    pub(super) fn a_frame_was_renamed(&mut self) -> bool {
        let mut found = false;
        let frames = &self.frames;
        let table = &self.names.frames;
        let asked = |frame| {
            let bit = table.index(frame).unwrap_or(usize::MAX);
            frames.get(bit / 64).is_some_and(|bits| bits >> (bit % 64) & 1 != 0)
        };
        self.renames = self.names.renamed_since(self.renames, |frame| found |= asked(frame));
        found
    }

    /// Whether the store dropped counted samples that are not held here: a whole chunk came and went between two updates.
    pub(super) fn missed_what_the_store_let_go(&self, profile: &Profile) -> bool {
        let held_to = self.held.back().map_or(self.timeline_start, |(first, chunk)| first + chunk.len() as u64);
        held_to < profile.samples.first().min(self.next)
    }

    pub(super) fn range_cut(&self, profile: &Profile, now: Timestamp) -> (u64, u64) {
        match self.query.range {
            // The store drops whole chunks. Samples older than the window are hidden even while their chunk still exists.
            TimeRange::All => (now.0.saturating_sub(profile.limits().window), u64::MAX),
            TimeRange::Last(span) => (now.0.saturating_sub(span), u64::MAX),
            TimeRange::Between(from, to) => (from.0, to.0),
            TimeRange::Fading(half_life, until) => Fading::range(half_life, until, now),
        }
    }

    /// Returns groups that can be counted in place of samples: all samples are to be counted, and none was.
    fn counts_alike<'p>(&self, profile: &'p Profile) -> Option<&'p Alike> {
        let is_first = self.next == profile.samples.first() && self.range_start == self.range_end && self.idle.is_none();
        let has_all = self.query.range == TimeRange::All && profile.limits().window == u64::MAX;
        if is_first && has_all && self.addresses.is_none() { profile.alike() } else { None }
    }

    /// Sees all samples of the store.
    fn see_all(&mut self, profile: &Profile, alike: &Alike) {
        let mut shown = Vec::with_capacity(alike.groups.len());
        for group in &alike.groups {
            let is_shown = self.is_of_source(group) && self.passes(profile, group);
            self.count(profile, group, is_shown, 1);
            shown.push(is_shown);
        }
        for (sample, group) in profile.samples.slices_from(self.next).flatten().zip(&alike.of) {
            if shown.get(*group as usize) == Some(&true) {
                self.timeline.add(sample, profile.covers(sample));
            }
        }
        self.next = profile.samples.end();
        self.range_end = self.next;
    }

    pub(super) fn see(&mut self, profile: &Profile, sample: &Sample, now: Timestamp) {
        let number = self.next;
        self.next += 1;
        let shown = self.is_of_source(sample) && self.passes(profile, sample);
        if shown {
            self.timeline.add(sample, profile.covers(sample));
        }
        let (from, to) = self.range_cut(profile, now);
        // The counted samples are one run of numbers: times are ordered.
        if sample.time.0 >= from && sample.time.0 < to {
            if self.range_start == self.range_end {
                self.range_start = number;
            }
            self.range_end = number + 1;
            self.count(profile, sample, shown, 1);
        }
    }

    /// Whether range, target and filters accept the sample; for a range that does not move.
    pub(crate) fn shows(&mut self, profile: &Profile, sample: &Sample) -> bool {
        let within = match self.query.range {
            TimeRange::All | TimeRange::Last(_) | TimeRange::Fading(..) => true,
            TimeRange::Between(from, to) => (from..to).contains(&sample.time),
        };
        within && self.is_of_source(sample) && self.passes(profile, sample)
    }

    /// Whether the sample is of the query's source. Samples of other sources count nowhere, not even in the sum of a process.
    pub(super) fn is_of_source(&self, sample: &Sample) -> bool {
        self.query.source.is_none_or(|source| source == sample.source)
    }

    /// Whether target and filters accept the sample.
    pub(super) fn passes(&mut self, profile: &Profile, sample: &Sample) -> bool {
        let Some(facts) = self.thread_facts(profile, sample.thread) else { return false };
        let target = &self.query.target;
        let is_idle = self.idle.as_ref().is_some_and(|idle| idle.has(sample.thread));
        if is_idle || !facts.passes || target.cpu.is_some_and(|cpu| cpu != sample.cpu) {
            return false;
        }
        if self.filters.is_empty() {
            return true;
        }
        let bits = self.filter_bits(profile, sample.stack) | facts.filter_bits;
        self.query.filters.iter().take(MAX_FILTERS).enumerate().all(|(index, filter)| {
            let matched = bits & 1 << index != 0;
            matched == (filter.mode == FilterMode::Keep)
        })
    }

    pub(super) fn thread_facts(&mut self, profile: &Profile, index: ThreadIndex) -> Option<ThreadFacts> {
        let slot = index.0 as usize;
        if let Some(Some(facts)) = self.facts.get(slot) {
            return Some(*facts);
        }
        let thread = profile.threads.get(index)?;
        let target = &self.query.target;
        let passes = (target.tgids.is_empty() || target.tgids.contains(&thread.tgid))
            && target.tid.is_none_or(|tid| tid == thread.tid)
            && target.cgroup.is_none_or(|cgroup| cgroup == thread.cgroup);
        let mut filter_bits = 0;
        for (bit, filter) in self.filters.iter_mut().enumerate() {
            if filter.matches(&self.names, thread.process) || filter.matches(&self.names, thread.name) {
                filter_bits |= 1 << bit;
            }
        }
        let group = self.group_of(thread);
        let facts = ThreadFacts { passes, filter_bits, group };
        if self.facts.len() <= slot {
            self.facts.resize(slot + 1, None);
        }
        self.facts[slot] = Some(facts);
        Some(facts)
    }

    pub(super) fn filter_bits(&mut self, profile: &Profile, stack: StackId) -> u16 {
        if self.stack_filter_bits.len() < profile.stacks.len() {
            self.stack_filter_bits.resize(profile.stacks.len(), 0);
        }
        // Walks up to the first caller whose bits are known, then down again.
        let mut unknown = Vec::new();
        let mut at = stack;
        let mut bits = loop {
            let known = self.stack_filter_bits.get(at.0 as usize).copied().unwrap_or(KNOWN);
            if known & KNOWN != 0 {
                break known;
            }
            let Some((parent, frame)) = profile.stacks.split(at) else { break KNOWN };
            unknown.push((at, frame));
            at = parent;
        };
        for (at, frame) in unknown.into_iter().rev() {
            note(&mut self.frames, self.names.frames.index(frame));
            let names = &self.names;
            for (bit, filter) in self.filters.iter_mut().enumerate() {
                names.labels_shown(frame, self.query.folding, |label| {
                    if filter.matches(names, label) {
                        bits |= 1 << bit;
                    }
                });
            }
            self.stack_filter_bits[at.0 as usize] = bits;
        }
        bits & !KNOWN
    }

    pub(super) fn count(&mut self, profile: &Profile, sample: &Sample, shown: bool, sign: i64) {
        self.changes += 1;
        if !self.is_of_source(sample) {
            return;
        }
        if let Some(idle) = &mut self.idle {
            idle.count(profile, &self.names, sample, sign > 0);
        }
        let (weight, observations) = match self.fading {
            None => (sample.weight, u64::from(sample.observations)),
            Some(fading) => (fading.weight(sample), fading.observations(sample)),
        };
        let (weight, observations) = (sign * weight.cast_signed(), sign * observations.cast_signed());
        if self.addresses.is_some() {
            if shown {
                self.count_addresses(profile, sample, weight);
            }
            return;
        }
        let add = |slot: &mut u64| *slot = slot.saturating_add_signed(weight);
        let slot = sample.thread.0 as usize;
        if self.sums.len() <= slot {
            self.sums.resize(slot + 1, ThreadSums::default());
        }
        add(&mut self.sums[slot].all);
        self.sums[slot].last = self.sums[slot].last.max(sample.time);
        add(slot_of(&mut self.cpu_sums, usize::from(sample.cpu.0)));
        if !shown {
            return;
        }
        let node = self.node_for(profile, sample);
        self.tree.add_weighed(node, weight, observations);
        let has_user_stack = sample.user_end.has_stack();
        // A walk by unwind tables knows whether it reached the root. For other stacks, the outermost function's name tells.
        let complete = match sample.user_end {
            UserEnd::Root => true,
            UserEnd::Cut | UserEnd::Time | UserEnd::Functions => false,
            _ => has_user_stack && self.is_complete(profile, sample.stack),
        };
        let sums = &mut self.sums[slot];
        add(&mut sums.shown);
        add(&mut self.totals.weight);
        add(&mut self.totals.ends[sample.user_end as usize]);
        if has_user_stack {
            add(&mut sums.user);
            add(&mut self.totals.user);
            if complete {
                add(&mut sums.complete);
                add(&mut self.totals.complete);
            } else {
                add(&mut self.totals.incomplete[sample.user_end as usize]);
                // Where functions of an interpreter are missing, the outermost frame says nothing about the reason.
                if sample.user_end != UserEnd::Functions {
                    self.count_short(profile, sample, weight);
                }
            }
        }
    }

    /// Counts an incomplete stack under the object in which it ended: the object of its outermost user frame.
    pub(super) fn count_short(&mut self, profile: &Profile, sample: &Sample, weight: i64) {
        let outermost = profile.stacks.frames(sample.stack).last();
        let object = outermost.and_then(|frame| self.names.frames.get(frame)).map(Frame::object);
        let Some(object) = object.filter(|object| *object != ObjectId::KERNEL) else { return };
        // JIT code of all processes counts as one object: readers do not distinguish it by process.
        let is_jit = self.names.objects.get(object).is_some_and(|object| object.kind == ObjectKind::Anonymous);
        let object = if is_jit { ObjectId::ANONYMOUS } else { object };
        let entry = self.short.entry((sample.user_end as u8, object)).or_default();
        *entry = entry.saturating_add_signed(weight);
        if *entry == 0 {
            self.short.remove(&(sample.user_end as u8, object));
        }
    }

    /// Whether threads or processes begin in the outermost function. The two outermost frames decide this, so all stacks with these two
    /// frames share the answer. The walk towards the root therefore ends at the first stack with a known answer. (Walking each stack to its
    /// root took half of the time of a view of a million stacks.)
    pub(super) fn is_complete(&mut self, profile: &Profile, stack: StackId) -> bool {
        if self.stack_complete.len() < profile.stacks.len() {
            self.stack_complete.resize(profile.stacks.len(), 0);
        }
        let mut new = Vec::new();
        let mut at = stack;
        let complete = loop {
            let known = self.stack_complete.get(at.0 as usize).copied().unwrap_or(COMPLETE_KNOWN);
            if known & COMPLETE_KNOWN != 0 {
                break known & COMPLETE != 0;
            }
            new.push(at);
            let Some((caller, frame)) = profile.stacks.split(at) else { break false };
            match profile.stacks.split(caller) {
                None => break self.begins_at_an_entry(frame, None),
                Some((StackId(0), root)) => break self.begins_at_an_entry(root, Some(frame)),
                Some(_) => at = caller,
            }
        };
        for at in new {
            self.stack_complete[at.0 as usize] = COMPLETE_KNOWN | u8::from(complete);
        }
        complete
    }

    /// Whether a stack with these outermost frames is complete. A stripped libc has no symbol for the caller of `main`: there, it is enough
    /// that libc calls `main`.
    pub(super) fn begins_at_an_entry(&self, root: FrameId, second: Option<FrameId>) -> bool {
        let label_of = |frame: FrameId| {
            let mut found = None;
            self.names.labels_of(frame, |label| found = found.or(self.names.labels.get(label)));
            found
        };
        let (root, second) = (label_of(root), second.and_then(label_of));
        root.is_some_and(Label::is_entry)
            || root.is_some_and(|label| label.object.starts_with("libc.so")) && second.is_some_and(|label| &*label.name == "main")
    }

    pub(super) fn hold_sealed_chunks(&mut self, profile: &Profile) {
        if !profile.capabilities().live {
            return;
        }
        let from = self.held.back().map_or(self.timeline_start, |(first, chunk)| first + chunk.len() as u64);
        for (first, chunk) in profile.samples.sealed_from(from) {
            if first < self.next {
                self.held.push_back((first, chunk));
            }
        }
    }

    pub(super) fn take_back_what_the_store_let_go(&mut self, profile: &Profile) {
        let first = profile.samples.first();
        while self.timeline_start < first {
            let Some((chunk_start, chunk)) = self.held.pop_front() else { break };
            for (number, sample) in (chunk_start..).zip(chunk.iter()) {
                if number >= self.next {
                    break;
                }
                let shown = self.passes(profile, sample);
                if shown {
                    self.timeline.take_back(sample, profile.covers(sample));
                }
                if (self.range_start..self.range_end).contains(&number) {
                    self.count(profile, sample, shown, -1);
                    self.range_start = number + 1;
                }
            }
            self.timeline_start = chunk_start + chunk.len() as u64;
        }
        // The store may also have dropped samples that were never seen here.
        self.timeline_start = self.timeline_start.max(first.min(self.next));
        self.next = self.next.max(first);
        if let Some(oldest) = profile.samples.first_time() {
            self.timeline.forget_before(oldest);
        }
    }

    pub(super) fn take_back_what_left_the_range(&mut self, profile: &Profile, now: Timestamp) {
        let (from, _) = self.range_cut(profile, now);
        while self.range_start < self.range_end {
            let Some(sample) = profile.samples.get(self.range_start).copied() else { break };
            if sample.time.0 >= from {
                break;
            }
            let shown = self.passes(profile, &sample);
            self.count(profile, &sample, shown, -1);
            self.range_start += 1;
        }
    }
}

fn slot_of(sums: &mut Vec<u64>, index: usize) -> &mut u64 {
    if sums.len() <= index {
        sums.resize(index + 1, 0);
    }
    &mut sums[index]
}

#[cfg(test)]
mod tests;
