//! Reads Python functions in the memory of real interpreters, of each installed version, and compares them with the program's own output.

// A test panics with a sentence if it cannot run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/mod.rs"]
mod common;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Program, alone};
use flametop::collector::{Batch, Collector, CollectorOptions, ScriptCounts, Targets, Walk};
use flametop::profile::{Frame, FrameId, Names, Tgid, UserEnd};
use flametop::runtimes::Memory;
use flametop::runtimes::python::{Clues, Code, Layout, Run, Version, chain, find_slot};
use object::{Object, ObjectSegment, ObjectSymbol};
use rustc_hash::FxHashMap;

/// An interpreter.
struct Python {
    /// The words of the command that starts it.
    words: Vec<PathBuf>,
    home: Option<PathBuf>,
    /// Its library, and the library's home, if it has one.
    library: Option<(PathBuf, PathBuf)>,
}

impl Python {
    fn command(&self, words: &[PathBuf]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
        if let Some(home) = &self.home {
            command.env("PYTHONHOME", home);
        }
        command
    }

    /// The words of a command that starts a host program with the interpreter's library.
    fn host(&self, host: &Path) -> Vec<PathBuf> {
        let mut words = self.words.clone();
        words.pop();
        words.push(host.to_owned());
        words
    }
}

/// Where `scripts/pythons.sh` puts interpreters and packages.
fn fetched() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("pythons")
}

/// The interpreters on this machine: of the distribution, of pyenv, and Debian's others.
fn interpreters() -> Vec<Python> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let of_pyenv = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let of_pyenv = of_pyenv.map(|entry| entry.path().join("bin/python")).filter(|path| path.exists());
    let here = std::iter::once(PathBuf::from("/usr/bin/python3")).filter(|path| path.exists()).chain(of_pyenv);
    let mut found: Vec<Python> = here.map(|path| Python { library: library_of(&path), words: vec![path], home: None }).collect();
    assert!(!found.is_empty(), "there is no Python on this machine: scripts/setup.sh test installs one");
    for (suite, version) in [("trixie", "3.13"), ("sid", "3.14"), ("sid", "3.15")] {
        let usr = fetched().join(suite).join("usr");
        let libraries = usr.join("lib/x86_64-linux-gnu");
        if !usr.exists() {
            let why = std::fs::read_to_string(fetched().join(format!("{suite}.missing")));
            let why = why.expect("Debian's Pythons are not there: scripts/setup.sh test fetches them");
            eprintln!("NOT TESTED: Debian's Python {version}: {}", why.trim());
            continue;
        }
        let library = libraries.join(format!("libpython{version}.so.1.0"));
        let words = ["ld-linux-x86-64.so.2".into(), "--library-path".into(), PathBuf::new(), format!("python{version}").into()];
        let [loader, option, _, program]: [PathBuf; 4] = words;
        let words = vec![libraries.join(loader), option, libraries, usr.join("bin").join(program)];
        found.push(Python { words, library: Some((library, usr.clone())), home: Some(usr) });
    }
    found
}

/// The library of an interpreter, if it has one.
fn library_of(python: &Path) -> Option<(PathBuf, PathBuf)> {
    let ask = "import sys, sysconfig as c; print(c.get_config_var('LIBDIR') + '/' + c.get_config_var('INSTSONAME'), sys.prefix)";
    let told = Command::new(python).args(["-c", ask]).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let (library, home) = told.trim().split_once(' ')?;
    (library.contains(".so") && Path::new(library).exists()).then(|| (library.into(), home.into()))
}

/// A program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program and waits until it prints a line, `ready`.
#[track_caller]
fn ready(command: &mut Command) -> Running {
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), "ready", "{command:?}");
    child
}

/// Records a running process for two seconds. Returns its stacks, root first, with their weights.
fn record_process(process: &Running, flags: &[&str]) -> Vec<(Vec<String>, u64)> {
    let pid = process.0.id().to_string();
    recorded(|command| {
        command.args(flags).args(["-p", &pid]);
    })
}

/// Records for two seconds, and again for longer if that was less than a second of CPU time: other programs may want the CPUs. `add` adds
/// arguments.
fn recorded(add: impl Fn(&mut Command)) -> Vec<(Vec<String>, u64)> {
    let directory = tempfile::tempdir().unwrap();
    let folded = directory.path().join("x.folded");
    let mut stacks = Vec::new();
    for seconds in ["2", "8", "30"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flametop"));
        command.args(["record", "-F", "499", "-d", seconds, "--force", "-o"]).arg(&folded);
        add(&mut command);
        let recorded = command.output().unwrap();
        assert!(recorded.status.success(), "this test needs root: {}", String::from_utf8_lossy(&recorded.stderr));
        stacks = read_folded(&folded);
        if stacks.iter().map(|(_, weight)| weight).sum::<u64>() >= 499 {
            break;
        }
    }
    stacks
}

/// The output of `tests/programs/python.py` about itself.
struct Told {
    version: Version,
    process: u32,
    thread: u64,
    /// The line in which `busy` spins.
    busy: u32,
    /// File, line and name, innermost first.
    frames: Vec<(String, u32, String)>,
}

/// A running interpreter.
struct Interpreter {
    child: Child,
    told: Told,
    memory: ProcessMemory,
    runtime: u64,
    getter: Option<u64>,
}

struct ProcessMemory(File);

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.0.read_exact_at(buffer, address).is_ok()
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        self.signal("-KILL");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// `python.py` in one of its modes.
fn program(python: &Python, mode: &str) -> Command {
    let mut command = python.command(&python.words);
    command.args([SCRIPT, mode]);
    command
}

const WORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/work.py");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/python.py");

