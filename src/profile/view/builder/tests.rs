//! Compares the view with a second one that counts all samples at once, and tests its special cases.

use crate::profile::FileOffset;
use crate::profile::Frame;
use crate::profile::FrameWeight;
use crate::profile::KernelAddress;
use crate::profile::ProcessAddress;
use crate::profile::view::timeline::SECOND;
use crate::profile::{CallTree, Thread};
use std::collections::BTreeMap;

mod alike;

use proptest::prelude::*;

use super::*;
use crate::profile::PARTS;
use crate::profile::view::fading::ONE;
use crate::profile::{Cpu, Direction, Filter, Folding, FrameKind, Grouping, Limits, Pattern, Searcher, Target, Tgid, Tid};

const NAMES: [&str; 6] = ["main", "alpha", "beta", "gamma", "alphabet", "_start"];
/// Functions with inlined functions, by number: the function, then the functions that were inlined into it.
const CHAINS: [[usize; 3]; 3] = [[0, 1, 2], [1, 4, 3], [2, 3, 4]];
/// The last of them belongs to an interpreter.
const OF_INTERPRETER: usize = 2;

struct World {
    names: Arc<Names>,
    profile: Profile,
}

fn world(limits: Limits) -> World {
    World { names: Arc::new(Names::default()), profile: Profile::new(limits) }
}

impl World {
    fn push(&mut self, time: u64, tgid: u32, path: &[usize]) {
        let process = self.names.labels.intern(if tgid.is_multiple_of(2) { "even" } else { "odd" }, "", FrameKind::Process);
        let thread = Thread { tgid: Tgid(tgid), tid: Tid(tgid), process, name: process, ..Thread::default() };
        let frames: Vec<_> = path.iter().map(|index| self.frame(*index)).collect();
        let sample = Sample { time: Timestamp(time), cpu: Cpu(0), user_end: UserEnd::FramePointerEnd, ..Sample::default() };
        self.profile.record(thread, frames, sample);
    }

    /// Makes a frame that is a name. For numbers past the names, makes an address with functions inlined into one another.
    fn frame(&self, index: usize) -> FrameId {
        let label = |name: usize, kind| self.names.labels.intern(NAMES[name], "", kind);
        let Some(chain) = index.checked_sub(NAMES.len()).map(|chain| CHAINS[chain]) else {
            return self.names.intern_named(label(index, FrameKind::User));
        };
        let frame = match index - NAMES.len() {
            OF_INTERPRETER => Frame::Interpreter { object: ObjectId::VDSO, offset: FileOffset(7), is_return: true },
            _ => Frame::Kernel { address: KernelAddress(index as u64), is_return: false },
        };
        let (id, new) = self.names.intern_frame(frame);
        if new {
            let kinds = [FrameKind::User, FrameKind::Inlined, FrameKind::Inlined];
            self.names.name_frame(id, &[0, 1, 2].map(|at| label(chain[at], kinds[at])));
        }
        id
    }

    fn folded(&self, tree: &CallTree) -> BTreeMap<String, u64> {
        let mut lines = BTreeMap::new();
        for (index, node) in tree.nodes().iter().enumerate().filter(|(_, node)| node.own > 0) {
            let path = tree.path(NodeId(index as u32));
            let line: Vec<_> = path.iter().map(|id| self.names.labels.name(tree.node(*id).label)).collect();
            *lines.entry(line.join(";")).or_default() += node.own;
        }
        lines
    }
}

