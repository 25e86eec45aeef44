//! Reads profiles. The whole file is kept in memory: its tables come after the samples that refer to them.

use std::borrow::Cow;
use std::io::BufRead;

use super::json::to_message;
use super::{FRAME_TYPES, data, keys, tables};
use crate::formats::FormatError;
use crate::formats::protobuf::{Fields, Value};
use crate::formats::reading::{DEEPEST, Destination, Opened, unit_called};
use crate::formats::stacks::{Place, Stacks};
use crate::formats::varint;
use crate::profile::{Cpu, FrameId, FrameKind, StackId, ThreadIndex, Unit};

/// Most functions that are inlined at one place. Many stacks may have that place.
const MOST_INLINED: usize = 256;

/// Whether a file that begins with these bytes is such a profile. It has no mark: its first message must contain a message that fits into it,
/// whose first field is one of those that it may have.
pub(in crate::formats) fn recognizes(head: &[u8]) -> bool {
    let mut rest = head;
    let mut message = || -> Option<(u64, u64, usize)> {
        let tag = varint::take(&mut rest)?;
        let size = if tag & 7 == 2 { varint::take(&mut rest)? } else { 0 };
        Some((tag, size, rest.len()))
    };
    let Some((outer, outer_size, before)) = message().filter(|(tag, ..)| matches!(tag, 0x0a | 0x12)) else { return false };
    let Some((inner, inner_size, after)) = message() else { return false };
    if inner_size + (before - after) as u64 > outer_size {
        return false;
    }
    let first = if inner_size == 0 { None } else { message().map(|(tag, ..)| tag) };
    match (outer, inner) {
        // A resource has attributes, or how many were dropped.
        (0x0a, 0x0a) => matches!(first, None | Some(0x0a | 0x10)),
        // Scope profiles have a scope, profiles, or an address of their schema.
        (0x0a, 0x12) => matches!(first, None | Some(0x0a | 0x12 | 0x1a)),
        // A table of the dictionary begins with its empty row.
        (0x12, 0x0a | 0x12 | 0x1a | 0x22 | 0x2a | 0x32 | 0x3a) => first.is_none(),
        _ => false,
    }
}

/// Reads a profile into the tables.
pub(in crate::formats) fn open(input: &mut dyn BufRead, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(FormatError::Read)?;
    read(&bytes, into)
}

/// Reads a profile in JSON into the tables.
pub(in crate::formats) fn open_json(text: &[u8], into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    read(&to_message(text)?, into)
}

fn read(bytes: &[u8], into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut fields = Fields::of(bytes);
    let mut resources = Vec::new();
    let mut dictionary = Dictionary::default();
    for (number, value) in fields.by_ref() {
        match number {
            data::RESOURCES => resources.push(value.bytes()),
            data::DICTIONARY => dictionary.add(value.bytes()),
            _ => {}
        }
    }
    let cut = fields.is_damaged().then(|| bytes.len() - fields.left());
    if dictionary.strings.is_empty() {
        return Err(FormatError::Otlp { what: "it has no table of texts".to_owned() });
    }
    let profiles: Vec<(&[u8], &[u8])> = resources
        .iter()
        .flat_map(|resource| {
            let scopes = parts(resource, 2).flat_map(|scope| parts(scope, 2));
            scopes.map(|profile| (part(resource, 1), profile))
        })
        .collect();
    // Times count from the first one.
    let begin = profiles.iter().map(|(_, profile)| first_time(profile)).filter(|time| *time > 0).min().unwrap_or(0);
    let is_old = profiles.iter().flat_map(|(_, profile)| parts(profile, 2)).find_map(is_old).unwrap_or(false);
    let mut stacks = Stacks::new(into);
    stacks.has_threads = true;
    let about = stacks.about.get_or_insert_default();
    about.utc = i64::try_from(begin).ok().filter(|begin| *begin > 0);
    about.wall = about.utc;
    let mut reader = Reader {
        dictionary: &dictionary,
        stacks,
        known: vec![None; dictionary.stacks.len()],
        locations: Vec::new(),
        begin,
        is_old,
    };
    reader.locations.resize(dictionary.locations.len(), None);
    for (resource, profile) in profiles {
        reader.profile(resource, profile);
    }
    if let Some(at) = cut {
        reader.stacks.remarks.push(format!("the file is cut or damaged at byte {at}; what is before it was read"));
    }
    reader.stacks.end()
}

