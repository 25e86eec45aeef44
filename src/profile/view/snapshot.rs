//! The engine's answer to a request.

use crate::profile::ActivityRow;
use crate::profile::Addresses;
use crate::profile::HeatMap;
use crate::profile::ProcessFacts;
use crate::profile::ShortStacks;
use crate::profile::Timeline;
use crate::profile::Totals;
use crate::profile::{Capabilities, Unit};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::difference::{Difference, NodeSides};
use super::functions::{FunctionTable, Neighbours};
use super::query::Request;
use super::search::SearchResult;
use super::sides::Sides;
use super::tree::{CallTree, NodeId};
use crate::profile::ids::{CgroupId, Cpu, LabelId, Tgid, Timestamp};
use crate::profile::names::table::Names;
use crate::profile::store::events::EventStatus;
use crate::profile::store::held::Held;
use crate::profile::store::profile::Losses;

/// Everything the screen needs to draw, fixed at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The request that this answers.
    pub request: Request,
    /// The name tables that its labels and frames are in.
    pub names: Arc<Names>,
    /// The moment of the snapshot.
    pub now: Timestamp,
    /// The call tree. If two sides are compared, it is the tree of both, and its nodes weigh shares instead of samples.
    pub tree: Arc<CallTree>,
    /// The weights of the tree's nodes on each side, if two sides are compared.
    pub difference: Option<Arc<Difference>>,
    /// The state of the baseline.
    pub baseline: Baseline,
    /// The unit of its weights.
    pub unit: Unit,
    /// The tree's value for a weight of 1: more than 1 where the past fades.
    pub one: u64,
    /// The questions that the profile can answer.
    pub capabilities: Capabilities,
    /// The map of time, if requested.
    pub heat: Option<Arc<HeatMap>>,
    /// The table of functions, if requested. It is always made from a tree that grows from callers to callees.
    pub functions: Option<Arc<FunctionTable>>,
    /// Callers and callees of the requested function.
    pub neighbours: Option<(LabelId, Arc<Neighbours>)>,
    /// Weights of the requested function's addresses; `None` until all samples are counted.
    pub addresses: Option<Arc<Addresses>>,
    /// The result of the search.
    pub search: Option<SearchResult>,
    /// The activity of each thread.
    pub activity: Arc<[ActivityRow]>,
    /// The facts of the processes in `activity`.
    pub processes: Arc<FxHashMap<Tgid, ProcessFacts>>,
    /// Weight of each cgroup, the heaviest first. Target and filters are not applied.
    pub cgroups: Arc<[(CgroupId, u64)]>,
    /// Weight of each CPU. Target and filters are not applied.
    pub cpus: Arc<[(Cpu, u64)]>,
    /// Weight per second.
    pub timeline: Timeline,
    /// Number of threads whose waits are left out, because they only wait for work.
    pub idle_threads: usize,
    /// Sums over the samples that are shown.
    pub totals: Totals,
    /// The places where incomplete stacks ended; see [`crate::profile::ViewBuilder::short_stacks`].
    pub short: Arc<[ShortStacks]>,
    /// Seconds in which the shown samples were taken. Where the past fades, a second counts for as much as its samples do. `None` if
    /// samples have no time.
    pub seconds: Option<f64>,
    /// Samples in the store.
    pub stored: usize,
    /// Time of the first and the last stored sample.
    pub span: Option<(Timestamp, Timestamp)>,
    /// Samples and names that are missing.
    pub losses: Losses,
    /// The counts of each source of events. A count is never below the weight of the source's samples.
    pub events: Arc<[EventStatus]>,
    /// Bytes held, by purpose.
    pub held: Held,
}

impl Snapshot {
    /// Returns the weight of the current view, in its unit.
    pub fn amount(&self) -> u64 {
        self.amount_of(self.weight())
    }

    /// Converts a weight of the tree to its unit.
    pub fn amount_of(&self, weight: u64) -> u64 {
        weight / self.one.max(1)
    }

    /// Returns the current view's weight in the tree. If two sides are compared, this is the weight on the side of now.
    pub fn weight(&self) -> u64 {
        self.difference.as_ref().map_or(self.tree.total(), |difference| difference.whole().now)
    }

    /// Returns the weights of a node on each side.
    pub fn node(&self, id: NodeId) -> NodeSides {
        let node = self.tree.node(id);
        let seen = self.tree.observations(id);
        let alone = |now, seen_now| Sides { now, seen_now, ..Sides::default() };
        let unpaired = NodeSides { own: alone(node.own, seen.own), total: alone(node.total, seen.total) };
        self.difference.as_ref().map_or(unpaired, |difference| difference.node(id))
    }
}

/// The state of the baseline: the samples kept for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Baseline {
    /// There is none.
    #[default]
    None,
    /// Its samples have this weight.
    Samples(u64, Unit),
    /// There is none, because it would have taken more than a quarter of the memory.
    TooLarge,
}
