//! Answers requests of the screen: one at a time, on a separate thread, never on the drawing thread.
//!
//! The profile is shared with the collector behind a lock. The engine reads it in slices, so the collector never waits for a whole rebuild.
//! The engine returns [`Snapshot`]s, which need no lock at all.

use crate::profile::ActivityRow;
use crate::profile::Addresses;
use crate::profile::Mark;
use crate::profile::ProcessFacts;
use crate::profile::Unit;
use crate::profile::store::renewal::Renewal;
use crate::profile::view::fading;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use rustc_hash::FxHashMap;

use super::activity;
use super::baseline::{OtherNames, excerpt};
use super::builder::{Progress, ViewBuilder};
use super::difference::{Difference, Measure};
use super::functions::{FunctionOrder, FunctionTable, Neighbours};
use super::query::{Direction, Grouping, Query, Request, TimeRange};
use super::search::Searcher;
use super::snapshot::{Baseline, Snapshot};
use super::steady::Steady;
use super::timeline::Timeline;
use super::tree::CallTree;
use crate::locks;
use crate::profile::ids::EventSource;
use crate::profile::ids::{LabelId, Tgid, Timestamp};
use crate::profile::names::table::Names;
use crate::profile::store::held::Held;
use crate::profile::store::processes::Processes;
use crate::profile::store::profile::{Losses, Profile};
use crate::profile::store::samples::SLICE;

/// Number of answers between two prunings of empty tree nodes: about ten seconds.
const TIDY_EVERY: u64 = 50;

/// Nanoseconds after which the facts of processes are refreshed while they are not on screen.
const DESCRIBED_FOR: u64 = 1_000_000_000;
/// Most slices of samples in which addresses are counted for one answer: a million samples. Memory holds at most ten million. The next
/// answer continues.
const MOST_SLICES: usize = 64;

struct Answer {
    builder: ViewBuilder,
    tree: Arc<CallTree>,
    /// The tree before `tree`. When the next tree is made, the screen has usually dropped this one, and its memory is reused. While the
    /// engine holds it, the drawing thread never frees a large tree.
    before: Arc<CallTree>,
    /// [`ViewBuilder::changes`] when `tree` was made.
    made_at: Option<u64>,
    answers: u64,
}

impl Answer {
    fn new(names: &Arc<Names>, query: Query) -> Answer {
        Answer {
            builder: ViewBuilder::new(Arc::clone(names), query),
            tree: Arc::default(),
            before: Arc::default(),
            made_at: None,
            answers: 0,
        }
    }

    /// Bytes of both trees and of the builder.
    fn memory(&self) -> usize {
        self.builder.memory() + self.tree.memory() + self.before.memory()
    }

    /// Brings the tree up to date, and returns whether it changed. Where the past fades, a weight of 1 at time `now` counts as `one`.
    fn update(&mut self, query: &Query, one: u64, profile: &RwLock<Profile>, now: Timestamp) -> bool {
        if self.builder.query() != query {
            self.builder.set_query(query.clone());
            self.made_at = None;
        }
        let fixed = loop {
            let profile = read(profile);
            let fixed = !profile.capabilities().live && !self.builder.fades();
            let same = profile.samples.end() == self.builder.seen() && !self.builder.has_old_names();
            let done = fixed && self.made_at.is_some() && same;
            if done || self.builder.update(&profile, now, SLICE) == Progress::Done {
                break fixed;
            }
        };
        if self.made_at == Some(self.builder.changes()) && !self.builder.fades() {
            return false;
        }
        self.made_at = Some(self.builder.changes());
        let next = if fixed {
            Arc::new(self.builder.take_tree())
        } else {
            let mut next = std::mem::take(&mut self.before);
            match Arc::get_mut(&mut next) {
                Some(unused) => {
                    self.builder.tree_into(unused);
                    self.builder.fade(unused, one, now);
                }
                None => {
                    let mut tree = self.builder.tree();
                    self.builder.fade(&mut tree, one, now);
                    next = Arc::new(tree);
                }
            }
            next
        };
        self.before = std::mem::replace(&mut self.tree, next);
        self.answers += 1;
        if !fixed && self.answers.is_multiple_of(TIDY_EVERY) {
            self.builder.tidy(&self.tree);
        }
        if fixed {
            self.before = Arc::default();
        }
        true
    }
}