impl Interpreter {
    /// Starts `python.py`; `None` for a version that is not ours.
    fn start(command: &mut Command) -> Option<Interpreter> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let version = Version { major: 0, minor: 0 };
        let mut told = Told { version, process: child.id(), thread: 0, busy: 0, frames: Vec::new() };
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take_while(|line| line != "end") {
            let (what, rest) = line.split_once(' ').unwrap();
            match what {
                "version" => {
                    let (major, minor) = rest.split_once('.').unwrap();
                    told.version = Version { major: major.parse().unwrap(), minor: minor.parse().unwrap() };
                }
                "process" => told.process = rest.parse().unwrap(),
                "thread" => told.thread = rest.parse().unwrap(),
                "busy" => told.busy = rest.parse().unwrap(),
                _ => {
                    let mut parts = rest.splitn(3, ':');
                    let mut part = || parts.next().unwrap().to_owned();
                    told.frames.push((part(), part().parse().unwrap(), part()));
                }
            }
        }
        if told.version < (Version { major: 3, minor: 7 }) {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // 2.7 does not even read it.
            assert!(told.version.major == 3 || said.contains("Non-ASCII character"), "{command:?}: {said}");
            return None;
        }
        // Time between its last output and the busy loop.
        std::thread::sleep(Duration::from_millis(100));
        let runtime = symbol_of(told.process, "_PyRuntime").expect("each Python from 3.7 on exports it");
        let getter = symbol_of(told.process, "PyGILState_GetThisThreadState");
        let memory = ProcessMemory(File::open(format!("/proc/{}/mem", told.process)).unwrap());
        Some(Interpreter { child, told, memory, runtime, getter })
    }

    fn layout(&self) -> Layout {
        Layout::of(self.told.version, &self.memory, self.runtime).expect("a known version")
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.told.process.to_string()]).status().unwrap().success());
    }

    /// File, line and name of all functions of a sample, innermost first.
    fn expected(&self) -> Vec<(String, u32, String)> {
        let (script, ..) = self.told.frames[0].clone();
        std::iter::once((script, self.told.busy, "busy".to_owned())).chain(self.told.frames.iter().cloned()).collect()
    }

    /// The runs of Python functions in the thread while it is stopped.
    fn runs(&self) -> Vec<Run> {
        self.signal("-STOP");
        std::thread::sleep(Duration::from_millis(20));
        let layout = self.layout();
        let clues = Clues { runtime: self.runtime, getter: self.getter, self_size: 0 };
        let slot = find_slot(&self.memory, &layout, &clues, self.told.thread).expect("the slot of the thread's state");
        let state = slot.state(&self.memory, self.told.thread).unwrap();
        let (runs, whole) = chain(&self.memory, &layout, state, 2048);
        assert!(whole, "{:?}", self.told.version);
        runs
    }

    /// Name, file and line of each function, innermost first.
    fn functions(&self, runs: &[Run]) -> Vec<(String, u32, String)> {
        let layout = self.layout();
        let frames = runs.iter().flat_map(|run| &run.frames);
        let code = |code| Code::read(&self.memory, &layout, code).expect("a code object");
        let told = frames.map(|frame| (code(frame.code), frame.place)).filter(|(code, _)| !code.is_shim());
        told.map(|(code, place)| (code.file.clone(), code.lines.line(place).expect("a line"), code.name.clone())).collect()
    }
}

/// The interpreters whose functions flametop shows.
fn all_shown() -> Vec<(Python, Version)> {
    let told = interpreters().into_iter().filter_map(|python| {
        let version = Interpreter::start(&mut program(&python, "spin"))?.told.version;
        Some((python, version))
    });
    let shown: Vec<_> = told.collect();
    assert!(!shown.is_empty(), "no Python from 3.7 on is on this machine: scripts/setup.sh test installs one");
    shown
}

/// Returns the interpreters for which `is_one` is true, given the interpreter and its minor version. Returns all interpreters if
/// `EVERY_PYTHON` is set, or if the machine has none of these.
fn those(is_one: impl Fn(&Python, u8) -> bool) -> Vec<(Python, Version)> {
    let all = all_shown();
    let is_one = |(python, version): &(Python, Version)| is_one(python, version.minor);
    if std::env::var_os("EVERY_PYTHON").is_some() || !all.iter().any(is_one) {
        return all;
    }
    all.into_iter().filter(is_one).collect()
}

/// The machine's own interpreter, and those of the first, the middle and the last years. [`functions_files_and_lines_are_those_that_the_program_tells`] looks at all.
fn shown() -> Vec<(Python, Version)> {
    let is_own = |python: &Python| python.words == [PathBuf::from("/usr/bin/python3")];
    those(|python, minor| is_own(python) || matches!((minor, python.home.is_some()), (8 | 11 | 13, false) | (15, true)))
}

/// A few that find frames and states each in another way.
fn some() -> Vec<(Python, Version)> {
    those(|python, minor| matches!((minor, python.home.is_some()), (9 | 10 | 12, false) | (15, true)))
}

/// Records `python.py`, and returns its stacks, root first, with their weights. The file `told` gets the output of `python.py`.
fn record(python: &Python, mode: &str, flags: &[&str], told: &Path) -> Vec<(Vec<String>, u64)> {
    recorded(|command| {
        command.args(flags).arg("--").args(&python.words).args([SCRIPT, mode]).env("PYTHONDONTWRITEBYTECODE", "1");
        if let Some(home) = &python.home {
            command.env("PYTHONHOME", home);
        }
        command.stdout(File::create(told).unwrap());
    })
}

/// The Python functions of a stack, root first.
fn python_functions(stack: &[String]) -> Vec<String> {
    stack.iter().filter_map(|frame| frame.strip_suffix("_[p]")).map(str::to_owned).collect()
}

/// The address of a symbol that the interpreter of a process exports.
fn symbol_of(pid: u32, name: &str) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mapped = maps.lines().filter(|line| line.contains("python")).filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?.split_once('-')?.0, 16).ok()?;
        let offset = words.nth(1)?;
        (offset == "00000000").then_some((start, words.nth(2)?.to_owned()))
    });
    for (start, path) in mapped {
        let bytes = std::fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let first = file.segments().map(|segment| segment.address()).min().unwrap();
        if let Some(symbol) = file.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(name)) {
            return Some(start - first + symbol.address());
        }
    }
    None
}

