//! The state of one process.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::mappings::{Mapping, Mappings};
use super::moved::{Moved, is_asked};
use super::scripts::Scripts;
use crate::collector::wire::records::COMM_LENGTH;
use crate::profile::{FileNamespace, FrameId, LabelId, ObjectId, UserId};

/// The user who is charged for processes that were not sampled yet. Only a sample reports the user of its process. (No user of the
/// kernel has this number.)
pub(super) const UNKNOWN_USER: UserId = UserId(u32::MAX);

/// Whether a worker thread has read a fact about a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Not known, and not requested.
    No,
    /// Requested; samples wait for the answer.
    Asked,
    /// Requested, but samples no longer wait for the answer. A late answer still counts.
    Unread,
    /// Known from events, or read.
    Yes,
}

/// Everything that flametop knows about one process.
pub(crate) struct ProcessState {
    /// Its executable memory.
    pub(crate) mappings: Mappings,
    /// Frames of addresses: `address << 1 | is_return`. Emptied when an address may mean something else.
    pub(crate) frames: FxHashMap<u64, FrameId>,
    /// The object of its code without a file, once a frame was found there.
    pub(crate) anonymous: Option<ObjectId>,
    /// Distinguishes this program from earlier and later programs with the same process number. Each exec and each fork begins another
    /// life.
    pub(crate) life: u64,
    /// Whether `mappings` are known, because events reported all of them from exec on, or because they were read.
    pub(crate) known: Known,
    /// When the mappings were read, or the program began. They lack no change before this time, even if events were lost.
    pub(super) read_at: u64,
    /// Mappings that events have reported since `mappings` became unknown. They replace the mappings that are read.
    pub(super) since: Mappings,
    /// The process that forked this process, and the life of that parent. While this process's mappings are not known, they equal
    /// the parent's.
    pub(super) forked_from: Option<(u32, u64)>,
    /// The parent, if this process existed before flametop and was still a copy of its parent then. The parent's mappings are used if this
    /// process is gone before its own are read.
    pub(super) young_copy_of: Option<u32>,
    /// Whether the table of files had no room for some of the files that it maps.
    pub(super) lacks_files: bool,
    /// Whether `mappings` lack the ranges that were mapped after a sample was taken: see [`Remapped`](super::remapped::Remapped).
    pub(crate) lacks_remapped: bool,
    /// The user who is charged for it, from its last sample.
    pub(super) user: UserId,
    /// The files that it sees, from its last sample.
    pub(super) files: Option<FileNamespace>,
    /// The main thread's name.
    pub(super) comm: [u8; COMM_LENGTH],
    /// The label of that name, made when a sample needs it. Names that appear only in events get no label.
    pub(super) label: Option<LabelId>,
    pub(super) command_line: Arc<str>,
    pub(super) command_line_known: Known,
    pub(super) sampled: bool,
    /// The functions of its interpreter, if it has one.
    pub(super) scripts: Scripts,
    /// Memory without a file that may hold code of the file behind it, and how often a worker was asked about such memory.
    pub(super) moved: Vec<Moved>,
    pub(super) moved_questions: u32,
    /// Pages of code that were brought into memory lately, and when.
    pub(super) code_read: Vec<(u64, u64)>,
    pub(super) threads: u32,
    pub(super) leader_gone: bool,
    pub(super) exited: Option<u64>,
}

impl ProcessState {
    pub(super) fn new(comm: [u8; COMM_LENGTH]) -> ProcessState {
        ProcessState {
            mappings: Mappings::default(),
            frames: FxHashMap::default(),
            anonymous: None,
            life: 0,
            known: Known::No,
            read_at: 0,
            since: Mappings::default(),
            forked_from: None,
            young_copy_of: None,
            lacks_files: false,
            lacks_remapped: false,
            user: UNKNOWN_USER,
            files: None,
            comm,
            label: None,
            command_line: Arc::default(),
            command_line_known: Known::No,
            sampled: false,
            scripts: Scripts::default(),
            moved: Vec::new(),
            moved_questions: 0,
            code_read: Vec::new(),
            threads: 1,
            leader_gone: false,
            exited: None,
        }
    }

    /// Marks the mappings as not known, so that the next sample has them read again.
    pub(super) fn begin_reading(&mut self) {
        // If a question is pending, its answer will contain the current mappings, and events are already being noted.
        if self.known == Known::Yes {
            self.known = Known::No;
            self.since = Mappings::default();
        }
        self.forked_from = None;
        self.young_copy_of = None;
    }

    /// Whether a worker finds out which code is at this address.
    pub(super) fn is_asked(&self, address: u64) -> bool {
        is_asked(&self.moved, address)
    }

    /// Returns the bytes of its mappings. Mappings that several processes share count for each of them in part.
    pub(super) fn mappings_memory(&self) -> usize {
        (self.mappings.own_len() + self.since.own_len()) * size_of::<Mapping>()
    }
}
