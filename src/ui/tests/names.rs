//! Tests which functions are shown, and how much of their names.

use super::*;
use crate::profile::Frame;
use crate::profile::KernelAddress;
use crate::profile::Language;
use crate::profile::{FileOffset, ObjectId};

/// `main` calls `std::map<int>::find(int)`, into which `less` is inlined. Half of the samples are in `less`.
fn inlining() -> Bench {
    let mut bench = Bench::new();
    let names = Arc::clone(&bench.app.scene.names);
    let label = |name, kind| names.labels.intern(name, "prog", kind);
    let process = names.labels.intern("prog", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(7), tid: Tid(7), process, name: process, ..Thread::default() };
    let main = names.intern_named(label("main", FrameKind::User));
    let find = label("std::map<int>::find(int)", FrameKind::User);
    let at = |address, labels: &[_]| {
        let frame = names.intern_frame(Frame::Kernel { address: KernelAddress(address), is_return: false }).0;
        names.name_frame(frame, labels);
        frame
    };
    let frames = [at(16, &[find]), at(20, &[find, label("less", FrameKind::Inlined)])];
    let mut profile = Profile::new(Limits::default());
    for i in 0..20u64 {
        let sample = Sample { time: Timestamp(SECOND + i), user_end: UserEnd::Root, ..Sample::default() };
        profile.record(thread, [main, frames[(i % 2) as usize]], sample);
    }
    bench.engine = Engine::new(names, Arc::default(), Arc::new(RwLock::new(profile)));
    bench.keys("2");
    bench.keys("1");
    bench
}

#[test]
fn inlined_functions_are_folded_by_a_key_and_shown_again_by_it_or_by_their_chip() {
    let mut bench = inlining();
    bench.keys(">");
    assert_eq!(bench.cursor(), "prog;main;std::map<int>::find(int);less");
    bench.keys("I");
    assert_eq!(bench.cursor(), "prog;main;std::map<int>::find(int)", "the cursor is where the function went");
    assert!(bench.asked.last().unwrap().query.folding.inlined);
    let screen = bench.screen(120, 24);
    assert!(!screen.contains("less") && screen.contains(" no inlined × "), "{screen}");
    assert!(screen.contains("inlined functions are merged into"), "{screen}");
    let own =
        |bench: &Bench| bench.app.scene.snapshot.node(bench.app.views.flame.selected(&bench.app.scene.snapshot.tree)).own.now;
    assert_eq!(own(&bench), 20);
    // Search and filters ignore hidden functions.
    bench.keys("/less");
    assert_eq!(bench.app.scene.snapshot.search.as_ref().map(|found| found.weight), Some(0));
    bench.key(KeyCode::Esc);
    bench.keys("&less");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 0);
    bench.keys("I");
    assert_eq!((bench.app.scene.snapshot.tree.total(), bench.app.scene.folds_inlined()), (10, false));
    bench.keys("XI");
    let time = bench.app.scene.areas().time;
    let screen = bench.screen(120, 24);
    let line = screen.lines().nth(1).unwrap();
    let column = line[..line.find("no inlined").unwrap()].chars().count() - 1;
    bench.click(u16::try_from(column).unwrap(), time.y);
    assert!(!bench.app.scene.folds_inlined());
    assert!(bench.screen(120, 24).contains("less"));
    bench.keys("w");
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.last() else { panic!("{:?}", bench.others) };
    assert!(order.tree.nodes().iter().any(|node| bench.app.scene.names.labels.name(node.label) == "less"));
}

/// `main` of an interpreter calls its loop. The loop runs `handle`, which calls `list_sort`. Half of the samples are in the loop
/// itself.
fn interpreted() -> Bench {
    let mut bench = Bench::new();
    let names = Arc::clone(&bench.app.scene.names);
    let process = names.labels.intern("python3", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(7), tid: Tid(7), process, name: process, ..Thread::default() };
    let object = ObjectId::VDSO;
    let native = |name: &str, frame: Frame| {
        let frame = names.intern_frame(frame).0;
        names.name_frame(frame, &[names.labels.intern(name, "python3", FrameKind::User)]);
        frame
    };
    let main = native("main", Frame::File { object, offset: FileOffset(1), is_return: true });
    let evaluate = native("evaluate", Frame::Interpreter { object, offset: FileOffset(2), is_return: true });
    let sort = native("list_sort", Frame::File { object, offset: FileOffset(3), is_return: false });
    let label = names.labels.intern("handle", "server.py:7", FrameKind::Script(Language::Python));
    let handle = names.intern_frame(Frame::Script { object, label, line: 9 }).0;
    let mut profile = Profile::new(Limits::default());
    for i in 0..20u64 {
        let sample = Sample { time: Timestamp(SECOND + i), user_end: UserEnd::Root, ..Sample::default() };
        let frames = [main, handle, evaluate, sort];
        profile.record(thread, frames.into_iter().take(3 + (i % 2) as usize), sample);
    }
    bench.engine = Engine::new(names, Arc::default(), Arc::new(RwLock::new(profile)));
    bench.keys("2");
    bench.keys("1");
    bench
}

