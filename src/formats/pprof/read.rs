//! Reads pprof files. The whole file is kept in memory: its tables may come after the samples that refer to them.

use std::io::BufRead;

use rustc_hash::FxHashMap;

use crate::formats::FormatError;
use crate::formats::packed::HEAD;
use crate::formats::protobuf::{Fields, Value};
use crate::formats::reading::{DEEPEST, Destination, Opened, frame_at, kind_named, unit_called};
use crate::profile::{EventSource, EventStatus, FrameId, FrameKind, Language, Sample, StackId, Thread, ThreadIndex, Unit};

/// Most kinds of values in a file.
const MOST_TYPES: usize = 60;
/// Fields of `Profile`.
const SAMPLE_TYPE: u64 = 1;
const SAMPLE: u64 = 2;
const MAPPING: u64 = 3;
const LOCATION: u64 = 4;
const FUNCTION: u64 = 5;
const STRING: u64 = 6;
const DURATION: u64 = 10;
const PERIOD_TYPE: u64 = 11;
const COMMENT: u64 = 13;
const DEFAULT_TYPE: u64 = 14;

/// Whether a file that begins with these bytes is a pprof profile. It has no mark, and its fields may come in any order. So all fields must be
/// those of a profile, but for the last one, which may be cut.
pub(in crate::formats) fn recognizes(head: &[u8]) -> bool {
    let mut fields = Fields::of(head);
    let mut messages = 0;
    for (number, value) in fields.by_ref() {
        match (number, value) {
            (SAMPLE_TYPE | SAMPLE | MAPPING | LOCATION | FUNCTION, Value::Bytes(message)) if is_part(number, message) => {
                messages += 1
            }
            (STRING, Value::Bytes(text)) if std::str::from_utf8(text).is_ok() => {}
            (PERIOD_TYPE, Value::Bytes(message)) if is_part(SAMPLE_TYPE, message) => {}
            (COMMENT, _) | (7..=10 | 12 | 14 | 15, Value::Number(_)) => {}
            _ => return false,
        }
    }
    messages > 0 && (!fields.is_damaged() || head.len() >= HEAD)
}

/// Whether these are the fields of a part of a profile, by the part's number there.
fn is_part(of: u64, message: &[u8]) -> bool {
    let mut fields = Fields::of(message);
    let are_known = fields.by_ref().all(|(number, value)| {
        let is_number = matches!(value, Value::Number(_));
        match of {
            SAMPLE_TYPE => is_number && (1..=2).contains(&number),
            SAMPLE => (1..=2).contains(&number) || number == 3 && !is_number,
            MAPPING => is_number && (1..=10).contains(&number),
            LOCATION => is_number != (number == 4) && (1..=5).contains(&number),
            _ => is_number && (1..=5).contains(&number),
        }
    });
    are_known && !fields.is_damaged()
}

/// Reads a profile into the tables. Each kind of value becomes a source.
pub(in crate::formats) fn open(input: &mut dyn BufRead, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(FormatError::Read)?;
    let mut fields = Fields::of(&bytes);
    let tables = Tables::of(&mut fields)?;
    let cut = fields.is_damaged().then(|| bytes.len() - fields.left());
    let mut reader = Reader {
        into,
        tables: &tables,
        functions: FxHashMap::default(),
        locations: FxHashMap::default(),
        frames: Vec::new(),
        last: Default::default(),
        skipped: 0,
    };
    reader.samples(&bytes)?;
    let skipped = reader.skipped;
    let profile = &mut *into.profile;
    if profile.samples.is_empty() {
        return Err(FormatError::NoSamples);
    }
    profile.events = tables.types.iter().map(|of| of.status.clone()).collect();
    let mut capabilities = profile.capabilities();
    capabilities.events = tables.types.len() > 1;
    profile.set_capabilities(capabilities);
    let mut remarks = Vec::new();
    if let Some(at) = cut {
        remarks.push(format!("the file is cut or damaged at byte {at}; what is before it was read"));
    }
    if skipped > 0 {
        remarks.push(format!("{skipped} values below 0 were left out"));
    }
    Ok(Opened { remarks, source: Some(tables.shown), ..Opened::default() })
}

/// A kind of value.
struct Type {
    status: EventStatus,
    unit: Unit,
    /// A value of 1 in this unit.
    scale: u64,
}

#[derive(Default)]
struct Function {
    name: u64,
    file: u64,
}

#[derive(Default)]
struct Location<'a> {
    mapping: u64,
    address: u64,
    message: &'a [u8],
}

/// The tables of a file. Its samples refer to them.
struct Tables<'a> {
    strings: Vec<&'a [u8]>,
    types: Vec<Type>,
    /// The kind of value that is shown first.
    shown: EventSource,
    /// The file names of mappings.
    mappings: FxHashMap<u64, u64>,
    functions: FxHashMap<u64, Function>,
    locations: FxHashMap<u64, Location<'a>>,
    seconds: f64,
}

