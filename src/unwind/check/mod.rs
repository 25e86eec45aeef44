//! The check of one file by `flametop unwind-check`.

pub mod gimli_check;
use std::path::Path;
use std::time::Duration;

use super::convert::Evidence;
use super::debug_frame_files::OnDisk;
use super::table::paged::Paged;
use super::table::rows::Report;
use crate::cpu_time;
use crate::object::open::{Root, open_path};
use crate::object::read_at::{FileBytes, Unreadable};
use crate::profile::UserId;
use gimli_check::Verdict;

/// A file's table in figures, and whether it is right.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The report of the conversion.
    pub report: Report,
    /// Rows of the table.
    pub rows: usize,
    /// Different rules.
    pub rules: usize,
    /// Bytes of rows and index in the kernel.
    pub kernel_bytes: usize,
    /// Processor time of reading and converting.
    pub time: Duration,
    /// The result of the comparison with gimli's reading.
    pub verdict: Verdict,
}

/// Makes the table of a file, and compares it with what gimli reads there.
///
/// # Errors
///
/// Fails like [`convert()`](super::convert()).
pub fn check_file(path: &Path) -> Result<Checked, Unreadable> {
    // The path is from our own user, so links in /proc are followed.
    let image = FileBytes::new(open_path(UserId(0), Root::Own, &std::fs::canonicalize(path)?)?);
    let begin = cpu_time::of_this_thread();
    let (table, evidence) = Evidence::read(&image, &OnDisk::of(path))?;
    let paged = Paged::new(&table);
    let time = cpu_time::since(begin);
    let verdict = gimli_check::check(&evidence, &table, &paged);
    let (rows, rules, kernel_bytes) = (table.rows.len(), table.rules.len(), paged.bytes());
    Ok(Checked { report: table.report, rows, rules, kernel_bytes, time, verdict })
}
