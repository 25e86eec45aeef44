//! Functions with their callers and callees.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::profile::{CallTree, FunctionOrder, FunctionTable, LabelId, Names, Neighbours, NodeId, Sides, Snapshot};
use crate::ui::keys::Action;
use crate::ui::place::Branch;
use crate::ui::position::Position;
use crate::ui::views::Match;

/// The rows of the table of functions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum FunctionsRow {
    Function {
        label: LabelId,
        own: Sides,
        total: Sides,
        open: bool,
    },
    /// Heading above the callers (`true`) or callees of the open function.
    Heading {
        callers: bool,
    },
    /// A caller or callee, with the labels that lead to it from the open function, and its part of that function's total weight.
    Node {
        callers: bool,
        path: Vec<LabelId>,
        weight: u64,
        of: u64,
        children: bool,
        open: bool,
    },
}

/// State of the table of functions.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    /// The reader's position.
    pub position: Position,
    /// The order.
    pub sort: FunctionOrder,
    /// The function whose callers and callees are shown.
    pub open: Option<LabelId>,
    /// Whether its callers and callees have not arrived yet. When they arrive, the table scrolls to make room for them.
    is_opening: bool,
    expanded: FxHashSet<(bool, Vec<LabelId>)>,
    made: RefCell<Made>,
    /// The function under the cursor or above it, and the number of rows from there to the cursor. `None` at the top, where the
    /// cursor stays.
    anchor: Option<(LabelId, usize)>,
}

/// Rows, and the data that they were made from. The data is held by reference count, so that no other table can get the same
/// address.
#[derive(Clone, Debug, Default)]
struct Made {
    table: Option<Arc<FunctionTable>>,
    neighbours: Option<Arc<Neighbours>>,
    open: Option<LabelId>,
    expanded: FxHashSet<(bool, Vec<LabelId>)>,
    rows: Rc<[FunctionsRow]>,
}

/// Most callers or callees listed below one row. The flame graph shows the lighter ones.
const MAX_BRANCHES: usize = 12;

impl Functions {
    /// Returns the rows on screen. They are rebuilt only if the table or its open rows have changed, not for every key and picture.
    /// (Building takes 4 ms for 100,000 functions, and a key needs the rows twice. Sorting them by name takes 50 ms; the engine
    /// does that.)
    pub fn rows(&self, snapshot: &Snapshot) -> Rc<[FunctionsRow]> {
        let Some(table) = &snapshot.functions else { return Rc::default() };
        let neighbours = snapshot.neighbours.as_ref().filter(|(label, _)| self.open == Some(*label)).map(|(_, found)| found);
        let mut made = self.made.borrow_mut();
        let fits = made.table.as_ref().is_some_and(|known| Arc::ptr_eq(known, table))
            && made.neighbours.as_ref().map(Arc::as_ptr) == neighbours.map(Arc::as_ptr)
            && made.open == self.open
            && made.expanded == self.expanded;
        if !fits {
            *made = Made {
                table: Some(Arc::clone(table)),
                neighbours: neighbours.cloned(),
                open: self.open,
                expanded: self.expanded.clone(),
                rows: self.make(table, neighbours).into(),
            };
        }
        Rc::clone(&made.rows)
    }

    fn make(&self, table: &FunctionTable, neighbours: Option<&Arc<Neighbours>>) -> Vec<FunctionsRow> {
        let mut rows = Vec::with_capacity(table.rows.len());
        for row in &table.rows {
            let open = self.open == Some(row.label);
            rows.push(FunctionsRow::Function { label: row.label, own: row.own, total: row.total, open });
            if let Some(neighbours) = neighbours.filter(|_| open) {
                for (callers, tree) in [(true, &neighbours.callers), (false, &neighbours.callees)] {
                    rows.push(FunctionsRow::Heading { callers });
                    self.push_branches(&mut rows, (tree, callers, row.total.now), CallTree::ROOT, &mut Vec::new());
                }
            }
        }
        rows
    }

    /// Adds the rows below a node of a tree of callers or callees. `of` is the weight of the function that the tree belongs to.
    fn push_branches(
        &self,
        rows: &mut Vec<FunctionsRow>,
        (tree, callers, of): (&CallTree, bool, u64),
        node: NodeId,
        path: &mut Vec<LabelId>,
    ) {
        let mut children: Vec<NodeId> = tree.children(node).collect();
        children.sort_by_key(|id| (std::cmp::Reverse(tree.node(*id).total), id.0));
        for child in children.into_iter().take(MAX_BRANCHES) {
            let found = tree.node(child);
            path.push(found.label);
            let open = self.expanded.contains(&(callers, path.clone()));
            rows.push(FunctionsRow::Node {
                callers,
                path: path.clone(),
                weight: found.total,
                of,
                children: tree.children(child).next().is_some(),
                open,
            });
            if open {
                self.push_branches(rows, (tree, callers, of), child, path);
            }
            path.pop();
        }
    }

