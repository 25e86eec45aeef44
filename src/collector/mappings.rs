//! Which addresses of a process belong to which file: sorted mappings, and the table of files they point into. Pure.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::events::Identity;
use crate::profile::ObjectId;

/// More executable mappings than this are not kept for one process: the kernel's default of `vm.max_map_count`. They can
/// only come from mappings that were removed again, of which perf does not tell.
pub(crate) const MAX_MAPPINGS: usize = 65_530;

/// Index into [`Files`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileIndex(u32);

impl FileIndex {
    /// Memory without a file.
    pub(crate) const ANONYMOUS: FileIndex = FileIndex(0);
    /// The vDSO.
    pub(crate) const VDSO: FileIndex = FileIndex(1);
}

/// A file that was mapped.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// As the process that mapped it calls it.
    pub(crate) path: Arc<str>,
    /// What tells it from other files of that path.
    pub(crate) identity: Identity,
    /// Its object, once a frame was found in it.
    pub(crate) object: Option<ObjectId>,
}

/// Every file that was mapped. Grows only; a file is a hundred bytes.
#[derive(Default)]
pub(crate) struct Files {
    files: Vec<File>,
    by_path: FxHashMap<Arc<str>, Vec<(Identity, FileIndex)>>,
}

impl Files {
    const FIXED: u32 = 2;

    /// The file of this path and identity, or one of the two that stand for memory without one.
    pub(crate) fn intern(&mut self, path: &str, identity: Identity) -> FileIndex {
        if path == "[vdso]" {
            return FileIndex::VDSO;
        }
        if is_anonymous(path, identity) {
            return FileIndex::ANONYMOUS;
        }
        let known = self.by_path.get(path).and_then(|files| files.iter().find(|(known, _)| *known == identity));
        if let Some((_, index)) = known {
            return *index;
        }
        let Ok(index) = u32::try_from(self.files.len()) else { return FileIndex::ANONYMOUS };
        let index = FileIndex(index.saturating_add(Files::FIXED));
        let path: Arc<str> = path.into();
        self.files.push(File { path: path.clone(), identity, object: None });
        self.by_path.entry(path).or_default().push((identity, index));
        index
    }

    /// The file, or `None` for the two fixed ones.
    pub(crate) fn get_mut(&mut self, index: FileIndex) -> Option<&mut File> {
        self.files.get_mut(usize::try_from(index.0.checked_sub(Files::FIXED)?).ok()?)
    }
}

/// Whether a mapping of this path has no ELF file behind it.
///
/// A memfd may hold a program (runc runs itself from one): it is a file when the kernel found a build id in it.
fn is_anonymous(path: &str, identity: Identity) -> bool {
    const NOT_FILES: [&str; 4] = ["/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]"];
    let memfd = path.starts_with("/memfd:") && matches!(identity, Identity::Inode(..));
    memfd || !path.starts_with('/') || path.starts_with("//") || NOT_FILES.iter().any(|prefix| path.starts_with(prefix))
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
    /// Where in the file the first address is.
    pub(crate) offset: u64,
    /// Which file.
    pub(crate) file: FileIndex,
}

impl Mapping {
    /// Where in the file an address is.
    pub(crate) fn file_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }

    /// The addresses.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether an address in both is the same place in the same file.
    fn agrees(&self, other: &Mapping) -> bool {
        self.file == other.file
            && (self.file == FileIndex::ANONYMOUS || self.file_offset(self.start) == other.file_offset(self.start))
    }
}

/// The executable memory of one process, sorted by address, without overlaps. Cloning shares it until one side changes.
#[derive(Clone, Default, Debug)]
pub(crate) struct Mappings(Arc<Vec<Mapping>>);

impl Mappings {
    /// Puts a mapping in, in the place of whatever was there. Returns whether an address now means something else than
    /// before; new meaning where there was none does not count.
    pub(crate) fn insert(&mut self, new: Mapping) -> bool {
        if new.start >= new.end {
            return false;
        }
        let from = self.0.partition_point(|old| old.end <= new.start);
        let to = self.0.partition_point(|old| old.start < new.end).max(from);
        let replaced = self.0.get(from..to).unwrap_or_default();
        if replaced == [new] {
            return false;
        }
        let changed = replaced.iter().any(|old| !old.agrees(&new));
        let left = replaced.first().filter(|old| old.start < new.start).map(|old| Mapping { end: new.start, ..*old });
        let right = replaced.last().filter(|old| old.end > new.end);
        let right = right.map(|old| Mapping { start: new.end, offset: old.file_offset(new.end), ..*old });
        Arc::make_mut(&mut self.0).splice(from..to, left.into_iter().chain([new]).chain(right));
        changed
    }

    /// The mapping that an address is in.
    pub(crate) fn find(&self, address: u64) -> Option<&Mapping> {
        let index = self.0.partition_point(|mapping| mapping.end <= address);
        self.0.get(index).filter(|mapping| mapping.start <= address)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::BuildId;
    use proptest::prelude::*;

    const FILE: Identity = Identity::Inode(1, 2);

    fn mapping(start: u64, end: u64, offset: u64, file: u32) -> Mapping {
        Mapping { start, end, offset, file: FileIndex(file) }
    }

    #[test]
    fn a_mapping_in_the_middle_of_another_splits_it() {
        let mut mappings = Mappings::default();
        assert!(!mappings.insert(mapping(0x1000, 0x9000, 0x100, 5)));
        assert!(mappings.insert(mapping(0x3000, 0x4000, 0, 6)));
        assert_eq!(
            *mappings.0,
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
        assert!(Arc::ptr_eq(&shared.0, &mappings.0));
        // Part of it again, as mprotect tells it: another cut, but no address means something else.
        assert!(!mappings.insert(mapping(0x2000, 0x3000, 0x1000, 5)));
        assert!(mappings.insert(mapping(0x2000, 0x3000, 0x1001, 5)));
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
        for path in [
            "//anon",
            "[heap]",
            "[stack]",
            "",
            "/memfd:jit (deleted)",
            "/dev/zero (deleted)",
            "anon_inode:[x]",
            "/SYSV0000 (deleted)",
        ] {
            assert_eq!(files.intern(path, FILE), FileIndex::ANONYMOUS, "{path}");
        }
        assert_eq!(files.intern("[vdso]", FILE), FileIndex::VDSO);
        let elf = Identity::BuildId(BuildId::new(&[1; 20]).unwrap());
        let memfd = files.intern("/memfd:runc (deleted)", elf);
        assert_eq!(files.get_mut(memfd).map(|file| file.path.to_string()).as_deref(), Some("/memfd:runc (deleted)"));
        assert_eq!(files.intern("/memfd:runc (deleted)", elf), memfd);
        assert_ne!(files.intern("/bin/x", FILE), files.intern("/bin/x", elf));
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
            prop_assert!(mappings.0.is_sorted_by(|a, b| a.end <= b.start));
        }
    }
}
