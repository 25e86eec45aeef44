//! Costs of flametop as one table, beside perf, flamelens, inferno, lightswitch and py-spy on the same machine. Whole processes are measured. The
//! targets come from the issues.
//!
//! ```text
//! make bench                 everything, about twenty minutes
//! make bench ROW=view        one row: view, keys, live-keys, first, record, live, unwind, names, events, cold, languages, waiting, formats
//! ```
//!
//! The kernel counts CPU and memory of a process (`/proc/PID/stat`, `VmHWM`; `wait4` for processes that end without a key). The time of BPF
//! programs is added from `kernel.bpf_stats_enabled`, which is on meanwhile. No figure includes the rest of sampling: the timer's
//! interrupt, and the kernel's walk for perf.
//! BENCH_SECONDS changes how long profilers run (20), BENCH_STACKS the sizes of profiles (100000,1000000), BENCH_DEBUG_FILE the
//! file whose addresses are named (flametop itself).

// A tool for developers: it reports errors by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod cold;
#[path = "../../tests/common/mod.rs"]
mod common;
mod events;
mod formats;
mod languages;
mod names;
mod print;
mod seconds;
mod times;
mod unwind;
mod usage;
mod waiting;

use common::{FLAMETOP, Program, Running, Terminal, bpf_programs_of};
use print::{Line, Table, cost};
use times::Times;
use usage::{BpfStats, Usage, bpf_time, run, usage_of};

/// Size of the terminal when key presses are timed: a full screen of a wide monitor.
const LARGE: (u16, u16) = (50, 200);
const USUAL: (u16, u16) = (36, 132);
const KEYS: usize = 200;
/// How long a program may take to show a profile.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest answer to a key, p99.
const KEY_TARGET: f64 = 16.0;