fn check(mode: &str) {
    let mut checked = Vec::new();
    for python in interpreters() {
        let Some(interpreter) = Interpreter::start(&mut program(&python, mode)) else { continue };
        let runs = interpreter.runs();
        let seen = interpreter.functions(&runs);
        let version = interpreter.told.version;
        assert_eq!(seen[0].2, "busy", "{version:?}");
        assert_eq!(seen[1..], interpreter.told.frames, "{version:?}");
        // The loop is called again by C: from `sorted`, `reduce`, `list` and, up to 3.10 or 3.12, for each call or class.
        let least = if version.minor <= 10 { seen.len() } else { 4 };
        assert!(runs.len() >= least, "{version:?}: {} runs", runs.len());
        let anchors: Vec<u64> = runs.iter().filter_map(|run| run.anchor).collect();
        assert_eq!(anchors.len(), if version.minor <= 9 { 0 } else { runs.len() }, "{version:?}");
        assert!(anchors.is_sorted_by(|one, next| one < next), "{version:?}: outer calls lie above inner ones: {anchors:x?}");
        checked.push(format!("{}.{}", version.major, version.minor));
    }
    println!("{mode}: {}", checked.join(", "));
}

#[test]
fn functions_files_and_lines_are_those_that_the_program_tells() {
    check("spin");
}

#[test]
fn a_thread_has_its_own() {
    check("thread");
}

#[test]
fn a_thread_without_the_interpreters_lock_has_its_functions_too() {
    check("hash");
}

#[test]
fn stacks_have_python_functions_among_native_frames() {
    let _alone = alone();
    for mode in ["spin"] {
        for (python, version) in shown() {
            let directory = tempfile::tempdir().unwrap();
            let told = directory.path().join("told");
            let stacks = record(&python, mode, &["--interpreter"], &told);
            let told = std::fs::read_to_string(&told).unwrap();
            let mut expected: Vec<String> =
                told.lines().filter_map(|line| Some(line.strip_prefix("frame ")?.splitn(3, ':').nth(2)?.to_owned())).collect();
            expected.reverse();
            expected.push("busy".to_owned());
            let all: u64 =
                stacks.iter().filter(|(stack, _)| stack.iter().any(|frame| frame == "busy_[p]")).map(|(_, weight)| weight).sum();
            let right: u64 =
                stacks.iter().filter(|(stack, _)| python_functions(stack) == expected).map(|(_, weight)| weight).sum();
            assert!(all > 200, "{version:?} {mode}: {all} samples of busy()");
            // While a function is being called or has just returned, there is one more or less.
            assert!(right * 100 >= all * 99, "{version:?} {mode}: {right} of {all} samples have {expected:?}");
            // C functions of the interpreter are between their callers and the functions they call.
            let between = |caller: &str, native: &str, callee: &str| {
                let is_so = |stack: &[String]| {
                    let at = |name: &str| stack.iter().rposition(|frame| frame == name);
                    let (caller, callee) = (at(caller), at(callee));
                    let native = stack.iter().rposition(|frame| frame.trim_end_matches("_[i]").ends_with(native));
                    caller.zip(native).zip(callee).is_some_and(|((caller, native), callee)| caller < native && native < callee)
                };
                stacks.iter().filter(|(stack, _)| is_so(stack)).map(|(_, weight)| weight).sum::<u64>()
            };
            let (class, lambda) = match version.minor {
                ..=10 => ("add_[p]", "<lambda>_[p]"),
                _ => ("Größe.add_[p]", "Größe.add.<locals>.<lambda>_[p]"),
            };
            // Interpreters without symbols have no names there.
            if stacks.iter().any(|(stack, _)| stack.iter().any(|frame| frame.starts_with("list_sort"))) {
                assert!(between(class, "list_sort", lambda) >= right, "{version:?} {mode}");
            }
        }
    }
}

#[test]
fn frames_that_serve_to_run_functions_are_folded() {
    let _alone = alone();
    for (python, version) in some() {
        let directory = tempfile::tempdir().unwrap();
        let stacks = record(&python, "spin", &[], &directory.path().join("told"));
        let all: u64 =
            stacks.iter().filter(|(stack, _)| stack.iter().any(|frame| frame == "busy_[p]")).map(|(_, weight)| weight).sum();
        // The loop itself is the function that it runs. Callers of functions are folded, but for the outermost one.
        let is_folded = |stack: &[String]| {
            let busy = stack.iter().position(|frame| frame == "busy_[p]");
            let native = |frame: &&String| !frame.ends_with("_[p]");
            let others: Vec<&String> = stack[..busy.unwrap_or(0)].iter().filter(native).collect();
            let known = ["python", "ld-linux", "_start", "__libc_start", "libc.so.6", "main"];
            busy == Some(stack.len() - 1) && others.iter().all(|frame| known.iter().any(|start| frame.starts_with(start)))
        };
        let folded: u64 = stacks.iter().filter(|(stack, _)| is_folded(stack)).map(|(_, weight)| weight).sum();
        assert!(
            all > 200 && folded * 100 >= all * 99,
            "{version:?}: {folded} of {all} samples, of the others: {:?}",
            stacks.iter().filter(|(stack, _)| !is_folded(stack)).max_by_key(|(_, weight)| *weight)
        );
    }
}

