//! Recording without a screen: samples for a while, then one file.

pub(super) mod dump;
mod ending;
pub(super) mod export;
mod keeping;
mod report;
mod when;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustc_hash::FxHashMap;

use crate::allocator::keep_little_memory;
use crate::cli;
use crate::formats::folded::FoldedOptions;
use crate::formats::save::{Overwrite, Pipe, SaveError, check, is_standard_output, save};
use crate::formats::svg::SvgOptions;
use crate::formats::{About, Format, FormatError, Part, SaveOptions};
use crate::locks;
use crate::privileges;
use crate::profile::{CallTree, LabelId, Query, Request, Snapshot, SourceLocation};
use crate::ui::{Sampled, fit_name, picture_facts, plain_name};

use super::about::about_of;
use super::child::{Child, Output, Terms, shown};
use super::clock::{began, below_title, file_name, local_offset, now};
use super::event_targets;
use super::lines::{LINES_WITHIN, lines_of};
use super::looks::palette_of;
use super::options::{duties, folding, limits};
use super::progress::Progress;
use super::recording::{Recording, Written};
use super::runtime::runtime;
use super::sampling::{END_WITHIN, Ended, Sampling};
use super::save_samples::save_samples;
use super::shared::Shared;
use super::status::StatusMaker;
use super::user::{User, runs_as_root};
use crate::session::terminal::tell;
use ending::{NAMES_AT_LEAST, Ours, Signals, end, reader, settle, sleep_until};
use keeping::{Keeping, Plan};
use report::{Outcome, host, nothing, report, title};

/// How often the progress line is drawn.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Records, and writes the file. Returns the exit status of the command, or 0 if flametop has ended it.
pub(super) fn run(options: cli::Record) -> Result<u8> {
    // A file that cannot be written is reported before sampling starts.
    let overwrite = if options.force { Overwrite::Yes } else { Overwrite::No };
    let plan = plan(&options)?;
    let output = match &plan {
        Some(plan) => plan.directory.clone(),
        None => options.output.clone().unwrap_or_else(|| usual_name(&options)),
    };
    let output = output.as_path();
    let checked = if plan.is_some() { Ok(Format::Recording) } else { check(output, overwrite, options.format) };
    let format = match checked {
        Err(SaveError::Exists { path }) => bail!("`{}` exists already; --force replaces it", path.display()),
        checked => checked?,
    };
    let local_offset = local_offset();
    // A recording grows while it is taken. All other files are written at the end.
    let grows = format == Format::Recording;
    let pipe = if grows { Ok(None) } else { Pipe::open(output) };
    let pipe = match pipe {
        Err(SaveError::NoReader { path }) => {
            eprintln!(
                "flametop: the pipe `{}` has no reader yet; the recording starts and waits for one at its end",
                path.display()
            );
            None
        }
        opened => opened?,
    };
    let user = options.user.as_deref().map(User::find).transpose()?;
    privileges::keep(duties(&options.sampling, &options.program, false));
    // Set before other threads start, because a thread keeps the arena that it began with.
    keep_little_memory();
    let runtime = runtime()?;
    let mut signals = runtime.block_on(async { Signals::watch(output.display().to_string()) })?;
    let shared = Shared::live(limits(&options.sampling, options.keep), &runtime);
    let child = match options.program.as_slice() {
        [] => None,
        command => Some(Child::start(command, output_of_command(output), Terms::recorded(user.as_ref()), user.as_ref())?),
    };
    if let Some(said) = child.as_ref().filter(|_| user.is_none()).and_then(|child| runs_as_root(&child.name)) {
        drop(writeln!(io::stderr(), "flametop: {said}"));
    }
    let name = child.as_ref().map(|child| child.name.clone());
    let mut sampling = Sampling::start(&options.sampling, child, &shared)?;
    privileges::close();
    let recording = if grows {
        let maker = StatusMaker::new(sampling.watcher(), &shared, options.sampling.frequency, local_offset);
        Some(match plan {
            Some(plan) => {
                let _runtime = runtime.enter();
                SampleWriter::Kept(Keeping::start(plan, maker, &shared)?)
            }
            None => SampleWriter::Growing(Recording::start(output, overwrite, maker, watched(&options), &shared)?),
        })
    } else {
        None
    };
    let ended = runtime.block_on(wait(&sampling, &shared, &options, &mut signals, recording.as_ref()));
    let by = Instant::now() + END_WITHIN;
    runtime.block_on(end(&sampling, by, name.as_deref(), &mut signals));
    if !sampling.finish(by) {
        eprintln!("flametop: the collector thread did not stop in time; the last samples are not in the file");
    }
    if let Some(Ended::Failed(why)) = &ended {
        bail!("sampling stopped: {why}");
    }
    let by = by.max(Instant::now() + NAMES_AT_LEAST);
    runtime.block_on(settle(&shared, by, &Ours::find(user.as_ref()), &mut signals));
    let written = recording.map(|recording| recording.finish(output)).transpose()?;
    let mut engine = shared.engine();
    let source = event_targets::first(&options.sampling.events);
    let without_idle = format.is_picture() && !options.sampling.idle;
    let query = Query { source, folding: folding(&options.sampling), without_idle, ..Query::default() };
    let snapshot = engine.answer(&Request { query: query.clone(), ..Request::default() }, now());
    if written.as_ref().map_or(snapshot.tree.total(), |(_, written)| written.samples) == 0 {
        bail!(nothing(&options, output, &sampling.told()));
    }
    let status = match ended {
        Some(Ended::Target(ref ending)) => ending.status,
        Some(Ended::Failed(_)) | None => 0,
    };
    if let Some((file, written)) = written {
        report(&options, &file, &snapshot, &sampling, ended.as_ref(), Outcome::Recording(written));
        return Ok(status);
    }
    let pipe = match pipe {
        Some(pipe) => Some(pipe),
        None => runtime.block_on(reader(output, by, &mut signals))?,
    };
    let sampled = Sampled {
        host: &host(),
        frequency: options.sampling.frequency,
        cpus: sampling.cpus,
        seconds: Some(sampling.lasted().as_secs_f64()),
    };
    if let Some(sink) = format.sink() {
        let mut maker = StatusMaker::new(sampling.watcher(), &shared, options.sampling.frequency, local_offset);
        let about = About { watched: watched(&options), ..about_of(&maker.make(false).0) };
        let mut samples = 0;
        let bytes = put(&options, output, pipe, |out| {
            samples = save_samples(sink, &shared, &query, &about, out)?;
            Ok(())
        })?;
        let written = Written { bytes, samples, missed: 0 };
        report(&options, output, &snapshot, &sampling, ended.as_ref(), Outcome::Recording(written));
        return Ok(status);
    }
    let part = whole(&snapshot);
    let patience = if signals.came() { by.saturating_duration_since(Instant::now()) } else { LINES_WITHIN };
    let lines = lines_of(&shared, &snapshot.names, &part, format, source, patience.min(LINES_WITHIN));
    let lines = runtime.block_on(async {
        tokio::select! {
            lines = lines => lines,
            () = signals.reach(Signals::IN_A_HURRY) => FxHashMap::default(),
        }
    });
    let cut = write(&options, output, format, &snapshot, sampled, lines, pipe)?;
    report(&options, output, &snapshot, &sampling, ended.as_ref(), Outcome::Tree { cut });
    Ok(status)
}

