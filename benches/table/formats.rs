//! Recordings and profiles of other programs: their size, and the time to write and to read them.

use std::sync::Arc;

use flametop::formats::recording::Recorder;
use flametop::formats::{Destination, Sink, ThisMachine, open};
use flametop::profile::{Capabilities, Names, Processes, Profile, Sample, Timestamp};

use super::names::quoted;
use super::*;

/// Samples of the long recording: an hour and 24 minutes of two CPUs at 997 Hz.
const MANY: u64 = 10_000_000;
/// Runs of each program.
const RUNS: usize = 5;

pub(crate) fn formats(table: &mut Table) {
    let load = load();
    let recording = cost_of_recording(table);
    let text = perf_script();
    drop(load);
    match recording {
        Some(recording) => long_recording(table, &recording),
        None => table.failed("a long recording"),
    }
    match text {
        Some(text) => read_text(table, &text),
        None => table.failed("text of perf script"),
    }
    read_pprof(table);
}

/// A recording beside a picture of the same load, in turns.
fn cost_of_recording(table: &mut Table) -> Option<PathBuf> {
    let _stats = BpfStats::switch_on();
    let seconds = seconds().to_string();
    let record = |ending: &str| {
        let path = scratch().join(format!("cost.{ending}"));
        let arguments = ["record", "-d", &seconds, "-F", "997", "--force", "-o", &path.to_string_lossy()].map(str::to_owned);
        run(FLAMETOP, &arguments.each_ref().map(String::as_str)).map(|usage| (path, usage))
    };
    let mut ratios = Vec::new();
    let mut file = None;
    for _ in 0..RUNS {
        let ((_, picture), (path, recording)) = (record("svg")?, record("flametop")?);
        ratios.push((recording.cpu + recording.bpf) / (picture.cpu + picture.bpf));
        file = Some(path);
    }
    let ratio = median(&mut ratios);
    table.add(Line {
        what: format!("a recording of {seconds} s at 997 Hz, CPU beside a picture's"),
        program: "flametop",
        figure: format!("{ratio:.2}, from {:.2} to {:.2} in {RUNS} pairs", ratios[0], ratios[RUNS - 1]),
        target: "1.10".to_owned(),
        held: Some(ratio <= 1.1),
    });
    let path = file?;
    let bytes = std::fs::metadata(&path).ok()?.len();
    let (samples, _) = profile_of(&path)?;
    let each = bytes as f64 / samples.samples.len() as f64;
    table.add(Line {
        what: format!("a recording of {} samples, names included", samples.samples.len()),
        program: "flametop",
        figure: format!("{each:.1} bytes a sample"),
        target: "10".to_owned(),
        held: Some(each <= 10.0),
    });
    Some(path)
}

fn profile_of(path: &Path) -> Option<(Profile, Arc<Names>)> {
    let (names, mut profile) = (Arc::new(Names::default()), Profile::fixed(Capabilities::STACKS));
    let mut into = Destination {
        names: &names,
        processes: &Processes::default(),
        profile: &mut profile,
        before: None,
        machine: ThisMachine::default(),
    };
    open(std::fs::File::open(path).ok()?, &mut into).ok()?;
    Some((profile, names))
}

/// Repeats a recording until it has [`MANY`] samples. It is written as it would have been while it was recorded: once a second.
fn repeated(recording: &Path) -> Option<PathBuf> {
    let (profile, names) = profile_of(recording)?;
    let first = profile.samples.first_time()?;
    let span = profile.samples.last_time()?.since(first) + 1;
    let (mut long, mut recorder) = (Profile::fixed(Capabilities::LIVE), Recorder::new());
    let mut bytes = Vec::new();
    let mut second = 0;
    for (round, sample) in (0..).flat_map(|round| profile.samples.slices_from(0).flatten().map(move |sample| (round, sample))) {
        let stack: Vec<_> = profile.stacks.frames(sample.stack).collect();
        let time = Timestamp(sample.time.0 + round * span);
        long.record(profile.threads.get(sample.thread)?, stack.into_iter().rev(), Sample { time, ..*sample });
        let is_last = long.samples.len() as u64 == MANY;
        if is_last || time.since(first) / 1_000_000_000 > second {
            second = time.since(first) / 1_000_000_000;
            while recorder.take(&long, &names) {}
            bytes.extend(recorder.bytes());
        }
        if is_last {
            break;
        }
    }
    recorder.end().ok()?;
    bytes.extend(recorder.bytes());
    let path = scratch().join("long.flametop");
    std::fs::write(&path, bytes).ok()?;
    Some(path)
}

