//! View 4: when it ran. A column for each second, its beginning at the top.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

use super::map::{Grid, TimeMap, begin_of, weight_of};
use crate::profile::{HeatMap, PARTS, SLOTS, TimeRange};
use crate::ui::keys::Action;
use crate::ui::scene::Scene;
use crate::ui::text;

use crate::ui::paint::put;

/// From nothing to all CPUs, where a cell has one colour.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];
const ASCII_SHADES: [&str; 5] = [" ", ".", "-", "+", "#"];

/// Draws the map, or why there is none.
pub(super) fn draw(map: &TimeMap, scene: &Scene, area: Rect, buffer: &mut Buffer) {
    if scene.status.frequency == 0 {
        put(buffer, area, area.x + 1, area.y, "a file of folded stacks does not tell when", scene.theme.dim());
        return;
    }
    let Some(heat) = scene.snapshot.heat.as_deref() else {
        put(buffer, area, area.x + 1, area.y, "counting …", scene.theme.dim());
        return;
    };
    let Some(grid) = map.grid(scene, area) else { return };
    let milliseconds = |slots: u64| slots * 1000 / SLOTS as u64;
    let more = if scene.shown_event().is_some() { "more events" } else { "busier" };
    let heading = format!("a column is a second, a row {} ms of it; brighter is {more}", milliseconds(grid.slots));
    put(buffer, area, area.x + 1, area.y, &heading, scene.theme.dim());
    let full = full(scene, heat, &grid);
    let lines = grid.rows().div_ceil(u64::from(grid.rows_a_line)) as u16;
    for line in 0..lines.min(grid.area.height) {
        let row = u64::from(line * grid.rows_a_line);
        // Four or five labels are enough to read all rows by.
        if line.is_multiple_of(lines.div_ceil(5)) {
            let label = format!("{:>4} ms", milliseconds(row * grid.slots));
            put(buffer, area, area.x, grid.area.y + line, &label, scene.theme.dim());
        }
        draw_line(map, scene, heat, (&grid, full), line, buffer);
    }
}

/// What a row of a second weighs at most: all CPUs busy; of events, the most that there was.
fn full(scene: &Scene, heat: &HeatMap, grid: &Grid) -> f64 {
    if scene.ticks() > 0 {
        return f64::from(scene.ticks()) * PARTS as f64 * scene.status.cpus as f64 * grid.slots as f64 / SLOTS as f64;
    }
    let slots = heat.first_second * SLOTS as u64..(heat.first_second + heat.seconds.len() as u64) * SLOTS as u64;
    slots.step_by(grid.slots.max(1) as usize).map(|slot| weight_of(heat, slot, grid.slots)).max().unwrap_or(0) as f64
}

fn draw_line(map: &TimeMap, scene: &Scene, heat: &HeatMap, (grid, full): (&Grid, f64), line: u16, buffer: &mut Buffer) {
    let y = grid.area.y + line;
    let seconds = u64::from(grid.area.width / grid.columns);
    let selected = map.selection(heat, grid.slots);
    for second in 0..seconds {
        let slot_in = |row: u64| (grid.first_second + second) * SLOTS as u64 + row * grid.slots;
        let row = u64::from(line * grid.rows_a_line);
        let is_selected = |slot: u64| (selected.0..selected.1).contains(&slot);
        let x = grid.area.x + second as u16 * grid.columns;
        if grid.first_second + second >= heat.first_second + heat.seconds.len() as u64 {
            break;
        }
        let (upper, lower) = (slot_in(row), slot_in(row + 1));
        for column in x..x + grid.columns {
            let Some(cell) = buffer.cell_mut((column, y)) else { continue };
            if grid.rows_a_line == 2 {
                // What is yet to come is no idle time.
                let is_past = |slot: u64| begin_of(slot) <= scene.snapshot.now || is_selected(slot);
                if !is_past(upper) {
                    continue;
                }
                let colour = |slot: u64| match is_past(slot) {
                    true => scene.theme.heat(busy(heat, grid, slot, full), is_selected(slot), in_range(scene, slot)),
                    false => Color::Reset,
                };
                cell.set_symbol("▀").set_style(Style::new().fg(colour(upper)));
                if row + 1 < grid.rows() {
                    cell.set_bg(colour(lower));
                }
            } else {
                let shades = if scene.theme.ascii { &ASCII_SHADES } else { &SHADES };
                let shade = (busy(heat, grid, upper, full) * 4.0).ceil().clamp(0.0, 4.0) as usize;
                cell.set_symbol(shades[shade]);
                cell.set_style(if is_selected(upper) { scene.theme.selected() } else { scene.theme.bar() });
            }
        }
    }
}

/// How busy all CPUs were in a row of a second: 0 to 1.
fn busy(heat: &HeatMap, grid: &Grid, slot: u64, full: f64) -> f64 {
    (weight_of(heat, slot, grid.slots) as f64 / full.max(1.0)).min(1.0)
}

/// Whether what is looked at in the other views has this moment in it.
fn in_range(scene: &Scene, slot: u64) -> bool {
    match scene.snapshot.request.query.range {
        TimeRange::All | TimeRange::Fading(..) => true,
        TimeRange::Last(span) => begin_of(slot).0 >= scene.snapshot.now.0.saturating_sub(span),
        TimeRange::Between(from, to) => (from..to).contains(&begin_of(slot)),
    }
}

/// What is under the cursor or selected, in words.
pub(super) fn describe(map: &TimeMap, scene: &Scene) -> String {
    let Some((heat, grid)) = scene.snapshot.heat.as_deref().zip(map.grid(scene, scene.areas().body)) else {
        return String::new();
    };
    let (from, to) = map.selection(heat, grid.slots);
    let length = begin_of(to).since(begin_of(from));
    // A second at a time: a day has four million slots.
    let second_end = |slot: u64| (slot / SLOTS as u64 + 1) * SLOTS as u64;
    let parts = std::iter::successors(Some(from), |at| Some(second_end(*at))).take_while(|at| *at < to);
    let weight: u64 = parts.map(|at| weight_of(heat, at, second_end(at).min(to) - at)).sum();
    let busy = match scene.ticks() {
        0 => format!("{} events", text::grouped(weight / PARTS)),
        ticks => format!("{:.1} CPUs busy", weight as f64 / PARTS as f64 / f64::from(ticks) / (length as f64 / 1e9)),
    };
    let ago = scene.snapshot.now.since(begin_of(from)) as f64 / 1e9;
    let key = scene.keys.first(Action::ZoomIn);
    let what = match map.anchor {
        None => format!("{key} begins a selection here"),
        Some(_) => format!("{key} shows what ran in these {} s", text::seconds(length)),
    };
    format!(" {ago:.2} s ago: {busy}   {what}")
}
