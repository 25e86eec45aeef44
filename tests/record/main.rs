//! `flametop record` from its start to its file: real BPF, real programs, real signals.
//!
//! Needs root (to load BPF programs, to mount a tiny disk, to become nobody) and gcc, g++, rustc, node. If something is missing,
//! the test fails with a sentence. These tests do not count samples, as a busy machine gives a program little time. They check
//! which chains of functions are in the file.
//!
//! Here: which stacks are recorded. `ending`: how a recording ends, and its command with it. `first_thread`: programs whose first thread has ended. `files`: output files, and runs that
//! are refused. `jit`: names of code made at run time. `odd`: programs whose code or symbols are unusual. `recording`: recordings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod ending;
mod events;
mod far;
mod files;
mod first_thread;
mod jit;
mod keeping;
mod odd;
mod recording;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{FLAMETOP, Program, Running, Terminal, bpf_programs_of, go_build, loaded_bpf_programs, root_or_fail, terminal};
use flametop::profile::UserEnd;
use tempfile::TempDir;

/// Limit for events that should happen soon: a machine that also builds may be slow.
const SOON: Duration = Duration::from_secs(60);

/// A new directory in which flametop runs.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        root_or_fail();
        Place(tempfile::tempdir().expect("no directory for temporary files"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `flametop record …` here, without a terminal, to its end.
    #[track_caller]
    fn record(&self, args: &[&str]) -> Output {
        to_its_end(&mut self.command(args))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(FLAMETOP);
        command.arg("record").args(args).current_dir(self.0.path());
        command.env_remove("SUDO_UID").env_remove("SUDO_GID");
        command
    }

    /// [`Place::record`] that must succeed; returns the lines of `x.folded`.
    #[track_caller]
    fn folded(&self, args: &[&str]) -> Vec<Line> {
        let output = self.record(&[&["-o", "x.folded", "--force", "-F", "997"], args].concat());
        assert!(output.status.success(), "{}", words(&output));
        lines(&std::fs::read_to_string(self.path("x.folded")).expect("the file is there and is UTF-8"))
    }

    /// Names of all files here, hidden ones too.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the directory is there");
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A run that must fail with one sentence that has all these `parts`, and leave the files that were there.
    #[track_caller]
    fn refuses(&self, args: &[&str], parts: &[&str]) {
        let before = self.files();
        let output = self.record(args);
        assert_refusal(&output, parts);
        assert_eq!(self.files(), before, "a run that failed has left something behind");
    }
}

#[track_caller]
fn assert_refusal(output: &Output, parts: &[&str]) {
    let said = words(output);
    assert!(!output.status.success(), "it went well: {said}");
    assert!(output.status.code().is_some(), "it was ended by a signal: {:?} {said}", output.status);
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert!(said.starts_with("flametop: ") && said.trim_end().lines().count() == 1, "not one sentence of its own: {said}");
    assert!(!said.contains("panicked"), "{said}");
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the number of samples that the final summary calls incomplete for this reason. 0 if it is none of the main reasons.
fn incomplete(words: &str, reason: UserEnd) -> u64 {
    let lines = words.lines().filter_map(|line| line.strip_prefix("incomplete: "));
    let count = lines.filter(|line| line.ends_with(&format!("%), {}", reason.explain().0))).map(|line| line.split(' ').next());
    count.map(|count| count.expect("a line has words").parse::<u64>().expect("it begins with a number")).sum()
}

/// Runs a command; fails the test when it does not end, or when something it started holds on to its output.
#[track_caller]
fn to_its_end(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
    let pid = child.id();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(2 * SOON) {
        Ok(output) => output.expect("its output can be read"),
        Err(_) => {
            terminal::kill(pid, rustix::process::Signal::KILL);
            panic!("{command:?} has not ended, or has left something running, within {:?}", 2 * SOON);
        }
    }
}

/// One stack of a folded file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    frames: Vec<String>,
    count: u64,
}

impl Line {
    fn process(&self) -> &str {
        &self.frames[0]
    }

    fn text(&self) -> String {
        self.frames.join(";")
    }
}

#[track_caller]
fn lines(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("a line without a count: {line:?}"));
        let count = count.parse().unwrap_or_else(|_| panic!("a line without a count: {line:?}"));
        assert!(count > 0 && !line.chars().any(char::is_control), "{line:?}");
        Line { frames: stack.split(';').map(str::to_owned).collect(), count }
    };
    text.lines().map(line).collect()
}