    /// Shows callers and callees of a function, with the cursor on it.
    pub fn open_function(&mut self, label: LabelId) {
        self.open = Some(label);
        self.anchor = Some((label, 0));
        self.is_opening = true;
        self.expanded.clear();
    }

    /// Closes the callers and callees, if they are open.
    pub fn close(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// Gives open rows and the row under the cursor other labels.
    pub fn rename_labels(&mut self, rename: impl Fn(LabelId) -> LabelId) {
        self.open = self.open.map(&rename);
        self.anchor = self.anchor.map(|(label, below)| (rename(label), below));
        let expanded = std::mem::take(&mut self.expanded).into_iter();
        self.expanded = expanded.map(|(callers, path)| (callers, path.into_iter().map(&rename).collect())).collect();
    }

    /// Goes to the first row, because other rows are shown or their order has changed. If callers and callees of a function are
    /// open, the cursor stays there unless the order has changed.
    pub fn go_to_top(&mut self, sorted: bool) {
        if sorted || self.open.is_none() {
            (self.position, self.anchor) = (Position::default(), None);
        }
    }

    /// Finds the row under the cursor again.
    pub fn follow_rows(&mut self, names: &Names, snapshot: &Snapshot, height: usize) {
        if snapshot.functions.is_none() {
            return;
        }
        self.open = self.open.map(|label| names.labels.current(label));
        self.anchor = self.anchor.map(|(label, below)| (names.labels.current(label), below));
        let rows = self.rows(snapshot);
        let found = self.anchor.and_then(|(anchor, below)| {
            let at = rows.iter().position(|row| matches!(row, FunctionsRow::Function { label, .. } if *label == anchor))?;
            Some((at + if self.open == Some(anchor) { below } else { 0 }, self.open == Some(anchor)))
        });
        match found {
            Some((found, true)) => {
                self.position.hold(found, rows.len(), height);
                let has_come = snapshot.neighbours.as_ref().is_some_and(|(label, _)| self.open == Some(*label));
                if has_come && std::mem::take(&mut self.is_opening) {
                    self.position.make_room(rows.len(), height);
                }
            }
            found => self.position.follow(found.map(|(at, _)| at), rows.len(), height),
        }
        self.note_anchor(&rows);
    }

    /// Remembers the row under the cursor.
    fn note_anchor(&mut self, rows: &[FunctionsRow]) {
        let below = |at: usize| {
            rows.iter().take(at + 1).rev().enumerate().find_map(|(below, row)| match row {
                FunctionsRow::Function { label, open, .. } => Some((*label, below, *open)),
                _ => None,
            })
        };
        let under = below(self.position.at);
        // At the top the cursor stays, for any function.
        let stays = self.position.at == 0 && under.is_none_or(|(.., open)| !open);
        self.anchor = under.filter(|_| !stays).map(|(label, below, _)| (label, below));
    }

    /// Puts the cursor on a clicked row.
    pub(crate) fn select(&mut self, at: usize, snapshot: &Snapshot) {
        let rows = self.rows(snapshot);
        self.position.at = at.min(rows.len().saturating_sub(1));
        self.note_anchor(&rows);
    }

    /// Opens the path to a caller or callee, and puts the cursor on it. If it is too light to be listed, the cursor goes to the
    /// last listed row of the path.
    pub(super) fn select_branch(&mut self, branch: &Branch, snapshot: &Snapshot, height: usize) {
        for length in 1..branch.path.len() {
            self.expanded.insert((branch.callers, branch.path[..length].to_vec()));
        }
        let rows = self.rows(snapshot);
        let place = |wanted: &[LabelId]| {
            rows.iter().position(|row| match row {
                FunctionsRow::Function { open, .. } => *open && wanted.is_empty(),
                FunctionsRow::Node { callers, path, .. } => *callers == branch.callers && path == wanted,
                FunctionsRow::Heading { .. } => false,
            })
        };
        if let Some(at) = (0..=branch.path.len()).rev().find_map(|length| place(&branch.path[..length])) {
            self.position.jump(at, rows.len(), height);
            self.note_anchor(&rows);
        }
    }

    /// Returns the function or branch under the cursor.
    pub fn label_under_cursor(&self, snapshot: &Snapshot) -> Option<LabelId> {
        match self.rows(snapshot).get(self.position.at)? {
            FunctionsRow::Function { label, .. } => Some(*label),
            FunctionsRow::Node { path, .. } => path.last().copied(),
            FunctionsRow::Heading { .. } => None,
        }
    }

    /// Opens or closes the row under the cursor.
    pub fn enter(&mut self, snapshot: &Snapshot) {
        match self.rows(snapshot).get(self.position.at) {
            Some(FunctionsRow::Function { label, open, .. }) => {
                self.anchor = Some((*label, 0));
                self.expanded.clear();
                self.open = if *open { None } else { Some(*label) };
                self.is_opening = !*open;
            }
            Some(FunctionsRow::Node { callers, path, open, .. }) => {
                let key = (*callers, path.clone());
                if *open {
                    self.expanded.remove(&key);
                } else {
                    self.expanded.insert(key);
                }
            }
            _ => {}
        }
    }

    /// Moves the cursor; left closes, right opens. `height` is the number of rows on screen.
    pub fn step(&mut self, action: Action, snapshot: &Snapshot, height: usize) {
        let rows = self.rows(snapshot);
        let wants_open = match rows.get(self.position.at) {
            Some(FunctionsRow::Function { open, .. }) => Some(!open),
            Some(FunctionsRow::Node { open, children, .. }) if *children || *open => Some(!open),
            _ => None,
        };
        match (action, wants_open) {
            (Action::Right, Some(true)) | (Action::Left, Some(false)) => return self.enter(snapshot),
            (Action::Left, _) => {
                // From a branch, back to its function.
                let up = rows.iter().take(self.position.at).rposition(|row| matches!(row, FunctionsRow::Function { .. }));
                self.position.at = up.unwrap_or(self.position.at);
                self.position.clamp(rows.len(), height);
            }
            _ => self.position.go(action, rows.len(), height),
        }
        self.note_anchor(&rows);
    }

    /// Moves to the next function that the search found.
    pub(in crate::ui) fn find_next(
        &mut self,
        snapshot: &Snapshot,
        found: impl Fn(LabelId) -> bool,
        forward: bool,
        height: usize,
    ) -> Match {
        let rows = self.rows(snapshot);
        let matches: Vec<usize> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| matches!(row, FunctionsRow::Function { label, .. } if found(*label)))
            .map(|(at, _)| at)
            .collect();
        let next = if forward {
            matches.iter().position(|at| *at > self.position.at).unwrap_or(0)
        } else {
            matches.iter().rposition(|at| *at < self.position.at).unwrap_or(matches.len().saturating_sub(1))
        };
        let Some(&at) = matches.get(next) else { return Match::default() };
        self.position.jump(at, rows.len(), height);
        self.note_anchor(&rows);
        Match { number: next + 1, of: matches.len(), is_zoomed: false }
    }

