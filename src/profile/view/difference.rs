//! The difference of two trees of the same form, as one tree; and whether a change may be chance.
//!
//! The two sides rarely hold equally many samples, so counts cannot be compared. If the time of both sides is known, their rates are
//! compared: weight per second, which is CPUs for samples of the clock. Otherwise, or if the reader prefers it, their shares of the whole
//! are compared.
//!
//! In the tree of both sides, a node's weight is the mean of its two rates or shares. Widths add up as in any call tree. A node that is
//! gone is half as wide as it was.
//!
//! ```text
//! shares    now:     main 100 ─┬─ parse 60        both:  main ─┬─ parse  (60 % + 20 %) / 2 = 40 %
//!                              └─ send 40                      ├─ send   (40 % + 50 %) / 2 = 45 %
//!           before:  main 50 ──┬─ parse 10                     └─ log    ( 0 % + 30 %) / 2 = 15 %
//!                              ├─ send 25
//!                              └─ log 15
//!
//! rates     now:     a 99 and b 97 in 1 s          both:  a  (0.99 + 0.98) / 2 CPUs, changed by +0.01
//! (99 Hz)   before:  a 970 in 10 s                        b  (0.97 + 0   ) / 2 CPUs, changed by +0.98
//! ```

use super::chance;
use super::sides::Sides;
use super::tree::{CallTree, NodeId, TreeBuilder};

/// Weight of the larger side in a tree of both, chosen so that shares keep nine digits.
const SIDE: u64 = 1 << 32;

/// The weights of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeSides {
    /// Weights of the samples that end in the node.
    pub own: Sides,
    /// Weights of the samples that end in the node or below it.
    pub total: Sides,
}

/// How two sides are compared.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Measure {
    /// By shares of the whole.
    #[default]
    Shares,
    /// By weight per second.
    Rates {
        /// Seconds that the side of now covers; more than 0.
        now: f64,
        /// Seconds that the baseline covers; more than 0.
        before: f64,
        /// Weight per second if all CPUs are busy. `None` for events: their number has no bound.
        most: Option<f64>,
    },
}

/// Two sides: their weights, and how they are compared.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Comparison {
    /// The sum of all weights on each side.
    pub whole: Sides,
    /// How they are compared.
    pub measure: Measure,
}

/// The nodes of a tree of both sides, with their weights on each side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// By the node's number.
    nodes: Vec<NodeSides>,
    measure: Measure,
}

impl Difference {
    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<NodeSides>()
    }

    /// Returns the tree of both sides, and the weights of its nodes on each side.
    pub fn of(now: &CallTree, before: &CallTree, measure: Measure) -> (CallTree, Difference) {
        let comparison = Comparison { whole: Sides::of(now.total(), before.total()), measure };
        let mut both = TreeBuilder::new();
        let mut nodes: Vec<NodeSides> = Vec::new();
        let mut take_in = |tree: &CallTree, factor: f64, side: fn(u64, u64) -> Sides| {
            let mut place = vec![CallTree::ROOT; tree.nodes().len()];
            for (index, node) in tree.nodes().iter().enumerate() {
                let at = if index == 0 { CallTree::ROOT } else { place[node.parent as usize] };
                if node.total == 0 {
                    continue;
                }
                let at = if index == 0 { at } else { both.child(at, node.label) };
                place[index] = at;
                both.note_repeats(at, tree.repeats(NodeId(index as u32)));
                both.add(at, (node.own as f64 * factor) as i64);
                if nodes.len() <= at.0 as usize {
                    nodes.resize(at.0 as usize + 1, NodeSides::default());
                }
                let seen = tree.observations(NodeId(index as u32));
                let sides = &mut nodes[at.0 as usize];
                sides.own = sides.own.plus(side(node.own, seen.own));
                sides.total = sides.total.plus(side(node.total, seen.total));
            }
        };
        let (of_now, of_before) = comparison.factors();
        take_in(now, of_now, |now, seen_now| Sides { now, seen_now, ..Sides::default() });
        take_in(before, of_before, |before, seen_before| Sides { before, seen_before, ..Sides::default() });
        (both.finish(), Difference { nodes, measure })
    }

    /// Returns how the sides are compared.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// Returns the whole weights of both sides, and how they are compared.
    pub fn comparison(&self) -> Comparison {
        Comparison { whole: self.whole(), measure: self.measure }
    }

    /// Returns the weights of a node on each side.
    pub fn node(&self, id: NodeId) -> NodeSides {
        self.nodes.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the whole weight of each side.
    pub fn whole(&self) -> Sides {
        self.node(CallTree::ROOT).total
    }

    /// Returns how a part has changed.
    pub fn change(&self, part: Sides) -> Change {
        self.comparison().change(part)
    }
}

