//! Processes with their threads.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{Activity, ActivityRow, Change, Difference, LabelId, Names, Snapshot, Steady, Tgid, Tid, Weighed};
use crate::ui::keys::Action;
use crate::ui::position::Position;

/// A process and the activity of its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSums {
    /// The process.
    pub tgid: Tgid,
    /// Its newest name.
    pub name: LabelId,
    /// The sum over its threads.
    pub weights: Activity,
    /// Its threads, each once. Empty if several processes are one row.
    pub threads: Vec<ActivityRow>,
}

/// Sums up the threads of each process, in the order in which the processes were first seen.
pub(in crate::ui) fn processes_of(snapshot: &Snapshot) -> Vec<ProcessSums> {
    let mut at: FxHashMap<Tgid, usize> = FxHashMap::default();
    let mut thread_at: FxHashMap<(Tgid, Tid), usize> = FxHashMap::default();
    let mut sums: Vec<ProcessSums> = Vec::new();
    for row in snapshot.activity.iter() {
        let index = *at.entry(row.thread.tgid).or_insert_with(|| {
            sums.push(ProcessSums {
                tgid: row.thread.tgid,
                name: row.thread.process,
                weights: Activity::default(),
                threads: Vec::new(),
            });
            sums.len() - 1
        });
        let process = &mut sums[index];
        // Samples that wait for their tables are stored late, so the order of the rows does not tell which name is the newest.
        if row.weights.last >= process.weights.last {
            process.name = row.thread.process;
        }
        process.weights.add(&row.weights);
        let thread = *thread_at.entry((row.thread.tgid, row.thread.tid)).or_insert(process.threads.len());
        match process.threads.get_mut(thread) {
            Some(known) => {
                if row.weights.last >= known.weights.last {
                    known.thread = row.thread;
                }
                known.weights.add(&row.weights);
            }
            None => process.threads.push(*row),
        }
    }
    sums
}

/// The column that orders processes.
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
    /// Several exited processes of one name, as one row: a build leaves thousands of them.
    Exited {
        sums: ProcessSums,
        processes: Vec<Tgid>,
        open: bool,
    },
    Process {
        sums: ProcessSums,
        open: bool,
        exited: bool,
        /// Whether it is listed below the row of all exited processes of its name.
        folded: bool,
    },
    Thread {
        row: ActivityRow,
    },
}

/// Identity of a row, independent of its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RowKey {
    Exited(LabelId),
    Process(Tgid),
    Thread(Tgid, Tid),
}

impl ProcessRow {
    fn key(&self) -> RowKey {
        match self {
            ProcessRow::Exited { sums, .. } => RowKey::Exited(sums.name),
            ProcessRow::Process { sums, .. } => RowKey::Process(sums.tgid),
            ProcessRow::Thread { row } => RowKey::Thread(row.thread.tgid, row.thread.tid),
        }
    }
}

/// State of the table of processes.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// The reader's position.
    pub position: Position,
    /// The order.
    pub sort: ProcessSort,
    open: FxHashSet<RowKey>,
    /// The row under the cursor. `None` at the top, where the cursor stays.
    anchor: Option<RowKey>,
    /// Keeps the order stable while samples arrive.
    steady: Steady<RowKey>,
}

impl Processes {
    /// Gives open rows and the row under the cursor other labels.
    pub fn rename_labels(&mut self, rename: impl Fn(LabelId) -> LabelId) {
        let rename = |key| match key {
            RowKey::Exited(label) => RowKey::Exited(rename(label)),
            key => key,
        };
        self.steady.forget();
        self.open = std::mem::take(&mut self.open).into_iter().map(rename).collect();
        self.anchor = self.anchor.map(rename);
    }

    /// Returns the rows on screen, without rows that the view hides.
    pub fn rows(&self, snapshot: &Snapshot, names: &Names) -> Vec<ProcessRow> {
        let mut entries = fold_exited(processes_of(snapshot), snapshot);
        self.order(snapshot, names, &mut entries, |entry| &entry.sums);
        entries.sort_by_key(|entry| self.steady.rank(entry.key()).unwrap_or(usize::MAX));
        let mut rows = Vec::new();
        for Entry { sums, mut folded } in entries {
            if folded.is_empty() {
                self.push(&mut rows, sums, snapshot, false);
                continue;
            }
            let open = self.open.contains(&RowKey::Exited(sums.name));
            self.order(snapshot, names, &mut folded, |process| process);
            let processes = folded.iter().map(|process| process.tgid).collect();
            rows.push(ProcessRow::Exited { sums, processes, open });
            if open {
                folded.into_iter().for_each(|process| self.push(&mut rows, process, snapshot, true));
            }
        }
        rows
    }

