//! Errors that the screen once showed, each with the steps that led to it.

use super::*;
use common::{Program, root_or_fail};

/// A file of 60 functions `function00` to `function59`, the first the heaviest; and `whole` calls all of them.
fn many_functions(shop: &Shop) -> String {
    let path = shop.path("many.folded");
    let line = |number: u64| format!("whole;function{number:02} {}\n", 1000 - number * 10);
    std::fs::write(&path, (0..60).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The rows of a table on screen, without the heading and what is above and below.
fn rows(screen: &str) -> Vec<&str> {
    let lines: Vec<&str> = screen.lines().collect();
    let heading = lines.iter().position(|line| line.contains("total") && line.contains("function")).unwrap_or(0);
    lines[heading + 1..lines.len() - 2].iter().copied().filter(|line| !line.trim().is_empty()).collect()
}

#[test]
fn a_table_never_hides_its_top() {
    let shop = Shop::new();
    let terminal = Terminal::start(&["view", &many_functions(&shop)], 24, 120, &[]);
    terminal.keys("2");
    terminal.wait_for_text("function00", SOON);
    let is_first = |name: &'static str| move |screen: &str| rows(screen).first().is_some_and(|row| row.contains(name));
    // Sorted by another column while the cursor is far below: the highest row of that column is on top of the screen.
    terminal.keys("End");
    terminal.wait_for(|screen| screen.contains("function59") && !screen.contains("function00"), SOON);
    terminal.keys("S");
    terminal.wait_for(is_first("whole"), SOON);
    terminal.keys("S S");
    terminal.wait_for(is_first("function00"), SOON);
    // Home, then another order: the cursor stays at the top.
    terminal.keys("Down Home S");
    let screen = terminal.wait_for(is_first("whole"), SOON);
    assert!(detail(&screen).starts_with(" whole"), "{screen}");
    // A filter leaves a few rows: all of them are seen.
    terminal.keys("S S End");
    terminal.wait_for(|screen| screen.contains("function59") && !screen.contains("function00"), SOON);
    prompt(&terminal, KEEP, "function5[0-4]");
    terminal.wait_for(|screen| rows(screen).len() == 6 && is_first("function50")(screen), SOON);
    terminal.keys("x");
    // The screen shows the visible rows and their total number.
    terminal.wait_for(|screen| screen.contains("1–20 of 61") && is_first("function00")(screen), SOON);
    terminal.keys("End");
    terminal.wait_for(|screen| screen.contains("42–61 of 61"), SOON);
    quit(terminal);
}

#[test]
fn processes_that_end_leave_no_empty_lines_below_hidden_rows() {
    root_or_fail();
    let busy = Program::build("chain.c");
    let stays = busy.run(&[]);
    let mut ends: Vec<_> = (0..30).map(|_| busy.run(&["30"])).collect();
    let pids = std::iter::once(&stays).chain(&ends).map(|running| running.pid_text()).collect::<Vec<_>>().join(",");
    let terminal = Terminal::start(&["-F", "499", "-p", &pids], 16, 120, &[]);
    let of_stays = format!(" {} ", stays.pid_text());
    terminal.keys("3");
    terminal.wait_for(|screen| screen.contains(" of 31"), SOON);
    terminal.keys("m End");
    terminal.wait_for(|screen| screen.contains("–31 of 31"), SOON);
    // They leave the last ten seconds, which are shown.
    ends.clear();
    terminal.wait_for_text("exited", SOON);
    // The row of the exited processes may be hidden above until it goes. In the end one row is left, and it is the first line.
    let first = |screen: &str| screen.lines().skip_while(|line| !line.contains("CPU %")).nth(1).unwrap_or_default().to_owned();
    terminal.wait_for(|screen| first(screen).contains(&of_stays) && !screen.contains("exited"), SOON);
    quit(terminal);
}

/// Time that CPUs did not run programs, in ticks of 10 ms: idle, waiting for a disk, or taken by the machine around this one (proc_stat(5)).
fn ticks_without_load() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<u64> = stat.lines().next().unwrap().split_whitespace().skip(1).map(|ticks| ticks.parse().unwrap()).collect();
    ticks[3] + ticks[4] + ticks[7]
}

#[test]
fn a_constant_load_has_no_stripe_on_the_map_of_time() {
    root_or_fail();
    let busy = Program::build("chain.c");
    let cpus = std::thread::available_parallelism().unwrap().get();
    let all: Vec<_> = (0..cpus).map(|_| busy.run(&[])).collect();
    // A cell without load is right to be empty. Such pictures say nothing, so another one is taken.
    for _ in 0..6 {
        let (least, screen, without) = picture_of_time();
        if least >= 48 {
            drop(all);
            return;
        }
        // 1 % of ten seconds of each CPU.
        assert!(without > 10 * cpus as u64, "a row of 20 ms is busy in {least} of 64 cells only:\n{screen}");
        println!("NOT A CONSTANT LOAD: {without} ticks without; another picture is taken");
    }
    panic!("this machine has no constant load in ten seconds");
}

/// Returns in how many of 64 cells the least busy row of the map of time is busy, the picture, and the ticks without load meanwhile.
fn picture_of_time() -> (usize, String, u64) {
    let before = ticks_without_load();
    // One glyph a cell tells how busy it was.
    // With flametop itself: otherwise its samples would be missing in the cells.
    let terminal = Terminal::start(&["-F", "99", "--self", "--color", "never", "--ascii"], 60, 100, &[]);
    terminal.keys("4");
    terminal.wait_for_text("one row is 20 ms", SOON);
    let map = |screen: &str| -> Vec<Vec<char>> {
        let lines = screen.lines().skip_while(|line| !line.contains("one row is 20 ms")).skip(1).take(50);
        lines.map(|line| line.chars().skip(8).collect()).collect()
    };
    // Ten seconds of eight columns each. The first and the newest are not whole.
    let screen = terminal
        .wait_for(|screen| map(screen).first().is_some_and(|line| line.iter().filter(|c| **c != ' ').count() >= 80), SOON);
    let lines = map(&screen);
    assert_eq!(lines.len(), 50, "{screen}");
    let least = lines.iter().map(|line| (8..72).filter(|column| line.get(*column) == Some(&'#')).count()).min().unwrap_or(0);
    quit(terminal);
    (least, screen, ticks_without_load() - before)
}

#[test]
fn a_chain_is_the_function_that_has_its_weight_and_each_of_its_functions_can_be_selected() {
    let shop = Shop::new();
    let path = shop.path("chain.folded");
    let deep: Vec<String> = (0..44).map(|number| format!("f{number:02}")).collect();
    std::fs::write(&path, format!("{};leaf_burn 530\nother 470\n", deep.join(";"))).unwrap();
    let terminal = Terminal::start(&["view", path.to_str().unwrap()], 24, 120, &[]);
    terminal.wait_for_text("other", SOON);
    terminal.keys("a");
    // One box, named by its first and its last function.
    terminal.wait_for(|screen| screen.contains("f00 → … → leaf_burn"), SOON);
    terminal.keys("g Down");
    let screen = terminal.wait_for(|screen| detail(screen).starts_with(" leaf_burn"), SOON);
    assert!(detail(&screen).contains("self 530 (53.0 %)"), "{screen}");
    terminal.keys("Up");
    let screen = terminal.wait_for(|screen| detail(screen).starts_with(" f43"), SOON);
    assert!(screen.contains("[f43]") && detail(&screen).contains("self 0"), "{screen}");
    // Its callers are those of the function that is selected.
    terminal.keys("Down s");
    terminal.wait_for(|screen| screen.contains("called by") && detail(screen).starts_with(" leaf_burn"), SOON);
    quit(terminal);
}

#[test]
fn what_begins_beside_a_busy_program_takes_nothing_from_it() {
    root_or_fail();
    let (busy, begins) = (Program::build("chain.c").run(&[]), Program::build("threads.c").run(&[]));
    signal(&begins, rustix::process::Signal::STOP);
    let pids = format!("{},{}", busy.pid(), begins.pid());
    let terminal = Terminal::start(&["-F", "499", "-p", &pids], 30, 132, &[]);
    terminal.wait_for(|screen| screen.contains("inner") && screen.contains("live 00:05"), SOON);
    terminal.keys("b");
    terminal.wait_for_text("the samples shown are the baseline", SOON);
    signal(&begins, rustix::process::Signal::CONT);
    terminal.keys("d");
    // The change of a process, in CPUs: its box begins with its name.
    let change = |screen: &str, name: &str| -> Option<f64> {
        let mut words = screen.lines().find(|line| line.starts_with("chain "))?.split_whitespace();
        words.find(|word| word.ends_with(name))?;
        words.next()?.trim_start_matches('±').parse().ok()
    };
    terminal.wait_for(
        |screen| change(screen, "chain").is_some_and(|by| by.abs() < 0.6) && change(screen, "threads").is_some_and(|by| by > 0.2),
        SOON,
    );
    quit(terminal);
}

/// The bytes of each line of view 5 about memory, in the order of the screen.
fn memory_told(screen: &str) -> Vec<(f64, String)> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let number: f64 = words.next()?.parse().ok()?;
        let unit = match words.next()? {
            "B" => 1.0,
            "kB" => 1e3,
            "MB" => 1e6,
            _ => return None,
        };
        Some((number * unit, words.collect::<Vec<_>>().join(" ")))
    };
    let lines = screen.lines().skip_while(|line| !line.contains("resident memory"));
    lines.map_while(parse).collect()
}

#[test]
fn view_5_says_where_memory_is() {
    root_or_fail();
    let busy = Program::build("chain.c");
    let _running = [busy.run(&[]), busy.run(&[])];
    let terminal = Terminal::start(&["-F", "499"], 60, 120, &[]);
    terminal.wait_for_text("chain", SOON);
    terminal.keys("5");
    std::thread::sleep(Duration::from_secs(8));
    let is_explained = |screen: &str| {
        let told = memory_told(screen);
        let part = |what: &str| told.iter().find(|(_, words)| words.contains(what)).map_or(0.0, |(bytes, _)| *bytes);
        let (resident, rest) = (part("resident memory"), part("everything else"));
        let parts: f64 = told.iter().skip(1).map(|(bytes, _)| bytes).sum();
        resident > 0.0 && (parts - resident).abs() < resident / 10.0 && rest < resident / 10.0
    };
    terminal.wait_for(is_explained, Duration::from_secs(5));
    quit(terminal);
}
