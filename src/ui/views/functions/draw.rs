//! View 2: functions by self and total, with callers and callees of the open one.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::rows::{Functions, FunctionsRow};
use crate::profile::{FunctionOrder, Measure, Sides};
use crate::ui::names::fit_name;
use crate::ui::scene::Scene;
use crate::ui::text;

use crate::ui::paint::{BAR, bar, put};
use crate::ui::table;

/// Draws the table.
pub(super) fn draw(functions: &Functions, scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let mark = |sort| if functions.sort == sort { "*" } else { " " };
    let by = match scene.snapshot.difference.as_ref().map(|difference| difference.measure()) {
        None => "",
        Some(Measure::Shares) => "points",
        Some(Measure::Rates { .. }) if scene.ticks() == 0 => "change",
        Some(Measure::Rates { .. }) => "CPUs",
    };
    let heading = format!(
        "{:>8}{}{by:>9}   {:>8}{}{by:>9}   {:BAR$} function{}",
        "self",
        mark(FunctionOrder::Own),
        "total",
        mark(FunctionOrder::Total),
        "",
        mark(FunctionOrder::Name),
        BAR = usize::from(BAR)
    );
    put(buffer, area, area.x, area.y, &heading, scene.theme.dim());
    if scene.snapshot.functions.is_none() {
        put(buffer, area, area.x + 1, area.y + 1, "counting …", scene.theme.dim());
        return;
    }
    let rows = functions.rows(&scene.snapshot);
    table::draw(scene, area, (functions.position, &rows), draw_row, buffer);
}

fn draw_row(scene: &Scene, row: &FunctionsRow, line: Rect, buffer: &mut Buffer) {
    let whole = scene.snapshot.weight();
    let (opened, closed) = if scene.theme.ascii { ("- ", "+ ") } else { ("▾ ", "▸ ") };
    match row {
        FunctionsRow::Function { label, own, total, open } => {
            let mut x = line.x;
            for part in [own, total] {
                x = draw_figures(scene, *part, line, x, buffer);
            }
            x = bar(scene, own.now, whole, line, x, buffer);
            x = put(buffer, line, x + 1, line.y, if *open { opened } else { closed }, scene.theme.dim());
            draw_name(scene, *label, line, x, buffer);
        }
        FunctionsRow::Heading { callers } => {
            let words = if *callers { "called by" } else { "calls" };
            put(buffer, line, line.x + 43, line.y, words, scene.theme.key());
        }
        FunctionsRow::Node { path, weight, own, children, open, .. } => {
            let figures = format!(
                "{:>8} {:>7} %   {:>8} {:>7} %",
                scene.amount(*own),
                text::percent(*own, whole),
                scene.amount(*weight),
                text::percent(*weight, whole)
            );
            put(buffer, line, line.x, line.y, &figures, scene.theme.dim());
            let indent = 43 + 2 * u16::try_from(path.len().min(40)).unwrap_or(40);
            let sign = match (children, open) {
                (true, true) => opened,
                (true, false) => closed,
                _ => "  ",
            };
            let x = put(buffer, line, line.x + indent, line.y, sign, scene.theme.dim());
            if let Some(label) = path.last() {
                draw_name(scene, *label, line, x, buffer);
            }
        }
    }
}

/// What a function weighs and its share; beside a baseline its share and how that has changed. 21 columns.
fn draw_figures(scene: &Scene, part: Sides, line: Rect, x: u16, buffer: &mut Buffer) -> u16 {
    let share = text::percent(part.now, scene.snapshot.weight());
    let Some(difference) = &scene.snapshot.difference else {
        let figures = format!("{:>8} {share:>7} %   ", scene.amount(part.now));
        return put(buffer, line, x, line.y, &figures, Style::new());
    };
    let change = difference.change(part);
    let now = match difference.measure() {
        Measure::Shares => format!("{share:>8} % "),
        Measure::Rates { now: seconds, .. } => format!("{:>8}   ", scene.rate(part.now as f64 / seconds)),
    };
    let x = put(buffer, line, x, line.y, &now, Style::new());
    let change_words = if change.by == 0.0 { String::new() } else { scene.change(change) };
    put(buffer, line, x, line.y, &format!("{change_words:>8}  "), scene.theme.changed(change))
}

fn draw_name(scene: &Scene, label: crate::profile::LabelId, line: Rect, x: u16, buffer: &mut Buffer) {
    let Some(found) = scene.names.labels.get(label) else { return };
    let room = usize::from(line.right().saturating_sub(x));
    let tail = format!("  {} {}", found.object, found.kind.mark());
    let name = fit_name(&scene.shown_name(found), room);
    let style = match &scene.snapshot.search {
        Some(search) if search.matches(label) => scene.theme.found(scene.theme.frame(Some(found), false, false, 0.0)),
        _ => scene.theme.strong(),
    };
    let x = put(buffer, line, x, line.y, &name, style);
    if text::width(&name) + text::width(&tail) <= room {
        put(buffer, line, x, line.y, tail.trim_end(), scene.theme.dim());
    }
}
