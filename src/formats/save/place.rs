//! The place of a file: one directory, opened once, and a name in it.
//!
//! Every operation uses the directory's descriptor. If another user replaces directories or links on the path later, that has no
//! effect. A link on the path is followed only if it belongs to root, to the current user, or to the user who called sudo. Another
//! user's link may lead anywhere, and would make root write there.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::error::{SaveError, failure};
use super::person::caller_of_sudo;

/// Most links that are followed: as many as the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;
/// Number of names that are tried for a temporary file.
const TRIES: usize = 16;
/// Mode of written files: only their owner may read them.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// An open directory, and a name in it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    directory: Arc<OwnedFd>,
    pub(super) name: OsString,
}

impl Place {
    /// Opens the directory of a path. Fails if no file of that name can be put there.
    pub(super) fn open(path: &Path, overwrite: Overwrite) -> Result<Place, SaveError> {
        let whole = || path.to_owned();
        let Some(name) = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/")) else {
            return Err(SaveError::IsDirectory { path: whole() });
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = match open_directory(parent) {
            Ok(directory) => Arc::new(directory),
            Err(Refused::Link(link)) => return Err(SaveError::ForeignLink { path: whole(), link }),
            Err(Refused::System(Errno::NOENT)) => return Err(SaveError::NoDirectory { directory: parent.into() }),
            Err(Refused::System(error)) => return Err(failure(path, error.into())),
        };
        let place = Place { directory, name: name.to_owned() };
        match rustix::fs::statat(&place.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if FileType::from_raw_mode(there.st_mode).is_dir() => Err(SaveError::IsDirectory { path: whole() }),
            Ok(there) => match (no_file(FileType::from_raw_mode(there.st_mode)), overwrite) {
                (Some(what), _) => Err(SaveError::NoFile { path: whole(), what }),
                (None, Overwrite::No) => Err(SaveError::Exists { path: whole() }),
                (None, Overwrite::Yes) => Ok(place),
            },
            Err(_) => Ok(place),
        }
    }

    /// Creates a file here. Fails if one exists; a link is not followed.
    pub(super) fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, &self.name, flags, PRIVATE)?.into())
    }

    /// Creates a file in the same directory, under a name that cannot be guessed.
    pub(super) fn create_beside(&self) -> io::Result<(Place, File)> {
        let mut outcome = Err(Errno::EXIST.into());
        for _ in 0..TRIES {
            let name = format!(".flametop-{:016x}", RandomState::new().hash_one(&self.name)).into();
            let place = Place { directory: Arc::clone(&self.directory), name };
            outcome = place.create().map(|file| (place, file));
            if !outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        outcome
    }

    /// Renames a file of this directory to this name.
    pub(super) fn take(&self, from: &Place, overwrite: Overwrite) -> io::Result<()> {
        let (directory, old, new) = (&self.directory, &from.name, &self.name);
        if overwrite == Overwrite::Yes {
            return Ok(rustix::fs::renameat(directory, old, directory, new)?);
        }
        match rustix::fs::renameat_with(directory, old, directory, new, RenameFlags::NOREPLACE) {
            // File systems without support for the flag can create links instead.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::linkat(directory, old, directory, new, AtFlags::empty())?;
                Ok(rustix::fs::unlinkat(directory, old, AtFlags::empty())?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Removes the file of this name, if there is one.
    pub(super) fn remove(&self) {
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }

    /// Returns whether this place is in `directory`, by the same descriptor.
    #[cfg(test)]
    pub(super) fn is_beside(&self, directory: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let there = std::fs::metadata(directory).unwrap();
        rustix::fs::fstat(&self.directory).is_ok_and(|own| (own.st_dev, own.st_ino) == (there.dev(), there.ino()))
    }
}

/// Returns the name of a kind that is not a regular file and is never replaced.
fn no_file(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => None,
    }
}

/// Reason why a directory was not opened.
enum Refused {
    /// Another user's link is on the way.
    Link(PathBuf),
    System(Errno),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        Refused::System(error)
    }
}

/// Opens a directory, part by part.
fn open_directory(path: &Path) -> Result<OwnedFd, Refused> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let start = |path: &Path| {
        let begin = if path.has_root() { "/" } else { "." };
        rustix::fs::open(begin, flags | OFlags::DIRECTORY, Mode::empty())
    };
    let mut here = start(path)?;
    let mut shown = PathBuf::new();
    let mut parts = parts_of(path);
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        if part == "/" {
            here = start(Path::new("/"))?;
            shown = "/".into();
            continue;
        }
        shown.push(&part);
        let next = rustix::fs::openat(&here, part.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
        let about = rustix::fs::fstat(&next)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory => here = next,
            FileType::Symlink => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if !may_lead_us(about.st_uid) {
                    return Err(Refused::Link(shown));
                }
                let target = OsString::from_vec(rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes());
                for part in parts_of(Path::new(&target)).into_iter().rev() {
                    parts.push_front(part);
                }
                shown.pop();
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(here)
}

fn parts_of(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::CurDir | Component::Prefix(_) => None,
        Component::RootDir => Some(OsString::from("/")),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::Normal(name) => Some(name.to_owned()),
    };
    path.components().filter_map(part).collect()
}

/// Returns whether a link of this user may be followed.
pub(super) fn may_lead_us(owner: u32) -> bool {
    let own = rustix::process::geteuid();
    let caller = || caller_of_sudo(|name| std::env::var(name).ok());
    owner == 0 || owner == own.as_raw() || own.is_root() && caller().is_some_and(|(user, _)| user == owner)
}

/// Whether an existing file may be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// The user has not agreed: [`SaveError::Exists`] is returned.
    No,
    /// The user has agreed.
    Yes,
}
