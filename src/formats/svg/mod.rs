//! A call tree as an interactive flame graph for a browser: a click zooms, search highlights. Drawn by inferno.
//!
//! inferno takes folded lines and gives an SVG. What is handed to it is prepared so that nothing is read wrongly and no tree
//! is too large:
//!
//! - Every frame carries an annotation, plain ones `_[w]`; inferno takes one off before it shows a name. So a name that ends
//!   in a number (`worker 3`) is not taken for a count, and one that ends in `_[k]` itself is shown as it is.
//! - Colours tell the kinds apart as FlameGraph's `java` palette does and vary by the name's hash: the same tree gives the same
//!   file, byte for byte.
//! - Frames too narrow to be seen are taken out first; their weight stays with their caller.

use std::io::Write;

use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};

use super::FormatError;
use super::paths::{Limits, Texts, walk};
use crate::profile::{CallTree, Difference, FrameKind, Label, LabelId, LabelTable, NodeId, sanitize};

/// Frames below one ten-thousandth of the whole are an eighth of a pixel wide in a window of 1,200; inferno leaves out the same.
const NARROWEST_SHARE: u64 = 10_000;

/// Below this part of the whole, frames are narrower than a pixel in that window. No wider frame is left out: where there are too many, those
/// that lie deepest are.
const PIXEL_SHARE: u64 = 1_200;

/// More frames than this make a browser slow to zoom (inferno's script touches each of them): measured with Chromium, see
/// `examples/measure_formats.rs` for making such files.
const MAX_FRAMES: usize = 30_000;

/// Most frames of a stack: the walk keeps 2,048, and a file may have more.
const DEEPEST: usize = 1 << 20;

/// Bytes of folded lines handed to inferno, which wants all of them in memory. Only recursion thousands of frames deep gets there.
const MAX_TEXT: usize = 64 << 20;

/// How the flame graph is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SvgOptions {
    /// Written above it. Default: `flametop`.
    pub title: String,
    /// Written below the title, for what was recorded, when and where. Default: none.
    pub subtitle: Option<String>,
    /// Whether callers are at the top, as in an icicle graph. Default: no.
    pub inverted: bool,
    /// What is counted. Default: `samples`.
    pub count_name: String,
}

impl Default for SvgOptions {
    fn default() -> Self {
        SvgOptions { title: "flametop".into(), subtitle: None, inverted: false, count_name: "samples".into() }
    }
}

/// What was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Frames, without the one for everything.
    pub frames: usize,
    /// The weight below which frames were left out.
    pub narrowest: u64,
    /// The depth below which frames were left out, if any were.
    pub deepest: Option<usize>,
    /// The weight of everything.
    pub total: u64,
}

impl Drawn {
    /// Says which frames were left out because they lie too deep, as half a sentence.
    pub fn cut(&self) -> Option<String> {
        self.deepest.map(|deepest| format!("frames below level {deepest} are not drawn"))
    }
}

/// Draws what is at and below `root`; the callers of `root` are drawn below it at full width, as after zooming.
///
/// `out` should be buffered. A tree without weight is an error.
pub fn write(
    tree: &CallTree,
    labels: &LabelTable,
    root: NodeId,
    options: &SvgOptions,
    out: &mut dyn Write,
) -> Result<Drawn, FormatError> {
    draw(tree, None, labels, root, options, out)
}

/// Draws what is at and below `root` of the tree of both sides of a comparison: as wide as it is now, red where its share has
/// grown and blue where it has shrunk. What is gone has no width and is not there.
pub fn write_difference(
    tree: &CallTree,
    difference: &Difference,
    labels: &LabelTable,
    root: NodeId,
    options: &SvgOptions,
    out: &mut dyn Write,
) -> Result<Drawn, FormatError> {
    draw(tree, Some(difference), labels, root, options, out)
}