fn listing(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{} {}\n", line.text(), line.count)).collect()
}

/// Asserts that a stack of `process` ends in exactly `chain`, and that the frames before the chain are the C library's start of a
/// program or thread.
#[track_caller]
fn assert_chain(lines: &[Line], process: &str, chain: &str) {
    let wanted: Vec<&str> = chain.split(';').collect();
    let start = |frame: &String| {
        let known = ["_start", "__libc_start", "start_thread", "clone", "libc", "ld-"];
        known.iter().any(|known| frame.starts_with(known))
    };
    let found = lines.iter().any(|line| {
        let at = line.frames.len().saturating_sub(wanted.len());
        line.process() == process && at >= 1 && line.frames[at..] == wanted && line.frames[1..at].iter().all(start)
    });
    assert!(found, "no stack {process};…;{chain} among\n{}", listing(lines));
}

#[test]
fn a_chain_of_functions_is_recorded_whole() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let lines = place.folded(&["-p", &chain.pid_text(), "-d", "2"]);
    assert_chain(&lines, "chain", "main;outer;middle;inner");
    assert!(lines.iter().all(|line| line.process() == "chain"), "{}", listing(&lines));
    // Nearly everything is there: interrupts and the timer take the rest.
    let all: u64 = lines.iter().map(|line| line.count).sum();
    let inner: u64 = lines.iter().filter(|line| line.text().contains("main;outer;middle;inner")).map(|line| line.count).sum();
    assert!(inner * 10 >= all * 9, "{}", listing(&lines));
}

#[test]
fn every_thread_has_its_own_chain_and_one_that_sleeps_has_none() {
    let place = Place::new();
    let threads = Program::build("threads.c").run(&[]);
    let lines = place.folded(&["-p", &threads.pid_text(), "-d", "2"]);
    for chain in ["parse_main;parse_text;burn", "render_main;render_page;burn", "write_main;write_block;burn"] {
        assert_chain(&lines, "threads", chain);
    }
    assert!(!listing(&lines).contains("sleep_main"), "{}", listing(&lines));
}

#[test]
fn names_of_cpp_and_rust_are_as_in_their_sources() {
    let place = Place::new();
    let names = Program::build("names.cpp").run(&[]);
    let lines = place.folded(&["-p", &names.pid_text(), "-d", "2"]);
    let parts = [
        ";main;shop::Market<int, shop::Fair>::trade(std::vector<int",
        ";shop::(anonymous namespace)::Ledger::operator()(int) const;shop::weigh<double, ",
        "main::{lambda(int)#1}::operator()(int) const;shop::weigh<double, ",
    ];
    for part in parts {
        assert!(lines.iter().any(|line| line.text().contains(part)), "no {part} among\n{}", listing(&lines));
    }
    let rusty = Program::build("rusty.rs").run(&[]);
    // The compiler may inline anything into `water`.
    let lines = place.folded(&["-p", &rusty.pid_text(), "-d", "2", "--no-inline"]);
    let chain = ";rusty::main;rusty::garden::plant;<rusty::garden::Bed as rusty::garden::Grow>::grow;rusty::garden::water";
    let found = lines.iter().any(|line| line.text().ends_with(chain) && line.process() == "rusty");
    assert!(found, "no …{chain} among\n{}", listing(&lines));
}

#[test]
fn kernel_frames_are_annotated_and_follow_those_of_the_user() {
    let place = Place::new();
    let calls = Program::build("syscalls.c").run(&[]);
    let lines = place.folded(&["-p", &calls.pid_text(), "-d", "2"]);
    let both = |line: &&Line| line.frames.iter().any(|frame| frame == "main") && line.text().ends_with("_[k]");
    let mixed: Vec<&Line> = lines.iter().filter(both).collect();
    let reads = |line: &&&Line| line.frames.iter().any(|frame| frame.ends_with("_[k]") && frame.contains("read"));
    assert!(mixed.iter().any(|line| reads(&line)), "no main;…;…read…_[k] among\n{}", listing(&lines));
    for line in mixed {
        let first = line.frames.iter().position(|frame| frame.ends_with("_[k]")).unwrap();
        assert!(line.frames[first..].iter().all(|frame| frame.ends_with("_[k]")), "user above kernel: {}", line.text());
    }
    let plain = place.folded(&["-p", &calls.pid_text(), "-d", "2", "--no-annotations"]);
    assert!(!listing(&plain).contains("_[k]"), "{}", listing(&plain));
    assert!(plain.iter().any(|line| line.text().contains("main") && line.text().contains("read")), "{}", listing(&plain));
}

