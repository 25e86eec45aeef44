//! Finding and opening the file that a process has mapped, and making sure that it is that file.
//!
//! Tried in this order; the first that can be opened and is the right one is taken:
//!
//! 1. `/proc/TGID/map_files/START-END`: the mapped file itself, even when it is deleted or in another mount namespace.
//! 2. PATH under `/proc/TGID/root`: the path as the process sees it. Symbolic links are followed inside that root.
//! 3. PATH as we see it: for processes that are gone.
//!
//! # Whether it is the right one
//!
//! | known of the object | a file passes when |
//! | --- | --- |
//! | build id | it has the same build id |
//! | device and inode | its inode is the same, and its device unless one of both is anonymous (major 0: btrfs, overlayfs) |
//! | neither | it is the file of `map_files`, and that link still has the object's path |
//!
//! btrfs and overlayfs show other device numbers (and overlayfs other inodes) to `stat` than mappings have. There the link in
//! `map_files` decides: a mapping at the same place with the same path is the same mapping.
//!
//! # Opening
//!
//! A path that a process chooses may lead to a device whose mere opening does something, or to a FIFO that blocks. So a path
//! is first opened with `O_PATH`, which touches nothing; only if that is a regular file, the very same file is opened for
//! reading through `/proc/self/fd`.
//!
//! It may also lead to a file system that does not answer, where even the look at a path waits: so all of this is done by a thread that
//! is left behind if it takes too long ([`patiently`]).

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::elf::Image;
use super::problem::Reason;
use super::source::Source;
use crate::far::{self, PATIENCE, Place};
use crate::profile::{Object, ProcessAddress, Tgid};

/// A process that had an object mapped, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Host {
    pub(super) tgid: Tgid,
    pub(super) mapping: Range<ProcessAddress>,
}

/// One of the ways to a file.
#[derive(Clone)]
enum Way {
    /// The magic link of a mapping.
    Mapping(PathBuf),
    /// A path in a process's root.
    InRoot(PathBuf),
    /// A path in our root.
    Plain,
}

impl Way {
    /// What is asked when this way is gone.
    fn place(&self, path: &str) -> Place {
        let root = match self {
            // The process's root as well: a mapping leads to the same file.
            Way::Mapping(link) => link.ancestors().nth(2).map_or_else(PathBuf::new, |process| process.join("root")),
            Way::InRoot(root) => root.clone(),
            Way::Plain => PathBuf::from("/"),
        };
        Place::beside(&root, Path::new(path))
    }
}

/// The path of an object that may be deleted.
fn path_of(object: &Object) -> &str {
    object.path.strip_suffix(" (deleted)").unwrap_or(&object.path)
}

/// The image of an ELF object, from the first file that is certainly the one the hosts have mapped.
///
/// Fails with the most telling reason: that a file is another one says more than that one is missing.
pub(super) fn open_image(object: &Object, hosts: &[Host]) -> Result<Image, Reason> {
    let mut worst = Reason::NotFound;
    let mut any_alive = false;
    for host in hosts {
        any_alive |= PathBuf::from(format!("/proc/{}", host.tgid)).exists();
        for way in ways(host) {
            match open_way(object, &way) {
                Ok(image) => return Ok(image),
                // Each way would have to be waited for.
                Err(Reason::NotAnswering) => return Err(Reason::NotAnswering),
                Err(reason) => worst = more_telling(worst, reason),
            }
        }
    }
    match open_way(object, &Way::Plain) {
        Ok(image) => Ok(image),
        Err(reason) => match more_telling(worst, reason) {
            Reason::NotFound if !any_alive && !hosts.is_empty() => Err(Reason::ProcessGone),
            reason => Err(reason),
        },
    }
}

fn ways(host: &Host) -> impl Iterator<Item = Way> {
    let process = PathBuf::from(format!("/proc/{}", host.tgid));
    let Range { start, end } = host.mapping;
    let mapping =
        (start < end).then(|| Way::Mapping(process.join(format!("map_files/{start:x}-{end:x}", start = start.0, end = end.0))));
    mapping.into_iter().chain([Way::InRoot(process.join("root"))])
}

/// The reason that says more. What is wrong with the right file says most, that there is none says least.
fn more_telling(a: Reason, b: Reason) -> Reason {
    let weight = |reason| match reason {
        Reason::NotFound => 0,
        Reason::Io(_) => 1,
        Reason::PermissionDenied => 2,
        Reason::NotRegular => 3,
        Reason::Unverified => 4,
        Reason::Replaced => 5,
        _ => 6,
    };
    if weight(b) > weight(a) { b } else { a }
}

/// Does what opens a file, and looks at the paths to it, as long as it does not take too long: see [`far`].
///
/// Fails with [`Reason::NotAnswering`].
pub(super) fn patiently<T: Send + 'static>(
    place: Place,
    open: impl FnOnce() -> Result<T, Reason> + Send + 'static,
) -> Result<T, Reason> {
    far::within(place, PATIENCE, open)?
}

/// A file by one of the ways, if it is that of the object as far as device and inode tell.
fn find_way(object: &Object, way: &Way) -> Result<Source, Reason> {
    let path = path_of(object);
    let place = match way {
        Way::Mapping(link) => rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
        Way::InRoot(_) | Way::Plain if !path.starts_with('/') => return Err(Reason::NotFound),
        Way::InRoot(root) => open_in_root(root, path)?,
        Way::Plain => rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
    };
    let file = open_regular(&place)?;
    let identity = compare_inode(object, &file)?;
    let proven = match identity {
        _ if object.build_id.is_some() => true,
        Identity::Same => true,
        Identity::Other => false,
        Identity::Unknown => matches!(way, Way::Mapping(link) if leads_to(link, path)),
    };
    if !proven {
        return Err(if identity == Identity::Unknown { Reason::Unverified } else { Reason::Replaced });
    }
    Source::file(file)
}

