//! The mouse: a click selects, a second one on the same place or a right click zooms, the wheel scrolls, a hovering pointer
//! shows the name in full.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::app::App;
use super::keys::Action;
use super::messages::Effect;
use super::place::Place;
use super::screen;
use super::view::View;
use super::views::flame::{Span, place_of};
use super::views::time::TimeMap;

impl App {
    /// Takes in what the mouse did.
    pub(super) fn on_mouse(&mut self, mouse: MouseEvent, effects: &mut Vec<Effect>) {
        if self.overlay.is_some() {
            return;
        }
        let at = Position::new(mouse.column, mouse.row);
        let areas = self.scene.areas();
        match mouse.kind {
            MouseEventKind::Moved => self.scene.hover = self.place_at(at, areas.body),
            MouseEventKind::ScrollUp | MouseEventKind::ScrollDown => {
                self.wheel(mouse.kind == MouseEventKind::ScrollDown, areas.body, effects);
            }
            MouseEventKind::Down(MouseButton::Left) if areas.time.contains(at) => self.click_time(at, areas.time),
            MouseEventKind::Drag(MouseButton::Left) if self.drag_from.is_some() => self.drag_time(at, areas.time),
            MouseEventKind::Drag(MouseButton::Left) if self.time_map.dragged => self.point_at_time(at, areas.body),
            MouseEventKind::Up(MouseButton::Left) => {
                self.drag_from = None;
                self.let_go_of_time();
            }
            MouseEventKind::Down(button) if areas.body.contains(at) => {
                self.click_body(at, areas.body, button == MouseButton::Right, effects);
            }
            _ => {}
        }
    }

    fn span_at(&self, at: Position, body: Rect) -> Option<Span> {
        if self.scene.view != View::Flame || self.source.is_some() || !body.contains(at) {
            return None;
        }
        let layout = self.flame.layout(&self.scene.snapshot.tree, &self.scene.names.labels, &self.scene.theme, body);
        let row = self.flame.row_at(usize::from(at.y - body.y), usize::from(body.height));
        let unit = if self.scene.theme.fractional() { 8 } else { 1 };
        // The middle of the cell: a box's edge may lie within it.
        layout.at(row, u32::from(at.x - body.x) * unit + unit / 2).copied()
    }

    fn place_at(&self, at: Position, body: Rect) -> Option<Place> {
        self.span_at(at, body).map(|span| place_of(&self.scene.snapshot.tree, &span))
    }

    fn click_body(&mut self, at: Position, body: Rect, zoom: bool, effects: &mut Vec<Effect>) {
        if self.source.is_some() {
            return self.click_source(usize::from(at.y - body.y));
        }
        match self.scene.view {
            View::Flame => {
                let Some(span) = self.span_at(at, body) else { return };
                let again = self.flame.cursor == place_of(&self.scene.snapshot.tree, &span);
                self.flame.select(&self.scene.snapshot.tree, &span);
                if zoom || again {
                    self.act(Action::ZoomIn, effects);
                }
            }
            View::Functions | View::Processes => {
                let line = usize::from(at.y - body.y);
                // The first line is the heading; a click there sorts.
                let Some(row) = line.checked_sub(1) else { return self.act(Action::Order, effects) };
                let (before, after) = match self.scene.view {
                    View::Functions => {
                        let before = self.functions.position;
                        self.functions.select(before.scroll + row, &self.scene.snapshot);
                        (before, self.functions.position)
                    }
                    _ => {
                        let before = self.processes.position;
                        self.processes.select(before.scroll + row, &self.scene.snapshot, &self.scene.names);
                        (before, self.processes.position)
                    }
                };
                let again = before == after;
                if again || zoom {
                    self.act(Action::ZoomIn, effects);
                }
            }
            View::Time if zoom => {}
            View::Time => {
                self.point_at_time(at, body);
                self.time_map = TimeMap { anchor: self.time_map.cursor, dragged: true, ..self.time_map };
            }
            View::Health => {}
        }
    }

    /// Puts the cursor of the map of time there.
    fn point_at_time(&mut self, at: Position, body: Rect) {
        if let Some(grid) = self.time_map.grid(&self.scene, body) {
            self.time_map.cursor = Some(grid.slot_at(at));
        }
    }

    /// What the mouse was dragged over is shown; a click alone selects nothing.
    fn let_go_of_time(&mut self) {
        if !std::mem::take(&mut self.time_map.dragged) {
            return;
        }
        if self.scene.view == View::Time && self.time_map.anchor != self.time_map.cursor {
            self.choose_time();
        } else {
            self.time_map.anchor = None;
        }
    }

    fn wheel(&mut self, down: bool, body: Rect, effects: &mut Vec<Effect>) {
        if self.scene.view == View::Flame && self.source.is_none() {
            let layout = self.flame.layout(&self.scene.snapshot.tree, &self.scene.names.labels, &self.scene.theme, body);
            let rows = if down == self.flame.root_on_top { 3 } else { -3 };
            self.flame.scroll_by(rows, &layout, usize::from(body.height));
        } else {
            for _ in 0..3 {
                self.act(if down { Action::Down } else { Action::Up }, effects);
            }
        }
    }

    fn click_time(&mut self, at: Position, area: Rect) {
        if let Some(chip) = screen::header::chip_at(self, area, at.x) {
            self.remove_chip(chip);
        } else if let Some(view) = screen::header::tab_at(self, area, at.x) {
            self.source = None;
            self.scene.view = view;
        } else if let Some((first, last)) = screen::header::seconds_at(self, area, at.x) {
            self.drag_from = Some((first, last));
            self.scene.select_seconds(first, last);
        }
    }

    /// From where the button went down to where the pointer is, in either direction.
    fn drag_time(&mut self, at: Position, area: Rect) {
        if let (Some(from), Some(to)) = (self.drag_from, screen::header::seconds_near(self, area, at.x)) {
            self.scene.select_seconds(from.0.min(to.0), from.1.max(to.1));
        }
    }
}
