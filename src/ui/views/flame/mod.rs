//! View 1: the flame graph.

mod detail;
mod draw;
mod find;
mod state;

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

pub(in crate::ui) use state::Flame;

use super::behaviour::{Button, Hint, Match, Opened, ViewBehaviour};
use crate::profile::LabelId;
use crate::ui::detail::DetailLine;
use crate::ui::graph::layout::{Layout, Span, place_of};
use crate::ui::keys::Action;
use crate::ui::names::fit_name;
use crate::ui::place::Place;
use crate::ui::scene::{Hovered, Scene};

impl Flame {
    /// Returns the boxes on screen.
    fn boxes(&self, scene: &Scene) -> Layout {
        self.layout(&scene.snapshot.tree, &scene.names.labels, &scene.theme, scene.areas().body)
    }

    /// Returns the box at a position of the screen.
    fn box_at(&self, scene: &Scene, at: Position) -> Option<Span> {
        let body = scene.areas().body;
        if !body.contains(at) {
            return None;
        }
        let row = self.row_at(usize::from(at.y - body.y), usize::from(body.height));
        let unit = if scene.theme.fractional() { 8 } else { 1 };
        // The middle of the cell is used, because a box's edge may lie within it.
        self.boxes(scene).at(row, u32::from(at.x - body.x) * unit + unit / 2).copied()
    }
}

impl ViewBehaviour for Flame {
    fn refresh(&mut self, scene: &Scene) {
        self.follow_tree(&scene.names, &scene.snapshot.tree);
        self.part = if self.of_machine { scene.share_of_machine().unwrap_or(1.0) } else { 1.0 };
    }

    fn rename(&mut self, rename: &dyn Fn(LabelId) -> LabelId) {
        self.rename_labels(rename);
    }

    fn draw(&self, scene: &Scene, area: Rect, buffer: &mut Buffer) {
        draw::draw(self, scene, area, buffer);
    }

    fn draw_detail(&self, scene: &Scene, line: DetailLine<'_>, buffer: &mut Buffer) {
        detail::draw(self, scene, line, buffer);
    }

    /// Returns `all › nginx › main › …`, with the root side cut if it does not fit.
    fn breadcrumb(&self, scene: &Scene) -> String {
        let arrow = if scene.theme.ascii { " > " } else { " › " };
        let mut words = scene.target_name();
        let name = |label: &LabelId| scene.names.labels.get(*label).map_or(Cow::Borrowed("?"), |label| scene.shown_name(label));
        let path: Vec<Cow<'_, str>> = self.cursor.path.iter().map(name).collect();
        let skip = path.len().saturating_sub(4);
        if skip > 0 {
            words.push_str(arrow);
            words.push('…');
        }
        for name in &path[skip..] {
            words.push_str(arrow);
            words.push_str(&fit_name(name, 28));
        }
        words
    }

    fn go(&mut self, scene: &Scene, action: Action) {
        let boxes = self.boxes(scene);
        self.step(action, &scene.snapshot.tree, &boxes, usize::from(scene.areas().body.height));
    }

    fn zoom_in(&mut self, _: &mut Scene) -> Opened {
        self.zoom_to_cursor();
        Opened::Here
    }

    fn hints(&self, scene: &Scene) -> Vec<Hint> {
        let mut hints = vec![(Action::ZoomIn, "zoom")];
        if self.zoom != Place::default() {
            hints.insert(0, (Action::ZoomOut, "out"));
        }
        hints.extend([(Action::Sandwich, "callers"), (Action::Source, "source"), (Action::Search, "search")]);
        if scene.has().time {
            hints.extend([(Action::Compare, "compare"), (Action::CycleRange, "time")]);
        }
        if scene.has().threads {
            hints.push((Action::ChooseProcess, "process"));
        }
        hints.extend([(Action::Keep, "keep"), (Action::Drop, "drop"), (Action::Save, "save"), (Action::NextView, "view")]);
        hints
    }

    fn zoom_out(&mut self) -> bool {
        self.zoom_back()
    }

    fn next_order(&mut self) -> bool {
        self.turn_order();
        true
    }

    fn selected_label(&self, _: &Scene) -> Option<LabelId> {
        self.cursor.path.last().copied()
    }

    fn next_match(&mut self, scene: &Scene, found: &dyn Fn(LabelId) -> bool, forward: bool) -> Option<Match> {
        Some(self.find_next(scene, found, forward))
    }

    fn click(&mut self, scene: &Scene, at: Position, button: Button) -> Option<Action> {
        let clicked = self.box_at(scene, at)?;
        let again = self.cursor == place_of(&scene.snapshot.tree, &clicked);
        self.select(&scene.snapshot.tree, &clicked);
        (again || button == Button::Right).then_some(Action::ZoomIn)
    }

    fn hovered(&self, scene: &Scene, at: Position) -> Option<Hovered> {
        self.box_at(scene, at).map(|hovered| Hovered::Box(place_of(&scene.snapshot.tree, &hovered)))
    }

    fn wheel(&mut self, scene: &Scene, down: bool) -> bool {
        let boxes = self.boxes(scene);
        let rows = if down == self.root_on_top { 3 } else { -3 };
        self.scroll_by(rows, &boxes, usize::from(scene.areas().body.height));
        true
    }
}
