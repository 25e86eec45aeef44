//! Describes the frame under the cursor in one line: name, module, weight, and hottest source line.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::state::Flame;
use crate::profile::{CallTree, Change, Difference, FrameKind, Measure, NodeId, Sides, TreeNode};
use crate::ui::detail::DetailLine;
use crate::ui::graph::boxes::times_of;
use crate::ui::names::fit_name;
use crate::ui::scene::Scene;
use crate::ui::text;

use crate::ui::paint::put;

/// Columns reserved for a name and its source line. The words about weights become longer only beyond that.
const NAME_ROOM: usize = 32;
const PLACE_ROOM: usize = 24;

/// Draws the line.
pub(super) fn draw(flame: &Flame, scene: &Scene, line: DetailLine<'_>, buffer: &mut Buffer) {
    let tree = &scene.snapshot.tree;
    if tree.total() == 0 {
        line.draw_searched(buffer);
        return;
    }
    let (node, found) = flame.cursor.find(tree);
    if !found {
        line.draw_searched(buffer);
        return;
    }
    let figures = match &scene.snapshot.difference {
        Some(difference) if !flame.cursor.rest => compared(scene, difference, node),
        Some(_) => vec![String::new()],
        None => weighed(flame, scene, node),
    };
    let (name, object) = match scene.names.labels.get(tree.node(node).label).filter(|_| node != CallTree::ROOT) {
        None => ("all".to_owned(), String::new()),
        Some(label) => {
            let mark = label.kind.mark();
            let name = format!("{}{}", label.name, times_of(scene, tree, node));
            let name = if mark.is_empty() { name } else { format!("{name} {mark}") };
            (name, label.short_object().to_owned())
        }
    };
    let name = if flame.cursor.rest { format!("narrow callees of {name}") } else { name };
    let place = line.hottest.map_or(0, |place| text::width(&place.file) + 8);
    let needed = text::width(&name).min(NAME_ROOM) + text::width(&object) + place.min(PLACE_ROOM) + 4;
    let (figures, searched) = fit(&figures, line.searched, usize::from(line.area.width).saturating_sub(needed));
    let left = line.draw_right(searched, buffer);
    let room = usize::from(left.width).saturating_sub(text::width(figures) + text::width(&object) + 4);
    let x = put(buffer, left, left.x + 1, left.y, &fit_name(&name, room.max(8)), scene.theme.strong());
    let x = if object.is_empty() { x } else { put(buffer, left, x + 2, left.y, &object, scene.theme.dim()) };
    let x = put(buffer, left, x, left.y, figures, Style::new());
    let label = scene.names.labels.get(tree.node(node).label).filter(|_| node != CallTree::ROOT);
    if !label.is_some_and(|label| line.draw_reason(scene, label, left, x, buffer)) {
        line.draw_hottest(left, x, buffer);
    }
}

/// Chooses the longest words about weights and about the search that fit into these columns together. Both lists go from the
/// longest wording to the shortest. Figures are shortened first, because the search's result is more important to a user who
/// searches.
fn fit<'a>(figures: &'a [String], searched: &'a [String], columns: usize) -> (&'a str, &'a str) {
    let form = |forms: &'a [String], at: usize| forms.get(at).or(forms.last()).map_or("", String::as_str);
    let pairs = [(0, 0), (1, 0), (1, 1), (2, 1)].map(|(of, found)| (form(figures, of), form(searched, found)));
    let fitting = pairs.into_iter().find(|(of, found)| text::width(of) + text::width(found) <= columns);
    fitting.unwrap_or((form(figures, usize::MAX), form(searched, usize::MAX)))
}

/// Describes the weight under the cursor, from the longest wording to the shortest. For a frame, it is the own weight and the
/// weight with callees; for gathered narrow callees, their sum.
fn weighed(flame: &Flame, scene: &Scene, node: NodeId) -> Vec<String> {
    let tree = &scene.snapshot.tree;
    let selected = *tree.node(node);
    let selected = match flame.cursor.rest {
        true => TreeNode { own: 0, total: gathered(flame, scene).unwrap_or(0), ..selected },
        false => selected,
    };
    let percent = |weight| text::percent(weight, tree.total());
    let (own, total) = (percent(selected.own), percent(selected.total));
    let counted = format!("  self {} ({own} %)  total {} ({total} %", scene.amount(selected.own), scene.amount(selected.total));
    // The share of the process, if the frame is in one.
    let process = tree.path(node).first().copied().filter(|first| *first != node);
    let process = process.filter(|id| scene.names.labels.get(tree.node(*id).label).is_some_and(|l| l.kind == FrameKind::Process));
    let mut forms = Vec::new();
    if node == CallTree::ROOT
        && !flame.cursor.rest
        && let (Some(seconds), Some(rate)) = (scene.snapshot.seconds, scene.use_of_all(selected.total))
    {
        // The root has no own weight, and its share is 100 %.
        let (all, time) = (scene.amount_with_unit(selected.total), text::cpu_time(seconds));
        return vec![format!("  {all} in {time} = {rate}"), format!("  {all}")];
    }
    if let Some(process) = process {
        let of = tree.node(process);
        let name = scene.names.labels.name(of.label);
        forms.push(format!("{counted} of all, {} % of {name})", text::percent(selected.total, of.total)));
    }
    forms.extend([format!("{counted})"), format!("  self {own} %  total {total} %")]);
    forms
}

/// Describes the weight under the cursor beside the baseline.
fn compared(scene: &Scene, difference: &Difference, node: NodeId) -> Vec<String> {
    let (sides, whole) = (difference.node(node), difference.whole());
    let words = |change: Change| match change.chance {
        true if change.by == 0.0 => "unchanged".to_owned(),
        true => format!("{}, may be chance", scene.change(change)),
        false => scene.change(change),
    };
    if let Measure::Rates { now, before, .. } = difference.measure() {
        let unit = scene.unit_of_rate();
        let rate = |weight: u64, seconds: f64| format!("{}{unit}", scene.rate(weight as f64 / seconds));
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
        format!("  now {} ({now} %)  was {} ({was} %)", scene.amount(sides.total.now), scene.counted(sides.total.before));
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

/// Returns the sum of the narrow callees under the cursor. In one box, it is the box's weight. After zooming in, it is the sum of
/// all boxes shown.
fn gathered(flame: &Flame, scene: &Scene) -> Option<u64> {
    let tree = &scene.snapshot.tree;
    let layout = flame.layout(tree, &scene.names.labels, &scene.theme, scene.areas().body);
    if flame.zoom == flame.cursor {
        return layout.rows.get(layout.lead).map(|row| row.iter().map(|span| span.weight).sum());
    }
    let (row, index) = layout.locate(tree, &flame.cursor)?;
    layout.rows.get(row)?.get(index).map(|span| span.weight)
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
