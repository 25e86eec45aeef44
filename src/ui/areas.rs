//! Divides the screen, for drawing and for the mouse.

use ratatui::layout::Rect;

/// The parts of the screen from top to bottom. A part is empty if there is no room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// One line: the selection of samples, and how reliable they are.
    pub header: Rect,
    /// One line: CPU use over time, and the chips.
    pub time: Rect,
    /// The view.
    pub body: Rect,
    /// The command's output.
    pub output: Rect,
    /// One line: the frame under the cursor.
    pub detail: Rect,
    /// One line: the cursor's position, and keys.
    pub hints: Rect,
}

impl Areas {
    /// Returns the number of table rows that the view shows. The heading takes one line.
    pub(super) fn table_lines(&self) -> usize {
        usize::from(self.body.height).saturating_sub(1)
    }

    pub(super) fn new((columns, rows): (u16, u16), output: bool, time: bool) -> Areas {
        let mut areas = Areas::default();
        let (mut top, mut bottom) = (0, rows);
        let line = |y| Rect::new(0, y, columns, 1);
        // Most important first: the view needs at least three lines before anything else gets one.
        if rows >= 4 {
            areas.header = line(top);
            top += 1;
        }
        if rows >= 5 {
            bottom -= 1;
            areas.hints = line(bottom);
        }
        if rows >= 7 {
            bottom -= 1;
            areas.detail = line(bottom);
        }
        if rows >= 9 && time {
            areas.time = line(top);
            top += 1;
        }
        if output && bottom - top >= 12 {
            let height = (bottom - top) / 4;
            bottom -= height;
            areas.output = Rect::new(0, bottom, columns, height);
        }
        areas.body = Rect::new(0, top, columns, bottom - top);
        areas
    }
}