impl Comparison {
    /// Returns the factors from the weights of each side to the weights in the tree of both.
    fn factors(&self) -> (f64, f64) {
        let Sides { now, before, .. } = self.whole;
        let scale = |weight: f64| if weight > 0.0 { SIDE as f64 / weight } else { 0.0 };
        match self.measure {
            Measure::Shares => (scale(now as f64), scale(before as f64)),
            Measure::Rates { now: seconds_now, before: seconds_before, .. } => {
                let one = scale((now as f64 / seconds_now).max(before as f64 / seconds_before));
                (one / seconds_now, one / seconds_before)
            }
        }
    }

    /// Converts a weight of the baseline to what it would be on the side of now if nothing had changed.
    pub fn as_now(&self, before: u64) -> u64 {
        let (of_now, of_before) = self.factors();
        if of_now > 0.0 { (before as f64 * of_before / of_now).round() as u64 } else { 0 }
    }

    /// Returns how a part has changed.
    ///
    /// The test for chance uses how often the part was seen, not its weight: one stack of events may weigh hundreds of them. The test
    /// assumes that observations are independent. Observations of one burst of work are not, so the test says "changed" too easily rather
    /// than too rarely.
    pub fn change(&self, part: Sides) -> Change {
        let Comparison { whole, measure } = *self;
        let (now, before, all) = match measure {
            Measure::Shares if whole.now == 0 || whole.before == 0 => return Change { chance: true, ..Change::default() },
            Measure::Shares => (part.now as f64 / whole.now as f64, part.before as f64 / whole.before as f64, whole),
            Measure::Rates { now, before, most } => {
                // The most samples that this time could have. For events there is no bound.
                let most = most.unwrap_or(1e12 / (now + before));
                let all = Sides { now: (most * now) as u64, before: (most * before) as u64, ..Sides::default() };
                (part.now as f64 / now, part.before as f64 / before, all)
            }
        };
        let by = now - before;
        let relative = if now + before > 0.0 { by / (now + before) } else { 0.0 };
        Change { by, relative, chance: chance::may_be(part, all) }
    }
}

