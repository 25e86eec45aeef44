//! What is known of one process.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::mappings::{Mapping, Mappings};
use super::scripts::Scripts;
use crate::collector::wire::records::COMM_LENGTH;
use crate::profile::{FrameId, LabelId, ObjectId, UserId};

/// The user who is charged for processes that were not sampled yet, as samples tell the user. (No user of the kernel has this number.)
pub(super) const UNKNOWN_USER: UserId = UserId(u32::MAX);

/// How far something that worker threads read is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Not at all.
    No,
    /// It was asked for.
    Asked,
    /// It was asked for, but samples do not wait for the answer any more. A late answer still counts.
    Unread,
    /// Told by events, or read.
    Yes,
}

/// What one process is, for us.
pub(crate) struct ProcessState {
    /// Its executable memory.
    pub(crate) mappings: Mappings,
    /// Frames of addresses: `address << 1 | is_return`. Emptied when an address may mean something else.
    pub(crate) frames: FxHashMap<u64, FrameId>,
    /// The object of its code without a file, once a frame was found there.
    pub(crate) anonymous: Option<ObjectId>,
    /// Tells this program from others that had or will have the process's number: each exec and each fork begins another.
    pub(crate) life: u64,
    /// Whether `mappings` are known: told by events from exec on, or read.
    pub(crate) known: Known,
    /// Until when no change of them can be missing, even if events were lost: when they were read, or the program began.
    pub(super) read_at: u64,
    /// Mappings that events have told since `mappings` became unknown. They replace what is read.
    pub(super) since: Mappings,
    /// The process that it was forked from, and its life. While our mappings are not known, they are the same as those of that process.
    pub(super) forked_from: Option<(u32, u64)>,
    /// The parent of a process that was there before us, and was its copy then. Its mappings are used if this one is gone before its own are read.
    pub(super) young_copy_of: Option<u32>,
    /// Whether there was no room for some of the files that it maps.
    pub(super) lacks_files: bool,
    /// Whether `mappings` lack what was mapped since a sample was taken: see [`Remapped`](super::remapped::Remapped).
    pub(crate) lacks_remapped: bool,
    /// The user who is charged for it, from its last sample.
    pub(super) user: UserId,
    /// The main thread's name.
    pub(super) comm: [u8; COMM_LENGTH],
    /// The label of that name, made when a sample needs it. Names that only events tell get none.
    pub(super) label: Option<LabelId>,
    pub(super) command_line: Arc<str>,
    pub(super) command_line_known: Known,
    pub(super) sampled: bool,
    /// The functions of its interpreter, if it has one.
    pub(super) scripts: Scripts,
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
            comm,
            label: None,
            command_line: Arc::default(),
            command_line_known: Known::No,
            sampled: false,
            scripts: Scripts::default(),
            threads: 1,
            leader_gone: false,
            exited: None,
        }
    }

    /// Marks the mappings as not known, so that the next sample has them read again.
    pub(super) fn begin_reading(&mut self) {
        // If a question is pending, its answer will have the current mappings, and events are being noted already.
        if self.known == Known::Yes {
            self.known = Known::No;
            self.since = Mappings::default();
        }
        self.forked_from = None;
        self.young_copy_of = None;
    }

    /// Bytes of its mappings. Those that it shares with others count for each of them in part.
    pub(super) fn mappings_memory(&self) -> usize {
        (self.mappings.own_len() + self.since.own_len()) * size_of::<Mapping>()
    }
}
