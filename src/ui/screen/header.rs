//! The two lines at the top. The first shows the selection of samples and how reliable they are; the second shows CPU use over time
//! and the chips.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::profile::{CallTree, FilterMode, TimeRange};
use crate::ui::app::App;
use crate::ui::scene::Chip;
use crate::ui::text;
use crate::ui::view::View;

use crate::ui::paint::put;

/// Characters for heights in the time strip, and their ASCII replacements.
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII_BARS: [&str; 9] = [" ", ".", ".", ":", ":", "-", "=", "+", "#"];

/// Draws the first line.
/// Words on the right (losses, completeness, cost) are never cut: they show how reliable the picture is. If there is no room, less
/// important words are removed first: the machine's name, then the source.
pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let status = &app.scene.status;
    let state = match (app.scene.frozen.is_some(), status.live) {
        (true, _) => "frozen".to_owned(),
        (false, true) => format!("live {}", text::clock(status.elapsed)),
        (false, false) => match &status.ended {
            Some(ended) => ended.short.clone(),
            None if app.scene.has().time => format!("recorded {}", text::clock(status.elapsed)),
            None => String::new(),
        },
    };
    let width_of = |figures: &[(String, Style)]| -> usize { figures.iter().map(|(words, _)| text::width(words) + 2).sum() };
    let least_right = width_of(&figures(app, true));
    // The header always says that sampling has ended. It says how only if there is room.
    let long = 16 + text::width(&app.scene.target_name()) + text::width(&state) + least_right > usize::from(area.width);
    let state =
        if long && !status.live && status.ended.is_some() && app.scene.frozen.is_none() { "ended".to_owned() } else { state };
    let state_style = match &status.ended {
        _ if app.scene.frozen.is_some() => app.scene.theme.key().add_modifier(Modifier::BOLD),
        Some(ended) if ended.failed => app.scene.theme.warning(),
        Some(_) => app.scene.theme.good(),
        None => Style::new(),
    };
    let target = app.scene.target_name();
    let source = app.scene.source_words();
    let dot = if app.scene.theme.ascii { " - " } else { " · " };
    let parts: [(&str, Style, u8); 4] = [
        (&status.host, Style::new(), 3),
        (&target, app.scene.theme.strong(), 0),
        (&source, Style::new(), if app.scene.shown_event().is_some() { 0 } else { 2 }),
        (&state, state_style, 1),
    ];
    let needed = |least: u8| -> usize {
        let shown = parts.iter().filter(|part| !part.0.is_empty() && part.2 <= least);
        10 + shown.map(|part| text::width(part.0) + 3).sum::<usize>()
    };
    let mut right = figures(app, false);
    if width_of(&right) + needed(1) > usize::from(area.width) {
        right = figures(app, true);
    }
    if width_of(&right) > usize::from(area.width)
        && let Some((cost, _)) = right.last_mut()
    {
        *cost = format!("flametop {:.1} %", status.own_cpu);
    }
    let right_width = width_of(&right);
    let room = usize::from(area.width).saturating_sub(right_width);
    let least = (0..=3).rev().find(|least| needed(*least) <= room).unwrap_or(0);
    // On a narrow screen the figures need the whole line.
    let own_name = if room >= 11 { " flametop " } else { "" };
    let mut x = put(buffer, area, area.x, area.y, own_name, app.scene.theme.key().add_modifier(Modifier::BOLD));
    let left = Rect { width: u16::try_from(room).unwrap_or(area.width), ..area };
    let mut first = true;
    for (words, style, _) in parts.iter().filter(|part| !part.0.is_empty() && part.2 <= least) {
        if !first {
            x = put(buffer, left, x, area.y, dot, app.scene.theme.dim());
        }
        first = false;
        x = put(buffer, left, x, area.y, words, *style);
    }
    // Without a second line, the tabs are in the first.
    if app.scene.areas().time.is_empty() && needed(least) + tabs_width() <= room {
        draw_tabs(app, left, x + 2, buffer);
    }
    let mut x = area.x + u16::try_from(usize::from(area.width).saturating_sub(right_width)).unwrap_or(0);
    for (words, style) in right {
        x = put(buffer, area, x + 1, area.y, &words, style) + 1;
    }
}

fn tabs_width() -> usize {
    View::ALL.iter().map(|view| view.title().1.len() + 4).sum::<usize>()
}

fn draw_tabs(app: &App, area: Rect, mut x: u16, buffer: &mut Buffer) {
    for view in View::ALL {
        let (number, name) = view.title();
        let on = view == app.scene.view;
        let style = if on { app.scene.theme.chip() } else { app.scene.theme.dim() };
        x = put(buffer, area, x, area.y, &format!(" {number} {name} "), style);
    }
}

