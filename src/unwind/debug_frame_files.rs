//! Unwind information that is not in the file itself: `.debug_frame` in `.gnu_debugdata`, or in a separate file that
//! distributions install under /usr/lib/debug.
//!
//! gdb's manual, "Debugging Information in Separate Files" and "Debugging information in a special section".

use std::path::{Path, PathBuf};

use super::cfi::entries::Format;
use super::sections::{Elf, Information};
use crate::object::build_id;
use crate::object::debug_link::{self, DebugLink, LARGEST_CHECKED};
use crate::object::open::{self, Root};
use crate::object::read_at::{FileBytes, ReadAt, checksum};
use crate::object::unpack::unpack_debugdata;
use crate::profile::{BuildId, UserId};

/// The places to search for an object's separate debugging files.
pub trait Beside {
    /// The directory of the object's own file, as its process sees it.
    fn directory(&self) -> Option<PathBuf>;
    /// Opens a regular file by the path under which the process sees it.
    fn open(&self, path: &Path) -> Option<FileBytes>;
    /// The object's build id.
    fn build_id(&self) -> Option<BuildId>;
}

/// For objects that have no separate files: the vDSO, bytes in memory.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl Beside for Nowhere {
    fn directory(&self) -> Option<PathBuf> {
        None
    }

    fn open(&self, _: &Path) -> Option<FileBytes> {
        None
    }

    fn build_id(&self) -> Option<BuildId> {
        None
    }
}

/// Files under our own root or a process's. Links cannot lead out of a process's root.
#[derive(Clone, Debug)]
pub struct OnDisk {
    /// The user who chose the paths.
    user: UserId,
    root: Root,
    directory: Option<PathBuf>,
    build_id: Option<BuildId>,
}

impl OnDisk {
    /// Looks beside the object at a path that our own user has given.
    pub fn of(path: &Path) -> OnDisk {
        let (user, real) = (UserId(0), std::fs::canonicalize(path).ok());
        let directory = real.as_deref().and_then(Path::parent).map(Path::to_owned);
        let opened = real.and_then(|real| open::open_path(user, Root::Own, &real).ok());
        let build_id = opened.and_then(|file| build_id::of_image(&FileBytes::new(file)));
        OnDisk { user, root: Root::Own, directory, build_id }
    }

    /// Looks beside an object with that build id in `directory`, as a process of this user sees it below that root.
    pub fn under(user: UserId, root: Root, directory: Option<PathBuf>, build_id: Option<BuildId>) -> OnDisk {
        OnDisk { user, root, directory, build_id }
    }
}

impl Beside for OnDisk {
    fn directory(&self) -> Option<PathBuf> {
        self.directory.clone()
    }

    fn open(&self, path: &Path) -> Option<FileBytes> {
        open::open_path(self.user, self.root.clone(), path).ok().map(FileBytes::new)
    }

    fn build_id(&self) -> Option<BuildId> {
        self.build_id
    }
}

/// Returns the unwind information besides the file's own sections: at most one from inside, and one from another file.
pub(crate) fn find(elf: &Elf, image: &(impl ReadAt + ?Sized), beside: &dyn Beside) -> Vec<Information> {
    let inside = debugdata(elf, image);
    let outside = by_build_id(elf, beside).or_else(|| by_link(elf, image, beside));
    inside.into_iter().chain(outside).collect()
}

/// Reads `.debug_frame` of a file of debugging information, if it is for the same machine and code.
fn debug_frame(own: &Elf, image: &(impl ReadAt + ?Sized), name: &'static str) -> Option<Information> {
    let other = Elf::read(image).ok().filter(|other| other.arch == own.arch)?;
    let information = other.information(image, ".debug_frame", Format::DebugFrame)?.ok()?;
    Some(Information { name, ..information })
}

fn debugdata(elf: &Elf, image: &(impl ReadAt + ?Sized)) -> Option<Information> {
    let section = elf.section(".gnu_debugdata")?;
    let unpacked = unpack_debugdata(&elf.bytes(image, section).ok()?);
    debug_frame(elf, unpacked.as_slice(), ".gnu_debugdata")
}

/// Sources that are separate files, as a report names them.
pub const SEPARATE_FILES: [&str; 2] = ["build-id file", "debuglink file"];

/// Returns whether there is a file of debugging information with the object's build id.
pub fn has_separate_file(beside: &dyn Beside) -> bool {
    build_id_file(beside).is_some()
}

/// Opens the file with the object's build id. The file itself must have the same build id.
fn build_id_file(beside: &dyn Beside) -> Option<FileBytes> {
    let id = beside.build_id()?;
    let file = beside.open(&debug_link::path_of(id)?)?;
    (build_id::of_image(&file) == Some(id)).then_some(file)
}

fn by_build_id(elf: &Elf, beside: &dyn Beside) -> Option<Information> {
    debug_frame(elf, &build_id_file(beside)?, SEPARATE_FILES[0])
}

/// Reads the file that `.gnu_debuglink` names. The file must have the checksum given there.
fn by_link(elf: &Elf, image: &(impl ReadAt + ?Sized), beside: &dyn Beside) -> Option<Information> {
    let section = elf.section(".gnu_debuglink").filter(|section| section.size < 4096)?;
    let link = DebugLink::parse(&elf.bytes(image, section).ok()?)?;
    for place in link.places(&beside.directory()?) {
        let Some(image) = beside.open(&place) else { continue };
        if checksum(&image, LARGEST_CHECKED) == Some(link.checksum) {
            return debug_frame(elf, &image, SEPARATE_FILES[1]);
        }
    }
    None
}