fn open_way(object: &Object, way: &Way) -> Result<Image, Reason> {
    let source = {
        let (object, way) = (object.clone(), way.clone());
        patiently(way.place(path_of(&object)), move || find_way(&object, &way))?
    };
    let image = Image::read(source)?;
    match object.build_id {
        Some(wanted) if image.build_id() != Some(wanted) => Err(Reason::Replaced),
        _ => Ok(image),
    }
}

/// Opens a path as the process with that root would, links and all. Magic links, as in `/proc`, are not followed.
pub(super) fn open_in_root(root: &Path, path: impl rustix::path::Arg) -> Result<OwnedFd, Reason> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Opens for reading what an `O_PATH` descriptor stands for, if that is a regular file.
pub(super) fn open_regular(place: &impl AsFd) -> Result<File, Reason> {
    let place = place.as_fd();
    if FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode) != FileType::RegularFile {
        return Err(Reason::NotRegular);
    }
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(again, flags, Mode::empty())?))
}

/// Whether a link of `map_files` still has this path, deleted since or not.
fn leads_to(link: &Path, path: &str) -> bool {
    let Ok(target) = std::fs::read_link(link) else { return false };
    target.to_str().is_some_and(|target| target.strip_suffix(" (deleted)").unwrap_or(target) == path)
}

/// What device and inode say about a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identity {
    /// It is the object's.
    Same,
    /// It is not.
    Other,
    /// The object's are not known, or not of a kind that can be compared.
    Unknown,
}

fn compare_inode(object: &Object, file: &File) -> Result<Identity, Reason> {
    let Some((device, inode)) = object.file else { return Ok(Identity::Unknown) };
    let stat = rustix::fs::fstat(file)?;
    let comparable = rustix::fs::major(stat.st_dev) != 0 && rustix::fs::major(device) != 0;
    Ok(match (stat.st_ino == inode, stat.st_dev == device, comparable) {
        (true, true, _) | (true, false, false) => Identity::Same,
        (_, _, true) => Identity::Other,
        (false, _, false) => Identity::Unknown,
    })
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Reason {
        match errno {
            // ESRCH: the process ended while its directory in /proc was open.
            Errno::NOENT | Errno::NOTDIR | Errno::SRCH => Reason::NotFound,
            Errno::ACCESS | Errno::PERM => Reason::PermissionDenied,
            Errno::LOOP => Reason::NotRegular,
            other => Reason::from(std::io::Error::from(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::profile::{BuildId, ObjectKind};

    fn object(path: &str, build_id: Option<BuildId>, file: Option<(u64, u64)>) -> Object {
        Object { kind: ObjectKind::Elf, path: path.into(), build_id, file }
    }

    /// A minimal ELF file with a build id and nothing else.
    fn elf_with_build_id(id: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        let mut segment = vec![0; 56];
        segment[0] = 4;
        segment[8] = 120;
        segment[32] = 20;
        bytes.extend(segment);
        bytes.extend([4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0]);
        bytes.extend(b"GNU\0");
        bytes.extend(id);
        bytes
    }

    fn file_with(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_file_of_another_build_id_is_never_taken() {
        let file = file_with(&elf_with_build_id(*b"abcd"));
        let path = file.path().to_str().unwrap();
        let open = |id: &[u8]| open_image(&object(path, BuildId::new(id), None), &[]);
        assert!(open(b"abcd").is_ok());
        assert_eq!(open(b"abce").err(), Some(Reason::Replaced));
    }

    #[test]
    fn a_file_of_another_inode_is_never_taken() {
        let file = file_with(&elf_with_build_id(*b"abcd"));
        let path = file.path().to_str().unwrap();
        let stat = rustix::fs::fstat(file.as_file()).unwrap();
        let open = |identity| open_image(&object(path, None, identity), &[]).err();
        assert_eq!(open(Some((stat.st_dev, stat.st_ino))), None);
        assert_eq!(open(Some((stat.st_dev, stat.st_ino + 1))), Some(Reason::Replaced));
        assert_eq!(open(Some((rustix::fs::makedev(99, 99), stat.st_ino))), Some(Reason::Replaced));
        assert_eq!(open(None), Some(Reason::Unverified));
    }

    #[test]
    fn fifos_devices_and_directories_are_never_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo (coreutils) is needed by this test");
        assert!(made.success());
        let start = Instant::now();
        for path in [fifo.to_str().unwrap(), "/dev/zero", "/dev/tty", "/", "/proc"] {
            let reason = open_image(&object(path, BuildId::new(b"x"), None), &[]).err();
            assert_eq!(reason, Some(Reason::NotRegular), "{path}");
        }
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn a_process_that_is_gone_is_named_as_the_reason() {
        let host = Host { tgid: Tgid(u32::MAX), mapping: ProcessAddress(0x1000)..ProcessAddress(0x2000) };
        let missing = object("/no/such/file", BuildId::new(b"x"), None);
        assert_eq!(open_image(&missing, &[host]).err(), Some(Reason::ProcessGone));
        assert_eq!(open_image(&missing, &[]).err(), Some(Reason::NotFound));
        assert_eq!(open_image(&object("relative/path", None, None), &[]).err(), Some(Reason::NotFound));
    }
}
