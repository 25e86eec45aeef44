//! Waits of threads: their lengths against what the program and the kernel count, and the stacks where threads wait.

// A test panics with a sentence if it cannot run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/mod.rs"]
mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{FLAMETOP, Program, alone};
use flametop::collector::{Batch, Collector, CollectorOptions, EventRequest, EventSpec, Targets};
use flametop::profile::{EventStatus, Names, Tgid, Unit};
use serde_json::Value;

/// A line of `tests/programs/waits.c`.
#[derive(Debug)]
struct Told {
    tid: u32,
    nanoseconds: u64,
    delayed: u64,
    switches: u64,
    name: String,
}

fn told(text: &str) -> Vec<Told> {
    let line = |line: &str| {
        let mut words = line.splitn(5, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (tid, nanoseconds, delayed, switches) = (number()?, number()?, number()?, number()?);
        Some(Told { tid: u32::try_from(tid).ok()?, nanoseconds, delayed, switches, name: words.next()?.to_owned() })
    };
    text.lines().filter(|line| *line != "ready").map(|text| line(text).expect(text)).collect()
}

/// A file that lies on a disk.
fn data() -> Program {
    Program::made("data", &"16 MB", |path| std::fs::write(path, vec![b'x'; 16 << 20]))
}

/// How long the threads run.
const SECONDS: u64 = 10;

/// What a run of `waits.c` told, and what the collector saw.
struct Run {
    status: EventStatus,
    sums: HashMap<u32, u64>,
    told: Vec<Told>,
    /// CPU that neither the program nor this test used.
    cpu_of_others: Duration,
}

impl Run {
    fn new(program: &Path, data: &Path) -> Run {
        let before = (busy(), cpu_with_children());
        // The loop below waits for it.
        #[allow(clippy::zombie_processes)]
        let mut running =
            Command::new(program).arg(SECONDS.to_string()).arg(data).stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut output = BufReader::new(running.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        let event = EventRequest {
            name: "off-cpu".to_owned(),
            spec: EventSpec::parse("off-cpu").unwrap(),
            places: Vec::new(),
            is_agreed: true,
        };
        let targets = Targets::Processes([Tgid(running.id())].into());
        let options = CollectorOptions { events: vec![event], targets, ..Default::default() };
        let mut collector =
            Collector::start(options, Arc::new(Names::default()), Default::default()).expect("this test needs root");
        let (mut batch, mut sums, mut has_ended): (_, HashMap<u32, u64>, _) = (Batch::default(), HashMap::new(), false);
        while !has_ended {
            has_ended = running.try_wait().unwrap().is_some();
            std::thread::sleep(Duration::from_millis(50));
            collector.drain(&mut batch).unwrap();
            for sample in batch.samples.iter().filter(|sample| sample.unit == Unit::Nanoseconds) {
                *sums.entry(sample.thread.tid.0).or_default() += sample.weight;
            }
        }
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        let cpu_of_others = (busy() - before.0).saturating_sub(cpu_with_children() - before.1);
        Run { status: collector.events().remove(0), sums, told: told(&text), cpu_of_others }
    }

    /// What is not as the program told: its threads, and how many waits there were.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for Told { tid, nanoseconds, delayed, switches, name } in self.told.iter().filter(|told| told.tid > 0) {
            let sum = self.sums.get(tid).copied().unwrap_or(0);
            println!("{name}: {sum} ns of waits, {nanoseconds} told, of which {delayed} with a CPU wanted, {switches} switches");
            // One per cent of the time.
            if sum.abs_diff(*nanoseconds) > SECONDS * 10_000_000 {
                faults.push(format!("{name}: {sum} instead of {nanoseconds}"));
            }
        }
        faults
    }
}

/// CPU time of the machine, idle time and time of guests left out, in steps of 10 ms: proc_stat(5).
fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<u64> = stat.lines().next().unwrap().split_whitespace().skip(1).map(|ticks| ticks.parse().unwrap()).collect();
    Duration::from_millis((ticks[..3].iter().sum::<u64>() + ticks[5..7].iter().sum::<u64>()) * 10)
}

