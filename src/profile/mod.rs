//! The model: the recorded samples, and the views made of them.
//!
//! Pure by rule: no kernel, no terminal, no files, no clock. The collector and the readers of files add [`Sample`]s. A [`Query`] selects
//! the samples of a view. A [`ViewBuilder`] makes the [`CallTree`] and the rows from them.
//!
//! Sizes that matter: a [`Sample`] is 32 bytes. A node of the stack trie is 8 bytes, and about 8 more in its hash index. A node of a call
//! tree is 32 bytes.

mod containers;
mod ids;
mod kernel;
mod listing;
pub(crate) mod names;
pub(crate) mod store;
mod unit;
pub(crate) mod view;

pub use containers::{Place, cgroup_name};
pub use ids::{
    BuildId, CgroupId, Cpu, ElfAddress, EventSource, FileNamespace, FileOffset, FrameId, KernelAddress, LabelId, ObjectId,
    ProcessAddress, StackId, Tgid, ThreadIndex, Tid, Timestamp, UserId,
};
pub use kernel::{AskKernel, KernelSymbol};
pub use listing::{Listing, Row, RowWeights, Rows, SourceLocation, hottest_line};
pub use names::begin::Begin;
pub use names::folding::Folding;
pub use names::frame::Frame;
pub use names::labels::{FrameKind, Label, LabelTable};
pub use names::language::Language;
pub use names::objects::{Object, ObjectKind, ObjectTable};
pub use names::reason::WaitReason;
pub use names::table::{FrameTable, Names};
pub use names::text::sanitize;
pub use store::capabilities::Capabilities;
pub use store::clock::Clock;
pub use store::events::EventStatus;
pub use store::held::Held;
pub use store::processes::{NameRequest, Process, Processes};
pub use store::profile::{Limits, Losses, Profile};
pub use store::renewal::{Renewals, Renewed};
pub use store::samples::{Sample, SampleStore, UserEnd};
pub use store::stacks::StackTable;
pub(crate) use store::stacks::Walk;
pub use store::threads::{Thread, ThreadTable};
pub use unit::Unit;
pub use view::activity::{Activity, ActivityRow};
pub use view::addresses::{ADDRESSES_OF_A_LINE, Addresses, FrameWeight};
pub use view::builder::{MAX_FILTERS, Progress, ViewBuilder};
pub use view::difference::{Change, Comparison, Difference, Measure, NodeSides};
pub use view::engine::Engine;
pub use view::functions::{FunctionOrder, FunctionRow, FunctionTable, Neighbours};
pub use view::hottest::heaviest_addresses;
pub use view::query::{Direction, Filter, FilterMode, Grouping, Mark, Pattern, Query, Request, Target, TimeRange};
pub use view::search::{SearchResult, Searcher};
pub use view::sides::Sides;
pub use view::snapshot::{Baseline, Snapshot};
pub use view::steady::{Steady, Weighed};
pub use view::summaries::{ProcessFacts, ShortStacks};
pub use view::timeline::{HeatMap, PARTS, SLOTS, Timeline};
pub use view::totals::Totals;
pub use view::tree::{CallTree, NodeId, Observations, TreeBuilder, TreeNode};
