//! Names of JIT code that come late or never, and the problems that are reported. Processes here sleep: nothing is sampled.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use flametop::profile::{FrameKind, Tgid};

use super::*;
use crate::bench::Named;

/// A process, and the path of its map, which is removed with it.
struct Runtime {
    sleeper: Sleeper,
    map: PathBuf,
}

impl Runtime {
    fn start() -> Runtime {
        let sleeper = Sleeper::start(Command::new("sleep").arg("60"));
        let map = PathBuf::from(format!("/tmp/perf-{}.map", sleeper.0.id()));
        let _ = std::fs::remove_file(&map);
        Runtime { sleeper, map }
    }

    fn tgid(&self) -> u32 {
        self.sleeper.0.id()
    }

    fn write(&self, text: &str) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.map).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.map);
    }
}

fn jit(name: &str) -> Named {
    Named { name: name.into(), object: "[jit]".into(), kind: FrameKind::Jit, provisional: false }
}

fn anonymous() -> Named {
    Named { name: "[anon]".into(), object: String::new(), kind: FrameKind::Jit, provisional: false }
}

#[track_caller]
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn code_of_two_processes_has_the_labels_of_their_maps() {
    let bench = Bench::new();
    let labels: Vec<_> = [1, 2]
        .into_iter()
        .map(|life| {
            let runtime = Runtime::start();
            runtime.write("1000 20 JS:*run /srv/app.js:1:2\n1020 20 _ZN3foo3barEv\n1010 0 nothing\n");
            let object = bench.names.jit_object(Default::default(), Tgid(runtime.tgid()), life);
            let frames = [(0x1000, false), (0x1020, true), (0x1020, false), (0x2000, false)];
            let frames = frames.map(|(address, is_return)| bench.frame(object, address, is_return));
            bench.name(&frames, runtime.tgid(), 0..0);
            let named = frames.map(|frame| bench.named(frame));
            let run = jit("run /srv/app.js:1:2");
            assert_eq!(
                named,
                [run.clone(), run, jit("foo::bar()"), anonymous()],
                "a return address is looked up one byte earlier"
            );
            let mut labels = Vec::new();
            frames.iter().for_each(|frame| bench.names.labels_of(*frame, |label| labels.push(label)));
            labels
        })
        .collect();
    assert_eq!(labels[0], labels[1], "processes of one program merge");
    let problems = bench.symbolizer.problems();
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((&*problem.path, problem.reason), ("JIT code of sleep", Reason::NotInCodeMap), "one line for both");
    assert_eq!((problem.named, problem.unnamed), (6, 2));
    assert_eq!((bench.symbolizer.counts().named, bench.symbolizer.counts().unnamed), (6, 2));
}

#[test]
fn code_without_a_name_is_done_at_once_and_is_named_when_its_map_comes() {
    let bench = Bench::new();
    let runtime = Runtime::start();
    let object = bench.names.jit_object(Default::default(), Tgid(runtime.tgid()), 1);
    let (early, other) = (bench.frame(object, 0x1008, false), bench.frame(object, 0x5000, false));
    // It would fail if they went on waiting for names.
    bench.name(&[early, other], runtime.tgid(), 0..0);
    assert_eq!(bench.named(early), anonymous());
    let problem = bench.symbolizer.problems().remove(0);
    assert_eq!((problem.reason, problem.unnamed), (Reason::NoCodeMap, 2));
    assert!(problem.reason.remedy().contains("--perf-basic-prof"));
    let generation = bench.names.generation();
    runtime.write("1000 10 made later\n50");
    soon("the name of code whose map came later", || bench.named(early) == jit("made later"));
    assert_ne!(bench.names.generation(), generation, "views hear of it");
    soon("the reason that there is now", || bench.symbolizer.problems()[0].reason == Reason::NotInCodeMap);
    assert_eq!((bench.symbolizer.problems()[0].named, bench.symbolizer.problems()[0].unnamed), (1, 1));
    runtime.write("00 8 later still\n");
    soon("the second half of a line", || bench.named(other) == jit("later still"));
    soon("that all is well", || bench.symbolizer.problems().is_empty() && bench.symbolizer.pending() == 0);
}

