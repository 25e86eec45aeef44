//! Maps the addresses of a process to files: sorted mappings, and the table of files that they point into. Pure.
//!
//! A file stays in the table as long as a process maps it: [`Files::sweep`]. Its bytes are charged to the user whose process mapped it
//! first. The bytes of all files are bounded.

use crate::collector::processes::mapped_build_id::MappedFile;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::mapped_build_id::Missing;
use crate::collector::wire::perf_records::Identity;
use crate::object::open::own_files;
use crate::profile::{BuildId, FileNamespace, ObjectId, UserId};
use crate::runtimes::{hotspot, v8};

/// Most executable mappings that are kept for one process: the kernel's default of `vm.max_map_count`. More can only appear when
/// mappings were removed, which perf does not report.
pub(crate) const MAX_MAPPINGS: usize = 65_530;

/// Index into [`Files`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileIndex(u32);

impl FileIndex {
    /// Memory without a file.
    pub(crate) const ANONYMOUS: FileIndex = FileIndex(0);
    /// The vDSO.
    pub(crate) const VDSO: FileIndex = FileIndex(1);
    /// Stands for files that were refused for lack of room.
    pub(crate) const REFUSED: FileIndex = FileIndex(2);
}

/// A file that was mapped.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Path of the file, as the process that mapped it sees it.
    pub(crate) path: Arc<str>,
    /// Distinguishes it from other files with the same path.
    pub(crate) identity: Identity,
    /// Its objects, once frames in it were sampled.
    pub(crate) objects: ObjectsOfFile,
    /// Its build id, if the kernel reported only device and inode.
    pub(crate) build_id: BuildIdOf,
    /// Whether it contains V8 or HotSpot, as processes of each owner show. A user can change the memory of his processes, and root of a container can mount
    /// another file with the same path and build id.
    engines: FxHashMap<Whose, Engine>,
    /// The user who is charged for it.
    user: UserId,
}

impl File {
    /// Whether it contains V8 or HotSpot, as processes of an owner show.
    pub(super) fn engine(&self, whose: Whose) -> Engine {
        self.engines.get(&whose).cloned().unwrap_or_default()
    }

    pub(super) fn set_engine(&mut self, whose: Whose, engine: Engine) {
        if self.engines.len() >= MAX_ENGINES {
            self.engines.retain(|whose, _| is_own(*whose));
        }
        self.engines.insert(whose, engine);
    }

    fn cost(&self) -> usize {
        cost_of(&self.path)
    }

    /// Whether it is memory that a program writes code into as it runs (.NET), not a program that was copied into memory (runc).
    ///
    /// Both are memfds. Their first bytes show the difference. A file that could not be read counts as such memory.
    pub(crate) fn is_anonymous(&self) -> bool {
        let is_program = match (self.identity, self.build_id) {
            (Identity::BuildId(_), _) => true,
            (_, build_id) => matches!(build_id, BuildIdOf::Found(_) | BuildIdOf::None),
        };
        self.path.starts_with("/memfd:") && !is_program
    }
}

/// Most owners of answers about one file and V8.
const MAX_ENGINES: usize = 64;
/// Least bytes of code that are mapped of a file with V8 or HotSpot. Node.js has 27 MB of code, and about half of it is V8's; libjvm.so has 12.
const LEAST_CODE: u64 = 8 << 20;

/// Whether a file contains V8 or HotSpot.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    /// It was not read, or could not be read.
    #[default]
    Unknown,
    /// A worker reads it.
    Asked,
    /// It does not.
    None,
    /// It contains V8, but does not export what flametop needs.
    UnfitV8(v8::Unfit),
    /// It contains V8.
    V8(Arc<v8::Layout>),
    /// It contains HotSpot, whose tables lack what flametop needs.
    UnfitHotSpot(hotspot::Unfit),
    /// It contains HotSpot. The addresses are those of a process that has mapped its code at 0.
    HotSpot(Arc<hotspot::Layout>),
}

/// Returns the bytes that a file takes: its entry, its entry in the index, and its path.
fn cost_of(path: &str) -> usize {
    size_of::<Option<File>>() + size_of::<((Arc<str>, Identity), FileIndex)>() * 2 + 16 + path.len()
}

/// The namespace and user that an object belongs to: see [`Object`](crate::profile::Object).
pub(crate) type Whose = (FileNamespace, UserId);

