//! Code that several readers share: it makes frames, threads, and a source for each unit.

use rustc_hash::FxHashMap;

use crate::formats::FormatError;
use crate::formats::about::About;
use crate::formats::reading::{DEEPEST, Destination, Opened, frame_at, kind_named};
use crate::profile::{
    Begin, Cpu, EventSource, EventStatus, FrameId, FrameKind, Sample, StackId, Tgid, Thread, ThreadIndex, Tid, Timestamp, Unit,
    sanitize,
};

/// The samples that are being read.
pub(super) struct Stacks<'a, 'b> {
    into: &'a mut Destination<'b>,
    /// The units so far, with their names. Each is a source.
    units: Vec<(Unit, String)>,
    threads: FxHashMap<(u32, u32), ThreadIndex>,
    /// Whether each sample has a time.
    has_times: bool,
    /// Whether each sample has a CPU.
    has_cpus: bool,
    /// Whether threads are those of a machine, and not just parts of a file.
    pub(super) has_threads: bool,
    pub(super) remarks: Vec<String>,
    /// Facts about the run, if the file has them.
    pub(super) about: Option<Box<About>>,
}

/// Where a function is, and which line of it runs. Lines count from 1.
#[derive(Clone, Copy, Default)]
pub(super) struct Place<'a> {
    /// Its file, or the object that holds its code.
    pub(super) file: &'a str,
    /// The line where the function begins, and the column.
    pub(super) function: Option<u32>,
    pub(super) column: Option<u32>,
    pub(super) line: Option<u32>,
}

impl<'a, 'b> Stacks<'a, 'b> {
    pub(super) fn new(into: &'a mut Destination<'b>) -> Stacks<'a, 'b> {
        Stacks {
            into,
            units: Vec::new(),
            threads: FxHashMap::default(),
            has_times: true,
            has_cpus: true,
            has_threads: false,
            remarks: Vec::new(),
            about: None,
        }
    }

    /// Returns a thread. A thread without a process has the number 0 for it.
    pub(super) fn thread(&mut self, tgid: u32, tid: u32, process: &str, name: &str) -> ThreadIndex {
        let (labels, threads) = (&self.into.names.labels, &mut self.into.profile.threads);
        *self.threads.entry((tgid, tid)).or_insert_with(|| {
            let label = |name: &str| labels.intern(&sanitize(name), "", FrameKind::Process);
            let (process, name) = (label(process), label(name));
            threads.intern(Thread { tgid: Tgid(tgid), tid: Tid(tid), process, name, ..Thread::default() })
        })
    }

    /// Returns a frame. Functions of languages have their whole path, as in [`Label::object`](crate::profile::Label::object).
    pub(super) fn frame(&self, name: &str, place: Place<'_>, kind: FrameKind) -> FrameId {
        let names = self.into.names;
        let (name, file) = (sanitize(name), sanitize(place.file));
        let short = if matches!(kind, FrameKind::Script(_)) { &file } else { file.rsplit('/').next().unwrap_or_default() };
        let object = match place.function {
            Some(line) if !short.is_empty() => Begin { file: short, line, column: place.column }.to_string(),
            _ => short.to_owned(),
        };
        let label = names.labels.intern(&name, &object, kind_named(&name, kind));
        frame_at(names, label, &file, place.line.unwrap_or(0).into())
    }

    /// Returns the stack of these frames, outermost first.
    pub(super) fn stack(&mut self, frames: impl DoubleEndedIterator<Item = FrameId> + ExactSizeIterator) -> StackId {
        self.into.profile.stacks.intern(frames)
    }

    /// Returns the stack of a frame and its caller's stack.
    pub(super) fn child(&mut self, caller: StackId, frame: FrameId) -> StackId {
        self.into.profile.stacks.child(caller, frame)
    }

    /// Returns the stacks of the rows of a table. A row is a frame, and the row of its caller's stack if it has one, which comes before it.
    pub(super) fn table(
        &mut self,
        rows: impl Iterator<Item = Result<(FrameId, Option<usize>), FormatError>>,
    ) -> Result<Vec<StackId>, FormatError> {
        // Each stack and its depth.
        let mut known: Vec<(StackId, usize)> = Vec::new();
        let mut cut = 0u64;
        for (number, row) in rows.enumerate() {
            let (frame, caller) = row?;
            let (caller, depth) = match caller {
                None => (StackId::default(), 0),
                Some(caller) => *known.get(caller).ok_or_else(|| FormatError::Json {
                    what: format!("the caller of the stack {number} does not come before it"),
                })?,
            };
            known.push(match depth < DEEPEST {
                true => (self.child(caller, frame), depth + 1),
                false => {
                    cut += 1;
                    (caller, depth)
                }
            });
        }
        if cut > 0 {
            self.remarks.push(format!("{cut} stacks are cut after {DEEPEST} frames"));
        }
        Ok(known.into_iter().map(|(stack, _)| stack).collect())
    }

    /// Adds a sample with a weight in this unit. Samples of one unit are a source of this name.
    pub(super) fn add(&mut self, thread: ThreadIndex, stack: StackId, time: Option<u64>, weight: f64, unit: (Unit, &str)) {
        self.add_on(None, thread, stack, time, weight, unit);
    }

    /// Adds a sample that was taken on a CPU.
    pub(super) fn add_on(
        &mut self,
        cpu: Option<Cpu>,
        thread: ThreadIndex,
        stack: StackId,
        time: Option<u64>,
        weight: f64,
        unit: (Unit, &str),
    ) {
        let weight = weight.round();
        if !(1.0..1e15).contains(&weight) {
            return;
        }
        let known = self.units.iter().position(|known| (known.0, &*known.1) == unit).unwrap_or_else(|| {
            self.units.push((unit.0, unit.1.to_owned()));
            self.units.len() - 1
        });
        let source = EventSource(u8::try_from(known + 1).unwrap_or(u8::MAX));
        self.has_times &= time.is_some();
        self.has_cpus &= cpu.is_some();
        let cpu = cpu.unwrap_or(Cpu(0));
        let time = Timestamp(time.unwrap_or(0));
        self.into.profile.samples.add(Sample { time, stack, thread, weight: weight as u64, source, cpu, ..Sample::default() });
    }

    pub(super) fn end(self) -> Result<Opened, FormatError> {
        let profile = &mut *self.into.profile;
        if profile.samples.is_empty() {
            return Err(FormatError::NoSamples);
        }
        profile.samples.sort();
        let sources = (1u8..).map(EventSource).zip(&self.units);
        profile.events = sources
            .map(|(source, (unit, name))| {
                profile.set_unit(source, *unit);
                EventStatus { source, name: name.clone(), how: "file".into(), ..EventStatus::default() }
            })
            .collect();
        let mut capabilities = profile.capabilities();
        capabilities.threads = self.has_threads || self.threads.len() > 1;
        capabilities.time = self.has_times;
        capabilities.cpus = self.has_cpus;
        capabilities.events = self.units.len() > 1;
        profile.set_capabilities(capabilities);
        let until = profile.samples.last_time().filter(|_| capabilities.time);
        Ok(Opened { remarks: self.remarks, source: Some(EventSource(1)), until, about: self.about, ..Opened::default() })
    }
}
