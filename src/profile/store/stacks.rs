//! Interned stacks: a trie of frames, root first, so that stacks with a common root share it.
//!
//! A [`StackId`] is a node of the trie; it identifies the whole stack from the root to the node. Nodes are numbered in the order they are
//! made, so a parent's id is always smaller than its children's. One pass forward over the nodes visits parents first, one pass backward
//! visits them last.
//!
//! A child made right after its parent is the next node, and is found by looking there. Only the other children are in the hash index. A
//! file of a million stacks of 38 frames needs 1 million index entries instead of 17 million. Below the frame where a stack parts from
//! earlier stacks, no search is needed at all.
//!
//! ```text
//!  0 (empty)
//!  ├─ 1 _start ── 2 main ─┬─ 3 parse
//!  │                      └─ 4 run ── 5 step
//!  └─ 6 clone3 ── 7 worker
//! ```

use hashbrown::HashTable;
use rustc_hash::FxHasher;
use std::hash::Hasher;

use crate::profile::ids::{FrameId, StackId};

#[derive(Clone, Copy)]
struct Node {
    parent: u32,
    frame: u32,
}

/// A walk down the trie: its current node, and the frames that are still to come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Walk<'a> {
    pub(crate) stack: StackId,
    pub(crate) rest: &'a [FrameId],
    ended: bool,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(rest: &'a [FrameId]) -> Walk<'a> {
        Walk { stack: StackId(0), rest, ended: false }
    }
}

/// The trie of all stacks that samples refer to.
pub struct StackTable {
    nodes: Vec<Node>,
    index: HashTable<u32>,
}

impl Default for StackTable {
    fn default() -> Self {
        StackTable { nodes: vec![Node { parent: 0, frame: u32::MAX }], index: HashTable::new() }
    }
}

fn hash(parent: u32, frame: u32) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(u64::from(parent) << 32 | u64::from(frame));
    hasher.finish()
}

