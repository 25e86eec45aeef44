//! The model: what was sampled, and what a view makes of it.
//!
//! Pure by rule: no kernel, no terminal, no files, no clock. The collector and the readers of files put [`Sample`]s in,
//! a [`Query`] says which of them a view is about, and a [`ViewBuilder`] makes the [`CallTree`] and the rows of it.
//!
//! Sizes that matter: a [`Sample`] is 32 bytes; a node of the stack trie is 8 bytes and about 8 more in its hash
//! index; a node of a call tree is 32 bytes.

mod baseline;
mod budget;
mod difference;
mod engine;
mod events;
mod frame;
mod ids;
mod kernel;
mod labels;
mod listing;
mod objects;
mod processes;
mod query;
mod samples;
mod search;
mod stacks;
mod text;
mod threads;
mod top;
mod tree;
mod view;

pub use baseline::Mark;
pub use difference::{Change, Difference, NodeSides, Sides};
pub use engine::{Baseline, Engine, Snapshot};
pub use events::EventStatus;
pub use frame::{Frame, FrameTable, Names, Renewals, Renewed};
pub use ids::{
    BuildId, CgroupId, Cpu, ElfAddress, EventSource, FileNamespace, FileOffset, FrameId, LabelId, ObjectId, ProcessAddress,
    StackId, Tgid, ThreadIndex, Tid, Timestamp, UserId,
};
pub use kernel::KernelSymbol;
pub use labels::{FrameKind, Label, LabelTable};
pub use listing::{Listing, Row, RowWeights, Rows};
pub use objects::{Object, ObjectKind, ObjectTable};
pub use processes::{NameRequest, Process, Processes};
pub use query::{Direction, Filter, FilterMode, Grouping, Pattern, Query, Request, Target, TimeRange};
pub use samples::{Limits, Losses, Profile, Sample, SampleStore, UserEnd};
pub use search::{SearchResult, Searcher};
pub use stacks::StackTable;
pub(crate) use stacks::Walk;
pub use text::sanitize;
pub use threads::{Thread, ThreadTable};
pub use top::{FunctionOrder, FunctionRow, FunctionTable, Neighbours};
pub use tree::{CallTree, NodeId, TreeBuilder, TreeNode};
pub use view::{
    ActivityRow, Addresses, FrameWeight, HeatMap, MAX_FILTERS, Progress, SLOTS, ShortStacks, Timeline, Totals, ViewBuilder,
};
