use super::boxes::MAX_BOXES;
use super::*;
use crate::palette::Palette;
use crate::profile::{FrameKind, Measure, TreeBuilder};
use std::borrow::Cow;

fn drawn(tree: &CallTree, labels: &LabelTable, root: NodeId) -> (String, Drawn) {
    let mut out = Vec::new();
    let drawn = write(tree, labels, root, &SvgOptions::default(), &mut out).unwrap();
    (String::from_utf8(out).unwrap(), drawn)
}

/// What hovering over the frames shows: `main (2 samples, 100.00%)`, and more lines.
fn tooltips(svg: &str) -> Vec<String> {
    use quick_xml::escape::unescape;
    let of_frames = svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next());
    of_frames.map(|title| unescape(title).unwrap().into_owned()).collect()
}

/// The first line of each.
fn titles(svg: &str) -> Vec<String> {
    tooltips(svg).iter().map(|tooltip| tooltip.lines().next().unwrap().to_owned()).collect()
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
            name => name,
        };
        assert!(titles.contains(&format!("{shown} (2 samples, 9.09%)")), "{shown:?} in {titles:#?}");
    }
}

#[test]
fn short_names_stand_on_boxes_and_whole_ones_in_tooltips() {
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    let name = "parse<\"'&>(int) (clone)";
    let node = builder.child(CallTree::ROOT, labels.intern(name, "lib<&>.so", FrameKind::User));
    builder.add(node, 3);
    let mut out = Vec::new();
    let options = SvgOptions { short: |name| Cow::Owned(name.replace("(int)", "")), ..SvgOptions::default() };
    write(&builder.finish(), &labels, CallTree::ROOT, &options, &mut out).unwrap();
    let svg = String::from_utf8(out).unwrap();
    is_well_formed(&svg);
    let short = "parse&lt;&quot;&apos;&amp;&gt; (clone)";
    assert!(svg.contains(&format!(r#" n="{short}">"#)), "{svg}");
    assert!(svg.contains(">parse&lt;\"'&amp;&gt; (clone)</text>"), "{svg}");
    let tooltip = format!("{name} (3 samples, 100.00%)\nself 3 samples, 100.00%\nlib<&>.so");
    assert!(tooltips(&svg).contains(&tooltip), "{:?}", tooltips(&svg));
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
        let label = labels.get(labels.intern(name, "", kind));
        let (r, g, b) = Palette::Standard.frame(false, label).in_steps().rgb();
        assert!(svg.contains(&format!("rgb({r},{g},{b})")), "{name}");
        let (r, g, b) = Palette::Standard.frame(true, label).in_steps().rgb();
        assert!(svg.contains(&format!("--d:#{r:02x}{g:02x}{b:02x};")), "{name}");
        assert!(svg.contains(&format!(">{}</text>", kind.describe())), "{name} is in the legend");
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
    let titles = tooltips(&svg);
    let title = |name: &str| titles.iter().find(|title| title.starts_with(name)).cloned().unwrap_or_default();
    assert_eq!(title("grown"), "grown (80 samples, 80.00%)\nself 80 samples, 80.00%\n80.00% now, 25.00% before");
    assert_eq!(title("shrunk"), "shrunk (20 samples, 20.00%)\nself 20 samples, 20.00%\n20.00% now, 50.00% before");
    assert_eq!(title("gone"), "");
    let colour = |name: &str| {
        let of_frame = svg.split("<g ").find(|group| group.contains(&format!("<title>{name}"))).unwrap();
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
    let mut titles = titles(&svg);
    titles.sort();
    assert_eq!(titles, shown);
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
    assert!(report.frames <= MAX_BOXES && report.frames > 0, "{report:?}");
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
    assert!((700..800).contains(&deepest) && report.frames <= MAX_BOXES, "{report:?}");
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
