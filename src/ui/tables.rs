//! The two tables: functions with their callers and callees, and processes with their threads.
//!
//! Both keep the row under the cursor by what it is, not by its number, so that it stays under the cursor while rows move.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{ActivityRow, CallTree, FrameKind, LabelId, Names, NodeId, SearchResult, Snapshot, Tgid, Tid};

use super::keys::Action;

/// The rows of the table of functions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum FunctionsRow {
    Function {
        label: LabelId,
        own: u64,
        total: u64,
        open: bool,
    },
    /// Above the callers (`true`) or callees of the open function.
    Heading {
        callers: bool,
    },
    /// A caller or callee, with the labels that lead to it from the open function.
    Node {
        callers: bool,
        path: Vec<LabelId>,
        weight: u64,
        own: u64,
        children: bool,
        open: bool,
    },
}

/// By which column functions are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum FunctionSort {
    #[default]
    Own,
    Total,
    Name,
}

/// The table of functions' state.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    /// The row under the cursor.
    pub at: usize,
    /// First row on screen.
    pub scroll: usize,
    /// The order.
    pub sort: FunctionSort,
    /// The function whose callers and callees are shown.
    pub open: Option<LabelId>,
    expanded: FxHashSet<(bool, Vec<LabelId>)>,
    /// What is under the cursor, to find it again.
    anchor: Option<LabelId>,
}

/// Most callers or callees listed below one row; what is less is in the flame graph.
const MAX_BRANCHES: usize = 12;

impl Functions {
    /// The rows as they are on screen.
    pub fn rows(&self, names: &Names, snapshot: &Snapshot) -> Vec<FunctionsRow> {
        let Some(table) = &snapshot.functions else { return Vec::new() };
        // Processes and threads are levels of the tree, not functions; they have a view of their own.
        let is_function = |label| names.labels.get(label).is_some_and(|label| label.kind != FrameKind::Process);
        let mut functions: Vec<_> = table.rows.iter().filter(|row| is_function(row.label)).collect();
        match self.sort {
            FunctionSort::Own => {}
            FunctionSort::Total => functions.sort_by_key(|row| (std::cmp::Reverse(row.total), row.label)),
            FunctionSort::Name => functions.sort_by_key(|row| names.labels.name(row.label)),
        }
        let mut rows = Vec::with_capacity(functions.len());
        for row in functions {
            let open = self.open == Some(row.label);
            rows.push(FunctionsRow::Function { label: row.label, own: row.own, total: row.total, open });
            if let Some((_, neighbours)) = snapshot.neighbours.as_ref().filter(|(label, _)| open && *label == row.label) {
                for (callers, tree) in [(true, &neighbours.callers), (false, &neighbours.callees)] {
                    rows.push(FunctionsRow::Heading { callers });
                    self.push_branches(&mut rows, tree, callers, CallTree::ROOT, &mut Vec::new());
                }
            }
        }
        rows
    }

