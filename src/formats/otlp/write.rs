//! Writes samples. Rows of the tables are made when a sample needs them, and are found again by their content, so ids of the store may be
//! renewed while samples are taken. The file is made at the end: samples of one stack, thread and CPU are one row with all their times.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::json::of_message;
use super::{FRAME_TYPES, data, keys, tables};
use crate::formats::FormatError;
use crate::formats::about::About;
use crate::formats::protobuf::Message;
use crate::formats::sink::{Cursor, Numbers, Sink};
use crate::profile::{
    Begin, BuildId, CgroupId, EventSource, Folding, Frame, FrameId, FrameKind, LabelId, Names, Place, Processes, Profile, Sample,
    StackId, ThreadIndex, Unit,
};

/// Frames that are left out: readers could not fold them.
const FOLDING: Folding = Folding { inlined: false, interpreter: true, recursion: false };

/// Writes a profile: see the module.
#[derive(Default)]
pub(in crate::formats) struct OtlpWriter {
    is_json: bool,
    cursor: Cursor,
    names: Option<Arc<Names>>,
    /// Rows by the ids of the store.
    stacks: Numbers,
    threads: Numbers,
    /// The location of each frame; `None` if it has no function to show.
    frames: FxHashMap<FrameId, Option<u32>>,
    dictionary: Dictionary,
    thread_rows: FxHashMap<OfThread, u32>,
    thread: Vec<OfThread>,
    samples: BTreeMap<Key, Values>,
    sources: FxHashMap<EventSource, Source>,
    /// Whether samples have times and CPUs.
    has: (bool, bool),
    about: About,
    /// Attributes of all processes. They replace those that are known of each.
    attributes: Vec<(String, String)>,
    out: Vec<u8>,
    /// Frames of a stack that are to be written, innermost first.
    path: Vec<(StackId, FrameId)>,
}

impl OtlpWriter {
    /// Begins a file in JSON.
    pub(in crate::formats) fn json() -> OtlpWriter {
        OtlpWriter { is_json: true, ..OtlpWriter::default() }
    }
}

/// Returns a writer of the samples with these numbers, for an engine. `attributes` are said of all processes.
#[must_use]
pub fn otlp_of_samples(numbers: Range<u64>, attributes: Vec<(String, String)>) -> Box<dyn Sink> {
    Box::new(OtlpWriter { cursor: Cursor::of(numbers), attributes, ..OtlpWriter::default() })
}

/// A process, in a cgroup.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct OfProcess {
    tgid: u32,
    name: Arc<str>,
    cgroup: CgroupId,
}

/// A thread, and its process.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct OfThread {
    process: OfProcess,
    tid: u32,
    name: Arc<str>,
}

/// The key of a row of samples.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    thread: u32,
    source: EventSource,
    stack: u32,
    cpu: u16,
}

/// Samples by source.
type BySource = BTreeMap<EventSource, Vec<(Key, Values)>>;

#[derive(Default)]
struct Values {
    times: Vec<u64>,
    weights: Vec<u64>,
}

struct Source {
    unit: Unit,
    name: String,
}

