//! Tests of names that are copied to new tables or dropped.

use crate::profile::FileOffset;
use std::sync::RwLock;

use super::*;
use crate::profile::{
    Engine, FrameKind, Grouping, Limits, Mark, NodeId, Object, ObjectKind, Query, Request, Sample, Snapshot, Tgid, Thread, Tid,
    UserId,
};

const SECOND: u64 = 1_000_000_000;
const LIMITS: Limits = Limits { window: 10 * SECOND, memory: 64_000_000 };

struct World {
    names: Arc<Names>,
    profile: Arc<RwLock<Profile>>,
    renewals: Renewals,
    now: u64,
}

impl World {
    fn new() -> World {
        let names = Arc::new(Names::bounded(LIMITS.names()));
        let profile = Arc::new(RwLock::new(Profile::beside(&names, LIMITS)));
        World { names, profile, renewals: Renewals::default(), now: 100 * SECOND }
    }

    fn object(&self, path: &str, user: u32) -> ObjectId {
        let (kind, user) = (ObjectKind::Elf, UserId(user));
        self.names.objects.intern(Object { kind, path: path.into(), file: Some((1, 2)), user, ..Object::default() })
    }

    /// Returns the frame of an address, and whether it is new.
    fn at(&self, object: ObjectId, address: u64) -> (FrameId, bool) {
        self.names.intern_frame(Frame::File { object, offset: FileOffset(address), is_return: true })
    }

    fn sample(&mut self, process: &str, frames: &[FrameId]) {
        let process = self.names.labels.intern(process, "", FrameKind::Process);
        let thread = Thread { tgid: Tgid(7), tid: Tid(7), process, name: process, ..Thread::default() };
        let sample = Sample { time: Timestamp(self.now), ..Sample::default() };
        self.profile.write().unwrap().record(thread, frames.iter().copied(), sample);
    }

    /// Lets the window pass, and adds 1,024 samples of one function after it, because the store drops whole chunks.
    fn pass(&mut self, frames: &[FrameId]) {
        self.now += LIMITS.window + SECOND;
        (0..2048).for_each(|_| self.sample("later", frames));
        self.profile.write().unwrap().trim(Timestamp(self.now));
    }

    /// Steps until names are renewed. The new names are used from then on.
    fn renew(&mut self, is_settled: bool) -> Option<Renewed> {
        for _ in 0..1000 {
            let renewed = self.renewals.step(&self.profile, Timestamp(self.now), is_settled);
            if let Some(renewed) = renewed {
                self.names = Arc::clone(&renewed.names);
                return Some(renewed);
            }
            self.now += SECOND / 10;
        }
        None
    }

    fn name(&self, frame: FrameId) -> Vec<String> {
        let mut found = Vec::new();
        self.names.labels_of(frame, |label| found.push(self.names.labels.name(label).to_owned()));
        found
    }

    /// Returns the frames of the last sample, root first.
    fn last(&self) -> Vec<FrameId> {
        let profile = self.profile.read().unwrap();
        let sample = *profile.samples.slices_from(0).flatten().last().unwrap();
        let mut frames: Vec<FrameId> = profile.stacks.frames(sample.stack).collect();
        frames.reverse();
        frames
    }
}

/// Fills names with those of a program of a user. Each 20th has a sample, but only within the two chunks that [`World::pass`] drops. Later
/// samples have one common name.
fn churn(world: &mut World, user: u32) {
    let object = world.object(&format!("/tmp/{user}"), user);
    let (common, _) = world.at(object, 0);
    for address in 0..60_000 {
        let (frame, _) = world.at(object, address);
        let label = world.names.labels.intern_for(UserId(user), &format!("f{address}_of_{user}"), "x", FrameKind::User);
        world.names.name_frame(frame, &[label]);
        if address % 20 == 0 {
            world.sample("churn", &[if address < 40_000 { frame } else { common }]);
        }
    }
}

