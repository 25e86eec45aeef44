//! Runs the tests' programs on other kernels and on arm64: each guest is a real Debian kernel in an emulated machine.
//!
//! ```text
//! make test-vm                 builds for both architectures, boots all guests, prints one table
//! VM="arm64 6.12" make test-vm          only guests whose line has that in it
//! ASK="doctor record" make test-vm      only these questions
//! ```
//!
//! `tests/vm/build` has put flametop, the test `truth` and its programs into `target/vm`; `tests/vm/vm` boots a kernel with them.
//! Each guest is asked [`QUESTIONS`]. A question has a shell line that runs there, and a function that turns its output into
//! cells of the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod runtimes;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A machine: architecture, a prefix of its kernel's version, its processor.
#[derive(Clone, Copy)]
struct Guest {
    arch: &'static str,
    kernel: &'static str,
    cpu: &'static str,
}

/// All Debian kernels of the versions that flametop supports, up to the newest (`sid`). Processor `max` has all features of the
/// emulator, on arm64 with signed return addresses; a Cortex-A72 has none.
fn guests() -> Vec<Guest> {
    let mut guests = Vec::new();
    for kernel in ["6.1", "6.12", "6.18", "sid"] {
        for (arch, cpu) in [("x86_64", "max"), ("arm64", "max"), ("arm64", "cortex-a72")] {
            guests.push(Guest { arch, kernel, cpu });
        }
    }
    guests
}

/// A question to each guest.
struct Question {
    /// Its name in `ASK`.
    name: &'static str,
    /// A line for the guest's shell. Its output ends by its status.
    command: &'static str,
    /// The titles of the columns that the answer fills.
    columns: &'static [&'static str],
    /// Makes the cells; a cell that fails begins with [`NO`].
    answer: fn(&str) -> Vec<String>,
}

/// Questions that are asked: always the kernel's version; then all others, or only those in `ASK`.
fn questions() -> impl Iterator<Item = &'static Question> {
    let wanted = std::env::var("ASK").unwrap_or_default();
    let is_wanted =
        move |name: &str| wanted.is_empty() || name == "kernel" || wanted.split_whitespace().any(|wanted| wanted == name);
    QUESTIONS.iter().filter(move |question| is_wanted(question.name))
}

/// Begin of a cell that fails the test.
const NO: &str = "NO";
/// The line between two answers.
const BETWEEN: &str = "=====";

/// Means of taking stacks at functions.
const FUNCTIONS: [&str; 6] = ["fentry", "fexit", "kprobe", "kretprobe", "kprobe.multi", "kretprobe.multi"];
/// Kinds of events whose cost is measured.
const COSTS: [&str; 11] = [
    "fentry",
    "fexit",
    "kprobe",
    "kprobe.multi",
    "kretprobe",
    "kretprobe.multi",
    "uprobe",
    "uretprobe",
    "tracepoint",
    "page-faults",
    "cycles",
];

