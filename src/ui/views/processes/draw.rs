//! Draws view 3: processes and threads, as top shows them, each with its hottest function.
//!
//! ```text
//!     PID user      CPU % ▼          CPU time  thr  process                                     hottest function
//!   26952 root       47.8 ████████     3.36 s    1    python3  -c while True: sum(range(9))       ▌builtin_sum
//!         root        3.7 ▌            0.23 s       ▸ gcc ×23  exited
//! ```
//!
//! In a comparison, the weight columns show the two sides and the change. Rows are ordered by the change:
//!
//! ```text
//!     PID user          now      was     CPUs ▼          process                                     hottest function
//!   26952 root         0.97     0.02    +0.95 ████████     python3  -c while True: sum(range(9))       ▌builtin_sum
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::rows::{ProcessRow, ProcessSort, ProcessSums, Processes};
use crate::profile::{Activity, ActivityRow, Measure, Tgid, ViewBuilder};
use crate::ui::detail::DetailLine;
use crate::ui::names::fit_name;
use crate::ui::paint::{bar, put, put_right};
use crate::ui::scene::Scene;
use crate::ui::table;
use crate::ui::text;

/// Least columns of a screen with users and numbers of threads.
const WIDE: u16 = 100;

/// Least columns of a screen with the weight in the range. In a comparison, the least columns with the baseline's weight.
const MEDIUM: u16 = 56;

/// Least columns of a screen with hottest functions and containers.
const VERY_WIDE: u16 = 120;

/// The columns of weights.
enum Figures {
    /// Without a comparison: CPU use of the last seconds, weight in the range, number of threads.
    Now { recent: Rect, amount: Option<Rect>, threads: Option<Rect> },
    /// The two sides of a comparison, and the change.
    Compared { now: Rect, was: Option<Rect>, change: Rect },
}

/// The columns of the table, and the weight of a full bar.
struct Layout {
    number: Rect,
    user: Option<Rect>,
    /// If a process is in a container.
    container: Option<Rect>,
    figures: Figures,
    bar: Rect,
    name: u16,
    hottest: Option<u16>,
    by: ProcessSort,
    full: f64,
    /// Whether sampling has ended. CPU use is then the average of the whole time, not of the last seconds.
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
        let has_containers = || rows.iter().any(|row| container_of(scene, row).is_some());
        let container = (area.width >= VERY_WIDE && has_containers()).then(|| column(16, 1));
        let long = if is_wide { 8 } else { 5 };
        let (figures, bar) = if scene.snapshot.difference.is_some() {
            let (now, was) = (column(8, 1), (area.width >= MEDIUM).then(|| column(8, 1)));
            let change = column(8, 2);
            (Figures::Compared { now, was, change }, column(long, 1))
        } else {
            let (recent, bar) = (column(7, 1), column(long, 1));
            let amount = (area.width >= MEDIUM).then(|| column(8, 1));
            let threads = is_wide.then(|| column(4, 2));
            (Figures::Now { recent, amount, threads }, bar)
        };
        let by = match processes.sort {
            ProcessSort::Samples => ProcessSort::Samples,
            ProcessSort::Cpu | ProcessSort::Name | ProcessSort::Pid => ProcessSort::Cpu,
        };
        let hottest = (area.width >= VERY_WIDE).then(|| area.right() - (area.width / 4).clamp(20, 44));
        let is_over = scene.has().time && !scene.status.live;
        let by = if is_over { ProcessSort::Samples } else { by };
        let most = rows.iter().map(|row| figure(scene, row, by)).fold(0.0, f64::max);
        // The bar of CPU use is full at one CPU or more, so that on an idle machine all bars are short.
        let one_cpu = f64::from(scene.ticks()) * ViewBuilder::RECENT as f64 / 1e9;
        let least = if by == ProcessSort::Cpu && matches!(figures, Figures::Now { .. }) { one_cpu } else { 0.0 };
        Layout { number, user, container, figures, bar, name: x, hottest, by, full: most.max(least), is_over }
    }
}

/// Returns the weights of a row.
fn weights(row: &ProcessRow) -> &Activity {
    match row {
        ProcessRow::Exited { sums, .. } | ProcessRow::Process { sums, .. } => &sums.weights,
        ProcessRow::Thread { row } => &row.weights,
    }
}

/// Returns the length of a row's bar: its weight, or its change.
fn figure(scene: &Scene, row: &ProcessRow, by: ProcessSort) -> f64 {
    if let Some(difference) = &scene.snapshot.difference {
        return difference.change(weights(row).sides(difference.whole())).by.abs();
    }
    let Activity { recent, shown, .. } = *weights(row);
    if by == ProcessSort::Samples { shown as f64 } else { recent as f64 }
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
    let describe = |row: &ProcessRow| {
        let (words, figures) = describe(scene, row);
        format!("{words}  {figures}")
    };
    table::show_hovered(scene, area, (processes.position, &rows), describe, buffer);
}

