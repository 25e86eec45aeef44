//! The two lines at the bottom: the frame under the cursor; where it is, and the keys. A prompt, a question or a message takes
//! the place of the last.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use crate::profile::{CallTree, Change, Difference, FrameKind, Measure, NodeId, Sides, TreeNode};
use crate::ui::app::App;
use crate::ui::names::fit_name;
use crate::ui::overlay::{Overlay, Prompt};
use crate::ui::text;
use crate::ui::view::View;

use super::paint::{put, put_right};

/// Columns that a name and its place in the source have before the words about weights are complete.
const NAME_ROOM: usize = 32;
const PLACE_ROOM: usize = 24;

/// Draws both lines.
pub(super) fn draw(app: &App, detail: Rect, hints: Rect, buffer: &mut Buffer) {
    if !detail.is_empty() {
        draw_detail(app, detail, buffer);
    }
    if hints.is_empty() {
        return;
    }
    match (&app.overlay, &app.scene.message) {
        (Some(Overlay::Prompt(prompt)), _) => draw_prompt(app, prompt, hints, buffer),
        (Some(Overlay::Confirm(confirm)), _) => {
            let x = put(buffer, hints, hints.x + 1, hints.y, &confirm.question, app.scene.theme.strong());
            put(buffer, hints, x + 1, hints.y, "y yes  any other key no", app.scene.theme.key());
        }
        (_, Some(message)) => {
            let style = if message.bad { app.scene.theme.warning() } else { app.scene.theme.strong() };
            put(buffer, hints, hints.x + 1, hints.y, &message.text, style);
        }
        _ => draw_hints(app, hints, buffer),
    }
}

fn draw_detail(app: &App, area: Rect, buffer: &mut Buffer) {
    let tree = &app.scene.snapshot.tree;
    let searched = searched(app);
    let all = searched.first().map_or("", String::as_str);
    if let Some(source) = &app.source {
        let left = beside(app, area, all, buffer);
        put(buffer, left, left.x, left.y, &super::source::describe(app, source), app.scene.theme.strong());
        return;
    }
    if app.scene.view != View::Flame || tree.total() == 0 {
        let left = beside(app, area, all, buffer);
        match app.scene.view {
            View::Functions => draw_function(app, left, buffer),
            View::Time => put(buffer, left, left.x, left.y, &super::time::describe(app), app.scene.theme.strong()),
            _ => left.x,
        };
        return;
    }
    let (node, found) = app.cursor().find(tree);
    if !found {
        beside(app, area, all, buffer);
        return;
    }
    let figures = match &app.scene.snapshot.difference {
        Some(difference) if !app.cursor().rest => compared(app, difference, node),
        Some(_) => vec![String::new()],
        None => weighed(app, node),
    };
    let (name, object) = match app.scene.names.labels.get(tree.node(node).label).filter(|_| node != CallTree::ROOT) {
        None => ("all".to_owned(), String::new()),
        Some(label) => {
            let mark = label.kind.mark();
            let name = if mark.is_empty() { label.name.to_string() } else { format!("{} {mark}", label.name) };
            (name, label.object.to_string())
        }
    };
    let name = if app.cursor().rest { format!("narrow callees of {name}") } else { name };
    let place = app.hottest_place().map_or(0, |place| text::width(&place.file) + 8);
    let needed = text::width(&name).min(NAME_ROOM) + text::width(&object) + place.min(PLACE_ROOM) + 4;
    let (figures, searched) = fit(&figures, &searched, usize::from(area.width).saturating_sub(needed));
    let left = beside(app, area, searched, buffer);
    let room = usize::from(left.width).saturating_sub(text::width(figures) + text::width(&object) + 4);
    let x = put(buffer, left, left.x + 1, left.y, &fit_name(&name, room.max(8)), app.scene.theme.strong());
    let x = if object.is_empty() { x } else { put(buffer, left, x + 2, left.y, &object, app.scene.theme.dim()) };
    let x = put(buffer, left, x, left.y, figures, ratatui::style::Style::new());
    draw_place(app, left, x, buffer);
}