const QUESTIONS: &[Question] = &[
    Question { name: "kernel", command: "uname -r", columns: &["kernel"], answer: |said| vec![first_line(said).to_owned()] },
    Question { name: "doctor", command: "flametop doctor", columns: &["doctor"], answer: doctor },
    Question {
        name: "record",
        command: "echo -n g | flametop record -F 97 -d 6 --no-annotations -o - -- programs/plain-static sort; s=$?; \
                  killall plain-static; exit $s",
        columns: &["record"],
        answer: recorded,
    },
    Question {
        name: "stacks",
        command: "TRUTH_PROGRAMS=/payload/programs truth --exact programs_know_their_own_stack --nocapture 2>&1",
        columns: &["stacks whole", "wrong"],
        answer: truth,
    },
    Question {
        name: "moved",
        command: "flametop record -F 97 -d 6 --no-annotations -o - -- programs/moved; s=$?; killall moved; exit $s",
        columns: &["moved code"],
        answer: moved,
    },
    Question { name: "python", command: "/payload/python-functions", columns: &["Python functions right"], answer: pythons },
    Question {
        name: "node",
        command: "/payload/node-functions",
        columns: &["JavaScript functions right"],
        answer: runtimes::nodes,
    },
    Question { name: "java", command: "/payload/java-functions", columns: &["methods of Java right"], answer: runtimes::javas },
    Question {
        name: "waits",
        command: "flametop record -e off-cpu --no-annotations -o - -- programs/waits 5",
        columns: &["waits"],
        answer: waits,
    },
    Question {
        name: "asleep",
        command: "programs/asleep & sleep 2; flametop record -e off-cpu --no-annotations -d 5 -p $! -o - 2>&1; s=$?; uname -r; kill $!; \
                  exit $s",
        columns: &["threads asleep"],
        answer: asleep,
    },
    Question {
        name: "registers",
        command: "REGISTERS_PROGRAM=/payload/programs/registers registers --nocapture 2>&1",
        columns: &["registers"],
        answer: |said| vec![if succeeded(said) { "ok".to_owned() } else { format!("{NO}: {said}") }],
    },
    Question { name: "tailcalls", command: "tailcalls --nocapture 2>&1", columns: &["tail calls"], answer: tail_calls },
    Question { name: "code", command: "kernel_code --nocapture 2>&1", columns: &["code of functions"], answer: code },
    Question { name: "functions", command: "/payload/events", columns: &FUNCTIONS, answer: functions },
    Question {
        name: "returns",
        command: "flametop record -F 97 -e cpu -e uretprobe:/payload/programs/events:deeper --no-annotations -o - -- \
                  programs/events deep 300000000",
        columns: &["watched returns"],
        answer: returns,
    },
    Question { name: "costs", command: "/payload/costs", columns: &COSTS, answer: costs },
];

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Whether the status at the end of the output is success.
fn succeeded(said: &str) -> bool {
    said.trim_end().ends_with("status 0")
}

/// `ok`, and what is limited. On x86_64 all kernels but 6.1 allow reading stacks in place.
fn doctor(said: &str) -> Vec<String> {
    let limited: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("limited")?.split("  ").map(str::trim).find(|word| !word.is_empty()))
        .collect();
    let is_old = said.lines().any(|line| line.starts_with("ok") && line.contains(" kernel ") && line.contains(" 6.1."));
    let copies = limited.contains(&"reading user stacks") && !is_old;
    vec![if succeeded(said) && !copies { format!("ok, but for {}", limited.join(", ")) } else { format!("{NO}: {said}") }]
}

/// How many functions were compared, or that there are no programs that could make tail calls there.
fn tail_calls(said: &str) -> Vec<String> {
    let compared = said.lines().find_map(|line| line.strip_suffix(" functions compared"));
    vec![match compared {
        Some(number) if succeeded(said) => format!("ok, {number} functions"),
        None if succeeded(said) && said.contains("NOT TESTED: this kernel offers no fentry") => "not offered".to_owned(),
        _ => format!("{NO}: {said}"),
    }]
}

/// How many functions of the kernel and of its modules were compared: not all guests need modules to start.
fn code(said: &str) -> Vec<String> {
    let line = said.lines().find(|line| line.ends_with(" of modules") && line.contains(" functions compared, "));
    let compared = line.map(|line| line.rsplit(" ... ").next().unwrap_or(line)).filter(|_| succeeded(said));
    vec![compared.map_or_else(|| format!("{NO}: {said}"), |compared| format!("ok, {compared}"))]
}

/// Checks the file of `flametop record` for a program with known functions: `name;…;_start;…;main;sort_mode;… count`. The program
/// has just started: until its table is made, its stacks have only their innermost frame.
fn recorded(said: &str) -> Vec<String> {
    let (mut all, mut whole, mut alone) = (0, 0, 0);
    for line in said.lines().filter(|line| line.contains(";compare_work ")) {
        let Some((stack, count)) = line.rsplit_once(' ') else { continue };
        let count: usize = count.parse().unwrap_or(0);
        let frames: Vec<&str> = stack.split(';').collect();
        let at = |name: &str| frames.iter().position(|frame| *frame == name);
        let in_order = [at("_start"), at("main"), at("sort_mode"), at("compare")];
        all += count;
        whole += if in_order.iter().all(Option::is_some) && in_order.is_sorted() { count } else { 0 };
        alone += if frames.len() == 2 { count } else { 0 };
    }
    let share = format!("{whole} of {all}, {alone} before there was a table");
    let holds = succeeded(said) && whole >= 20 && whole * 10 >= all * 9 && whole + alone == all;
    vec![if holds { share } else { format!("{NO}: {share}: {said}") }]
}

