//! Where an object's debug information is when it is not in the object itself.
//!
//! ```text
//! object ─┬─ .gnu_debugdata                                 a small ELF file with symbols, packed with xz
//!         ├─ build id ──► /usr/lib/debug/.build-id/12/34….debug ─┬─ .gnu_debugaltlink ──► what dwz found in several files
//!         └─ .gnu_debuglink ──► name, checksum ──────────────────┘
//! ```
//!
//! gdb's manual, "Debugging Information in Separate Files" and "Debugging information in a special section"; dwz(1). Each file
//! is taken only when its build id (of a debug link: its checksum) is the one that is wanted. It is looked for where the object was
//! found:
//!
//! | the object | looked for |
//! | --- | --- |
//! | our own file at that path, which only root can write | under our own root; files in the root of a process count only for its own files |
//! | a file of a process | under the root of that process, and of other processes that see the same files |
//! | a file of a process that sees our files | under those roots, then under our own root, in case the process has ended |

use std::path::{Path, PathBuf};

use super::elf::Image;
use super::files::{self, Found, Host, US};
use super::problem::Reason;
use super::source::{Source, u32_at};
use crate::object::open::Root;
use crate::profile::{BuildId, Object, UserId};

/// Files larger than this are not compared by their checksum: that reads them whole.
const LARGEST_CHECKED: u64 = 1 << 30;
/// `.gnu_debugdata`, packed and unpacked: symbols of one object. Those of Fedora's largest libraries have 1 MB.
const LARGEST_PACKED: u64 = 16 << 20;
const LARGEST_UNPACKED: u64 = 64 << 20;
/// A dictionary of xz is never larger in practice than `xz -9`'s.
const XZ_MEMORY_KIB: u32 = 72 << 10;
/// Links are a name and some bytes.
const LARGEST_LINK: u64 = 8192;
/// Processes whose root is looked at.
const MAX_ROOTS: usize = 4;

/// Where files of an object are looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Roots, those of processes first, each with the user who chooses the paths in it.
    roots: Vec<(UserId, Root)>,
    /// The object's own path, as its process sees it.
    path: PathBuf,
}

impl Places {
    /// Returns the places for an object that was found in this way and that these processes had mapped.
    pub(super) fn of(object: &Object, found: &Found, hosts: &[Host]) -> Places {
        let path = PathBuf::from(files::path_of(object));
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
    pub(super) fn of_path(root: PathBuf, path: &Path) -> Places {
        Places { roots: vec![(US, Root::Under(root))], path: path.to_owned() }
    }

    /// Files that belong to no object of a process, under one root.
    pub(super) fn under(root: PathBuf) -> Places {
        Places { roots: vec![(US, Root::Under(root))], path: PathBuf::new() }
    }

    /// The directory of the object.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.path.parent().filter(|directory| directory.is_absolute())
    }

    /// The object's path with something behind it.
    pub(super) fn path_with(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    /// ELF files of this absolute path, under each root in turn.
    pub(super) fn images<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = Image> + 'a {
        let roots = self.roots.iter().filter(|_| path.is_absolute());
        roots.filter_map(move |(user, root)| Image::read(files::open_source(*user, root, path).ok()?).ok())
    }
}

/// The separate debug file of an image.
pub(super) fn find(image: &Image, places: &Places) -> Option<Image> {
    by_build_id(image, places).or_else(|| by_link(image, places))
}

/// Opens a file that a program of this user has fetched, if it has this build id.
pub(super) fn fetched(user: UserId, path: &Path, id: BuildId) -> Option<Image> {
    let found = Image::read(files::open_source(user, &Root::Own, path).ok()?).ok()?;
    (found.build_id() == Some(id)).then_some(found)
}

fn by_build_id(image: &Image, places: &Places) -> Option<Image> {
    let id = image.build_id()?;
    let digits = id.to_string();
    let (first, rest) = digits.split_at_checked(2)?;
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"));
    places.images(&path).find(|found| found.build_id() == Some(id))
}

/// The file that `.gnu_debuglink` names: beside the object, in `.debug` beside it, or under /usr/lib/debug.
fn by_link(image: &Image, places: &Places) -> Option<Image> {
    let link = contents(image, ".gnu_debuglink", LARGEST_LINK)?;
    let name = std::str::from_utf8(link.get(..memchr::memchr(0, &link)?)?).ok()?;
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let checksum = u32_at(&link, link.len().checked_sub(4)?)?;
    let directory = places.directory()?;
    let below = Path::new("/usr/lib/debug").join(directory.strip_prefix("/").unwrap_or(directory));
    [directory.join(name), directory.join(".debug").join(name), below.join(name)]
        .iter()
        .find_map(|path| places.images(path).find(|found| checksum_of(&found.source) == Some(checksum)))
}

/// CRC-32 of a whole file, in pieces.
fn checksum_of(source: &Source) -> Option<u32> {
    const PIECE: u64 = 1 << 20;
    let length = source.length();
    if length > LARGEST_CHECKED {
        return None;
    }
    let mut crc = flate2::Crc::new();
    for offset in (0..length).step_by(PIECE as usize) {
        crc.update(&source.read(offset, (length - offset).min(PIECE), PIECE).ok()?);
    }
    Some(crc.sum())
}

/// What dwz found in several files and put into one: the file that a debug file names by path and build id.
pub(super) fn alternative(debug: &Image, places: &Places) -> Option<Image> {
    let (path, id) = alternative_link(debug)?;
    let path = path.as_path();
    let mut candidates = Vec::new();
    if path.is_absolute() {
        candidates.push(path.to_owned());
    } else {
        // Relative to the debug file, which is one of these.
        let of_object = places.directory().map(|directory| directory.join(path));
        let by_id = debug.build_id().map(|id| id.to_string());
        let of_build_id = by_id.and_then(|id| Some(Path::new("/usr/lib/debug/.build-id").join(id.get(..2)?).join(path)));
        candidates.extend(of_object.into_iter().chain(of_build_id));
    }
    let digits = id.to_string();
    if let Some((first, rest)) = digits.split_at_checked(2) {
        candidates.push(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")));
    }
    candidates.iter().find_map(|path| places.images(path).find(|found| found.build_id() == Some(id)))
}

/// Path and build id of that file.
pub(super) fn alternative_link(debug: &Image) -> Option<(PathBuf, BuildId)> {
    let link = contents(debug, ".gnu_debugaltlink", LARGEST_LINK)?;
    let end = memchr::memchr(0, &link)?;
    let path = PathBuf::from(std::str::from_utf8(link.get(..end)?).ok()?);
    Some((path, BuildId::new(link.get(end + 1..)?)?))
}

/// The symbols of `.gnu_debugdata`.
pub(super) fn unpack_debugdata(image: &Image) -> Option<Result<Image, Reason>> {
    let packed = contents(image, ".gnu_debugdata", LARGEST_PACKED)?;
    let mut bytes = Vec::new();
    let mut reader =
        std::io::Read::take(lzma_rust2::XzReader::new_mem_limit(packed.as_slice(), false, XZ_MEMORY_KIB), LARGEST_UNPACKED);
    // What was unpacked before an error is a file that ends too early.
    let _ = std::io::Read::read_to_end(&mut reader, &mut bytes);
    Some(Image::read(Source::Memory(bytes.into())))
}

fn contents(image: &Image, name: &str, limit: u64) -> Option<Vec<u8>> {
    let section = image.sections_named(|known| known == name).ok()?.pop()?;
    image.source.read(section.file.start, section.file.end - section.file.start, limit).ok()
}
