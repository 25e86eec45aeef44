//! The build id of a file on disk, for mappings of which the kernel told the inode only.
//!
//! The kernel gives the build id of a mapping only when the page that holds it is in memory at that moment, and
//! `/proc/PID/maps` never does. Without this, one library would be two objects.
//!
//! Files are hostile: at most 64 program headers and 64 KiB of notes are read, nothing is trusted.

use std::path::Path;

use super::reader::MappedFile;
use super::records::{array_at, u16_at, u32_at, u64_at};
use super::unwind::{FileImage, Image};
use crate::object::open::{self, OpenError, OpenFile, Root};
use crate::profile::{BuildId, Tgid, UserId};

const MAX_HEADERS: u16 = 64;
const MAX_NOTES: usize = 64 * 1024;
const PT_NOTE: u32 = 4;

/// Why there is no build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The file could not be opened or was another one: asking through another process may help.
    NotReachable,
    /// The file has none.
    NotThere,
}

/// Returns the build id of a file that a process has mapped. May wait for the file. `user` is charged.
pub(crate) fn of_mapping(user: UserId, tgid: Tgid, mapped: &MappedFile) -> Result<BuildId, Missing> {
    match find(user, tgid, mapped) {
        Ok(file) => of_image(&FileImage::new(file)).ok_or(Missing::NotThere),
        Err(OpenError::NotAnswering | OpenError::NotRegular | OpenError::NotStorage) => Err(Missing::NotThere),
        Err(_) => Err(Missing::NotReachable),
    }
}

fn find(user: UserId, tgid: Tgid, mapped: &MappedFile) -> Result<OpenFile, OpenError> {
    let (device, inode) = mapped.file;
    // The first works for deleted and replaced files too, but wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
    let (file, by_path) = match open::mapping_now(user, tgid, mapped.start..mapped.end) {
        Err(OpenError::NotFound | OpenError::PermissionDenied) => {
            (open::path_now(user, &Root::Process(tgid), Path::new(&*mapped.path))?, true)
        }
        opened => (opened?, false),
    };
    // A path may lead to another file by now. Btrfs and overlayfs give stat another device number than perf, so the device cannot
    // be compared for root's files. Other users could put another file with that inode number there, so for them it is.
    let is_it = file.facts.inode == inode && (!by_path || user == UserId(0) || file.facts.device == device);
    if is_it { Ok(file) } else { Err(OpenError::NotFound) }
}

/// Returns the build id from the notes of a 64-bit ELF image in this machine's byte order.
pub(crate) fn of_image(image: &(impl Image + ?Sized)) -> Option<BuildId> {
    let header = read(image, 0, 64)?;
    if array_at(&header, 0) != Some(*b"\x7fELF") || header.get(4) != Some(&2) {
        return None;
    }
    let table = u64_at(&header, 32)?;
    let size = u16_at(&header, 54).filter(|size| *size == 56)?;
    let count = u16_at(&header, 56)?.min(MAX_HEADERS);
    let headers = read(image, table, usize::from(size) * usize::from(count))?;
    headers.chunks_exact(56).filter(|header| u32_at(header, 0) == Some(PT_NOTE)).find_map(|header| {
        let length = usize::try_from(u64_at(header, 32)?).ok()?.min(MAX_NOTES);
        BuildId::in_notes(&read(image, u64_at(header, 8)?, length)?, u64_at(header, 48)?)
    })
}

fn read(image: &(impl Image + ?Sized), offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    image.read_exact_at(offset, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_of_our_own_libc_is_what_readelf_says() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("libc.so.6") && line.contains("r-xp")).expect("libc is mapped");
        let path = line.split_whitespace().last().unwrap();
        let id = of_image(std::fs::read(path).unwrap().as_slice()).expect("libc has a build id");
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
        assert_eq!(of_image(elf.as_slice()), None);
        assert_eq!(BuildId::in_notes(&[0xff; 64], 4), None);
        assert_eq!(BuildId::in_notes(&[], 4), None);
    }

    #[test]
    fn another_file_under_the_path_is_not_taken_for_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mapped = MappedFile { start: 0, end: 1, path: file.path().to_str().unwrap().into(), file: (1, 1) };
        assert_eq!(of_mapping(UserId(0), Tgid(std::process::id()), &mapped), Err(Missing::NotReachable));
    }
}
