//! Recording without a screen: samples for a while, then one file.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::formats::folded::{self, FoldedOptions};
use crate::formats::save::{Format, Overwrite, SaveError, check, save};
use crate::formats::svg::{self, SvgOptions};
use crate::profile::{CallTree, Engine, Request, Snapshot};

use super::child::{Child, Output};
use super::cost::{own_cpu_time, own_memory};
use super::sampling::{Ended, Sampling, Shared, limits};
use super::{now, runtime};

/// Longest wait for the last names before the file is written.
const NAMES_WITHIN: Duration = Duration::from_secs(20);

/// Records, and writes the file.
pub(super) fn run(options: cli::Record) -> Result<()> {
    // What cannot be written is said before anything is sampled.
    let overwrite = if options.force { Overwrite::Yes } else { Overwrite::No };
    let format = match check(&options.output, overwrite) {
        Err(SaveError::Exists { path }) => bail!("`{}` exists already; --force replaces it", path.display()),
        checked => checked?,
    };
    let runtime = runtime()?;
    let shared = Shared::new(limits(&options.sampling), &runtime);
    let child = match options.program.as_slice() {
        [] => None,
        command => Some(Child::start(command, Output::Leave, true)?),
    };
    let mut sampling = Sampling::start(&options.sampling, child, &shared)?;
    let began = Instant::now();
    let ended = runtime.block_on(wait(&sampling, &shared, options.duration))?;
    sampling.finish();
    if let Some(Ended::Failed(why)) = &ended {
        bail!("sampling stopped: {why}");
    }
    runtime.block_on(shared.symbolizer.settled(NAMES_WITHIN));
    let mut engine = Engine::new(Arc::clone(&shared.names), Arc::clone(&shared.processes), Arc::clone(&shared.profile));
    let snapshot = engine.answer(&Request::default(), now());
    write(&options, format, &snapshot, &shared, began.elapsed())?;
    report(&options, &snapshot, ended.as_ref());
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(())
}

/// Waits for the end: the time that was asked for, a signal, the command's end. Tells on a terminal how it goes.
async fn wait(sampling: &Sampling, shared: &Shared, duration: Option<Duration>) -> Result<Option<Ended>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to watch for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to watch for signals")?;
    let mut hangup = signal(SignalKind::hangup()).context("failed to watch for signals")?;
    let deadline = duration.map(|duration| tokio::time::Instant::now() + duration);
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let shows = io::stderr().is_terminal();
    let outcome = loop {
        tokio::select! {
            _ = interrupt.recv() => break None,
            _ = terminate.recv() => break None,
            _ = hangup.recv() => break None,
            () = sleep_until(deadline) => break None,
            _ = tick.tick() => {
                if let Some(ended) = sampling.ended() {
                    break Some(ended);
                }
                if shows {
                    progress(sampling, shared, duration);
                }
            }
        }
    };
    if shows {
        drop(write!(io::stderr(), "\r\x1b[K"));
    }
    Ok(outcome)
}

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn progress(sampling: &Sampling, shared: &Shared, duration: Option<Duration>) {
    let profile = shared.profile.read().unwrap_or_else(PoisonError::into_inner);
    let elapsed = sampling.since.elapsed().as_secs();
    let of = duration.map_or_else(|| "Ctrl-C ends".to_owned(), |duration| format!("of {} s", duration.as_secs_f64()));
    let (samples, lost) = (profile.samples.end(), profile.losses.ring_full);
    drop(profile);
    let line = format!("\r\x1b[Krecording: {elapsed} s {of}, {samples} samples, {lost} lost");
    drop(io::stderr().write_all(line.as_bytes()));
}

fn write(options: &cli::Record, format: Format, snapshot: &Snapshot, shared: &Shared, took: Duration) -> Result<()> {
    if snapshot.tree.total() == 0 {
        bail!("no samples were taken, so {} was not written: nothing that was asked for ran on a CPU", options.output.display());
    }
    let overwrite = if options.force { Overwrite::Yes } else { Overwrite::No };
    save(&options.output, overwrite, |out| match format {
        Format::Svg => {
            let svg_options = SvgOptions {
                title: title(options),
                subtitle: Some(format!("{} samples in {:.0} s", snapshot.tree.total(), took.as_secs_f64())),
                ..SvgOptions::default()
            };
            svg::write(&snapshot.tree, &shared.names.labels, CallTree::ROOT, &svg_options, out).map(drop)
        }
        Format::Folded => {
            let folded_options = FoldedOptions { annotations: !options.no_annotations };
            folded::write(&snapshot.tree, &shared.names.labels, CallTree::ROOT, folded_options, out).map(drop)
        }
    })?;
    Ok(())
}

fn title(options: &cli::Record) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match (options.program.as_slice(), options.sampling.pids.as_slice()) {
        ([], []) => format!("flametop: everything on {host}"),
        ([], pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("flametop: process {} on {host}", pids.join(", "))
        }
        (command, _) => format!("flametop: {}", command.join(" ")),
    }
}

/// What was written, and how good it is, on standard error.
fn report(options: &cli::Record, snapshot: &Snapshot, ended: Option<&Ended>) {
    let mut lines = Vec::new();
    if let Some(Ended::Target(how)) = ended {
        lines.push(how.clone());
    }
    let totals = &snapshot.totals;
    let mut line = format!("{} samples written to {}", snapshot.tree.total(), options.output.display());
    if totals.user > 0 {
        line.push_str(&format!(", {:.1} % of user stacks complete", totals.complete as f64 * 100.0 / totals.user as f64));
    }
    lines.push(line);
    let losses = &snapshot.losses;
    for (count, what) in [
        (losses.ring_full, "samples lost because the ring buffer was full; a lower rate (-F) helps"),
        (losses.events_lost, "mapping events lost; some frames may have no name"),
        (losses.over_memory, "samples let go because memory was full; --memory holds more"),
        (losses.aged_out, "samples older than the window let go; --window keeps more"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    lines.push(format!("cost: {:.2} s of CPU, {} MB", own_cpu_time().as_secs_f64(), own_memory() / 1_000_000));
    drop(writeln!(io::stderr(), "{}", lines.join("\n")));
}
