//! What is marked as the baseline, and whether what is seen is shown as a difference to it.

use super::span::Span;
use crate::profile::Mark;

/// What is compared with what.
#[derive(Clone, Debug, Default)]
pub struct Compare {
    /// What is marked.
    pub baseline: Option<Mark>,
    /// Whether the difference is shown.
    pub on: bool,
    /// Whether it is of shares also where rates are known.
    pub by_shares: bool,
    /// The reader has marked nothing: the baseline is the time before the last seconds. With the span to go back to.
    pub(super) before: Option<Span>,
    /// Marks so far.
    pub(super) marks: u64,
}

impl Compare {
    /// With the baseline of a file, which the engine has already.
    pub fn with_file() -> Compare {
        Compare { baseline: Some(Mark::default()), on: true, ..Compare::default() }
    }
}