fn expected(samples: &[(u64, u32, Vec<usize>)], query: &Query, now: u64, window: u64) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for (time, tgid, path) in samples {
        let group = if tgid.is_multiple_of(2) { "even" } else { "odd" };
        let shown = if query.folding.inlined { 1 } else { 3 };
        let labels = |index: &usize| match index.checked_sub(NAMES.len()) {
            None => vec![NAMES[*index]],
            Some(OF_INTERPRETER) if query.folding.interpreter => vec![],
            Some(chain) => CHAINS[chain].iter().take(shown).map(|name| NAMES[*name]).collect(),
        };
        let mut names: Vec<&str> = path.iter().flat_map(labels).collect();
        let within = match query.range {
            TimeRange::All => *time >= now.saturating_sub(window),
            TimeRange::Last(span) => *time >= now.saturating_sub(span),
            TimeRange::Between(from, to) => *time >= from.0 && *time < to.0,
            // Excluded here, see below: its weights are no counts.
            TimeRange::Fading(..) => false,
        };
        let passes = query.filters.iter().all(|filter| {
            let hit = names.iter().chain([&group]).any(|name| filter.pattern.matches(name));
            hit == (filter.mode == FilterMode::Keep)
        });
        if !within || !passes || !(query.target.tgids.is_empty() || query.target.tgids.contains(&Tgid(*tgid))) {
            continue;
        }
        let label = match query.grouping {
            Grouping::Process => format!("{group} {tgid}"),
            _ => group.to_owned(),
        };
        if query.folding.recursion {
            names.dedup();
        }
        let line: Vec<&str> = match query.direction {
            Direction::TopDown => std::iter::once(&*label).chain(names).collect(),
            Direction::BottomUp => names.into_iter().rev().chain([&*label]).collect(),
        };
        *lines.entry(line.join(";")).or_default() += 1;
    }
    lines
}

