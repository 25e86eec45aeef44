//! Finds a file's real place, and whether a user may reach it. Flametop shows a user only files that they could read.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use super::open::{OpenError, Root, locate};
use crate::profile::UserId;

/// Most links at the end of a path (the kernel's own limit), and most directories above a file.
const MAX_LINKS: usize = 40;
const MAX_DEPTH: usize = 4096;

/// A file and the directory that holds it, both with `O_PATH`.
#[derive(Debug)]
pub struct Whereabouts {
    /// The directory that holds the file.
    pub directory: OwnedFd,
    /// The file, which may be of any kind except a link.
    pub file: OwnedFd,
}

/// Follows a path within a root, link by link, to its file and the file's directory. May wait.
pub fn resolve(root: &Root, path: &Path) -> Result<Whereabouts, OpenError> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(OpenError::NotRegular) };
        let directory = locate(root, above)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Symlink {
            return Ok(Whereabouts { directory, file });
        }
        let target = rustix::fs::readlinkat(&file, "", Vec::new())?;
        path = above.join(OsStr::from_bytes(target.as_bytes()));
    }
    Err(OpenError::NotRegular)
}

/// Whether a user may pass through a directory and all directories above it, up to this root. Root may pass everywhere.
pub fn may_be_reached(root: &Root, directory: OwnedFd, user: Option<UserId>) -> Result<bool, OpenError> {
    let top = rustix::fs::stat(root.path())?;
    let mut here = directory;
    for _ in 0..MAX_DEPTH {
        let about = rustix::fs::fstat(&here)?;
        let is_owner = user == Some(UserId(about.st_uid));
        let may_pass = about.st_mode & 0o001 != 0 || is_owner && about.st_mode & 0o100 != 0;
        if !may_pass && user != Some(UserId(0)) {
            return Ok(false);
        }
        let above = rustix::fs::openat(&here, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let next = rustix::fs::fstat(&above)?;
        let is = |a: &rustix::fs::Stat, b: &rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        if is(&about, &top) || is(&about, &next) {
            return Ok(true);
        }
        here = above;
    }
    Ok(false)
}