/// Whether this is root with the files that flametop sees.
fn is_own(whose: Whose) -> bool {
    whose == (own_files(), UserId(0))
}

/// The objects of one file: root's object, and the object of the last other user who ran it.
///
/// Other users never replace root's object, however many they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectsOfFile {
    of_root: Option<ObjectId>,
    of_others: Option<(Whose, ObjectId)>,
}

impl ObjectsOfFile {
    /// Returns the object that was set for this owner, if it has not been replaced.
    pub(crate) fn get(&self, whose: Whose) -> Option<ObjectId> {
        match is_own(whose) {
            true => self.of_root,
            false => self.of_others.filter(|(known, _)| *known == whose).map(|(_, object)| object),
        }
    }

    /// Sets the object of this owner.
    pub(crate) fn set(&mut self, whose: Whose, object: ObjectId) {
        match is_own(whose) {
            true => self.of_root = Some(object),
            false => self.of_others = Some((whose, object)),
        }
    }
}

/// The build id of a file that the kernel identified only by device and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BuildIdOf {
    /// No frame in it was sampled.
    Unknown,
    /// It is being read.
    Asked,
    /// Its build id.
    Found(BuildId),
    /// It has none.
    None,
    /// It is no ELF file.
    NotElf,
    /// It could not be opened at this time (nanoseconds). An attempt through another process may succeed.
    NotReachable(u64),
}

impl BuildIdOf {
    /// Time in nanoseconds until a file that was not reachable is tried again.
    const PAUSE: u64 = 1_000_000_000;

    pub(crate) fn is_to_be_asked(self, now: u64) -> bool {
        match self {
            BuildIdOf::Unknown => true,
            BuildIdOf::NotReachable(at) => now.saturating_sub(at) >= BuildIdOf::PAUSE,
            BuildIdOf::Asked | BuildIdOf::Found(_) | BuildIdOf::None | BuildIdOf::NotElf => false,
        }
    }
}

/// All files that are mapped by known processes.
pub(crate) struct Files {
    /// The files by index, except the fixed entries. A sweep frees slots for reuse when their index is no longer in use.
    slots: Vec<Option<File>>,
    free: Vec<FileIndex>,
    /// The default hasher, because paths are hostile and its hashes cannot be predicted.
    by_key: HashMap<(Arc<str>, Identity), FileIndex>,
    /// Bytes of all files, and of the files of each user.
    bytes: usize,
    of_user: FxHashMap<UserId, usize>,
    /// Most bytes that all files may take.
    limit: usize,
    /// Number of files after the last sweep.
    after_sweep: usize,
    /// Files that were refused for lack of room, since the start and since the last sweep.
    pub(crate) refused: u64,
    refused_lately: u64,
}

impl Default for Files {
    fn default() -> Self {
        Files::bounded(Files::LIMIT)
    }
}

impl Files {
    const FIXED: u32 = 3;
    /// Default limit in bytes: 80,000 files with paths of 60 bytes.
    pub(crate) const LIMIT: usize = 16 << 20;
    /// Longest path that is kept, in bytes: the kernel's `PATH_MAX`.
    const MAX_PATH: usize = 4096;
    /// A sweep waits until there are at least twice this many files, unless files were refused.
    const FEW: usize = 1024;

    /// Returns an empty table that takes at most `limit` bytes.
    pub(crate) fn bounded(limit: usize) -> Files {
        Files {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            bytes: 0,
            of_user: FxHashMap::default(),
            limit,
            after_sweep: 0,
            refused: 0,
            refused_lately: 0,
        }
    }

