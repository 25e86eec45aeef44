//! Opens files that a process names: mapped files, debug files, maps of JIT code, sources, and files below `/proc/PID/root`.
//!
//! Flametop runs as root, and a process may name anything. A FIFO blocks its reader. A device may act when it is opened. A link may lead
//! out of the process's root. A file of `/sys` may act when it is read. A file system may never answer. So such paths are opened only here,
//! in these steps:
//!
//! ```text
//! 1  all steps run on a thread that can be left behind                  super::io_timeout, counted by user
//! 2  the root is opened with O_PATH                                     /proc/TGID/root, or our own
//! 3  the path: openat2(O_PATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS)  touches nothing, stays inside the root
//!    (for a mapping, the link in /proc/TGID/map_files, with O_PATH)
//! 4  fstat, fstatfs: a regular file on storage, else refused
//! 5  the same file, for reading, through /proc/self/fd                  it cannot have become another
//! ```
//!
//! An open file knows whether only root can write it ([`OpenFile::only_root_writes`]), and whether the host has the same file under that
//! path ([`OpenFile::is_hosts`]). Data from a file that others can write counts only for that file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags, StatxFlags};
use rustix::io::Errno;

use super::io_timeout::{self, FailureDomain, Opened, PATIENCE};
use super::process;
use crate::profile::{FileNamespace, Tgid, UserId};

/// File systems without a device whose files are storage nevertheless: `f_type` of statfs(2), and linux/magic.h. All file systems on a
/// device are storage as well. All other file systems show state of the kernel, which reading may change: proc, sysfs, debugfs, tracefs, …
const STORAGE: [u64; 28] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x9123_683e, // btrfs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // zfs
    0xca45_1a4e, // bcachefs
    0x9584_58f6, // hugetlbfs
    0xf15f,      // ecryptfs
    0x6175_6673, // aufs
    0x2405_1905, // ubifs
    0x72b6,      // jffs2
    0x5346_544e, // ntfs
    // File systems on other machines or in other programs: see super::io_timeout.
    0x6969,
    0x6573_5546,
    0xff53_4d42,
    0xfe53_4d42,
    0x517b,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x7375_7245,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0xbacb_acbc,
    0x786f_4256,
    // erofs, which needs no device if its image is a file.
    0xe0f5_e1e2,
];

/// Why a file was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file, or the process is gone.
    #[error("not found")]
    NotFound,
    /// Flametop lacks the permission.
    #[error("permission denied")]
    PermissionDenied,
    /// A device, a FIFO, a socket, a directory, or a link in `/proc`.
    #[error("not a regular file")]
    NotRegular,
    /// A file that shows state of the kernel, such as one below `/sys`.
    #[error("not a file on storage")]
    NotStorage,
    /// Its file system did not answer in time, now or earlier.
    #[error("the file system does not answer")]
    NotAnswering,
    /// Anything else.
    #[error("the file cannot be read ({0})")]
    Io(io::ErrorKind),
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> OpenError {
        match errno {
            // ESRCH: the process ended while its directory in /proc was open.
            Errno::NOENT | Errno::NOTDIR | Errno::SRCH => OpenError::NotFound,
            Errno::ACCESS | Errno::PERM => OpenError::PermissionDenied,
            Errno::LOOP => OpenError::NotRegular,
            other => OpenError::from(io::Error::from(other)),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        match error.kind() {
            io::ErrorKind::TimedOut => OpenError::NotAnswering,
            kind => OpenError::Io(kind),
        }
    }
}

/// The root directory of a path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Root {
    /// Our own root directory.
    Own,
    /// The root directory of a process.
    Process(Tgid),
    /// A directory of ours, which is opened without checks.
    Under(PathBuf),
}

impl Root {
    /// Returns the root directory as a path of ours.
    pub fn path(&self) -> PathBuf {
        match self {
            Root::Own => PathBuf::from("/"),
            Root::Process(tgid) => process::directory(tgid.0).join("root"),
            Root::Under(directory) => directory.clone(),
        }
    }

    /// Returns the place of a path below the root. If the path does not answer, its whole place does not.
    pub fn place(&self, path: &Path) -> FailureDomain {
        FailureDomain::beside(&self.path(), path)
    }
}

/// Returns the namespace of our own paths, numbered as for processes.
pub fn own_files() -> FileNamespace {
    /// The initial user namespace: `PROC_USER_INIT_INO` of linux/proc_ns.h.
    const INITIAL: u32 = 0xefff_fffd;
    static OWN: LazyLock<FileNamespace> = LazyLock::new(|| {
        let namespace = rustix::fs::stat("/proc/self/ns/user").map_or(INITIAL, |about| about.st_ino as u32);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        FileNamespace(if namespace == INITIAL { device_of_root(&mounts).unwrap_or(0) } else { namespace })
    });
    *OWN
}

