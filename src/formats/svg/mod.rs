//! Writes a call tree as an interactive flame graph for a browser: a click zooms, search highlights. inferno draws it; flametop
//! adds names and colours.
//!
//! ```text
//! tree ─► boxes.rs: which boxes, as folded lines of numbers ─► inferno: where each box is ─► dress.rs: names, colours, legend
//! ```
//!
//! The same tree gives the same file, byte for byte.

mod boxes;
mod classes;
mod dress;
mod names;
mod narrow;
mod options;
#[cfg(test)]
mod tests;

use std::io::Write;

use inferno::flamegraph::{Direction, Options, from_lines};

use super::paths::Texts;
use super::{FormatError, Part};
use crate::profile::{Difference, FunctionRow, Label, Sides};
use boxes::{Drawing, few_enough};
pub(super) use dress::Dressed;
use dress::{CHARACTER_WIDTH, FONT_SIZE, Picture, dress};
pub(super) use names::in_markup;
pub(super) use options::printable;
pub use options::{Drawn, SvgOptions};

/// The colour of search results, as on the screen. `style.css` has it too.
const SEARCH_COLOUR: &str = "#be50c8";

/// Writes a picture of a node and everything below it. The callers of the node are drawn at full width, as after zooming.
///
/// In a comparison, the current weight decides a box's width. Boxes are red where their share has grown, blue where it has shrunk.
/// Functions that only the baseline has get no box. `out` should be buffered. A tree without weight is an error.
pub fn write(part: Part<'_>, options: &SvgOptions, out: &mut dyn Write) -> Result<Drawn, FormatError> {
    let (picture, drawn) = draw(&part, &[], options)?;
    picture.write(out)?;
    Ok(drawn)
}

/// Draws a picture. Its table gets these functions, too.
pub(super) fn draw(part: &Part<'_>, functions: &[FunctionRow], options: &SvgOptions) -> Result<(Dressed, Drawn), FormatError> {
    let Part { tree, difference, labels, root } = *part;
    let total = difference.map_or(tree.node(root).total, |difference| difference.node(root).total.now);
    if total == 0 {
        return Err(FormatError::NothingToSave);
    }
    let texts = Texts::new(tree, labels, |labels, id| sorted_by(labels.get(id)));
    let boxes = few_enough(&Drawing { tree, root, texts: &texts, difference });
    let drawn = Drawn {
        frames: boxes.boxes.iter().filter(|of| of.label.is_some()).count(),
        narrowest: boxes.narrowest,
        deepest: boxes.deepest,
        total,
    };
    let cut = drawn.cut();
    let subtitle: Vec<&str> = options.subtitle.as_deref().into_iter().chain(cut.as_deref()).collect();
    let whole = difference
        .map_or_else(|| Sides { now: tree.node(root).total, ..Sides::default() }, |difference| difference.node(root).total);
    let picture = Picture { boxes: &boxes, labels, options, comparison: difference.map(Difference::comparison), whole };
    let mut inferno = Options::default();
    inferno.title = printable(&options.title);
    inferno.subtitle = (!subtitle.is_empty()).then(|| printable(&subtitle.join(" · ")));
    inferno.count_name = printable(&options.count_name);
    inferno.direction = if options.inverted { Direction::Inverted } else { Direction::Straight };
    inferno.font_type = "monospace".to_owned();
    inferno.font_size = FONT_SIZE;
    inferno.font_width = CHARACTER_WIDTH;
    inferno.search_color = SEARCH_COLOUR.parse().unwrap_or(inferno.search_color);
    inferno.deterministic = true;
    // Narrow boxes have been merged already.
    inferno.min_width = 0.0;
    // For inferno, "flame chart" means: use the lines in reverse order, unsorted.
    inferno.flame_chart = true;
    let mut raw = Vec::new();
    from_lines(&mut inferno, boxes.lines().rev(), &mut raw)?;
    Ok((dress(&raw, &picture, functions)?, drawn))
}

/// Returns the sort key of a box. Frames with the same key are one box.
fn sorted_by(label: Option<&Label>) -> String {
    label.map_or_else(|| "?".to_owned(), |label| format!("{}{}", label.name, label.kind.annotation()))
}
