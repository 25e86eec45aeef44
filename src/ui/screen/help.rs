//! The help, made from the table of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::profile::FrameKind;
use crate::ui::app::App;
use crate::ui::keys::Section;
use crate::ui::overlay::Help;
use crate::ui::text;

use crate::ui::paint::{put, window};

/// Draws the help over the view.
pub(super) fn draw(app: &App, help: &Help, area: Rect, buffer: &mut Buffer) {
    let title = if help.typing || !help.line.text().is_empty() {
        format!("keys with “{}”", help.line.text())
    } else {
        "keys  (/ searches, Esc closes)".to_owned()
    };
    let title = if app.scene.theme.ascii { title.replace(['“', '”'], "\"") } else { title };
    let inner = window(&app.scene, area, 84, area.height, &title, buffer);
    let lines = lines(app, help.line.text());
    let scroll = help.scroll.min(lines.len().saturating_sub(usize::from(inner.height)));
    for (y, line) in (inner.y..inner.bottom()).zip(lines.into_iter().skip(scroll)) {
        match line {
            Line::Heading(words) => {
                put(buffer, inner, inner.x + 1, y, words, app.scene.theme.strong());
            }
            Line::Row { keys, help, style } => {
                put(buffer, inner, inner.x + 2, y, &keys, style);
                put(buffer, inner, inner.x + 18, y, &help, Style::new());
            }
        }
    }
}

enum Line {
    Heading(&'static str),
    Row { keys: String, help: String, style: Style },
}

fn lines(app: &App, wanted: &str) -> Vec<Line> {
    let wanted = wanted.to_lowercase();
    let mut lines = Vec::new();
    for section in Section::ALL {
        let mut rows: Vec<Line> = Vec::new();
        for (binding, keys) in app.scene.keys.rows().filter(|(binding, _)| binding.section == section) {
            // The sign for Enter is for the hint line; here the key has its name.
            let keys: Vec<&str> = keys.iter().map(|key| &**key).filter(|key| *key != "↵").collect();
            let keys = if keys.is_empty() { "(no key)".to_owned() } else { keys.join(" ") };
            if wanted.is_empty() || format!("{keys} {}", binding.help).to_lowercase().contains(&wanted) {
                rows.push(Line::Row { keys, help: binding.help.to_owned(), style: app.scene.theme.key() });
            }
        }
        if !rows.is_empty() {
            lines.push(Line::Heading(section.title()));
            lines.append(&mut rows);
        }
    }
    if wanted.is_empty() {
        lines.push(Line::Heading("Mouse"));
        for (keys, help) in [
            ("click", "select; again or right button: zoom; on × of a chip: remove it"),
            ("wheel", "scroll"),
            ("time strip", "click a second, drag over several"),
        ] {
            lines.push(Line::Row { keys: keys.to_owned(), help: help.to_owned(), style: app.scene.theme.key() });
        }
        lines.push(Line::Heading("Colours"));
        for kind in FrameKind::ALL {
            let mark = if kind == FrameKind::Unknown { "; italic: not yet".to_owned() } else { format!(" {}", kind.mark()) };
            let help = format!("{}{mark}", kind.describe()).trim_end().to_owned();
            let label = app.scene.names.labels.intern("colour", "", kind);
            let colours = app.scene.theme.frame(app.scene.names.labels.get(label), false, false, 0.0);
            let style = Style::new().bg(colours.ground).fg(colours.ink);
            let keys = text::cut("  sample  ", 10);
            lines.push(Line::Row { keys, help, style });
        }
    }
    lines
}