impl<'a> Tables<'a> {
    fn of(fields: &mut Fields<'a>) -> Result<Tables<'a>, FormatError> {
        let mut tables = Tables {
            strings: Vec::new(),
            types: Vec::new(),
            shown: EventSource::FILE,
            mappings: FxHashMap::default(),
            functions: FxHashMap::default(),
            locations: FxHashMap::default(),
            seconds: 0.0,
        };
        let mut types = Vec::new();
        let mut default = 0;
        for (number, value) in fields {
            match number {
                SAMPLE_TYPE => types.push(numbers(value.bytes(), [1, 2])),
                MAPPING => {
                    let [id, file] = numbers(value.bytes(), [1, 5]);
                    tables.mappings.insert(id, file);
                }
                LOCATION => {
                    let [id, mapping, address] = numbers(value.bytes(), [1, 2, 3]);
                    tables.locations.insert(id, Location { mapping, address, message: value.bytes() });
                }
                FUNCTION => {
                    let [id, name, file] = numbers(value.bytes(), [1, 2, 4]);
                    tables.functions.insert(id, Function { name, file });
                }
                STRING => tables.strings.push(value.bytes()),
                DURATION => tables.seconds = value.number() as f64 / 1e9,
                DEFAULT_TYPE => default = value.number(),
                _ => {}
            }
        }
        if types.is_empty() || types.len() > MOST_TYPES {
            return Err(FormatError::Pprof { what: format!("it has {} kinds of values", types.len()) });
        }
        let named = types.iter().position(|[name, _]| default != 0 && *name == default).unwrap_or(types.len() - 1);
        for (source, [name, unit]) in (1u8..).zip(&types) {
            let of = tables.value_type(EventSource(source), *name, *unit);
            tables.types.push(of);
        }
        tables.shown = tables.types.get(named).map_or(EventSource::FILE, |of| of.status.source);
        Ok(tables)
    }

    fn value_type(&self, source: EventSource, name: u64, unit: u64) -> Type {
        let (name, word) = (self.text(name).into_owned(), self.text(unit));
        let (unit, scale) = unit_called(&name, &word);
        let status = EventStatus { source, name, how: word.into_owned().into(), ..EventStatus::default() };
        Type { status, unit, scale }
    }

    fn text(&self, number: u64) -> std::borrow::Cow<'_, str> {
        let bytes = usize::try_from(number).ok().and_then(|number| self.strings.get(number)).copied().unwrap_or_default();
        match String::from_utf8_lossy(bytes) {
            std::borrow::Cow::Borrowed(text) => crate::profile::sanitize(text),
            std::borrow::Cow::Owned(text) => crate::profile::sanitize(&text).into_owned().into(),
        }
    }
}

/// Returns the numbers of a message's fields; 0 for a field that is not there.
fn numbers<const N: usize>(message: &[u8], fields: [u64; N]) -> [u64; N] {
    let mut found = [0; N];
    for (number, value) in Fields::of(message) {
        if let Some(place) = fields.iter().position(|field| *field == number).and_then(|at| found.get_mut(at)) {
            *place = value.number();
        }
    }
    found
}

struct Reader<'a, 'b, 'c> {
    into: &'a mut Destination<'b>,
    tables: &'c Tables<'c>,
    functions: FxHashMap<(u64, u64, u64, bool), FrameId>,
    /// The frames of each location: a part of `frames`.
    locations: FxHashMap<u64, (usize, usize)>,
    /// Frames, outermost first.
    frames: Vec<FrameId>,
    /// The locations of the last sample, innermost first; and the stacks that end at them, outermost first.
    last: (Vec<u64>, Vec<StackId>),
    /// Values below 0.
    skipped: u64,
}

