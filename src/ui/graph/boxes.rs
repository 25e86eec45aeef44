//! The boxes of a call tree: their looks, their words, and their edges.
//!
//! With colours, the edges of boxes lie at eighths of a column. A cell that two boxes share is a left-block glyph: the left box's
//! colour on the right box's colour. If two boxes meet at a cell's edge, the left one leaves an eighth free, so that neighbours
//! stay apart. Without colours, boxes begin with `│` on whole columns.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::layout::{Layout, Span, frames_of};
use crate::profile::{CallTree, Change, Difference, FrameKind, Label, LabelId, Measure, NodeId};
use crate::ui::names::fit_name;
use crate::ui::scene::Scene;
use crate::ui::text;
use crate::ui::theme::{BoxColours, Depth};

/// Left blocks of 1 to 7 eighths.
const LEFT_BLOCKS: [&str; 8] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// A tree to draw.
#[derive(Clone, Copy)]
pub(in crate::ui) struct Boxes<'a> {
    pub(in crate::ui) scene: &'a Scene,
    pub(in crate::ui) tree: &'a CallTree,
    pub(in crate::ui) layout: &'a Layout,
    /// The weights of its nodes on both sides, in a comparison.
    pub(in crate::ui) difference: Option<&'a Difference>,
    /// The function of the root. `None` for the root of everything.
    pub(in crate::ui) root: Option<LabelId>,
    pub(in crate::ui) cursor: Cursor,
}

/// The selected box, found in the tree once for each picture.
#[derive(Clone, Copy, Default)]
pub(in crate::ui) struct Cursor {
    pub(in crate::ui) node: Option<NodeId>,
    pub(in crate::ui) rest: bool,
}

impl Cursor {
    fn is_on(self, tree: &CallTree, span: &Span) -> bool {
        self.node.is_some_and(|node| self.rest == (span.rest > 0) && frames_of(tree, span).contains(&node))
    }
}

struct Look {
    style: Style,
    words: Words,
}

enum Words {
    /// The names of a frame or of a chain, and which one is selected. The number of repetitions of a single frame and the figures
    /// follow the name. The share stands at the right end.
    Frame { names: Vec<String>, selected: usize, times: String, mark: &'static str, figures: String, share: String },
    /// Number of narrow children.
    Rest(u32),
}

impl<'a> Boxes<'a> {
    /// Returns the function of a node. `None` for the root of everything.
    fn label(&self, id: NodeId) -> Option<&'a Label> {
        let label = if id == CallTree::ROOT { self.root? } else { self.tree.node(id).label };
        self.scene.names.labels.get(label)
    }

    /// Draws one row, counted from the root.
    pub(in crate::ui) fn draw_row(&self, row: usize, line: Rect, buffer: &mut Buffer) {
        let Some(spans) = self.layout.rows.get(row) else { return };
        let mut shift = false;
        let mut last_ground = None;
        for (index, span) in spans.iter().enumerate() {
            let mut look = self.look_of(row, span, shift);
            // Neighbours of one colour differ in lightness.
            if last_ground == Some((look.style.bg, span.from)) {
                shift = !shift;
                look = self.look_of(row, span, shift);
            }
            let next_begins = spans.get(index + 1).is_some_and(|next| next.from == span.to);
            if self.scene.theme.fractional() {
                draw_fractional(span, &look, next_begins, line, buffer);
            } else {
                draw_plain(self.scene, span, &look, line, buffer);
            }
            last_ground = Some((look.style.bg, span.to));
        }
    }

