//! Writes a tree as a pprof profile.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;

use crate::formats::options::SaveOptions;
use crate::formats::protobuf::Message;
use crate::formats::{FormatError, Part};
use crate::profile::{Begin, CallTree, FrameKind, LabelId, NodeId, Unit};

/// Writes a part of a tree: a sample for each node where samples end. Names, files, inlined functions and the kernel have their places in
/// the format; processes are frames.
///
/// In a comparison, the values are those of now.
pub(in crate::formats) fn write(part: Part<'_>, options: &SaveOptions, out: &mut dyn Write) -> Result<(), FormatError> {
    let whole = part.difference.map_or(part.tree.node(part.root).total, |difference| difference.node(part.root).total.now);
    if whole == 0 {
        return Err(FormatError::NothingToSave);
    }
    let mut writer = Writer::new(part);
    // Each type of value: what it is, its unit, and the value of a weight of 1.
    let types: Vec<(&str, &str, u64)> = match (options.unit, options.frequency) {
        (Unit::Samples, 0) => vec![("samples", "count", 1)],
        (Unit::Samples, hz) => vec![("samples", "count", 1), ("cpu", "nanoseconds", 1_000_000_000 / u64::from(hz))],
        (Unit::Events, _) => vec![("events", "count", 1)],
        (Unit::Nanoseconds, _) => vec![("time", "nanoseconds", 1)],
        (Unit::Bytes, _) => vec![("space", "bytes", 1)],
    };
    for (what, unit, _) in &types {
        let value_type = writer.value_type(what, unit);
        writer.profile.bytes(1, &value_type);
    }
    if let Some((what, unit, period)) = types.get(1) {
        let value_type = writer.value_type(what, unit);
        writer.tail.bytes(11, &value_type);
        writer.tail.number(12, *period);
    }
    writer.tail.number(9, options.time.unwrap_or(0));
    writer.tail.number(10, options.seconds.map_or(0, |seconds| (seconds * 1e9) as u64));
    writer.samples(&types);
    let mut encoder = GzEncoder::new(out, Compression::new(6));
    encoder.write_all(&writer.profile.0)?;
    encoder.write_all(&writer.tables.0)?;
    for text in &writer.strings {
        let mut string = Message::default();
        string.bytes(6, text.as_bytes());
        encoder.write_all(&string.0)?;
    }
    encoder.write_all(&writer.tail.0)?;
    encoder.finish()?.flush()?;
    Ok(())
}

struct Writer<'a> {
    part: Part<'a>,
    /// Kinds of values, and samples.
    profile: Message,
    /// Mappings, locations and functions.
    tables: Message,
    tail: Message,
    strings: Vec<String>,
    numbers: FxHashMap<String, u64>,
    mappings: FxHashMap<String, u64>,
    functions: FxHashMap<LabelId, u64>,
    /// A function with the functions that were inlined into it, outermost first.
    locations: FxHashMap<Vec<LabelId>, u64>,
}

