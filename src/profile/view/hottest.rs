//! The heaviest addresses of each function, for code that needs one source line for a function.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::profile::{ADDRESSES_OF_A_LINE, EventSource, FrameId, FrameWeight, LabelId, Names, Profile, StackId};

/// The weight of an address: of the samples that end there, and of all samples that go through it.
type Weight = (u64, u64);

/// The most stacks that a search reads. It takes the newest ones. Callers hold the profile's lock meanwhile, and other users' samples wait.
/// A user whose programs make millions of stacks must not delay them.
const MOST_STACKS: usize = 1 << 19;
/// Most callers of an address among which it is looked for. In a recursion over more frames, a sample may count several times.
const MOST_CALLERS: usize = 64;

/// Returns the heaviest addresses of each of these functions, [`ADDRESSES_OF_A_LINE`] at most. Functions and addresses with the most weight
/// come first: see [`FrameWeight::rank`]. Leaves out functions whose [`Names::users_differ`].
///
/// Reads all samples in the store, or those of one source, if their stacks are among the newest 524,288. While it runs, it takes 16 bytes
/// for each stack and about 24 for each address.
pub fn heaviest_addresses(
    profile: &Profile,
    names: &Names,
    source: Option<EventSource>,
    functions: impl Iterator<Item = LabelId>,
) -> Vec<(LabelId, Vec<FrameWeight>)> {
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
    let above = callers_of(profile, oldest);
    // A stack comes after its callers. In reverse order, the weight of all its callees is already known.
    for stack in stacks() {
        let total = place(stack).and_then(|place| weights.get(place)).copied().unwrap_or(0);
        let Some((caller, frame)) = profile.stacks.split(stack).filter(|_| total > 0) else { continue };
        if let Some(weight) = place(caller).and_then(|place| weights.get_mut(place)) {
            *weight = weight.saturating_add(total);
        }
        // In a recursion, each sample counts once: at the outermost of its stacks that end with this address.
        let may_recur = place(stack).and_then(|place| above.get(place)).is_none_or(|above| above & bit_of(frame) != 0);
        if !may_recur || !profile.stacks.frames(caller).take(MOST_CALLERS).any(|above| above == frame) {
            names.labels_of(frame, |label| add(label, frame, 0, total));
        }
    }
    let mut heaviest: Vec<(LabelId, Vec<FrameWeight>)> = by_function
        .into_values()
        .filter(|(_, addresses)| !addresses.is_empty() && !names.users_differ(addresses.keys().copied()))
        .map(|(label, addresses)| {
            let weights = addresses.into_iter().map(|(frame, (own, total))| FrameWeight { frame, own, total });
            let mut weights: Vec<FrameWeight> = weights.collect();
            weights.sort_unstable_by_key(|weight| (Reverse(weight.rank()), weight.frame));
            weights.truncate(ADDRESSES_OF_A_LINE);
            (label, weights)
        })
        .collect();
    heaviest.sort_unstable_by_key(|(label, weights)| (Reverse(weights.first().map(FrameWeight::rank)), *label));
    heaviest
}

/// Returns the bit of a frame in a set of frames: different frames may have the same.
fn bit_of(frame: FrameId) -> u64 {
    1 << (frame.0.wrapping_mul(0x9e37_79b9) >> 26)
}

/// Returns for each stack from `oldest` on the set of the frames that call its innermost frame. A stack whose callers are older has all.
fn callers_of(profile: &Profile, oldest: usize) -> Vec<u64> {
    let mut above = vec![0u64; profile.stacks.len().saturating_sub(oldest)];
    for place in 0..above.len() {
        let split = |stack: usize| profile.stacks.split(StackId(u32::try_from(stack).ok()?));
        let Some((caller, _)) = split(oldest + place) else { continue };
        let caller = caller.0 as usize;
        let of_caller = match (split(caller), caller.checked_sub(oldest).and_then(|caller| above.get(caller))) {
            // The root.
            (None, _) => 0,
            (Some((_, frame)), Some(above)) => above | bit_of(frame),
            (Some(_), None) => u64::MAX,
        };
        above.iter_mut().skip(place).take(1).for_each(|above| *above = of_caller);
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FileOffset, Frame, FrameKind, Language, Object, ObjectKind, Sample, Thread, UserId};

    #[test]
    fn the_heaviest_addresses_speak_for_a_function() {
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
        let found = heaviest_addresses(&profile, &names, Some(EventSource::CLOCK), functions.into_iter());
        let weight = |frame, own, total| FrameWeight { frame, own, total };
        // `hot` is in code that was inlined into `parse`: it is not the own weight of `parse`.
        let of_parse = vec![weight(call, 1, 10), weight(hot, 0, 9), weight(cold, 3, 3)];
        assert_eq!(found, [(of_main, vec![weight(main, 0, 13)]), (parse, of_parse), (inlined, vec![weight(hot, 9, 9)])]);
    }

    #[test]
    fn a_function_of_different_files_of_different_users_has_no_line() {
        let names = Names::default();
        let label = |name: &str| names.labels.intern(name, "app.py", FrameKind::Script(Language::Python));
        let mut profile = Profile::default();
        let mut sample = |function: &str, path: &str, user: u32| {
            let user = UserId(user);
            let object = names.objects.intern(Object { kind: ObjectKind::Script, path: path.into(), user, ..Object::default() });
            let frame = names.intern_frame(Frame::File { object, offset: FileOffset(1), is_return: false }).0;
            names.name_frame(frame, &[label(function)]);
            profile.record(Thread::default(), [frame], Sample { weight: 1, ..Sample::default() });
        };
        for (path, user) in [("/srv/app.py", 0), ("/home/u/app.py", 1000)] {
            sample("work", path, user);
        }
        for (path, user) in [("/usr/lib/app.py", 0), ("/usr/lib/app.py", 1000)] {
            sample("shared", path, user);
        }
        for path in ["/srv/one/app.py", "/srv/two/app.py"] {
            sample("own", path, 0);
        }
        let found = heaviest_addresses(&profile, &names, None, ["work", "shared", "own"].map(label).into_iter());
        let mut labels: Vec<LabelId> = found.iter().map(|(label, _)| *label).collect();
        labels.sort_unstable();
        assert_eq!(labels, ["shared", "own"].map(label));
    }

    #[test]
    fn a_recursion_counts_each_sample_once() {
        let names = Names::default();
        let label = |name: &str| names.labels.intern(name, "", FrameKind::User);
        let (walk, work) = (names.intern_named(label("walk")), names.intern_named(label("work")));
        let mut profile = Profile::default();
        profile.record(Thread::default(), [walk, walk, walk, work], Sample { weight: 5, ..Sample::default() });
        let found = heaviest_addresses(&profile, &names, None, [label("walk")].into_iter());
        assert_eq!(found, [(label("walk"), vec![FrameWeight { frame: walk, own: 0, total: 5 }])]);
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
        let found = heaviest_addresses(&profile, &names, None, [label("old"), label("new")].into_iter());
        let found: Vec<_> = found.iter().map(|(label, weights)| (*label, weights[0].frame)).collect();
        assert_eq!(found, [(label("new"), new)], "the stack of the old one is too old");
    }
}
