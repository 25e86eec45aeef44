//! The live view, and what it shares with the view of a file: the engine's thread, saving, signals.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::cli;
use crate::formats::save::{Overwrite, SaveError, save};
use crate::formats::svg::SvgOptions;
use crate::formats::{FormatError, folded, save::Format, svg};
use crate::profile::{Engine, LabelTable, Query, Request, Snapshot, Target, Tgid};
use crate::ui::{App, Event, Link, Place, SaveOrder, Saved, Status};

use super::child::{Child, Output, read_lines};
use super::sampling::{Ended, Sampling, Shared, limits};
use super::{default_file, now, runtime, theme};

/// From one picture to the next while samples come in: four a second are promised, and threads wake late on a machine that is
/// busy. More often at first.
const PICTURE_EVERY: Duration = Duration::from_millis(200);
const PICTURE_AT_FIRST: Duration = Duration::from_millis(60);

/// Runs the live view until the reader quits.
pub(super) fn run(options: cli::Live) -> Result<()> {
    need_a_terminal()?;
    let runtime = runtime()?;
    let shared = Shared::new(limits(&options.sampling), &runtime);
    let mut child = start_child(&options)?;
    let output = child.as_mut().and_then(|child| child.output.take());
    let has_pane = output.is_some();
    let mut sampling = Sampling::start(&options.sampling, child, &shared)?;
    let target = Target { tgids: options.sampling.pids.iter().copied().map(Tgid).collect(), ..Target::default() };
    let query = Query { target: if options.program.is_empty() { target } else { Target::default() }, ..Query::default() };
    let mut app = App::new(Arc::clone(&shared.names), theme(&options.looks), query, default_file());
    app.output_open = has_pane;

    let (ends, link) = ends(&shared);
    if let Some(output) = output {
        let events = ends.events.clone();
        runtime.spawn_blocking(move || read_lines(output, |lines| events.send(Event::Output(lines)).is_ok()));
    }
    let outcome = runtime.block_on(async {
        let engine = ends.spawn_engine(&shared, true)?;
        ends.spawn_saver(&shared);
        ends.spawn_signals()?;
        let watching = watch_status(&sampling, &shared, &options.sampling, ends.status.clone());
        let screen = crate::ui::run(app, link);
        let outcome = tokio::select! {
            outcome = screen => outcome.context("the terminal failed"),
            outcome = watching => outcome,
        };
        drop(engine);
        outcome
    });
    sampling.finish();
    ends.stop();
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

/// Refuses to draw where nobody could see it.
pub(super) fn need_a_terminal() -> Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!("standard output is not a terminal, so there is nowhere to draw; `flametop record -o FILE` writes to a file");
    }
    Ok(())
}

fn start_child(options: &cli::Live) -> Result<Option<Child>> {
    if options.program.is_empty() {
        return Ok(None);
    }
    let output = match options.output.as_str() {
        "pane" => Output::Pane,
        "leave" => Output::Leave,
        path => Output::File(
            std::fs::File::create(path).with_context(|| format!("failed to create {path} for the command's output"))?,
        ),
    };
    Child::start(&options.program, output, false).map(Some)
}

/// The session's ends of everything that the screen is linked to.
pub(super) struct Ends {
    snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) status: watch::Sender<Status>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    requests: watch::Receiver<Request>,
    saves: std::cell::Cell<Option<mpsc::UnboundedReceiver<SaveOrder>>>,
    stop: watch::Sender<bool>,
}

/// Both ends of everything that the screen is linked to.
pub(super) fn ends(_shared: &Shared) -> (Ends, Link) {
    let (snapshots, new_snapshots) = watch::channel(Arc::default());
    let (status, new_status) = watch::channel(Status::default());
    let (events, new_events) = mpsc::unbounded_channel();
    let (requests, new_requests) = watch::channel(Request::default());
    let (saves, new_saves) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let link = Link { snapshots: new_snapshots, status: new_status, events: new_events, requests, saves, stop: stopped };
    let ends = Ends { snapshots, status, events, requests: new_requests, saves: std::cell::Cell::new(Some(new_saves)), stop };
    (ends, link)
}

impl Ends {
    /// Ends the screen and the engine.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Answers requests on a thread of its own: the newest at once, and the same again as samples come in if `live`.
    pub(super) fn spawn_engine(&self, shared: &Shared, live: bool) -> Result<std::thread::JoinHandle<()>> {
        let mut engine = Engine::new(Arc::clone(&shared.names), Arc::clone(&shared.processes), Arc::clone(&shared.profile));
        let mut requests = self.requests.clone();
        let snapshots = self.snapshots.clone();
        let stop = self.stop.clone();
        let handle = tokio::runtime::Handle::current();
        let body = move || {
            // A panic here would leave a picture that never changes: better to end.
            let _end = StopWhenDropped(stop.clone());
            answer_requests(&mut engine, &mut requests, &snapshots, &stop.subscribe(), live, &handle);
        };
        std::thread::Builder::new().name("flametop-engine".to_owned()).spawn(body).context("failed to start a thread")
    }

