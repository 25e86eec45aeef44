//! The tree that is seen, as nested objects. d3-flame-graph and Grafana's panels read this shape: a name, a value, children.
//!
//! ```text
//! {"name": "all", "value": 20, "self": 0, "unit": "samples", "children": [
//!   {"name": "parse", "object": "shop", "kind": "user code", "value": 20, "self": 5, "children": […]}]}
//! ```
//!
//! `value` is the weight of a frame with all frames that it called, `self` its own. In a comparison both are those of now, and `delta` is
//! what `value` has gained since the baseline.

use std::io::Write;

use serde::Serialize;

use crate::formats::options::SaveOptions;
use crate::formats::{FormatError, Part};
use crate::profile::{CallTree, NodeId};

/// An object without its children.
#[derive(Serialize)]
struct Written<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    object: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    value: u64,
    #[serde(rename = "self")]
    own: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<i64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'static str,
}

/// Writes a part of a tree, below its callers. The tree does not recurse here, whatever its depth.
pub(in crate::formats) fn write(part: Part<'_>, options: &SaveOptions, out: &mut dyn Write) -> Result<(), FormatError> {
    let Part { tree, difference, labels, root } = part;
    if tree.node(root).total == 0 {
        return Err(FormatError::NothingToSave);
    }
    let unit = options.unit.word();
    let sides = |node: NodeId| match difference {
        Some(difference) => {
            let of = difference.node(node);
            (of.total.now, of.own.now, Some(of.total.now.cast_signed().wrapping_sub(of.total.before.cast_signed())))
        }
        None => (tree.node(node).total, tree.node(node).own, None),
    };
    // A caller of the root has what the root has.
    let written = |node: NodeId, is_above: bool| {
        let (value, own, delta) = sides(if is_above { root } else { node });
        let own = if is_above { 0 } else { own };
        let (name, object, kind) = match labels.get(tree.node(node).label).filter(|_| node != CallTree::ROOT) {
            Some(label) => (&*label.name, &*label.object, label.kind.describe()),
            None => ("all", "", ""),
        };
        let unit = if node == CallTree::ROOT { unit } else { "" };
        serde_json::to_string(&Written { name, object, kind, value, own, delta, unit }).map_err(std::io::Error::from)
    };
    // The path does not contain the root of the tree.
    let path = tree.path(root);
    let above = path.len();
    let mut open = 0usize;
    let mut begin = |out: &mut dyn Write, text: String, depth: usize| {
        // Closes the objects that are not its callers, and the list of children of each.
        for _ in depth..open {
            out.write_all(b"]}")?;
        }
        if depth < open {
            out.write_all(b",")?;
        }
        open = depth + 1;
        out.write_all(text.trim_end_matches('}').as_bytes())?;
        out.write_all(b",\"children\":[")
    };
    let callers = std::iter::once(CallTree::ROOT).chain(path.iter().copied());
    for (depth, node) in callers.take(above).enumerate() {
        begin(out, written(node, true)?, depth)?;
    }
    let mut waiting: Vec<(NodeId, usize)> = vec![(root, above)];
    while let Some((node, depth)) = waiting.pop() {
        begin(out, written(node, false)?, depth)?;
        waiting.extend(tree.children(node).map(|child| (child, depth + 1)));
    }
    for _ in 0..open {
        out.write_all(b"]}")?;
    }
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::formats::folded::FoldedOptions;
    use crate::formats::svg::SvgOptions;
    use crate::profile::{Difference, FrameKind, LabelTable, Measure, TreeBuilder, Unit};

    fn tree(labels: &LabelTable, stacks: &[(&[&str], i64)]) -> CallTree {
        let mut builder = TreeBuilder::new();
        for (stack, weight) in stacks {
            let label = |name: &str| labels.intern(name, "shop", FrameKind::User);
            let node = stack.iter().fold(CallTree::ROOT, |node, name| builder.child(node, label(name)));
            builder.add(node, *weight);
        }
        builder.finish()
    }

    fn text(part: Part<'_>) -> Value {
        let options = SaveOptions {
            picture: SvgOptions::default(),
            folded: FoldedOptions::default(),
            unit: Unit::Bytes,
            frequency: 0,
            time: None,
            seconds: None,
        };
        let mut out = Vec::new();
        write(part, &options, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn objects_are_nested_as_frames_are() {
        let labels = LabelTable::default();
        let tree = tree(&labels, &[(&["main", "a\"}"], 3), (&["main", "b", "c"], 5), (&["main"], 1), (&["idle"], 7)]);
        let all = text(Part { tree: &tree, difference: None, labels: &labels, root: CallTree::ROOT });
        let frame = |name: &str, value: u64, own: u64, children: Vec<Value>| json!({"name": name, "object": "shop", "kind": "user code", "value": value, "self": own, "children": children});
        let b = frame("b", 5, 0, vec![frame("c", 5, 5, vec![])]);
        let sorted = |value: &Value| {
            let mut value = value.clone();
            value["children"].as_array_mut().unwrap().sort_by_key(|child| child["name"].to_string());
            value
        };
        assert_eq!((&all["name"], &all["value"], &all["unit"]), (&json!("all"), &json!(16), &json!("bytes")));
        let all = sorted(&all);
        assert_eq!(all["children"][0], frame("idle", 7, 7, vec![]));
        assert_eq!(sorted(&all["children"][1]), frame("main", 9, 1, vec![frame("a\"}", 3, 3, vec![]), b.clone()]));
        // A part of it stands below its callers.
        let root = tree.children(CallTree::ROOT).find(|node| tree.node(*node).total == 9).unwrap();
        let root = tree.children(root).find(|node| tree.node(*node).total == 5).unwrap();
        let part = text(Part { tree: &tree, difference: None, labels: &labels, root });
        assert_eq!((&part["value"], &part["children"][0]), (&json!(5), &frame("main", 5, 0, vec![b])));
    }

    #[test]
    fn a_comparison_has_what_each_frame_gained() {
        let labels = LabelTable::default();
        let (now, before) = (tree(&labels, &[(&["a"], 9), (&["b"], 1)]), tree(&labels, &[(&["a"], 4), (&["c"], 6)]));
        let (both, difference) = Difference::of(&now, &before, Measure::default());
        let all = text(Part { tree: &both, difference: Some(&difference), labels: &labels, root: CallTree::ROOT });
        let mut gained: Vec<(String, i64, i64)> = all["children"]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| (of["name"].to_string(), of["value"].as_i64().unwrap(), of["delta"].as_i64().unwrap()))
            .collect();
        gained.sort();
        assert_eq!(gained, [("\"a\"".to_owned(), 9, 5), ("\"b\"".to_owned(), 1, 1), ("\"c\"".to_owned(), 0, -6)]);
    }
}
