//! Costs of interpreted functions: BPF's time a function, a profiler's CPU time and memory beside busy programs of Python, and how much
//! slower such a program runs.

use std::io::{BufRead, BufReader};
use std::process::Child;

use flametop::collector::{Targets, Walk};
use flametop::profile::Tgid;

use super::unwind::{START, apart, bind};
use super::*;

/// Calls itself as often as its first argument says, then spins. If its second argument is `tells`, it prints its speed ten times a second.
const DEEP: &str = "
import sys, time
sys.setrecursionlimit(3000)
def spin(tells):
    count = 0
    begin = time.perf_counter()
    while True:
        for number in range(10000): pass
        count += 1
        now = time.perf_counter()
        if tells and now - begin > 0.1:
            print(count / (now - begin), flush=True)
            count, begin = 0, now
def down(depth, tells):
    if depth: down(depth - 1, tells)
    else: spin(tells)
print('ready', flush=True)
down(int(sys.argv[1]), sys.argv[2] == 'tells')
";

/// Number of functions in a deep stack and in a shallow stack.
const MANY: u32 = 900;
const FEW: u32 = 100;
/// Busy programs at one time.
const BUSY: usize = 10;
/// Pairs of windows, without and with a profiler, in which a program is timed.
const PAIRS: usize = 8;

/// A Python program. It is killed when this is dropped.
struct Python(Child, BufReader<std::process::ChildStdout>);

impl Python {
    fn start(depth: u32, tells: bool) -> Python {
        let mut command = Command::new("python3");
        command.args(["-c", DEEP, &depth.to_string(), if tells { "tells" } else { "silent" }]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3 is needed by this row");
        let mut lines = BufReader::new(child.stdout.take().expect("piped above"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says that it is ready");
        assert_eq!(line, "ready\n");
        Python(child, lines)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Turns of its loop a second: the median of some windows.
    fn speed(&mut self, windows: usize) -> f64 {
        let mut line = String::new();
        let mut speeds: Vec<f64> = (0..windows)
            .map(|_| {
                line.clear();
                self.1.read_line(&mut line).expect("it tells its speed");
                line.trim().parse().expect("it tells numbers")
            })
            .collect();
        speeds.sort_by(f64::total_cmp);
        speeds[windows / 2]
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The table's rows about languages.
pub(crate) fn languages(table: &mut Table) {
    a_function(table);
    beside_busy_programs(table);
    slower(table);
}

/// BPF's time for one function more, in stacks whose native frames are the same.
fn a_function(table: &mut Table) {
    let _stats = BpfStats::switch_on();
    let walked = |depth| {
        let python = Python::start(depth, false);
        bind(Some(python.pid()), 0);
        apart(Targets::Processes(vec![Tgid(python.pid())]), &[Walk::Tables], START)[0].nanoseconds
    };
    let (many, few) = (walked(MANY), walked(FEW));
    let each = (many - few) / f64::from(MANY - FEW);
    table.add(Line {
        what: "a function of Python in a warm stack".to_owned(),
        program: "flametop",
        figure: format!("{each:.0} ns, {many:.0} ns a sample of {MANY} functions, {few:.0} ns of {FEW}"),
        target: "100 ns".to_owned(),
        held: Some(each <= 100.0),
    });
}

/// Recording ten busy programs, of Python and of a shell.
fn beside_busy_programs(table: &mut Table) {
    let _stats = BpfStats::switch_on();
    let folded = scratch().join("bench.folded").to_string_lossy().into_owned();
    let record = |pids: Vec<u32>| {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let seconds = seconds().to_string();
        run(FLAMETOP, &["record", "-p", &pids.join(","), "-d", &seconds, "-F", "97", "--force", "-o", &folded])
    };
    let what = format!("record {BUSY} busy programs at 97 Hz");
    let shells: Vec<Child> =
        (0..BUSY).map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh")).collect();
    let of_shells = record(shells.iter().map(Child::id).collect());
    for mut shell in shells {
        let _ = shell.kill();
        let _ = shell.wait();
    }
    table.add(cost(&format!("{what}: shells"), "flametop", of_shells, None));
    let pythons: Vec<Python> = (0..BUSY).map(|_| Python::start(20, false)).collect();
    let of_pythons = record(pythons.iter().map(Python::pid).collect());
    let most = of_shells.map(|usage| (1.0, usage.peak_mb.round() + 60.0));
    table.add(cost(&format!("{what}: Python"), "flametop", of_pythons, most));
}

/// How much slower a program runs while it is sampled, and what that costs, beside py-spy.
fn slower(table: &mut Table) {
    let py_spy = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("pythons").join("py-spy/bin/py-spy");
    let py_spy = py_spy.to_string_lossy().into_owned();
    for (hertz, most) in [("99", 0.5), ("999", 3.0)] {
        let what = format!("a program of Python sampled at {hertz} Hz");
        let mut python = Python::start(20, true);
        bind(Some(python.pid()), 0);
        let pid = python.pid().to_string();
        let folded = scratch().join("bench.folded").to_string_lossy().into_owned();
        let ours = [FLAMETOP, "record", "-p", &pid, "-F", hertz, "--force", "-d", "3", "-o", &folded];
        let theirs = [&py_spy, "record", "--native", "-p", &pid, "-r", hertz, "-d", "3", "-f", "raw", "-o", &folded];
        for (program, words, target) in [("flametop", &ours[..], Some(most)), ("py-spy", &theirs[..], None)] {
            let mut ratios = Vec::new();
            let mut usage = Usage::default();
            for _ in 0..PAIRS {
                python.speed(3);
                let alone = python.speed(15);
                let (sender, started) = std::sync::mpsc::channel();
                let (found, sampled) = std::thread::scope(|scope| {
                    let profiler = scope.spawn(move || {
                        bind(None, 1);
                        sender.send(()).expect("it waits for this");
                        run(words[0], &words[1..])
                    });
                    started.recv().expect("the profiler begins");
                    // Time for the profiler to start and to read the files that it needs.
                    python.speed(10);
                    let sampled = python.speed(15);
                    (profiler.join().expect("it ran"), sampled)
                });
                let Some(found) = found else { break };
                usage.cpu += found.cpu;
                usage.peak_mb = usage.peak_mb.max(found.peak_mb);
                ratios.push(alone / sampled);
            }
            ratios.sort_by(f64::total_cmp);
            let Some(middle) = ratios.get(ratios.len() / 2) else {
                table.add(Line {
                    what: what.clone(),
                    program,
                    figure: "not measured: it is not there, or it failed".to_owned(),
                    target: String::new(),
                    held: None,
                });
                continue;
            };
            let percent = (middle - 1.0) * 100.0;
            let (cpu, peak) = (usage.cpu / ratios.len() as f64, usage.peak_mb);
            table.add(Line {
                what: what.clone(),
                program,
                figure: format!("{percent:.2} % slower; {cpu:.2} s of CPU in 3 s, peak {peak:.0} MB"),
                target: target.map_or(String::new(), |most| format!("{most} %")),
                held: target.map(|most| percent <= most),
            });
        }
    }
}
