//! A saved SVG opened in Chromium: a click zooms, the button resets, a search highlights and says how much matched. Boxes have the palette's
//! colours, with and without scripts, on light and on dark ground.

use std::fs;
use std::io::Write;

use flametop::formats::Part;
use flametop::formats::save::{Overwrite, save};
use flametop::formats::svg::{self, SvgOptions};
use flametop::palette::Palette;
use flametop::profile::{CallTree, FrameKind, LabelTable, Language, SourceLocation, TreeBuilder, sanitize};

use super::chromium::{Screenshot, WIDTH, decoded, seen_in, with_script};

/// A click, a reset and a search, each followed by what the page shows then. `onload` of the file itself has set a timer that
/// lays the page out; ours comes after it.
const SCRIPT: &str = r##"<script><![CDATA[
window.addEventListener("load", function() { setTimeout(function() {
    var seen = {};
    function tooltip(g) { return g.querySelector("title").textContent; }
    function group(name) {
        return Array.from(frames.children).find(function(g) { return tooltip(g).startsWith(name + " ("); });
    }
    function width(name) { return group(name).querySelector("rect").getAttribute("width"); }
    function hidden(element) { return getComputedStyle(element).display == "none"; }
    function filled() {
        return Array.from(frames.children).filter(function(g) { return g.querySelector("rect").getAttribute("fill") == searchcolor; })
            .map(function(g) { return tooltip(g).split(" ")[0]; }).sort().join(",");
    }
    try {
        seen.frames = frames.children.length;
        seen.legend = Array.from(document.querySelectorAll("#legend text")).map(function(text) { return text.textContent; }).join(", ");
        seen.text = group("main").querySelector("text").textContent.trim();
        seen.tooltip = tooltip(group("lex<&'a str>")).replace(/\n/g, "; ");
        seen.narrow = tooltip(group("slow")).replace(/\n/g, "; ");
        group("parse").querySelector("rect").dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
        seen.details = document.getElementById("details").textContent;
        seen.before = width("parse");
        seen.unzoom_hidden_before = hidden(document.getElementById("unzoom"));
        group("parse").querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        seen.zoomed = width("parse");
        seen.sibling_hidden = hidden(group("vfs_read"));
        seen.label_zoomed = group("slow").querySelector("text").textContent;
        seen.unzoom_hidden_zoomed = hidden(document.getElementById("unzoom"));
        document.getElementById("unzoom").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        seen.after = width("parse");
        seen.unzoom_hidden_after = hidden(document.getElementById("unzoom"));
        window.prompt = function() { return "^vfs_|^lex"; };
        window.dispatchEvent(new KeyboardEvent("keydown", {keyCode: 70, ctrlKey: true}));
        seen.matched = document.getElementById("matched").textContent;
        seen.highlighted = filled();
        function press(key) { document.documentElement.dispatchEvent(new KeyboardEvent("keydown", {key: key, bubbles: true})); }
        press("n");
        seen.next = width("lex<&'a str>");
        press("n");
        seen.next_after = width("vfs_read");
        press("N");
        seen.previous = width("lex<&'a str>");
        press("Escape");
        seen.escaped = width("lex<&'a str>");
        document.getElementById("search").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        seen.highlighted_after = filled();
        function answer(words) {
            search(words);
            return document.getElementById("matched").textContent + " " + filled();
        }
        seen.lower_case = answer("^LEX".toLowerCase());
        seen.no_expression = answer("main(");
        seen.capital = answer("Parse");
        seen.either_case = answer("parse");
        window.dispatchEvent(new Event("beforeprint"));
        svg.style.width = "500px";
        var ends = Array.from(frames.children).map(function(g) { return g.querySelector("rect").getBoundingClientRect().right; });
        seen.printed = ends.every(function(end) { return end < 500; }) && Math.max.apply(Math, ends) > 490;
        svg.style.width = "";
        window.dispatchEvent(new Event("afterprint"));
        seen.as_before = Math.round(svg.getBoundingClientRect().width - Math.max.apply(Math, Array.from(frames.children).map(function(g) {
            return g.querySelector("rect").getBoundingClientRect().right; })));
    } catch (error) {
        seen.error = String(error);
    }
    document.documentElement.setAttribute("data-seen", Object.keys(seen).map(function(key) { return key + "=" + seen[key]; }).join("|"));
}, 100); });
]]></script>"##;

