//! A saved page: the table of functions and the picture search together, nothing foreign can run, and it has the palette's colours.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flametop::formats::save::{Overwrite, save};
use flametop::formats::svg::SvgOptions;
use flametop::formats::{Part, html};
use flametop::palette::Palette;
use flametop::profile::{CallTree, Difference, FrameKind, LabelTable, Measure, TreeBuilder};
use sha2::{Digest, Sha256};

use super::chromium::{Screenshot, dump, pages, seen_in};
use super::svg::tree;

/// Saves a page. Returns its path.
fn saved(directory: &Path, tree: &CallTree, difference: Option<&Difference>, labels: &LabelTable) -> PathBuf {
    let path = directory.join("saved.html");
    let options = SvgOptions { title: "what <b>ran</b>".into(), subtitle: Some("1,000 samples".into()), ..SvgOptions::default() };
    let part = Part { tree, difference, labels, root: CallTree::ROOT };
    save(&path, Overwrite::Yes, |out: &mut dyn Write| html::write(part, &options, out).map(|_| ())).unwrap();
    path
}

/// Runs `script` in a copy of the page, and returns the document after it. The page's policy allows it only on request.
fn seen(page: &Path, script: &str, is_allowed: bool, directory: &Path) -> String {
    let script = format!("window.addEventListener('load', function() {{ setTimeout(function() {{ {script} }}, 200); }});");
    let hash = BASE64_STANDARD.encode(Sha256::digest(&script));
    let text = fs::read_to_string(page).unwrap();
    let policy = if is_allowed { format!("script-src 'sha256-{hash}' 'sha256-") } else { "script-src 'sha256-".to_owned() };
    let text = text.replacen("script-src 'sha256-", &policy, 1).replace("</body>", &format!("<script>{script}</script></body>"));
    let copy = directory.join("copy.html");
    fs::write(&copy, text).unwrap();
    dump(&copy, &directory.join("browser"))
}

/// Does what a user does: sorts, types, picks a function, clicks a box and presses Escape.
const SCRIPT: &str = r##"
    var seen = {};
    function lines() {
        return Array.from(document.querySelectorAll("#rows tr")).map(function(line) {
            return Array.from(line.children).map(function(cell) { return cell.textContent; }).join(" ").trim();
        }).join("; ");
    }
    function filled() {
        return Array.from(frames.children).filter(function(g) { return g.querySelector("rect").getAttribute("fill") == searchcolor; })
            .map(function(g) { return g.whole; }).sort().join(",");
    }
    function line(name) {
        return Array.from(document.querySelectorAll("#rows tr")).find(function(line) { return line.row.whole == name; });
    }
    function group(name) { return Array.from(frames.children).find(function(g) { return g.whole == name; }); }
    function width(name) { return group(name).querySelector("rect").getAttribute("width"); }
    function click(element) { element.dispatchEvent(new MouseEvent("click", {bubbles: true})); }
    function type(text) {
        find.value = text;
        find.dispatchEvent(new Event("input"));
    }
    var find = document.getElementById("find");
    seen.heads = Array.from(document.querySelectorAll("#heads th")).map(function(head) { return head.textContent; }).join(",");
    seen.lines = lines();
    seen.fits = Math.abs(document.querySelector("#picture > svg").getBoundingClientRect().width - document.body.clientWidth) < 1;
    click(document.querySelectorAll("#heads button")[2]);
    seen.by_total = lines().split("; ").map(function(line) { return line.split(" ")[4]; }).join(",");
    click(document.querySelectorAll("#heads button")[4]);
    click(document.querySelectorAll("#heads button")[4]);
    seen.by_name_backwards = lines().split("; ").map(function(line) { return line.split(" ")[4]; }).join(",");
    click(line("parse"));
    seen.picked = filled() + " " + document.getElementById("matched").textContent;
    click(line("parse"));
    seen.picked_again = filled();
    click(group("read").querySelector("rect"));
    seen.zoomed = width("read") + " " + document.querySelector("tr.marked").row.whole;
    window.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
    window.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
    seen.unzoomed = width("read");
    type("^lex|slow");
    setTimeout(function() {
        seen.found = lines().split("; ").map(function(line) { return line.split(" ")[4]; }).join(",") + " " + filled();
        seen.count = document.getElementById("count").textContent.trim();
        window.dispatchEvent(new KeyboardEvent("keydown", {keyCode: 70, ctrlKey: true}));
        seen.focus = document.activeElement.id;
        type("(");
        setTimeout(function() {
            seen.no_pattern = lines() + filled();
            document.documentElement.setAttribute("data-seen", Object.keys(seen).map(function(key) { return key + "=" + seen[key]; }).join("|"));
        }, 150);
    }, 150);
"##;