    fn push_branches(&self, rows: &mut Vec<FunctionsRow>, tree: &CallTree, callers: bool, node: NodeId, path: &mut Vec<LabelId>) {
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
                own: found.own,
                children: tree.children(child).next().is_some(),
                open,
            });
            if open {
                self.push_branches(rows, tree, callers, child, path);
            }
            path.pop();
        }
    }

    /// Shows callers and callees of a function, with the cursor on it.
    pub fn open_function(&mut self, label: LabelId) {
        self.open = Some(label);
        self.anchor = Some(label);
        self.expanded.clear();
    }

    /// Finds the anchored row again.
    pub fn refresh(&mut self, names: &Names, snapshot: &Snapshot) {
        if snapshot.functions.is_none() {
            return;
        }
        let rows = self.rows(names, snapshot);
        if let Some(anchor) = self.anchor.map(|label| names.labels.current(label)) {
            self.open = self.open.map(|label| names.labels.current(label));
            let found = rows.iter().position(|row| matches!(row, FunctionsRow::Function { label, .. } if *label == anchor));
            let under = rows.get(self.at);
            let on_branch = matches!(under, Some(FunctionsRow::Node { .. } | FunctionsRow::Heading { .. }));
            if let Some(found) = found.filter(|_| !on_branch) {
                let line = self.at.saturating_sub(self.scroll);
                self.at = found;
                self.scroll = found.saturating_sub(line);
            }
        }
        self.at = self.at.min(rows.len().saturating_sub(1));
        self.scroll = self.scroll.min(self.at);
    }

    /// Puts the cursor on a row that was clicked.
    pub(crate) fn select(&mut self, at: usize, names: &Names, snapshot: &Snapshot) {
        let rows = self.rows(names, snapshot);
        self.at = at.min(rows.len().saturating_sub(1));
        if let Some(FunctionsRow::Function { label, .. }) = rows.get(self.at) {
            self.anchor = Some(*label);
        }
    }

    /// The function or branch under the cursor.
    pub fn selected_label(&self, names: &Names, snapshot: &Snapshot) -> Option<LabelId> {
        match self.rows(names, snapshot).get(self.at)? {
            FunctionsRow::Function { label, .. } => Some(*label),
            FunctionsRow::Node { path, .. } => path.last().copied(),
            FunctionsRow::Heading { .. } => None,
        }
    }

    /// Opens or closes what is under the cursor.
    pub fn enter(&mut self, names: &Names, snapshot: &Snapshot) {
        match self.rows(names, snapshot).get(self.at) {
            Some(FunctionsRow::Function { label, open, .. }) => {
                self.anchor = Some(*label);
                self.expanded.clear();
                self.open = if *open { None } else { Some(*label) };
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

    /// Moves the cursor; left closes, right opens.
    pub fn go(&mut self, action: Action, names: &Names, snapshot: &Snapshot, height: usize) {
        let rows = self.rows(names, snapshot);
        let wants_open = match rows.get(self.at) {
            Some(FunctionsRow::Function { open, .. }) => Some(!open),
            Some(FunctionsRow::Node { open, children, .. }) if *children || *open => Some(!open),
            _ => None,
        };
        match (action, wants_open) {
            (Action::Right, Some(true)) | (Action::Left, Some(false)) => self.enter(names, snapshot),
            (Action::Left, _) => {
                // Out of a branch, back to its function.
                let up = rows.iter().take(self.at).rposition(|row| matches!(row, FunctionsRow::Function { .. }));
                self.at = up.unwrap_or(self.at);
            }
            _ => move_cursor(action, &mut self.at, &mut self.scroll, rows.len(), height.saturating_sub(1)),
        }
        if let Some(FunctionsRow::Function { label, .. }) = rows.get(self.at) {
            self.anchor = Some(*label);
        }
    }

    /// To the next function that the search found.
    pub fn next_match(&mut self, names: &Names, snapshot: &Snapshot, found: &SearchResult, forward: bool) -> bool {
        let rows = self.rows(names, snapshot);
        let matches: Vec<usize> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| matches!(row, FunctionsRow::Function { label, .. } if found.matches(*label)))
            .map(|(at, _)| at)
            .collect();
        let next = if forward {
            matches.iter().find(|at| **at > self.at).or(matches.first())
        } else {
            matches.iter().rev().find(|at| **at < self.at).or(matches.last())
        };
        let Some(&at) = next else { return false };
        self.at = at;
        self.scroll = at.saturating_sub(3);
        if let Some(FunctionsRow::Function { label, .. }) = rows.get(at) {
            self.anchor = Some(*label);
        }
        true
    }

    /// The next column to sort by.
    pub fn next_sort(&mut self) {
        self.sort = match self.sort {
            FunctionSort::Own => FunctionSort::Total,
            FunctionSort::Total => FunctionSort::Name,
            FunctionSort::Name => FunctionSort::Own,
        };
    }
}

/// Moves a cursor in a list and scrolls after it.
fn move_cursor(action: Action, at: &mut usize, scroll: &mut usize, rows: usize, height: usize) {
    let last = rows.saturating_sub(1);
    *at = match action {
        Action::Up => at.saturating_sub(1),
        Action::Down => *at + 1,
        Action::PageUp => at.saturating_sub(height.max(1)),
        Action::PageDown => *at + height.max(1),
        Action::Top => 0,
        Action::Bottom => last,
        _ => *at,
    }
    .min(last);
    if *at < *scroll {
        *scroll = *at;
    } else if height > 0 && *at >= *scroll + height {
        *scroll = *at + 1 - height;
    }
}

/// A process and what its threads did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSums {
    /// The process.
    pub tgid: Tgid,
    /// Its newest name.
    pub name: LabelId,
    /// See [`ActivityRow`].
    pub all: u64,
    /// See [`ActivityRow`].
    pub shown: u64,
    /// See [`ActivityRow`].
    pub complete: u64,
    /// See [`ActivityRow`].
    pub user: u64,
    /// See [`ActivityRow`].
    pub recent: u64,
    /// Its threads, each once.
    pub threads: Vec<ActivityRow>,
}

/// Sums the threads of each process up, in the order the processes were first seen.
pub(super) fn processes_of(snapshot: &Snapshot) -> Vec<ProcessSums> {
    let mut at: FxHashMap<Tgid, usize> = FxHashMap::default();
    let mut thread_at: FxHashMap<(Tgid, Tid), usize> = FxHashMap::default();
    let mut sums: Vec<ProcessSums> = Vec::new();
    for row in snapshot.activity.iter() {
        let index = *at.entry(row.thread.tgid).or_insert_with(|| {
            sums.push(ProcessSums {
                tgid: row.thread.tgid,
                name: row.thread.process,
                all: 0,
                shown: 0,
                complete: 0,
                user: 0,
                recent: 0,
                threads: Vec::new(),
            });
            sums.len() - 1
        });
        let process = &mut sums[index];
        process.name = row.thread.process;
        process.all += row.all;
        process.shown += row.shown;
        process.complete += row.complete;
        process.user += row.user;
        process.recent += row.recent;
        let thread = *thread_at.entry((row.thread.tgid, row.thread.tid)).or_insert(process.threads.len());
        match process.threads.get_mut(thread) {
            Some(known) => {
                *known = ActivityRow {
                    thread: row.thread,
                    all: known.all + row.all,
                    shown: known.shown + row.shown,
                    complete: known.complete + row.complete,
                    user: known.user + row.user,
                    recent: known.recent + row.recent,
                }
            }
            None => process.threads.push(*row),
        }
    }
    sums
}