fn queries() -> impl Strategy<Value = Query> {
    let range = prop_oneof![
        Just(TimeRange::All),
        (1u64..4000).prop_map(TimeRange::Last),
        (0u64..3000, 0u64..3000).prop_map(|(a, b)| TimeRange::Between(Timestamp(a), Timestamp(a + b))),
    ];
    let filter =
        (any::<bool>(), prop_oneof![Just("alpha"), Just("^beta$"), Just("even"), Just("z")]).prop_map(|(keep, source)| Filter {
            mode: if keep { FilterMode::Keep } else { FilterMode::Drop },
            pattern: Pattern::new(source).unwrap(),
        });
    let target = prop_oneof![3 => Just(vec![]), 1 => Just(vec![Tgid(2)]), 1 => Just(vec![Tgid(1), Tgid(3)])];
    (range, prop::collection::vec(filter, 0..3), target, any::<[bool; 5]>()).prop_map(
        |(range, filters, tgids, [up, apart, inlined, interpreter, recursion])| Query {
            range,
            filters,
            target: Target { tgids, ..Target::default() },
            source: None,
            direction: if up { Direction::BottomUp } else { Direction::TopDown },
            grouping: if apart { Grouping::Process } else { Grouping::Name },
            folding: Folding { inlined, interpreter, recursion },
            without_idle: false,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// However samples arrive and leave, the picture equals the one from counting all of them at once.
    #[test]
    fn an_updated_view_equals_one_made_at_once(
        query in queries(),
        samples in prop::collection::vec((1u64..5, 1u32..5, prop::collection::vec(0usize..NAMES.len() + CHAINS.len(), 0..5)), 1..2600),
        every in 1usize..700,
        window in prop_oneof![Just(u64::MAX), 500u64..5000],
        budget in prop_oneof![Just(usize::MAX), 1usize..500],
    ) {
        let mut world = world(Limits { window, memory: usize::MAX });
        let mut builder = ViewBuilder::new(Arc::clone(&world.names), query.clone());
        let (mut now, mut all) = (0, Vec::new());
        for (index, (step, tgid, path)) in samples.into_iter().enumerate() {
            now += step;
            world.push(now, tgid, &path);
            all.push((now, tgid, path));
            if index % every == 0 {
                world.profile.trim(Timestamp(now));
                while builder.update(&world.profile, Timestamp(now), budget) == Progress::More {}
            }
        }
        while builder.update(&world.profile, Timestamp(now), budget) == Progress::More {}
        let kept = &all[usize::try_from(world.profile.samples.first()).unwrap()..];
        let tree = builder.tree();
        prop_assert_eq!(world.folded(&tree), expected(kept, &query, now, window));
        prop_assert_eq!(builder.totals(Timestamp(now)).weight, tree.total());
        let shown: u64 = builder.activity(&world.profile, Timestamp(now)).iter().map(|row| row.weights.shown).sum();
        prop_assert_eq!(shown, tree.total());
    }
}

#[test]
fn a_folded_recursion_is_one_node_that_tells_how_deep_it_went() {
    const MAIN: usize = 0;
    const FIB: usize = 1;
    const LEAF: usize = 2;
    let mut world = world(Limits::NONE);
    for (at, path) in
        [&[MAIN, FIB, FIB, FIB, FIB, LEAF][..], &[MAIN, FIB], &[MAIN, FIB, FIB], &[MAIN, LEAF, FIB, LEAF]].iter().enumerate()
    {
        world.push(at as u64, 2, path);
    }
    let tree = |direction| {
        let folding = Folding { recursion: true, ..Folding::default() };
        let query = Query { folding, direction, grouping: Grouping::Name, ..Query::default() };
        let mut builder = ViewBuilder::new(Arc::clone(&world.names), query);
        // Two at a time, so that later stacks continue earlier ones.
        while builder.update(&world.profile, Timestamp(9), 2) == Progress::More {}
        builder.tree()
    };
    let repeats = |tree: &CallTree| {
        let of = |id: NodeId| {
            tree.path(id).iter().map(|id| world.names.labels.name(tree.node(*id).label)).collect::<Vec<_>>().join(";")
        };
        let ids = (0..tree.nodes().len()).map(|id| NodeId(id as u32));
        let repeated: Vec<_> =
            ids.filter(|id| tree.repeats(*id) > 1).map(|id| (of(id), tree.repeats(id), tree.node(id).own)).collect();
        repeated
    };
    let down = tree(Direction::TopDown);
    assert_eq!(repeats(&down), [("even;main;alpha".to_owned(), 4, 2)]);
    let lines = [("even;main;alpha", 2), ("even;main;alpha;beta", 1), ("even;main;beta;alpha;beta", 1)];
    assert_eq!(world.folded(&down), lines.map(|(line, weight)| (line.to_owned(), weight)).into());
    let up = tree(Direction::BottomUp);
    assert_eq!(repeats(&up), [("beta;alpha".to_owned(), 4, 0), ("alpha".to_owned(), 2, 0)]);
}

#[test]
fn a_process_that_exits_or_is_in_execve_has_no_stack_to_miss() {
    let mut world = world(Limits::NONE);
    let frame = world.frame(0);
    let ends = [UserEnd::Root, UserEnd::Gap, UserEnd::NoMemory, UserEnd::Registers, UserEnd::KernelThread, UserEnd::Unspecified];
    for user_end in ends {
        world.profile.record(Thread::default(), [frame], Sample { user_end, ..Sample::default() });
    }
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(9), usize::MAX);
    let totals = builder.totals(Timestamp(9));
    assert_eq!((totals.weight, totals.user, totals.complete), (6, 2, 1));
    assert_eq!(totals.reasons(), [(UserEnd::Gap, 1)]);
    assert_eq!(totals.ends[UserEnd::NoMemory as usize], 1, "it is told all the same");
}

#[test]
fn code_without_a_name_is_no_recursion() {
    let mut world = world(Limits::NONE);
    let label = world.names.labels.intern("[anon]", "[jit]", FrameKind::Jit);
    let frame = world.names.intern_named(label);
    let process = world.names.labels.intern("java", "", FrameKind::Process);
    world.profile.record(Thread { process, ..Thread::default() }, [frame; 3], Sample::default());
    let folding = Folding { recursion: true, ..Folding::default() };
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query { folding, ..Query::default() });
    builder.update(&world.profile, Timestamp(9), usize::MAX);
    assert_eq!(world.folded(&builder.tree()), BTreeMap::from([("java;[anon];[anon];[anon]".to_owned(), 1)]));
}

