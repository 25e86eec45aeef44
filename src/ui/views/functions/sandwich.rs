//! Two flame graphs of the open function, beside the table: its callers above it, its callees below.
//!
//! ```text
//!   self ▼   total       function              │ main                  │ worker
//!    7.8 %   15.8 %  ▾ ▌parse                  │ parse_all             │ index
//!                        called by             │ parse  2.40 s
//!            64.0 %      ▸ ▌parse_all          │ malloc   │ memcpy     │ hash
//! ```
//!
//! Widths are shares of the function's total weight. The cursor is the table's, and its box is marked. A click on a box opens the
//! path to it in the table; a second click opens its function.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::rows::{Functions, FunctionsRow};
use crate::profile::{CallTree, LabelId, Neighbours};
use crate::ui::graph::boxes::{Boxes, Cursor};
use crate::ui::graph::layout::{Layout, Options, Order};
use crate::ui::paint::put;
use crate::ui::place::{Branch, Place};
use crate::ui::scene::{Hovered, Scene};
use crate::ui::text;

/// Least columns of a screen with room for table and graphs, and least columns of the table beside the graphs.
const WIDE: u16 = 120;
const TABLE: u16 = 56;

/// The function's line moves in steps of this many lines, so that it does not move each time a deep stack comes or goes.
const STEP: usize = 8;

/// The graphs, laid out.
pub(super) struct Sandwich<'a> {
    function: LabelId,
    neighbours: &'a Neighbours,
    callers: Layout,
    callees: Layout,
    area: Rect,
    /// The line of the function.
    middle: u16,
}

impl<'a> Sandwich<'a> {
    /// Divides the view. Without an open function, or on a narrow screen, the table has the whole view.
    pub(super) fn beside(functions: &Functions, scene: &'a Scene, area: Rect) -> (Rect, Option<Sandwich<'a>>) {
        let neighbours = scene.snapshot.neighbours.as_ref().filter(|(label, _)| functions.open == Some(*label));
        let Some((function, neighbours)) = neighbours.filter(|_| area.width >= WIDE && area.height >= 6) else {
            return (area, None);
        };
        let table = Rect { width: TABLE.max(area.width * 2 / 5), ..area };
        let area = Rect { x: table.right() + 1, width: area.width - table.width - 1, ..area };
        (table, Some(Sandwich::new(scene, *function, neighbours, area)))
    }

    fn new(scene: &Scene, function: LabelId, neighbours: &'a Neighbours, area: Rect) -> Sandwich<'a> {
        // One line is the heading, one is the function's.
        let lines = usize::from(area.height) - 2;
        let unit = if scene.theme.fractional() { 8 } else { 1 };
        // The layout gets one extra row, to show that there are more.
        let max_rows = lines + 2;
        let options = Options { width: u32::from(area.width) * unit, unit, order: Order::Name, chains: false, max_rows };
        let layout = |tree: &CallTree| Layout::new(tree, &scene.names.labels, &Place::default(), options);
        let (callers, callees) = (layout(&neighbours.callers), layout(&neighbours.callees));
        let wanted = |layout: &Layout| layout.rows.len().saturating_sub(1).next_multiple_of(STEP);
        let above = wanted(&callers).min(lines - wanted(&callees).min(lines / 2));
        Sandwich { function, neighbours, callers, callees, area, middle: area.y + 1 + above as u16 }
    }

    /// Returns the tree and its row on a line.
    fn row_at(&self, y: u16) -> (bool, usize) {
        match y.checked_sub(self.middle) {
            Some(below) => (false, usize::from(below)),
            None => (true, usize::from(self.middle - y)),
        }
    }

    fn side(&self, callers: bool) -> (&Layout, &'a CallTree) {
        if callers { (&self.callers, &self.neighbours.callers) } else { (&self.callees, &self.neighbours.callees) }
    }

    /// Returns the caller or callee at a position of the screen.
    pub(super) fn at(&self, scene: &Scene, at: Position) -> Option<Branch> {
        if !self.area.contains(at) || at.y == self.area.y {
            return None;
        }
        let (callers, row) = self.row_at(at.y);
        let (layout, tree) = self.side(callers);
        let unit = if scene.theme.fractional() { 8 } else { 1 };
        let span = layout.at(row, u32::from(at.x - self.area.x) * unit + unit / 2)?;
        Some(Branch { callers, path: Place::of(tree, span.last).path })
    }

    /// Draws both graphs. `selected` is the row of the table under the cursor.
    pub(super) fn draw(&self, scene: &Scene, selected: Option<&FunctionsRow>, buffer: &mut Buffer) {
        let words = if scene.theme.ascii { "^ callers   v callees" } else { "▲ callers   ▼ callees" };
        put(buffer, self.area, self.area.x, self.area.y, words, scene.theme.dim());
        for y in self.area.y + 1..self.area.bottom() {
            let (callers, row) = self.row_at(y);
            let (layout, tree) = self.side(callers);
            let cursor = Cursor { node: selected.and_then(|row| self.node_of(row, callers)), rest: false };
            let boxes = Boxes { scene, tree, layout, difference: None, root: Some(self.function), cursor };
            boxes.draw_row(row, Rect { y, height: 1, ..self.area }, buffer);
        }
        self.tell_unseen_rows(scene, buffer);
        if let Some(Hovered::Branch(branch)) = &scene.hover {
            let words = format!(" {} ", self.describe(scene, branch));
            put(buffer, self.area, self.area.x, self.area.bottom() - 1, &words, scene.theme.chip());
        }
    }

    /// Returns the node of a row of the table, if the row belongs to that side.
    fn node_of(&self, row: &FunctionsRow, callers: bool) -> Option<crate::profile::NodeId> {
        match row {
            FunctionsRow::Function { open: true, .. } => Some(CallTree::ROOT),
            FunctionsRow::Node { callers: of_callers, path, .. } if *of_callers == callers => {
                let (node, found) = Place { path: path.clone(), rest: false }.find(self.side(callers).1);
                found.then_some(node)
            }
            _ => None,
        }
    }

    fn tell_unseen_rows(&self, scene: &Scene, buffer: &mut Buffer) {
        let (up, down) = if scene.theme.ascii { ("^", "v") } else { ("▲", "▼") };
        let room_above = usize::from(self.middle - self.area.y - 1);
        let room_below = usize::from(self.area.bottom() - self.middle - 1);
        for (layout, room, y, arrow) in
            [(&self.callers, room_above, self.area.y + 1, up), (&self.callees, room_below, self.area.bottom() - 1, down)]
        {
            if layout.rows.len() > room + 1 {
                let words = format!(" {arrow} more rows ");
                let x = self.area.right().saturating_sub(text::width(&words) as u16).max(self.area.x);
                put(buffer, self.area, x, y, &words, scene.theme.chip());
            }
        }
    }

    /// Describes a caller or callee: its whole name, and its part of the function.
    fn describe(&self, scene: &Scene, branch: &Branch) -> String {
        let label = branch.path.last().copied().unwrap_or(self.function);
        let tree = self.side(branch.callers).1;
        let (node, _) = Place { path: branch.path.clone(), rest: false }.find(tree);
        let weight = tree.node(node).total;
        let name = scene.names.labels.name(label);
        let share = text::percent(weight, tree.total());
        match (branch.path.is_empty(), branch.callers) {
            (true, _) => format!("{name}  {}", scene.amount(weight)),
            (false, true) => format!("{name}  calls it for {} ({share} %)", scene.amount(weight)),
            (false, false) => format!("{name}  is called for {} ({share} %)", scene.amount(weight)),
        }
    }
}