fn part<'a>(tree: &'a CallTree, labels: &'a LabelTable) -> Part<'a> {
    Part { tree, difference: None, labels, root: CallTree::ROOT }
}

/// 1,000 samples. `slow` has 4 of them: its box is narrower than a name.
pub(super) fn tree(labels: &LabelTable) -> CallTree {
    use FrameKind::{Inlined, Kernel, Process, User};
    let stacks: [(&[(&str, FrameKind)], i64); 5] = [
        (&[("nginx", Process), ("main", User), ("parse", User), ("lex<&'a str>", Inlined)], 200),
        (&[("nginx", Process), ("main", User), ("parse", User), ("slow", User)], 4),
        (&[("nginx", Process), ("main", User), ("parse", User)], 46),
        (&[("nginx", Process), ("main", User), ("read", User), ("vfs_read", Kernel)], 300),
        (&[("nginx", Process), ("main", User)], 450),
    ];
    let mut builder = TreeBuilder::new();
    for (stack, weight) in stacks {
        let object = |name: &str| if name.starts_with("lex") { "libparse.so" } else { "" };
        let child = |node, (name, kind): &(&str, FrameKind)| builder.child(node, labels.intern(name, object(name), *kind));
        let node = stack.iter().fold(CallTree::ROOT, child);
        builder.add(node, weight);
    }
    builder.finish()
}

