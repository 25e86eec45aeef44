//! Draws view 3: processes and threads, as top shows them, each with its hottest function.
//!
//! ```text
//!     PID user      CPU % ▼          CPU time  thr  process                                     hottest function
//!   26952 root       47.8 ████████     3.36 s    1    python3  -c while True: sum(range(9))       ▌builtin_sum
//!         root        3.7 ▌            0.23 s       ▸ gcc ×23  exited
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::rows::{ProcessRow, ProcessSort, ProcessSums, Processes};
use crate::profile::{ActivityRow, Tgid, ViewBuilder};
use crate::ui::detail::DetailLine;
use crate::ui::names::fit_name;
use crate::ui::paint::{bar, put, put_right};
use crate::ui::scene::Scene;
use crate::ui::table;
use crate::ui::text;

/// Least columns of a screen with users and numbers of threads.
const WIDE: u16 = 100;

/// Least columns of a screen with hottest functions.
const VERY_WIDE: u16 = 120;

/// The columns of the table, and the weight of a full bar.
struct Layout {
    number: Rect,
    user: Option<Rect>,
    recent: Rect,
    bar: Rect,
    amount: Rect,
    threads: Option<Rect>,
    name: u16,
    hottest: Option<u16>,
    by: ProcessSort,
    full: f64,
    /// Sampling has ended: CPU use is that of the whole time, not of the last seconds.
    is_over: bool,
}

impl Layout {
    fn new(processes: &Processes, scene: &Scene, rows: &[ProcessRow], area: Rect) -> Layout {
        let is_wide = area.width >= WIDE;
        let mut x = area.x;
        let mut column = |width: u16, gap: u16| {
            let column = Rect { x, width, ..area };
            x += width + gap;
            column
        };
        let number = column(8, 1);
        let user = is_wide.then(|| column(8, 1));
        let recent = column(7, 1);
        let bar = column(if is_wide { 8 } else { 5 }, 1);
        let amount = column(8, 1);
        let threads = is_wide.then(|| column(4, 2));
        let by = match processes.sort {
            ProcessSort::Samples => ProcessSort::Samples,
            ProcessSort::Cpu | ProcessSort::Name | ProcessSort::Pid => ProcessSort::Cpu,
        };
        let hottest = (area.width >= VERY_WIDE).then(|| area.right() - (area.width / 4).clamp(20, 44));
        let is_over = !scene.status.live && !scene.is_file();
        let by = if is_over { ProcessSort::Samples } else { by };
        let most = rows.iter().map(|row| figure(row, by)).max().unwrap_or(0);
        // The bar of CPU use is full at one CPU at least: on an idle machine all bars are short.
        let least = if by == ProcessSort::Cpu { u64::from(scene.ticks()) * ViewBuilder::RECENT / 1_000_000_000 } else { 0 };
        Layout { number, user, recent, bar, amount, threads, name: x, hottest, by, full: most.max(least) as f64, is_over }
    }
}

/// The weights of a row: of the last seconds, and of the range.
fn weights(row: &ProcessRow) -> (u64, u64) {
    match row {
        ProcessRow::Exited { sums, .. } | ProcessRow::Process { sums, .. } => (sums.recent, sums.shown),
        ProcessRow::Thread { row } => (row.recent, row.shown),
    }
}

/// The weight of a row that its bar shows.
fn figure(row: &ProcessRow, by: ProcessSort) -> u64 {
    let (recent, shown) = weights(row);
    if by == ProcessSort::Samples { shown } else { recent }
}

/// Draws the table.
pub(super) fn draw(processes: &Processes, scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let rows = processes.rows(&scene.snapshot, &scene.names);
    let layout = Layout::new(processes, scene, &rows, area);
    draw_heading(processes, scene, area, &layout, buffer);
    if rows.is_empty() {
        put(buffer, area, area.x + 1, area.y + 1, &nothing(scene), scene.theme.dim());
    }
    let draw_row = |scene: &Scene, row: &ProcessRow, line: Rect, buffer: &mut Buffer| draw_row(scene, row, line, &layout, buffer);
    table::draw(scene, area, (processes.position, &rows), draw_row, buffer);
}

/// Why there is no row.
fn nothing(scene: &Scene) -> String {
    match scene.filters().last() {
        Some(filter) => {
            let key = scene.keys.first(crate::ui::keys::Action::RemoveFilter);
            format!("no process matches /{}/; {key} removes the filter", filter.pattern.source())
        }
        None if !scene.target().is_everything() => "nothing that was chosen has run in this time".to_owned(),
        None => "nothing has run in this time".to_owned(),
    }
}

