//! `flametop record` from its start to its file: real BPF, real programs, real signals.
//!
//! Needs root (to load BPF programs, to mount a tiny disk, to become nobody) and gcc, g++, rustc. What is missing fails with a
//! sentence. Nothing here counts samples: on a busy machine a program gets what it gets; what is looked at is which chains
//! of functions are in the file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{FLAMETOP, Program, Terminal, bpf_programs_of, loaded_bpf_programs, root_or_fail, terminal};
use tempfile::TempDir;

/// For whatever should happen soon: a machine that also builds may take its time.
const SOON: Duration = Duration::from_secs(60);

/// A directory of its own in which flametop is run.
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

    /// The same, which must go well; the lines of `x.folded` come back.
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

/// There is a stack of `process` that ends in exactly `chain`, and whose frames between the process and the chain are the
/// C library's start of a program or thread.
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
    let lines = place.folded(&["-p", &rusty.pid_text(), "-d", "2"]);
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

/// No C library, no start files: what runs first is `_start`, and all of it is a matter of milliseconds.
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
    assert!(output.status.success(), "{}", words(&output));
    // Without -d: it ends because the command does, and says how that ended.
    assert!(begin.elapsed() < SOON, "it did not end with the command");
    assert!(words(&output).contains("ended with status 7"), "{}", words(&output));
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    assert_chain(&lines, "early", "_start;burn");
    let strangers: Vec<&Line> = lines.iter().filter(|line| line.process() != "early").collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn children_that_live_for_milliseconds_are_recorded_with_their_names() {
    let place = Place::new();
    let forks = Program::build("forks.c");
    let lines = place.folded(&["-d", "3", "--", forks.path.to_str().unwrap(), "30"]);
    assert_chain(&lines, "storm-child", "main;child_work;child_burn");
}

#[test]
fn a_recording_lasts_as_long_as_was_asked_for_and_the_command_is_ended() {
    let place = Place::new();
    let chain = Program::build("chain.c");
    let copy = place.path("just-me");
    std::fs::copy(&chain.path, &copy).unwrap();
    let lines = place.folded(&["-d", "1", "--", copy.to_str().unwrap(), "55"]);
    assert_chain(&lines, "just-me", "main;outer;middle;inner");
    let still_there = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let executable = std::fs::read_link(entry.path().join("exe"));
        executable.is_ok_and(|executable| executable == copy)
    });
    assert!(!still_there, "the command runs on without its profiler");
}

/// Whether a process runs this file.
fn runs(executable: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| std::fs::read_link(entry.path().join("exe")).ok()).any(|found| found == executable)
}

/// `chain`, under a name that nothing else runs.
fn copy_of_chain(place: &Place) -> PathBuf {
    let copy = place.path("just-me");
    std::fs::copy(Program::build("chain.c").path, &copy).unwrap();
    copy
}

/// The number of seconds that the SVG's subtitle tells.
#[track_caller]
fn seconds_in_svg(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let (_, after) = text.split_once("samples in ").expect("no subtitle");
    after.split(' ').next().unwrap().parse().expect("no number of seconds")
}

#[test]
fn stacks_on_standard_output_are_not_mixed_with_what_the_command_writes() {
    let place = Place::new();
    let chain = copy_of_chain(&place);
    let script = format!("echo heard; echo complaint >&2; '{}' 2", chain.display());
    for name in ["-", "/dev/stdout"] {
        let output = place.record(&["-F", "997", "-o", name, "--", "sh", "-c", &script]);
        assert!(output.status.success(), "{}", words(&output));
        assert_chain(&lines(&String::from_utf8(output.stdout.clone()).unwrap()), "just-me", "main;outer;middle;inner");
        assert!(words(&output).contains("heard\n") && words(&output).contains("complaint\n"), "{}", words(&output));
    }
    let output = place.record(&["-F", "997", "-o", "x.folded", "--", "sh", "-c", &script]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("heard\n"), "{}", words(&output));
}

