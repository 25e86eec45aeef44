//! The started command's output, in a pane below the view.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::ui::app::App;

use crate::ui::paint::put;

/// Draws the last lines that fit.
pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let rule = if app.scene.theme.ascii { "-" } else { "─" };
    let title = match &app.scene.status.ended {
        Some(ended) => format!("{rule}{rule} output: {} ", ended.short),
        None => format!("{rule}{rule} output "),
    };
    let x = put(buffer, area, area.x, area.y, &title, app.scene.theme.key());
    put(buffer, area, x, area.y, &rule.repeat(usize::from(area.width)), app.scene.theme.dim());
    let lines = usize::from(area.height).saturating_sub(1);
    let skip = app.output.len().saturating_sub(lines);
    for (y, line) in (area.y + 1..area.bottom()).zip(app.output.iter().skip(skip)) {
        put(buffer, area, area.x + 1, y, line, ratatui::style::Style::new());
    }
}
