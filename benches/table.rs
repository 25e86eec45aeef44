//! What flametop costs, as one table, measured on whole processes beside perf and flamelens on the same machine.
//!
//! ```text
//! make bench                 everything, about six minutes
//! make bench ROW=view        one row: view, latency, first, record, live
//! ```
//!
//! CPU and memory are what the kernel counts for a process (`/proc/PID/stat`, `VmHWM`; `wait4` for those that end by
//! themselves). BENCH_SECONDS changes how long profilers run (20), BENCH_STACKS the sizes of profiles (100000,1000000).

// A tool for developers: what it cannot do it says by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../tests/common/mod.rs"]
mod common;

use common::{FLAMETOP, Program, Running, Terminal};

/// The size at which key presses are timed: a full screen of a wide monitor.
const LARGE: (u16, u16) = (50, 200);
const USUAL: (u16, u16) = (36, 132);
const KEYS: usize = 200;
/// How long a program may take to show a profile.
const PATIENCE: Duration = Duration::from_secs(120);

/// A row's name, and what measures it.
type Row = (&'static str, fn(&mut Table));

fn main() {
    // cargo bench adds --bench.
    let row = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_else(|| "all".to_owned());
    let rows: [Row; 5] = [("view", view), ("latency", latency), ("first", first_picture), ("record", record), ("live", live)];
    assert!(row == "all" || rows.iter().any(|(name, _)| *name == row), "no row {row:?}: view, latency, first, record, live, all");
    let mut table = Table::default();
    for (name, measure) in rows {
        if row == "all" || row == name {
            eprintln!("measuring {name} …");
            measure(&mut table);
        }
    }
    table.print();
}

/// Time from start until a profile is on the screen, and the memory it took.
fn view(table: &mut Table) {
    for stacks in sizes() {
        let Some(file) = folded(stacks) else {
            table.add(&format!("view {stacks} stacks"), "", "not measured: examples/generate_folded failed".to_owned());
            continue;
        };
        for viewer in viewers(&file) {
            let begin = Instant::now();
            let terminal = viewer.start(LARGE);
            let root = heaviest_root(&file);
            terminal.wait_for(|screen| screen.contains(&root), PATIENCE);
            let shown = begin.elapsed();
            // What is done after the first picture counts for memory too.
            terminal.wait_quiet(Duration::from_millis(500), Duration::from_secs(10));
            let usage = usage_of(terminal.pid());
            table.add(
                &format!("view {stacks} stacks"),
                viewer.name,
                format!("shown after {:.2} s, CPU {:.2} s, peak {:.0} MB", shown.as_secs_f64(), usage.cpu, usage.peak_mb),
            );
        }
    }
}

/// Time from a cursor key to the next change of the screen.
fn latency(table: &mut Table) {
    let stacks = sizes()[0];
    let Some(file) = folded(stacks) else {
        table.add("key", "", "not measured: examples/generate_folded failed".to_owned());
        return;
    };
    for viewer in viewers(&file) {
        let terminal = viewer.start(LARGE);
        let root = heaviest_root(&file);
        terminal.wait_for(|screen| screen.contains(&root), PATIENCE);
        let mut times = Vec::new();
        // Down into the graph, then to and fro: each of these moves the cursor.
        terminal.keys("Down Down Down");
        for number in 0..KEYS {
            terminal.wait_quiet(Duration::from_millis(30), Duration::from_secs(1));
            let before = picture(&terminal);
            let begin = Instant::now();
            terminal.send(if number % 2 == 0 { b"\x1b[A" } else { b"\x1b[B" });
            if let Some(time) = time_until_change(&terminal, &before, begin) {
                times.push(time);
            }
        }
        times.sort();
        let at =
            |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default();
        table.add(
            &format!("key at {}×{}, {stacks} stacks", LARGE.1, LARGE.0),
            viewer.name,
            format!("p50 {:.1} ms, p99 {:.1} ms ({} of {KEYS} keys)", milliseconds(at(50)), milliseconds(at(99)), times.len()),
        );
    }
}

/// Time from the start of the live view until the name of a busy function is on the screen.
fn first_picture(table: &mut Table) {
    let _load = load();
    for attempt in 1..=3 {
        let begin = Instant::now();
        let terminal = Terminal::start(&[], USUAL.0, USUAL.1, &[]);
        terminal.wait_for_text("inner", Duration::from_secs(30));
        table.add(&format!("first names, start {attempt}"), "flametop", format!("after {:.2} s", begin.elapsed().as_secs_f64()));
        finish(terminal);
    }
}

/// CPU and memory of recording the whole machine, beside perf.
fn record(table: &mut Table) {
    let _load = load();
    let seconds = seconds();
    let directory = scratch();
    for hertz in ["97", "997"] {
        let what = format!("record {seconds} s at {hertz} Hz");
        let folded = directory.join("bench.folded");
        let data = directory.join("bench.perf");
        let (duration, folded, data) =
            (seconds.to_string(), folded.to_string_lossy().into_owned(), data.to_string_lossy().into_owned());
        let ours = run(FLAMETOP, &["record", "-d", &duration, "-F", hertz, "--force", "-o", &folded]);
        table.add(&what, "flametop", per_second(ours, seconds));
        let event = ["record", "-q", "-e", "cpu-clock", "-F", hertz, "-g", "-a", "-o", &data, "--", "sleep", &duration];
        table.add(&what, "perf", per_second(run("perf", &event), seconds));
    }
}

/// CPU and memory of watching the whole machine.
fn live(table: &mut Table) {
    let _load = load();
    let seconds = seconds();
    for hertz in ["97", "997"] {
        let terminal = Terminal::start(&["-F", hertz], USUAL.0, USUAL.1, &[]);
        terminal.wait_for_text("inner", Duration::from_secs(30));
        std::thread::sleep(Duration::from_secs(seconds));
        let usage = usage_of(terminal.pid());
        table.add(&format!("live {seconds} s at {hertz} Hz"), "flametop", per_second(Some(usage), seconds));
        finish(terminal);
    }
}

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
    // `make bench` installs it beside the build; target/tmp is where cargo lets benches write.
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

/// A file of that many distinct stacks, made once.
fn folded(stacks: u64) -> Option<PathBuf> {
    let path = scratch().join(format!("{stacks}.folded"));
    if !path.exists() {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let new = path.with_extension("new");
        let made = Command::new(cargo)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["run", "--release", "--quiet", "--locked", "--example", "generate_folded", "--", &stacks.to_string()])
            .stdout(std::fs::File::create(&new).ok()?)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return None;
        }
        std::fs::rename(&new, &path).ok()?;
    }
    Some(path)
}

