//! Writes samples and their tables as chunks.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::chunk::{Kind, write_chunk, write_head};
use super::columns::{Columns, Run, Sealed};
use super::kinds::{number_of_frame, number_of_object, number_of_unit};
use crate::formats::FormatError;
use crate::formats::about::About;
use crate::formats::sink::{Cursor, NONE, Numbers, Sink};
use crate::profile::{
    EventSource, EventStatus, Frame, FrameId, LabelId, Names, ObjectId, Process, Processes, Profile, Sample, StackId, Tgid,
    ThreadIndex, Timestamp, Unit,
};

/// A new segment begins when texts and processes take this many bytes. Processes choose both, and without a bound they would be kept for as
/// long as the recording lasts. All other tables are as large as those of the store.
const MOST_KEPT: usize = 16 << 20;

/// The tables of a segment: what is in the file, and rows that are to be written.
#[derive(Default)]
struct Tables {
    texts: FxHashMap<Arc<str>, u32>,
    /// Bytes of `texts`.
    text_bytes: usize,
    objects: Numbers,
    labels: Numbers,
    frames: Numbers,
    threads: Numbers,
    nodes: Numbers,
    /// Each frame in the file, and the number of its naming that was written last.
    named: Vec<(FrameId, u32)>,
    /// Changes of names as of the last look.
    generation: u64,
    processes: FxHashMap<Tgid, Option<Process>>,
    events: Vec<(EventStatus, Unit)>,
    facts: FxHashMap<&'static str, String>,
    about: About,
    rows: Rows,
    /// Times of the first and the last sample that is to be written.
    times: Option<(u64, u64)>,
    runs: [Run; 4],
}

/// Rows that are to be written.
#[derive(Default)]
struct Rows {
    texts: Columns,
    objects: Columns,
    labels: Columns,
    frames: Columns,
    names: Columns,
    threads: Columns,
    nodes: Columns,
    samples: Columns,
    processes: Columns,
    cgroups: Columns,
    users: Columns,
    sources: Columns,
    facts: Columns,
    notes: Columns,
}

impl Rows {
    /// Returns all tables in the order in which they are written: rows refer to rows before them.
    fn all(&mut self) -> [(Kind, &mut Columns); 14] {
        [
            (Kind::Text, &mut self.texts),
            (Kind::Object, &mut self.objects),
            (Kind::Label, &mut self.labels),
            (Kind::Frame, &mut self.frames),
            (Kind::Name, &mut self.names),
            (Kind::Thread, &mut self.threads),
            (Kind::Node, &mut self.nodes),
            (Kind::Process, &mut self.processes),
            (Kind::Cgroup, &mut self.cgroups),
            (Kind::User, &mut self.users),
            (Kind::Source, &mut self.sources),
            (Kind::Fact, &mut self.facts),
            (Kind::Note, &mut self.notes),
            (Kind::Sample, &mut self.samples),
        ]
    }
}

/// Writes a recording: see the module.
pub struct Recorder {
    names: Option<Arc<Names>>,
    cursor: Cursor,
    /// The part of the run whose samples are kept.
    range: Option<(Timestamp, Timestamp)>,
    tables: Tables,
    out: Vec<u8>,
    /// Nodes of a stack that are to be written, innermost first.
    path: Vec<(StackId, FrameId)>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}

impl Recorder {
    /// Begins a file.
    pub fn new() -> Recorder {
        let mut out = Vec::new();
        write_head(&mut out);
        Recorder { names: None, cursor: Cursor::default(), range: None, tables: Tables::default(), out, path: Vec::new() }
    }