    fn look_of(&self, row: usize, span: &Span, shift: bool) -> Look {
        let Boxes { scene, tree, layout, cursor, .. } = *self;
        // The weight of a chain is its last frame's weight.
        let node = tree.node(span.last);
        let label = self.label(span.last);
        let own = if node.total == 0 { 0.0 } else { node.own as f64 / node.total as f64 };
        let faded = row + 1 < layout.lead;
        let change = self.difference.map(|difference| difference.change(difference.node(span.node).total));
        let colours = match change {
            Some(change) => scene.theme.change(change, shift, faded || span.rest > 0),
            None => scene.theme.frame(label, shift, faded || span.rest > 0, own),
        };
        let mut style = Style::new().bg(colours.ground).fg(colours.ink);
        if scene.theme.depth == Depth::None {
            // Without colours, the underline shows where a box ends.
            style = style.add_modifier(Modifier::UNDERLINED);
        }
        if let Some(found) = &scene.snapshot.search {
            let is_found = |id: &NodeId| *id != CallTree::ROOT && found.matches(tree.node(*id).label);
            if span.rest == 0 && frames_of(tree, span).iter().any(is_found) {
                style = scene.theme.found(colours);
            } else {
                style = style.patch(unmatched(scene, colours));
            }
        }
        if label.is_some_and(|label| label.provisional) {
            style = style.add_modifier(Modifier::ITALIC);
        }
        if cursor.is_on(tree, span) {
            style = scene.theme.selected();
        }
        let columns = (span.to - span.from) / if scene.theme.fractional() { 8 } else { 1 };
        let caller = row.checked_sub(1).and_then(|row| layout.rows.get(row)).and_then(|row| row.get(span.parent as usize));
        let mut words = self.words_of(span, label, change, columns);
        if let (Words::Frame { share, figures, .. }, Some(caller)) = (&mut words, caller)
            && figures.is_empty()
            && change.is_none()
        {
            *share = share_of(tree, span, caller);
        }
        Look { style, words }
    }

    fn words_of(&self, span: &Span, label: Option<&Label>, change: Option<Change>, columns: u32) -> Words {
        let Boxes { scene, tree, cursor, .. } = *self;
        if span.rest > 0 {
            return Words::Rest(span.rest);
        }
        let names = match label {
            None => vec!["all".to_owned()],
            // Most boxes are this narrow. Preparing names that nobody can read would take most of a picture's time.
            Some(label) if columns < READABLE => vec![label.name.to_string()],
            Some(label) if span.last == span.node => vec![scene.shown_name(label).into_owned()],
            Some(_) => {
                let named = |id| match scene.names.labels.get(tree.node(id).label) {
                    Some(label) => format!("{}{}", scene.shown_name(label), times_of(scene, tree, id)),
                    None => String::new(),
                };
                frames_of(tree, span).into_iter().map(named).collect()
            }
        };
        let selected = match names.len() {
            1 => 0,
            count => frames_of(tree, span).iter().position(|id| Some(*id) == cursor.node).unwrap_or(count - 1),
        };
        // Processes and the root show their weight; on functions it would be repeated row after row. In a comparison, each box
        // shows its change.
        let figures = match (label.map(|label| label.kind), change) {
            (Some(_), None) if span.last == CallTree::ROOT => scene.amount_with_unit(span.weight),
            (None, Some(change)) => match rate_of(scene) {
                Some(rate) => format!("{rate}  {}", scene.change(change)),
                None => scene.amount_with_unit(scene.snapshot.weight()),
            },
            // Processes always show their change, so that it is easy to find.
            (Some(FrameKind::Process), Some(change)) if rate_of(scene).is_some() => scene.change(change),
            (Some(_), Some(change)) if change.chance => String::new(),
            (Some(_), Some(change)) => scene.change(change),
            (None, None) => match scene.use_of_all(span.weight) {
                Some(rate) => format!("{}  {rate}", scene.amount_with_unit(span.weight)),
                None => scene.amount_with_unit(span.weight),
            },
            (Some(FrameKind::Process), None) => {
                let rate = scene.use_of(span.weight).unwrap_or_else(|| scene.amount(span.weight));
                format!("{rate}  {} %", text::percent(span.weight, tree.total()))
            }
            (Some(_), None) => String::new(),
        };
        let times = if names.len() == 1 { times_of(scene, tree, span.node) } else { String::new() };
        let mark = if scene.theme.depth == Depth::None { label.map_or("", |label| label.kind.mark()) } else { "" };
        Words::Frame { names, selected, times, mark, figures, share: String::new() }
    }
}

