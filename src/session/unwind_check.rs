//! `flametop unwind-check`: describes the unwind tables of files and checks that they are right.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cli::UnwindCheck;
use crate::unwind::table::rule::REASONS;
use crate::unwind::{Checked, Unreadable, check_file};

/// Prints a line for each file and a sum. Returns an error if a row is wrong, or if a file lacks a table that it should have.
pub(super) fn run(options: &UnwindCheck) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut sum = Sum::default();
    let mut seen = HashSet::new();
    for path in &options.paths {
        // A file named on the command line must exist and be a program. In a directory, files that are no programs are skipped.
        let named = !path.is_dir();
        std::fs::metadata(path).with_context(|| format!("failed to read {}", path.display()))?;
        let mut waiting = vec![path.clone()];
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(children(&path));
            } else if named || first_time(&path, &mut seen) {
                file(&path, named, options.quiet, &mut sum, &mut out)?;
            }
        }
    }
    sum.print(&mut out)?;
    out.flush()?;
    if sum.wrong > 0 {
        bail!("{} rows are wrong: see above", sum.wrong);
    }
    if sum.rejected > 0 {
        bail!("{} files have no table: see above", sum.rejected);
    }
    Ok(())
}

/// Lists a directory without its links: a link leads to a file that is found anyway, or into a circle.
fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(|path| !path.is_symlink()).collect();
    paths.sort_by(|a, b| b.cmp(a));
    paths
}

/// Tells whether this is a regular file that was not seen under another name before.
fn first_time(path: &Path, seen: &mut HashSet<(u64, u64)>) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && seen.insert((metadata.dev(), metadata.ino())))
}

fn file(path: &Path, named: bool, quiet: bool, sum: &mut Sum, out: &mut impl Write) -> Result<()> {
    match check_file(path) {
        Ok(checked) => {
            sum.add(&checked);
            if !quiet || checked.verdict.wrong > 0 {
                line(path, &checked, out)?;
            }
        }
        Err(Unreadable::NotElf | Unreadable::NotOurs) if !named => sum.others += 1,
        Err(error) => {
            sum.rejected += 1;
            writeln!(out, "REJECTED  {}: {error}", path.display())?;
        }
    }
    Ok(())
}

fn line(path: &Path, checked: &Checked, out: &mut impl Write) -> Result<()> {
    let Checked { report, verdict, .. } = checked;
    writeln!(
        out,
        "{}  {}: {} rows, {} rules, {:.2} % of {} KiB code covered, {:.2} bytes a row, {:.1} M rows/s; {} compared, {} from code, {} without a rule{}{}",
        if verdict.wrong > 0 { "WRONG" } else { "ok   " },
        path.display(),
        checked.rows,
        checked.rules,
        percent(report.covered, report.text),
        report.text >> 10,
        checked.kernel_bytes as f64 / checked.rows.max(1) as f64,
        speed(report.rows, checked.time),
        verdict.rows,
        report.from_code,
        verdict.invalid,
        reasons(&report.invalid),
        errors(checked),
    )?;
    for example in &verdict.examples {
        writeln!(out, "       {example}")?;
    }
    Ok(())
}

fn errors(checked: &Checked) -> String {
    let report = &checked.report;
    let counts = [
        (report.fdes_in_error, "descriptions in error"),
        (report.overlapping, "overlapping"),
        (report.discarded, "discarded"),
        (checked.verdict.beyond, "beyond gimli"),
    ];
    let said = counts.iter().filter(|(count, _)| *count > 0);
    said.map(|(count, what)| format!("; {count} {what}")).collect()
}

fn reasons(invalid: &[u64]) -> String {
    let counted: Vec<String> = (invalid.iter().zip(REASONS))
        .filter(|(count, _)| **count > 0)
        .map(|(count, reason)| format!("{} {count}", reason.name()))
        .collect();
    if counted.is_empty() { String::new() } else { format!(" ({})", counted.join(", ")) }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn speed(rows: u64, time: Duration) -> f64 {
    rows as f64 / time.as_secs_f64().max(1e-9) / 1e6
}

/// Sums over all files.
#[derive(Default)]
struct Sum {
    files: u64,
    others: u64,
    rejected: u64,
    fdes: u64,
    fdes_in_error: u64,
    overlapping: u64,
    discarded: u64,
    beyond: u64,
    source_rows: u64,
    rows: u64,
    kernel_bytes: u64,
    time: Duration,
    text: u64,
    covered: u64,
    compared: u64,
    from_code: u64,
    ruled: u64,
    holes: u64,
    wrong: u64,
    with_rbx: u64,
    invalid: [u64; REASONS.len()],
}

impl Sum {
    fn add(&mut self, checked: &Checked) {
        let Checked { report, verdict, .. } = checked;
        self.files += 1;
        self.fdes += report.fdes;
        self.fdes_in_error += report.fdes_in_error;
        self.overlapping += report.overlapping;
        self.discarded += report.discarded;
        self.beyond += verdict.beyond;
        self.source_rows += report.rows;
        self.rows += checked.rows as u64;
        self.kernel_bytes += checked.kernel_bytes as u64;
        self.time += checked.time;
        self.text += report.text;
        self.covered += report.covered;
        self.compared += verdict.rows;
        self.from_code += report.from_code;
        self.ruled += verdict.ruled;
        self.holes += verdict.holes;
        self.wrong += verdict.wrong;
        self.with_rbx += u64::from(report.rbx);
        for (sum, count) in self.invalid.iter_mut().zip(report.invalid) {
            *sum += count;
        }
    }

    fn print(&self, out: &mut impl Write) -> Result<()> {
        writeln!(out, "{} files, {} rejected, {} of other kinds", self.files, self.rejected, self.others)?;
        writeln!(
            out,
            "{} descriptions ({} in error, {} overlapping, {} discarded, {} beyond gimli), {:.2} % of {} MiB code covered, rbx in {} files",
            self.fdes,
            self.fdes_in_error,
            self.overlapping,
            self.discarded,
            self.beyond,
            percent(self.covered, self.text),
            self.text >> 20,
            self.with_rbx
        )?;
        writeln!(
            out,
            "{} rows ({} from code), {} after merging, {:.2} bytes a row in the kernel, converted in {:.2} s ({:.1} M rows/s)",
            self.source_rows,
            self.from_code,
            self.rows,
            self.kernel_bytes as f64 / self.rows.max(1) as f64,
            self.time.as_secs_f64(),
            speed(self.source_rows, self.time)
        )?;
        writeln!(
            out,
            "{} rows compared: {:.5} % have a rule, {} have none{}; {} holes compared; WRONG: {}",
            self.compared,
            percent(self.ruled, self.compared),
            self.compared - self.ruled,
            reasons(&self.invalid),
            self.holes,
            self.wrong
        )?;
        Ok(())
    }
}
