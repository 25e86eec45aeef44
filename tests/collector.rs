//! The collector on the real kernel: each test samples a program built from tests/programs and checks the samples.
//!
//! Needs root (or the capabilities that `flametop doctor` names) and a C compiler; fails without, never skips.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use common::{Running, alone};
use flametop::collector::{
    Batch, Collected, Collector, CollectorError, CollectorOptions, EventRequest, EventSpec, Targets, Walk,
};
use flametop::profile::{EventSource, Frame, Names, Object, ObjectId, ObjectKind, Processes, Tgid, Thread, UserEnd};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

/// The test program, built once.
fn work() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("work");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/work.c");
        let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread", "-Wl,--build-id", "-o"];
        let status = Command::new("cc").args(flags).args([&out, &source]).status().expect("these tests need a C compiler (cc)");
        assert!(status.success(), "cc could not build tests/programs/work.c");
        out
    })
}

fn run(arguments: &[&str]) -> Child {
    Command::new(work()).args(arguments).spawn().expect("the test program runs")
}

/// A sample with its frames looked up: object and frame, root first.
struct Seen {
    sample: Collected,
    frames: Vec<(Object, Frame)>,
}

/// A collection that a test has under way.
struct Session {
    collector: Collector,
    names: Arc<Names>,
    processes: Arc<Processes>,
    batch: Batch,
    seen: Vec<Seen>,
    exited: BTreeSet<Tgid>,
}

impl Session {
    fn start(targets: Targets) -> Session {
        Session::start_with(targets, false)
    }

    fn start_with(targets: Targets, include_idle: bool) -> Session {
        Session::start_as(CollectorOptions { include_idle, targets, ..Default::default() })
    }

    fn start_as(options: CollectorOptions) -> Session {
        let (names, processes) = (Arc::new(Names::default()), Arc::new(Processes::default()));
        let options = CollectorOptions { frequency: 499, cache_tables: false, ..options };
        let collector = Collector::start(options, names.clone(), processes.clone());
        let collector = collector.unwrap_or_else(|error| panic!("these tests need root and BPF: {error}"));
        Session { collector, names, processes, batch: Batch::default(), seen: Vec::new(), exited: BTreeSet::new() }
    }

    fn drain(&mut self) {
        self.collector.drain(&mut self.batch).unwrap();
        let times: Vec<u64> = self.batch.samples.iter().map(|sample| sample.time.0).collect();
        assert!(times.is_sorted(), "the samples of a batch are in the order of time: {times:?}");
        for sample in self.batch.samples.drain(..) {
            let frames = self.batch.frames[sample.frames.clone()].iter().map(|id| {
                let frame = self.names.frames.get(*id).unwrap();
                (self.names.objects.get(frame.object()).unwrap().clone(), frame)
            });
            let frames = frames.collect();
            self.seen.push(Seen { sample, frames });
        }
        self.exited.extend(self.batch.exited.drain(..));
    }

    /// Drains until the child has ended and all records from before its end are here.
    fn follow(&mut self, mut child: Child) {
        let until = Instant::now() + Duration::from_secs(60);
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the test program does not end");
            std::thread::sleep(Duration::from_millis(20));
            self.drain();
        }
        std::thread::sleep(Duration::from_millis(20));
        self.drain();
        assert_eq!(self.batch.losses, flametop::profile::Losses::default(), "nothing is lost in a test");
    }

    /// Runs the test program to its end; its process id.
    fn watch(&mut self, arguments: &[&str]) -> u32 {
        let child = run(arguments);
        let tgid = child.id();
        self.follow(child);
        tgid
    }

    fn of(&self, tgid: u32) -> Vec<&Seen> {
        self.seen.iter().filter(|seen| seen.sample.thread.tgid == Tgid(tgid)).collect()
    }

    fn process_name(&self, thread: Thread) -> &str {
        self.names.labels.name(thread.process)
    }

    fn thread_name(&self, thread: Thread) -> &str {
        self.names.labels.name(thread.name)
    }
}

