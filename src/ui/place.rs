//! The reader's place in a tree: a path of labels, which stays valid when the tree is replaced.

use std::collections::VecDeque;

use crate::profile::{CallTree, LabelId, Names, NodeId};

/// A frame on the screen, by the labels that lead to it, or the gathered narrow children of that frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The labels from the root's child down. Empty for the root.
    pub path: Vec<LabelId>,
    /// Whether it is the box of narrow frames below `path`, rather than the frame itself.
    pub rest: bool,
}

impl Place {
    /// Returns the place of a node.
    pub fn of(tree: &CallTree, node: NodeId) -> Place {
        Place { path: tree.path(node).into_iter().map(|id| tree.node(id).label).collect(), rest: false }
    }

    /// Follows renamed labels: a cursor on `libc.so.6+0x123` moves to `malloc` when that name becomes known.
    pub fn refresh(&mut self, names: &Names) {
        for label in &mut self.path {
            *label = names.labels.current(*label);
        }
    }

    /// Gives the path other labels.
    pub fn rename(&mut self, rename: impl Fn(LabelId) -> LabelId) {
        self.path.iter_mut().for_each(|label| *label = rename(*label));
    }

    /// Finds the node, or the nearest caller that the tree has. Also returns whether it is the node itself.
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

    /// Finds the place in a tree with other folded frames. The path may have new frames between its labels, and labels that are
    /// missing in the tree are skipped.
    pub fn find_among_other_frames(&self, tree: &CallTree) -> NodeId {
        self.path.iter().fold(CallTree::ROOT, |node, label| nearest_below(tree, node, *label).unwrap_or(node))
    }

    /// Returns the place one level up. For the root, returns the root.
    pub fn parent(&self) -> Place {
        let mut path = self.path.clone();
        if !self.rest {
            path.pop();
        }
        Place { path, rest: false }
    }

    /// Returns whether `other` is this place or below it.
    pub fn contains(&self, other: &Place) -> bool {
        !self.rest && other.path.starts_with(&self.path)
    }
}

/// A caller or callee of a function, with the labels that lead to it. With an empty path it is the function itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Whether it is a caller.
    pub callers: bool,
    /// The labels, starting with the function's caller or callee.
    pub path: Vec<LabelId>,
}

/// Limit for the nodes searched for a label: more than the number of an interpreter's frames between two functions.
const MAX_SEARCHED: usize = 1000;

/// Finds the node of a label that is nearest below a node.
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
