//! The check of one file by `flametop unwind-check`.

pub mod gimli_check;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::convert::Evidence;
use super::debug_frame_files::OnDisk;
use super::table::paged::Paged;
use super::table::rows::Report;
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
    let begin = processor_time();
    let (table, evidence) = Evidence::read(&image, &OnDisk::of(path))?;
    let paged = Paged::new(&table);
    let time = processor_time().saturating_sub(begin);
    let verdict = gimli_check::check(&evidence, &table, &paged);
    let (rows, rules, kernel_bytes) = (table.rows.len(), table.rules.len(), paged.bytes());
    Ok(Checked { report: table.report, rows, rules, kernel_bytes, time, verdict })
}

/// Returns the processor time that this thread has used. Unlike wall-clock time, it does not depend on other users of the
/// processor.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}
