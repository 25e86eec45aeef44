//! The call tree that a view draws: one node for each path of labels, with its own weight and that of its callees.
//!
//! ```text
//! all 10 ─┬─ nginx 6 ── main 6 ─┬─ parse 4
//!         │                     └─ (own 2)
//!         └─ cc1 4 ── main 4
//! ```
//!
//! A node is 32 bytes. Parents come before their children. Siblings are linked, in the order they were first seen. A weight is not always a
//! number of observations: in a tree of events, one observation can weigh hundreds. A second list then has the observations behind each
//! node: 16 bytes more.

use rustc_hash::FxHashMap;

use super::sides::Sides;
use crate::profile::ids::LabelId;

/// A node of one [`CallTree`]; 0 is the root, "all".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u32);

/// A path of labels and its weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeNode {
    /// The label of the node's frame.
    pub label: LabelId,
    /// The caller (in a bottom-up tree: the callee).
    pub parent: u32,
    /// First child, or 0.
    pub first_child: u32,
    /// Next child of the same parent, or 0.
    pub next_sibling: u32,
    /// Weight of this node and all nodes below it.
    pub total: u64,
    /// Weight of the samples that end here.
    pub own: u64,
}

const _: () = assert!(size_of::<TreeNode>() == 32);

/// How often the stacks behind a node's weights were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    /// Observations of this node and all nodes below it.
    pub total: u64,
    /// Observations of the samples that end here.
    pub own: u64,
}

/// A tree of paths with weights, never changed once made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTree {
    nodes: Vec<TreeNode>,
    /// By the node's number; empty where the weights are observations.
    observations: Vec<Observations>,
    repeats: Repeats,
}

/// The number of consecutive frames of a node, where there is more than one.
type Repeats = FxHashMap<NodeId, u32>;

impl Default for CallTree {
    fn default() -> Self {
        CallTree { nodes: vec![TreeNode::default()], observations: Vec::new(), repeats: Repeats::default() }
    }
}

impl CallTree {
    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<TreeNode>()
            + self.observations.capacity() * size_of::<Observations>()
            + self.repeats.capacity() * size_of::<(NodeId, u32)>()
    }

    /// The root, "all".
    pub const ROOT: NodeId = NodeId(0);

    /// Makes the tree from nodes whose `own` is known. Computes the totals.
    ///
    /// `nodes[0]` is the root, and a parent comes before its children.
    pub fn from_nodes(mut nodes: Vec<TreeNode>) -> CallTree {
        if nodes.is_empty() {
            return CallTree::default();
        }
        sum_up(&mut nodes, &mut []);
        CallTree { nodes, observations: Vec::new(), repeats: Repeats::default() }
    }

    /// Returns the node. An id of another tree gives the root.
    pub fn node(&self, id: NodeId) -> &TreeNode {
        self.nodes.get(id.0 as usize).unwrap_or(&self.nodes[0])
    }

    /// Returns all nodes; the index is the id.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// Returns how often the stacks of a node were seen.
    pub fn observations(&self, id: NodeId) -> Observations {
        let node = self.node(id);
        let weights = Observations { total: node.total, own: node.own };
        self.observations.get(id.0 as usize).copied().unwrap_or(weights)
    }

    /// Returns the depth of the recursion that a node shows as one: the most consecutive frames of its stacks. It is 1 unless recursion is
    /// [folded](crate::profile::Folding::recursion). Samples that have left the range count until the view is made anew.
    pub fn repeats(&self, id: NodeId) -> u32 {
        self.repeats.get(&id).copied().unwrap_or(1)
    }

    /// Returns whether a node shows a folded recursion.
    pub fn has_recursion(&self) -> bool {
        !self.repeats.is_empty()
    }

    /// Returns the whole weight, as one side of a comparison.
    pub(super) fn whole(&self) -> Sides {
        Sides { now: self.total(), seen_now: self.observations(CallTree::ROOT).total, ..Sides::default() }
    }

    /// Returns the weight of the whole tree.
    pub fn total(&self) -> u64 {
        self.nodes[0].total
    }

    /// Returns the children that have weight, in the order they were first seen.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let first = self.node(id).first_child;
        std::iter::successors((first != 0).then_some(first), |id| {
            let next = self.nodes[*id as usize].next_sibling;
            (next != 0).then_some(next)
        })
        .map(NodeId)
        .filter(|id| self.nodes[id.0 as usize].total > 0)
    }

    /// Returns the nodes from the root's child down to `id`, without the root.
    pub fn path(&self, id: NodeId) -> Vec<NodeId> {
        let mut path: Vec<NodeId> = self.ancestors(id).collect();
        path.reverse();
        path
    }

    /// Returns `id` and its parents up to the root's child, without the root.
    pub fn ancestors(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(id), |id| Some(NodeId(self.node(*id).parent))).take_while(|id| id.0 != 0)
    }

    /// Changes all weights and observations. Parts must not become more than their sum: children never weigh more than their parent.
    pub(super) fn rescale(&mut self, weight: impl Fn(u64) -> u64, observations: impl Fn(u64) -> u64) {
        for node in &mut self.nodes {
            (node.total, node.own) = (weight(node.total), weight(node.own));
        }
        for seen in &mut self.observations {
            (seen.total, seen.own) = (observations(seen.total), observations(seen.own));
        }
    }

    /// Divides all weights, rounded down.
    pub fn divide(&mut self, by: u64) {
        self.rescale(|weight| weight / by.max(1), |observations| observations);
    }

    /// Returns the number of levels from the root down to `id`; 0 for the root.
    pub fn depth(&self, id: NodeId) -> usize {
        self.ancestors(id).count()
    }

    /// Returns the child of `id` with this label.
    pub fn child_with(&self, id: NodeId, label: LabelId) -> Option<NodeId> {
        self.children(id).find(|child| self.node(*child).label == label)
    }
}

