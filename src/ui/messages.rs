//! Input and output of the state machine: events, effects, and their data.

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};
use rustc_hash::FxHashMap;

use crate::palette::Palette;
use crate::profile::{
    Addresses, CallTree, CgroupId, Difference, EventSource, EventStatus, FrameId, LabelId, Listing, Names, Place, Query, Request,
    Snapshot, SourceLocation, Unit, UserId, cgroup_name,
};

/// An event that can be chosen for taking stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventName {
    /// Name in a request.
    pub name: String,
    /// Short description.
    pub help: &'static str,
    /// Why this machine refuses it. `None` if the event is available.
    pub refused: Option<Arc<str>>,
}

/// A command about events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventCommand {
    /// List the available events.
    List,
    /// Take stacks at these events, too. If nobody agreed to their cost, and the programs lose much time, say so instead.
    Attach {
        /// The event.
        name: String,
        /// Whether the user agreed to its cost.
        is_agreed: bool,
    },
    /// Stop taking stacks at this event.
    Detach(EventSource),
}

/// Why stacks are not taken at events.
#[derive(Clone, Debug, PartialEq)]
pub enum NotAttached {
    /// The programs would lose this much time, and nobody agreed to that.
    Costly {
        /// Number of events in a second.
        per_second: u64,
        /// CPUs that the programs would lose.
        cpus: f64,
    },
    /// Another reason, in a sentence.
    Failed(String),
}

/// The memory that the allocator manages, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// What is resident.
    pub resident: usize,
    /// The part that flametop's own code uses. The rest was freed and is kept for reuse, or libraries in C use it.
    pub in_use: usize,
}

/// Status of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Name of the machine or of the file.
    pub host: String,
    /// Description of the clock: `cpu-clock 99 Hz`; empty for files.
    pub source: String,
    /// Whether the clock ticks.
    pub clock: bool,
    /// The events that stacks are taken at.
    pub events: Arc<[EventStatus]>,
    /// Samples a second and CPU; 0 for files.
    pub frequency: u32,
    /// Number of sampled CPUs.
    pub cpus: usize,
    /// CPUs that are online now.
    pub online: Arc<[u16]>,
    /// Known paths of cgroups.
    pub cgroups: Arc<FxHashMap<CgroupId, Arc<str>>>,
    /// Names of the containers that cgroups belong to.
    pub containers: Arc<FxHashMap<CgroupId, Arc<str>>>,
    /// Names of users.
    pub users: Arc<FxHashMap<UserId, Arc<str>>>,
    /// Offset from the clock of samples to the local time of day, in nanoseconds since 1970. `None` if it is not known.
    pub wall: Option<i64>,
    /// Nanoseconds to add to a sample's time to get the time since 1970.
    pub utc: Option<i64>,
    /// Seconds since sampling began.
    pub elapsed: u64,
    /// Whether samples still arrive.
    pub live: bool,
    /// The end of the started command or of the watched processes.
    pub ended: Option<Ended>,
    /// flametop's CPU time over the last seconds, in per cent of one CPU.
    pub own_cpu: f64,
    /// flametop's resident memory in bytes.
    pub own_memory: usize,
    /// The part of `own_memory` that is mapped: files and buffers of the kernel.
    pub own_mapped: usize,
    /// The memory that the allocator manages. Known while the health view is on screen.
    pub own_heap: Option<Heap>,
    /// CPU time that programs lost to all sources of events in the last second, in per cent of one CPU.
    pub probes_cpu: f64,
    /// Samples of flametop itself that were left out for the clock. For events, see [`EventStatus::own`].
    pub own_left_out: u64,
    /// Objects without names.
    pub problems: Vec<Problem>,
    /// Status of unwind tables, and objects without one.
    pub notes: Vec<String>,
    /// Processes that could not be read, as lines.
    pub unread: Vec<String>,
}

/// Digits of a container's number that are shown.
const DIGITS: usize = 12;