/// Returns the device of `/` in the kernel's own encoding (`MKDEV`). It is read from mountinfo, because on btrfs stat tells another one.
fn device_of_root(mounts: &str) -> Option<u32> {
    // Example: 36 35 98:0 /mnt1 /mnt2 rw,noatime …; a later line hides earlier lines with the same path.
    let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    let (major, minor) = mounts.lines().rfind(is_root)?.split(' ').nth(2)?.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

/// The data of `statx` about a file when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// `st_dev`. Mappings have another number on btrfs and overlayfs.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// Length in bytes.
    pub length: u64,
    /// Bytes that it takes on its disk. A sparse file takes fewer than its length.
    pub stored: u64,
    /// Its owner, numbered as in our user namespace.
    pub owner: UserId,
    /// Permissions and kind: `st_mode`.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// When its bytes were last changed: seconds and nanoseconds since 1970. The owner can set it.
    pub modified: (i64, u32),
    /// When its bytes, owner, mode or links were last changed. It cannot be set.
    pub changed: (i64, u32),
    /// Whether set-user-id bits count where it is mounted (no `nosuid`). Administrators set `nosuid` for file systems that users bring.
    pub honours_set_uid: bool,
}

/// A regular file on storage, open for reading.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The user who chose it.
    pub user: UserId,
    /// The open file, with the thread that waits if it does not answer.
    pub opened: Opened,
    /// Its data when it was opened.
    pub facts: Facts,
}

impl OpenFile {
    /// Wraps a file that flametop opened itself, not by a path of a process.
    pub fn ours(file: File) -> Result<OpenFile, OpenError> {
        let facts = facts_of(&file)?;
        if FileType::from_raw_mode(facts.mode) != FileType::RegularFile {
            return Err(OpenError::NotRegular);
        }
        Ok(OpenFile { user: UserId(0), opened: Opened::new(0, file)?, facts })
    }

    /// Whether only root of the initial user namespace can have written it or can write it while it is open.
    pub fn only_root_writes(&self) -> bool {
        let facts = &self.facts;
        self.opened.near().is_some() && facts.honours_set_uid && facts.owner == UserId(0) && facts.mode & 0o022 == 0
    }

    /// Whether our own `path` leads to this file, and only root can write the file and the directories above it.
    ///
    /// Such a file is the same for all users. Reads our own file system, so it may wait.
    pub fn is_hosts(&self, path: &Path) -> bool {
        let same = || -> Result<bool, Errno> {
            let resolve = ResolveFlags::NO_MAGICLINKS;
            let own = rustix::fs::openat2(rustix::fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
            let stat = rustix::fs::fstat(&own)?;
            if (stat.st_dev, stat.st_ino) != (self.facts.device, self.facts.inode) {
                return Ok(false);
            }
            let real = rustix::fs::readlink(format!("/proc/self/fd/{}", own.as_raw_fd()), Vec::new())?;
            let real = PathBuf::from(std::ffi::OsString::from(String::from_utf8_lossy(real.as_bytes()).into_owned()));
            for directory in real.ancestors().skip(1) {
                let stat = rustix::fs::lstat(directory)?;
                if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
                    return Ok(false);
                }
            }
            Ok(real.is_absolute())
        };
        path.is_absolute() && self.only_root_writes() && same().unwrap_or(false)
    }
}

/// Does work that may wait for files that `user` chose. Fails after [`PATIENCE`].
pub fn in_time<T: Send + 'static>(
    user: UserId,
    place: FailureDomain,
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    in_time_of(user, place, PATIENCE, work)
}

/// Does work that may wait for files that `user` chose. Fails after `time`.
pub fn in_time_of<T: Send + 'static>(
    user: UserId,
    place: FailureDomain,
    time: Duration,
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    io_timeout::within(user.0, place, time, work)?
}

/// Opens the file that a process has mapped at these addresses, even if its path has changed.
///
/// `path` is the file's path in the process. If it does not answer, other files in its directory are not asked either.
pub fn open_mapping(user: UserId, tgid: Tgid, addresses: Range<u64>, path: &Path) -> Result<OpenFile, OpenError> {
    let place = Root::Process(tgid).place(path);
    in_time(user, place, move || mapping_now(user, tgid, addresses))
}

/// Opens a path as a process with that root would, and follows links.
pub fn open_path(user: UserId, root: Root, path: &Path) -> Result<OpenFile, OpenError> {
    let path = path.to_owned();
    let place = root.place(&path);
    in_time(user, place, move || path_now(user, &root, &path))
}