    /// Returns the file with this path and identity, or a fixed entry for memory without a file. `user` is charged if the file is new.
    pub(crate) fn intern(&mut self, path: &str, identity: Identity, user: UserId) -> FileIndex {
        if path == "[vdso]" {
            return FileIndex::VDSO;
        }
        if has_no_file(path) {
            return FileIndex::ANONYMOUS;
        }
        let end = (0..=path.len().min(Files::MAX_PATH)).rev().find(|end| path.is_char_boundary(*end));
        let path: Arc<str> = path.get(..end.unwrap_or(0)).unwrap_or_default().into();
        let key = (Arc::clone(&path), identity);
        if let Some(index) = self.by_key.get(&key) {
            return *index;
        }
        let cost = cost_of(&path);
        let slot = u32::try_from(self.slots.len()).ok().and_then(|slot| slot.checked_add(Files::FIXED));
        if !self.has_room(user, cost) || slot.is_none() {
            self.refused += 1;
            self.refused_lately += 1;
            return FileIndex::REFUSED;
        }
        self.bytes += cost;
        *self.of_user.entry(user).or_default() += cost;
        let (objects, build_id) = (ObjectsOfFile::default(), BuildIdOf::Unknown);
        let file = File { path, identity, objects, build_id, engines: FxHashMap::default(), user };
        let index = match (self.free.pop(), slot) {
            (Some(index), _) => {
                self.slot(index).into_iter().for_each(|slot| *slot = Some(file.clone()));
                index
            }
            (None, Some(number)) => {
                self.slots.push(Some(file));
                FileIndex(number)
            }
            (None, None) => FileIndex::REFUSED,
        };
        self.by_key.insert(key, index);
        index
    }

    /// Whether a user may have `bytes` more. Root may have three quarters of the limit, any other user a quarter.
    fn has_room(&self, user: UserId, bytes: usize) -> bool {
        let share = if user == UserId(0) { self.limit / 4 * 3 } else { self.limit / 4 };
        let of_user = self.of_user.get(&user).copied().unwrap_or(0);
        of_user + bytes <= share && self.bytes + bytes <= self.limit
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
    }

    /// Whether refused files of a user would find room now.
    pub(crate) fn has_room_again(&self, user: UserId) -> bool {
        self.has_room(user, self.limit / 16)
    }

    /// Whether a sweep is worth its time.
    pub(crate) fn is_to_be_swept(&self) -> bool {
        self.refused_lately > 0 || self.by_key.len() > 2 * self.after_sweep.max(Files::FEW)
    }

    /// Removes unused files. `used` must yield the index of every file in use.
    pub(crate) fn sweep(&mut self, used: impl Iterator<Item = FileIndex>) {
        let mut marks = vec![false; self.slots.len()];
        for index in used {
            let mark = index.slot().and_then(|slot| marks.get_mut(slot));
            mark.into_iter().for_each(|mark| *mark = true);
        }
        for (number, (slot, used)) in (Files::FIXED..).zip(self.slots.iter_mut().zip(marks)) {
            if !used && let Some(file) = slot.take() {
                let cost = file.cost();
                self.bytes -= cost;
                self.of_user.entry(file.user).and_modify(|bytes| *bytes -= cost);
                self.by_key.remove(&(file.path, file.identity));
                self.free.push(FileIndex(number));
            }
        }
        self.of_user.retain(|_, bytes| *bytes > 0);
        // Frees the memory that a flood of files once needed.
        if self.by_key.capacity() > 4 * self.by_key.len().max(Files::FEW) {
            self.by_key.shrink_to_fit();
            while self.slots.last().is_some_and(Option::is_none) {
                self.slots.pop();
            }
            let end = self.slots.len();
            self.free.retain(|index| index.slot().is_some_and(|slot| slot < end));
            self.slots.shrink_to_fit();
            self.free.shrink_to_fit();
        }
        self.after_sweep = self.by_key.len();
        self.refused_lately = 0;
    }

