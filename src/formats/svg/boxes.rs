//! Chooses the boxes of a picture, and writes them as lines for inferno.
//!
//! inferno takes folded lines and returns the position of each box. Its lines contain the numbers of boxes instead of names. So
//! inferno cannot misread a name, and flametop writes all text on and around a box.

use std::fmt::Write;

use crate::formats::paths::{Limits, Texts, walk};
use crate::profile::{CallTree, Difference, LabelId, NodeId, Sides};

/// Boxes below one ten-thousandth of the whole are an eighth of a pixel wide in a window of 1,200: they are merged into their callers.
const NARROWEST_SHARE: u64 = 10_000;

/// Below this part of the whole, boxes are narrower than a pixel in that window. No wider box is merged. If there are still too
/// many, the deepest boxes are left out.
const PIXEL_SHARE: u64 = 1_200;

/// Above this number of boxes a browser is slow to zoom (inferno's script touches each of them). Measured with Chromium;
/// `examples/measure_formats.rs` makes such files.
pub(super) const MAX_BOXES: usize = 30_000;

/// Most frames of a stack: the walk keeps 2,048, and a file may have more.
const DEEPEST: usize = 1 << 20;

/// Limit for the bytes of lines for inferno, which needs all of them in memory. Only recursion thousands of frames deep reaches it.
const MAX_TEXT: usize = 64 << 20;

/// A box.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BoxOf {
    /// `None` for the weight of stacks that are too narrow to be drawn.
    pub(super) label: Option<LabelId>,
    /// The box's own weight, and its weight with everything below. Without a comparison `before` is 0.
    pub(super) own: Sides,
    pub(super) total: Sides,
}

/// The boxes of a picture.
#[derive(Default)]
pub(super) struct Boxes {
    /// By number.
    pub(super) boxes: Vec<BoxOf>,
    /// The least weight of drawn boxes.
    pub(super) narrowest: u64,
    /// The depth below which boxes were left out.
    pub(super) deepest: Option<usize>,
    text: String,
    ends: Vec<usize>,
}

impl Boxes {
    /// Lines for inferno, in the order of the picture.
    pub(super) fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        let start = |index: usize| index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.iter().enumerate().filter_map(move |(index, end)| self.text.get(start(index)..*end))
    }
}

/// The input of a picture.
pub(super) struct Drawing<'a> {
    pub(super) tree: &'a CallTree,
    pub(super) root: NodeId,
    pub(super) texts: &'a Texts,
    pub(super) difference: Option<&'a Difference>,
}

impl Drawing<'_> {
    fn total(&self, node: NodeId) -> Sides {
        match self.difference {
            Some(difference) => difference.node(node).total,
            None => Sides { now: self.tree.node(node).total, ..Sides::default() },
        }
    }
}

/// Returns all boxes that are wide enough to be seen. If they are too many, narrow ones are left out first, up to a pixel, then the
/// deepest ones.
pub(super) fn few_enough(drawing: &Drawing<'_>) -> Boxes {
    let whole = drawing.tree.node(drawing.root).total;
    let mut limits = Limits { narrowest: whole.div_ceil(NARROWEST_SHARE), ..Limits::NONE };
    let pixel = whole.div_ceil(PIXEL_SHARE);
    loop {
        if let Some(boxes) = within(drawing, limits) {
            return boxes;
        }
        if limits.narrowest >= pixel {
            break;
        }
        limits.narrowest = limits.narrowest.saturating_add(limits.narrowest.div_ceil(4)).min(pixel);
    }
    // The root and its callers are always drawn.
    let (mut fits, mut too_deep) = (drawing.tree.path(drawing.root).len().max(1), DEEPEST);
    while too_deep - fits > 1 {
        let middle = fits.midpoint(too_deep);
        match within(drawing, Limits { deepest: middle, ..limits }) {
            Some(_) => fits = middle,
            None => too_deep = middle,
        }
    }
    let boxes = within(drawing, Limits { deepest: fits, ..limits }).unwrap_or_default();
    Boxes { deepest: Some(fits), ..boxes }
}

/// A path of box numbers, as text.
#[derive(Default)]
struct Numbers {
    text: String,
    /// Length of the text of each path that is a prefix of this one.
    ends: Vec<usize>,
}

impl Numbers {
    /// Changes this to the path of `depth` boxes that ends with box `number`.
    fn set(&mut self, depth: usize, number: usize) {
        self.ends.truncate(depth.saturating_sub(1));
        self.text.truncate(self.ends.last().copied().unwrap_or(0));
        if !self.text.is_empty() {
            self.text.push(';');
        }
        let _ = write!(self.text, "{number}");
        self.ends.push(self.text.len());
    }
}

/// Returns the boxes within these limits, or `None` if there are too many.
fn within(drawing: &Drawing<'_>, limits: Limits) -> Option<Boxes> {
    let Drawing { tree, root, texts, difference } = *drawing;
    let mut boxes = Boxes { narrowest: limits.narrowest, ..Boxes::default() };
    let mut numbers = Numbers::default();
    // Callers of the root are as wide as the root is.
    let above = tree.path(root);
    for caller in above.split_last().map_or(&[][..], |(_, callers)| callers) {
        numbers.set(numbers.ends.len() + 1, boxes.boxes.len());
        let (label, own, total) = (Some(tree.node(*caller).label), Sides::default(), drawing.total(root));
        boxes.boxes.push(BoxOf { label, own, total });
    }
    let fits = walk(tree, root, texts, limits, |path| {
        let own = match difference {
            Some(difference) => path.own_sides(difference),
            None => Sides { now: path.own, ..Sides::default() },
        };
        let total = path.nodes.iter().fold(Sides::default(), |sum, node| sum.plus(drawing.total(*node)));
        // Functions that only the baseline has get no width.
        if total.now > 0 && path.depth > 0 || own.now > 0 {
            let label = path.nodes.first().filter(|_| path.depth > 0).map(|node| tree.node(*node).label);
            numbers.set(path.depth.max(1), boxes.boxes.len());
            let total = if label.is_some() { total } else { own };
            boxes.boxes.push(BoxOf { label, own, total });
        }
        if own.now > 0 {
            boxes.text.push_str(&numbers.text);
            let _ = write!(boxes.text, " {}", own.now);
            boxes.ends.push(boxes.text.len());
        }
        if boxes.boxes.len() > MAX_BOXES || boxes.text.len() > MAX_TEXT { Err(()) } else { Ok(()) }
    });
    fits.ok().map(|()| boxes)
}
