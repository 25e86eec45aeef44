//! State of a comparison: the baseline, and whether the difference to it is shown.

use super::span::Span;
use crate::profile::Mark;

/// State of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Compare {
    /// The baseline.
    pub baseline: Option<Mark>,
    /// Whether the difference is shown.
    pub on: bool,
    /// Compares shares even if rates are known.
    pub by_shares: bool,
    /// The time before the last seconds is the baseline, because the user has marked none. Contains the span to return to.
    pub(super) before: Option<Span>,
    /// Number of baselines marked so far.
    pub(super) marks: u64,
}

impl Compare {
    /// Starts with the baseline of a file, which the engine has already.
    pub fn with_file() -> Compare {
        Compare { baseline: Some(Mark::default()), on: true, ..Compare::default() }
    }
}
