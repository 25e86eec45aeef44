//! Walks a call tree path by path, in the order of the paths' texts, for formats in which a stack is text.
//!
//! Paths are distinguished by their text, not by labels. Two labels with the same text (one function name in two objects) are one
//! frame here. The walk does not recurse, so a deep tree costs only heap memory.

use crate::profile::{CallTree, Difference, LabelId, LabelTable, NodeId, Sides};

/// The text of each label of a tree.
pub(super) struct Texts {
    /// Every text once, in order.
    texts: Vec<String>,
    /// Index into `texts` by label, from `first` on; `u32::MAX` for labels that the tree does not have.
    by_label: Vec<u32>,
    first: LabelId,
}

impl Texts {
    /// Writes each label of `tree` once, through `text`.
    pub(super) fn new(tree: &CallTree, labels: &LabelTable, text: impl Fn(&LabelTable, LabelId) -> String) -> Texts {
        let mut by_label: Vec<u32> = Vec::new();
        let mut written: Vec<(String, usize)> = Vec::new();
        for node in tree.nodes().iter().skip(1) {
            let Some(label) = labels.index(node.label) else { continue };
            if by_label.len() <= label {
                by_label.resize(label + 1, u32::MAX);
            }
            if let Some(slot) = by_label.get_mut(label).filter(|slot| **slot == u32::MAX) {
                *slot = 0;
                written.push((text(labels, node.label), label));
            }
        }
        written.sort_unstable();
        let mut texts: Vec<String> = Vec::with_capacity(written.len());
        for (text, label) in written {
            if texts.last() != Some(&text) {
                texts.push(text);
            }
            if let Some(slot) = by_label.get_mut(label) {
                *slot = u32::try_from(texts.len() - 1).unwrap_or(u32::MAX);
            }
        }
        Texts { texts, by_label, first: labels.id(0) }
    }

    /// Returns the position of the label's text in the order of all texts.
    fn rank(&self, label: LabelId) -> u32 {
        let index = label.0.checked_sub(self.first.0).map(|index| index as usize);
        index.and_then(|index| self.by_label.get(index)).copied().unwrap_or(u32::MAX)
    }

    fn text(&self, rank: u32) -> &str {
        self.texts.get(rank as usize).map_or("", String::as_str)
    }
}

/// Nodes with the same text under one parent, waiting to be visited.
struct Pending {
    rank: u32,
    nodes: Vec<NodeId>,
    /// Length of the parent's part of the path's text.
    parent_text: usize,
    /// Frames above this one.
    depth: usize,
}

/// One path of the tree.
pub(super) struct Path<'a> {
    /// The frames, joined by `;`.
    pub(super) text: &'a str,
    /// Number of frames.
    pub(super) depth: usize,
    /// Weight of samples that end here, plus the weight below in frames too narrow to be visited.
    pub(super) own: u64,
    /// The nodes with this text.
    pub(super) nodes: &'a [NodeId],
    /// Nodes of the visited paths that are one frame longer.
    pub(super) below: &'a [NodeId],
}

impl Path<'_> {
    /// Returns [`Path::own`] for both sides of a comparison.
    pub(super) fn own_sides(&self, difference: &Difference) -> Sides {
        let sum = |nodes: &[NodeId]| nodes.iter().fold(Sides::default(), |sum, node| sum.plus(difference.node(*node).total));
        sum(self.nodes).less(sum(self.below))
    }
}

/// Bounds of the paths that are visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The least weight.
    pub(super) narrowest: u64,
    /// The most frames of a path.
    pub(super) deepest: usize,
}

impl Limits {
    /// No bounds: all paths are visited.
    pub(super) const NONE: Limits = Limits { narrowest: 1, deepest: usize::MAX };
}

/// Visits every path from the root through `root` down, callers before callees, siblings in the order of their texts. Frames beyond
/// the limits are not visited; their weight counts as their caller's own. Weight without a caller comes first, as a path without
/// frames.
pub(super) fn walk<E>(
    tree: &CallTree,
    root: NodeId,
    texts: &Texts,
    Limits { narrowest, deepest }: Limits,
    mut visit: impl FnMut(&Path<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let narrowest = narrowest.max(1);
    let mut line = String::new();
    let mut pending: Vec<Pending> = Vec::new();
    let mut below = Vec::new();
    let above = tree.path(root);
    if let Some((_, callers)) = above.split_last() {
        for caller in callers {
            push_frame(&mut line, texts.text(texts.rank(tree.node(*caller).label)));
        }
        let rank = texts.rank(tree.node(root).label);
        pending.push(Pending { rank, nodes: vec![root], parent_text: line.len(), depth: callers.len() });
    } else {
        let total = tree.node(root).total;
        let weight = push_children(tree, texts, &[root], narrowest, (0, 0), &mut pending, &mut below);
        if total > weight {
            visit(&Path { text: "", depth: 0, own: total - weight, nodes: &[root], below: &below })?;
        }
    }
    while let Some(Pending { rank, nodes, parent_text, depth }) = pending.pop() {
        line.truncate(parent_text);
        push_frame(&mut line, texts.text(rank));
        let total: u64 = nodes.iter().map(|node| tree.node(*node).total).sum();
        let weight = if depth + 1 < deepest {
            push_children(tree, texts, &nodes, narrowest, (line.len(), depth + 1), &mut pending, &mut below)
        } else {
            below.clear();
            0
        };
        visit(&Path { text: &line, depth: depth + 1, own: total.saturating_sub(weight), nodes: &nodes, below: &below })?;
    }
    Ok(())
}

fn push_frame(line: &mut String, text: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    line.push_str(text);
}

/// Pushes the children of `nodes` onto the stack, last text first, so that the first text is popped first. Also leaves the children
/// in `below`. Returns their weight.
fn push_children(
    tree: &CallTree,
    texts: &Texts,
    nodes: &[NodeId],
    narrowest: u64,
    (parent_text, depth): (usize, usize),
    pending: &mut Vec<Pending>,
    below: &mut Vec<NodeId>,
) -> u64 {
    below.clear();
    let children = nodes.iter().flat_map(|node| tree.children(*node));
    let mut children: Vec<(u32, NodeId)> = children.map(|child| (texts.rank(tree.node(child).label), child)).collect();
    children.sort_unstable();
    let mut weight = 0;
    for same in children.chunk_by(|a, b| a.0 == b.0).rev() {
        let total: u64 = same.iter().map(|(_, child)| tree.node(*child).total).sum();
        if let Some((rank, _)) = same.first().filter(|_| total >= narrowest) {
            weight += total;
            let nodes: Vec<NodeId> = same.iter().map(|(_, child)| *child).collect();
            below.extend(&nodes);
            pending.push(Pending { rank: *rank, nodes, parent_text, depth });
        }
    }
    weight
}