/// The trees of one profile.
struct Trees {
    names: Arc<Names>,
    profile: Arc<RwLock<Profile>>,
    shown: Answer,
    /// A tree from callers to callees, kept while the table of functions is requested beside a bottom-up tree.
    upright: Option<Answer>,
    /// Where the past fades: what a weight of 1 at the time of the answer counts in both trees.
    one: u64,
}

impl Trees {
    fn new(names: &Arc<Names>, profile: Arc<RwLock<Profile>>) -> Trees {
        Trees { names: Arc::clone(names), profile, shown: Answer::new(names, Query::default()), upright: None, one: 1 }
    }

    /// Bytes of all trees.
    fn memory(&self) -> usize {
        self.shown.memory() + self.upright.as_ref().map_or(0, Answer::memory)
    }

    /// Brings the tree that is shown up to date, and returns whether it changed.
    fn update(&mut self, query: &Query, one: u64, now: Timestamp) -> bool {
        self.one = one;
        self.shown.update(query, one, &self.profile, now)
    }

    /// Returns the tree from callers to callees, and whether it changed. `shown_changed` is the result of [`Trees::update`].
    fn upright(&mut self, query: &Query, now: Timestamp, shown_changed: bool) -> (Arc<CallTree>, bool) {
        if query.direction == Direction::TopDown {
            self.upright = None;
            return (Arc::clone(&self.shown.tree), shown_changed);
        }
        let query = Query { direction: Direction::TopDown, ..query.clone() };
        let upright = self.upright.get_or_insert_with(|| Answer::new(&self.names, query.clone()));
        let changed = upright.update(&query, self.one, &self.profile, now);
        (Arc::clone(&upright.tree), changed)
    }
}

/// The baseline of a comparison: its mark, and its trees. There are no trees if it was too large.
struct Other {
    mark: Mark,
    trees: Option<Trees>,
    /// The weight of its samples. Of a file with several kinds of samples, that of the first kind.
    weight: (u64, Unit),
    /// Nanoseconds that the baseline covers, if known.
    time: Option<u64>,
}

/// Turns requests into snapshots.
pub struct Engine {
    names: Arc<Names>,
    processes: Arc<Processes>,
    trees: Trees,
    baseline: Option<Other>,
    /// The tree of both sides.
    difference: Option<(Arc<CallTree>, Arc<Difference>)>,
    /// The previous difference, held so that the drawing thread never frees its memory.
    difference_before: Option<(Arc<CallTree>, Arc<Difference>)>,
    functions: Option<(FunctionOrder, Arc<FunctionTable>)>,
    /// The query of the table of functions, and the order of its rows, which changes slowly.
    steady: (Option<(FunctionOrder, Query, bool)>, Steady<LabelId>),
    neighbours: Option<(LabelId, Arc<Neighbours>)>,
    located: Option<Located>,
    searcher: Option<Searcher>,
    described: Option<Described>,
}

/// Facts of processes, with the request and the time that they belong to.
struct Described {
    request: Request,
    at: Timestamp,
    facts: Arc<FxHashMap<Tgid, ProcessFacts>>,
}

/// The weights of one function's addresses.
struct Located {
    label: LabelId,
    builder: ViewBuilder,
    /// The last answer, and the value of [`ViewBuilder::changes`] then.
    told: Option<(u64, Arc<Addresses>)>,
}

/// Properties of the tree that is shown, computed for one answer.
#[derive(Clone, Copy)]
struct Shown {
    changed: bool,
    compared: bool,
}

