//! Reads Gecko profiles. Each table is a list of rows, and has a schema: the place of each value in a row.

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::formats::FormatError;
use crate::profile::{Begin, FrameId, FrameKind, Language, StackId, Unit};

use super::{Meta, Number, nanoseconds, nonsense};
use crate::formats::stacks::{Place, Stacks};

#[derive(Deserialize)]
pub(in super::super) struct Document {
    #[serde(default)]
    meta: Meta,
    threads: Vec<Thread>,
    /// Profiles of other processes.
    #[serde(default)]
    processes: Vec<Document>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    #[serde(default)]
    name: String,
    process_type: Option<String>,
    #[serde(default)]
    pid: Number,
    #[serde(default)]
    tid: Number,
    samples: Table,
    stack_table: Table,
    frame_table: Table,
    string_table: Vec<String>,
}

#[derive(Deserialize)]
struct Table {
    schema: FxHashMap<String, usize>,
    data: Vec<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Other(IgnoredAny),
}

impl Table {
    /// Returns what finds a number in a row.
    fn column(&self, name: &str) -> impl Fn(&[Value]) -> Option<f64> + use<> {
        let place = self.schema.get(name).copied().unwrap_or(usize::MAX);
        move |row| match row.get(place) {
            Some(Value::Number(number)) => Some(*number),
            Some(Value::Other(_)) | None => None,
        }
    }
}

pub(in super::super) fn read(document: Document, stacks: &mut Stacks<'_, '_>) -> Result<(), FormatError> {
    let Document { meta, threads, processes } = document;
    meta.tell(stacks);
    for thread in threads {
        let process = thread.process_type.as_deref().filter(|kind| *kind != "default").unwrap_or("Firefox");
        let number = stacks.thread(thread.pid.get(), thread.tid.get(), process, &thread.name);
        let known = thread.stacks(&meta, stacks)?;
        let (stack, time) = (thread.samples.column("stack"), thread.samples.column("time"));
        for row in &thread.samples.data {
            let Some(stack) = stack(row) else { continue };
            let stack = known.get(stack as usize).copied();
            let stack = stack
                .ok_or_else(|| nonsense(format!("a sample of the thread `{}` has a stack that is not there", thread.name)))?;
            stacks.add(number, stack, time(row).map(nanoseconds), 1.0, (Unit::Samples, "samples"));
        }
    }
    processes.into_iter().try_for_each(|process| read(process, stacks))
}

impl Thread {
    /// Returns the stacks by their numbers.
    fn stacks(&self, meta: &Meta, stacks: &mut Stacks<'_, '_>) -> Result<Vec<StackId>, FormatError> {
        let table = &self.frame_table;
        let (location, line, category) = (table.column("location"), table.column("line"), table.column("category"));
        let frames = table.data.iter().enumerate().map(|(row, cells)| {
            let text = location(cells).and_then(|text| self.string_table.get(text as usize));
            let text = text.ok_or_else(|| nonsense(format!("the frame {row} has no name")))?;
            let (name, mut place) = split(text);
            if !place.file.is_empty() {
                place.line = line(cells).filter(|line| (1.0..1e9).contains(line)).map(|line| line as u32).or(place.function);
            }
            let kind =
                if place.function.is_some() { FrameKind::Script(Language::JavaScript) } else { meta.kind(category(cells)) };
            Ok(stacks.frame(name, place, kind))
        });
        let frames: Vec<FrameId> = frames.collect::<Result<_, FormatError>>()?;
        let (prefix, frame) = (self.stack_table.column("prefix"), self.stack_table.column("frame"));
        stacks.table(self.stack_table.data.iter().enumerate().map(|(row, cells)| {
            let frame = frame(cells).and_then(|frame| frames.get(frame as usize));
            let frame = frame.ok_or_else(|| nonsense(format!("the stack {row} has a frame that is not there")))?;
            Ok((*frame, prefix(cells).map(|caller| caller as usize)))
        }))
    }
}

/// Splits the text of a frame: `draw (app.js:12:5)`, `draw (app.js:12)`, `malloc (in libc.so.6)`.
fn split(text: &str) -> (&str, Place<'_>) {
    let whole = (text, Place::default());
    let Some((name, place)) = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) else { return whole };
    if let Some(object) = place.strip_prefix("in ") {
        return (name, Place { file: object, ..Place::default() });
    }
    let Some(Begin { file, line, column }) = Begin::parse(place) else { return whole };
    (name, Place { file, function: Some(line), column, line: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_frame_has_a_name_and_a_place() {
        let of = |text| {
            let (name, Place { file, function, column, .. }) = split(text);
            (name, file, function, column)
        };
        assert_eq!(of("draw (app.js:12:5)"), ("draw", "app.js", Some(12), Some(5)));
        assert_eq!(of("draw (http://a:80/app.js:12)"), ("draw", "http://a:80/app.js", Some(12), None));
        assert_eq!(of("malloc (in libc.so.6)"), ("malloc", "libc.so.6", None, None));
        assert_eq!(of("(root)"), ("(root)", "", None, None));
        assert_eq!(of("f (int)"), ("f (int)", "", None, None));
        assert_eq!(of("0x7fff1234"), ("0x7fff1234", "", None, None));
    }
}