/// Computes totals from own weights and observations. Children come after their parents, so one pass backward does it.
fn sum_up(nodes: &mut [TreeNode], observations: &mut [Observations]) {
    for node in nodes.iter_mut() {
        node.total = node.own;
    }
    for seen in observations.iter_mut() {
        seen.total = seen.own;
    }
    for id in (1..nodes.len()).rev() {
        let TreeNode { parent, total, .. } = nodes[id];
        nodes[parent as usize].total += total;
        if let Some(Observations { total, .. }) = observations.get(id).copied() {
            observations[parent as usize].total += total;
        }
    }
}

/// Grows a tree path by path. The index from (parent, label) to child is kept apart from the nodes, so a finished tree does not carry it.
/// The index has no first children: their parents point to them.
#[derive(Default)]
pub struct TreeBuilder {
    nodes: Vec<TreeNode>,
    /// Empty as long as all weights equal their observations.
    observations: Vec<Observations>,
    /// Last child of each node, so that siblings stay in the order first seen.
    last_child: Vec<u32>,
    index: hashbrown::HashTable<u32>,
    repeats: Repeats,
    /// Additions since totals were last brought up to date.
    added: Added,
}

/// Additions that the totals lack. Totals are brought up to date only for a picture, by the cheaper of two ways.
enum Added {
    /// So few additions that walking up from each node costs less than a pass over all nodes. A live picture of 4 million nodes gets 500
    /// samples, and the pass takes 40 ms.
    Few(Vec<Addition>),
    /// All totals must be computed anew.
    Many,
}

/// An addition to the own weight and observations of a node.
struct Addition {
    node: NodeId,
    weight: i64,
    observations: i64,
}

impl Default for Added {
    fn default() -> Self {
        Added::Few(Vec::new())
    }
}

/// Estimated cost of one sample, in nodes of a pass. A sample has some tens of callers, and each step to a caller is a jump in memory.
const NODES_A_SAMPLE: usize = 64;

fn hash(parent: u32, label: LabelId) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write_u64(u64::from(parent) << 32 | u64::from(label.0));
    hasher.finish()
}

