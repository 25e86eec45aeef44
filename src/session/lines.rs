//! Source lines of functions, for saved pictures.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::time::{Instant, timeout_at};

use super::shared::Shared;
use crate::formats::{Format, Part};
use crate::locks;
use crate::profile::{EventSource, FunctionTable, LabelId, Names, SourceLocation, heaviest_addresses};

/// Most functions whose lines are looked up. Others get none.
const MOST: usize = 4000;

/// Longest wait for lines: files of profiled programs may be large, or never answer.
pub(super) const LINES_WITHIN: Duration = Duration::from_secs(2);

/// Returns each function's hottest source line, as far as lines are found within this time. Formats that show no lines get none.
pub(super) async fn lines_of(
    shared: &Shared,
    names: &Arc<Names>,
    part: &Part<'_>,
    format: Format,
    source: Option<EventSource>,
    within: Duration,
) -> FxHashMap<LabelId, SourceLocation> {
    let mut lines = FxHashMap::default();
    if !format.shows_lines() || within.is_zero() {
        return lines;
    }
    let until = Instant::now() + within;
    let functions = FunctionTable::below(part.tree, part.root, part.difference, part.labels).rows;
    let labels = functions.into_iter().map(|row| row.label);
    let mut questions = {
        let profile = locks::read(&shared.profile);
        // The names were renewed meanwhile, and the ids of frames with them.
        if !profile.names().is_some_and(|current| Arc::ptr_eq(current, names)) {
            return lines;
        }
        heaviest_addresses(&profile, names, source, labels)
    };
    questions.truncate(MOST);
    let mut answers = shared.symbolizer.locate_all(questions);
    while let Ok(Some((label, line))) = timeout_at(until, answers.recv()).await {
        lines.insert(label, line);
    }
    lines
}
