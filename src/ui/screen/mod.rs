//! Drawing: one file for each part of the screen. Nothing here changes state, sends requests or waits.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::ui::app::App;
use crate::ui::overlay::Overlay;

mod footer;
pub(super) mod header;
pub(super) mod help;
mod output;
mod picker;
mod source;

/// Draws the whole screen.
pub fn draw(app: &App, frame: &mut Frame<'_>) {
    if app.scene.size != (frame.area().width, frame.area().height) {
        // The terminal has just changed its size; the next picture uses the new size.
        return;
    }
    let areas = app.scene.areas();
    let buffer = frame.buffer_mut();
    header::draw(app, areas.header, buffer);
    header::draw_time(app, areas.time, buffer);
    match &app.source {
        Some(source) => source::draw(app, source, areas.body, buffer),
        None if areas.body.is_empty() => {}
        None => app.views.get(app.scene.view).draw(&app.scene, areas.body, buffer),
    }
    output::draw(app, areas.output, buffer);
    footer::draw(app, areas.detail, areas.hints, buffer);
    match &app.overlay {
        Some(Overlay::Picker(picker)) => picker::draw(app, picker, areas.body, buffer),
        Some(Overlay::Help(help)) => help::draw(app, help, areas.body, buffer),
        Some(Overlay::Prompt(_) | Overlay::Confirm(_)) | None => {}
    }
    // A prompt needs a line even on a screen of very few lines.
    if areas.hints.is_empty() && matches!(app.overlay, Some(Overlay::Prompt(_) | Overlay::Confirm(_))) {
        let area = frame.area();
        let last = Rect::new(0, area.height.saturating_sub(1), area.width, area.height.min(1));
        footer::draw(app, Rect::default(), last, frame.buffer_mut());
    }
    if app.scene.theme.ascii {
        to_ascii(frame.buffer_mut());
    }
}

/// Replaces characters that are not ASCII, since names may contain any: `~` where text was cut, `?` elsewhere.
fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let shown = if cell.symbol() == "…" { "~" } else { "?" };
            cell.set_symbol(shown);
        }
    }
}