    /// Returns the bytes that are kept of texts and processes.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.tables.kept()
    }

    /// Takes all samples, as [`take_some`](Sink::take_some) does.
    pub fn take(&mut self, profile: &Profile, names: &Arc<Names>) -> bool {
        self.take_some(profile, names, &mut |_| true)
    }

    fn begin_segment(&mut self, names: &Arc<Names>) {
        self.write_rows();
        self.names = Some(Arc::clone(names));
        self.tables = Tables::default();
        write_chunk(&mut self.out, Kind::Segment, 0, (0, 0), &[]);
        // Node 0 is the empty stack.
        self.tables.nodes.add(0);
    }

    fn write_rows(&mut self) {
        self.tables.seal_samples();
        for (kind, rows) in self.tables.rows.all() {
            for Sealed { rows, times, payload } in rows.take() {
                write_chunk(&mut self.out, kind, rows, times, &payload);
            }
        }
    }

    fn sample(&mut self, profile: &Profile, names: &Names, sample: &Sample) {
        let thread = self.tables.thread(profile, names, sample.thread);
        let stack = self.stack(profile, names, sample.stack);
        let tables = &mut self.tables;
        let rows = &mut tables.rows.samples;
        let (first, last) = tables.times.unwrap_or((sample.time.0, sample.time.0));
        rows.number(0, sample.time.0.saturating_sub(last));
        tables.times = Some((first, sample.time.0.max(last)));
        rows.number(1, u64::from(thread));
        rows.number(2, u64::from(sample.cpu.0));
        rows.number(3, u64::from(stack));
        let same = [sample.weight, u64::from(sample.observations), u64::from(sample.source.0), sample.user_end as u64];
        for ((tag, run), value) in (4..).zip(&mut tables.runs).zip(same) {
            run.add(rows, tag, value);
        }
        rows.end_row();
    }

    /// Returns the number of a stack's node in the file.
    fn stack(&mut self, profile: &Profile, names: &Names, stack: StackId) -> u32 {
        let mut at = stack;
        self.path.clear();
        let mut parent = loop {
            if let Some(known) = self.tables.nodes.get(at.0 as usize) {
                break known;
            }
            let Some((caller, frame)) = profile.stacks.split(at) else { break 0 };
            self.path.push((at, frame));
            at = caller;
        };
        while let Some((node, frame)) = self.path.pop() {
            let frame = self.tables.frame(names, frame);
            let number = self.tables.nodes.add(node.0 as usize);
            let rows = &mut self.tables.rows.nodes;
            rows.number(0, u64::from(number - parent));
            rows.number(1, u64::from(frame));
            rows.end_row();
            parent = number;
        }
        parent
    }
}

impl Sink for Recorder {
    fn within(&mut self, from: Timestamp, to: Timestamp) {
        self.range = Some((from, to));
    }

    fn take_some(&mut self, profile: &Profile, names: &Arc<Names>, kept: &mut dyn FnMut(&Sample) -> bool) -> bool {
        if !self.names.as_ref().is_some_and(|own| Arc::ptr_eq(own, names)) || self.tables.kept() > MOST_KEPT {
            self.begin_segment(names);
        }
        let mut cursor = std::mem::take(&mut self.cursor);
        if cursor.has_new_ids(profile) {
            self.tables.nodes.forget();
            self.tables.threads.forget();
        }
        let more = cursor.advance(profile, kept, |sample| self.sample(profile, names, sample));
        self.tables.seal_samples();
        self.tables.names(names);
        self.tables.losses(profile, cursor.missed, self.range, names);
        self.cursor = cursor;
        more
    }

    fn tell(&mut self, about: &About, processes: &Processes) {
        self.tables.about(about);
        self.tables.processes(processes);
    }

    /// A file without this end was cut.
    fn end(&mut self) -> Result<(), FormatError> {
        self.write_rows();
        write_chunk(&mut self.out, Kind::End, 0, (0, 0), &[]);
        Ok(())
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.write_rows();
        std::mem::take(&mut self.out)
    }

    fn samples(&self) -> u64 {
        self.cursor.samples
    }

    fn missed(&self) -> u64 {
        self.cursor.missed
    }
}

impl Tables {
    /// Makes a payload of the samples so far.
    fn seal_samples(&mut self) {
        for (tag, run) in (4..).zip(&mut self.runs) {
            run.end(&mut self.rows.samples, tag);
        }
        if let Some(times) = self.times.take() {
            self.rows.samples.seal(times);
        }
    }

    /// Returns the bytes that are kept of texts and processes.
    fn kept(&self) -> usize {
        self.text_bytes + self.processes.len() * size_of::<(Tgid, Option<Process>)>()
    }