fn draw_heading(processes: &Processes, scene: &Scene, area: Rect, layout: &Layout, buffer: &mut Buffer) {
    let dim = scene.theme.dim();
    let marked =
        |words: &str, sort| format!("{words}{}", if processes.sort == sort { table::sorted_by(&scene.theme) } else { "" });
    let recent = if scene.shown_event().is_some() { "ev/s" } else { "CPU %" };
    let amount = if scene.ticks() == 0 { scene.unit_word() } else { "CPU time" };
    put_right(buffer, layout.number, area.y, &marked("PID", ProcessSort::Pid), dim);
    if let Some(column) = layout.user {
        put(buffer, column, column.x, area.y, "user", dim);
    }
    put_right(buffer, layout.recent, area.y, &marked(recent, ProcessSort::Cpu), dim);
    put(buffer, layout.bar, layout.bar.x, area.y, if layout.by == ProcessSort::Cpu { "3 s" } else { "all" }, dim);
    // The sign has the blank before the column, too.
    let column = Rect { x: layout.amount.x - 2, width: layout.amount.width + 2, ..layout.amount };
    put_right(buffer, column, area.y, &marked(amount, ProcessSort::Samples), dim);
    if let Some(column) = layout.threads {
        put_right(buffer, column, area.y, "thr", dim);
    }
    put(buffer, area, layout.name + 2, area.y, &marked("process", ProcessSort::Name), dim);
    if let Some(x) = layout.hottest {
        put(buffer, area, x, area.y, "hottest function, 3 s", dim);
    }
}

fn draw_row(scene: &Scene, row: &ProcessRow, line: Rect, layout: &Layout, buffer: &mut Buffer) {
    let theme = &scene.theme;
    let at = |column: Rect| Rect { y: line.y, ..column };
    let (recent, shown) = weights(row);
    let (number, is_gone) = match row {
        ProcessRow::Exited { .. } => (String::new(), true),
        ProcessRow::Process { sums, exited, .. } => (sums.tgid.to_string(), *exited),
        ProcessRow::Thread { row } => (row.thread.tid.to_string(), false),
    };
    let plain = if is_gone { theme.dim() } else { Style::new() };
    put_right(buffer, at(layout.number), line.y, &number, plain);
    if let Some(column) = layout.user.map(at).filter(|_| !matches!(row, ProcessRow::Thread { .. })) {
        put(buffer, column, column.x, line.y, &user_of(scene, tgid_of(row)), theme.dim());
    }
    put_right(
        buffer,
        at(layout.recent),
        line.y,
        &format!("{:.1}", if layout.is_over { whole_use(scene, shown) } else { recent_use(scene, recent) }),
        plain,
    );
    let part = figure(row, layout.by) as f64 / layout.full.max(1.0);
    bar(scene, part, at(layout.bar), if is_gone { theme.dim() } else { theme.bar() }, buffer);
    put_right(buffer, at(layout.amount), line.y, &scene.counted(shown), plain);
    if let (Some(column), ProcessRow::Process { sums, .. }) = (layout.threads, row) {
        put_right(buffer, at(column), line.y, &sums.threads.len().to_string(), theme.dim());
    }
    let names = Rect { width: layout.hottest.map_or(line.right(), |x| x - 2).saturating_sub(line.x), ..line };
    draw_name(scene, row, names, layout.name, buffer);
    let process = if let ProcessRow::Process { sums, .. } = row { scene.snapshot.processes.get(&sums.tgid) } else { None };
    let hottest = process.and_then(|process| scene.names.labels.get(scene.names.labels.current(process.hottest?)));
    if let (Some(x), Some(label)) = (layout.hottest, hottest) {
        if theme.fractional() {
            put(buffer, line, x, line.y, "▌", Style::new().fg(theme.frame(Some(label), false, false, 0.0).ground));
        }
        let room = usize::from(line.right().saturating_sub(x + 1));
        put(buffer, line, x + 1, line.y, &fit_name(&scene.shown_name(label), room), plain);
    }
}

fn draw_name(scene: &Scene, row: &ProcessRow, line: Rect, mut x: u16, buffer: &mut Buffer) {
    let theme = &scene.theme;
    let (opened, closed) = if theme.ascii { ("- ", "+ ") } else { ("▾ ", "▸ ") };
    let name_of = |sums: &ProcessSums| scene.names.labels.name(sums.name).to_owned();
    let gone = theme.dim().add_modifier(Modifier::BOLD);
    match row {
        ProcessRow::Exited { sums, processes, open } => {
            let times = if theme.ascii { 'x' } else { '×' };
            x = put(buffer, line, x, line.y, if *open { opened } else { closed }, theme.dim());
            x = put(buffer, line, x, line.y, &format!("{} {times}{}", name_of(sums), processes.len()), gone);
            put(buffer, line, x + 2, line.y, "exited", theme.dim());
        }
        ProcessRow::Process { sums, open, exited, folded } => {
            x += 2 * u16::from(*folded);
            let sign = match (sums.threads.len() > 1, *open) {
                (true, true) => opened,
                (true, false) => closed,
                _ => "  ",
            };
            x = put(buffer, line, x, line.y, sign, theme.dim());
            let name = name_of(sums);
            x = put(buffer, line, x, line.y, &name, if *exited { gone } else { theme.strong() });
            if *exited {
                x = put(buffer, line, x + 2, line.y, "exited", theme.dim());
            }
            if let Some(process) = scene.snapshot.processes.get(&sums.tgid) {
                put(buffer, line, x + 2, line.y, arguments(&process.command, &name), theme.dim());
            }
        }
        ProcessRow::Thread { row } => {
            put(buffer, line, x + 4, line.y, scene.names.labels.name(row.thread.name), Style::new());
        }
    }
}

