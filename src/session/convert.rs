//! Converts a file of one format to another, without a screen.

use std::io::{self, Write};

use anyhow::{Result, bail};
use rustc_hash::FxHashMap;

use crate::cli;
use crate::formats::folded::FoldedOptions;
use crate::formats::save::{Overwrite, SaveError, check, save};
use crate::formats::svg::SvgOptions;
use crate::formats::{About, Part, SaveOptions};
use crate::locks;
use crate::profile::{CallTree, EventSource, Mark, Query, Request, Snapshot, Unit};
use crate::ui::{fit_name, format_amount, picture_facts, plain_name};

use super::clock::below_title;
use super::looks::palette_of;
use super::opened::OpenedFile;
use super::runtime::runtime;
use super::save_samples::save_samples;

/// Opens the file, and writes it in the other format.
pub(super) fn run(options: &cli::Convert) -> Result<()> {
    let overwrite = if options.force { Overwrite::Yes } else { Overwrite::No };
    let output = options.output.as_path();
    let format = match check(output, overwrite, options.format) {
        Err(SaveError::Exists { path }) => bail!("`{}` exists already; --force replaces it", path.display()),
        checked => checked?,
    };
    let runtime = runtime()?;
    let mut file = OpenedFile::open(&options.file, options.baseline.as_deref(), &runtime)?;
    for remark in &file.opened.remarks {
        say(&format!("{}: {remark}", file.name));
    }
    let source = match &options.event {
        Some(name) => Some(source_named(&file, name)?),
        None => file.opened.source,
    };
    let mut written = 0;
    let mut cut = None;
    let mut unit = Unit::Samples;
    if let Some(sink) = format.sink() {
        if file.is_compared {
            bail!(".{} files hold the samples of one file; convert without a baseline", format.ending());
        }
        let about = file.opened.about.take().map_or_else(About::default, |about| *about);
        let has_all = format.holds_all_sources() && options.event.is_none();
        let query = Query { source: if has_all { None } else { source }, ..Query::default() };
        save(output, overwrite, |out| {
            written = save_samples(sink, &file.shared, &query, &about, out)?;
            Ok(())
        })?;
    } else {
        let query = Query { source, without_idle: format.is_picture() && !options.idle, ..file.query() };
        let baseline = file.is_compared.then(Mark::default);
        let request = Request { query, baseline, compare: file.is_compared, ..Request::default() };
        let snapshot = file.engine.answer(&request, file.end);
        written = snapshot.amount();
        unit = snapshot.unit;
        let part = Part {
            tree: &snapshot.tree,
            difference: snapshot.difference.as_deref(),
            labels: &snapshot.names.labels,
            root: CallTree::ROOT,
        };
        let save_options = save_options(options, &file, &snapshot);
        save(output, overwrite, |out| {
            cut = format.write(part, &save_options, out)?;
            Ok(())
        })?;
    }
    let amount = format_amount(written, unit);
    say(&format!("{amount} written to {}", output.display()));
    if let Some(cut) = cut {
        say(&cut);
    }
    Ok(())
}

fn say(line: &str) {
    drop(writeln!(io::stderr(), "flametop: {line}"));
}

/// Finds a kind of event, or of values, by its name.
fn source_named(file: &OpenedFile, name: &str) -> Result<EventSource> {
    let profile = locks::read(&file.shared.profile);
    let found = profile.events.iter().find(|event| event.name == name);
    let known = || profile.events.iter().map(|event| &*event.name).collect::<Vec<_>>().join(", ");
    match (found, profile.events.is_empty()) {
        (Some(event), _) => Ok(event.source),
        (None, true) => bail!("{} has one kind of samples; leave out --event", file.name),
        (None, false) => bail!("{} has no event `{name}`; it has {}", file.name, known()),
    }
}

fn save_options(options: &cli::Convert, file: &OpenedFile, snapshot: &Snapshot) -> SaveOptions {
    let seconds = file.capabilities.time.then(|| file.end.since(file.begin) as f64 / 1e9);
    let mut title = format!("flametop: {}", file.name);
    if let Some(event) = &options.event {
        title.push_str(&format!(", {event}"));
    }
    if file.is_compared {
        title.push_str(", difference to a baseline: red has grown, blue has shrunk");
    }
    let picture = SvgOptions {
        title,
        subtitle: Some(below_title(picture_facts(snapshot, None))),
        count_name: snapshot.unit.word().to_owned(),
        inverted: options.icicle,
        palette: palette_of(options.palette),
        lines: FxHashMap::default(),
        short: plain_name,
        fit: fit_name,
    };
    let frequency = file.opened.about.as_ref().map_or(0, |about| about.frequency);
    SaveOptions {
        picture,
        folded: FoldedOptions { annotations: !options.no_annotations, places: options.places },
        unit: snapshot.unit,
        frequency,
        time: None,
        seconds,
    }
}
