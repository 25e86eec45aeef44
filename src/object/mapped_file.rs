//! Finds and opens the file that a process has mapped, and makes sure that it is that file.
//!
//! The ways are tried in this order. The first file that can be opened and is the right one is taken:
//!
//! 1. `/proc/TGID/map_files/START-END`: the mapped file itself, even when it is deleted or in another mount namespace.
//! 2. PATH under `/proc/TGID/root`: the path as the process sees it. Symbolic links are followed inside that root.
//! 3. PATH under our own root: for processes that have exited.
//!
//! # Whether it is the right one
//!
//! | known of the object | a file passes when |
//! | --- | --- |
//! | build id | it has the same build id |
//! | device and inode | its inode is the same, and its device unless one of both is anonymous (major 0: btrfs, overlayfs) |
//! | neither | it is the file of `map_files`, and that link still has the object's path |
//!
//! On btrfs and overlayfs, `stat` returns other device numbers than mappings have (on overlayfs also other inodes). There the link in
//! `map_files` decides: a mapping at the same place with the same path is the same mapping.
//!
//! # Opening
//!
//! Files are opened only by [`open`], charged to the user whose process names the file.
//!
//! # Our own root
//!
//! The third way, our own root, is only for processes that see the same files as we do ([`own_files`]). In other processes the path means
//! another file. The search for debug files depends on the place of the image: see [`FoundFile`].

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::bytes::Source;
use super::elf::Image;
use super::process;
use super::reason::Reason;
use crate::object::open::{self, OpenError, OpenFile, Root, in_time, own_files};
use crate::profile::{FileNamespace, NameRequest, Object, ProcessAddress, Tgid, UserId};

/// The user who is charged for requests of our own user.
pub(crate) const US: UserId = UserId(0);

/// A process that had an object mapped, and the addresses of the mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) tgid: Tgid,
    /// The user who is charged for its files.
    pub(crate) user: UserId,
    /// Identifies the files that its paths lead to.
    pub(crate) files: FileNamespace,
    pub(crate) mapping: Range<ProcessAddress>,
}

impl Host {
    /// Returns the process of a request.
    pub(crate) fn of(request: NameRequest) -> Host {
        let NameRequest { tgid, user, files, mapping, .. } = request;
        Host { tgid, user, files, mapping }
    }

    /// Whether its paths lead to the same files as ours.
    pub(crate) fn sees_ours(&self) -> bool {
        self.files == own_files()
    }
}

/// An object's image, and the place where it was found.
pub(crate) struct FoundFile {
    pub(crate) image: Image,
    /// Whether our own root has the same file under the object's path, and only root can write it and the directories above it.
    pub(crate) is_ours: bool,
    /// The process through which it was found; `None` if it was found under our own root.
    pub(crate) host: Option<Host>,
}

/// A way to find an object's file.
#[derive(Clone)]
enum Way {
    /// The magic link of a mapping.
    Mapping(Host),
    /// The object's path under a root, and the user who chose it.
    Path(UserId, Root),
}

impl Way {
    fn user(&self) -> UserId {
        match self {
            Way::Mapping(host) => host.user,
            Way::Path(user, _) => *user,
        }
    }

    /// Returns the root under which the object has its path.
    fn root(&self) -> Root {
        match self {
            Way::Mapping(host) => Root::Process(host.tgid),
            Way::Path(_, root) => root.clone(),
        }
    }
}

/// Returns the path of an object, which may be deleted.
pub(crate) fn path_of(object: &Object) -> &str {
    object.path.strip_suffix(" (deleted)").unwrap_or(&object.path)
}

/// Returns the image of an ELF object, from the first file that is certainly the one that the hosts have mapped.
///
/// Fails with the most telling reason: "this is another file" says more than "there is no file".
pub(crate) fn open_image(object: &Object, hosts: &[Host]) -> Result<FoundFile, Reason> {
    let mut worst = Reason::NotFound;
    let mut any_alive = false;
    for host in hosts {
        any_alive |= PathBuf::from(format!("/proc/{}", host.tgid)).exists();
        for way in ways(host) {
            match open_way(object, &way) {
                Ok((image, is_ours)) => return Ok(FoundFile { image, is_ours, host: Some(host.clone()) }),
                // The other ways would have to wait as well.
                Err(Reason::NotAnswering) => return Err(Reason::NotAnswering),
                Err(reason) => worst = more_telling(worst, reason),
            }
        }
    }
    let asks = if hosts.is_empty() { Some(US) } else { hosts.iter().find(|host| host.sees_ours()).map(|host| host.user) };
    let outcome = asks.map_or(Err(Reason::NotFound), |user| open_way(object, &Way::Path(user, Root::Own)));
    match outcome {
        Ok((image, is_ours)) => Ok(FoundFile { image, is_ours, host: None }),
        Err(reason) => match more_telling(worst, reason) {
            Reason::NotFound if !any_alive && !hosts.is_empty() => Err(Reason::ProcessGone),
            reason => Err(reason),
        },
    }
}

fn ways(host: &Host) -> impl Iterator<Item = Way> {
    let mapping = (host.mapping.start < host.mapping.end).then(|| Way::Mapping(host.clone()));
    mapping.into_iter().chain([Way::Path(host.user, Root::Process(host.tgid))])
}

/// Returns the reason that says more. A defect of the right file says most; a missing file says least.
fn more_telling(a: Reason, b: Reason) -> Reason {
    let weight = |reason| match reason {
        Reason::NotFound => 0,
        Reason::Io(_) => 1,
        Reason::PermissionDenied => 2,
        Reason::NotRegular | Reason::NotStorage => 3,
        Reason::Unverified => 4,
        Reason::Replaced => 5,
        _ => 6,
    };
    if weight(b) > weight(a) { b } else { a }
}