#[test]
fn what_has_grown_is_read_at_the_next_request_and_when_the_last_names_are_waited_for() {
    let bench = Bench::new();
    let runtime = Runtime::start();
    let object = bench.names.jit_object(Default::default(), Tgid(runtime.tgid()), 1);
    runtime.write("1000 10 one\n");
    let frames = [0x1000, 0x2000, 0x3000].map(|address| bench.frame(object, address, false));
    bench.name(&frames[..2], runtime.tgid(), 0..0);
    assert_eq!([bench.named(frames[0]), bench.named(frames[1])], [jit("one"), anonymous()]);
    runtime.write("2000 10 two\n");
    bench.name(&frames[2..], runtime.tgid(), 0..0);
    assert_eq!([bench.named(frames[1]), bench.named(frames[2])], [jit("two"), anonymous()]);
    // A recording ends: the process and its file are gone. The text that it wrote before is still read.
    runtime.write("3000 10 three\n");
    let tgid = runtime.tgid();
    drop(runtime);
    bench.name(&[], tgid, 0..0);
    assert_eq!(bench.named(frames[2]), jit("three"));
    // Another process of that number has other code, and another file.
    let late = bench.frame(object, 0x1004, false);
    bench.name(&[late], tgid, 0..0);
    assert_eq!(bench.named(late), jit("one"));
}

/// A missing file is searched for at growing intervals; the last search does not wait.
#[test]
fn a_map_that_comes_within_the_pause_is_found_when_the_last_names_are_waited_for() {
    let bench = Bench::new();
    let runtime = Runtime::start();
    let object = bench.names.jit_object(Default::default(), Tgid(runtime.tgid()), 1);
    let frame = bench.frame(object, 0x1000, false);
    bench.name(&[frame], runtime.tgid(), 0..0);
    assert_eq!(bench.named(frame), anonymous());
    runtime.write("1000 10 late\n");
    bench.name(&[], runtime.tgid(), 0..0);
    assert_eq!(bench.named(frame), jit("late"));
}

#[test]
fn a_process_that_is_gone_is_given_up_and_nothing_goes_on_working() {
    let bench = Bench::new();
    let tgid = {
        let runtime = Runtime::start();
        runtime.tgid()
    };
    let object = bench.names.jit_object(Default::default(), Tgid(tgid), 1);
    let frame = bench.frame(object, 0x1000, false);
    bench.name(&[frame], tgid, 0..0);
    assert_eq!(bench.named(frame), anonymous());
    assert_eq!(bench.symbolizer.problems()[0].reason, Reason::ProcessGone);
    // A waiting search does not keep a runtime from ending.
    assert_ends_within(Duration::from_secs(1), || {
        let (bench, runtime) = (Bench::new(), Runtime::start());
        let object = bench.names.jit_object(Default::default(), Tgid(runtime.tgid()), 2);
        bench.name(&[bench.frame(object, 0x1000, false)], runtime.tgid(), 0..0);
        let start = Instant::now();
        drop(bench);
        start.elapsed()
    });
}

#[test]
fn maps_of_many_processes_stay_within_their_bounds() {
    let bench = Bench::new();
    let runtimes: Vec<Runtime> = (0..70).map(|_| Runtime::start_soon()).collect();
    let text: String = (0..20_000u64).map(|line| format!("{:x} 10 function {line}\n", 0x1000 + line * 32)).collect();
    let mut frames = Vec::new();
    for (life, runtime) in (0..).zip(&runtimes) {
        runtime.write(&text);
        let object = bench.names.jit_object(Default::default(), Tgid(runtime.tgid()), life);
        frames.push(bench.frame(object, 0x1000, false));
        bench.name(&frames[frames.len() - 1..], runtime.tgid(), 0..0);
    }
    assert!(frames.iter().all(|frame| bench.named(*frame) == jit("function 0")));
    let usage = bench.symbolizer.usage();
    println!("{} processes: {usage:?}", runtimes.len());
    assert!(usage.tables <= 24 << 20 && usage.files <= 64, "{usage:?}");
    // Maps that were dropped are read again.
    let object = bench.names.jit_object(Default::default(), Tgid(runtimes[0].tgid()), 0);
    let again = bench.frame(object, 0x1020, false);
    bench.name(&[again], runtimes[0].tgid(), 0..0);
    assert_eq!(bench.named(again), jit("function 1"));
}

impl Runtime {
    /// `Runtime::start` without waiting until the process runs its program.
    fn start_soon() -> Runtime {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let map = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
        let _ = std::fs::remove_file(&map);
        Runtime { sleeper: Sleeper(child), map }
    }
}
