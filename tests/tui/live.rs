//! The live view of a running machine.

use std::process::Command;

use super::*;
use common::{Mouse, Program, bpf_programs_of, root_box, root_or_fail};

/// flametop on one busy program, with its functions on screen.
fn watching(rows: u16, cols: u16) -> (common::Running, Terminal) {
    root_or_fail();
    let chain = Program::build("chain.c").run(&[]);
    let terminal = Terminal::start(&["-F", "499", "-p", &chain.pid_text()], rows, cols, &[]);
    // On low screens the innermost function is not visible.
    let names: &[&str] = if rows > 12 { &["main", "outer", "middle", "inner"] } else { &["main", "outer", "middle"] };
    terminal.wait_for(|screen| names.iter().all(|name| screen.contains(name)), SOON);
    // Stacks of the first moments, before unwind tables are made, form a separate branch. Waits until that branch has no box any more.
    terminal.wait_for(|screen| complete(screen) >= 99.5, SOON);
    (chain, terminal)
}

/// Length in seconds of the time span that the screen shows after these words: `14:31:02–14:31:06` is 4.
fn seconds_in(screen: &str, words: &str) -> Option<u64> {
    let time = screen.split(words).nth(1)?.split_whitespace().next()?;
    let of_day = |time: &str| time.split(':').try_fold(0, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?));
    let (from, to) = time.split_once('–')?;
    Some((of_day(to)? + 24 * 60 * 60 - of_day(from)?) % (24 * 60 * 60))
}

/// Share of complete stacks, in per cent, as the header has it.
fn complete(screen: &str) -> f64 {
    let share = screen.lines().next().and_then(|header| header.split(" % complete").next()?.split_whitespace().last());
    share.and_then(|share| share.parse().ok()).unwrap_or(0.0)
}

#[test]
fn a_machine_is_seen_at_once_and_the_picture_moves() {
    root_or_fail();
    let chain = Program::build("chain.c").run(&[]);
    for (rows, cols) in [(24, 80), (36, 132)] {
        let terminal = Terminal::start(&["-F", "499"], rows, cols, &[]);
        // All processes are shown: with many of them, the chain may be narrow. A filter makes it wide.
        prompt(&terminal, KEEP, "^inner$");
        terminal.wait_for(|screen| screen.contains("outer") && screen.contains("middle") && screen.contains("inner"), SOON);
        let before = root_box(&terminal.screen());
        terminal.wait_for(|screen| root_box(screen) != before, SOON);
        // The header is honest: what is lost, what is complete, what it costs.
        terminal.wait_for(|screen| ["lost", "complete", " MB"].iter().all(|word| screen.contains(word)), SOON);
        quit(terminal);
    }
    drop(chain);
}

#[test]
fn moving_zooming_and_going_back() {
    let (_chain, terminal) = watching(24, 80);
    let on = |name: &str| {
        let name = format!(" {name} ");
        terminal.wait_for(|screen| detail(screen).starts_with(&name), SOON);
    };
    terminal.keys("g");
    on("all");
    terminal.keys("End");
    terminal.wait_for(|screen| !detail(screen).starts_with(" all "), SOON);
    prompt(&terminal, SEARCH, "^outer$");
    terminal.keys("n");
    on("outer");
    terminal.keys("Down");
    on("middle");
    terminal.keys("j");
    on("inner");
    terminal.keys("k");
    on("middle");
    terminal.keys("Up");
    on("outer");
    // In, in, then back through the history.
    terminal.keys("Enter j Enter");
    on("middle");
    terminal.keys("Esc Backspace");
    on("middle");
    terminal.keys("r");
    on("all");
    terminal.keys("Home End Home");
    on("all");
    quit(terminal);
}

