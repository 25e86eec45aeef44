//! Samples that count alike: they differ in nothing but time and weight. A long recording has ten million samples and some ten thousand
//! of these groups, so an answer about all of them need not look at each sample.
//!
//! ```text
//! samples   a b a c a b …        groups   a: weight 3, newest time · b: 2 · c: 1 …        of   0 1 0 2 0 1 …
//! ```

use rustc_hash::FxHashMap;

use super::samples::{Sample, SampleStore};

/// The groups of all samples of a store that no longer changes.
pub(crate) struct Alike {
    /// A sample for each group, with the sums of its samples and the time of the newest.
    pub(crate) groups: Vec<Sample>,
    /// The group of each sample, by number.
    pub(crate) of: Vec<u32>,
}

/// Returns the key of a sample's group.
fn key(sample: &Sample) -> (u64, u32) {
    let [low, high] = sample.cpu.0.to_le_bytes();
    let rest = u32::from_le_bytes([low, high, sample.source.0, sample.user_end as u8]);
    (u64::from(sample.stack.0) << 32 | u64::from(sample.thread.0), rest)
}

impl Alike {
    /// Returns the groups; `None` if there are more than half as many as samples: then they save nothing.
    pub(crate) fn of(samples: &SampleStore) -> Option<Alike> {
        let mut alike = Alike { groups: Vec::new(), of: Vec::with_capacity(samples.len()) };
        let mut numbers: FxHashMap<(u64, u32), u32> = FxHashMap::default();
        for slice in samples.slices_from(0) {
            for sample in slice {
                let number = numbers.entry(key(sample)).or_insert(u32::MAX);
                if !alike.add(*number, sample) {
                    *number = u32::try_from(alike.groups.len()).ok()?;
                    alike.groups.push(*sample);
                }
                alike.of.push(*number);
            }
            // The first samples of a run have many groups. An eighth of all is enough to tell.
            if alike.of.len() >= samples.len() / 8 && alike.groups.len() > alike.of.len() / 2 {
                return None;
            }
        }
        Some(alike)
    }

    /// Adds a sample to this group. Returns `false` if there is no such group, or if its sums have no room.
    fn add(&mut self, number: u32, sample: &Sample) -> bool {
        let Some(group) = self.groups.get_mut(number as usize) else { return false };
        let sums = (group.weight.checked_add(sample.weight), group.observations.checked_add(sample.observations));
        let (Some(weight), Some(observations)) = sums else { return false };
        *group = Sample { time: group.time.max(sample.time), weight, observations, ..*group };
        true
    }

    /// Returns the bytes held.
    pub(super) fn memory(&self) -> usize {
        self.groups.capacity() * size_of::<Sample>() + self.of.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ids::StackId;

    #[test]
    fn a_run_that_begins_with_many_groups_has_them_and_a_set_of_stacks_has_none() {
        let groups = |stack: fn(u32) -> u32| {
            let mut samples = SampleStore::default();
            (0..20_000).for_each(|at| samples.push(Sample { stack: StackId(stack(at)), ..Sample::default() }));
            Alike::of(&samples).map(|alike| alike.groups.len())
        };
        assert_eq!(groups(|at| at.min(1_500)), Some(1_501));
        assert_eq!(groups(|at| at), None);
    }
}