/// A row's name, and the function that measures it.
type Row = (&'static str, fn(&mut Table));

const ROWS: [Row; 13] = [
    ("view", view),
    ("keys", keys),
    ("live-keys", live_keys),
    ("first", first_picture),
    ("record", record),
    ("live", live),
    ("unwind", unwind::unwind),
    ("names", names::names),
    ("events", events::events),
    ("cold", cold::cold),
    ("languages", languages::languages),
    ("waiting", waiting::waiting),
    ("formats", formats::formats),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((seconds::COLLECT, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return seconds::collect(rest);
    }
    // cargo bench adds --bench.
    let chosen = arguments.into_iter().find(|argument| !argument.starts_with('-')).unwrap_or_else(|| "all".to_owned());
    let chosen: Vec<&str> = chosen.split(',').collect();
    let names = ROWS.map(|(name, _)| name);
    let wrong = chosen.iter().find(|row| !names.contains(row) && **row != "all");
    assert!(wrong.is_none(), "no row {wrong:?}: {}, all", names.join(", "));
    let mut table = Table::default();
    for (name, measure) in ROWS {
        if chosen.contains(&"all") || chosen.contains(&name) {
            eprintln!("measuring {name} …");
            measure(&mut table);
        }
    }
    table.print();
}

/// Time from start until a profile is on the screen, and the memory it took.
fn view(table: &mut Table) {
    for stacks in sizes() {
        // Sorted stacks as programs write them, beside flamelens; then files that are harder to read.
        for (order, shape, others) in [
            ("sorted", "profile", true),
            ("unsorted", "profile", false),
            ("sorted", "scattered", false),
            ("unsorted", "scattered", false),
        ] {
            let what = format!("view {stacks} stacks, {order} {shape}");
            let Some(file) = folded(stacks, order, shape) else {
                table.failed(&what);
                continue;
            };
            // The targets are for profiles like those of real programs.
            let limits = match (shape, stacks) {
                ("profile", ..=100_000) => Some((0.3, f64::INFINITY)),
                ("profile", ..=1_000_000) => Some((3.0, 400.0)),
                _ => None,
            };
            for viewer in viewers(&file.path).into_iter().take(if others { 2 } else { 1 }) {
                let begin = Instant::now();
                let terminal = viewer.start(LARGE);
                terminal.wait_for(|screen| screen.contains(&file.root), PATIENCE);
                let shown = begin.elapsed().as_secs_f64();
                // Memory that is taken after the first picture counts too.
                terminal.wait_quiet(Duration::from_millis(500), Duration::from_secs(10));
                let usage = usage_of(terminal.pid());
                let limits = limits.filter(|_| viewer.name == "flametop");
                table.add(Line {
                    what: what.clone(),
                    program: viewer.name,
                    figure: format!("{shown:.2} s, CPU {:.2} s, peak {:.0} MB", usage.cpu, usage.peak_mb),
                    target: limits.map_or(String::new(), |(time, memory)| match memory.is_finite() {
                        true => format!("{time} s, {memory} MB"),
                        false => format!("{time} s"),
                    }),
                    held: limits.map(|(time, memory)| shown <= time && usage.peak_mb <= memory),
                });
            }
        }
    }
}

/// Time from a cursor key to the next change of the screen, on a file.
fn keys(table: &mut Table) {
    for stacks in sizes() {
        for shape in ["profile", "scattered"] {
            let what = format!("key in a file of {stacks} stacks, {shape}, {}×{}", LARGE.1, LARGE.0);
            let Some(file) = folded(stacks, "sorted", shape) else {
                table.failed(&what);
                continue;
            };
            for viewer in viewers(&file.path).into_iter().take(if shape == "profile" { 2 } else { 1 }) {
                let terminal = viewer.start(LARGE);
                terminal.wait_for(|screen| screen.contains(&file.root), PATIENCE);
                // Down into the graph, then to and fro: each of these keys moves the cursor.
                terminal.wait_quiet(Duration::from_millis(500), Duration::from_secs(10));
                terminal.keys("Down Down Down");
                let mut times = Times::start(&terminal);
                for number in 0..KEYS {
                    terminal.wait_quiet(Duration::from_millis(30), Duration::from_secs(1));
                    let before = picture(&terminal);
                    let key = if number % 2 == 0 { b"\x1b[A" } else { b"\x1b[B" };
                    times.press(&terminal, key, || picture(&terminal) != before);
                }
                table.add(times.line(what.clone(), viewer.name));
            }
        }
    }
}

/// The same while samples come in: from a generator with that many distinct stacks, and from this machine.
fn live_keys(table: &mut Table) {
    for stacks in sizes() {
        for shape in ["profile", "scattered"] {
            let what = format!("key while samples come in, {stacks} stacks, {shape}, {}×{}", LARGE.1, LARGE.0);
            let (Some(file), Some(example)) = (folded(stacks, "unsorted", shape), example("live_like")) else {
                table.failed(&what);
                continue;
            };
            let command = format!("exec {} {stacks} 2000 < {}", example.display(), file.path.display());
            let terminal = Terminal::spawn("sh", &["-c", &command], LARGE.0, LARGE.1, &[]);
            terminal.wait_for(|screen| screen.contains(&file.root), PATIENCE);
            table.add(moves(&terminal).line(what, "flametop"));
            finish(terminal);
        }
    }
    let _load = load();
    for hertz in ["97", "997"] {
        let terminal = Terminal::start(&["-F", hertz], LARGE.0, LARGE.1, &[]);
        wait_for_names(&terminal);
        std::thread::sleep(Duration::from_secs(5));
        table.add(moves(&terminal).line(format!("key in the live view at {hertz} Hz, {}×{}", LARGE.1, LARGE.0), "flametop"));
        finish(terminal);
    }
}

/// Times of moving the cursor between the root and its widest child. The picture also changes without a key, so a key counts as
/// answered when the line that names the selected frame changes.
fn moves(terminal: &Terminal) -> Times {
    let line = usize::from(LARGE.0) - 2;
    let at_root = || terminal.with_screen(|screen| screen.rows(1, 8).nth(line).is_some_and(|words| words.starts_with("all  ")));
    terminal.keys("Home");
    let mut times = Times::start(terminal);
    for number in 0..KEYS {
        // Keys come at varying times between two pictures.
        std::thread::sleep(Duration::from_millis(30 + number as u64 * 7 % 50));
        let down = at_root();
        times.press(terminal, if down { b"\x1b[B" } else { b"\x1b[A" }, || at_root() != down);
    }
    times
}

/// Time from the start of the live view until the name of a busy function is on the screen.
fn first_picture(table: &mut Table) {
    let _load = load();
    for attempt in 1..=5 {
        let begin = Instant::now();
        let terminal = Terminal::start(&[], USUAL.0, USUAL.1, &[]);
        // The root of the graph: something was sampled.
        terminal.wait_for(
            |screen| screen.lines().any(|line| line.contains("all ") && line.contains("100 %")),
            Duration::from_secs(30),
        );
        let painted = begin.elapsed().as_secs_f64();
        wait_for_names(&terminal);
        let after = begin.elapsed().as_secs_f64();
        table.add(Line {
            what: format!("first names after the first picture, start {attempt}"),
            program: "flametop",
            figure: format!("{:.0} ms, that at {painted:.2} s", (after - painted) * 1e3),
            target: "100 ms".to_owned(),
            held: Some(after - painted <= 0.1),
        });
        // Pictures a second, after the first two seconds: then the screen changes more often.
        std::thread::sleep(Duration::from_secs(2));
        let pictures = changes(&terminal, Duration::from_secs(5));
        table.add(Line {
            what: format!("first names, start {attempt}"),
            program: "flametop",
            figure: format!("{after:.2} s, then {pictures:.1} pictures/s"),
            target: "1 s, 4/s".to_owned(),
            held: Some(after <= 1.0 && pictures >= 4.0),
        });
        finish(terminal);
    }
}

/// Waits until a function's name of one of the busy programs is on the screen. If other programs use the machine, the screen may not have
/// room for the names of all.
fn wait_for_names(terminal: &Terminal) {
    let names = ["inner", "deeper", "child_work", "parse_text"];
    terminal.wait_for(|screen| names.iter().any(|name| screen.contains(name)), Duration::from_secs(30));
}

/// Returns how often a second the graph on the screen changes. Output without a pause counts once.
fn changes(terminal: &Terminal, within: Duration) -> f64 {
    let (begin, mut count) = (Instant::now(), 0);
    let mut before = picture(terminal);
    while begin.elapsed() < within {
        std::thread::sleep(Duration::from_millis(25));
        let now = picture(terminal);
        count += usize::from(now != before);
        before = now;
    }
    count as f64 / begin.elapsed().as_secs_f64()
}

/// CPU and memory of recording the whole machine, beside perf.
fn record(table: &mut Table) {
    let _load = load();
    let _stats = BpfStats::switch_on();
    let seconds = seconds();
    let directory = scratch();
    for (hertz, target) in COSTS {
        let what = format!("record {seconds} s at {hertz} Hz");
        let folded = directory.join("bench.folded");
        let data = directory.join("bench.perf");
        let (duration, folded, data) =
            (seconds.to_string(), folded.to_string_lossy().into_owned(), data.to_string_lossy().into_owned());
        let ours = run(FLAMETOP, &["record", "-d", &duration, "-F", hertz, "--force", "-o", &folded]);
        table.add(cost(&what, "flametop", ours, Some(target)));
        let event = ["record", "-q", "-e", "cpu-clock", "-F", hertz, "-g", "-a", "-o", &data, "--", "sleep", &duration];
        // Sometimes perf 6.1 ends with "stack smashing detected": it gets three attempts.
        let theirs = (0..3).find_map(|_| run("perf", &event));
        table.add(cost(&what, "perf", theirs, None));
    }
}

/// CPU and memory of watching the whole machine.
fn live(table: &mut Table) {
    let _load = load();
    let _stats = BpfStats::switch_on();
    let seconds = seconds();
    for (hertz, target) in COSTS {
        let terminal = Terminal::start(&["-F", hertz], USUAL.0, USUAL.1, &[]);
        wait_for_names(&terminal);
        std::thread::sleep(Duration::from_secs(seconds));
        let usage = Usage { bpf: bpf_time(terminal.pid()), ..usage_of(terminal.pid()) };
        table.add(cost(&format!("live {seconds} s at {hertz} Hz"), "flametop", Some(usage), Some(target)));
        finish(terminal);
    }
}

/// Sampling rate; then the targets: CPU in per cent of one CPU, and memory in MB, at most.
const COSTS: [(&str, (f64, f64)); 2] = [("97", (1.0, 60.0)), ("997", (3.0, 100.0))];

/// Programs that show folded stacks.
struct Viewer {
    name: &'static str,
    program: String,
    args: Vec<String>,
}

impl Viewer {
    fn start(&self, (rows, cols): (u16, u16)) -> Terminal {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        Terminal::spawn(&self.program, &args, rows, cols, &[])
    }
}

fn viewers(file: &Path) -> Vec<Viewer> {
    let path = file.to_string_lossy().into_owned();
    let mut viewers =
        vec![Viewer { name: "flametop", program: FLAMETOP.to_owned(), args: vec!["view".to_owned(), path.clone()] }];
    // `make bench` installs it beside the build. Cargo lets benches write to target/tmp.
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench-tools").join("bin/flamelens");
    if beside.exists() {
        viewers.push(Viewer { name: "flamelens", program: beside.to_string_lossy().into_owned(), args: vec![path] });
    }
    viewers
}

fn sizes() -> Vec<u64> {
    let text = std::env::var("BENCH_STACKS").unwrap_or_else(|_| "100000,1000000".to_owned());
    text.split(',').map(|number| number.trim().parse().expect("BENCH_STACKS takes numbers: 100000,1000000")).collect()
}

fn seconds() -> u64 {
    std::env::var("BENCH_SECONDS").ok().map_or(20, |text| text.parse().expect("BENCH_SECONDS takes a number"))
}

fn scratch() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench");
    std::fs::create_dir_all(&directory).expect("failed to make a directory for measurements");
    directory
}

/// A file of folded stacks for the viewers.
struct Folded {
    path: PathBuf,
    /// The beginning of a name that every picture of the profile shows.
    root: String,
}

/// Returns a file with that many distinct stacks. It is made once.
fn folded(stacks: u64, order: &str, shape: &str) -> Option<Folded> {
    let path = scratch().join(format!("{stacks}-{order}-{shape}.folded"));
    if !path.exists() {
        let new = path.with_extension("new");
        let made = Command::new(example("generate_folded")?)
            .args([&stacks.to_string(), order, shape])
            .stdout(std::fs::File::create(&new).ok()?)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return None;
        }
        std::fs::rename(&new, &path).ok()?;
    }
    // The first command in examples/generate_folded.rs is the most frequent.
    Some(Folded { path, root: "nginx".to_owned() })
}

