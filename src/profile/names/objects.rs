//! Objects: the executable images in which code lives.

use std::sync::Arc;

use dashmap::{DashMap, Entry, VacantEntry};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, hashed, listed, shared};
use crate::profile::ids::{BuildId, FileNamespace, ObjectId, UserId};

/// What kind of image an object is, which decides how its addresses are named.
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
    /// Executable memory without a file: JIT code. Addresses are absolute in the process; each process has an object of its own.
    Anonymous,
    /// A file of source that an interpreter runs: functions and lines.
    Script,
    /// No mapping was known for the address.
    #[default]
    Unmapped,
}

/// One executable image: an ELF file, the vDSO, JIT memory, the kernel.
///
/// Path and build id of a file are chosen by its owner. Two processes therefore share an object, and the names of its frames, only if
/// they run for the same user and see the same files. Trees merge frames by label, so the screen shows one `libc.so.6`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Object {
    /// What it is.
    pub kind: ObjectKind,
    /// As the process that mapped it calls it; for display and for finding the file.
    pub path: Arc<str>,
    /// From the mapping event or the file, where known.
    pub build_id: Option<BuildId>,
    /// Device and inode, where the build id is not known: what tells two files of one path apart. Of JIT code the process, and a
    /// number that tells it from others that had its id.
    pub file: Option<(u64, u64)>,
    /// Which files the paths of its processes lead to.
    pub files: FileNamespace,
    /// The user whose processes run it, and who pays for its names.
    pub user: UserId,
}

impl Object {
    /// The last part of the path, for display.
    pub fn short_name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
    }
}

/// Every object there is. Grows only, until another table follows ([`Renewals`](crate::profile::Renewals)); reading takes no lock.
pub struct ObjectTable {
    objects: boxcar::Vec<Object>,
    ids: DashMap<Object, ObjectId, FxBuildHasher>,
    budget: Arc<Budget>,
}

/// What is charged for an object besides its entries: open files and symbol tables have bounds of their own, but what went wrong
/// and how many frames were named is kept by the symbolizer for each object ever seen.
const OF_AN_OBJECT: usize = 512;

impl ObjectId {
    /// Frames that are names only.
    pub const NAMED: ObjectId = ObjectId(0);
    /// The running kernel.
    pub const KERNEL: ObjectId = ObjectId(1);
    /// The vDSO: one image a kernel (32-bit processes are not walked).
    pub const VDSO: ObjectId = ObjectId(2);
    /// Executable memory without a file, of all processes: where there is no room for an object of each.
    pub const ANONYMOUS: ObjectId = ObjectId(3);
    /// Addresses for which no mapping was known.
    pub const UNMAPPED: ObjectId = ObjectId(4);
    /// Objects that were first seen when names had filled their memory: what they are is not kept.
    pub const MORE: ObjectId = ObjectId(5);
}

impl Default for ObjectTable {
    fn default() -> Self {
        ObjectTable::new(Arc::default())
    }
}

impl ObjectTable {
    pub(crate) fn new(budget: Arc<Budget>) -> ObjectTable {
        let table = ObjectTable { objects: boxcar::Vec::new(), ids: DashMap::default(), budget };
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

    /// The id of an object of another table, made if it is new.
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

    /// The object's id, made if it is new; [`ObjectId::MORE`] when names have filled their memory.
    pub fn intern(&self, object: Object) -> ObjectId {
        match self.ids.entry(object) {
            Entry::Occupied(entry) => *entry.get(),
            // The fixed ones come first, whatever the limit.
            Entry::Vacant(entry)
                if self.budget.is_overfull(entry.key().user) && self.objects.count() > ObjectId::MORE.0 as usize =>
            {
                self.budget.refuse(entry.key().user);
                ObjectId::MORE
            }
            Entry::Vacant(entry) => self.add(entry),
        }
    }

    /// The object, or `None` for an id of another table.
    pub fn get(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id.0 as usize)
    }

    /// How many objects there are, the six fixed ones included.
    pub fn len(&self) -> usize {
        self.objects.count()
    }

    /// Never: six objects are always there.
    pub fn is_empty(&self) -> bool {
        false
    }
}
