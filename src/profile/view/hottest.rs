//! The hottest address of each function, for code that needs one source line for a function.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::profile::{EventSource, FrameId, LabelId, Names, Profile, StackId};

/// The weight of an address: of the samples that end there, and of all samples that go through it.
type Weight = (u64, u64);

/// The most stacks that a search reads. It takes the newest ones. Callers hold the profile's lock meanwhile, and other users' samples wait.
/// A user whose programs make millions of stacks must not delay them.
const MOST_STACKS: usize = 1 << 19;

/// Returns the address of each of these functions where most samples ended. For functions that only call others, returns the address that
/// most samples went through. The heaviest come first.
///
/// Reads all samples in the store, or those of one source, if their stacks are among the newest 524,288. While it runs, it takes 8 bytes
/// for each stack and about 24 for each address.
pub fn hottest_addresses(
    profile: &Profile,
    names: &Names,
    source: Option<EventSource>,
    functions: impl Iterator<Item = LabelId>,
) -> Vec<(LabelId, FrameId)> {
    let mut by_function: FxHashMap<LabelId, (LabelId, FxHashMap<FrameId, Weight>)> =
        functions.map(|label| (names.labels.current(label), (label, FxHashMap::default()))).collect();
    let mut add = |label: LabelId, frame: FrameId, own: u64, total: u64| {
        if let Some((_, addresses)) = by_function.get_mut(&label) {
            let weight = addresses.entry(frame).or_default();
            *weight = (weight.0.saturating_add(own), weight.1.saturating_add(total));
        }
    };
    let oldest = profile.stacks.len().saturating_sub(MOST_STACKS).max(1);
    let place = |stack: StackId| (stack.0 as usize).checked_sub(oldest);
    let mut weights = vec![0u64; profile.stacks.len().saturating_sub(oldest)];
    for sample in profile.samples.slices_from(0).flatten().filter(|sample| source.is_none_or(|source| source == sample.source)) {
        if let Some(weight) = place(sample.stack).and_then(|place| weights.get_mut(place)) {
            *weight = weight.saturating_add(sample.weight);
        }
    }
    let stacks = || (oldest..profile.stacks.len()).rev().filter_map(|stack| u32::try_from(stack).ok()).map(StackId);
    for stack in stacks() {
        let own = place(stack).and_then(|place| weights.get(place)).copied().unwrap_or(0);
        let Some((_, frame)) = profile.stacks.split(stack).filter(|_| own > 0) else { continue };
        let mut innermost = None;
        names.labels_of(frame, |label| innermost = Some(label));
        if let Some(label) = innermost {
            add(label, frame, own, 0);
        }
    }
    // A stack comes after its callers. In reverse order, the weight of all its callees is already known.
    for stack in stacks() {
        let total = place(stack).and_then(|place| weights.get(place)).copied().unwrap_or(0);
        let Some((caller, frame)) = profile.stacks.split(stack).filter(|_| total > 0) else { continue };
        if let Some(weight) = place(caller).and_then(|place| weights.get_mut(place)) {
            *weight = weight.saturating_add(total);
        }
        names.labels_of(frame, |label| add(label, frame, 0, total));
    }
    let mut hottest: Vec<(Weight, LabelId, FrameId)> = by_function
        .into_values()
        .filter_map(|(label, addresses)| {
            let (frame, weight) = addresses.into_iter().max_by_key(|(frame, weight)| (*weight, Reverse(*frame)))?;
            Some((weight, label, frame))
        })
        .collect();
    hottest.sort_unstable_by_key(|(weight, label, _)| (Reverse(*weight), *label));
    hottest.into_iter().map(|(_, label, frame)| (label, frame)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FileOffset, Frame, FrameKind, Object, ObjectKind, Sample, Thread};

    #[test]
    fn the_address_with_most_samples_of_its_own_speaks_for_a_function() {
        let names = Names::default();
        let object = names.objects.intern(Object { kind: ObjectKind::Elf, path: "/usr/bin/shop".into(), ..Object::default() });
        let at = |offset| names.intern_frame(Frame::File { object, offset: FileOffset(offset), is_return: false }).0;
        let [main, call, cold, hot] = [1, 2, 3, 4].map(at);
        let label = |name: &str| names.labels.intern(name, "shop", FrameKind::User);
        let (of_main, parse, inlined) = (label("main"), label("parse"), label("inlined"));
        for (frame, labels) in [(main, vec![of_main]), (call, vec![parse]), (cold, vec![parse]), (hot, vec![parse, inlined])] {
            names.name_frame(frame, &labels);
        }
        let mut profile = Profile::default();
        let samples = [(vec![main, cold], 3), (vec![main, call, hot], 9), (vec![main, call], 1)];
        for (frames, weight) in samples {
            profile.record(Thread::default(), frames, Sample { weight, ..Sample::default() });
        }
        let other = Sample { weight: 99, source: EventSource(1), ..Sample::default() };
        profile.record(Thread::default(), [main, call], other);
        let functions = [of_main, parse, inlined, label("never seen")];
        let found = hottest_addresses(&profile, &names, Some(EventSource::CLOCK), functions.into_iter());
        // `hot` is in code that was inlined into `parse`: it is not the own weight of `parse`.
        assert_eq!(found, [(inlined, hot), (parse, cold), (of_main, main)]);
    }

    #[test]
    fn however_many_stacks_there_are_the_newest_are_looked_at() {
        let names = Names::default();
        let label = |name: &str| names.labels.intern(name, "", FrameKind::User);
        let (old, new) = (names.intern_named(label("old")), names.intern_named(label("new")));
        let mut profile = Profile::default();
        profile.record(Thread::default(), [old], Sample::default());
        let deep = |frame, depth: usize| std::iter::repeat_n(frame, depth);
        profile.stacks.intern(deep(new, MOST_STACKS));
        profile.record(Thread::default(), deep(new, 3), Sample::default());
        profile.record(Thread::default(), deep(new, MOST_STACKS), Sample::default());
        let found = hottest_addresses(&profile, &names, None, [label("old"), label("new")].into_iter());
        assert_eq!(found, [(label("new"), new)], "the stack of the old one is too old");
    }
}