impl TreeBuilder {
    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<TreeNode>()
            + self.observations.capacity() * size_of::<Observations>()
            + (self.last_child.capacity() + self.index.capacity() * 8 / 7) * size_of::<u32>()
            + self.repeats.capacity() * size_of::<(NodeId, u32)>()
    }

    /// Returns a tree with only the root.
    pub fn new() -> TreeBuilder {
        TreeBuilder {
            nodes: vec![TreeNode::default()],
            observations: Vec::new(),
            last_child: vec![0],
            index: hashbrown::HashTable::new(),
            repeats: Repeats::default(),
            added: Added::default(),
        }
    }

    /// Returns the child of `parent` with this label. Makes it if it is new.
    pub fn child(&mut self, parent: NodeId, label: LabelId) -> NodeId {
        let nodes = &self.nodes;
        let same = |&id: &u32| {
            let node = &nodes[id as usize];
            node.parent == parent.0 && node.label == label
        };
        let first = nodes[parent.0 as usize].first_child;
        if first != 0 && same(&first) {
            return NodeId(first);
        }
        let wanted = hash(parent.0, label);
        if first != 0
            && let Some(&found) = self.index.find(wanted, same)
        {
            return NodeId(found);
        }
        let Ok(id) = u32::try_from(self.nodes.len()) else { return parent };
        self.nodes.push(TreeNode { label, parent: parent.0, ..TreeNode::default() });
        if !self.observations.is_empty() {
            self.observations.push(Observations::default());
        }
        self.last_child.push(0);
        let last = std::mem::replace(&mut self.last_child[parent.0 as usize], id);
        match last {
            0 => {
                self.nodes[parent.0 as usize].first_child = id;
                return NodeId(id);
            }
            last => self.nodes[last as usize].next_sibling = id,
        }
        let nodes = &self.nodes;
        self.index.insert_unique(wanted, id, |&id| {
            let node = &nodes[id as usize];
            hash(node.parent, node.label)
        });
        NodeId(id)
    }

    /// Returns the label of a node, and `None` for the root.
    pub(super) fn label(&self, id: NodeId) -> Option<LabelId> {
        self.nodes.get(id.0 as usize).filter(|_| id != CallTree::ROOT).map(|node| node.label)
    }

    /// Notes the depth of a recursion that a node shows as one.
    pub(super) fn note_repeats(&mut self, id: NodeId, repeats: u32) {
        if repeats > 1 {
            let most = self.repeats.entry(id).or_default();
            *most = repeats.max(*most);
        }
    }

    /// Adds observations to the samples that end at `node`. A negative weight removes what was added before.
    pub fn add(&mut self, id: NodeId, weight: i64) {
        self.add_weighed(id, weight, weight);
    }

    /// Adds observations whose weight differs from their number. Negative numbers remove what was added before.
    pub fn add_weighed(&mut self, id: NodeId, weight: i64, observations: i64) {
        if weight != observations && self.observations.is_empty() {
            let seen = |node: &TreeNode| Observations { total: node.total, own: node.own };
            self.observations = self.nodes.iter().map(seen).collect();
        }
        let room = self.nodes.len() / NODES_A_SAMPLE;
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return };
        let added = |own: &mut u64, more: i64| {
            let before = std::mem::replace(own, own.saturating_add_signed(more));
            own.wrapping_sub(before).cast_signed()
        };
        let weight = added(&mut node.own, weight);
        let observations = self.observations.get_mut(id.0 as usize).map_or(weight, |seen| added(&mut seen.own, observations));
        match &mut self.added {
            Added::Few(list) if list.len() < room => list.push(Addition { node: id, weight, observations }),
            Added::Few(_) => self.added = Added::Many,
            Added::Many => {}
        }
    }

    fn bring_totals_up_to_date(&mut self) {
        match std::mem::take(&mut self.added) {
            Added::Many => sum_up(&mut self.nodes, &mut self.observations),
            Added::Few(list) => {
                for Addition { node, weight, observations } in list {
                    let mut at = node.0;
                    loop {
                        let node = &mut self.nodes[at as usize];
                        node.total = node.total.wrapping_add_signed(weight);
                        if let Some(seen) = self.observations.get_mut(at as usize) {
                            seen.total = seen.total.wrapping_add_signed(observations);
                        }
                        if at == 0 {
                            break;
                        }
                        at = node.parent;
                    }
                }
            }
        }
    }

    /// Returns a copy of the current tree. The builder can continue.
    pub fn snapshot(&mut self) -> CallTree {
        let mut tree = CallTree::default();
        self.snapshot_into(&mut tree);
        tree
    }

    /// Like [`TreeBuilder::snapshot`], but reuses the memory of a tree that is not needed any more. For a large tree, asking the system for
    /// new memory takes as long as everything else (128 MB: 32,000 page faults).
    pub fn snapshot_into(&mut self, tree: &mut CallTree) {
        self.bring_totals_up_to_date();
        tree.nodes.clone_from(&self.nodes);
        tree.observations.clone_from(&self.observations);
        tree.repeats.clone_from(&self.repeats);
    }

    /// Returns the finished tree.
    pub fn finish(mut self) -> CallTree {
        sum_up(&mut self.nodes, &mut self.observations);
        CallTree { nodes: self.nodes, observations: self.observations, repeats: self.repeats }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Always false: the root is always there.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Makes the tree of these paths of labels, each with the weight and the observations that end there.
#[cfg(test)]
pub(crate) fn weighed_tree_of(paths: &[(&[u32], i64, i64)]) -> CallTree {
    let mut builder = TreeBuilder::new();
    for (path, weight, observations) in paths {
        let node = path.iter().fold(CallTree::ROOT, |node, label| builder.child(node, LabelId(*label)));
        builder.add_weighed(node, *weight, *observations);
    }
    builder.finish()
}

/// Makes the tree of these paths of labels, each with the observations that end there.
#[cfg(test)]
pub(crate) fn tree_of(paths: &[(&[u32], i64)]) -> CallTree {
    weighed_tree_of(&paths.iter().map(|(path, weight)| (*path, *weight, *weight)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_same_whether_few_or_many_samples_came() {
        let mut builder = TreeBuilder::new();
        let mut at = CallTree::ROOT;
        let mut kept = CallTree::default();
        for step in 0..2000u32 {
            // A bush: every eighth step goes back to the root.
            at = builder.child(if step % 8 == 0 { CallTree::ROOT } else { at }, LabelId(step % 131));
            // From the thousandth on a step weighs more than it is.
            builder.add_weighed(at, i64::from(step % 5) * if step < 1000 { 1 } else { 300 }, i64::from(step % 5));
            if step % 7 == 0 {
                builder.add(at, -i64::from(step % 5));
            }
            if step % 97 == 0 || step > 1900 {
                builder.snapshot_into(&mut kept);
                let mut anew = kept.clone();
                sum_up(&mut anew.nodes, &mut anew.observations);
                assert_eq!(kept, anew, "after step {step}");
                assert_eq!(kept.observations.is_empty(), step < 1000, "step {step}");
                assert!(kept.observations.iter().zip(&kept.nodes).all(|(seen, node)| seen.total <= node.total));
            }
        }
    }

    #[test]
    fn totals_are_sums_and_siblings_keep_their_order() {
        let mut builder = TreeBuilder::new();
        let a = builder.child(CallTree::ROOT, LabelId(7));
        let b = builder.child(a, LabelId(3));
        let c = builder.child(a, LabelId(1));
        builder.add(b, 4);
        builder.add(c, 2);
        builder.add(a, 1);
        assert_eq!(builder.child(a, LabelId(3)), b);
        let tree = builder.snapshot();
        assert_eq!((tree.total(), tree.node(a).total, tree.node(a).own), (7, 7, 1));
        assert_eq!(tree.children(a).collect::<Vec<_>>(), [b, c]);
        assert_eq!(tree.path(c), [a, c]);
        assert_eq!(tree.depth(c), 2);
        builder.add(b, -4);
        let tree = builder.finish();
        assert_eq!(tree.children(a).collect::<Vec<_>>(), [c], "what weighs nothing is not shown");
    }
}