/// CPU time of this process and of its children that have ended.
fn cpu_with_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    Duration::from_millis(fields[11..15].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>() * 10)
}

/// All waits of a thread together last as long as it did not run.
///
/// The kernel's count of CPU, from which the program tells its waits, is right only while nobody else works: where a thread is woken and the
/// kernel does not let go of the CPU at once, the thread's CPU is counted from the wakeup on. Beside a program that writes to the disk all
/// the time, 0.4 of 10 s were counted so for the thread that changes CPUs.
#[test]
fn waits_last_as_long_as_threads_do_not_run() {
    let _alone = alone();
    let (program, data) = (Program::build("waits.c"), data());
    let mut runs = 0;
    let run = loop {
        let run = Run::new(&program.path, &data.path);
        runs += 1;
        let (others, faults) = (run.cpu_of_others, run.faults());
        println!("{:?}\nothers used {others:?} of CPU, {faults:?}", run.status);
        if faults.is_empty() {
            break run;
        }
        let is_quiet = others < Duration::from_millis(SECONDS * 20);
        assert!(!is_quiet && runs < 10, "{faults:?} in run {runs}; others used {others:?} of CPU");
    };
    let switches: u64 = run.told.iter().map(|told| told.switches).sum();
    println!("{} waits, {switches} switches", run.status.events);
    // The first thread waits some twenty times; the last switch of a thread is the end of no wait.
    assert!(run.status.events.abs_diff(switches) <= 100, "{} instead of {switches}", run.status.events);
    assert_eq!((run.status.unknown, run.status.missed), (0, 0));
    let (all, waited) = (run.sums.values().sum::<u64>(), run.status.waited.unwrap());
    assert!(all.abs_diff(waited) < waited / 100, "{all} ns in samples of {waited}");
}

/// Stacks with their weights, and what a program told in which they are.
struct Recorded {
    stacks: Vec<(String, u64)>,
    told: Vec<Told>,
}

impl Recorded {
    /// Records a run of the program of this source.
    fn of(source: &str, arguments: &[&str]) -> Recorded {
        let program = Program::build(source);
        Recorded::of_command(&[&[program.path.to_str().unwrap()], arguments].concat())
    }

    /// Records a run of a command.
    fn of_command(to_run: &[&str]) -> Recorded {
        Recorded::of_options(&[&["--"], to_run].concat())
    }

    /// Records with these arguments behind the others.
    fn of_options(more: &[&str]) -> Recorded {
        let place = tempfile::tempdir().unwrap();
        let folded = place.path().join("waits.folded");
        let mut command = Command::new(FLAMETOP);
        command.args(["record", "--off-cpu", "-o"]).arg(&folded).args(more);
        let recorded = command.output().unwrap();
        let said = String::from_utf8_lossy(&recorded.stderr);
        println!("{said}");
        assert!(recorded.status.success(), "{said}");
        let text = std::fs::read_to_string(folded).unwrap();
        let row = |line: &str| line.rsplit_once(' ').map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap()));
        Recorded { stacks: text.lines().filter_map(row).collect(), told: told(&String::from_utf8(recorded.stdout).unwrap()) }
    }

    /// Returns the weight of stacks that have these frames in this order. `a|b` is either.
    fn sum(&self, frames: &[&str]) -> u64 {
        let is_it = |stack: &str| {
            let mut all = stack.split(';');
            frames.iter().all(|frame| all.any(|other| frame.split('|').any(|name| name == other)))
        };
        self.stacks.iter().filter(|(stack, _)| is_it(stack)).map(|(_, weight)| weight).sum()
    }
}