/// The Python functions of each process in each sample of some time: file, line and name, innermost first. Interpreters are found in the
/// first moments, whose samples are left out.
fn sampled(interpreters: &[Interpreter]) -> Vec<Vec<Vec<(String, u32, String)>>> {
    let processes: Vec<Tgid> = interpreters.iter().map(|interpreter| Tgid(interpreter.told.process)).collect();
    let targets = Targets::Processes(processes.clone());
    let options = CollectorOptions { frequency: 997, targets, limit_walks: false, ..Default::default() };
    let names = Arc::new(Names::default());
    let mut collector = Collector::start(options, Arc::clone(&names), Default::default()).expect("this test needs root");
    let function = |frame: &FrameId| match names.frames.get(*frame)? {
        Frame::Script { object, label, line } => {
            Some((names.objects.get(object)?.path.to_string(), line, names.labels.name(label).to_owned()))
        }
        _ => None,
    };
    let (mut batch, mut samples) = (Batch::default(), vec![Vec::new(); processes.len()]);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        collector.drain(&mut batch).unwrap();
        for sample in &batch.samples {
            let frames = &batch.frames[sample.frames.clone()];
            let Some(of) = processes.iter().position(|process| *process == sample.thread.tgid) else { continue };
            samples[of].push((sample.time, frames.iter().rev().filter_map(function).collect::<Vec<_>>()));
        }
    }
    let with_functions = samples.into_iter().map(|mut samples| {
        // Samples that waited for a table come after later ones.
        samples.sort_by_key(|(time, _)| *time);
        let mut samples: Vec<_> = samples.into_iter().map(|(_, functions)| functions).collect();
        let before = samples.iter().position(|functions| !functions.is_empty()).expect("a sample with functions");
        assert!(before < 997 / 2, "{before} samples came before the interpreter was found: more than half a second");
        samples.split_off(before)
    });
    with_functions.collect()
}

/// Closures share their code object, so their names stay. Code that is compiled anew for each call is gone before its name is read.
#[test]
fn closures_that_come_and_go_have_names() {
    const CLOSURES: &str = "
def work(count):
    return sum(range(count))
def make(count):
    def closure():
        return work(count)
    return closure
while True:
    for count in range(200):
        make(count)()
";
    const COMPILED: &str = "
def work(count):
    return sum(range(count))
while True:
    for count in range(200):
        eval('lambda: work(%d)' % count)()
";
    let _alone = alone();
    for (python, version) in some() {
        let gone = [CLOSURES, COMPILED].map(|text| {
            let mut command = python.command(&python.words);
            let child = Running(command.args(["-c", text]).spawn().unwrap());
            std::thread::sleep(Duration::from_millis(300));
            let targets = Targets::Processes(vec![Tgid(child.0.id())]);
            let options = CollectorOptions { frequency: 997, targets, limit_walks: false, ..Default::default() };
            let names = Arc::new(Names::default());
            let mut collector = Collector::start(options, Arc::clone(&names), Default::default()).expect("this test needs root");
            let (mut batch, mut all, mut gone) = (Batch::default(), 0, 0);
            // A tenth of a second each. Where other programs are busy, it takes longer than the usual two seconds.
            for round in 0..200 {
                if round >= 20 && all > 1000 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
                collector.drain(&mut batch).unwrap();
                for frame in &batch.frames {
                    match names.frames.get(*frame) {
                        Some(Frame::Script { .. }) => all += 1,
                        Some(Frame::Named(label)) if names.labels.name(label).contains("is gone") => {
                            (all, gone) = (all + 1, gone + 1)
                        }
                        _ => {}
                    }
                }
            }
            assert!(all > 1000, "{version:?}: {all} functions");
            (gone, all)
        });
        println!("{version:?}: gone of all functions: closures {:?}, compiled {:?}", gone[0], gone[1]);
        assert_eq!(gone[0].0, 0, "{version:?}: names of closures");
    }
}

/// Python functions are shown soon: those of a new program, and those of many services that ran before.
#[test]
fn first_functions_come_soon() {
    const MANY: usize = 50;
    let _alone = alone();
    let has_functions = |names: &Names, batch: &Batch, sample: &flametop::collector::Collected| {
        let frames = &batch.frames[sample.frames.clone()];
        frames.iter().any(|frame| matches!(names.frames.get(*frame), Some(Frame::Script { .. })))
    };
    let start = |names: &Arc<Names>| {
        let options = CollectorOptions { frequency: 97, limit_walks: false, ..Default::default() };
        Collector::start(options, Arc::clone(names), Default::default()).expect("this test needs root")
    };
    // Returns the time from `begin` until a sample of these processes has functions, and how many of them came before.
    let first = |begin: Instant, collector: &mut Collector, names: &Names, processes: &[u32]| {
        let (mut batch, mut before) = (Batch::default(), 0);
        while begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
            collector.drain(&mut batch).unwrap();
            for sample in batch.samples.iter().filter(|sample| processes.contains(&sample.thread.tgid.0)) {
                if has_functions(names, &batch, sample) {
                    return (begin.elapsed(), before);
                }
                before += 1;
            }
        }
        panic!("no functions within a minute");
    };
    for (python, version) in some() {
        let names = Arc::new(Names::default());
        let mut collector = start(&names);
        collector.drain(&mut Batch::default()).unwrap();
        let begin = Instant::now();
        let mut command = program(&python, "spin");
        let child = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let (one, before_one) = first(begin, &mut collector, &names, &[child.0.id()]);
        drop((child, collector));

        let many: Vec<Interpreter> = (0..MANY).filter_map(|_| Interpreter::start(&mut program(&python, "service"))).collect();
        let processes: Vec<u32> = many.iter().map(|one| one.told.process).collect();
        let (begin, names) = (Instant::now(), Arc::new(Names::default()));
        let mut collector = start(&names);
        let started = begin.elapsed();
        let (all, before) = first(begin, &mut collector, &names, &processes);
        println!(
            "{version:?}: a new program after {one:.0?}, {before_one} samples before; {MANY} programs after {all:.0?}, start {started:.0?}, \
             {before} samples before"
        );
        // 0.3 s, and a second on all CPUs. It is counted in samples, because a program that waits for a CPU has none.
        let cpus = std::thread::available_parallelism().unwrap().get();
        assert!(before_one < 29, "{version:?}: a new program has functions after {before_one} samples, {one:?}");
        assert!(before < 97 * cpus, "{version:?}: {MANY} programs have functions after {before} samples, {all:?}");
    }
}

/// The modes of `python.py`.
const MODES: [&str; 9] = ["spin", "thread", "hash", "deep", "callback", "exception", "coroutine", "fork", "greenlet"];