    fn text(&mut self, text: &str) -> u64 {
        if let Some(known) = self.texts.get(text) {
            return u64::from(*known);
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(NONE);
        self.texts.insert(text.into(), number);
        self.text_bytes += text.len() + size_of::<(Arc<str>, u32)>();
        let rows = &mut self.rows.texts;
        rows.text(0, text);
        rows.end_row();
        u64::from(number)
    }

    fn object(&mut self, names: &Names, id: ObjectId) -> u64 {
        if let Some(known) = self.objects.get(id.0 as usize) {
            return u64::from(known);
        }
        let object = names.objects.get(id).cloned().unwrap_or_default();
        let path = self.text(&object.path);
        let build_id = object.build_id.map_or(0, |id| self.text(&id.to_string()) + 1);
        let (file, first, second) = object.file.map_or((0, 0, 0), |(first, second)| (1, first, second));
        let kind = number_of_object(object.kind);
        let (files, user) = (u64::from(object.files.0), u64::from(object.user.0));
        self.rows.objects.row(&[kind, path, build_id, file, first, second, files, user]);
        u64::from(self.objects.add(id.0 as usize))
    }

    fn label(&mut self, names: &Names, id: LabelId) -> u64 {
        let index = names.labels.index(id).unwrap_or(0);
        if let Some(known) = self.labels.get(index) {
            return u64::from(known);
        }
        let (name, object, kind) =
            names.labels.get(id).map_or(("?", "", 0), |label| (&*label.name, &*label.object, number_of_frame(label.kind)));
        let (name, object) = (self.text(name), self.text(object));
        self.rows.labels.row(&[name, object, kind]);
        u64::from(self.labels.add(index))
    }

    fn frame(&mut self, names: &Names, id: FrameId) -> u32 {
        let index = names.frames.index(id).unwrap_or(0);
        if let Some(known) = self.frames.get(index) {
            return known;
        }
        let frame = names.frames.get(id).unwrap_or(Frame::Unmapped);
        let object = self.object(names, frame.object());
        let (space, address, line) = match frame {
            Frame::Named(label) => (0, self.label(names, label), 0),
            Frame::Kernel { address, .. } => (1, address.0, 0),
            Frame::File { offset, .. } => (2, offset.0, 0),
            Frame::Interpreter { offset, .. } => (3, offset.0, 0),
            Frame::Process { address, .. } => (4, address.0, 0),
            Frame::Script { label, line, .. } => (5, self.label(names, label), u64::from(line)),
            Frame::Unmapped => (6, 0, 0),
            Frame::AnyOf(_) => (7, 0, 0),
        };
        self.rows.frames.row(&[space, object, address, line, u64::from(frame.is_return())]);
        let number = self.frames.add(index);
        self.named.push((id, NONE));
        // The new frame may have its name already.
        self.generation = u64::MAX;
        number
    }

    fn thread(&mut self, profile: &Profile, names: &Names, index: ThreadIndex) -> u32 {
        if let Some(known) = self.threads.get(index.0 as usize) {
            return known;
        }
        let thread = profile.threads.get(index).unwrap_or_default();
        let (process, name) = (self.label(names, thread.process), self.label(names, thread.name));
        self.rows.threads.row(&[u64::from(thread.tgid.0), u64::from(thread.tid.0), process, name, thread.cgroup.0]);
        self.processes.entry(thread.tgid).or_default();
        self.threads.add(index.0 as usize)
    }

    /// Writes the names of frames that are new or have changed. Provisional names are made from the frame when the file is read.
    fn names(&mut self, names: &Names) {
        let generation = names.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let mut named = std::mem::take(&mut self.named);
        for (number, (frame, written)) in (0u64..).zip(&mut named) {
            let Some(naming) = names.naming(*frame).filter(|naming| naming != written) else { continue };
            let mut labels = Vec::new();
            let mut is_provisional = false;
            names.labels_of(*frame, |label| {
                is_provisional |= names.labels.get(label).is_some_and(|label| label.provisional);
                labels.push(label);
            });
            if is_provisional {
                continue;
            }
            *written = naming;
            let labels: Vec<u64> = labels.into_iter().map(|label| self.label(names, label)).collect();
            let rows = &mut self.rows.names;
            rows.number(0, number);
            rows.number(1, labels.len() as u64);
            labels.into_iter().for_each(|label| rows.number(2, label));
            rows.end_row();
        }
        self.named = named;
    }

    fn processes(&mut self, processes: &Processes) {
        let mut known = std::mem::take(&mut self.processes);
        for (tgid, written) in &mut known {
            let Some(now) = processes.get(tgid).map(|process| process.clone()) else { continue };
            if written.as_ref() == Some(&now) {
                continue;
            }
            let Process { command_line, parent, user, threads, exited } = &now;
            let command = self.text(command_line);
            let (user, exited) = (user.map_or(0, |user| u64::from(user.0) + 1), exited.map_or(0, |at| at.0.saturating_add(1)));
            self.rows.processes.row(&[u64::from(tgid.0), command, u64::from(parent.0), user, u64::from(*threads), exited]);
            *written = Some(now);
        }
        self.processes = known;
    }

    fn fact(&mut self, name: &'static str, value: String) {
        if self.facts.get(name).is_some_and(|known| *known == value) {
            return;
        }
        let row = [self.text(name), self.text(&value)];
        self.rows.facts.row(&row);
        self.facts.insert(name, value);
    }

    /// Writes what was lost, the clock, and the counts of sources.
    fn losses(&mut self, profile: &Profile, missed: u64, range: Option<(Timestamp, Timestamp)>, names: &Names) {
        let losses = &profile.losses;
        let counts = [
            ("lost", losses.ring_full),
            ("lost events", losses.events_lost),
            ("malformed", losses.malformed),
            ("dropped", missed),
            ("coarse", names.refused()),
        ];
        for (name, count) in counts {
            self.fact(name, count.to_string());
        }
        if let Some(clock) = profile.clock() {
            self.fact("period", clock.period.to_string());
            self.fact("sampled cpus", clock.cpus.to_string());
            let (from, to) = range.unwrap_or((Timestamp(0), Timestamp(u64::MAX)));
            let until = clock.until.or(Some(to).filter(|to| to.0 < u64::MAX)).map(|until| until.min(to));
            self.fact("since", clock.since.max(from).0.to_string());
            self.fact("until", until.map_or_else(String::new, |until| until.0.to_string()));
        }
        let told = profile.events.iter().cloned();
        let untold = [EventSource::CLOCK, EventSource::FILE].map(|source| EventStatus { source, ..EventStatus::default() });
        let is_unusual = |row: &EventStatus| profile.unit(row.source) != Unit::Samples;
        let rows = told.chain(untold.into_iter().filter(is_unusual)).map(|row| (profile.unit(row.source), row));
        let rows: Vec<(EventStatus, Unit)> = rows.map(|(unit, row)| (row, unit)).collect();
        if rows == self.events {
            return;
        }
        for (row, unit) in &rows {
            let EventStatus { source, name, how, places, events, stacks, missed, unsure, cut, busy, own, cost, waited, unknown } =
                row;
            let (name, how) = (self.text(name), self.text(how));
            let places = *places as u64;
            let counts = [*events, *stacks, *missed, *unsure, *cut, *busy, *own, *cost];
            let mut values = vec![u64::from(source.0), name, how, places];
            values.extend(counts);
            values.push(number_of_unit(*unit));
            // 0 is none.
            values.extend([waited.map_or(0, |waited| waited.saturating_add(1)), *unknown]);
            self.rows.sources.row(&values);
        }
        self.events = rows;
    }

    fn about(&mut self, about: &About) {
        for (name, value) in about.facts() {
            self.fact(name, value);
        }
        let before = std::mem::replace(&mut self.about, about.clone());
        let is_new = |id, path| before.cgroups.get(id) != Some(path) || before.containers.get(id) != about.containers.get(id);
        for (cgroup, path) in about.cgroups.iter().filter(|(id, path)| is_new(*id, *path)) {
            let path = self.text(path);
            // 0 is none.
            let container = about.containers.get(cgroup).map_or(0, |name| self.text(name) + 1);
            self.rows.cgroups.row(&[cgroup.0, path, container]);
        }
        for (user, name) in about.users.iter().filter(|(id, name)| before.users.get(id) != Some(name)) {
            let name = self.text(name);
            self.rows.users.row(&[u64::from(user.0), name, 0]);
        }
        let notes = |of: &About| (of.problems.clone(), of.notes.clone(), of.unread.clone());
        if notes(&before) == notes(about) {
            return;
        }
        for problem in &about.problems {
            let (path, reason) = (self.text(&problem.path), self.text(&problem.reason));
            let remedy = self.text(&problem.remedy);
            self.rows.notes.row(&[0, path, reason, problem.unnamed, remedy]);
        }
        for (kind, lines) in [(1, &about.notes), (2, &about.unread)] {
            for line in lines {
                let line = self.text(line);
                self.rows.notes.row(&[kind, line, 0, 0, 0]);
            }
        }
        if about.problems.is_empty() && about.notes.is_empty() && about.unread.is_empty() {
            // A row of an unknown kind stands for none.
            self.rows.notes.row(&[3, 0, 0, 0, 0]);
        }
    }
}
