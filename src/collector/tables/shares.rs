//! Chooses the tables that are evicted when room is short. Pure.

use std::collections::{BTreeMap, VecDeque};

use super::kernel::{Held, MAX_OBJECTS};
use crate::profile::UserId;

/// A table counts as in use if it was used within this time: units of 2³⁰ ns.
pub(super) const RECENTLY: u32 = 30;

/// A table that may be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) number: u64,
    pub(super) user: UserId,
    /// When it was last used, in units of 2³⁰ ns.
    pub(super) used: u32,
    pub(super) bytes: u64,
}

/// Selects the tables that may be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Among {
    /// Tables of all users that were not used lately.
    Idle {
        /// Now, in the units of [`Candidate::used`].
        now: u32,
    },
    /// Tables of users other than root.
    Others,
    /// All tables.
    All,
}

/// Chooses tables to evict, until at most `most` is left. Each time it takes the least recently used table of the user with the largest
/// share.
///
/// So a user who causes a flood of tables loses these first. Another user loses tables only while that user's share is larger.
pub(super) fn choose(candidates: &[Candidate], most: Held, bound: u64, among: Among) -> Vec<u64> {
    let counts = |candidate: &&Candidate| among != Among::Others || candidate.user != UserId(0);
    let mut total = Held::default();
    let mut users: BTreeMap<u32, (Held, VecDeque<Candidate>)> = BTreeMap::new();
    let mut sorted: Vec<Candidate> = candidates.iter().filter(counts).copied().collect();
    sorted.sort_unstable_by_key(|candidate| (candidate.used, candidate.number));
    for candidate in sorted {
        total = Held { bytes: total.bytes + candidate.bytes, slots: total.slots + 1 };
        let may_go = !matches!(among, Among::Idle { now } if now.saturating_sub(candidate.used) < RECENTLY);
        let (held, mine) = users.entry(candidate.user.0).or_default();
        *held = Held { bytes: held.bytes + candidate.bytes, slots: held.slots + 1 };
        if may_go {
            mine.push_back(candidate);
        }
    }
    let mut gone = Vec::new();
    while total.bytes > most.bytes || total.slots > most.slots {
        let largest = users.values_mut().filter(|(_, mine)| !mine.is_empty()).max_by_key(|(held, _)| share(*held, bound));
        let Some((held, mine)) = largest else { break };
        let Some(candidate) = mine.pop_front() else { break };
        for sum in [held, &mut total] {
            *sum = Held { bytes: sum.bytes.saturating_sub(candidate.bytes), slots: sum.slots.saturating_sub(1) };
        }
        gone.push(candidate.number);
    }
    gone
}

/// Returns the larger of a user's shares of bytes and of places, in millionths.
fn share(held: Held, bound: u64) -> u64 {
    (held.bytes.saturating_mul(1_000_000) / bound.max(1)).max(u64::from(held.slots) * 1_000_000 / u64::from(MAX_OBJECTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: u64, user: u32, used: u32, bytes: u64) -> Candidate {
        Candidate { number, user: UserId(user), used, bytes }
    }

    const NO_SLOTS: u32 = u32::MAX;

    #[test]
    fn who_floods_loses_its_own_oldest_tables() {
        let mut candidates: Vec<_> = (0..50).map(|number| candidate(number, 7, 100 + number as u32, 10)).collect();
        candidates.push(candidate(50, 8, 1, 40));
        candidates.push(candidate(51, 0, 1, 400));
        let most = Held { bytes: 300, slots: NO_SLOTS };
        let gone = choose(&candidates, most, 1000, Among::Others);
        assert_eq!(gone, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_in_use_stays_where_only_idle_tables_may_go() {
        let candidates = [candidate(1, 0, 100, 10), candidate(2, 0, 10, 10), candidate(3, 7, 95, 10), candidate(4, 7, 20, 10)];
        let most = Held { bytes: 0, slots: NO_SLOTS };
        let mut gone = choose(&candidates, most, 1000, Among::Idle { now: 101 });
        gone.sort_unstable();
        assert_eq!(gone, [2, 4]);
        assert_eq!(choose(&candidates, Held { bytes: 40, slots: 4 }, 1000, Among::All), [0u64; 0]);
    }

    #[test]
    fn places_are_shared_out_as_bytes_are() {
        let mut candidates: Vec<_> = (0..100).map(|number| candidate(number, 7, number as u32, 0)).collect();
        candidates.extend((100..110).map(|number| candidate(number, 0, 0, 0)));
        let gone = choose(&candidates, Held { bytes: 0, slots: 60 }, 1000, Among::All);
        assert_eq!(gone, (0..50).collect::<Vec<_>>());
    }
}