/// The way in which samples get into files.
enum SampleWriter {
    /// All samples, as they come.
    Growing(Recording),
    /// The last minutes, when asked.
    Kept(Keeping),
}

impl SampleWriter {
    /// Waits until nothing can be written any more.
    async fn failed(&self) {
        match self {
            SampleWriter::Growing(recording) => recording.failed().await,
            SampleWriter::Kept(_) => std::future::pending().await,
        }
    }

    /// Writes the last samples. Returns the file's name.
    fn finish(self, output: &Path) -> Result<(PathBuf, Written)> {
        match self {
            SampleWriter::Growing(recording) => Ok((output.to_owned(), recording.finish()?)),
            SampleWriter::Kept(keeping) => keeping.finish(),
        }
    }
}

/// Says what a flight recorder does, if one is wanted.
fn plan(options: &cli::Record) -> Result<Option<Plan>> {
    let Some(keep) = options.keep else { return Ok(None) };
    let directory = options.output.clone().unwrap_or_else(|| PathBuf::from("."));
    if options.when.is_some() && !event_targets::has_clock(&options.sampling.events) {
        bail!("`--when` needs the clock to know how busy the CPUs are; add `-e cpu`");
    }
    let plan = Plan { directory, name: name_of(options), watched: watched(options), keep, when: options.when };
    plan.check()?;
    Ok(Some(plan))
}

/// Says which processes are sampled. Empty for all of them.
fn watched(options: &cli::Record) -> String {
    match (options.program.first(), options.sampling.pids.as_slice()) {
        (Some(program), _) => format!("{} and children", shown(Path::new(program).file_name().unwrap_or(program))),
        (None, []) => String::new(),
        (None, [pid]) => format!("process {pid}"),
        (None, pids) => format!("{} processes", pids.len()),
    }
}

/// Returns the file name of a recording without `-o`, in the current directory.
fn usual_name(options: &cli::Record) -> PathBuf {
    file_name(options.format.unwrap_or(Format::Svg), name_of(options).as_deref()).into()
}

/// Returns what is recorded, as names of files have it.
fn name_of(options: &cli::Record) -> Option<String> {
    let command = options.program.first().and_then(|program| Path::new(program).file_name()).map(shown);
    command.or_else(|| options.sampling.pids.first().map(|pid| format!("pid-{pid}")))
}