    fn order<T>(&self, snapshot: &Snapshot, names: &Names, entries: &mut [T], sums: impl Fn(&T) -> &ProcessSums) {
        use std::cmp::Reverse;
        match (self.sort, snapshot.difference.as_deref()) {
            (ProcessSort::Cpu, Some(difference)) => {
                // Rows that may have changed by chance come last.
                let key = |entry: &T| {
                    let change = change_of(difference, sums(entry));
                    (change.chance, Reverse((change.by.abs() * 1e9) as u64), sums(entry).tgid)
                };
                entries.sort_by_key(key);
            }
            (sort, _) => self.order_by(sort, names, entries, sums),
        }
    }

    fn order_by<T>(&self, sort: ProcessSort, names: &Names, entries: &mut [T], sums: impl Fn(&T) -> &ProcessSums) {
        use std::cmp::Reverse;
        match sort {
            ProcessSort::Cpu => {
                entries.sort_by_key(|entry| (Reverse((sums(entry).weights.recent, sums(entry).weights.shown)), sums(entry).tgid))
            }
            ProcessSort::Samples => entries.sort_by_key(|entry| (Reverse(sums(entry).weights.shown), sums(entry).tgid)),
            ProcessSort::Name => {
                entries.sort_by(|a, b| {
                    let key = |entry| (names.labels.name(sums(entry).name), sums(entry).tgid);
                    key(a).cmp(&key(b))
                });
            }
            ProcessSort::Pid => entries.sort_by_key(|entry| sums(entry).tgid),
        }
    }

    fn push(&self, rows: &mut Vec<ProcessRow>, mut sums: ProcessSums, snapshot: &Snapshot, folded: bool) {
        let open = self.open.contains(&RowKey::Process(sums.tgid));
        let mut threads = if open { sums.threads.clone() } else { Vec::new() };
        threads.retain(|row| row.weights.is_shown());
        threads.sort_by_key(|row| (std::cmp::Reverse((row.weights.recent, row.weights.shown)), row.thread.tid));
        sums.threads.retain(|row| row.weights.shown > 0);
        let exited = has_exited(snapshot, sums.tgid);
        rows.push(ProcessRow::Process { sums, open, exited, folded });
        rows.extend(threads.into_iter().map(|row| ProcessRow::Thread { row }));
    }

    /// Goes to the first row, because other rows are shown or their order has changed.
    pub fn go_to_top(&mut self) {
        (self.position, self.anchor) = (Position::default(), None);
        self.steady.forget();
    }

    /// Processes the current weights. Pictures that do not change have the exact order.
    pub fn settle(&mut self, snapshot: &Snapshot, names: &Names, moves: bool) {
        if !moves || matches!(self.sort, ProcessSort::Name | ProcessSort::Pid) {
            return self.steady.forget();
        }
        let mut entries = fold_exited(processes_of(snapshot), snapshot);
        self.order(snapshot, names, &mut entries, |entry| &entry.sums);
        let weighed = |entry: &Entry| {
            let (recent, shown) = (entry.sums.weights.recent as f64, entry.sums.weights.shown as f64);
            let (weight, variance) = match (self.sort, snapshot.difference.as_deref()) {
                (ProcessSort::Cpu, Some(difference)) => {
                    let change = change_of(difference, &entry.sums);
                    let by = change.by.abs();
                    if change.chance { (by * 1e-3, (by * 1e-3).powi(2)) } else { (by, 0.0) }
                }
                (sort, _) => match sort {
                    // Rows without recent activity are ordered by the weight in the range. Over three seconds, other programs on
                    // the same CPU make as much difference as chance.
                    ProcessSort::Cpu => (recent + shown * 1e-12, recent * 4.0),
                    _ => (shown, shown),
                },
            };
            Weighed { key: entry.key(), weight, variance }
        };
        self.steady.settle(snapshot.now, &entries.iter().map(weighed).collect::<Vec<_>>());
    }

    /// Finds the row under the cursor again.
    pub fn follow_rows(&mut self, snapshot: &Snapshot, names: &Names, height: usize) {
        let rows = self.rows(snapshot, names);
        let place = |key: RowKey| rows.iter().position(|row| row.key() == key);
        // An exited process may have moved into the row of all exited processes of its name.
        let folded = |key: RowKey| match key {
            RowKey::Process(tgid) | RowKey::Thread(tgid, _) => rows
                .iter()
                .position(|row| matches!(row, ProcessRow::Exited { processes, open: false, .. } if processes.contains(&tgid))),
            RowKey::Exited(_) => None,
        };
        let found = self.anchor.and_then(|anchor| place(anchor).or_else(|| folded(anchor)));
        self.position.follow(found, rows.len(), height);
        self.note_anchor(&rows);
    }

