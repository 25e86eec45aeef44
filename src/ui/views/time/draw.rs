//! Draws view 4: CPU use over time. Each second is a column; its time runs from top to bottom.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

use super::map::{Grid, TimeMap, begin_of, weight_of};
use crate::profile::{HeatMap, PARTS, SLOTS, TimeRange, Timestamp};
use crate::ui::keys::Action;
use crate::ui::scene::Scene;
use crate::ui::text;

use crate::ui::paint::put;

/// Shades from idle to all CPUs busy, for terminals where a cell has one colour.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];
const ASCII_SHADES: [&str; 5] = [" ", ".", "-", "+", "#"];

/// Draws the map, or the reason why there is none.
pub(super) fn draw(map: &TimeMap, scene: &Scene, area: Rect, buffer: &mut Buffer) {
    if !scene.has().time {
        put(buffer, area, area.x + 1, area.y, "the samples of this file have no times", scene.theme.dim());
        return;
    }
    let Some(heat) = scene.snapshot.heat.as_deref() else {
        put(buffer, area, area.x + 1, area.y, "counting …", scene.theme.dim());
        return;
    };
    let Some(grid) = map.grid(scene, area) else { return };
    let row = grid.slots * 1000 / SLOTS as u64;
    let heading = format!("one column is 1 s, from top to bottom; one row is {row} ms");
    let x = put(buffer, area, area.x + 1, area.y, &heading, scene.theme.dim());
    draw_key(scene, Rect { x: x + 3, width: area.right().saturating_sub(x + 3), height: 1, ..area }, buffer);
    let full = full(scene, heat, &grid);
    for line in 0..grid.area.height {
        draw_line(map, scene, heat, (&grid, full), line, buffer);
    }
    // Four labels are enough to read all rows.
    for label in 0..4u16 {
        let line = grid.area.y + label * grid.area.height / 4;
        put(buffer, area, area.x, line, &format!("{:>4} ms", label * 250), scene.theme.dim());
    }
    draw_axis(scene, heat, &grid, buffer);
}

/// Draws the key of colours, from idle to all CPUs busy (for other weights, to the most). Draws nothing if it does not fit.
fn draw_key(scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let most = scene.all_busy().map_or_else(|| "most".to_owned(), |_| text::cpus(scene.status.cpus));
    if usize::from(area.width) < 12 + text::width(&most) {
        return;
    }
    let mut x = put(buffer, area, area.x, area.y, "0 ", scene.theme.dim());
    for step in 0..8u16 {
        let busy = f64::from(step) / 7.0;
        let (symbol, style) = match scene.theme.fractional() {
            true => ("█", Style::new().fg(scene.theme.heat(busy, false, true))),
            false => (shade(scene, busy), scene.theme.bar()),
        };
        x = put(buffer, area, x, area.y, symbol, style);
    }
    put(buffer, area, x + 1, area.y, &most, scene.theme.dim());
}

/// Draws the times of day below the map, or the age of the columns.
fn draw_axis(scene: &Scene, heat: &HeatMap, grid: &Grid, buffer: &mut Buffer) {
    const APART: u64 = 16;
    let axis = Rect { y: grid.area.bottom(), height: 1, ..grid.area };
    let columns = u64::from(grid.columns);
    let seconds = u64::from(axis.width) / columns;
    // Labels stand at round times.
    let apart = [1, 2, 5, 10, 15, 30, 60].into_iter().find(|apart| apart * columns >= APART).unwrap_or(60);
    let newest = heat.first_second + heat.seconds.len() as u64;
    for second in grid.first_second..(grid.first_second + seconds).min(newest) {
        let at = Timestamp(second * 1_000_000_000);
        let (words, is_round) = match scene.time_of_day(at) {
            Some(time) => (time, scene.second_of_day(at).is_some_and(|of_day| of_day.is_multiple_of(apart))),
            None => {
                let ago = scene.snapshot.now.since(at) / 1_000_000_000;
                (format!("{ago} s ago"), ago.is_multiple_of(apart))
            }
        };
        let x = axis.x + ((second - grid.first_second) * columns) as u16;
        if is_round && text::width(&words) < usize::from(axis.right() - x) {
            let tick = if scene.theme.ascii { "|" } else { "└" };
            let after = put(buffer, axis, x, axis.y, tick, scene.theme.dim());
            put(buffer, axis, after, axis.y, &words, scene.theme.dim());
        }
    }
}

