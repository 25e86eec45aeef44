//! Compares the counts of groups of samples with those of the samples themselves.

use super::*;
use crate::profile::{Capabilities, Clock};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Samples that count alike are counted together in a profile that no longer changes.
    #[test]
    fn groups_of_samples_count_as_their_samples_do(
        query in queries(),
        stacks in prop::collection::vec((1u32..5, prop::collection::vec(0usize..NAMES.len() + CHAINS.len(), 0..5)), 1..6),
        samples in prop::collection::vec((0u64..30_000_000, any::<prop::sample::Index>(), 0u16..3, 0usize..4, 1u64..5), 100..400),
    ) {
        let ends = [UserEnd::Root, UserEnd::Gap, UserEnd::FramePointerEnd, UserEnd::NoMemory];
        let worlds = [Profile::new(Limits::NONE), Profile::fixed(Capabilities::LIVE)].map(|profile| {
            let mut world = World { names: Arc::new(Names::default()), profile };
            let clock = Clock { period: SECOND / 99, cpus: 3, since: Timestamp(0), until: None };
            world.profile.set_clock(clock);
            let mut time = SECOND;
            for (step, stack, cpu, end, weight) in &samples {
                time += step;
                let (tgid, path) = &stacks[stack.index(stacks.len())];
                world.push(time, *tgid, path);
                let pushed = *world.profile.samples.get(world.profile.samples.end() - 1).unwrap();
                let sample = Sample { cpu: Cpu(*cpu), user_end: ends[*end], weight: *weight, time: Timestamp(time + 1), ..pushed };
                world.profile.samples.push(sample);
            }
            world
        });
        let answers = worlds.each_ref().map(|world| {
            let mut builder = ViewBuilder::new(Arc::clone(&world.names), query.clone());
            let now = world.profile.samples.last_time().unwrap();
            while builder.update(&world.profile, now, 50) == Progress::More {}
            let mut rows = builder.activity(&world.profile, now);
            rows.sort_by_key(|row| row.thread.tid.0);
            let mut short: Vec<String> = builder.short_stacks(now).iter().map(|short| format!("{short:?}")).collect();
            short.sort();
            let times = (builder.timeline(now), builder.heat(now));
            (world.folded(&builder.tree()), builder.totals(now), builder.cpus(now), times, rows, short)
        });
        let is_grouped = worlds[1].profile.alike().is_some();
        prop_assert!(is_grouped && worlds[0].profile.alike().is_none());
        let [each, grouped] = answers;
        prop_assert_eq!(each, grouped);
    }
}
