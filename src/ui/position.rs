//! The reader's position in a list.

use super::keys::Action;

/// The reader's position in a list: the row under the cursor, and the first row on screen.
///
/// Rows move on the screen. A row that moves takes the cursor with it, as long as the row is on screen. Only keys scroll, so new
/// data never hides rows above the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// The row under the cursor.
    pub at: usize,
    /// The first row on screen.
    pub scroll: usize,
}

impl Position {
    /// Moves the cursor, and scrolls to keep it on screen.
    pub fn go(&mut self, action: Action, rows: usize, height: usize) {
        let last = rows.saturating_sub(1);
        self.at = match action {
            Action::Up => self.at.saturating_sub(1),
            Action::Down => self.at + 1,
            Action::PageUp => self.at.saturating_sub(height.max(1)),
            Action::PageDown => self.at + height.max(1),
            Action::Top => 0,
            Action::Bottom => last,
            _ => self.at,
        };
        self.clamp(rows, height);
    }

    /// Adapts to changed rows. The row under the cursor is now at `found`.
    pub fn follow(&mut self, found: Option<usize>, rows: usize, height: usize) {
        if let Some(found) = found.filter(|found| (self.scroll..self.scroll + height).contains(found)) {
            self.at = found;
        }
        self.clamp(rows, height);
    }

    /// Follows a row to its new index. The row stays on its line of the screen.
    pub fn hold(&mut self, found: usize, rows: usize, height: usize) {
        let line = self.at.saturating_sub(self.scroll);
        (self.at, self.scroll) = (found, found.saturating_sub(line));
        self.clamp(rows, height);
    }

    /// Puts the cursor on any row, with the rows around it on screen.
    pub fn jump(&mut self, at: usize, rows: usize, height: usize) {
        self.at = at;
        if !(self.scroll..self.scroll + height).contains(&at) {
            self.scroll = at.saturating_sub(height / 3);
        }
        self.clamp(rows, height);
    }

    /// Scrolls so that rows opened below the cursor are on screen as well.
    pub fn make_room(&mut self, rows: usize, height: usize) {
        self.scroll = self.scroll.max(self.at.saturating_sub(height / 3));
        self.clamp(rows, height);
    }

    /// Moves the cursor onto a row and the row onto the screen. No line stays empty while rows are hidden above.
    pub fn clamp(&mut self, rows: usize, height: usize) {
        let height = height.max(1);
        self.at = self.at.min(rows.saturating_sub(1));
        self.scroll = self.scroll.min(rows.saturating_sub(height)).min(self.at).max((self.at + 1).saturating_sub(height));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_scroll() {
        let mut position = Position::default();
        position.go(Action::PageDown, 100, 10);
        assert_eq!(position, Position { at: 10, scroll: 1 });
        // A row that moves takes the cursor with it while it is on screen.
        position.follow(Some(4), 100, 10);
        assert_eq!(position, Position { at: 4, scroll: 1 });
        position.follow(Some(40), 100, 10);
        assert_eq!(position, Position { at: 4, scroll: 1 });
        position.follow(Some(0), 100, 10);
        assert_eq!(position, Position { at: 4, scroll: 1 });
    }

    #[test]
    fn no_line_stays_empty_while_rows_are_hidden_above() {
        let mut position = Position { at: 90, scroll: 85 };
        position.follow(None, 12, 10);
        assert_eq!(position, Position { at: 11, scroll: 2 });
        position.follow(None, 3, 10);
        assert_eq!(position, Position { at: 2, scroll: 0 });
        position.follow(None, 0, 10);
        assert_eq!(position, Position::default());
        position.go(Action::Down, 5, 0);
        assert_eq!(position, Position { at: 1, scroll: 1 }, "on a screen without lines");
    }

    #[test]
    fn a_row_that_is_held_stays_on_its_line() {
        let mut position = Position { at: 20, scroll: 17 };
        position.hold(50, 100, 10);
        assert_eq!(position, Position { at: 50, scroll: 47 });
        position.hold(1, 100, 10);
        assert_eq!(position, Position { at: 1, scroll: 0 });
    }
}
