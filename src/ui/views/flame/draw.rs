//! View 1: the flame graph.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::state::Flame;
use crate::profile::CallTree;
use crate::ui::graph::boxes::{Boxes, Cursor};
use crate::ui::graph::layout::Layout;
use crate::ui::keys::Action;
use crate::ui::names::fit_name;
use crate::ui::place::Place;
use crate::ui::scene::{Hovered, Scene};
use crate::ui::text;

use crate::ui::paint::{put, put_right};

/// Draws the graph, or the reason why there is none.
pub(super) fn draw(flame: &Flame, scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let tree = &scene.snapshot.tree;
    if tree.total() == 0 {
        return empty(scene, area, buffer);
    }
    let layout = flame.layout(tree, &scene.names.labels, &scene.theme, area);
    let (cursor, cursor_found) = flame.cursor.find(tree);
    let cursor = Cursor { node: cursor_found.then_some(cursor), rest: flame.cursor.rest };
    let difference = scene.snapshot.difference.as_deref();
    let boxes = Boxes { scene, tree, layout: &layout, difference, root: None, cursor };
    for line in 0..area.height {
        let row = flame.row_at(usize::from(line), usize::from(area.height));
        boxes.draw_row(row, Rect::new(area.x, area.y + line, area.width, 1), buffer);
    }
    draw_idle(flame, scene, &layout, area, buffer);
    tell_unseen_rows(flame, scene, &layout, area, buffer);
    if let Some(Hovered::Box(place)) = &scene.hover {
        show_hovered(flame, scene, place, area, buffer);
    }
}

/// Labels the empty part of the picture, if widths are shares of the machine.
fn draw_idle(flame: &Flame, scene: &Scene, layout: &Layout, area: Rect, buffer: &mut Buffer) {
    let Some(root) = layout
        .rows
        .first()
        .and_then(|row| row.first())
        .filter(|_| flame.of_machine && flame.zoom == Place::default() && area.height > 0)
    else {
        return;
    };
    let unit = if scene.theme.fractional() { 8 } else { 1 };
    let x = area.x + u16::try_from(root.to.div_ceil(unit)).unwrap_or(area.width) + 1;
    let y = if flame.root_on_top { area.y } else { area.bottom() - 1 };
    let words = format!("idle {:.1} %", (1.0 - flame.part) * 100.0);
    if usize::from(area.right().saturating_sub(x)) >= text::width(&words) {
        put(buffer, area, x, y, &words, scene.theme.dim());
    }
}

/// Shows at the edge how many rows lie beyond it, and the hottest function in them.
fn tell_unseen_rows(flame: &Flame, scene: &Scene, layout: &Layout, area: Rect, buffer: &mut Buffer) {
    let first = flame.scroll + usize::from(area.height);
    let unseen = layout.rows.get(first..).unwrap_or_default();
    if unseen.is_empty() || area.height < 3 {
        return;
    }
    let tree = &scene.snapshot.tree;
    let spans = unseen.iter().flatten().filter(|span| span.rest == 0);
    let Some(hottest) = spans.max_by_key(|span| (tree.node(span.last).own, std::cmp::Reverse(span.last))) else { return };
    let node = tree.node(hottest.last);
    let name = scene.names.labels.get(node.label).map_or_else(String::new, |label| fit_name(&scene.shown_name(label), 32));
    let more = if layout.is_cut { "+" } else { "" };
    let (arrow, edge) = match (scene.theme.ascii, flame.root_on_top) {
        (true, true) => ("v", area.bottom() - 1),
        (true, false) => ("^", area.y),
        (false, true) => ("▼", area.bottom() - 1),
        (false, false) => ("▲", area.y),
    };
    let rows = if unseen.len() == 1 { "row" } else { "rows" };
    let mut words = format!(" {arrow} {}{more} {rows} more", unseen.len());
    if node.own > 0 {
        words += &format!(", hottest {name} {} %", text::percent(node.own, tree.total()));
    }
    if !flame.chains {
        words += &format!("   {} folds chains", scene.keys.first(Action::Chains));
    }
    words.push(' ');
    if text::width(&words) < usize::from(area.width) {
        put_right(buffer, area, edge, &words, scene.theme.chip());
    }
}

fn empty(scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let filtered = !scene.filters().is_empty() || !scene.target().is_everything();
    let words = match (filtered, scene.status.live) {
        _ if scene.is_counting() && !scene.status.live => "counting …",
        (true, _) => &format!(
            "no samples match: {} leaves one level, {} removes filters and target",
            scene.keys.first(Action::ZoomOut),
            scene.keys.first(Action::RemoveAllFilters)
        ),
        (false, true) => "waiting for the first samples …",
        (false, false) => "there are no samples",
    };
    put(buffer, area, area.x + 1, area.y + area.height / 3, words, scene.theme.dim());
}

/// Shows the whole name of the frame under the pointer, on the body's last line.
fn show_hovered(flame: &Flame, scene: &Scene, place: &Place, area: Rect, buffer: &mut Buffer) {
    let tree = &scene.snapshot.tree;
    let (node, found) = place.find(tree);
    if !found || *place == flame.cursor {
        return;
    }
    let name = if node == CallTree::ROOT { "all" } else { scene.names.labels.name(tree.node(node).label) };
    let rest = if place.rest { "narrow callees of " } else { "" };
    let weight = scene.snapshot.node(node).total.now;
    let mut words = format!(" {rest}{name}  {}  {} % ", scene.amount(weight), text::percent(weight, scene.snapshot.weight()));
    if let Some(difference) = &scene.snapshot.difference {
        words.push_str(&format!(" {} ", scene.change(difference.change(difference.node(node).total))));
    }
    put(buffer, area, area.x, area.bottom() - 1, &words, scene.theme.chip());
}