/// Returns the nanoseconds of a range in which samples were taken; `None` if samples have no time.
///
/// Where the past fades, a second counts for as much as its samples do.
fn covered(profile: &Profile, range: TimeRange, now: Timestamp) -> Option<u64> {
    let (begin, end) = profile.sampled(now)?;
    let between = |from: u64, to: u64| to.min(end.0).saturating_sub(from.max(begin.0));
    Some(match range {
        TimeRange::All => between(0, u64::MAX),
        TimeRange::Last(span) => between(now.0.saturating_sub(span), u64::MAX),
        TimeRange::Between(from, to) => between(from.0, to.0),
        TimeRange::Fading(half_life, to) => {
            // The integral of 2^(-t / half-life) over the remaining time.
            let to = to.min(now);
            let weight = |time: Timestamp| (-(to.since(time) as f64) / half_life.max(1) as f64).exp2();
            let whole = half_life as f64 / std::f64::consts::LN_2;
            (whole * (weight(end.min(to)) - weight(begin.min(to)))) as u64
        }
    })
}

/// Returns how two sides are compared: by rates if the time of both is known and their weights have the same unit.
fn measure(profile: &Profile, request: &Request, (mark, before): (&Mark, Option<u64>), now: Timestamp) -> Measure {
    const LEAST: u64 = 1_000_000;
    let source = request.query.source;
    let time =
        covered(profile, request.query.range, now).zip(before).filter(|_| !request.by_shares && mark.query.source == source);
    let Some((now, before)) = time else { return Measure::Shares };
    let seconds = |time: u64| time.max(LEAST) as f64 / 1e9;
    let clock = profile.clock().filter(|_| source.unwrap_or(EventSource::CLOCK) == EventSource::CLOCK);
    let cpus = |all: u32| if request.query.target.cpu.is_some() { 1 } else { all };
    let most = clock.map(|clock| f64::from(cpus(clock.cpus)) * 1e9 / clock.period.max(1) as f64);
    Measure::Rates { now: seconds(now), before: seconds(before), most }
}

fn read(profile: &RwLock<Profile>) -> RwLockReadGuard<'_, Profile> {
    locks::read(profile)
}

impl Engine {
    /// Returns an engine for a profile that other threads fill.
    pub fn new(names: Arc<Names>, processes: Arc<Processes>, profile: Arc<RwLock<Profile>>) -> Engine {
        let trees = Trees::new(&names, profile);
        Engine {
            names,
            processes,
            trees,
            baseline: None,
            difference: None,
            difference_before: None,
            functions: None,
            steady: Default::default(),
            neighbours: None,
            located: None,
            searcher: None,
            described: None,
        }
    }

    /// Sets the baseline that a file gave: its mark is [`Mark::default`]. Its profile uses the engine's name tables.
    pub fn with_baseline(mut self, profile: Arc<RwLock<Profile>>) -> Engine {
        let weight = {
            let profile = locks::read(&profile);
            let first = profile.samples.get(0).map(|first| first.source).unwrap_or_default();
            let of_first = profile.samples.slices_from(0).flatten().filter(|sample| sample.source == first);
            (of_first.map(|sample| sample.weight).sum(), profile.unit(first))
        };
        self.baseline = Some(Other { mark: Mark::default(), trees: Some(Trees::new(&self.names, profile)), weight, time: None });
        self
    }

    /// Returns the moment that an answer is about: now, or the end of the clock. Nothing happens after it, so no seconds are added to the
    /// picture.
    pub fn present(&self, now: Timestamp) -> Timestamp {
        let ended = read(&self.trees.profile).clock().and_then(|clock| clock.until);
        ended.map_or(now, |ended| now.min(ended))
    }

    /// Returns the answer to a request, as of `now`.
    pub fn answer(&mut self, request: &Request, now: Timestamp) -> Snapshot {
        loop {
            self.follow_names();
            if let Ok(snapshot) = self.try_answer(request, now) {
                return snapshot;
            }
        }
    }

    /// Begins again if the profile has other name tables by now.
    fn follow_names(&mut self) {
        let Some(names) = read(&self.trees.profile).names().cloned().filter(|names| !Arc::ptr_eq(names, &self.names)) else {
            return;
        };
        if let Some(trees) = self.baseline.as_mut().and_then(|other| other.trees.as_mut()) {
            let kept = Arc::clone(&trees.profile);
            Renewal::between(&self.names, &names).finish(&mut locks::write(&kept), true);
            *trees = Trees::new(&names, kept);
        }
        self.trees = Trees::new(&names, Arc::clone(&self.trees.profile));
        self.names = names;
        (self.difference, self.difference_before) = (None, None);
        (self.functions, self.neighbours, self.located, self.searcher) = (None, None, None, None);
        self.described = None;
    }

