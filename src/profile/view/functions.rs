//! The flat table of functions, and the callers and callees of one function.

use std::cmp::Reverse;

use super::difference::{Comparison, Difference, Measure};
use super::sides::Sides;
use super::steady::{STEADY_ROWS, Steady, Weighed};
use super::tree::{CallTree, NodeId, TreeBuilder};
use crate::profile::ids::{LabelId, Timestamp};
use crate::profile::names::labels::{FrameKind, LabelTable};
use crate::profile::names::table::Names;

/// A function and its weights, on both sides if two are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionRow {
    /// The function.
    pub label: LabelId,
    /// Weight of the samples that end in it.
    pub own: Sides,
    /// Weight of the samples that have it in their stack. Each sample counts once, even if the function recurs.
    pub total: Sides,
}

/// The column that orders functions. If two sides are compared, the change of that column orders them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FunctionOrder {
    /// The heaviest by own weight first.
    #[default]
    Own,
    /// The heaviest by total weight first.
    Total,
    /// By name.
    Name,
}

/// Every function of a tree. Processes and threads are levels of a tree, not functions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionTable {
    /// The rows.
    pub rows: Vec<FunctionRow>,
    /// How two sides are compared, if they are.
    pub compared: Option<Comparison>,
}

/// Calls `enter` before and `leave` after each node at and below `top`. Uses no recursion, so depth does not matter.
fn walk(tree: &CallTree, top: NodeId, mut enter: impl FnMut(NodeId), mut leave: impl FnMut(NodeId)) {
    let mut node = top;
    'down: loop {
        enter(node);
        let first = tree.node(node).first_child;
        if first != 0 {
            node = NodeId(first);
            continue;
        }
        loop {
            leave(node);
            if node == top {
                return;
            }
            let next = tree.node(node).next_sibling;
            if next != 0 {
                node = NodeId(next);
                continue 'down;
            }
            node = NodeId(tree.node(node).parent);
        }
    }
}

impl FunctionTable {
    /// Returns the table of a tree that grows from callers to callees.
    pub fn of(tree: &CallTree, order: FunctionOrder, names: &Names) -> FunctionTable {
        FunctionTable::sorted(weights(tree, CallTree::ROOT, &names.labels, |id| now(tree, id)), None, order, &names.labels)
    }

    /// Returns the table of two trees, side by side. Functions that have changed most come first, unless they are ordered by name.
    pub fn comparing(
        after: &CallTree,
        before: &CallTree,
        measure: Measure,
        order: FunctionOrder,
        names: &Names,
    ) -> FunctionTable {
        let weights = |tree| weights(tree, CallTree::ROOT, &names.labels, |id| now(tree, id));
        let mut rows = weights(after);
        for (at, row) in weights(before).into_iter().enumerate() {
            while rows.len() <= at {
                rows.push(FunctionRow::empty(names.labels.id(rows.len())));
            }
            rows[at].own = Sides::beside(rows[at].own, row.own);
            rows[at].total = Sides::beside(rows[at].total, row.total);
        }
        let whole = Sides::beside(after.whole(), before.whole());
        FunctionTable::sorted(rows, Some(Comparison { whole, measure }), order, &names.labels)
    }

    /// Returns the table of the functions at and below a node, on both sides if there is a difference. The heaviest by own weight of now
    /// come first.
    pub fn below(tree: &CallTree, top: NodeId, difference: Option<&Difference>, labels: &LabelTable) -> FunctionTable {
        let weigh = |id| match difference {
            Some(difference) => (difference.node(id).own, difference.node(id).total),
            None => now(tree, id),
        };
        FunctionTable::sorted(weights(tree, top, labels, weigh), None, FunctionOrder::Own, labels)
    }