impl<'a> Writer<'a> {
    fn new(part: Part<'a>) -> Writer<'a> {
        let mut writer = Writer {
            part,
            profile: Message::default(),
            tables: Message::default(),
            tail: Message::default(),
            strings: Vec::new(),
            numbers: FxHashMap::default(),
            mappings: FxHashMap::default(),
            functions: FxHashMap::default(),
            locations: FxHashMap::default(),
        };
        writer.text("");
        writer
    }

    fn text(&mut self, text: &str) -> u64 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let number = self.strings.len() as u64;
        self.strings.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn value_type(&mut self, what: &str, unit: &str) -> Vec<u8> {
        let mut message = Message::default();
        message.number(1, self.text(what));
        message.number(2, self.text(unit));
        message.0
    }

    /// Writes a sample for each node with self weight. The locations of a node are those of its caller and its own.
    fn samples(&mut self, types: &[(&str, &str, u64)]) {
        let Part { tree, difference, root, .. } = self.part;
        let mut path: Vec<NodeId> = Vec::new();
        let mut waiting = vec![(root, 0usize)];
        while let Some((node, depth)) = waiting.pop() {
            path.truncate(depth);
            path.push(node);
            let own = difference.map_or(tree.node(node).own, |difference| difference.node(node).own.now);
            if own > 0 {
                let locations = self.locations_of(&path);
                let values: Vec<u64> = types.iter().map(|(_, _, one)| own.saturating_mul(*one)).collect();
                let mut sample = Message::default();
                sample.numbers(1, &locations);
                sample.numbers(2, &values);
                self.profile.bytes(2, &sample.0);
            }
            waiting.extend(tree.children(node).map(|child| (child, depth + 1)));
        }
    }

    /// Returns the locations of a path, innermost first. The callers of the part's root are on the path as well.
    fn locations_of(&mut self, path: &[NodeId]) -> Vec<u64> {
        let Part { tree, labels, root, .. } = self.part;
        let mut above: Vec<NodeId> = tree.ancestors(root).skip(1).collect();
        above.reverse();
        let mut groups: Vec<Vec<LabelId>> = Vec::new();
        for node in above.iter().chain(path).filter(|node| **node != CallTree::ROOT) {
            let label = tree.node(*node).label;
            let is_inlined = labels.get(label).is_some_and(|label| label.kind == FrameKind::Inlined);
            match groups.last_mut().filter(|_| is_inlined) {
                Some(group) => group.push(label),
                None => groups.push(vec![label]),
            }
        }
        groups.into_iter().rev().map(|group| self.location(group)).collect()
    }

    fn location(&mut self, group: Vec<LabelId>) -> u64 {
        if let Some(known) = self.locations.get(&group) {
            return *known;
        }
        let number = self.locations.len() as u64 + 1;
        let mapping = group.first().map_or(0, |outermost| self.mapping(*outermost));
        let mut location = Message::default();
        location.number(1, number);
        location.number(2, mapping);
        for label in group.iter().rev() {
            let mut line = Message::default();
            line.number(1, self.function(*label));
            location.bytes(4, &line.0);
        }
        self.tables.bytes(4, &location.0);
        self.locations.insert(group, number);
        number
    }

    fn mapping(&mut self, label: LabelId) -> u64 {
        let Some(label) = self.part.labels.get(label) else { return 0 };
        let name = match label.kind {
            FrameKind::Kernel => "[kernel.kallsyms]",
            FrameKind::Script(_) | FrameKind::Process => return 0,
            _ if label.object.is_empty() => return 0,
            _ => &*label.object,
        };
        if let Some(known) = self.mappings.get(name) {
            return *known;
        }
        let number = self.mappings.len() as u64 + 1;
        let mut mapping = Message::default();
        mapping.number(1, number);
        mapping.number(5, self.text(name));
        // It has functions, files, lines and inlined functions: readers need not look for them.
        (7..=10).for_each(|field| mapping.number(field, 1));
        self.tables.bytes(3, &mapping.0);
        self.mappings.insert(name.to_owned(), number);
        number
    }

    fn function(&mut self, id: LabelId) -> u64 {
        if let Some(known) = self.functions.get(&id) {
            return *known;
        }
        let number = self.functions.len() as u64 + 1;
        let label = self.part.labels.get(id);
        let name = self.text(label.map_or("?", |label| &label.name));
        let begin =
            label.filter(|label| matches!(label.kind, FrameKind::Script(_))).and_then(|label| Begin::parse(&label.object));
        let (file, line) = begin.map_or(("", 0), |begin| (begin.file, begin.line.into()));
        let file = self.text(file);
        let mut function = Message::default();
        for (field, value) in [(1, number), (2, name), (3, name), (4, file), (5, line)] {
            function.number(field, value);
        }
        self.tables.bytes(5, &function.0);
        self.functions.insert(id, number);
        number
    }
}
