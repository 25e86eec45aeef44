//! Causes every way in which a user stack can end: rule 5 of ARCHITECTURE.md. The counterpart, whole stacks, is `truth.rs`.
//!
//! Needs root and gcc; fails without, never skips.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg(target_arch = "x86_64")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Program, Running, alone};
use flametop::collector::{Batch, Collector, CollectorOptions, Targets, Walk};
use flametop::profile::{Frame, Names, Processes, Tgid, UserEnd};

/// Longest wait for what must happen.
const MINUTE: Duration = Duration::from_secs(60);
/// Samples that are enough for a judgement: what 0.7 s bring if the program has a CPU to itself.
const ENOUGH: usize = 300;

/// A sample: how it ended, and its frames, root first.
type Seen = (UserEnd, Vec<Frame>);

struct Session {
    collector: Collector,
    names: Arc<Names>,
    batch: Batch,
    seen: Vec<(Tgid, Seen)>,
}

impl Session {
    fn start(walk: Walk) -> Session {
        let names = Arc::new(Names::default());
        let options =
            CollectorOptions { frequency: 499, walk, targets: Targets::All, cache_tables: false, ..CollectorOptions::default() };
        let collector = Collector::start(options, names.clone(), Arc::new(Processes::default())).expect("a collector starts");
        Session { collector, names, batch: Batch::default(), seen: Vec::new() }
    }

    fn drain(&mut self) {
        self.collector.drain(&mut self.batch).unwrap();
        for sample in &self.batch.samples {
            // A sample in the kernel, of the timer or of a page fault, has its frames behind the user's.
            let user = sample.frames.start..sample.frames.end - sample.kernel_frames;
            let frames = self.batch.frames[user].iter().map(|id| self.names.frames.get(*id).unwrap());
            self.seen.push((sample.thread.tgid, (sample.user_end, frames.collect())));
        }
    }

    fn drain_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.collector.wait(Duration::from_millis(20));
            self.drain();
        }
    }

    /// Samples for half a second, and until no table waits to be made. Forgets all samples.
    fn settle(&mut self) {
        let begun = Instant::now();
        self.drain_for(Duration::from_millis(500));
        while self.collector.tables().is_some_and(|tables| tables.waiting > 0) {
            assert!(begun.elapsed() < MINUTE, "{:?}", self.collector.tables());
            self.drain_for(Duration::from_millis(50));
        }
        self.seen.clear();
    }

    /// Samples until more than `count` samples of a process have come, and returns them. Forgets all samples.
    fn more_than(&mut self, count: usize, running: &Running) -> Vec<Seen> {
        let (begun, tgid) = (Instant::now(), Tgid(running.pid()));
        while self.seen.iter().filter(|(who, _)| *who == tgid).count() <= count {
            assert!(begun.elapsed() < MINUTE, "{} samples of all processes", self.seen.len());
            self.drain_for(Duration::from_millis(50));
        }
        self.take(running)
    }

    /// Returns the samples of a process so far, and forgets all.
    fn take(&mut self, running: &Running) -> Vec<Seen> {
        let tgid = Tgid(running.pid());
        std::mem::take(&mut self.seen).into_iter().filter(|(who, _)| *who == tgid).map(|(_, seen)| seen).collect()
    }
}

fn counts(seen: &[Seen]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    seen.iter().for_each(|(end, _)| *counts.entry(format!("{end:?}")).or_default() += 1);
    counts
}

fn ends() -> Program {
    Program::build_with("ends.c", &["-O2", "-fomit-frame-pointer", "-pthread"])
}

/// Copies the program to a separate file.
fn own_copy(name: &str) -> Program {
    let path = std::env::temp_dir().join(format!("flametop-ends-{}", std::process::id())).join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::copy(ends().path, &path).unwrap();
    Program { path }
}

/// Asserts that nearly all stacks of a mode end in this way, with at least `frames` user frames before the end.
fn assert_ends(mode: &str, end: UserEnd, frames: usize) {
    let _alone = alone();
    let running = ends().run(&["60", mode]);
    let mut session = Session::start(Walk::Tables);
    session.settle();
    let seen = session.more_than(ENOUGH, &running);
    let right = seen.iter().filter(|(how, stack)| *how == end && stack.len() >= frames).count();
    assert!(right * 100 >= seen.len() * 95, "{mode}: {:?}", counts(&seen));
}

#[test]
fn a_stack_that_is_described_to_its_end_is_complete() {
    // spin, middle, outer, main, two of libc, _start
    assert_ends("root", UserEnd::Root, 7);
}

#[test]
fn code_without_unwind_information_that_contradicts_itself_is_a_gap() {
    assert_ends("gap", UserEnd::Gap, 2);
}

#[test]
fn code_without_unwind_information_that_tells_what_it_does_is_none() {
    assert_ends("code", UserEnd::Root, 7);
}