/// Returns a node's number. There are never more nodes than a `u32` counts: see [`StackTable::child`].
fn number(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

/// Whether a node comes right after its parent, so that it is found without the index.
fn follows(node: u32, parent: u32) -> bool {
    node == parent + 1
}

impl StackTable {
    /// Returns the stack `parent` with `frame` called from it. There are at most `u32::MAX` nodes; after that, `parent` is returned.
    pub fn child(&mut self, parent: StackId, frame: FrameId) -> StackId {
        let Ok(id) = u32::try_from(self.nodes.len()) else { return parent };
        let nodes = &self.nodes;
        let same = |&id: &u32| nodes.get(id as usize).is_some_and(|node| node.parent == parent.0 && node.frame == frame.0);
        let next = parent.0.saturating_add(1);
        if next == id {
            self.nodes.push(Node { parent: parent.0, frame: frame.0 });
            return StackId(id);
        }
        if same(&next) {
            return StackId(next);
        }
        let wanted = hash(parent.0, frame.0);
        if let Some(&found) = self.index.find(wanted, same) {
            return StackId(found);
        }
        self.nodes.push(Node { parent: parent.0, frame: frame.0 });
        let nodes = &self.nodes;
        let rehash = |&id: &u32| nodes.get(id as usize).map_or(0, |node| hash(node.parent, node.frame));
        self.index.insert_unique(wanted, id, rehash);
        StackId(id)
    }

    /// Like [`StackTable::child`], but only if the stack is known.
    fn known_child(&self, parent: StackId, frame: FrameId) -> Option<StackId> {
        let same = |&id: &u32| self.nodes.get(id as usize).is_some_and(|node| node.parent == parent.0 && node.frame == frame.0);
        let next = parent.0.saturating_add(1);
        if same(&next) {
            return Some(StackId(next));
        }
        self.index.find(hash(parent.0, frame.0), same).copied().map(StackId)
    }

    /// Takes several walks as far down as stacks are known, one step of each walk in turn. Each step waits for memory. Walks do not depend
    /// on each other, so their waits overlap.
    pub(crate) fn descend(&self, walks: &mut [Walk<'_>]) {
        let mut going = true;
        while going {
            going = false;
            for walk in walks.iter_mut() {
                if let Some((frame, rest)) = walk.rest.split_first()
                    && !walk.ended
                {
                    match self.known_child(walk.stack, *frame) {
                        Some(stack) => {
                            (walk.stack, walk.rest) = (stack, rest);
                            going = true;
                        }
                        None => walk.ended = true,
                    }
                }
            }
        }
    }

    /// Returns the stack of these frames, root first.
    pub fn intern(&mut self, frames: impl IntoIterator<Item = FrameId>) -> StackId {
        frames.into_iter().fold(StackId(0), |stack, frame| self.child(stack, frame))
    }

    /// Returns the caller's stack and this stack's own innermost frame; `None` for the empty stack.
    pub fn split(&self, stack: StackId) -> Option<(StackId, FrameId)> {
        if stack.0 == 0 {
            return None;
        }
        self.nodes.get(stack.0 as usize).map(|node| (StackId(node.parent), FrameId(node.frame)))
    }

    /// Returns the frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(self.split(stack), |(parent, _)| self.split(*parent)).map(|(_, frame)| frame)
    }

    /// Returns the number of nodes, including the empty stack.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Always false: the empty stack is always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the bytes held: 8 for each node, and 5 for each slot of the index, which has the children that do not follow their parent.
    pub fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.index.capacity() * 8 / 7 * 5
    }

    /// Keeps only the marked nodes (`u32::MAX`) and their callers, in their order. Leaves in `marks` the new number of each kept node, and
    /// 0 for the others.
    ///
    /// Works in the present memory. New tables beside the old ones would take twice the allowed memory for a moment, and an allocator may
    /// keep it.
    pub(crate) fn keep(&mut self, marks: &mut [u32]) {
        // Children come after their parents, so one pass backward marks all callers.
        for id in (1..marks.len()).rev() {
            if marks[id] == u32::MAX {
                marks[self.nodes[id].parent as usize] = u32::MAX;
            }
        }
        if let Some(empty) = marks.first_mut() {
            *empty = 0;
        }
        self.index = HashTable::new();
        let mut kept = 1;
        for id in 1..self.nodes.len() {
            if marks.get(id) == Some(&u32::MAX) {
                let Node { parent, frame } = self.nodes[id];
                let parent = marks[parent as usize];
                marks[id] = number(kept);
                self.nodes[kept] = Node { parent, frame };
                kept += 1;
            }
        }
        self.nodes.truncate(kept);
        self.nodes.shrink_to(kept + kept / 4);
        self.build_index();
    }

    /// Returns the innermost frame of a node's stack.
    pub(crate) fn frame_of(&self, node: usize) -> FrameId {
        FrameId(self.nodes.get(node).map_or(u32::MAX, |node| node.frame))
    }

    /// Changes the frame of each node.
    pub(crate) fn rename(&mut self, mut rename: impl FnMut(&mut FrameId)) {
        for node in self.nodes.iter_mut().skip(1) {
            let mut frame = FrameId(node.frame);
            rename(&mut frame);
            node.frame = frame.0;
        }
        if !self.index.is_empty() {
            self.build_index();
        }
    }

    /// Builds the index of children by parent and frame.
    fn build_index(&mut self) {
        let indexed = || (1..).zip(&self.nodes[1..]).filter(|(id, node)| !follows(*id, node.parent));
        let mut index = HashTable::with_capacity(indexed().count() * 5 / 4);
        for (id, node) in indexed() {
            let rehash = |&id: &u32| self.nodes.get(id as usize).map_or(0, |node| hash(node.parent, node.frame));
            index.insert_unique(hash(node.parent, node.frame), id, rehash);
        }
        self.index = index;
    }

    /// Drops the index and frees its memory, for a table that will not grow again.
    pub fn freeze(&mut self) {
        self.index = HashTable::new();
        self.nodes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_roots_and_come_back_leaf_first() {
        let mut table = StackTable::default();
        let a = table.intern([1, 2, 3].map(FrameId));
        let b = table.intern([1, 2, 4].map(FrameId));
        assert_eq!(table.len(), 5, "two shared nodes, two leaves, the empty stack");
        assert_eq!(table.intern([1, 2, 3].map(FrameId)), a);
        assert_eq!(table.frames(b).collect::<Vec<_>>(), [4, 2, 1].map(FrameId));
        assert_eq!(table.frames(StackId(0)).count(), 0);
        assert!(table.split(a).is_some_and(|(parent, _)| parent.0 < a.0));
    }

    #[test]
    fn what_is_kept_is_found_again_under_its_new_number() {
        let mut table = StackTable::default();
        let stacks = [[1, 2, 3], [1, 2, 4], [1, 5, 6], [7, 5, 6], [1, 5, 8]].map(|frames| table.intern(frames.map(FrameId)));
        let mut marks = vec![0; table.len()];
        for kept in [stacks[1], stacks[3], stacks[4]] {
            marks[kept.0 as usize] = u32::MAX;
        }
        table.keep(&mut marks);
        let now = stacks.map(|stack| StackId(marks[stack.0 as usize]));
        assert_eq!(table.len(), 1 + [1, 2, 4, 5, 8, 7, 5, 6].len());
        assert_eq!(now.map(|stack| stack.0 == 0), [true, false, true, false, false]);
        for (frames, stack) in [([1, 2, 4], now[1]), ([7, 5, 6], now[3]), ([1, 5, 8], now[4])] {
            assert_eq!(table.frames(stack).collect::<Vec<_>>(), [frames[2], frames[1], frames[0]].map(FrameId));
            assert_eq!(table.intern(frames.map(FrameId)), stack);
        }
        assert_eq!(table.len(), 9, "nothing was made anew");
        let again = table.intern([1, 2, 3].map(FrameId));
        assert_eq!((again.0, table.intern([1, 2, 3].map(FrameId)).0), (9, 9));
    }
}
