//! Draws the source of a function, or its instructions, with the weight of each row.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::profile::{Row, Rows, UserId};
use crate::ui::app::App;
use crate::ui::keys::Action;
use crate::ui::names::fit_name;
use crate::ui::position::Position;
use crate::ui::source::{Pane, Source};
use crate::ui::text;

use crate::ui::paint::{bar, put};

/// Draws the source over the whole body.
pub(super) fn draw(app: &App, source: &Source, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    draw_title(app, source, area, buffer);
    let mut y = area.y + 1;
    if !source.note().is_empty() {
        put(buffer, area, area.x + 1, y, &source.note(), app.scene.theme.warning());
        y += 1;
    }
    let words = match source.rows() {
        Some(Ok(rows)) => {
            draw_heading(app, source, rows, area, y, buffer);
            let rows_area = Rect { y: y + 1, height: area.bottom().saturating_sub(y + 1), ..area };
            return draw_rows(app, source, rows, rows_area, buffer);
        }
        Some(Err(why)) => why,
        None if source.addresses.as_ref().is_some_and(|addresses| addresses.frames.is_empty()) => {
            "none of the samples shown are in this function"
        }
        None => "reading …",
    };
    let x = put(buffer, area, area.x + 1, y, words, app.scene.theme.strong());
    if let (Some(Err(_)), Some(Ok(_))) = (source.rows(), &source.listing) {
        let key = app.scene.keys.first(Action::NextView);
        put(buffer, area, x + 2, y, &format!("{key} goes back"), app.scene.theme.key());
    }
}

/// Draws function, object, file and line of the cursor, and the function's share of everything.
fn draw_title(app: &App, source: &Source, area: Rect, buffer: &mut Buffer) {
    let Some(label) = app.scene.names.labels.get(source.label) else { return };
    let at = source.place.at;
    let file = match source.rows() {
        Some(Ok(rows)) => match (source.pane, rows.rows.get(at)) {
            (Pane::Source, Some(row)) => format!("{}:{}", rows.file, row.place),
            // Instructions of the running kernel have no other file.
            _ if *rows.file == *label.short_object() => String::new(),
            _ => rows.file.to_string(),
        },
        _ => String::new(),
    };
    let user = source.listing.as_ref().and_then(|listing| listing.as_ref().ok()?.user);
    let user = match user {
        None => String::new(),
        Some(UserId(0)) => "of root".to_owned(),
        Some(UserId(user)) => format!("of user {user}"),
    };
    let share = match &source.addresses {
        Some(addresses) if source.whole() == addresses.total => {
            // The addresses are counted a moment later than the tree. If the function has nearly all samples, its count may be
            // higher.
            let weight = app.scene.snapshot.weight();
            let percent = |part: u64| text::percent(part.min(weight), weight);
            format!("self {} %  total {} % of all", percent(addresses.own), percent(addresses.total))
        }
        _ => String::new(),
    };
    let beside = [label.short_object(), &share, &user].map(text::width).iter().sum::<usize>();
    let room = usize::from(area.width).saturating_sub(beside + if user.is_empty() { 9 } else { 11 });
    let name = fit_name(&app.scene.shown_name(label), (room / 2).max(room.saturating_sub(text::width(&file))));
    let mut x = put(buffer, area, area.x + 1, area.y, &name, app.scene.theme.strong());
    if !label.object.is_empty() {
        x = put(buffer, area, x + 2, area.y, label.short_object(), app.scene.theme.dim());
    }
    let room = room.saturating_sub(text::width(&name));
    let file = if text::width(&file) <= room { file } else { format!("…{}", text::tail(&file, room.saturating_sub(1))) };
    x = put(buffer, area, x + 2, area.y, &file, Style::new());
    if !user.is_empty() {
        x = put(buffer, area, x + 2, area.y, &user, app.scene.theme.strong());
    }
    put(buffer, area, x + 2, area.y, &share, app.scene.theme.dim());
}

