//! The flame graph's state: zoom with its history, cursor, scrolling, orientation.

use ratatui::layout::Rect;

use crate::profile::{CallTree, LabelId, LabelTable, Names, NodeId};

use crate::ui::graph::layout::{Layout, Options, Order, Span, frames_of, place_of};
use crate::ui::keys::Action;
use crate::ui::place::Place;
use crate::ui::theme::Theme;

/// Most rows laid out below the first row on screen. The cursor can move out of sight there, and scrolling follows.
const MARGIN_ROWS: usize = 64;

/// The reader's position and the layout of the graph.
#[derive(Clone, Debug)]
pub struct Flame {
    /// The frame that has the whole width.
    pub zoom: Place,
    /// The earlier zooms, for going back.
    history: Vec<Place>,
    /// Whether a match is shown that is not drawn in the zoom before the search, which is the last of `history`.
    is_zoomed_by_search: bool,
    /// The frame under the cursor.
    pub cursor: Place,
    /// First row on screen, counted from the root.
    pub scroll: usize,
    /// Root at the top (an icicle) or at the bottom (a flame).
    pub root_on_top: bool,
    /// Order of siblings.
    pub order: Order,
    /// Chains of single callees in one box.
    pub chains: bool,
    /// Whether widths are shares of the machine. An idle machine is then an empty picture.
    pub of_machine: bool,
    /// The root's part of the width.
    pub(super) part: f64,
    /// Whether a key has changed which frames are folded, and the new tree has not arrived yet.
    expects_other_frames: bool,
}

impl Default for Flame {
    fn default() -> Self {
        Flame {
            zoom: Place::default(),
            history: Vec::new(),
            is_zoomed_by_search: false,
            cursor: Place::default(),
            scroll: 0,
            root_on_top: true,
            order: Order::Name,
            chains: false,
            of_machine: false,
            part: 1.0,
            expects_other_frames: false,
        }
    }
}

impl Flame {
    /// Returns the boxes for a body of this size.
    pub fn layout(&self, tree: &CallTree, labels: &LabelTable, theme: &Theme, body: Rect) -> Layout {
        let unit = if theme.fractional() { 8 } else { 1 };
        let depth = self.cursor.path.len().max(self.zoom.path.len());
        let max_rows = (self.scroll + usize::from(body.height)).max(depth + 2) + MARGIN_ROWS;
        let all = u32::from(body.width) * unit;
        // The root never disappears.
        let part = if self.zoom == Place::default() { self.part } else { 1.0 };
        let width = ((f64::from(all) * part) as u32).clamp(8 * unit, all.max(8 * unit)).min(all);
        Layout::new(tree, labels, &self.zoom, Options { width, unit, order: self.order, chains: self.chains, max_rows })
    }

    /// Returns the row of the tree on line `line` of a body of `height` lines.
    pub fn row_at(&self, line: usize, height: usize) -> usize {
        if self.root_on_top { self.scroll + line } else { self.scroll + height.saturating_sub(line + 1) }
    }

    /// Follows names that became known. Places that have disappeared are replaced by their nearest caller.
    pub fn follow_tree(&mut self, names: &Names, tree: &CallTree) {
        self.zoom.refresh(names);
        self.cursor.refresh(names);
        self.history.iter_mut().for_each(|place| place.refresh(names));
        if tree.total() == 0 {
            return;
        }
        let (zoom, is_zoom_there) = self.zoom.find(tree);
        let (cursor, is_cursor_there) = self.cursor.find(tree);
        if self.expects_other_frames && !(is_zoom_there && is_cursor_there) {
            self.expects_other_frames = false;
            for place in self.history.iter_mut().chain([&mut self.zoom, &mut self.cursor]) {
                *place = Place { rest: place.rest, ..Place::of(tree, place.find_among_other_frames(tree)) };
            }
            self.history.dedup();
            return;
        }
        if !is_zoom_there {
            self.zoom = Place::of(tree, zoom);
        }
        if !is_cursor_there {
            self.cursor = Place::of(tree, cursor);
        }
    }