#[test]
fn a_search_tells_its_share_and_finds_matches_in_turn() {
    let (_chain, terminal) = watching(24, 100);
    prompt(&terminal, SEARCH, "^(outer|middle)$");
    // The cursor is on the heaviest match.
    terminal.wait_for(|screen| detail(screen).contains("/^(outer|middle)$/ ") && screen.contains("match 1 of "), SOON);
    terminal.keys("g n");
    terminal.wait_for(|screen| detail(screen).starts_with(" outer "), SOON);
    // Samples from before the program had its unwind table are in another branch, which has these functions as well. The first
    // match may be there, and `n` moves to the next match. The view is frozen, so that figures identify the matches.
    terminal.keys("Space");
    terminal.wait_for_text("frozen", SOON);
    let mut at = detail(&terminal.screen()).to_owned();
    for _ in 0..4 {
        let before = at.clone();
        terminal.keys("n");
        terminal.wait_for(|screen| detail(screen) != before, SOON);
        at = detail(&terminal.screen()).to_owned();
        if at.starts_with(" middle ") {
            break;
        }
    }
    assert!(at.starts_with(" middle "), "{at:?}");
    terminal.keys("N");
    terminal.wait_for(|screen| detail(screen).starts_with(" outer "), SOON);
    terminal.keys("Space");
    terminal.keys("/");
    terminal.wait_for_text("search /", SOON);
    terminal.keys("Right Ctrl-u ( Enter");
    // The program reports an invalid regular expression, and the prompt stays.
    terminal.wait_for(|screen| screen.contains("search /") && !screen.contains("of samples"), SOON);
    terminal.keys("Esc");
    prompt(&terminal, SEARCH, "nowhere_at_all");
    terminal.wait_for(|screen| detail(screen).contains(" 0.0 %") || detail(screen).contains(" 0 %"), SOON);
    terminal.keys("n");
    terminal.wait_for_text("no match", SOON);
    quit(terminal);
}

#[test]
fn filters_are_chips_and_go_one_by_one() {
    root_or_fail();
    let programs = [Program::build("chain.c").run(&[]), Program::build("threads.c").run(&[])];
    let pids = format!("{},{}", programs[0].pid(), programs[1].pid());
    let terminal = Terminal::start(&["-F", "499", "-p", &pids], 36, 132, &[]);
    let has = |yes: &'static str, no: &'static str| {
        let body = move |screen: &str| screen.lines().skip(2).take(31).collect::<Vec<_>>().join("\n");
        terminal.wait_for(move |screen| body(screen).contains(yes) && (no.is_empty() || !body(screen).contains(no)), SOON)
    };
    has("middle", "");
    has("parse_text", "");
    prompt(&terminal, KEEP, "burn");
    terminal.wait_for_text("keep /burn/", SOON);
    has("parse_text", "middle");
    prompt(&terminal, DROP, "render_page");
    terminal.wait_for_text("drop /render_page/", SOON);
    has("parse_text", "render_main");
    terminal.keys("x");
    has("render_page", "middle");
    // The other one goes by a click on its chip.
    let (row, column) = position(&terminal, "keep /burn/");
    terminal.click(row, column + 2);
    terminal.wait_for(|screen| !screen.contains("keep /burn/"), SOON);
    has("middle", "");
    prompt(&terminal, DROP, "burn");
    has("middle", "parse_text");
    terminal.keys("X");
    has("parse_text", "");
    quit(terminal);
}