/// Opens a file by its path. Its bytes are trusted only if no other user can write it.
///
/// Fails with [`Reason::NotAnswering`] if that takes too long.
pub(crate) fn open_source(user: UserId, root: &Root, path: &Path) -> Result<Source, Reason> {
    let (place, root, path) = (root.place(path), root.clone(), path.to_owned());
    let open = move || {
        let file = open::path_now(user, &root, &path)?;
        let is_ours = !matches!(root, Root::Process(_)) || file.is_hosts(&path);
        Ok(Source::of(file, is_ours))
    };
    Ok(in_time(user, place, open)?)
}

/// Opens the object's file in one of the ways, after comparing device and inode. Also returns whether our own root has the same file.
fn find_way(object: &Object, way: &Way) -> Result<(Source, bool), Reason> {
    let path = path_of(object);
    let file = match way {
        Way::Mapping(host) => open::mapping_now(host.user, host.tgid, host.mapping.start.0..host.mapping.end.0)?,
        Way::Path(..) if !path.starts_with('/') => return Err(Reason::NotFound),
        Way::Path(user, root) => open::path_now(*user, root, Path::new(path))?,
    };
    let identity = compare_inode(object, &file);
    let proven = match identity {
        _ if object.build_id.is_some() => true,
        Identity::Same => true,
        Identity::Other => false,
        Identity::Unknown => matches!(way, Way::Mapping(host) if leads_to(host, path)),
    };
    if !proven {
        return Err(if identity == Identity::Unknown { Reason::Unverified } else { Reason::Replaced });
    }
    let is_ours = file.is_hosts(Path::new(path));
    Ok((Source::of(file, is_ours || way.root() == Root::Own), is_ours))
}

fn open_way(object: &Object, way: &Way) -> Result<(Image, bool), Reason> {
    let (source, is_ours) = {
        let place = way.root().place(Path::new(path_of(object)));
        let (user, object, way) = (way.user(), object.clone(), way.clone());
        in_time(user, place, move || Ok(find_way(&object, &way)))??
    };
    let image = Image::read(source)?;
    match object.build_id {
        Some(wanted) if image.build_id() != Some(wanted) => Err(Reason::Replaced),
        _ => Ok((image, is_ours)),
    }
}

/// Whether the link of a mapping still has this path, even if the file was deleted since.
fn leads_to(host: &Host, path: &str) -> bool {
    let Host { tgid, mapping, .. } = host;
    let link = process::directory(tgid.0).join(format!("map_files/{:x}-{:x}", mapping.start.0, mapping.end.0));
    let Ok(target) = std::fs::read_link(link) else { return false };
    target.to_str().is_some_and(|target| target.strip_suffix(" (deleted)").unwrap_or(target) == path)
}

/// The result of comparing a file's device and inode with the object's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identity {
    /// It is the object's file.
    Same,
    /// It is another file.
    Other,
    /// The object's device and inode are not known, or are of a kind that cannot be compared.
    Unknown,
}

fn compare_inode(object: &Object, file: &OpenFile) -> Identity {
    let Some((device, inode)) = object.file else { return Identity::Unknown };
    let facts = &file.facts;
    let comparable = rustix::fs::major(facts.device) != 0 && rustix::fs::major(device) != 0;
    match (facts.inode == inode, facts.device == device, comparable) {
        (true, true, _) | (true, false, false) => Identity::Same,
        (_, _, true) => Identity::Other,
        (false, _, false) => Identity::Unknown,
    }
}

impl From<OpenError> for Reason {
    fn from(error: OpenError) -> Reason {
        match error {
            OpenError::NotFound => Reason::NotFound,
            OpenError::PermissionDenied => Reason::PermissionDenied,
            OpenError::NotRegular => Reason::NotRegular,
            OpenError::NotStorage => Reason::NotStorage,
            OpenError::NotAnswering => Reason::NotAnswering,
            OpenError::Io(kind) => Reason::from(std::io::Error::from(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::profile::{BuildId, ObjectKind};

    fn object(path: &str, build_id: Option<BuildId>, file: Option<(u64, u64)>) -> Object {
        Object { kind: ObjectKind::Elf, path: path.into(), build_id, file, ..Object::default() }
    }

    /// Makes a minimal ELF file with a build id and nothing else.
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
        let open = |id: &[u8]| open_image(&object(path, BuildId::new(id), None), &[]).map(drop);
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
        for path in [fifo.to_str().unwrap(), "/dev/zero", "/dev/tty", "/", "/proc"] {
            let reason = open_image(&object(path, BuildId::new(b"x"), None), &[]).map(drop).err();
            assert_eq!(reason, Some(Reason::NotRegular), "{path}");
        }
    }

    #[test]
    fn a_process_that_is_gone_is_named_as_the_reason() {
        let host = Host {
            tgid: Tgid(u32::MAX),
            user: UserId(0),
            files: FileNamespace(0),
            mapping: ProcessAddress(0x1000)..ProcessAddress(0x2000),
        };
        let missing = object("/no/such/file", BuildId::new(b"x"), None);
        assert_eq!(open_image(&missing, &[host]).err(), Some(Reason::ProcessGone));
        assert_eq!(open_image(&missing, &[]).err(), Some(Reason::NotFound));
        assert_eq!(open_image(&object("relative/path", None, None), &[]).err(), Some(Reason::NotFound));
    }
}
