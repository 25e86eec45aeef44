//! The live view: of everything, of some processes, or of a command.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;

use crate::cli;
use crate::formats::save::{SaveError, create};
use crate::profile::{Query, Target, Tgid};
use crate::ui::{App, Event, Status};

use super::child::{Child, Output, Terms, read_lines};
use super::cost::Cost;
use super::link::ends;
use super::sampling::{Ended, LIVE_WINDOW, Sampling, Shared, limits};
use super::{default_file, runtime, theme};

/// Runs the live view until the reader quits.
pub(super) fn run(options: cli::Live) -> Result<()> {
    need_a_terminal()?;
    let runtime = runtime()?;
    let shared = Shared::new(limits(&options.sampling, Some(LIVE_WINDOW)), &runtime);
    let mut child = start_child(&options)?;
    let output = child.as_mut().and_then(|child| child.output.take());
    let has_pane = output.is_some();
    let mut sampling = Sampling::start(&options.sampling, child, &shared)?;
    let target = Target { tgids: options.sampling.pids.iter().copied().map(Tgid).collect(), ..Target::default() };
    let query = Query { target: if options.program.is_empty() { target } else { Target::default() }, ..Query::default() };
    let mut app = App::new(Arc::clone(&shared.names), theme(&options.looks), query, default_file());
    app.output_open = has_pane;

    let (ends, link) = ends();
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
    let output = match options.output.as_path() {
        path if path == Path::new("pane") => Output::Pane,
        path if path == Path::new("leave") => Output::Leave,
        path => match create(path) {
            Err(SaveError::Exists { .. }) => bail!("`{}` exists; choose another name or remove it", path.display()),
            created => Output::File(created?),
        },
    };
    Child::start(&options.program, output, Terms::watched()).map(Some)
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