/// Time until a long recording is on the screen, and until a changed query is.
fn long_recording(table: &mut Table, recording: &Path) {
    let what = format!("a recording of {MANY} samples");
    let Some(path) = repeated(recording) else { return table.failed(&what) };
    let args = ["view".to_owned(), path.to_string_lossy().into_owned()];
    let (mut shown, mut changed, mut usage) = (Vec::new(), Vec::new(), Usage::default());
    for _ in 0..RUNS {
        let begin = Instant::now();
        let terminal = Terminal::spawn(FLAMETOP, &args.each_ref().map(String::as_str), LARGE.0, LARGE.1, &[]);
        terminal.wait_for(|screen| screen.contains("all  ") && screen.contains("chain"), PATIENCE);
        shown.push(begin.elapsed().as_secs_f64());
        terminal.wait_quiet(Duration::from_millis(500), Duration::from_secs(10));
        // Groups by process. Their numbers stand behind their names then, and before that their shares: `1.33 CPUs`.
        let begin = Instant::now();
        terminal.keys("e");
        let is_number = |word: &str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_digit());
        terminal.wait_for(
            |screen| screen.split("chain ").any(|rest| rest.split_whitespace().next().is_some_and(is_number)),
            PATIENCE,
        );
        changed.push(begin.elapsed().as_secs_f64());
        usage = usage_of(terminal.pid());
        finish(terminal);
    }
    let (shown, changed) = (median(&mut shown), median(&mut changed));
    let size = std::fs::metadata(&path).map_or(0, |about| about.len() >> 20);
    table.add(Line {
        what: format!("{what} ({size} MiB) on the screen"),
        program: "flametop",
        figure: format!("{shown:.2} s, peak {:.0} MB", usage.peak_mb),
        target: "1 s".to_owned(),
        held: Some(shown <= 1.0),
    });
    table.add(Line {
        what: format!("{what}, a changed query"),
        program: "flametop",
        figure: format!("{:.0} ms", changed * 1e3),
        target: "100 ms".to_owned(),
        held: Some(changed <= 0.1),
    });
}

/// Text of `perf script`, 200 MB of it.
fn perf_script() -> Option<PathBuf> {
    let (data, text) = (scratch().join("script.data"), scratch().join("script.perf"));
    let (data, text) = (data.to_string_lossy().into_owned(), text.to_string_lossy().into_owned());
    let event = ["record", "-q", "-e", "cpu-clock", "-F", "4999", "-g", "-a", "-o", &data, "--", "sleep", "10"];
    (0..3).find_map(|_| run("perf", &event))?;
    let script = format!("perf script -F +pid -i {} > {} 2>/dev/null", quoted(&data), quoted(&text));
    run("sh", &["-c", &script])?;
    let once = std::fs::read(&text).ok()?;
    let times = (200 << 20) / once.len().max(1) + 1;
    std::fs::write(&text, once.repeat(times)).ok()?;
    Some(PathBuf::from(text))
}

/// Folds the text of `perf script`, beside inferno.
fn read_text(table: &mut Table, text: &Path) {
    let megabytes = std::fs::metadata(text).map_or(0, |about| about.len() >> 20);
    let inferno = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench-tools").join("bin/inferno-collapse-perf");
    let (text, out) = (text.to_string_lossy().into_owned(), scratch().join("script.folded"));
    let (ours, theirs) = (["convert", &text, &out.to_string_lossy(), "--force"], ["-n", "1", &text]);
    let (mut ratios, mut seconds) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (Some(us), Some(them)) = (timed(FLAMETOP, &ours), timed(&inferno.to_string_lossy(), &theirs)) else {
            return table.failed("the text of perf script, beside inferno");
        };
        seconds.push(us);
        ratios.push(them / us);
    }
    let (ratio, seconds) = (median(&mut ratios), median(&mut seconds));
    table.add(Line {
        what: format!("{megabytes} MB of perf script, folded"),
        program: "flametop",
        figure: format!("{seconds:.2} s; inferno with one thread takes {ratio:.2} times as long"),
        target: "2 times".to_owned(),
        held: Some(ratio >= 2.0),
    });
}

/// Time to read a profile of pprof: a million stacks.
fn read_pprof(table: &mut Table) {
    let what = "a pprof profile of 1000000 stacks";
    let Some(file) = folded(1_000_000, "unsorted", "profile") else { return table.failed(what) };
    let packed = scratch().join("stacks.pprof");
    let arguments = ["convert", &file.path.to_string_lossy(), &packed.to_string_lossy(), "--force"].map(str::to_owned);
    let raw = scratch().join("stacks.raw");
    let script = format!("gzip -dc {} > {}", quoted(&packed.to_string_lossy()), quoted(&raw.to_string_lossy()));
    let made = run(FLAMETOP, &arguments.each_ref().map(String::as_str)).and_then(|_| run("sh", &["-c", &script]));
    let Some(megabytes) = made.and_then(|_| Some(std::fs::metadata(&raw).ok()?.len() as f64 / 1e6)) else {
        return table.failed(what);
    };
    let read = |path: &Path| {
        let begin = Instant::now();
        profile_of(path).map(|_| megabytes / begin.elapsed().as_secs_f64())
    };
    for (path, how) in [(&raw, "plain"), (&packed, "packed")] {
        let mut speeds: Vec<f64> = (0..RUNS).filter_map(|_| read(path)).collect();
        let speed = median(&mut speeds);
        table.add(Line {
            what: format!("{what}, {megabytes:.0} MB, {how}"),
            program: "flametop",
            figure: format!("{speed:.0} MB/s unpacked"),
            target: "200 MB/s".to_owned(),
            held: Some(speed >= 200.0),
        });
    }
}

/// Seconds that a program takes.
fn timed(program: &str, arguments: &[&str]) -> Option<f64> {
    let begin = Instant::now();
    run(program, arguments).map(|_| begin.elapsed().as_secs_f64())
}

/// Sorts numbers and returns the one in the middle.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
