//! Finds an object's debug information in other files, if the object itself has none.
//!
//! ```text
//! object ─┬─ .gnu_debugdata                                 a small ELF file with symbols, packed with xz
//!         ├─ build id ──► /usr/lib/debug/.build-id/12/34….debug ─┬─ .gnu_debugaltlink ──► what dwz found in several files
//!         └─ .gnu_debuglink ──► name, checksum ──────────────────┘
//! ```
//!
//! Sources: gdb's manual, "Debugging Information in Separate Files" and "Debugging information in a special section"; dwz(1). A file is
//! taken only if it has the wanted build id (for a debug link: the wanted checksum). The search depends on where the object was found:
//!
//! | the object | places of the search |
//! | --- | --- |
//! | our own file of that path, which only root can write | our own root; files in a process's root count only for its own files |
//! | a file of a process | the root of that process, and of other processes that see the same files |
//! | a file of a process that sees our files | those roots, then our own root, in case the process has ended |

use std::path::{Path, PathBuf};

use super::bytes::Source;
use super::debug_link::{self, DebugLink};
use super::elf::Image;
use super::mapped_file::{self, FoundFile, Host, US};
use super::read_at::checksum;
use super::reason::Reason;
use super::unpack;
use std::sync::Arc;

use tempfile::TempDir;

use crate::object::open::Root;
use crate::profile::{BuildId, Object, UserId};

/// Files larger than this are not compared by checksum, because the checksum needs the whole file.
const LARGEST_CHECKED: u64 = 1 << 30;
/// Largest `.gnu_debugdata`, packed and unpacked: symbols of one object. In Fedora's largest libraries it has 1 MB.
const LARGEST_PACKED: u64 = 16 << 20;
/// Links are a name and some bytes.
const LARGEST_LINK: u64 = 8192;
/// Number of processes whose root is searched.
const MAX_ROOTS: usize = 4;

/// The places of a search for an object's debug files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Roots, those of processes first, each with the user who chooses the paths in it.
    roots: Vec<(UserId, Root)>,
    /// The object's own path, as its process sees it.
    path: PathBuf,
}

impl Places {
    /// Returns the places for an object that was found in this way and that these processes had mapped.
    pub(crate) fn of(object: &Object, found: &FoundFile, hosts: &[Host]) -> Places {
        let path = PathBuf::from(mapped_file::path_of(object));
        let user = found.host.as_ref().map_or(US, |host| host.user);
        let own = (user, Root::Own);
        let roots = match &found.host {
            Some(host) if !found.is_ours => {
                let others = hosts.iter().filter(|other| other.files == host.files && other.tgid != host.tgid);
                let of_process = |host: &Host| (host.user, Root::Process(host.tgid));
                let roots = [host].into_iter().chain(others).take(MAX_ROOTS).map(of_process);
                roots.chain(host.sees_ours().then_some(own)).collect()
            }
            _ => vec![own],
        };
        Places { roots, path }
    }

    /// Returns the places for an object with this path under `root`.
    pub(crate) fn of_path(root: PathBuf, path: &Path) -> Places {
        Places { roots: vec![(US, Root::Under(root))], path: path.to_owned() }
    }

    /// Returns a place for files that belong to no object of a process, under one root.
    pub(crate) fn under(root: PathBuf) -> Places {
        Places { roots: vec![(US, Root::Under(root))], path: PathBuf::new() }
    }

    /// Returns the directory of the object.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.path.parent().filter(|directory| directory.is_absolute())
    }

    /// Returns the object's path with a suffix.
    pub(crate) fn path_with(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    /// Returns the ELF files with this absolute path, under each root in turn.
    pub(crate) fn images<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = Image> + 'a {
        let roots = self.roots.iter().filter(|_| path.is_absolute());
        roots.filter_map(move |(user, root)| Image::read(mapped_file::open_source(*user, root, path).ok()?).ok())
    }
}

