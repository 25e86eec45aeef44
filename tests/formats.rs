//! Reads folded stacks of other projects and compares with their results; writes trees and reads them again.
//!
//! Each rule is tested with [`INPUTS`], which are ours. Files of other projects lie in `../shared/data`, outside the repository, because
//! their licences differ. They are read as well where that folder is there; elsewhere the tests say so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flametop::formats::folded::{self, FoldedOptions, ReadReport};
use flametop::profile::{
    CallTree, Capabilities, FrameKind, Grouping, LabelTable, Names, NodeId, Profile, Progress, Query, Timestamp, TreeBuilder,
    ViewBuilder,
};
use proptest::prelude::*;
use serde_json::Value;

/// An input of ours, and what a reader must make of it.
struct Input {
    name: &'static str,
    text: &'static str,
    /// Sum of the counts.
    total: u64,
    /// Lines that are stacks, comments, and neither.
    lines: (u64, u64, u64),
    /// Total and own weight by path.
    paths: &'static [(&'static str, u64, u64)],
}

const INPUTS: [Input; 4] = [
    Input {
        name: "plain",
        text: "a;b;c 5\na;b;c 2\na;b;d 4\na;b 3\ne 1\n",
        total: 15,
        lines: (5, 0, 0),
        paths: &[("a", 14, 0), ("a;b", 14, 3), ("a;b;c", 7, 7), ("a;b;d", 4, 4), ("e", 1, 1)],
    },
    Input {
        name: "recursive",
        text: "main;walk;walk;walk 6\nmain;walk 1\nmain;walk;leaf;walk 2\n",
        total: 9,
        lines: (3, 0, 0),
        paths: &[
            ("main", 9, 0),
            ("main;walk", 9, 1),
            ("main;walk;leaf", 2, 0),
            ("main;walk;leaf;walk", 2, 2),
            ("main;walk;walk", 6, 0),
            ("main;walk;walk;walk", 6, 6),
        ],
    },
    Input {
        name: "kinds and spaces",
        text: "python3 -m x;<module> (app.py:3)_[p];sum 8\npython3 -m x;write;vfs_write_[k] 12\n",
        total: 20,
        lines: (2, 0, 0),
        paths: &[
            ("python3 -m x", 20, 0),
            ("python3 -m x;<module> (app.py:3)_[p]", 8, 0),
            ("python3 -m x;<module> (app.py:3)_[p];sum", 8, 8),
            ("python3 -m x;write", 12, 0),
            ("python3 -m x;write;vfs_write_[k]", 12, 12),
        ],
    },
    Input {
        name: "noisy",
        text: "# made by hand\na;b 1\nno count here\na;c x\n\na;b 6\n",
        total: 7,
        lines: (2, 1, 2),
        paths: &[("a", 7, 0), ("a;b", 7, 7)],
    },
];

/// The folder of folded stacks of other projects, if it is there.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/folded");
    if !folder.is_dir() {
        println!("NOT TESTED: files of other projects; there is no folder {}", folder.display());
        return None;
    }
    Some(folder)
}

struct Loaded {
    names: Arc<Names>,
    tree: CallTree,
    report: ReadReport,
}

fn load(input: &[u8]) -> Loaded {
    let names = Arc::new(Names::default());
    let mut profile = Profile::fixed(Capabilities::STACKS);
    let report = folded::read(input, &names, &mut profile, None).unwrap();
    profile.stacks.freeze();
    let mut view = ViewBuilder::new(Arc::clone(&names), Query { grouping: Grouping::None, ..Query::default() });
    while view.update(&profile, Timestamp(0), usize::MAX) == Progress::More {}
    Loaded { names, tree: view.take_tree(), report }
}