/// Host programs of this interpreter, by kind: one is linked with its library, one opens it, after as many seconds of CPU time as `SPIN`
/// says, and after as many keys of thread-specific data as `KEYS` says. An interpreter without a library has no hosts.
fn hosts(python: &Python, directory: &Path) -> Vec<(&'static str, Command)> {
    let Some((library, home)) = &python.library else { return Vec::new() };
    // 3.7 has only the latter.
    let linked = "int Py_BytesMain(int, char **) __attribute__((weak));
int _Py_UnixMain(int, char **) __attribute__((weak));
int main(int count, char **words) { return (Py_BytesMain ? Py_BytesMain : _Py_UnixMain)(count, words); }
";
    let opened = "#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
int main(int count, char **words)
{
	const char *spin = getenv(\"SPIN\"), *keys = getenv(\"KEYS\");
	pthread_key_t key;
	for (int i = 0; keys && i < atoi(keys); i++) pthread_key_create(&key, 0);
	while (spin && clock() < atoi(spin) * CLOCKS_PER_SEC) {}
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
	int (*run)(int, char **) = dlsym(library, \"Py_BytesMain\");
	run = run ? run : dlsym(library, \"_Py_UnixMain\");
	return run(count, words);
}
";
    let hosts = [("linked", linked), ("opened", opened)].map(|(name, source)| {
        let (program, text) = (directory.join(name), directory.join(format!("{name}.c")));
        std::fs::write(&text, source).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.arg("-pthread").arg(format!("-DLIBRARY=\"{}\"", library.display())).arg("-o").arg(&program).arg(text);
        if name == "linked" {
            let path = library.parent().unwrap().display();
            // Its own libraries may be newer than those of this machine.
            let flags = ["-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"];
            gcc.args(flags).arg(format!("-Wl,-rpath,{path}")).arg(library);
        }
        let built = gcc.arg("-ldl").output().expect("gcc is needed by this test");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut command = python.command(&python.host(&program));
        command.args([SCRIPT, "spin"]);
        command.env("PYTHONHOME", home);
        (name, command)
    });
    hosts.into()
}

#[test]
fn samples_tell_functions_and_lines_in_all_kinds_of_programs() {
    let _alone = alone();
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (python, version) in shown() {
        let directory = tempfile::tempdir().unwrap();
        let packages = fetched().join(format!("greenlet-{}.{}", version.major, version.minor));
        // Debian's own interpreters find no package for them.
        let has_greenlet = packages.exists() && python.home.is_none();
        let modes = MODES.iter().filter(|mode| **mode != "greenlet" || has_greenlet);
        let mut commands: Vec<(&str, Command)> = modes.map(|mode| (*mode, program(&python, mode))).collect();
        commands.extend(hosts(&python, directory.path()));
        let started = commands.iter_mut().map(|(_, command)| Interpreter::start(command.env("PYTHONPATH", &packages)).unwrap());
        let started: Vec<Interpreter> = started.collect();
        for ((mode, interpreter), samples) in commands.iter().map(|(mode, _)| mode).zip(&started).zip(sampled(&started)) {
            let expected = interpreter.expected();
            let right = samples.iter().filter(|sample| **sample == expected).count();
            table += &format!("{}.{} {mode}: {right} of {} samples\n", version.major, version.minor, samples.len());
            // While a function is being called or has just returned, there is one more or less.
            if samples.len() < 50 || right * 1000 < samples.len() * 995 {
                let other = samples.iter().find(|sample| **sample != expected);
                wrong.push(format!(
                    "{version:?} {mode}: {right} of {} samples have\n{expected:?}, another one\n{other:?}",
                    samples.len()
                ));
            }
        }
    }
    println!("{table}");
    let missing: Vec<&str> = MODES.into_iter().chain(["linked", "opened"]).filter(|mode| !table.contains(mode)).collect();
    assert!(missing.is_empty(), "no interpreter could do {missing:?}: scripts/setup.sh test brings what is needed");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn an_interpreter_that_a_sampled_program_opens_is_found() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let hosts = shown().into_iter().flat_map(|(python, _)| hosts(&python, directory.path()));
    let (_, mut opens) = hosts.into_iter().find(|(name, _)| *name == "opened").expect("no interpreter has a library");
    let host = Running(opens.env("SPIN", "3").stdout(Stdio::null()).spawn().unwrap());
    let targets = Targets::Processes(vec![Tgid(host.0.id())]);
    let options = CollectorOptions { frequency: 499, targets, ..Default::default() };
    let mut collector = Collector::start(options, Default::default(), Default::default()).expect("this test needs root");
    let (mut batch, mut before, begun) = (Batch::default(), 0, Instant::now());
    while collector.scripts().whole < 100 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{before} samples, {:?}", collector.scripts());
        std::thread::sleep(Duration::from_millis(50));
        collector.drain(&mut batch).unwrap();
        if collector.scripts().samples == 0 {
            before += batch.samples.len();
        }
    }
    assert!(before > 50, "the program was not sampled before it opened the library: {before}");
}

/// Asserts that nearly all samples of a process have all their Python functions.
#[track_caller]
fn assert_whole(process: u32, what: &str) {
    let targets = Targets::Processes(vec![Tgid(process)]);
    let options = CollectorOptions { frequency: 499, targets, limit_walks: false, ..Default::default() };
    let names = Arc::new(Names::default());
    let mut collector = Collector::start(options, Arc::clone(&names), Default::default()).expect("this test needs root");
    let (mut batch, begun) = (Batch::default(), Instant::now());
    while collector.scripts().samples < 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {:?}", collector.scripts());
        std::thread::sleep(Duration::from_millis(50));
        collector.drain(&mut batch).unwrap();
    }
    let counts = collector.scripts();
    assert!(counts.whole * 100 >= counts.samples * 99, "{what}: {counts:?}");
    let has_functions = batch.frames.iter().any(|frame| matches!(names.frames.get(*frame), Some(Frame::Script { .. })));
    assert!(has_functions, "{what}: no functions among {} frames", batch.frames.len());
}

#[test]
fn the_interpreter_is_found_behind_other_files_and_in_a_deleted_one() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let spin = "print('ready', flush=True)\nwhile True: sum(range(1000))";
    // Debian's programs contain the interpreter, and Debian has a library of it, too.
    let mut tested = 0;
    for (python, version) in shown().into_iter().filter(|(python, _)| python.home.is_some()) {
        let Some((library, _)) = &python.library else { continue };
        let text = format!("import ctypes; library = ctypes.CDLL('{}')\n{spin}", library.display());
        let child = ready(python.command(&python.words).args(["-c", &text]));
        assert_whole(child.0.id(), &format!("{version:?} with its library"));
        tested += 1;
    }
    assert!(tested > 0, "Debian's Pythons are not there: scripts/setup.sh test fetches them");
    let copy = directory.path().join("python");
    std::fs::copy("/usr/bin/python3", &copy).unwrap();
    let child = ready(Command::new(&copy).args(["-c", spin]));
    std::fs::remove_file(&copy).unwrap();
    assert_whole(child.0.id(), "a deleted copy");
}