/// The functions of a stack that are in the file, root first.
fn functions(seen: &Seen, path: &Path) -> Vec<String> {
    type Symbols = (Vec<(u64, u64, u64)>, Vec<(u64, u64, String)>);
    static SYMBOLS: Mutex<BTreeMap<PathBuf, Symbols>> = Mutex::new(BTreeMap::new());
    let mut symbols = SYMBOLS.lock().unwrap();
    let (segments, symbols) = symbols.entry(path.to_path_buf()).or_insert_with(|| {
        let bytes = std::fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let segments =
            file.segments().map(|segment| (segment.file_range().0, segment.file_range().1, segment.address())).collect();
        let symbols = file.symbols().filter(|symbol| symbol.size() > 0);
        (segments, symbols.map(|symbol| (symbol.address(), symbol.size(), symbol.name().unwrap().to_string())).collect())
    });
    let name = |frame: &Frame| {
        let offset = frame.called_from();
        let (start, _, address) = *segments.iter().find(|(start, size, _)| (*start..start + size).contains(&offset))?;
        let address = offset - start + address;
        let found = symbols.iter().find(|(start, size, _)| (*start..start + size).contains(&address));
        Some(found?.2.clone())
    };
    let here = seen.frames.iter().filter(|(object, _)| is(object, path));
    here.map(|(_, frame)| name(frame).unwrap_or_else(|| "?".to_string())).collect()
}

fn is(object: &Object, path: &Path) -> bool {
    object.kind == ObjectKind::Elf && *object.path == *path.to_str().unwrap()
}

fn user_frames(seen: &Seen) -> impl Iterator<Item = &(Object, Frame)> {
    seen.frames.iter().filter(|(_, frame)| frame.object() != ObjectId::KERNEL)
}

/// Number of samples whose stack ends in `main`, `outer`, `middle`, `inner`.
fn in_chain(seen: &[&Seen]) -> usize {
    let chain = ["main", "outer", "middle", "inner"];
    seen.iter().filter(|seen| functions(seen, work()).windows(4).any(|window| window == chain)).count()
}

#[test]
fn a_busy_program_is_seen_in_its_functions_in_its_file() {
    let _alone = alone();
    let mut session = Session::start(Targets::All);
    // Its unwind table is made meanwhile. Once the table is there, a new process has whole stacks from its first sample on.
    session.watch(&["busy", "300"]);
    let tgid = session.watch(&["busy", "400"]);
    let seen = session.of(tgid);
    assert!(seen.len() > 50, "{} samples of 400 ms at 499 Hz", seen.len());
    let example = seen.iter().map(|seen| functions(seen, work())).nth(seen.len() / 2);
    assert!(in_chain(&seen) * 10 > seen.len() * 8, "{} of {} are in the chain, like {example:?}", in_chain(&seen), seen.len());
    let (object, _) = seen.iter().flat_map(|seen| &seen.frames).find(|(object, _)| is(object, work())).unwrap();
    assert!(object.build_id.is_some() && object.file.is_none(), "{object:?}");
    assert!(session.exited.contains(&Tgid(tgid)));
    let process = session.processes.get(&Tgid(tgid)).unwrap();
    assert!(process.exited.is_some());
    assert!(process.command_line.ends_with("work busy 400"), "{}", process.command_line);
    assert_eq!(process.parent, Tgid(std::process::id()));
    // The innermost frame of user mode is the instruction that ran, all others are return addresses.
    let in_user_mode = seen.iter().filter(|seen| user_frames(seen).count() == seen.frames.len());
    for seen in in_user_mode {
        let kinds: Vec<bool> = seen.frames.iter().map(|(_, frame)| frame.is_return()).collect();
        assert_eq!(kinds.last(), Some(&false));
        // Unmapped frames have no address and so are no return addresses: none is expected here.
        assert!(kinds.iter().rev().skip(1).all(|is_return| *is_return), "{:?}", seen.frames);
    }
    // Each batch is in the order of time (see `drain`). A sample that waited for its process or for a table may come after younger ones,
    // but few have to wait.
    let late = seen.windows(2).filter(|pair| pair[0].sample.time > pair[1].sample.time).count();
    assert!(late * 20 < seen.len(), "{late} of {} came after younger ones", seen.len());
    assert!(seen.iter().filter(|seen| seen.sample.user_end == UserEnd::Root).count() * 10 > seen.len() * 9);
}

