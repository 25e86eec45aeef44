//! Draws view 2: functions by self and total, with callers and callees of the open one.
//!
//! ```text
//!   self ▼   total                  function                                     module                  1–40 of 2,161
//!    7.8 %   15.8 %  ████████  ▾ ▌parse                                          libparse.so
//!                                  called by  % of its total
//!            64.0 %  █████           ▸ ▌worker                                   shop
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::detail::describe;
use super::rows::{Functions, FunctionsRow};
use super::sandwich::Sandwich;
use crate::profile::{FunctionOrder, FunctionTable, LabelId, Measure, Sides};
use crate::ui::names::fit_name;
use crate::ui::paint::{bar, put, put_right};
use crate::ui::scene::Scene;
use crate::ui::table;
use crate::ui::text;

/// Columns of a share: `  37.5 %`.
const SHARE: u16 = 8;

/// Columns of a change.
const CHANGE: u16 = 8;

/// Least columns of a screen with a column of modules and long bars.
const WIDE: u16 = 110;

/// Columns of the sign that a row can be opened, and of the swatch.
const SIGNS: u16 = 3;

/// The columns of the table, and the weight of a full bar.
struct Layout {
    /// Whether a change stands beside each figure.
    is_compared: bool,
    bar: Rect,
    /// Column where the signs of a function begin, before its name.
    name: u16,
    /// Column where modules begin, if they have a column.
    module: Option<u16>,
    right: u16,
    /// The column whose values the bars show.
    by: FunctionOrder,
    full: f64,
}

impl Layout {
    fn new(functions: &Functions, scene: &Scene, area: Rect) -> Layout {
        let is_compared = scene.snapshot.difference.is_some();
        let is_wide = area.width >= WIDE;
        let figures = 2 * if is_compared { SHARE + CHANGE } else { SHARE };
        let bar = Rect { x: area.x + figures + 1, width: if is_wide { 8 } else { 5 }, ..area };
        let module = is_wide.then(|| area.right() - (area.width / 5).clamp(16, 36));
        let by = match functions.sort {
            FunctionOrder::Total => FunctionOrder::Total,
            FunctionOrder::Own | FunctionOrder::Name => FunctionOrder::Own,
        };
        let table = scene.snapshot.functions.as_deref();
        let full = table.map_or(0.0, |table| longest_bar(table, scene, by));
        Layout { is_compared, bar, name: bar.right() + 1, module, right: area.right(), by, full }
    }
}

/// Returns the figure behind a row's bar: the change in a comparison, the weight otherwise.
fn figure(scene: &Scene, part: Sides) -> f64 {
    scene.snapshot.difference.as_ref().map_or(part.now as f64, |difference| difference.change(part).by.abs())
}

fn longest_bar(table: &FunctionTable, scene: &Scene, by: FunctionOrder) -> f64 {
    let part = |row: &crate::profile::FunctionRow| if by == FunctionOrder::Total { row.total } else { row.own };
    table.rows.iter().map(|row| figure(scene, part(row))).fold(0.0, f64::max)
}

/// Draws the table.
pub(super) fn draw(functions: &Functions, scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let (area, sandwich) = Sandwich::beside(functions, scene, area);
    if let Some(sandwich) = &sandwich {
        sandwich.draw(scene, functions.rows(&scene.snapshot).get(functions.position.at), buffer);
    }
    let layout = Layout::new(functions, scene, area);
    draw_heading(functions, scene, area, &layout, buffer);
    if scene.snapshot.functions.is_none() {
        put(buffer, area, area.x + 1, area.y + 1, "counting …", scene.theme.dim());
        return;
    }
    let rows = functions.rows(&scene.snapshot);
    let draw_row = |scene: &Scene, row: &FunctionsRow, line: Rect, buffer: &mut Buffer| {
        let layout = Layout { right: line.right(), bar: Rect { y: line.y, ..layout.bar }, ..layout };
        draw_row(scene, row, line, &layout, buffer);
    };
    table::draw(scene, area, (functions.position, &rows), draw_row, buffer);
    table::show_hovered(scene, area, (functions.position, &rows), |row| describe(scene, row), buffer);
}

fn draw_heading(functions: &Functions, scene: &Scene, area: Rect, layout: &Layout, buffer: &mut Buffer) {
    let dim = scene.theme.dim();
    let mut x = area.x;
    let by = scene.change_unit();
    for (words, order) in [("self", FunctionOrder::Own), ("total", FunctionOrder::Total)] {
        let mark = if functions.sort == order { table::sorted_by(&scene.theme) } else { "  " };
        let column = Rect { width: SHARE, ..area };
        put_right(buffer, Rect { x, ..column }, area.y, &format!("{words}{mark}"), dim);
        x += SHARE;
        if layout.is_compared {
            put_right(buffer, Rect { x, width: CHANGE - 1, ..area }, area.y, by, dim);
            x += CHANGE;
        }
    }
    let mark = if functions.sort == FunctionOrder::Name { table::sorted_by(&scene.theme) } else { "" };
    put(buffer, area, layout.name + SIGNS, area.y, &format!("function{mark}"), dim);
    if let Some(x) = layout.module {
        put(buffer, area, x, area.y, "module", dim);
    }
}

