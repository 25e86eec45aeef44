//! File formats: one module each, for reading and writing. Imports only the model.
//!
//! - [`table`]: all formats, their endings, readers and writers.
//! - [`folded`]: one stack and its count a line. FlameGraph's tools exchange this format.
//! - [`svg`]: an interactive flame graph for a browser, drawn by inferno.
//! - [`html`]: the same graph with a table of functions, as a page.
//! - [`recording`]: all samples, with their times and threads.
//! - `pprof`: the format of Go's and of many other profilers.
//! - `perf_script`: the text that `perf script` prints.
//! - `perf_data`: the file that `perf record` writes.
//! - `json`: profiles of speedscope, of Firefox and of V8.
//! - `otlp`: profiles of OpenTelemetry.
//! - [`open()`]: reads any of these formats that can be read, plain or compressed.
//!
//! Readers put [`Sample`](crate::profile::Sample)s into a [`Profile`](crate::profile::Profile). Writers take the [`CallTree`] that
//! a view shows, zoom included, or samples (`sink`). [`save`] puts a file in its place whole or not at all. Readers treat every file as hostile: they
//! bound and check it, and their output has no control characters.
#![deny(clippy::indexing_slicing)]

mod about;
mod engine;
pub mod folded;
mod glance;
pub mod html;
mod json;
mod known;
mod lines;
mod open;
mod options;
mod otlp;
mod packed;
mod paths;
mod perf_data;
mod perf_script;
mod pprof;
mod protobuf;
mod reading;
pub mod recording;
pub mod save;
mod sink;
mod stacks;
pub mod svg;
pub mod table;
mod varint;

use std::io;

use crate::profile::{CallTree, Difference, LabelTable, NodeId};

pub use about::{About, Problem};
pub use engine::{message_of_status, pyroscope_question, rejected};
pub use glance::{Glance, glance};
pub use open::open;
pub use options::SaveOptions;
pub use otlp::otlp_of_samples;
pub use reading::{CodeAt, Destination, Kernel, Opened, StackCopy, StackWalker, ThisMachine};
pub use sink::Sink;
pub use table::Format;

/// The part of a tree that is saved, alone or beside its baseline.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The tree. In a comparison it contains both sides.
    pub tree: &'a CallTree,
    /// The weights of its nodes on both sides, in a comparison.
    pub difference: Option<&'a Difference>,
    /// The names.
    pub labels: &'a LabelTable,
    /// The highest node that is saved. All nodes below it are, too.
    pub root: NodeId,
}

/// Why a file could not be read or written. Each message is a sentence; the caller puts the file's name before it.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The file could not be read.
    #[error("failed to read: {0}")]
    Read(#[source] io::Error),
    /// The output could not be written.
    #[error("failed to write: {0}")]
    Write(#[from] io::Error),
    /// The file has no bytes.
    #[error("the file is empty; expected folded stacks, one a line, such as `main;parse;read 42`")]
    EmptyFile,
    /// The first bytes belong to another format.
    #[error("this is {what}, which cannot be opened; {advice}")]
    OtherFormat {
        /// Name of the format, with an article.
        what: &'static str,
        /// How to get a file that can be opened.
        advice: &'static str,
    },
    /// No line was a stack.
    #[error(
        "none of the {lines} lines is a folded stack; expected frames joined by `;`, a space and a count, such as \
         `main;parse;read 42`"
    )]
    NoStacks {
        /// How many lines were tried.
        lines: u64,
    },
    /// Most lines were no stacks.
    #[error(
        "only {stacks} of {lines} lines are folded stacks, such as `main;parse;read 42`, so this is another kind of file; line {first} is \
         `{text}`"
    )]
    FewStacks {
        /// How many lines were stacks.
        stacks: u64,
        /// How many lines were tried.
        lines: u64,
        /// The first line that was none, counted from 1.
        first: u64,
        /// The beginning of that line.
        text: String,
    },
    /// A line without an end.
    #[error("line {line} is longer than {} MiB, so this is not a file of folded stacks", limit >> 20)]
    LineTooLong {
        /// The line, counted from 1.
        line: u64,
        /// The longest line that is read, in bytes.
        limit: usize,
    },
    /// The counts would need more samples than memory should hold.
    #[error("the counts up to line {line} add up to more than {limit:.1e}; scale them down, to microseconds for instance")]
    CountsTooLarge {
        /// The line that exceeded the limit, counted from 1.
        line: u64,
        /// About the largest sum that is read.
        limit: f64,
    },
    /// A recording of a later version.
    #[error("a newer flametop wrote this recording ({version}); open it with that version")]
    Newer {
        /// The version.
        version: String,
    },
    /// A recording with numbers that make no sense.
    #[error("the part of the recording at byte {at} is damaged")]
    Damaged {
        /// Where the part begins.
        at: u64,
    },
    /// A pprof profile that contradicts itself.
    #[error("this pprof profile makes no sense: {what}")]
    Pprof {
        /// The contradiction.
        what: String,
    },
    /// A file of `perf record` that contradicts itself.
    #[error("this perf.data makes no sense: {what}")]
    PerfData {
        /// The contradiction.
        what: String,
    },
    /// A profile of OpenTelemetry that contradicts itself.
    #[error("this OpenTelemetry profile makes no sense: {what}")]
    Otlp {
        /// The contradiction.
        what: String,
    },
    /// A profile in JSON that contradicts itself, or that ends in the middle.
    #[error("this profile in JSON makes no sense: {what}")]
    Json {
        /// The contradiction, with its place.
        what: String,
    },
    /// A file without samples.
    #[error("the file has no samples")]
    NoSamples,
    /// The format holds samples, not the tree of a view.
    #[error("this format holds samples, not the tree of a view")]
    NotWritten,
    /// A tree without weight.
    #[error("there is nothing to save yet: there are no samples, or the filters exclude all")]
    NothingToSave,
}