/// Asserts that nearly all stacks of `levels` levels are cut at `frames` frames, at the root side. (On a busy machine the limit
/// of time cuts such stacks: see tests/attack/walk.rs.)
fn assert_cut_at(frames: usize, levels: &str, walk: Walk) {
    let _alone = alone();
    let mut session = Session::start_as(CollectorOptions { walk, limit_walks: false, ..Default::default() });
    let tgid = session.watch(&["deep", "300", levels]);
    let seen = session.of(tgid);
    let cut: Vec<&&Seen> = seen.iter().filter(|seen| seen.sample.user_end == UserEnd::Cut).collect();
    assert!(cut.len() * 10 > seen.len() * 8 && cut.len() > 20, "{} of {}", cut.len(), seen.len());
    let mut below = 0;
    for seen in &cut {
        assert_eq!(user_frames(seen).count(), frames);
        let functions = functions(seen, work());
        let is_below = functions.iter().any(|function| function == "outer");
        below += usize::from(is_below);
        // Samples outside of `outer` are in `deeper`, while the program builds its stack (which takes page faults) or leaves it.
        assert!(is_below || functions.last().is_some_and(|leaf| leaf == "deeper"), "{functions:?}");
    }
    assert!(below * 10 > cut.len() * 9, "{below} of {} in outer", cut.len());
}

#[test]
fn a_stack_that_is_too_deep_keeps_its_leaf_side_and_says_so() {
    assert_cut_at(2048, "3000", Walk::Tables);
}

#[test]
fn by_frame_pointers_a_stack_may_be_as_deep_as_the_kernel_says() {
    assert_cut_at(127, "200", Walk::FramePointers);
}

#[test]
fn a_process_that_is_exiting_has_no_readable_user_stack() {
    let _alone = alone();
    let mut session = Session::start(Targets::All);
    let tgid = session.watch(&["exit", "400"]);
    let seen = session.of(tgid);
    let unreadable: Vec<&&Seen> = seen.iter().filter(|seen| seen.sample.user_end == UserEnd::NoMemory).collect();
    assert!(!unreadable.is_empty(), "none of {}", seen.len());
    assert!(unreadable.iter().all(|seen| user_frames(seen).next().is_none() && !seen.frames.is_empty()));
}

/// Time that all CPUs were idle, in ticks of 10 ms: proc_stat(5).
fn idle_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.lines().next().unwrap().split_whitespace().nth(4).unwrap().parse().unwrap()
}

#[test]
fn idle_cpus_are_sampled_when_asked_for_as_kernel_threads_of_process_0() {
    let _alone = alone();
    let mut session = Session::start_with(Targets::All, true);
    let (until, before) = (Instant::now() + Duration::from_secs(60), idle_ticks());
    while session.of(0).is_empty() {
        std::thread::sleep(Duration::from_millis(50));
        session.drain();
        if Instant::now() > until {
            let ticks = idle_ticks() - before;
            assert!(ticks < 10, "CPUs were idle for {ticks} ticks without a sample");
            return println!("NOT TESTED: no CPU was idle for a minute");
        }
    }
    for idle in session.of(0) {
        assert_eq!(idle.sample.user_end, UserEnd::KernelThread);
        assert_eq!(user_frames(idle).count(), 0);
        assert_eq!(session.process_name(idle.sample.thread), "swapper");
        assert!(session.thread_name(idle.sample.thread).starts_with("swapper/"));
    }
}

/// Calls of `getppid` that this process makes when a test samples the process itself.
const OWN_CALLS: u64 = 1000;

/// Computes for 300 ms in this process and calls `getppid`, then watches a child compute.
fn work_here_and_in_a_child(include_self: bool) -> (Session, u32) {
    let name = "syscalls:sys_enter_getppid".to_owned();
    let event = EventRequest { spec: EventSpec::parse(&name).unwrap(), name, places: Vec::new(), is_agreed: true };
    let mut session = Session::start_as(CollectorOptions { include_self, events: vec![event], ..Default::default() });
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    for _ in 0..OWN_CALLS {
        std::hint::black_box(std::os::unix::process::parent_id());
    }
    let child = session.watch(&["busy", "300"]);
    (session, child)
}