#[test]
fn what_no_sample_needs_is_given_back_and_the_rest_is_found_again() {
    let mut world = World::new();
    let libc = world.object("/lib/libc.so.6", 0);
    let (main, leaf) = (world.at(libc, 1).0, world.at(libc, 2).0);
    let label = |name: &str, kind| world.names.labels.intern(name, "libc.so.6", kind);
    let chain = [label("outer", FrameKind::User), label("inner", FrameKind::Inlined)];
    world.names.name_frame(main, &[label("main", FrameKind::User)]);
    world.names.name_frame(leaf, &chain);
    churn(&mut world, 1000);
    world.pass(&[main, leaf]);
    let before = (Arc::clone(&world.names), world.names.memory());
    assert!(before.1 > 10_000_000, "{}", before.1);
    let renewed = world.renew(true).expect("names have grown");
    assert!(world.names.memory() < 20_000, "{} of {}", world.names.memory(), before.1);
    assert_eq!(world.profile.read().unwrap().names().map(Arc::as_ptr), Some(Arc::as_ptr(&world.names)));
    // The same code at the same address is the same frame, under its name.
    let last = world.last();
    assert_eq!(last.iter().map(|frame| world.name(*frame)).collect::<Vec<_>>(), [vec!["main"], vec!["outer", "inner"]]);
    let libc_now = world.object("/lib/libc.so.6", 0);
    assert_eq!(renewed.objects.get(&libc), Some(&libc_now));
    assert_eq!((world.at(libc_now, 2), world.at(libc_now, 3).1), ((last[1], false), true));
    // An old id finds nothing here, and nothing else by accident.
    assert_eq!((world.names.frames.get(leaf), world.names.labels.get(chain[0]).is_none()), (None, true));
    assert_eq!(
        world.names.labels.find(before.0.labels.get(chain[0]).unwrap()).map(|label| world.names.labels.name(label)),
        Some("outer")
    );
    assert!(world.renew(true).is_none(), "nothing has grown since");
}

#[test]
fn a_user_whose_share_was_used_up_has_room_again() {
    let mut world = World::new();
    let share = LIMITS.names() / 2;
    let mut object = 0;
    while !world.names.budget.is_full(UserId(1000)) {
        object += 1;
        let object = world.object(&format!("/tmp/{object}"), 1000);
        (0..1000).for_each(|address| assert!(world.at(object, address).0 != FrameId(u32::MAX)));
    }
    assert!(world.names.budget.used_by(UserId(1000)) >= share / 2);
    let late = world.object("/tmp/late", 1000);
    assert!(!world.at(late, 7).1 && world.names.refused() > 0);
    let refused = world.names.refused();
    let (frame, _) = world.at(world.object("/lib/libc.so.6", 0), 1);
    (0..2048).for_each(|_| world.sample("p", &[frame]));
    world.pass(&[frame]);
    world.renew(true).expect("something was refused");
    assert_eq!(world.names.refused(), refused, "what was counted stays counted");
    let late = world.object("/tmp/late", 1000);
    assert!(world.at(late, 7).1 && world.names.budget.used_by(UserId(1000)) < 10_000);
}

#[test]
fn labels_cost_who_paid_for_them_before() {
    let mut world = World::new();
    churn(&mut world, 1000);
    let (before, root) = (world.names.budget.used_by(UserId(1000)), world.names.budget.used_by(UserId(0)));
    assert!(world.renew(true).is_none(), "all samples are still there");
    let renewed = Renewals::at_once(&world.profile).unwrap();
    let after = renewed.names.budget.used_by(UserId(1000));
    // One address of twenty has a sample; and the label that it had before it got its name is gone.
    assert!((before / 45..before / 20).contains(&after), "{after} of {before}");
    assert!(renewed.names.budget.used_by(UserId(0)) <= root);
}

#[test]
fn frames_that_wait_for_their_name_are_asked_for_again() {
    let mut world = World::new();
    let libc = world.object("/lib/libc.so.6", 0);
    let waits = world.at(libc, 0x10).0;
    churn(&mut world, 1000);
    world.pass(&[waits]);
    // For some time, a renewal waits until all frames have their names.
    assert!(world.renewals.step(&world.profile, Timestamp(world.now), false).is_none());
    assert!((0..50).all(|_| world.renewals.step(&world.profile, Timestamp(world.now), false).is_none()));
    world.renew(false).expect("it is not waited for ever");
    assert_eq!(world.name(world.last()[0]), ["libc.so.6+0x10"]);
    assert!(world.at(world.object("/lib/libc.so.6", 0), 0x10).1, "the next sample asks again");
}

#[test]
fn a_name_that_comes_while_names_are_copied_is_not_lost() {
    let mut world = World::new();
    let frame = world.at(world.object("/lib/libc.so.6", 0), 0x10).0;
    churn(&mut world, 1000);
    world.pass(&[frame]);
    let old = Arc::clone(&world.names);
    // The renewal has begun, and all frames are copied. The last step waits until no name is pending.
    (0..20).for_each(|_| drop(world.renewals.step(&world.profile, Timestamp(world.now), false)));
    old.name_frame(frame, &[old.labels.intern("malloc", "libc.so.6", FrameKind::User)]);
    world.renew(true).unwrap();
    assert_eq!(world.name(world.last()[0]), ["malloc"]);
}