#[test]
fn the_table_and_the_picture_are_searched_together() {
    let directory = tempfile::tempdir().unwrap();
    let labels = LabelTable::default();
    let page = saved(directory.path(), &tree(&labels), None, &labels);
    let seen = seen_in(&seen(&page, SCRIPT, true, directory.path()));
    let expected = [
        ("heads", "self,samples,total,samples,function,object"),
        (
            "lines",
            "45.00% 450 100.00% 1,000 main; 30.00% 300 30.00% 300 vfs_read; 20.00% 200 20.00% 200 lex&lt;&amp;'a str&gt; libparse.so; \
             4.60% 46 25.00% 250 parse; 0.40% 4 0.40% 4 slow; 0.00% 0 30.00% 300 read",
        ),
        ("fits", "true"),
        ("by_total", "main,vfs_read,read,parse,lex&lt;&amp;'a,slow"),
        ("by_name_backwards", "vfs_read,slow,read,parse,main,lex&lt;&amp;'a"),
        ("picked", "parse Matched: 25.0%"),
        ("picked_again", ""),
        ("zoomed", "100.0000% read"),
        ("unzoomed", "30.0000%"),
        ("found", "slow,lex&lt;&amp;'a lex&lt;&amp;'a str&gt;,slow"),
        ("count", "2 of 6 functions"),
        ("focus", "find"),
        ("no_pattern", ""),
    ];
    let expected: Vec<(String, String)> = expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    assert_eq!(seen, expected);
}

#[test]
fn beside_a_baseline_functions_tell_their_change() {
    let labels = LabelTable::default();
    let tree = |stacks: &[(&str, i64)]| {
        let mut builder = TreeBuilder::new();
        for (name, weight) in stacks {
            let node = builder.child(CallTree::ROOT, labels.intern(name, "", FrameKind::User));
            builder.add(node, *weight);
        }
        builder.finish()
    };
    let (now, before) = (tree(&[("grown", 80), ("same", 10), ("less", 10)]), tree(&[("grown", 30), ("same", 10), ("less", 60)]));
    let (both, difference) = Difference::of(&now, &before, Measure::Shares);
    let directory = tempfile::tempdir().unwrap();
    let page = saved(directory.path(), &both, Some(&difference), &labels);
    let script = r##"document.documentElement.setAttribute("data-seen", "lines=" +
        Array.from(document.querySelectorAll("#rows tr")).map(function(line) {
            return Array.from(line.children).map(function(cell) { return cell.textContent; }).join(" ").trim();
        }).join("; "));"##;
    let seen = seen_in(&seen(&page, script, true, directory.path()));
    let lines = "80.00% +50.00% 80.00% +50.00% grown; 10.00% -50.00% 10.00% -50.00% less; 10.00% 0.00% 10.00% 0.00% same";
    assert_eq!(seen, [("lines".to_owned(), lines.to_owned())]);
}

#[test]
fn on_paper_the_table_has_all_its_rows() {
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    for number in 0..200 {
        let node = builder.child(CallTree::ROOT, labels.intern(&format!("function_{number}"), "", FrameKind::User));
        builder.add(node, 1);
    }
    let directory = tempfile::tempdir().unwrap();
    let page = saved(directory.path(), &builder.finish(), None, &labels);
    // 200 rows of about 20 pixels, on pages of about 1,000.
    let printed = pages(&page, directory.path());
    assert!((4..=6).contains(&printed), "{printed} pages");
}

#[test]
fn nothing_foreign_can_run() {
    let directory = tempfile::tempdir().unwrap();
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    let names = [
        "</script><script>document.documentElement.setAttribute('data-seen', 'owned=1')</script>",
        "<img src=x onerror=\"document.documentElement.setAttribute('data-seen', 'owned=2')\">",
        "-->]]><svg onload=\"document.documentElement.setAttribute('data-seen', 'owned=3')\">",
    ];
    for name in names {
        let node = builder.child(CallTree::ROOT, labels.intern(name, name, FrameKind::User));
        builder.add(node, 100);
    }
    let page = saved(directory.path(), &builder.finish(), None, &labels);
    // A script that was added to the file does not run either. It does if the policy has its hash.
    let script = "document.documentElement.setAttribute('data-seen', 'lines=' + document.querySelectorAll('#rows tr').length);";
    let dom = seen(&page, script, false, directory.path());
    assert!(!dom.contains("data-seen=\""), "{dom}");
    assert_eq!(seen_in(&seen(&page, script, true, directory.path())), [("lines".to_owned(), "3".to_owned())]);
    let text = fs::read_to_string(&page).unwrap();
    let policy = text.split("Content-Security-Policy").nth(1).unwrap().split('>').next().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

#[test]
fn a_page_has_the_colours_of_the_palette_on_light_and_dark_ground() {
    let directory = tempfile::tempdir().unwrap();
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    let user = labels.intern("work", "", FrameKind::User);
    let kernel = labels.intern("vfs_read", "", FrameKind::Kernel);
    let node = builder.child(CallTree::ROOT, user);
    let below = builder.child(node, kernel);
    builder.add(below, 10);
    let page = saved(directory.path(), &builder.finish(), None, &labels);
    for dark in [false, true] {
        let colours = if dark { "--blink-settings=preferredColorScheme=0" } else { "--blink-settings=preferredColorScheme=1" };
        let shot = Screenshot::take(&page, &[colours], directory.path());
        let column: Vec<(u8, u8, u8)> = (0..400).map(|y| shot.at(1000.0, f64::from(y))).collect();
        let rows = |colour: (u8, u8, u8)| column.iter().filter(|seen| **seen == colour).count();
        for label in [user, kernel] {
            let colour = Palette::Standard.frame(dark, labels.get(label)).in_steps().rgb();
            assert!((14..=16).contains(&rows(colour)), "{:?}, dark: {dark}: {column:?}", labels.name(label));
        }
        let ground = if dark { (0x16, 0x18, 0x1d) } else { (0xff, 0xff, 0xff) };
        assert!(rows(ground) > 100, "dark: {dark}: {column:?}");
    }
}