#[test]
fn our_own_samples_and_events_are_left_out_and_counted() {
    let _alone = alone();
    let (session, child) = work_here_and_in_a_child(false);
    assert!(session.of(std::process::id()).is_empty(), "a sample of this process");
    assert!(session.of(child).len() > 20, "{} samples of our child", session.of(child).len());
    let left_out = session.collector.own_left_out();
    assert!(left_out > 20, "{left_out} samples left out of 300 ms at 499 Hz");
    assert_eq!(session.collector.events()[0].own, OWN_CALLS);
}

#[test]
fn our_own_samples_and_events_are_there_if_they_are_wanted() {
    let _alone = alone();
    let (session, child) = work_here_and_in_a_child(true);
    let own = session.of(std::process::id());
    let (ticks, events): (Vec<&Seen>, Vec<&Seen>) = own.iter().partition(|seen| seen.sample.source == EventSource::CLOCK);
    assert!(ticks.len() > 20 && !events.is_empty(), "{} ticks, {} stacks of events", ticks.len(), events.len());
    assert!(session.of(child).len() > 20, "{} samples of our child", session.of(child).len());
    assert_eq!(session.collector.own_left_out(), 0);
    let status = &session.collector.events()[0];
    assert!(status.events >= OWN_CALLS && status.own == 0, "{status:?}");
}

/// An event that would cost the programs much is tried for a moment, and nothing stays attached. The samples of the trial are not among those
/// of the event that is attached later.
#[test]
fn a_costly_event_needs_consent_and_leaves_nothing_without() {
    let _alone = alone();
    let counts_runs = || {
        let open =
            std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        open.filter(|link| link.to_string_lossy().contains("bpf-stats")).count()
    };
    let name = "syscalls:sys_enter_getppid".to_owned();
    let unasked = EventRequest { spec: EventSpec::parse(&name).unwrap(), name, places: Vec::new(), is_agreed: false };
    let agreed = EventRequest { is_agreed: true, ..unasked.clone() };
    let mut session = Session::start(Targets::All);
    // A system call all the time: with its tracepoint it costs the program more than a tenth of a CPU.
    let script = "use POSIX; $| = 1; print \"ready\\n\"; getppid while 1";
    let perl = Command::new("perl").args(["-e", script]).stdout(Stdio::piped()).spawn().expect("perl runs");
    let mut caller = Running { child: perl };
    caller.child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    match session.collector.attach_event(&unasked) {
        Err(CollectorError::Costly { per_second, cpus, .. }) => println!("{per_second} a second, {cpus} CPUs"),
        other => panic!("{other:?}"),
    }
    assert_eq!((session.collector.events().len(), counts_runs()), (0, 0));
    let source = session.collector.attach_event(&agreed).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        session.collector.read_runs();
        let status = session.collector.events().remove(0);
        if status.cost > 0 && status.events > 0 {
            break;
        }
        assert!(Instant::now() < until, "{status:?}");
    }
    assert_eq!(counts_runs(), 1);
    while session.seen.iter().all(|seen| seen.sample.source != source) {
        assert!(Instant::now() < until, "no stack of the source");
        session.drain();
    }
    session.collector.detach_event(source);
    assert_eq!((session.collector.events().len(), counts_runs()), (0, 0));
    drop(caller);
    let of_trial = session.seen.iter().filter(|seen| ![source, EventSource::CLOCK].contains(&seen.sample.source));
    assert!(of_trial.count() > 0, "the trial took stacks");
}

#[test]
fn a_program_that_ran_before_us_has_its_mappings_even_if_its_file_is_gone() {
    let _alone = alone();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("work-deleted");
    std::fs::copy(work(), &copy).unwrap();
    let child = Command::new(&copy).args(["busy", "600"]).spawn().unwrap();
    let tgid = child.id();
    std::thread::sleep(Duration::from_millis(50));
    std::fs::remove_file(&copy).unwrap();
    let mut session = Session::start(Targets::All);
    session.follow(child);
    let seen = session.of(tgid);
    assert!(seen.len() > 50, "{} samples", seen.len());
    let deleted = format!("{} (deleted)", copy.display());
    let there =
        seen.iter().filter(|seen| seen.frames.iter().any(|(object, _)| *object.path == *deleted && object.build_id.is_some()));
    assert!(there.count() * 10 > seen.len() * 8);
}

