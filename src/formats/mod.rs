//! Files: one module a format, reading and writing. Imports the model and nothing else of the house.
//!
//! - [`table`]: all formats, their endings, and what can be done with them
//! - [`folded`]: one stack a line with its count: what FlameGraph's tools exchange
//! - [`svg`]: an interactive flame graph for a browser, drawn by inferno
//! - [`html`]: the same with a table of functions, as a page
//! - [`writer`]: writes any of them
//!
//! Readers put [`Sample`](crate::profile::Sample)s into a [`Profile`](crate::profile::Profile); writers take the
//! [`CallTree`] that a view shows, zoom included. [`save`] puts a file in its place whole or not at
//! all. Readers take every file as hostile: bounded, checked, and without control characters when it leaves this room.
#![deny(clippy::indexing_slicing)]

pub mod folded;
pub mod html;
mod input;
mod paths;
pub mod save;
pub mod svg;
pub mod table;
pub mod writer;

use std::io;

use crate::profile::{CallTree, Difference, LabelTable, NodeId};

pub use table::Format;

/// The part of a tree that is saved, alone or beside its baseline.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The tree; in a comparison that of both sides.
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
    /// There was no byte in it.
    #[error("the file is empty; expected folded stacks, one a line, such as `main;parse;read 42`")]
    EmptyFile,
    /// Its first bytes say that it is something else.
    #[error("this is {what}, not folded stacks; {advice}")]
    OtherFormat {
        /// What it is, with an article.
        what: &'static str,
        /// How to get folded stacks from it.
        advice: &'static str,
    },
    /// Not one line was a stack.
    #[error(
        "none of the {lines} lines is a folded stack; expected frames joined by `;`, a space and a count, such as \
         `main;parse;read 42`"
    )]
    NoStacks {
        /// How many lines were tried.
        lines: u64,
    },
    /// A line without an end.
    #[error("line {line} is longer than {} MiB, so this is not a file of folded stacks", limit >> 20)]
    LineTooLong {
        /// The line, counted from 1.
        line: u64,
        /// The longest line that is read, in bytes.
        limit: usize,
    },
    /// Counts that would need more samples than memory should hold.
    #[error("the counts up to line {line} add up to more than {limit:.1e}; scale them down, to microseconds for instance")]
    CountsTooLarge {
        /// The line that was too much, counted from 1.
        line: u64,
        /// About the largest sum that is read.
        limit: f64,
    },
    /// A tree without weight.
    #[error("there is nothing to save yet: no sample has been taken, or the filter leaves none")]
    NothingToSave,
}