#[test]
fn a_state_behind_many_keys_is_found() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let mut tested = 0;
    for (python, version) in shown() {
        let Some((_, mut opened)) = hosts(&python, directory.path()).into_iter().find(|(name, _)| *name == "opened") else {
            continue;
        };
        let interpreter = Interpreter::start(opened.env("KEYS", "70")).unwrap();
        assert_whole(interpreter.told.process, &format!("{version:?}"));
        tested += 1;
    }
    assert!(tested > 0, "no interpreter has a library");
}

#[test]
fn functions_of_the_same_name_in_different_files_are_different_frames() {
    let _alone = alone();
    let program = "spaces = [{} for number in range(4)]
for number, space in enumerate(spaces):
    exec(compile('def run(): return sum(range(1000))', '/x%d/same/views.py' % number, 'exec'), space)
print('ready', flush=True)
while True:
    for space in spaces: space['run']()";
    let (python, version) = shown().swap_remove(0);
    let child = ready(python.command(&python.words).args(["-c", program]));
    let stacks = record_process(&child, &["--places"]);
    for number in 0..4 {
        let wanted = format!("run (/x{number}/same/views.py:1)_[p]");
        let weight: u64 = stacks.iter().filter(|(stack, _)| stack.contains(&wanted)).map(|(_, weight)| weight).sum();
        assert!(weight > 50, "{version:?}: {weight} samples of {wanted}");
    }
}

/// With `-X perf`, Python calls each function through a piece of code of its own, which perf can name.
#[test]
fn trampolines_for_perf_are_passed_and_not_shown_beside_their_functions() {
    let _alone = alone();
    let program = "def inner(): return sum(range(1000))
def outer(): return inner()
print('ready', flush=True)
while True: outer()";
    let mut tested = 0;
    for (python, version) in shown().into_iter().filter(|(_, version)| version.minor >= 12) {
        let child = ready(python.command(&python.words).args(["-X", "perf", "-c", program]));
        let stacks = record_process(&child, &[]);
        let all: u64 = stacks.iter().map(|(_, weight)| weight).sum();
        let is_right = |stack: &[String]| {
            let functions = python_functions(stack);
            let is_start = |frame: &String| frame == "_start" || frame.starts_with("__libc_start");
            // Without symbols, the outermost frame is the dynamic linker's.
            let is_root = stack[1..].iter().any(is_start) || stack[1].starts_with("ld-linux");
            is_root && functions.starts_with(&["<module>".to_owned()]) && !stack.iter().any(|frame| frame.starts_with("py::"))
        };
        let right: u64 = stacks.iter().filter(|(stack, _)| is_right(stack)).map(|(_, weight)| weight).sum();
        let other = stacks.iter().find(|(stack, _)| !is_right(stack));
        // The first samples come before the tables of libraries, and a copied stack has no code.
        assert!(all > 200 && right * 100 >= all * 97, "{version:?}: {right} of {all}, another one: {other:?}");
        tested += 1;
    }
    assert!(tested > 0, "no Python from 3.12 on is on this machine");
}

/// Samples a program of Python for two seconds. Returns the counts of its functions, and the frames of its deepest stack.
fn counted(python: &Python, program: &str, walk: Walk) -> (ScriptCounts, usize) {
    let child = ready(python.command(&python.words).args(["-c", program]));
    let targets = Targets::Processes(vec![Tgid(child.0.id())]);
    let options = CollectorOptions { frequency: 499, targets, limit_walks: false, walk, ..Default::default() };
    let mut collector = Collector::start(options, Default::default(), Default::default()).expect("this test needs root");
    let (mut batch, mut deepest) = (Batch::default(), 0);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        collector.drain(&mut batch).unwrap();
        deepest = batch.samples.iter().map(|sample| sample.frames.len()).fold(deepest, usize::max);
    }
    (collector.scripts(), deepest)
}

/// A program that spins in C, below this many calls of two Python functions, and one more.
fn recursion(depth: usize) -> String {
    format!(
        "import hashlib, sys, threading
sys.setrecursionlimit(20000)
threading.stack_size(512 << 20)
data = bytes(1000000)
def other(depth): return down(depth - 1)
def down(depth):
    if depth: return down(depth - 1) if depth % 3 else other(depth - 1)
    print('ready', flush=True)
    while True: hashlib.sha256(data).digest()
threading.Thread(target=down, args=({depth},)).start()"
    )
}

#[test]
fn functions_that_are_too_many_are_cut_and_counted() {
    let _alone = alone();
    for (python, version) in some() {
        let (counts, deepest) = counted(&python, &recursion(5000), Walk::Tables);
        assert!(counts.cut > 100 && counts.cut * 10 >= counts.samples * 9, "{version:?}: {counts:?}");
        assert!(deepest >= 4096, "{version:?}: {deepest} frames");
        assert_eq!(counts.cut_to.1, 4096, "{version:?}: {counts:?}");
        assert_eq!((counts.unreadable, counts.refused, counts.processes_refused), (0, 0, 0), "{version:?}: {counts:?}");
        // On a machine that stands still for a second, names of the first samples come too late.
        assert!(counts.late * 20 <= counts.samples, "{version:?}: {counts:?}");
    }
}