    /// Gives all places other labels.
    pub fn rename_labels(&mut self, rename: impl Fn(LabelId) -> LabelId) {
        for place in self.history.iter_mut().chain([&mut self.zoom, &mut self.cursor]) {
            place.rename(&rename);
        }
    }

    /// Announces that other frames are folded from the next tree on.
    pub fn expect_other_frames(&mut self) {
        self.expects_other_frames = true;
    }

    /// Gives the frame under the cursor the whole width.
    pub fn zoom_to_cursor(&mut self) {
        if self.cursor != self.zoom {
            self.history.push(std::mem::replace(&mut self.zoom, self.cursor.clone()));
            self.scroll = self.zoom.path.len().saturating_sub(2).min(self.scroll);
            self.is_zoomed_by_search = false;
        }
    }

    /// Returns to the zoom before; `false` if nothing is zoomed.
    pub fn zoom_back(&mut self) -> bool {
        self.is_zoomed_by_search = false;
        if let Some(before) = self.history.pop() {
            self.zoom = before;
            true
        } else if self.zoom != Place::default() {
            self.zoom = Place::default();
            true
        } else {
            false
        }
    }

    /// Shows everything again, from the root.
    pub fn reset(&mut self) {
        *self = Flame {
            root_on_top: self.root_on_top,
            order: self.order,
            chains: self.chains,
            of_machine: self.of_machine,
            part: self.part,
            ..Flame::default()
        };
    }