fn draw(
    tree: &CallTree,
    difference: Option<&Difference>,
    labels: &LabelTable,
    root: NodeId,
    options: &SvgOptions,
    out: &mut dyn Write,
) -> Result<Drawn, FormatError> {
    let total = difference.map_or(tree.node(root).total, |difference| difference.node(root).total.now);
    if total == 0 {
        return Err(FormatError::NothingToSave);
    }
    let texts = Texts::new(tree, labels, |labels, id| frame_text(labels.get(id)));
    let lines = few_enough(&Drawing { tree, root, texts: &texts, difference });
    let drawn = Drawn { frames: lines.frames, narrowest: lines.narrowest, deepest: lines.deepest, total };
    let cut = drawn.cut();
    let subtitle: Vec<&str> = options.subtitle.as_deref().into_iter().chain(cut.as_deref()).collect();
    let mut palette = palette(tree, labels);
    let mut inferno = Options::default();
    inferno.title = printable(&options.title);
    inferno.subtitle = (!subtitle.is_empty()).then(|| printable(&subtitle.join("; ")));
    inferno.count_name = printable(&options.count_name);
    inferno.direction = if options.inverted { Direction::Inverted } else { Direction::Straight };
    inferno.text_truncate_direction = TextTruncateDirection::Right;
    inferno.deterministic = true;
    inferno.palette_map = Some(&mut palette);
    // What is too narrow is gone already.
    inferno.min_width = 0.0;
    // "Flame chart" to inferno means: take the lines in reverse order as they are, without sorting them. Its own order is by
    // bytes of whole lines, in which `a b;x` comes between `a` and `a;x` and tears `a` in two.
    inferno.flame_chart = true;
    from_lines(&mut inferno, lines.iter().rev(), &mut *out)?;
    out.flush()?;
    Ok(drawn)
}

/// Folded lines in one piece of memory.
#[derive(Default)]
struct FoldedLines {
    text: String,
    ends: Vec<usize>,
    frames: usize,
    narrowest: u64,
    deepest: Option<usize>,
}

impl FoldedLines {
    fn push(&mut self, path: &str, own: u64) {
        use std::fmt::Write as _;
        let _ = write!(self.text, "{path} {own}");
        self.ends.push(self.text.len());
    }

    /// A line of two counts: inferno draws the second, in a colour for how far it is from the first.
    fn push_compared(&mut self, path: &str, before: u64, now: u64) {
        use std::fmt::Write as _;
        let _ = write!(self.text, "{path} {before} {now}");
        self.ends.push(self.text.len());
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        let start = |index: usize| index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.iter().enumerate().filter_map(move |(index, end)| self.text.get(start(index)..*end))
    }
}

/// What is drawn.
struct Drawing<'a> {
    tree: &'a CallTree,
    root: NodeId,
    texts: &'a Texts,
    difference: Option<&'a Difference>,
}

/// The folded lines of all frames that are wide enough to be seen. While they are too many, of fewer: first narrow frames go, up to a pixel, then
/// those that lie deepest.
fn few_enough(drawing: &Drawing<'_>) -> FoldedLines {
    let whole = drawing.tree.node(drawing.root).total;
    let mut limits = Limits { narrowest: whole.div_ceil(NARROWEST_SHARE), ..Limits::NONE };
    let pixel = whole.div_ceil(PIXEL_SHARE);
    loop {
        if let Some(lines) = folded_lines(drawing, limits) {
            return lines;
        }
        if limits.narrowest >= pixel {
            break;
        }
        limits.narrowest = limits.narrowest.saturating_add(limits.narrowest.div_ceil(4)).min(pixel);
    }
    // Callers of the root are always drawn, and so is the root.
    let (mut fits, mut too_deep) = (drawing.tree.path(drawing.root).len().max(1), DEEPEST);
    while too_deep - fits > 1 {
        let middle = fits.midpoint(too_deep);
        match folded_lines(drawing, Limits { deepest: middle, ..limits }) {
            Some(_) => fits = middle,
            None => too_deep = middle,
        }
    }
    let limits = Limits { deepest: fits, ..limits };
    let lines = folded_lines(drawing, limits).unwrap_or_default();
    FoldedLines { deepest: Some(fits), ..lines }
}

