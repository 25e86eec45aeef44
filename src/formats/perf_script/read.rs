//! Reads the text into samples, line by line.

use std::borrow::Cow;
use std::io::BufRead;

use crate::formats::FormatError;
use crate::formats::about::About;
use crate::formats::known::Known;
use crate::formats::lines::Lines;
use crate::formats::reading::{DEEPEST, Destination, Opened};
use crate::profile::{
    Cpu, EventSource, EventStatus, FrameId, FrameKind, LabelId, Names, Sample, Tgid, Thread, Tid, Timestamp, Unit, sanitize,
};

use super::line::{Event, Frame};
use super::unit_of;

/// Most kinds of events in a file.
const MOST_KINDS: usize = 60;
/// Reads the text into the tables. Each kind of event becomes a source; the first one is shown first.
pub(in crate::formats) fn open(input: &mut dyn BufRead, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut lines = Lines::new(input)?;
    let names = into.names;
    let mut reader = Reader {
        into,
        frames: Frames { names, known: [Known::default(), Known::default()], lists: Vec::new() },
        comms: Known::default(),
        kinds: Known::default(),
        sources: Vec::new(),
        event: None,
        stack: Vec::new(),
        about: About::default(),
        seen: Seen::default(),
    };
    loop {
        let number = lines.number() + 1;
        match lines.next()? {
            Some(line) => reader.take(line, number),
            None => break,
        }
    }
    reader.end()
}

/// A kind of event.
struct Source {
    status: EventStatus,
    /// Whether its samples have periods.
    has_periods: bool,
}

/// Counts of what was read, and of what was not.
#[derive(Default)]
struct Seen {
    lacks: Lacks,
    nonsense: u64,
    first_nonsense: Option<u64>,
    /// Events of kinds above the limit.
    other_kinds: u64,
    cut: u64,
}

struct Reader<'a, 'b> {
    into: &'a mut Destination<'b>,
    frames: Frames<'b>,
    comms: Known<LabelId>,
    /// The place of each kind of event in `sources`.
    kinds: Known<Option<u8>>,
    sources: Vec<Source>,
    event: Option<Pending>,
    /// The frames of each line of its stack, innermost first.
    stack: Vec<List>,
    about: About,
    seen: Seen,
}

/// An event whose stack is being read.
struct Pending {
    sample: Sample,
    is_java: bool,
    /// Whether its first line has a frame.
    has_frame: bool,
    lacks: Lacks,
}

/// The facts that an event lacks, or that one of several events lacks.
#[derive(Clone, Copy, Default)]
struct Lacks {
    time: bool,
    cpu: bool,
    tgid: bool,
}

impl Reader<'_, '_> {
    fn take(&mut self, line: &[u8], number: u64) {
        match line.first() {
            Some(b'#') => self.comment(line),
            Some(first) if !first.is_ascii_whitespace() => {
                self.finish_event();
                match Event::parse(line) {
                    Some(event) => self.begin(&event),
                    None => {
                        self.seen.nonsense += 1;
                        self.seen.first_nonsense.get_or_insert(number);
                    }
                }
            }
            // Lines of source are between the frames, if the file has them.
            _ if line.trim_ascii_start().is_empty() => self.finish_event(),
            _ => {
                let list = self.event.as_ref().and_then(|event| self.frames.of_line(line, event.is_java));
                match list {
                    Some(list) if self.stack.len() < DEEPEST => self.stack.push(list),
                    Some(_) => self.seen.cut += 1,
                    None => {}
                }
            }
        }
    }

    /// Keeps the name of the machine: `# hostname : server`.
    fn comment(&mut self, line: &[u8]) {
        if let Some(rest) = line.strip_prefix(b"# hostname :") {
            self.about.host = text(rest.trim_ascii()).into_owned();
        }
    }