/// Whether functions are all there or cut: they call what runs below them, and are not called by it.
#[test]
fn a_deep_recursion_calls_the_c_function_that_runs() {
    let _alone = alone();
    for (python, version) in shown().into_iter().filter(|(_, version)| version.minor >= 9) {
        for depth in [3000, 6000] {
            let child = ready(python.command(&python.words).args(["-c", &recursion(depth)]));
            let targets = Targets::Processes(vec![Tgid(child.0.id())]);
            let options = CollectorOptions { frequency: 199, targets, limit_walks: false, ..Default::default() };
            let names = Arc::new(Names::default());
            let mut collector = Collector::start(options, Arc::clone(&names), Default::default()).expect("this test needs root");
            let is_function = |frame: &FrameId| matches!(names.frames.get(*frame), Some(Frame::Script { .. }));
            let is_cryptography = |frame: &FrameId| {
                let object = names.frames.get(*frame).and_then(|frame| names.objects.get(frame.object()));
                object.is_some_and(|object| object.path.contains("_hashlib") || object.path.contains("libcrypto"))
            };
            let (mut batch, mut all, mut whole, begun) = (Batch::default(), 0, 0, Instant::now());
            while all < 100 {
                assert!(begun.elapsed() < Duration::from_secs(60), "{version:?}: {all} samples");
                std::thread::sleep(Duration::from_millis(100));
                collector.drain(&mut batch).unwrap();
                for sample in &batch.samples {
                    let frames = &batch.frames[sample.frames.clone()];
                    let (last, first) = (frames.iter().rposition(is_function), frames.iter().position(is_cryptography));
                    let (Some(last), Some(first)) = (last, first) else { continue };
                    let functions = frames.iter().filter(|frame| is_function(frame)).count();
                    assert!(last < first, "{version:?} {depth}: function {last} is called by the code of {first}");
                    // Three functions of `threading` begin the thread.
                    let is_whole = functions == depth + 1 + 3;
                    assert!(
                        is_whole || sample.user_end != UserEnd::Root,
                        "{version:?} {depth}: {functions} functions are no whole stack"
                    );
                    (all, whole) = (all + 1, whole + usize::from(sample.user_end == UserEnd::Root));
                }
            }
            println!("{version:?}: {depth} calls, {whole} of {all} whole, {:?}", collector.scripts().cut_to);
            // Up to 3.10 the native stack is too deep as well.
            let expected = if depth < 4096 && version.minor >= 11 { 99..=100 } else { 0..=0 };
            assert!(expected.contains(&(whole * 100 / all)), "{version:?} {depth}: {whole} of {all} are whole");
        }
    }
}

#[test]
fn a_walk_by_frame_pointers_has_no_python_functions() {
    let _alone = alone();
    let (python, _) = shown().swap_remove(0);
    let (counts, deepest) = counted(&python, "print('ready', flush=True)\nwhile True: pass", Walk::FramePointers);
    assert!(counts == ScriptCounts::default() && deepest > 0, "{counts:?}, {deepest} frames");
}

#[test]
fn a_thread_that_runs_no_python_lacks_nothing() {
    let _alone = alone();
    let source = "#include <pthread.h>
static void *spin(void *none) { for (volatile unsigned long i = 0;; i++) {} return none; }
void begin(void) { pthread_t thread; pthread_create(&thread, 0, spin, 0); }";
    let library = Program::build_text("spin.c", source, &["-shared", "-fPIC"]);
    let program = format!(
        "import ctypes, time
ctypes.CDLL('{}').begin()
print('ready', flush=True)
while True: time.sleep(1)",
        library.path.display()
    );
    let directory = tempfile::tempdir().unwrap();
    for (python, version) in some() {
        // In a program that opens the library with dlopen, such a thread has none of the library's thread-local variables.
        let opened = hosts(&python, directory.path()).into_iter().find(|(name, _)| *name == "opened");
        let mut pythons = vec![python];
        if opened.is_some() {
            let [python] = &pythons[..] else { panic!("one python") };
            let (words, library) = (python.host(&directory.path().join("opened")), python.library.clone());
            let home = library.as_ref().map(|(_, home)| home.clone());
            pythons.push(Python { words, home, library });
        }
        for python in &pythons {
            let (counts, _) = counted(python, &program, Walk::Tables);
            assert!(counts.samples > 100 && counts.whole == counts.samples, "{version:?} {:?}: {counts:?}", python.words);
            assert_eq!(counts.gone, 0, "{version:?} {:?}: {counts:?}", python.words);
        }
    }
}

#[test]
fn a_program_with_another_interpreter_that_is_idle_has_its_functions() {
    let _alone = alone();
    let program = "try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
other = interpreters.create()
print('ready', flush=True)
while True: pass";
    for (python, version) in some().into_iter().filter(|(_, version)| version.minor >= 9) {
        let (counts, _) = counted(&python, program, Walk::Tables);
        assert!(counts.samples > 100 && counts.whole == counts.samples, "{version:?}: {counts:?}");
    }
}