fn check(inverted: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saved.svg");
    let labels = LabelTable::default();
    let tree = tree(&labels);
    let parse = labels.intern("parse", "", FrameKind::User);
    let lines = [(parse, SourceLocation { file: "/src/<parse>.c".into(), line: 12 })].into_iter().collect();
    let options = SvgOptions { inverted, subtitle: Some("a <test> & nothing else".into()), lines, ..SvgOptions::default() };
    let write = |out: &mut dyn Write| svg::write(part(&tree, &labels), &options, out).map(|_| ());
    save(&path, Overwrite::No, write).unwrap();

    let seen = seen_in(&with_script(&path, SCRIPT, directory.path()));

    let expected = [
        ("frames", "8"),
        ("legend", "process or thread, user code, kernel, inlined"),
        ("text", "main"),
        ("tooltip", "lex&lt;&amp;'a str&gt; (200 samples, 20.00%); self 200 samples, 20.00%; libparse.so"),
        ("narrow", "slow (4 samples, 0.40%); self 4 samples, 0.40%"),
        ("details", "Function: parse (250 samples, 25.00%); self 46 samples, 4.60%; hottest line /src/&lt;parse&gt;.c:12"),
        ("before", "25.0000%"),
        ("unzoom_hidden_before", "true"),
        ("zoomed", "100.0000%"),
        ("sibling_hidden", "true"),
        ("label_zoomed", ""),
        ("unzoom_hidden_zoomed", "false"),
        ("after", "25.0000%"),
        ("unzoom_hidden_after", "true"),
        ("matched", "Matched: 50.0%"),
        ("highlighted", "lex&lt;&amp;'a,vfs_read"),
        ("next", "100.0000%"),
        ("next_after", "100.0000%"),
        ("previous", "100.0000%"),
        ("escaped", "20.0000%"),
        ("highlighted_after", ""),
        ("lower_case", "Matched: 20.0% lex&lt;&amp;'a"),
        ("no_expression", "Matched: 0.0% "),
        ("capital", "Matched: 0.0% "),
        ("either_case", "Matched: 25.0% parse"),
        ("printed", "true"),
        ("as_before", "10"),
    ];
    let expected: Vec<(String, String)> = expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_click_zooms_and_a_search_highlights() {
    check(false);
}

#[test]
fn so_it_does_with_callers_at_the_top() {
    check(true);
}

/// The kinds of a picture in which each kind has one box; the last one is too narrow for a name.
const KINDS: [FrameKind; 9] = [
    FrameKind::Process,
    FrameKind::User,
    FrameKind::Kernel,
    FrameKind::Inlined,
    FrameKind::Jit,
    FrameKind::Script(Language::Python),
    FrameKind::Script(Language::JavaScript),
    FrameKind::Script(Language::Java),
    FrameKind::Unknown,
];

#[test]
fn boxes_have_the_colours_of_the_palette_on_light_and_dark_ground_and_the_legend_has_those_that_occur() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kinds.svg");
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    for (number, kind) in KINDS.into_iter().enumerate() {
        // In alphabetical order. The last box has 4 of 1,000 samples: 4.8 pixels.
        let node = builder.child(CallTree::ROOT, labels.intern(&format!("{number}"), "", kind));
        builder.add(node, if number + 1 == KINDS.len() { 4 } else { 124 });
    }
    let tree = builder.finish();
    for palette in [Palette::Standard, Palette::ColourBlind] {
        let options = SvgOptions { palette, ..SvgOptions::default() };
        let write = |out: &mut dyn Write| svg::write(part(&tree, &labels), &options, out).map(|_| ());
        save(&path, Overwrite::Yes, write).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        // A viewer without scripts sees the rest of the file.
        let parts = text.split("<script").enumerate();
        let rest =
            |(number, part): (usize, &str)| if number == 0 { part } else { part.split_once("</script>").unwrap().1 }.to_owned();
        let without_scripts = directory.path().join("without-scripts.svg");
        fs::write(&without_scripts, parts.map(rest).collect::<String>().replace(" onload=\"init(evt)\"", "")).unwrap();
        // Nor does it need the style sheets.
        let without_styles = directory.path().join("without-styles.svg");
        let text_of_scriptless = fs::read_to_string(&without_scripts).unwrap();
        let parts = text_of_scriptless.split("<style").enumerate();
        let rest =
            |(number, part): (usize, &str)| if number == 0 { part } else { part.split_once("</style>").unwrap().1 }.to_owned();
        fs::write(&without_styles, parts.map(rest).collect::<String>()).unwrap();
        let row = text.split("<title>0 (").nth(1).and_then(|rest| rest.split(" y=\"").nth(1)).unwrap();
        let row: f64 = row.split('"').next().unwrap().parse().unwrap();
        let files = [
            (&path, false, true),
            (&path, true, true),
            (&without_scripts, false, false),
            (&without_scripts, true, false),
            (&without_styles, false, false),
        ];
        for (file, dark, scripts) in files {
            let colours =
                if dark { "--blink-settings=preferredColorScheme=0" } else { "--blink-settings=preferredColorScheme=1" };
            let seen = Screenshot::take(file, &[colours], directory.path());
            for (number, kind) in KINDS.into_iter().enumerate() {
                let label = labels.get(labels.intern(&format!("{number}"), "", kind));
                let expected = palette.frame(dark, label).in_steps().rgb();
                // Without scripts the picture has its usual width. The right end of a box has no name.
                let scale = (if scripts { WIDTH as f64 - 20.0 } else { 1180.0 }) / 1000.0;
                let end = if number + 1 == KINDS.len() { 1000.0 } else { 124.0 * (number + 1) as f64 };
                let found = seen.at(10.0 + end * scale - 2.5, row + 7.0);
                assert_eq!(found, expected, "{kind:?}, dark: {dark}, {}, {palette:?}", file.display());
            }
            let ground = if dark { (0x16, 0x18, 0x1d) } else { (0xff, 0xff, 0xff) };
            assert_eq!(seen.at(5.0, row), ground, "dark: {dark}, scripts: {scripts}");
            // The window is higher than the picture.
            assert_eq!(seen.at(5.0, 390.0), ground, "dark: {dark}, scripts: {scripts}, below the picture");
        }
        let legend = text.split("<g id=\"legend\">").nth(1).unwrap();
        assert_eq!(legend.matches("<rect").count(), KINDS.len());
    }
}

