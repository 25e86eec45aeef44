//! Positions of the boxes of a flame graph. Pure arithmetic on a tree; `boxes.rs` draws the boxes.
//!
//! Positions are in units: eighths of a column where the terminal can draw them, whole columns otherwise. Rows count from the root.
//! Children lie from left to right within their parent. Children narrower than a column are gathered at the right end, in one box.
//!
//! ```text
//! row 0  │ all                                                │
//! row 1  │ nginx                       │ postgres         │+3  │
//! row 2  │ main                    │   own time
//! ```

use crate::profile::{CallTree, FrameKind, LabelTable, NodeId};

use crate::ui::place::Place;

/// How siblings are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// By name, so that nothing moves while the picture is live.
    #[default]
    Name,
    /// Heaviest first.
    Weight,
}

/// One box.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Left edge, in units.
    pub from: u32,
    /// Right edge, in units; not included.
    pub to: u32,
    /// The frame. For a box of narrow children, their parent.
    pub node: NodeId,
    /// The last frame of a chain drawn in one box; otherwise equal to `node`. It has nearly all weight of the box.
    pub last: NodeId,
    /// Number of gathered narrow children; 0 for a frame.
    pub rest: u32,
    /// Weight of the box.
    pub weight: u64,
    /// Index of the parent's box in the row above.
    pub parent: u32,
}

/// The boxes, row by row from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Rows from the root to the deepest leaf that is laid out.
    pub rows: Vec<Vec<Span>>,
    /// Number of rows at the beginning that lead to the zoomed frame. The last of these rows is the zoomed frame itself.
    pub lead: usize,
    /// There are more rows than requested.
    pub is_cut: bool,
}

/// Options of a layout.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Width in units.
    pub width: u32,
    /// Units of one column: 8 or 1.
    pub unit: u32,
    /// Order of siblings.
    pub order: Order,
    /// Draw chains of single callees in one box.
    pub chains: bool,
    /// Deepest row to lay out.
    pub max_rows: usize,
}

/// A frame ends a chain if its own weight is at least total / `OWN_PART`, so that its box shows that weight.
const OWN_PART: u64 = 100;

impl Layout {
    /// Lays out everything below `zoom`, with the path to it on top.
    pub fn new(tree: &CallTree, labels: &LabelTable, zoom: &Place, options: Options) -> Layout {
        let (node, _) = zoom.find(tree);
        let mut lead: Vec<NodeId> = std::iter::once(CallTree::ROOT).chain(tree.path(node)).collect();
        lead.dedup();
        let mut rows: Vec<Vec<Span>> = lead
            .iter()
            .map(|id| {
                let weight = tree.node(*id).total;
                vec![Span { from: 0, to: options.width, node: *id, last: *id, rest: 0, weight, parent: 0 }]
            })
            .collect();
        let lead = rows.len();
        if zoom.rest {
            let first = narrow_children(tree, labels, node, options);
            rows.push(first);
        }
        let mut is_cut = false;
        while let Some(above) = rows.last() {
            let next = row_below(tree, labels, above, options);
            is_cut = !next.is_empty() && rows.len() >= options.max_rows;
            if next.is_empty() || is_cut {
                break;
            }
            rows.push(next);
        }
        Layout { rows, lead, is_cut }
    }

    /// Returns the box at a position.
    pub fn at(&self, row: usize, unit: u32) -> Option<&Span> {
        self.rows.get(row)?.iter().find(|span| (span.from..span.to).contains(&unit))
    }

    /// Finds the box of a place. Returns its row and index.
    pub fn locate(&self, tree: &CallTree, place: &Place) -> Option<(usize, usize)> {
        let (node, found) = place.find(tree);
        if !found {
            return None;
        }
        self.locate_node(tree, node, place.rest)
    }

