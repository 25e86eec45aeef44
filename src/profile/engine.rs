//! Answers requests of the screen: one at a time, on a thread of its own, never on the drawing thread.
//!
//! The profile is shared with the collector behind a lock. The engine reads it in slices, so that the collector is never kept
//! waiting for a whole rebuild, and hands out [`Snapshot`]s that need no lock at all.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rustc_hash::FxHashMap;

use super::frame::Names;
use super::ids::{CgroupId, Cpu, LabelId, Tgid, Timestamp};
use super::processes::Processes;
use super::query::{Direction, Query, Request};
use super::samples::{Limits, Losses, Profile};
use super::search::{SearchResult, Searcher};
use super::top::{FunctionOrder, FunctionTable, Neighbours};
use super::tree::CallTree;
use super::view::{ActivityRow, Progress, ShortStacks, Timeline, Totals, ViewBuilder};

/// Answers after which a tree is looked through for what weighs nothing any more: some ten seconds.
const TIDY_EVERY: u64 = 50;

/// Samples taken in under one lock; about a millisecond's work.
const SLICE: usize = 16_384;

/// Everything the screen needs to draw, fixed at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// What was asked.
    pub request: Request,
    /// As of when.
    pub now: Timestamp,
    /// The call tree.
    pub tree: Arc<CallTree>,
    /// The table of functions, if it was asked for; always from a tree that grows from callers to callees.
    pub functions: Option<Arc<FunctionTable>>,
    /// Callers and callees of the function that was asked for.
    pub neighbours: Option<(LabelId, Arc<Neighbours>)>,
    /// What the search found.
    pub search: Option<SearchResult>,
    /// What each thread did.
    pub activity: Arc<[ActivityRow]>,
    /// The command lines of the processes in `activity`, and whether each has exited.
    pub processes: Arc<FxHashMap<Tgid, (Arc<str>, bool)>>,
    /// What ran in each cgroup, the heaviest first, and on each CPU; target and filters not applied.
    pub cgroups: Arc<[(CgroupId, u64)]>,
    /// See `cgroups`.
    pub cpus: Arc<[(Cpu, u64)]>,
    /// CPU use per second.
    pub timeline: Timeline,
    /// Sums over what is shown.
    pub totals: Totals,
    /// Where stacks that are not complete ended; see [`ViewBuilder::short_stacks`].
    pub short: Arc<[ShortStacks]>,
    /// Samples in the store.
    pub stored: usize,
    /// Time of the first and the last stored sample.
    pub span: Option<(Timestamp, Timestamp)>,
    /// What is not there.
    pub losses: Losses,
    /// Bytes of samples, stacks, threads and names.
    pub memory: usize,
}

struct Answer {
    builder: ViewBuilder,
    tree: Arc<CallTree>,
    /// The tree before that one. When the next is made, the screen has usually let go of it and its memory serves again; and
    /// while it is held here, it is never the drawing thread that gives a large tree's memory back.
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