    fn try_answer(&mut self, request: &Request, now: Timestamp) -> Result<Snapshot, OtherNames> {
        self.keep_baseline(request.baseline.as_ref(), now)?;
        // In a comparison, a weight of 1 at time `now` counts as 1, as in the baseline. The baseline does not fade, and the test for chance
        // depends on the number of samples.
        let one = if request.compare { 1 } else { fading::ONE };
        let changed = self.trees.update(&request.query, one, now);
        let shown = self.update_difference(request, now, changed);
        self.update_tables(request, now, shown);
        let addresses = self.update_addresses(request, one, now);
        let (tree, difference) = match &self.difference {
            Some((tree, difference)) => (Arc::clone(tree), Some(Arc::clone(difference))),
            None => (Arc::clone(&self.trees.shown.tree), None),
        };
        let search = request.search.as_ref().map(|pattern| {
            if self.searcher.as_ref().is_none_or(|searcher| searcher.pattern() != pattern) {
                self.searcher = Some(Searcher::new(Arc::clone(&self.names), pattern.clone()));
            }
            self.searcher.as_mut().map(|searcher| searcher.search(&tree))
        });
        let builder = &self.trees.shown.builder;
        let profile = read(&self.trees.profile);
        if !profile.is_named_by(&self.names) {
            return Err(OtherNames);
        }
        let capabilities = profile.capabilities();
        let mut activity = builder.activity(&profile, now);
        let other = self.baseline.as_ref().and_then(|other| other.trees.as_ref());
        if let Some(other) = other.filter(|_| difference.is_some()) {
            activity = activity::beside(activity, &other.shown.builder.activity(&read(&other.profile), now));
        }
        let hottest = if request.hottest { builder.hottest(&profile, now) } else { FxHashMap::default() };
        // A machine may have thousands of processes. While they are not on screen, only the picker needs their facts.
        let is_fresh = |old: &&Described| !request.hottest && old.request == *request && now.since(old.at) < DESCRIBED_FOR;
        let processes = match self.described.as_ref().filter(is_fresh) {
            Some(old) => Arc::clone(&old.facts),
            None => {
                let facts = self.describe(&activity, &hottest);
                self.described = Some(Described { request: request.clone(), at: now, facts: Arc::clone(&facts) });
                facts
            }
        };
        let snapshot = Snapshot {
            request: request.clone(),
            names: Arc::clone(&self.names),
            now,
            tree,
            difference,
            baseline: match &self.baseline {
                None => Baseline::None,
                Some(Other { trees: None, .. }) => Baseline::TooLarge,
                Some(Other { weight: (weight, unit), .. }) => Baseline::Samples(*weight, *unit),
            },
            functions: self.functions.as_ref().map(|(_, table)| Arc::clone(table)),
            neighbours: self.neighbours.clone(),
            addresses,
            search: search.flatten(),
            processes,
            activity: activity.into(),
            cgroups: builder.cgroups(&profile, now).into(),
            cpus: builder.cpus(now).into(),
            timeline: if capabilities.time { builder.timeline(now) } else { Timeline::default() },
            idle_threads: builder.idle_threads(),
            totals: builder.totals(now),
            short: builder.short_stacks(now).into(),
            unit: profile.unit(request.query.source.unwrap_or(EventSource::CLOCK)),
            capabilities,
            one: if builder.fades() { one } else { 1 },
            heat: (request.heat && capabilities.time).then(|| Arc::new(builder.heat(now))),
            seconds: covered(&profile, request.query.range, now).map(|time| time as f64 / 1e9),
            stored: profile.samples.len(),
            span: profile.samples.first_time().zip(profile.samples.last_time()),
            losses: Losses { coarse: self.names.refused(), coarse_most: self.names.refused_most(), ..profile.losses },
            events: Arc::clone(&profile.events),
            held: Held { trees: self.memory(), ..profile.held() },
        };
        drop(profile);
        Ok(snapshot)
    }