#[test]
fn code_made_at_run_time_keeps_its_names_and_is_followed_anew() {
    let mut world = World::new();
    let jit = world.names.jit_object(UserId(0), Tgid(7), 1);
    let (old, _) = world.at(jit, 0x7000);
    let named = |name| world.names.labels.intern(name, "[jit]", FrameKind::Jit);
    world.names.name_frame(old, &[named("first")]);
    world.names.outdate(old);
    let (young, _) = world.at(jit, 0x7000);
    world.names.name_frame(young, &[named("second")]);
    churn(&mut world, 1000);
    world.pass(&[old, young]);
    world.renew(true).unwrap();
    assert_eq!(world.last().iter().flat_map(|frame| world.name(*frame)).collect::<Vec<_>>(), ["first", "second"]);
    assert!(world.at(world.names.jit_object(UserId(0), Tgid(7), 1), 0x7000).1, "the symbolizer has to see it");
}

/// Returns a tree in words: depth, name, weight; in the order of names.
fn words(snapshot: &Snapshot) -> Vec<(usize, String, u64)> {
    fn add(snapshot: &Snapshot, node: NodeId, depth: usize, words: &mut Vec<(usize, String, u64)>) {
        let name = |id| snapshot.names.labels.name(snapshot.tree.node(id).label).to_owned();
        let mut children: Vec<NodeId> = snapshot.tree.children(node).collect();
        children.sort_by_key(|id| name(*id));
        for id in children {
            words.push((depth, name(id), snapshot.tree.node(id).total));
            add(snapshot, id, depth + 1, words);
        }
    }
    let mut all = Vec::new();
    add(snapshot, crate::profile::CallTree::ROOT, 0, &mut all);
    all
}

#[test]
fn a_picture_and_what_it_is_compared_with_stay_as_they_were() {
    let mut world = World::new();
    let libc = world.object("/lib/libc.so.6", 0);
    let frames = [1, 2, 3].map(|address| world.at(libc, address).0);
    for (frame, name) in frames.iter().zip(["main", "a", "b"]) {
        world.names.name_frame(*frame, &[world.names.labels.intern(name, "libc.so.6", FrameKind::User)]);
    }
    (0..300).for_each(|_| world.sample("p", &[frames[0], frames[1]]));
    let mut engine = Engine::new(Arc::clone(&world.names), Arc::default(), Arc::clone(&world.profile));
    let query = Query { grouping: Grouping::Process, ..Query::default() };
    let mark = Mark { number: 1, query: query.clone() };
    let mut request = Request { query, baseline: Some(mark), ..Request::default() };
    engine.answer(&request, Timestamp(world.now));
    churn(&mut world, 1000);
    world.pass(&[frames[0], frames[2]]);
    let before = words(&engine.answer(&request, Timestamp(world.now)));
    assert!(before.contains(&(0, "later 7".to_owned(), 2048)), "{before:?}");
    request.compare = true;
    let sides = |engine: &mut Engine, request: &Request, now| {
        let answer = engine.answer(request, now);
        let all = (1..answer.tree.nodes().len()).map(|id| NodeId(id as u32));
        let mut sides: Vec<_> = all
            .map(|id| {
                (
                    answer.names.labels.name(answer.tree.node(id).label).to_owned(),
                    answer.node(id).total.now,
                    answer.node(id).total.before,
                )
            })
            .collect();
        sides.sort();
        sides
    };
    let compared = sides(&mut engine, &request, Timestamp(world.now));
    let (now, old) = (Timestamp(world.now), Arc::clone(&world.names));
    world.renew(true).unwrap();
    assert_eq!(sides(&mut engine, &request, now), compared);
    request.compare = false;
    let after = engine.answer(&request, now);
    assert!(Arc::ptr_eq(&after.names, &world.names) && !Arc::ptr_eq(&after.names, &old));
    assert_eq!(words(&after), before);
    // A request that is still on its way may have a label of the old tables: it is none of these.
    request.neighbours_of = Some(old.labels.intern("main", "libc.so.6", FrameKind::User));
    assert!(engine.answer(&request, now).neighbours.is_some_and(|(_, neighbours)| neighbours.callees.total() == 0));
    // Only this test still holds the old tables.
    world.renewals = Renewals::default();
    assert_eq!(Arc::strong_count(&old), 1);
}