    fn begin(&mut self, event: &Event<'_>) {
        let (sources, limit) = (&mut self.sources, MOST_KINDS);
        let kind = self.kinds.get(event.event, || {
            let source = u8::try_from(sources.len() + 1).ok().filter(|source| usize::from(*source) <= limit)?;
            let status = EventStatus {
                source: EventSource(source),
                name: text(event.event).into_owned(),
                how: "perf".into(),
                ..EventStatus::default()
            };
            sources.push(Source { status, has_periods: false });
            Some(source - 1)
        });
        let Some(source) = kind.and_then(|kind| self.sources.get_mut(usize::from(kind))) else {
            self.seen.other_kinds += 1;
            return;
        };
        source.has_periods |= event.period.is_some();
        let weight = event.period.unwrap_or(1).min(i64::MAX as u64 >> 16);
        let names = self.into.names;
        let name = self.comms.get(event.comm, || names.labels.intern(&text(event.comm), "", FrameKind::Process));
        let thread =
            Thread { tgid: Tgid(event.tgid.unwrap_or(event.tid)), tid: Tid(event.tid), process: name, name, ..Thread::default() };
        let sample = Sample {
            time: Timestamp(event.time.unwrap_or(0)),
            thread: self.into.profile.threads.intern(thread),
            cpu: Cpu(event.cpu.unwrap_or(0)),
            weight,
            source: source.status.source,
            ..Sample::default()
        };
        let lacks = Lacks { time: event.time.is_none(), cpu: event.cpu.is_none(), tgid: event.tgid.is_none() };
        let is_java = event.comm.starts_with(b"java");
        // Most rests are the fields of a tracepoint, which are not worth keeping.
        let frame = Frame::parse(event.rest).and_then(|_| self.frames.of_line(event.rest, is_java));
        self.stack.extend(frame);
        self.event = Some(Pending { sample, is_java, has_frame: frame.is_some(), lacks });
    }

    fn finish_event(&mut self) {
        if let Some(Pending { sample, lacks, .. }) = self.event.take().filter(|event| event.sample.weight > 0) {
            if let Some(source) = self.sources.get_mut(usize::from(sample.source.0) - 1) {
                source.status.stacks += 1;
                source.status.events = source.status.events.saturating_add(sample.weight);
            }
            let all = &mut self.seen.lacks;
            *all = Lacks { time: all.time | lacks.time, cpu: all.cpu | lacks.cpu, tgid: all.tgid | lacks.tgid };
            let frames = self.stack.iter().rev().flat_map(|list| self.frames.list(*list).iter().copied());
            let stack = self.into.profile.stacks.intern(frames);
            self.into.profile.samples.add(Sample { stack, ..sample });
        }
        self.stack.clear();
    }

    fn end(mut self) -> Result<Opened, FormatError> {
        // perf ends each stack with an empty line. Without it, the outer frames may be missing.
        let is_cut = self.stack.len() > usize::from(self.event.as_ref().is_some_and(|event| event.has_frame));
        self.event = self.event.take().filter(|_| !is_cut);
        self.finish_event();
        let Reader { into, sources, about, seen, .. } = self;
        let profile = &mut *into.profile;
        if profile.samples.is_empty() {
            return Err(FormatError::NoSamples);
        }
        profile.samples.sort();
        for Source { status, has_periods } in &sources {
            profile.set_unit(status.source, if *has_periods { unit_of(&status.name) } else { Unit::Samples });
        }
        let mut capabilities = profile.capabilities();
        capabilities.threads = true;
        capabilities.time = !seen.lacks.time;
        capabilities.cpus = !seen.lacks.cpu;
        capabilities.events = sources.len() > 1;
        profile.set_capabilities(capabilities);
        let until = profile.samples.last_time().filter(|_| capabilities.time);
        let source = sources.first().map(|source| source.status.source);
        profile.events = sources.into_iter().map(|source| source.status).collect();
        let mut remarks = Vec::new();
        if let Some(line) = seen.first_nonsense {
            remarks.push(format!("{} lines are neither events nor frames (first: line {line})", seen.nonsense));
        }
        if seen.other_kinds > 0 {
            remarks.push(format!("{} events of more than {MOST_KINDS} kinds were left out", seen.other_kinds));
        }
        if seen.cut > 0 {
            remarks.push(format!("{} frames of stacks deeper than {DEEPEST} were left out", seen.cut));
        }
        if is_cut {
            remarks.push("the file is cut: its last stack, which does not end, was left out".to_owned());
        }
        if seen.lacks.tgid {
            remarks.push("threads count as processes: `perf script -F +pid` tells which belong together".to_owned());
        }
        Ok(Opened { remarks, source, about: Some(Box::new(about)), until, ..Opened::default() })
    }
}

