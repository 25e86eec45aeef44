//! The model: what was sampled, and what a view makes of it.
//!
//! Pure by rule: no kernel, no terminal, no files, no clock. The collector and the readers of files put [`Sample`]s in,
//! a query says which of them a view is about, and trees and tables come out.
//!
//! Sizes that matter: a [`Sample`] is 32 bytes; a node of the stack trie is 8 bytes and about 8 more in its hash
//! index; a node of a call tree is 32 bytes.

mod frame;
mod ids;
mod processes;
mod samples;
mod stacks;
mod threads;
mod tree;

pub use frame::{Frame, FrameKind, FrameTable, Label, LabelTable, Names, Object, ObjectKind, ObjectTable, sanitize};
pub use ids::{
    BuildId, CgroupId, Cpu, ElfAddress, FileOffset, FrameId, LabelId, ObjectId, ProcessAddress, StackId, Tgid, ThreadIndex, Tid,
    Timestamp,
};
pub use processes::{NameRequest, Process, Processes};
pub use samples::{Limits, Losses, Profile, Sample, SampleKind, SampleStore, UserEnd};
pub use stacks::StackTable;
pub use threads::{Thread, ThreadTable};
pub use tree::{CallTree, NodeId, TreeBuilder, TreeNode};