    fn note_anchor(&mut self, rows: &[ProcessRow]) {
        self.anchor = rows.get(self.position.at).filter(|_| self.position.at > 0).map(ProcessRow::key);
    }

    /// Puts the cursor on a clicked row.
    pub(crate) fn select(&mut self, at: usize, snapshot: &Snapshot, names: &Names) {
        let rows = self.rows(snapshot, names);
        self.position.at = at.min(rows.len().saturating_sub(1));
        self.note_anchor(&rows);
    }

    /// Returns the process under the cursor, or all processes of a combined row. On a thread's row, it also returns the thread.
    pub fn selected(&self, snapshot: &Snapshot, names: &Names) -> Option<(Vec<Tgid>, Option<Tid>)> {
        match self.rows(snapshot, names).into_iter().nth(self.position.at)? {
            ProcessRow::Exited { processes, .. } => Some((processes, None)),
            ProcessRow::Process { sums, .. } => Some((vec![sums.tgid], None)),
            ProcessRow::Thread { row } => Some((vec![row.thread.tgid], Some(row.thread.tid))),
        }
    }

    /// Moves the cursor; left closes, right opens. `height` is the number of rows on screen.
    pub fn step(&mut self, action: Action, snapshot: &Snapshot, names: &Names, height: usize) {
        let rows = self.rows(snapshot, names);
        let key = rows.get(self.position.at).map(ProcessRow::key);
        match (action, key) {
            (Action::Right, Some(key @ (RowKey::Process(_) | RowKey::Exited(_)))) => {
                self.open.insert(key);
            }
            (Action::Left, Some(key)) => {
                // An open row is closed; otherwise the row that contains it.
                let mut close = match key {
                    RowKey::Thread(tgid, _) => RowKey::Process(tgid),
                    other => other,
                };
                if !self.open.remove(&close) {
                    let outer = rows.iter().take(self.position.at).rposition(|row| matches!(row, ProcessRow::Exited { .. }));
                    if let (RowKey::Process(tgid), Some(ProcessRow::Exited { processes, sums, .. })) =
                        (close, outer.and_then(|outer| rows.get(outer)))
                        && processes.contains(&tgid)
                    {
                        close = RowKey::Exited(sums.name);
                        self.open.remove(&close);
                    }
                }
                self.position.at = rows.iter().position(|row| row.key() == close).unwrap_or(self.position.at);
                self.position.clamp(rows.len(), height);
            }
            _ => self.position.go(action, rows.len(), height),
        }
        self.note_anchor(&rows);
    }

    /// Switches to the next column to sort by.
    pub fn next_sort(&mut self) {
        self.sort = match self.sort {
            ProcessSort::Cpu => ProcessSort::Samples,
            ProcessSort::Samples => ProcessSort::Name,
            ProcessSort::Name => ProcessSort::Pid,
            ProcessSort::Pid => ProcessSort::Cpu,
        };
        self.go_to_top();
    }
}

/// Returns the change of a process against the baseline.
pub(super) fn change_of(difference: &Difference, sums: &ProcessSums) -> Change {
    difference.change(sums.weights.sides(difference.whole()))
}

/// A process, or several exited processes of one name, with their sums.
struct Entry {
    sums: ProcessSums,
    folded: Vec<ProcessSums>,
}

impl Entry {
    fn key(&self) -> RowKey {
        if self.folded.is_empty() { RowKey::Process(self.sums.tgid) } else { RowKey::Exited(self.sums.name) }
    }
}

fn has_exited(snapshot: &Snapshot, tgid: Tgid) -> bool {
    snapshot.processes.get(&tgid).is_some_and(|process| process.exited)
}