/// Each wait has the stack from the thread's begin down to the function in the kernel that waits, whose name depends on the kernel, and then
/// the reason.
#[test]
fn stacks_of_waits_are_where_threads_wait() {
    let _alone = alone();
    let data = data();
    let recorded = Recorded::of("waits.c", &["6", data.path.to_str().unwrap()]);
    for (name, frames) in [
        ("short", &["run", "run_short", "nap_short", "hrtimer_nanosleep_[k]", "[sleep]"][..]),
        ("long", &["run", "run_long", "nap_long", "hrtimer_nanosleep_[k]", "[sleep]"]),
        ("pipe a", &["run", "run_pipe_a", "take_byte", "pipe_read_[k]|anon_pipe_read_[k]", "[pipe or terminal]"]),
        ("pipe b", &["run", "run_pipe_b", "take_byte", "pipe_read_[k]|anon_pipe_read_[k]", "[pipe or terminal]"]),
        ("cond a", &["run", "run_cond_a", "take_turn", "futex_wait_[k]", "[lock]"]),
        ("cond b", &["run", "run_cond_b", "take_turn", "futex_wait_[k]", "[lock]"]),
        ("spin a", &["run", "run_spin", "burn", "[CPU taken]"]),
        ("mover", &["run", "run_mover", "nap_short", "hrtimer_nanosleep_[k]", "[sleep]"]),
        ("reader", &["run", "run_reader", "read_block", "vfs_read_[k]", "[disk]"]),
    ] {
        let (sum, told) = (recorded.sum(frames), recorded.told.iter().find(|told| told.name == name).unwrap());
        println!("{name}: {sum} of {}", told.nanoseconds);
        assert!(sum > 0, "{name} has no stack {frames:?}: {:#?}", recorded.stacks);
    }
    // The time in which threads wanted a CPU is what the kernel counts. Only some of the short waits have a stack.
    for (function, names, allowed) in [("run_spin", &["spin a", "spin b"][..], 0.03), ("run_pipe_a", &["pipe a"], 0.25)] {
        let sum = recorded.sum(&[function, "[CPU taken]"]) as f64;
        let told = recorded.told.iter().filter(|told| names.contains(&&*told.name)).map(|told| told.delayed).sum::<u64>() as f64;
        println!("{function}: {sum} ns with a CPU wanted, {told} told");
        assert!((sum / told - 1.0).abs() < allowed, "{function}: {sum} instead of {told}");
    }
    // From the first instruction of the program on: what comes before is a stop of flametop's own. Pages of the program that are read from
    // the disk while the kernel begins it are waits without a stack of the program.
    let before = recorded.sum(&["waits", "bprm_execve_[k]"]);
    let (all, whole) = (recorded.sum(&["waits"]) - before, recorded.sum(&["waits", "_start|clone3|clone"]));
    println!("{whole} of {all} ns of waits have a whole stack");
    assert!(whole as f64 >= 0.999 * all as f64, "{:#?}", recorded.stacks);
}

/// Waits of known lengths have their shares of the weight, though only some of them have a stack.
#[test]
fn waits_have_shares_as_their_lengths() {
    let _alone = alone();
    let recorded = Recorded::of("waits.c", &["6"]);
    let lengths: Vec<&Told> = recorded.told.iter().filter(|told| told.tid == 0).collect();
    let sums: Vec<u64> = lengths.iter().map(|told| recorded.sum(&["run_lengths", &told.name])).collect();
    let (all, told) = (sums.iter().sum::<u64>(), lengths.iter().map(|told| told.nanoseconds).sum::<u64>());
    for (sum, wait) in sums.iter().zip(&lengths) {
        let (share, right) = (*sum as f64 / all as f64, wait.nanoseconds as f64 / told as f64);
        println!("{}: {share:.4} of the weight, {right:.4} of the time", wait.name);
        // The budget is 1,000 stacks a second on each CPU, of which half are taken at least.
        let deviation = (right * (1.0 - right) / 6_000.0).sqrt();
        assert!((share - right).abs() < 5.0 * deviation, "{}: {share} instead of {right}", wait.name);
    }
}

