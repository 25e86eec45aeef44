//! Recording without a screen: samples for a while, then one file.

use crate::allocator::keep_little_memory;
use crate::formats::save::Overwrite;
use crate::formats::{Format, Part, SaveOptions};
use crate::session::clock::{began, below_title, file_name, local_offset, now};
use crate::session::lines::{LINES_WITHIN, lines_of};
use crate::session::looks::palette_of;
use crate::session::options::{folding, limits};
use crate::session::progress::Progress;
use crate::session::shared::Shared;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::cli;
use crate::cpu_time;
use crate::formats::folded::FoldedOptions;
use crate::formats::save::{Pipe, SaveError, check, is_standard_output, remove_unfinished, save};
use crate::formats::svg::SvgOptions;
use crate::locks;
use crate::privileges;
use crate::profile::{CallTree, EventStatus, LabelId, Query, Request, Snapshot, SourceLocation, Tgid, Totals, UserEnd, UserId};
use crate::ui::{Sampled, fit_name, format_bytes, picture_facts, plain_name, process_title};

use super::child::{Child, Output, Terms, shown};
use super::cost::own_memory;
use super::event_targets;
use super::options::duties;
use super::recording::{Recording, Written};
use super::runtime::runtime;
use super::sampling::{CollectorStatus, END_WITHIN, Ended, Sampling, TABLES_WITHIN};
use super::status::StatusMaker;
use super::user::{User, runs_as_root};