#[test]
fn all_that_the_command_started_is_ended_with_and_without_a_terminal() {
    let place = Place::new();
    let copy = copy_of_chain(&place);
    // The shell stays between flametop and the program.
    let script = format!("'{}' 55; true", copy.display());
    place.folded(&["-d", "1", "--", "sh", "-c", &script]);
    assert!(!runs(&copy), "without a terminal the program runs on");
    let path = place.path("y.folded");
    let args = ["record", "-d", "1", "-o", path.to_str().unwrap(), "--", "sh", "-c", &script];
    let mut terminal = Terminal::start(&args, 24, 100, &[]);
    let status = terminal.wait_exit_within(SOON);
    assert!(status.success() && path.exists(), "{}", terminal.screen());
    assert!(!runs(&copy), "on a terminal the program runs on");
}

#[test]
fn a_command_on_a_terminal_can_read_it() {
    let place = Place::new();
    let chain = copy_of_chain(&place);
    let path = place.path("x.folded");
    let script = format!("read word; echo \"<$word>\"; '{}' 1", chain.display());
    let args = ["record", "-F", "499", "-o", path.to_str().unwrap(), "--", "sh", "-c", &script];
    let mut terminal = Terminal::start(&args, 24, 100, &[]);
    terminal.wait_for_text("recording:", SOON);
    terminal.send(b"hello\r");
    terminal.wait_for_text("<hello>", SOON);
    assert!(terminal.wait_exit_within(SOON).success(), "{}", terminal.screen());
}

#[test]
fn a_command_has_time_to_end_in_order_which_does_not_count_as_sampled() {
    let place = Place::new();
    let (copy, mark, path) = (copy_of_chain(&place), place.path("in-order"), place.path("x.svg"));
    let script = format!("trap 'sleep 3; echo yes > {}; exit' TERM; '{}' 55", mark.display(), copy.display());
    let output = place.record(&["-F", "997", "-d", "1", "-o", path.to_str().unwrap(), "--", "sh", "-c", &script]);
    assert!(output.status.success(), "{}", words(&output));
    assert!(mark.exists() && !runs(&copy), "it was killed before it could end");
    assert!(seconds_in_svg(&path) <= 2, "{} s", seconds_in_svg(&path));
}

#[test]
fn a_command_that_does_not_end_is_waited_for_and_a_second_key_kills_it() {
    let place = Place::new();
    let (copy, path) = (copy_of_chain(&place), place.path("x.folded"));
    let script = format!("trap '' TERM INT; '{}' 55; true", copy.display());
    let args = ["record", "-F", "499", "-o", path.to_str().unwrap(), "--", "sh", "-c", &script];
    let mut terminal = Terminal::start(&args, 24, 100, &[]);
    // The program has said `ready` in the middle of a line of progress, which stays: any later line tells that samples came.
    let progress = |line: &str| line.contains("recording:") && !line.contains(" 0 samples");
    terminal.wait_for(|screen| screen.lines().any(progress), SOON);
    terminal.keys("Ctrl-c");
    terminal.wait_for_text("waiting for sh to end", SOON);
    assert!(runs(&copy));
    terminal.keys("Ctrl-c");
    let status = terminal.wait_exit_within(SOON);
    let screen = terminal.screen();
    assert!(status.success() && screen.contains("samples written to") && !screen.contains("waiting for"), "{status:?} {screen}");
    assert!(!runs(&copy) && path.exists());
}

