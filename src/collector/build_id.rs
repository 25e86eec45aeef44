//! The build id of a file on disk, for mappings of which the kernel told the inode only.
//!
//! The kernel gives the build id of a mapping only when the page that holds it is in memory at that moment, and
//! `/proc/PID/maps` never does. Without this, one library would be two objects.
//!
//! Files are hostile: at most 64 program headers and 64 KiB of notes are read, nothing is trusted.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use super::records::{array_at, u16_at, u32_at, u64_at};
use crate::far::{self, Place};
use crate::profile::BuildId;

const MAX_HEADERS: u16 = 64;
const MAX_NOTES: usize = 64 * 1024;
const PT_NOTE: u32 = 4;

/// Why there is no build id.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The file could not be opened or was another one: asking through another process may help.
    NotReachable,
    /// The file has none.
    NotThere,
}

/// How long the collecting thread waits for a file that may not answer. Samples that come meanwhile wait in the ring.
const PATIENCE: Duration = Duration::from_millis(250);

/// The build id of the file that process `tgid` has mapped at `start..end` under `path`; `file` is its device and inode.
///
/// One whose file system does not answer has none.
pub(crate) fn of_mapping(tgid: u32, start: u64, end: u64, path: &str, file: (u64, u64)) -> Result<BuildId, Missing> {
    if far::is_disk(file.0) {
        return find(tgid, start, end, path, file);
    }
    let path = path.to_owned();
    let found = far::within(Place::device(file.0), PATIENCE, move || find(tgid, start, end, &path, file));
    found.unwrap_or(Err(Missing::NotThere))
}

fn find(tgid: u32, start: u64, end: u64, path: &str, file: (u64, u64)) -> Result<BuildId, Missing> {
    // The first works for deleted and replaced files too, but wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
    let through_mapping = File::open(format!("/proc/{tgid}/map_files/{start:x}-{end:x}"));
    let open = through_mapping.or_else(|_| File::open(format!("/proc/{tgid}/root{path}"))).map_err(|_| Missing::NotReachable)?;
    // Opened by its path it may be another file by now. The device is not compared: btrfs and overlayfs tell stat another
    // one than they tell perf.
    let metadata = open.metadata().map_err(|_| Missing::NotReachable)?;
    if !metadata.is_file() || metadata.ino() != file.1 {
        return Err(Missing::NotReachable);
    }
    of_file(&open).ok_or(Missing::NotThere)
}

/// The build id in the notes of an ELF file of 64 bits and this machine's byte order.
pub(crate) fn of_file(file: &File) -> Option<BuildId> {
    let header = read(file, 0, 64)?;
    if array_at(&header, 0) != Some(*b"\x7fELF") || header.get(4) != Some(&2) {
        return None;
    }
    let table = u64_at(&header, 32)?;
    let size = u16_at(&header, 54).filter(|size| *size == 56)?;
    let count = u16_at(&header, 56)?.min(MAX_HEADERS);
    let headers = read(file, table, usize::from(size) * usize::from(count))?;
    headers.chunks_exact(56).filter(|header| u32_at(header, 0) == Some(PT_NOTE)).find_map(|header| {
        let length = usize::try_from(u64_at(header, 32)?).ok()?.min(MAX_NOTES);
        BuildId::in_notes(&read(file, u64_at(header, 8)?, length)?, u64_at(header, 48)?)
    })
}

fn read(file: &File, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_build_id_of_our_own_libc_is_what_readelf_says() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("libc.so.6") && line.contains("r-xp")).expect("libc is mapped");
        let path = line.split_whitespace().last().unwrap();
        let id = of_file(&File::open(path).unwrap()).expect("libc has a build id");
        let said = std::process::Command::new("readelf").args(["-n", path]).output().expect("readelf (binutils) is needed");
        assert!(String::from_utf8_lossy(&said.stdout).contains(&id.to_string()), "{id}");
    }

    #[test]
    fn a_file_that_lies_about_its_sizes_has_none() {
        let mut elf = vec![0u8; 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        elf[54..56].copy_from_slice(&56u16.to_ne_bytes());
        elf[56..58].copy_from_slice(&u16::MAX.to_ne_bytes());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&elf).unwrap();
        assert_eq!(of_file(&file), None);
        assert_eq!(BuildId::in_notes(&[0xff; 64], 4), None);
        assert_eq!(BuildId::in_notes(&[], 4), None);
    }

    #[test]
    fn another_file_under_the_path_is_not_taken_for_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(of_mapping(std::process::id(), 0, 1, path, (1, 1)), Err(Missing::NotReachable));
    }
}
