//! Cost of waits. Two threads on one CPU send a byte to and fro as fast as they can (`perf bench sched pipe`), which is two switches for each round
//! trip. They do so alone and beside programs that look at each switch, in turns. Empty BPF programs at the same tracepoints cost a good part
//! of what `bpf/waits.bpf.c` costs.

use super::usage::bpf_time;
use super::*;

/// Round trips of the byte in a run, and pairs of runs. The median of the ratios is printed.
const TRIPS: u32 = 400_000;
const PAIRS: usize = 5;

/// Time that a program gets to attach itself. Then it looks at switches until it is interrupted.
const START: Duration = Duration::from_secs(3);

/// Returns how many seconds the byte's trips take.
fn trips() -> Option<f64> {
    let command = Command::new("taskset")
        .args(["-c", "0", "perf", "bench", "sched", "pipe", "-T", "-l", &TRIPS.to_string()])
        .stderr(Stdio::null())
        .output();
    let said = String::from_utf8(command.ok()?.stdout).ok()?;
    said.lines().find_map(|line| line.trim().strip_prefix("Total time: ")?.strip_suffix(" [sec]")?.parse().ok())
}

/// The cost of a program that looks at switches.
struct Cost {
    /// How much longer the trips take, in per cent.
    slower: f64,
    /// Nanoseconds in its BPF programs, for each switch.
    bpf: f64,
    /// CPU of the program itself while the trips run, in per cent, and memory.
    own: f64,
    peak_mb: f64,
}

/// Measures a program that looks until it is interrupted.
fn beside(words: &[&str], pairs: usize) -> Option<Cost> {
    let (mut ratios, mut bpf, mut own, mut peak_mb) = (Vec::new(), 0.0, 0.0, 0.0_f64);
    for _ in 0..pairs {
        let alone = trips()?;
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]).args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut looks = command.spawn().ok()?;
        std::thread::sleep(START);
        let (begun, before) = (bpf_time(looks.id()), usage_of(looks.id()));
        let seconds = trips();
        let after = usage_of(looks.id());
        bpf += bpf_time(looks.id()) - begun;
        let ended = looks.try_wait().ok()?;
        let pid = rustix::process::Pid::from_child(&looks);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = looks.wait();
        // If the program has ended already, it has looked at nothing.
        let seconds = seconds.filter(|_| ended.is_none())?;
        ratios.push(seconds / alone);
        own += (after.cpu - before.cpu) / seconds;
        peak_mb = peak_mb.max(after.peak_mb);
    }
    ratios.sort_by(f64::total_cmp);
    let switches = f64::from(2 * TRIPS) * pairs as f64;
    Some(Cost { slower: (ratios[pairs / 2] - 1.0) * 100.0, bpf: bpf * 1e9 / switches, own: own / pairs as f64 * 100.0, peak_mb })
}

/// The table's rows about waits.
pub(crate) fn waiting(table: &mut Table) {
    let file = scratch().join("bench.flametop").to_string_lossy().into_owned();
    let other = scratch().join("bench.perf").to_string_lossy().into_owned();
    let ours = |target: &'static [&'static str]| {
        let mut words = vec![FLAMETOP, "record", "--off-cpu", "--force", "-o", &file];
        words.extend(target);
        words
    };
    let programs: [(_, _, _, Option<(f64, f64)>); 3] = [
        ("all switches", "flametop", ours(&[]), Some((5.0, 1000.0))),
        ("switches of another process only", "flametop", ours(&["-p", "1"]), Some((5.0, 300.0))),
        ("all switches", "perf sched record", vec!["perf", "sched", "record", "-a", "-o", &other], None),
    ];
    for (what, program, words, target) in programs {
        // The kernel's count of BPF time costs time, too. So it is off while the trips are timed.
        let Some(timed) = beside(&words, PAIRS) else {
            table.failed(&format!("{what}: {program}"));
            continue;
        };
        let counted = {
            let _stats = BpfStats::switch_on();
            beside(&words, 1)
        };
        let bpf = counted.map_or(0.0, |counted| counted.bpf);
        table.add(Line {
            what: format!("a byte to and fro between two threads, beside a look at {what}"),
            program,
            figure: format!(
                "{:.1} % slower; {bpf:.0} ns BPF a switch; own CPU {:.1} %, peak {:.0} MB",
                timed.slower, timed.own, timed.peak_mb
            ),
            target: target.map_or(String::new(), |(slower, bpf)| format!("{slower} %, {bpf} ns")),
            held: target.map(|(slower, most)| timed.slower <= slower && bpf <= most),
        });
    }
}