/// The most words about weights and about the search, of what there is from most to fewest, that go into this many columns together.
/// Figures give way first: one that searches wants to know what was found.
fn fit<'a>(figures: &'a [String], searched: &'a [String], columns: usize) -> (&'a str, &'a str) {
    let form = |forms: &'a [String], at: usize| forms.get(at).or(forms.last()).map_or("", String::as_str);
    let pairs = [(0, 0), (1, 0), (1, 1), (2, 1)].map(|(of, found)| (form(figures, of), form(searched, found)));
    let fitting = pairs.into_iter().find(|(of, found)| text::width(of) + text::width(found) <= columns);
    fitting.unwrap_or((form(figures, usize::MAX), form(searched, usize::MAX)))
}

/// How much of the samples the search has found, in more words and in fewer; nothing without a search.
fn searched(app: &App) -> Vec<String> {
    let Some(found) = &app.scene.snapshot.search else { return Vec::new() };
    let share = text::percent(found.weight, app.scene.snapshot.tree.total());
    let (pattern, frames) = (found.pattern.source(), text::count(found.nodes as u64));
    let frames = if found.nodes == 1 { "1 frame".to_owned() } else { format!("{frames} frames") };
    vec![format!("  /{pattern}/ matches {share} %  {frames} "), format!("  /{pattern}/ {share} % ")]
}

/// Draws these words at the right end and returns what is left of them.
fn beside(app: &App, area: Rect, words: &str, buffer: &mut Buffer) -> Rect {
    let end = if words.is_empty() { area.right() } else { put_right(buffer, area, area.y, words, app.scene.theme.strong()) };
    Rect { width: end.saturating_sub(area.x), ..area }
}

/// The function under the cursor of the table.
fn draw_function(app: &App, area: Rect, buffer: &mut Buffer) -> u16 {
    let Some(label) = app.selected_label().and_then(|label| app.scene.names.labels.get(label)) else { return area.x };
    let x = put(buffer, area, area.x + 1, area.y, &label.name, app.scene.theme.strong());
    let x = put(buffer, area, x + 2, area.y, &label.object, app.scene.theme.dim());
    draw_place(app, area, x, buffer);
    x
}

/// Where in the source the function under the cursor is hottest, as far as there is room: its end, which tells most.
fn draw_place(app: &App, area: Rect, x: u16, buffer: &mut Buffer) {
    let Some(place) = app.hottest_place() else { return };
    let words = format!("{}:{}", place.file, place.line);
    let room = usize::from(area.right().saturating_sub(x + 3));
    let words = if text::width(&words) <= room { words } else { format!("…{}", text::tail(&words, room.saturating_sub(1))) };
    if room >= 8 {
        put(buffer, area, x + 2, area.y, &words, app.scene.theme.dim());
    }
}

/// What is under the cursor weighs, in more words and in fewer: of a frame, its own and with all that it calls; of gathered narrow
/// callees, together.
fn weighed(app: &App, node: NodeId) -> Vec<String> {
    let tree = &app.scene.snapshot.tree;
    let selected = *tree.node(node);
    let selected = match app.cursor().rest {
        true => TreeNode { own: 0, total: gathered(app).unwrap_or(0), ..selected },
        false => selected,
    };
    let percent = |weight| text::percent(weight, tree.total());
    let (own, total) = (percent(selected.own), percent(selected.total));
    let counted =
        format!("  self {} ({own} %)  total {} ({total} %", app.scene.samples(selected.own), app.scene.samples(selected.total));
    // The share of the process, when the frame is in one.
    let process = tree.path(node).first().copied().filter(|first| *first != node);
    let process =
        process.filter(|id| app.scene.names.labels.get(tree.node(*id).label).is_some_and(|l| l.kind == FrameKind::Process));
    let mut forms = Vec::new();
    if let Some(process) = process {
        let of = tree.node(process);
        let name = app.scene.names.labels.name(of.label);
        forms.push(format!("{counted} of all, {} % of {name})", text::percent(selected.total, of.total)));
    }
    forms.extend([format!("{counted})"), format!("  self {own} %  total {total} %")]);
    forms
}

