//! Reads the build id of a mapped file from disk, when the kernel reported only the inode.
//!
//! The kernel reports the build id of a mapping only if the page that holds it is in memory. `/proc/PID/maps` never contains build
//! ids. Without this module, one library would be two objects.

use crate::collector::sys::machine;
use std::path::Path;
use std::sync::Arc;

use crate::collector::wire::perf_records::Inode;
use crate::object::build_id;
use crate::object::open::{self, OpenError, OpenFile, Root};
use crate::object::read_at::{FileBytes, read};
use crate::profile::{BuildId, Tgid, UserId};

/// A mapping of a file that the kernel identified only by device and inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MappedFile {
    /// First address.
    pub(crate) start: u64,
    /// Address after the last.
    pub(crate) end: u64,
    /// Path of the file, as the process sees it.
    pub(crate) path: Arc<str>,
    /// Device, inode and generation from the kernel, if it reported them.
    pub(crate) file: Option<Inode>,
}

/// Why there is no build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The file could not be opened, or another file was found in its place. The attempt through another process may succeed.
    NotReachable,
    /// The file has none.
    Absent,
    /// The file is no ELF file.
    NotElf,
}

/// Returns the build id of a file that a process has mapped. May wait for the file. `user` is charged.
pub(crate) fn of_mapping(user: UserId, tgid: Tgid, mapped: &MappedFile) -> Result<BuildId, Missing> {
    match find(user, tgid, mapped) {
        Ok(file) => {
            let bytes = FileBytes::new(file);
            let missing = if is_elf(&bytes) { Missing::Absent } else { Missing::NotElf };
            build_id::of_image(&bytes).ok_or(missing)
        }
        Err(OpenError::NotAnswering | OpenError::NotRegular | OpenError::NotStorage) => Err(Missing::Absent),
        Err(_) => Err(Missing::NotReachable),
    }
}

/// Whether the first bytes are those of an ELF file.
fn is_elf(bytes: &FileBytes) -> bool {
    read(bytes, 0, 4, 4, "the first bytes").is_ok_and(|first| first == *b"\x7fELF")
}

pub(super) fn find(user: UserId, tgid: Tgid, mapped: &MappedFile) -> Result<OpenFile, OpenError> {
    // The mapping leads to deleted and replaced files too, but needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
    let (file, by_path) = match open::mapping_now(user, tgid, mapped.start..mapped.end) {
        Err(OpenError::NotFound | OpenError::PermissionDenied) => {
            (open::path_now(user, &Root::Process(tgid), Path::new(&*mapped.path))?, true)
        }
        opened => (opened?, false),
    };
    // Without an inode, the kernel reported the build id. The caller then checks the contents.
    let Some(Inode { device, number, generation }) = mapped.file else { return Ok(file) };
    // A path may lead to another file by now. Btrfs and overlayfs give stat another device number than perf, so the device is not
    // compared for root's files. It is compared for other users, who could put another file with this inode number there.
    let is_it = file.facts.inode == number
        && (!by_path || user == UserId(0) || file.facts.device == device)
        && generation
            .is_none_or(|wanted| file.opened.near().and_then(machine::inode_generation).is_none_or(|found| found == wanted));
    if is_it { Ok(file) } else { Err(OpenError::NotFound) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_under_the_path_is_not_taken_for_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = Inode { device: 1, number: 1, generation: None };
        let mapped = MappedFile { start: 0, end: 1, path: file.path().to_str().unwrap().into(), file: Some(inode) };
        assert_eq!(of_mapping(UserId(0), Tgid(std::process::id()), &mapped), Err(Missing::NotReachable));
    }
}