/// `script.js` has a copy of the screen's rules.
#[test]
fn labels_are_shortened_as_on_the_screen() {
    let names = [
        "main",
        "cache_fill.constprop.0",
        "index_words.isra.0.part.1.cold",
        "do_idle.llvm.1234567890",
        "rustc_codegen_ssa::back::write::drive",
        "std::rt::lang_start::{{closure}}",
        "runtime.mallocgc",
        "main.main.func1",
        "python3.11-dbg",
        "libcrypto.so.3",
        "libc.so.6+0x12345",
        "/usr/lib/thing",
        "net/http.serve",
        "f",
        "a::b::f",
        "Größe.add",
        "名前::長い",
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("names.svg");
    let labels = LabelTable::default();
    let tree = tree(&labels);
    let options = SvgOptions::default();
    save(&path, Overwrite::No, |out: &mut dyn Write| svg::write(part(&tree, &labels), &options, out).map(|_| ())).unwrap();
    let script = format!(
        r##"<script><![CDATA[
window.addEventListener("load", function() {{ setTimeout(function() {{
    var fitted = {}.map(function(name) {{ return Array.from({{length: 40}}, function(_, room) {{ return fit(name, room); }}); }});
    document.documentElement.setAttribute("data-seen", "fitted=" + encodeURIComponent(JSON.stringify(fitted)));
}}, 100); }});
]]></script>"##,
        serde_json::to_string(&names).unwrap()
    );
    let seen = seen_in(&with_script(&path, &script, directory.path()));
    let fitted: Vec<Vec<String>> = serde_json::from_str(&decoded(&seen[0].1)).unwrap();
    for (name, fitted) in names.iter().zip(fitted) {
        for (room, seen) in fitted.iter().enumerate() {
            // A browser counts characters, and the screen columns.
            if name.is_ascii() {
                assert_eq!(*seen, flametop::ui::fit_name(name, room), "{name} in {room}");
            }
            assert!(seen.chars().count() <= room, "{name} in {room}: {seen}");
        }
    }
}

#[test]
fn a_search_says_if_there_are_boxes_that_it_does_not_reach() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("merged.svg");
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    for (name, weight) in [("wide", 29_990), ("drawn", 9), ("tiny", 1)] {
        let node = builder.child(CallTree::ROOT, labels.intern(name, "", FrameKind::User));
        builder.add(node, weight);
    }
    let tree = builder.finish();
    let options = SvgOptions::default();
    save(&path, Overwrite::No, |out: &mut dyn Write| svg::write(part(&tree, &labels), &options, out).map(|_| ())).unwrap();
    let script = r#"<script><![CDATA[
window.addEventListener("load", function() { setTimeout(function() {
    function answer(words) {
        search(words);
        return document.getElementById("matched").textContent;
    }
    document.documentElement.setAttribute("data-seen", "tiny=" + answer("tiny") + "|wide=" + answer("wide"));
}, 100); });
]]></script>"#;
    let seen = seen_in(&with_script(&path, script, directory.path()));
    let answers = [("tiny", "Matched: 0.0% of boxes from 0.01%"), ("wide", "Matched: 100.0% of boxes from 0.01%")];
    assert_eq!(seen, answers.map(|(words, answer)| (words.to_owned(), answer.to_owned())));
}

#[test]
fn a_picture_higher_than_the_window_opens_at_its_callers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep.svg");
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    let name = |depth: usize| labels.intern(&format!("f{depth}"), "", FrameKind::User);
    let node = (0..300).fold(CallTree::ROOT, |node, depth| builder.child(node, name(depth)));
    builder.add(node, 100);
    let tree = builder.finish();
    let script = r#"<script><![CDATA[
