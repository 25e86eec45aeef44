//! Figures about the tables, for the health view and for tests.

use std::sync::Arc;
use std::time::Duration;

use super::layout::Layout;
use crate::profile::UserId;
use crate::unwind::{self, Table};

/// Figures about an object's table: see [`unwind::Report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Rows in the kernel.
    pub rows: u64,
    /// Bytes in the kernel: rows, index and rules.
    pub bytes: u64,
    /// Bytes of code.
    pub text: u64,
    /// Bytes of code with a description (FDE).
    pub covered: u64,
    /// Bytes of `covered` that have no usable rule.
    pub covered_invalid: u64,
    /// Descriptions (FDEs) that could not be read.
    pub fdes_in_error: u64,
    /// Whether a part of the table is from a separate debug file.
    pub separate: bool,
}

impl Summary {
    pub(super) const NUMBERS: usize = 7;

    pub(super) fn numbers(&self) -> [u64; Summary::NUMBERS] {
        let Summary { rows, bytes, text, covered, covered_invalid, fdes_in_error, separate } = *self;
        [rows, bytes, text, covered, covered_invalid, fdes_in_error, u64::from(separate)]
    }

    pub(super) fn from_numbers(numbers: [u64; Summary::NUMBERS]) -> Summary {
        let [rows, bytes, text, covered, covered_invalid, fdes_in_error, separate] = numbers;
        Summary { rows, bytes, text, covered, covered_invalid, fdes_in_error, separate: separate != 0 }
    }

    pub(super) fn of(table: &Table, layout: &Layout) -> Summary {
        let report = &table.report;
        Summary {
            rows: layout.rows.iter().map(|rows| rows.len() as u64).sum(),
            bytes: layout.bytes() as u64,
            text: report.text,
            covered: report.covered,
            covered_invalid: report.covered_invalid,
            fdes_in_error: report.fdes_in_error,
            separate: report.sources.iter().any(|source| unwind::SEPARATE_FILES.contains(source)),
        }
    }
}

/// Whether an object has a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectState {
    /// Its table is in the kernel.
    Ready(Summary),
    /// It has no table, for this reason.
    Without(String),
}

/// An object whose code was sampled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectStatus {
    /// Its path, as its process sees it.
    pub path: Arc<str>,
    /// Whether it has a table.
    pub state: ObjectState,
}

/// Figures about all tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TablesStatus {
    /// Objects with a table.
    pub ready: usize,
    /// Objects without a table.
    pub without: usize,
    /// Objects whose table waits to be made or is being made.
    pub waiting: usize,
    /// Rows in the kernel.
    pub rows: u64,
    /// Bytes of tables in the kernel.
    pub bytes: u64,
    /// Bytes of the segments that hold the tables: the memory that the kernel really uses.
    pub segment_bytes: u64,
    /// Most bytes that the segments may take.
    pub bound: u64,
    /// Tables that were evicted for lack of room.
    pub evicted: u64,
    /// Tables that were found on disk.
    pub from_cache: u64,
    /// Tables that are made and wait for room in the kernel.
    pub waiting_for_room: usize,
    /// CPU time that making tables took.
    pub cpu: Duration,
    /// Users whose programs wait for tables, because the user's share of the CPU time is used up.
    pub held_back: Vec<UserId>,
    /// Requests that were refused, because too many requests of their user or of all users were waiting.
    pub turned_away: u64,
}

/// A table for the kernel, or why there is none.
pub(super) type Made = Result<(Layout, Summary), String>;