    /// Returns the bytes of trees and of their builders.
    fn memory(&self) -> usize {
        let other = self.baseline.as_ref().and_then(|other| other.trees.as_ref()).map_or(0, Trees::memory);
        let differences = [&self.difference, &self.difference_before].into_iter().flatten();
        let differences: usize = differences.map(|(tree, difference)| tree.memory() + difference.memory()).sum();
        let functions = self.functions.as_ref().map_or(0, |(_, table)| size_of_val(table.rows.as_slice()));
        let located = self.located.as_ref().map_or(0, |located| located.builder.memory());
        self.trees.memory() + other + differences + functions + located
    }

    /// Copies the marked samples out of the store, or drops a baseline that is not wanted any more.
    fn keep_baseline(&mut self, mark: Option<&Mark>, now: Timestamp) -> Result<(), OtherNames> {
        if self.baseline.as_ref().map(|kept| &kept.mark) == mark {
            return Ok(());
        }
        self.baseline = None;
        let profile = &self.trees.profile;
        let (mut bytes, mut since) = (0, None);
        if let Some(mark) = mark {
            let limit = read(profile).limits().memory / 4;
            let time = covered(&read(profile), mark.query.range, now);
            since = read(profile).samples.first_time();
            let kept = excerpt(&self.names, &mark.query, profile, limit)?;
            bytes = kept.as_ref().map_or(0, Profile::memory);
            let samples = kept.iter().flat_map(|kept| kept.samples.slices_from(0).flatten()).map(|sample| sample.weight).sum();
            let weight = (samples, read(profile).unit(mark.query.source.unwrap_or_default()));
            let trees = kept.map(|kept| Trees::new(&self.names, Arc::new(RwLock::new(kept))));
            self.baseline = Some(Other { mark: mark.clone(), trees, weight, time });
        }
        locks::write(profile).set_aside(bytes, since);
        Ok(())
    }

    /// Brings the baseline's tree and the tree of both sides up to date, if they are compared.
    fn update_difference(&mut self, request: &Request, now: Timestamp, changed: bool) -> Shown {
        let other = self.baseline.as_mut().filter(|_| request.compare);
        let Some((mark, trees, time)) = other.and_then(|other| Some((&other.mark, other.trees.as_mut()?, other.time))) else {
            let changed = changed || self.difference.is_some();
            (self.difference, self.difference_before) = (None, None);
            return Shown { changed, compared: false };
        };
        let other_changed = trees.update(&mark.query_beside(&request.query), 1, now);
        let measure = measure(&read(&self.trees.profile), request, (mark, time), now);
        let is_measured_alike = self.difference.as_ref().is_some_and(|(_, difference)| difference.measure() == measure);
        let changed = changed || other_changed || !is_measured_alike;
        if changed {
            let (tree, difference) = Difference::of(&self.trees.shown.tree, &trees.shown.tree, measure);
            self.difference_before = self.difference.replace((Arc::new(tree), Arc::new(difference)));
        }
        Shown { changed, compared: true }
    }