window.addEventListener("load", function() { setTimeout(function() {
    var callers = Array.from(frames.children).find(function(g) { return g.whole == "f0"; }).getBoundingClientRect();
    document.documentElement.setAttribute("data-seen", "callers=" + (callers.top > 0 && callers.bottom < window.innerHeight));
}, 200); });
]]></script>"#;
    for inverted in [false, true] {
        let options = SvgOptions { inverted, ..SvgOptions::default() };
        save(&path, Overwrite::Yes, |out: &mut dyn Write| svg::write(part(&tree, &labels), &options, out).map(|_| ())).unwrap();
        let seen = seen_in(&with_script(&path, script, directory.path()));
        assert_eq!(seen, [("callers".to_owned(), "true".to_owned())], "inverted: {inverted}");
    }
}

/// Names that would be markup or a script if they were not escaped, wide and narrow ones.
#[test]
fn hostile_names_are_text() {
    let long = "n".repeat(10_000);
    let names = [
        "]]></script><script>document.title='owned'</script>",
        "\"/><script>document.title='owned'</script>",
        "<img src=x onerror=\"document.title='owned'\">",
        "&lt;b&gt; &amp;#x3c;",
        "rtl\u{202e}override",
        "line\u{2028}separator",
        "\"\\u003c\\\"",
        "${1+1}",
        "__proto__",
        &long,
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hostile.svg");
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    for (number, name) in names.iter().enumerate() {
        for (prefix, weight) in [("", 100), ("narrow ", 2)] {
            let label = labels.intern(&format!("{prefix}{name}"), &format!("{number}{name}"), FrameKind::User);
            let node = builder.child(CallTree::ROOT, label);
            builder.add(node, weight);
        }
    }
    let tree = builder.finish();
    let options = SvgOptions { title: names[0].to_owned(), subtitle: Some(names[1].to_owned()), ..SvgOptions::default() };
    let write = |out: &mut dyn Write| svg::write(part(&tree, &labels), &options, out).map(|_| ());
    save(&path, Overwrite::No, write).unwrap();
    let script = r#"<script><![CDATA[
window.addEventListener("load", function() { setTimeout(function() {
    var names = Array.from(frames.children).map(function(g) { return g_to_func(g); });
    var objects = Array.from(frames.children).map(function(g) { return g.querySelector("title").textContent.split("\n")[2]; });
    var seen = {scripts: document.querySelectorAll("script").length, images: document.querySelectorAll("img").length,
        title: document.title, names: encodeURIComponent(JSON.stringify(names)), objects: encodeURIComponent(JSON.stringify(objects))};
    document.documentElement.setAttribute("data-seen", Object.keys(seen).map(function(key) { return key + "=" + seen[key]; }).join("|"));
}, 100); });
]]></script>"#;
    let seen = seen_in(&with_script(&path, script, directory.path()));
    let of = |key: &str| seen.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone()).unwrap();
    // The table, the script, and that of this test.
    assert_eq!((of("scripts"), of("images"), of("title")), ("3".into(), "0".into(), String::new()));
    let list = |key: &str| -> Vec<Option<String>> { serde_json::from_str(&decoded(&of(key))).unwrap() };
    let (shown, objects) = (list("names"), list("objects"));
    for (number, name) in names.iter().enumerate() {
        let object = sanitize(&format!("{number}{name}")).into_owned();
        for prefix in ["", "narrow "] {
            let name = sanitize(&format!("{prefix}{name}")).into_owned();
            let at = shown.iter().position(|shown| *shown == Some(name.clone()));
            let at = at.unwrap_or_else(|| panic!("{name} is not in {shown:?}"));
            assert_eq!(objects[at].as_ref(), Some(&object));
        }
    }
}