/// Counts whole stacks of a program that has copied its code to anonymous memory: `name;_start;…;main;outer;inner count`.
fn moved(said: &str) -> Vec<String> {
    let (mut all, mut whole) = (0, 0);
    for (stack, count) in said.lines().filter(|line| line.starts_with("moved;")).filter_map(|line| line.rsplit_once(' ')) {
        let count: usize = count.parse().unwrap_or(0);
        all += count;
        whole += if stack.contains(";_start;") && stack.contains(";main;outer;inner") { count } else { 0 };
    }
    let share = format!("{whole} of {all} whole");
    vec![if succeeded(said) && all >= 100 && whole * 10 >= all * 9 { share } else { format!("{NO}: {share}: {said}") }]
}

/// Compares waits with what the program tells: `TID NANOSECONDS … lengths` for each thread, `0 NANOSECONDS … wait_N` for each length. A stack
/// is `waits;…;run_lengths;wait_N;…;hrtimer_nanosleep;… nanoseconds`.
fn waits(said: &str) -> Vec<String> {
    let told = |begin: &str, end: &str| -> f64 {
        let rows = said.lines().filter(|line| line.ends_with(end) && line.starts_with(begin) && !line.contains(';'));
        rows.filter_map(|line| line.split(' ').nth(1)?.parse::<f64>().ok()).sum()
    };
    let seen = |frames: &[&str]| -> f64 {
        let is_it = |stack: &str| {
            let mut all = stack.split(';');
            all.next() == Some("waits") && frames.iter().all(|frame| all.any(|other| other == *frame))
        };
        said.lines()
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(stack, _)| is_it(stack))
            .filter_map(|(_, ns)| ns.parse::<f64>().ok())
            .sum()
    };
    let (all, sleeping) = (told("", " lengths"), seen(&["run_lengths", "hrtimer_nanosleep"]));
    let asleep = seen(&["run_lengths", "hrtimer_nanosleep", "[sleep]"]) / sleeping;
    let shares = ["wait_1", "wait_2", "wait_4", "wait_8"].map(|name| {
        let share = seen(&["run", "run_lengths", name, "hrtimer_nanosleep"]) / sleeping;
        (share, told("0 ", &format!(" {name}")) / told("0 ", ""))
    });
    let text = format!("{:.1} % of {:.0} s, {:.1} % asleep", 100.0 * sleeping / all, all / 1e9, 100.0 * asleep);
    // With 500 stacks a second, an eighth is known to a hundredth.
    let holds = succeeded(said) && (sleeping / all - 1.0).abs() < 0.05
        // An emulated processor is busy with the switches.
        && (0.5..1.0).contains(&asleep) && shares.iter().all(|(seen, told)| (seen - told).abs() < 0.05);
    vec![if holds { text } else { format!("{NO}: {text}, shares {shares:.3?}: {said}") }]
}

/// Threads that wait all the time: seconds that the three of `asleep.c` are seen, of 15. Kernels before 6.2 show them at the end only.
fn asleep(said: &str) -> Vec<String> {
    let seen = |name: &str| -> f64 {
        let stacks = said.lines().filter(|line| line.starts_with("asleep;") && line.contains(&format!(";{name};")));
        stacks.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() / 1e9
    };
    let seconds = ["waits_in_pause", "waits_in_lock", "waits_in_read"].map(seen);
    let release = said.lines().rev().find(|line| line.starts_with(|c: char| c.is_ascii_digit())).unwrap_or_default();
    let mut version = release.split('.').map_while(|part| part.parse::<u32>().ok());
    let shows = (version.next(), version.next()) >= (Some(6), Some(2));
    let text = format!("{:.1} s of 15 s", seconds.iter().sum::<f64>());
    match (shows, said.contains("waits show when they end")) {
        (true, false) if succeeded(said) && seconds.iter().all(|seconds| (4.0..6.5).contains(seconds)) => vec![text],
        (false, true) => vec!["at their end".to_owned()],
        _ => vec![format!("{NO}: {text}: {said}")],
    }
}

