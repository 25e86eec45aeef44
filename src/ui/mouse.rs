//! The mouse. A click selects. A second click on the same place, or a right click, zooms. The wheel scrolls. A hovering pointer
//! shows the full name.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::app::App;
use super::keys::Action;
use super::messages::Effect;
use super::screen;
use super::views::Button;

impl App {
    /// Processes an event of the mouse.
    pub(super) fn on_mouse(&mut self, mouse: MouseEvent, effects: &mut Vec<Effect>) {
        if self.overlay.is_some() {
            return;
        }
        let at = Position::new(mouse.column, mouse.row);
        let areas = self.scene.areas();
        match mouse.kind {
            MouseEventKind::Moved => {
                let is_covered = self.source.is_some();
                self.scene.hover = self.views.get(self.scene.view).hovered(&self.scene, at).filter(|_| !is_covered);
            }
            MouseEventKind::ScrollUp | MouseEventKind::ScrollDown => {
                self.wheel(mouse.kind == MouseEventKind::ScrollDown, effects);
            }
            MouseEventKind::Down(MouseButton::Left) if areas.time.contains(at) => self.click_time(at, areas.time),
            MouseEventKind::Drag(MouseButton::Left) if self.drag_from.is_some() => self.drag_time(at, areas.time),
            MouseEventKind::Drag(MouseButton::Left) => self.views.get_mut(self.scene.view).drag(&self.scene, at),
            MouseEventKind::Up(MouseButton::Left) => {
                self.drag_from = None;
                self.views.each(|view| view.let_go(&mut self.scene));
            }
            MouseEventKind::Down(button) if areas.body.contains(at) => {
                self.click_body(at, if button == MouseButton::Right { Button::Right } else { Button::Left }, effects);
            }
            _ => {}
        }
    }

    fn click_body(&mut self, at: Position, button: Button, effects: &mut Vec<Effect>) {
        if self.source.is_some() {
            return self.click_source(usize::from(at.y - self.scene.areas().body.y));
        }
        if let Some(action) = self.views.get_mut(self.scene.view).click(&self.scene, at, button) {
            self.act(action, effects);
        }
    }

    fn wheel(&mut self, down: bool, effects: &mut Vec<Effect>) {
        if self.source.is_none() && self.views.get_mut(self.scene.view).wheel(&self.scene, down) {
            return;
        }
        for _ in 0..3 {
            self.act(if down { Action::Down } else { Action::Up }, effects);
        }
    }

    fn click_time(&mut self, at: Position, area: Rect) {
        if let Some(chip) = screen::header::chip_at(self, area, at.x) {
            self.remove_chip(chip);
        } else if let Some(view) = screen::header::tab_at(self, area, at.x) {
            self.source = None;
            self.show(view);
        } else if let Some((first, last)) = screen::header::seconds_at(self, area, at.x) {
            self.drag_from = Some((first, last));
            self.scene.select_seconds(first, last);
        }
    }

    /// Selects the time between the place where the button went down and the pointer, in either direction.
    fn drag_time(&mut self, at: Position, area: Rect) {
        if let (Some(from), Some(to)) = (self.drag_from, screen::header::seconds_near(self, area, at.x)) {
            self.scene.select_seconds(from.0.min(to.0), from.1.max(to.1));
        }
    }
}
