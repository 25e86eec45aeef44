//! Costs of functions of Python, JavaScript and Java: BPF's time a function, a profiler's CPU time and memory beside busy programs, and how much slower
//! such a program runs.

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

const DEEP_JAVASCRIPT: &str = "
function spin(tells) {
    let count = 0, begin = process.hrtime.bigint();
    for (;;) {
        let sum = 0;
        for (let number = 0; number < 100000; number++) sum = (sum + number) | 0;
        count += 1;
        const now = process.hrtime.bigint();
        if (tells && now - begin > 100000000n) {
            require('fs').writeSync(1, count / Number(now - begin) * 1e9 + '\\n');
            count = 0; begin = now;
        }
    }
}
function down(depth, tells) { return depth ? down(depth - 1, tells) + 1 : spin(tells); }
require('fs').writeSync(1, 'ready\\n');
down(Number(process.argv[1]), process.argv[2] === 'tells');
";

const DEEP_JAVA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/java/Deep.java");

/// Number of functions in a deep stack and in a shallow stack. A walk of the deep one ends long before its time does.
const MANY: u32 = 200;
const FEW: u32 = 20;
/// Busy programs at one time.
const BUSY: usize = 10;
/// Pairs of windows, without and with a profiler, in which a program is timed.
const PAIRS: usize = 8;

/// A language, and the command that runs a program of it.
#[derive(Clone, Copy)]
struct Runtime {
    name: &'static str,
    /// The command's first words. The program follows, or its path.
    words: [&'static str; 2],
    program: &'static str,
    /// Most nanoseconds of a function in BPF, per cent of a CPU beside ten busy programs, and megabytes more than beside shells.
    most: (f64, f64, f64),
}

const PYTHON: Runtime = Runtime { name: "Python", words: ["python3", "-c"], program: DEEP, most: (100.0, 1.0, 60.0) };
const NODE: Runtime = Runtime { name: "JavaScript", words: ["node", "-e"], program: DEEP_JAVASCRIPT, most: (150.0, 1.5, 80.0) };
const JAVA: Runtime = Runtime { name: "Java", words: ["java", "-Xmx64m"], program: DEEP_JAVA, most: (200.0, 1.5, 80.0) };

/// A program. It is killed when this is dropped.
struct Program(Child, BufReader<std::process::ChildStdout>);

impl Program {
    fn start(runtime: Runtime, depth: u32, tells: bool) -> Program {
        let [command, option] = runtime.words;
        let mut command = Command::new(command);
        command.args([option, runtime.program, &depth.to_string(), if tells { "tells" } else { "silent" }]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3, node and java are needed by this row");
        let mut lines = BufReader::new(child.stdout.take().expect("piped above"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says that it is ready");
        assert_eq!(line, "ready\n");
        Program(child, lines)
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

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The table's rows about languages.
pub(crate) fn languages(table: &mut Table) {
    for runtime in [PYTHON, NODE, JAVA] {
        a_function(table, runtime);
    }
    beside_busy_programs(table);
    for runtime in [PYTHON, NODE, JAVA] {
        slower(table, runtime);
    }
}

/// BPF's time for one function more, in stacks of the same program. Native frames of Python are the same, too.
fn a_function(table: &mut Table, runtime: Runtime) {
    let _stats = BpfStats::switch_on();
    let walked = |depth| {
        let program = Program::start(runtime, depth, false);
        bind(Some(program.pid()), 0);
        apart(Targets::Processes(vec![Tgid(program.pid())]), &[Walk::Tables], START)[0].nanoseconds
    };
    let (many, few) = (walked(MANY), walked(FEW));
    let each = (many - few) / f64::from(MANY - FEW);
    let (most, ..) = runtime.most;
    table.add(Line {
        what: format!("a function of {} in a warm stack", runtime.name),
        program: "flametop",
        figure: format!("{each:.0} ns, {many:.0} ns a sample of {MANY} functions, {few:.0} ns of {FEW}"),
        target: format!("{most:.0} ns"),
        held: Some(each <= most),
    });
}

/// Recording ten busy programs, of a shell and of each language.
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
    for runtime in [PYTHON, NODE, JAVA] {
        let programs: Vec<Program> = (0..BUSY).map(|_| Program::start(runtime, 20, false)).collect();
        let found = record(programs.iter().map(Program::pid).collect());
        let (_, percent, megabytes) = runtime.most;
        let most = of_shells.map(|usage| (percent, usage.peak_mb.round() + megabytes));
        table.add(cost(&format!("{what}: {}", runtime.name), "flametop", found, most));
    }
}

/// How much slower a program runs while it is sampled, and what that costs; of Python, beside py-spy.
fn slower(table: &mut Table, runtime: Runtime) {
    let py_spy = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("pythons").join("py-spy/bin/py-spy");
    let py_spy = py_spy.to_string_lossy().into_owned();
    for (hertz, most) in [("99", 0.5), ("999", 3.0)] {
        let what = format!("a program of {} sampled at {hertz} Hz", runtime.name);
        let mut watched = Program::start(runtime, 20, true);
        bind(Some(watched.pid()), 0);
        let pid = watched.pid().to_string();
        let folded = scratch().join("bench.folded").to_string_lossy().into_owned();
        let ours = [FLAMETOP, "record", "-p", &pid, "-F", hertz, "--force", "-d", "3", "-o", &folded];
        let theirs = [&py_spy, "record", "--native", "-p", &pid, "-r", hertz, "-d", "3", "-f", "raw", "-o", &folded];
        let mut profilers = vec![("flametop", &ours[..], Some(most))];
        if runtime.name == PYTHON.name {
            profilers.push(("py-spy", &theirs[..], None));
        }
        for (program, words, target) in profilers {
            let mut ratios = Vec::new();
            let mut usage = Usage::default();
            for _ in 0..PAIRS {
                watched.speed(3);
                let alone = watched.speed(15);
                let (sender, started) = std::sync::mpsc::channel();
                let (found, sampled) = std::thread::scope(|scope| {
                    let profiler = scope.spawn(move || {
                        bind(None, 1);
                        sender.send(()).expect("it waits for this");
                        run(words[0], &words[1..])
                    });
                    started.recv().expect("the profiler begins");
                    // Time for the profiler to start and to read the files that it needs.
                    watched.speed(10);
                    let sampled = watched.speed(15);
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