/// Does [`open_mapping`] on the calling thread. May wait.
pub fn mapping_now(user: UserId, tgid: Tgid, addresses: Range<u64>) -> Result<OpenFile, OpenError> {
    let link = process::directory(tgid.0).join(format!("map_files/{:x}-{:x}", addresses.start, addresses.end));
    reopen(user, &rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Does [`open_path`] on the calling thread. May wait.
pub fn path_now(user: UserId, root: &Root, path: &Path) -> Result<OpenFile, OpenError> {
    reopen(user, &locate(root, path)?)
}

/// Opens a file of this name in a directory, unless it is a link or a mount. May wait.
///
/// Fails with [`OpenError::NotRegular`] for a link or a mount.
pub fn entry_now(user: UserId, root: &Root, directory: &Path, name: &str) -> Result<OpenFile, OpenError> {
    let directory = locate(root, directory)?;
    let here = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let place = rustix::fs::openat2(directory, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), here);
    reopen(user, &place.map_err(|errno| if errno == Errno::XDEV { OpenError::NotRegular } else { errno.into() })?)
}

/// Opens a file of any kind with `O_PATH`, which does not touch it. May wait.
pub fn locate(root: &Root, path: &Path) -> Result<OwnedFd, OpenError> {
    let root = rustix::fs::open(root.path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Opens the file of an `O_PATH` descriptor for reading, if it is a regular file on storage. May wait.
pub fn reopen(user: UserId, place: &impl AsFd) -> Result<OpenFile, OpenError> {
    let place = place.as_fd();
    let stat = rustix::fs::fstat(place)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotRegular);
    }
    let kind = rustix::fs::fstatfs(place)?.f_type as u64 & 0xffff_ffff;
    if !io_timeout::is_disk(stat.st_dev) && !STORAGE.contains(&kind) {
        return Err(OpenError::NotStorage);
    }
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(again, flags, Mode::empty())?);
    let facts = facts_of(&file)?;
    Ok(OpenFile { user, opened: Opened::new(user.0, file)?, facts })
}

/// Reads the data about an open file. May wait.
fn facts_of(file: &File) -> Result<Facts, OpenError> {
    let about = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let mount = rustix::fs::fstatvfs(file)?.f_flag;
    Ok(Facts {
        device: rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor),
        inode: about.stx_ino,
        length: about.stx_size,
        stored: about.stx_blocks.saturating_mul(512),
        owner: UserId(about.stx_uid),
        mode: about.stx_mode.into(),
        links: about.stx_nlink,
        modified: (about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec),
        changed: (about.stx_ctime.tv_sec, about.stx_ctime.tv_nsec),
        honours_set_uid: !mount.contains(StatVfsMountFlags::NOSUID),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Instant;

    use super::*;

    const US: UserId = UserId(0);

    fn open(path: &Path) -> Result<OpenFile, OpenError> {
        open_path(US, Root::Own, path)
    }

    #[test]
    fn what_is_no_regular_file_is_never_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let link = directory.path().join("link");
        symlink("/dev/zero", &link).unwrap();
        let begun = Instant::now();
        for path in [fifo.as_path(), link.as_path(), Path::new("/dev/zero"), Path::new("/"), Path::new("/proc/self/fd/0")] {
            assert!(matches!(open(path), Err(OpenError::NotRegular | OpenError::NotFound)), "{}", path.display());
        }
        assert!(begun.elapsed() < PATIENCE);
    }

    #[test]
    fn state_of_the_kernel_is_no_storage() {
        for path in ["/proc/version", "/sys/kernel/notes", "/proc/self/maps"] {
            assert_eq!(open(Path::new(path)).err(), Some(OpenError::NotStorage), "{path}");
        }
    }

    #[test]
    fn who_may_write_a_file_is_told() {
        let shared = Path::new("/usr/bin/env");
        let file = open(shared).unwrap();
        assert!(file.only_root_writes() && file.is_hosts(shared));
        assert!(!file.is_hosts(Path::new("/usr/bin/tail")), "another file");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let file = open(&path).unwrap();
        assert!(!file.only_root_writes() && !file.is_hosts(&path));
        assert_eq!((file.facts.length, file.facts.links), (1, 1));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(!open(&path).unwrap().is_hosts(&path), "anybody may put another file into /tmp");
    }

    #[test]
    fn a_mapping_leads_to_its_file() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("libc.so.6") && line.contains("r-xp")).expect("libc is mapped");
        let (range, path) = (line.split_whitespace().next().unwrap(), line.split_whitespace().last().unwrap());
        let (start, end) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let own = Tgid(std::process::id());
        let file = open_mapping(US, own, number(start)..number(end), Path::new(path)).unwrap();
        assert_eq!(file.facts.inode, rustix::fs::stat(path).unwrap().st_ino);
        assert_eq!(open_mapping(US, own, 0..4096, Path::new(path)).err(), Some(OpenError::NotFound));
        assert_eq!(open_path(US, Root::Process(Tgid(u32::MAX)), Path::new(path)).err(), Some(OpenError::NotFound));
    }
}
