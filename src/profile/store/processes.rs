//! The processes that were seen, by id: shared by collector, symbolizer and screen.

use std::ops::Range;
use std::sync::Arc;

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use crate::profile::ids::{FileNamespace, FrameId, ProcessAddress, Tgid, Timestamp, UserId};

/// The state of a process now, or at its exit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Arguments joined by spaces; safe to print; empty for kernel threads and for processes that were too short-lived.
    pub command_line: Arc<str>,
    /// Who started it.
    pub parent: Tgid,
    /// Its user. `None` until it is sampled.
    pub user: Option<UserId>,
    /// Number of its threads that exist.
    pub threads: u32,
    /// When it exited, if it did.
    pub exited: Option<Timestamp>,
}

/// Processes by id.
pub type Processes = DashMap<Tgid, Process, FxBuildHasher>;

/// A request to name a frame, with a process in which its object was mapped, so that the file can be found.
#[derive(Clone, Debug)]
pub struct NameRequest {
    /// The frame.
    pub frame: FrameId,
    /// A process that had the object mapped.
    pub tgid: Tgid,
    /// The user who is charged for the time and memory that naming it takes.
    pub user: UserId,
    /// Identifies the files that the paths of that process lead to.
    pub files: FileNamespace,
    /// The addresses of the mapping in that process. They name the entry in `/proc/TGID/map_files`. Empty for kernel frames.
    pub mapping: Range<ProcessAddress>,
}
