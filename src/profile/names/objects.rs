//! Objects: the executable images in which code lives.

use std::sync::Arc;

use dashmap::{DashMap, Entry, VacantEntry};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, hashed, listed, shared};
use super::list::List;
use crate::profile::ids::{BuildId, FileNamespace, ObjectId, UserId};

/// The kind of image that an object is. It decides how the object's addresses are named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ObjectKind {
    /// Names only, no addresses: frames of folded files.
    Named,
    /// The running kernel with its modules and BPF programs; addresses are absolute.
    Kernel,
    /// An ELF file; addresses are file offsets.
    Elf,
    /// The kernel's vDSO as mapped into processes; addresses are offsets in the image.
    Vdso,
    /// Executable memory without a file: JIT code. Addresses are absolute in the process, and each process has its own object.
    Anonymous,
    /// A file of source that an interpreter runs: functions and lines.
    Script,
    /// No mapping was known for the address.
    #[default]
    Unmapped,
}

/// One executable image: an ELF file, the vDSO, JIT memory, the kernel.
///
/// A file's owner chooses its path and build id. Therefore two processes share an object, and the names of its frames, only if they run for
/// the same user and see the same files. Trees merge frames by label, so the screen shows one `libc.so.6`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Object {
    /// The kind of image.
    pub kind: ObjectKind,
    /// The path as the process that mapped it sees it; for display and for finding the file.
    pub path: Arc<str>,
    /// The build id from the mapping event or the file, if known.
    pub build_id: Option<BuildId>,
    /// Device and inode if the build id is not known, to distinguish two files with one path. For JIT code: the process, and a number that
    /// distinguishes it from other processes that had the same id.
    pub file: Option<(u64, u64)>,
    /// Identifies the files that the paths of its processes lead to.
    pub files: FileNamespace,
    /// The user whose processes run it, and who is charged for its names.
    pub user: UserId,
}

impl Object {
    /// Returns the last part of the path, for display.
    pub fn short_name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
    }
}

/// The table of all objects. It only grows, until another table follows ([`Renewals`](crate::profile::Renewals)). Reading takes no lock.
pub struct ObjectTable {
    objects: List<Object, 128>,
    ids: DashMap<Object, ObjectId, FxBuildHasher>,
    budget: Arc<Budget>,
}

/// Bytes charged for an object besides its entries. They pay for the symbolizer's record of each object ever seen: its errors, and how many
/// of its frames were named. Open files and symbol tables have separate bounds.
pub(crate) const OF_AN_OBJECT: usize = 512;

impl ObjectId {
    /// Frames that are names only.
    pub const NAMED: ObjectId = ObjectId(0);
    /// The running kernel.
    pub const KERNEL: ObjectId = ObjectId(1);
    /// The vDSO: one image a kernel (32-bit processes are not walked).
    pub const VDSO: ObjectId = ObjectId(2);
    /// Executable memory without a file, of all processes. Used when there is no room for an object for each process.
    pub const ANONYMOUS: ObjectId = ObjectId(3);
    /// Addresses without a known mapping.
    pub const UNMAPPED: ObjectId = ObjectId(4);
    /// All objects that were first seen after names had filled their memory. Nothing else is kept about them.
    pub const MORE: ObjectId = ObjectId(5);
}

impl Default for ObjectTable {
    fn default() -> Self {
        ObjectTable::new(Arc::default())
    }
}

impl ObjectTable {
    pub(crate) fn new(budget: Arc<Budget>) -> ObjectTable {
        let table = ObjectTable { objects: List::default(), ids: DashMap::default(), budget };
        let fixed = [
            (ObjectKind::Named, ""),
            (ObjectKind::Kernel, "kernel"),
            (ObjectKind::Vdso, "[vdso]"),
            (ObjectKind::Anonymous, "[anon]"),
            (ObjectKind::Unmapped, "[unmapped]"),
            (ObjectKind::Unmapped, "[more objects]"),
        ];
        for (kind, path) in fixed {
            table.intern(Object { kind, path: path.into(), build_id: None, file: None, ..Object::default() });
        }
        table
    }

    /// Copies an object of another table and returns its id. Makes the object if it is new.
    pub(crate) fn adopt(&self, object: Object) -> ObjectId {
        match self.ids.entry(object) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => self.add(entry),
        }
    }

    fn add(&self, entry: VacantEntry<'_, Object, ObjectId>) -> ObjectId {
        let path = shared(&entry.key().path);
        let bytes = listed::<Object>() + hashed::<(Object, ObjectId)>() + path + OF_AN_OBJECT;
        self.budget.take(entry.key().user, bytes);
        let id = ObjectId(u32::try_from(self.objects.push(entry.key().clone())).unwrap_or(0));
        entry.insert(id);
        id
    }

    /// Returns the object's id. Makes the object if it is new; [`ObjectId::MORE`] when names have filled their memory.
    pub fn intern(&self, object: Object) -> ObjectId {
        match self.ids.entry(object) {
            Entry::Occupied(entry) => *entry.get(),
            // The fixed objects are accepted first, whatever the limit.
            Entry::Vacant(entry)
                if self.budget.is_overfull(entry.key().user) && self.objects.len() > ObjectId::MORE.0 as usize =>
            {
                self.budget.refuse(entry.key().user);
                ObjectId::MORE
            }
            Entry::Vacant(entry) => self.add(entry),
        }
    }

    /// Returns the object, or `None` for an id of another table.
    pub fn get(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id.0 as usize)
    }

    /// Returns the number of objects, including the six fixed ones.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Always false: the six fixed objects are always there.
    pub fn is_empty(&self) -> bool {
        false
    }
}