    /// Keeps the order of the heaviest rows similar to their order a moment ago.
    pub(super) fn keep_steady(&mut self, order: FunctionOrder, steady: &mut Steady<LabelId>, now: Timestamp) {
        let part = |row: &FunctionRow| match order {
            FunctionOrder::Own => Some(row.own),
            FunctionOrder::Total => Some(row.total),
            FunctionOrder::Name => None,
        };
        let weighed = |row: &FunctionRow| {
            let part = part(row)?;
            let (weight, variance) = match self.compared.map(|compared| compared.change(part)) {
                None => (part.now as f64, (part.now as f64).powi(2) / part.seen_now.max(1) as f64),
                Some(change) => (change.by.abs(), if change.chance { change.by.powi(2) } else { 0.0 }),
            };
            Some(Weighed { key: row.label, weight, variance })
        };
        let heaviest: Vec<Weighed<LabelId>> = self.rows.iter().take(STEADY_ROWS).map_while(weighed).collect();
        if heaviest.is_empty() {
            return;
        }
        steady.settle(now, &heaviest);
        let (heaviest, _) = self.rows.split_at_mut(heaviest.len());
        heaviest.sort_by_key(|row| steady.rank(row.label).unwrap_or(usize::MAX));
    }

    fn sorted(
        mut rows: Vec<FunctionRow>,
        compared: Option<Comparison>,
        order: FunctionOrder,
        labels: &LabelTable,
    ) -> FunctionTable {
        let is_function = |label| labels.get(label).is_none_or(|label| label.kind != FrameKind::Process);
        rows.retain(|row| row.total != Sides::default() && is_function(row.label));
        let size = |part| compared.map_or(0, |compared| (compared.change(part).by.abs() * 1e9) as u64);
        // Rows of the same weight are ordered by name. Labels have other numbers in each run.
        let last = |row: &FunctionRow| (labels.words(row.label), row.label);
        match order {
            FunctionOrder::Own => {
                rows.sort_by_cached_key(|row| (Reverse((size(row.own), row.own.now, row.total.now)), last(row)));
            }
            FunctionOrder::Total => rows.sort_by_cached_key(|row| (Reverse((size(row.total), row.total.now)), last(row))),
            FunctionOrder::Name => rows.sort_unstable_by_key(last),
        }
        FunctionTable { rows, compared }
    }
}

impl FunctionRow {
    fn empty(label: LabelId) -> FunctionRow {
        FunctionRow { label, own: Sides::default(), total: Sides::default() }
    }
}

/// Returns the self weight and the total weight of a node, with observations.
fn now(tree: &CallTree, id: NodeId) -> (Sides, Sides) {
    let (node, seen) = (tree.node(id), tree.observations(id));
    let sides = |now, seen_now| Sides { now, seen_now, ..Sides::default() };
    (sides(node.own, seen.own), sides(node.total, seen.total))
}

/// Sums up the weights at and below `top` by label. Returns a row for each label of the table, in their order, up to the last label in the
/// tree. `weigh` returns self and total weight of a node.
fn weights(tree: &CallTree, top: NodeId, labels: &LabelTable, weigh: impl Fn(NodeId) -> (Sides, Sides)) -> Vec<FunctionRow> {
    let index = |id| labels.index(tree.node(id).label);
    let ids = || (1..tree.nodes().len()).map(|id| NodeId(u32::try_from(id).unwrap_or(u32::MAX)));
    let count = ids().filter_map(index).max().map_or(0, |last| last + 1);
    let mut rows: Vec<FunctionRow> = (0..count).map(|index| FunctionRow::empty(labels.id(index))).collect();
    let on_path = std::cell::RefCell::new(vec![0u32; count]);
    walk(
        tree,
        top,
        |id| {
            if id == CallTree::ROOT {
                return;
            }
            let Some(label) = index(id) else { return };
            let (own, total) = weigh(id);
            rows[label].own = rows[label].own.plus(own);
            let times = &mut on_path.borrow_mut()[label];
            if *times == 0 {
                rows[label].total = rows[label].total.plus(total);
            }
            *times += 1;
        },
        |id| {
            if let Some(label) = index(id).filter(|_| id != CallTree::ROOT) {
                on_path.borrow_mut()[label] -= 1;
            }
        },
    );
    rows
}

/// Both directions of the call tree from one function, merged over all the places where it occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The root's children are the callers; their children are the callers' callers.
    pub callers: CallTree,
    /// The root's children are the functions that it calls.
    pub callees: CallTree,
}

