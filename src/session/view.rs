//! Shows a file in the views of the live view.

use anyhow::{Context, Result};

use crate::cli;
use crate::formats::Opened;
use crate::locks;
use crate::session::about::status_of;
use crate::session::clock::save_offer;
use crate::session::looks::theme;
use crate::ui::{App, Compare, Message, Status};

use super::config;
use super::opened::OpenedFile;
use super::runtime::runtime;
use super::screen::ends;
use super::terminal::need_a_terminal;

/// Opens the file, and shows it until the reader quits.
pub(super) fn run(options: &cli::View) -> Result<()> {
    need_a_terminal()?;
    let settings = config::load(options.looks.config.as_deref())?;
    let runtime = runtime()?;
    let file = OpenedFile::open(&options.file, options.baseline.as_deref(), &runtime)?;
    let query = file.query();
    let OpenedFile { shared, engine, opened, name, capabilities, is_compared, begin, end } = file;
    let mut app = App::new(shared.names(), theme(&options.looks, &settings), query, capabilities, save_offer());
    app.scene.keys = settings.keys;
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

/// Describes defects of the file for the reader.
fn remark(opened: &Opened) -> Option<Message> {
    (!opened.remarks.is_empty()).then(|| Message { text: opened.remarks.join("; "), bad: true })
}