    fn update_tables(&mut self, request: &Request, now: Timestamp, shown: Shown) {
        if request.functions.is_none() && request.neighbours_of.is_none() {
            (self.trees.upright, self.functions, self.neighbours) = (None, None, None);
            if let Some(trees) = self.baseline.as_mut().and_then(|other| other.trees.as_mut()) {
                trees.upright = None;
            }
            return;
        }
        let measure = self.difference.as_ref().map_or(Measure::Shares, |(_, difference)| difference.measure());
        let (tree, mut changed) = self.trees.upright(&request.query, now, shown.changed);
        let other = self.baseline.as_mut().filter(|_| shown.compared);
        let before = other.and_then(|other| {
            let query = other.mark.query_beside(&request.query);
            let (tree, other_changed) = other.trees.as_mut()?.upright(&query, now, shown.changed);
            changed |= other_changed;
            Some(tree)
        });
        let known = self.functions.as_ref().map(|(order, _)| *order);
        if changed || known != request.functions {
            let table = |order| match &before {
                None => FunctionTable::of(&tree, order, &self.names),
                Some(before) => FunctionTable::comparing(&tree, before, measure, order, &self.names),
            };
            self.functions = request.functions.map(|order| {
                let mut table = table(order);
                let asked = (order, request.query.clone(), request.compare);
                if self.steady.0.as_ref() != Some(&asked) {
                    self.steady = (Some(asked), Steady::default());
                }
                // A picture that stands still is in exact order.
                let moves = !matches!(request.query.range, TimeRange::Between(..));
                if moves && read(&self.trees.profile).capabilities().time {
                    table.keep_steady(order, &mut self.steady.1, now);
                }
                (order, Arc::new(table))
            });
        }
        let wanted = request.neighbours_of.map(|label| self.names.labels.current(label));
        if changed || self.neighbours.as_ref().map(|(label, _)| *label) != wanted {
            self.neighbours = wanted.map(|label| (label, Arc::new(Neighbours::of(&tree, label))));
        }
    }

    /// Counts the weights of a function's addresses. Returns `None` until all samples are counted. This is separate from the tree, because
    /// the function changes with each step of the cursor.
    fn update_addresses(&mut self, request: &Request, one: u64, now: Timestamp) -> Option<Arc<Addresses>> {
        let Some(label) = request.addresses_of.map(|label| self.names.labels.current(label)) else {
            self.located = None;
            return None;
        };
        // The weights depend on neither direction nor grouping.
        let query = Query { direction: Direction::TopDown, grouping: Grouping::None, ..request.query.clone() };
        let located = match &mut self.located {
            Some(located) if located.label == label => located,
            other => {
                let builder = ViewBuilder::of_addresses(Arc::clone(&self.names), query.clone(), label);
                other.insert(Located { label, builder, told: None })
            }
        };
        located.builder.set_query(query);
        let mut slice = |_| located.builder.update(&read(&self.trees.profile), now, SLICE);
        if !(0..MOST_SLICES).map(&mut slice).any(|progress| progress == Progress::Done) {
            return None;
        }
        let changes = located.builder.changes();
        match &located.told {
            Some((told, addresses)) if *told == changes && !located.builder.fades() => Some(Arc::clone(addresses)),
            _ => {
                let addresses = Arc::new(located.builder.addresses(one, now));
                located.told = Some((changes, Arc::clone(&addresses)));
                Some(addresses)
            }
        }
    }

