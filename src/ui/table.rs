//! Draws the rows of a table below its heading, with the cursor. If not all rows are on screen, the heading gives the numbers of
//! the visible rows, and a bar at the right edge shows their position.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::position::Position;
use super::scene::{Hovered, Scene};
use super::text;
use super::theme::Theme;

use super::paint::{put, put_right};

/// Draws the rows. The first line of `area` is the heading, which is drawn already.
pub(super) fn draw<Row>(
    scene: &Scene,
    area: Rect,
    (position, rows): (Position, &[Row]),
    draw_row: impl Fn(&Scene, &Row, Rect, &mut Buffer),
    buffer: &mut Buffer,
) {
    let lines = usize::from(area.height).saturating_sub(1);
    let is_cut = rows.len() > lines;
    let body = Rect { y: area.y + 1, width: area.width - u16::from(is_cut && area.width > 1), height: lines as u16, ..area };
    for (line, (at, row)) in (body.y..).zip(rows.iter().enumerate().skip(position.scroll).take(lines)) {
        let place = Rect { y: line, height: 1, ..body };
        draw_row(scene, row, place, buffer);
        if at == position.at {
            draw_selection(scene, place, buffer);
        }
    }
    if is_cut && lines > 0 {
        let dash = if scene.theme.ascii { '-' } else { '–' };
        let (first, last) = (position.scroll + 1, (position.scroll + lines).min(rows.len()));
        let grouped = |number: usize| text::grouped(number as u64);
        let words = format!("  {}{dash}{} of {}", grouped(first), grouped(last), grouped(rows.len()));
        put_right(buffer, area, area.y, &words, scene.theme.dim());
        draw_bar(scene, Rect { x: body.right(), width: 1, ..body }, (position.scroll, lines, rows.len()), buffer);
    }
}

/// Returns the row of a table on a line of the screen, counted from below the heading.
pub(super) fn hovered_line(scene: &Scene, at: ratatui::layout::Position) -> Option<Hovered> {
    let body = scene.areas().body;
    let line = usize::from(at.y).checked_sub(usize::from(body.y) + 1)?;
    body.contains(at).then_some(Hovered::Line(line))
}

/// Describes the row under the pointer, on the last line of the table. The line below the view describes the selected row.
pub(super) fn show_hovered<Row>(
    scene: &Scene,
    area: Rect,
    (position, rows): (Position, &[Row]),
    describe: impl Fn(&Row) -> String,
    buffer: &mut Buffer,
) {
    let Some(Hovered::Line(line)) = scene.hover else { return };
    let at = position.scroll + line;
    if let Some(row) = rows.get(at).filter(|_| at != position.at && line + 1 < usize::from(area.height)) {
        put(buffer, area, area.x, area.bottom() - 1, &format!(" {} ", describe(row)), scene.theme.chip());
    }
}

/// Returns the sign in the heading of the column that orders the rows.
pub(super) fn sorted_by(theme: &Theme) -> &'static str {
    if theme.ascii { " v" } else { " ▼" }
}

/// Marks a row as selected. Bars and swatches keep their colours.
fn draw_selection(scene: &Scene, line: Rect, buffer: &mut Buffer) {
    let style = scene.theme.selected();
    for x in line.x..line.right() {
        let Some(cell) = buffer.cell_mut((x, line.y)) else { continue };
        let is_block = cell.symbol().chars().all(|c| ('\u{2580}'..='\u{259f}').contains(&c));
        match (is_block, style.bg) {
            (false, _) => cell.set_style(style),
            (true, Some(ground)) => cell.set_bg(ground),
            (true, None) => cell,
        };
    }
}

/// Draws which part of all rows is on screen: the first row, the number of rows on screen, and the number of all rows.
fn draw_bar(scene: &Scene, area: Rect, (first, shown, all): (usize, usize, usize), buffer: &mut Buffer) {
    let height = usize::from(area.height);
    let length = (height * shown / all.max(1)).clamp(1, height);
    // The bar is at the very top only with the first row, and at the very bottom only with the last.
    let (room, hidden) = (height - length, all - shown);
    let from = match first {
        0 => 0,
        first if first >= hidden => room,
        first => (first * room / hidden.max(1)).clamp(1.min(room), room.saturating_sub(1).max(1.min(room))),
    };
    let (bar, groove) = if scene.theme.ascii { ("#", "|") } else { ("█", "│") };
    for line in 0..height {
        if let Some(cell) = buffer.cell_mut((area.x, area.y + line as u16)) {
            let symbol = if (from..from + length).contains(&line) { bar } else { groove };
            cell.set_symbol(symbol).set_style(scene.theme.dim());
        }
    }
}