/// The lines, or `None` when there are too many.
fn folded_lines(drawing: &Drawing<'_>, limits: Limits) -> Option<FoldedLines> {
    let Drawing { tree, root, texts, difference } = *drawing;
    let mut lines = FoldedLines { narrowest: limits.narrowest, ..FoldedLines::default() };
    let fits = walk(tree, root, texts, limits, |path| {
        lines.frames += usize::from(path.depth > 0);
        let text = if path.depth == 0 { "[too narrow to draw]_[w]" } else { path.text };
        match difference {
            None if path.own > 0 => lines.push(text, path.own),
            None => {}
            Some(difference) => {
                let own = path.own_sides(difference);
                // Both sides are to be of one size, or everything has grown where there were fewer samples.
                if own.now > 0 {
                    lines.push_compared(text, difference.comparison().as_now(own.before), own.now);
                }
            }
        }
        if lines.frames > MAX_FRAMES || lines.text.len() > MAX_TEXT { Err(()) } else { Ok(()) }
    });
    fits.ok().map(|()| lines)
}

/// A name as inferno takes it: annotated, without `;`, and not like a comment.
fn frame_text(label: Option<&Label>) -> String {
    let (name, kind) = label.map_or(("?", FrameKind::Unknown), |label| (&*label.name, label.kind));
    let name = if name.trim().is_empty() { "[unknown]" } else { name };
    let mut text = printable(name).replace(';', ":");
    // inferno drops lines that begin with "# "; a no-break space looks the same.
    if let Some(rest) = text.trim_start().strip_prefix("# ") {
        text = format!("#\u{a0}{rest}");
    }
    text.push_str(match kind.annotation() {
        "" => "_[w]",
        annotation => annotation,
    });
    text
}

/// Text that may stand in XML: without control characters, and without the two characters that XML forbids besides.
fn printable(text: &str) -> String {
    sanitize(text).replace(['\u{fffe}', '\u{ffff}'], "·")
}

/// A colour for every frame of the tree.
fn palette(tree: &CallTree, labels: &LabelTable) -> PaletteMap {
    let mut used: Vec<LabelId> = tree.nodes().iter().skip(1).map(|node| node.label).collect();
    used.sort_unstable();
    used.dedup();
    let mut palette = PaletteMap::default();
    for label in used.into_iter().filter_map(|id| labels.get(id)) {
        palette.insert(frame_text(Some(label)), colour(label));
    }
    palette
}

/// FlameGraph's `java` palette where it has a say: kernel orange, inlined aqua, JIT green, user red. Python is purple. Processes are blue and
/// what is unknown is grey, so that neither is taken for a function.
fn colour(label: &Label) -> Color {
    let shade = shade(&label.name);
    let rgb = |(r, r_range): (u8, u8), (g, g_range): (u8, u8), (b, b_range): (u8, u8)| {
        let mix = |base: u8, range: u8| base + (f32::from(range) * shade) as u8;
        Color { r: mix(r, r_range), g: mix(g, g_range), b: mix(b, b_range) }
    };
    match label.kind {
        FrameKind::Kernel => rgb((190, 65), (90, 65), (0, 0)),
        FrameKind::Inlined => rgb((50, 60), (165, 55), (165, 55)),
        FrameKind::Jit => rgb((50, 60), (200, 55), (50, 60)),
        FrameKind::Python => rgb((150, 50), (90, 50), (180, 50)),
        FrameKind::User => rgb((200, 55), (50, 80), (50, 80)),
        FrameKind::Process => rgb((120, 40), (150, 40), (200, 40)),
        FrameKind::Unknown => rgb((150, 50), (150, 50), (150, 50)),
    }
}