impl Status {
    /// Returns the name of the container that a cgroup belongs to, or the begin of its number.
    pub(super) fn container(&self, cgroup: CgroupId) -> Option<&str> {
        let name = self.containers.get(&cgroup).map(|name| &**name);
        name.or_else(|| Place::of(self.cgroups.get(&cgroup)?).container?.get(..DIGITS))
    }

    /// Returns a short name of a cgroup: `container web`, `nginx.service`, or the end of its path.
    pub(super) fn cgroup_name(&self, cgroup: CgroupId) -> Option<String> {
        match self.container(cgroup) {
            Some(container) => Some(format!("container {container}")),
            None => self.cgroups.get(&cgroup).map(|path| cgroup_name(path).to_owned()),
        }
    }
}

/// An object without names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Its path, or `JIT code of PROGRAM`.
    pub path: String,
    /// Why.
    pub reason: String,
    /// Number of its frames without a name; 0 if only lines are missing.
    pub unnamed: u64,
    /// How to get the names; empty if that is impossible.
    pub remedy: String,
}

/// The end of a command or of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// For the header: `exit 0 after 9.1 s`.
    pub short: String,
    /// A sentence.
    pub words: String,
    /// Whether the exit status is not 0.
    pub failed: bool,
}

/// Result of a save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The file was written.
    Done {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The frames that were left out, as half a sentence.
        cut: Option<String>,
    },
    /// The file exists already and was not touched.
    Exists(PathBuf),
    /// Nothing was written. Contains the reason as one sentence.
    Failed(String),
}

/// Input of the state machine.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Event {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    Snapshot(Arc<Snapshot>),
    Status(Box<Status>),
    Saved(Saved),
    /// The available events.
    EventNames(Arc<[EventName]>),
    /// Result of attaching to these events.
    Attached(String, Result<EventSource, NotAttached>),
    /// Lines written by the started command.
    Output(Vec<String>),
    /// A function's source and instructions, or a sentence with the reason why there are none.
    Listing(LabelId, Result<Arc<Listing>, String>),
    /// Source lines of addresses of a function.
    Located(LabelId, Vec<(FrameId, SourceLocation)>),
}

/// A request of the state machine to its caller.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Effect {
    Ask(Box<Request>),
    /// Read a function. If several functions have its name, read the one with this address, if an address is known.
    List(Arc<Addresses>, Option<FrameId>),
    /// Find files and lines of addresses of a function.
    Locate(LabelId, Vec<FrameId>),
    Save(Box<SaveRequest>),
    Events(EventCommand),
    Copy(String),
    Redraw,
    /// Stop, and return to the shell.
    Suspend,
    Quit,
}

/// Request to save a file.
#[derive(Clone, Debug)]
pub struct SaveRequest {
    /// The file; its ending names the format.
    pub path: PathBuf,
    /// Whether a file of this name may be replaced.
    pub overwrite: bool,
    /// The tree on screen.
    pub tree: Arc<CallTree>,
    /// The tables of names that its labels belong to.
    pub names: Arc<Names>,
    /// The tree's value for a weight of 1. More than 1 if the past fades.
    pub one: u64,
    /// The unit of its weights.
    pub unit: Unit,
    /// The seconds that it covers, if samples have times.
    pub seconds: Option<f64>,
    /// The source of its samples; `None` for all sources.
    pub source: Option<EventSource>,
    /// The weights of both sides, in a comparison.
    pub difference: Option<Arc<Difference>>,
    /// The zoomed frame, as labels from the root.
    pub zoom: Vec<LabelId>,
    /// The samples on screen: for formats that hold samples. Its range does not depend on the present.
    pub query: Query,
    /// Description of the sampled processes; `None` for all.
    pub watched: Option<String>,
    /// Title: describes the content.
    pub title: String,
    /// How it was sampled, for the picture.
    pub facts: Vec<String>,
    /// The colours of kinds.
    pub palette: Palette,
}

/// A short message to the user. It stays until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The text.
    pub text: String,
    /// Whether it reports a failure.
    pub bad: bool,
}
