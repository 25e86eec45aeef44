//! The place of a sample in the tree: the node of its stack, below the node of its process or thread. Each place is computed once.

use crate::profile::CallTree;
use crate::profile::Names;
use crate::profile::NodeId;
use crate::profile::Profile;
use crate::profile::Sample;
use crate::profile::StackId;
use crate::profile::Thread;
use crate::profile::view::addresses::note;
use crate::profile::{Direction, FrameId, FrameKind, Grouping, LabelId};

use super::builder::ViewBuilder;

impl ViewBuilder {
    /// Returns the node that gets a sample's weight. Makes it if it is new.
    pub(super) fn node_for(&mut self, profile: &Profile, sample: &Sample) -> NodeId {
        match self.query.direction {
            Direction::TopDown => {
                let group = self.thread_facts(profile, sample.thread).map_or(CallTree::ROOT, |facts| facts.group);
                self.top_down(profile, group, sample.stack)
            }
            Direction::BottomUp => self.bottom_up(profile, sample),
        }
    }

    fn remembered(&self, group: NodeId, stack: StackId) -> Option<NodeId> {
        if stack.0 == 0 {
            return Some(group);
        }
        if group == CallTree::ROOT {
            return self.node_of_ungrouped.get(stack.0 as usize).filter(|node| **node != 0).map(|node| NodeId(*node));
        }
        self.node_of.get(&(u64::from(group.0) << 32 | u64::from(stack.0))).copied()
    }

    fn remember(&mut self, group: NodeId, stack: StackId, node: NodeId) {
        if group != CallTree::ROOT {
            self.node_of.insert(u64::from(group.0) << 32 | u64::from(stack.0), node);
        } else if let Some(slot) = self.node_of_ungrouped.get_mut(stack.0 as usize) {
            *slot = node.0;
        }
    }

    fn top_down(&mut self, profile: &Profile, group: NodeId, stack: StackId) -> NodeId {
        if group == CallTree::ROOT && self.node_of_ungrouped.len() < profile.stacks.len() {
            self.node_of_ungrouped.resize(profile.stacks.len(), 0);
        }
        let mut new = Vec::new();
        let mut at = stack;
        let mut node = loop {
            if let Some(node) = self.remembered(group, at) {
                break node;
            }
            let Some((parent, frame)) = profile.stacks.split(at) else { break group };
            new.push((at, frame));
            at = parent;
        };
        let mut repeats = self.recursions.get(&at).copied().unwrap_or(1);
        for (at, frame) in new.into_iter().rev() {
            let mut labels = std::mem::take(&mut self.scratch);
            self.labels_of(frame, &mut labels);
            for label in &labels {
                node = self.step(node, *label, &mut repeats);
            }
            self.scratch = labels;
            self.remember(group, at, node);
            if repeats > 1 {
                self.recursions.insert(at, repeats);
            }
        }
        node
    }

    fn bottom_up(&mut self, profile: &Profile, sample: &Sample) -> NodeId {
        // The tree ends in the group, so the path depends on group and stack. It is remembered under the thread's number.
        let key = NodeId(sample.thread.0.wrapping_add(1));
        if sample.stack.0 != 0
            && let Some(node) = self.remembered(key, sample.stack)
        {
            return node;
        }
        let mut node = CallTree::ROOT;
        let mut repeats = 1;
        let mut labels = Vec::new();
        for frame in profile.stacks.frames(sample.stack) {
            self.labels_of(frame, &mut labels);
            for label in labels.iter().rev() {
                node = self.step(node, *label, &mut repeats);
            }
        }
        if let Some(thread) = profile.threads.get(sample.thread) {
            let groups = group_labels(&self.names, self.query.grouping, thread);
            for label in groups.into_iter().flatten().rev() {
                node = self.tree.child(node, label);
            }
        }
        self.remember(key, sample.stack, node);
        node
    }

    /// Returns the labels of a frame. If they change later, the view begins again.
    fn labels_of(&mut self, frame: FrameId, labels: &mut Vec<LabelId>) {
        note(&mut self.frames, self.names.frames.index(frame));
        labels.clear();
        self.names.labels_shown(frame, self.query.folding, |label| labels.push(label));
    }

    /// Returns the node of the next frame. A frame of a folded recursion stays on its node; `repeats` counts such frames in a row.
    fn step(&mut self, node: NodeId, label: LabelId, repeats: &mut u32) -> NodeId {
        if self.query.folding.recursion && self.is_of(node, label) {
            *repeats += 1;
            self.tree.note_repeats(node, *repeats);
            return node;
        }
        *repeats = 1;
        self.child(node, label)
    }

    /// Whether a node belongs to the same function as a label. Compilers inline functions into themselves: that is recursion, too.
    /// `[anon]` and the like are many functions.
    fn is_of(&self, node: NodeId, label: LabelId) -> bool {
        let Some(of_node) = self.tree.label(node) else { return false };
        let (Some(first), Some(second)) = (self.names.labels.get(of_node), self.names.labels.get(label)) else { return false };
        if of_node == label {
            return !first.name.starts_with('[');
        }
        let is_native = |kind| matches!(kind, FrameKind::User | FrameKind::Inlined);
        is_native(first.kind) && is_native(second.kind) && first.name == second.name && first.object == second.object
    }

    fn child(&mut self, node: NodeId, label: LabelId) -> NodeId {
        let before = self.tree.len();
        let child = self.tree.child(node, label);
        if self.tree.len() > before && self.names.labels.get(label).is_some_and(|label| label.provisional) {
            self.provisional.push(label);
        }
        child
    }

    /// Returns the node below "all" that holds a thread's stacks. Makes it when it is first needed, so threads that are not shown have
    /// none.
    pub(super) fn group_of(&mut self, thread: Thread) -> NodeId {
        if self.query.direction == Direction::BottomUp {
            return CallTree::ROOT;
        }
        let mut node = CallTree::ROOT;
        for label in group_labels(&self.names, self.query.grouping, thread).into_iter().flatten() {
            node = self.tree.child(node, label);
        }
        node
    }
}

/// Returns the levels below "all" for a thread.
fn group_labels(names: &Names, grouping: Grouping, thread: Thread) -> [Option<LabelId>; 2] {
    let numbered = |label: LabelId, number: u32| {
        let name = format!("{} {number}", names.labels.name(label));
        names.labels.intern(&name, "", FrameKind::Process)
    };
    match grouping {
        Grouping::None => [None, None],
        Grouping::Name => [Some(thread.process), None],
        Grouping::Process => [Some(numbered(thread.process, thread.tgid.0)), None],
        Grouping::Thread => [Some(numbered(thread.process, thread.tgid.0)), Some(numbered(thread.name, thread.tid.0))],
    }
}