#[test]
fn the_third_signal_ends_a_recording_that_cannot_be_written() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let fifo = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Nobody reads it, so that opening it waits for good. Under /proc it is a stream.
    let held = rustix::fs::open(&fifo, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let name = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&held));
    let mut command = place.command(&["-F", "997", "-p", &chain.pid_text(), "-d", "0.5", "-o", &name]);
    let mut flametop = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let end = std::time::Instant::now() + SOON;
    let mut signals = 0;
    let status = loop {
        if let Some(status) = flametop.try_wait().unwrap() {
            break status;
        }
        assert!(std::time::Instant::now() < end, "it still runs after {signals} signals");
        // Slower than anything that counts two as one; the first ones may come before it listens.
        std::thread::sleep(Duration::from_millis(2_000));
        terminal::kill(flametop.id(), rustix::process::Signal::TERM);
        signals += 1;
    };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut flametop.stderr.take().unwrap(), &mut said).unwrap();
    assert!(status.code() == Some(130) && said.contains("ended before"), "{status:?} {said}");
    assert_eq!(place.files(), ["fifo"]);
}

#[test]
fn a_process_that_has_ended_already_does_not_hold_up_the_recording() {
    let place = Place::new();
    // Not waited for, it keeps its number.
    let mut ended = Command::new("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    place.refuses(&["-p", &ended.id().to_string(), "-o", "x.svg"], &[]);
    ended.wait().unwrap();
}

#[test]
fn a_command_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let odd = place.0.path().join(std::ffi::OsStr::from_bytes(b"od\xff\x1bd"));
    std::fs::copy(Program::build("chain.c").path, &odd).unwrap();
    let output = to_its_end(place.command(&["-F", "997", "-o", "x.svg", "--"]).arg(&odd).arg("1"));
    assert!(output.status.success() && words(&output).contains("/od\u{fffd}·d was ended by signal 14"), "{}", words(&output));
    assert!(std::fs::read_to_string(place.path("x.svg")).unwrap().contains("inner"));
}

#[test]
fn interrupting_writes_the_file_and_leaves_nothing_in_the_kernel() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    for (key, ending) in [(Some("Ctrl-c"), "folded"), (None, "svg")] {
        let path = place.path("interrupted").with_extension(ending);
        let args = ["record", "-F", "997", "-p", &chain.pid_text(), "-o", path.to_str().unwrap()];
        let mut terminal = Terminal::start(&args, 24, 100, &[]);
        // The line of progress tells that samples have come.
        let progress = |screen: &str| screen.contains("recording:") && !screen.contains(" 0 samples");
        terminal.wait_for(progress, SOON);
        let held = bpf_programs_of(terminal.pid());
        assert!(!held.is_empty(), "flametop holds no BPF program while it records");
        match key {
            Some(key) => terminal.keys(key),
            None => terminal.signal(rustix::process::Signal::TERM),
        }
        let status = terminal.wait_exit_within(SOON);
        assert!(status.success(), "{status:?} {}", terminal.screen());
        assert!(terminal.screen().contains("samples written to"), "{}", terminal.screen());
        assert!(!terminal.screen().contains("recording:"), "the line of progress is left behind:\n{}", terminal.screen());
        terminal.assert_restored();
        assert!(std::fs::read_to_string(&path).unwrap().contains("middle"));
        let left: Vec<_> = loaded_bpf_programs().into_iter().filter(|program| held.contains(program)).collect();
        assert!(left.is_empty(), "left in the kernel: {left:?}");
    }
    assert_eq!(place.files(), ["interrupted.folded", "interrupted.svg"]);
}

#[test]
fn a_process_that_ends_while_it_is_recorded_ends_the_recording() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&["2"]);
    let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-o", "x.folded"]);
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).contains("the process has ended"), "{}", words(&output));
    assert_chain(&lines(&std::fs::read_to_string(place.path("x.folded")).unwrap()), "chain", "main;outer;middle;inner");
}