#[test]
fn a_new_name_moves_samples_to_the_function_they_belong_to() {
    let mut world = world(Limits::NONE);
    let process = world.names.labels.intern("cc1", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(9), tid: Tid(9), process, name: process, ..Thread::default() };
    let frame = |address| Frame::Kernel { address: KernelAddress(address), is_return: false };
    let (a, _) = world.names.intern_frame(frame(0x10));
    let (b, _) = world.names.intern_frame(frame(0x18));
    for frame in [a, b] {
        world.profile.record(thread, [frame], Sample { ..Sample::default() });
    }
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    assert_eq!(world.folded(&builder.tree()).len(), 2);
    let label = world.names.labels.intern("do_idle", "kernel", FrameKind::Kernel);
    world.names.name_frame(a, &[label]);
    world.names.name_frame(b, &[label]);
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    assert_eq!(world.folded(&builder.tree()), BTreeMap::from([("cc1;do_idle".to_owned(), 2)]));
}

#[test]
fn a_stack_without_its_outermost_functions_is_incomplete_and_no_file_is_blamed() {
    let mut world = world(Limits::NONE);
    let start = world.names.intern_named(world.names.labels.intern("_start", "python3", FrameKind::User));
    for (user_end, weight) in [(UserEnd::Functions, 3), (UserEnd::Root, 5)] {
        world.profile.record(Thread::default(), [start], Sample { user_end, weight, ..Sample::default() });
    }
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    let totals = builder.totals;
    assert_eq!((totals.user, totals.complete, totals.incomplete[UserEnd::Functions as usize]), (8, 5, 3));
    assert!(builder.short_stacks(Timestamp(0)).is_empty());
}

#[test]
fn jit_code_is_one_box_until_names_come_and_then_one_for_each_function_of_all_processes() {
    let mut world = world(Limits::NONE);
    let process = world.names.labels.intern("node", "", FrameKind::Process);
    let frames: Vec<FrameId> = [1, 2]
        .into_iter()
        .map(|tgid| {
            let object = world.names.jit_object(Default::default(), Tgid(tgid), u64::from(tgid));
            let thread = Thread { tgid: Tgid(tgid), tid: Tid(tgid), process, name: process, ..Thread::default() };
            let frame = |address| {
                world.names.intern_frame(Frame::Process { object, address: ProcessAddress(address), is_return: false }).0
            };
            let (a, b) = (frame(0x10), frame(0x18));
            for frame in [a, b] {
                world.profile.record(thread, [frame], Sample { user_end: UserEnd::Anonymous, ..Sample::default() });
            }
            a
        })
        .collect();
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    assert_eq!(world.folded(&builder.tree()), BTreeMap::from([("node;[anon]".to_owned(), 4)]));
    let short: Vec<_> = builder.short_stacks(Timestamp(0)).into_iter().map(|short| (short.object, short.weight)).collect();
    assert_eq!(short, [("[anon]".into(), 4)], "why stacks end is told once for all processes");
    let changes = builder.changes();
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    assert_eq!(builder.changes(), changes, "nothing has got a name");
    let label = world.names.labels.intern("JS:*run", "[jit]", FrameKind::Jit);
    frames.iter().for_each(|frame| world.names.name_frame(*frame, &[label]));
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    let expected = BTreeMap::from([("node;[anon]".to_owned(), 2), ("node;JS:*run".to_owned(), 2)]);
    assert_eq!(world.folded(&builder.tree()), expected);
}

#[test]
fn two_frames_of_one_address_are_named_one_by_one() {
    let mut world = world(Limits::NONE);
    let process = world.names.labels.intern("cc1", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(9), tid: Tid(9), process, name: process, ..Thread::default() };
    let frame = |is_return| Frame::Kernel { address: KernelAddress(0x10), is_return };
    let (a, b) = (world.names.intern_frame(frame(false)).0, world.names.intern_frame(frame(true)).0);
    for frame in [a, b] {
        world.profile.record(thread, [frame], Sample { ..Sample::default() });
    }
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    world.names.name_frame(a, &[world.names.labels.intern("do_idle", "kernel", FrameKind::Kernel)]);
    let steps = (0..9).take_while(|_| builder.update(&world.profile, Timestamp(0), 1) == Progress::More).count();
    assert_eq!(steps, 1, "one of them has its name for good, the other waits for its own");
    assert_eq!(world.folded(&builder.tree()).len(), 2);
}