    /// Switches to the next column to sort by.
    pub fn next_sort(&mut self) {
        self.sort = match self.sort {
            FunctionOrder::Own => FunctionOrder::Total,
            FunctionOrder::Total => FunctionOrder::Name,
            FunctionOrder::Name => FunctionOrder::Own,
        };
        self.go_to_top(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FrameKind, TreeBuilder};
    use std::time::Instant;

    #[test]
    fn rows_are_made_when_the_data_changes_and_not_for_each_key() {
        const MANY: u32 = 100_000;
        let names = Names::default();
        let mut tree = TreeBuilder::new();
        let main = tree.child(CallTree::ROOT, names.labels.intern("main", "", FrameKind::User));
        for number in 0..MANY {
            let name = format!("space::of<{}>::function", number.reverse_bits());
            let node = tree.child(main, names.labels.intern(&name, "", FrameKind::User));
            tree.add(node, i64::from(number % 7 + 1));
        }
        let tree = tree.finish();
        let began = Instant::now();
        let table = FunctionTable::of(&tree, FunctionOrder::Name, &names);
        let sorted = began.elapsed();
        let mut snapshot = Snapshot { functions: Some(Arc::new(table)), ..Snapshot::default() };
        let mut functions = Functions { sort: FunctionOrder::Name, ..Functions::default() };
        let began = Instant::now();
        let rows = functions.rows(&snapshot);
        let made = began.elapsed();
        let began = Instant::now();
        for _ in 0..100 {
            functions.step(Action::Down, &snapshot, 40);
            assert!(Rc::ptr_eq(&rows, &functions.rows(&snapshot)), "made anew for a key");
        }
        println!("{} rows: sorted in {sorted:?} by the engine, made in {made:?}, a key {:?}", rows.len(), began.elapsed() / 100);
        assert_eq!((rows.len(), functions.position.at), (MANY as usize + 1, 100));
        let name = |row: &FunctionsRow| match row {
            FunctionsRow::Function { label, .. } => names.labels.name(*label).to_owned(),
            _ => String::new(),
        };
        assert!(rows.windows(2).all(|two| name(&two[0]) <= name(&two[1])));
        // Opened rows and new data are visible at once.
        functions.enter(&snapshot);
        let opened = functions.rows(&snapshot);
        assert!(matches!(opened[100], FunctionsRow::Function { open: true, .. }));
        let label = functions.open.unwrap();
        snapshot.neighbours = Some((label, Arc::new(Neighbours::of(&tree, label))));
        assert!(matches!(functions.rows(&snapshot)[101], FunctionsRow::Heading { callers: true }));
        snapshot.functions = Some(Arc::default());
        assert!(functions.rows(&snapshot).is_empty());
    }
}
