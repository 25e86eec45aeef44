//! The two lines on top: what is looked at and how good it is; CPU use over time and the chips.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::profile::{Baseline, FilterMode, TimeRange};
use crate::ui::app::App;
use crate::ui::scene::Chip;
use crate::ui::span::Span;
use crate::ui::text;
use crate::ui::view::View;

use crate::ui::paint::put;

/// Heights of the time strip, and what ASCII has instead.
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII_BARS: [&str; 9] = [" ", ".", ".", ":", ":", "-", "=", "+", "#"];

/// Draws the first line.
///
/// Words on the right (losses, completeness, cost) are never cut: they make the rest worth reading. What is less worth goes
/// first when there is no room: the machine's name, then the source.
pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let status = &app.scene.status;
    let state = match (app.scene.frozen.is_some(), app.scene.span, status.live) {
        (true, ..) => "frozen".to_owned(),
        (_, Span::Between(from, to), _) => format!("{} s selected", text::seconds(to.since(from))),
        (_, Span::Last(seconds), true) => format!("last {seconds} s"),
        (_, Span::Fading(seconds), true) => format!("fading, half in {seconds} s"),
        (_, _, true) => format!("live {}", text::clock(status.elapsed)),
        (..) => status.ended.clone().unwrap_or_default(),
    };
    let width_of = |figures: &[(String, Style)]| -> usize { figures.iter().map(|(words, _)| text::width(words) + 2).sum() };
    let least_right = width_of(&figures(app, true));
    // That it has ended is always told; how, where there is room.
    let long = 16 + text::width(&app.scene.target_name()) + text::width(&state) + least_right > usize::from(area.width);
    let state =
        if long && !status.live && status.ended.is_some() && app.scene.frozen.is_none() { "ended".to_owned() } else { state };
    let attention = app.scene.frozen.is_some() || matches!(app.scene.span, Span::Between(..)) || status.ended.is_some();
    let target = app.scene.target_name();
    let source = app.scene.source_words();
    let dot = if app.scene.theme.ascii { " - " } else { " · " };
    let parts: [(&str, Style, u8); 4] = [
        (&status.host, Style::new(), 3),
        (&target, app.scene.theme.strong(), 0),
        (&source, Style::new(), if app.scene.shown_event().is_some() { 0 } else { 2 }),
        (&state, if attention { app.scene.theme.warning() } else { Style::new() }, 1),
    ];
    let needed = |least: u8| -> usize {
        let shown = parts.iter().filter(|part| !part.0.is_empty() && part.2 <= least);
        10 + shown.map(|part| text::width(part.0) + 3).sum::<usize>()
    };
    let mut right = figures(app, false);
    if width_of(&right) + needed(1) > usize::from(area.width) {
        right = figures(app, true);
    }
    let right_width = width_of(&right);
    let room = usize::from(area.width).saturating_sub(right_width);
    let least = (0..=3).rev().find(|least| needed(*least) <= room).unwrap_or(0);
    let mut x = put(buffer, area, area.x, area.y, " flametop ", app.scene.theme.key().add_modifier(Modifier::BOLD));
    let left = Rect { width: u16::try_from(room).unwrap_or(area.width), ..area };
    let mut first = true;
    for (words, style, _) in parts.iter().filter(|part| !part.0.is_empty() && part.2 <= least) {
        if !first {
            x = put(buffer, left, x, area.y, dot, app.scene.theme.dim());
        }
        first = false;
        x = put(buffer, left, x, area.y, words, *style);
    }
    // Where there is no second line, the tabs are here.
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

/// Counts (not of CPU time, which the root's box has), losses, completeness, cost. `short` leaves out counts.
fn figures(app: &App, short: bool) -> Vec<(String, Style)> {
    let snapshot = &app.scene.snapshot;
    let totals = &snapshot.totals;
    let mut figures = Vec::new();
    if app.scene.is_file() || !short && app.scene.ticks() == 0 {
        figures.push((format!("{} {}", text::count(snapshot.amount()), app.scene.unit_word()), Style::new()));
    }
    if app.scene.is_file() {
        return figures;
    }
    // Only samples. The health view counts other lost events.
    let lost = snapshot.losses.ring_full;
    figures
        .push((format!("lost {}", text::count(lost)), if lost > 0 { app.scene.theme.warning() } else { app.scene.theme.good() }));
    if snapshot.losses.over_memory > 0 {
        figures.push((format!("let go {}", text::count(snapshot.losses.over_memory)), app.scene.theme.warning()));
    }
    if totals.user > 0 {
        let style = if totals.complete * 100 >= totals.user * 95 { app.scene.theme.good() } else { app.scene.theme.warning() };
        let what = if short { "" } else { "stacks " };
        figures.push((format!("{what}{} % complete", text::percent(totals.complete, totals.user)), style));
    }
    let cost = format!("flametop {:.1} % {}", app.scene.status.own_cpu, text::bytes(app.scene.status.own_memory));
    figures.push((cost, app.scene.theme.dim()));
    figures
}

/// Draws the second line: the time strip on the left, the chips on the right.
pub(super) fn draw_time(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    for (_, x, words) in chips(app, area) {
        put(buffer, area, x, area.y, &words, app.scene.theme.chip());
    }
    let tabs = tabs_begin(app, area);
    if let Some(x) = tabs {
        draw_tabs(app, area, x, buffer);
    }
    let Some(strip) = Strip::new(app, area) else { return };
    let bars = if app.scene.theme.ascii { &ASCII_BARS } else { &BARS };
    for (column, weight) in strip.columns.iter().enumerate() {
        let height = match weight {
            0 => 0,
            weight => 1 + (u128::from(*weight) * 7 / u128::from(strip.full.max(1))).min(7) as usize,
        };
        let second = strip.first_second + column as u64 * strip.seconds_a_column;
        let mut style = app.scene.theme.bar();
        if strip.selected.is_some_and(|(from, to)| !(from..to).contains(&second)) {
            style = app.scene.theme.dim();
        }
        let x = area.x + 1 + column as u16;
        put(buffer, area, x, area.y, bars[height.min(8)], style);
    }
    let end = area.x + 1 + strip.columns.len() as u16;
    put(buffer, strip.area, end + 1, area.y, &strip.legend, app.scene.theme.dim());
}