#[test]
fn a_rule_that_cannot_be_said_is_invalid() {
    assert_ends("invalid", UserEnd::Invalid, 2);
}

#[test]
fn a_register_that_only_the_leaf_knows_is_not_believed_in_its_caller() {
    assert_ends("register", UserEnd::Register, 2);
}

#[test]
fn a_frame_below_its_callee_is_refused() {
    assert_ends("bad", UserEnd::BadFrame, 2);
}

#[test]
fn a_caller_that_is_data_is_no_caller() {
    assert_ends("nocode", UserEnd::NoCode, 2);
}

#[test]
fn a_return_address_of_zero_is_an_end() {
    assert_ends("zero", UserEnd::Zero, 2);
}

#[test]
fn a_stack_that_cannot_be_read_says_so() {
    assert_ends("unread", UserEnd::Unreadable, 1);
}

#[test]
fn code_of_no_file_without_frame_pointers_is_told_apart() {
    assert_ends("anonymous", UserEnd::Anonymous, 1);
}

#[test]
fn a_program_of_32_bits_is_not_walked() {
    let _alone = alone();
    let running = Program::build_with("bits32.c", &["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"]).run(&[]);
    let mut session = Session::start(Walk::Tables);
    let seen = session.more_than(ENOUGH, &running);
    assert!(seen.iter().all(|(end, _)| *end == UserEnd::Bits32), "{:?}", counts(&seen));
}

#[test]
fn a_process_that_gives_back_its_memory_at_its_end_has_no_user_stack() {
    let _alone = alone();
    let mut session = Session::start(Walk::Tables);
    let mut running = ends().run(&["60", "exit"]);
    running.wait(Duration::from_secs(20));
    session.drain_for(Duration::from_millis(50));
    let seen = session.take(&running);
    assert!(seen.iter().any(|(end, _)| *end == UserEnd::NoMemory), "{:?}", counts(&seen));
}

#[test]
fn between_two_programs_registers_are_not_believed() {
    let _alone = alone();
    let running = ends().run(&["60", "exec"]);
    let mut session = Session::start(Walk::Tables);
    session.settle();
    let seen = session.more_than(3 * ENOUGH, &running);
    let count = |wanted| seen.iter().filter(|(end, _)| *end == wanted).count();
    assert!(count(UserEnd::Registers) > 5, "{:?}", counts(&seen));
    // No stack is called incomplete without reason: all others are whole.
    assert!(count(UserEnd::Registers) + count(UserEnd::Root) >= seen.len() * 97 / 100, "{:?}", counts(&seen));
}

#[test]
fn while_mappings_are_being_changed_what_cannot_be_known_is_said_to_be_changing() {
    let _alone = alone();
    let running = ends().run(&["60", "changing"]);
    let mut session = Session::start(Walk::Tables);
    session.settle();
    // Few samples meet a change that outlasts all attempts: one in a hundred here.
    let mut seen = Vec::new();
    let end = Instant::now() + MINUTE;
    while Instant::now() < end && !(seen.len() > 200 && seen.iter().any(|(end, _)| *end == UserEnd::Changing)) {
        session.drain_for(Duration::from_millis(500));
        seen.extend(session.take(&running));
    }
    let count = |wanted| seen.iter().filter(|(end, _)| *end == wanted).count();
    assert!(seen.len() > 200 && count(UserEnd::Changing) > 0, "{:?}", counts(&seen));
    assert!(count(UserEnd::Changing) + count(UserEnd::Root) >= seen.len() * 99 / 100, "{:?}", counts(&seen));
}

#[test]
fn a_thread_of_the_kernel_in_a_process_has_no_user_stack() {
    let _alone = alone();
    let running = ends().run(&["60", "poll"]);
    let mut session = Session::start(Walk::Tables);
    session.settle();
    let seen = session.more_than(ENOUGH / 2, &running);
    assert!(seen.iter().all(|(end, _)| *end == UserEnd::KernelThread), "{:?}", counts(&seen));
}

