//! Where the reader is in a tree: a path of labels, which stays what it is while trees come and go.

use std::collections::VecDeque;

use crate::profile::{CallTree, LabelId, Names, NodeId};

/// A frame on the screen, by the labels that lead to it; or the gathered narrow children of that frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// From the root's child down. Empty for the root.
    pub path: Vec<LabelId>,
    /// The box of what is too narrow below `path`, rather than the frame itself.
    pub rest: bool,
}

impl Place {
    /// The place of a node.
    pub fn of(tree: &CallTree, node: NodeId) -> Place {
        Place { path: tree.path(node).into_iter().map(|id| tree.node(id).label).collect(), rest: false }
    }

    /// Follows renamed labels, so that a cursor on `libc.so.6+0x123` is on `malloc` once that is known.
    pub fn refresh(&mut self, names: &Names) {
        for label in &mut self.path {
            *label = names.labels.current(*label);
        }
    }

    /// Gives the path other labels.
    pub fn rename(&mut self, rename: impl Fn(LabelId) -> LabelId) {
        self.path.iter_mut().for_each(|label| *label = rename(*label));
    }

    /// The node, or the nearest caller that the tree has; and whether it is the node itself.
    pub fn find(&self, tree: &CallTree) -> (NodeId, bool) {
        let mut node = CallTree::ROOT;
        for label in &self.path {
            match tree.child_with(node, *label) {
                Some(child) => node = child,
                None => return (node, false),
            }
        }
        (node, true)
    }

    /// The place in a tree in which other frames are folded: of labels that lead on, frames in between may have come, and others are left out.
    pub fn find_among_other_frames(&self, tree: &CallTree) -> NodeId {
        self.path.iter().fold(CallTree::ROOT, |node, label| nearest_below(tree, node, *label).unwrap_or(node))
    }

    /// The place one level up; the root's is the root.
    pub fn parent(&self) -> Place {
        let mut path = self.path.clone();
        if !self.rest {
            path.pop();
        }
        Place { path, rest: false }
    }

    /// Whether `other` is this place or below it.
    pub fn contains(&self, other: &Place) -> bool {
        !self.rest && other.path.starts_with(&self.path)
    }
}

/// A caller or callee of a function, with the labels that lead to it. With an empty path it is the function itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// A caller, not a callee.
    pub callers: bool,
    /// From the function's caller or callee on.
    pub path: Vec<LabelId>,
}

/// Nodes that are searched for a label: more than an interpreter has frames between two functions.
const MAX_SEARCHED: usize = 1000;

/// The node of a label that is nearest below a node.
fn nearest_below(tree: &CallTree, node: NodeId, label: LabelId) -> Option<NodeId> {
    let mut nodes = VecDeque::from([node]);
    for _ in 0..MAX_SEARCHED {
        let node = nodes.pop_front()?;
        if let Some(child) = tree.child_with(node, label) {
            return Some(child);
        }
        nodes.extend(tree.children(node).take(MAX_SEARCHED - nodes.len().min(MAX_SEARCHED)));
    }
    None
}
