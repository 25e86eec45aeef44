//! The options of writers.

use std::io::Write;

use super::folded::FoldedOptions;
use super::sink::Sink;
use super::svg::SvgOptions;
use super::{FormatError, Part};
use crate::profile::Unit;

/// Options of all writers. Each format uses its own part.
pub struct SaveOptions {
    /// Options of pictures.
    pub picture: SvgOptions,
    /// Options of folded stacks.
    pub folded: FoldedOptions,
    /// The unit of the weights.
    pub unit: Unit,
    /// The clock's samples a second and CPU; 0 if that is not known, or if the weights are not ticks of a clock.
    pub frequency: u32,
    /// When sampling began, in nanoseconds since 1970.
    pub time: Option<u64>,
    /// How long it lasted.
    pub seconds: Option<f64>,
}

/// The writer of a format.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writer {
    /// It writes the tree of a view.
    Tree(WriteFn),
    /// It writes samples.
    Samples(fn() -> Box<dyn Sink>),
}

/// Writes a part of a tree. Returns a description of omitted parts, as half a sentence.
pub(super) type WriteFn = fn(Part<'_>, &SaveOptions, &mut dyn Write) -> Result<Option<String>, FormatError>;