/// Each function of the program waits for one reason.
#[test]
fn each_wait_has_its_reason() {
    let _alone = alone();
    let data = data();
    let recorded = Recorded::of("reasons.c", &["4", data.path.to_str().unwrap()]);
    let mut wrong = Vec::new();
    for (function, reason) in [
        ("sleeps", "[sleep]"),
        ("waits_for_lock", "[lock]"),
        ("waits_for_semaphore", "[lock]"),
        ("waits_for_flock", "[lock]"),
        ("polls", "[poll]"),
        ("polls_many", "[poll]"),
        ("selects", "[poll]"),
        ("waits_for_signal", "[poll]"),
        ("waits_for_socket", "[network]"),
        ("waits_for_peer", "[network]"),
        ("waits_for_pipe", "[pipe or terminal]"),
        ("waits_for_number", "[pipe or terminal]"),
        ("waits_for_child", "[child]"),
        ("stops", "[stopped]"),
        ("waits_for_disk", "[disk]"),
        ("waits_for_page", "[page fault]"),
        ("waits_for_writer", "[kernel lock]"),
    ] {
        let (all, for_cpu, right) =
            (recorded.sum(&[function]), recorded.sum(&[function, "[CPU taken]"]), recorded.sum(&[function, reason]));
        println!("{function}: {right} ns {reason}, {for_cpu} with a CPU wanted, of {all}");
        if right == 0 || (right as f64) < 0.95 * (all - for_cpu) as f64 {
            wrong.push(function);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}: {:#?}", recorded.stacks);
}

/// A cgroup whose processes may have a fifth of a CPU.
struct Quota(PathBuf);

impl Quota {
    fn made() -> Quota {
        let name = format!("flametop-quota-{}", std::process::id());
        let (v1, v2) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let quota = Quota(if v1.exists() { v1.join(name) } else { v2.join(name) });
        std::fs::create_dir(&quota.0).expect("this test makes a cgroup");
        let written = if v1.exists() {
            std::fs::write(quota.0.join("cpu.cfs_quota_us"), "20000")
        } else {
            std::fs::write(v2.join("cgroup.subtree_control"), "+cpu").unwrap();
            std::fs::write(quota.0.join("cpu.max"), "20000 100000")
        };
        written.expect("this test needs the kernel's CPU quotas");
        quota
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A process whose cgroup may have a fifth of a CPU waits for its quota the rest of the time.
#[test]
fn a_quota_of_cpu_time_is_a_reason() {
    let _alone = alone();
    let (quota, program) = (Quota::made(), Program::build("reasons.c"));
    let script = format!("echo $$ > {}/cgroup.procs; exec {} 4", quota.0.display(), program.path.display());
    let recorded = Recorded::of_command(&["sh", "-c", &script]);
    let (all, right) = (recorded.sum(&["burn"]), recorded.sum(&["burn", "[CPU quota]"]));
    println!("{right} ns [CPU quota] of {all}");
    assert!(right as f64 > 0.9 * all as f64 && (2_800_000_000..3_600_000_000).contains(&right), "{:#?}", recorded.stacks);
}

/// Starts a program, and returns once it has said something.
fn begin(command: &mut Command) -> Child {
    let mut running = command.stdout(Stdio::piped()).spawn().expect("it runs");
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    running
}

fn end(running: &mut Child) {
    running.kill().unwrap();
    running.wait().unwrap();
}

/// Threads that sleep before the begin and beyond the end are seen, for as long as flametop looks, with whole stacks.
#[test]
fn threads_that_sleep_all_the_time_are_seen() {
    const SECONDS: f64 = 5.0;
    let _alone = alone();
    let program = Program::build("asleep.c");
    let script = "import time\ndef inner(): time.sleep(1000)\ndef outer(): inner()\nprint('ready', flush=True)\nouter()";
    let mut sleepers = [begin(&mut Command::new(program.path)), begin(Command::new("python3").args(["-c", script]))];
    std::thread::sleep(Duration::from_millis(200));
    let recorded = Recorded::of_options(&[
        "-d",
        &SECONDS.to_string(),
        "-p",
        &sleepers[0].id().to_string(),
        "-p",
        &sleepers[1].id().to_string(),
    ]);
    sleepers.iter_mut().for_each(end);
    for frames in [
        &["main", "waits_in_pause", "[poll]"][..],
        &["clone3", "run_lock", "waits_in_lock", "futex_wait_[k]", "[lock]"],
        &["clone3", "run_read", "waits_in_read", "pipe_read_[k]|anon_pipe_read_[k]", "[pipe or terminal]"],
        &["_start", "outer_[p]", "inner_[p]", "hrtimer_nanosleep_[k]", "[sleep]"],
    ] {
        let seconds = recorded.sum(frames) as f64 / 1e9;
        println!("{frames:?}: {seconds} s");
        // The first stack has the time from the begin on. The end comes somewhat after the time of `-d`.
        assert!((SECONDS - 0.2..SECONDS + 0.5).contains(&seconds), "{frames:?} {seconds} s: {:#?}", recorded.stacks);
    }
}

/// A thread whose stack nobody can read is seen without that stack, and delays no other thread.
#[test]
fn a_stack_that_cannot_be_read_delays_nobody() {
    const SECONDS: f64 = 4.0;
    let _alone = alone();
    let programs = [Program::build("held_stack.c"), Program::build("asleep.c")];
    let mut running = programs.map(|program| begin(&mut Command::new(program.path)));
    let [held, asleep] = &running;
    let recorded =
        Recorded::of_options(&["-d", &SECONDS.to_string(), "-p", &held.id().to_string(), "-p", &asleep.id().to_string()]);
    running.iter_mut().for_each(end);
    for frames in [&["main", "waits_in_pause", "[poll]"][..], &["held_stack", "[poll]"], &["held_stack", "main", "[sleep]"]] {
        let seconds = recorded.sum(frames) as f64 / 1e9;
        println!("{frames:?}: {seconds} s");
        assert!((SECONDS - 0.2..SECONDS + 0.5).contains(&seconds), "{frames:?} {seconds} s: {:#?}", recorded.stacks);
    }
    assert_eq!(recorded.sum(&["wait_for_ever"]), 0);
}

/// `dump` prints the stacks of threads that wait and of one that runs, with what they wait for.
#[test]
fn a_dump_has_all_threads_of_a_process() {
    let _alone = alone();
    let programs = [Program::build("asleep.c"), Program::build("reasons.c")];
    let mut asleep = begin(&mut Command::new(&programs[0].path));
    let mut busy = Command::new(&programs[1].path).arg("60").spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let dump = |more: &[&str]| {
        let pids = format!("{},{}", asleep.id(), busy.id());
        let output = Command::new(FLAMETOP).args(["dump", "-p", &pids]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (text, json) = (dump(&[]), dump(&["--json"]));
    [&mut asleep, &mut busy].into_iter().for_each(end);
    println!("{text}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let threads = json["processes"].as_array().unwrap().iter().flat_map(|process| process["threads"].as_array().unwrap());
    let threads: Vec<&Value> = threads.collect();
    assert_eq!(threads.len(), 4, "{json}");
    for (function, reason, on) in
        [("waits_in_pause", "poll", ""), ("waits_in_lock", "lock", "0x"), ("waits_in_read", "pipe or terminal", "pipe:[")]
    {
        let has = |thread: &&&Value| thread["stack"].as_array().unwrap().iter().any(|of| of["name"] == function);
        let thread = threads.iter().find(has).unwrap_or_else(|| panic!("{function}: {json}"));
        assert_eq!((&thread["state"], &thread["reason"]), (&"waits".into(), &reason.into()), "{thread}");
        assert!(thread["on"].as_str().unwrap_or_default().starts_with(on), "{thread}");
        // It waits since the program's first second at the latest.
        let seconds = thread["seconds"].as_f64().unwrap();
        assert!((0.9..30.0).contains(&seconds), "{thread}");
        assert_eq!(thread["incomplete"], Value::Null, "{thread}");
        assert!(text.contains(function), "{text}");
    }
    let runs = threads.iter().find(|thread| thread["state"] == "runs").unwrap_or_else(|| panic!("{json}"));
    assert_eq!(runs["stack"][0]["name"], "burn", "{runs}");
    assert!(text.contains(": runs\n    burn  reasons\n"), "{text}");
}
