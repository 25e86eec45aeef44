//! Converts a call tree to folded stacks: one line for each path where samples end, in the order of the paths.

use std::fmt::Display;
use std::io::Write;

use super::super::paths::{Limits, Path, Texts, walk};
use super::super::{FormatError, Part};
use super::UNKNOWN;
use crate::profile::{CallTree, Difference, FrameKind, LabelTable, NodeId, Sides};

/// Options for writing folded stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedOptions {
    /// Whether kernel, inlined and JIT frames are marked as such, `_[k]`, `_[i]`, `_[j]`. Default: yes, so that reading the
    /// file gives the same kinds again.
    pub annotations: bool,
    /// Whether the file and the line of a Python function follow its name: `run (/srv/views.py:1)`. Default: no.
    pub places: bool,
}

impl Default for FoldedOptions {
    fn default() -> Self {
        FoldedOptions { annotations: true, places: false }
    }
}

/// Counts of a finished write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Lines.
    pub stacks: u64,
    /// Sum of their counts.
    pub total: u64,
}

/// Writes `root` and everything below it. Each line has the whole path from the top of the tree: `comm;main;parse 12`.
///
/// Lines are sorted by path, so one tree always gives one file. In names, `;` becomes `:`. A frame without a name becomes
/// `[unknown]`. A first frame that would make its line a comment (`# …`) gets the prefix `_`. Samples without any frame become
/// `[unknown]`. A tree without weight is an error.
pub fn write(
    tree: &CallTree,
    labels: &LabelTable,
    root: NodeId,
    options: FoldedOptions,
    out: &mut dyn Write,
) -> Result<Written, FormatError> {
    write_lines(tree, labels, root, options, out, |path| (path.own, (path.own > 0).then_some(path.own)))
}

/// Writes both sides of a comparison. Each line has two counts, before and now, as in FlameGraph's `difffolded.pl`:
/// `comm;main;parse 12 31`. `tree` contains both sides. Works like [`write()`] otherwise.
pub fn write_difference(
    tree: &CallTree,
    difference: &Difference,
    labels: &LabelTable,
    root: NodeId,
    options: FoldedOptions,
    out: &mut dyn Write,
) -> Result<Written, FormatError> {
    write_lines(tree, labels, root, options, out, |path| {
        let own = path.own_sides(difference);
        (own.now, (own != Sides::default()).then(|| format!("{} {}", own.before, own.now)))
    })
}

/// Writes a part of a tree, with one count a line or with two.
pub(in crate::formats) fn write_part(
    part: Part<'_>,
    options: FoldedOptions,
    out: &mut dyn Write,
) -> Result<Written, FormatError> {
    let Part { tree, difference, labels, root } = part;
    match difference {
        None => write(tree, labels, root, options, out),
        Some(difference) => write_difference(tree, difference, labels, root, options, out),
    }
}

