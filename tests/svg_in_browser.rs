//! A saved SVG opened in Chromium: a click zooms, the button resets, a search highlights and says how much matched.
//!
//! No driver is needed: a copy of the file gets a second script, which does what a user would do once the page has loaded, and
//! writes what it sees into the document; Chromium prints the document.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flametop::formats::save::{Overwrite, save};
use flametop::formats::svg::{self, SvgOptions};
use flametop::profile::{CallTree, FrameKind, LabelTable, TreeBuilder};

/// Starting a cold Chromium on a busy machine takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A click, a reset and a search, each followed by what the page shows then. `onload` of the file itself has set a timer that
/// lays the page out; ours comes after it.
const SCRIPT: &str = r#"<script><![CDATA[
window.addEventListener("load", function() { setTimeout(function() {
    var seen = {};
    function group(name) {
        return Array.from(frames.children).find(function(g) { return g.querySelector("title").textContent.startsWith(name + " ("); });
    }
    function width(name) { return group(name).querySelector("rect").getAttribute("width"); }
    function hidden(element) { return getComputedStyle(element).display == "none"; }
    function filled() {
        return Array.from(frames.children).filter(function(g) { return g.querySelector("rect").getAttribute("fill") == searchcolor; })
            .map(function(g) { return g.querySelector("title").textContent.split(" ")[0]; }).sort().join(",");
    }
    try {
        seen.frames = frames.children.length;
        seen.text = group("main").querySelector("text").textContent.trim();
        seen.before = width("parse");
        seen.unzoom_hidden_before = hidden(document.getElementById("unzoom"));
        group("parse").querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        seen.zoomed = width("parse");
        seen.sibling_hidden = hidden(group("vfs_read"));
        seen.unzoom_hidden_zoomed = hidden(document.getElementById("unzoom"));
        document.getElementById("unzoom").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        seen.after = width("parse");
        seen.unzoom_hidden_after = hidden(document.getElementById("unzoom"));
        window.prompt = function() { return "^vfs_|^lex"; };
        document.getElementById("search").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        seen.matched = document.getElementById("matched").textContent;
        seen.highlighted = filled();
        document.getElementById("search").dispatchEvent(new MouseEvent("click", {bubbles: true}));
        seen.highlighted_after = filled();
    } catch (error) {
        seen.error = String(error);
    }
    document.documentElement.setAttribute("data-seen", Object.keys(seen).map(function(key) { return key + "=" + seen[key]; }).join("|"));
}, 100); });
]]></script>"#;

fn tree(labels: &LabelTable) -> CallTree {
    use FrameKind::{Inlined, Kernel, Process, User};
    let stacks: [(&[(&str, FrameKind)], i64); 4] = [
        (&[("nginx", Process), ("main", User), ("parse", User), ("lex<&'a str>", Inlined)], 20),
        (&[("nginx", Process), ("main", User), ("parse", User)], 5),
        (&[("nginx", Process), ("main", User), ("read", User), ("vfs_read", Kernel)], 30),
        (&[("nginx", Process), ("main", User)], 45),
    ];
    let mut builder = TreeBuilder::new();
    for (stack, weight) in stacks {
        let child = |node, (name, kind): &(&str, FrameKind)| builder.child(node, labels.intern(name, "", *kind));
        let node = stack.iter().fold(CallTree::ROOT, child);
        builder.add(node, weight);
    }
    builder.finish()
}

/// Ends the browser when the test is over, however it ends.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The document after `SCRIPT` has run, as Chromium prints it.
fn dump(svg: &std::path::Path, profile: &std::path::Path) -> String {
    let mut command = Command::new("chromium");
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--virtual-time-budget=3000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", svg.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command.spawn().expect("this test needs the program `chromium`: install Debian's package of that name");
    let mut browser = Browser(child);
    let mut pipe = browser.0.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut dom = String::new();
        pipe.read_to_string(&mut dom).map(|_| dom)
    });
    let deadline = Instant::now() + PATIENCE;
    while browser.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "Chromium has not finished after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
    reader.join().unwrap().unwrap()
}

fn seen_in(dom: &str) -> Vec<(String, String)> {
    let seen = dom.split("data-seen=\"").nth(1).and_then(|rest| rest.split('"').next());
    let seen = seen.unwrap_or_else(|| panic!("the script has not run; the document is:\n{dom}"));
    seen.split('|').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn check(inverted: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saved.svg");
    let labels = LabelTable::default();
    let tree = tree(&labels);
    let options = SvgOptions { inverted, subtitle: Some("a <test> & nothing else".into()), ..SvgOptions::default() };
    let write = |out: &mut dyn Write| svg::write(&tree, &labels, CallTree::ROOT, &options, out).map(|_| ());
    save(&path, Overwrite::No, write).unwrap();

    let saved = fs::read_to_string(&path).unwrap();
    let end = saved.rfind("</svg>").unwrap();
    let copy = directory.path().join("copy.svg");
    fs::write(&copy, format!("{}{SCRIPT}{}", &saved[..end], &saved[end..])).unwrap();
    let seen = seen_in(&dump(&copy, &directory.path().join("browser")));

    let expected = [
        ("frames", "7"),
        ("text", "main"),
        ("before", "25.0000%"),
        ("unzoom_hidden_before", "true"),
        ("zoomed", "100.0000%"),
        ("sibling_hidden", "true"),
        ("unzoom_hidden_zoomed", "false"),
        ("after", "25.0000%"),
        ("unzoom_hidden_after", "true"),
        ("matched", "Matched: 50.0%"),
        ("highlighted", "lex&lt;&amp;'a,vfs_read"),
        ("highlighted_after", ""),
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
