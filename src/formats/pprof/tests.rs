//! Tests that a tree written as a pprof profile is the same tree when it is read.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::formats::folded::FoldedOptions;
use crate::formats::protobuf::Message;
use crate::formats::svg::SvgOptions;
use crate::formats::{Destination, FormatError, Opened, Part, SaveOptions, ThisMachine, open};
use crate::profile::{
    CallTree, Capabilities, Direction, Engine, EventSource, FrameKind, Grouping, LabelTable, Language, Names, Processes, Profile,
    Query, Request, Timestamp, TreeBuilder, Unit,
};

fn options(unit: Unit, frequency: u32) -> SaveOptions {
    let (picture, folded) = (SvgOptions::default(), FoldedOptions::default());
    SaveOptions { picture, folded, unit, frequency, time: Some(1_700_000_000_000_000_000), seconds: Some(2.5) }
}

/// The paths of a tree with their self weights.
fn paths(tree: &CallTree, labels: &LabelTable) -> BTreeMap<String, u64> {
    let words = |id| {
        let label = labels.get(tree.node(id).label).unwrap();
        format!("{}@{}{}", label.name, label.object, label.kind.annotation())
    };
    let mut found = BTreeMap::new();
    let mut waiting = vec![(CallTree::ROOT, String::new())];
    while let Some((node, path)) = waiting.pop() {
        if tree.node(node).own > 0 {
            found.insert(path.clone(), tree.node(node).own);
        }
        waiting.extend(tree.children(node).map(|child| (child, format!("{path};{}", words(child)))));
    }
    found
}

fn read(bytes: &[u8]) -> Result<(Arc<Names>, Profile, Opened), FormatError> {
    let (names, processes) = (Arc::new(Names::default()), Processes::default());
    let mut profile = Profile::fixed(Capabilities::STACKS);
    let opened = open(
        bytes,
        &mut Destination {
            names: &names,
            processes: &processes,
            profile: &mut profile,
            before: None,
            machine: ThisMachine::default(),
        },
    )?;
    Ok((names, profile, opened))
}

fn tree_of(names: &Arc<Names>, profile: Profile, source: Option<EventSource>) -> (Arc<CallTree>, Unit) {
    let profile = Arc::new(RwLock::new(profile));
    let mut engine = Engine::new(Arc::clone(names), Arc::default(), profile);
    let query = Query { grouping: Grouping::None, direction: Direction::TopDown, source, ..Query::default() };
    let snapshot = engine.answer(&Request { query, ..Request::default() }, Timestamp(1));
    (snapshot.tree, snapshot.unit)
}

fn example() -> (LabelTable, CallTree) {
    let labels = LabelTable::default();
    let mut builder = TreeBuilder::new();
    let (main, parse) = (("main", "shop", FrameKind::User), ("parse", "shop", FrameKind::User));
    // The place of a Python function is its file and line.
    let run = ("run", "/srv/views.py:12", FrameKind::Script(Language::Python));
    for (stack, weight) in [
        (vec![main], 3),
        (vec![main, parse, ("skip", "shop", FrameKind::Inlined)], 40),
        (vec![main, parse, ("vfs_read", "kernel", FrameKind::Kernel)], 7),
        (vec![run, ("malloc", "libc.so.6", FrameKind::User)], 2),
        (vec![("main", "other", FrameKind::User)], 5),
    ] {
        let node = stack
            .into_iter()
            .fold(CallTree::ROOT, |node, (name, object, kind)| builder.child(node, labels.intern(name, object, kind)));
        builder.add(node, weight);
    }
    (labels, builder.finish())
}

