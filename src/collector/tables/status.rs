//! What is told of tables: for the health view and for tests.

use std::sync::Arc;
use std::time::Duration;

use super::layout::Layout;
use crate::collector::unwind::{self, Table};
use crate::profile::UserId;

/// What is told of an object: see [`unwind::Report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Rows in the kernel.
    pub rows: u64,
    /// Bytes in the kernel: rows, index and rules.
    pub bytes: u64,
    /// Bytes of code.
    pub text: u64,
    /// Bytes of code under a description.
    pub covered: u64,
    /// Bytes of those without a rule.
    pub covered_invalid: u64,
    /// Descriptions that could not be read.
    pub fdes_in_error: u64,
    /// Whether some of it is from a separate file of debugging information.
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

/// What became of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectState {
    /// Its table is in the kernel.
    Ready(Summary),
    /// It has none, and why.
    Without(String),
}

/// An object that code ran of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectStatus {
    /// Its path, as its process has it.
    pub path: Arc<str>,
    /// What became of it.
    pub state: ObjectState,
}

/// All tables in figures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TablesStatus {
    /// Objects with a table.
    pub ready: usize,
    /// Objects that have none.
    pub without: usize,
    /// Objects whose table is being made or waits.
    pub waiting: usize,
    /// Rows in the kernel.
    pub rows: u64,
    /// Bytes of tables in the kernel.
    pub bytes: u64,
    /// Bytes of the segments that they are in: what the kernel really holds.
    pub segment_bytes: u64,
    /// Bytes that the segments may take.
    pub bound: u64,
    /// Tables that were let go for want of room.
    pub evicted: u64,
    /// Tables that were found on disk.
    pub from_cache: u64,
    /// Tables that are made and wait for room in the kernel.
    pub waiting_for_room: usize,
    /// CPU time that making tables took.
    pub cpu: Duration,
    /// Users whose programs wait for tables because their part of the CPU time is used up.
    pub held_back: Vec<UserId>,
    /// Requests that were turned away because too many of their user's wait.
    pub turned_away: u64,
}
