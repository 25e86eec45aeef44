//! Drawing for all views: text within an area, a bar, a window over the view.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Block, BorderType, Borders, Clear, Widget};

use super::scene::Scene;
use super::text;

/// Writes text from `x` on, cut at the area's right edge. Returns the column after it.
pub(super) fn put(buffer: &mut Buffer, area: Rect, x: u16, y: u16, words: &str, style: Style) -> u16 {
    if y >= area.bottom() || x >= area.right() {
        return x;
    }
    let room = usize::from(area.right() - x);
    let shown = text::cut(words, room);
    buffer.set_stringn(x, y, &shown, room, style).0
}

/// Writes text so that it ends at the area's right edge. Returns the column where it begins.
pub(super) fn put_right(buffer: &mut Buffer, area: Rect, y: u16, words: &str, style: Style) -> u16 {
    let width = u16::try_from(text::width(words)).unwrap_or(u16::MAX).min(area.width);
    let x = area.right() - width;
    put(buffer, area, x, y, words, style);
    x
}

/// Draws a bar that fills this part of `area`, from 0 to 1.
pub(super) fn bar(scene: &Scene, part: f64, area: Rect, style: Style, buffer: &mut Buffer) {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let all = usize::from(area.width) * 8;
    let units = ((part * all as f64).round() as usize).min(all);
    let glyphs =
        if scene.theme.ascii { "#".repeat(units / 8) } else { format!("{}{}", "█".repeat(units / 8), EIGHTHS[units % 8]) };
    put(buffer, area, area.x, area.y, &glyphs, style);
}

/// Clears and frames a box in the middle of `area`, for a window over the view. Returns the inside of the box.
pub(super) fn window(scene: &Scene, area: Rect, width: u16, height: u16, title: &str, buffer: &mut Buffer) -> Rect {
    let width = width.min(area.width);
    let height = height.min(area.height);
    let outer = Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - height) / 2, width, height);
    Clear.render(outer, buffer);
    if width < 8 || height < 4 {
        return outer;
    }
    let border = if scene.theme.ascii { ASCII_BORDER } else { BorderType::Rounded.to_border_set() };
    let block = Block::new()
        .borders(Borders::ALL)
        .border_set(border)
        .border_style(scene.theme.dim())
        .title(format!(" {title} "))
        .title_style(scene.theme.strong());
    let inner = block.inner(outer);
    block.render(outer, buffer);
    inner
}

const ASCII_BORDER: ratatui::symbols::border::Set<'static> = ratatui::symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
