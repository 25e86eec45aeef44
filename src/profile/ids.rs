//! Newtypes for what is easily confused: addresses of different spaces, and the ids the tables hand out.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A process, as the kernel names it in the initial PID namespace (`task->tgid`).
    Tgid(u32)
);
id!(
    /// A thread, in the initial PID namespace (`task->pid`).
    Tid(u32)
);
id!(
    /// The user who is charged for what a process makes flametop do, as the initial user namespace numbers users.
    ///
    /// The real user of the process; in another user namespace, the user who made it.
    UserId(u32)
);
id!(
    /// Identifies the files that a process sees: processes with the same number see the same files under a path.
    ///
    /// The number of a user namespace other than the initial one, or else the device of the root directory.
    FileNamespace(u32)
);
id!(
    /// A logical CPU's number.
    Cpu(u16)
);
id!(
    /// A cgroup v2 id: the inode number of its directory.
    CgroupId(u64)
);
id!(
    /// Nanoseconds of `CLOCK_MONOTONIC`, the clock of `bpf_ktime_get_ns` and of our perf events.
    Timestamp(u64)
);
id!(
    /// The source of samples: the clock, a file, or a source of events by its number.
    EventSource(u8)
);

impl EventSource {
    /// The clock, or the cycle counter, of each CPU.
    pub const CLOCK: EventSource = EventSource(0);
    /// A file: counts without time.
    pub const FILE: EventSource = EventSource(255);
}

id!(
    /// Index into an [`ObjectTable`](super::ObjectTable).
    ObjectId(u32)
);
id!(
    /// A frame of a [`FrameTable`](super::FrameTable).
    FrameId(u32)
);
id!(
    /// A label of a [`LabelTable`](super::LabelTable).
    LabelId(u32)
);

/// The first id of a table. Tables that follow each other have no id in common, so an id of an older table finds nothing in a newer one.
/// (An old id might find something after some two billion ids, when ids begin again.)
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct FirstId(u32);

impl FirstId {
    /// Ids have 31 bits: [`FrameTable`](super::FrameTable) marks other numbers by the 32nd.
    const END: u32 = 1 << 31;
    /// Ids kept free for one table. No table has as many entries: that would be 4 GB.
    const ROOM: u32 = 1 << 28;

    /// Returns the first id of the next table, if this one has `count` entries.
    pub(super) fn after(self, count: usize) -> FirstId {
        let next = u32::try_from(count).ok().and_then(|count| self.0.checked_add(count));
        FirstId(next.filter(|next| *next < FirstId::END - FirstId::ROOM).unwrap_or(0))
    }

    /// Returns the id of the table's `index`th entry.
    pub(super) fn id(self, index: usize) -> u32 {
        u32::try_from(index).map_or(0, |index| self.0.saturating_add(index))
    }

    /// Returns the index of this id's entry in the table; `None` if the id is of an older table.
    pub(super) fn index(self, id: u32) -> Option<usize> {
        id.checked_sub(self.0).map(|index| index as usize)
    }
}
id!(
    /// A node of the stack trie: the whole stack from its root down to this frame. `StackId(0)` is the empty stack.
    StackId(u32)
);
id!(
    /// Index into a [`ThreadTable`](super::ThreadTable).
    ThreadIndex(u32)
);
id!(
    /// An address inside a process, as its CPU saw it.
    ProcessAddress(u64)
);
id!(
    /// An address of the running kernel.
    KernelAddress(u64)
);
id!(
    /// A position in a file.
    FileOffset(u64)
);
id!(
    /// A virtual address as written in an ELF file, before loading.
    ElfAddress(u64)
);

impl Timestamp {
    /// Nanoseconds from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The build id that the linker gave an object: up to 20 bytes of `NT_GNU_BUILD_ID`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BuildId {
    length: u8,
    bytes: [u8; 20],
}

impl BuildId {
    /// Makes a build id from 1 to 20 bytes. Any other length is no build id.
    pub fn new(bytes: &[u8]) -> Option<BuildId> {
        let length = u8::try_from(bytes.len()).ok().filter(|n| (1..=20).contains(n))?;
        let mut id = BuildId { length, bytes: [0; 20] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// Returns the build id in the notes of an ELF file. The notes follow each other as
    ///
    /// ```text
    /// | name size 4 | size 4 | type 4 | name… | description… |     the latter two padded to 8 if `align` is that, else to 4
    /// ```
    ///
    /// Notes are hostile: a note that does not fit ends the search.
    pub fn in_notes(mut notes: &[u8], align: u64) -> Option<BuildId> {
        const NT_GNU_BUILD_ID: u32 = 3;
        let align = if align == 8 { 8 } else { 4 };
        loop {
            let word = |at: usize| notes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
            let name_size = usize::try_from(word(0)?).ok()?;
            let size = usize::try_from(word(4)?).ok()?;
            let kind = word(8)?;
            let description = name_size.checked_add(12)?.checked_next_multiple_of(align)?;
            let end = description.checked_add(size)?;
            if kind == NT_GNU_BUILD_ID && notes.get(12..)?.starts_with(b"GNU\0") && name_size == 4 {
                return BuildId::new(notes.get(description..end)?);
            }
            notes = notes.get(end.checked_next_multiple_of(align)?..)?;
        }
    }

    /// Returns the bytes of the build id.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// An id in a profile, to be changed.
pub(crate) enum Id<'a> {
    /// The frame of a node of the stack trie.
    Frame(&'a mut FrameId),
    /// The label of a thread or process.
    Label(&'a mut LabelId),
}
