//! Stacks that are made to be expensive to walk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flametop::collector::{Batch, Collector, CollectorOptions};
use flametop::profile::UserEnd;

use super::common::{Running, alone};
use super::{Lair, SOON, Witness, attacker};

/// Counts the time of BPF programs while it lives.
struct BpfStats(String);

const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl BpfStats {
    fn on() -> BpfStats {
        let before = std::fs::read_to_string(BPF_STATS).expect("the kernel counts the time of BPF programs");
        std::fs::write(BPF_STATS, "1").unwrap();
        BpfStats(before)
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        let _ = std::fs::write(BPF_STATS, self.0.trim());
    }
}

/// Nanoseconds and runs, so far, of all programs that a process holds.
fn bpf_time(pid: u32) -> (u64, u64) {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs");
    let infos = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    infos.fold((0, 0), |(time, runs), info| {
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or_default();
        (time + field("run_time_ns:"), runs + field("run_cnt:"))
    })
}

/// Share of the CPUs, in percent, that all programs together may take, by frequency. Walks get 8, and each at least 2 µs. The
/// remainder is for the other work of a sample. At 25,000 Hz there are 40 µs between two samples. There the programs take 9 % on
/// an idle machine, and up to 16 % if other programs compete for the caches.
const MOST_PERCENT: [(u32, f64); 2] = [(999, 12.0), (25_000, 20.0)];

/// Counts of samples by process and by the number of their [`UserEnd`].
type Ends = BTreeMap<(u32, u8), u64>;

/// Drains the collector for some time and counts how stacks end.
fn ends_of(collector: &mut Collector, time: Duration) -> Ends {
    let (mut ends, mut batch) = (Ends::new(), Batch::default());
    let until = Instant::now() + time;
    while Instant::now() < until {
        collector.wait(Duration::from_millis(20));
        collector.drain(&mut batch).unwrap();
        for sample in &batch.samples {
            *ends.entry((sample.thread.tgid.0, sample.user_end as u8)).or_default() += 1;
        }
    }
    ends
}

/// Number of samples of some processes, and the percentage of them that end in this way.
fn share(ends: &Ends, pids: &[u32], of: UserEnd) -> (u64, f64) {
    let count = |how: &dyn Fn(u8) -> bool| -> u64 {
        ends.iter().filter(|((pid, end), _)| pids.contains(pid) && how(*end)).map(|(_, count)| count).sum()
    };
    let all = count(&|_| true);
    (all, count(&|end| end == of as u8) as f64 * 100.0 / all.max(1) as f64)
}

/// Samples while a program on each CPU has a stack of 2,040 frames, each on another page and in another mapping. A run of the BPF
/// program takes `most` at most, and all runs together [`MOST_PERCENT`]. The attackers' stacks are cut, and say why. A program of
/// root's that starts then has whole stacks as soon as its table is there.
fn deep_stacks_take_a_bounded_time(witness: &str, frequency: u32, most: Duration) {
    let _alone = alone();
    let _stats = BpfStats::on();
    let deep = attacker("deep.c", &["-O2"]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let start = |_| {
        let lair = Lair::new();
        (lair.start(&deep.path, &["40"]), lair)
    };
    let attackers: Vec<(Running, Lair)> = (0..cpus).map(start).collect();
    std::thread::sleep(Duration::from_millis(300));
    let options = CollectorOptions { frequency, ..CollectorOptions::default() };
    let mut collector = Collector::start(options, Arc::default(), Arc::default()).expect("a collector starts");
    ends_of(&mut collector, Duration::from_millis(500));
    let witness = Witness::start_unseen(witness);
    let pid = witness._running.pid();
    let patience = Instant::now() + Duration::from_secs(60);
    while !ends_of(&mut collector, Duration::from_millis(200)).contains_key(&(pid, UserEnd::Root as u8)) {
        assert!(Instant::now() < patience, "the witness has no table");
    }
    // Samples from before its table may still be in the buffer.
    ends_of(&mut collector, Duration::from_millis(500));

    let (begin, before) = (Instant::now(), bpf_time(std::process::id()));
    let of_attackers: Vec<u32> = attackers.iter().map(|(attacker, _)| attacker.pid()).collect();
    let ends = ends_of(&mut collector, Duration::from_secs(2));
    let (took, after) = (begin.elapsed(), bpf_time(std::process::id()));
    let end = Instant::now();
    drop(collector);
    assert!(end.elapsed() < SOON, "the end took {:?}", end.elapsed());

    let (time, runs) = (after.0 - before.0, after.1 - before.1);
    let each = Duration::from_nanos(time / runs.max(1));
    let percent = time as f64 * 100.0 / (took.as_nanos() as f64 * cpus as f64);
    let (attacked, cut) = share(&ends, &of_attackers, UserEnd::Time);
    let (witnessed, whole) = share(&ends, &[pid], UserEnd::Root);
    println!(
        "at {frequency} Hz: {runs} runs of {each:?} each, {percent:.1} % of {cpus} CPUs; of the attackers' {attacked} stacks {cut:.1} % \
         were cut, of the witness's {witnessed} {whole:.1} % are whole"
    );
    assert!(each <= most, "a run takes {each:?}");
    let (_, most) = MOST_PERCENT.into_iter().find(|(of, _)| *of == frequency).unwrap();
    assert!(percent <= most, "{percent:.1} % of the CPUs");
    assert!(attacked > 100 && cut >= 95.0, "{ends:?}");
    assert!(witnessed >= 20 && whole >= 99.0, "{ends:?}");
}

#[test]
fn deep_stacks_take_a_bounded_time_at_999_hz() {
    deep_stacks_take_a_bounded_time("near-deep-999", 999, Duration::from_micros(100));
}

#[test]
fn deep_stacks_take_a_bounded_time_at_25000_hz() {
    if std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap().trim().parse::<u32>().unwrap() < 25_000 {
        panic!("set sysctl kernel.perf_event_max_sample_rate=25000 or more, which is the kernel's default of 100000");
    }
    deep_stacks_take_a_bounded_time("near-deep-25000", 25_000, Duration::from_micros(12));
}
