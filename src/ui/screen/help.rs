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

/// Columns of one list for the keys; the rest is for their effects.
const KEYS: u16 = 16;
const MORE_KEYS: u16 = 22;
const LIST: u16 = 82;

/// Draws the help over the view.
pub(super) fn draw(app: &App, help: &Help, area: Rect, buffer: &mut Buffer) {
    let lines = lines(app, help.line.text());
    let shape = Shape::new(area, lines.len());
    let scroll = help.scroll.min(shape.last());
    let inner = window(&app.scene, area, shape.width, area.height, &title(app, help, scroll, &shape), buffer);
    let list = inner.width / shape.lists;
    for (at, line) in lines.into_iter().skip(scroll).take(shape.shown()).enumerate() {
        let (column, y) = ((at / shape.height) as u16, inner.y + (at % shape.height) as u16);
        let area = Rect { x: inner.x + column * list, width: list, ..inner };
        match line {
            Line::Heading(words) => {
                put(buffer, area, area.x + 1, y, words, app.scene.theme.strong());
            }
            Line::Row { keys, help, style } => {
                let room = if list >= LIST { MORE_KEYS } else { KEYS };
                put(buffer, area, area.x + 2, y, &as_many_as_fit(&keys, usize::from(room) - 1), style);
                put(buffer, area, area.x + 2 + room, y, &help, Style::new());
            }
        }
    }
}

/// Returns the last possible first line on screen, and the number of lines on screen.
pub(in crate::ui) fn extent(app: &App, help: &Help) -> (usize, usize) {
    let shape = Shape::new(app.scene.areas().body, lines(app, help.line.text()).len());
    (shape.last(), shape.shown())
}

/// The layout of the lines: one list, or two lists side by side on a wide screen.
struct Shape {
    lists: u16,
    width: u16,
    height: usize,
    lines: usize,
}

impl Shape {
    fn new(area: Rect, lines: usize) -> Shape {
        // A frame surrounds the lines.
        let height = usize::from(area.height).saturating_sub(2).max(1);
        let lists = if area.width >= 150 && lines > height { 2 } else { 1 };
        Shape { lists, width: (lists * (LIST + 2) + 2).min(area.width), height, lines }
    }

    fn shown(&self) -> usize {
        self.height * usize::from(self.lists)
    }

    fn last(&self) -> usize {
        self.lines.saturating_sub(self.shown())
    }
}

fn title(app: &App, help: &Help, scroll: usize, shape: &Shape) -> String {
    let ascii = app.scene.theme.ascii;
    if help.typing || !help.line.text().is_empty() {
        let title = format!("keys with “{}”", help.line.text());
        return if ascii { title.replace(['“', '”'], "\"") } else { title };
    }
    if shape.last() == 0 {
        return "keys  / searches  Esc closes".to_owned();
    }
    let (arrows, dash) = if ascii { ("up down", '-') } else { ("↑↓", '–') };
    let (first, end) = (scroll + 1, (scroll + shape.shown()).min(shape.lines));
    format!("keys  {arrows} scroll  / searches  Esc closes  {first}{dash}{end} of {}", shape.lines)
}

/// Returns the first keys of a list, as many as fit.
fn as_many_as_fit(keys: &str, columns: usize) -> String {
    let mut fitting = String::new();
    for key in keys.split(' ') {
        if text::width(&fitting) + text::width(key) + 1 > columns {
            break;
        }
        if !fitting.is_empty() {
            fitting.push(' ');
        }
        fitting.push_str(key);
    }
    if fitting.is_empty() { text::cut(keys, columns) } else { fitting }
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
            // The sign for Enter is for the hint line; the help shows the key's name.
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
            let mark = if kind == FrameKind::Unknown { "; italic: name pending".to_owned() } else { format!(" {}", kind.mark()) };
            let help = format!("{}{mark}", kind.describe()).trim_end().to_owned();
            let label = app.scene.names.labels.intern("colour", "", kind);
            let colours = app.scene.theme.frame(app.scene.names.labels.get(label), false, false, 0.0);
            let style = Style::new().bg(colours.ground).fg(colours.ink);
            let keys = "sample".to_owned();
            lines.push(Line::Row { keys, help, style });
        }
    }
    lines
}