/// The last line of the table that the test prints.
fn truth(said: &str) -> Vec<String> {
    let sums = || -> Option<[usize; 3]> {
        let line = said.lines().find_map(|line| line.strip_prefix("all cases:"))?;
        let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
        Some([numbers.next()?, numbers.next()?, numbers.next()?])
    };
    let Some([all, whole, wrong]) = sums() else {
        return vec![format!("{NO}: {said}"), String::new()];
    };
    let share = format!("{whole} of {all}, {:.2} %", whole as f64 * 100.0 / all.max(1) as f64);
    let whole = if all >= 1000 && whole * 1000 >= all * 999 { share } else { format!("{NO}: {share}") };
    let wrong = if wrong == 0 { "0".to_owned() } else { format!("{NO}: {wrong}") };
    vec![whole, wrong]
}

/// The line of a script's output about one kind of event: it begins with the event's name.
fn line_of(event: &str, said: &str) -> String {
    let line = said.lines().find_map(|line| line.strip_prefix(event)?.strip_prefix(' '));
    line.map_or_else(|| format!("{NO}: {event}: {said}"), str::to_owned)
}

/// Counts samples in `busy` that have the functions that the program has told, for each interpreter. `said` has for each a line
/// `python VERSION`, lines `frame FILE:LINE:NAME` from the innermost one on, and folded stacks.
fn pythons(said: &str) -> Vec<String> {
    let (mut cells, mut holds) = (Vec::new(), succeeded(said));
    for of_version in format!("\n{said}").split("\npython ").skip(1) {
        let mut told: Vec<String> = of_version
            .lines()
            .filter_map(|line| Some(format!("{}_[p]", line.strip_prefix("frame ")?.splitn(3, ':').nth(2)?)))
            .collect();
        told.reverse();
        told.push("busy_[p]".to_owned());
        let (mut all, mut right) = (0, 0);
        for (stack, count) in of_version.lines().filter_map(|line| line.rsplit_once(' ')) {
            let functions: Vec<&str> = stack.split(';').filter(|frame| frame.ends_with("_[p]")).collect();
            if functions.contains(&"busy_[p]") {
                let count: usize = count.parse().unwrap_or(0);
                all += count;
                right += if functions == told { count } else { 0 };
            }
        }
        cells.push(format!("{} {right} of {all}", first_line(of_version)));
        holds &= all >= 100 && right * 100 >= all * 99;
    }
    let cells = cells.join(", ");
    vec![if holds && !cells.is_empty() { cells } else { format!("{NO}: {cells}: {said}") }]
}

/// A line for each means of taking stacks at functions, as `tests/vm/events` prints it.
fn functions(said: &str) -> Vec<String> {
    FUNCTIONS.iter().map(|means| line_of(means, said)).collect()
}

/// Number of whole stacks among those below 60 calls whose returns are watched. (Before and after, there are fewer calls.) All others are
/// from before the program's table was ready: user space cannot continue a copied stack whose return addresses uprobes have exchanged.
fn returns(said: &str) -> Vec<String> {
    let whole = format!(";main{};often", ";deeper".repeat(60));
    let weight = |part: &str| -> usize {
        let lines = said.lines().filter(|line| line.contains(part));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
    };
    let (all, whole) = (weight(";deeper;often"), weight(&whole));
    let reason = "the unwind table of its object was still being made";
    let made = said.lines().filter(|line| line.ends_with(reason));
    let made: usize = made.filter_map(|line| line.strip_prefix("incomplete: ")?.split(' ').next()?.parse::<usize>().ok()).sum();
    // The innermost two frames: the second one is guessed.
    let early = weight("events;deeper;often");
    let share = format!("{whole} of {all}, {early} before there was a table");
    let holds = succeeded(said) && all >= 50 && whole + early == all && early <= made && early * 20 <= all;
    vec![if holds { share } else { format!("{NO}: {share}: {said}") }]
}