impl Neighbours {
    /// Returns the neighbours of `label` in a tree that grows from callers to callees. A recursive call counts only at its outermost
    /// occurrence.
    pub fn of(tree: &CallTree, label: LabelId) -> Neighbours {
        let mut callers = TreeBuilder::new();
        let mut callees = TreeBuilder::new();
        // For each node, the occurrence that it is below. Parents come before children, so one pass forward finds them.
        let mut inside: Vec<Option<NodeId>> = vec![None; tree.nodes().len()];
        for index in 1..tree.nodes().len() {
            let id = NodeId(index as u32);
            let node = tree.node(id);
            if let Some(above) = inside[node.parent as usize] {
                let here = callees.child(above, node.label);
                callees.add(here, node.own.cast_signed());
                callees.note_repeats(here, tree.repeats(id));
                inside[index] = Some(here);
            } else if node.label == label && node.total > 0 {
                inside[index] = Some(CallTree::ROOT);
                callees.add(CallTree::ROOT, node.own.cast_signed());
                let outermost = tree.ancestors(NodeId(node.parent)).fold(CallTree::ROOT, |below, caller| {
                    let here = callers.child(below, tree.node(caller).label);
                    callers.note_repeats(here, tree.repeats(caller));
                    here
                });
                callers.add(outermost, node.total.cast_signed());
            }
        }
        Neighbours { callers: callers.finish(), callees: callees.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::view::tree::tree_of as tree;

    #[test]
    fn a_recursive_function_counts_once_in_its_total() {
        let table =
            FunctionTable::of(&tree(&[(&[1, 2, 2, 3], 5), (&[1, 2], 1), (&[1, 3], 2)]), FunctionOrder::Own, &Names::default());
        let row = |label| table.rows.iter().find(|row| row.label == LabelId(label)).copied().unwrap();
        assert_eq!((row(1).own.now, row(1).total.now), (0, 8));
        assert_eq!((row(2).own.now, row(2).total.now), (1, 6));
        assert_eq!((row(3).own.now, row(3).total.now), (7, 7));
        assert_eq!(table.rows[0].label, LabelId(3));
    }

    #[test]
    fn beside_a_baseline_what_changed_most_comes_first() {
        let now = tree(&[(&[1, 2], 50), (&[1, 3], 50)]);
        let before = tree(&[(&[1, 2], 40), (&[1, 3], 30), (&[1, 4], 30)]);
        let table = FunctionTable::comparing(&now, &before, Measure::Shares, FunctionOrder::Own, &Names::default());
        let own: Vec<_> = table.rows.iter().map(|row| (row.label.0, row.own.now, row.own.before)).collect();
        assert_eq!(own, [(4, 0, 30), (3, 50, 30), (2, 50, 40), (1, 0, 0)]);
        assert_eq!(table.compared.map(|compared| compared.whole), Some(Sides::of(100, 100)));
        assert_eq!(table.rows[3].total, Sides::of(100, 100));
    }

    #[test]
    fn callers_and_callees_keep_the_depth_of_a_folded_recursion() {
        let mut builder = TreeBuilder::new();
        let path = [1, 2, 3].map(LabelId).into_iter().scan(CallTree::ROOT, |node, label| {
            *node = builder.child(*node, label);
            Some(*node)
        });
        let [outer, middle, inner] = path.collect::<Vec<_>>()[..] else { panic!() };
        builder.add(inner, 1);
        builder.note_repeats(outer, 5);
        builder.note_repeats(inner, 7);
        let found = Neighbours::of(&builder.finish(), LabelId(2));
        let depth = |tree: &CallTree, label| tree.child_with(CallTree::ROOT, LabelId(label)).map(|id| tree.repeats(id));
        assert_eq!((depth(&found.callers, 1), depth(&found.callees, 3), middle.0), (Some(5), Some(7), 2));
    }

    #[test]
    fn neighbours_are_merged_over_all_places() {
        let found = Neighbours::of(&tree(&[(&[1, 5, 7], 2), (&[2, 5, 7], 3), (&[2, 5], 1), (&[5, 5, 8], 4)]), LabelId(5));
        let child = |tree: &CallTree, label| tree.child_with(CallTree::ROOT, LabelId(label)).map(|id| tree.node(id).total);
        assert_eq!(found.callers.total(), 10);
        assert_eq!((child(&found.callers, 1), child(&found.callers, 2)), (Some(2), Some(4)));
        assert_eq!(found.callees.total(), 10);
        assert_eq!((child(&found.callees, 7), child(&found.callees, 5)), (Some(5), Some(4)));
    }
}