/// The beginning of the name that must be on any picture of this profile: that of the widest box above all.
fn heaviest_root(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("made above");
    let mut weights: HashMap<&str, u64> = HashMap::new();
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap_or((line, "0"));
        *weights.entry(stack.split(';').next().unwrap_or(stack)).or_default() += weight.parse::<u64>().unwrap_or(0);
    }
    let name = weights.into_iter().max_by_key(|(_, weight)| *weight).map_or("", |(name, _)| name);
    name.chars().take(8).collect()
}

/// All that is on the screen, colours too: a moved cursor may change nothing else.
fn picture(terminal: &Terminal) -> Vec<u8> {
    terminal.with_screen(vt100::Screen::contents_formatted)
}

fn time_until_change(terminal: &Terminal, before: &[u8], begin: Instant) -> Option<Duration> {
    loop {
        let left = Duration::from_secs(1).checked_sub(begin.elapsed())?;
        let written = terminal.written();
        if picture(terminal) != before {
            return Some(begin.elapsed());
        }
        terminal.wait_for_output(written, left);
    }
}

/// Leaves as a user does; a program that is slow at it is killed when dropped.
fn finish(mut terminal: Terminal) {
    terminal.keys("q");
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| terminal.wait_exit()));
}

/// A machine at work: a busy program for each CPU, named threads, and a storm of short processes.
fn load() -> Vec<Running> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let chain = Program::build("chain.c");
    let mut running: Vec<Running> = (0..cpus).map(|_| chain.run(&["600"])).collect();
    running.push(Program::build("threads.c").run(&["600"]));
    running.push(Program::build("forks.c").run(&["600", "20"]));
    running
}

/// What a process, or a family of them, has used.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    cpu: f64,
    peak_mb: f64,
}

/// Of a process that still runs.
fn usage_of(pid: u32) -> Usage {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may hold blanks and brackets: fields are counted from the last bracket on. utime and stime are the 14th and
    // 15th field of proc(5), so the 12th and 13th after it.
    let fields: Vec<u64> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let ticks = fields.get(11).unwrap_or(&0) + fields.get(12).unwrap_or(&0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kb: f64 = peak.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0.0);
    Usage { cpu: ticks as f64 / rustix::param::clock_ticks_per_second() as f64, peak_mb: peak_kb / 1024.0 }
}

/// Runs a program to its end; `None` when it cannot be started or fails.
fn run(program: &str, args: &[&str]) -> Option<Usage> {
    // Not waited for through `Child`, which would take the status away from wait4.
    #[allow(clippy::zombie_processes)]
    let child = Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok()?;
    wait_for_usage(child.id())
}

#[allow(unsafe_code)]
fn wait_for_usage(pid: u32) -> Option<Usage> {
    let mut status = 0;
    // SAFETY: rusage is a plain structure of numbers, of which all zeros is a value; wait4 gets valid pointers to it and
    // to the status, and a child of ours that nobody else waits for.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(libc::pid_t::try_from(pid).ok()?, &raw mut status, 0, &raw mut usage), usage)
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    (waited > 0 && status == 0).then_some(Usage { cpu, peak_mb: usage.ru_maxrss as f64 / 1024.0 })
}

fn per_second(usage: Option<Usage>, seconds: u64) -> String {
    match usage {
        Some(usage) => format!("{:.2} % of a CPU, peak {:.0} MB", usage.cpu / seconds as f64 * 100.0, usage.peak_mb),
        None => "not measured: it is not there, or it failed".to_owned(),
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[derive(Default)]
struct Table {
    rows: Vec<[String; 3]>,
}

impl Table {
    fn add(&mut self, what: &str, who: &str, figure: String) {
        eprintln!("  {what}  {who}  {figure}");
        self.rows.push([what.to_owned(), who.to_owned(), figure]);
    }

    fn print(&self) {
        let machine = rustix::system::uname();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        println!("\nflametop {}, Linux {}, {cpus} CPUs\n", env!("CARGO_PKG_VERSION"), machine.release().to_string_lossy());
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (what, who) = (width(0), width(1));
        for [name, program, figure] in &self.rows {
            println!("| {name:what$} | {program:who$} | {figure} |");
        }
    }
}
