//! The differences between views.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::profile::{LabelId, Request, Tgid, Tid};
use crate::ui::detail::DetailLine;
use crate::ui::keys::Action;
use crate::ui::scene::{Hovered, Scene};

/// An action and its word in the last line.
pub(in crate::ui) type Hint = (Action, &'static str);

/// The position of a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::ui) struct Match {
    /// Number of the match, from 1; 0 if nothing was found.
    pub(in crate::ui) number: usize,
    /// Number of matches.
    pub(in crate::ui) of: usize,
    /// Whether another box was zoomed, because the match is too narrow in the one before.
    pub(in crate::ui) is_zoomed: bool,
}

/// The differences between views. Implemented by the state of each view.
pub(in crate::ui) trait ViewBehaviour {
    /// Adds the data that this view draws to a request.
    fn ask(&self, _request: &mut Request) {}

    /// Processes a new answer, [`Scene::snapshot`]. Called for all views, and for a view that comes on screen.
    fn refresh(&mut self, _scene: &Scene) {}

    /// Gives the labels in the state other ids. Called for all views.
    fn rename(&mut self, _rename: &dyn Fn(LabelId) -> LabelId) {}

    /// Shows the first row, because other samples are selected. Called for all views.
    fn show_top(&mut self) {}

    /// Draws the view. `area` has at least one line.
    fn draw(&self, scene: &Scene, area: Rect, buffer: &mut Buffer);

    /// Draws the line about the item under the cursor.
    fn draw_detail(&self, _scene: &Scene, detail: DetailLine<'_>, buffer: &mut Buffer) {
        detail.draw_searched(buffer);
    }

    /// Returns the reader's position, for the last line.
    fn breadcrumb(&self, scene: &Scene) -> String {
        let (number, name) = scene.view.title();
        format!("{number} {name}: {}", scene.target_name())
    }

    /// Returns the actions that the last line offers, each with a word. The most useful come first: the last ones are removed if
    /// there is no room.
    fn hints(&self, scene: &Scene) -> Vec<Hint>;

    /// Moves the cursor. `action` is one of `a_move!`.
    fn go(&mut self, scene: &Scene, action: Action);

    /// Opens the item under the cursor.
    fn zoom_in(&mut self, _scene: &mut Scene) -> Opened {
        Opened::Here
    }

    /// Leaves one opened level. Returns `false` if nothing was open.
    fn zoom_out(&mut self) -> bool {
        false
    }

    /// Switches to the next order of rows. Returns `false` if the view has no orders.
    fn next_order(&mut self) -> bool {
        false
    }

    /// Returns the function under the cursor.
    fn selected_label(&self, _scene: &Scene) -> Option<LabelId> {
        None
    }

    /// Moves to the next match of the search, or to the one before. Returns `None` if the view has no functions.
    fn next_match(&mut self, _scene: &Scene, _found: &dyn Fn(LabelId) -> bool, _forward: bool) -> Option<Match> {
        None
    }

    /// Processes a press of a mouse button on the view. Returns a further action, if one is needed.
    fn click(&mut self, _scene: &Scene, _at: Position, _button: Button) -> Option<Action> {
        None
    }

    /// Processes a movement of the mouse with its left button down.
    fn drag(&mut self, _scene: &Scene, _at: Position) {}

    /// Processes the release of the left button, wherever it was pressed. Called for all views.
    fn let_go(&mut self, _scene: &mut Scene) {}

    /// Returns the item under the pointer.
    fn hovered(&self, _scene: &Scene, _at: Position) -> Option<Hovered> {
        None
    }

    /// Processes one step of the wheel. Returns `false` if the wheel is to move the cursor.
    fn wheel(&mut self, _scene: &Scene, _down: bool) -> bool {
        false
    }
}

/// Result of opening an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::ui) enum Opened {
    /// The item is open in the view, if it could be opened.
    Here,
    /// Select these processes, or one thread of one process.
    Target(Vec<Tgid>, Option<Tid>),
}

/// A button of the mouse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ui) enum Button {
    Left,
    Right,
}
