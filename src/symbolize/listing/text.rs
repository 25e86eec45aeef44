//! Source files, as hostile as everything else that a profiled program names.
//!
//! A path is opened within a root, first that of a process that runs the program, and no link of `/proc` is followed. What is not a
//! regular file, or lies in a file system that is no storage (reading such a file may do something, or never end), is not read.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::profile::{Row, Tgid, sanitize};
use crate::symbolize::files::{open_in_root, open_regular};
use crate::symbolize::problem::Reason;

/// Longest file read. The largest sources that people write have some 300 kB; SQLite's amalgamation has 9 MB.
const MAX_SIZE: u64 = 16 << 20;
/// Columns of a line that are kept: generated files have all on one.
const MAX_COLUMNS: usize = 1000;
const TAB: usize = 8;

/// `statfs` of procfs, sysfs, debugfs, tracefs, securityfs, configfs, bpf, cgroup 1 and 2, and what functionfs and the like have
/// for devices (linux/magic.h).
const NO_STORAGE: [u64; 9] =
    [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x7363_6673, 0x6265_6570, 0xcafe_4a11, 0x27_e0eb, 0x6367_7270];

/// A file's lines, and when it was written to.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) rows: Vec<Row>,
    pub(super) modified: (i64, i64),
}

/// Reads the file of this path as one of the processes sees it, or as we do.
///
/// The error says in words which file is missing and why.
pub(super) fn read(path: &str, hosts: &[Tgid]) -> Result<Text, String> {
    if !path.starts_with('/') {
        return Err(format!("the compiler has written down no directory of {path}"));
    }
    let roots = hosts.iter().map(|tgid| PathBuf::from(format!("/proc/{tgid}/root"))).chain([PathBuf::from("/")]);
    let mut worst = Reason::NotFound;
    for root in roots {
        match read_in(&root, path) {
            Ok(text) => return Ok(text),
            Err(Reason::NotFound) => {}
            Err(reason) => worst = reason,
        }
    }
    Err(match worst {
        Reason::NotFound => format!("{path} is not here, where the compiler had it"),
        Reason::TooLarge => format!("{path} is longer than {} MB", MAX_SIZE >> 20),
        reason => format!("{path}: {reason}"),
    })
}

fn read_in(root: &Path, path: &str) -> Result<Text, Reason> {
    let place = open_in_root(root, path)?;
    let file_system = rustix::fs::fstatfs(&place)?.f_type as u64;
    if NO_STORAGE.contains(&(file_system & 0xffff_ffff)) {
        return Err(Reason::NotRegular);
    }
    let file = open_regular(&place)?;
    let about = rustix::fs::fstat(&file)?;
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(Reason::TooLarge);
    }
    Ok(Text { rows: rows(&bytes), modified: (about.st_mtime, i64::try_from(about.st_mtime_nsec).unwrap_or(0)) })
}

/// Lines made safe to print.
fn rows(bytes: &[u8]) -> Vec<Row> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.zip(1..).map(|(line, place)| Row { place, text: printable(line.strip_suffix(b"\r").unwrap_or(line)) }).collect()
}

fn printable(line: &[u8]) -> Box<str> {
    let line = line.get(..4 * MAX_COLUMNS).unwrap_or(line);
    let mut text = String::with_capacity(line.len());
    let mut columns = 0;
    for c in String::from_utf8_lossy(line).chars().take(MAX_COLUMNS) {
        if c == '\t' {
            let to = (columns / TAB + 1) * TAB;
            text.extend(std::iter::repeat_n(' ', to - columns));
            columns = to;
        } else {
            text.push(c);
            columns += 1;
        }
    }
    sanitize(text.trim_end()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_safe_to_print_and_tabs_are_blanks() {
        let rows = rows(b"int f()\r\n{\n\tx\ty\x1b[31m\n\xff\n\n");
        let texts: Vec<&str> = rows.iter().map(|row| &*row.text).collect();
        assert_eq!(texts, ["int f()", "{", "        x       y·[31m", "\u{fffd}", ""]);
        assert_eq!(rows.last().map(|row| row.place), Some(5));
        assert_eq!(super::rows(&[b'x'; 100_000]).first().map(|row| row.text.len()), Some(MAX_COLUMNS));
    }

    #[test]
    fn only_regular_files_in_storage_are_read() {
        let own = [Tgid(std::process::id())];
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/src/symbolize/listing/text.rs");
        assert!(read(here, &own).is_ok_and(|text| text.rows.iter().any(|row| row.text.contains("fn only_regular_files"))));
        assert!(read(here, &[Tgid(u32::MAX)]).is_ok(), "a process that is gone leaves our own root");
        for path in ["/proc/self/maps", "/proc/self/exe", "/dev/zero", "/dev/tty", "/", "/sys/kernel/profiling", "/proc/kmsg"] {
            let said = read(path, &own).unwrap_err();
            assert!(said.contains(path), "{said}");
        }
        assert!(read("/no/such/file.c", &own).unwrap_err().contains("/no/such/file.c is not here"));
        assert!(read("file.c", &own).unwrap_err().contains("no directory of file.c"));
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large.c");
        std::fs::File::create(&large).unwrap().set_len(MAX_SIZE + 1).unwrap();
        assert!(read(large.to_str().unwrap(), &[]).unwrap_err().contains("longer than 16 MB"));
    }
}