/// Writes a line for every path with counts. `counts` returns a path's contribution to the sum, and the counts to write.
fn write_lines<C: Display>(
    tree: &CallTree,
    labels: &LabelTable,
    root: NodeId,
    options: FoldedOptions,
    out: &mut dyn Write,
    counts: impl Fn(&Path<'_>) -> (u64, Option<C>),
) -> Result<Written, FormatError> {
    if tree.node(root).total == 0 {
        return Err(FormatError::NothingToSave);
    }
    let texts = Texts::new(tree, labels, |labels, id| {
        let Some(label) = labels.get(id) else { return UNKNOWN.into() };
        let annotation = if options.annotations { label.kind.annotation() } else { "" };
        match options.places && matches!(label.kind, FrameKind::Script(_)) && !label.object.is_empty() {
            true => frame_text(&format!("{} ({})", label.name, label.object), annotation),
            false => frame_text(&label.name, annotation),
        }
    });
    let mut written = Written::default();
    walk(tree, root, &texts, Limits::NONE, |path| {
        if let (weight, Some(counts)) = counts(path) {
            written.stacks += 1;
            written.total += weight;
            let text = if path.text.trim().is_empty() { UNKNOWN } else { path.text };
            writeln!(out, "{}{text} {counts}", if reads_as_comment(text) { "_" } else { "" })?;
        }
        Ok::<(), FormatError>(())
    })?;
    out.flush()?;
    Ok(written)
}

/// Returns whether the first frame is `#`, or begins with `# `, ignoring leading spaces.
fn reads_as_comment(text: &str) -> bool {
    let mut characters = text.trim_start().chars();
    characters.next() == Some('#') && characters.next().is_none_or(|c| c == ';' || c.is_whitespace())
}

/// Returns the name in a form that can stand between `;` and `;`.
fn frame_text(name: &str, annotation: &str) -> String {
    let name = if name.is_empty() { UNKNOWN } else { name };
    name.replace(';', ":") + annotation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Language;

    #[test]
    fn functions_of_the_same_name_have_their_files_if_asked() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        for file in ["/a/views.py:1", "/b/views.py:1"] {
            let node = builder.child(CallTree::ROOT, labels.intern("run", file, FrameKind::Script(Language::Python)));
            let node = builder.child(node, labels.intern("work", "libc.so.6", User));
            builder.add(node, 1);
        }
        let tree = builder.finish();
        let text = |places| {
            let mut out = Vec::new();
            write(&tree, &labels, CallTree::ROOT, FoldedOptions { places, ..FoldedOptions::default() }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(true), "run (/a/views.py:1)_[p];work 1\nrun (/b/views.py:1)_[p];work 1\n");
        assert_eq!(text(false), "run_[p];work 2\n");
    }
    use crate::profile::{Measure, TreeBuilder};

    fn tree(labels: &LabelTable, stacks: &[(&[(&str, FrameKind)], i64)]) -> CallTree {
        let mut builder = TreeBuilder::new();
        for (stack, weight) in stacks {
            let child = |node, (name, kind): &(&str, FrameKind)| builder.child(node, labels.intern(name, "", *kind));
            let node = stack.iter().fold(CallTree::ROOT, child);
            builder.add(node, *weight);
        }
        builder.finish()
    }

    fn written(tree: &CallTree, labels: &LabelTable, root: NodeId, annotations: bool) -> String {
        let mut out = Vec::new();
        write(tree, labels, root, FoldedOptions { annotations, places: false }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    use FrameKind::{Inlined, Jit, Kernel, Process, User};

    #[test]
    fn both_sides_of_a_comparison_stand_on_a_line() {
        let labels = LabelTable::default();
        let now = tree(&labels, &[(&[("a", Process), ("b", User)], 3), (&[("a", Process), ("new", User)], 1)]);
        let before = tree(&labels, &[(&[("a", Process), ("b", User)], 7), (&[("gone", Process)], 2)]);
        let (both, difference) = Difference::of(&now, &before, Measure::Shares);
        let mut out = Vec::new();
        write_difference(&both, &difference, &labels, CallTree::ROOT, FoldedOptions::default(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a;b 7 3\na;new 0 1\ngone 2 0\n");
    }

    #[test]
    fn lines_are_sorted_paths_with_what_ends_there() {
        let labels = LabelTable::default();
        let stacks: [(&[(&str, FrameKind)], i64); 4] = [
            (&[("nginx", Process), ("main", User), ("z", Inlined)], 3),
            (&[("nginx", Process), ("main", User)], 2),
            (&[("nginx", Process), ("main", User), ("read", Kernel)], 1),
            (&[("a", Process), ("b", Jit)], 4),
        ];
        let tree = tree(&labels, &stacks);
        let annotated = "a;b_[j] 4\nnginx;main 2\nnginx;main;read_[k] 1\nnginx;main;z_[i] 3\n";
        assert_eq!(written(&tree, &labels, CallTree::ROOT, true), annotated);
        assert_eq!(
            written(&tree, &labels, CallTree::ROOT, false),
            annotated.replace("_[j]", "").replace("_[k]", "").replace("_[i]", "")
        );
    }

    #[test]
    fn what_is_below_a_node_is_written_with_the_path_to_it() {
        let labels = LabelTable::default();
        let stacks: [(&[(&str, FrameKind)], i64); 3] =
            [(&[("a", User), ("b", User)], 1), (&[("a", User), ("b", User), ("c", User)], 2), (&[("a", User)], 4)];
        let tree = tree(&labels, &stacks);
        assert_eq!(written(&tree, &labels, NodeId(2), true), "a;b 1\na;b;c 2\n");
    }

    #[test]
    fn labels_that_read_the_same_are_one_frame() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        for (object, leaf, weight) in [("libb.so", "y", 1), ("liba.so", "x", 2), ("libb.so", "x", 4)] {
            let main = builder.child(CallTree::ROOT, labels.intern("main", object, User));
            let leaf = builder.child(main, labels.intern(leaf, object, User));
            builder.add(leaf, weight);
        }
        assert_eq!(written(&builder.finish(), &labels, CallTree::ROOT, true), "main;x 6\nmain;y 1\n");
    }

    #[test]
    fn names_that_would_break_a_line_are_changed() {
        let labels = LabelTable::default();
        let stacks: [(&[(&str, FrameKind)], i64); 4] = [
            (&[("[u8; 4]", User)], 1),
            (&[("", User), (" ", User)], 2),
            (&[("# no", User)], 3),
            (&[("#", User), ("x", User)], 4),
        ];
        let tree = tree(&labels, &stacks);
        assert_eq!(written(&tree, &labels, CallTree::ROOT, true), "_#;x 4\n_# no 3\n[u8: 4] 1\n[unknown];  2\n");
    }

    #[test]
    fn five_thousand_levels_need_no_stack() {
        let labels = LabelTable::default();
        let label = labels.intern("f", "", User);
        let mut builder = TreeBuilder::new();
        let node = (0..5000).fold(CallTree::ROOT, |node, _| builder.child(node, label));
        builder.add(node, 1);
        assert_eq!(written(&builder.finish(), &labels, CallTree::ROOT, true), "f;".repeat(4999) + "f 1\n");
    }

    #[test]
    fn a_tree_without_weight_is_nothing_to_save() {
        let error =
            write(&CallTree::default(), &LabelTable::default(), CallTree::ROOT, FoldedOptions::default(), &mut Vec::new());
        assert!(matches!(error, Err(FormatError::NothingToSave)));
    }
}
