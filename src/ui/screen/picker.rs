//! A list to choose from, over the view.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::ui::app::App;
use crate::ui::overlay::Picker;
use crate::ui::text;

use crate::ui::paint::{put, window};

/// Draws the list.
pub(super) fn draw(app: &App, picker: &Picker, area: Rect, buffer: &mut Buffer) {
    let rows = picker.rows();
    let height = u16::try_from(rows.len() + 3).unwrap_or(u16::MAX).max(6);
    let inner = window(&app.scene, area, 100, height.min(area.height), picker.title, buffer);
    if inner.is_empty() {
        return;
    }
    let (before, after) = picker.line.split();
    let mut x = put(buffer, inner, inner.x + 1, inner.y, before, app.scene.theme.strong());
    x = put(buffer, inner, x, inner.y, " ", Style::new().add_modifier(Modifier::REVERSED));
    x = put(buffer, inner, x, inner.y, after, app.scene.theme.strong());
    if picker.line.text().is_empty() {
        put(buffer, inner, x + 1, inner.y, "type to narrow, Enter accepts, Esc cancels", app.scene.theme.dim());
    }
    let lines = usize::from(inner.height).saturating_sub(1);
    let scroll = picker.at.saturating_sub(lines.saturating_sub(1));
    if rows.len() == 0 {
        put(buffer, inner, inner.x + 1, inner.y + 1, "nothing matches", app.scene.theme.dim());
    }
    for (line, (at, row)) in rows.enumerate().skip(scroll).take(lines).enumerate() {
        let y = inner.y + 1 + line as u16;
        let selected = at == picker.at;
        let style = if row.refused { app.scene.theme.dim() } else { app.scene.theme.strong() };
        let x = put(buffer, inner, inner.x, y, &format!("{:>8} {:>7}  ", row.number, row.share), Style::new());
        let x = put(buffer, inner, x, y, &text::cut(&row.name, picker.longest_name()), style);
        put(buffer, inner, x + 2, y, &row.detail, app.scene.theme.dim());
        if selected {
            buffer.set_style(Rect::new(inner.x, y, inner.width, 1), app.scene.theme.selected());
        }
    }
}
