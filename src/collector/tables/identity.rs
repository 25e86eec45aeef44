//! Finds the file of a mapping that a sample hit, and determines whether it is the host's.
//!
//! The kernel names the file by superblock, inode and generation ([`ObjectKey`]). Before we open it, its process can map another file
//! at the same addresses. So the opened file is compared with all three:
//!
//! ```text
//! superblock   st_dev; on btrfs, where st_dev differs, the mount's number in mountinfo, found by the mount's id (statx)
//! inode        all 64 bits
//! generation   i_generation (FS_IOC_GETVERSION) mixed with the time of modification, as bpf/lookup/mappings.h does; not compared if the
//!              file system has no generation (tmpfs): it never reuses inode numbers
//! ```
//!
//! overlayfs: the kernel's mapping has the superblock and inode of the layer's file, but stat returns those of the overlay. Only the lower
//! 32 bits of the inode number are compared (the upper bits may name the layer). A user who mounts an overlay in a user namespace could
//! choose both numbers. So the file is verified only if root has mounted the overlay, in our own mount namespace or in that of the process.
//! The latter counts only if the initial user namespace owns it (containers that are not rootless). Files on
//! another overlay, as in a rootless container, have a table that serves their user alone: it can mislead nobody else. Root gets none.

use crate::collector::sys::machine;
use crate::collector::wire::records::ObjectKey;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use super::queue::{Job, ROOT, Sought};
use super::served::For;
use crate::collector::wire::perf_records::Identity;
use crate::object::open::{self, OpenError, OpenFile, Root};
use crate::object::process::directory;
use crate::profile::Tgid;
use crate::unwind::FileBytes;

/// Most bytes that are read from a mountinfo: about ten thousand mounts.
const MOST_MOUNTINFO: u64 = 4 << 20;

/// Why no file was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NotFound {
    /// The process is gone, or has mapped another file at these addresses. The next sample asks again.
    Gone,
    /// The file cannot be used, for this reason.
    Refused(String),
}

/// A mapping's file, and its path as the process sees it.
#[derive(Debug)]
pub(super) struct FoundImage {
    /// The kernel's key of the file.
    pub(super) key: ObjectKey,
    pub(super) file: OpenFile,
    pub(super) path: Arc<str>,
    /// Whether only root can have written it, and our own path leads to the same file.
    pub(super) is_hosts: bool,
    /// The users whom its table serves: all, if it was verified that it is the mapped file.
    pub(super) users: For,
}

/// Whether an open file is the file that a job seeks.
enum Match {
    Yes,
    No,
    /// Only the user who has mounted its file system says so.
    Claimed,
}

/// Reads the path of a mapping. Waits while the process holds its memory lock.
fn link_of(job: &Job) -> Option<Arc<str>> {
    let (start, end) = job.mapping;
    let link = std::fs::read_link(directory(job.tgid).join(format!("map_files/{start:x}-{end:x}"))).ok()?;
    Some(link.to_string_lossy().into())
}

/// Finds the file of a mapping through the mapping itself. If the process has unmapped it or is gone, tries the possible paths of the file.
/// May wait. Reads a path that is not known before anything that asks the file system.
pub(super) fn find(job: &Job) -> Result<FoundImage, NotFound> {
    let (start, end) = job.mapping;
    if job.path.is_none()
        && let Some(path) = link_of(job)
    {
        let _ = job.link.set(path);
    }
    let mut refused = None;
    match open::mapping_now(job.user, Tgid(job.tgid), start..end) {
        Ok(file) => match identify(&file, job) {
            Ok(Some((key, users))) => {
                return Ok(found(file, key, users, job.path().unwrap_or_default()));
            }
            Ok(None) => {}
            Err(why) => refused = Some(why),
        },
        Err(why @ (OpenError::NotRegular | OpenError::NotStorage)) => refused = Some(why.to_string()),
        Err(_) => {}
    }
    // The process may end at any moment, so our own paths are tried too, but only if the process saw the same files as we do.
    let roots = [Some(Root::Process(Tgid(job.tgid))), (job.files == open::own_files()).then_some(Root::Own)];
    let paths = || job.path.iter().chain(&job.lately).filter(|path| path.starts_with('/') && !path.ends_with(" (deleted)"));
    for (root, path) in roots.iter().flatten().flat_map(|root| paths().map(move |path| (root, path))) {
        match open::path_now(job.user, root, Path::new(&**path)).map(|file| (identify(&file, job), file)) {
            Ok((Ok(Some((key, users))), file)) => return Ok(found(file, key, users, path.clone())),
            Ok((Err(why), _)) => refused = Some(why),
            _ => {}
        }
    }
    Err(refused.map_or(NotFound::Gone, NotFound::Refused))
}