#[test]
fn who_sleeps_is_woken_when_a_table_is_wished_for() {
    let _alone = alone();
    // A separate file that was not seen before.
    let program = own_copy("woken");
    let mut session = Session::start(Walk::Tables);
    session.drain_for(Duration::from_millis(500));
    let running = program.run(&["60", "root"]);
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    let has_table = |session: &Session| session.collector.objects().iter().any(|object| object.path.contains("woken"));
    while !has_table(&session) {
        let asleep = Instant::now();
        session.collector.wait(Duration::from_secs(30));
        longest = longest.max(asleep.elapsed());
        session.drain();
        // The table is made meanwhile. Once it is there, no requests come any more, and nothing would wake us.
        let made_by = Instant::now() + Duration::from_secs(5);
        while !has_table(&session) && Instant::now() < made_by {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(begin.elapsed() < MINUTE, "{:?}", session.collector.objects());
    }
    assert!(longest < Duration::from_secs(10), "slept for {longest:?}");
    drop(running);
}

#[test]
fn a_file_that_is_written_again_gets_another_table() {
    let _alone = alone();
    let program = own_copy("rewritten");
    let mut session = Session::start(Walk::Tables);
    // The same addresses and other frames: with one program's table, the other's stacks lead nowhere.
    let other =
        std::fs::read(&Program::build_with("ends.c", &["-O2", "-fomit-frame-pointer", "-pthread", "-DROOM=400"]).path).unwrap();
    for turn in 0..2 {
        let running = program.run(&["60", "root"]);
        session.settle();
        let seen = session.more_than(ENOUGH / 2, &running);
        let whole = seen.iter().filter(|(end, stack)| *end == UserEnd::Root && stack.len() >= 7).count();
        assert!(whole * 100 >= seen.len() * 95, "turn {turn}: {:?}", counts(&seen));
        drop(running);
        // In place: device and inode stay what they were.
        std::fs::write(&program.path, &other).unwrap();
    }
}

#[test]
fn before_its_table_is_made_code_is_told_to_have_none_yet_and_afterwards_its_stacks_are_complete() {
    let _alone = alone();
    let running = ends().run(&["60", "root"]);
    // Stacks that are walked twice are not copied to wait for their table.
    let mut session = Session::start(Walk::Twice);
    // Meanwhile nobody receives the requests for tables.
    let used = running.cpu_time();
    let begun = Instant::now();
    while running.cpu_time() < used + Duration::from_millis(150) {
        assert!(begun.elapsed() < MINUTE, "the program does not run");
        std::thread::sleep(Duration::from_millis(10));
    }
    session.drain();
    let seen = session.take(&running);
    assert!(seen.len() > 20 && seen.iter().all(|(end, _)| *end == UserEnd::NoTable), "{:?}", counts(&seen));
    let wished = Instant::now();
    while session.collector.tables().unwrap().ready < 3 {
        assert!(wished.elapsed() < MINUTE, "{:?}", session.collector.tables());
        session.drain_for(Duration::from_millis(5));
    }
    // Samples are delivered a moment after they were taken.
    session.drain_for(Duration::from_millis(20));
    session.take(&running);
    let seen = session.more_than(ENOUGH / 2, &running);
    assert!(seen.iter().all(|(end, _)| *end == UserEnd::Root), "{:?}", counts(&seen));
}

#[test]
fn samples_from_before_their_table_is_made_are_complete_when_it_is_there() {
    let _alone = alone();
    let running = ends().run(&["60", "root"]);
    let mut session = Session::start(Walk::Tables);
    // Nobody receives the requests meanwhile. The pause is short enough that the ring has room for dumps of everything that runs.
    std::thread::sleep(Duration::from_millis(60));
    let seen = session.more_than(2 * ENOUGH, &running);
    let dumps = session.collector.dumps();
    assert!(dumps.whole > 20, "{dumps:?}");
    assert!(seen.iter().all(|(end, _)| *end == UserEnd::Root), "{:?}, {dumps:?}", counts(&seen));
}

#[test]
fn frame_pointers_lead_nowhere_in_code_without_them() {
    let _alone = alone();
    let running = ends().run(&["60", "root"]);
    let mut session = Session::start(Walk::FramePointers);
    session.drain_for(Duration::from_millis(500));
    let seen = session.take(&running);
    assert!(seen.iter().all(|(end, _)| matches!(end, UserEnd::FramePointerEnd | UserEnd::NoCode)), "{:?}", counts(&seen));
    let deepest = seen.iter().map(|(_, frames)| frames).max_by_key(|frames| frames.len()).expect("it has run");
    assert!(deepest.len() < 7, "{deepest:?}");
}

#[test]
fn both_walks_of_one_sample_come_one_after_the_other() {
    let _alone = alone();
    let flags = ["-fno-omit-frame-pointer"];
    let running = Program::build_with("chain.c", &flags).run(&["60"]);
    let mut session = Session::start(Walk::Compared);
    session.drain_for(Duration::from_millis(500));
    let mut pairs = 0;
    let until = Instant::now() + MINUTE;
    while pairs < 50 {
        assert!(Instant::now() < until, "{pairs} pairs");
        session.collector.wait(Duration::from_millis(20));
        session.collector.drain(&mut session.batch).unwrap();
        let of_chain: Vec<_> = session.batch.samples.iter().filter(|sample| sample.thread.tgid == Tgid(running.pid())).collect();
        for pair in of_chain.windows(2).filter(|pair| pair[1].compared) {
            assert!(!pair[0].compared && pair[0].time == pair[1].time);
            pairs += 1;
        }
    }
}
