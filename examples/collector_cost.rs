//! Cost of the collector: `cargo run --release --example collector_cost -- [FREQUENCY [SECONDS]]`, as root, on a busy machine.
//! Prints the time of the start, the CPU time of draining, and the run time of the BPF program per sample
//! (the latter with `sysctl kernel.bpf_stats_enabled=1`).

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flametop::collector::{Batch, Collector, CollectorOptions};
use flametop::profile::{Names, ObjectId, Processes};

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let frequency = arguments.next().map_or(Ok(999), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let (names, processes) = (Arc::new(Names::default()), Arc::new(Processes::default()));
    let options = CollectorOptions { frequency, ..Default::default() };
    let started = Instant::now();
    let mut collector = Collector::start(options, names.clone(), processes.clone())?;
    println!(
        "start: {:?} with {} processes, {} on {} CPUs",
        started.elapsed(),
        processes.len(),
        collector.event_name(),
        collector.cpus()
    );

    let (mut samples, mut frames, mut unmapped, mut cpu, mut longest) = (0, 0, 0, Duration::ZERO, Duration::ZERO);
    let mut batch = Batch::default();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut lost_leaves = 0;
    let (mut warm_samples, mut warm_cpu) = (0, Duration::ZERO);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        let before = cpu_time();
        collector.drain(&mut batch)?;
        let spent = cpu_time() - before;
        cpu += spent;
        longest = longest.max(spent);
        samples += batch.samples.len();
        frames += batch.frames.len();
        unmapped += batch
            .frames
            .iter()
            .filter(|id| names.frames.get(**id).is_some_and(|frame| frame.object() == ObjectId::UNMAPPED))
            .count();
        for sample in &batch.samples {
            let leaf = batch.frames.get(sample.frames.clone()).and_then(|frames| frames.last());
            lost_leaves +=
                usize::from(leaf.and_then(|id| names.frames.get(*id)).is_some_and(|frame| frame.object() == ObjectId::UNMAPPED));
        }
        if batch.wanted.is_empty() {
            warm_samples += batch.samples.len();
            warm_cpu += spent;
        }
    }
    let each = |time: Duration, count: usize| time.as_nanos() / count.max(1) as u128;
    println!(
        "{samples} samples, {:.1} frames each, {unmapped} frames unmapped, {lost_leaves} of them innermost",
        frames as f64 / samples.max(1) as f64
    );
    println!("drain: {} ns CPU per sample, {longest:?} at most", each(cpu, samples));
    println!("drains without a new frame: {} ns CPU per sample ({warm_samples} samples)", each(warm_cpu, warm_samples));
    println!("losses: {:?}", batch.losses);
    println!("{} frames, {} objects, {} labels", names.frames.len(), names.objects.len(), names.labels.len());
    for program in libbpf_rs::query::ProgInfoIter::default().filter(|program| program.name == "take_sample") {
        if let Some(each) = program.run_time_ns.checked_div(program.run_cnt) {
            println!("BPF: {each} ns a run, {} runs", program.run_cnt);
        }
    }
    Ok(())
}
