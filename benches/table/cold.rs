//! The first ten seconds: how many user stacks are whole while unwind tables are made for the first time.
//!
//! Each recording starts with an empty cache on disk. Large programs already run when it starts. Small programs, each from a different
//! file, start afterwards. The cost of `flametop record` itself is measured beside the same large programs.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use super::common::go_build;
use super::seconds::{Counted, Counts, Recording, Second};
use super::*;

/// As in issue 19: enough samples a second for a figure in per cent.
const HERTZ: u32 = 199;
const SECONDS: u64 = 10;

/// Per cent of whole stacks in the first second and from the third on, and of programs that start afterwards.
const FIRST: f64 = 90.0;
const LATER: f64 = 98.0;
const NEW: f64 = 99.0;

/// Figures of programs that start afterwards: milliseconds that each runs, how many a second, how many in all.
const STORMS: [(u32, u32, u32); 2] = [(2, 200, 1500), (50, 20, 160)];

/// A program's name, and the function that starts it.
type Start = (&'static str, fn() -> Option<Group>);

const PROGRAMS: [Start; 4] = [("Chromium", chromium), ("rustc", rustc), ("node", node), ("a static Go program", go)];

pub(crate) fn cold(table: &mut Table) {
    let mut grid = vec![Vec::from(["program".to_owned()])];
    grid[0].extend((1..=SECONDS).map(|second| format!("{second} s")));
    for (name, start) in PROGRAMS {
        let what = format!("cold start beside {name}");
        let Some(program) = start() else {
            table.failed(&what);
            continue;
        };
        let counts = Recording::start(SECONDS, HERTZ, &Counted::Family(program.pid()), empty().path()).counts();
        let mut row = vec![name.to_owned()];
        row.extend(counts.seconds.iter().map(|second| match second.all {
            0 => "no samples".to_owned(),
            all => format!("{:.1} % of {all}", second.percent()),
        }));
        grid.push(row);
        table.add(whole(&what, &counts));
        table.add(cost_of_record(&what));
    }
    table.grid("Whole user stacks in each second after a start with an empty cache, and samples", grid);
    for storm in STORMS {
        new_programs(table, storm);
    }
}

/// An empty directory that belongs to us.
fn empty() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory for a cache")
}

fn whole(what: &str, counts: &Counts) -> Line {
    let later = counts.seconds.get(2..).unwrap_or_default();
    let worst = later.iter().filter(|second| second.all > 0).map(|second| second.percent()).reduce(f64::min);
    let first = counts.seconds.first().filter(|second| second.all > 0).map(|second| second.percent());
    let percent = |share: Option<f64>| share.map_or("no samples".to_owned(), |share| format!("{share:.1} %"));
    Line {
        what: format!("{what}: whole stacks"),
        program: "flametop",
        figure: format!(
            "{} in the first second, {} in the worst of seconds 3 to {SECONDS}; of {} samples not whole: {}",
            percent(first),
            percent(worst),
            counts.sum().all,
            counts.main_reasons()
        ),
        target: format!("{FIRST:.0} %, {LATER:.0} %"),
        held: first.zip(worst).map(|(first, worst)| first >= FIRST && worst >= LATER),
    }
}