#[test]
fn a_tree_is_the_same_after_it_was_written_and_read() {
    let (labels, tree) = example();
    let part = Part { tree: &tree, difference: None, labels: &labels, root: CallTree::ROOT };
    let mut bytes = Vec::new();
    super::write(part, &options(Unit::Samples, 100), &mut bytes).unwrap();
    let (names, profile, opened) = read(&bytes).unwrap();
    assert_eq!((opened.source, opened.remarks.len()), (Some(EventSource(2)), 0));
    let types: Vec<_> = profile.events.iter().map(|event| (&*event.name, &*event.how)).collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    let (again, unit) = tree_of(&names, profile, Some(EventSource(2)));
    // In the format, a Python function has a file and no line of its definition that a tree would show.
    let expected: BTreeMap<String, u64> = paths(&tree, &labels)
        .into_iter()
        .map(|(path, own)| (path.replace("/srv/views.py:12", "views.py"), own * 10_000_000))
        .collect();
    assert_eq!((paths(&again, &names.labels), unit), (expected, Unit::Nanoseconds));
}

#[test]
fn a_part_has_its_callers_and_nothing_else() {
    let (labels, tree) = example();
    let main = tree.children(CallTree::ROOT).find(|id| tree.node(*id).total == 50).unwrap();
    let parse = tree.children(main).next().unwrap();
    let mut bytes = Vec::new();
    super::write(Part { tree: &tree, difference: None, labels: &labels, root: parse }, &options(Unit::Bytes, 0), &mut bytes)
        .unwrap();
    let (names, profile, opened) = read(&bytes).unwrap();
    let (again, unit) = tree_of(&names, profile, opened.source);
    let found: Vec<_> = paths(&again, &names.labels).into_iter().collect();
    let under = ";main@shop;parse@shop";
    assert_eq!(found, [(format!("{under};skip@shop_[i]"), 40), (format!("{under};vfs_read@kernel_[k]"), 7)]);
    assert_eq!(unit, Unit::Bytes);
}

#[test]
fn a_profile_is_recognized_whatever_the_order_of_its_fields_and_text_is_not() {
    let (labels, tree) = example();
    let part = Part { tree: &tree, difference: None, labels: &labels, root: CallTree::ROOT };
    let mut bytes = Vec::new();
    super::write(part, &options(Unit::Samples, 100), &mut bytes).unwrap();
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*bytes), &mut plain).unwrap();
    let fields: Vec<_> = crate::formats::protobuf::Fields::of(&plain).collect();
    let mut turned = Message::default();
    for (number, value) in fields.iter().rev() {
        match value {
            crate::formats::protobuf::Value::Number(value) => turned.number(*number, *value),
            crate::formats::protobuf::Value::Bytes(bytes) => turned.bytes(*number, bytes),
        }
    }
    // Texts have the opposite order now, so names differ; the file is still a profile.
    assert!(super::recognizes(&turned.0) && super::recognizes(&plain));
    for text in ["main;f 1\n", "\nmain;f 1\n", "2;a 1\n", "\"a\";b 2\n", "*;x 3\n", "P;Q 1\n", "{\"a\": 1}", ""] {
        assert!(!super::recognizes(text.as_bytes()), "{text:?}");
    }
}

#[test]
fn a_file_that_is_cut_is_read_up_to_there_and_nonsense_is_refused() {
    let (labels, tree) = example();
    let mut bytes = Vec::new();
    let part = Part { tree: &tree, difference: None, labels: &labels, root: CallTree::ROOT };
    super::write(part, &options(Unit::Samples, 0), &mut bytes).unwrap();
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*bytes), &mut plain).unwrap();
    assert!(read(&plain).is_ok(), "not compressed");
    for length in 20..plain.len() {
        match read(&plain[..length]) {
            Ok((_, _, opened)) => assert!(opened.remarks.len() <= 1, "{length}"),
            Err(FormatError::NoSamples | FormatError::NoStacks { .. } | FormatError::FewStacks { .. }) => {}
            Err(error) => panic!("{length}: {error}"),
        }
    }
    let mut odd = Message::default();
    odd.bytes(1, b"\x08\x01\x10\x02");
    odd.bytes(2, b"\x0a\x01\x01\x12\x02\x05\x06");
    let error = read(&odd.0).err().unwrap().to_string();
    assert!(error.contains("a sample of 1 frames with 2 values of 1 kinds"), "{error}");
}