fn draw_row(scene: &Scene, row: &FunctionsRow, line: Rect, layout: &Layout, buffer: &mut Buffer) {
    let theme = &scene.theme;
    let (opened, closed) = if theme.ascii { ("- ", "+ ") } else { ("▾ ", "▸ ") };
    match row {
        FunctionsRow::Function { label, own, total, open } => {
            let x = draw_figures(scene, *own, line, line.x, buffer);
            draw_figures(scene, *total, line, x, buffer);
            let part = if layout.by == FunctionOrder::Total { *total } else { *own };
            let style = match &scene.snapshot.difference {
                Some(difference) => theme.changed(difference.change(part)),
                None => theme.bar(),
            };
            bar(scene, figure(scene, part) / layout.full, layout.bar, style, buffer);
            put(buffer, line, layout.name, line.y, if *open { opened } else { closed }, theme.dim());
            draw_name(scene, *label, line, layout.name + SIGNS - 1, layout, buffer);
        }
        FunctionsRow::Heading { callers } => {
            let words = if *callers { "called by" } else { "calls" };
            let x = put(buffer, line, layout.name + SIGNS + 1, line.y, words, theme.key());
            put(buffer, line, x, line.y, ", % of its total", theme.dim());
        }
        FunctionsRow::Node { path, weight, of, children, open, .. } => {
            let figures = format!("{:>6} %", text::percent(*weight, *of));
            let x = line.x + if layout.is_compared { SHARE + CHANGE } else { SHARE };
            put(buffer, line, x, line.y, &figures, theme.dim());
            bar(scene, *weight as f64 / (*of).max(1) as f64, layout.bar, theme.dim(), buffer);
            let indent = layout.name + 2 * u16::try_from(path.len().min(40)).unwrap_or(40);
            let sign = match (children, open) {
                (true, true) => opened,
                (true, false) => closed,
                _ => "  ",
            };
            put(buffer, line, indent, line.y, sign, theme.dim());
            if let Some(label) = path.last() {
                draw_name(scene, *label, line, indent + SIGNS - 1, layout, buffer);
            }
        }
    }
}

/// Draws the share of a function; beside a baseline its share or rate, and the change. Returns the column after it.
fn draw_figures(scene: &Scene, part: Sides, line: Rect, x: u16, buffer: &mut Buffer) -> u16 {
    let share = text::percent(part.now, scene.snapshot.weight());
    let Some(difference) = &scene.snapshot.difference else {
        put(buffer, line, x, line.y, &format!("{share:>6} %"), Style::new());
        return x + SHARE;
    };
    let change = difference.change(part);
    let now = match difference.measure() {
        Measure::Shares => format!("{share:>6} %"),
        Measure::Rates { now: seconds, .. } => format!("{:>8}", scene.rate(part.now as f64 / seconds)),
    };
    put(buffer, line, x, line.y, &now, Style::new());
    let words = if change.by == 0.0 { String::new() } else { scene.change(change) };
    put(buffer, line, x + SHARE, line.y, &format!("{words:>7}"), scene.theme.changed(change));
    x + SHARE + CHANGE
}

/// Draws a swatch of the function's colour, its name, and its module.
fn draw_name(scene: &Scene, label: LabelId, line: Rect, x: u16, layout: &Layout, buffer: &mut Buffer) {
    let Some(found) = scene.names.labels.get(label) else { return };
    let theme = &scene.theme;
    if theme.fractional() {
        put(buffer, line, x, line.y, "▌", Style::new().fg(theme.frame(Some(found), false, false, 0.0).ground));
    }
    let x = x + 1;
    let module = format!("{} {}", found.short_object(), found.kind.mark());
    let module = module.trim();
    let style = match &scene.snapshot.search {
        Some(search) if search.matches(label) => theme.found(theme.frame(Some(found), false, false, 0.0)),
        _ => theme.strong(),
    };
    let end = layout.module.map_or(layout.right, |module| module.saturating_sub(2));
    let room = usize::from(end.saturating_sub(x));
    let name = fit_name(&scene.shown_name(found), room);
    let after = put(buffer, line, x, line.y, &name, style);
    match layout.module {
        Some(x) => {
            put(buffer, line, x, line.y, module, theme.dim());
        }
        None if text::width(&name) + text::width(module) + 2 <= room => {
            put(buffer, line, after + 2, line.y, module, theme.dim());
        }
        None => {}
    }
}