/// Combines exited processes of one name if there is more than one. Hidden processes are left out.
fn fold_exited(processes: Vec<ProcessSums>, snapshot: &Snapshot) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut first_of: FxHashMap<LabelId, usize> = FxHashMap::default();
    for process in processes.into_iter().filter(|process| process.weights.is_shown()) {
        let at = match has_exited(snapshot, process.tgid) {
            true => *first_of.entry(process.name).or_insert(entries.len()),
            false => entries.len(),
        };
        match entries.get_mut(at) {
            None => entries.push(Entry { sums: process, folded: Vec::new() }),
            Some(entry) => {
                if entry.folded.is_empty() {
                    entry.folded.push(entry.sums.clone());
                    entry.sums.threads.clear();
                }
                entry.sums.tgid = entry.sums.tgid.min(process.tgid);
                entry.sums.weights.add(&process.weights);
                entry.folded.push(process);
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FrameKind, ProcessFacts, Thread, Timestamp};
    use std::sync::Arc;

    /// Creates processes by number, name, weight, and whether they have exited.
    fn world(processes: &[(u32, &str, u64, bool)]) -> (Names, Snapshot) {
        let names = Names::default();
        let rows = processes.iter().map(|(tgid, name, weight, _)| {
            let name = names.labels.intern(name, "", FrameKind::Process);
            let thread = Thread { tgid: Tgid(*tgid), tid: Tid(*tgid), process: name, name, ..Thread::default() };
            ActivityRow {
                thread,
                weights: Activity { all: weight + 1, shown: *weight, complete: 1, user: 2, ..Activity::default() },
            }
        });
        let snapshot = Snapshot {
            activity: rows.collect(),
            processes: Arc::new(
                processes
                    .iter()
                    .map(|(tgid, .., exited)| (Tgid(*tgid), ProcessFacts { exited: *exited, ..ProcessFacts::default() }))
                    .collect(),
            ),
            ..Snapshot::default()
        };
        (names, snapshot)
    }

    fn lines(table: &Processes, names: &Names, snapshot: &Snapshot) -> Vec<String> {
        let line = |row: ProcessRow| match row {
            ProcessRow::Exited { sums, processes, .. } => {
                format!(
                    "{} x{} {} {}/{}",
                    names.labels.name(sums.name),
                    processes.len(),
                    sums.weights.shown,
                    sums.weights.complete,
                    sums.weights.user
                )
            }
            ProcessRow::Process { sums, exited, .. } => {
                format!(
                    "{} {} {}{}",
                    sums.tgid,
                    names.labels.name(sums.name),
                    sums.weights.shown,
                    if exited { " exited" } else { "" }
                )
            }
            ProcessRow::Thread { row } => format!("thread {}", row.thread.tid),
        };
        table.rows(snapshot, names).into_iter().map(line).collect()
    }

    #[test]
    fn a_process_has_the_name_of_its_newest_sample() {
        let (names, mut snapshot) = world(&[(1, "make", 9, false), (1, "sh", 1, false)]);
        let mut rows = snapshot.activity.to_vec();
        (rows[0].weights.last, rows[1].weights.last) = (Timestamp(2), Timestamp(1));
        snapshot.activity = rows.into();
        let mut table = Processes::default();
        table.open.insert(RowKey::Process(Tgid(1)));
        assert_eq!(lines(&table, &names, &snapshot), ["1 make 10", "thread 1"]);
        assert_eq!(names.labels.name(processes_of(&snapshot)[0].threads[0].thread.name), "make");
    }

    #[test]
    fn exited_processes_of_one_name_are_one_row_that_opens() {
        let (names, snapshot) = world(&[
            (1, "make", 9, false),
            (5, "cc1", 3, true),
            (2, "cc1", 4, true),
            (3, "cc1", 20, false),
            (4, "sh", 2, true),
            (6, "cc1", 5, true),
            (7, "cc1", 0, true),
        ]);
        let mut table = Processes::default();
        let folded = ["3 cc1 20", "cc1 x3 12 3/6", "1 make 9", "4 sh 2 exited"];
        assert_eq!(lines(&table, &names, &snapshot), folded, "one that lives, and one alone of its name, stay by themselves");
        table.position.at = 1;
        assert_eq!(table.selected(&snapshot, &names), Some((vec![Tgid(6), Tgid(2), Tgid(5)], None)));
        table.step(Action::Right, &snapshot, &names, 20);
        let open =
            ["3 cc1 20", "cc1 x3 12 3/6", "6 cc1 5 exited", "2 cc1 4 exited", "5 cc1 3 exited", "1 make 9", "4 sh 2 exited"];
        assert_eq!(lines(&table, &names, &snapshot), open);
        table.step(Action::Down, &snapshot, &names, 20);
        table.step(Action::Right, &snapshot, &names, 20);
        assert_eq!(lines(&table, &names, &snapshot)[2..4], ["6 cc1 5 exited", "thread 6"]);
        // Left closes the process, then the combined row.
        table.step(Action::Left, &snapshot, &names, 20);
        assert_eq!((lines(&table, &names, &snapshot), table.position.at), (open.map(str::to_owned).to_vec(), 2));
        table.step(Action::Left, &snapshot, &names, 20);
        assert_eq!((lines(&table, &names, &snapshot), table.position.at), (folded.map(str::to_owned).to_vec(), 1));
    }

    #[test]
    fn the_cursor_follows_a_process_that_exits_into_the_row_of_its_name() {
        let (names, before) = world(&[(1, "make", 9, false), (2, "cc1", 4, true), (3, "cc1", 2, false)]);
        let mut table = Processes::default();
        table.select(2, &before, &names);
        let (_, after) = world(&[(1, "make", 3, false), (2, "cc1", 4, true), (3, "cc1", 2, true)]);
        table.follow_rows(&after, &names, 20);
        assert_eq!((table.position.at, lines(&table, &names, &after)[0].as_str()), (0, "cc1 x2 6 2/4"));
    }
}