/// The tables. Row 0 of each is empty.
#[derive(Default)]
struct Dictionary {
    strings: Table<Arc<str>>,
    mappings: Table<(u32, Option<BuildId>)>,
    functions: Table<(u32, u32, u32)>,
    locations: Table<Location>,
    /// Stacks by their callers' stacks, and those of them that samples have.
    trie: Table<(u32, u32)>,
    stacks: Table<u32>,
    attributes: Table<(u32, Attribute)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Location {
    mapping: u32,
    kind: u32,
    /// Functions and lines, innermost first.
    lines: Vec<(u32, u32)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Attribute {
    Text(Arc<str>),
    Number(u64),
}

/// Rows by number, from 1 on, and numbers by row.
struct Table<T> {
    rows: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { rows: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Table<T> {
    fn number(&mut self, row: T) -> u32 {
        *self.numbers.entry(row).or_insert_with_key(|row| {
            self.rows.push(row.clone());
            u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
        })
    }
}

impl Dictionary {
    fn text(&mut self, text: &str) -> u32 {
        match text {
            "" => 0,
            _ => self.strings.numbers.get(text).copied().unwrap_or_else(|| self.strings.number(text.into())),
        }
    }

    fn attribute(&mut self, key: &str, value: Attribute) -> u32 {
        let key = self.text(key);
        self.attributes.number((key, value))
    }

    /// Returns the location of a frame, with the functions that are inlined in it.
    fn location(&mut self, names: &Names, id: FrameId) -> Option<u32> {
        let frame = names.frames.get(id);
        let object = frame.and_then(|frame| names.objects.get(frame.object()));
        let script = match (frame, &object) {
            (Some(Frame::Script { line, .. }), Some(object)) => Some((&*object.path, line)),
            _ => None,
        };
        let mut labels: Vec<LabelId> = Vec::new();
        names.labels_shown(id, FOLDING, |label| labels.push(label));
        let outermost = names.labels.get(*labels.first()?)?;
        let lines = labels.iter().rev().map(|label| self.line(names, *label, script)).collect();
        let mapping = match (&*outermost.object, script) {
            ("", _) | (_, Some(_)) => 0,
            (short, None) => {
                let build_id = object.as_ref().and_then(|object| object.build_id);
                let path =
                    self.text(object.as_ref().map_or(short, |object| if object.path.is_empty() { short } else { &object.path }));
                self.mappings.number((path, build_id))
            }
        };
        let kind =
            match FRAME_TYPES.iter().find(|(_, kind)| *kind == outermost.kind).filter(|_| outermost.kind != FrameKind::Unknown) {
                Some((word, _)) => self.attribute(keys::FRAME_TYPE, Attribute::Text((*word).into())),
                None => 0,
            };
        Some(self.locations.number(Location { mapping, kind, lines }))
    }

    /// Returns the function of a label, and the line that runs.
    fn line(&mut self, names: &Names, label: LabelId, script: Option<(&str, u32)>) -> (u32, u32) {
        let (name, object) = names.labels.words(label);
        let begin = Begin::parse(object);
        let file = script.map(|(path, _)| path).or(begin.map(|begin| begin.file)).unwrap_or_default();
        let row = (self.text(name), self.text(file), begin.map_or(0, |begin| begin.line));
        (self.functions.number(row), script.map_or(0, |(_, line)| line))
    }
}

impl OtlpWriter {
    /// Returns the place of a stack in the trie.
    fn stack(&mut self, profile: &Profile, names: &Names, stack: StackId) -> u32 {
        let mut at = stack;
        self.path.clear();
        let mut caller = loop {
            if let Some(known) = self.stacks.get(at.0 as usize) {
                break known;
            }
            let Some((caller, frame)) = profile.stacks.split(at) else { break 0 };
            self.path.push((at, frame));
            at = caller;
        };
        while let Some((node, frame)) = self.path.pop() {
            let dictionary = &mut self.dictionary;
            if let Some(location) = *self.frames.entry(frame).or_insert_with(|| dictionary.location(names, frame)) {
                caller = dictionary.trie.number((caller, location));
            }
            self.stacks.set(node.0 as usize, caller);
        }
        caller
    }

    fn thread(&mut self, profile: &Profile, names: &Names, index: ThreadIndex) -> u32 {
        if let Some(known) = self.threads.get(index.0 as usize) {
            return known;
        }
        let thread = profile.threads.get(index).unwrap_or_default();
        let [process, name] = [thread.process, thread.name].map(|label| Arc::<str>::from(names.labels.name(label)));
        let process = OfProcess { tgid: thread.tgid.0, name: process, cgroup: thread.cgroup };
        let row = OfThread { process, tid: thread.tid.0, name };
        let number = *self.thread_rows.entry(row).or_insert_with_key(|row| {
            self.thread.push(row.clone());
            u32::try_from(self.thread.len() - 1).unwrap_or(u32::MAX)
        });
        self.threads.set(index.0 as usize, number);
        number
    }

    fn sample(&mut self, profile: &Profile, names: &Names, sample: &Sample) {
        let capabilities = profile.capabilities();
        self.has = (capabilities.time, capabilities.cpus);
        self.sources.entry(sample.source).or_insert_with(|| {
            let event = profile.events.iter().find(|event| event.source == sample.source);
            Source { unit: profile.unit(sample.source), name: event.map_or_else(String::new, |event| event.name.clone()) }
        });
        let stack = match self.stack(profile, names, sample.stack) {
            0 => 0,
            place => self.dictionary.stacks.number(place),
        };
        let thread = self.thread(profile, names, sample.thread);
        let cpu = if capabilities.cpus { sample.cpu.0 } else { 0 };
        let values = self.samples.entry(Key { thread, source: sample.source, stack, cpu }).or_default();
        match capabilities.time {
            true => {
                values.times.push(sample.time.0);
                values.weights.push(sample.weight);
            }
            false => match values.weights.first_mut() {
                Some(sum) => *sum = sum.saturating_add(sample.weight),
                None => values.weights.push(sample.weight),
            },
        }
    }
}

impl Sink for OtlpWriter {
    fn take_some(&mut self, profile: &Profile, names: &Arc<Names>, kept: &mut dyn FnMut(&Sample) -> bool) -> bool {
        let mut cursor = std::mem::take(&mut self.cursor);
        let is_known = self.names.replace(Arc::clone(names)).is_some_and(|known| Arc::ptr_eq(&known, names));
        if !is_known {
            self.frames.clear();
        }
        if cursor.has_new_ids(profile) || !is_known {
            self.stacks.forget();
            self.threads.forget();
        }
        let more = cursor.advance(profile, kept, |sample| self.sample(profile, names, sample));
        self.cursor = cursor;
        more
    }

    fn tell(&mut self, about: &About, _processes: &Processes) {
        self.about = about.clone();
    }

    fn end(&mut self) -> Result<(), FormatError> {
        let file = self.file();
        self.out = if self.is_json { of_message(&file) } else { file };
        Ok(())
    }

    fn bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn samples(&self) -> u64 {
        self.cursor.samples
    }

    fn missed(&self) -> u64 {
        self.cursor.missed
    }
}

/// `AnyValue` with a text, or with a number.
fn text_value(text: &str) -> Message {
    let mut value = Message::default();
    value.bytes(1, text.as_bytes());
    value
}

fn number_value(number: u64) -> Message {
    let mut value = Message::default();
    value.present(3, number);
    value
}

/// Appends a `KeyValue` to a resource.
fn attribute_of(resource: &mut Message, key: &str, value: &Message) {
    let mut attribute = Message::default();
    attribute.bytes(1, key.as_bytes());
    attribute.bytes(2, &value.0);
    resource.bytes(1, &attribute.0);
}

impl OtlpWriter {
    fn file(&mut self) -> Vec<u8> {
        let mut file = Message::default();
        let samples = std::mem::take(&mut self.samples);
        // Samples by process, and by source.
        let mut processes: BTreeMap<OfProcess, BySource> = BTreeMap::new();
        for (key, values) in samples {
            let Some(thread) = self.thread.get(key.thread as usize) else { continue };
            processes.entry(thread.process.clone()).or_default().entry(key.source).or_default().push((key, values));
        }
        for (process, sources) in processes {
            let resource = self.resource(&process);
            let mut scope = Message::default();
            scope.bytes(1, b"flametop");
            scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            let mut of_scope = Message::default();
            of_scope.bytes(1, &scope.0);
            for (source, samples) in sources {
                let profile = self.profile(source, &samples);
                of_scope.bytes(2, &profile.0);
            }
            let mut of_resource = Message::default();
            of_resource.bytes(1, &resource.0);
            of_resource.bytes(2, &of_scope.0);
            file.bytes(data::RESOURCES, &of_resource.0);
        }
        file.bytes(data::DICTIONARY, &self.dictionary().0);
        file.0
    }

    fn resource(&self, process: &OfProcess) -> Message {
        let OfProcess { tgid, name, cgroup } = process;
        let path = self.about.cgroups.get(cgroup).map_or("", |path| path);
        let place = Place::of(path);
        let pod = place.pod.map(|pod| pod.replace('_', "-"));
        let container = self.about.containers.get(cgroup).map_or("", |name| name);
        let in_pod: Vec<&str> = container.split('/').collect();
        let is_in_pod = in_pod.len() == keys::IN_POD.len();
        let texts = [
            (keys::SERVICE, Some(&**name)),
            (keys::PROGRAM, Some(&**name)),
            (keys::HOST, Some(&*self.about.host)),
            (keys::CONTAINER, place.container),
            (keys::CONTAINER_NAME, Some(container).filter(|_| !is_in_pod)),
            (keys::POD, pod.as_deref()),
            (keys::CGROUP, Some(path)),
        ];
        let is_said = |key: &str| self.attributes.iter().any(|(name, _)| name == key);
        let mut resource = Message::default();
        let of_pod = keys::IN_POD.into_iter().zip(in_pod.into_iter().map(Some)).filter(|_| is_in_pod);
        for (key, value) in texts.into_iter().chain(of_pod) {
            if let Some(value) = value.filter(|value| !value.is_empty() && !is_said(key)) {
                attribute_of(&mut resource, key, &text_value(value));
            }
        }
        if *tgid > 0 {
            attribute_of(&mut resource, keys::PROCESS, &number_value((*tgid).into()));
        }
        for (key, value) in &self.attributes {
            attribute_of(&mut resource, key, &text_value(value));
        }
        resource
    }

    fn value_type(&mut self, what: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.dictionary.text(what).into());
        message.number(2, self.dictionary.text(unit).into());
        message
    }

    fn profile(&mut self, source: EventSource, samples: &[(Key, Values)]) -> Message {
        let (unit, name) =
            self.sources.get(&source).map_or((Unit::Samples, String::new()), |source| (source.unit, source.name.clone()));
        let frequency = self.about.frequency;
        let (word, period) = match unit {
            Unit::Samples => ("count", 1_000_000_000u64.checked_div(frequency.into())),
            Unit::Events => ("count", None),
            Unit::Nanoseconds => ("nanoseconds", None),
            Unit::Bytes => ("bytes", None),
        };
        let what = if unit == Unit::Samples {
            "samples"
        } else if name.is_empty() {
            "events"
        } else {
            &name
        };
        let mut profile = Message::default();
        profile.bytes(1, &self.value_type(what, word).0);
        let (has_times, has_cpus) = self.has;
        let all_count_once = samples.iter().flat_map(|(_, values)| &values.weights).all(|weight| *weight == 1);
        for (key, values) in samples {
            let mut attributes = Vec::new();
            if let Some(OfThread { tid, name, .. }) = self.thread.get(key.thread as usize).cloned() {
                if tid > 0 {
                    attributes.push(self.dictionary.attribute(keys::THREAD, Attribute::Number(tid.into())).into());
                }
                if !name.is_empty() {
                    attributes.push(self.dictionary.attribute(keys::THREAD_NAME, Attribute::Text(name)).into());
                }
            }
            if has_cpus {
                attributes.push(self.dictionary.attribute(keys::CPU, Attribute::Number(key.cpu.into())).into());
            }
            let mut sample = Message::default();
            sample.number(1, key.stack.into());
            sample.numbers(2, &attributes);
            if !(has_times && all_count_once) {
                sample.numbers(4, &values.weights);
            }
            if has_times {
                sample.fixed_numbers(5, values.times.iter().map(|time| self.unix(*time)));
            }
            profile.bytes(2, &sample.0);
        }
        if has_times {
            let times = || samples.iter().flat_map(|(_, values)| &values.times);
            let (first, last) = (times().min().copied().unwrap_or(0), times().max().copied().unwrap_or(0));
            profile.fixed_number(3, self.unix(first));
            profile.number(4, last - first + 1);
        }
        let period_type = if period.is_some() { self.value_type("cpu", "nanoseconds") } else { Message::default() };
        profile.bytes(5, &period_type.0);
        profile.number(6, period.unwrap_or(0));
        profile
    }

    /// Returns a time since 1970; since the clock's start, if the time of day is not known.
    fn unix(&self, time: u64) -> u64 {
        time.saturating_add_signed(self.about.utc.unwrap_or(0))
    }

    fn dictionary(&mut self) -> Message {
        let build_ids: Vec<u32> = self
            .dictionary
            .mappings
            .rows
            .clone()
            .into_iter()
            .map(|(_, id)| match id {
                Some(id) => self.dictionary.attribute(keys::BUILD_ID, Attribute::Text(id.to_string().into())),
                None => 0,
            })
            .collect();
        let Dictionary { strings, mappings, functions, locations, trie, stacks, attributes } = &self.dictionary;
        let mut all = Message::default();
        // The empty rows.
        for table in [
            tables::MAPPINGS,
            tables::LOCATIONS,
            tables::FUNCTIONS,
            tables::LINKS,
            tables::STRINGS,
            tables::ATTRIBUTES,
            tables::STACKS,
        ] {
            all.bytes(table, &[]);
        }
        for ((path, _), build_id) in mappings.rows.iter().zip(build_ids) {
            let mut row = Message::default();
            row.number(4, (*path).into());
            if build_id > 0 {
                row.numbers(5, &[build_id.into()]);
            }
            all.bytes(tables::MAPPINGS, &row.0);
        }
        for Location { mapping, kind, lines } in &locations.rows {
            let mut row = Message::default();
            row.number(1, (*mapping).into());
            for (function, line) in lines {
                let mut message = Message::default();
                message.number(1, (*function).into());
                message.number(2, (*line).into());
                row.bytes(3, &message.0);
            }
            if *kind > 0 {
                row.numbers(4, &[(*kind).into()]);
            }
            all.bytes(tables::LOCATIONS, &row.0);
        }
        for (name, file, line) in &functions.rows {
            let mut row = Message::default();
            row.number(1, (*name).into());
            row.number(3, (*file).into());
            row.number(4, (*line).into());
            all.bytes(tables::FUNCTIONS, &row.0);
        }
        for text in &strings.rows {
            all.bytes(tables::STRINGS, text.as_bytes());
        }
        for (key, value) in &attributes.rows {
            let mut row = Message::default();
            row.number(1, (*key).into());
            let value = match value {
                Attribute::Text(text) => text_value(text),
                Attribute::Number(number) => number_value(*number),
            };
            row.bytes(2, &value.0);
            all.bytes(tables::ATTRIBUTES, &row.0);
        }
        let mut locations = Vec::new();
        let place = |number: u32| (number as usize).checked_sub(1).and_then(|number| trie.rows.get(number)).copied();
        for stack in &stacks.rows {
            // Innermost first.
            locations.clear();
            let mut at = place(*stack);
            while let Some((caller, location)) = at {
                locations.push(u64::from(location));
                at = place(caller);
            }
            let mut message = Message::default();
            message.numbers(1, &locations);
            all.bytes(tables::STACKS, &message.0);
        }
        all
    }
}
