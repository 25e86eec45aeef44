//! What has changed: two trees of the same form in one, and which of the changes chance alone would have made.
//!
//! The two sides rarely hold equally many samples, so shares are compared, not counts. In the tree of both a node weighs the
//! mean of its two shares: widths add up as in any call tree, and what is gone is still there to be seen, half as wide as it was.
//!
//! ```text
//! now:     main 100 ─┬─ parse 60        both:  main ─┬─ parse  (60 % + 20 %) / 2 = 40 %
//!                    └─ send 40                      ├─ send   (40 % + 50 %) / 2 = 45 %
//! before:  main 50 ──┬─ parse 10                     └─ log    ( 0 % + 30 %) / 2 = 15 %
//!                    ├─ send 25
//!                    └─ log 15
//! ```

use super::chance;
use super::sides::Sides;
use super::tree::{CallTree, NodeId, TreeBuilder};

/// What each side of a tree of both weighs altogether, so that shares keep nine digits.
const SIDE: u64 = 1 << 32;

/// The weights of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeSides {
    /// Of the samples that end in it.
    pub own: Sides,
    /// Of those and of all below it.
    pub total: Sides,
}

/// What the nodes of a tree of both sides weigh on each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// By the node's number.
    nodes: Vec<NodeSides>,
}

impl Difference {
    /// The tree of both, and what its nodes weigh on each side.
    pub fn of(now: &CallTree, before: &CallTree) -> (CallTree, Difference) {
        let mut both = TreeBuilder::new();
        let mut nodes: Vec<NodeSides> = Vec::new();
        let mut take_in = |tree: &CallTree, side: fn(u64, u64) -> Sides| {
            let mut place = vec![CallTree::ROOT; tree.nodes().len()];
            for (index, node) in tree.nodes().iter().enumerate() {
                let at = if index == 0 { CallTree::ROOT } else { place[node.parent as usize] };
                if node.total == 0 {
                    continue;
                }
                let at = if index == 0 { at } else { both.child(at, node.label) };
                place[index] = at;
                let share = u128::from(node.own) * u128::from(SIDE) / u128::from(tree.total());
                both.add(at, i64::try_from(share).unwrap_or(i64::MAX));
                if nodes.len() <= at.0 as usize {
                    nodes.resize(at.0 as usize + 1, NodeSides::default());
                }
                let seen = tree.observations(NodeId(index as u32));
                let sides = &mut nodes[at.0 as usize];
                sides.own = sides.own.plus(side(node.own, seen.own));
                sides.total = sides.total.plus(side(node.total, seen.total));
            }
        };
        take_in(now, |now, seen_now| Sides { now, seen_now, ..Sides::default() });
        take_in(before, |before, seen_before| Sides { before, seen_before, ..Sides::default() });
        (both.finish(), Difference { nodes })
    }

    /// What a node weighs on each side.
    pub fn node(&self, id: NodeId) -> NodeSides {
        self.nodes.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// What everything weighs on each side.
    pub fn whole(&self) -> Sides {
        self.node(CallTree::ROOT).total
    }

    /// How a part has changed.
    pub fn change(&self, part: Sides) -> Change {
        Change::between(part, self.whole())
    }
}

/// How the share of a part has changed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Change {
    /// Its share now, less what it was: −1 to 1.
    pub by: f64,
    /// The same beside both: −1 where it is gone, 1 where it is new.
    pub relative: f64,
    /// Whether chance alone would have made it, as it often does with few samples.
    pub chance: bool,
}

impl Change {
    /// Of a part of a whole, each weighed on two sides.
    ///
    /// Chance is judged by how often the part was seen, not by what it weighs: a stack of events may stand for hundreds of them.
    /// The test takes observations to be independent. Those of one burst of work are not, so it says "changed" too easily
    /// rather than too rarely.
    pub fn between(part: Sides, whole: Sides) -> Change {
        if whole.now == 0 || whole.before == 0 {
            return Change { chance: true, ..Change::default() };
        }
        let (now, before) = (part.now as f64 / whole.now as f64, part.before as f64 / whole.before as f64);
        let by = now - before;
        let relative = if now + before > 0.0 { by / (now + before) } else { 0.0 };
        Change { by, relative, chance: chance::may_be(part, whole) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::LabelId;
    use crate::profile::view::tree::tree_of as tree;

    #[test]
    fn widths_are_the_mean_of_both_shares_and_what_is_gone_or_new_is_there() {
        let now = tree(&[(&[1, 2], 60), (&[1, 3], 40)]);
        let before = tree(&[(&[1, 2], 10), (&[1, 3], 25), (&[1, 4], 15)]);
        let (both, difference) = Difference::of(&now, &before);
        let main = both.child_with(CallTree::ROOT, LabelId(1)).unwrap();
        let share = |label| {
            let node = both.child_with(main, LabelId(label)).unwrap();
            (both.node(node).total as f64 / both.total() as f64 * 1000.0).round()
        };
        assert_eq!((share(2), share(3), share(4)), (400.0, 450.0, 150.0));
        let sides = |label| difference.node(both.child_with(main, LabelId(label)).unwrap()).total;
        assert_eq!(sides(2), Sides::of(60, 10));
        assert_eq!(sides(4), Sides::of(0, 15));
        assert_eq!(difference.whole(), Sides::of(100, 50));
        let gone = difference.change(sides(4));
        assert!(gone.relative == -1.0 && !gone.chance, "{gone:?}");
    }

    #[test]
    fn a_side_without_samples_makes_no_change() {
        let (both, difference) = Difference::of(&tree(&[(&[1], 5)]), &CallTree::default());
        assert_eq!(both.nodes().len(), 2);
        let node = both.child_with(CallTree::ROOT, LabelId(1)).unwrap();
        assert!(difference.change(difference.node(node).total).chance);
        assert_eq!(Difference::of(&CallTree::default(), &CallTree::default()).0.total(), 0);
    }

    #[test]
    fn few_samples_change_by_chance_and_many_do_not() {
        let change = |now, before, of| Change::between(Sides::of(now, before), Sides::of(of, of));
        assert!(change(6, 4, 10).chance);
        assert!(change(560, 540, 1000).chance);
        assert!(!change(600, 400, 1000).chance);
        assert!(change(5600, 5400, 10_000).chance, "2.8 standard errors");
        assert!(!change(5700, 5400, 10_000).chance, "4.3 standard errors");
        assert!(change(10, 10, 10).chance, "all of it on both sides");
    }
}