    /// Returns the files that processes map, and some that none has mapped since the last sweep.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &File> {
        self.slots.iter().flatten()
    }

    fn slot(&mut self, index: FileIndex) -> Option<&mut Option<File>> {
        self.slots.get_mut(index.slot()?)
    }

    /// Sets the build id of a file to the result of a reading at `time`.
    pub(crate) fn told_build_id(&mut self, mapped: &MappedFile, found: Result<BuildId, Missing>, time: u64) {
        self.set_build_id(
            mapped,
            match found {
                Ok(id) => BuildIdOf::Found(id),
                Err(Missing::Absent) => BuildIdOf::None,
                Err(Missing::NotElf) => BuildIdOf::NotElf,
                Err(Missing::NotReachable) => BuildIdOf::NotReachable(time),
            },
        );
    }

    /// Sets whether a file contains V8, for processes of an owner. The number may be that of another file by now.
    pub(crate) fn told_engine(&mut self, index: FileIndex, path: &Arc<str>, whose: Whose, engine: Engine) {
        if let Some(file) = self.get_mut(index).filter(|file| file.path == *path) {
            file.set_engine(whose, engine);
        }
    }

    /// Returns the path of each file with each answer to whether it contains V8.
    pub(super) fn engines(&self) -> impl Iterator<Item = (&Arc<str>, &Engine)> {
        self.slots.iter().flatten().flat_map(|file| file.engines.values().map(|engine| (&file.path, engine)))
    }

    /// Forgets the objects of all files, because their ids belong to name tables that are no longer in use.
    pub(crate) fn forget_objects(&mut self) {
        self.slots.iter_mut().flatten().for_each(|file| file.objects = ObjectsOfFile::default());
    }

    /// Notes that the question for a build id found no room. The next sample asks again.
    pub(crate) fn not_asked(&mut self, mapped: &MappedFile) {
        self.set_build_id(mapped, BuildIdOf::Unknown);
    }

    fn set_build_id(&mut self, mapped: &MappedFile, build_id: BuildIdOf) {
        // Only files with a known inode are asked about.
        let Some(identity) = mapped.file.map(Identity::Inode) else { return };
        let index = self.by_key.get(&(Arc::clone(&mapped.path), identity)).copied();
        if let Some(file) = index.and_then(|index| self.get_mut(index)) {
            file.build_id = build_id;
        }
    }

    /// Returns the file, or `None` for the fixed entries.
    pub(crate) fn get(&self, index: FileIndex) -> Option<&File> {
        self.slots.get(index.slot()?)?.as_ref()
    }

    /// Like [`Files::get`], to change the file.
    pub(crate) fn get_mut(&mut self, index: FileIndex) -> Option<&mut File> {
        self.slot(index)?.as_mut()
    }
}

impl FileIndex {
    /// Returns its index in `slots`, or `None` for the fixed entries.
    fn slot(self) -> Option<usize> {
        usize::try_from(self.0.checked_sub(Files::FIXED)?).ok()
    }
}

/// Whether a mapping of this path has no file behind it. See [`File::is_anonymous`] for memfds.
fn has_no_file(path: &str) -> bool {
    const NOT_FILES: [&str; 4] = ["/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]"];
    !path.starts_with('/') || path.starts_with("//") || NOT_FILES.iter().any(|prefix| path.starts_with(prefix))
}

/// A piece of executable memory.
///
/// ```text
/// address in file = address - start + offset
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: u64,
    /// Address after the last.
    pub(crate) end: u64,
    /// Offset in the file of the first address.
    pub(crate) offset: u64,
    /// The mapped file.
    pub(crate) file: FileIndex,
}

impl Mapping {
    /// Returns the offset in the file of an address.
    pub(crate) fn file_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }

    /// The addresses.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether it may be V8's code.
    pub(super) fn may_hold_engine(&self) -> bool {
        self.file != FileIndex::ANONYMOUS && self.end.saturating_sub(self.start) >= LEAST_CODE
    }

    /// Whether an address in both is the same place in the same file.
    fn agrees(&self, other: &Mapping) -> bool {
        self.file == other.file
            && (self.file == FileIndex::ANONYMOUS || self.file_offset(self.start) == other.file_offset(self.start))
    }
}

/// Most mappings in one chunk.
const CHUNK: usize = 256;

/// The executable memory of one process, sorted by address, without overlaps.
///
/// Mappings are stored in chunks of at most [`CHUNK`]; no chunk is empty. An insertion copies one chunk, however many mappings there are.
/// A clone shares all chunks; a chunk is copied when one side changes it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Mappings {
    chunks: Arc<Vec<Arc<[Mapping]>>>,
    len: usize,
}

