//! The live view over a generated profile: any number of distinct stacks, and new samples all the time.
//! `benches/table` presses keys on it.
//!
//! ```text
//! cargo run --release --example live_like -- STACKS [SAMPLES_A_SECOND] < FILE.folded     leave with q
//! ```
//!
//! The stacks come from the file (`examples/generate_folded.rs` makes one). Each is sampled once before the screen opens. Then samples
//! of random stacks come in every 100 ms, behind the same lock, engine and screen as in a session. Only the kernel and the symbolizer
//! are missing.

// A tool for developers: it reports errors by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::BufRead;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use flametop::profile::{
    Capabilities, Cpu, Engine, EventSource, FrameId, FrameKind, LabelId, Limits, Names, Profile, Query, Request, Sample, StackId,
    Tgid, Thread, ThreadIndex, Tid, Timestamp, UserEnd,
};
use flametop::session::answer_requests;
use flametop::ui::{App, Depth, Link, SaveOffer, Status, Theme};
use tokio::sync::{mpsc, watch};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let stacks: usize = arguments.next().and_then(|text| text.parse().ok()).expect("how many stacks?");
    let rate: usize = arguments.next().map_or(2000, |text| text.parse().expect("how many samples a second?"));
    let names = Arc::new(Names::default());
    // Practically without bounds, so that no sample is dropped while keys are timed.
    let mut profile = Profile::new(Limits { window: u64::MAX, memory: usize::MAX - 1 });
    let known = fill(&mut profile, &names, stacks);
    let profile = Arc::new(RwLock::new(profile));
    feed(Arc::clone(&profile), known, rate);

    let (snapshots, new_snapshots) = watch::channel(Arc::default());
    let status = Status { host: "made up".into(), frequency: 997, cpus: 2, live: true, ..Status::default() };
    let (_status, new_status) = watch::channel(status);
    let (_events, events) = mpsc::channel(1);
    let (requests, mut new_requests) = watch::channel(Request::default());
    let (saves, _saves) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(flametop::ui::Stop::No);
    let ((listings, _listings), (places, _places)) = (watch::channel(None), watch::channel(None));
    let (snapshots_end, status_end, stop_end) = (new_snapshots, new_status, stopped.clone());
    let (orders, _orders) = mpsc::unbounded_channel();
    let link =
        Link { snapshots: snapshots_end, status: status_end, events, requests, listings, places, saves, orders, stop: stop_end };
    let theme = Theme { depth: Depth::Indexed, dark: true, ascii: false, ..Theme::default() };
    let app = App::new(
        Arc::clone(&names),
        theme,
        Query::default(),
        Capabilities::LIVE,
        SaveOffer { name: || "made-up.svg".to_owned(), endings: Vec::new() },
    );

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("no threads");
    let handle = runtime.handle().clone();
    let engine = std::thread::spawn(move || {
        let mut engine = Engine::new(names, Arc::default(), profile);
        answer_requests(&mut engine, &mut new_requests, &snapshots, &stopped, None, &handle);
    });
    runtime.block_on(flametop::ui::run(app, link)).expect("the terminal failed");
    stop.send_replace(flametop::ui::Stop::Asked);
    engine.join().expect("the engine failed");
}

/// Reads stacks from standard input and samples each of them once.
fn fill(profile: &mut Profile, names: &Names, wanted: usize) -> Vec<(ThreadIndex, StackId)> {
    let mut known = Vec::new();
    for line in std::io::stdin().lock().lines().take(wanted) {
        let line = line.expect("standard input cannot be read");
        let stack = line.rsplit_once(' ').map_or(&*line, |(stack, _)| stack);
        let mut parts = stack.split(';');
        let process = names.labels.intern(parts.next().unwrap_or(""), "", FrameKind::Process);
        let thread = Thread { tgid: Tgid(process.0 + 1), tid: Tid(process.0 + 1), process, name: process, ..Thread::default() };
        let frames: Vec<FrameId> = parts.map(|part| names.intern_named(name(names, part))).collect();
        let place = (profile.threads.intern(thread), profile.stacks.intern(frames));
        profile.samples.push(sample(place));
        known.push(place);
    }
    known
}

fn name(names: &Names, part: &str) -> LabelId {
    names.labels.intern(part, "", FrameKind::User)
}

fn sample((thread, stack): (ThreadIndex, StackId)) -> Sample {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let time = Timestamp(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs());
    let (source, user_end) = (EventSource::CLOCK, UserEnd::FramePointerEnd);
    Sample { time, stack, thread, cpu: Cpu(0), source, user_end, ..Sample::default() }
}

/// Adds samples of known stacks, as the collector thread would.
fn feed(profile: Arc<RwLock<Profile>>, known: Vec<(ThreadIndex, StackId)>, rate: usize) {
    std::thread::spawn(move || {
        let mut random: usize = 42;
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let mut profile = profile.write().expect("the engine failed");
            for _ in 0..rate / 10 {
                // Knuth's MMIX generator; its upper bits are good enough.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if let Some(place) = known.get((random >> 20) % known.len().max(1)) {
                    profile.samples.push(sample(*place));
                }
            }
        }
    });
}