    /// Returns a word for the property that orders siblings.
    pub fn order_word(&self) -> &'static str {
        match self.order {
            Order::Name => "name",
            Order::Weight => "weight",
        }
    }

    /// Switches to the next order of siblings.
    pub fn turn_order(&mut self) {
        self.order = match self.order {
            Order::Name => Order::Weight,
            Order::Weight => Order::Name,
        };
    }

    /// Moves the cursor.
    pub fn step(&mut self, action: Action, tree: &CallTree, layout: &Layout, height: usize) {
        if let Some(place) = self.step_unseen(action, tree, layout) {
            self.cursor = place;
            if let Some((row, _)) = layout.locate(tree, &self.cursor) {
                self.follow(row, height);
            }
            return;
        }
        if let Some(place) = self.step_in_chain(action, tree, layout) {
            self.cursor = place;
            return;
        }
        let (row, index) = layout.locate(tree, &self.cursor).unwrap_or((layout.lead.saturating_sub(1), 0));
        let rows = &layout.rows;
        let towards_root = match action {
            Action::Up => self.root_on_top,
            _ => !self.root_on_top,
        };
        let target = match action {
            Action::Left => index.checked_sub(1).map(|index| (row, index)),
            Action::Right => Some((row, index + 1)),
            Action::Up | Action::Down if towards_root => parent_of(rows, row, index),
            Action::Up | Action::Down => widest_child(rows, row, index),
            Action::PageUp | Action::PageDown => {
                let back = (action == Action::PageUp) == self.root_on_top;
                let step = |at: (usize, usize)| {
                    if back { parent_of(rows, at.0, at.1) } else { widest_child(rows, at.0, at.1) }
                };
                std::iter::successors(Some((row, index)), |at| step(*at)).take(height.max(2)).last()
            }
            Action::Top | Action::Bottom => {
                let to_root = (action == Action::Top) == self.root_on_top;
                if to_root {
                    Some((0, 0))
                } else {
                    std::iter::successors(Some((row, index)), |at| widest_child(rows, at.0, at.1)).last()
                }
            }
            _ => None,
        };
        if let Some((row, index)) = target
            && let Some(span) = rows.get(row).and_then(|spans| spans.get(index))
        {
            self.cursor = place_of(tree, span);
            self.follow(row, height);
        }
    }

    /// Moves up or down from a frame whose box became too narrow to be drawn because others grew. The move follows the tree, so
    /// that the cursor stays near its place. `None` if the box is drawn or the frame does not exist.
    fn step_unseen(&self, action: Action, tree: &CallTree, layout: &Layout) -> Option<Place> {
        let (node, found) = self.cursor.find(tree);
        if !found || self.cursor.rest || layout.locate(tree, &self.cursor).is_some() {
            return None;
        }
        match (action, self.root_on_top) {
            (Action::Up, true) | (Action::Down, false) => Some(self.cursor.parent()),
            (Action::Up, false) | (Action::Down, true) => {
                let widest = tree.children(node).max_by_key(|child| (tree.node(*child).total, std::cmp::Reverse(child.0)));
                Some(widest.map_or_else(|| self.cursor.clone(), |child| Place::of(tree, child)))
            }
            _ => None,
        }
    }

    /// Moves the cursor within a box of several frames. The cursor enters a box at its last frame.
    fn step_in_chain(&self, action: Action, tree: &CallTree, layout: &Layout) -> Option<Place> {
        let (row, index) = layout.locate(tree, &self.cursor)?;
        let span = layout.rows.get(row)?.get(index).filter(|span| span.rest == 0)?;
        let frames = frames_of(tree, span);
        let at = frames.iter().position(|frame| *frame == self.selected(tree))?;
        let next = match (action, self.root_on_top) {
            (Action::Up, true) | (Action::Down, false) => at.checked_sub(1)?,
            (Action::Up, false) | (Action::Down, true) => at + 1,
            _ => return None,
        };
        frames.get(next).map(|frame| Place::of(tree, *frame))
    }

    /// Puts the cursor on a box.
    pub fn select(&mut self, tree: &CallTree, span: &Span) {
        self.cursor = place_of(tree, span);
    }

    /// Scrolls by rows of the tree, away from the root for positive numbers.
    pub fn scroll_by(&mut self, rows: isize, layout: &Layout, height: usize) {
        let last = layout.rows.len().saturating_sub(height);
        self.scroll = self.scroll.saturating_add_signed(rows).min(last);
    }

    /// Scrolls so that a row is on screen.
    pub(super) fn follow(&mut self, row: usize, height: usize) {
        if row < self.scroll {
            self.scroll = row;
        } else if height > 0 && row >= self.scroll + height {
            self.scroll = row + 1 - height;
        }
    }

    /// Returns the zoom from which the search started.
    pub(super) fn zoom_before_search(&self) -> Place {
        let before = self.history.last().filter(|_| self.is_zoomed_by_search);
        before.unwrap_or(&self.zoom).clone()
    }

    /// Zooms to show a match. The zoom before the search is the next to go back to.
    pub(super) fn zoom_to_match(&mut self, zoom: Place, before: Place) {
        if std::mem::take(&mut self.is_zoomed_by_search) {
            self.history.pop();
        }
        if zoom != before {
            self.history.push(before);
            self.is_zoomed_by_search = true;
        }
        self.scroll = zoom.path.len().saturating_sub(2).min(self.scroll);
        self.zoom = zoom;
    }

    /// Returns the node under the cursor.
    pub fn selected(&self, tree: &CallTree) -> NodeId {
        self.cursor.find(tree).0
    }
}

fn parent_of(rows: &[Vec<Span>], row: usize, index: usize) -> Option<(usize, usize)> {
    let span = rows.get(row)?.get(index)?;
    row.checked_sub(1).map(|above| (above, span.parent as usize))
}

fn widest_child(rows: &[Vec<Span>], row: usize, index: usize) -> Option<(usize, usize)> {
    let below = rows.get(row + 1)?;
    let children = below.iter().enumerate().filter(|(_, span)| span.parent as usize == index);
    children.max_by_key(|(at, span)| (span.to - span.from, std::cmp::Reverse(*at))).map(|(at, _)| (row + 1, at))
}
