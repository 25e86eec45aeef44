//! Which CPU has which element of `cpu_states`: 225 KiB each, so that there are only as many as CPUs are switched on, and some to come.
//!
//! A hypervisor may announce 512 CPUs and switch on two; numbers of CPUs may have gaps. `cpu_slots` of `bpf/tables.h` has 8 bytes for
//! each number that there may ever be.

use std::collections::BTreeMap;

/// At least so many CPUs can be switched on later, if the machine may ever have so many.
const RESERVE: u32 = 8;

/// Elements to make room for: those of CPUs that are switched on, and as many again, [`RESERVE`] at least; never more than there may
/// ever be.
pub(super) fn room_for(online: u32, possible: u32) -> u32 {
    online.saturating_add(online.max(RESERVE)).min(possible.max(online)).max(1)
}

/// The elements, and who has them.
pub(super) struct Slots {
    room: u32,
    of: BTreeMap<u32, u32>,
    /// CPUs that found no room.
    left_out: Vec<u32>,
}

impl Slots {
    /// Nobody has one yet.
    pub(super) fn new(room: u32) -> Slots {
        Slots { room, of: BTreeMap::new(), left_out: Vec::new() }
    }

    /// How many there are.
    pub(super) fn room(&self) -> u32 {
        self.room
    }

    /// Whether a CPU has one.
    pub(super) fn has(&self, cpu: u32) -> bool {
        self.of.contains_key(&cpu)
    }

    /// CPUs that are switched on and have none.
    pub(super) fn left_out(&self) -> &[u32] {
        &self.left_out
    }

    /// Takes those of CPUs that were switched off, and gives them to CPUs that were switched on. What changed: the CPU, and what
    /// `cpu_slots` is to say of it. Those that were taken come first.
    pub(super) fn follow(&mut self, online: &[u32]) -> Vec<(u32, u64)> {
        let gone: Vec<u32> = self.of.keys().filter(|cpu| !online.contains(cpu)).copied().collect();
        self.of.retain(|cpu, _| online.contains(cpu));
        let mut changed: Vec<(u32, u64)> = gone.into_iter().map(|cpu| (cpu, 0)).collect();
        let mut taken: Vec<u32> = self.of.values().copied().collect();
        taken.sort_unstable();
        let mut free = (0..self.room).filter(|slot| taken.binary_search(slot).is_err());
        self.left_out.clear();
        for cpu in online {
            if self.of.contains_key(cpu) {
                continue;
            }
            match free.next() {
                Some(slot) => {
                    self.of.insert(*cpu, slot);
                    changed.push((*cpu, u64::from(slot) + 1));
                }
                None => self.left_out.push(*cpu),
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_cpus_that_are_there_and_some_to_come() {
        assert_eq!(room_for(2, 2), 2);
        assert_eq!(room_for(2, 512), 10, "2.2 MB instead of 115");
        assert_eq!(room_for(2, 8192), 10);
        assert_eq!(room_for(64, 128), 128);
        assert_eq!(room_for(64, 72), 72);
        assert_eq!(room_for(16, 8), 16, "of numbers that make no sense what is there");
        assert_eq!(room_for(0, 0), 1, "maps have an element");
    }

    #[test]
    fn no_two_cpus_have_the_same_element() {
        let mut slots = Slots::new(4);
        // Numbers with gaps.
        assert_eq!(slots.follow(&[0, 300]), [(0, 1), (300, 2)]);
        assert_eq!(slots.follow(&[0, 300]), []);
        assert_eq!(slots.follow(&[0, 1, 300]), [(1, 3)]);
        // What is given back is given again.
        assert_eq!(slots.follow(&[1, 300, 301]), [(0, 0), (301, 1)]);
        assert!(slots.has(301) && !slots.has(0) && slots.left_out().is_empty());
    }

    #[test]
    fn a_cpu_without_room_is_left_out_until_there_is_some() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.follow(&[0, 1, 2]), [(0, 1), (1, 2)]);
        assert_eq!(slots.left_out(), [2]);
        assert_eq!(slots.follow(&[0, 2]), [(1, 0), (2, 2)]);
        assert!(slots.left_out().is_empty());
    }
}