/// Total and own weight by path, as `kind name;kind name`; equal paths added up.
fn paths(tree: &CallTree, labels: &LabelTable) -> BTreeMap<String, (u64, u64)> {
    let mut all = BTreeMap::new();
    for (id, node) in tree.nodes().iter().enumerate().skip(1) {
        let name = |node: NodeId| {
            let label = labels.get(tree.node(node).label).unwrap();
            format!("{}{}", label.name, label.kind.annotation())
        };
        let path: Vec<String> = tree.path(NodeId(id as u32)).into_iter().map(name).collect();
        let sum: &mut (u64, u64) = all.entry(path.join(";")).or_default();
        *sum = (sum.0 + node.total, sum.1 + node.own);
    }
    all
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn trees_and_counts_of_lines_are_what_the_text_says() {
    for input in INPUTS {
        let Loaded { names, tree, report } = load(input.text.as_bytes());
        assert_eq!((report.total, tree.total()), (input.total, input.total), "{}", input.name);
        assert_eq!((report.stacks, report.comments, report.nonsense), input.lines, "{}", input.name);
        let expected = input.paths.iter().map(|(path, total, own)| ((*path).to_owned(), (*total, *own))).collect();
        assert_eq!(paths(&tree, &names.labels), expected, "{}", input.name);
    }
}

#[test]
fn every_file_adds_up_to_the_sum_of_its_counts() {
    let Some(folder) = data() else { return };
    let sums = [
        ("ignore-metadata-lines", 7),
        ("invalid-lines", 428),
        ("py-spy-simple", 657),
        ("readable", 70),
        ("speedscope-recursion", 10),
        ("speedscope-simple", 14),
        ("speedscope-simple-crlf", 14),
        ("speedscope-simple-utf16-be", 14),
        ("speedscope-simple-utf16-le", 14),
        ("speedscope-simple-with-invalids", 14),
        ("speedscope-tall", 1),
    ];
    let mut seen = BTreeSet::new();
    for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let input = fs::read(&file).unwrap();
        let loaded = load(&input);
        let expected = match sums.iter().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum,
            // For plain files it is enough to add up the last words.
            None => String::from_utf8_lossy(&input).lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum(),
        };
        assert_eq!((loaded.report.total, loaded.tree.total()), (expected, expected), "{name}");
        seen.insert(name);
    }
    assert!(seen.len() >= sums.len(), "{seen:?}");
}

#[test]
fn trees_are_those_that_flamelens_makes() {
    let Some(folder) = data() else { return };
    for name in ["ignore-metadata-lines", "invalid-lines", "py-spy-simple"] {
        let loaded = load(&fs::read(folder.join(format!("{name}.txt"))).unwrap());
        let expected = json(&folder.join(format!("expected/{name}.expected_stacks.json")));
        let number = |node: &Value, key: &str| node[key].as_u64().unwrap();
        let expected: BTreeMap<String, (u64, u64)> = expected
            .as_array()
            .unwrap()
            .iter()
            .filter(|node| !node["parent"].is_null())
            .map(|node| {
                (node["full_name"].as_str().unwrap().to_owned(), (number(node, "total_count"), number(node, "self_count")))
            })
            .collect();
        assert_eq!(paths(&loaded.tree, &loaded.names.labels), expected, "{name}");
    }
}

#[test]
fn counts_by_function_are_those_that_flamelens_makes() {
    let Some(folder) = data() else { return };
    for name in ["ignore-metadata-lines", "invalid-lines", "py-spy-simple"] {
        let loaded = load(&fs::read(folder.join(format!("{name}.txt"))).unwrap());
        // These files have no recursion, so a function's total is the sum over its nodes.
        let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for node in loaded.tree.nodes().iter().skip(1) {
            let count = counts.entry(loaded.names.labels.name(node.label).to_owned()).or_default();
            *count = (count.0 + node.total, count.1 + node.own);
        }
        let expected = json(&folder.join(format!("expected/{name}.expected_ordered_counts.json")));
        let count = |entry: &Value, key: &str| entry["count"][key].as_u64().unwrap();
        let entries = expected["entries"].as_array().unwrap().iter();
        let expected: BTreeMap<String, (u64, u64)> = entries
            .map(|entry| (entry["name"].as_str().unwrap().to_owned(), (count(entry, "total"), count(entry, "own"))))
            .collect();
        assert_eq!(counts, expected, "{name}");
    }
}

/// A text as editors save it: with a byte order mark, in these units.
fn encoded<const BYTES: usize>(text: &str, bytes: impl Fn(u16) -> [u8; BYTES]) -> Vec<u8> {
    std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(bytes).collect()
}

#[test]
fn the_same_stacks_are_read_whatever_the_encoding_and_the_line_ends() {
    for Input { name, text, .. } in INPUTS {
        let read = |bytes: &[u8]| {
            let loaded = load(bytes);
            (paths(&loaded.tree, &loaded.names.labels), loaded.report.stacks)
        };
        let plain = read(text.as_bytes());
        assert_eq!(read(text.replace('\n', "\r\n").as_bytes()), plain, "{name}, CRLF");
        assert_eq!(read(format!("\u{feff}{text}").as_bytes()), plain, "{name}, UTF-8 with a mark");
        assert_eq!(read(&encoded(text, u16::to_le_bytes)), plain, "{name}, UTF-16 LE");
        assert_eq!(read(&encoded(text, u16::to_be_bytes)), plain, "{name}, UTF-16 BE");
    }
    let Some(folder) = data() else { return };
    let read = |name: &str| {
        let loaded = load(&fs::read(folder.join(name)).unwrap());
        paths(&loaded.tree, &loaded.names.labels)
    };
    let plain = read("speedscope-simple.txt");
    assert_eq!(plain.get("a;b;c"), Some(&(5, 5)));
    for variant in ["crlf", "utf16-le", "utf16-be", "with-invalids"] {
        assert_eq!(read(&format!("speedscope-simple-{variant}.txt")), plain, "{variant}");
    }
}

