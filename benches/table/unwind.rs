//! Costs of walking user stacks and of making tables. The kernel counts BPF's time. The programs belong to this process, so their time
//! is read before they are unloaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use flametop::collector::{Batch, Collector, CollectorOptions, ObjectState, Targets, Walk};
use flametop::object::open::{Root, open_path};
use flametop::profile::UserId;
use flametop::profile::{Names, ObjectId, Processes, Tgid, UserEnd};
use flametop::unwind::{FileBytes, OnDisk, Paged, convert};

use super::*;

/// Recursion through qsort, then busy: 54 frames, half of them libc's.
const SORTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static volatile unsigned long counter;
static int levels;
__attribute__((noinline)) static void busy(void)
{
	for (;;)
		counter++;
}
static int compare(const void *one, const void *other);
__attribute__((noinline)) static void again(void)
{
	int two[2] = { 1, 2 };

	if (levels-- == 0)
		busy();
	qsort(two, 2, sizeof(*two), compare);
	counter++;
}
static int compare(const void *one, const void *other)
{
	again();
	return *(const int *)one - *(const int *)other;
}
int main(void)
{
	puts("ready");
	fflush(stdout);
	levels = 12;
	again();
	return 0;
}
"#;

/// Samples a second: enough for a figure in seconds.
const HERTZ: u32 = 997;
const ROUNDS: usize = 3;

/// Time before samples of a program count: tables are made meanwhile.
pub(crate) const START: Duration = Duration::from_millis(1500);
/// Time before samples of compilers count. Compilers run far more code. The caches of rules fill meanwhile, as in a profiler that has run
/// for some time, and stay filled from one compiler to the next.
const FILLED: Duration = Duration::from_secs(12);

/// Figures of one measured period of sampling.
#[derive(Clone, Copy, Default)]
pub(crate) struct Walked {
    /// Nanoseconds of BPF a sample.
    pub(crate) nanoseconds: f64,
    /// User frames a sample.
    frames: f64,
    /// Whole stacks, in per cent of samples with a user stack.
    whole: f64,
}

/// The table's rows about walking.
pub(crate) fn unwind(table: &mut Table) {
    let _stats = BpfStats::switch_on();
    warm(table);
    of_a_compiler(table);
    beside_a_compiler(table);
    beside_others(table);
    conversion(table);
}

/// Samples for some seconds, after a time `before` that does not count.
fn sample(walk: Walk, targets: Targets, before: Duration) -> Walked {
    let names = Arc::new(Names::default());
    let options = CollectorOptions { frequency: HERTZ, walk, targets, ..Default::default() };
    let mut collector = Collector::start(options, names, Arc::new(Processes::default())).expect("this needs root");
    let mut batch = Batch::default();
    let mut drain = |collector: &mut Collector, time: Duration| {
        let (begin, mut samples, mut with_user, mut whole) = (Instant::now(), 0, 0, 0);
        while begin.elapsed() < time {
            collector.wait(Duration::from_millis(100));
            collector.drain(&mut batch).expect("drained");
            samples += batch.samples.len();
            with_user += batch.samples.iter().filter(|sample| sample.user_end != UserEnd::KernelThread).count();
            whole += batch.samples.iter().filter(|sample| sample.user_end == UserEnd::Root).count();
        }
        (samples as f64, whole as f64 * 100.0 / with_user.max(1) as f64)
    };
    drain(&mut collector, before);
    let (time, frames) = (bpf_time(std::process::id()), collector.walked().frames);
    let (samples, whole) = drain(&mut collector, Duration::from_secs(3));
    let taken = (bpf_time(std::process::id()) - time) * 1e9;
    Walked {
        nanoseconds: taken / samples.max(1.0),
        frames: (collector.walked().frames - frames) as f64 / samples.max(1.0),
        whole,
    }
}

/// Returns the median round by time a sample.
fn middle(mut rounds: Vec<Walked>) -> Walked {
    rounds.sort_by(|a, b| a.nanoseconds.total_cmp(&b.nanoseconds));
    rounds[rounds.len() / 2]
}

