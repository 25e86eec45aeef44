//! Tests whether chance alone explains a change: Fisher's exact test of the observations.
//!
//! A stack that weighs w and was seen k times weighs w / k per observation. If all observations of a side had that weight, the side would
//! hold N = W / (w / k) of them. If the share of the part is the same on both sides, its x + y observations fall on the sides as if drawn
//! without putting back (hypergeometric distribution):
//!
//! ```text
//!              now    before
//! of the part   x       y      x + y = K drawn
//! of all        N       M      from N + M
//! ```
//!
//! If each observation weighs 1, N and M are the numbers of samples, and the test is Fisher's. All observations of one part are assumed to
//! have the same weight.

use super::sides::Sides;

/// Probability below which a change counts as real: that of three standard errors. A picture has hundreds of boxes. If a hundred boxes did
/// not change, five would still exceed two standard errors.
const BELIEVED: f64 = 0.0027;
/// The limit in standard errors, for large numbers.
const STANDARD_ERRORS: f64 = 3.0;

/// Largest number of observations whose distribution is summed up one by one. For larger numbers the normal distribution is as good.
const SMALL: f64 = 400.0;

/// Whether chance alone may have changed the share of a part that much.
pub(super) fn may_be(part: Sides, whole: Sides) -> bool {
    let drawn = Drawn::of(part, whole);
    // The part and everything else change together. The smaller of the two is easier to count.
    let drawn = if drawn.part() > drawn.all() / 2.0 { drawn.complement() } else { drawn };
    if drawn.part() <= SMALL { drawn.probability() > BELIEVED } else { drawn.standard_errors() <= STANDARD_ERRORS }
}

/// The table of the module's description. Whole numbers.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    x: f64,
    y: f64,
    n: f64,
    m: f64,
}

impl Drawn {
    fn of(part: Sides, whole: Sides) -> Drawn {
        let (x, y) = (part.seen_now as f64, part.seen_before as f64);
        let weight = |weight: u64, seen: u64| (seen > 0 && weight > 0).then(|| weight as f64 / seen as f64);
        let (now, before) = (weight(part.now, part.seen_now), weight(part.before, part.seen_before));
        // On a side where it was not seen, it is assumed to weigh as much as on the other side.
        let [now, before] = [now.or(before), before.or(now)].map(|weight| weight.unwrap_or(1.0));
        let n = (whole.now as f64 / now).round().max(x);
        let m = (whole.before as f64 / before).round().max(y);
        Drawn { x, y, n, m }
    }

    /// Returns the table of everything except the part.
    fn complement(self) -> Drawn {
        Drawn { x: self.n - self.x, y: self.m - self.y, ..self }
    }

    fn part(self) -> f64 {
        self.x + self.y
    }

    fn all(self) -> f64 {
        self.n + self.m
    }

    /// Returns the probability of a draw at least that far from the expected one, in either direction: twice the smaller tail.
    fn probability(self) -> f64 {
        let (k, n, m) = (self.part(), self.n, self.m);
        // The ratio of the probabilities of x and x − 1. The sum steps from the most likely number up and down, so no factorial becomes too
        // large.
        let step = |x: f64| (k - x + 1.0) * (n - x + 1.0) / (x * (m - k + x));
        let (least, most) = ((k - m).max(0.0), k.min(n));
        let top = ((k + 1.0) * (n + 1.0) / (n + m + 2.0)).floor().clamp(least, most);
        let (mut all, mut below, mut above) = (0.0, 0.0, 0.0);
        let mut count = |x: f64, likely: f64| {
            all += likely;
            below += if x <= self.x { likely } else { 0.0 };
            above += if x >= self.x { likely } else { 0.0 };
        };
        count(top, 1.0);
        let mut likely = 1.0;
        let mut x = top + 1.0;
        while x <= most {
            likely *= step(x);
            count(x, likely);
            x += 1.0;
        }
        (likely, x) = (1.0, top);
        while x > least {
            likely /= step(x);
            count(x - 1.0, likely);
            x -= 1.0;
        }
        (2.0 * below.min(above) / all).min(1.0)
    }

