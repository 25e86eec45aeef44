//! Reads processed profiles.

use serde::Deserialize;

use crate::formats::FormatError;
use crate::profile::{FrameId, FrameKind, StackId, Unit};

use super::{Meta, Number, nanoseconds, nonsense};
use crate::formats::stacks::{Place, Stacks};

#[derive(Deserialize)]
pub(in super::super) struct Document {
    meta: Meta,
    #[serde(default)]
    shared: Tables,
    threads: Vec<Thread>,
}

/// The tables of stacks.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Tables {
    string_array: Vec<String>,
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FunctionTable,
    resource_table: ResourceTable,
    sources: Sources,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StackTable {
    frame: Vec<u32>,
    prefix: Vec<Option<u32>>,
    /// The distance to the caller's stack; 0 if there is no caller.
    prefix_offset: Vec<u32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FrameTable {
    func: Vec<u32>,
    line: Vec<Option<f64>>,
    category: Vec<Option<f64>>,
    inline_depth: Vec<Option<f64>>,
    /// From version 71: 1 for an inlined frame.
    flags: Vec<u32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FunctionTable {
    name: Vec<u32>,
    file_name: Vec<Option<u32>>,
    source: Vec<Option<u32>>,
    line_number: Vec<Option<f64>>,
    column_number: Vec<Option<f64>>,
    resource: Vec<Option<i64>>,
    /// From version 75: 4 for a function with a resource, 8 with a source.
    flags: Vec<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceTable {
    name: Vec<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Sources {
    filename: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    #[serde(default)]
    name: String,
    process_name: Option<String>,
    #[serde(default)]
    pid: Number,
    #[serde(default)]
    tid: Number,
    samples: Samples,
    // Its tables, if threads do not share them.
    #[serde(default, alias = "stringTable")]
    string_array: Vec<String>,
    #[serde(default)]
    stack_table: StackTable,
    #[serde(default)]
    frame_table: FrameTable,
    #[serde(default)]
    func_table: FunctionTable,
    #[serde(default)]
    resource_table: ResourceTable,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Samples {
    stack: Vec<Option<u32>>,
    time: Option<Vec<f64>>,
    time_deltas: Option<Vec<f64>>,
    weight: Option<Vec<Option<f64>>>,
    weight_type: Option<String>,
}

impl Samples {
    /// Returns the unit of the weights, and the value of 1 in it.
    fn unit(&self) -> ((Unit, &'static str), f64) {
        match self.weight_type.as_deref() {
            Some("bytes") => ((Unit::Bytes, "bytes"), 1.0),
            Some("tracing-ms") => ((Unit::Nanoseconds, "time"), 1e6),
            _ => ((Unit::Samples, "samples"), 1.0),
        }
    }
}

pub(in super::super) fn read(document: Document, stacks: &mut Stacks<'_, '_>) -> Result<(), FormatError> {
    let Document { meta, shared, threads } = document;
    meta.tell(stacks);
    let in_common = shared.read(&shared.string_array, &shared.sources, &meta, stacks)?;
    for thread in threads {
        let Thread { name, process_name, pid, tid, samples, string_array, .. } = thread;
        let (stack_table, frame_table) = (thread.stack_table, thread.frame_table);
        let (func_table, resource_table) = (thread.func_table, thread.resource_table);
        let sources = Sources::default();
        let own = Tables { string_array, stack_table, frame_table, func_table, resource_table, sources };
        let names = if own.string_array.is_empty() { &shared.string_array } else { &own.string_array };
        let own = own.read(names, &shared.sources, &meta, stacks)?;
        let known = if own.is_empty() { &in_common } else { &own };
        let process = process_name.filter(|name| !name.is_empty()).unwrap_or_else(|| name.clone());
        let number = stacks.thread(pid.get(), tid.get(), &process, &name);
        let (unit, one) = samples.unit();
        let mut elapsed = 0.0;
        for (index, stack) in samples.stack.iter().enumerate() {
            let delta = samples.time_deltas.as_ref().and_then(|deltas| deltas.get(index)).copied();
            elapsed += delta.unwrap_or(0.0);
            let time = samples.time.as_ref().and_then(|times| times.get(index)).copied().or(delta.map(|_| elapsed));
            // Without a stack, the thread was idle.
            let Some(stack) = stack else { continue };
            let stack = known.get(*stack as usize).copied();
            let stack =
                stack.ok_or_else(|| nonsense(format!("a sample of the thread `{name}` has a stack that is not there")))?;
            let weight = match &samples.weight {
                Some(weights) => weights.get(index).copied().flatten().unwrap_or(0.0),
                None => 1.0,
            };
            stacks.add(number, stack, time.map(nanoseconds), weight * one, unit);
        }
    }
    Ok(())
}

/// A number in a column. Columns may be shorter than their table.
fn at<T: Copy>(column: &[Option<T>], row: usize) -> Option<T> {
    column.get(row).copied().flatten()
}

fn line(number: Option<f64>) -> Option<u32> {
    number.filter(|line| (1.0..1e9).contains(line)).map(|line| line as u32)
}

impl Tables {
    /// Returns the stacks by their numbers.
    fn read(
        &self,
        names: &[String],
        sources: &Sources,
        meta: &Meta,
        stacks: &mut Stacks<'_, '_>,
    ) -> Result<Vec<StackId>, FormatError> {
        let frames = (0..self.frame_table.func.len()).map(|frame| self.frame(frame, names, sources, meta, stacks));
        let frames: Vec<FrameId> = frames.collect::<Result<_, _>>()?;
        let table = &self.stack_table;
        stacks.table(table.frame.iter().enumerate().map(|(row, frame)| {
            let caller = match table.prefix_offset.get(row) {
                Some(0) => None,
                Some(offset) => Some(row.wrapping_sub(*offset as usize)),
                None => at(&table.prefix, row).map(|caller| caller as usize),
            };
            let frame = frames.get(*frame as usize);
            Ok((*frame.ok_or_else(|| nonsense(format!("the stack {row} has a frame that is not there")))?, caller))
        }))
    }

    fn frame(
        &self,
        frame: usize,
        names: &[String],
        sources: &Sources,
        meta: &Meta,
        stacks: &Stacks<'_, '_>,
    ) -> Result<FrameId, FormatError> {
        let (table, functions) = (&self.frame_table, &self.func_table);
        let name_of = |number: Option<&u32>| number.and_then(|number| names.get(*number as usize)).map(|name| &**name);
        let function = table.func.get(frame).map_or(0, |function| *function as usize);
        let missing = || nonsense(format!("the frame {frame} has a function that is not there"));
        let name = name_of(functions.name.get(function)).ok_or_else(missing)?;
        let has = |flag: u32| functions.flags.get(function).is_none_or(|flags| flags & flag != 0);
        let source = at(&functions.source, function).filter(|_| has(8));
        let source = source.and_then(|source| name_of(sources.filename.get(source as usize)));
        let file = source.or_else(|| name_of(at(&functions.file_name, function).as_ref()));
        let resource = at(&functions.resource, function).filter(|_| has(4)).and_then(|number| usize::try_from(number).ok());
        let object = resource.and_then(|resource| name_of(self.resource_table.name.get(resource)));
        let is_inlined = match table.flags.get(frame) {
            Some(flags) => flags & 1 != 0,
            None => at(&table.inline_depth, frame).is_some_and(|depth| depth > 0.0),
        };
        let kind = match meta.kind(at(&table.category, frame)) {
            FrameKind::User if is_inlined => FrameKind::Inlined,
            FrameKind::User if name.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit())) => {
                FrameKind::Unknown
            }
            kind => kind,
        };
        let place = match file {
            Some(file) => {
                let of = |column| line(at(column, function));
                let (function, column) = (of(&functions.line_number), of(&functions.column_number));
                Place { file, function, column, line: line(at(&table.line, frame)) }
            }
            None => Place { file: object.unwrap_or_default(), ..Place::default() },
        };
        Ok(stacks.frame(name, place, kind))
    }
}