/// Returns the reason why there is no row.
fn nothing(scene: &Scene) -> String {
    match scene.filters().last() {
        Some(filter) => {
            let key = scene.keys.first(crate::ui::keys::Action::RemoveFilter);
            format!("no process matches /{}/; {key} removes the filter", filter.pattern.source())
        }
        None if !scene.target().is_everything() => "none of the selected processes ran in this time".to_owned(),
        None => "no process ran in this time".to_owned(),
    }
}

fn draw_heading(processes: &Processes, scene: &Scene, area: Rect, layout: &Layout, buffer: &mut Buffer) {
    let dim = scene.theme.dim();
    let marked =
        |words: &str, sort| format!("{words}{}", if processes.sort == sort { table::sorted_by(&scene.theme) } else { "" });
    put_right(buffer, layout.number, area.y, &marked("PID", ProcessSort::Pid), dim);
    if let Some(column) = layout.user {
        put(buffer, column, column.x, area.y, "user", dim);
    }
    if let Some(column) = layout.container {
        put(buffer, column, column.x, area.y, "container", dim);
    }
    // The sign also uses the blanks before the column.
    let wider = |column: Rect| Rect { x: column.x - 2, width: column.width + 2, ..column };
    match &layout.figures {
        Figures::Now { recent, amount, threads } => {
            let (of_seconds, of_range) = scene.headings();
            put_right(buffer, *recent, area.y, &marked(of_seconds, ProcessSort::Cpu), dim);
            put(buffer, layout.bar, layout.bar.x, area.y, if layout.by == ProcessSort::Cpu { "3 s" } else { "all" }, dim);
            if let Some(column) = amount {
                put_right(buffer, wider(*column), area.y, &marked(of_range, ProcessSort::Samples), dim);
            }
            if let Some(column) = threads {
                put_right(buffer, *column, area.y, "thr", dim);
            }
        }
        Figures::Compared { now, was, change } => {
            put_right(buffer, *now, area.y, &marked("now", ProcessSort::Samples), dim);
            if let Some(column) = was {
                put_right(buffer, *column, area.y, "was", dim);
            }
            put_right(buffer, wider(*change), area.y, &marked(scene.change_unit(), ProcessSort::Cpu), dim);
        }
    }
    put(buffer, area, layout.name + 2, area.y, &marked("process", ProcessSort::Name), dim);
    if let Some(x) = layout.hottest {
        put(buffer, area, x, area.y, "hottest function, 3 s", dim);
    }
}