#[test]
fn a_process_is_chosen_by_name_by_number_and_by_the_cursor() {
    root_or_fail();
    // Selects by a name that no program of another test has.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let named = Program { path: place.path().join("cuffs") };
    std::fs::hard_link(Program::build("chain.c").path, &named.path).unwrap();
    let (chain, threads) = (named.run(&[]), Program::build("threads.c").run(&[]));
    let terminal = Terminal::start(&["-F", "499"], 36, 132, &[]);
    let aimed = |name: &str, pid: &str| {
        let chip = format!(" {name} {pid} ");
        terminal.wait_for(|screen| screen.lines().nth(1).is_some_and(|line| line.contains(&chip)), SOON);
    };
    terminal.wait_for(|screen| screen.contains("cuffs") && screen.contains("threads"), SOON);
    // By number.
    terminal.keys("p");
    terminal.wait_for_text("type to narrow", SOON);
    terminal.text(&chain.pid_text());
    terminal.keys("Enter");
    aimed("cuffs", &chain.pid_text());
    terminal.wait_for(|screen| screen.contains("inner") && !screen.contains("parse_text"), SOON);
    // The entry for all processes is on top.
    terminal.keys("p");
    terminal.wait_for_text("all processes", SOON);
    terminal.keys("Enter");
    terminal.wait_for(|screen| !screen.contains(&format!("cuffs {}", chain.pid())), SOON);
    // By letters of its name and of its command line, wherever they are.
    terminal.keys("p");
    terminal.wait_for_text("type to narrow", SOON);
    terminal.text(&format!("thrds {}", threads.pid()));
    terminal.wait_for(|screen| screen.contains("thrds") && !screen.contains("nothing matches"), SOON);
    terminal.keys("Enter");
    aimed("threads", &threads.pid_text());
    terminal.wait_for(|screen| screen.contains("parse_text") && !screen.contains("middle"), SOON);
    // Selects one of its threads.
    terminal.keys("T");
    terminal.wait_for_text("type to narrow", SOON);
    terminal.text("render");
    terminal.wait_for(|screen| screen.contains("render") && !screen.contains("parser"), SOON);
    terminal.keys("Enter");
    terminal.wait_for(|screen| screen.contains("render_page") && !screen.contains("parse_text"), SOON);
    terminal.keys("X");
    // The one under the cursor.
    prompt(&terminal, SEARCH, "^cuffs$");
    terminal.wait_for(|screen| detail(screen).contains("matches"), SOON);
    terminal.keys("n");
    terminal.wait_for(|screen| detail(screen).starts_with(" cuffs "), SOON);
    terminal.keys("p");
    terminal.wait_for_text("all processes", SOON);
    terminal.keys("Enter");
    aimed("cuffs", &chain.pid_text());
    terminal.wait_for(|screen| screen.contains("inner") && !screen.contains("parse_text"), SOON);
    quit(terminal);
}

/// A new cgroup, removed when the test is over.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make(name: &str) -> Cgroup {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let mount = mount.expect("NOT TESTED: no cgroup2 file system is mounted").split(' ').nth(1).unwrap();
        let path = std::path::Path::new(mount).join(format!("flametop-test-{}", std::process::id())).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Cgroup(path)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A cgroup is busy for a moment after its last process has ended.
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.0).is_err() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.parent().map(std::fs::remove_dir);
    }
}

#[test]
fn a_cgroup_and_a_cpu_are_chosen() {
    root_or_fail();
    let group = Cgroup::make("lonely.scope");
    let (chain, threads) = (Program::build("chain.c").run(&[]), Program::build("threads.c").run(&[]));
    std::fs::write(group.0.join("cgroup.procs"), chain.pid_text()).unwrap();
    let pids = format!("{},{}", chain.pid(), threads.pid());
    let terminal = Terminal::start(&["-F", "499", "-p", &pids], 36, 132, &[]);
    terminal.wait_for(|screen| screen.contains("inner") && screen.contains("parse_text"), SOON);
    terminal.keys("H");
    terminal.wait_for_text("all cgroups", SOON);
    terminal.keys("Esc");
    // The path is there within a second or two of the first sample; the list is as it was when it was opened.
    std::thread::sleep(Duration::from_millis(2500));
    terminal.keys("H");
    terminal.text("lonely");
    terminal.wait_for(|screen| screen.contains("lonely.scope  /flametop-test-"), SOON);
    terminal.keys("Enter");
    terminal.wait_for(|screen| screen.contains("cgroup lonely.scope") && screen.contains("inner"), SOON);
    terminal.wait_for(|screen| !screen.contains("parse_text"), SOON);
    terminal.keys("H Enter");
    terminal.wait_for(|screen| screen.contains("parse_text") && screen.contains("inner"), SOON);
    terminal.keys("C");
    let screen = terminal.wait_for(|screen| screen.contains("all CPUs"), SOON);
    let cpus = screen.lines().filter(|line| line.contains(" CPU ") && line.contains(" % ")).count();
    assert_eq!(cpus, std::thread::available_parallelism().unwrap().get(), "{screen}");
    terminal.keys("Down Enter");
    terminal.wait_for(|screen| screen.lines().nth(1).is_some_and(|line| line.contains("CPU 0 ×")), SOON);
    drop((terminal, chain, threads));
}