/// Longest wait for the names of [`Ours`] before the file is written. The wait for other names is [`END_WITHIN`]; after a signal, so is the
/// wait for all names.
const NAMES_WITHIN: Duration = Duration::from_secs(20);
/// Least time for names after the end of a command.
const NAMES_AT_LEAST: Duration = Duration::from_millis(500);
/// Time after which names are no longer waited for if their files do not answer.
const STUCK: Duration = Duration::from_millis(300);
/// How often the end's conditions are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often the progress line is drawn.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Waits longer than this are announced on a terminal.
const QUIET: Duration = Duration::from_secs(1);
/// Signals that come closer together count as one: timeout(1) sends each signal to its child and to the child's group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// Records, and writes the file. Returns the exit status of the command, or 0 if flametop has ended it.
pub(super) fn run(options: cli::Record) -> Result<u8> {
    // A file that cannot be written is reported before sampling starts.
    let overwrite = if options.force { Overwrite::Yes } else { Overwrite::No };
    let output = options.output.clone().unwrap_or_else(|| usual_name(&options));
    let output = output.as_path();
    let format = match check(output, overwrite, options.format) {
        Err(SaveError::Exists { path }) => bail!("`{}` exists already; --force replaces it", path.display()),
        checked => checked?,
    };
    let local_offset = local_offset();
    let pipe = if format.has_samples() { Ok(None) } else { Pipe::open(output) };
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
    let shared = Shared::live(limits(&options.sampling, None), &runtime);
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
    let recording = match format.has_samples() {
        true => {
            let maker = StatusMaker::new(sampling.watcher(), &shared, options.sampling.frequency, local_offset);
            Some(Recording::start(output, overwrite, maker, watched(&options), &shared)?)
        }
        false => None,
    };
    let ended = runtime.block_on(wait(&sampling, &shared, options.duration, &mut signals, recording.as_ref()));
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
    let written = recording.map(Recording::finish).transpose()?;
    let mut engine = shared.engine();
    let source = event_targets::first(&options.sampling.events);
    let query = Query { source, folding: folding(&options.sampling), ..Query::default() };
    let snapshot = engine.answer(&Request { query, ..Request::default() }, now());
    if written.as_ref().map_or(snapshot.tree.total(), |written| written.samples) == 0 {
        bail!(nothing(&options, output, &sampling.told()));
    }
    let status = match ended {
        Some(Ended::Target(ref ending)) => ending.status,
        Some(Ended::Failed(_)) | None => 0,
    };
    if let Some(written) = written {
        report(&options, output, &snapshot, &sampling, ended.as_ref(), Outcome::Recording(written));
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

/// What was written.
enum Outcome {
    /// All samples.
    Recording(Written),
    /// A tree, and a note about parts that the file lacks.
    Tree { cut: Option<String> },
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
    let command = options.program.first().and_then(|program| Path::new(program).file_name()).map(shown);
    let process = || options.sampling.pids.first().map(|pid| format!("pid-{pid}"));
    file_name(options.format.unwrap_or(Format::Svg), command.or_else(process).as_deref()).into()
}

/// Returns where the command's output goes: it must not mix with the stacks.
fn output_of_command(stacks: &Path) -> Output {
    if is_standard_output(stacks) { Output::ToStderr } else { Output::Leave }
}

/// Handles SIGINT, SIGTERM and SIGHUP, all in the same way. The first signal ends sampling. The second ends the wait for the command and
/// for names. The third ends the program.
struct Signals(watch::Receiver<u8>, Arc<watch::Sender<u8>>, Arc<AtomicBool>);

impl Signals {
    const SAMPLING: u8 = 0;
    const ENDING: u8 = 1;
    const IN_A_HURRY: u8 = 2;

    /// Handles signals from now on, so that they do not end the program by themselves.
    fn watch(file: String) -> Result<Signals> {
        let (stage, seen) = watch::channel(Self::SAMPLING);
        let stage = Arc::new(stage);
        let (caught, mut all) = mpsc::unbounded_channel();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut one = signal(kind).context("failed to watch for signals")?;
            let caught = caught.clone();
            tokio::spawn(async move { while one.recv().await.is_some() && caught.send(Instant::now()).is_ok() {} });
        }
        let (sender, came) = (Arc::clone(&stage), Arc::new(AtomicBool::new(false)));
        let coming = Arc::clone(&came);
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            while let Some(at) = all.recv().await {
                if last.is_some_and(|last| at.saturating_duration_since(last) < ONE_SIGNAL) {
                    continue;
                }
                last = Some(at);
                coming.store(true, Ordering::Relaxed);
                if *sender.borrow() >= Self::IN_A_HURRY {
                    remove_unfinished();
                    drop(writeln!(io::stderr(), "flametop: ended before {file} was written"));
                    std::process::exit(130);
                }
                sender.send_modify(|stage| *stage += 1);
            }
        });
        Ok(Signals(seen, stage, came))
    }

    /// Waits until signals have reached this stage.
    async fn reach(&mut self, stage: u8) {
        // The sender lives as long as the receiver.
        let _ = self.0.wait_for(|now| *now >= stage).await;
    }

    /// Tells whether a second signal came: then nothing is waited for any more.
    fn is_hurried(&self) -> bool {
        *self.0.borrow() >= Self::IN_A_HURRY
    }

    /// Tells whether a signal came.
    fn came(&self) -> bool {
        self.2.load(Ordering::Relaxed)
    }

    /// Records that sampling has ended, by a signal or for another reason.
    fn ending(&self) {
        self.1.send_modify(|stage| *stage = (*stage).max(Self::ENDING));
    }
}