    fn locate_node(&self, tree: &CallTree, node: NodeId, rest: bool) -> Option<(usize, usize)> {
        // With chains, a row is not a depth. So the boxes are followed down from the root.
        let path: Vec<NodeId> = std::iter::once(CallTree::ROOT).chain(tree.path(node)).collect();
        let mut found = None;
        for (row, spans) in self.rows.iter().enumerate() {
            let index = spans
                .iter()
                .position(|span| if span.rest > 0 { rest && span.node == node } else { path.binary_search(&span.node).is_ok() });
            match index {
                Some(index) => {
                    found = Some((row, index));
                    if spans.get(index).is_some_and(|span| span.rest > 0) {
                        return found;
                    }
                }
                None if row < self.lead => {}
                None => break,
            }
        }
        let (row, index) = found?;
        let span = self.rows.get(row)?.get(index)?;
        let within = span.node <= node && node <= span.last;
        (within && !rest).then_some((row, index))
    }
}

/// Returns the place of a box. For a chain it is the place of its last frame.
pub(in crate::ui) fn place_of(tree: &CallTree, span: &Span) -> Place {
    Place { rest: span.rest > 0, ..Place::of(tree, span.last) }
}

/// Returns the frames of a box, from its first to its last.
pub(in crate::ui) fn frames_of(tree: &CallTree, span: &Span) -> Vec<NodeId> {
    if span.last == span.node {
        return vec![span.node];
    }
    let mut frames: Vec<NodeId> = tree.ancestors(span.last).take_while(|id| *id >= span.node).collect();
    frames.reverse();
    frames
}

fn sorted_children(tree: &CallTree, labels: &LabelTable, node: NodeId, least: u64, order: Order) -> (Vec<NodeId>, u64, u32) {
    let mut wide = Vec::new();
    let (mut rest, mut rest_count) = (0, 0);
    for child in tree.children(node) {
        let total = tree.node(child).total;
        if total >= least {
            wide.push(child);
        } else {
            rest += total;
            rest_count += 1;
        }
    }
    match order {
        Order::Name => wide.sort_by(|a, b| labels.name(tree.node(*a).label).cmp(labels.name(tree.node(*b).label)).then(a.cmp(b))),
        Order::Weight => wide.sort_by_key(|id| (std::cmp::Reverse(tree.node(*id).total), id.0)),
    }
    (wide, rest, rest_count)
}

/// Returns the least weight that is at least one column wide.
fn least_weight(weight: u64, units: u32, unit: u32) -> u64 {
    (u128::from(weight) * u128::from(unit)).div_ceil(u128::from(units.max(1))) as u64
}

fn row_below(tree: &CallTree, labels: &LabelTable, above: &[Span], options: Options) -> Vec<Span> {
    let mut row = Vec::new();
    for (index, parent) in above.iter().enumerate().filter(|(_, span)| span.rest == 0) {
        let units = parent.to - parent.from;
        if units < options.unit {
            continue;
        }
        let least = least_weight(parent.weight, units, options.unit);
        let (wide, rest, rest_count) = sorted_children(tree, labels, parent.last, least, options.order);
        let at = |weight: u64| -> u32 {
            parent.from + (u128::from(weight) * u128::from(units) / u128::from(parent.weight.max(1))) as u32
        };
        let mut used = 0;
        for child in wide {
            let weight = tree.node(child).total;
            let last = if options.chains { end_of_chain(tree, labels, child) } else { child };
            let span = Span { from: at(used), to: at(used + weight), node: child, last, rest: 0, weight, parent: index as u32 };
            used += weight;
            if span.to > span.from {
                row.push(span);
            }
        }
        let (from, to) = (at(used), at(used + rest));
        if rest_count > 0 && to - from >= options.unit {
            row.push(Span {
                from,
                to,
                node: parent.last,
                last: parent.last,
                rest: rest_count,
                weight: rest,
                parent: index as u32,
            });
        }
    }
    row
}

/// Returns boxes for the gathered narrow children, which now share the whole width.
fn narrow_children(tree: &CallTree, labels: &LabelTable, node: NodeId, options: Options) -> Vec<Span> {
    // Exactly the children that were too narrow while `node` had the whole width.
    let total = tree.node(node).total;
    let least = least_weight(total, options.width, options.unit);
    let mut narrow: Vec<NodeId> = tree.children(node).filter(|child| tree.node(*child).total < least).collect();
    let sum: u64 = narrow.iter().map(|child| tree.node(*child).total).sum();
    match options.order {
        Order::Name => narrow.sort_by(|a, b| labels.name(tree.node(*a).label).cmp(labels.name(tree.node(*b).label))),
        Order::Weight => narrow.sort_by_key(|id| (std::cmp::Reverse(tree.node(*id).total), id.0)),
    }
    let mut used = 0;
    let at = |weight: u64| (u128::from(weight) * u128::from(options.width) / u128::from(sum.max(1))) as u32;
    let mut row = Vec::new();
    for child in narrow {
        let weight = tree.node(child).total;
        let span = Span { from: at(used), to: at(used + weight), node: child, last: child, rest: 0, weight, parent: 0 };
        used += weight;
        if span.to > span.from {
            row.push(span);
        }
    }
    row
}