/// A probe that would slow its programs down is not attached before the user has agreed, and its cost is on screen.
#[test]
fn what_a_probe_costs_is_said_before_it_is_attached_and_while_it_is() {
    root_or_fail();
    let mut command = Command::new("sh");
    let path = Program::build("events.cpp").path;
    command.args(["-c", "echo ready; exec \"$0\" calls 100000000000"]).arg(path);
    let program = Program::run_command(command);
    let terminal = Terminal::start(&["-p", &program.pid_text()], 36, 132, &[]);
    terminal.wait_for(|screen| screen.contains("CPUs"), SOON);
    let programs = || bpf_programs_of(terminal.pid()).into_iter().filter(|program| program.name.starts_with("on_")).count();
    let choose = || {
        terminal.keys("E");
        terminal.text(&format!("uprobe:/proc/{}/exe:counted", program.pid_text()));
        terminal.wait_for_text("event name as typed", SOON);
        terminal.keys("Enter");
        terminal.wait_for_text("events/s). Attach?", SOON);
        assert_eq!(programs(), 0);
    };
    choose();
    terminal.keys("n");
    terminal.wait_for_text("not attached", SOON);
    choose();
    terminal.keys("y");
    terminal.wait_for(|screen| screen.contains("(uprobe)") && screen.contains("probes ≈ "), SOON);
    assert_eq!(programs(), 1);
    terminal.keys("E");
    terminal.text("uprobe");
    terminal.wait_for_text("shown", SOON);
    terminal.keys("Delete");
    terminal.wait_for(|screen| !screen.contains("probes ≈"), SOON);
    quit(terminal);
}