#[test]
fn one_library_is_one_object_whether_it_was_mapped_before_us_or_after() {
    let _alone = alone();
    let before = run(&["busy", "500"]);
    std::thread::sleep(Duration::from_millis(50));
    let mut session = Session::start(Targets::All);
    let after = run(&["busy", "500"]);
    let (first, second) = (before.id(), after.id());
    session.follow(before);
    session.follow(after);
    let objects = |tgid| -> BTreeSet<u32> {
        let of = session.of(tgid);
        let frames =
            of.iter().flat_map(|seen| &seen.frames).filter(|(object, _)| object.path.contains("libc.so") || is(object, work()));
        frames.map(|(_, frame)| frame.object().0).collect()
    };
    assert_eq!(objects(first).len(), 2, "libc and the program");
    assert_eq!(objects(first), objects(second));
}

#[test]
fn children_are_followed_from_their_first_instruction_and_strangers_are_not_sampled() {
    let _alone = alone();
    // It waits until it is a target, as a command that flametop starts does.
    let script = format!("read go; {} busy 100 & {} spawn 60 5; wait", work().display(), work().display());
    let mut family = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    let shell = family.id();
    let mut session = Session::start(Targets::Families(vec![Tgid(shell)]));
    let mut stranger = run(&["busy", "600"]);
    std::io::Write::write_all(family.stdin.as_mut().unwrap(), b"go\n").unwrap();
    session.follow(family);
    assert!(session.of(stranger.id()).is_empty());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let members: BTreeSet<Tgid> = session.seen.iter().map(|seen| seen.sample.thread.tgid).collect();
    // One busy child and five grandchildren; the shell and the spawner hardly run.
    assert!(members.len() >= 6, "{members:?}");
    for member in members.iter().filter(|member| **member != Tgid(shell)) {
        let mut ancestor = *member;
        while ancestor != Tgid(shell) {
            ancestor = session.processes.get(&ancestor).unwrap_or_else(|| panic!("{ancestor} is known")).parent;
        }
    }
}

#[test]
fn only_the_processes_asked_for_are_sampled_and_more_can_be_added() {
    let _alone = alone();
    let (first, second) = (run(&["busy", "700"]), run(&["busy", "700"]));
    let mut session = Session::start(Targets::Processes(vec![Tgid(first.id())]));
    let (first_id, second_id) = (first.id(), second.id());
    // The first samples wait until the process's mappings were read.
    let begun = Instant::now();
    while session.of(first_id).is_empty() && begun.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(50));
        session.drain();
    }
    assert!(!session.of(first_id).is_empty());
    assert!(session.of(second_id).is_empty());
    session.collector.add_target(Tgid(second_id)).unwrap();
    session.follow(first);
    session.follow(second);
    assert!(!session.of(second_id).is_empty());
    let members: BTreeSet<u32> = session.seen.iter().map(|seen| seen.sample.thread.tgid.0).collect();
    assert_eq!(members, BTreeSet::from([first_id, second_id]));
    assert!(matches!(session.collector.add_target(Tgid(5_000_000)), Err(CollectorError::NoSuchProcess(_))));
}

/// Asserts that all innermost user frames of the children of `parent` are in a file, and that most samples are in the chain of functions.
fn assert_children_are_mapped(session: &Session, parent: u32, times: usize) {
    let is_child = |tgid: Tgid| session.processes.get(&tgid).is_some_and(|process| process.parent == Tgid(parent));
    let seen: Vec<&Seen> = session.seen.iter().filter(|seen| is_child(seen.sample.thread.tgid)).collect();
    let children: BTreeSet<Tgid> = seen.iter().map(|seen| seen.sample.thread.tgid).collect();
    assert_eq!(children.len(), times, "each of them is sampled");
    for one in &seen {
        // Only the frame where it ran in user mode is checked. Callers found by frame pointers may be anything while ld.so runs,
        // which keeps none; and inside execve the registers are still those of the program that is gone.
        if let Some((object, frame)) = one.frames.last() {
            assert_ne!(object.kind, ObjectKind::Unmapped, "{frame:?} in {:?}", one.frames);
        }
    }
    assert!(in_chain(&seen) * 10 > seen.len() * 7, "{} of {} are in the chain", in_chain(&seen), seen.len());
}