/// By which column processes are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum ProcessSort {
    #[default]
    Cpu,
    Samples,
    Name,
    Pid,
}

/// The rows of the table of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProcessRow {
    Process { sums: ProcessSums, open: bool },
    Thread { row: ActivityRow },
}

impl ProcessRow {
    fn key(&self) -> (Tgid, Option<Tid>) {
        match self {
            ProcessRow::Process { sums, .. } => (sums.tgid, None),
            ProcessRow::Thread { row } => (row.thread.tgid, Some(row.thread.tid)),
        }
    }
}

/// The table of processes' state.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// The row under the cursor.
    pub at: usize,
    /// First row on screen.
    pub scroll: usize,
    /// The order.
    pub sort: ProcessSort,
    open: FxHashSet<Tgid>,
    anchor: Option<(Tgid, Option<Tid>)>,
}

impl Processes {
    /// The rows as they are on screen: only what the view shows.
    pub fn rows(&self, snapshot: &Snapshot, names: &Names) -> Vec<ProcessRow> {
        let mut processes = processes_of(snapshot);
        processes.retain(|process| process.shown > 0);
        match self.sort {
            ProcessSort::Cpu => {
                processes.sort_by_key(|process| (std::cmp::Reverse((process.recent, process.shown)), process.tgid));
            }
            ProcessSort::Samples => processes.sort_by_key(|process| (std::cmp::Reverse(process.shown), process.tgid)),
            ProcessSort::Name => processes.sort_by_key(|process| (names.labels.name(process.name), process.tgid)),
            ProcessSort::Pid => processes.sort_by_key(|process| process.tgid),
        }
        let mut rows = Vec::new();
        for mut sums in processes {
            let open = self.open.contains(&sums.tgid);
            let mut threads = if open { sums.threads.clone() } else { Vec::new() };
            threads.retain(|row| row.shown > 0);
            threads.sort_by_key(|row| (std::cmp::Reverse((row.recent, row.shown)), row.thread.tid));
            sums.threads.retain(|row| row.shown > 0);
            rows.push(ProcessRow::Process { sums, open });
            rows.extend(threads.into_iter().map(|row| ProcessRow::Thread { row }));
        }
        rows
    }

    /// Finds the row under the cursor again.
    pub fn refresh(&mut self, snapshot: &Snapshot, names: &Names) {
        let Some(anchor) = self.anchor else { return };
        let rows = self.rows(snapshot, names);
        if let Some(found) = rows.iter().position(|row| row.key() == anchor) {
            let line = self.at.saturating_sub(self.scroll);
            self.at = found;
            self.scroll = found.saturating_sub(line);
        }
        self.at = self.at.min(rows.len().saturating_sub(1));
        self.scroll = self.scroll.min(self.at);
    }

    /// Puts the cursor on a row that was clicked.
    pub(crate) fn select(&mut self, at: usize, snapshot: &Snapshot, names: &Names) {
        let rows = self.rows(snapshot, names);
        self.at = at.min(rows.len().saturating_sub(1));
        self.anchor = rows.get(self.at).map(ProcessRow::key);
    }

    /// The process and, on a thread's row, the thread under the cursor.
    pub fn selected(&self, snapshot: &Snapshot, names: &Names) -> Option<(Tgid, Option<Tid>)> {
        self.rows(snapshot, names).get(self.at).map(ProcessRow::key)
    }

    /// Moves the cursor; left closes, right opens.
    pub fn go(&mut self, action: Action, snapshot: &Snapshot, names: &Names, height: usize) {
        let rows = self.rows(snapshot, names);
        match (action, rows.get(self.at).map(ProcessRow::key)) {
            (Action::Right, Some((tgid, None))) => {
                self.open.insert(tgid);
            }
            (Action::Left, Some((tgid, _))) => {
                self.open.remove(&tgid);
                self.at = rows.iter().position(|row| row.key() == (tgid, None)).unwrap_or(self.at);
            }
            _ => move_cursor(action, &mut self.at, &mut self.scroll, rows.len(), height.saturating_sub(1)),
        }
        self.anchor = rows.get(self.at).map(ProcessRow::key);
    }

    /// The next column to sort by.
    pub fn next_sort(&mut self) {
        self.sort = match self.sort {
            ProcessSort::Cpu => ProcessSort::Samples,
            ProcessSort::Samples => ProcessSort::Name,
            ProcessSort::Name => ProcessSort::Pid,
            ProcessSort::Pid => ProcessSort::Cpu,
        };
    }
}