/// With fewer samples than this, incomplete stacks cause no warning.
const FEW_SAMPLES: u64 = 100;

/// The least loss by probes that the header shows, in per cent of one CPU.
const LEAST_LOST: f64 = 0.1;
/// From this loss on it is a warning, and is shown even if there is little room.
const MUCH_LOST: f64 = 5.0;

/// Returns counts, losses, completeness and cost. CPU time is omitted, because the root's box shows it. `short` leaves out counts.
fn figures(app: &App, short: bool) -> Vec<(String, Style)> {
    let snapshot = &app.scene.snapshot;
    let totals = &snapshot.totals;
    let mut figures = Vec::new();
    let has = app.scene.has();
    if !has.time || !short && app.scene.ticks() == 0 {
        figures.push((app.scene.whole_in_short(), Style::new()));
    }
    if !has.losses {
        return figures;
    }
    // Only lost samples. The health view counts other lost events.
    let lost = snapshot.losses.ring_full;
    figures
        .push((format!("lost {}", text::count(lost)), if lost > 0 { app.scene.theme.warning() } else { app.scene.theme.good() }));
    if snapshot.losses.over_memory > 0 {
        figures.push((format!("dropped {}", text::count(snapshot.losses.over_memory)), app.scene.theme.warning()));
    }
    if totals.user > 0 {
        let seen = snapshot.tree.observations(CallTree::ROOT).total;
        let style = if totals.complete * 100 >= totals.user * 95 {
            app.scene.theme.good()
        } else if seen < FEW_SAMPLES {
            app.scene.theme.dim()
        } else {
            app.scene.theme.warning()
        };
        let what = if short { "" } else { "stacks " };
        figures.push((format!("{what}{} % complete", text::percent(totals.complete, totals.user)), style));
    }
    let lost = app.scene.status.probes_cpu;
    if lost >= if short { MUCH_LOST } else { LEAST_LOST } {
        let about = if app.scene.theme.ascii { "~" } else { "≈" };
        let style = if lost >= MUCH_LOST { app.scene.theme.warning() } else { app.scene.theme.dim() };
        figures.push((format!("probes {about} {lost:.1} %"), style));
    }
    if has.live {
        let cost = format!("flametop {:.1} % {}", app.scene.status.own_cpu, text::bytes(app.scene.status.own_memory));
        figures.push((cost, app.scene.theme.dim()));
    }
    figures
}

/// The second line. Its parts have fixed places. Only chips come and go; they take room from the strip.
///
/// ```text
///  now 1.3 of 2 CPUs │ shown: last 60 s  ▁▂▅█▇▅▅▂▁▁▂▅    keep /parse/ ×     1 flame  2 functions  3 processes  4 time  5 health
///  rate                range             strip            chips              tabs
/// ```
///
/// If there is no room for the tabs' names, only the current view's tab has its name. On still narrower screens there are no tabs.
struct SecondLine {
    /// CPUs in use, or events a second, in the last whole second. The range's figures are those of the root's box.
    rate: String,
    /// The range's column, its words, and whether it is the usual range.
    range: Option<(u16, String, bool)>,
    /// The room for the strip.
    strip: Rect,
    chips: Vec<(Chip, u16, String)>,
    tabs: Vec<(View, u16, String)>,
}

/// Least columns of a line with names on all tabs.
const NAMED_TABS: u16 = 132;

/// Columns below which there are no tabs.
const TABS: u16 = 76;

/// Columns of the range without [`SHOWN`], for any range: the strip must not move while time is selected on it. A chip may follow at once.
const RANGE: u16 = 20;

/// Words in front of the range.
const SHOWN: &str = "shown: ";
/// Least columns of a screen with these words. Narrower ones have no room for them beside chips.
const SHOWN_FROM: u16 = 160;

/// Columns that the strip needs.
const LEAST_STRIP: u16 = 10;

impl SecondLine {
    fn new(app: &App, area: Rect) -> SecondLine {
        let tabs = tabs(app, area);
        let end = tabs.first().map_or(area.right(), |(_, x, _)| *x);
        let (rate, rate_width) = rate(app);
        let mut x = area.x + 1 + rate_width;
        let range = app.scene.range_words().map(|words| {
            let is_usual = app.scene.span == app.scene.home && app.scene.since_baseline().is_none();
            let shown = if area.width >= SHOWN_FROM { SHOWN } else { "" };
            let words = if is_usual { format!(" {shown}{words} ") } else { format!(" {shown}{words} {} ", close(app)) };
            let at = x;
            x += RANGE + shown.len() as u16;
            (at, words, is_usual)
        });
        let chips = chips(app, x, end);
        let end = chips.first().map_or(end, |(_, x, _)| *x);
        let width = end.saturating_sub(x + 2);
        let strip = Rect { x: x + 1, width: if width < LEAST_STRIP { 0 } else { width }, ..area };
        SecondLine { rate, range, strip, chips, tabs }
    }
}