/// Waits for the end of sampling: the requested time, a signal, or the command's end. Shows the progress on a terminal.
async fn wait(
    sampling: &Sampling,
    shared: &Shared,
    duration: Option<Duration>,
    signals: &mut Signals,
    recording: Option<&Recording>,
) -> Option<Ended> {
    let deadline = duration.map(|duration| tokio::time::Instant::now() + duration);
    let mut progress = Progress::default();
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
async fn failed(recording: Option<&Recording>) {
    match recording {
        Some(recording) => recording.failed().await,
        None => std::future::pending().await,
    }
}

/// Ends sampling and the command, at the latest at `by`.
async fn end(sampling: &Sampling, by: Instant, name: Option<&str>, signals: &mut Signals) {
    sampling.end(Instant::now() + TABLES_WITHIN);
    let over = async {
        while !sampling.is_over() && Instant::now() < sampling.ends_by(by) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let hurry = async {
        signals.reach(Signals::IN_A_HURRY).await;
        sampling.hurry();
        std::future::pending().await
    };
    let patience = async {
        tokio::time::sleep(QUIET).await;
        if let Some(name) = name {
            tell(&format!("waiting for {name} to end; Ctrl-C kills it"));
        }
        std::future::pending().await
    };
    tokio::select! {
        () = over => {}
        () = hurry => {}
        () = patience => {}
    }
    tell("");
}

/// Users whose names are waited for longest: root, the user who ran flametop, and the user as whom the command runs. Other users could
/// delay the end by making names without end.
struct Ours(Vec<UserId>);

impl Ours {
    fn find(user_of_command: Option<&User>) -> Ours {
        let by_sudo = std::env::var("SUDO_UID").ok().and_then(|id| id.parse().ok());
        let own = rustix::process::getuid().as_raw();
        Ours([Some(0), Some(own), by_sudo, user_of_command.map(User::id)].into_iter().flatten().map(UserId).collect())
    }
}

/// Waits for the last names: until `by`, or longer for [`Ours`] if no signal came. Names whose files do not answer are not waited for.
async fn settle(shared: &Shared, by: Instant, ours: &Ours, signals: &mut Signals) {
    let longest = Instant::now() + NAMES_WITHIN;
    let signal_came = signals.came();
    let stuck = async {
        let mut worked = Instant::now();
        while worked.elapsed() < STUCK {
            tokio::time::sleep(LOOK_EVERY).await;
            let is_late = Instant::now() >= by;
            if is_late && (signal_came || Instant::now() >= longest) {
                return;
            }
            if shared.symbolizer.works_for(|user| !is_late || ours.0.contains(&user)) {
                worked = Instant::now();
            } else if is_late {
                return;
            }
        }
    };
    let patience = async {
        tokio::time::sleep(QUIET).await;
        tell("looking up names; Ctrl-C skips the remaining names");
        std::future::pending().await
    };
    tokio::select! {
        _ = shared.symbolizer.settled(NAMES_WITHIN) => {}
        () = stuck => {}
        () = signals.reach(Signals::IN_A_HURRY) => {}
        () = patience => {}
    }
    tell("");
}

/// Replaces the last line on standard error, if that is a terminal.
fn tell(line: &str) {
    if io::stderr().is_terminal() {
        drop(io::stderr().write_all(format!("\r\x1b[K{line}").as_bytes()));
    }
}

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Says why there is nothing to write.
fn nothing(options: &cli::Record, output: &Path, told: &CollectorStatus) -> String {
    let why = if options.sampling.events.is_empty() { "processes ran" } else { "events happened" };
    let own = told.own_left_out + told.events.iter().map(|event| event.own).sum::<u64>();
    let but = if own > 0 { ", not counting flametop itself (--self shows it)" } else { "" };
    format!("no samples: none of the selected {why}{but}. {} was not written.", output.display())
}

/// Waits for a reader of the pipe that the stacks go to: until `by` if a signal has ended the recording, else until a signal comes. Returns
/// `None` if the stacks do not go to a pipe.
async fn reader(path: &Path, by: Instant, signals: &mut Signals) -> Result<Option<Pipe>, SaveError> {
    loop {
        let opened = Pipe::open(path);
        if !matches!(opened, Err(SaveError::NoReader { .. })) || signals.is_hurried() || signals.came() && Instant::now() >= by {
            tell("");
            return opened;
        }
        tell(&format!("waiting for a reader of {}; Ctrl-C gives up", path.display()));
        tokio::time::sleep(LOOK_EVERY).await;
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
    let force = options.force;
    let options = SaveOptions {
        picture,
        folded,
        unit: snapshot.unit,
        frequency: sampled.frequency,
        time: sampled.seconds.map(began),
        seconds: sampled.seconds,
    };
    let mut cut = None;
    let stacks = |out: &mut dyn Write| {
        cut = format.write(part, &options, out)?;
        Ok(())
    };
    match pipe {
        Some(pipe) => pipe.save(output, stacks)?,
        None => save(output, if force { Overwrite::Yes } else { Overwrite::No }, stacks)?,
    };
    Ok(cut)
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Most processes that a title has.
const MOST_NAMED: usize = 3;

/// Returns the title of a picture: what was watched, and where.
fn title(options: &cli::Record, snapshot: &Snapshot) -> String {
    let host = host();
    let at = options.sampling.events.first().map_or(String::new(), |event| format!(", at {event}"));
    let of = match (options.program.as_slice(), options.sampling.pids.as_slice()) {
        ([], []) => format!("flametop: everything on {host}"),
        ([], pids) => {
            let mut processes: Vec<String> =
                pids.iter().take(MOST_NAMED).map(|pid| process_title(snapshot, Tgid(*pid))).collect();
            if let more @ 1.. = pids.len().saturating_sub(MOST_NAMED) {
                processes.push(format!("{more} more"));
            }
            format!("flametop: {} on {host}", processes.join(", "))
        }
        (command, _) => {
            let words: Vec<String> = command.iter().map(|word| shown(word)).collect();
            format!("flametop: {}", words.join(" "))
        }
    };
    of + &at
}

/// Describes the counts of a source, in a line.
fn describe_event(event: &EventStatus) -> String {
    let mut line = format!("{}: {} events, stacks of {}", event.name, event.events, event.stacks);
    let mut how = vec![event.how.to_string()];
    if event.places > 1 {
        how.push(format!("{} places", event.places));
    }
    if event.missed > 0 {
        how.push(format!("{} without a stack: another one was being taken", event.missed));
    }
    if event.unsure > 0 {
        how.push(format!("{} more, of any process, not counted: a stack was being taken", event.unsure));
    }
    if event.own > 0 {
        how.push(format!("{} more in flametop itself not counted: --self shows them", event.own));
    }
    if event.cost > 0 {
        how.push(format!("they cost the programs about {:.2} s of CPU", event.cost as f64 / 1e9));
    }
    if event.cut > 0 {
        how.push(format!("kernel stacks cut: {}", event.cut));
    }
    line.push_str(&format!(" ({})", how.join(", ")));
    line
}

/// Number of reasons for incomplete stacks that are printed at the end. View 5 has all of them.
const MAIN_REASONS: usize = 3;

/// Says why user stacks are incomplete: a line for each of the main reasons, in the words of view 5. Says nothing if 99.9 % are complete.
fn incomplete(totals: &Totals) -> Vec<String> {
    if totals.complete * 1000 >= totals.user * 999 {
        return Vec::new();
    }
    let line = |(end, weight): (UserEnd, u64)| {
        let (what, _) = end.explain();
        format!("incomplete: {weight} ({:.1} %), {what}", weight as f64 * 100.0 / totals.user as f64)
    };
    totals.reasons().into_iter().take(MAIN_REASONS).map(line).collect()
}

/// Describes the written file and its quality on standard error.
fn report(
    options: &cli::Record,
    output: &Path,
    snapshot: &Snapshot,
    sampling: &Sampling,
    ended: Option<&Ended>,
    outcome: Outcome,
) {
    let mut lines = Vec::new();
    if let Some(Ended::Target(ending)) = ended {
        lines.push(ending.words.clone());
    }
    let totals = &snapshot.totals;
    let told = sampling.told();
    lines.extend(told.events.iter().map(describe_event));
    lines.extend(told.comparison);
    lines.extend(told.unread);
    let what = snapshot.unit.word();
    let mut losses = snapshot.losses;
    let mut line = match &outcome {
        Outcome::Tree { .. } => format!("{} {what} written to {}", snapshot.tree.total(), output.display()),
        Outcome::Recording(Written { bytes, samples, missed }) => {
            // The file also has what the store has dropped since.
            (losses.over_memory, losses.aged_out) = (*missed, 0);
            format!(
                "{samples} samples written to {} ({})",
                output.display(),
                format_bytes(usize::try_from(*bytes).unwrap_or(usize::MAX))
            )
        }
    };
    if let [first, _, ..] = options.sampling.events.as_slice() {
        line.push_str(&format!(", of {first} only"));
    }
    if totals.user > 0 {
        line.push_str(&format!(", {:.1} % of user stacks complete", totals.complete as f64 * 100.0 / totals.user as f64));
    }
    lines.push(line);
    if let Outcome::Tree { cut } = outcome {
        lines.extend(cut);
    }
    let reasons = incomplete(totals);
    if reasons.iter().any(|reason| reason.ends_with(UserEnd::Gap.explain().0)) {
        lines.extend(reasons);
        lines.extend(told.without_tables.into_iter().take(MAIN_REASONS));
    } else {
        lines.extend(reasons);
    }
    for (count, what) in [
        (losses.ring_full, "samples lost: ring buffer full (lower the rate with -F)"),
        (losses.events_lost, "process events lost (mappings, names, exits); some frames may have no name"),
        (losses.over_memory, "samples dropped: memory limit reached (raise --memory)"),
        (losses.coarse, "addresses share a name: memory limit reached (raise --memory)"),
        (losses.aged_out, "samples dropped: older than the window (raise --window)"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    let mut cost = format!("cost: {:.2} s of CPU, {} MB", cpu_time::of_this_process().as_secs_f64(), own_memory().0 / 1_000_000);
    if told.own_left_out > 0 {
        cost.push_str(&format!("; {} samples of flametop itself left out (--self shows them)", told.own_left_out));
    }
    lines.push(cost);
    drop(writeln!(io::stderr(), "{}", lines.join("\n")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_says_what_was_watched() {
        use crate::profile::ProcessFacts;
        let commands = [(7, "/usr/bin/python3 shop.py 18081".to_owned()), (8, "nginx: worker".to_owned()), (9, "x".repeat(200))];
        let facts = |command: String| ProcessFacts { command: command.into(), ..ProcessFacts::default() };
        let processes = commands.into_iter().map(|(tgid, command)| (Tgid(tgid), facts(command))).collect();
        let snapshot = Snapshot { processes: Arc::new(processes), ..Snapshot::default() };
        let of = |words: &[&str]| title(&cli::Record::of(words), &snapshot).replace(&host(), "HOST");
        assert_eq!(of(&[]), "flametop: everything on HOST");
        assert_eq!(of(&["-p", "7"]), "flametop: python3 shop.py 18081 (7) on HOST");
        assert_eq!(of(&["-p", "9"]), format!("flametop: {}… (9) on HOST", "x".repeat(79)));
        let four = of(&["-p", "7,8,10,9"]);
        assert_eq!(four, "flametop: python3 shop.py 18081 (7), nginx: worker (8), process 10, 1 more on HOST");
        assert_eq!(of(&["-e", "page-faults", "--", "make", "-j8"]), "flametop: make -j8, at page-faults");
    }

    #[test]
    fn the_main_reasons_for_incomplete_stacks_are_told_in_the_words_of_view_5() {
        let mut totals = Totals { user: 10_000, complete: 9_990, ..Totals::default() };
        for (end, weight) in [(UserEnd::Gap, 3), (UserEnd::Changing, 1), (UserEnd::NoTable, 4), (UserEnd::NoCode, 2)] {
            totals.incomplete[end as usize] = weight;
        }
        assert!(incomplete(&totals).is_empty());
        totals.incomplete[UserEnd::Gap as usize] = 173;
        totals.complete = 9_820;
        assert_eq!(
            incomplete(&totals),
            [
                "incomplete: 173 (1.7 %), code without usable unwind information",
                "incomplete: 4 (0.0 %), the unwind table of its object was still being made",
                "incomplete: 2 (0.0 %), the caller's address is not code",
            ]
        );
        assert!(incomplete(&Totals::default()).is_empty(), "a recording of kernel threads");
    }

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

    #[test]
    fn what_was_passed_over_is_told_in_the_count_or_beside_it() {
        let event = EventStatus {
            name: "vfs_read".to_owned(),
            how: "fentry".into(),
            places: 1,
            events: 12,
            stacks: 3,
            ..EventStatus::default()
        };
        assert_eq!(describe_event(&event), "vfs_read: 12 events, stacks of 3 (fentry)");
        let counted = EventStatus { missed: 2, ..event.clone() };
        assert_eq!(
            describe_event(&counted),
            "vfs_read: 12 events, stacks of 3 (fentry, 2 without a stack: another one was being taken)"
        );
        let beside_own = EventStatus { own: 7, ..event.clone() };
        assert_eq!(
            describe_event(&beside_own),
            "vfs_read: 12 events, stacks of 3 (fentry, 7 more in flametop itself not counted: --self shows them)"
        );
        let beside = EventStatus { unsure: 2, cut: 1, places: 4, ..event };
        assert_eq!(
            describe_event(&beside),
            "vfs_read: 12 events, stacks of 3 (fentry, 4 places, 2 more, of any process, not counted: a stack was being taken, \
             kernel stacks cut: 1)"
        );
    }
}