/// The column of the first chip, or of the area's end.
fn chips_begin(app: &App, area: Rect) -> u16 {
    chips(app, area).first().map_or(area.right(), |(_, x, _)| *x)
}

/// Where the tabs begin, left of the chips; `None` when they would leave too little for the time strip.
fn tabs_begin(app: &App, area: Rect) -> Option<u16> {
    let width = u16::try_from(tabs_width()).ok()?;
    chips_begin(app, area).checked_sub(width).filter(|x| x.saturating_sub(area.x) >= area.width / 3)
}

/// The view whose tab is at a column.
pub(in crate::ui) fn tab_at(app: &App, area: Rect, x: u16) -> Option<View> {
    let mut at = tabs_begin(app, area)?;
    View::ALL.into_iter().find(|view| {
        let begin = at;
        at += u16::try_from(view.title().1.len() + 4).unwrap_or(0);
        (begin..at).contains(&x)
    })
}

/// What the time strip shows: a column is one or several seconds.
struct Strip {
    area: Rect,
    first_second: u64,
    seconds_a_column: u64,
    columns: Vec<u64>,
    /// Weight of a full column: every CPU busy, or the most there was.
    full: u64,
    selected: Option<(u64, u64)>,
    legend: String,
}

impl Strip {
    fn seconds(&self, column: usize) -> (u64, u64) {
        let first = self.first_second + column as u64 * self.seconds_a_column;
        (first, first + self.seconds_a_column - 1)
    }

    fn new(app: &App, area: Rect) -> Option<Strip> {
        let timeline = &app.scene.snapshot.timeline;
        if app.scene.status.frequency == 0 || timeline.weights.is_empty() {
            return None;
        }
        let end = tabs_begin(app, area).unwrap_or_else(|| chips_begin(app, area));
        let area = Rect { width: end.saturating_sub(area.x + 1), ..area };
        let room = usize::from(area.width).checked_sub(3).filter(|room| *room >= 8)?;
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
        let full = match app.scene.ticks() {
            0 => most,
            ticks => u64::from(ticks) * app.scene.status.cpus as u64 * seconds_a_column as u64,
        };
        let selected = match app.scene.snapshot.request.query.range {
            TimeRange::All | TimeRange::Fading(..) => None,
            TimeRange::Last(span) => {
                let now = app.scene.snapshot.now.0;
                Some((now.saturating_sub(span) / 1_000_000_000, now / 1_000_000_000 + 1))
            }
            TimeRange::Between(from, to) => Some((from.0 / 1_000_000_000, to.0.div_ceil(1_000_000_000))),
        };
        let per_second = timeline.weights.iter().rev().nth(1).copied().unwrap_or(0);
        let rate = match app.scene.ticks() {
            0 => format!("{}/s", text::count(per_second)),
            ticks => format!("{:.1} of {}", per_second as f64 / f64::from(ticks), text::cpus(app.scene.status.cpus)),
        };
        let legend = match seconds_a_column {
            1 => rate,
            n => format!("{rate}, {n} s a column"),
        };
        let area = Rect { width: area.width, ..area };
        Some(Strip { area, first_second, seconds_a_column: seconds_a_column as u64, columns, full, selected, legend })
    }
}

/// The first and the last second that a column of the time strip stands for; `None` beside the strip.
pub(in crate::ui) fn seconds_at(app: &App, area: Rect, x: u16) -> Option<(u64, u64)> {
    let strip = Strip::new(app, area)?;
    let column = usize::from(x.checked_sub(area.x + 1)?);
    (column < strip.columns.len()).then(|| strip.seconds(column))
}

/// The same of the column that is nearest: whoever drags need not keep to the strip.
pub(in crate::ui) fn seconds_near(app: &App, area: Rect, x: u16) -> Option<(u64, u64)> {
    let strip = Strip::new(app, area)?;
    let column = usize::from(x.saturating_sub(area.x + 1));
    Some(strip.seconds(column.min(strip.columns.len().saturating_sub(1))))
}

/// The chips from left to right: what each is, its column, its words.
fn chips(app: &App, area: Rect) -> Vec<(Chip, u16, String)> {
    let close = if app.scene.theme.ascii { "x" } else { "×" };
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
    if app.scene.compare.on {
        let of = match app.scene.snapshot.baseline {
            Baseline::Samples(samples) => format!("{} samples", text::count(samples)),
            Baseline::None | Baseline::TooLarge => "baseline".to_owned(),
        };
        words.push((Chip::Difference, format!(" difference to {of} {close} ")));
    }
    let mut x = area.right();
    let mut chips = Vec::new();
    for (chip, words) in words.into_iter().rev() {
        let width = u16::try_from(text::width(&words)).unwrap_or(u16::MAX);
        let Some(left) = x.checked_sub(width + 1).filter(|left| *left > area.x) else { break };
        chips.push((chip, left, words));
        x = left;
    }
    chips.reverse();
    chips
}

/// The chip at a column.
pub(in crate::ui) fn chip_at(app: &App, area: Rect, x: u16) -> Option<Chip> {
    let within = |at: u16, words: &str| (at..at + text::width(words) as u16).contains(&x);
    chips(app, area).into_iter().find(|(_, at, words)| within(*at, words)).map(|(chip, ..)| chip)
}