#[test]
fn branches_of_processes_that_are_gone_are_not_kept() {
    let mut world = world(Limits { window: SECOND, memory: usize::MAX });
    let query = Query { grouping: Grouping::Process, ..Query::default() };
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), query);
    for i in 0..60_000u64 {
        world.push(i * SECOND / 1000, u32::try_from(i).unwrap(), &[0, 1, 2, 3]);
        if i % 1000 == 0 {
            world.profile.trim(Timestamp(i * SECOND / 1000));
            builder.update(&world.profile, Timestamp(i * SECOND / 1000), usize::MAX);
            let tree = builder.tree();
            builder.tidy(&tree);
        }
    }
    assert!(builder.tree().nodes().len() < 100_000, "{}", builder.tree().nodes().len());
    assert!(world.profile.threads.rows().len() < 40_000, "{}", world.profile.threads.rows().len());
}

#[test]
fn a_stack_is_complete_when_its_root_is_an_entry() {
    let mut world = world(Limits::NONE);
    world.push(1, 1, &[5, 0, 1]);
    world.push(2, 1, &[0, 1]);
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(2), usize::MAX);
    let totals = builder.totals(Timestamp(2));
    assert_eq!((totals.weight, totals.user, totals.complete), (2, 2, 1));
    assert_eq!(
        totals.reasons(),
        [(UserEnd::FramePointerEnd, 1)],
        "one that ended in the same way is complete by its function's name"
    );
}

/// Pictures of a past that fades, over many half-lives, compared with each sample's weight by definition.
#[test]
fn what_is_a_half_life_older_weighs_half() {
    const HALF_LIFE: u64 = 1000;
    let mut world = world(Limits { window: u64::MAX, memory: usize::MAX });
    let query = Query { range: TimeRange::Fading(HALF_LIFE, Timestamp(u64::MAX)), ..Query::default() };
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), query);
    let path = |i: u64| [0, 1 + (i / 900 % 3) as usize];
    for i in 0..60_000u64 {
        world.push(i, 1, &path(i));
        if i % 777 != 0 || i == 0 {
            continue;
        }
        while builder.update(&world.profile, Timestamp(i), 5000) == Progress::More {}
        let mut tree = builder.tree();
        builder.fade(&mut tree, ONE, Timestamp(i));
        let mut wanted = BTreeMap::<String, f64>::new();
        for at in i.saturating_sub(12 * HALF_LIFE)..=i {
            let age = (i - at) as f64 / HALF_LIFE as f64;
            *wanted.entry(format!("odd;main;{}", NAMES[path(at)[1]])).or_default() += 0.5f64.powf(age) * ONE as f64;
        }
        for (path, weight) in world.folded(&tree) {
            let wanted = wanted[&path];
            assert!((weight as f64 - wanted).abs() <= wanted * 0.01 + 8.0, "{path} at {i}: {weight}, not {wanted}");
        }
        let samples = builder.totals(Timestamp(i)).weight as f64;
        let all = wanted.values().sum::<f64>() / ONE as f64;
        assert!((samples - all).abs() <= all * 0.01 + 2.0, "{samples} samples at {i}, not {all}");
    }
    // A weight that has almost faded is still shown: a process that ran once, eight half-lives before the end.
    let process = world.names.labels.intern("even", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(2), tid: Tid(2), process, name: process, ..Thread::default() };
    let main = world.names.intern_named(world.names.labels.intern("main", "", FrameKind::User));
    let once = Sample { time: Timestamp(60_000), user_end: UserEnd::Gap, ..Sample::default() };
    world.profile.record(thread, [main], once);
    for i in 60_001..68_000 {
        world.push(i, 1, &path(i));
    }
    let now = Timestamp(68_000);
    while builder.update(&world.profile, now, 5000) == Progress::More {}
    let (rows, short) = (builder.activity(&world.profile, now), builder.short_stacks(now));
    assert!(rows.len() == 1 && rows[0].weights.all > 0, "{rows:?}");
    assert!(!short.is_empty() && short.iter().all(|short| short.weight > 0 && short.end != UserEnd::Gap), "{short:?}");
    // A frozen picture is as of its moment: later samples are not in it.
    let until = Timestamp(30_500);
    builder.set_query(Query { range: TimeRange::Fading(HALF_LIFE, until), ..Query::default() });
    let mut pictures = [Timestamp(60_000), Timestamp(90_000)].map(|now| {
        while builder.update(&world.profile, now, usize::MAX) == Progress::More {}
        let mut tree = builder.tree();
        builder.fade(&mut tree, ONE, now);
        world.folded(&tree)
    });
    assert!(!pictures[0].is_empty());
    assert_eq!(std::mem::take(&mut pictures[0]), pictures[1]);
}