impl Mappings {
    /// Inserts a mapping, which replaces any mapping at its addresses. Returns whether an address now has another meaning than before. An
    /// address that was not mapped before does not count.
    pub(crate) fn insert(&mut self, new: Mapping) -> bool {
        if new.start >= new.end {
            return false;
        }
        // The chunks that it overlaps, or else the chunk next to it.
        let first = self.chunk_of(new.start).min(self.chunks.len().saturating_sub(1));
        let end = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|mapping| mapping.start < new.end));
        let end = end.max(first + 1).min(self.chunks.len());
        let touched = self.chunks.get(first..end).unwrap_or_default();
        let old: Vec<Mapping> = touched.iter().flat_map(|chunk| chunk.iter().copied()).collect();
        let from = old.partition_point(|old| old.end <= new.start);
        let to = old.partition_point(|old| old.start < new.end).max(from);
        let replaced = old.get(from..to).unwrap_or_default();
        if replaced == [new] {
            return false;
        }
        let changed = replaced.iter().any(|old| !old.agrees(&new));
        let left = replaced.first().filter(|old| old.start < new.start).map(|old| Mapping { end: new.start, ..*old });
        let right = replaced.last().filter(|old| old.end > new.end);
        let right = right.map(|old| Mapping { start: new.end, offset: old.file_offset(new.end), ..*old });
        let (before, after) = (old.get(..from).unwrap_or_default(), old.get(to..).unwrap_or_default());
        let middle = left.into_iter().chain([new]).chain(right);
        let all: Vec<Mapping> = before.iter().copied().chain(middle).chain(after.iter().copied()).collect();
        self.len = self.len + all.len() - old.len();
        let size = if all.len() > CHUNK { all.len().div_ceil(2).min(CHUNK) } else { CHUNK };
        Arc::make_mut(&mut self.chunks).splice(first..end, all.chunks(size).map(Arc::from));
        changed
    }

    /// Returns a copy without the addresses in `ranges`, which may be in any order and overlap.
    pub(crate) fn without(&self, ranges: &[Range<u64>]) -> Mappings {
        let mut ranges = ranges.to_vec();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut left = Vec::with_capacity(self.len);
        let mut first = 0;
        for mapping in self.iter() {
            first += ranges.iter().skip(first).take_while(|range| range.end <= mapping.start).count();
            let mut rest = *mapping;
            for range in ranges.iter().skip(first).take_while(|range| range.start < mapping.end) {
                if rest.start < range.start {
                    left.push(Mapping { end: range.start, ..rest });
                }
                if rest.start < range.end {
                    rest = Mapping { start: range.end, offset: rest.file_offset(range.end), ..rest };
                }
                if rest.start >= rest.end {
                    break;
                }
            }
            if rest.start < rest.end {
                left.push(rest);
            }
        }
        Mappings { len: left.len(), chunks: Arc::new(left.chunks(CHUNK).map(Arc::from).collect()) }
    }

    /// Returns the first chunk that ends after an address.
    fn chunk_of(&self, address: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|mapping| mapping.end <= address))
    }

    /// Returns the mapping that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Mapping> {
        let chunk = self.chunks.get(self.chunk_of(address))?;
        let index = chunk.partition_point(|mapping| mapping.end <= address);
        chunk.get(index).filter(|mapping| mapping.start <= address)
    }

    /// All mappings, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Returns the number of mappings.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of mappings, where shared mappings count in part: a mapping that two clones share counts half.
    pub(crate) fn own_len(&self) -> usize {
        let lists = Arc::strong_count(&self.chunks);
        self.chunks.iter().map(|chunk| chunk.len() / Arc::strong_count(chunk) / lists).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::wire::perf_records::Inode;
    use crate::cpu_time;
    use proptest::prelude::*;

    const FILE: Identity = numbered(2);

    const fn numbered(number: u64) -> Identity {
        Identity::Inode(Inode { device: 1, number, generation: None })
    }

    fn mapping(start: u64, end: u64, offset: u64, file: u32) -> Mapping {
        Mapping { start, end, offset, file: FileIndex(file) }
    }

    /// A user's process may have changed its memory, or may show another file under the same path.
    #[test]
    fn what_one_user_shows_of_a_file_decides_for_no_other() {
        let mut files = Files::default();
        let index = files.intern("/usr/bin/node", Identity::BuildId(BuildId::new(&[7; 20]).unwrap()), UserId(0));
        let path = Arc::clone(&files.get(index).unwrap().path);
        let (own, container) = (own_files(), FileNamespace(own_files().0 + 1));
        let is_none = |files: &Files, whose: Whose| matches!(files.get(index).unwrap().engine(whose), Engine::None);
        files.told_engine(index, &path, (own, UserId(1000)), Engine::None);
        assert!(is_none(&files, (own, UserId(1000))));
        assert!([(own, UserId(0)), (own, UserId(1001)), (container, UserId(1000))].iter().all(|whose| !is_none(&files, *whose)));
        files.told_engine(index, &path, (container, UserId(0)), Engine::None);
        assert!(!is_none(&files, (own, UserId(0))), "root of a container is another one");
        files.told_engine(index, &path, (own, UserId(0)), Engine::None);
        (2000..2100).for_each(|user| files.told_engine(index, &path, (own, UserId(user)), Engine::None));
        let kept = (0..3000).filter(|user| is_none(&files, (own, UserId(*user)))).count();
        assert!(is_none(&files, (own, UserId(0))) && kept <= MAX_ENGINES, "{kept}");
    }

    #[test]
    fn a_mapping_in_the_middle_of_another_splits_it() {
        let mut mappings = Mappings::default();
        assert!(!mappings.insert(mapping(0x1000, 0x9000, 0x100, 5)));
        assert!(mappings.insert(mapping(0x3000, 0x4000, 0, 6)));
        assert_eq!(
            mappings.iter().copied().collect::<Vec<_>>(),
            [mapping(0x1000, 0x3000, 0x100, 5), mapping(0x3000, 0x4000, 0, 6), mapping(0x4000, 0x9000, 0x3100, 5)]
        );
        assert_eq!(mappings.find(0x4010).map(|found| found.file_offset(0x4010)), Some(0x3110));
        assert_eq!(mappings.find(0x9000), None);
        assert_eq!(mappings.find(0xfff), None);
    }

    #[test]
    fn telling_the_same_twice_changes_nothing() {
        let mut mappings = Mappings::default();
        mappings.insert(mapping(0x1000, 0x9000, 0, 5));
        let shared = mappings.clone();
        assert!(!mappings.insert(mapping(0x1000, 0x9000, 0, 5)));
        assert!(Arc::ptr_eq(&shared.chunks, &mappings.chunks));
        // A part is mapped again, as an event of mprotect reports it. The mappings are cut differently, but no address changes its meaning.
        assert!(!mappings.insert(mapping(0x2000, 0x3000, 0x1000, 5)));
        assert!(mappings.insert(mapping(0x2000, 0x3000, 0x1001, 5)));
    }

    #[test]
    fn addresses_can_be_taken_out() {
        let mut mappings = Mappings::default();
        mappings.insert(mapping(0x1000, 0x9000, 0x100, 5));
        mappings.insert(mapping(0x9000, 0xa000, 0, 6));
        let all: Vec<_> = mappings.iter().copied().collect();
        let without = |ranges: &[Range<u64>]| mappings.without(ranges).iter().copied().collect::<Vec<_>>();
        assert_eq!(without(&[]), all);
        assert_eq!(without(&[0..0x1000, 0xa000..0xb000]), all);
        let left = [mapping(0x1000, 0x2000, 0x100, 5), mapping(0x4000, 0x8000, 0x3100, 5), mapping(0x9800, 0xa000, 0x800, 6)];
        assert_eq!(without(&[0x8000..0x9800, 0x2000..0x4000, 0x2000..0x3000]), left);
        assert_eq!(without(&[0..0x9800, 0x9800..0xa000]), []);
        assert_eq!(mappings.without(&[0..0x9000, 0x2000..0x3000]).len(), 1);
    }

    #[test]
    fn a_fork_shares_mappings_until_one_side_changes() {
        let mut parent = Mappings::default();
        parent.insert(mapping(0x1000, 0x2000, 0, 5));
        let child = parent.clone();
        parent.insert(mapping(0x5000, 0x6000, 0, 6));
        assert!(child.find(0x5000).is_none());
        assert!(parent.find(0x5000).is_some());
    }

    #[test]
    fn memory_without_an_elf_file_is_anonymous() {
        let mut files = Files::default();
        for path in ["//anon", "[heap]", "[stack]", "", "/dev/zero (deleted)", "anon_inode:[x]", "/SYSV0000 (deleted)"] {
            assert_eq!(files.intern(path, FILE, UserId(1)), FileIndex::ANONYMOUS, "{path}");
        }
        assert_eq!(files.intern("[vdso]", FILE, UserId(1)), FileIndex::VDSO);
        let memfd = files.intern("/memfd:tool (deleted)", FILE, UserId(1));
        let found = [
            (BuildIdOf::Asked, true),
            (BuildIdOf::NotElf, true),
            (BuildIdOf::NotReachable(1), true),
            (BuildIdOf::None, false),
            (BuildIdOf::Found(BuildId::new(&[1; 20]).unwrap()), false),
        ];
        for (found, is_anonymous) in found {
            let file = files.get_mut(memfd).unwrap();
            file.build_id = found;
            assert_eq!(file.is_anonymous(), is_anonymous, "{found:?}");
        }
        let elf = Identity::BuildId(BuildId::new(&[1; 20]).unwrap());
        let memfd = files.intern("/memfd:runc (deleted)", elf, UserId(1));
        assert_eq!(files.get_mut(memfd).map(|file| file.path.to_string()).as_deref(), Some("/memfd:runc (deleted)"));
        assert_eq!(files.intern("/memfd:runc (deleted)", elf, UserId(1)), memfd);
        assert_ne!(files.intern("/bin/x", FILE, UserId(1)), files.intern("/bin/x", elf, UserId(1)));
    }

    proptest! {
        #[test]
        fn each_address_is_in_the_last_mapping_put_over_it(
            puts in prop::collection::vec((0u64..64, 1u64..16, 0u64..1000, 2u32..5), 1..40)
        ) {
            let mut mappings = Mappings::default();
            let mut plain = [None; 96];
            for (start, length, offset, file) in puts {
                mappings.insert(mapping(start, start + length, offset, file));
                for address in start..start + length {
                    plain[usize::try_from(address).unwrap()] = Some((file, address - start + offset));
                }
            }
            for (address, expected) in (0u64..).zip(plain) {
                let found = mappings.find(address).map(|found| (found.file.0, found.file_offset(address)));
                prop_assert_eq!(found, expected);
            }
            prop_assert!(mappings.iter().is_sorted_by(|a, b| a.end <= b.start));
            prop_assert_eq!(mappings.iter().count(), mappings.len());
        }
    }

    #[test]
    fn sixty_thousand_mappings_at_falling_addresses_take_no_time() {
        let mut mappings = Mappings::default();
        let begun = cpu_time::of_this_thread();
        for number in (0..60_000u64).rev() {
            mappings.insert(mapping(number * 0x2000, number * 0x2000 + 0x1000, 0, 5));
        }
        // One sorted array takes seconds: each insertion moves all mappings behind it.
        let took = cpu_time::since(begun);
        println!("{} ns a mapping", took.as_nanos() / 60_000);
        assert!(took < std::time::Duration::from_secs(1), "{took:?}");
        assert_eq!(mappings.len(), 60_000);
        let child = mappings.clone();
        mappings.insert(mapping(0x1000, 0x2000, 0, 6));
        assert_eq!((child.len(), mappings.len()), (60_000, 60_001));
        let shared = child.chunks.iter().filter(|chunk| mappings.chunks.iter().any(|other| Arc::ptr_eq(chunk, other)));
        assert!(shared.count() + 2 >= child.chunks.len(), "all other chunks are shared");
    }

    #[test]
    fn a_user_who_maps_files_without_end_leaves_room_for_others() {
        let mut files = Files::bounded(1 << 20);
        let long = |number: u32| format!("/{number}/{}", "x".repeat(5000));
        for number in 0..10_000 {
            files.intern(&long(number), FILE, UserId(7));
        }
        assert!(files.bytes <= 1 << 18 && files.refused > 9000, "{} bytes", files.bytes);
        assert_ne!(files.intern("/bin/x", FILE, UserId(0)), FileIndex::REFUSED);
        assert_ne!(files.intern("/bin/y", FILE, UserId(8)), FileIndex::REFUSED);
        assert!(!files.has_room_again(UserId(7)) && files.has_room_again(UserId(8)) && files.is_to_be_swept());
        files.sweep(std::iter::empty());
        assert!(files.has_room_again(UserId(7)) && files.bytes == 0 && files.of_user.is_empty());
    }

    proptest! {
        #[test]
        fn an_index_means_its_file_until_a_sweep_without_it(
            steps in prop::collection::vec((0u8..8, 0u64..40), 1..400)
        ) {
            let mut files = Files::default();
            let mut held: Vec<(FileIndex, u64)> = Vec::new();
            for (step, number) in steps {
                match step {
                    0 => files.sweep(held.iter().map(|(index, _)| *index)),
                    1 if !held.is_empty() => drop(held.swap_remove(usize::try_from(number).unwrap() % held.len())),
                    _ => held.push((files.intern(&format!("/{number}"), numbered(number), UserId(0)), number)),
                }
                for (index, number) in &held {
                    let file = files.get_mut(*index).map(|file| (file.path.to_string(), file.identity));
                    prop_assert_eq!(file, Some((format!("/{number}"), numbered(*number))));
                }
            }
            files.sweep(std::iter::empty());
            prop_assert_eq!((files.bytes, files.by_key.len()), (0, 0));
        }
    }
}
