//! Drawing: one file a part of the screen. Nothing here changes state, asks for anything or waits.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::Clear;
use ratatui::widgets::Widget;

use super::app::{App, View};
use super::overlay::Overlay;
use super::text;

pub(super) mod flame;
mod footer;
mod functions;
pub(super) mod header;
mod health;
mod help;
mod output;
mod picker;
mod processes;
mod source;
mod time;

/// Draws the whole screen.
pub fn draw(app: &App, frame: &mut Frame<'_>) {
    if app.size != (frame.area().width, frame.area().height) {
        // The terminal has changed its size this very moment; the next picture will know it.
        return;
    }
    let areas = app.areas();
    let buffer = frame.buffer_mut();
    header::draw(app, areas.header, buffer);
    header::draw_time(app, areas.time, buffer);
    match app.view {
        _ if app.source.is_some() => {}
        View::Flame => flame::draw(app, areas.body, buffer),
        View::Functions => functions::draw(app, areas.body, buffer),
        View::Processes => processes::draw(app, areas.body, buffer),
        View::Time => time::draw(app, areas.body, buffer),
        View::Health => health::draw(app, areas.body, buffer),
    }
    if let Some(source) = &app.source {
        source::draw(app, source, areas.body, buffer);
    }
    output::draw(app, areas.output, buffer);
    footer::draw(app, areas.detail, areas.hints, buffer);
    match &app.overlay {
        Some(Overlay::Picker(picker)) => picker::draw(app, picker, areas.body, buffer),
        Some(Overlay::Help(help)) => help::draw(app, help, areas.body, buffer),
        Some(Overlay::Prompt(_) | Overlay::Confirm(_)) | None => {}
    }
    // On a screen of very few lines a prompt still needs one.
    if areas.hints.is_empty() && matches!(app.overlay, Some(Overlay::Prompt(_) | Overlay::Confirm(_))) {
        let area = frame.area();
        let last = Rect::new(0, area.height.saturating_sub(1), area.width, area.height.min(1));
        footer::draw(app, Rect::default(), last, frame.buffer_mut());
    }
    if app.theme.ascii {
        to_ascii(frame.buffer_mut());
    }
}

/// Names may hold anything; what is not ASCII is shown as `~` where something was cut and as `?` elsewhere.
fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let shown = if cell.symbol() == "…" { "~" } else { "?" };
            cell.set_symbol(shown);
        }
    }
}

/// Writes text from `x` on, cut at the area's right edge; returns the column after it.
fn put(buffer: &mut Buffer, area: Rect, x: u16, y: u16, words: &str, style: Style) -> u16 {
    if y >= area.bottom() || x >= area.right() {
        return x;
    }
    let room = usize::from(area.right() - x);
    let shown = text::cut(words, room);
    buffer.set_stringn(x, y, &shown, room, style).0
}

/// Writes text so that it ends at the area's right edge; returns the column it begins at.
fn put_right(buffer: &mut Buffer, area: Rect, y: u16, words: &str, style: Style) -> u16 {
    let width = u16::try_from(text::width(words)).unwrap_or(u16::MAX).min(area.width);
    let x = area.right() - width;
    put(buffer, area, x, y, words, style);
    x
}

/// A box in the middle of `area` for something that lies over it, cleared and framed; its inside comes back.
fn window(app: &App, area: Rect, width: u16, height: u16, title: &str, buffer: &mut Buffer) -> Rect {
    use ratatui::widgets::{Block, BorderType, Borders};
    let width = width.min(area.width);
    let height = height.min(area.height);
    let outer = Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - height) / 2, width, height);
    Clear.render(outer, buffer);
    if width < 8 || height < 4 {
        return outer;
    }
    let border = if app.theme.ascii { ASCII_BORDER } else { BorderType::Rounded.to_border_set() };
    let block = Block::new()
        .borders(Borders::ALL)
        .border_set(border)
        .border_style(app.theme.dim())
        .title(format!(" {title} "))
        .title_style(app.theme.strong());
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
