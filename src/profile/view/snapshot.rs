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
use crate::profile::store::held::Held;
use crate::profile::store::samples::Losses;

/// Everything the screen needs to draw, fixed at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// What was asked.
    pub request: Request,
    /// The tables that its labels and frames are of.
    pub names: Arc<Names>,
    /// As of when.
    pub now: Timestamp,
    /// The call tree; if two sides are compared, that of both, in which nodes weigh shares and not samples.
    pub tree: Arc<CallTree>,
    /// What the nodes of the tree weigh on each side, if two are compared.
    pub difference: Option<Arc<Difference>>,
    /// What is kept for comparison.
    pub baseline: Baseline,
    /// The unit of its weights.
    pub unit: Unit,
    /// What a weight of 1 weighs in the tree: more than 1 where the past fades.
    pub one: u64,
    /// What can be asked.
    pub capabilities: Capabilities,
    /// The map of time, if it was asked for.
    pub heat: Option<Arc<HeatMap>>,
    /// The table of functions, if it was asked for; always from a tree that grows from callers to callees.
    pub functions: Option<Arc<FunctionTable>>,
    /// Callers and callees of the function that was asked for.
    pub neighbours: Option<(LabelId, Arc<Neighbours>)>,
    /// Where samples of the function that was asked for are; not there before all of them are counted.
    pub addresses: Option<Arc<Addresses>>,
    /// What the search found.
    pub search: Option<SearchResult>,
    /// What each thread did.
    pub activity: Arc<[ActivityRow]>,
    /// The facts of the processes in `activity`.
    pub processes: Arc<FxHashMap<Tgid, ProcessFacts>>,
    /// What ran in each cgroup, the heaviest first, and on each CPU; target and filters not applied.
    pub cgroups: Arc<[(CgroupId, u64)]>,
    /// See `cgroups`.
    pub cpus: Arc<[(Cpu, u64)]>,
    /// Weight per second.
    pub timeline: Timeline,
    /// Sums over what is shown.
    pub totals: Totals,
    /// Where stacks that are not complete ended; see [`crate::profile::ViewBuilder::short_stacks`].
    pub short: Arc<[ShortStacks]>,
    /// Seconds in which what is shown was sampled. Where the past fades, a second counts for as much as its samples do. `None` if samples
    /// have no time.
    pub seconds: Option<f64>,
    /// Samples in the store.
    pub stored: usize,
    /// Time of the first and the last stored sample.
    pub span: Option<(Timestamp, Timestamp)>,
    /// What is not there.
    pub losses: Losses,
    /// Bytes that are held.
    pub held: Held,
}

impl Snapshot {
    /// Weight of what is looked at, in its unit.
    pub fn amount(&self) -> u64 {
        self.amount_of(self.weight())
    }

    /// A weight of the tree, in its unit.
    pub fn amount_of(&self, weight: u64) -> u64 {
        weight / self.one.max(1)
    }

    /// What is looked at weighs in the tree; if two sides are compared, on the side of now.
    pub fn weight(&self) -> u64 {
        self.difference.as_ref().map_or(self.tree.total(), |difference| difference.whole().now)
    }

    /// What a node weighs on each side.
    pub fn node(&self, id: NodeId) -> NodeSides {
        let node = self.tree.node(id);
        let seen = self.tree.observations(id);
        let alone = |now, seen_now| Sides { now, seen_now, ..Sides::default() };
        let unpaired = NodeSides { own: alone(node.own, seen.own), total: alone(node.total, seen.total) };
        self.difference.as_ref().map_or(unpaired, |difference| difference.node(id))
    }
}

/// What is kept for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Baseline {
    /// Nothing.
    #[default]
    None,
    /// So many samples.
    Samples(u64),
    /// Nothing, because it would have taken more than a quarter of the memory.
    TooLarge,
}