#[test]
fn standard_output_takes_folded_stacks_and_nothing_else() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", "-"]);
    assert!(output.status.success(), "{}", words(&output));
    assert_chain(&lines(&String::from_utf8(output.stdout).unwrap()), "chain", "main;outer;middle;inner");
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn an_svg_is_well_formed_and_has_the_names() {
    let place = Place::new();
    let names = Program::build("names.cpp").run(&[]);
    let output = place.record(&["-F", "997", "-p", &names.pid_text(), "-d", "2", "-o", "x.SVG"]);
    assert!(output.status.success(), "{}", words(&output));
    let text = std::fs::read_to_string(place.path("x.SVG")).unwrap();
    let titles = titles_of(&text);
    assert!(titles.iter().any(|title| title.starts_with("shop::weigh<double, ")), "{titles:?}");
    assert!(titles.iter().any(|title| title.contains("Market<int, shop::Fair>::trade")), "{titles:?}");
}

/// The titles in an SVG, which must be well-formed XML.
#[track_caller]
fn titles_of(text: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(text);
    let (mut depth, mut within, mut titles) = (0, false, Vec::new());
    loop {
        use quick_xml::events::Event;
        match reader.read_event().expect("well-formed XML") {
            Event::Start(tag) => {
                depth += 1;
                within = tag.name().as_ref() == b"title";
                if within {
                    titles.push(String::new());
                }
            }
            Event::End(_) => {
                depth -= 1;
                within = false;
            }
            Event::Text(piece) if within => titles.last_mut().unwrap().push_str(&piece.decode().unwrap()),
            Event::GeneralRef(entity) if within => titles.last_mut().unwrap().push_str(match &*entity.decode().unwrap() {
                "lt" => "<",
                "gt" => ">",
                "amp" => "&",
                "quot" => "\"",
                "apos" => "'",
                other => panic!("an unknown entity: {other}"),
            }),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "tags that are not closed");
    titles
}

#[test]
fn a_file_that_is_there_is_replaced_only_when_told_to() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    std::fs::write(place.path("x.folded"), "mine").unwrap();
    let args = ["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", "x.folded"];
    place.refuses(&args, &["x.folded", "exists already", "--force"]);
    assert_eq!(std::fs::read_to_string(place.path("x.folded")).unwrap(), "mine");
    let output = place.record(&[&args[..], &["--force"]].concat());
    assert!(output.status.success(), "{}", words(&output));
    assert!(std::fs::read_to_string(place.path("x.folded")).unwrap().contains("inner"));
}

#[test]
fn what_cannot_be_done_is_said_in_a_sentence_and_leaves_nothing_behind() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let pid = chain.pid_text();
    std::fs::create_dir(place.path("there.svg")).unwrap();
    // A process that has been and gone: its number is nobody's for a while.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let gone = gone.id().to_string();
    place.refuses(&["-p", &gone, "-d", "1", "-o", "x.svg"], &[&gone, "no process"]);
    place.refuses(&["-d", "1", "-o", "x.png"], &["x.png", ".svg", ".folded"]);
    place.refuses(&["-d", "1", "-o", "x"], &[".svg", ".folded"]);
    place.refuses(&["-o", "x.svg", "--", "no-such-command-anywhere"], &["no-such-command-anywhere", "no such command"]);
    place.refuses(&["-o", "x.svg", "--", "./there.svg"], &["./there.svg"]);
    place.refuses(&["-F", "997", "-p", &pid, "-d", "2", "-o", "/dev/full"], &["/dev/full", "No space left"]);
    // These two are seen before anything is sampled: nobody should record for an hour and then hear of it.
    let long = Duration::from_secs(20);
    let begin = std::time::Instant::now();
    place.refuses(&["-p", &pid, "-d", "40", "-o", "there.svg"], &["there.svg", "is a directory"]);
    place.refuses(&["-p", &pid, "-d", "40", "-o", "no/such/x.svg"], &["no/such", "no directory"]);
    assert!(begin.elapsed() < long, "it was found out only after recording");
}