impl Reader<'_, '_, '_> {
    fn samples(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let label = self.into.names.labels.intern("[file]", "", FrameKind::Process);
        let thread = self.into.profile.threads.intern(Thread { process: label, name: label, ..Thread::default() });
        for of in &self.tables.types {
            self.into.profile.set_unit(of.status.source, of.unit);
        }
        let (mut locations, mut values) = (Vec::new(), Vec::new());
        for (at, (number, value)) in Fields::of(bytes).enumerate() {
            if number != SAMPLE {
                continue;
            }
            locations.clear();
            values.clear();
            for (number, value) in Fields::of(value.bytes()) {
                match number {
                    1 => value.numbers(|id| locations.push(id)),
                    2 => value.numbers(|value| values.push(value.cast_signed())),
                    _ => {}
                }
            }
            if locations.len() > DEEPEST || values.len() != self.tables.types.len() {
                let (values, types) = (values.len(), self.tables.types.len());
                let what =
                    format!("its field {at} is a sample of {} frames with {values} values of {types} kinds", locations.len());
                return Err(FormatError::Pprof { what });
            }
            let stack = self.stack(&mut locations);
            self.sample(thread, stack, &values);
        }
        Ok(())
    }

    /// Returns the stack of these locations, innermost first, and leaves other ones in their place. The frames that it shares with the last
    /// sample's stack are not looked up again.
    fn stack(&mut self, locations: &mut Vec<u64>) -> StackId {
        let shared = self.last.0.iter().rev().zip(locations.iter().rev()).take_while(|(last, now)| last == now).count();
        self.last.1.truncate(shared);
        let mut stack = self.last.1.last().copied().unwrap_or_default();
        for id in locations.iter().rev().skip(shared) {
            let (start, end) = match self.locations.get(id) {
                Some(range) => *range,
                None => {
                    let new = self.location(*id);
                    let range = (self.frames.len(), self.frames.len() + new.len());
                    self.frames.extend(new);
                    *self.locations.entry(*id).or_insert(range)
                }
            };
            let frames = self.frames.get(start..end).unwrap_or_default();
            stack = frames.iter().fold(stack, |stack, frame| self.into.profile.stacks.child(stack, *frame));
            self.last.1.push(stack);
        }
        std::mem::swap(&mut self.last.0, locations);
        stack
    }

    fn sample(&mut self, thread: ThreadIndex, stack: StackId, values: &[i64]) {
        let profile = &mut *self.into.profile;
        // How often the stack was seen is a count, usually the first value.
        let is_count = |of: &Type| matches!(of.unit, Unit::Samples | Unit::Events);
        let seen = self.tables.types.iter().zip(values).find(|(of, _)| is_count(of)).map_or(1, |(_, value)| *value);
        let observations = u32::try_from(seen.max(1)).unwrap_or(u32::MAX);
        for (of, value) in self.tables.types.iter().zip(values) {
            match u64::try_from(*value) {
                Ok(0) => {}
                Ok(value) => {
                    let weight = value.saturating_mul(of.scale).min(i64::MAX as u64 >> 16);
                    profile.samples.push(Sample {
                        stack,
                        thread,
                        weight,
                        observations,
                        source: of.status.source,
                        ..Sample::default()
                    });
                }
                Err(_) => self.skipped += 1,
            }
        }
    }

    /// Returns the frames of a location, outermost first.
    fn location(&mut self, id: u64) -> Vec<FrameId> {
        let Some(Location { mapping, address, message }) = self.tables.locations.get(&id) else {
            return vec![self.unknown()];
        };
        let file = self.tables.text(self.tables.mappings.get(mapping).copied().unwrap_or(0));
        let lines = Fields::of(message).filter(|(number, _)| *number == 4);
        let mut frames: Vec<FrameId> = Vec::new();
        let mut lines: Vec<[u64; 2]> = lines.map(|(_, line)| numbers(line.bytes(), [1, 2])).collect();
        lines.truncate(DEEPEST);
        for (at, [function, line]) in lines.iter().rev().enumerate() {
            frames.push(self.function(*function, *line, *mapping, &file, at > 0));
        }
        if frames.is_empty() {
            let short = file.rsplit('/').next().unwrap_or_default();
            let name = if short.is_empty() { format!("{address:#x}") } else { format!("{short}+{address:#x}") };
            let label = self.into.names.labels.intern(&name, short, FrameKind::Unknown);
            frames.push(self.into.names.intern_named(label));
        }
        frames
    }

    fn unknown(&self) -> FrameId {
        self.into.names.intern_named(self.into.names.labels.intern("[unknown]", "", FrameKind::Unknown))
    }

    fn function(&mut self, id: u64, line: u64, mapping: u64, module: &str, is_inlined: bool) -> FrameId {
        let names = self.into.names;
        let key = (id, line, mapping, is_inlined);
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        let Some(Function { name, file }) = self.tables.functions.get(&id) else { return self.unknown() };
        let (name, file) = (self.tables.text(*name), self.tables.text(*file));
        let kind = kind_named(&name, kind_of(module, &file, is_inlined));
        let of = if module.is_empty() { &*file } else { module };
        let short = of.rsplit('/').next().unwrap_or_default();
        let name = if name.is_empty() { "[unknown]" } else { &*name };
        let label = names.labels.intern(name, if kind == FrameKind::Kernel { "kernel" } else { short }, kind);
        let frame = frame_at(names, label, &file, line);
        self.functions.insert(key, frame);
        frame
    }
}

fn kind_of(module: &str, file: &str, is_inlined: bool) -> FrameKind {
    let is_kernel = module.starts_with("[kernel") || module.starts_with("[guest.kernel") || module == "[vmlinux]";
    match Language::of_file(file) {
        _ if is_kernel => FrameKind::Kernel,
        Some(language) => FrameKind::Script(language),
        None if is_inlined => FrameKind::Inlined,
        None if module.starts_with("[jit") || module == "[anon]" => FrameKind::Jit,
        None => FrameKind::User,
    }
}