#[test]
fn programs_of_fifty_milliseconds_have_their_mappings() {
    let _alone = alone();
    let mut session = Session::start(Targets::All);
    let tgid = session.watch(&["spawn", "50", "20"]);
    assert_children_are_mapped(&session, tgid, 20);
}

#[test]
fn children_that_run_no_other_program_have_their_parents_mappings() {
    let _alone = alone();
    let child = run(&["fork", "50", "10"]);
    let tgid = child.id();
    // Some children are forked before we start; their parent was always there before us.
    let mut session = Session::start(Targets::All);
    session.follow(child);
    let is_child =
        |seen: &&Seen| session.processes.get(&seen.sample.thread.tgid).is_some_and(|process| process.parent == Tgid(tgid));
    let seen: Vec<&Seen> = session.seen.iter().filter(is_child).collect();
    assert!(seen.len() > 20);
    assert!(in_chain(&seen) * 10 > seen.len() * 7, "{} of {} are in the chain", in_chain(&seen), seen.len());
}

#[test]
fn a_thread_has_its_own_name_and_its_process_another() {
    let _alone = alone();
    let mut session = Session::start(Targets::All);
    let tgid = session.watch(&["thread", "300"]);
    let of_thread: Vec<Thread> =
        session.of(tgid).iter().map(|seen| seen.sample.thread).filter(|thread| thread.tid.0 != thread.tgid.0).collect();
    let named = of_thread.iter().filter(|thread| session.thread_name(**thread) == "worker-thread").count();
    assert!(named > 50 && named + 5 >= of_thread.len(), "{named} of {}", of_thread.len());
    assert!(of_thread.iter().all(|thread| session.process_name(*thread) == "work"));
    assert!(session.exited.contains(&Tgid(tgid)), "a process of several threads is seen to end");
}

/// Threads are counted that exist, not those that were ever there: before flametop's start and after it.
#[test]
fn the_threads_of_a_process_are_those_that_exist() {
    let _alone = alone();
    let program = "import threading, sys\n\
        for _ in range(300):\n    thread = threading.Thread(target=sum, args=(range(1000),))\n    thread.start()\n    thread.join()\n\
        stay = threading.Event()\n\
        for _ in range(3): threading.Thread(target=stay.wait).start()\n\
        print('ready', flush=True)\nsys.stdin.read()\nstay.set()";
    let start = || {
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 runs");
        let mut line = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        child
    };
    let before = start();
    let mut session = Session::start(Targets::All);
    let after = start();
    session.drain();
    for mut child in [before, after] {
        let tgid = Tgid(child.id());
        let count = |session: &Session| session.processes.get(&tgid).map(|process| (process.threads, process.exited.is_some()));
        assert_eq!(count(&session), Some((4, false)));
        drop(child.stdin.take());
        session.follow(child);
        assert_eq!(count(&session), Some((0, true)));
    }
}

/// A flood of mappings may fill a ring. The end of the process that made it is known all the same.
#[test]
fn a_process_is_seen_to_end_although_its_mappings_filled_the_ring() {
    let _alone = alone();
    let mut session = Session::start(Targets::All);
    let program = "import mmap\nfor _ in range(150000): mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()";
    let mut child = Command::new("python3").args(["-c", program]).spawn().expect("python3 runs");
    let tgid = Tgid(child.id());
    assert!(child.wait().unwrap().success());
    std::thread::sleep(Duration::from_millis(20));
    session.drain();
    assert!(session.exited.contains(&tgid));
    // The kernel says with the next record how many were lost.
    for cpu in 0..std::thread::available_parallelism().unwrap().get() {
        assert!(Command::new("taskset").args(["-c", &cpu.to_string(), "true"]).status().unwrap().success());
    }
    std::thread::sleep(Duration::from_millis(20));
    session.drain();
    assert!(session.batch.losses.events_lost > 0, "the ring was not full");
}