/// Returns the style of a box that a search did not find: dimmed, where there are colours.
fn unmatched(scene: &Scene, colours: BoxColours) -> Style {
    match (scene.theme.dark, colours.ground) {
        (true, Color::Rgb(r, g, b)) => {
            let dim = |value: u8| value / 2;
            Style::new().bg(Color::Rgb(dim(r), dim(g), dim(b))).fg(Color::Rgb(210, 210, 215))
        }
        (false, Color::Rgb(r, g, b)) => {
            let pale = |value: u8| 255 - (255 - value) / 2;
            Style::new().bg(Color::Rgb(pale(r), pale(g), pale(b)))
        }
        _ => Style::new(),
    }
}

/// Least columns that show a readable part of a name: see [`fit_name`].
const READABLE: u32 = 3;

/// Least columns of a cut name that leave room for the number of repetitions.
const LEAST_NAME: usize = 8;

/// Least columns between a name and the share at the right end.
const SPACE: usize = 2;

/// Returns ` ×15` for a function that calls itself, at most 15 deep. Empty for all other functions.
pub(in crate::ui) fn times_of(scene: &Scene, tree: &CallTree, node: NodeId) -> String {
    match tree.repeats(node) {
        1 => String::new(),
        repeats => format!(" {}{repeats}", if scene.theme.ascii { 'x' } else { '×' }),
    }
}

/// Returns the share of a function's box. Empty if it equals the caller's share, which would be repeated row after row.
fn share_of(tree: &CallTree, span: &Span, caller: &Span) -> String {
    let [share, of_caller] = [span, caller].map(|span| text::percent(span.weight, tree.total()));
    if share == of_caller { String::new() } else { format!("{share} %") }
}

/// Returns the current rate of everything, if rates are compared: `1.96 CPUs`.
fn rate_of(scene: &Scene) -> Option<String> {
    match scene.snapshot.difference.as_ref()?.measure() {
        Measure::Shares => None,
        Measure::Rates { now, .. } => {
            Some(format!("{}{}", scene.rate(scene.snapshot.weight() as f64 / now), scene.unit_of_rate()))
        }
    }
}

impl Words {
    /// Returns the share, if there is room for it beside these words.
    fn share_beside(&self, words: &str, columns: usize) -> Option<&str> {
        let Words::Frame { share, .. } = self else { return None };
        let fits = !share.is_empty() && text::width(words) + text::width(share) + SPACE <= columns;
        fits.then_some(share)
    }

    /// Returns the words, shortened to these columns.
    fn fit(&self, columns: usize, ascii: bool) -> String {
        match self {
            Words::Rest(count) => {
                let words = format!("+{}", text::count(u64::from(*count)));
                if text::width(&words) <= columns { words } else { String::new() }
            }
            Words::Frame { names, selected, times, mark, figures, .. } => {
                let arrow = if ascii { " > " } else { " → " };
                // Brackets mark the selected frame of a chain.
                let marked = |(at, name): (usize, &String)| match at == *selected && at + 1 < names.len() {
                    true => format!("[{name}]"),
                    false => name.clone(),
                };
                let names: Vec<String> = names.iter().enumerate().map(marked).collect();
                let all = format!("{}{times}", names.join(arrow));
                let with = |more: &str| format!("{all} {more}");
                let words = if !figures.is_empty() && text::width(&with(figures)) <= columns {
                    with(figures)
                } else if !mark.is_empty() && text::width(&with(mark)) <= columns {
                    with(mark)
                } else if let [name] = names.as_slice() {
                    let room = columns.saturating_sub(text::width(times));
                    let both = room >= LEAST_NAME || text::width(name) <= room;
                    if both { fit_name(name, room) + times } else { fit_name(name, columns) }
                } else if text::width(&all) <= columns {
                    all
                } else {
                    fit_chain(&names, *selected, arrow, columns)
                };
                if ascii { words.replace('…', "~") } else { words }
            }
        }
    }
}

/// Shortens a chain. The selected frame gets room first; by default it is the last frame, which has the chain's weight. The first
/// frame gets the remaining room.
fn fit_chain(names: &[String], selected: usize, arrow: &str, columns: usize) -> String {
    let (Some(first), Some(wanted)) = (names.first(), names.get(selected)) else { return String::new() };
    let before = if selected > 1 { format!("{arrow}…{arrow}") } else { arrow.to_owned() };
    let after = if selected + 1 < names.len() { format!("{arrow}…") } else { String::new() };
    let room = columns.saturating_sub(text::width(&before) + text::width(&after));
    if room < 12 || selected == 0 {
        return fit_name(wanted, columns);
    }
    let wanted = fit_name(wanted, room * 2 / 3);
    let first = fit_name(first, room - text::width(&wanted));
    format!("{first}{before}{wanted}{after}")
}