fn found(file: OpenFile, key: ObjectKey, users: For, path: Arc<str>) -> FoundImage {
    let is_hosts = users == For::All && file.is_hosts(Path::new(&*path));
    FoundImage { key, file, path, is_hosts, users }
}

/// Returns the kernel's key of an open file, if it is the file that the job seeks, and the users whom its table serves. Fails if root
/// would have to believe what another user says.
fn identify(file: &OpenFile, job: &Job) -> Result<Option<(ObjectKey, For)>, String> {
    match job.sought {
        Sought::Sampled(key) => match is_it(file, key, job.tgid) {
            Match::Yes => Ok(Some((key, For::All))),
            Match::No => Ok(None),
            Match::Claimed if job.user == ROOT => {
                Err("it is on an overlay that a user has mounted: the mapped file cannot be verified".to_owned())
            }
            Match::Claimed => Ok(Some((key, For::User(job.user)))),
        },
        Sought::Mapped(identity) => Ok(key_of(file, identity, job.tgid).map(|key| (key, For::All))),
    }
}

/// Returns the kernel's key of an open file, if it is the file that an event of a mapping named. Also returns `None` if that cannot be
/// determined: on remote file systems and overlays, and if neither the file system nor the event has the generation.
fn key_of(file: &OpenFile, identity: Identity, tgid: u32) -> Option<ObjectKey> {
    let (near, facts) = (file.opened.near()?, &file.facts);
    if rustix::fs::fstatfs(near).ok()?.f_type as u64 & 0xffff_ffff == OVERLAYFS {
        return None;
    }
    let device = superblock(file, near, None, tgid)?;
    let is_it = match identity {
        Identity::BuildId(id) => crate::object::build_id::of_image(&FileBytes::new(file.clone())) == Some(id),
        Identity::Inode(inode) => device == inode.device && facts.inode == inode.number,
    };
    let told = match identity {
        Identity::Inode(inode) => inode.generation,
        Identity::BuildId(_) => None,
    };
    let generation = machine::inode_generation(near).or(told).filter(|found| is_it && told.is_none_or(|told| told == *found))?;
    Some(ObjectKey::new(device, facts.inode, content(generation, facts.modified)))
}

/// Returns whether an open file is the file that the kernel named.
fn is_it(file: &OpenFile, key: ObjectKey, tgid: u32) -> Match {
    let certain = |is_it| if is_it { Match::Yes } else { Match::No };
    let facts = &file.facts;
    let Some(near) = file.opened.near() else {
        // A remote file: st_dev is the superblock's number. Its table is never shared, so this need not be certain.
        return certain(facts.device == key.device() && facts.inode == key.inode);
    };
    let superblock = superblock(file, near, Some(key.device()), tgid);
    if superblock != Some(key.device()) {
        let is_overlay = rustix::fs::fstatfs(near).is_ok_and(|about| about.f_type as u64 & 0xffff_ffff == OVERLAYFS);
        return match is_overlay && facts.inode as u32 == key.inode as u32 {
            true if is_mounted_by_root(superblock.unwrap_or(facts.device), tgid) => Match::Yes,
            true => Match::Claimed,
            false => Match::No,
        };
    }
    let generation = machine::inode_generation(near);
    certain(facts.inode == key.inode && generation.is_none_or(|generation| content(generation, facts.modified) == key.generation))
}

const OVERLAYFS: u64 = 0x794c_7630;

