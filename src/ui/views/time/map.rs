//! State of view 4: a map of time. A column is a second, a row is a part of a second, and a span of time can be selected.
//!
//! After FlameScope (Spier, Gregg, 2018). The map shows at a glance how activity changes within a second, and with what period.
//! Slots are counted from the start of the clock, so that the cursor stays on its moment while time passes.

use ratatui::layout::{Position, Rect};

use crate::profile::{HeatMap, SLOTS, Timestamp};

use crate::ui::keys::Action;

/// Slots of a second.
const A_SECOND: u64 = SLOTS as u64;

/// Nanoseconds of a slot.
const SLOT: u64 = 1_000_000_000 / A_SECOND;

/// Columns on the left for the parts of a second.
const LABELS: u16 = 8;

/// Lines above the map: what it shows.
const HEADING: u16 = 1;

/// Lines below the map: the time of day.
const AXIS: u16 = 1;

/// Most columns of a second.
const WIDEST: u64 = 8;

/// The reader's position on the map.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeMap {
    /// The slot under the cursor; `None` for the newest slot.
    pub cursor: Option<u64>,
    /// The slot where a selection was begun.
    pub anchor: Option<u64>,
    /// Whether the mouse began the selection. It then ends when the button is released.
    pub dragged: bool,
}

/// The positions of the map on the screen. Rows are stretched, so that the map fills its area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// The map itself, without labels.
    pub area: Rect,
    /// Second of the first column.
    pub first_second: u64,
    /// Columns that a second takes.
    pub columns: u16,
    /// Slots in a row.
    pub slots: u64,
    /// Colours in a line: two where cells are drawn in halves.
    pub parts: u16,
}

impl Grid {
    /// Creates the grid for a body of this size; `None` if nothing can be drawn. `cursor` is kept in sight.
    pub fn new(heat: &HeatMap, body: Rect, halves: bool, cursor: u64) -> Option<Grid> {
        let area = Rect {
            x: body.x + LABELS,
            y: body.y + HEADING,
            width: body.width.checked_sub(LABELS)?,
            height: body.height.checked_sub(HEADING + AXIS)?,
        };
        if area.is_empty() || heat.seconds.is_empty() {
            return None;
        }
        let parts = if halves { 2 } else { 1 };
        let fits = |slots: &u64| A_SECOND / slots <= u64::from(area.height) * u64::from(parts);
        let slots = [1, 2, 5, 10, 25, 50].into_iter().find(fits)?;
        let (seconds, width) = (heat.seconds.len() as u64, u64::from(area.width));
        // Columns are wide while there are few. The width changes seldom, since each change redraws the whole map.
        let columns =
            (0..=WIDEST.ilog2()).rev().map(|shift| 1 << shift).find(|columns| seconds.max(10) * columns <= width).unwrap_or(1);
        let shown = (width / columns).max(1);
        let newest = heat.first_second + seconds;
        // If not all seconds fit, the map moves by an eighth of its width at once. A map that moves each second cannot be read.
        let step = (shown / 8).max(1);
        let first = if seconds <= shown { heat.first_second } else { (newest - shown).div_ceil(step) * step };
        let first_second = first.min(cursor / A_SECOND).max(heat.first_second);
        Some(Grid { area, first_second, columns: columns as u16, slots, parts })
    }

    /// Returns the number of rows of the map.
    pub fn rows(&self) -> u64 {
        A_SECOND / self.slots
    }

    /// Returns the row of a part of a line.
    pub fn row_at(&self, line: u16, part: u16) -> u64 {
        let parts = u64::from(self.parts);
        (u64::from(line) * parts + u64::from(part)) * self.rows() / (u64::from(self.area.height) * parts).max(1)
    }

    /// Returns the first slot at a position of the screen.
    pub fn slot_at(&self, at: Position) -> u64 {
        let column = at.x.clamp(self.area.x, self.area.right() - 1) - self.area.x;
        let line = at.y.clamp(self.area.y, self.area.bottom() - 1) - self.area.y;
        (self.first_second + u64::from(column / self.columns)) * A_SECOND + self.row_at(line, 0) * self.slots
    }
}

/// Returns the weight of `slots` slots from `slot` on, in [`PARTS`](crate::profile::PARTS).
pub(super) fn weight_of(heat: &HeatMap, slot: u64, slots: u64) -> u64 {
    let second = (slot / A_SECOND).checked_sub(heat.first_second).and_then(|second| heat.seconds.get(second as usize));
    let from = (slot % A_SECOND) as usize;
    second.and_then(|second| second.get(from..(from + slots as usize).min(SLOTS))).map_or(0, |part| part.iter().sum())
}

/// Returns the time when a slot begins.
pub(super) fn begin_of(slot: u64) -> Timestamp {
    Timestamp(slot * SLOT)
}

impl TimeMap {
    /// Returns the slot under the cursor, or the newest sample's slot if none was chosen.
    pub fn at(&self, heat: &HeatMap) -> u64 {
        let oldest = heat.first_second * A_SECOND;
        let newest = (heat.first_second + heat.seconds.len() as u64) * A_SECOND;
        let last = || {
            let busy = |slot: &u64| weight_of(heat, *slot, 1) > 0;
            (oldest..newest).rev().take(4 * SLOTS).find(busy).unwrap_or(newest.saturating_sub(1))
        };
        self.cursor.unwrap_or_else(last).clamp(oldest, newest.saturating_sub(1).max(oldest))
    }

    /// Returns the selected slots, from the first to the one after the last. While no selection was begun, it is the cursor's row.
    pub fn selection(&self, heat: &HeatMap, slots: u64) -> (u64, u64) {
        let at = self.at(heat);
        let anchor = self.anchor.unwrap_or(at);
        let row = |slot: u64| slot / slots * slots;
        (row(at.min(anchor)), row(at.max(anchor)) + slots)
    }

    /// Moves the cursor: sideways by seconds, up and down by rows, and on into the next second.
    pub fn step(&mut self, action: Action, heat: &HeatMap, grid: &Grid) {
        let at = self.at(heat);
        let page = u64::from(grid.area.width / grid.columns / 2).max(1) * A_SECOND;
        let moved = match action {
            Action::Left => at.saturating_sub(A_SECOND),
            Action::Right => at + A_SECOND,
            Action::Up => at.saturating_sub(grid.slots),
            Action::Down => at + grid.slots,
            Action::PageUp => at.saturating_sub(page),
            Action::PageDown => at + page,
            Action::Top => 0,
            Action::Bottom => u64::MAX,
            _ => at,
        };
        self.cursor = Some(moved);
        self.cursor = Some(self.at(heat));
    }
}
