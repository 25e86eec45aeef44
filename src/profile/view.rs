//! From samples to what a view shows, kept up to date sample by sample.
//!
//! A [`ViewBuilder`] answers one [`Query`]. Each [`ViewBuilder::update`] adds the samples that came since the last one and
//! takes back those that left the time range or the store, so a live picture costs what changed, not what is stored.
//! It starts again when the query changes, when the store was compacted (its ids changed), or when a label that is in the
//! tree has got its real name.
//!
//! ```text
//!  store:   [first ........................................ end)
//!  counted:        [range_start ..... range_end)                 in tree and rows
//!  seen:    [first ............................... next)         in the timeline
//! ```

mod addresses;
mod answers;
mod fading;
mod nodes;
mod timeline;

use std::collections::VecDeque;
use std::sync::Arc;

use fading::Fading;

use rustc_hash::FxHashMap;

use super::frame::Names;
use super::ids::{FrameId, LabelId, ObjectId, StackId, ThreadIndex, Timestamp};
use super::labels::Label;
use super::objects::ObjectKind;
use super::query::{FilterMode, Query, TimeRange};
use super::samples::{Profile, Sample, UserEnd};
use super::search::LabelMatches;
use super::threads::Thread;
use super::tree::{CallTree, NodeId, TreeBuilder};

pub use addresses::{Addresses, FrameWeight};
pub use answers::{ActivityRow, ShortStacks, Totals};
pub(super) use fading::UNIT as FADING_UNIT;
pub use timeline::{HeatMap, SLOTS, Timeline};

const SECOND: u64 = 1_000_000_000;
/// How far back "CPU %" looks.
const RECENT: u64 = 3 * SECOND;
/// Most filters at once: one bit each, and one to say that the bits are known.
pub const MAX_FILTERS: usize = 15;

/// Whether an update took in everything there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All samples are counted.
    Done,
    /// More samples wait; call again, after giving others a turn with the profile.
    More,
}

#[derive(Clone, Copy, Default)]
struct ThreadSums {
    all: u64,
    shown: u64,
    complete: u64,
    user: u64,
}

/// What is known about a thread under the current query.
#[derive(Clone, Copy)]
struct ThreadFacts {
    passes: bool,
    filter_bits: u16,
    group: NodeId,
}

const KNOWN: u16 = 1 << MAX_FILTERS;
const COMPLETE_KNOWN: u8 = 2;
const COMPLETE: u8 = 1;

/// Keeps the answer to one query up to date.
pub struct ViewBuilder {
    names: Arc<Names>,
    query: Query,
    epoch: u64,
    filters: Vec<LabelMatches>,
    tree: TreeBuilder,
    /// Number of the next sample to see.
    next: u64,
    /// Numbers of the samples that are counted: `range_start..range_end`.
    range_start: u64,
    range_end: u64,
    /// Number of the oldest sample in the timeline.
    timeline_start: u64,
    timeline: timeline::Seconds,
    /// How samples lose weight, in a range that fades.
    fading: Option<Fading>,
    totals: Totals,
    /// What stacks that are not complete weigh, by the number of their [`UserEnd`] and the object that they ended in.
    short: FxHashMap<(u8, ObjectId), u64>,
    sums: Vec<ThreadSums>,
    /// Weight in the range by cgroup and by CPU, target and filters not applied.
    cgroup_sums: Vec<u64>,
    cpu_sums: Vec<u64>,
    facts: Vec<Option<ThreadFacts>>,
    /// Chunks that the store may let go before they are taken back here, with the number of their first sample.
    held: VecDeque<(u64, Arc<[Sample]>)>,
    node_of: FxHashMap<u64, NodeId>,
    /// Without a grouping level the group is always the root, and a plain array serves.
    node_of_ungrouped: Vec<u32>,
    stack_filter_bits: Vec<u16>,
    stack_complete: Vec<u8>,
    /// Where samples of one function are, if that is all that is wanted.
    addresses: Option<addresses::Counter>,
    /// Frames whose names were asked for, a bit each, and how far [`Names::renamed_since`] was read: if one of them has got
    /// other names, as when what was inlined into it is found, all begins again.
    frames: Vec<u64>,
    renames: usize,
    /// Labels in the tree that may yet be replaced.
    provisional: Vec<LabelId>,
    scratch: Vec<LabelId>,
    started: bool,
    /// Whether the last update took in everything there was.
    caught_up: bool,
    /// Whether to start again, to get rid of what weighs nothing any more.
    stale: bool,
    changes: u64,
}

