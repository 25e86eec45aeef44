//! Searching: which labels match a pattern, and which share of a tree's samples has one of them.

use std::sync::Arc;

use super::query::Pattern;
use super::tree::CallTree;
use crate::profile::ids::LabelId;
use crate::profile::names::table::Names;

/// Labels that match a search, and their share.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The pattern that was searched for.
    pub pattern: Pattern,
    /// Whether each label matches, from the first label on.
    pub labels: Arc<[bool]>,
    first: LabelId,
    /// Weight of the samples that have a matching frame.
    pub weight: u64,
    /// How many nodes match.
    pub nodes: usize,
}

impl SearchResult {
    /// Whether this label matches.
    pub fn matches(&self, label: LabelId) -> bool {
        let index = label.0.checked_sub(self.first.0).map(|index| index as usize);
        index.and_then(|index| self.labels.get(index)).copied().unwrap_or(false)
    }
}

/// For each label, whether a pattern matches it; filled in as labels appear.
pub(crate) struct LabelMatches {
    pattern: Pattern,
    known: Vec<bool>,
}

impl LabelMatches {
    pub(crate) fn new(pattern: Pattern) -> Self {
        LabelMatches { pattern, known: Vec::new() }
    }

    pub(crate) fn matches(&mut self, names: &Names, label: LabelId) -> bool {
        let Some(index) = names.labels.index(label) else { return false };
        self.extend(names, (index + 1).min(names.labels.len()));
        self.known.get(index).copied().unwrap_or(false)
    }

    fn extend(&mut self, names: &Names, to: usize) {
        for index in self.known.len()..to {
            let label = names.labels.get(names.labels.id(index));
            self.known.push(label.is_some_and(|label| self.pattern.matches(&label.name)));
        }
    }
}

/// Searches trees. Remembers which labels match, since labels only grow in number.
pub struct Searcher {
    names: Arc<Names>,
    matches: LabelMatches,
}

impl Searcher {
    /// Returns a searcher for one pattern.
    pub fn new(names: Arc<Names>, pattern: Pattern) -> Searcher {
        Searcher { names, matches: LabelMatches::new(pattern) }
    }

    /// Returns the pattern.
    pub fn pattern(&self) -> &Pattern {
        &self.matches.pattern
    }

    /// Returns the labels that match, and the share of the tree below them.
    pub fn search(&mut self, tree: &CallTree) -> SearchResult {
        self.matches.extend(&self.names, self.names.labels.len());
        let known = &self.matches.known;
        let mut covered = vec![false; tree.nodes().len()];
        let (mut weight, mut nodes) = (0, 0);
        for (index, node) in tree.nodes().iter().enumerate().skip(1) {
            let matches = || known.get(self.names.labels.index(node.label)?).copied();
            let matched = node.total > 0 && matches().unwrap_or(false);
            let above = covered[node.parent as usize];
            nodes += usize::from(matched);
            if matched && !above {
                weight += node.total;
            }
            covered[index] = matched || above;
        }
        SearchResult {
            pattern: self.matches.pattern.clone(),
            labels: known.as_slice().into(),
            first: self.names.labels.id(0),
            weight,
            nodes,
        }
    }
}