    /// Saves what the screen asks for, off the drawing thread.
    pub(super) fn spawn_saver(&self, shared: &Shared) {
        let Some(mut saves) = self.saves.take() else { return };
        let (names, events) = (Arc::clone(&shared.names), self.events.clone());
        tokio::task::spawn_blocking(move || {
            while let Some(order) = saves.blocking_recv() {
                let saved = match save_view(&order, &names.labels) {
                    Ok(bytes) => Saved::Done(order.path, bytes),
                    Err(SaveError::Exists { .. }) => Saved::Exists(order.path),
                    Err(error) => Saved::Failed(error.to_string()),
                };
                if events.send(Event::Saved(saved)).is_err() {
                    return;
                }
            }
        });
    }

    /// Ends the screen in order when a signal asks for it.
    pub(super) fn spawn_signals(&self) -> Result<()> {
        for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()] {
            let mut caught = signal(kind).context("failed to watch for signals")?;
            let stop = self.stop.clone();
            tokio::spawn(async move {
                caught.recv().await;
                stop.send_replace(true);
            });
        }
        Ok(())
    }
}

/// Answers the newest request as soon as it comes, and the same again as samples come in if `live`; ends when `stop` turns
/// true or nobody asks or listens any more. Public for `examples/live_like.rs`, which measures with it.
pub fn answer_requests(
    engine: &mut Engine,
    requests: &mut watch::Receiver<Request>,
    snapshots: &watch::Sender<Arc<Snapshot>>,
    stop: &watch::Receiver<bool>,
    live: bool,
    handle: &tokio::runtime::Handle,
) {
    let began = Instant::now();
    while !*stop.borrow() {
        let request = requests.borrow_and_update().clone();
        let answered = Instant::now();
        if snapshots.send(Arc::new(engine.answer(&request, now()))).is_err() {
            return;
        }
        let pause = match (live, began.elapsed() < Duration::from_secs(2)) {
            (false, _) => Duration::from_secs(3600),
            (true, true) => PICTURE_AT_FIRST,
            // Never more than a quarter of the time is spent on pictures.
            (true, false) => PICTURE_EVERY.saturating_sub(answered.elapsed()).max(answered.elapsed() * 3),
        };
        let changed = handle.block_on(async { tokio::time::timeout(pause, requests.changed()).await });
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}

struct StopWhenDropped(watch::Sender<bool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Writes what is seen.
fn save_view(order: &SaveOrder, labels: &LabelTable) -> Result<u64, SaveError> {
    let format = Format::of(&order.path)?;
    let overwrite = if order.overwrite { Overwrite::Yes } else { Overwrite::No };
    let zoom = Place { path: order.zoom.clone(), rest: false };
    let (root, _) = zoom.find(&order.tree);
    let saved = save(&order.path, overwrite, |out| -> Result<(), FormatError> {
        match format {
            Format::Svg => {
                let options = SvgOptions { title: order.title.clone(), inverted: order.root_on_top, ..SvgOptions::default() };
                svg::write(&order.tree, labels, root, &options, out).map(drop)
            }
            Format::Folded => folded::write(&order.tree, labels, root, folded::FoldedOptions::default(), out).map(drop),
        }
    })?;
    Ok(saved.bytes)
}

/// Tells the screen once a second how the run stands. Comes back only if sampling failed.
async fn watch_status(
    sampling: &Sampling,
    shared: &Shared,
    options: &cli::Sampling,
    status: watch::Sender<Status>,
) -> Result<()> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut cost = Cost::new();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut stood = None;
    loop {
        tick.tick().await;
        let ended = sampling.ended();
        if let Some(Ended::Failed(why)) = ended {
            bail!("sampling stopped: {why}");
        }
        let (own_cpu, own_memory) = cost.measure();
        let elapsed = if ended.is_some() { stood.unwrap_or_default() } else { sampling.since.elapsed().as_secs() };
        stood = Some(elapsed);
        status.send_replace(Status {
            host: host.clone(),
            source: format!("{} {} Hz", sampling.event, options.frequency),
            frequency: options.frequency,
            cpus: sampling.cpus,
            elapsed,
            live: ended.is_none(),
            ended: ended.map(|ended| match ended {
                Ended::Target(how) | Ended::Failed(how) => how,
            }),
            own_cpu,
            own_memory,
            problems: problems(shared),
            notes: Vec::new(),
        });
    }
}

fn problems(shared: &Shared) -> Vec<(String, String, String)> {
    let describe = |problem: crate::symbolize::Problem| {
        let why = format!("{}; {} frames without a name", problem.reason, problem.unnamed);
        (problem.path.to_string(), why, problem.reason.remedy().to_owned())
    };
    shared.symbolizer.problems().into_iter().take(100).map(describe).collect()
}

/// What flametop itself costs.
pub(super) struct Cost {
    cpu: Duration,
    at: Instant,
}

impl Cost {
    pub(super) fn new() -> Cost {
        Cost { cpu: own_cpu_time(), at: Instant::now() }
    }

    /// CPU in per cent of one since the last call, and resident bytes.
    pub(super) fn measure(&mut self) -> (f64, usize) {
        let (cpu, at) = (own_cpu_time(), Instant::now());
        let wall = at.duration_since(self.at).as_secs_f64().max(0.001);
        let share = (cpu.saturating_sub(self.cpu)).as_secs_f64() * 100.0 / wall;
        (self.cpu, self.at) = (cpu, at);
        (share, own_memory())
    }
}

/// CPU time of all threads of this process.
pub(super) fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Resident bytes: the second number of /proc/self/statm, in pages.
pub(super) fn own_memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size()
}