/// From 0 to 1, by FNV-1a of the name (<http://www.isthe.com/chongo/tech/comp/fnv/>): the same on every machine.
fn shade(name: &str) -> f32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [byte, ..] = (hash ^ (hash >> 32)).to_le_bytes();
    f32::from(byte) / 255.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Measure, TreeBuilder};

    fn drawn(tree: &CallTree, labels: &LabelTable, root: NodeId) -> (String, Drawn) {
        let mut out = Vec::new();
        let drawn = write(tree, labels, root, &SvgOptions::default(), &mut out).unwrap();
        (String::from_utf8(out).unwrap(), drawn)
    }

    /// What hovering over the frames shows: `main (2 samples, 100.00%)`.
    fn titles(svg: &str) -> Vec<String> {
        use quick_xml::escape::unescape;
        let of_frames = svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next());
        of_frames.map(|title| unescape(title).unwrap().into_owned()).collect()
    }

    fn is_well_formed(svg: &str) {
        let mut reader = quick_xml::Reader::from_str(svg);
        while reader.read_event().unwrap() != quick_xml::events::Event::Eof {}
        let forbidden = |c: char| matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
        assert!(!svg.contains(forbidden), "characters that XML forbids");
    }

    #[test]
    fn hostile_names_are_shown_as_they_are_in_well_formed_xml() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        let names = ["a<b>&\"c'", "worker 3", "odd_[k]", "]]>", "# no comment", "\u{fffe}\x1b", " ", "--", "x 1.5 7", "a", "a b"];
        for name in names {
            let node = builder.child(CallTree::ROOT, labels.intern(name, "", FrameKind::User));
            builder.add(node, 1);
            let below = builder.child(node, labels.intern("below", "", FrameKind::User));
            builder.add(below, 1);
        }
        let (svg, report) = drawn(&builder.finish(), &labels, CallTree::ROOT);
        is_well_formed(&svg);
        assert_eq!(report.frames, 22);
        let titles = titles(&svg);
        assert_eq!(titles.len(), 23, "one for all, and no frame torn in two");
        for name in names {
            let shown = match name {
                "\u{fffe}\x1b" => "··",
                " " => "[unknown]",
                "# no comment" => "#\u{a0}no comment",
                name => name,
            };
            assert!(titles.contains(&format!("{shown} (2 samples, 9.09%)")), "{shown:?} in {titles:#?}");
        }
    }

    #[test]
    fn kinds_have_colours_of_their_own_and_the_file_is_always_the_same() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        let kinds = [
            ("p", FrameKind::Process),
            ("u", FrameKind::User),
            ("k", FrameKind::Kernel),
            ("i", FrameKind::Inlined),
            ("j", FrameKind::Jit),
            ("y", FrameKind::Python),
            ("x", FrameKind::Unknown),
        ];
        let node = kinds.iter().fold(CallTree::ROOT, |node, (name, kind)| builder.child(node, labels.intern(name, "", *kind)));
        builder.add(node, 1);
        let tree = builder.finish();
        let (svg, _) = drawn(&tree, &labels, CallTree::ROOT);
        assert_eq!(svg, drawn(&tree, &labels, CallTree::ROOT).0);
        for (name, kind) in kinds {
            let Color { r, g, b } = colour(labels.get(labels.intern(name, "", kind)).unwrap());
            assert!(svg.contains(&format!("rgb({r},{g},{b})")), "{name}");
        }
        assert!(titles(&svg).contains(&"k (1 samples, 100.00%)".to_owned()), "annotations are not shown");
    }

    #[test]
    fn beside_a_baseline_colours_say_what_has_changed() {
        let labels = LabelTable::default();
        let tree = |stacks: &[(&str, i64)]| {
            let mut builder = TreeBuilder::new();
            for (name, weight) in stacks {
                let node = builder.child(CallTree::ROOT, labels.intern(name, "", FrameKind::User));
                builder.add(node, *weight);
            }
            builder.finish()
        };
        let (both, difference) = Difference::of(
            &tree(&[("grown", 80), ("shrunk", 20)]),
            &tree(&[("grown", 100), ("shrunk", 200), ("gone", 100)]),
            Measure::Shares,
        );
        let mut out = Vec::new();
        write_difference(&both, &difference, &labels, CallTree::ROOT, &SvgOptions::default(), &mut out).unwrap();
        let svg = String::from_utf8(out).unwrap();
        is_well_formed(&svg);
        let titles = titles(&svg);
        let title = |name: &str| titles.iter().find(|title| title.starts_with(name)).cloned().unwrap_or_default();
        assert_eq!(title("grown"), "grown (80 samples, 80.00%; +55.00%)");
        assert_eq!(title("shrunk"), "shrunk (20 samples, 20.00%; -30.00%)");
        assert_eq!(title("gone"), "");
        let colour = |name: &str| {
            let of_frame = svg.split("<g>").find(|group| group.contains(&format!("<title>{name}"))).unwrap();
            let rgb = of_frame.split("rgb(").nth(1).unwrap().split(')').next().unwrap();
            let parts: Vec<u8> = rgb.split(',').map(|part| part.parse().unwrap()).collect();
            (parts[0], parts[2])
        };
        assert!(colour("grown").0 > colour("grown").1, "red");
        assert!(colour("shrunk").0 < colour("shrunk").1, "blue");
    }

    #[test]
    fn what_is_too_narrow_counts_for_its_caller() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        let main = builder.child(CallTree::ROOT, labels.intern("main", "", FrameKind::User));
        builder.add(main, 99_997);
        for (name, parent) in [("tiny", main), ("small", CallTree::ROOT)] {
            let node = builder.child(parent, labels.intern(name, "", FrameKind::User));
            builder.add(node, 2);
        }
        let (svg, report) = drawn(&builder.finish(), &labels, CallTree::ROOT);
        assert_eq!(report, Drawn { frames: 1, narrowest: 11, deepest: None, total: 100_001 });
        let shown = ["[too narrow to draw] (2 samples, 0.00%)", "all (100,001 samples, 100%)", "main (99,999 samples, 100.00%)"];
        assert_eq!(titles(&svg), shown);
    }

    #[test]
    fn callers_of_the_node_are_drawn_at_full_width() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        let a = builder.child(CallTree::ROOT, labels.intern("a", "", FrameKind::User));
        let b = builder.child(a, labels.intern("b", "", FrameKind::User));
        builder.add(a, 5);
        builder.add(b, 2);
        let (svg, _) = drawn(&builder.finish(), &labels, b);
        assert_eq!(titles(&svg).concat(), "all (2 samples, 100%)a (2 samples, 100.00%)b (2 samples, 100.00%)");
    }

    #[test]
    fn recursion_five_thousand_frames_deep_is_drawn_in_bounded_memory() {
        let labels = LabelTable::default();
        let label = labels.intern("deep_work (long_running.py:28)", "", FrameKind::User);
        let mut builder = TreeBuilder::new();
        let mut node = CallTree::ROOT;
        for _ in 0..5000 {
            node = builder.child(node, label);
            builder.add(node, 1);
        }
        let (svg, report) = drawn(&builder.finish(), &labels, CallTree::ROOT);
        is_well_formed(&svg);
        assert!((1500..=5000).contains(&report.frames), "{report:?}");
    }

    #[test]
    fn more_frames_than_a_browser_can_take_are_thinned_out() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        for branch in 0..9000 {
            let name = format!("branch {branch}");
            let node = builder.child(CallTree::ROOT, labels.intern(&name, "", FrameKind::User));
            let leaf = (0..5).fold(node, |node, _| builder.child(node, labels.intern("x", "", FrameKind::User)));
            builder.add(leaf, 1 + i64::from(branch < 100));
        }
        let (_, report) = drawn(&builder.finish(), &labels, CallTree::ROOT);
        assert!(report.frames <= MAX_FRAMES && report.frames > 0, "{report:?}");
        assert_eq!(report.total, 9100);
    }

    #[test]
    fn deep_stacks_of_equal_weight_are_cut_where_they_are_deepest_and_that_is_told() {
        let labels = LabelTable::default();
        let label = |name: &str| labels.intern(name, "", FrameKind::User);
        let mut builder = TreeBuilder::new();
        let main = builder.child(CallTree::ROOT, label("main"));
        for number in 0..40 {
            let task = builder.child(main, label(&format!("task{number}")));
            let leaf = (0..1000).fold(task, |node, _| builder.child(node, label("visit")));
            builder.add(leaf, 10);
        }
        let (svg, report) = drawn(&builder.finish(), &labels, CallTree::ROOT);
        let deepest = report.deepest.unwrap();
        assert!((700..800).contains(&deepest) && report.frames <= MAX_FRAMES, "{report:?}");
        assert!(svg.contains(&format!("frames below level {deepest} are not drawn")));
        let titles = titles(&svg);
        assert_eq!(titles.iter().filter(|title| title.starts_with("task")).count(), 40);
        assert_eq!(titles.iter().filter(|title| title.starts_with("visit (10 samples")).count(), 40 * (deepest - 2));
    }

    #[test]
    fn a_tree_without_weight_is_nothing_to_save() {
        let error = write(&CallTree::default(), &LabelTable::default(), CallTree::ROOT, &SvgOptions::default(), &mut Vec::new());
        assert!(matches!(error, Err(FormatError::NothingToSave)));
    }
}