/// Measures the kinds of walks in turn, so that other load on the machine affects all of them alike.
fn in_turn(targets: &Targets, walks: &[Walk], before: Duration) -> Vec<Walked> {
    let mut rounds = vec![Vec::new(); walks.len()];
    for _ in 0..ROUNDS {
        for (walk, rounds) in walks.iter().zip(&mut rounds) {
            rounds.push(sample(*walk, targets.clone(), before));
        }
    }
    rounds.into_iter().map(middle).collect()
}

/// Binds a process to a CPU. `None` is this thread.
pub(crate) fn bind(pid: Option<u32>, cpu: usize) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    rustix::thread::sched_setaffinity(pid, &cpus).expect("bound to a CPU");
}

/// Like `in_turn`, for programs on the first CPU. The measuring thread runs on the last CPU, so that neither evicts the caches of the
/// other. It is a separate thread, because this one must stay unbound.
pub(crate) fn apart(targets: Targets, walks: &'static [Walk], before: Duration) -> Vec<Walked> {
    let thread = std::thread::spawn(move || {
        bind(None, std::thread::available_parallelism().map_or(1, usize::from) - 1);
        in_turn(&targets, walks, before)
    });
    thread.join().expect("sampled")
}

/// Steady stacks of one program.
fn warm(table: &mut Table) {
    let walked = |source: &str, flags: &[&str], arguments: &[&str], walks: &'static [Walk]| {
        let program = Program::build_text("steady.c", source, flags).run(arguments);
        bind(Some(program.pid()), 0);
        apart(Targets::Processes(vec![Tgid(program.pid())]), walks, START)
    };
    let walks = &[Walk::Nothing, Walk::Tables];
    let [nothing, tables] = walked(SORTS, &["-O2", "-fomit-frame-pointer"], &[], walks)[..] else { return };
    let each = (tables.nanoseconds - nothing.nanoseconds) / tables.frames;
    table.add(Line {
        what: "walk of one warm stack, by tables".to_owned(),
        program: "flametop",
        figure: format!(
            "{each:.0} ns a frame, {:.0} ns a sample of {:.1} frames, {:.0} without a walk",
            tables.nanoseconds, tables.frames, nothing.nanoseconds
        ),
        target: "60 ns a frame".to_owned(),
        held: Some(each <= 60.0 && tables.whole > 99.0),
    });
    let walks = &[Walk::Tables, Walk::FramePointers];
    let [tables, pointers] = walked(DEEP, &[], &["60"], walks)[..] else { return };
    let ratio = tables.nanoseconds / pointers.nanoseconds;
    table.add(Line {
        what: "60 warm frames with frame pointers, both ways".to_owned(),
        program: "flametop",
        figure: format!(
            "{:.0} ns by tables, {:.0} ns by frame pointers: {ratio:.2} times",
            tables.nanoseconds, pointers.nanoseconds
        ),
        target: "2 times".to_owned(),
        held: Some(ratio <= 2.0),
    });
}

/// A compiler that starts again and again on one CPU. It is killed when this is dropped.
struct Compiling(std::process::Child);