/// Builds a program of examples/ and returns its path.
fn example(name: &str) -> Option<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let built = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--release", "--quiet", "--locked", "--example", name])
        .status();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("release").join("examples").join(name);
    (built.is_ok_and(|status| status.success()) && path.exists()).then_some(path)
}

/// Returns the whole screen with its colours: a moved cursor may change only colours.
fn picture(terminal: &Terminal) -> Vec<u8> {
    terminal.with_screen(vt100::Screen::contents_formatted)
}

/// Returns the time from `begin` until the screen is as wanted, or `None` after two seconds.
fn time_until(terminal: &Terminal, begin: Instant, reached: impl Fn() -> bool) -> Option<Duration> {
    loop {
        let left = Duration::from_secs(2).checked_sub(begin.elapsed())?;
        let written = terminal.written();
        if reached() {
            return Some(begin.elapsed());
        }
        terminal.wait_for_output(written, left);
    }
}

/// Quits the program by its key, as a user does. A program that ends too slowly is killed when dropped.
fn finish(mut terminal: Terminal) {
    terminal.keys("q");
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| terminal.wait_exit()));
}

/// Spins below as many functions as its argument says.
const DEEP: &str = r#"
#include <stdio.h>
#include <stdlib.h>
volatile unsigned long counter;
__attribute__((noinline)) void deeper(int levels)
{
	if (levels > 0)
		deeper(levels - 1);
	else
		for (;;)
			counter++;
	counter++;
}
int main(int argc, char **argv)
{
	puts("ready");
	fflush(stdout);
	deeper(argc > 1 ? atoi(argv[1]) : 60);
	return 0;
}
"#;

/// A load for the machine: a busy program for each CPU, one with deep stacks, named threads, and a storm of short processes.
fn load() -> Vec<Running> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let chain = Program::build("chain.c");
    let mut running: Vec<Running> = (0..cpus).map(|_| chain.run(&["3600"])).collect();
    running.push(Program::build("threads.c").run(&["3600"]));
    running.push(Program::build_text("deep.c", DEEP, &[]).run(&["60"]));
    running.push(Program::build("forks.c").run(&["3600", "20"]));
    running
}
