//! An order of rows that a reader can follow while their weights change.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::profile::Timestamp;

/// Shortest time from one order to the next, in nanoseconds, for differences that are not clear.
const AT_LEAST: u64 = 1_000_000_000;

/// Number of rows that are kept steady. Readers do not look at rows further down.
pub(crate) const STEADY_ROWS: usize = 256;

/// A row changes places with the row above it under two conditions. It must be heavier by this factor. And the difference must exceed this
/// part of its possible variation by chance. Larger values would show rows in an order that readers see to be wrong.
const HEAVIER: f64 = 1.05;
const OF_CHANCE: f64 = 0.5;
/// A difference above this multiple of its variation by chance changes the order at once.
const BEYOND_CHANCE: f64 = 2.0;

/// A row to be ordered.
#[derive(Clone, Copy, Debug)]
pub struct Weighed<K> {
    /// The row's key, independent of its place.
    pub key: K,
    /// The weight that it is ordered by.
    pub weight: f64,
    /// The square of the weight's variation by chance. For samples that weigh 1 each, it equals the weight.
    pub variance: f64,
}

/// Remembers the order of rows. A clear difference changes it at once, a smaller one at most once a second, and one that may be chance not
/// at all.
///
/// Without it, half of all pictures of a busy machine have another order than the picture before.
#[derive(Clone, Debug)]
pub struct Steady<K> {
    ordered_at: Option<Timestamp>,
    ranks: FxHashMap<K, usize>,
}

impl<K> Default for Steady<K> {
    fn default() -> Self {
        Steady { ordered_at: None, ranks: FxHashMap::default() }
    }
}

impl<K: Copy + Eq + Hash> Steady<K> {
    /// Forgets the order, because rows are ordered by another column or there are other rows.
    pub fn forget(&mut self) {
        *self = Steady::default();
    }

    /// Returns the place of a row.
    pub fn rank(&self, key: K) -> Option<usize> {
        self.ranks.get(&key).copied()
    }

    /// Updates the order from the rows of now, which come with the heaviest first.
    pub fn settle(&mut self, now: Timestamp, rows: &[Weighed<K>]) {
        let is_soon = self.ordered_at.is_some_and(|at| now >= at && now.since(at) < AT_LEAST);
        let of_chance = if is_soon { BEYOND_CHANCE } else { OF_CHANCE };
        if !is_soon {
            self.ordered_at = Some(now);
        }
        let mut rows: Vec<Weighed<K>> = rows.iter().take(STEADY_ROWS).copied().collect();
        // Known rows come first, in their present order. New rows move up from the end, past all lighter rows.
        rows.sort_by_key(|row| self.rank(row.key).unwrap_or(usize::MAX));
        let mut settled: Vec<Weighed<K>> = Vec::with_capacity(rows.len());
        for row in rows {
            let is_new = self.rank(row.key).is_none();
            let passes = |above: &Weighed<K>| match is_new {
                true => row.weight > above.weight,
                false => {
                    row.weight > above.weight * HEAVIER
                        && row.weight - above.weight > of_chance * (row.variance + above.variance).sqrt()
                }
            };
            let below = settled.iter().rposition(|above| !passes(above)).map_or(0, |at| at + 1);
            settled.insert(below, row);
        }
        self.ranks = settled.into_iter().enumerate().map(|(rank, row)| (row.key, rank)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(weights: &[(u32, f64)]) -> Vec<Weighed<u32>> {
        let mut rows: Vec<_> =
            weights.iter().map(|(key, weight)| Weighed { key: *key, weight: *weight, variance: *weight }).collect();
        rows.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        rows
    }

    fn order(steady: &Steady<u32>, keys: &[u32]) -> Vec<u32> {
        let mut keys = keys.to_vec();
        keys.sort_by_key(|key| steady.rank(*key));
        keys
    }

    #[test]
    fn rows_change_places_at_once_for_a_clear_difference_and_not_by_chance() {
        let second = |number: u64| Timestamp(number * AT_LEAST / 2);
        let mut steady = Steady::default();
        steady.settle(second(0), &rows(&[(1, 400.0), (2, 390.0), (3, 10.0)]));
        assert_eq!(order(&steady, &[1, 2, 3]), [1, 2, 3]);
        // Too soon for 1.4 times chance. 16 points of 100 % over three seconds at 99 Hz are 2.3 times chance.
        steady.settle(second(1), &rows(&[(1, 400.0), (2, 440.0), (3, 10.0)]));
        assert_eq!(order(&steady, &[1, 2, 3]), [1, 2, 3]);
        let mut soon = steady.clone();
        soon.settle(second(1), &rows(&[(1, 187.0), (2, 234.0), (3, 10.0)]));
        assert_eq!(order(&soon, &[1, 2, 3]), [2, 1, 3]);
        // Heavier by a fiftieth, and by less than half of chance.
        steady.settle(second(2), &rows(&[(1, 400.0), (2, 408.0), (3, 10.0)]));
        assert_eq!(order(&steady, &[1, 2, 3]), [1, 2, 3]);
        // Heavier by more than that. A new row is put where it belongs.
        steady.settle(second(4), &rows(&[(1, 400.0), (2, 450.0), (3, 10.0), (4, 401.0)]));
        assert_eq!(order(&steady, &[1, 2, 3, 4]), [2, 4, 1, 3]);
        steady.forget();
        steady.settle(second(4), &rows(&[(1, 2.0), (2, 1.0), (3, 3.0)]));
        assert_eq!(order(&steady, &[1, 2, 3]), [3, 1, 2]);
    }

    #[test]
    fn equal_programs_keep_their_places_for_ten_seconds() {
        // Two programs with a CPU each over three seconds: a clock's ticks differ by few. The generator always gives the same numbers.
        let mut state = 1u64;
        let mut chance = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1u32 << 31)
        };
        let mut steady = Steady::default();
        let mut changes = 0;
        let mut before = Vec::new();
        for picture in 0..50 {
            let noise = |unit: f64| 297.0 + (unit - 0.5) * 12.0;
            let now = rows(&[(1, noise(chance())), (2, noise(chance()))]);
            steady.settle(Timestamp(picture * AT_LEAST / 5), &now);
            let order = order(&steady, &[1, 2]);
            changes += u32::from(!before.is_empty() && before != order);
            before = order;
        }
        assert_eq!(changes, 0);
    }
}