#[test]
fn the_first_line_left_out_is_told() {
    let noisy = INPUTS.iter().find(|input| input.name == "noisy").unwrap();
    assert_eq!(load(noisy.text.as_bytes()).report.first_nonsense, Some(3));
    let Some(folder) = data() else { return };
    let report = |name: &str| load(&fs::read(folder.join(name)).unwrap()).report;
    let invalid = report("invalid-lines.txt");
    assert_eq!((invalid.stacks, invalid.nonsense, invalid.first_nonsense), (2, 3, Some(2)));
    let metadata = report("ignore-metadata-lines.txt");
    assert_eq!((metadata.stacks, metadata.nonsense, metadata.comments), (1, 0, 1));
}

fn written(tree: &CallTree, labels: &LabelTable) -> Vec<u8> {
    let mut out = Vec::new();
    folded::write(tree, labels, CallTree::ROOT, FoldedOptions::default(), &mut out).unwrap();
    out
}

#[test]
fn what_was_read_is_written_as_it_was() {
    let ours = INPUTS.iter().map(|input| (input.name, input.text.as_bytes().to_vec()));
    let names = ["recursive.txt", "py-spy-simple.txt", "speedscope-recursion.txt"];
    let theirs = data().into_iter().flat_map(|folder| names.map(|name| (name, fs::read(folder.join(name)).unwrap())));
    for (name, input) in ours.chain(theirs) {
        let first = load(&input);
        let text = written(&first.tree, &first.names.labels);
        let second = load(&text);
        assert_eq!(paths(&first.tree, &first.names.labels), paths(&second.tree, &second.names.labels), "{name}");
        assert_eq!(text, written(&second.tree, &second.names.labels), "{name}: the order does not depend on how it was read");
    }
}

fn kind() -> impl Strategy<Value = FrameKind> {
    use FrameKind::{Inlined, Jit, Kernel, Process, Unknown, User};
    prop::sample::select(vec![Process, User, Kernel, Inlined, Jit, Unknown])
}

/// Few names, so that stacks share frames; some have characters that a process may put there.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-d]",
        2 => "[a-z<>&;:# \\[\\]._0-9é😀]{0,12}",
        1 => any::<String>(),
    ]
}

/// Returns a name after writing and reading, if it is neither the first nor the last of its line.
fn as_written(name: &str) -> String {
    let name = flametop::profile::sanitize(name);
    if name.trim().is_empty() { "[unknown]".to_owned() } else { name.replace(';', ":") }
}

proptest! {
    #[test]
    fn trees_survive_being_written_and_read(stacks in prop::collection::vec(
        (prop::collection::vec((name(), kind()), 1..8), 1u64..10_000_000_000), 1..40,
    )) {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for (stack, weight) in &stacks {
            // Spaces at the ends of a line are dropped, `#` may begin a comment, and `_[k]` is an annotation. `<` and `>` around
            // each name keep these rules away from names; other tests check the rules.
            let frames = || stack.iter().map(|(name, kind)| (format!("<{name}>"), *kind));
            let node = frames().fold(CallTree::ROOT, |node, (name, kind)| builder.child(node, labels.intern(&name, "", kind)));
            builder.add(node, *weight as i64);
            let path: Vec<String> = frames().map(|(name, kind)| as_written(&name) + kind.annotation()).collect();
            *expected.entry(path.join(";")).or_default() += weight;
        }
        let tree = builder.finish();
        let text = written(&tree, &labels);
        let again = load(&text);
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        for (path, (_, weight)) in paths(&again.tree, &again.names.labels).into_iter().filter(|(_, (_, own))| *own > 0) {
            own.insert(path, weight);
        }
        prop_assert_eq!(own, expected);
        prop_assert_eq!(again.report.nonsense, 0);
        prop_assert_eq!(written(&again.tree, &again.names.labels), text);
    }

    #[test]
    fn no_name_loses_weight(stacks in prop::collection::vec((prop::collection::vec(name(), 0..6), 1u64..1000), 1..30)) {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        for (stack, weight) in &stacks {
            let child = |node, name: &String| builder.child(node, labels.intern(name, "", FrameKind::User));
            let node = stack.iter().fold(CallTree::ROOT, child);
            builder.add(node, *weight as i64);
        }
        let tree = builder.finish();
        let again = load(&written(&tree, &labels));
        prop_assert_eq!(again.tree.total(), tree.total());
        prop_assert_eq!(again.report.nonsense + again.report.comments, 0);
    }

    #[test]
    fn nothing_in_a_file_makes_the_reader_stumble(input in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (names, mut profile) = (Names::default(), Profile::fixed(Capabilities::STACKS));
        if let Ok(report) = folded::read(&input[..], &names, &mut profile, None) {
            let sum: u64 = profile.samples.slices_from(0).flatten().map(|sample| sample.weight).sum();
            prop_assert_eq!(report.total, sum);
        }
    }
}