impl Compiling {
    fn start(cpu: Option<usize>) -> Option<Compiling> {
        // Large enough that a compiler spends its time compiling, not starting.
        let source = scratch().join("large.c");
        let function = |number| {
            format!(
                "long f{number}(long *a, long n) {{ long s = {number}; for (long i = 0; i < n; i++) {{ if (a[i] & {number}) \
                 s += a[i] * a[n - i]; else a[i] ^= s >> 3; switch (s & 7) {{ case 1: s++; case 2: s *= 3; break; case 5: \
                 a[0] = s; }} }} return s; }}\n"
            )
        };
        std::fs::write(&source, (1..3000).map(function).collect::<String>()).ok()?;
        let source = source.to_string_lossy().into_owned();
        let script = format!("while :; do \"${{CLANG:-clang}}\" -O2 -w -S -o /dev/null '{source}' || exit 1; done");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
        // A bound thread starts it, so it and its children are bound from their beginning.
        let start = move || {
            if let Some(cpu) = cpu {
                bind(None, cpu);
            }
            command.spawn()
        };
        Some(Compiling(std::thread::spawn(start).join().ok()?.ok()?))
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One compiler, bound to a CPU, at 997 Hz. This is the load of shared/unwind-experiments.md, which the target comes from.
fn of_a_compiler(table: &mut Table) {
    compiler(table, "walk of one clang on a CPU of its own, by tables", Some(0), |compiling| {
        apart(Targets::Families(vec![Tgid(compiling.id())]), &[Walk::Nothing, Walk::Tables, Walk::FramePointers], FILLED)
    });
}

/// The whole machine, with a compiler. A compiler's stacks are deep, and it evicts the CPU's caches between two samples.
fn beside_a_compiler(table: &mut Table) {
    compiler(table, "walk of everything beside clang, by tables", None, |_| {
        in_turn(&Targets::All, &[Walk::Nothing, Walk::Tables, Walk::FramePointers], FILLED)
    });
}

fn compiler(table: &mut Table, what: &str, cpu: Option<usize>, walked: impl FnOnce(&std::process::Child) -> Vec<Walked>) {
    let Some(mut compiling) = Compiling::start(cpu) else { return table.failed(what) };
    let [nothing, tables, pointers] = walked(&compiling.0)[..] else { return };
    if !matches!(compiling.0.try_wait(), Ok(None)) {
        return table.failed(what);
    }
    let each = (tables.nanoseconds - nothing.nanoseconds) / tables.frames;
    table.add(Line {
        what: what.to_owned(),
        program: "flametop",
        figure: format!(
            "{each:.0} ns a frame, {:.1} µs a sample of {:.1} frames, {:.1} % whole (by frame pointers {:.1} µs)",
            tables.nanoseconds / 1000.0,
            tables.frames,
            tables.whole,
            pointers.nanoseconds / 1000.0
        ),
        target: "200 ns a frame".to_owned(),
        held: Some(each <= 200.0),
    });
}

/// Starts lightswitch with its arguments where debugfs, which it needs, is mounted for it alone.
const WITH_DEBUGFS: [&str; 4] =
    ["--mount", "sh", "-c", r#"[ -d /sys/kernel/debug/tracing ] || mount -t debugfs none /sys/kernel/debug; exec "$0" "$@""#];

/// BPF's time a sample, beside lightswitch's. Both run at once, under the load of the other rows.
fn beside_others(table: &mut Table) {
    let _load = load();
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench-tools").join("bin/lightswitch");
    for hertz in ["97", "997"] {
        let what = format!("BPF a sample at {hertz} Hz, whole machine");
        let folded = scratch().join("bench.folded").to_string_lossy().into_owned();
        let seconds = seconds().to_string();
        let of_ours = ["record", "-d", &seconds, "-F", hertz, "--force", "-o", &folded];
        let path = beside.to_string_lossy();
        let of_theirs =
            [&WITH_DEBUGFS[..], &[&path, "--duration", &seconds, "--sample-freq", hertz, "--sender", "none"]].concat();
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| beside.exists().then(|| each_run("unshare", &of_theirs)).flatten());
            (each_run(FLAMETOP, &of_ours), theirs.join().expect("measured"))
        });
        let line = |program, figure: Option<f64>| Line {
            what: what.clone(),
            program,
            figure: figure.map_or("not measured: it is not there, or it failed".to_owned(), |figure| format!("{figure:.1} µs")),
            target: String::new(),
            held: None,
        };
        table.add(Line {
            target: "1/3 of lightswitch's".to_owned(),
            held: ours.zip(theirs).map(|(ours, theirs)| ours <= theirs / 3.0),
            ..line("flametop", ours)
        });
        table.add(line("lightswitch", theirs));
    }
}