fn draw_row(scene: &Scene, row: &ProcessRow, line: Rect, layout: &Layout, buffer: &mut Buffer) {
    let theme = &scene.theme;
    let at = |column: Rect| Rect { y: line.y, ..column };
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
    if let Some((column, name)) = layout.container.map(at).zip(container_of(scene, row)) {
        // The end of NAMESPACE/POD/CONTAINER says more.
        let short = if text::width(name) > usize::from(column.width) { name.rsplit('/').next().unwrap_or(name) } else { name };
        put(buffer, column, column.x, line.y, &text::cut(short, usize::from(column.width)), theme.dim());
    }
    let bar_style = draw_figures(scene, row, plain, line.y, layout, buffer);
    let part = if layout.full > 0.0 { figure(scene, row, layout.by) / layout.full } else { 0.0 };
    bar(scene, part, at(layout.bar), if is_gone { theme.dim() } else { bar_style }, buffer);
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

/// Draws the weights of a row. Returns the style of its bar.
fn draw_figures(scene: &Scene, row: &ProcessRow, plain: Style, y: u16, layout: &Layout, buffer: &mut Buffer) -> Style {
    let at = |column: &Rect| Rect { y, ..*column };
    match (&layout.figures, &scene.snapshot.difference) {
        (Figures::Compared { now, was, change }, Some(difference)) => {
            let sides = weights(row).sides(difference.whole());
            let (of_now, of_before) = match difference.measure() {
                Measure::Shares => {
                    let share = |part, of| format!("{} %", text::percent(part, of));
                    (share(sides.now, difference.whole().now), share(sides.before, difference.whole().before))
                }
                Measure::Rates { now, before, .. } => {
                    (scene.rate(sides.now as f64 / now), scene.rate(sides.before as f64 / before))
                }
            };
            put_right(buffer, at(now), y, &of_now, plain);
            if let Some(column) = was {
                put_right(buffer, at(column), y, &of_before, scene.theme.dim());
            }
            let by = difference.change(sides);
            put_right(buffer, at(change), y, &scene.change(by), scene.theme.changed(by));
            scene.theme.changed(by)
        }
        (Figures::Now { recent, amount, threads }, _) => {
            let Activity { recent: last, shown, .. } = *weights(row);
            let of_seconds = if layout.is_over { whole_use(scene, shown) } else { recent_use(scene, last) };
            put_right(buffer, at(recent), y, &format!("{of_seconds:.1}"), plain);
            if let Some(column) = amount {
                put_right(buffer, at(column), y, &scene.counted(shown), plain);
            }
            if let (Some(column), ProcessRow::Process { sums, exited: false, .. }) = (threads, row)
                && let Some(process) = scene.snapshot.processes.get(&sums.tgid)
            {
                put_right(buffer, at(column), y, &process.threads.to_string(), scene.theme.dim());
            }
            scene.theme.bar()
        }
        _ => scene.theme.bar(),
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

/// Returns a command without its directory. The program's name is left out too if it is the process's name.
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

/// Returns the name of a process's user, or the user's number if there is no name.
fn user_of(scene: &Scene, tgid: Tgid) -> String {
    let Some(user) = scene.snapshot.processes.get(&tgid).and_then(|process| process.user) else { return String::new() };
    scene.status.users.get(&user).map_or_else(|| user.to_string(), |name| name.to_string())
}

/// Draws the line about the row under the cursor: its whole command, its share, its cgroup.
pub(super) fn draw_detail(processes: &Processes, scene: &Scene, line: DetailLine<'_>, buffer: &mut Buffer) {
    let left = line.draw_searched(buffer);
    let rows = processes.rows(&scene.snapshot, &scene.names);
    let Some(row) = rows.get(processes.position.at) else { return };
    let (words, figures) = describe(scene, row);
    let most = usize::from(left.width).saturating_sub(text::width(&figures) + 4).max(usize::from(left.width) / 2);
    let x = put(buffer, left, left.x + 1, left.y, &text::cut(&words, most), scene.theme.strong());
    put(buffer, left, x + 2, left.y, &figures, Style::new());
}

/// Returns a row's thread, or the first one of its process.
fn thread_of(row: &ProcessRow) -> Option<&ActivityRow> {
    match row {
        ProcessRow::Exited { sums, .. } | ProcessRow::Process { sums, .. } => sums.threads.first(),
        ProcessRow::Thread { row } => Some(row),
    }
}

/// Returns the container that a row's thread is in.
fn container_of<'a>(scene: &'a Scene, row: &ProcessRow) -> Option<&'a str> {
    scene.status.container(thread_of(row)?.thread.cgroup)
}

/// Returns the whole command of a row, and its share with its cgroup.
fn describe(scene: &Scene, row: &ProcessRow) -> (String, String) {
    let name = match row {
        ProcessRow::Exited { sums, .. } | ProcessRow::Process { sums, .. } => sums.name,
        ProcessRow::Thread { row } => row.thread.name,
    };
    let thread = thread_of(row);
    let Activity { shown, complete, user, .. } = *weights(row);
    let whole = scene.snapshot.amount();
    let mut figures = format!("{} % of the samples shown", text::percent(shown, whole));
    if user > 0 {
        figures += &format!("  stacks {} % complete", text::percent(complete, user));
    }
    if let ProcessRow::Process { sums, .. } = row
        && let seen @ 2.. = sums.threads.len()
    {
        figures += &format!("  {} threads seen", text::grouped(seen as u64));
    }
    let cgroup = thread.map(|row| row.thread.cgroup);
    if let Some(container) = cgroup.and_then(|cgroup| scene.status.container(cgroup)) {
        figures += &format!("  container {container}");
    }
    let path = cgroup.and_then(|cgroup| scene.status.cgroups.get(&cgroup));
    if let Some(path) = path.filter(|path| !path.is_empty() && &***path != "/") {
        figures += &format!("  {path}");
    }
    let command = scene.snapshot.processes.get(&tgid_of(row)).map(|process| &process.command);
    let command = command.filter(|command| !command.is_empty() && !matches!(row, ProcessRow::Exited { .. }));
    (command.map_or_else(|| scene.names.labels.name(name).to_owned(), |command| command.to_string()), figures)
}

/// Returns the CPU use over the whole time on screen, in per cent of one CPU; for other weights, their rate.
fn whole_use(scene: &Scene, shown: u64) -> f64 {
    let seconds = scene.snapshot.seconds.filter(|seconds| *seconds > 0.0);
    scene.figure_of_rate(seconds.map_or(0.0, |seconds| shown as f64 / seconds))
}

/// Returns the CPU use over the last seconds, in per cent of one CPU; for other weights, their rate.
fn recent_use(scene: &Scene, recent: u64) -> f64 {
    if !scene.has().time {
        return 0.0;
    }
    let window = (ViewBuilder::RECENT as f64 / 1e9).min((scene.status.elapsed as f64).max(1.0));
    scene.figure_of_rate(recent as f64 / window)
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
