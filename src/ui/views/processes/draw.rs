//! View 3: processes and threads, as top shows them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::rows::{ProcessRow, ProcessSort, Processes};
use crate::profile::ViewBuilder;
use crate::ui::scene::Scene;
use crate::ui::text;

use crate::ui::paint::{bar, put};
use crate::ui::table;

/// Draws the table.
pub(super) fn draw(processes: &Processes, scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let mark = |sort| if processes.sort == sort { "*" } else { " " };
    let heading = format!(
        "{:>8}{} {:>6}{}{:>9}{} {:>7} {:10} {:>9}  name{}",
        "PID",
        mark(ProcessSort::Pid),
        if scene.shown_event().is_some() { "ev/s" } else { "CPU %" },
        mark(ProcessSort::Cpu),
        if scene.ticks() == 0 { scene.unit_word() } else { "CPU time" },
        mark(ProcessSort::Samples),
        "share",
        "",
        "complete",
        mark(ProcessSort::Name)
    );
    put(buffer, area, area.x, area.y, &heading, scene.theme.dim());
    let rows = processes.rows(&scene.snapshot, &scene.names);
    if rows.is_empty() {
        put(buffer, area, area.x + 1, area.y + 1, "no process has run yet", scene.theme.dim());
    }
    table::draw(scene, area, (processes.position, &rows), draw_row, buffer);
}

fn draw_row(scene: &Scene, row: &ProcessRow, line: Rect, buffer: &mut Buffer) {
    let whole = scene.snapshot.amount();
    let (opened, closed) = if scene.theme.ascii { ("- ", "+ ") } else { ("▾ ", "▸ ") };
    let (number, recent, shown, complete, user) = match row {
        ProcessRow::Exited { sums, .. } => (String::new(), sums.recent, sums.shown, sums.complete, sums.user),
        ProcessRow::Process { sums, .. } => (sums.tgid.to_string(), sums.recent, sums.shown, sums.complete, sums.user),
        ProcessRow::Thread { row } => (row.thread.tid.to_string(), row.recent, row.shown, row.complete, row.user),
    };
    let complete = if user == 0 { "-".to_owned() } else { format!("{} %", text::percent(complete, user)) };
    let figures = format!(
        "{number:>8}  {:>6} {:>9}  {:>6}% ",
        format!("{:.1}", recent_use(scene, recent)),
        scene.counted(shown),
        text::percent(shown, whole)
    );
    let x = put(buffer, line, line.x, line.y, &figures, Style::new());
    bar(scene, shown as f64 / whole.max(1) as f64, Rect { x, width: 10, ..line }, scene.theme.bar(), buffer);
    let x = x + 10;
    let mut x = put(buffer, line, x, line.y, &format!(" {complete:>9}  "), scene.theme.dim());
    match row {
        ProcessRow::Exited { sums, processes, open } => {
            let times = if scene.theme.ascii { 'x' } else { '×' };
            x = put(buffer, line, x, line.y, if *open { opened } else { closed }, scene.theme.dim());
            x = put(buffer, line, x, line.y, scene.names.labels.name(sums.name), scene.theme.strong());
            x = put(buffer, line, x, line.y, &format!(" {times}{}, ", processes.len()), scene.theme.strong());
            put(buffer, line, x, line.y, "exited", scene.theme.warning());
        }
        ProcessRow::Process { sums, open, exited, folded } => {
            x += 2 * u16::from(*folded);
            let sign = match (sums.threads.len() > 1, *open) {
                (true, true) => opened,
                (true, false) => closed,
                _ => "  ",
            };
            x = put(buffer, line, x, line.y, sign, scene.theme.dim());
            x = put(buffer, line, x, line.y, scene.names.labels.name(sums.name), scene.theme.strong());
            if sums.threads.len() > 1 {
                x = put(buffer, line, x, line.y, &format!("  {} threads", sums.threads.len()), scene.theme.dim());
            }
            if *exited {
                x = put(buffer, line, x + 2, line.y, "exited", scene.theme.warning());
            }
            if let Some((command, _)) = scene.snapshot.processes.get(&sums.tgid) {
                put(buffer, line, x + 2, line.y, command, scene.theme.dim());
            }
        }
        ProcessRow::Thread { row } => {
            put(buffer, line, x + 4, line.y, scene.names.labels.name(row.thread.name), Style::new());
        }
    }
}

/// CPU use over the last seconds, in per cent of one CPU; of events how many there were a second.
fn recent_use(scene: &Scene, recent: u64) -> f64 {
    if scene.is_file() {
        return 0.0;
    }
    let window = (ViewBuilder::RECENT as f64 / 1e9).min((scene.status.elapsed as f64).max(1.0));
    match scene.ticks() {
        0 => recent as f64 / window,
        ticks => recent as f64 * 100.0 / (f64::from(ticks) * window),
    }
}
