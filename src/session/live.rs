//! The live view of the whole machine, of some processes, or of a command.

use crate::session::clock::{local_offset, save_offer};
use crate::session::event_commands::spawn;
use crate::session::looks::theme;
use crate::session::options::{folding, limits};
use crate::session::shared::Shared;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::sync::{mpsc, watch};

use crate::allocator::keep_little_memory;
use crate::cli;
use crate::formats::save::{SaveError, create};
use crate::locks;
use crate::privileges;
use crate::profile::{Capabilities, Query, Request, Target, Tgid};
use crate::ui::{self, App, Event, Message, Span, Status};

use super::child::{Child, Output, Terms, read_lines};
use super::options::duties;
use super::runtime::runtime;
use super::sampling::{END_WITHIN, Ended, LIVE_WINDOW, Sampling};
use super::screen::ends;
use super::status::StatusMaker;
use super::terminal::need_a_terminal;
use super::user::{User, runs_as_root};
use super::{config, event_targets};

/// The newest lines of a command's output that its pane keeps, and the interval between two updates of the pane.
const OUTPUT_LINES: usize = 1000;
const OUTPUT_EVERY: Duration = Duration::from_millis(100);

/// Seconds that the screen shows of a whole machine: long enough for good shares, short enough to be "now".
const NOW: u64 = 60;

/// Runs the live view until the reader quits.
pub(super) fn run(options: cli::Live) -> Result<()> {
    need_a_terminal()?;
    let settings = config::load(options.looks.config.as_deref())?;
    let theme = theme(&options.looks, &settings);
    privileges::keep(duties(&options.sampling, &options.program, true));
    let local_offset = local_offset();
    // Set before other threads start, because a thread keeps the arena that it began with.
    keep_little_memory();
    let runtime = runtime()?;
    let shared = Shared::live(limits(&options.sampling, Some(LIVE_WINDOW)), &runtime);
    let mut child = start_child(&options)?;
    let has_command = child.is_some();
    let output = child.as_mut().and_then(|child| child.output.take());
    let has_pane = output.is_some();
    let family = child.as_ref().map(|child| match options.sampling.pids.len() {
        0 => format!("{} and children", child.short_name()),
        others => format!("{}, {others} more, and children", child.short_name()),
    });
    let watched = options.sampling.pids.iter().copied().chain(child.as_ref().map(|child| child.tgid().0)).collect();
    let as_root = child.as_ref().filter(|_| options.user.is_none()).and_then(|child| runs_as_root(child.short_name()));
    let mut sampling = Sampling::start(&options.sampling, child, &shared)?;
    privileges::close();
    let target = Target { tgids: options.sampling.pids.iter().copied().map(Tgid).collect(), ..Target::default() };
    let target = if options.program.is_empty() { target } else { Target::default() };
    let source = event_targets::first(&options.sampling.events);
    let without_idle = !options.sampling.idle;
    let query = Query { target, source, folding: folding(&options.sampling), without_idle, ..Query::default() };
    let mut app = App::new(shared.names(), theme, query, Capabilities::LIVE, save_offer());
    app.scene.keys = settings.keys;
    // The screen starts with a command's whole life, or with a machine's last minute.
    if !has_command {
        app.scene.begin_with(Span::Last(NOW));
    }
    app.scene.everything = family;
    app.scene.output_open = has_pane;
    app.scene.message = as_root.map(|text| Message { text, bad: false });

    let maker = StatusMaker::new(sampling.watcher(), &shared, options.sampling.frequency, local_offset);
    app.scene.status = maker.first();
    let (ends, link) = ends();
    ends.status.send_replace(maker.first());
    if let Some(output) = output {
        show_output(output, &runtime, ends.events.clone());
    }
    let outcome = runtime.block_on(async {
        let engine = ends.spawn_engine(shared.engine(), None)?;
        ends.spawn_saver(&shared, options.looks.icicle);
        ends.spawn_readers(&shared);
        spawn(&ends, sampling.orders(), watched);
        ends.spawn_signals()?;
        // Runs outside the drawing thread, which reads no files and waits for no lock.
        let channels = (ends.requests.clone(), ends.status.clone());
        let watching = tokio::spawn(watch_status(maker, channels));
        let outcome = tokio::select! {
            outcome = ui::run(app, link) => outcome.map(drop).context("the screen failed"),
            outcome = watching => outcome.unwrap_or_else(|_| bail!("the thread that watches the run failed; please report this")),
        };
        drop(engine);
        outcome
    });
    // The line stays on the terminal, like that of time(1). There is no line for a command that flametop ends.
    let ended = sampling.ended();
    sampling.finish(Instant::now() + END_WITHIN);
    ends.stop();
    if let Some(Ended::Target(ending)) = ended.filter(|_| has_command && outcome.is_ok()) {
        drop(writeln!(std::io::stderr(), "flametop: {}", ending.words));
    }
    outcome
}

/// Reads the command's output as fast as it comes, and shows the newest lines ten times a second. A command that writes without end is not
/// held up; neither are keys and pictures.
fn show_output(output: File, runtime: &tokio::runtime::Handle, events: mpsc::Sender<Event>) {
    let newest = Arc::new(Mutex::new(Some(Vec::new())));
    let ring = Arc::clone(&newest);
    runtime.spawn_blocking(move || {
        let keep = |lines: Vec<String>| {
            let mut ring = locks::lock(&ring);
            let Some(kept) = ring.as_mut() else { return false };
            kept.extend(lines);
            let excess = kept.len().saturating_sub(OUTPUT_LINES);
            kept.drain(..excess);
            true
        };
        read_lines(output, keep);
    });
    runtime.spawn(async move {
        let mut tick = tokio::time::interval(OUTPUT_EVERY);
        loop {
            tick.tick().await;
            let lines = match locks::lock(&newest).as_mut() {
                Some(lines) if !lines.is_empty() => std::mem::take(lines),
                _ => continue,
            };
            if events.send(Event::Output(lines)).await.is_err() {
                // The pane is gone: the reader may stop.
                *locks::lock(&newest) = None;
                return;
            }
        }
    });
}

fn start_child(options: &cli::Live) -> Result<Option<Child>> {
    if options.program.is_empty() {
        return Ok(None);
    }
    let user = options.user.as_deref().map(User::find).transpose()?;
    let output = match options.output.as_path() {
        path if path == Path::new("pane") => Output::Pane,
        path if path == Path::new("leave") => Output::Leave,
        path => match create(path) {
            Err(SaveError::Exists { .. }) => bail!("`{}` exists; choose another name or remove it", path.display()),
            created => Output::File(created?),
        },
    };
    Child::start(&options.program, output, Terms::watched(), user.as_ref()).map(Some)
}

/// Sends the state of the run to the screen once a second. Returns only if sampling failed.
async fn watch_status(
    mut maker: StatusMaker,
    (requests, status): (watch::Receiver<Request>, watch::Sender<Status>),
) -> Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let looked = tokio::task::spawn_blocking(|| {
            maker.look_around();
            maker
        });
        maker = looked.await.context("looking at the machine failed; please report this")?;
        let memory = requests.borrow().memory;
        let (now, ended) = maker.make(memory);
        if let Some(Ended::Failed(why)) = ended {
            bail!("sampling stopped: {why}");
        }
        status.send_replace(now);
    }
}