/// Returns where the command's output goes: it must not mix with the stacks.
fn output_of_command(stacks: &Path) -> Output {
    if is_standard_output(stacks) { Output::ToStderr } else { Output::Leave }
}

/// Waits for the end of sampling: the requested time, a signal, or the command's end. Shows the progress on a terminal.
async fn wait(
    sampling: &Sampling,
    shared: &Shared,
    options: &cli::Record,
    signals: &mut Signals,
    recording: Option<&SampleWriter>,
) -> Option<Ended> {
    let duration = options.duration;
    let deadline = duration.map(|duration| tokio::time::Instant::now() + duration);
    let mut progress = Progress::new(options.keep.is_some());
    // Without a terminal nothing is due before the end: a wake-up costs more CPU time than a sample.
    let mut tick = io::stderr().is_terminal().then(|| tokio::time::interval(PROGRESS_EVERY));
    let outcome = loop {
        let shows = async {
            match &mut tick {
                Some(tick) => tick.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = signals.reach(Signals::ENDING) => break None,
            () = sleep_until(deadline) => break None,
            () = failed(recording) => break None,
            ended = sampling.ended_unasked() => break Some(ended),
            _ = shows => tell(&progress.line(&locks::read(&shared.profile), sampling.since.elapsed(), duration)),
        }
    };
    signals.ending();
    tell("");
    outcome
}

/// Waits until the recording cannot be written any more.
async fn failed(recording: Option<&SampleWriter>) {
    match recording {
        Some(recording) => recording.failed().await,
        None => std::future::pending().await,
    }
}

/// Returns the part of the snapshot to write: all of it.
fn whole(snapshot: &Snapshot) -> Part<'_> {
    Part { tree: &snapshot.tree, difference: None, labels: &snapshot.names.labels, root: CallTree::ROOT }
}

/// Writes the file. Returns a note about parts that the file lacks.
fn write(
    options: &cli::Record,
    output: &Path,
    format: Format,
    snapshot: &Snapshot,
    sampled: Sampled<'_>,
    lines: FxHashMap<LabelId, SourceLocation>,
    pipe: Option<Pipe>,
) -> Result<Option<String>> {
    let part = whole(snapshot);
    let picture = SvgOptions {
        title: title(options, snapshot),
        subtitle: Some(below_title(picture_facts(snapshot, Some(sampled)))),
        count_name: snapshot.unit.word().to_owned(),
        inverted: options.icicle,
        palette: palette_of(options.palette),
        lines,
        short: plain_name,
        fit: fit_name,
    };
    let folded = FoldedOptions { annotations: !options.no_annotations, places: options.places };
    let save_options = SaveOptions {
        picture,
        folded,
        unit: snapshot.unit,
        frequency: sampled.frequency,
        time: sampled.seconds.map(began),
        seconds: sampled.seconds,
    };
    let mut cut = None;
    put(options, output, pipe, |out| {
        cut = format.write(part, &save_options, out)?;
        Ok(())
    })?;
    Ok(cut)
}

/// Puts the content in its place. Returns its bytes.
fn put(
    options: &cli::Record,
    output: &Path,
    pipe: Option<Pipe>,
    content: impl FnOnce(&mut dyn Write) -> Result<(), FormatError>,
) -> Result<u64> {
    let saved = match pipe {
        Some(pipe) => pipe.save(output, content)?,
        None => save(output, if options.force { Overwrite::Yes } else { Overwrite::No }, content)?,
    };
    Ok(saved.bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_picture_that_leaves_frames_out_says_so() {
        use crate::profile::{FrameKind, Names, TreeBuilder};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep.svg");
        let names = Arc::new(Names::default());
        // 40 stacks of 2,000 frames: a browser cannot zoom in that far.
        let mut tree = TreeBuilder::new();
        for stack in 0..40 {
            let first = tree.child(CallTree::ROOT, names.labels.intern(&stack.to_string(), "", FrameKind::User));
            let last = (0..2_000).fold(first, |node, _| tree.child(node, names.labels.intern("again", "", FrameKind::User)));
            tree.add(last, 10);
        }
        let snapshot = Snapshot { tree: Arc::new(tree.finish()), names, ..Snapshot::default() };
        let cli = cli::parse_words(&["flametop", "record", "-o", path.to_str().unwrap()]);
        let Some(cli::Command::Record(options)) = cli.command else { panic!() };
        let cut = write(
            &options,
            &path,
            Format::Svg,
            &snapshot,
            Sampled { host: "here", frequency: 99, cpus: 1, seconds: Some(1.0) },
            FxHashMap::default(),
            None,
        )
        .unwrap();
        assert!(cut.is_some_and(|cut| cut.starts_with("frames below level ")) && path.exists());
    }
}
