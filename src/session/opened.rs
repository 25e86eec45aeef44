//! A file that was opened, to be shown or converted.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::Handle;

use crate::formats::{Destination, Kernel, Opened, Problem, ThisMachine, open};
use crate::locks;
use crate::profile::{Capabilities, Engine, Grouping, Profile, Query, Timestamp, sanitize};
use crate::session::clock::now;
use crate::session::fetch;
use crate::session::shared::Shared;
use crate::session::stack_copies::CopyWalker;
use crate::session::terminal::Waiting;
use crate::symbolize;
use crate::ui::format_grouped;

/// How long names are awaited before a line says so.
const SOON: Duration = Duration::from_millis(500);
/// How long they are awaited after that. A later name appears when the view changes.
const NAMES_WITHIN: Duration = Duration::from_secs(20);

/// An opened file, alone or beside a baseline.
pub(super) struct OpenedFile {
    pub(super) shared: Shared,
    pub(super) engine: Engine,
    pub(super) opened: Opened,
    /// The name of the file, without its directory.
    pub(super) name: String,
    pub(super) capabilities: Capabilities,
    /// Whether there is a baseline.
    pub(super) is_compared: bool,
    /// When sampling began and ended. The same moment if the file has no times.
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
}

impl OpenedFile {
    /// Opens a file. `-` is standard input; an address that begins with `http://` is requested. A saved difference contains its own baseline.
    pub(super) fn open(file: &Path, baseline: Option<&Path>, runtime: &Handle) -> Result<OpenedFile> {
        let shared = Shared::of_file(runtime);
        let before = Arc::new(RwLock::new(Profile::fixed(Capabilities::STACKS)));
        let mut opened = read(file, &shared, &shared.profile, baseline.is_none().then_some(&*before))?;
        if let Some(file) = baseline {
            opened.wanted.extend(read(file, &shared, &before, None)?.wanted);
        }
        find_names(&mut opened, &shared, runtime);
        let is_compared = baseline.is_some() || opened.is_difference;
        let engine = if is_compared { shared.engine().with_baseline(before) } else { shared.engine() };
        let name = match fetch::address(file) {
            Some(address) => fetch::server(address).to_owned(),
            None if file == Path::new("-") => "standard input".to_owned(),
            None => file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        };
        let name = sanitize(&name).into_owned();
        let end = opened.until.unwrap_or_else(now);
        let (capabilities, begin) = {
            let profile = locks::read(&shared.profile);
            (profile.capabilities(), begin(&profile, end))
        };
        Ok(OpenedFile { shared, engine, opened, name, capabilities, is_compared, begin, end })
    }

    /// The query that is shown first.
    pub(super) fn query(&self) -> Query {
        let grouping = if self.capabilities.threads { Grouping::Name } else { Grouping::None };
        Query { grouping, source: self.opened.source, ..Query::default() }
    }
}

/// Returns when sampling began; a file without a clock begins with its first sample.
fn begin(profile: &Profile, end: Timestamp) -> Timestamp {
    let clock = profile.sampled(end).map(|(begin, _)| begin);
    clock.or(profile.samples.first_time().filter(|_| profile.capabilities().time)).unwrap_or(end)
}

/// Counts the bytes that are read.
struct Counted {
    input: Box<dyn Read>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Reads a file. If `before` is given, the baseline of a difference goes into it.
fn read(file: &Path, shared: &Shared, profile: &RwLock<Profile>, before: Option<&RwLock<Profile>>) -> Result<Opened> {
    let what = || if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let fetched = fetch::address(file).map(fetch::get).transpose()?;
    let (name, count) = (sanitize(&what()).into_owned(), Arc::new(AtomicU64::new(0)));
    let (size, counted) = (std::fs::metadata(file).map_or(0, |about| about.len()), Arc::clone(&count));
    let _waiting = Waiting::begin(move |since| {
        let read = counted.load(Ordering::Relaxed);
        match read.saturating_mul(100) / size.max(1) {
            share @ ..100 if size > 0 => format!("reading {name}: {share} % (Ctrl-C ends)"),
            _ => format!("reading {name}: {} MB, {:.1} s (Ctrl-C ends)", read / 1_000_000, since.as_secs_f64()),
        }
    });
    let input: Box<dyn Read> = match fetched {
        Some(answer) => answer,
        None if file == Path::new("-") => Box::new(io::stdin().lock()),
        None => {
            let opened = File::open(file).with_context(|| format!("failed to open {}", what()))?;
            if opened.metadata().is_ok_and(|about| about.is_dir()) {
                anyhow::bail!("{} is a directory; `flametop view` lists its files", what());
            }
            Box::new(opened)
        }
    };
    let input = Counted { input, count };
    let mut profile = locks::write(profile);
    let mut before = before.map(locks::write);
    let (names, processes) = (&*shared.names(), &*shared.processes);
    let runs_here = |kernel: &Kernel<'_>| symbolize::runs_here(kernel.build_id, kernel.symbol, kernel.address);
    let machine = ThisMachine { files: symbolize::own_files(), runs_here, walker: CopyWalker::boxed };
    open(input, &mut Destination { names, processes, profile: &mut profile, before: before.as_deref_mut(), machine })
        .with_context(what)
}

/// Names the frames that have only addresses. Tells what has no names, and why.
fn find_names(opened: &mut Opened, shared: &Shared, runtime: &Handle) {
    if opened.wanted.is_empty() {
        return;
    }
    let count = opened.wanted.len();
    shared.symbolizer.request_here(std::mem::take(&mut opened.wanted));
    runtime.block_on(async {
        if !shared.symbolizer.settled(SOON).await {
            drop(writeln!(io::stderr(), "flametop: finding the names of {} addresses …", format_grouped(count as u64)));
            shared.symbolizer.settled(NAMES_WITHIN).await;
        }
    });
    let told = |problem: symbolize::Problem| Problem {
        path: problem.path.to_string(),
        reason: problem.reason.to_string(),
        unnamed: problem.unnamed,
        remedy: problem.reason.remedy().to_owned(),
    };
    opened.about.get_or_insert_default().problems = shared.symbolizer.problems().into_iter().take(100).map(told).collect();
}