/// Frames of one line: a part of [`Frames::lists`].
#[derive(Clone, Copy)]
struct List {
    start: usize,
    count: usize,
}

/// The frames of lines that have been read.
struct Frames<'a> {
    names: &'a Names,
    /// By the whole line, as written; of threads of Java, and of others. `None` for a line that is not a frame.
    known: [Known<Option<List>>; 2],
    lists: Vec<FrameId>,
}

impl Frames<'_> {
    fn list(&self, list: List) -> &[FrameId] {
        self.lists.get(list.start..list.start + list.count).unwrap_or_default()
    }

    /// Returns the frames of a line, outermost first.
    fn of_line(&mut self, line: &[u8], is_java: bool) -> Option<List> {
        let [other, java] = &mut self.known;
        let known = if is_java { java } else { other };
        let (names, lists) = (self.names, &mut self.lists);
        known.get(line, || Frame::parse(line).map(|frame| list(names, lists, &frame, is_java)))
    }
}

/// Appends the frames of a line to `lists`, outermost first.
fn list(names: &Names, lists: &mut Vec<FrameId>, frame: &Frame<'_>, is_java: bool) -> List {
    let start = lists.len();
    let (name, module) = (text(frame.name), text(frame.module));
    // A name in parentheses is that of the process.
    if !name.starts_with('(') || is_namespace(&name, 0) {
        for (at, part) in name.split("->").enumerate() {
            lists.push(named(names, part, &module, is_java, at > 0));
        }
    }
    List { start, count: lists.len() - start }
}

/// Returns the frame of a function.
fn named(names: &Names, name: &str, module: &str, is_java: bool, is_inlined: bool) -> FrameId {
    let short = module.rsplit('/').next().unwrap_or_default();
    let is_known = !module.contains("unknown");
    let kind = match module {
        _ if is_inlined || module == "inlined" => FrameKind::Inlined,
        _ if is_known && (module.starts_with('[') || module.ends_with("vmlinux")) => FrameKind::Kernel,
        _ if is_map(module) => FrameKind::Jit,
        _ if name == "[unknown]" && !is_known => FrameKind::Unknown,
        _ => FrameKind::User,
    };
    let object = if is_known && module != "inlined" { short } else { "" };
    let name = match name {
        "[unknown]" if is_known => format!("[{short}]"),
        "[unknown]" => "[unknown]".to_owned(),
        // perf before 3.14 writes nothing for a name that it does not know, and FlameGraph a blank.
        "" => " ".to_owned(),
        name => tidy(name, is_java),
    };
    names.intern_named(names.labels.intern(&name, object, kind))
}

/// Whether this is the list of functions that a runtime has made: `/tmp/perf-4121.map`.
fn is_map(module: &str) -> bool {
    let number = module.rsplit('/').next().and_then(|name| name.strip_prefix("perf-")?.strip_suffix(".map"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns a name as `stackcollapse-perf.pl` writes it: without arguments and quotes.
fn tidy(name: &str, is_java: bool) -> String {
    let name = name.replace(';', ":");
    // Go writes methods as `package.(*Type).method`.
    let is_method = name.match_indices(".(").any(|(at, _)| name.get(at + 2..).is_some_and(|rest| rest.contains(").")));
    let cut = if is_method { None } else { name.match_indices('(').find(|(at, _)| !is_namespace(&name, *at)) };
    let mut name = cut.map_or(&*name, |(at, _)| name.get(..at).unwrap_or_default()).replace(['"', '\''], "");
    // Old agents write classes of Java as the file format does: `Lorg/mozilla/Context;`.
    if is_java && name.starts_with('L') && name.contains('/') {
        name.remove(0);
    }
    name
}

fn is_namespace(name: &str, at: usize) -> bool {
    name.get(at..).is_some_and(|rest| rest.starts_with("(anonymous namespace)"))
}

/// Returns a piece of the file as text without control characters.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => sanitize(text),
        Cow::Owned(text) => sanitize(&text).into_owned().into(),
    }
}