#[test]
fn a_search_counts_each_sample_once() {
    let mut world = world(Limits::NONE);
    world.push(1, 1, &[0, 1, 4]);
    world.push(2, 1, &[0, 2]);
    world.push(3, 1, &[0, 4]);
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(3), usize::MAX);
    let found = Searcher::new(Arc::clone(&world.names), Pattern::new("alpha").unwrap()).search(&builder.tree());
    assert_eq!((found.weight, found.nodes), (2, 3));
}

#[test]
fn the_timeline_has_one_weight_a_second_and_forgets_what_the_store_forgot() {
    let mut world = world(Limits { window: 3 * SECOND, memory: usize::MAX });
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    for i in 0..5000u64 {
        world.push(i * SECOND / 500, 1, &[0]);
        if i % 100 == 0 {
            builder.update(&world.profile, Timestamp(i * SECOND / 500), usize::MAX);
        }
    }
    world.profile.trim(Timestamp(10 * SECOND));
    builder.update(&world.profile, Timestamp(10 * SECOND), usize::MAX);
    let heat = builder.heat(Timestamp(12 * SECOND));
    let sums: Vec<u64> = heat.seconds.iter().map(|slots| slots.iter().sum::<u64>() / PARTS).collect();
    assert_eq!((heat.first_second, sums), {
        let timeline = builder.timeline(Timestamp(12 * SECOND));
        (timeline.first_second, timeline.weights)
    });
    assert!(heat.seconds[1].iter().all(|slot| *slot == 10 * PARTS), "500 a second, evenly: {:?}", heat.seconds[1]);
    let timeline = builder.timeline(Timestamp(12 * SECOND));
    assert_eq!(timeline.weights.last(), Some(&0), "nothing has run for two seconds");
    assert_eq!(timeline.weights.iter().sum::<u64>(), world.profile.samples.len() as u64);
    assert_eq!(timeline.first_second, world.profile.samples.first_time().unwrap().0 / SECOND);
}

