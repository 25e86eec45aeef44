//! Shows a file in the views of the live view. If it is a directory, lists the files that can be shown.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::formats::{Opened, glance};
use crate::locks;
use crate::profile::{Query, sanitize};
use crate::session::about::status_of;
use crate::session::clock::{local_offset, minute, save_offer};
use crate::session::looks::theme;
use crate::ui::{App, Compare, Message, ProfileFile, ProfileList, Status, Theme, choose};

use super::config::{self, Settings};
use super::fetch;
use super::opened::OpenedFile;
use super::runtime::{Runtime, runtime};
use super::screen::ends;
use super::terminal::need_a_terminal;

/// Most files of a directory whose first bytes are read.
const MOST_FILES: usize = 10_000;

/// Opens the file, and shows it until the reader quits.
pub(super) fn run(options: &cli::View) -> Result<()> {
    need_a_terminal()?;
    // Before there are other threads: see `local_offset`.
    let ahead = local_offset().unwrap_or(0);
    let settings = config::load(options.looks.config.as_deref())?;
    let viewer = Viewer { theme: theme(&options.looks, &settings), settings, icicle: options.looks.icicle, runtime: runtime()? };
    let file = fetch::between(&options.file, options.from.as_deref(), options.until.as_deref())?;
    match file.is_dir() {
        true => viewer.list(&file, options.baseline.as_deref(), ahead),
        false => viewer.show(&file, options.baseline.as_deref(), &AtomicBool::new(true)).map(drop),
    }
}

/// The choices with which all files of a run are shown.
struct Viewer {
    theme: Theme,
    settings: Settings,
    icicle: bool,
    runtime: Runtime,
}

impl Viewer {
    /// Shows a file, and sets `has_screen` meanwhile. Returns whether the reader quit; otherwise a signal came.
    fn show(&self, file: &Path, baseline: Option<&Path>, has_screen: &AtomicBool) -> Result<bool> {
        let file = OpenedFile::open(file, baseline, &self.runtime)?;
        has_screen.store(true, Ordering::Relaxed);
        let query = Query { without_idle: true, ..file.query() };
        let OpenedFile { shared, engine, opened, name, capabilities, is_compared, begin, end } = file;
        let mut app = App::new(shared.names(), self.theme, query, capabilities, save_offer());
        app.scene.keys = self.settings.keys.clone();
        app.scene.message = remark(&opened);
        if is_compared {
            app.scene.compare = Compare::with_file();
        }
        let elapsed = end.since(begin) / 1_000_000_000;
        app.scene.status = match &opened.about {
            Some(about) => status_of(about, &name, elapsed),
            None => Status { host: name, elapsed, ..Status::default() },
        };
        app.scene.status.events = locks::read(&shared.profile).events.clone();
        app.scene.everything = opened.about.as_ref().map(|about| about.watched.clone()).filter(|watched| !watched.is_empty());
        let (ends, link) = ends();
        ends.status.send_replace(app.scene.status.clone());
        let outcome = self.runtime.block_on(async {
            let engine = ends.spawn_engine(engine, Some(end))?;
            ends.spawn_saver(&shared, self.icicle);
            ends.spawn_readers(&shared);
            ends.spawn_signals()?;
            let outcome = crate::ui::run(app, link).await.context("the terminal failed");
            drop(engine);
            outcome
        });
        ends.stop();
        has_screen.store(false, Ordering::Relaxed);
        outcome
    }

    /// Ends the program at a signal while there is no screen: a file is being opened, and may be large or a pipe. The screen watches for
    /// signals itself, and once it has, they no longer end the program.
    fn end_without_screen(&self, has_screen: &Arc<AtomicBool>) -> Result<()> {
        let _within = self.runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()] {
            let mut caught = signal(kind).context("failed to watch for signals")?;
            let has_screen = Arc::clone(has_screen);
            self.runtime.spawn(async move {
                while caught.recv().await.is_some() {
                    if !has_screen.load(Ordering::Relaxed) {
                        std::process::exit(128 + kind.as_raw_value());
                    }
                }
            });
        }
        Ok(())
    }

    /// Lists the profiles of a directory, and shows those that the reader chooses, until the reader quits the list. `ahead` is how many
    /// seconds local time is ahead of UTC.
    fn list(&self, directory: &Path, baseline: Option<&Path>, ahead: i64) -> Result<()> {
        let mut list = ProfileList::new(sanitize(&directory.display().to_string()).into_owned());
        let mut paths: Vec<PathBuf> = Vec::new();
        let has_screen = Arc::new(AtomicBool::new(false));
        self.end_without_screen(&has_screen)?;
        loop {
            let at = |place: Option<usize>| place.and_then(|number| paths.get(number)).cloned();
            let (selected, marked) = (at(Some(list.cursor)), at(list.baseline));
            (paths, list.files) = profiles(directory, ahead)?.into_iter().unzip();
            let place = |path: Option<PathBuf>| path.and_then(|path| paths.iter().position(|known| *known == path));
            (list.cursor, list.baseline) = (place(selected).unwrap_or(0), place(marked));
            let (ends, link) = ends();
            has_screen.store(true, Ordering::Relaxed);
            let chosen = self.runtime.block_on(async {
                ends.spawn_signals()?;
                choose(&mut list, &self.theme, link.stop).await.context("the terminal failed")
            })?;
            has_screen.store(false, Ordering::Relaxed);
            let Some(path) = paths.get(list.cursor).filter(|_| chosen) else { return Ok(()) };
            let baseline = list.baseline.and_then(|number| paths.get(number)).map(|path| &**path).or(baseline);
            match self.show(path, baseline.filter(|baseline| *baseline != path), &has_screen) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => list.message = Some(format!("{error:#}")),
            }
        }
    }
}

/// Returns the profiles of a directory, the newest first.
fn profiles(directory: &Path, ahead: i64) -> Result<Vec<(PathBuf, ProfileFile)>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("failed to list {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries.flatten().take(MOST_FILES) {
        // A pipe must not make the list wait for a writer.
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(entry.path());
        let Some((about, file)) = opened.ok().and_then(|file| Some((file.metadata().ok()?, file))) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if !about.is_file() || name.starts_with('.') {
            continue;
        }
        let Some(glance) = glance(file) else { continue };
        let written = about.modified().ok().and_then(|written| written.duration_since(UNIX_EPOCH).ok());
        let written = written.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0));
        let name = sanitize(&name).into_owned();
        let file =
            ProfileFile { name, when: minute(written, ahead), seconds: glance.seconds, what: glance.what, size: about.len() };
        found.push((written, entry.path(), file));
    }
    found.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    Ok(found.into_iter().map(|(_, path, file)| (path, file)).collect())
}

/// Describes defects of the file for the reader.
fn remark(opened: &Opened) -> Option<Message> {
    (!opened.remarks.is_empty()).then(|| Message { text: opened.remarks.join("; "), bad: true })
}