/// Returns the microseconds of BPF for each sample while a profiler runs to its end. Its first seconds do not count. A sample is a run of
/// the BPF program that takes most time from then on.
fn each_run(program: &str, args: &[&str]) -> Option<f64> {
    let mut child =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let begin = Instant::now();
    let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
    while let Ok(None) = child.try_wait() {
        let seen = costs_of_programs(child.id());
        if !seen.is_empty() {
            if begin.elapsed() < Duration::from_secs(5) {
                first.clone_from(&seen);
            }
            last = seen;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    let since = last.into_iter().map(|(id, (time, runs))| {
        let (time_before, runs_before) = first.get(&id).copied().unwrap_or_default();
        (time - time_before, runs - runs_before)
    });
    let (time, runs) = since.max().filter(|(_, runs)| *runs > 0)?;
    Some(time as f64 / runs as f64 / 1000.0)
}

/// Returns nanoseconds and runs of the program that samples. Programs that it reaches by tail calls count as the same run, with their time.
pub(crate) fn bpf_of_samples(pid: u32) -> Option<(u64, u64)> {
    costs_of_programs(pid).into_values().max()
}

/// Returns nanoseconds and runs of each BPF program of a process that ran, by its id.
fn costs_of_programs(pid: u32) -> BTreeMap<u32, (u64, u64)> {
    let ids: Vec<u32> = bpf_programs_of(pid).into_iter().map(|program| program.id).collect();
    let programs = libbpf_rs::query::ProgInfoIter::default().filter(|program| ids.contains(&program.id) && program.run_cnt > 0);
    programs.map(|program| (program.id, (program.run_time_ns, program.run_cnt))).collect()
}

/// Measures how fast the table of a compiler's largest library is made, and how soon it can be used.
fn conversion(table: &mut Table) {
    let library = Command::new("sh").args(["-c", "ldd \"$(command -v ${CLANG:-clang})\""]).output().ok();
    let listed = library.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let Some(path) = listed.lines().find(|line| line.contains("libLLVM")).and_then(|line| line.split_whitespace().nth(2)) else {
        return table.failed("table of libLLVM");
    };
    let real = std::fs::canonicalize(path).expect("libLLVM is there");
    let image = FileBytes::new(open_path(UserId(0), Root::Own, &real).expect("libLLVM can be read"));
    let (mut fastest, mut rows, mut bytes) = (f64::INFINITY, 0, 0);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let converted = convert(&image, &OnDisk::of(Path::new(path))).expect("libLLVM has a table");
        let paged = Paged::new(&converted);
        fastest = fastest.min(begin.elapsed().as_secs_f64());
        (rows, bytes) = (converted.rows.len(), paged.bytes());
    }
    let (speed, each) = (rows as f64 / fastest / 1e6, bytes as f64 / rows as f64);
    table.add(Line {
        what: "table of libLLVM".to_owned(),
        program: "flametop",
        figure: format!("{rows} rows in {fastest:.3} s: {speed:.1} M rows/s, {each:.2} bytes a row"),
        target: "5 M rows/s, 5 bytes".to_owned(),
        held: Some(speed >= 5.0 && each <= 5.0),
    });
    first_use(table, "libLLVM");
}

/// Measures the time from the first sample in an object without a table to the first sample that ends at a root. No table is on disk.
fn first_use(table: &mut Table, name: &str) {
    let what = format!("from the first sample in {name} until it is walked");
    let names = Arc::new(Names::default());
    let options = CollectorOptions { frequency: HERTZ, cache_tables: false, ..Default::default() };
    let mut collector = Collector::start(options, names.clone(), Arc::new(Processes::default())).expect("this needs root");
    let Some(_compiling) = Compiling::start(None) else { return table.failed(&what) };
    let is_in = |object: ObjectId| names.objects.get(object).is_some_and(|object| object.path.contains(name));
    let mut batch = Batch::default();
    let (mut first, mut walked) = (None, None);
    let begin = Instant::now();
    while walked.is_none() && begin.elapsed() < Duration::from_secs(20) {
        collector.wait(Duration::from_millis(20));
        collector.drain(&mut batch).expect("drained");
        for sample in &batch.samples {
            let mut frames = batch.frames[sample.frames.clone()].iter().filter_map(|id| names.frames.get(*id));
            if frames.any(|frame| is_in(frame.object())) {
                first.get_or_insert(sample.time.0);
                if sample.user_end == UserEnd::Root {
                    walked.get_or_insert(sample.time.0);
                }
            }
        }
    }
    let ready =
        collector.objects().iter().any(|object| object.path.contains(name) && matches!(object.state, ObjectState::Ready(_)));
    let after = first.zip(walked).filter(|_| ready).map(|(first, walked)| (walked - first) as f64 / 1e9);
    table.add(Line {
        what,
        program: "flametop",
        figure: after.map_or("not seen within 20 s".to_owned(), |after| format!("{after:.2} s")),
        target: "0.5 s".to_owned(),
        held: Some(after.is_some_and(|after| after <= 0.5)),
    });
}