/// Returns the weight at which a row has the strongest colour: that of all CPUs busy, or, if that is not known, the largest weight of a row.
fn full(scene: &Scene, heat: &HeatMap, grid: &Grid) -> f64 {
    if let Some(all) = scene.all_busy() {
        return all as f64 * PARTS as f64 * grid.slots as f64 / SLOTS as f64;
    }
    let slots = heat.first_second * SLOTS as u64..(heat.first_second + heat.seconds.len() as u64) * SLOTS as u64;
    slots.step_by(grid.slots.max(1) as usize).map(|slot| weight_of(heat, slot, grid.slots)).max().unwrap_or(0) as f64
}

fn draw_line(map: &TimeMap, scene: &Scene, heat: &HeatMap, (grid, full): (&Grid, f64), line: u16, buffer: &mut Buffer) {
    let y = grid.area.y + line;
    let (from, to) = map.selection(heat, grid.slots);
    let is_selected = |slot: u64| (from..to).contains(&slot);
    // Time in the future is not idle time.
    let is_past = |slot: u64| begin_of(slot) <= scene.snapshot.now || is_selected(slot);
    let newest = heat.first_second + heat.seconds.len() as u64;
    let seconds = u64::from(grid.area.width / grid.columns);
    for second in grid.first_second..(grid.first_second + seconds).min(newest) {
        let slot_of = |part: u16| second * SLOTS as u64 + grid.row_at(line, part) * grid.slots;
        let x = grid.area.x + (second - grid.first_second) as u16 * grid.columns;
        let (upper, lower) = (slot_of(0), slot_of(1));
        for column in x..x + grid.columns {
            let Some(cell) = buffer.cell_mut((column, y)).filter(|_| is_past(upper)) else { continue };
            if grid.parts == 2 {
                let colour = |slot: u64| match is_past(slot) {
                    true => scene.theme.heat(busy(heat, grid, slot, full), is_selected(slot), in_range(scene, slot)),
                    false => Color::Reset,
                };
                cell.set_symbol("▀").set_style(Style::new().fg(colour(upper)).bg(colour(lower)));
            } else {
                cell.set_symbol(shade(scene, busy(heat, grid, upper, full)));
                cell.set_style(if is_selected(upper) { scene.theme.selected() } else { scene.theme.bar() });
            }
        }
    }
}

fn shade(scene: &Scene, busy: f64) -> &'static str {
    let shades = if scene.theme.ascii { &ASCII_SHADES } else { &SHADES };
    shades[((busy * 4.0).ceil() as usize).min(4)]
}

/// Returns the weight of the row that begins at `slot` as a part of `full`, from 0 to 1.
fn busy(heat: &HeatMap, grid: &Grid, slot: u64, full: f64) -> f64 {
    (weight_of(heat, slot, grid.slots) as f64 / full.max(1.0)).min(1.0)
}

/// Returns whether the time range of the other views contains this moment.
fn in_range(scene: &Scene, slot: u64) -> bool {
    match scene.snapshot.request.query.range {
        TimeRange::All | TimeRange::Fading(..) => true,
        TimeRange::Last(span) => begin_of(slot).0 >= scene.snapshot.now.0.saturating_sub(span),
        TimeRange::Between(from, to) => (from..to).contains(&begin_of(slot)),
    }
}

/// Describes the time under the cursor, or the selected time.
pub(super) fn describe(map: &TimeMap, scene: &Scene) -> String {
    let Some((heat, grid)) = scene.snapshot.heat.as_deref().zip(map.grid(scene, scene.areas().body)) else {
        return String::new();
    };
    let (from, to) = map.selection(heat, grid.slots);
    let length = begin_of(to).since(begin_of(from));
    // The search goes a second at a time: a day has four million slots.
    let second_end = |slot: u64| (slot / SLOTS as u64 + 1) * SLOTS as u64;
    let parts = std::iter::successors(Some(from), |at| Some(second_end(*at))).take_while(|at| *at < to);
    let weight: u64 = parts.map(|at| weight_of(heat, at, second_end(at).min(to) - at)).sum();
    let busy = match scene.ticks() {
        0 => scene.with_unit(weight / PARTS),
        ticks => format!("{:.1} CPUs busy", weight as f64 / PARTS as f64 / f64::from(ticks) / (length as f64 / 1e9)),
    };
    let ago = |slot: u64| scene.snapshot.now.since(begin_of(slot)) as f64 / 1e9;
    let key = scene.keys.first(Action::ZoomIn);
    match map.anchor {
        None => format!(" {:.2} s ago: {busy}   {key} begins a selection here", ago(from)),
        Some(_) => {
            let length = text::seconds(length);
            format!(" from {:.2} to {:.2} s ago ({length} s): {busy}   {key} shows this range", ago(from), ago(to))
        }
    }
}