    /// Returns the distance of x from its expected value, in standard errors of the same distribution.
    fn standard_errors(self) -> f64 {
        let (k, all) = (self.part(), self.all());
        let share = self.n / all;
        let variance = k * share * (1.0 - share) * (all - k) / (all - 1.0).max(1.0);
        let off = (self.x - k * share).abs();
        // There is nothing but the part, so no change is possible.
        if off == 0.0 { 0.0 } else { off / variance.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::view::difference::{Comparison, Difference, Measure};
    use crate::profile::view::tree::weighed_tree_of;
    use crate::profile::{CallTree, LabelId};

    fn drawn(x: u64, n: u64, y: u64, m: u64) -> Drawn {
        Drawn::of(Sides::of(x, y), Sides::of(n, m))
    }

    /// Computes the probability from binomial coefficients, in whole numbers.
    fn by_counting(x: u64, n: u64, y: u64, m: u64) -> f64 {
        let choose = |n: u64, k: u64| (0..k).fold(1u128, |product, i| product * u128::from(n - i) / u128::from(i + 1));
        let k = x + y;
        let ways = |x: u64| if x > n || k - x > m { 0 } else { choose(n, x) * choose(m, k - x) };
        let all: u128 = (0..=k).map(ways).sum();
        let below: u128 = (0..=x).map(ways).sum();
        let above: u128 = (x..=k).map(ways).sum();
        (2.0 * below.min(above) as f64 / all as f64).min(1.0)
    }

    #[test]
    fn the_probability_is_that_of_the_exact_distribution() {
        // 1 of 12 and 9 of 12: of 1,961,256 tables, 2,706 are as uneven in this direction.
        assert!((drawn(1, 12, 9, 12).probability() - 2.0 * 2_706.0 / 1_961_256.0).abs() < 1e-9);
        for n in [1, 2, 7, 20] {
            for m in [1, 3, 19] {
                for x in 0..=n {
                    for y in 0..=m {
                        let (is, exact) = (drawn(x, n, y, m).probability(), by_counting(x, n, y, m));
                        assert!((is - exact).abs() < 1e-9, "{x} of {n}, {y} of {m}: {is} instead of {exact}");
                        let other = drawn(x, n, y, m).complement().probability();
                        assert!((is - other).abs() < 1e-9, "what is not of the part changes with it");
                    }
                }
            }
        }
    }

    #[test]
    fn large_numbers_are_judged_as_the_exact_distribution_judges_them() {
        for (x, n, y, m) in
            [(300, 10_000, 200, 10_000), (230, 3_000, 900, 9_000), (260, 1_000, 500, 3_000), (520, 5_000, 430, 5_000)]
        {
            let drawn = drawn(x, n, y, m);
            let believed = drawn.probability() <= BELIEVED;
            assert_eq!(drawn.standard_errors() > STANDARD_ERRORS, believed, "{x} of {n}, {y} of {m}: {drawn:?}");
        }
    }

    /// A generator of numbers that look random. It always gives the same numbers.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// Makes a tree of events from this number of observations. It has 20 functions; the first is seen `first` times as often as each of
    /// the others. An observation weighs 200 to 400 events.
    fn events(random: &mut Random, observations: u64, first: u64) -> CallTree {
        let paths: Vec<([u32; 1], i64)> = (0..observations)
            .map(|_| {
                let label = random.below(19 + first).saturating_sub(first - 1) as u32;
                ([label], 200 + random.below(200) as i64)
            })
            .collect();
        weighed_tree_of(&paths.iter().map(|(path, weight)| (path.as_slice(), *weight, 1)).collect::<Vec<_>>())
    }

    #[test]
    fn stacks_of_events_that_stand_for_hundreds_are_not_hundreds_of_observations() {
        let mut random = Random(7);
        let (mut changed, mut by_weight, mut boxes) = (0, 0, 0);
        for _ in 0..100 {
            let (now, before) = (events(&mut random, 300, 1), events(&mut random, 500, 1));
            let (both, difference) = Difference::of(&now, &before, Measure::Shares);
            for node in both.children(CallTree::ROOT) {
                boxes += 1;
                let part = difference.node(node).total;
                changed += usize::from(!difference.change(part).chance);
                let as_many = |sides: Sides| Sides::of(sides.now, sides.before);
                by_weight += usize::from(
                    !Comparison { whole: as_many(difference.whole()), ..Comparison::default() }.change(as_many(part)).chance,
                );
            }
        }
        assert!(boxes > 1900, "{boxes} boxes");
        assert!(changed <= boxes / 100, "{changed} of {boxes} boxes are said to have changed, and none has");
        assert!(by_weight > boxes / 2, "only {by_weight} of {boxes} by their weights: the test tests nothing");
        // A function that is seen three times as often is reported as changed.
        let (now, before) = (events(&mut random, 300, 6), events(&mut random, 500, 1));
        let (both, difference) = Difference::of(&now, &before, Measure::Shares);
        let grown = both.child_with(CallTree::ROOT, LabelId(0)).unwrap();
        assert!(!difference.change(difference.node(grown).total).chance);
    }

    #[test]
    fn a_share_of_the_weight_changes_where_observations_become_heavier() {
        // The stack is seen as often as before, but each observation weighs a hundred events instead of one.
        let now = weighed_tree_of(&[(&[1], 1_000, 1_000), (&[2], 100_000, 1_000)]);
        let before = weighed_tree_of(&[(&[1], 1_000, 1_000), (&[2], 1_000, 1_000)]);
        let (both, difference) = Difference::of(&now, &before, Measure::Shares);
        let change = |label| {
            let node = both.child_with(CallTree::ROOT, LabelId(label)).unwrap();
            difference.change(difference.node(node).total)
        };
        assert!(!change(1).chance && !change(2).chance && change(2).by > 0.4);
        // One heavy observation proves nothing.
        let now = weighed_tree_of(&[(&[1], 1_000, 1_000), (&[2], 1_000, 1)]);
        let before = weighed_tree_of(&[(&[1], 1_000, 1_000)]);
        let (both, difference) = Difference::of(&now, &before, Measure::Shares);
        let node = both.child_with(CallTree::ROOT, LabelId(2)).unwrap();
        assert!(difference.change(difference.node(node).total).chance);
    }
}