/// An interpreter that runs another one, from a function: the functions of both are on the stack, in the order of their calls.
#[test]
fn functions_of_an_interpreter_inside_another_are_inside_its_functions() {
    let _alone = alone();
    let program = "
def run(text):
    try:
        import concurrent.interpreters as interpreters
        return interpreters.create().exec(text)
    except ImportError: pass
    try:
        import _interpreters as interpreters
        return interpreters.exec(interpreters.create(), text)
    except ImportError: pass
    import _xxsubinterpreters as interpreters
    interpreters.run_string(interpreters.create(), text)
def outer():
    run('''
def sub(count):
    return sum(step * step for step in range(count))
print('ready', flush=True)
while True: sub(3000)
''')
import threading
thread = threading.Thread(target=outer)
thread.start()
thread.join()";
    let mut tested = Vec::new();
    for (python, version) in shown().into_iter().filter(|(_, version)| version.minor >= 10) {
        let child = ready(python.command(&python.words).args(["-c", program]));
        let targets = Targets::Processes(vec![Tgid(child.0.id())]);
        let options = CollectorOptions { frequency: 499, targets, limit_walks: false, ..Default::default() };
        let names = Arc::new(Names::default());
        let mut collector = Collector::start(options, Arc::clone(&names), Default::default()).expect("this test needs root");
        let function = |frame: &FrameId| match names.frames.get(*frame)? {
            Frame::Script { label, .. } => Some(names.labels.name(label).to_owned()),
            _ => None,
        };
        let (mut batch, mut all, mut right, mut other, begun) = (Batch::default(), 0, 0, None, Instant::now());
        while all < 300 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{version:?}: {all} samples");
            std::thread::sleep(Duration::from_millis(100));
            collector.drain(&mut batch).unwrap();
            for sample in &batch.samples {
                let functions: Vec<String> = batch.frames[sample.frames.clone()].iter().filter_map(function).collect();
                let of_threading = ["_bootstrap", "_bootstrap_inner", "run"];
                let functions: Vec<&str> = functions
                    .iter()
                    .map(|name| name.trim_start_matches("Thread."))
                    .skip_while(|name| of_threading.contains(name))
                    .collect();
                if functions.last().is_none_or(|last| !last.ends_with("genexpr>")) {
                    continue;
                }
                // One wrapper more where `run` has a method for it.
                let wanted: Vec<&str> = functions.iter().copied().filter(|name| !name.ends_with("exec")).collect();
                let name = *functions.last().unwrap();
                if wanted == ["outer", "run", "<module>", "sub", name] {
                    right += 1;
                } else if right > 0 {
                    other = Some(format!("{functions:?}"));
                } else {
                    // Up to 3.12, the other interpreter's states are found by the thread's stack. Until unwind tables are there, only
                    // a part of that stack is known.
                    continue;
                }
                all += 1;
            }
        }
        assert!(right * 100 >= all * 99, "{version:?}: {right} of {all} are right, another one: {other:?}");
        tested.push(version.minor);
    }
    println!("interpreters inside interpreters: 3.{tested:?}");
}

#[test]
fn functions_that_go_before_they_are_read_are_not_taken_for_others() {
    let _alone = alone();
    // Each code object lives for a moment, and the next one gets its address.
    let program = "print('ready', flush=True)
number = 0
while True:
    number += 1
    space = {}
    exec('def short_%d():\\n    for step in range(2000): pass\\nshort_%d()' % (number, number), space)";
    for (python, version) in some() {
        let (counts, _) = counted(&python, program, Walk::Tables);
        assert!(counts.samples > 100, "{version:?}: {counts:?}");
        assert!(counts.gone > 0, "{version:?}: some must be gone: {counts:?}");
    }
}

/// The share of samples that each function is in.
fn shares(stacks: &[(Vec<String>, u64)]) -> FxHashMap<String, f64> {
    let all: u64 = stacks.iter().map(|(_, weight)| weight).sum();
    let mut shares = FxHashMap::default();
    for (stack, weight) in stacks {
        let mut functions = stack.clone();
        functions.sort_unstable();
        functions.dedup();
        for function in functions {
            *shares.entry(function).or_default() += *weight as f64 / all as f64;
        }
    }
    shares
}

/// The stacks of a folded file, root first.
fn read_folded(path: &Path) -> Vec<(Vec<String>, u64)> {
    let text = std::fs::read_to_string(path).unwrap();
    let stacks = text.lines().map(|line| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.split(';').map(str::to_owned).collect(), weight.parse().unwrap())
    });
    stacks.collect()
}

#[test]
fn functions_have_the_shares_that_py_spy_sees() {
    let _alone = alone();
    let py_spy = fetched().join("py-spy/bin/py-spy");
    assert!(py_spy.exists(), "py-spy is not there: scripts/setup.sh test fetches it");
    let directory = tempfile::tempdir().unwrap();
    let mut compared = 0;
    // py-spy knows no versions after 3.13.
    let known = |(python, version): &(Python, Version)| python.home.is_none() && matches!(version.minor, 8 | 11 | 13);
    for (python, version) in those(|_, minor| minor == 11).into_iter().filter(known) {
        let child = ready(python.command(&python.words).arg(WORK));
        let pid = child.0.id().to_string();
        let (ours, theirs) = (directory.path().join("ours.folded"), directory.path().join("theirs.folded"));
        let record = ["record", "-p", &pid, "-d", "4", "-F", "499", "--force", "--no-annotations", "-o"];
        let recorded = Command::new(env!("CARGO_BIN_EXE_flametop")).args(record).arg(&ours).output().unwrap();
        assert!(recorded.status.success(), "this test needs root: {}", String::from_utf8_lossy(&recorded.stderr));
        // Without the lines that run.
        let spy = ["record", "-p", &pid, "-d", "8", "-r", "200", "--function", "--format", "raw", "--output"];
        let spied = Command::new(&py_spy).args(spy).arg(&theirs).output().unwrap();
        assert!(spied.status.success(), "{}", String::from_utf8_lossy(&spied.stderr));
        let name = |function: &str| function.split(" (").next().unwrap().to_owned();
        let theirs: Vec<(Vec<String>, u64)> = read_folded(&theirs)
            .into_iter()
            .map(|(stack, weight)| (stack.iter().map(|function| name(function)).collect(), weight))
            .collect();
        let (ours, theirs) = (shares(&read_folded(&ours)), shares(&theirs));
        for function in ["parse", "write", "search", "score", "count", "turn", "loads", "dumps", "findall"] {
            let (mine, other) = (ours.get(function).copied().unwrap_or(0.0), theirs.get(function).copied().unwrap_or(0.0));
            // Four standard deviations of both, and a hundredth for what stopping the program changes.
            let chance = |share: f64, samples: f64| share * (1.0 - share) / samples;
            let most = 4.0 * (chance(other, 1600.0) + chance(mine, 2000.0)).sqrt() + 0.01;
            assert!(other > 0.01 && (mine - other).abs() <= most, "{version:?} {function}: {mine:.3} here, {other:.3} by py-spy");
            println!("{}.{} {function}: {mine:.3} here, {other:.3} by py-spy", version.major, version.minor);
        }
        compared += 1;
    }
    assert!(compared > 0, "no interpreter that py-spy knows is on this machine");
}