/// Returns the messages of a repeated field.
fn parts(message: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    Fields::of(message)
        .filter(move |(number, value)| *number == field && matches!(value, Value::Bytes(_)))
        .map(|(_, value)| value.bytes())
}

fn part(message: &[u8], field: u64) -> &[u8] {
    parts(message, field).last().unwrap_or_default()
}

fn number(message: &[u8], field: u64) -> u64 {
    Fields::of(message).filter(|(number, _)| *number == field).last().map_or(0, |(_, value)| value.number())
}

/// Whether a sample has the numbers of fields of version 1.9; `None` if both versions are possible.
fn is_old(sample: &[u8]) -> Option<bool> {
    Fields::of(sample).find_map(|(number, value)| match (number, value) {
        (3, Value::Bytes(_)) => Some(true),
        (4, Value::Bytes(_)) => Some(false),
        _ => None,
    })
}

/// Returns when a profile begins: 0 if it has no time.
fn first_time(profile: &[u8]) -> u64 {
    let mut first = number(profile, 3);
    for sample in parts(profile, 2) {
        each_time(sample, |time| first = if first == 0 { time } else { first.min(time) });
    }
    first
}

fn each_time(sample: &[u8], mut each: impl FnMut(u64)) {
    Fields::of(sample).filter(|(number, _)| *number == 5).for_each(|(_, value)| value.fixed_numbers(&mut each));
}

/// The tables, by index.
#[derive(Default)]
struct Dictionary<'a> {
    mappings: Vec<&'a [u8]>,
    locations: Vec<&'a [u8]>,
    functions: Vec<&'a [u8]>,
    strings: Vec<&'a [u8]>,
    attributes: Vec<&'a [u8]>,
    stacks: Vec<&'a [u8]>,
}

/// The value of an attribute.
enum Given<'a> {
    Text(Cow<'a, str>),
    Number(u64),
}

impl Given<'_> {
    /// Returns a number, which may be written as a text.
    fn number(&self) -> Option<u32> {
        match self {
            Given::Number(number) => u32::try_from(*number).ok(),
            Given::Text(text) => text.parse().ok(),
        }
    }
}

impl<'a> Dictionary<'a> {
    /// Adds the rows of a dictionary. Messages that follow each other are one message.
    fn add(&mut self, message: &'a [u8]) {
        for (number, value) in Fields::of(message) {
            let table = match number {
                tables::MAPPINGS => &mut self.mappings,
                tables::LOCATIONS => &mut self.locations,
                tables::FUNCTIONS => &mut self.functions,
                tables::STRINGS => &mut self.strings,
                tables::ATTRIBUTES => &mut self.attributes,
                tables::STACKS => &mut self.stacks,
                _ => continue,
            };
            table.push(value.bytes());
        }
    }

    fn text(&self, index: u64) -> Cow<'a, str> {
        let bytes = row(&self.strings, index).unwrap_or_default();
        String::from_utf8_lossy(bytes)
    }

    /// Returns the value of an `AnyValue`.
    fn value(&self, message: &'a [u8]) -> Option<Given<'a>> {
        Fields::of(message).find_map(|(number, value)| match number {
            1 => Some(Given::Text(String::from_utf8_lossy(value.bytes()))),
            3 => Some(Given::Number(value.number())),
            8 => Some(Given::Text(self.text(value.number()))),
            _ => None,
        })
    }

    /// Returns the key and the value of a row of attributes.
    fn attribute(&self, index: u64) -> Option<(Cow<'a, str>, Given<'a>)> {
        let row = row(&self.attributes, index)?;
        Some((self.text(number(row, 1)), self.value(part(row, 2))?))
    }

    /// Returns the key and the value of a resource's attribute.
    fn key_value(&self, message: &'a [u8]) -> Option<(Cow<'a, str>, Given<'a>)> {
        let key = match part(message, 1) {
            [] => self.text(number(message, 3)),
            key => String::from_utf8_lossy(key),
        };
        Some((key, self.value(part(message, 2))?))
    }
}