#[test]
fn a_target_that_never_runs_is_said_so() {
    let place = Place::new();
    let mut sleeper = Command::new("sleep").arg("30").spawn().unwrap();
    // Asleep for good once it is in its system call; what it does before may or may not be sampled.
    let asleep = || std::fs::read_to_string(format!("/proc/{}/wchan", sleeper.id())).unwrap_or_default().contains("nanosleep");
    let end = std::time::Instant::now() + SOON;
    while !asleep() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    place.refuses(&["-p", &sleeper.id().to_string(), "-d", "0.5", "-o", "x.svg"], &["no samples", "x.svg"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let disk = TinyDisk::mount(&place.path("disk"));
    for name in ["x.svg", "x.folded"] {
        let path = disk.0.join(name);
        let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", path.to_str().unwrap()]);
        assert_refusal(&output, &[name, "No space left", "make room"]);
    }
    let left: Vec<_> = std::fs::read_dir(&disk.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["filler"]);
}

/// A file system without a free byte, unmounted when dropped.
struct TinyDisk(PathBuf);

impl TinyDisk {
    fn mount(at: &Path) -> TinyDisk {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "flametop-test"]).arg(at).status();
        assert!(mounted.is_ok_and(|status| status.success()), "this test mounts a tmpfs, which is not allowed here");
        let disk = TinyDisk(at.to_owned());
        let full = std::fs::write(at.join("filler"), vec![0; 1 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        disk
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn the_file_belongs_to_whoever_called_sudo() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let mut command = place.command(&["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", "x.svg"]);
    let output = to_its_end(command.env("SUDO_UID", "65534").env("SUDO_GID", "65533"));
    assert!(output.status.success(), "{}", words(&output));
    let file = std::fs::metadata(place.path("x.svg")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (65534, 65533, 0o644));
}

#[test]
fn without_the_right_to_load_bpf_programs_it_says_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // Nobody may look into the home directory in which this was built.
    let program = place.path("flametop");
    std::fs::copy(FLAMETOP, &program).unwrap();
    std::fs::set_permissions(place.0.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let before = place.files();
    let nobody = |args: &[&str]| {
        let mut command = Command::new(&program);
        to_its_end(command.args(args).current_dir(place.0.path()).uid(65534).gid(65534))
    };
    let advice = ["sudo", "CAP_BPF", "CAP_PERFMON"];
    assert_refusal(&nobody(&["record", "-d", "1", "-o", "x.svg"]), &advice);
    assert_refusal(&nobody(&["record", "-o", "x.svg", "--", "true"]), &advice);
    let doctor = nobody(&["doctor"]);
    assert!(!doctor.status.success());
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("MISSING"), "{doctor:?}");
    assert_eq!(place.files(), before);
}

#[test]
fn a_hostile_program_does_no_harm_to_files() {
    let place = Place::new();
    let long = "n".repeat(10_000);
    let evil = Program::build("hostile.c").patched(b"harmless", b"\x1b[2J;<\n&");
    let long_named = Program::build_with("hostile.c", &[&format!("-DHOSTILE_NAME={long}")]);
    let running = [evil.run(&[]), long_named.run(&[])];
    let pids = format!("{},{}", running[0].pid(), running[1].pid());
    // `lines` looks at each line: no control character, a count at the end.
    let found = place.folded(&["-p", &pids, "-d", "2"]);
    // `;` in a process's or a function's name must not make frames of its own.
    assert!(found.iter().all(|line| line.frames.iter().all(|frame| !frame.is_empty() && frame != "<" && frame != "\n&")));
    assert!(found.iter().any(|line| line.process().contains("evil")), "{}", listing(&found));
    assert!(found.iter().any(|line| line.text().contains("nnnnnnnn")), "the long name is missing");
    let output = place.record(&["-F", "997", "-p", &pids, "-d", "1", "-o", "x.svg"]);
    assert!(output.status.success(), "{}", words(&output));
    let text = std::fs::read_to_string(place.path("x.svg")).unwrap();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t' && c != '\r'), "a control character in the SVG");
    assert!(titles_of(&text).iter().any(|title| title.contains("evil")));
    assert!(!words(&output).contains('\x1b'));
}