/// Draws the second line.
pub(super) fn draw_time(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let line = SecondLine::new(app, area);
    let theme = &app.scene.theme;
    put(buffer, area, area.x + 1, area.y, &line.rate, theme.strong());
    if let Some((x, words, is_usual)) = &line.range {
        if !line.rate.is_empty() {
            put(buffer, area, x - 1, area.y, if theme.ascii { "|" } else { "│" }, theme.dim());
        }
        put(buffer, area, *x, area.y, words, if *is_usual { theme.key() } else { theme.chip() });
    }
    for (_, x, words) in &line.chips {
        put(buffer, area, *x, area.y, words, theme.chip());
    }
    for (view, x, words) in &line.tabs {
        put(buffer, area, *x, area.y, words, if *view == app.scene.view { theme.chip() } else { theme.dim() });
    }
    let Some(strip) = Strip::new(app, line.strip) else { return };
    let bars = if theme.ascii { &ASCII_BARS } else { &BARS };
    for (column, weight) in strip.columns.iter().enumerate() {
        let height = match weight {
            0 => 0,
            weight => 1 + (u128::from(*weight) * 7 / u128::from(strip.full.max(1))).min(7) as usize,
        };
        let second = strip.first_second + column as u64 * strip.seconds_a_column;
        let is_outside = strip.selected.is_some_and(|(from, to)| !(from..to).contains(&second));
        let style = if is_outside { theme.dim() } else { theme.bar() };
        put(buffer, area, strip.area.x + column as u16, area.y, bars[height.min(8)], style);
    }
}

/// Returns the tabs at the right edge, each with its column.
fn tabs(app: &App, area: Rect) -> Vec<(View, u16, String)> {
    if area.width < TABS {
        return Vec::new();
    }
    let words = View::ALL.map(|view| {
        let (number, name) = view.title();
        let is_named = area.width >= NAMED_TABS || view == app.scene.view;
        (view, if is_named { format!(" {number} {name} ") } else { format!(" {number} ") })
    });
    let mut x = area.right() - u16::try_from(words.iter().map(|(_, words)| words.len()).sum::<usize>()).unwrap_or(0);
    let mut tabs = Vec::new();
    for (view, words) in words {
        let begin = x;
        x += u16::try_from(words.len()).unwrap_or(0);
        tabs.push((view, begin, words));
    }
    tabs
}

/// Returns the rate of the last whole second in words. Also returns the width of its column, which does not depend on the rate.
fn rate(app: &App) -> (String, u16) {
    let timeline = &app.scene.snapshot.timeline;
    // There is no "now" after the end of sampling. The root's box has the rate of the time on screen.
    if !app.scene.status.live {
        return (String::new(), 0);
    }
    let when = if app.scene.frozen.is_some() { "was" } else { "now" };
    let last = timeline.weights.iter().rev().nth(1).copied().unwrap_or(0);
    match app.scene.ticks() {
        0 => (format!("{when} {}", app.scene.rate(last as f64)), 13),
        ticks => {
            let all = text::cpus(app.scene.status.cpus);
            let width = format!("now {}.0 of {all}  ", app.scene.status.cpus).len();
            (format!("{when} {:.1} of {all}", last as f64 / f64::from(ticks)), u16::try_from(width).unwrap_or(0))
        }
    }
}

/// Returns the view whose tab is at a column.
pub(in crate::ui) fn tab_at(app: &App, area: Rect, x: u16) -> Option<View> {
    let within = |begin: u16, words: &str| (begin..begin + text::width(words) as u16).contains(&x);
    SecondLine::new(app, area).tabs.into_iter().find(|(_, begin, words)| within(*begin, words)).map(|(view, ..)| view)
}

/// The content of the time strip. A column is one or several seconds.
struct Strip {
    area: Rect,
    first_second: u64,
    seconds_a_column: u64,
    columns: Vec<u64>,
    /// Weight of a full column: every CPU busy, or the largest weight that occurred.
    full: u64,
    selected: Option<(u64, u64)>,
}

impl Strip {
    fn seconds(&self, column: usize) -> (u64, u64) {
        let first = self.first_second + column as u64 * self.seconds_a_column;
        (first, first + self.seconds_a_column - 1)
    }