/// A line for each kind of event, as `tests/vm/costs` prints it.
fn costs(said: &str) -> Vec<String> {
    COSTS.iter().map(|source| line_of(source, said)).collect()
}

/// Boots one guest and asks it everything.
fn ask(guest: Guest, place: &Path) -> Vec<String> {
    // Each question runs in a separate shell; a unique line ends its output.
    let lines = questions().map(|question| format!("( {} ) 2>&1; echo \"status $?\"; echo {BETWEEN}", question.command));
    let script = lines.collect::<Vec<_>>().join("\n");
    let vm = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm/vm");
    let payload = place.join(guest.arch).join("payload");
    assert!(payload.join("truth").exists(), "nothing was built for {}: make test-vm does, by tests/vm/build", guest.arch);
    let mut command = Command::new(vm);
    // On x86_64 the emulator fails if one processor changes code while another runs it, as every probe and every tracepoint does.
    // Now and then the temporary breakpoint there ends the guest ("Oops: int3").
    command.args(["--smp", if guest.arch == "x86_64" { "1" } else { "2" }]);
    command.args([
        "--arch",
        guest.arch,
        "--kernel",
        guest.kernel,
        "--cpu",
        guest.cpu,
        "--timeout",
        "1500",
        "--time",
        "--payload",
    ]);
    command.arg(payload).arg("--overlay").arg(place.join(guest.arch).join("root")).arg("--").arg(script);
    let begun = Instant::now();
    let mut vm = command.stdout(Stdio::piped()).spawn().expect("tests/vm/vm can be run");
    // Output is shown as it comes, to see where a guest hangs.
    let mut said = String::new();
    let mut asked = questions();
    for line in BufReader::new(vm.stdout.take().expect("it is a pipe")).split(b'\n') {
        let line = String::from_utf8_lossy(&line.expect("a pipe can be read")).into_owned();
        match (line == BETWEEN).then(|| asked.next()).flatten() {
            Some(question) => println!("-- {}: {:.0?}", question.name, begun.elapsed()),
            None => println!("{line}"),
        }
        said.extend([line.as_str(), "\n"]);
    }
    let status = vm.wait().expect("it is a child");
    assert!(status.success(), "{} {} {}: {status}, said above", guest.arch, guest.kernel, guest.cpu);
    let between = format!("{BETWEEN}\n");
    let mut answers = said.split(&between);
    questions().flat_map(|question| (question.answer)(answers.next().unwrap_or_default())).collect()
}

#[test]
#[ignore = "an hour and a half, and what make test-vm builds and fetches"]
fn kernels_of_both_architectures() {
    let wanted = std::env::var("VM").unwrap_or_default();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().map_or_else(PathBuf::new, |target| target.join("vm"));
    let name = |guest: Guest| format!("{} {} {}", guest.arch, guest.kernel, guest.cpu);
    let mut table = vec![["machine"].into_iter().chain(questions().flat_map(|question| question.columns.iter().copied()))]
        .into_iter()
        .map(|titles| titles.map(str::to_owned).collect::<Vec<_>>())
        .collect::<Vec<_>>();
    let mut failed = Vec::new();
    for guest in guests().into_iter().filter(|guest| name(*guest).contains(&wanted)) {
        let begun = Instant::now();
        let cells = ask(guest, &place);
        println!("== {}: {:.0?}\n", name(guest), begun.elapsed());
        failed.extend(
            cells.iter().filter(|cell| cell.starts_with(NO)).map(|cell| format!("{}: {}", name(guest), first_line(cell))),
        );
        let row =
            [format!("{}, {}", guest.arch, guest.cpu)].into_iter().chain(cells.iter().map(|cell| first_line(cell).to_owned()));
        table.push(row.collect());
    }
    assert!(table.len() > 1, "no guest has {wanted:?} in its line");
    table.insert(1, table[0].iter().map(|_| "-".to_owned()).collect());
    for row in &table {
        println!("| {} |", row.join(" | "));
    }
    assert!(failed.is_empty(), "does not hold:\n  {}", failed.join("\n  "));
}