/// Resources that `flametop record` has used ten seconds after its start.
fn cost_of_record(what: &str) -> Line {
    let (cache, folded) = (empty(), scratch().join("cold.folded"));
    let mut command = Command::new(FLAMETOP);
    command.args(["record", "-d", &(SECONDS + 1).to_string(), "-F", &HERTZ.to_string(), "--force", "-o"]).arg(&folded);
    let child = command.env("XDG_CACHE_HOME", cache.path()).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.expect("flametop starts");
    std::thread::sleep(Duration::from_secs(SECONDS));
    let usage = usage_of(child.id());
    let output = child.wait_with_output().expect("flametop ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let complete =
        said.lines().find_map(|line| Some(line.split_once(" % of user stacks complete")?.0.rsplit(' ').next()?.to_owned()));
    Line {
        what: format!("{what}: `record`, everything"),
        program: "flametop",
        figure: match complete {
            Some(complete) => format!("{:.2} s of CPU, peak {:.0} MB; {complete} % complete", usage.cpu, usage.peak_mb),
            None => format!("not measured: {}", said.lines().next().unwrap_or("it failed")),
        },
        target: String::new(),
        held: None,
    }
}

/// A program and all processes that it starts. They are killed when this is dropped.
struct Group(std::process::Child);

impl Group {
    /// Starts the program and waits until it does its work.
    fn start(command: &mut Command, settle: Duration) -> Option<Group> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut group = Group(command.spawn().ok()?);
        std::thread::sleep(settle);
        matches!(group.0.try_wait(), Ok(None)).then_some(group)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.pid().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Writes a file with this text to the scratch directory.
fn file(name: &str, text: &str) -> Option<PathBuf> {
    let path = scratch().join(name);
    std::fs::write(&path, text).ok()?;
    Some(path)
}

/// A page that keeps script, style and layout busy.
const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><title>busy</title>
<style>@keyframes turn { to { transform: rotate(1turn) } } .box { display: inline-block; padding: 2px; animation: turn 1s infinite linear }</style>
<div id="room"></div>
<script>
const room = document.getElementById("room");
for (let i = 0; i < 400; i++) { const box = document.createElement("span"); box.className = "box"; box.textContent = i; room.append(box); }
class Work {
  sum(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) * (i % 7); return s; }
  sort(n) { return Array.from({ length: n }, (_, i) => (i * 7919) % n).sort((a, b) => a - b); }
  text(n) { return JSON.parse(JSON.stringify(Array.from({ length: n }, (_, i) => ({ id: i, name: "name " + i })))).length; }
}
const work = new Work();
let round = 0;
function step() {
  const until = performance.now() + 50;
  while (performance.now() < until) { work.sum(20000); work.sort(2000); work.text(500); }
  round++;
  for (const box of room.children) { box.style.fontSize = 8 + (round + box.textContent.length) % 5 + "px"; box.offsetWidth; }
  setTimeout(step, 0);
}
step();
</script>
"#;

fn chromium() -> Option<Group> {
    // Debian's `chromium` is a script that starts this program.
    let program = ["/usr/lib/chromium/chromium", "/usr/bin/chromium"].into_iter().find(|path| Path::new(path).exists())?;
    let profile = scratch().join("chromium");
    let mut command = Command::new(program);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", file("busy.html", PAGE)?.display()));
    Group::start(&mut command, Duration::from_secs(6))
}

/// A compiler that starts again when it is done.
fn rustc() -> Option<Group> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok().filter(|output| output.status.success())?;
    // The compiler itself: rustup's `rustc` only starts it.
    let program = Path::new(String::from_utf8(sysroot.stdout).ok()?.trim()).join("bin/rustc");
    let function = |number: usize| {
        format!(
            "pub fn f{number}(words: &[String]) -> HashMap<String, Vec<u64>> {{\n    let mut found: HashMap<String, Vec<u64>> = HashMap::new();\n    \
             for (at, word) in words.iter().enumerate().filter(|(at, _)| at % {} == 0) {{\n        \
             found.entry(format!(\"{{word}}-{number}\")).or_default().push(at as u64 * {number});\n    }}\n    \
             found.values_mut().for_each(|of| of.sort_by_key(|n| n.rotate_left({})));\n    found\n}}\n",
            number % 7 + 2,
            number % 60 + 1
        )
    };
    let text = format!("use std::collections::HashMap;\n{}", (1..3000).map(function).collect::<String>());
    let source = file("large.rs", &text)?;
    let script = "while :; do \"$0\" --edition=2021 --crate-type=lib -Copt-level=2 --emit=obj -o \"$2\" \"$1\" || exit 1; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program).arg(source).arg(scratch().join("large.o"));
    Group::start(&mut command, Duration::from_secs(3))
}

const SCRIPT: &str = r#"
class Shape { constructor(n) { this.n = n; } area() { return Math.sqrt(this.n) * this.n; } }
class Round extends Shape { area() { return super.area() * Math.PI; } }
function shapes(n) { return Array.from({ length: n }, (_, i) => (i % 2 ? new Shape(i) : new Round(i))); }
function total(of) { return of.reduce((sum, shape) => sum + shape.area(), 0); }
function text(of) { return JSON.parse(JSON.stringify(of)).map(shape => String(shape.n).replace(/[0-4]/g, "x")); }
function count(words) { const found = new Map(); for (const word of words) found.set(word, (found.get(word) || 0) + 1); return found; }
for (;;) { const of = shapes(3000); total(of); [...count(text(of))].sort((a, b) => b[1] - a[1]); }
"#;

fn node() -> Option<Group> {
    Group::start(Command::new("node").arg(file("busy.js", SCRIPT)?), Duration::from_secs(2))
}

const GO: &str = r#"
package main

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

type item struct {
	Name string
	Size int
}

func items(n int) []item {
	all := make([]item, 0, n)
	for i := 0; i < n; i++ {
		all = append(all, item{fmt.Sprintf("item %d", i*7919%n), i})
	}
	return all
}

func round(n int) int {
	all := items(n)
	sort.Slice(all, func(a, b int) bool { return all[a].Name < all[b].Name })
	text, _ := json.Marshal(all)
	var again []item
	_ = json.Unmarshal(text, &again)
	found := map[string]int{}
	for _, one := range again {
		for _, word := range strings.Fields(one.Name) {
			found[word] += one.Size
		}
	}
	return len(found)
}

