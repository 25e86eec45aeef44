//! Shows a file in the views of the live view.

use crate::session::about::status_of;
use crate::session::clock::{now, save_offer};
use crate::session::looks::theme;
use crate::session::shared::Shared;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, RwLock};

use anyhow::{Context, Result};

use crate::cli;
use crate::formats::{Destination, Opened, open};
use crate::locks;
use crate::profile::{Capabilities, Grouping, Profile, Query, Timestamp};
use crate::ui::{App, Compare, Message, Status};

use super::config;
use super::runtime::runtime;
use super::screen::ends;
use super::terminal::need_a_terminal;

/// Opens the file, and shows it until the reader quits.
pub(super) fn run(options: &cli::View) -> Result<()> {
    need_a_terminal()?;
    let settings = config::load(options.looks.config.as_deref())?;
    let runtime = runtime()?;
    let shared = Shared::of_file(&runtime);
    let baseline = Arc::new(RwLock::new(Profile::fixed(Capabilities::STACKS)));
    // A saved difference contains its own baseline.
    let opened = read(&options.file, &shared, &shared.profile, options.baseline.is_none().then_some(&*baseline))?;
    if let Some(file) = &options.baseline {
        read(file, &shared, &baseline, None)?;
    }
    let is_compared = options.baseline.is_some() || opened.is_difference;
    let engine = if is_compared { shared.engine().with_baseline(baseline) } else { shared.engine() };
    let name = if options.file == Path::new("-") {
        "standard input".to_owned()
    } else {
        options.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    let capabilities = locks::read(&shared.profile).capabilities();
    let grouping = if capabilities.threads { Grouping::Name } else { Grouping::None };
    let query = Query { grouping, source: opened.source, ..Query::default() };
    let mut app = App::new(shared.names(), theme(&options.looks, &settings), query, capabilities, save_offer());
    app.scene.keys = settings.keys;
    app.scene.message = remark(&opened);
    if is_compared {
        app.scene.compare = Compare::with_file();
    }
    let end = opened.until.unwrap_or_else(now);
    let name = crate::profile::sanitize(&name);
    let begin = begin(&locks::read(&shared.profile), end);
    app.scene.status = match &opened.about {
        Some(about) => status_of(about, &name, end.since(begin) / 1_000_000_000),
        None => Status { host: name.into_owned(), ..Status::default() },
    };
    app.scene.status.events = locks::read(&shared.profile).events.clone();
    app.scene.everything = opened.about.as_ref().map(|about| about.watched.clone()).filter(|watched| !watched.is_empty());
    let (ends, link) = ends();
    ends.status.send_replace(app.scene.status.clone());
    let outcome = runtime.block_on(async {
        let engine = ends.spawn_engine(engine, Some(end))?;
        ends.spawn_saver(&shared, options.looks.icicle);
        ends.spawn_readers(&shared);
        ends.spawn_signals()?;
        let outcome = crate::ui::run(app, link).await.context("the terminal failed");
        drop(engine);
        outcome
    });
    ends.stop();
    outcome
}

/// Returns when sampling began; a file without a clock begins with its first sample.
fn begin(profile: &Profile, end: Timestamp) -> Timestamp {
    let clock = profile.sampled(end).map(|(begin, _)| begin);
    clock.or(profile.samples.first_time().filter(|_| profile.capabilities().time)).unwrap_or(end)
}

/// Reads a file. If `before` is given, the baseline of a difference goes into it.
fn read(file: &Path, shared: &Shared, profile: &RwLock<Profile>, before: Option<&RwLock<Profile>>) -> Result<Opened> {
    let what = || if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let input: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let opened = File::open(file).with_context(|| format!("failed to open {}", what()))?;
        if opened.metadata().is_ok_and(|about| about.is_dir()) {
            anyhow::bail!("{} is a directory; give a file", what());
        }
        Box::new(opened)
    };
    let mut profile = locks::write(profile);
    let mut before = before.map(locks::write);
    let (names, processes) = (&*shared.names(), &*shared.processes);
    open(input, &mut Destination { names, processes, profile: &mut profile, before: before.as_deref_mut() }).with_context(what)
}

/// Describes defects of the file for the reader.
fn remark(opened: &Opened) -> Option<Message> {
    (!opened.remarks.is_empty()).then(|| Message { text: opened.remarks.join("; "), bad: true })
}