#[test]
fn stacks_at_events_are_switched_on_and_off_again() {
    root_or_fail();
    let storm = ["-F", "499", "--", "sh", "-c", "while :; do /bin/true; done"];
    let terminal = Terminal::start(&storm, 36, 132, &[]);
    terminal.wait_for(|screen| screen.contains("CPUs") && screen.contains("s of CPU"), SOON);
    let programs = || bpf_programs_of(terminal.pid()).into_iter().filter(|program| program.name.starts_with("on_")).count();
    assert_eq!(programs(), 0);
    // The list says what this machine refuses. Trying leaves nothing attached.
    if !std::path::Path::new("/sys/bus/event_source/devices/cpu").exists() {
        terminal.keys("E");
        terminal.text("cycles");
        terminal.wait_for_text("refused: the processor has no such counter", SOON);
        assert_eq!(programs(), 0);
        terminal.keys("Esc");
    }
    terminal.keys("E");
    terminal.text("page-faults");
    terminal.wait_for_text("memory touched", SOON);
    terminal.keys("Enter");
    terminal.wait_for(|screen| screen.contains("page-faults (perf)") && screen.contains(" events "), SOON);
    assert_eq!(programs(), 1);
    terminal.keys("E");
    terminal.text("quux:xyzzy");
    terminal.wait_for_text("event name as typed", SOON);
    terminal.keys("Enter");
    terminal.wait_for_text("no such tracepoint", SOON);
    terminal.keys("E");
    terminal.text("page-faults");
    terminal.wait_for_text("shown", SOON);
    terminal.keys("Delete");
    terminal.wait_for(|screen| screen.contains("cpu-clock 499 Hz") && screen.contains("s of CPU"), SOON);
    let until = std::time::Instant::now() + SOON;
    while programs() > 0 {
        assert!(std::time::Instant::now() < until, "the event's program is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(terminal);
}

#[test]
fn a_frozen_picture_stands_still_and_goes_on() {
    let (_chain, terminal) = watching(24, 80);
    terminal.keys("Space");
    // New pictures of the same samples still come: the header's clock shows that.
    terminal.wait_for_text("frozen", SOON);
    terminal.wait_quiet(Duration::from_millis(300), Duration::from_secs(3));
    let frozen = root_box(&terminal.screen());
    let (before, mut same) = (terminal.written(), true);
    if terminal.wait_for_output(before, Duration::from_secs(2)) {
        same = root_box(&terminal.screen()) == frozen;
    }
    assert!(same, "a frozen picture has moved:\n{}", terminal.screen());
    terminal.keys("z");
    terminal.wait_for(|screen| !screen.contains("frozen") && root_box(screen) != frozen, SOON);
    quit(terminal);
}

#[test]
fn which_way_up() {
    let (_chain, terminal) = watching(24, 132);
    let row = |screen: &str, name: &str| screen.lines().position(|line| line.starts_with(name));
    terminal.wait_for(|screen| row(screen, "outer") < row(screen, "inner"), SOON);
    terminal.keys("i");
    terminal.wait_for(|screen| row(screen, "outer") > row(screen, "inner") && row(screen, "inner").is_some(), SOON);
    terminal.keys("i u");
    terminal.wait_for(|screen| row(screen, "inner") < row(screen, "outer") && row(screen, "inner").is_some(), SOON);
    terminal.keys("u a");
    terminal.wait_for(|screen| screen.contains("outer → middle → inner"), SOON);
    quit(terminal);
}

#[test]
fn functions_processes_and_health() {
    root_or_fail();
    let threads = Program::build("threads.c").run(&[]);
    let terminal = Terminal::start(&["-F", "499", "-p", &threads.pid_text()], 36, 132, &[]);
    terminal.wait_for_text("parse_text", SOON);
    terminal.keys("2");
    terminal.wait_for(|screen| screen.contains("self ▼") && screen.contains("burn"), SOON);
    prompt(&terminal, SEARCH, "^parse_text$");
    terminal.wait_for(|screen| detail(screen).contains("matches"), SOON);
    terminal.keys("n Enter");
    let screen = terminal.wait_for(|screen| screen.contains("called by") && screen.contains("calls"), SOON);
    let after = |heading: &str| screen.lines().skip_while(|line| !line.contains(heading)).nth(1).unwrap_or_default().to_owned();
    assert!(after("called by").contains("parse_main") && after("calls").contains("burn"), "{screen}");
    terminal.keys("3");
    // Number, user, CPU use, CPU time, five threads of which three are busy, name; at the end the hottest function.
    let row =
        |screen: &str| screen.lines().skip(3).find(|line| line.contains(&threads.pid_text())).unwrap_or_default().to_owned();
    terminal.wait_for(
        |screen| {
            let row = row(screen);
            let words: Vec<&str> = row.split_whitespace().collect();
            words.get(1) == Some(&"root") && row.contains(" 5  ▸ threads") && words.last().is_some_and(|word| *word == "▌burn")
        },
        SOON,
    );
    terminal.wait_for(|screen| detail(screen).contains("100 % of the samples shown"), SOON);
    terminal.keys("Right");
    terminal.wait_for(|screen| ["parser", "render", "writer"].iter().all(|name| screen.contains(name)), SOON);
    assert!(!terminal.screen().contains("sleeper"));
    terminal.keys("Left");
    terminal.wait_for(|screen| !screen.contains("parser"), SOON);
    terminal.keys("5");
    terminal.wait_for(|screen| ["complete", "Not in the picture", "Cost of flametop"].iter().all(|s| screen.contains(s)), SOON);
    // Enter on a process: its flame graph. Tab goes around.
    terminal.keys("3");
    terminal.wait_for_text("threads", SOON);
    terminal.keys("Enter");
    terminal.wait_for(|screen| screen.contains("parse_text") && screen.contains("all "), SOON);
    for sign in ["self ▼", "PID", "one column is 1 s", "Cost of flametop", "parse_main"] {
        terminal.keys("Tab");
        terminal.wait_for_text(sign, SOON);
    }
    quit(terminal);
}

#[test]
fn what_began_after_the_baseline_has_grown() {
    root_or_fail();
    let (before, after) = (Program::build("chain.c").run(&[]), Program::build("threads.c").run(&[]));
    signal(&after, rustix::process::Signal::STOP);
    let pids = format!("{},{}", before.pid(), after.pid());
    let terminal = Terminal::start(&["-F", "499", "-p", &pids], 36, 132, &[]);
    terminal.wait_for(|screen| screen.contains("inner") && complete(screen) >= 99.5, SOON);
    terminal.keys("d");
    terminal.wait_for_text("no samples before the last 10 s; b marks", SOON);
    terminal.keys("b");
    terminal.wait_for_text("the samples shown are the baseline; d compares", SOON);
    signal(&before, rustix::process::Signal::STOP);
    signal(&after, rustix::process::Signal::CONT);
    terminal.keys("d");
    // The chip has the time of the baseline.
    terminal.wait_for(|screen| seconds_in(screen, "Δ to ").is_some() && screen.contains(" since "), SOON);
    // All samples of the one program are gone, and all samples of the other are new.
    let change = |screen: &str, row: &str, sign: char| {
        let row = screen.lines().find(|line| line.split_whitespace().next() == Some(row)).unwrap_or_default();
        let figures = row.split_whitespace().filter(|word| word.starts_with(sign));
        figures.filter_map(|word| word.parse::<f64>().ok()).map(f64::abs).fold(0.0, f64::max)
    };
    let is_within = |screen: &str, least: f64, most: f64| {
        ['-', '+'].iter().all(|sign| (least..most).contains(&change(screen, "chain", *sign)))
    };
    terminal.wait_for(|screen| is_within(screen, 0.2, 9.0), SOON);
    terminal.keys("%");
    terminal.wait_for(|screen| is_within(screen, 90.0, 101.0), SOON);
    terminal.keys("% 2");
    terminal.wait_for(
        |screen| {
            let line = |name: &str| screen.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
            screen.contains("CPUs   ") && line("inner").contains(" -") && line("burn").contains(" +")
        },
        SOON,
    );
    terminal.keys("1 Esc Esc Esc");
    terminal.wait_for(|screen| !screen.contains("Δ to"), SOON);
    signal(&before, rustix::process::Signal::CONT);
    quit(terminal);
}

#[test]
fn a_part_of_a_second_is_selected_on_the_map_of_time() {
    let (_chain, terminal) = watching(36, 132);
    terminal.keys("4");
    terminal.wait_for_text("one column is 1 s", SOON);
    terminal.wait_for(|screen| detail(screen).contains("CPUs busy"), SOON);
    terminal.keys("Enter Down Down");
    terminal.wait_for(|screen| detail(screen).contains("shows this range"), SOON);
    terminal.keys("Enter");
    terminal.wait_for(|screen| screen.contains(" s ×") && screen.contains("inner"), SOON);
    terminal.keys("c m m");
    terminal.wait_for(|screen| screen.contains("fading, half 10 s") && screen.contains("inner"), SOON);
    quit(terminal);
}

#[test]
fn the_help_has_every_key_and_can_be_searched() {
    let (_chain, terminal) = watching(36, 132);
    terminal.keys("?");
    terminal.wait_for_text("Esc closes", SOON);
    for binding in flametop::ui::BINDINGS {
        terminal.keys("/");
        terminal.text(binding.help);
        terminal.wait_for(
            |screen| {
                screen.contains(&format!("with “{}”", binding.help.chars().take(20).collect::<String>())) || {
                    screen.lines().filter(|line| line.contains(binding.help)).count() > 1
                }
            },
            SOON,
        );
        let key = binding.keys.iter().find(|key| key.is_ascii()).unwrap();
        terminal.wait_for(
            |screen| screen.lines().any(|line| line.split_whitespace().any(|word| word == *key) && line.contains(binding.help)),
            SOON,
        );
        terminal.keys("Esc");
        terminal.wait_for_text("Esc closes", SOON);
    }
    terminal.keys("/");
    terminal.text("no such help");
    terminal.wait_for(|screen| !screen.contains("Find and filter") && screen.contains("no such help"), SOON);
    terminal.keys("Esc Esc");
    terminal.wait_for(|screen| !screen.contains("no such help") && screen.contains("inner"), SOON);
    quit(terminal);
}

#[test]
fn the_mouse_selects_zooms_and_scrolls() {
    let (_chain, terminal) = watching(12, 100);
    let (row, column) = position(&terminal, "outer");
    terminal.click(row, column + 1);
    terminal.wait_for(|screen| detail(screen).starts_with(" outer "), SOON);
    // A second click on the same place zooms. Frames above and below it stay; Esc leaves the zoom.
    terminal.click(row, column + 1);
    terminal.keys("g");
    terminal.wait_for(|screen| detail(screen).starts_with(" all "), SOON);
    terminal.keys("r");
    let (row, column) = position(&terminal, "middle");
    terminal.mouse(Mouse::PressRight, row, column + 1);
    terminal.wait_for(|screen| detail(screen).starts_with(" middle "), SOON);
    let (row, column) = position(&terminal, "outer");
    terminal.mouse(Mouse::Move, row, column + 2);
    terminal.wait_for(|screen| screen.lines().any(|line| line.starts_with(" outer ") && line.contains('%')), SOON);
    // After the pointer has moved away, the line about the frame disappears: it would hide the last line.
    terminal.mouse(Mouse::Move, 0, 0);
    terminal.wait_for(|screen| !screen.lines().any(|line| line.starts_with(" outer ") && line.contains('%')), SOON);
    terminal.keys("r");
    terminal.resize(9, 100);
    // Until the smaller screen is drawn, there is nothing to scroll.
    terminal.wait_for(|screen| screen.lines().nth(8).is_some_and(|line| line.contains("q quit")), SOON);
    terminal.mouse(Mouse::WheelDown, 4, 5);
    terminal.wait_for(|screen| root_box(screen).is_none() && screen.contains("middle"), SOON);
    terminal.mouse(Mouse::WheelUp, 4, 5);
    terminal.wait_for(|screen| root_box(screen).is_some(), SOON);
    quit(terminal);
}

#[test]
fn a_drag_over_the_time_strip_selects_seconds() {
    let (_chain, terminal) = watching(24, 100);
    terminal.wait_for_text(" last 60 s ", SOON);
    // Until there are enough seconds to drag over.
    let strip = |screen: &str| {
        let line: Vec<char> = screen.lines().nth(1).unwrap_or_default().chars().collect();
        let is_bar = |c: &char| "▁▂▃▄▅▆▇█".contains(*c);
        (line.iter().position(is_bar).unwrap_or(0) as u16, line.iter().filter(|c| is_bar(c)).count())
    };
    terminal.wait_for(|screen| strip(screen).1 >= 5, SOON);
    let begin = strip(&terminal.screen()).0;
    let selects = |seconds: u64| terminal.wait_for(|screen| seconds_in(screen, "│ ") == Some(seconds), SOON);
    terminal.mouse(Mouse::Press, 1, begin + 1);
    selects(1);
    terminal.mouse(Mouse::Drag, 1, begin + 3);
    selects(3);
    terminal.mouse(Mouse::Drag, 6, begin + 2);
    selects(2);
    terminal.mouse(Mouse::Release, 6, begin + 2);
    terminal.keys("Esc");
    terminal.wait_for_text(" last 60 s ", SOON);
    quit(terminal);
}

#[test]
fn what_changed_in_the_last_seconds_is_told_by_one_key() {
    root_or_fail();
    let (before, after) = (Program::build("chain.c").run(&[]), Program::build("threads.c").run(&[]));
    signal(&after, rustix::process::Signal::STOP);
    let pids = format!("{},{}", before.pid(), after.pid());
    let terminal = Terminal::start(&["-F", "499", "-p", &pids], 36, 132, &[]);
    terminal.wait_for_text("live 00:12", SOON);
    signal(&before, rustix::process::Signal::STOP);
    signal(&after, rustix::process::Signal::CONT);
    terminal.wait_for_text("live 00:18", SOON);
    terminal.keys("d");
    // The 60 s before are the baseline. Here are fewer.
    let is_told = |screen: &str| {
        screen.contains(" last 10 s ×") && seconds_in(screen, "Δ to ").is_some_and(|seconds| (8..=14).contains(&seconds))
    };
    terminal.wait_for(is_told, SOON);
    terminal.wait_for(|screen| screen.contains("chain -") && screen.contains("threads +"), SOON);
    // The same key leads back.
    terminal.keys("d");
    terminal.wait_for(|screen| screen.contains(" last 60 s ") && !screen.contains("Δ to"), SOON);
    signal(&before, rustix::process::Signal::CONT);
    quit(terminal);
}

#[test]
fn sizes_change_while_samples_come() {
    let (_chain, terminal) = watching(24, 80);
    for (rows, cols) in [(1, 1), (36, 132), (2, 300), (100, 3), (9, 9), (24, 80)] {
        let before = terminal.written();
        terminal.resize(rows, cols);
        assert!(terminal.wait_for_output(before, SOON), "nothing was drawn at {cols}×{rows}");
    }
    terminal.wait_for(|screen| screen.contains("inner") && screen.lines().count() == 24, SOON);
    quit(terminal);
}

#[test]
fn code_made_at_run_time_is_anonymous_until_its_runtime_has_written_down_what_it_is() {
    struct Map(String);
    impl Drop for Map {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
    root_or_fail();
    let program = Program::build("jit.c").run(&[]);
    let map = Map(format!("/tmp/perf-{}.map", program.pid()));
    let _ = std::fs::remove_file(&map.0);
    let terminal = Terminal::start(&["-F", "499", "-p", &program.pid_text()], 60, 140, &[]);
    terminal.wait_for(|screen| screen.matches("[anon]").count() >= 2 && screen.contains("main"), SOON);
    terminal.keys("5");
    let reason = "JIT code of jit: no map of its JIT code";
    terminal.wait_for(|screen| screen.contains(reason) && screen.contains("start it with node --perf-basic-prof"), SOON);
    std::fs::write(&map.0, "100000000040 40 JS:*caller app.js:1:1\n100000000080 40 JS:*callee app.js:9:1\n").unwrap();
    terminal.keys("1");
    let named = |screen: &str| screen.contains("caller app.js:1") && screen.contains("callee app.js:9");
    // Earlier samples get their names as well.
    terminal.wait_for(|screen| named(screen) && !screen.contains("[anon]"), SOON);
    terminal.keys("5");
    terminal.wait_for(|screen| screen.contains("User stacks of the samples shown") && !screen.contains(reason), SOON);
    quit(terminal);
}