    /// Creates the strip for this area.
    fn new(app: &App, area: Rect) -> Option<Strip> {
        let timeline = &app.scene.snapshot.timeline;
        if !app.scene.has().time || timeline.weights.is_empty() || area.is_empty() {
            return None;
        }
        let room = usize::from(area.width);
        let seconds = timeline.weights.len();
        let seconds_a_column = seconds.div_ceil(room).max(1);
        // Columns begin at multiples of their width, so that the strip moves by whole columns.
        let phase = (timeline.first_second as usize) % seconds_a_column;
        let mut columns = vec![0u64; (seconds + phase).div_ceil(seconds_a_column)];
        for (at, weight) in timeline.weights.iter().enumerate() {
            columns[(at + phase) / seconds_a_column] += weight;
        }
        let excess = columns.len().saturating_sub(room);
        columns.drain(..excess);
        let first_second = timeline.first_second - phase as u64 + (excess * seconds_a_column) as u64;
        let most = columns.iter().copied().max().unwrap_or(0);
        let full = app.scene.all_busy().map_or(most, |all| all * seconds_a_column as u64);
        let selected = match app.scene.snapshot.request.query.range {
            TimeRange::All | TimeRange::Fading(..) => None,
            TimeRange::Last(span) => {
                let now = app.scene.snapshot.now.0;
                Some((now.saturating_sub(span) / 1_000_000_000, now / 1_000_000_000 + 1))
            }
            TimeRange::Between(from, to) => Some((from.0 / 1_000_000_000, to.0.div_ceil(1_000_000_000))),
        };
        Some(Strip { area, first_second, seconds_a_column: seconds_a_column as u64, columns, full, selected })
    }
}

/// Returns the first and the last second of a column of the time strip; `None` outside the strip.
pub(in crate::ui) fn seconds_at(app: &App, area: Rect, x: u16) -> Option<(u64, u64)> {
    let strip = Strip::new(app, SecondLine::new(app, area).strip)?;
    let column = usize::from(x.checked_sub(strip.area.x)?);
    (column < strip.columns.len()).then(|| strip.seconds(column))
}

/// Returns the first and the last second of the nearest column: the pointer may leave the strip while it drags.
pub(in crate::ui) fn seconds_near(app: &App, area: Rect, x: u16) -> Option<(u64, u64)> {
    let strip = Strip::new(app, SecondLine::new(app, area).strip)?;
    let column = usize::from(x.saturating_sub(strip.area.x));
    Some(strip.seconds(column.min(strip.columns.len().saturating_sub(1))))
}

fn close(app: &App) -> &'static str {
    if app.scene.theme.ascii { "x" } else { "×" }
}

/// Returns the chips that end at column `end`, from left to right, each with its column and its words. They must not begin before
/// column `begin`.
fn chips(app: &App, begin: u16, end: u16) -> Vec<(Chip, u16, String)> {
    let close = close(app);
    let filters = app.scene.filters().iter().enumerate().map(|(index, filter)| {
        let mode = if filter.mode == FilterMode::Keep { "keep" } else { "drop" };
        (Chip::Filter(index), format!(" {mode} /{}/ {close} ", text::cut(filter.pattern.source(), 24)))
    });
    let mut words: Vec<(Chip, String)> = filters.collect();
    if !app.scene.target().is_everything() {
        words.push((Chip::Target, format!(" {} {close} ", text::cut(&app.scene.target_name(), 24))));
    }
    if app.scene.folds_inlined() {
        words.push((Chip::Folded, format!(" no inlined {close} ")));
    }
    if app.scene.shows_interpreter() {
        words.push((Chip::Interpreter, format!(" interpreter {close} ")));
    }
    if app.scene.shows_recursion() {
        words.push((Chip::Recursion, format!(" recursion {close} ")));
    }
    if let hidden @ 1.. = app.scene.hidden_threads() {
        words.push((Chip::Idle, format!(" {} hidden {close} ", text::idle_threads(hidden))));
    }
    if app.scene.compare.on {
        words.push((Chip::Difference, format!(" {} {close} ", app.scene.baseline_words())));
    }
    let mut x = end;
    let mut chips = Vec::new();
    for (chip, words) in words.into_iter().rev() {
        let width = u16::try_from(text::width(&words)).unwrap_or(u16::MAX);
        let Some(left) = x.checked_sub(width.saturating_add(1)).filter(|left| *left >= begin) else { break };
        chips.push((chip, left, words));
        x = left;
    }
    chips.reverse();
    chips
}

/// Returns the chip at a column.
pub(in crate::ui) fn chip_at(app: &App, area: Rect, x: u16) -> Option<Chip> {
    let line = SecondLine::new(app, area);
    let range = line.range.into_iter().map(|(at, words, _)| (Chip::Range, at, words));
    let within = |at: u16, words: &str| (at..at + text::width(words) as u16).contains(&x);
    range.chain(line.chips).find(|(_, at, words)| within(*at, words)).map(|(chip, ..)| chip)
}
