//! View 4: the map of time.

mod draw;
mod map;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

pub(in crate::ui) use map::TimeMap;

use super::behaviour::{Button, Hint, Opened, ViewBehaviour};
use crate::profile::Request;
use crate::ui::detail::DetailLine;
use crate::ui::keys::Action;
use crate::ui::paint::put;
use crate::ui::scene::Scene;
use crate::ui::span::Span;
use crate::ui::view::View;
use map::{Grid, begin_of};

impl TimeMap {
    /// Returns the positions of the map in this part of the screen, if there is a map.
    fn grid(&self, scene: &Scene, body: Rect) -> Option<Grid> {
        let heat = scene.snapshot.heat.as_deref()?;
        Grid::new(heat, body, scene.theme.fractional(), self.at(heat))
    }

    /// Puts the cursor at a position of the screen.
    fn point_at(&mut self, scene: &Scene, at: Position) {
        if let Some(grid) = self.grid(scene, scene.areas().body) {
            self.cursor = Some(grid.slot_at(at));
        }
    }

    /// Begins a selection, or shows the selected time.
    fn choose(&mut self, scene: &mut Scene) {
        let Some((heat, grid)) = scene.snapshot.heat.as_deref().zip(self.grid(scene, scene.areas().body)) else { return };
        if self.anchor.is_none() {
            let at = self.at(heat);
            *self = TimeMap { cursor: Some(at), anchor: Some(at), dragged: false };
            return;
        }
        let (from, to) = self.selection(heat, grid.slots);
        self.anchor = None;
        scene.span = Span::Between(begin_of(from), begin_of(to));
        scene.view = View::Flame;
    }
}

impl ViewBehaviour for TimeMap {
    fn ask(&self, request: &mut Request) {
        request.heat = true;
    }

    fn draw(&self, scene: &Scene, area: Rect, buffer: &mut Buffer) {
        draw::draw(self, scene, area, buffer);
    }

    fn draw_detail(&self, scene: &Scene, line: DetailLine<'_>, buffer: &mut Buffer) {
        let left = line.draw_searched(buffer);
        put(buffer, left, left.x, left.y, &draw::describe(self, scene), scene.theme.strong());
    }

    fn hints(&self, scene: &Scene) -> Vec<Hint> {
        match (scene.has().time, self.anchor) {
            (false, _) => Vec::new(),
            (true, None) => vec![(Action::ZoomIn, "begin a selection"), (Action::RangeLive, "usual time")],
            (true, Some(_)) => vec![(Action::ZoomIn, "show range"), (Action::ZoomOut, "cancel")],
        }
    }

    fn go(&mut self, scene: &Scene, action: Action) {
        if let Some((heat, grid)) = scene.snapshot.heat.as_deref().zip(self.grid(scene, scene.areas().body)) {
            self.step(action, heat, &grid);
        }
    }

    fn zoom_in(&mut self, scene: &mut Scene) -> Opened {
        self.choose(scene);
        Opened::Here
    }

    fn zoom_out(&mut self) -> bool {
        self.anchor.take().is_some()
    }

    fn click(&mut self, scene: &Scene, at: Position, button: Button) -> Option<Action> {
        if button == Button::Left {
            self.point_at(scene, at);
            (self.anchor, self.dragged) = (self.cursor, true);
        }
        None
    }

    fn drag(&mut self, scene: &Scene, at: Position) {
        if self.dragged {
            self.point_at(scene, at);
        }
    }

    /// Shows the time that the mouse was dragged over. A click alone selects nothing.
    fn let_go(&mut self, scene: &mut Scene) {
        if !std::mem::take(&mut self.dragged) {
            return;
        }
        if scene.view == View::Time && self.anchor != self.cursor {
            self.choose(scene);
        } else {
            self.anchor = None;
        }
    }
}