fn draw_fractional(span: &Span, look: &Look, next_begins: bool, line: Rect, buffer: &mut Buffer) {
    let ground = look.style.bg.unwrap_or(Color::Reset);
    let cells = |units: u32| u16::try_from(units / 8).unwrap_or(u16::MAX);
    let (first, lead) = (cells(span.from), span.from % 8);
    let (end, tail) = (cells(span.to), span.to % 8);
    // The left neighbour may share the first cell and has drawn its part. Only the background belongs to this box there.
    let mut x = first;
    if lead > 0 {
        if let Some(cell) = buffer.cell_mut((line.x + x, line.y)) {
            cell.set_bg(ground);
            if cell.symbol() == " " {
                // There is no left neighbour. Right blocks do not exist, so the terminal's background is drawn as a left block on
                // the box's colour. It is drawn reversed, because the terminal's background has no name of a colour.
                cell.set_symbol(LEFT_BLOCKS[lead as usize]).set_fg(ground).set_bg(Color::Reset);
                cell.modifier.insert(Modifier::REVERSED);
            }
        }
        x += 1;
    }
    for at in x..end {
        if let Some(cell) = buffer.cell_mut((line.x + at, line.y)) {
            cell.set_symbol(" ").set_style(look.style);
        }
    }
    let mut text_end = end;
    if tail > 0 {
        if let Some(cell) = buffer.cell_mut((line.x + end, line.y)) {
            cell.set_symbol(LEFT_BLOCKS[tail as usize]).set_style(Style::new().fg(ground).bg(Color::Reset));
        }
    } else if next_begins && end > x + 1 {
        text_end = end - 1;
        if let Some(cell) = buffer.cell_mut((line.x + text_end, line.y)) {
            cell.set_symbol(LEFT_BLOCKS[7]).set_style(Style::new().fg(ground).bg(Color::Reset));
        }
    }
    write_words(look, false, Rect { x: line.x + x, width: text_end.saturating_sub(x), ..line }, buffer);
}

/// Writes a box's words, and its share at the right end if there is room.
fn write_words(look: &Look, ascii: bool, area: Rect, buffer: &mut Buffer) {
    let columns = usize::from(area.width);
    let words = look.words.fit(columns, ascii);
    if let Some(share) = look.words.share_beside(&words, columns) {
        let from = area.right() - u16::try_from(text::width(share)).unwrap_or(0);
        buffer.set_stringn(from, area.y, share, columns, quiet(look.style));
    }
    buffer.set_stringn(area.x, area.y, words, columns, look.style);
}

/// Returns the style with a text colour between the name's colour and the background.
fn quiet(style: Style) -> Style {
    let (Some(Color::Rgb(r, g, b)), Some(Color::Rgb(ground_r, ground_g, ground_b))) = (style.fg, style.bg) else { return style };
    let mix = |ink: u8, ground: u8| ((u16::from(ink) * 2 + u16::from(ground)) / 3) as u8;
    style.fg(Color::Rgb(mix(r, ground_r), mix(g, ground_g), mix(b, ground_b)))
}

fn draw_plain(scene: &Scene, span: &Span, look: &Look, line: Rect, buffer: &mut Buffer) {
    let (from, to) = (span.from as u16, span.to as u16);
    for at in from..to {
        if let Some(cell) = buffer.cell_mut((line.x + at, line.y)) {
            cell.set_symbol(" ").set_style(look.style);
        }
    }
    let edge = if scene.theme.ascii { "|" } else { "│" };
    let mut x = from;
    if let Some(cell) = buffer.cell_mut((line.x + x, line.y)) {
        cell.set_symbol(edge);
        x += 1;
    }
    write_words(look, scene.theme.ascii, Rect { x: line.x + x, width: to.saturating_sub(x), ..line }, buffer);
}