#[test]
fn a_process_that_runs_another_program_changes_name_and_mappings() {
    let _alone = alone();
    let other = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other");
    std::fs::copy(work(), &other).unwrap();
    let mut session = Session::start(Targets::All);
    let tgid = session.watch(&["exec", "200", other.to_str().unwrap()]);
    for (name, path) in [("work", work()), ("other", &*other)] {
        let seen: Vec<&Seen> =
            session.of(tgid).into_iter().filter(|seen| session.process_name(seen.sample.thread) == name).collect();
        let spinning = seen.iter().filter(|seen| functions(seen, path).contains(&"inner".to_string())).count();
        assert!(seen.len() > 30 && spinning * 10 > seen.len() * 8, "{spinning} of {} as {name}", seen.len());
    }
}

#[test]
fn the_vdso_and_the_kernel_are_objects_of_their_own() {
    let _alone = alone();
    let mut session = Session::start(Targets::All);
    let (clock, kernel) = (run(&["clock", "300"]), run(&["kernel", "300"]));
    let (clock_id, kernel_id) = (clock.id(), kernel.id());
    session.follow(clock);
    session.follow(kernel);
    let of_clock = session.of(clock_id);
    let in_vdso = of_clock.iter().filter(|seen| seen.frames.last().is_some_and(|(_, frame)| frame.object() == ObjectId::VDSO));
    let offsets: Vec<u64> = in_vdso.map(|seen| seen.frames.last().unwrap().1.address()).collect();
    assert!(offsets.len() * 4 > of_clock.len(), "{} of {}", offsets.len(), of_clock.len());
    assert!(offsets.iter().all(|offset| *offset < 0x10000), "offsets in the image: {offsets:x?}");
    let of_kernel = session.of(kernel_id);
    let in_call: Vec<&&Seen> =
        of_kernel.iter().filter(|seen| seen.frames.last().is_some_and(|last| last.1.object() == ObjectId::KERNEL)).collect();
    assert!(in_call.len() * 4 > of_kernel.len(), "{} of {}", in_call.len(), of_kernel.len());
    for seen in &in_call {
        let (kernel, user): (Vec<_>, Vec<_>) = seen.frames.iter().partition(|(_, frame)| frame.object() == ObjectId::KERNEL);
        assert!(kernel.iter().all(|(_, frame)| frame.address() >> 63 == 1));
        assert!(!user.is_empty() || seen.sample.user_end == UserEnd::NoMemory);
        let order: Vec<bool> = seen.frames.iter().map(|(_, frame)| frame.object() == ObjectId::KERNEL).collect();
        assert!(order.is_sorted(), "user frames come before kernel frames");
    }
    // read() was called: below it, the user part begins behind the instruction that called the kernel.
    let after_call = in_call.iter().filter(|seen| user_frames(seen).last().is_some_and(|(_, frame)| frame.is_return())).count();
    assert!(after_call * 10 > in_call.len() * 7, "{after_call} of {}", in_call.len());
    let kernel_threads = session.seen.iter().filter(|seen| seen.sample.user_end == UserEnd::KernelThread);
    assert!(kernel_threads.filter(|seen| user_frames(seen).next().is_some()).count() == 0);
}

/// Ids of the BPF programs and maps that this process holds by descriptors.
fn our_bpf_ids() -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut programs, mut maps) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let id = |key| info.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok());
        programs.extend(id("prog_id:"));
        maps.extend(id("map_id:"));
    }
    (programs, maps)
}

fn our_kernel_descriptors() -> usize {
    let targets = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("bpf") || target.to_string_lossy().contains("perf_event")).count()
}

#[test]
fn nothing_is_left_in_the_kernel() {
    let _alone = alone();
    let before = our_kernel_descriptors();
    let mut session = Session::start(Targets::Families(vec![Tgid(std::process::id())]));
    session.drain();
    let (programs, maps) = our_bpf_ids();
    assert!(programs.len() >= 2, "{programs:?}");
    assert!(maps.len() >= 4, "{maps:?}");
    drop(session);
    assert_eq!(our_kernel_descriptors(), before);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        // The kernel frees them a grace period after the last descriptor was closed.
        let programs_left = libbpf_rs::query::ProgInfoIter::default().filter(|program| programs.contains(&program.id)).count();
        let maps_left = libbpf_rs::query::MapInfoIter::default().filter(|map| maps.contains(&map.id)).count();
        if programs_left + maps_left == 0 {
            break;
        }
        assert!(Instant::now() < until, "{programs_left} programs and {maps_left} maps are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}
