//! The live view of the whole machine, of some processes, or of a command.

use crate::session::clock::{local_offset, save_offer, to_wall};
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
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch};

use crate::allocator::keep_little_memory;
use crate::cli;
use crate::collector::{CgroupPaths, Cgroups, features};
use crate::formats::save::{SaveError, create};
use crate::locks;
use crate::privileges;
use crate::profile::{Capabilities, Query, Request, Target, Tgid, UserId};
use crate::ui::{self, App, Event, Message, Span, Status};

use super::child::{Child, Ending, Output, Terms, read_lines};
use super::cost::{Cost, CostOfProbes, own_heap, own_memory};
use super::options::duties;
use super::runtime::runtime;
use super::sampling::{END_WITHIN, Ended, LIVE_WINDOW, Sampling, Watcher};
use super::screen::ends;
use super::terminal::need_a_terminal;
use super::user::{User, all_users, runs_as_root};
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
    let query = Query { target, source, folding: folding(&options.sampling), ..Query::default() };
    let mut app = App::new(shared.names(), theme, query, Capabilities::LIVE, save_offer());
    app.scene.keys = settings.keys;
    // The screen starts with a command's whole life, or with a machine's last minute.
    if !has_command {
        app.scene.begin_with(Span::Last(NOW));
    }
    app.scene.everything = family;
    app.scene.output_open = has_pane;
    app.scene.message = as_root.map(|text| Message { text, bad: false });

    let first = first_status(&sampling.watcher(), options.sampling.frequency);
    app.scene.status = first.clone();
    let (ends, link) = ends();
    ends.status.send_replace(first.clone());
    if let Some(output) = output {
        show_output(output, &runtime, ends.events.clone());
    }
    let outcome = runtime.block_on(async {
        let engine = ends.spawn_engine(shared.engine(), true)?;
        ends.spawn_saver(&shared, options.looks.icicle);
        ends.spawn_readers(&shared);
        spawn(&ends, sampling.orders(), watched);
        ends.spawn_signals()?;
        // Runs outside the drawing thread, which reads no files and waits for no lock.
        let channels = (ends.requests.clone(), ends.status.clone());
        let watching = tokio::spawn(watch_status(sampling.watcher(), shared.clone(), first, local_offset, channels));
        let outcome = tokio::select! {
            outcome = ui::run(app, link) => outcome.context("the screen failed"),
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
    sampling: Watcher,
    shared: Shared,
    first: Status,
    local_offset: Option<i64>,
    (requests, status): (watch::Receiver<Request>, watch::Sender<Status>),
) -> Result<()> {
    let mut cost = Cost::new();
    let mut probes = CostOfProbes::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut stood = None;
    let mut around = Around::default();
    loop {
        tick.tick().await;
        around = around.look(&shared).await;
        let ended = sampling.ended();
        let told = sampling.told();
        if let Some(Ended::Failed(why)) = ended {
            bail!("sampling stopped: {why}");
        }
        let own_cpu = cost.measure();
        let probes_cpu = probes.measure(&told.events);
        let (own_memory, own_mapped) = own_memory();
        // It takes about a millisecond, so it is done only while the memory figures are on screen.
        let own_heap = if requests.borrow().memory { own_heap() } else { None };
        let elapsed = if ended.is_some() { stood.unwrap_or_default() } else { sampling.since.elapsed().as_secs() };
        stood = Some(elapsed);
        status.send_replace(Status {
            clock: told.ticks,
            events: told.events.into(),
            online: Arc::clone(&around.online),
            cgroups: Arc::clone(&around.paths),
            users: Arc::clone(&around.users),
            wall: local_offset.and_then(to_wall),
            elapsed,
            live: ended.is_none(),
            ended: ended.map(|ended| match ended {
                Ended::Target(Ending { short, words, status }) => ui::Ended { short, words, failed: status != 0 },
                Ended::Failed(words) => ui::Ended { short: "ended".to_owned(), words, failed: true },
            }),
            own_cpu,
            probes_cpu,
            own_memory,
            own_mapped,
            own_heap,
            own_left_out: told.own_left_out,
            problems: problems(&shared),
            notes: told.notes,
            unread: told.unread,
            ..first.clone()
        });
    }
}

/// Returns the status before anything has been measured. Nothing in it takes time to read, so the first picture has it.
fn first_status(sampling: &Watcher, frequency: u32) -> Status {
    let told = sampling.told();
    Status {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        source: format!("{} {frequency} Hz", told.clock),
        clock: told.ticks,
        events: told.events.into(),
        frequency,
        cpus: sampling.cpus,
        live: true,
        ..Status::default()
    }
}

/// Facts for pickers and tables that samples lack: the CPUs that are on, the names of cgroups and users.
#[derive(Default)]
struct Around {
    cgroups: Option<Cgroups>,
    paths: Arc<CgroupPaths>,
    online: Arc<[u16]>,
    users: Arc<FxHashMap<UserId, Arc<str>>>,
    /// Reading many cgroups takes time: at most a fiftieth of all time is spent on it.
    rest_until: Option<Instant>,
}

impl Around {
    /// Reads the facts again, on a thread that may wait for files.
    async fn look(mut self, shared: &Shared) -> Around {
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return self;
        }
        let profile = Arc::clone(&shared.profile);
        let looked = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let wanted = locks::read(&profile).threads.cgroups();
            self.paths = self.cgroups.get_or_insert_with(Cgroups::new).paths(&wanted);
            self.online = features::cpus_on().into();
            if self.users.is_empty() {
                self.users = Arc::new(all_users());
            }
            self.rest_until = Some(Instant::now() + began.elapsed() * 50);
            self
        });
        looked.await.unwrap_or_default()
    }
}

fn problems(shared: &Shared) -> Vec<ui::Problem> {
    let describe = |problem: crate::symbolize::Problem| ui::Problem {
        path: problem.path.to_string(),
        reason: problem.reason.to_string(),
        unnamed: problem.unnamed,
        remedy: problem.reason.remedy().to_owned(),
    };
    shared.symbolizer.problems().into_iter().take(100).map(describe).collect()
}