    /// Brings the tree up to date, and returns whether it changed.
    fn update(&mut self, query: &Query, profile: &RwLock<Profile>, now: Timestamp) -> bool {
        if self.builder.query() != query {
            self.builder.set_query(query.clone());
            self.made_at = None;
        }
        let fixed = loop {
            let profile = read(profile);
            let fixed = profile.limits() == Limits::NONE;
            let done = fixed && self.made_at.is_some() && profile.samples.end() == self.builder.seen();
            if done || self.builder.update(&profile, now, SLICE) == Progress::Done {
                break fixed;
            }
        };
        if self.made_at == Some(self.builder.changes()) {
            return false;
        }
        self.made_at = Some(self.builder.changes());
        let next = if fixed {
            Arc::new(self.builder.take_tree())
        } else {
            let mut next = std::mem::take(&mut self.before);
            match Arc::get_mut(&mut next) {
                Some(unused) => self.builder.tree_into(unused),
                None => next = Arc::new(self.builder.tree()),
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

/// Turns requests into snapshots.
pub struct Engine {
    names: Arc<Names>,
    processes: Arc<Processes>,
    profile: Arc<RwLock<Profile>>,
    shown: Answer,
    /// A tree from callers to callees, kept while the table of functions is wanted beside a bottom-up tree.
    upright: Option<Answer>,
    functions: Option<(FunctionOrder, Arc<FunctionTable>)>,
    neighbours: Option<(LabelId, Arc<Neighbours>)>,
    searcher: Option<Searcher>,
}

fn read(profile: &RwLock<Profile>) -> RwLockReadGuard<'_, Profile> {
    profile.read().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// An engine over a profile that others fill.
    pub fn new(names: Arc<Names>, processes: Arc<Processes>, profile: Arc<RwLock<Profile>>) -> Engine {
        let shown = Answer::new(&names, Query::default());
        Engine { names, processes, profile, shown, upright: None, functions: None, neighbours: None, searcher: None }
    }

    /// The answer as of `now`.
    pub fn answer(&mut self, request: &Request, now: Timestamp) -> Snapshot {
        let changed = self.shown.update(&request.query, &self.profile, now);
        self.update_tables(request, now, changed);
        let search = request.search.as_ref().map(|pattern| {
            if self.searcher.as_ref().is_none_or(|searcher| searcher.pattern() != pattern) {
                self.searcher = Some(Searcher::new(Arc::clone(&self.names), pattern.clone()));
            }
            self.searcher.as_mut().map(|searcher| searcher.search(&self.shown.tree))
        });
        let profile = read(&self.profile);
        let activity = self.shown.builder.activity(&profile, now);
        let snapshot = Snapshot {
            request: request.clone(),
            now,
            tree: Arc::clone(&self.shown.tree),
            functions: self.functions.as_ref().map(|(_, table)| Arc::clone(table)),
            neighbours: self.neighbours.clone(),
            search: search.flatten(),
            processes: self.describe(&activity),
            activity: activity.into(),
            cgroups: self.shown.builder.cgroups(&profile).into(),
            cpus: self.shown.builder.cpus().into(),
            timeline: self.shown.builder.timeline(if profile.limits() == Limits::NONE { Timestamp(0) } else { now }),
            totals: self.shown.builder.totals(),
            short: self.shown.builder.short_stacks().into(),
            stored: profile.samples.len(),
            span: profile.samples.first_time().zip(profile.samples.last_time()),
            losses: Losses { coarse: self.names.refused(), ..profile.losses },
            memory: profile.memory(),
        };
        drop(profile);
        snapshot
    }

    fn update_tables(&mut self, request: &Request, now: Timestamp, tree_changed: bool) {
        if request.functions.is_none() && request.neighbours_of.is_none() {
            (self.upright, self.functions, self.neighbours) = (None, None, None);
            return;
        }
        let (tree, changed) = if request.query.direction == Direction::TopDown {
            self.upright = None;
            (Arc::clone(&self.shown.tree), tree_changed)
        } else {
            let query = Query { direction: Direction::TopDown, ..request.query.clone() };
            let upright = self.upright.get_or_insert_with(|| Answer::new(&self.names, query.clone()));
            let changed = upright.update(&query, &self.profile, now);
            (Arc::clone(&upright.tree), changed)
        };
        let known = self.functions.as_ref().map(|(order, _)| *order);
        if changed || known != request.functions {
            let table = |order| (order, Arc::new(FunctionTable::of(&tree, order, &self.names)));
            self.functions = request.functions.map(table);
        }
        let wanted = request.neighbours_of.map(|label| self.names.labels.current(label));
        if changed || self.neighbours.as_ref().map(|(label, _)| *label) != wanted {
            self.neighbours = wanted.map(|label| (label, Arc::new(Neighbours::of(&tree, label))));
        }
    }

    fn describe(&self, activity: &[ActivityRow]) -> Arc<FxHashMap<Tgid, (Arc<str>, bool)>> {
        let mut described = FxHashMap::default();
        for row in activity {
            described.entry(row.thread.tgid).or_insert_with(|| match self.processes.get(&row.thread.tgid) {
                Some(process) => (Arc::clone(&process.command_line), process.exited.is_some()),
                None => (Arc::from(""), true),
            });
        }
        Arc::new(described)
    }
}