impl ViewBuilder {
    /// A builder that has seen nothing.
    pub fn new(names: Arc<Names>, query: Query) -> ViewBuilder {
        // Before any name is asked for: so none is missed.
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
            timeline: timeline::Seconds::default(),
            fading: None,
            totals: Totals::default(),
            short: FxHashMap::default(),
            sums: Vec::new(),
            cgroup_sums: Vec::new(),
            cpu_sums: Vec::new(),
            facts: Vec::new(),
            held: VecDeque::new(),
            node_of: FxHashMap::default(),
            node_of_ungrouped: Vec::new(),
            stack_filter_bits: Vec::new(),
            stack_complete: Vec::new(),
            addresses: None,
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

    /// The query that is answered.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Changes the query; what can be kept is kept.
    pub fn set_query(&mut self, query: Query) {
        if query != self.query {
            self.forget(query);
        }
    }

    /// Begins again with nothing seen.
    fn forget(&mut self, query: Query) {
        let (changes, addresses) = (self.changes + 1, self.addresses.as_ref().map(|counter| counter.anew(&self.names)));
        *self = ViewBuilder { changes, addresses, ..ViewBuilder::new(Arc::clone(&self.names), query) };
    }

    /// Takes in what came since the last call and takes back what left, as of `now`; at most `budget` samples at a time.
    pub fn update(&mut self, profile: &Profile, now: Timestamp, budget: usize) -> Progress {
        if self.caught_up {
            self.stale |= self.a_frame_was_renamed();
        }
        if !self.started
            || self.epoch != profile.epoch()
            // Between two slices names may come without end: what began is finished first.
            || self.caught_up && (self.stale || self.a_label_in_the_tree_was_renamed())
            || self.missed_what_the_store_let_go(profile)
            || self.fading.is_some_and(|fading| fading.is_used_up(now))
        {
            let query = std::mem::take(&mut self.query);
            self.forget(query);
            self.started = true;
            self.epoch = profile.epoch();
            self.next = profile.samples.first();
            (self.range_start, self.range_end, self.timeline_start) = (self.next, self.next, self.next);
            // Before the first sample: not with the second in which the machine was switched on.
            self.timeline.begin(profile.samples.first_time().unwrap_or(now));
            self.fading = match self.query.range {
                TimeRange::Fading(half_life, until) => Some(Fading::new(half_life, until, now)),
                TimeRange::All | TimeRange::Last(_) | TimeRange::Between(..) => None,
            };
        }
        self.take_back_what_the_store_let_go(profile);
        // Before new samples are seen: so the counted ones stay one run of numbers, even when some came too late to count.
        self.take_back_what_left_the_range(profile, now);
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
        if self.caught_up { Progress::Done } else { Progress::More }
    }

    /// Whether the next update begins again because of names that have changed since the last one took in everything.
    pub(super) fn has_old_names(&mut self) -> bool {
        // Noted down, because it is told only once.
        self.stale |= self.caught_up && self.a_frame_was_renamed();
        self.stale || self.a_label_in_the_tree_was_renamed()
    }

    fn a_label_in_the_tree_was_renamed(&self) -> bool {
        self.provisional.iter().any(|label| self.names.labels.current(*label) != *label)
            || self.addresses.as_ref().is_some_and(|counter| counter.a_label_was_renamed(&self.names))
    }

    fn a_frame_was_renamed(&mut self) -> bool {
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

    /// Whether counted samples are gone that are not held here: a whole chunk came and went between two updates.
    fn missed_what_the_store_let_go(&self, profile: &Profile) -> bool {
        let held_to = self.held.back().map_or(self.timeline_start, |(first, chunk)| first + chunk.len() as u64);
        held_to < profile.samples.first().min(self.next)
    }

    fn range_cut(&self, profile: &Profile, now: Timestamp) -> (u64, u64) {
        match self.query.range {
            // The store lets go of whole chunks; what is older than the window is not shown even while its chunk is there.
            TimeRange::All => (now.0.saturating_sub(profile.limits().window), u64::MAX),
            TimeRange::Last(span) => (now.0.saturating_sub(span), u64::MAX),
            TimeRange::Between(from, to) => (from.0, to.0),
            TimeRange::Fading(half_life, until) => Fading::range(half_life, until, now),
        }
    }

    fn see(&mut self, profile: &Profile, sample: &Sample, now: Timestamp) {
        let number = self.next;
        self.next += 1;
        let shown = self.is_of_source(sample) && self.passes(profile, sample);
        if shown {
            self.timeline.add(sample);
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

    /// Whether range, target and filters let the sample through; for a range that does not move.
    pub(super) fn shows(&mut self, profile: &Profile, sample: &Sample) -> bool {
        let within = match self.query.range {
            TimeRange::All | TimeRange::Last(_) | TimeRange::Fading(..) => true,
            TimeRange::Between(from, to) => (from..to).contains(&sample.time),
        };
        within && self.is_of_source(sample) && self.passes(profile, sample)
    }

    /// Samples of other sources count nowhere, not even among all that a process did.
    fn is_of_source(&self, sample: &Sample) -> bool {
        self.query.source.is_none_or(|source| source == sample.source)
    }

    /// Whether target and filters let the sample through.
    fn passes(&mut self, profile: &Profile, sample: &Sample) -> bool {
        let Some(facts) = self.thread_facts(profile, sample.thread) else { return false };
        let target = &self.query.target;
        if !facts.passes
            || target.cpu.is_some_and(|cpu| cpu != sample.cpu)
            || target.cgroup.is_some_and(|wanted| profile.cgroups.get(sample.cgroup as usize) != Some(&wanted))
        {
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

    fn thread_facts(&mut self, profile: &Profile, index: ThreadIndex) -> Option<ThreadFacts> {
        let slot = index.0 as usize;
        if let Some(Some(facts)) = self.facts.get(slot) {
            return Some(*facts);
        }
        let thread = profile.threads.get(index)?;
        let target = &self.query.target;
        let passes =
            (target.tgids.is_empty() || target.tgids.contains(&thread.tgid)) && target.tid.is_none_or(|tid| tid == thread.tid);
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

    fn filter_bits(&mut self, profile: &Profile, stack: StackId) -> u16 {
        if self.stack_filter_bits.len() < profile.stacks.len() {
            self.stack_filter_bits.resize(profile.stacks.len(), 0);
        }
        // Up to the first caller whose bits are known, then down again.
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
                names.labels_shown(frame, self.query.fold_inlined, |label| {
                    if filter.matches(names, label) {
                        bits |= 1 << bit;
                    }
                });
            }
            self.stack_filter_bits[at.0 as usize] = bits;
        }
        bits & !KNOWN
    }

    fn count(&mut self, profile: &Profile, sample: &Sample, shown: bool, sign: i64) {
        self.changes += 1;
        if !self.is_of_source(sample) {
            return;
        }
        let weight = sign * self.fading.map_or(sample.weight, |fading| fading.weight(sample)).cast_signed();
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
        add(slot_of(&mut self.cgroup_sums, sample.cgroup as usize));
        add(slot_of(&mut self.cpu_sums, usize::from(sample.cpu.0)));
        if !shown {
            return;
        }
        let node = self.node_for(profile, sample);
        self.tree.add(node, weight);
        let has_user_stack = !matches!(sample.user_end, UserEnd::KernelThread | UserEnd::Unspecified);
        // A walk by tables knows; else the outermost function's name tells.
        let complete = match sample.user_end {
            UserEnd::Root => true,
            UserEnd::Cut | UserEnd::Time => false,
            _ => has_user_stack && self.is_complete(profile, sample.stack),
        };
        let sums = &mut self.sums[slot];
        add(&mut sums.shown);
        add(&mut self.totals.samples);
        add(&mut self.totals.ends[sample.user_end as usize]);
        if has_user_stack {
            add(&mut sums.user);
            add(&mut self.totals.user);
            if complete {
                add(&mut sums.complete);
                add(&mut self.totals.complete);
            } else {
                add(&mut self.totals.incomplete[sample.user_end as usize]);
                self.count_short(profile, sample, weight);
            }
        }
    }

    /// Counts a stack that is not complete under the object that it ended in: that of its outermost user frame.
    fn count_short(&mut self, profile: &Profile, sample: &Sample, weight: i64) {
        let outermost = profile.stacks.frames(sample.stack).last();
        let object = outermost.and_then(|frame| self.names.frames.get(frame)).map(|frame| frame.object);
        let Some(object) = object.filter(|object| *object != ObjectId::KERNEL) else { return };
        // To the reader JIT code is one thing, whosever it is.
        let is_jit = self.names.objects.get(object).is_some_and(|object| object.kind == ObjectKind::Anonymous);
        let object = if is_jit { ObjectId::ANONYMOUS } else { object };
        let entry = self.short.entry((sample.user_end as u8, object)).or_default();
        *entry = entry.saturating_add_signed(weight);
        if *entry == 0 {
            self.short.remove(&(sample.user_end as u8, object));
        }
    }

    /// Whether the outermost function is one in which threads or processes begin. That is decided by the two outermost
    /// frames, so all stacks above those two have the answer in common: it is looked for only as far down as it is not known.
    /// (Walking each stack to its root was half of the time in which a view of a million stacks is made.)
    fn is_complete(&mut self, profile: &Profile, stack: StackId) -> bool {
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

    /// glibc's caller of `main` has no symbol in a stripped libc: there, `main` called from libc will do.
    fn begins_at_an_entry(&self, root: FrameId, second: Option<FrameId>) -> bool {
        let label_of = |frame: FrameId| {
            let mut found = None;
            self.names.labels_of(frame, |label| found = found.or(self.names.labels.get(label)));
            found
        };
        let (root, second) = (label_of(root), second.and_then(label_of));
        root.is_some_and(Label::is_entry)
            || root.is_some_and(|label| label.object.starts_with("libc.so")) && second.is_some_and(|label| &*label.name == "main")
    }

    fn hold_sealed_chunks(&mut self, profile: &Profile) {
        if profile.limits() == super::Limits::NONE {
            return;
        }
        let from = self.held.back().map_or(self.timeline_start, |(first, chunk)| first + chunk.len() as u64);
        for (first, chunk) in profile.samples.sealed_from(from) {
            if first < self.next {
                self.held.push_back((first, chunk));
            }
        }
    }

    fn take_back_what_the_store_let_go(&mut self, profile: &Profile) {
        let first = profile.samples.first();
        while self.timeline_start < first {
            let Some((chunk_start, chunk)) = self.held.pop_front() else { break };
            for (number, sample) in (chunk_start..).zip(chunk.iter()) {
                if number >= self.next {
                    break;
                }
                let shown = self.passes(profile, sample);
                if shown {
                    self.timeline.take_back(sample);
                }
                if (self.range_start..self.range_end).contains(&number) {
                    self.count(profile, sample, shown, -1);
                    self.range_start = number + 1;
                }
            }
            self.timeline_start = chunk_start + chunk.len() as u64;
        }
        // Samples that were never seen may be gone as well.
        self.timeline_start = self.timeline_start.max(first.min(self.next));
        self.next = self.next.max(first);
        if let Some(oldest) = profile.samples.first_time() {
            self.timeline.forget_before(oldest);
        }
    }

    fn take_back_what_left_the_range(&mut self, profile: &Profile, now: Timestamp) {
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

/// Notes that the names of the frame at this place of its table were asked for.
fn note(frames: &mut Vec<u64>, index: Option<usize>) {
    let Some(index) = index else { return };
    if frames.len() <= index / 64 {
        frames.resize(index / 64 + 1, 0);
    }
    frames[index / 64] |= 1 << (index % 64);
}

fn slot_of(sums: &mut Vec<u64>, index: usize) -> &mut u64 {
    if sums.len() <= index {
        sums.resize(index + 1, 0);
    }
    &mut sums[index]
}

#[cfg(test)]
mod tests;