/// Draws the meaning of the columns, and the keys that are hard to guess.
fn draw_heading(app: &App, source: &Source, rows: &Rows, area: Rect, y: u16, buffer: &mut Buffer) {
    let digits = digits(source, rows);
    let (place, what, other) = match source.pane {
        Pane::Source => ("line", "source", "instructions"),
        Pane::Code => ("address", "instruction", "source"),
    };
    let heading = format!("{:>7} {:>7}  {:10} {place:>digits$}  {what}", "self %", "total %", "");
    let x = put(buffer, area, area.x, y, &heading, app.scene.theme.dim());
    let keys = [(Action::NextMatch, "next hot row"), (Action::NextView, other), (Action::Source, "closes")];
    let words: Vec<String> = keys.iter().map(|(action, what)| format!("{} {what}", app.scene.keys.first(*action))).collect();
    put(buffer, area, x + 3, y, &words.join("  "), app.scene.theme.key());
}

fn draw_rows(app: &App, source: &Source, rows: &Rows, area: Rect, buffer: &mut Buffer) {
    let Position { at, scroll } = source.place;
    let digits = digits(source, rows);
    for (y, (index, row)) in (area.y..area.bottom()).zip(rows.rows.iter().enumerate().skip(scroll)) {
        let line = Rect::new(area.x, y, area.width, 1);
        draw_row(app, source, index, row, digits, line, buffer);
        if index == at {
            buffer.set_style(line, app.scene.theme.selected());
        }
    }
}

/// Columns of a bar.
const BAR: u16 = 10;

fn draw_row(app: &App, source: &Source, index: usize, row: &Row, digits: usize, line: Rect, buffer: &mut Buffer) {
    let (own, total) = source.weights.rows.get(index).copied().unwrap_or_default();
    let whole = source.whole();
    // Rows without samples show no figures, because figures attract the eye.
    let share = |part: u64| if part == 0 { String::new() } else { text::percent(part.min(whole), whole) };
    let figures = format!("{:>7} {:>7}  ", share(own), share(total));
    let x = put(buffer, line, line.x, line.y, &figures, if own > 0 { Style::new() } else { app.scene.theme.dim() });
    let place = Rect { x, width: BAR.min(line.right().saturating_sub(x)), ..line };
    // What the line calls is darker than what it does itself.
    let part = |part: u64| part.min(whole) as f64 / whole.max(1) as f64;
    bar(&app.scene, part(total), place, app.scene.theme.dim(), buffer);
    // Ends at a whole cell: a part of a cell would leave a gap in the bar of the total.
    let of_own = if own < total { (part(own) * f64::from(BAR)).round() / f64::from(BAR) } else { part(own) };
    bar(&app.scene, of_own, place, app.scene.theme.bar(), buffer);
    let x = x + BAR;
    let place = match source.pane {
        Pane::Source => format!(" {:>digits$}  ", row.place),
        Pane::Code => format!(" {:>digits$x}  ", row.place),
    };
    let x = put(buffer, line, x, line.y, &place, app.scene.theme.dim());
    let hidden = text::head(&row.text, source.shift).len();
    let hot = total * 10 >= whole.max(1);
    put(buffer, line, x, line.y, &row.text[hidden..], if hot { app.scene.theme.strong() } else { Style::new() });
}

/// Returns the columns of the largest line number or address.
fn digits(source: &Source, rows: &Rows) -> usize {
    let last = rows.rows.last().map_or(0, |row| row.place);
    match source.pane {
        Pane::Source => last.to_string().len().max(4),
        Pane::Code => format!("{last:x}").len().max(7),
    }
}

/// Describes the weight of the row under the cursor, with the whole name of the function.
pub(super) fn describe(app: &App, source: &Source) -> String {
    let name = app.scene.names.labels.name(source.label);
    let at = source.place.at;
    let Some((own, total)) = source.weights.rows.get(at) else { return format!(" {name}") };
    let percent = |part: u64| text::percent(part.min(source.whole()), source.whole());
    let (elsewhere, whole) = (source.weights.elsewhere.0, source.whole());
    let rest = if elsewhere * 100 > whole && source.whole() > 0 && !source.is_unnamed() {
        format!("  {} % are elsewhere", text::percent(elsewhere, whole))
    } else {
        String::new()
    };
    format!(
        " here: self {} ({} %)  total {} ({} %) of {}{rest}  {name}",
        app.scene.amount(*own),
        percent(*own),
        app.scene.amount((*total).min(whole)),
        percent(*total),
        app.scene.amount_with_unit(whole)
    )
}