/// The same beside the baseline.
fn compared(app: &App, difference: &Difference, node: NodeId) -> Vec<String> {
    let (sides, whole) = (difference.node(node), difference.whole());
    let words = |change: Change| match change.chance {
        true if change.by == 0.0 => "unchanged".to_owned(),
        true => format!("{}, may be chance", app.scene.change(change)),
        false => app.scene.change(change),
    };
    if let Measure::Rates { now, before, .. } = difference.measure() {
        let unit = if app.scene.ticks() == 0 { "" } else { " CPUs" };
        let rate = |weight: u64, seconds: f64| format!("{}{unit}", app.scene.rate(weight as f64 / seconds));
        let told = |part: Sides| {
            format!("now {}  was {}  {}", rate(part.now, now), rate(part.before, before), words(difference.change(part)))
        };
        let mut forms = vec![format!("  {}", told(sides.total)), format!("  {}", words(difference.change(sides.total)))];
        if sides.own != sides.total && sides.own != Sides::default() {
            forms.insert(0, format!("  {}  self {}", told(sides.total), told(sides.own)));
        }
        return forms;
    }
    let (now, was) = (text::percent(sides.total.now, whole.now), text::percent(sides.total.before, whole.before));
    let counted =
        format!("  now {} ({now} %)  was {} ({was} %)", app.scene.samples(sides.total.now), text::grouped(sides.total.before));
    if node == CallTree::ROOT {
        return vec![counted];
    }
    let change = words(difference.change(sides.total));
    let mut forms = vec![format!("{counted}  {change}"), format!("  now {now} %  was {was} %  {change}")];
    if sides.own != sides.total && sides.own != Sides::default() {
        forms.insert(0, format!("{counted}  {change}  self {}", words(difference.change(sides.own))));
    }
    forms
}

/// What the narrow callees under the cursor weigh together: where they are one box, its weight; entered, all that is shown.
fn gathered(app: &App) -> Option<u64> {
    let tree = &app.scene.snapshot.tree;
    let layout = app.flame.layout(tree, &app.scene.names.labels, &app.scene.theme, app.scene.areas().body);
    if app.flame.zoom == *app.cursor() {
        return layout.rows.get(layout.lead).map(|row| row.iter().map(|span| span.weight).sum());
    }
    let (row, index) = layout.locate(tree, app.cursor())?;
    layout.rows.get(row)?.get(index).map(|span| span.weight)
}

fn draw_prompt(app: &App, prompt: &Prompt, area: Rect, buffer: &mut Buffer) {
    let (before, after) = prompt.line.split();
    let mut x = put(buffer, area, area.x + 1, area.y, prompt.label(), app.scene.theme.key());
    // A long line shows its end, where the cursor is.
    let room = usize::from(area.right().saturating_sub(x + 2));
    let mut shown = before;
    while text::width(shown) > room {
        let mut rest = shown.chars();
        rest.next();
        shown = rest.as_str();
    }
    let typed = if prompt.proposed { app.scene.theme.chip() } else { app.scene.theme.strong() };
    x = put(buffer, area, x, area.y, shown, typed);
    let mut rest = after.chars();
    let under = rest.next().map_or(" ".to_owned(), String::from);
    let style = app.scene.theme.strong().add_modifier(Modifier::REVERSED);
    x = put(buffer, area, x, area.y, &under, style);
    x = put(buffer, area, x, area.y, rest.as_str(), app.scene.theme.strong());
    let words = match (&prompt.error, &app.scene.snapshot.search) {
        (Some(error), _) => format!("  {error}"),
        (None, Some(found)) if app.scene.search.is_some() && prompt.label().starts_with("search") => {
            format!("  {} % of samples", text::percent(found.weight, app.scene.snapshot.tree.total()))
        }
        _ if prompt.proposed => "  Enter takes it, typing replaces it, Esc leaves".to_owned(),
        _ => "  Enter takes it, Esc leaves".to_owned(),
    };
    let style = if prompt.error.is_some() { app.scene.theme.warning() } else { app.scene.theme.dim() };
    put(buffer, area, x + 1, area.y, &words, style);
}

