//! A call tree to folded stacks: a line for every path at which samples end, in the order of the paths.

use std::io::Write;

use super::super::FormatError;
use super::super::paths::{Texts, walk};
use super::UNKNOWN;
use crate::profile::{CallTree, LabelTable, NodeId};

/// How folded stacks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedOptions {
    /// Whether kernel, inlined and JIT frames are marked as such, `_[k]`, `_[i]`, `_[j]`. Default: yes, so that reading the
    /// file gives the same kinds again.
    pub annotations: bool,
}

impl Default for FoldedOptions {
    fn default() -> Self {
        FoldedOptions { annotations: true }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Lines.
    pub stacks: u64,
    /// Sum of their counts.
    pub total: u64,
}

/// Writes what is at and below `root`, each line with the whole path from the top of the tree: `comm;main;parse 12`.
///
/// Sorted by path, so one tree always gives one file. In names `;` becomes `:`, a frame without a name `[unknown]`, and a
/// first frame that would make its line a comment (`# …`) gets `_` before it; samples without any frame are `[unknown]`. A
/// tree without weight is an error.
pub fn write(
    tree: &CallTree,
    labels: &LabelTable,
    root: NodeId,
    options: FoldedOptions,
    out: &mut dyn Write,
) -> Result<Written, FormatError> {
    if tree.node(root).total == 0 {
        return Err(FormatError::NothingToSave);
    }
    let texts = Texts::new(tree, labels, |labels, id| {
        let Some(label) = labels.get(id) else { return UNKNOWN.into() };
        let annotation = if options.annotations { label.kind.annotation() } else { "" };
        frame_text(&label.name, annotation)
    });
    let mut written = Written::default();
    walk(tree, root, &texts, 1, |path| {
        if path.own > 0 {
            written.stacks += 1;
            written.total += path.own;
            let text = if path.text.is_empty() { UNKNOWN } else { path.text };
            writeln!(out, "{}{text} {}", if reads_as_comment(text) { "_" } else { "" }, path.own)?;
        }
        Ok::<(), FormatError>(())
    })?;
    out.flush()?;
    Ok(written)
}

/// Whether the first frame is `#`, or begins with `# `, once the spaces before it are taken off.
fn reads_as_comment(text: &str) -> bool {
    let mut characters = text.trim_start().chars();
    characters.next() == Some('#') && characters.next().is_none_or(|c| c == ';' || c.is_whitespace())
}

/// A name as it can stand between `;` and `;`.
fn frame_text(name: &str, annotation: &str) -> String {
    let name = if name.trim().is_empty() { UNKNOWN } else { name };
    name.replace(';', ":") + annotation
}