/// Returns the separate debug file of an image.
pub(crate) fn find(image: &Image, places: &Places) -> Option<Image> {
    by_build_id(image, places).or_else(|| by_link(image, places))
}

/// Debug files that were fetched for an object.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    /// The user who could have written the files.
    user: UserId,
    debug: PathBuf,
    /// The file with the parts that dwz moved out of it.
    alternative: Option<PathBuf>,
    /// Keeps the directory of the files, if it is removed after use.
    _directory: Option<Arc<TempDir>>,
}

impl Fetched {
    pub(crate) fn new(user: UserId, debug: PathBuf, alternative: Option<PathBuf>, directory: Option<Arc<TempDir>>) -> Fetched {
        Fetched { user, debug, alternative, _directory: directory }
    }

    /// Opens the fetched files, if they belong to an image.
    pub(crate) fn open(&self, image: &Image) -> Option<(Image, Option<Image>)> {
        let debug = fetched(self.user, &self.debug, image.build_id()?)?;
        let link = alternative_link(&debug);
        let alternative = link.and_then(|(_, id)| fetched(self.user, self.alternative.as_ref()?, id));
        Some((debug, alternative))
    }
}

/// Opens a file that a program of this user has fetched, if it has this build id.
pub(crate) fn fetched(user: UserId, path: &Path, id: BuildId) -> Option<Image> {
    let found = Image::read(mapped_file::open_source(user, &Root::Own, path).ok()?).ok()?;
    (found.build_id() == Some(id)).then_some(found)
}

fn by_build_id(image: &Image, places: &Places) -> Option<Image> {
    let id = image.build_id()?;
    places.images(&debug_link::path_of(id)?).find(|found| found.build_id() == Some(id))
}

/// Returns the file that `.gnu_debuglink` names.
fn by_link(image: &Image, places: &Places) -> Option<Image> {
    let link = DebugLink::parse(&contents(image, ".gnu_debuglink", LARGEST_LINK)?)?;
    let is_it = |found: &Image| checksum(&found.source, LARGEST_CHECKED) == Some(link.checksum);
    link.places(places.directory()?).iter().find_map(|path| places.images(path).find(is_it))
}

/// Returns the file with the parts that several debug files share. dwz made it; a debug file names it by path and build id.
pub(crate) fn alternative(debug: &Image, places: &Places) -> Option<Image> {
    let (path, id) = alternative_link(debug)?;
    let path = path.as_path();
    let mut candidates = Vec::new();
    if path.is_absolute() {
        candidates.push(path.to_owned());
    } else {
        // The path is relative to the debug file, which is one of these two.
        let of_object = places.directory().map(|directory| directory.join(path));
        let of_build_id = debug.build_id().and_then(|id| Some(debug_link::directory_of(id)?.join(path)));
        candidates.extend(of_object.into_iter().chain(of_build_id));
    }
    candidates.extend(debug_link::path_of(id));
    candidates.iter().find_map(|path| places.images(path).find(|found| found.build_id() == Some(id)))
}

/// Returns path and build id of the file that dwz made.
pub(crate) fn alternative_link(debug: &Image) -> Option<(PathBuf, BuildId)> {
    let link = contents(debug, ".gnu_debugaltlink", LARGEST_LINK)?;
    let end = memchr::memchr(0, &link)?;
    let path = PathBuf::from(std::str::from_utf8(link.get(..end)?).ok()?);
    Some((path, BuildId::new(link.get(end + 1..)?)?))
}

/// Returns the symbols of `.gnu_debugdata`.
pub(crate) fn unpack_debugdata(image: &Image) -> Option<Result<Image, Reason>> {
    let packed = contents(image, ".gnu_debugdata", LARGEST_PACKED)?;
    Some(Image::read(Source::Memory(unpack::unpack_debugdata(&packed).into())))
}

fn contents(image: &Image, name: &str, limit: u64) -> Option<Vec<u8>> {
    let section = image.sections_named(|known| known == name).ok()?.pop()?;
    image.source.read(section.file.start, section.file.end - section.file.start, limit).ok()
}