/// How the rate or the share of a part has changed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Change {
    /// Its value now less its value before: weight per second, or shares from −1 to 1.
    pub by: f64,
    /// The difference in relation to both values: −1 if the part is gone, 1 if it is new.
    pub relative: f64,
    /// Whether chance alone explains the change, as it often does with few samples.
    pub chance: bool,
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
        let (both, difference) = Difference::of(&now, &before, Measure::Shares);
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
        let (both, difference) = Difference::of(&tree(&[(&[1], 5)]), &CallTree::default(), Measure::Shares);
        assert_eq!(both.nodes().len(), 2);
        let node = both.child_with(CallTree::ROOT, LabelId(1)).unwrap();
        assert!(difference.change(difference.node(node).total).chance);
        assert_eq!(Difference::of(&CallTree::default(), &CallTree::default(), Measure::Shares).0.total(), 0);
    }

    #[test]
    fn few_samples_change_by_chance_and_many_do_not() {
        let change =
            |now, before, of| Comparison { whole: Sides::of(of, of), ..Comparison::default() }.change(Sides::of(now, before));
        assert!(change(6, 4, 10).chance);
        assert!(change(560, 540, 1000).chance);
        assert!(!change(600, 400, 1000).chance);
        assert!(change(5600, 5400, 10_000).chance, "2.8 standard errors");
        assert!(!change(5700, 5400, 10_000).chance, "4.3 standard errors");
        assert!(change(10, 10, 10).chance, "all of it on both sides");
    }

    /// Compares rates of these seconds on two CPUs. One CPU-second is 99 samples.
    fn rates(now: f64, before: f64) -> Measure {
        Measure::Rates { now, before, most: Some(2.0 * 99.0) }
    }

    #[test]
    fn what_begins_on_an_idle_cpu_takes_nothing_from_the_others() {
        // One program has run for ten seconds. A second program has run only for the last two of twelve seconds.
        let (now, before) = (tree(&[(&[1], 196), (&[2], 192)]), tree(&[(&[1], 970)]));
        let (both, difference) = Difference::of(&now, &before, rates(2.0, 10.0));
        let node = |label| both.child_with(CallTree::ROOT, LabelId(label)).unwrap();
        let change = |label| difference.change(difference.node(node(label)).total);
        assert!((change(1).by / 99.0 - 0.01).abs() < 0.001 && change(1).chance, "{:?}", change(1));
        assert!((change(2).by / 99.0 - 0.97).abs() < 0.001 && !change(2).chance && change(2).relative == 1.0, "{:?}", change(2));
        // By shares, the first program has lost half of the whole.
        let shares = Difference::of(&now, &before, Measure::Shares).1;
        assert!(shares.change(shares.node(node(1)).total).by < -0.49);
        // Widths: 0.99 and 0.98 beside 0.97 and nothing.
        let width = |label| both.node(node(label)).total as f64 / both.total() as f64;
        assert!((width(1) / width(2) - (0.99 + 0.98) / 0.97).abs() < 0.01);
        assert_eq!(difference.comparison().as_now(970), 194);
    }

    #[test]
    fn a_steady_load_differs_from_itself_by_chance_only_in_a_hundred_tries() {
        // A generator of numbers that look random. It always gives the same numbers.
        let mut state = 7u64;
        let mut below = move |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        // Two busy CPUs at 99 Hz. The first of twenty functions have most of the time.
        let mut sampled = |seconds: u64| {
            let paths: Vec<[u32; 1]> = (0..2 * 99 * seconds).map(|_| [1 + (below(20) * below(20) / 20) as u32]).collect();
            tree(&paths.iter().map(|path| (path.as_slice(), 1)).collect::<Vec<_>>())
        };
        let (mut boxes, mut changed) = (0, 0);
        for _ in 0..100 {
            let (both, difference) = Difference::of(&sampled(10), &sampled(60), rates(10.0, 60.0));
            assert!(difference.change(difference.whole()).chance, "as many samples a second on both sides");
            for node in both.children(CallTree::ROOT) {
                boxes += 1;
                changed += usize::from(!difference.change(difference.node(node).total).chance);
            }
        }
        assert!(boxes > 1500 && changed <= boxes / 100, "{changed} of {boxes} boxes are said to have changed, and none has");
    }

    #[test]
    fn rates_of_few_samples_may_be_chance() {
        let change = |now, before, measure| Comparison { whole: Sides::default(), measure }.change(Sides::of(now, before)).chance;
        assert!(change(6, 4, rates(1.0, 1.0)) && !change(99, 50, rates(1.0, 1.0)));
        assert!(change(3, 15, rates(1.0, 5.0)) && !change(30, 15, rates(1.0, 5.0)));
        // A CPU that is always busy varies less than events that come as they like.
        let events = Measure::Rates { now: 10.0, before: 10.0, most: None };
        assert!(change(1_000, 1_100, events) && !change(1_000, 1_200, events));
    }
}