#[test]
fn answers_of_guests_are_read() {
    let said = "Linux;x;_start;main;sort_mode;compare;compare_work 30\nstatus 0\n";
    assert_eq!(recorded(said), ["30 of 30, 0 before there was a table"]);
    assert!(recorded(&said.replace("main;", ""))[0].starts_with(NO));
    assert!(recorded(&said.replace("status 0", "status 1"))[0].starts_with(NO));
    let said = "\npython 3.13\nframe x.py:3:main\nframe x.py:9:<module>\nend\nx;<module>_[p];main_[p];x;busy_[p] 200\nstatus 0\n";
    assert_eq!(pythons(said), ["3.13 200 of 200"]);
    assert!(pythons(&said.replace("main_[p];", ""))[0].starts_with(NO));
    assert!(pythons("status 0\n")[0].starts_with(NO));
    let said = "all cases: 2000 samples, 1999 whole, 0 wrong\nstatus 0\n";
    assert_eq!(truth(said), ["1999 of 2000, 99.95 %", "0"]);
    assert!(truth("status 1")[0].starts_with(NO));
    assert!(truth(&said.replace("1999 whole", "1990 whole"))[0].starts_with(NO));
    let said = "test code ... 900 functions compared, 70 of modules\nok\nstatus 0";
    assert_eq!(code(said)[0], "ok, 900 functions compared, 70 of modules");
    assert!(code(&said.replace("status 0", "status 1"))[0].starts_with(NO));
    assert!(code("NOT TESTED: this kernel offers no /proc/kcore\nstatus 0")[0].starts_with(NO));
    let said = "fentry ok, 8 functions\nfexit not offered\nkprobe NO vfs_read: it failed;\n";
    let cells = functions(said);
    assert_eq!(cells[..2], ["ok, 8 functions", "not offered"]);
    assert!(cells[2..].iter().all(|cell| cell.starts_with(NO)), "{cells:?}");
    let said = format!("events;_start;main{};often;counted 70\nstatus 0\n", ";deeper".repeat(60));
    assert_eq!(returns(&said), ["70 of 70, 0 before there was a table"]);
    let cut = said.replacen(";deeper", "", 1);
    assert!(returns(&cut)[0].starts_with(NO));
    let early = "incomplete: 2 (2.8 %), the unwind table of its object was still being made\nstatus 0\n";
    let two_cut = |end: &str| format!("events;deeper;often 2\n{}", said.replace("status 0\n", end));
    assert_eq!(returns(&two_cut(early)), ["70 of 72, 2 before there was a table"]);
    assert!(
        returns(&two_cut(&early.replace("the unwind table of its object was still being made", "walking took too long")))[0]
            .starts_with(NO)
    );
    let said = "fentry ok, 120 ns of BPF, 300 ns more in all, 9 stacks\nkprobe not offered\nuprobe NO: 3 of 9 counted\n";
    let cells = costs(said);
    assert_eq!((cells[0].as_str(), cells[2].as_str()), ("ok, 120 ns of BPF, 300 ns more in all, 9 stacks", "not offered"));
    assert!(cells[6].starts_with(NO) && cells[9].starts_with(NO), "{cells:?}");
    assert_eq!(tail_calls("5 functions compared\nstatus 0\n"), ["ok, 5 functions"]);
    assert_eq!(tail_calls("NOT TESTED: this kernel offers no fentry (x)\nstatus 0\n"), ["not offered"]);
    assert!(tail_calls("5 functions compared\nstatus 101\n")[0].starts_with(NO));
    assert_eq!(doctor("ok   kernel  6\nlimited  terminal               no\nstatus 0\n"), ["ok, but for terminal"]);
    assert!(doctor("status 1\n")[0].starts_with(NO));
    let copied =
        |kernel: &str| format!("ok       kernel                 {kernel}\nlimited  reading user stacks    copied\nstatus 0\n");
    assert_eq!(doctor(&copied("6.1.0-50-amd64")), ["ok, but for reading user stacks"]);
    assert!(doctor(&copied("6.12.95+deb12-amd64"))[0].starts_with(NO));
}
