//! How a recording ends, and its command with it.

use super::*;

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
    let (_, after) = text.split_once("samples · ").expect("no subtitle");
    let seconds: f64 = after.split(' ').next().unwrap().parse().expect("no number of seconds");
    seconds.floor() as u64
}

/// The exit status of a shell whose last command was ended by SIGALRM, as the programs here are.
const BY_ALARM: i32 = 128 + 14;

#[test]
fn stacks_on_standard_output_are_not_mixed_with_what_the_command_writes() {
    let place = Place::new();
    let chain = copy_of_chain(&place);
    let script = format!("echo heard; echo complaint >&2; '{}' 2", chain.display());
    for name in ["-", "/dev/stdout"] {
        let output = place.record(&["-F", "997", "-o", name, "--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(BY_ALARM), "{}", words(&output));
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
    assert_eq!(terminal.wait_exit_within(SOON).exit_code(), BY_ALARM as u32, "{}", terminal.screen());
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
    // No process reads it, so opening it would wait without end. Under /proc it is a stream.
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
        // The interval is longer than the time in which two signals count as one. The first signals may come before flametop
        // handles them.
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
    // As no process waits for it, it keeps its number.
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
    let status = output.status.code();
    assert!(status == Some(BY_ALARM) && words(&output).contains("/od\u{fffd}·d was ended by signal 14"), "{}", words(&output));
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
fn the_exit_status_is_that_of_the_command() {
    let place = Place::new();
    let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let status = |end: &str| {
        let script = format!("{burn}; {end}");
        let output = place.record(&["-F", "997", "-o", "x.folded", "--force", "--", "sh", "-c", &script]);
        assert!(std::fs::read_to_string(place.path("x.folded")).unwrap().contains("sh;"), "{}", words(&output));
        output.status.code()
    };
    assert_eq!(status("exit 3"), Some(3));
    assert_eq!(status("exit 0"), Some(0));
    assert_eq!(status("kill -TERM $$"), Some(128 + 15));
    // A command that is ended for us has not failed.
    let output = place.record(&["-d", "1", "-o", "x.folded", "--force", "--", "sh", "-c", "while :; do :; done"]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}

#[test]
fn a_recording_sleeps_between_samples_and_the_verifier_has_little_to_follow() {
    let place = Place::new();
    let mut recording = place.command(&["-d", "5", "-o", "x.folded"]).stderr(Stdio::piped()).spawn().unwrap();
    // By then it is loaded, and reads its buffers at the usual interval.
    std::thread::sleep(Duration::from_secs(2));
    let read = |file: String| std::fs::read_to_string(format!("/proc/{}/{file}", recording.id())).unwrap_or_default();
    let number = |text: &str, key: &str| -> u64 {
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok()).unwrap_or_default()
    };
    // The main thread only waits for the end.
    let naps = || number(&read("status".to_owned()), "voluntary_ctxt_switches");
    let before = naps();
    std::thread::sleep(Duration::from_secs(1));
    let woken = naps() - before;
    let files = std::fs::read_dir(format!("/proc/{}/fdinfo", recording.id())).unwrap().flatten();
    let files = files.map(|entry| read(format!("fdinfo/{}", entry.file_name().to_string_lossy())));
    // Type 7 is BPF_PROG_TYPE_PERF_EVENT. 19,556 instructions on Linux 6.18.
    let followed = files.filter(|text| number(text, "prog_type") == 7).map(|text| number(&text, "verified_insns")).max();
    assert!(recording.wait().unwrap().success());
    assert!(before > 0 && woken < 8, "{before}, then {woken} more");
    println!("{followed:?} instructions followed");
    assert!(followed.is_some_and(|count| (5_000..20_000).contains(&count)), "{followed:?}");
}