#[test]
fn a_timeline_asked_for_before_the_first_sample_does_not_begin_when_the_machine_did() {
    const UP: u64 = 30 * 86_400;
    let mut world = world(Limits { window: 600 * SECOND, memory: usize::MAX });
    let mut builder = ViewBuilder::new(Arc::clone(&world.names), Query::default());
    builder.update(&world.profile, Timestamp(UP * SECOND), usize::MAX);
    assert_eq!(builder.timeline(Timestamp(UP * SECOND)).weights, [0]);
    // The sample was taken before the update, and arrives after it.
    world.push((UP - 1) * SECOND, 1, &[0]);
    builder.update(&world.profile, Timestamp(UP * SECOND), usize::MAX);
    let timeline = builder.timeline(Timestamp(UP * SECOND));
    assert_eq!((timeline.first_second, timeline.weights), (UP - 1, vec![1, 0]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However samples arrive and leave, each address has the weight that counting all samples at once would give it.
    #[test]
    fn addresses_weigh_what_their_samples_do(
        query in queries(),
        samples in prop::collection::vec((1u64..5, 1u32..5, prop::collection::vec(0usize..NAMES.len() + CHAINS.len(), 0..6)), 1..2600),
        every in 1usize..700,
        window in prop_oneof![Just(u64::MAX), 500u64..5000],
        budget in prop_oneof![Just(usize::MAX), 1usize..500],
        of in 0usize..NAMES.len(),
    ) {
        let mut world = world(Limits { window, memory: usize::MAX });
        let kind = |kind| world.names.labels.intern(NAMES[of], "", kind);
        let wanted = [kind(FrameKind::User), kind(FrameKind::Inlined)][samples.len() % 2];
        let (mut now, mut all) = (0, Vec::new());
        let mut builder = ViewBuilder::of_addresses(Arc::clone(&world.names), query.clone(), wanted);
        for (index, (step, tgid, path)) in samples.into_iter().enumerate() {
            now += step;
            world.push(now, tgid, &path);
            all.push((now, tgid, path));
            if index % every == 0 {
                world.profile.trim(Timestamp(now));
                while builder.update(&world.profile, Timestamp(now), budget) == Progress::More {}
            }
        }
        while builder.update(&world.profile, Timestamp(now), budget) == Progress::More {}
        let labels = |index: usize| {
            let mut labels = Vec::new();
            world.names.labels_shown(world.frame(index), query.folding, |label| labels.push(label));
            labels
        };
        let (mut weights, mut whole) = (BTreeMap::<FrameId, (u64, u64)>::new(), (0, 0));
        for sample in &all[usize::try_from(world.profile.samples.first()).unwrap()..] {
            if expected(std::slice::from_ref(sample), &query, now, window).is_empty() {
                continue;
            }
            let mut frames: Vec<usize> = sample.2.iter().copied().filter(|index| labels(*index).contains(&wanted)).collect();
            whole.1 += u64::from(!frames.is_empty());
            frames.sort_unstable();
            frames.dedup();
            frames.iter().for_each(|index| weights.entry(world.frame(*index)).or_default().1 += 1);
            let leaf = sample.2.iter().rev().find(|index| !labels(**index).is_empty());
            if let Some(leaf) = leaf.filter(|leaf| labels(**leaf).last() == Some(&wanted)) {
                weights.entry(world.frame(*leaf)).or_default().0 += 1;
                whole.0 += 1;
            }
        }
        let found = builder.addresses(1, Timestamp(now));
        prop_assert_eq!((found.own, found.total), whole);
        let ordered = found.frames.windows(2).all(|two| two[0].rank() >= two[1].rank());
        prop_assert!(ordered, "the heaviest first");
        let found: BTreeMap<FrameId, (u64, u64)> = found.frames.iter().map(|row| (row.frame, (row.own, row.total))).collect();
        prop_assert_eq!(found, weights);
    }
}

#[test]
fn addresses_follow_names_that_come_later() {
    let mut world = world(Limits::NONE);
    let process = world.names.labels.intern("cc1", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(9), tid: Tid(9), process, name: process, ..Thread::default() };
    let at = |address| world.names.intern_frame(Frame::Kernel { address: KernelAddress(address), is_return: false }).0;
    let (early, late) = (at(0x10), at(0x18));
    for frame in [early, late, late] {
        world.profile.record(thread, [frame], Sample { ..Sample::default() });
    }
    let label = world.names.labels.intern("do_idle", "kernel", FrameKind::Kernel);
    world.names.name_frame(early, &[label]);
    let mut builder = ViewBuilder::of_addresses(Arc::clone(&world.names), Query::default(), label);
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    assert_eq!(builder.addresses(1, Timestamp(0)).total, 1);
    world.names.name_frame(late, &[label]);
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    let found = builder.addresses(1, Timestamp(0));
    assert_eq!((found.total, found.frames[0]), (3, FrameWeight { frame: late, own: 2, total: 2 }));
}

#[test]
fn addresses_without_a_name_are_counted_together() {
    let mut world = world(Limits::NONE);
    let process = world.names.labels.intern("prog", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(9), tid: Tid(9), process, name: process, ..Thread::default() };
    let path = "/bin/prog".into();
    let elf = crate::profile::Object { kind: ObjectKind::Elf, path, build_id: None, file: Some((1, 1)), ..Default::default() };
    let object = world.names.objects.intern(elf);
    let at = |address| world.names.intern_frame(Frame::File { object, offset: FileOffset(address), is_return: false }).0;
    let frames = [at(0x10), at(0x18), at(0x20)];
    let known = world.names.labels.intern("known", "prog", FrameKind::User);
    world.names.name_frame(frames[2], &[known]);
    for frame in frames {
        world.profile.record(thread, [frame], Sample { ..Sample::default() });
    }
    let mut label = LabelId(0);
    world.names.labels_of(frames[0], |found| label = found);
    let mut builder = ViewBuilder::of_addresses(Arc::clone(&world.names), Query::default(), label);
    builder.update(&world.profile, Timestamp(0), usize::MAX);
    let found = builder.addresses(1, Timestamp(0));
    assert_eq!((found.label, found.own, found.frames.len()), (label, 2, 2));
}

#[test]
fn what_is_found_to_be_inlined_comes_into_trees_filters_and_addresses() {
    let mut world = world(Limits::NONE);
    let process = world.names.labels.intern("cc1", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(9), tid: Tid(9), process, name: process, ..Thread::default() };
    let label = |name, kind| world.names.labels.intern(name, "cc1", kind);
    let (outer, inner) = (label("outer", FrameKind::User), label("inner", FrameKind::Inlined));
    let at = |address| world.names.intern_frame(Frame::Kernel { address: KernelAddress(address), is_return: false }).0;
    let (frame, other) = (at(0x10), at(0x20));
    world.names.name_frame(frame, &[outer]);
    world.names.name_frame(other, &[outer]);
    world.profile.record(thread, [frame], Sample { ..Sample::default() });
    let keep = Filter { mode: FilterMode::Keep, pattern: Pattern::new("inner").unwrap() };
    let queries = [
        Query::default(),
        Query { direction: Direction::BottomUp, ..Query::default() },
        Query { filters: vec![keep], ..Query::default() },
    ];
    let mut views: Vec<_> = queries.map(|query| ViewBuilder::new(Arc::clone(&world.names), query)).into();
    views.push(ViewBuilder::of_addresses(Arc::clone(&world.names), Query::default(), inner));
    let update = |views: &mut Vec<ViewBuilder>| {
        let mut all = Vec::new();
        for view in views {
            view.update(&world.profile, Timestamp(0), usize::MAX);
            let folded: Vec<String> = world.folded(&view.tree()).into_keys().collect();
            all.push((folded.join(" "), view.addresses(1, Timestamp(0)).own, view.changes()));
        }
        all
    };
    let before = update(&mut views);
    assert_eq!(before.iter().map(|(folded, ..)| &**folded).collect::<Vec<_>>(), ["cc1;outer", "outer;cc1", "", ""]);
    world.names.name_frame(other, &[outer, inner]);
    assert!(update(&mut views) == before, "nothing that was looked at has changed");
    world.names.name_frame(frame, &[outer, inner]);
    let after = update(&mut views);
    let folded: Vec<_> = after.iter().map(|(folded, ..)| &**folded).collect();
    assert_eq!(folded, ["cc1;outer;inner", "inner;outer;cc1", "cc1;outer;inner", ""]);
    assert_eq!((before[3].1, after[3].1), (0, 1));
    assert!(update(&mut views) == after);
}
