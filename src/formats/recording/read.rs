//! Reads a recording into the tables. Every number of a file is checked before it is used.

use std::io::BufRead;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::chunk::{Chunk, End, Kind, MAGIC, MAJOR, Part, Parts};
use super::columns::{Table, Values};
use super::kinds::{frame_kind, object_kind, unit};
use crate::formats::FormatError;
use crate::formats::about::{About, Problem};
use crate::formats::reading::{DEEPEST, Destination, Opened};
use crate::profile::{
    BuildId, Capabilities, CgroupId, Clock, Cpu, EventSource, EventStatus, FileNamespace, FileOffset, Frame, FrameId,
    KernelAddress, LabelId, Losses, Object, ObjectId, Process, ProcessAddress, Sample, StackId, Tgid, Thread, ThreadIndex, Tid,
    Timestamp, UserEnd, UserId, sanitize,
};

/// Rows that may be there without a byte: values of 0 are not stored.
const BARE_ROWS: usize = 64;

/// Whether a file that begins with these bytes is a recording.
pub(in crate::formats) fn recognizes(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Reads a recording, or several that follow each other.
pub(in crate::formats) fn open(input: &mut dyn BufRead, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut input = input;
    let mut parts = Parts::new(&mut input);
    let mut reader = Reader::new(into);
    let end = loop {
        match parts.next().map_err(FormatError::Read)? {
            Ok(Part::Head { major }) if major > MAJOR => {
                return Err(FormatError::Newer { version: format!("format {major}") });
            }
            Ok(Part::Head { .. }) => reader.begin_recording(),
            Ok(Part::Chunk(chunk)) => reader.take(&chunk)?,
            Err(end) => break end,
        }
    };
    reader.finish(end)
}

/// The rows of a segment's tables, by their numbers.
#[derive(Default)]
struct Rows {
    texts: Vec<Arc<str>>,
    objects: Vec<ObjectId>,
    labels: Vec<LabelId>,
    frames: Vec<FrameId>,
    threads: Vec<ThreadIndex>,
    /// Stacks, with the numbers of their frames.
    nodes: Vec<(StackId, u16)>,
}

impl Rows {
    fn text(&self, number: u64) -> Option<&Arc<str>> {
        self.texts.get(usize::try_from(number).ok()?)
    }

    fn label(&self, number: u64) -> Option<LabelId> {
        self.labels.get(usize::try_from(number).ok()?).copied()
    }
}

/// What the facts of a recording say of its samples.
#[derive(Clone, Copy, Default)]
struct Counts {
    losses: Losses,
    period: u64,
    cpus: u32,
    since: Option<u64>,
    until: Option<u64>,
}

struct Reader<'a, 'b> {
    into: &'a mut Destination<'b>,
    rows: Rows,
    about: About,
    counts: Counts,
    /// Losses of the recordings before this one.
    losses_before: Losses,
    clock: Option<Clock>,
    /// The boot and the wall clock of the first recording. Times of later recordings are converted to its clock.
    first: Option<(String, Option<i64>)>,
    sources: FxHashMap<EventSource, EventStatus>,
    cgroups: FxHashMap<CgroupId, Arc<str>>,
    containers: FxHashMap<CgroupId, Arc<str>>,
    users: FxHashMap<UserId, Arc<str>>,
    recordings: usize,
    ended: usize,
    last: Timestamp,
}

impl<'a, 'b> Reader<'a, 'b> {
    fn new(into: &'a mut Destination<'b>) -> Reader<'a, 'b> {
        Reader {
            into,
            rows: Rows::default(),
            about: About::default(),
            counts: Counts::default(),
            losses_before: Losses::default(),
            clock: None,
            first: None,
            sources: FxHashMap::default(),
            cgroups: FxHashMap::default(),
            containers: FxHashMap::default(),
            users: FxHashMap::default(),
            recordings: 0,
            ended: 0,
            last: Timestamp(0),
        }
    }

    fn begin_recording(&mut self) {
        self.end_recording();
        self.recordings += 1;
        self.rows = Rows::default();
    }

    /// Adds the counts of the recording that has been read.
    fn end_recording(&mut self) {
        let shift = self.shift();
        let Counts { losses, period, cpus, since, until } = std::mem::take(&mut self.counts);
        add(&mut self.losses_before, &losses);
        if let Some(since) = since {
            let since = moved(since, shift);
            let until = until.map_or(self.last, |until| moved(until, shift)).max(since);
            let before = self.clock.unwrap_or(Clock { period, cpus, since, until: None });
            let until = Some(before.until.map_or(until, |before| before.max(until)));
            self.clock = Some(Clock { since: before.since.min(since), until, ..before });
        }
    }

    /// Returns the nanoseconds from this recording's clock to the clock of the first recording.
    fn shift(&mut self) -> i64 {
        if self.first.is_none() && self.about.boot.is_empty() && self.about.wall.is_none() {
            return 0;
        }
        let (boot, wall) = self.first.get_or_insert_with(|| (self.about.boot.clone(), self.about.wall));
        match (self.about.wall, *wall) {
            (Some(here), Some(first)) if *boot != self.about.boot => here.saturating_sub(first),
            _ => 0,
        }
    }

    fn take(&mut self, chunk: &Chunk) -> Result<(), FormatError> {
        let damaged = || FormatError::Damaged { at: chunk.at };
        let Some(kind) = chunk.kind else {
            let newer = || FormatError::Newer { version: self.about.version.clone() };
            return if chunk.is_needed { Err(newer()) } else { Ok(()) };
        };
        let table = Table::of(&chunk.payload).ok_or_else(damaged)?;
        if chunk.rows as usize > chunk.payload.len() + BARE_ROWS {
            return Err(damaged());
        }
        if kind == Kind::Note {
            (self.about.problems, self.about.notes, self.about.unread) = Default::default();
        }
        let read = match kind {
            Kind::Segment => {
                self.rows = Rows::default();
                self.rows.nodes.push((StackId(0), 0));
                Some(())
            }
            Kind::End => {
                self.ended += 1;
                Some(())
            }
            Kind::Text => self.texts(chunk.rows, &table),
            Kind::Object => self.objects(chunk.rows, &table),
            Kind::Label => self.labels(chunk.rows, &table),
            Kind::Frame => self.frames(chunk.rows, &table),
            Kind::Name => self.names(chunk.rows, &table),
            Kind::Thread => self.threads(chunk.rows, &table),
            Kind::Node => self.nodes(chunk.rows, &table),
            Kind::Sample => self.samples(chunk, &table),
            Kind::Process => self.processes(chunk.rows, &table),
            Kind::Cgroup | Kind::User => self.cgroups_and_users(kind, chunk.rows, &table),
            Kind::Source => self.sources(chunk.rows, &table),
            Kind::Fact => self.facts(chunk.rows, &table),
            Kind::Note => self.notes(chunk.rows, &table),
        };
        read.ok_or_else(damaged)
    }

    fn texts(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut lengths, mut bytes] = table.columns();
        for _ in 0..rows {
            let text = bytes.text(lengths.next()?)?;
            self.rows.texts.push(text.into());
        }
        Some(())
    }

    fn objects(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut kinds, mut paths, mut build_ids, mut has_file, mut first, mut second, mut files, mut users] = table.columns();
        for _ in 0..rows {
            let build_id = match build_ids.next()? {
                0 => None,
                number => BuildId::new(&from_hex(self.rows.text(number - 1)?)?),
            };
            let file = (first.next()?, second.next()?);
            let object = Object {
                kind: object_kind(kinds.next()?),
                path: Arc::clone(self.rows.text(paths.next()?)?),
                build_id,
                file: (has_file.next()? == 1).then_some(file),
                files: FileNamespace(files.small()?),
                user: UserId(users.small()?),
            };
            self.rows.objects.push(self.into.names.objects.adopt(object));
        }
        Some(())
    }

    fn labels(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut names, mut objects, mut kinds] = table.columns();
        for _ in 0..rows {
            let (name, object) = (self.rows.text(names.next()?)?, self.rows.text(objects.next()?)?);
            let label = self.into.names.labels.intern(name, object, frame_kind(kinds.next()?));
            self.rows.labels.push(label);
        }
        Some(())
    }

    fn frames(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut spaces, mut objects, mut addresses, mut lines, mut returns] = table.columns();
        for _ in 0..rows {
            let object = *self.rows.objects.get(objects.small::<usize>()?)?;
            let (address, line, is_return) = (addresses.next()?, lines.small()?, returns.next()? != 0);
            let offset = FileOffset(address);
            let frame = match spaces.next()? {
                0 => Frame::Named(self.rows.label(address)?),
                1 => Frame::Kernel { address: KernelAddress(address), is_return },
                2 => Frame::File { object, offset, is_return },
                3 => Frame::Interpreter { object, offset, is_return },
                4 => Frame::Process { object, address: ProcessAddress(address), is_return },
                5 => Frame::Script { object, label: self.rows.label(address)?, line },
                7 => Frame::AnyOf(object),
                // A kind of frame that this reader does not know has no address for it.
                _ => Frame::Unmapped,
            };
            self.rows.frames.push(self.into.names.intern_frame(frame).0);
        }
        Some(())
    }

    fn names(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut frames, mut counts, mut labels] = table.columns();
        let mut chain = Vec::new();
        for _ in 0..rows {
            let frame = *self.rows.frames.get(frames.small::<usize>()?)?;
            chain.clear();
            for _ in 0..counts.next()?.min(DEEPEST as u64) {
                chain.push(self.rows.label(labels.next()?)?);
            }
            self.into.names.name_frame(frame, &chain);
        }
        Some(())
    }

    fn threads(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut tgids, mut tids, mut processes, mut names, mut cgroups] = table.columns();
        for _ in 0..rows {
            let thread = Thread {
                tgid: Tgid(tgids.small()?),
                tid: Tid(tids.small()?),
                process: self.rows.label(processes.next()?)?,
                name: self.rows.label(names.next()?)?,
                cgroup: CgroupId(cgroups.next()?),
            };
            self.rows.threads.push(self.into.profile.threads.intern(thread));
        }
        Some(())
    }

    fn nodes(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut parents, mut frames] = table.columns();
        for _ in 0..rows {
            let parent = self.rows.nodes.len().checked_sub(parents.small::<usize>()?)?;
            let (stack, depth) = *self.rows.nodes.get(parent)?;
            let frame = *self.rows.frames.get(frames.small::<usize>()?)?;
            let depth = Some(depth + 1).filter(|depth| usize::from(*depth) <= DEEPEST)?;
            self.rows.nodes.push((self.into.profile.stacks.child(stack, frame), depth));
        }
        Some(())
    }

    fn samples(&mut self, chunk: &Chunk, table: &Table<'_>) -> Option<()> {
        let shift = self.shift();
        let [mut times, mut threads, mut cpus, mut stacks] = table.columns();
        let [mut weights, mut observations, mut sources, mut ends] = [4, 5, 6, 7].map(|tag| table.runs(tag));
        let mut time = chunk.times.0;
        for _ in 0..chunk.rows {
            time = time.saturating_add(times.next()?);
            let at = moved(time, shift);
            self.last = self.last.max(at);
            let sample = Sample {
                time: at,
                stack: self.rows.nodes.get(stacks.small::<usize>()?)?.0,
                thread: *self.rows.threads.get(threads.small::<usize>()?)?,
                weight: weights.next()?,
                observations: u32::try_from(observations.next()?).ok()?,
                cpu: Cpu(cpus.small()?),
                source: EventSource(u8::try_from(sources.next()?).ok()?),
                user_end: UserEnd::from_wire(u8::try_from(ends.next()?).ok()?),
            };
            self.into.profile.samples.add(sample);
        }
        Some(())
    }

    fn processes(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut tgids, mut commands, mut parents, mut users, mut threads, mut exits] = table.columns();
        for _ in 0..rows {
            let tgid = Tgid(tgids.small()?);
            let process = Process {
                command_line: sanitize(self.rows.text(commands.next()?)?).into(),
                parent: Tgid(parents.small()?),
                user: users.next()?.checked_sub(1).map(u32::try_from).transpose().ok()?.map(UserId),
                threads: threads.small()?,
                exited: exits.next()?.checked_sub(1).map(Timestamp),
            };
            self.into.processes.insert(tgid, process);
        }
        Some(())
    }

    /// Reads the names of cgroups or users.
    fn cgroups_and_users(&mut self, kind: Kind, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut ids, mut names, mut containers] = table.columns();
        for _ in 0..rows {
            let (id, name) = (ids.next()?, sanitize(self.rows.text(names.next()?)?).into());
            // 0 is none: older recordings have no such column.
            if let Some(container) = containers.next()?.checked_sub(1) {
                let container = sanitize(self.rows.text(container)?).into();
                self.containers.insert(CgroupId(id), container);
            }
            match kind {
                Kind::Cgroup => self.cgroups.insert(CgroupId(id), name),
                _ => self.users.insert(UserId(u32::try_from(id).ok()?), name),
            };
        }
        Some(())
    }

    fn sources(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let columns: [Values<'_>; 15] = table.columns();
        let [mut sources, mut names, mut hows, mut places, counts @ .., mut units, mut waited, mut unknown] = columns;
        let [mut events, mut stacks, mut missed, mut unsure, mut cut, mut busy, mut own, mut cost] = counts;
        for _ in 0..rows {
            let source = EventSource(sources.small()?);
            let text = |number: u64| Some(sanitize(self.rows.text(number)?).into_owned());
            let status = EventStatus {
                source,
                name: text(names.next()?)?,
                how: text(hows.next()?)?.into(),
                places: places.small()?,
                events: events.next()?,
                stacks: stacks.next()?,
                missed: missed.next()?,
                unsure: unsure.next()?,
                cut: cut.next()?,
                busy: busy.next()?,
                own: own.next()?,
                cost: cost.next()?,
                // 0 is none: older recordings have no such column.
                waited: waited.next()?.checked_sub(1),
                unknown: unknown.next()?,
            };
            self.into.profile.set_unit(source, unit(units.next()?));
            if ![EventSource::CLOCK, EventSource::FILE].contains(&source) {
                self.sources.insert(source, status);
            }
        }
        Some(())
    }

    fn facts(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut names, mut values] = table.columns();
        for _ in 0..rows {
            let (name, value) = (self.rows.text(names.next()?)?, self.rows.text(values.next()?)?);
            let number = value.parse().unwrap_or(0);
            let Counts { losses, period, cpus, since, until } = &mut self.counts;
            match &**name {
                "lost" => losses.ring_full = number,
                "lost events" => losses.events_lost = number,
                "malformed" => losses.malformed = number,
                "dropped" => losses.over_memory = number,
                "coarse" => losses.coarse = number,
                "period" => *period = number,
                "sampled cpus" => *cpus = u32::try_from(number).unwrap_or(u32::MAX),
                "since" => *since = Some(number),
                "until" => *until = value.parse().ok(),
                name => self.about.set(name, value),
            }
        }
        Some(())
    }

    fn notes(&mut self, rows: u32, table: &Table<'_>) -> Option<()> {
        let [mut kinds, mut texts, mut reasons, mut counts, mut remedies] = table.columns();
        for _ in 0..rows {
            let kind = kinds.next()?;
            let text = |number: u64| Some(sanitize(self.rows.text(number)?).into_owned());
            let (words, reason) = (text(texts.next()?)?, text(reasons.next()?)?);
            let (unnamed, remedy) = (counts.next()?, text(remedies.next()?)?);
            match kind {
                0 => self.about.problems.push(Problem { path: words, reason, unnamed, remedy }),
                1 => self.about.notes.push(words),
                2 => self.about.unread.push(words),
                _ => {}
            }
        }
        Some(())
    }

    fn finish(mut self, end: End) -> Result<Opened, FormatError> {
        self.end_recording();
        let profile = &mut *self.into.profile;
        profile.samples.sort();
        if profile.samples.is_empty() {
            return Err(FormatError::NoSamples);
        }
        profile.losses = self.losses_before;
        profile.events = self.sources.into_values().collect();
        profile.set_capabilities(Capabilities { live: false, ..Capabilities::LIVE });
        if let Some(clock) = self.clock {
            profile.set_clock(clock);
        }
        let begin = self.clock.map(|clock| clock.since).or(profile.samples.first_time()).unwrap_or_default();
        let seconds = self.last.since(begin) as f64 / 1e9;
        let source = profile.samples.get(0).map(|first| first.source);
        let mut remarks = Vec::new();
        match end {
            End::Cut { at } => {
                remarks.push(format!("the recording is cut or damaged at byte {at}: {seconds:.1} s of it are there"))
            }
            End::Whole if self.ended < self.recordings => {
                remarks.push(format!("the recording did not end as it should: {seconds:.1} s of it are there"));
            }
            End::Whole => {}
        }
        self.about.cgroups = Arc::new(self.cgroups);
        self.about.containers = Arc::new(self.containers);
        self.about.users = Arc::new(self.users);
        let until = self.clock.and_then(|clock| clock.until).unwrap_or(self.last).max(self.last);
        if let Some((_, wall)) = self.first {
            self.about.wall = wall;
        }
        Ok(Opened { remarks, about: Some(Box::new(self.about)), until: Some(until), source, ..Opened::default() })
    }
}

fn add(sum: &mut Losses, more: &Losses) {
    // The pattern names all fields, so a new field does not compile until it is added here.
    let Losses { ring_full, events_lost, aged_out, over_memory, malformed, coarse, coarse_most } = more;
    sum.ring_full = sum.ring_full.saturating_add(*ring_full);
    sum.events_lost = sum.events_lost.saturating_add(*events_lost);
    sum.aged_out = sum.aged_out.saturating_add(*aged_out);
    sum.over_memory = sum.over_memory.saturating_add(*over_memory);
    sum.malformed = sum.malformed.saturating_add(*malformed);
    sum.coarse = sum.coarse.saturating_add(*coarse);
    sum.coarse_most = sum.coarse_most.or(*coarse_most);
}

fn moved(time: u64, by: i64) -> Timestamp {
    Timestamp(time.saturating_add_signed(by))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    odd.is_empty().then(|| pairs.iter().map(byte).collect()).flatten()
}
