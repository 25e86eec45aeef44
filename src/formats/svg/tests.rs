use super::boxes::MAX_BOXES;
use super::*;
use crate::cpu_time;
use crate::palette::Palette;
use crate::profile::{CallTree, FrameKind, LabelTable, Language, Measure, NodeId, TreeBuilder};
use std::borrow::Cow;

fn part<'a>(tree: &'a CallTree, labels: &'a LabelTable) -> Part<'a> {
    Part { tree, difference: None, labels, root: CallTree::ROOT }
}

fn drawn(tree: &CallTree, labels: &LabelTable, root: NodeId) -> (String, Drawn) {
    let mut out = Vec::new();
    let drawn = write(Part { root, ..part(tree, labels) }, &SvgOptions::default(), &mut out).unwrap();
    (String::from_utf8(out).unwrap(), drawn)
}

/// Returns the titles of boxes that are wide enough for a name: `main (2 samples, 100.00%)`.
fn titles(svg: &str) -> Vec<String> {
    use quick_xml::escape::unescape;
    let of_frames = svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next());
    of_frames.map(|title| unescape(title).unwrap().into_owned()).collect()
}

/// Returns the table of names.
fn table(svg: &str) -> serde_json::Value {
    let text = svg.split(r#"id="names">"#).nth(1).and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(text.unwrap()).unwrap()
}

/// Returns the attribute `b` of the box with this title.
fn reference<'a>(svg: &'a str, title: &str) -> &'a str {
    let before = svg.split(&format!("\"><title>{title}")).next().unwrap();
    before.rsplit('"').next().unwrap()
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
    write(part(&builder.finish(), &labels), &options, &mut out).unwrap();
    let svg = String::from_utf8(out).unwrap();
    is_well_formed(&svg);
    let short = "parse<\"'&> (clone)";
    assert!(titles(&svg).contains(&format!("{short} (3 samples, 100.00%)")), "{svg}");
    assert!(svg.contains(">parse&lt;\"'&amp;&gt; (clone)</text>"), "{svg}");
    assert_eq!(table(&svg)["names"], serde_json::json!([[short, 1, name]]));
    assert_eq!((&table(&svg)["objects"][0], reference(&svg, "parse&lt;")), (&"lib<&>.so".into(), "0!"));
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
        ("y", FrameKind::Script(Language::Python)),
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
        let (dark_r, dark_g, dark_b) = Palette::Standard.frame(true, label).in_steps().rgb();
        let (light, dark) = (format!("#{r:02x}{g:02x}{b:02x}"), format!("#{dark_r:02x}{dark_g:02x}{dark_b:02x}"));
        assert!(svg.contains(&format!("{{fill:{light}}}")), "{name}");
        assert!(svg.contains(&format!(" fill=\"{light}\"")), "{name} has its colour without a style sheet");
        assert!(svg.contains(&format!("{{fill:{dark};color:{dark}}}")), "{name}");
        assert!(svg.contains(&format!(">{}</text>", kind.describe())), "{name} is in the legend");
    }
    assert!(titles(&svg).contains(&"k (1 samples, 100.00%)".to_owned()), "annotations are not shown");
}

/// Inkscape drops a sheet that has one custom property. Batik takes the rules of a media query that does not apply.
#[test]
fn only_the_dark_sheet_has_what_some_readers_do_not_know() {
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    let node = builder.child(CallTree::ROOT, labels.intern("main", "", FrameKind::User));
    builder.add(node, 1);
    let (svg, _) = drawn(&builder.finish(), &labels, CallTree::ROOT);
    let sheets: Vec<&str> = svg.split("<style").skip(1).filter_map(|rest| rest.split("</style>").next()).collect();
    let [light, dark] = sheets.as_slice() else { panic!("{} sheets", sheets.len()) };
    assert!(!light.contains("--") && !light.contains("var(") && !light.contains('@'), "{light}");
    assert!(dark.starts_with(" type=\"text/css\">@supports (--a: 0) {"), "{dark}");
    let frames = svg.split("id=\"frames\"").last().and_then(|rest| rest.split("</svg>").next()).unwrap();
    let tags =
        |name: &str| frames.split(&format!("<{name} ")).skip(1).map(|tag| tag.split('>').next().unwrap()).collect::<Vec<_>>();
    assert_eq!((tags("g").len(), tags("text").len()), (2, 2), "{frames}");
    assert!(tags("g").iter().chain(&tags("text")).all(|tag| tag.contains("fill=\"#")), "{frames}");
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
    let compared = Part { difference: Some(&difference), ..part(&both, &labels) };
    write(compared, &SvgOptions::default(), &mut out).unwrap();
    let svg = String::from_utf8(out).unwrap();
    is_well_formed(&svg);
    let mut titles = titles(&svg);
    titles.sort();
    assert_eq!(titles, ["all (100 samples, 100%)", "grown (80 samples, 80.00%)", "shrunk (20 samples, 20.00%)"]);
    assert_eq!(["grown", "shrunk"].map(|name| reference(&svg, name)), ["0!~100", "1!~200"]);
    assert_eq!(table(&svg)["whole"], serde_json::json!([100, 400]));
    let colour = |name: &str| {
        let of_frame = svg.split("<g ").find(|group| group.contains(&format!("<title>{name}"))).unwrap();
        let class = of_frame.split('"').nth(1).unwrap();
        let rgb = svg.split(&format!(".{class}{{fill:#")).nth(1).unwrap();
        let part = |from| u8::from_str_radix(&rgb[from..from + 2], 16).unwrap();
        (part(0), part(4))
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
    let mut titles = titles(&svg);
    titles.sort();
    assert_eq!(titles, ["all (100,001 samples, 100%)", "main (99,999 samples, 100.00%)"]);
    assert_eq!(table(&svg)["names"], serde_json::json!([["[too narrow to draw]"], ["main"]]));
    assert!(svg.contains(r#"h2" b="0!"/>"#), "{svg}");
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

/// Stacks like those of programs: a few callers for each function, deeper where more work is done.
fn many_stacks(count: u32, functions: u32) -> (CallTree, LabelTable) {
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    let mut random = 1u32;
    let mut next = move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random >> 16
    };
    for _ in 0..count {
        let (mut node, mut function) = (CallTree::ROOT, 0);
        for _ in 0..10 + next() % 30 {
            let callee = if next() % 24 == 0 { 2 + next() % 2 } else { 1 };
            function = (function * 31 + callee) % functions;
            node = builder
                .child(node, labels.intern(&format!("module_{}::function_{function}", function % 97), "lib.so", FrameKind::User));
        }
        builder.add(node, 1);
    }
    (builder.finish(), labels)
}

#[test]
fn pictures_are_small() {
    for (stacks, functions, most) in [(1_429, 2_003, 300_000), (100_000, 20_011, 3_000_000)] {
        let (tree, labels) = many_stacks(stacks, functions);
        let begin = cpu_time::of_this_thread();
        let (svg, report) = drawn(&tree, &labels, CallTree::ROOT);
        println!("{stacks} stacks, {} boxes: {} bytes", report.frames, svg.len());
        assert!(report.frames > 3000, "{report:?}");
        assert!(svg.len() < most, "{stacks} stacks, {} boxes: {} bytes", report.frames, svg.len());
        assert!(cpu_time::since(begin) < std::time::Duration::from_secs(1), "{:?}", cpu_time::since(begin));
    }
}

#[test]
fn a_tree_without_weight_is_nothing_to_save() {
    let error = write(part(&CallTree::default(), &LabelTable::default()), &SvgOptions::default(), &mut Vec::new());
    assert!(matches!(error, Err(FormatError::NothingToSave)));
}