func work() {
	for {
		round(2000)
	}
}

func main() {
	go work()
	work()
}
"#;

fn go() -> Option<Group> {
    Command::new("go").arg("version").output().ok()?;
    let program = Program::made("busygo", &("go", GO), |output| {
        let input = output.with_file_name("busygo.go");
        std::fs::write(&input, GO)?;
        assert!(go_build(Command::new("go"), false, output, &input).status()?.success(), "the Go program does not compile");
        Ok(())
    });
    Group::start(&mut Command::new(program.path), Duration::from_secs(1))
}

/// Computes in the innermost of three functions. The argument is the time in milliseconds.
const BRIEF: &str = r#"
#include <stdlib.h>
#include <time.h>
/* Another text in each copy. */
const volatile char mark[32] = "mark of a copy: ................";
static volatile unsigned long counter;
#define NOINLINE __attribute__((noinline, noclone))
static long used(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}
NOINLINE void inner(void)
{
	for (int i = 0; i < 20000; i++)
		counter += i ^ mark[i & 31];
}
NOINLINE void middle(long end)
{
	while (used() < end) {
		inner();
		counter++;
	}
}
NOINLINE void outer(long microseconds)
{
	middle(used() + microseconds);
	counter++;
}
int main(int argc, char **argv)
{
	outer(argc > 1 ? atol(argv[1]) * 1000 : 2000);
	counter++;
	return 0;
}
"#;

/// The original program's build id. Each copy has a different one.
const BUILD_ID: [u8; 20] = *b"\xf1\xa3\xe7\x09f1ametop's id!!!";
const MARK: &[u8] = b"mark of a copy: ................";

/// Makes `count` copies of a program in a directory. No two have the same content or build id.
fn copies(directory: &Path, count: u32) -> Vec<PathBuf> {
    let id: String = BUILD_ID.iter().map(|byte| format!("{byte:02x}")).collect();
    let program = Program::build_text("brief.c", BRIEF, &["-O2", "-fomit-frame-pointer", &format!("-Wl,--build-id=0x{id}")]);
    let mut bytes = std::fs::read(&program.path).expect("just built");
    let place = |of: &[u8]| bytes.windows(of.len()).position(|window| window == of).expect("it is in the program");
    let (id, mark) = (place(&BUILD_ID), place(MARK));
    let mode = std::fs::Permissions::from_mode(0o755);
    let mut copy = |number: u32| {
        let path = directory.join(format!("brief{number}"));
        bytes[id + 8..id + 12].copy_from_slice(&number.to_le_bytes());
        bytes[mark + 16..mark + 32].copy_from_slice(format!("{number:016}").as_bytes());
        std::fs::write(&path, &bytes).expect("room for copies");
        std::fs::set_permissions(&path, mode.clone()).expect("ours");
        path
    };
    (0..count).map(&mut copy).collect()
}

/// Different programs that start after flametop.
fn new_programs(table: &mut Table, (milliseconds, a_second, count): (u32, u32, u32)) {
    let directory = tempfile::tempdir_in(scratch()).expect("a directory for programs");
    let programs = copies(directory.path(), count);
    let seconds = u64::from(count.div_ceil(a_second)) + 2;
    let cache = empty();
    let recording = Recording::start(seconds, HERTZ, &Counted::Named("brief".to_owned()), cache.path());
    let took = run_all(&programs, milliseconds, a_second);
    let counts = recording.counts();
    let sum @ Second { all, .. } = counts.sum();
    table.add(Line {
        what: format!("cold start, then {a_second} different programs a second of {milliseconds} ms"),
        program: "flametop",
        figure: format!(
            "{:.1} % whole of {all} samples of {count} programs in {:.1} s; not whole: {}",
            sum.percent(),
            took.as_secs_f64(),
            counts.main_reasons()
        ),
        target: format!("{NEW:.0} %"),
        held: (all > 0).then(|| sum.percent() >= NEW),
    });
}

/// Runs each program once, `a_second` programs a second. Returns the time that all took.
fn run_all(programs: &[PathBuf], milliseconds: u32, a_second: u32) -> Duration {
    let begin = Instant::now();
    let mut running: Vec<std::process::Child> = Vec::new();
    for (number, path) in (0..).zip(programs) {
        let due = Duration::from_secs(1) * number / a_second;
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        running.push(Command::new(path).arg(milliseconds.to_string()).spawn().expect("a copy runs"));
        running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
    running.iter_mut().for_each(|child| drop(child.wait()));
    begin.elapsed()
}