fn row<'a>(table: &[&'a [u8]], index: u64) -> Option<&'a [u8]> {
    table.get(usize::try_from(index).ok()?).copied()
}

struct Reader<'a, 'b, 'c> {
    dictionary: &'a Dictionary<'a>,
    stacks: Stacks<'b, 'c>,
    /// The stack of each row of stacks.
    known: Vec<Option<StackId>>,
    /// The frames of each row of locations, outermost first.
    locations: Vec<Option<Box<[FrameId]>>>,
    begin: u64,
    is_old: bool,
}

/// The process of a resource.
#[derive(Default)]
struct Process {
    number: u32,
    name: String,
}

impl<'a> Reader<'a, '_, '_> {
    fn process(&mut self, resource: &'a [u8]) -> Process {
        let mut process = Process::default();
        let mut service = String::new();
        for attribute in parts(resource, 1) {
            let Some((key, value)) = self.dictionary.key_value(attribute) else { continue };
            match (&*key, value) {
                (keys::PROCESS, value) => process.number = value.number().unwrap_or(0),
                (keys::PROGRAM, Given::Text(name)) => process.name = name.into_owned(),
                (keys::SERVICE, Given::Text(name)) => service = name.into_owned(),
                (keys::HOST, Given::Text(name)) => {
                    let host = crate::profile::sanitize(&name).into_owned();
                    self.stacks.about.get_or_insert_default().host = host;
                }
                _ => {}
            }
        }
        if process.name.is_empty() {
            process.name = service;
        }
        process
    }

    fn profile(&mut self, resource: &'a [u8], profile: &'a [u8]) {
        let process = self.process(resource);
        let of = part(profile, 1);
        let (name, word) = (self.dictionary.text(number(of, 1)), self.dictionary.text(number(of, 2)));
        let (unit, scale) = unit_called(&name, &word);
        let name = crate::profile::sanitize(&name).into_owned();
        let period = number(profile, 6);
        if unit == Unit::Samples && period > 0 {
            let hertz = (1e9 / period as f64).round();
            let about = self.stacks.about.get_or_insert_default();
            about.frequency = if (1.0..=1e6).contains(&hertz) { hertz as u32 } else { 0 };
        }
        let (of_values, of_attributes) = if self.is_old { (2, 3) } else { (4, 2) };
        let (mut values, mut times) = (Vec::new(), Vec::new());
        for sample in parts(profile, 2) {
            values.clear();
            times.clear();
            let mut attributes = Vec::new();
            let mut stack = 0;
            for (number, value) in Fields::of(sample) {
                match number {
                    1 => stack = value.number(),
                    5 => value.fixed_numbers(|time| times.push(time)),
                    _ if number == of_values => value.numbers(|value| values.push(value)),
                    _ if number == of_attributes => value.numbers(|attribute| attributes.push(attribute)),
                    _ => {}
                }
            }
            let (thread, cpu) = self.thread(&process, &attributes);
            let stack = self.stack(stack);
            // Values and times, values alone, or times alone.
            for at in 0..values.len().max(times.len()) {
                let weight = if values.is_empty() { 1.0 } else { values.get(at).map_or(0.0, |value| *value as i64 as f64) };
                let time = times.get(at).map(|time| time.saturating_sub(self.begin));
                self.stacks.add_on(cpu, thread, stack, time, weight * scale as f64, (unit, &name));
            }
        }
    }

