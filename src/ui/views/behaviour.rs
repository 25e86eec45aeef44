//! What differs between views.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::profile::{LabelId, Request, Tgid, Tid};
use crate::ui::detail::DetailLine;
use crate::ui::keys::Action;
use crate::ui::scene::{Hovered, Scene};

/// An action and its word in the last line.
pub(in crate::ui) type Hint = (Action, &'static str);

/// A place that a search found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::ui) struct Match {
    /// Its number, from 1; 0 if nothing was found.
    pub(in crate::ui) number: usize,
    /// How many places were found.
    pub(in crate::ui) of: usize,
}

/// What differs from view to view. Implemented by the state of each.
pub(in crate::ui) trait ViewBehaviour {
    /// Adds to a request what this view draws.
    fn ask(&self, _request: &mut Request) {}

    /// Takes in a new answer, [`Scene::snapshot`]. Called for all views, and for one that comes on screen.
    fn refresh(&mut self, _scene: &Scene) {}

    /// Gives the labels in the state other ids. Called for all views.
    fn rename(&mut self, _rename: &dyn Fn(LabelId) -> LabelId) {}

    /// Shows the first row: other samples are looked at. Called for all views.
    fn show_top(&mut self) {}

    /// Draws the view. `area` has at least one line.
    fn draw(&self, scene: &Scene, area: Rect, buffer: &mut Buffer);

    /// Draws the line about what is under the cursor.
    fn draw_detail(&self, _scene: &Scene, detail: DetailLine<'_>, buffer: &mut Buffer) {
        detail.draw_searched(buffer);
    }

    /// Returns where the reader is, for the last line.
    fn breadcrumb(&self, scene: &Scene) -> String {
        let (number, name) = scene.view.title();
        format!("{number} {name}: {}", scene.target_name())
    }

    /// Returns the actions that the last line offers, each with a word. The most useful come first: the last ones go when there is no room.
    fn hints(&self, scene: &Scene) -> Vec<Hint>;

    /// Moves the cursor. `action` is one of `a_move!`.
    fn go(&mut self, scene: &Scene, action: Action);

    /// Opens what is under the cursor.
    fn zoom_in(&mut self, _scene: &mut Scene) -> Opened {
        Opened::Here
    }

    /// Leaves one level of what was opened. Returns `false` if nothing was open.
    fn zoom_out(&mut self) -> bool {
        false
    }

    /// Takes the next order of rows. Returns `false` if the view has none.
    fn next_order(&mut self) -> bool {
        false
    }

    /// Returns the function under the cursor.
    fn selected_label(&self, _scene: &Scene) -> Option<LabelId> {
        None
    }

    /// Moves to the next place that a search found, or to the one before. Returns `None` if the view has no functions.
    fn next_match(&mut self, _scene: &Scene, _found: &dyn Fn(LabelId) -> bool, _forward: bool) -> Option<Match> {
        None
    }

    /// A mouse button goes down on the view. Returns what is to be done besides.
    fn click(&mut self, _scene: &Scene, _at: Position, _button: Button) -> Option<Action> {
        None
    }

    /// The mouse moves with its left button down.
    fn drag(&mut self, _scene: &Scene, _at: Position) {}

    /// The left button goes up, wherever it went down. Called for all views.
    fn let_go(&mut self, _scene: &mut Scene) {}

    /// Returns what the pointer is on.
    fn hovered(&self, _scene: &Scene, _at: Position) -> Option<Hovered> {
        None
    }

    /// The wheel turns by one step. Returns `false` if that is to move the cursor.
    fn wheel(&mut self, _scene: &Scene, _down: bool) -> bool {
        false
    }
}

/// What came of opening something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::ui) enum Opened {
    /// It is open in the view, if there was anything to open.
    Here,
    /// These processes, or one thread of one, are to be looked at from now on.
    Target(Vec<Tgid>, Option<Tid>),
}

/// A button of the mouse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ui) enum Button {
    Left,
    Right,
}
