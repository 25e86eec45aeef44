//! Measures walks of user stacks on this machine: why and where they end, and the cost of a sample in the kernel.
//!
//! `cargo run --release --example walk -- [SECONDS [HZ [tables|copied|anew|fp|nothing [PID]]]]`, as root, beside some load.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flametop::collector::{Batch, Collector, CollectorOptions, KernelNames, ObjectState, Targets, Walk};
use flametop::profile::{Frame, FrameId, Names, ObjectId, Processes, Tgid, UserEnd};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(5, |text| text.parse().expect("seconds"));
    let frequency: u32 = arguments.next().map_or(99, |text| text.parse().expect("samples a second"));
    let walk = match arguments.next().as_deref() {
        Some("fp") => Walk::FramePointers,
        Some("nothing") => Walk::Nothing,
        Some("anew") => Walk::Anew,
        Some("copied") => Walk::Copied,
        _ => Walk::Tables,
    };
    let target = arguments.next().map(|text| Tgid(text.parse().expect("a process")));
    let targets = target.map_or(Targets::All, |target| Targets::Processes(vec![target]));
    let names = Arc::new(Names::default());
    let options = CollectorOptions { frequency, walk, targets, ..Default::default() };
    let mut collector = Collector::start(options, names.clone(), Arc::new(Processes::default())).expect("this needs root");
    let mut batch = Batch::default();
    let mut ends: BTreeMap<UserEndOrder, u64> = BTreeMap::new();
    let mut places: BTreeMap<(UserEndOrder, String), u64> = BTreeMap::new();
    let mut samples = 0u64;
    let mut deepest = 0;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        collector.wait(Duration::from_millis(100));
        collector.drain(&mut batch).expect("drained");
        for sample in &batch.samples {
            samples += 1;
            let end = UserEndOrder(sample.user_end as u8);
            *ends.entry(end).or_default() += 1;
            deepest = deepest.max(sample.frames.len());
            if !matches!(sample.user_end, UserEnd::Root | UserEnd::KernelThread) {
                let outermost = batch.frames[sample.frames.clone()].first().and_then(|id| names.frames.get(*id));
                let place = outermost.map_or("no frame".to_string(), |frame| {
                    let object = names.objects.get(frame.object()).map(|object| object.path.to_string()).unwrap_or_default();
                    format!("{object}+{:#x}", frame.address())
                });
                *places.entry((end, place)).or_default() += 1;
            }
        }
    }
    let frames = (0..names.frames.len()).filter_map(|id| names.frames.get(FrameId(u32::try_from(id).ok()?)));
    let kernel: Vec<u64> = frames.filter(|frame| frame.object() == ObjectId::KERNEL).map(Frame::called_from).collect();
    match KernelNames::load().and_then(|mut program| program.symbols(&kernel)) {
        Ok(named) => println!("{} of {} kernel addresses have names", named.iter().flatten().count(), kernel.len()),
        Err(error) => println!("the kernel tells no names: {error}"),
    }
    println!("{samples} samples, deepest {deepest}; lost {:?}", batch.losses);
    for (end, count) in &ends {
        println!(
            "{count:>8}  {:>6.2} %  {}",
            *count as f64 * 100.0 / samples.max(1) as f64,
            UserEnd::from_wire(end.0).explain().0
        );
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for ((end, place), count) in places.into_iter().take(25) {
        println!("{count:>8}  {:?} in {place}", UserEnd::from_wire(end.0));
    }
    let walked = collector.walked();
    let each = |count: u64| count as f64 / samples.max(1) as f64;
    println!(
        "a sample: {:.1} user frames, of which {:.1} as before, {:.2} misses of mappings, {:.2} of rules, {:.2} guesses; {} stacks again, of copies",
        each(walked.frames),
        each(walked.retraced),
        each(walked.mapping_misses),
        each(walked.rule_misses),
        each(walked.guesses),
        walked.moved
    );
    println!("{:?}", collector.tables());
    for object in collector.objects() {
        if let ObjectState::Without(why) = object.state {
            println!("without: {}: {why}", object.path);
        }
    }
    for (time, count) in bpf_cost() {
        println!("BPF: {count} runs, {} ns each; {} ns for each sample", time / count, time / samples.max(1));
    }
}

/// Makes ends sortable by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UserEndOrder(u8);

/// Returns the kernel's figures for the programs that we hold: nanoseconds and runs. The kernel counts only with
/// `sysctl kernel.bpf_stats_enabled=1`.
fn bpf_cost() -> Vec<(u64, u64)> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fdinfo") else { return Vec::new() };
    let infos = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let field = |info: &str, name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.trim_start_matches(':').trim().parse::<u64>().ok())
    };
    infos.filter_map(|info| Some((field(&info, "run_time_ns")?, field(&info, "run_cnt").filter(|count| *count > 0)?))).collect()
}