    fn thread(&mut self, process: &Process, attributes: &[u64]) -> (ThreadIndex, Option<Cpu>) {
        let (mut tid, mut name, mut cpu) = (process.number, None, None);
        for attribute in attributes {
            match self.dictionary.attribute(*attribute) {
                Some((key, value)) if key == keys::THREAD => tid = value.number().unwrap_or(tid),
                Some((key, Given::Text(text))) if key == keys::THREAD_NAME => name = Some(text),
                Some((key, value)) if key == keys::CPU => cpu = value.number().and_then(|cpu| u16::try_from(cpu).ok()).map(Cpu),
                _ => {}
            }
        }
        let name = name.unwrap_or(Cow::Borrowed(&process.name));
        (self.stacks.thread(process.number, tid, &process.name, &name), cpu)
    }

    fn stack(&mut self, index: u64) -> StackId {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(known) = self.known.get(at).copied().flatten() {
            return known;
        }
        let mut locations = Vec::new();
        for (_, value) in Fields::of(row(&self.dictionary.stacks, index).unwrap_or_default()).filter(|(number, _)| *number == 1) {
            value.numbers(|location| locations.push(location));
        }
        let mut frames: Vec<FrameId> = Vec::new();
        for location in locations.into_iter().rev() {
            self.push_location(location, &mut frames);
        }
        frames.truncate(DEEPEST);
        let stack = self.stacks.stack(frames.into_iter());
        if let Some(place) = self.known.get_mut(at) {
            *place = Some(stack);
        }
        stack
    }

    /// Appends the frames of a location, outermost first.
    fn push_location(&mut self, index: u64, frames: &mut Vec<FrameId>) {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if self.locations.get(at).is_some_and(Option::is_none) {
            let made = self.location(row(&self.dictionary.locations, index).unwrap_or_default());
            if let Some(place) = self.locations.get_mut(at) {
                *place = Some(made);
            }
        }
        frames.extend_from_slice(self.locations.get(at).and_then(Option::as_deref).unwrap_or_default());
    }

    fn location(&mut self, location: &[u8]) -> Box<[FrameId]> {
        let dictionary = self.dictionary;
        let mapping = row(&dictionary.mappings, number(location, 1)).unwrap_or_default();
        let path = dictionary.text(number(mapping, 4));
        let mut kind = None;
        for (_, value) in Fields::of(location).filter(|(number, _)| *number == 4) {
            value.numbers(|attribute| match dictionary.attribute(attribute) {
                Some((key, Given::Text(word))) if key == keys::FRAME_TYPE => {
                    kind = FRAME_TYPES.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind);
                }
                _ => {}
            });
        }
        let kind = kind.unwrap_or(FrameKind::User);
        let mut lines: Vec<&[u8]> = parts(location, 3).take(MOST_INLINED).collect();
        lines.reverse();
        if lines.is_empty() {
            let (short, address) = (path.rsplit('/').next().unwrap_or_default(), number(location, 2));
            let name = if short.is_empty() { format!("{address:#x}") } else { format!("{short}+{address:#x}") };
            let kind = if kind == FrameKind::User { FrameKind::Unknown } else { kind };
            return Box::new([self.stacks.frame(&name, Place { file: &path, ..Place::default() }, kind)]);
        }
        let frame = |(at, line): (usize, &&[u8])| {
            let function = row(&dictionary.functions, number(line, 1)).unwrap_or_default();
            let (name, file) = (dictionary.text(number(function, 1)), dictionary.text(number(function, 3)));
            let of = |number: u64| u32::try_from(number).ok().filter(|line| *line > 0);
            // A native function's label has the object that holds its code, not its source file.
            let is_native = matches!(kind, FrameKind::User | FrameKind::Kernel);
            let place = match &*file {
                _ if is_native && !path.is_empty() => Place { file: &path, ..Place::default() },
                "" => Place { file: &path, ..Place::default() },
                file => Place { file, function: of(number(function, 4)), column: None, line: of(number(line, 2)) },
            };
            let kind = if at > 0 && kind == FrameKind::User { FrameKind::Inlined } else { kind };
            let name = if name.is_empty() { "[unknown]" } else { &*name };
            self.stacks.frame(name, place, kind)
        };
        lines.iter().enumerate().map(frame).collect()
    }
}