#[test]
fn without_a_target_everything_that_runs_is_recorded() {
    let place = Place::new();
    let programs = [Program::build("chain.c").run(&[]), Program::build("threads.c").run(&[])];
    let lines = place.folded(&["-d", "2"]);
    assert_chain(&lines, "chain", "main;outer;middle;inner");
    assert_chain(&lines, "threads", "parse_main;parse_text;burn");
    drop(programs);
}

#[test]
fn several_processes_can_be_named_and_no_other_is_recorded() {
    let place = Place::new();
    let (chain, threads, other) =
        (Program::build("chain.c").run(&[]), Program::build("threads.c").run(&[]), Program::build("syscalls.c").run(&[]));
    let pids = format!("{},{}", chain.pid(), threads.pid());
    let lines = place.folded(&["-p", &pids, "-d", "2"]);
    let mut processes: Vec<&str> = lines.iter().map(Line::process).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes, ["chain", "threads"]);
    drop(other);
}

/// A program without C library and start files: `_start` runs first, and the program ends after some milliseconds.
const EARLY: &str = r#"
static volatile unsigned long counter;
__attribute__((noinline, noclone)) void burn(void)
{
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    for (unsigned long i = 0; i < 60000000; i++)
        counter += i;
}
__asm__(".globl _start\n.type _start, @function\n_start:\n\txor %ebp, %ebp\n\tcall burn\n"
        "\tmov $231, %eax\n\tmov $7, %edi\n\tsyscall\n.size _start, . - _start\n");
"#;

#[test]
fn a_command_is_recorded_from_its_first_instruction_to_its_end() {
    let place = Place::new();
    let early = Program::build_text("early.c", EARLY, &["-nostdlib", "-nostartfiles", "-static"]);
    let begin = std::time::Instant::now();
    let output = place.record(&["-F", "4999", "-o", "x.folded", "--", early.path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(7), "{}", words(&output));
    // Without -d: it ends because the command does, and says how that ended.
    assert!(begin.elapsed() < SOON, "it did not end with the command");
    assert!(words(&output).contains("ended with status 7"), "{}", words(&output));
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    assert_chain(&lines, "early", "_start;burn");
    let strangers: Vec<&Line> = lines.iter().filter(|line| line.process() != "early").collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

/// Two hundred processes a second end before they can be inspected. Their code still has names.
#[test]
fn of_programs_that_come_and_go_nearly_all_functions_have_names() {
    let place = Place::new();
    // In one file, so that no library of this machine is without symbols.
    let flags = ["-static", "-O2", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/truth")];
    let storm = Program::build_text("processes.c", include_str!("../programs/truth/processes.c"), &flags);
    let mut running = Command::new(&storm.path);
    let running = running.args(["storm", "200", "4"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut running = Running { child: running };
    running.child.stdin.take().unwrap().write_all(b"g").unwrap();
    let lines = place.folded(&["-d", "6"]);
    running.kill();
    let name = storm.path.file_name().unwrap().to_string_lossy().into_owned();
    let (mut all, mut unnamed) = (0, 0);
    for line in lines.iter().filter(|line| name.starts_with(line.process())) {
        // Between two programs there is no user stack to name.
        let in_execve = line.frames.iter().any(|frame| frame.contains("execve"));
        if in_execve && line.frames.iter().any(|frame| frame == "[unknown]") {
            continue;
        }
        all += line.count;
        if line.frames.iter().skip(1).any(|frame| frame.contains("+0x") || frame == "[unknown]") {
            unnamed += line.count;
            println!("{} {}", line.text(), line.count);
        }
    }
    println!("{unnamed} of {all} samples have a function without a name");
    assert!(all >= 100, "{all} samples:\n{}", listing(&lines));
    assert!(unnamed * 100 <= all, "{unnamed} of {all}");
}

#[test]
fn children_that_live_for_milliseconds_are_recorded_with_their_names() {
    let place = Place::new();
    let forks = Program::build("forks.c");
    let lines = place.folded(&["-d", "3", "--", forks.path.to_str().unwrap(), "30"]);
    assert_chain(&lines, "storm-child", "main;child_work;child_burn");
}