fn draw_hints(app: &App, area: Rect, buffer: &mut Buffer) {
    let mut hints: Vec<(&str, &str)> = Vec::new();
    for (binding, keys) in app.scene.keys.rows().filter(|(binding, _)| !binding.hint.is_empty()) {
        if let Some(key) = keys.iter().find(|key| !app.scene.theme.ascii || key.is_ascii()) {
            hints.push((key, binding.hint));
        }
    }
    let width = |hints: &[(&str, &str)]| -> usize { hints.iter().map(|(k, h)| text::width(k) + text::width(h) + 3).sum() };
    let crumbs = breadcrumb(app);
    // Help and quit are always there; others go from the end of the list when there is no room.
    let least = usize::from(area.width) / 3;
    while hints.len() > 2 && width(&hints) + least.min(text::width(&crumbs) + 2) > usize::from(area.width) {
        hints.remove(hints.len() - 3);
    }
    let hints_width = u16::try_from(width(&hints)).unwrap_or(area.width).min(area.width);
    let mut x = area.right() - hints_width;
    let left = Rect { width: x.saturating_sub(area.x), ..area };
    put(buffer, left, left.x + 1, left.y, &text::cut(&crumbs, usize::from(left.width).saturating_sub(2)), app.scene.theme.dim());
    for (key, hint) in hints {
        x = put(buffer, area, x, area.y, key, app.scene.theme.key());
        x = put(buffer, area, x + 1, area.y, hint, app.scene.theme.dim()) + 2;
    }
}

/// Where the reader is: `all › nginx › main › …`, with the root side cut where it does not fit.
fn breadcrumb(app: &App) -> String {
    if let Some(source) = &app.source {
        return format!("source of {}", app.scene.names.labels.name(source.label));
    }
    if app.scene.view != View::Flame {
        let (number, name) = app.scene.view.title();
        return format!("{number} {name}: {}", app.scene.target_name());
    }
    let arrow = if app.scene.theme.ascii { " > " } else { " › " };
    let mut words = app.scene.target_name();
    let path: Vec<Cow<'_, str>> = app
        .cursor()
        .path
        .iter()
        .map(|label| app.scene.names.labels.get(*label).map_or(Cow::Borrowed("?"), |label| app.scene.shown_name(label)))
        .collect();
    let skip = path.len().saturating_sub(4);
    if skip > 0 {
        words.push_str(arrow);
        words.push('…');
    }
    for name in &path[skip..] {
        words.push_str(arrow);
        words.push_str(&fit_name(name, 28));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_give_way_before_what_was_searched_for() {
        let forms = |forms: &[&str]| forms.iter().map(|form| (*form).to_owned()).collect::<Vec<_>>();
        let (figures, searched) = (forms(&["nine long", "middling", "few"]), forms(&["/main/ 12", "12"]));
        let fitted = |columns| fit(&figures, &searched, columns);
        assert_eq!(fitted(18), ("nine long", "/main/ 12"));
        assert_eq!(fitted(17), ("middling", "/main/ 12"));
        assert_eq!(fitted(16), ("middling", "12"));
        assert_eq!(fitted(9), ("few", "12"));
        assert_eq!(fitted(0), ("few", "12"), "something is always said");
        assert_eq!(fit(&figures, &[], 9), ("nine long", ""));
        assert_eq!(fit(&figures[2..], &searched, 12), ("few", "/main/ 12"));
    }
}