/// Follows single callees of the same kind, as long as their callers weigh nearly nothing themselves. Returns the last one.
fn end_of_chain(tree: &CallTree, labels: &LabelTable, from: NodeId) -> NodeId {
    let side = |id: NodeId| match labels.get(tree.node(id).label).map(|label| label.kind) {
        // Inlined functions are a part of the code around them.
        Some(FrameKind::Inlined) => Some(FrameKind::User),
        kind => kind,
    };
    let mut node = from;
    loop {
        let mut children = tree.children(node);
        let (Some(only), None) = (children.next(), children.next()) else { return node };
        let own = tree.node(node).total - tree.node(only).total;
        if own.saturating_mul(OWN_PART) >= tree.node(from).total.max(1) || side(only) != side(node) {
            return node;
        }
        node = only;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::TreeBuilder;

    fn sample(paths: &[(&str, i64)]) -> (CallTree, LabelTable) {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        for (path, weight) in paths {
            let node =
                path.split(';').fold(CallTree::ROOT, |node, name| builder.child(node, labels.intern(name, "", FrameKind::User)));
            builder.add(node, *weight);
        }
        (builder.finish(), labels)
    }

    const OPTIONS: Options = Options { width: 800, unit: 8, order: Order::Name, chains: false, max_rows: 100 };

    fn names(tree: &CallTree, labels: &LabelTable, row: &[Span]) -> Vec<(String, u32, u32)> {
        let name = |span: &Span| match span.rest {
            0 => labels.name(tree.node(span.node).label).to_owned(),
            n => format!("+{n}"),
        };
        row.iter().map(|span| (name(span), span.from, span.to)).collect()
    }

    #[test]
    fn children_share_their_parents_width_in_the_order_of_their_names() {
        let (tree, labels) = sample(&[("b;x", 25), ("a", 50), ("b", 25)]);
        let layout = Layout::new(&tree, &labels, &Place::default(), OPTIONS);
        assert_eq!(names(&tree, &labels, &layout.rows[1]), [("a".into(), 0, 400), ("b".into(), 400, 800)]);
        assert_eq!(names(&tree, &labels, &layout.rows[2]), [("x".into(), 400, 600)]);
        let layout = Layout::new(&tree, &labels, &Place::default(), Options { order: Order::Weight, ..OPTIONS });
        assert_eq!(layout.rows.len(), 3);
    }

    #[test]
    fn what_is_too_narrow_is_gathered_and_can_be_entered() {
        let mut paths = vec![("big".to_owned(), 900)];
        paths.extend((0..100).map(|i| (format!("small{i:02}"), 1)));
        let paths: Vec<(&str, i64)> = paths.iter().map(|(path, weight)| (&**path, *weight)).collect();
        let (tree, labels) = sample(&paths);
        let layout = Layout::new(&tree, &labels, &Place::default(), OPTIONS);
        assert_eq!(names(&tree, &labels, &layout.rows[1]), [("big".into(), 0, 720), ("+100".into(), 720, 800)]);
        let place = place_of(&tree, &layout.rows[1][1]);
        assert!(place.rest);
        let inside = Layout::new(&tree, &labels, &place, OPTIONS);
        assert_eq!(inside.rows[1].len(), 100);
        assert_eq!(layout.locate(&tree, &place), Some((1, 1)));
    }

    #[test]
    fn a_zoomed_frame_has_the_whole_width_and_its_callers_above_it() {
        let (tree, labels) = sample(&[("main;run;a", 10), ("main;run;b", 30), ("main;init", 60)]);
        let run = Place::of(&tree, Place { path: path(&labels, "main;run"), rest: false }.find(&tree).0);
        let layout = Layout::new(&tree, &labels, &run, OPTIONS);
        assert_eq!(layout.lead, 3);
        assert_eq!(names(&tree, &labels, &layout.rows[2]), [("run".into(), 0, 800)]);
        assert_eq!(names(&tree, &labels, &layout.rows[3]), [("a".into(), 0, 200), ("b".into(), 200, 800)]);
        let b = Place { path: path(&labels, "main;run;b"), rest: false };
        assert_eq!(layout.locate(&tree, &b), Some((3, 1)));
        assert_eq!(layout.locate(&tree, &Place::default()), Some((0, 0)));
    }

    fn path(labels: &LabelTable, names: &str) -> Vec<crate::profile::LabelId> {
        names.split(';').map(|name| labels.intern(name, "", FrameKind::User)).collect()
    }

    #[test]
    fn a_chain_is_one_box_and_its_members_are_found_in_it() {
        let (tree, labels) = sample(&[("main;run;a", 10), ("main;run;b", 30)]);
        let layout = Layout::new(&tree, &labels, &Place::default(), Options { chains: true, ..OPTIONS });
        assert_eq!(layout.rows.len(), 3);
        let span = layout.rows[1][0];
        assert_eq!(labels.name(tree.node(span.last).label), "run");
        assert_eq!(layout.locate(&tree, &Place { path: path(&labels, "main;run"), rest: false }), Some((1, 0)));
        assert_eq!(layout.locate(&tree, &Place { path: path(&labels, "main;run;b"), rest: false }), Some((2, 1)));
    }

    #[test]
    fn a_chain_goes_on_while_callers_weigh_nearly_nothing_and_the_kind_is_the_same() {
        let (tree, labels) = sample(&[("a;b;c;d", 995), ("a;b", 4), ("e;f", 50), ("e", 1)]);
        let options = Options { chains: true, ..OPTIONS };
        let layout = Layout::new(&tree, &labels, &Place::default(), options);
        let ends: Vec<&str> = layout.rows[1].iter().map(|span| labels.name(tree.node(span.last).label)).collect();
        assert_eq!(ends, ["d", "e"], "of `b` 4 of 999 are its own, of `e` 1 of 51");
        let span = layout.rows[1][0];
        assert_eq!(place_of(&tree, &span).path, path(&labels, "a;b;c;d"));
        assert_eq!(frames_of(&tree, &span).len(), 4);
        let deep: Vec<String> = (0..44).map(|depth| format!("f{depth}")).collect();
        let (tree, labels) = sample(&[(&deep.join(";"), 7)]);
        let layout = Layout::new(&tree, &labels, &Place::default(), options);
        assert_eq!((layout.rows.len(), frames_of(&tree, &layout.rows[1][0]).len()), (2, 44));
        let mut builder = TreeBuilder::new();
        let names =
            [("main", FrameKind::User), ("inner", FrameKind::Inlined), ("read", FrameKind::User), ("vfs", FrameKind::Kernel)];
        let leaf = names.iter().fold(CallTree::ROOT, |node, (name, kind)| builder.child(node, labels.intern(name, "", *kind)));
        builder.add(leaf, 9);
        let tree = builder.finish();
        let layout = Layout::new(&tree, &labels, &Place::default(), options);
        let lengths: Vec<usize> = layout.rows[1..].iter().map(|row| frames_of(&tree, &row[0]).len()).collect();
        assert_eq!(lengths, [3, 1]);
    }

    #[test]
    fn a_row_never_overlaps_and_never_leaves_its_parent() {
        let (tree, labels) = sample(&[("a;b;c", 7), ("a;d", 13), ("e;f", 1), ("g", 3), ("h;i;j", 997)]);
        for width in [1, 7, 8, 9, 80, 637, 1600] {
            let layout = Layout::new(&tree, &labels, &Place::default(), Options { width, ..OPTIONS });
            for pair in layout.rows.windows(2) {
                let mut end = 0;
                for span in &pair[1] {
                    let parent = pair[0][span.parent as usize];
                    assert!(span.from >= end && span.from >= parent.from && span.to <= parent.to && span.from < span.to);
                    end = span.to;
                }
            }
        }
    }
}