    /// Returns the facts of the processes in `activity`.
    fn describe(&self, activity: &[ActivityRow], hottest: &FxHashMap<Tgid, LabelId>) -> Arc<FxHashMap<Tgid, ProcessFacts>> {
        let mut described = FxHashMap::default();
        for row in activity {
            let tgid = row.thread.tgid;
            described.entry(tgid).or_insert_with(|| {
                let hottest = hottest.get(&tgid).copied();
                match self.processes.get(&tgid) {
                    Some(process) => ProcessFacts {
                        command: Arc::clone(&process.command_line),
                        exited: process.exited.is_some(),
                        threads: process.threads,
                        user: process.user,
                        hottest,
                    },
                    None => ProcessFacts { exited: true, hottest, ..ProcessFacts::default() },
                }
            });
        }
        Arc::new(described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Filter, FilterMode, FrameKind, Limits, NodeId, Pattern, Sample, Sides, Thread, Tid};

    fn sample(names: &Names, profile: &RwLock<Profile>, time: u64, path: &[&str]) {
        let process = names.labels.intern("p", "", FrameKind::Process);
        let thread = Thread { tgid: Tgid(1), tid: Tid(1), process, name: process, ..Thread::default() };
        let frames: Vec<_> = path.iter().map(|name| names.intern_named(names.labels.intern(name, "", FrameKind::User))).collect();
        let sample = Sample { time: Timestamp(time), ..Sample::default() };
        profile.write().unwrap().record(thread, frames, sample);
    }

    #[test]
    fn of_functions_that_are_equally_hot_the_first_by_name_is_told() {
        let names = Arc::new(Names::default());
        let profile = Arc::new(RwLock::new(Profile::new(Limits { window: 10_000, memory: 8_000_000 })));
        for (time, name) in (0..).zip(["seek", "read", "write"]) {
            sample(&names, &profile, time, &["main", name]);
        }
        let mut engine = Engine::new(Arc::clone(&names), Arc::default(), profile);
        let answer = engine.answer(&Request { hottest: true, ..Request::default() }, Timestamp(3));
        assert_eq!(answer.processes[&Tgid(1)].hottest.map(|label| names.labels.name(label)), Some("read"));
        let last: Vec<_> = answer.activity.iter().map(|row| row.weights.last).collect();
        assert_eq!(last, [Timestamp(2)]);
    }

    #[test]
    fn a_baseline_outlives_its_samples_and_is_counted() {
        let names = Arc::new(Names::default());
        let limits = Limits { window: 10_000, memory: 8_000_000 };
        let profile = Arc::new(RwLock::new(Profile::new(limits)));
        for i in 0..3000 {
            sample(&names, &profile, i, &["main", if i % 3 == 0 { "a" } else { "b" }]);
        }
        let mut engine = Engine::new(Arc::clone(&names), Arc::default(), Arc::clone(&profile));
        let range = TimeRange::Between(Timestamp(0), Timestamp(3000));
        let mark = Mark { number: 1, query: Query { range, ..Query::default() } };
        let mut request = Request { baseline: Some(mark), compare: true, ..Request::default() };
        let before = profile.read().unwrap().held().samples;
        let marked = engine.answer(&request, Timestamp(3000));
        assert_eq!(marked.baseline, Baseline::Samples(3000, Unit::Samples));
        assert!(marked.held.samples > before, "what is kept aside is counted");
        // All marked samples leave the store, which is compacted: ids change.
        for i in 0..3000 {
            sample(&names, &profile, 20_000 + i, &["main", "c"]);
        }
        profile.write().unwrap().trim(Timestamp(23_000));
        profile.write().unwrap().compact();
        let after = engine.answer(&request, Timestamp(23_000));
        let difference = after.difference.unwrap();
        assert_eq!(difference.whole(), Sides::of(after.totals.weight, 3000));
        assert_eq!(profile.read().unwrap().oldest(Timestamp(23_000)), Timestamp(0), "processes of the baseline are still needed");
        let main = after.tree.children(after.tree.children(CallTree::ROOT).next().unwrap()).next().unwrap();
        let total = |name: &str| {
            let label = names.labels.intern(name, "", FrameKind::User);
            after.tree.child_with(main, label).map(|node| difference.node(node).total)
        };
        assert_eq!(total("a"), Some(Sides::of(0, 1000)));
        assert_eq!(total("c").map(|sides| sides.before), Some(0));
        // The filters apply to the baseline as well. Dropping the baseline frees its memory.
        let pattern = Pattern::new("^a$").unwrap();
        request.query.filters.push(Filter { mode: FilterMode::Drop, pattern });
        let filtered = engine.answer(&request, Timestamp(23_000)).difference.unwrap();
        assert_eq!(filtered.whole().before, 2000);
        let with = profile.read().unwrap().memory();
        engine.answer(&Request::default(), Timestamp(23_000));
        assert!(profile.read().unwrap().memory() < with);
        assert!(profile.read().unwrap().oldest(Timestamp(23_000)) > Timestamp(0));
    }

    #[test]
    fn a_baseline_learns_names_that_come_after_it_was_marked() {
        let names = Arc::new(Names::default());
        let profile = Arc::new(RwLock::new(Profile::new(Limits { window: u64::MAX, memory: 1 << 30 })));
        for i in 0..100 {
            sample(&names, &profile, i, &["main", "f"]);
        }
        let mut engine = Engine::new(Arc::clone(&names), Arc::default(), Arc::clone(&profile));
        let label = |name| names.labels.intern(name, "", FrameKind::User);
        let compared = |engine: &mut Engine, direction| {
            let query = Query { direction, ..Query::default() };
            let mark = Some(Mark { number: 1, query: Query::default() });
            let request =
                Request { query, baseline: mark, compare: true, functions: Some(FunctionOrder::default()), ..Request::default() };
            engine.answer(&request, Timestamp(100))
        };
        compared(&mut engine, Direction::TopDown);
        // Functions inlined into `f` are found later, in two steps. Both sides get the new names.
        let frame = names.intern_named(label("f"));
        for chain in [vec![label("f"), label("g")], vec![label("f"), label("g"), label("h")]] {
            names.name_frame(frame, &chain);
            for direction in [Direction::TopDown, Direction::BottomUp, Direction::BottomUp, Direction::TopDown] {
                let answer = compared(&mut engine, direction);
                let difference = answer.difference.unwrap();
                assert!(answer.tree.nodes().len() >= 3 + chain.len());
                for id in (0..answer.tree.nodes().len()).map(|id| NodeId(id as u32)) {
                    let Sides { now, before, .. } = difference.node(id).total;
                    assert_eq!(now, before, "{}", names.labels.name(answer.tree.node(id).label));
                }
            }
        }
    }

    #[test]
    fn addresses_are_counted_within_what_is_asked_for() {
        let names = Arc::new(Names::default());
        let profile = Arc::new(RwLock::new(Profile::new(Limits { window: u64::MAX, memory: 1 << 30 })));
        for i in 0..90_000 {
            sample(&names, &profile, i, &["main", if i % 3 == 0 { "a" } else { "b" }]);
        }
        let mut engine = Engine::new(Arc::clone(&names), Arc::default(), Arc::clone(&profile));
        let label = |name| names.labels.intern(name, "", FrameKind::User);
        let mut request = Request { addresses_of: Some(label("a")), ..Request::default() };
        let weights = |engine: &mut Engine, request: &Request| {
            let found = engine.answer(request, Timestamp(90_000)).addresses.unwrap();
            (found.own, found.total, found.frames.len())
        };
        assert_eq!(weights(&mut engine, &request), (30_000, 30_000, 1));
        request.query.range = TimeRange::Between(Timestamp(0), Timestamp(3000));
        assert_eq!(weights(&mut engine, &request), (1000, 1000, 1));
        request.addresses_of = Some(label("main"));
        assert_eq!(weights(&mut engine, &request), (0, 3000, 1));
        let pattern = Pattern::new("^a$").unwrap();
        request.query.filters.push(Filter { mode: FilterMode::Drop, pattern });
        assert_eq!(weights(&mut engine, &request), (0, 2000, 1));
        request.query.range = TimeRange::Between(Timestamp(89_997), Timestamp(90_001));
        sample(&names, &profile, 90_000, &["main"]);
        assert_eq!(weights(&mut engine, &request), (1, 3, 1));
        request.query.range = TimeRange::Fading(1000, Timestamp(90_000));
        let fading = engine.answer(&request, Timestamp(90_000));
        let (found, tree) = (fading.addresses.clone().unwrap(), fading.weight());
        assert!(found.total.abs_diff(tree) * 20 < tree, "{} of {tree}", found.total);
        assert!(engine.answer(&Request::default(), Timestamp(90_000)).addresses.is_none());
    }

    #[test]
    fn a_baseline_that_is_too_large_is_refused() {
        let names = Arc::new(Names::default());
        let profile = Arc::new(RwLock::new(Profile::new(Limits { window: u64::MAX, memory: 1_000_000 })));
        for i in 0..6000u64 {
            let name = format!("f{i}");
            sample(&names, &profile, i, &["main", &name]);
        }
        let mut engine = Engine::new(Arc::clone(&names), Arc::default(), profile);
        let request =
            Request { baseline: Some(Mark { number: 1, query: Query::default() }), compare: true, ..Request::default() };
        let answer = engine.answer(&request, Timestamp(6000));
        assert!(answer.baseline == Baseline::TooLarge && answer.difference.is_none());
    }
}