/// Computes the same number as `content_generation` of bpf/lookup/mappings.h.
pub(super) fn content(generation: u32, (seconds, nanoseconds): (i64, u32)) -> u32 {
    let time = seconds.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(u64::from(nanoseconds));
    generation ^ (time.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Returns the number of the file's superblock, as mappings contain it. If the number equals `expected`, the mounts are not read.
fn superblock(file: &OpenFile, near: &File, expected: Option<u64>, tgid: u32) -> Option<u64> {
    if Some(file.facts.device) == expected || rustix::fs::major(file.facts.device) != 0 {
        return Some(file.facts.device);
    }
    let about = rustix::fs::statx(near, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let mount = (about.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(about.stx_mnt_id)?;
    let mounts = [directory(tgid).join("mountinfo"), "/proc/self/mountinfo".into()];
    mounts.iter().find_map(|mounts| device_of_mount(&read_mounts(mounts), mount))
}

fn read_mounts(path: impl AsRef<Path>) -> String {
    File::open(path).map(read_all).unwrap_or_default()
}

/// Returns the text of a mountinfo. After an error, the part that was read is used.
fn read_all(file: File) -> String {
    let mut text = Vec::new();
    let _ = file.take(MOST_MOUNTINFO).read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads the device from a line of mountinfo: `36 35 98:0 /root /mountpoint options … - type source options`.
fn device_in(line: &str) -> Option<u64> {
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn device_of_mount(mounts: &str, mount: u64) -> Option<u64> {
    let is_it = |line: &&str| line.split(' ').next().and_then(|id| id.parse().ok()) == Some(mount);
    device_in(mounts.lines().find(is_it)?)
}

/// For the fuzzer: finds the device of the last mount in a mountinfo.
pub(crate) fn device_of_any_mount(mounts: &str) -> Option<u64> {
    let last = mounts.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).next_back()?;
    device_of_mount(mounts, last)
}

/// Whether root has mounted the overlay with this device number.
fn is_mounted_by_root(device: u64, tgid: u32) -> bool {
    has_overlay(&read_mounts("/proc/self/mountinfo"), device)
        || mounts_of_root(tgid).is_some_and(|mounts| has_overlay(&mounts, device))
}

fn has_overlay(mounts: &str, device: u64) -> bool {
    mounts.lines().any(|line| line.contains(" - overlay ") && device_in(line) == Some(device))
}

/// Returns the mounts of a process, if root owns its mount namespace. `None` if root does not, or if the namespace changes meanwhile.
///
/// Users can only move to a mount namespace that they own, and cannot move back. So the namespace is checked before and after its mounts
/// are read. The directory of the process stays open, because another process with the same number has another directory.
fn mounts_of_root(tgid: u32) -> Option<String> {
    let process = File::open(directory(tgid)).ok()?;
    let open = |name: &str| {
        let opened = rustix::fs::openat(&process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        opened.map(File::from).ok()
    };
    let number = |file: &File| file.metadata().ok().map(|about| (about.dev(), about.ino()));
    let before = open("ns/mnt")?;
    if !machine::is_owned_by_initial_user_namespace(&before) {
        return None;
    }
    let mounts = read_all(open("mountinfo")?);
    (number(&open("ns/mnt")?)? == number(&before)?).then_some(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_id() {
        let mounts = "25 1 254:0 / / rw - ext4 /dev/vda rw\n36 25 0:42 / /var/merged rw - overlay overlay rw\n";
        assert_eq!(device_of_mount(mounts, 36), Some(rustix::fs::makedev(0, 42)));
        assert_eq!(device_of_mount(mounts, 3), None);
        let own = read_mounts("/proc/self/mountinfo");
        let root = std::fs::metadata("/").unwrap().dev();
        assert!(own.lines().any(|line| device_in(line) == Some(root)));
        assert!(has_overlay(mounts, rustix::fs::makedev(0, 42)) && !has_overlay(mounts, rustix::fs::makedev(254, 0)));
        assert!(!is_mounted_by_root(u64::MAX, std::process::id()));
    }
}