#[test]
fn frames_of_an_interpreter_are_folded_until_a_key_shows_them() {
    let mut bench = interpreted();
    bench.keys(">");
    assert_eq!(bench.cursor(), "python3;main;handle;list_sort");
    let screen = bench.screen(120, 24);
    assert!(!screen.contains("evaluate") && !screen.contains("interpreter"), "{screen}");
    let own =
        |bench: &Bench| bench.app.scene.snapshot.node(bench.app.views.flame.selected(&bench.app.scene.snapshot.tree)).own.now;
    bench.keys("k");
    assert_eq!((bench.cursor().as_str(), own(&bench)), ("python3;main;handle", 10), "time in the loop is the function's own");
    bench.keys("jA");
    assert_eq!(bench.cursor(), "python3;main;handle;evaluate;list_sort", "the cursor stays where it is");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("evaluate") && screen.contains(" interpreter × "), "{screen}");
    bench.keys("A");
    assert_eq!(bench.cursor(), "python3;main;handle;list_sort");
    bench.keys("Ak");
    assert_eq!(bench.cursor(), "python3;main;handle;evaluate");
    let time = bench.app.scene.areas().time;
    let screen = bench.screen(120, 24);
    let line = screen.lines().nth(1).unwrap();
    let column = line[..line.find("interpreter").unwrap()].chars().count() - 1;
    bench.click(u16::try_from(column).unwrap(), time.y);
    assert_eq!(bench.cursor(), "python3;main;handle", "what is folded leaves the cursor to its caller");
}

#[test]
fn a_recursion_is_one_box_until_a_key_shows_each_call() {
    let mut bench = Bench::new();
    let names = Arc::clone(&bench.app.scene.names);
    let process = names.labels.intern("fibonacci", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(7), tid: Tid(7), process, name: process, ..Thread::default() };
    let frame = |name: &str| names.intern_named(names.labels.intern(name, "fibonacci", FrameKind::User));
    let (main, fib, leaf) = (frame("main"), frame("fib"), frame("leaf"));
    let mut profile = Profile::new(Limits::default());
    for (time, deep) in (SECOND..).zip([15, 3, 8]) {
        let frames = std::iter::once(main).chain(std::iter::repeat_n(fib, deep)).chain([leaf]);
        let sample = Sample { time: Timestamp(time), user_end: UserEnd::Root, ..Sample::default() };
        profile.record(thread, frames, sample);
    }
    bench.engine = Engine::new(names, Arc::default(), Arc::new(RwLock::new(profile)));
    bench.keys("2");
    bench.keys("1>k");
    assert_eq!(bench.cursor(), "fibonacci;main;fib");
    let screen = bench.screen(120, 24);
    assert_eq!(screen.matches("fib ×15").count(), 2, "box and detail line\n{screen}");
    bench.keys("R");
    let screen = bench.screen(120, 36);
    assert!(!screen.contains("×15") && screen.matches("fib").count() > 15 && screen.contains(" recursion × "), "{screen}");
    assert!(!bench.app.scene.title().contains("recursion"));
    let (line, time) = (screen.lines().nth(1).unwrap().trim_matches('"'), bench.app.scene.areas().time);
    let column = line[..line.find(" recursion ×").unwrap()].chars().count() + 1;
    bench.screen(120, 36);
    bench.click(u16::try_from(column).unwrap(), time.y);
    assert_eq!(bench.cursor(), "fibonacci;main;fib");
    assert!(bench.app.scene.title().ends_with(", recursion folded"), "{}", bench.app.scene.title());
}

#[test]
fn names_have_three_details_and_searching_knows_all_of_them() {
    let mut bench = inlining();
    bench.keys(">k");
    assert_eq!(bench.screen(220, 24).matches("std::map<int>::find(int)").count(), 3, "box, detail line, breadcrumb");
    bench.keys("D");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("names without parameters and templates"), "{screen}");
    assert_eq!(
        (screen.matches("std::map::find").count(), screen.matches("std::map<int>::find(int)").count()),
        (1, 1),
        "{screen}"
    );
    bench.keys("D");
    bench.keys("/map<int>");
    assert_eq!(bench.app.scene.snapshot.search.as_ref().map(|found| found.weight), Some(20));
    bench.key(KeyCode::Enter);
    bench.keys("2");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("▸ ▌find ") && !screen.contains("▌std::map"), "{screen}");
    bench.keys("D");
    assert!(bench.screen(120, 24).contains("std::map<int>::find(int)"));
}
