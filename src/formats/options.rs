//! The options of writers.

use std::io::Write;

use super::folded::FoldedOptions;
use super::svg::SvgOptions;
use super::{FormatError, Part};

/// Options of all writers. Each format uses its own part.
pub struct SaveOptions {
    /// Options of pictures.
    pub picture: SvgOptions,
    /// Options of folded stacks.
    pub folded: FoldedOptions,
}

/// Writes a part of a tree. Returns a description of omitted parts, as half a sentence.
pub(super) type WriteFn = fn(Part<'_>, &SaveOptions, &mut dyn Write) -> Result<Option<String>, FormatError>;