/// A command without its directory, and without its name if that is the process's.
fn arguments<'a>(command: &'a str, name: &str) -> &'a str {
    let program = command.split(' ').next().unwrap_or_default();
    let begin = program.rfind('/').map_or(0, |at| at + 1);
    let short = command.get(begin..).unwrap_or_default();
    short.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with(' ')).map_or(short, str::trim_start)
}

fn tgid_of(row: &ProcessRow) -> Tgid {
    match row {
        ProcessRow::Exited { sums, processes, .. } => processes.first().copied().unwrap_or(sums.tgid),
        ProcessRow::Process { sums, .. } => sums.tgid,
        ProcessRow::Thread { row } => row.thread.tgid,
    }
}

/// The name of a process's user, or the number of one without a name.
fn user_of(scene: &Scene, tgid: Tgid) -> String {
    let Some(user) = scene.snapshot.processes.get(&tgid).and_then(|process| process.user) else { return String::new() };
    scene.status.users.get(&user).map_or_else(|| user.to_string(), |name| name.to_string())
}

/// Draws the line about the row under the cursor: its whole command, its share, its cgroup.
pub(super) fn draw_detail(processes: &Processes, scene: &Scene, line: DetailLine<'_>, buffer: &mut Buffer) {
    let left = line.draw_searched(buffer);
    let rows = processes.rows(&scene.snapshot, &scene.names);
    let Some(row) = rows.get(processes.position.at) else { return };
    let (name, thread, complete, user): (_, Option<&ActivityRow>, _, _) = match row {
        ProcessRow::Exited { sums, .. } | ProcessRow::Process { sums, .. } => {
            (sums.name, sums.threads.first(), sums.complete, sums.user)
        }
        ProcessRow::Thread { row } => (row.thread.name, Some(row), row.complete, row.user),
    };
    let whole = scene.snapshot.amount();
    let mut figures = format!("{} % of what is shown", text::percent(weights(row).1, whole));
    if user > 0 {
        figures += &format!("  stacks {} % complete", text::percent(complete, user));
    }
    let cgroup = thread.and_then(|row| scene.status.cgroups.get(&row.thread.cgroup));
    if let Some(path) = cgroup.filter(|path| !path.is_empty() && &***path != "/") {
        figures += &format!("  {path}");
    }
    let command = scene.snapshot.processes.get(&tgid_of(row)).map(|process| &process.command);
    let command = command.filter(|command| !command.is_empty() && !matches!(row, ProcessRow::Exited { .. }));
    let words = command.map_or_else(|| scene.names.labels.name(name).to_owned(), |command| command.to_string());
    let most = usize::from(left.width).saturating_sub(text::width(&figures) + 4).max(usize::from(left.width) / 2);
    let x = put(buffer, left, left.x + 1, left.y, &text::cut(&words, most), scene.theme.strong());
    put(buffer, left, x + 2, left.y, &figures, Style::new());
}

/// The same over all the time that is shown.
fn whole_use(scene: &Scene, shown: u64) -> f64 {
    let seconds = scene.snapshot.seconds.filter(|seconds| *seconds > 0.0);
    let per_second = seconds.map_or(0.0, |seconds| shown as f64 / seconds);
    match scene.ticks() {
        0 => per_second,
        ticks => per_second * 100.0 / f64::from(ticks),
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

#[cfg(test)]
mod tests {
    use super::arguments;

    #[test]
    fn a_command_is_its_arguments() {
        let commands = [
            ("/usr/bin/rustc --crate-name syn", "rustc", "--crate-name syn"),
            ("rustc", "rustc", ""),
            ("/usr/bin/python3.11 /srv/app.py", "worker", "python3.11 /srv/app.py"),
            ("rustc-wrapper x", "rustc", "rustc-wrapper x"),
            ("", "kthreadd", ""),
        ];
        for (command, name, short) in commands {
            assert_eq!(arguments(command, name), short);
        }
    }
}
