//! Going from match to match of a search.

use super::Flame;
use crate::profile::{CallTree, LabelId, NodeId};
use crate::ui::place::Place;
use crate::ui::scene::Scene;
use crate::ui::views::Match;

impl Flame {
    /// Moves to the next frame that the search found, the heaviest first: among the frames in the zoomed box, or among all frames if it
    /// has none. Where the frame is too narrow to be drawn, its outermost caller in which it is drawn gets the whole width.
    pub(super) fn find_next(&mut self, scene: &Scene, found: &dyn Fn(LabelId) -> bool, forward: bool) -> Match {
        let tree = &scene.snapshot.tree;
        let mut before = self.zoom_before_search();
        let mut matches = matches_below(tree, before.find(tree).0, found);
        let start = before.clone();
        if matches.is_empty() {
            before = Place::default();
            matches = matches_below(tree, CallTree::ROOT, found);
        }
        let of = matches.len();
        let here = self.selected(tree);
        let next = match (matches.iter().position(|node| *node == here), forward) {
            (Some(at), true) => (at + 1) % of,
            (Some(at), false) => at.checked_sub(1).unwrap_or(of - 1),
            (None, true) => 0,
            (None, false) => of.saturating_sub(1),
        };
        let Some(&node) = matches.get(next) else { return Match::default() };
        self.cursor = Place::of(tree, node);
        let columns = u128::from(scene.areas().body.width);
        // The match itself is the last of its callers: it is always drawn if it has the whole width.
        let is_wide = |caller: &NodeId| u128::from(tree.node(node).total) * columns >= u128::from(tree.node(*caller).total);
        let callers = tree.path(node).into_iter().filter(is_wide).map(|caller| Place::of(tree, caller));
        for zoom in std::iter::once(before).chain(callers.filter(|caller| start.contains(caller))) {
            self.zoom_to_match(zoom, start.clone());
            if let Some((row, _)) = self.boxes(scene).locate(tree, &self.cursor) {
                self.follow(row, usize::from(scene.areas().body.height));
                break;
            }
        }
        Match { number: next + 1, of, is_zoomed: self.zoom != start }
    }
}

/// Returns the frames below a frame that match, the heaviest first. The frame itself is one of them.
fn matches_below(tree: &CallTree, top: NodeId, found: &dyn Fn(LabelId) -> bool) -> Vec<NodeId> {
    let mut is_below = vec![false; tree.nodes().len()];
    let mut matches = Vec::new();
    for (index, node) in tree.nodes().iter().enumerate() {
        let id = NodeId(index as u32);
        is_below[index] = id == top || is_below[node.parent as usize];
        if is_below[index] && id != CallTree::ROOT && node.total > 0 && found(node.label) {
            matches.push(id);
        }
    }
    matches.sort_by_key(|id| (std::cmp::Reverse(tree.node(*id).total), *id));
    matches
}
