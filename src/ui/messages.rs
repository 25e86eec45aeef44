//! What comes into the state machine and what goes out of it.

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};
use rustc_hash::FxHashMap;

use crate::palette::Palette;
use crate::profile::{
    Addresses, CallTree, CgroupId, Difference, EventSource, EventStatus, FrameId, LabelId, Listing, Names, Request, Snapshot,
    SourceLocation, UserId,
};

/// Something that stacks could be taken at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventName {
    /// As it is asked for.
    pub name: String,
    /// What it is.
    pub help: &'static str,
    /// Why this machine refuses it. `None` if it does not.
    pub refused: Option<Arc<str>>,
}

/// What is asked about events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventCommand {
    /// Which ones there are.
    List,
    /// Take stacks at these, too.
    Attach(String),
    /// No more.
    Detach(EventSource),
}

/// What the run tells about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The machine's name, or the file's.
    pub host: String,
    /// What the clock is: `cpu-clock 99 Hz`; empty for files.
    pub source: String,
    /// Whether the clock ticks.
    pub clock: bool,
    /// The events that stacks are taken at.
    pub events: Arc<[EventStatus]>,
    /// Samples a second and CPU; 0 for files.
    pub frequency: u32,
    /// CPUs sampled.
    pub cpus: usize,
    /// CPUs that are switched on now.
    pub online: Arc<[u16]>,
    /// Paths of cgroups, as far as they are known.
    pub cgroups: Arc<FxHashMap<CgroupId, Arc<str>>>,
    /// Names of users.
    pub users: Arc<FxHashMap<UserId, Arc<str>>>,
    /// Nanoseconds from the clock of samples to the local time of day, counted from 1970. `None` if that is not known.
    pub wall: Option<i64>,
    /// Seconds since sampling began.
    pub elapsed: u64,
    /// Whether samples still come.
    pub live: bool,
    /// The end of the command that was started, or of the processes that were watched.
    pub ended: Option<Ended>,
    /// Own CPU time over the last seconds, in per cent of one CPU.
    pub own_cpu: f64,
    /// Own resident memory in bytes.
    pub own_memory: usize,
    /// The part of it that is files and buffers of the kernel, mapped.
    pub own_mapped: usize,
    /// Bytes that were freed and that the allocator keeps, resident or not. Known while the health view is on screen.
    pub own_freed: Option<usize>,
    /// Samples of flametop itself that the clock has left out; of events, see [`EventStatus::own`].
    pub own_left_out: u64,
    /// Objects without names.
    pub problems: Vec<Problem>,
    /// How it stands with unwind tables, and which objects have none.
    pub notes: Vec<String>,
    /// Processes about which nothing could be read, in lines.
    pub unread: Vec<String>,
}

/// An object without names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Its path, or `JIT code of PROGRAM`.
    pub path: String,
    /// Why.
    pub reason: String,
    /// How many of its frames have no name; 0 if only lines are missing.
    pub unnamed: u64,
    /// How to get the names; empty if there is no way.
    pub remedy: String,
}

/// The end of a command or of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// For the header: `exit 0 after 9.1 s`.
    pub short: String,
    /// In a sentence.
    pub words: String,
    /// It was not in order: the exit status is not 0.
    pub failed: bool,
}

/// How a save ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Written.
    Done {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The frames that were left out, as half a sentence.
        cut: Option<String>,
    },
    /// The file is there already; nothing was touched.
    Exists(PathBuf),
    /// Nothing was written: one clear sentence.
    Failed(String),
}

/// What happens to the program.
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
    /// The events that there are.
    EventNames(Arc<[EventName]>),
    /// What became of an order to take stacks at these events.
    Attached(String, Result<EventSource, String>),
    /// Lines the started command wrote.
    Output(Vec<String>),
    /// A function's source and instructions; or why there are none, in a sentence.
    Listing(LabelId, Result<Arc<Listing>, String>),
    /// Where in the source an address of a function is, if that is known.
    Located(LabelId, FrameId, Option<SourceLocation>),
}

/// What the program is to do.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Effect {
    Ask(Box<Request>),
    /// A function is to be read: of several with its name the one that has this address, if that is known.
    List(Arc<Addresses>, Option<FrameId>),
    /// File and line of an address of a function are wanted.
    Locate(LabelId, FrameId),
    Save(SaveRequest),
    Events(EventCommand),
    Copy(String),
    Redraw,
    /// Stop, and go back to the shell.
    Suspend,
    Quit,
}

/// What is to be written where.
#[derive(Clone, Debug)]
pub struct SaveRequest {
    /// The file; its ending names the format.
    pub path: PathBuf,
    /// Whether a file of this name may be replaced.
    pub overwrite: bool,
    /// What is seen.
    pub tree: Arc<CallTree>,
    /// The tables that its labels are of.
    pub names: Arc<Names>,
    /// What a weight of 1 weighs in it.
    pub one: u64,
    /// What is counted: samples, or events.
    pub count_name: &'static str,
    /// The source of its samples; `None` for all sources.
    pub source: Option<EventSource>,
    /// What it is compared with, if it is.
    pub difference: Option<Arc<Difference>>,
    /// The zoomed frame, as labels from the root.
    pub zoom: Vec<LabelId>,
    /// What is seen, in words.
    pub title: String,
    /// How it was sampled, in words.
    pub facts: Vec<String>,
    /// The colours of kinds.
    pub palette: Palette,
}

/// A short word to the reader, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The words.
    pub text: String,
    /// Something failed.
    pub bad: bool,
}
