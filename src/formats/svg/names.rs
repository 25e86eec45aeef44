//! The names of a picture, each stored once, and the reference from a box to its name and weights.
//!
//! A table in JSON stands in the file before the boxes. `script.js` reads it:
//!
//! ```text
//! unit      "samples"
//! whole     the weight of everything: [now] or, in a comparison, [now, before]
//! objects   ["libc.so.6", …]
//! files     ["/src/parse.c", …]
//! names     [[short, object, whole, file, line], …]
//! narrowest the least weight of a box, if it is more than 1
//! ```
//!
//! In a row of `names`, `object` is a position in `objects` and `file` one in `files`, both counted from 1. `whole` is the whole name, or
//! 0 if the short name is complete. The line is the function's hottest line. Unknown values are 0, and zeros at the end are left out.
//!
//! Each box has the attribute `b`: the position of its name in the table (from 0, in base 36), then its own weight, then, in a
//! comparison, its total weight before (weights in decimal):
//!
//! ```text
//! 2f        own weight 0            2f!       own weight = total weight        2f-12     own weight 12
//! 2f-12~34  in a comparison: own weight 12, total weight before 34
//! ```

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::boxes::BoxOf;
use super::options::{SvgOptions, printable};
use crate::profile::{LabelId, LabelTable, Sides};

/// Limit for the bytes of names, objects and files that a picture stores whole. Names of Rust programs take 0.3 MB for 1,700
/// functions. Hostile programs may have tens of thousands of names of 4 KB. Above this limit, names are cut, and stored without object
/// and line.
const MOST_BYTES: usize = 8 << 20;

/// Characters that are kept of a name above that limit.
const CUT: usize = 80;

/// The name of a function, for boxes and tooltips.
struct Name {
    short: String,
    /// The whole name. `None` if the short name is complete.
    whole: Option<String>,
    /// Position in the list of objects.
    object: Option<usize>,
    /// Position in the list of files, and the line.
    line: Option<(usize, u32)>,
}

/// Texts, each once.
#[derive(Default)]
struct Listed {
    texts: Vec<String>,
    places: FxHashMap<String, usize>,
}

impl Listed {
    /// Returns the position of a text. A new text is added and its bytes are counted.
    fn place(&mut self, text: &str, bytes: &mut usize) -> usize {
        let text = printable(text);
        if let Some(place) = self.places.get(&text) {
            return *place;
        }
        *bytes += text.len();
        self.texts.push(text.clone());
        self.places.insert(text, self.places.len());
        self.places.len() - 1
    }
}

/// The names of all boxes of a picture.
#[derive(Default)]
pub(super) struct NameTable {
    names: Vec<Name>,
    objects: Listed,
    files: Listed,
    numbers: FxHashMap<Option<LabelId>, usize>,
}

impl NameTable {
    /// Collects the names of these functions, in their order. `None` means functions that are too narrow to be drawn.
    pub(super) fn of(functions: impl Iterator<Item = Option<LabelId>>, labels: &LabelTable, options: &SvgOptions) -> NameTable {
        let mut table = NameTable::default();
        let mut bytes = 0;
        for function in functions {
            if table.numbers.contains_key(&function) {
                continue;
            }
            let whole = name_of(function, labels);
            let label = function.and_then(|label| labels.get(label)).filter(|label| !label.object.is_empty());
            let fits = bytes < MOST_BYTES;
            let object = label.filter(|_| fits).map(|label| table.objects.place(label.short_object(), &mut bytes));
            let line = function.and_then(|label| options.lines.get(&label)).filter(|_| fits);
            let line = line.map(|place| (table.files.place(&place.file, &mut bytes), place.line));
            let (short, whole) = match (options.short)(&whole) {
                short if !fits => (short.chars().take(CUT).collect(), None),
                Cow::Owned(short) if short != whole => (short, Some(whole)),
                _ => (whole, None),
            };
            bytes += short.len() + whole.as_ref().map_or(0, String::len);
            table.numbers.insert(function, table.names.len());
            table.names.push(Name { short, whole, object, line });
        }
        table
    }

    /// Returns the position of a function's name in the table.
    pub(super) fn number(&self, function: Option<LabelId>) -> usize {
        self.numbers.get(&function).copied().unwrap_or(0)
    }

    /// Returns the short name, for the box.
    pub(super) fn short(&self, of: &BoxOf) -> &str {
        self.names.get(self.number(of.label)).map_or("", |name| &name.short)
    }

    /// Returns the attribute `b` of a box. See the head of this file.
    pub(super) fn reference(&self, of: &BoxOf, is_compared: bool) -> String {
        let mut text = in_base_36(self.number(of.label));
        text += &match of.own.now {
            0 => String::new(),
            own if own == of.total.now => "!".to_owned(),
            own => format!("-{own}"),
        };
        if is_compared {
            text += &format!("~{}", of.total.before);
        }
        text
    }

    /// Returns the table.
    pub(super) fn table(&self, whole: Sides, is_compared: bool, unit: &str) -> Map<String, Value> {
        let name = |name: &Name| {
            let object = name.object.map_or(0, |place| place + 1);
            let whole = name.whole.as_ref().map_or(0.into(), |whole| json!(whole));
            let (file, line) = name.line.map_or((0, 0), |(place, line)| (place + 1, line));
            let mut row = vec![json!(name.short), object.into(), whole, file.into(), line.into()];
            while row.last() == Some(&0.into()) {
                row.pop();
            }
            Value::from(row)
        };
        let names: Vec<Value> = self.names.iter().map(name).collect();
        let weights: &[u64] = if is_compared { &[whole.now, whole.before] } else { &[whole.now] };
        let entries = [
            ("unit", printable(unit).into()),
            ("whole", json!(weights)),
            ("objects", json!(self.objects.texts)),
            ("files", json!(self.files.texts)),
            ("names", names.into()),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Returns JSON as text that may stand in XML and in HTML: without `<`, `>` and `&`.
pub(in crate::formats) fn in_markup(table: &Map<String, Value>) -> String {
    json!(table).to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Returns the whole name of a function; a word in brackets if it has none, and `?` if `labels` lacks it.
fn name_of(label: Option<LabelId>, labels: &LabelTable) -> String {
    match label.map(|label| labels.get(label)) {
        Some(Some(label)) if !label.name.trim().is_empty() => printable(&label.name),
        Some(Some(_)) => "[unknown]".to_owned(),
        Some(None) => "?".to_owned(),
        None => "[too narrow to draw]".to_owned(),
    }
}

fn in_base_36(mut number: usize) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit((number % 36) as u32, 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FrameKind, SourceLocation};

    #[test]
    fn hostile_names_take_a_bounded_number_of_bytes() {
        let labels = LabelTable::default();
        let name = |number: usize| labels.intern(&format!("{number}{}", "n".repeat(4000)), &"o".repeat(4000), FrameKind::User);
        let functions: Vec<Option<LabelId>> = (0..8000).map(|number| Some(name(number))).collect();
        let names = NameTable::of(functions.into_iter(), &labels, &SvgOptions::default());
        let text = in_markup(&names.table(Sides::default(), false, "samples"));
        assert!((MOST_BYTES..MOST_BYTES + (2 << 20)).contains(&text.len()), "{}", text.len());
        assert_eq!(names.names.len(), 8000);
    }

    #[test]
    fn each_name_stands_once_and_boxes_tell_theirs() {
        let labels = LabelTable::default();
        let label = |name: &str, object: &str| Some(labels.intern(name, object, FrameKind::User));
        let sides = |now, before| Sides { now, before, ..Sides::default() };
        let of = |label, own, total, before| BoxOf { label, own: sides(own, 0), total: sides(total, before) };
        let (main, parse) = (label("main", "shop"), label("parse<\"&\">(int)", "libparse.so"));
        let boxes = [of(main, 0, 9, 8), of(parse, 5, 9, 7), of(parse, 4, 4, 0), of(label(" ", ""), 0, 1, 0), of(None, 1, 1, 0)];
        let line = parse.map(|label| (label, SourceLocation { file: "/src/parse.c".into(), line: 7 }));
        let lines = line.into_iter().collect();
        let options = SvgOptions { short: |name| Cow::Owned(name.replace("(int)", "")), lines, ..SvgOptions::default() };
        let names = NameTable::of(boxes.iter().map(|of| of.label), &labels, &options);
        assert_eq!(boxes.map(|of| names.reference(&of, false)), ["0", "1-5", "1!", "2", "3!"]);
        assert_eq!(names.reference(&boxes[1], true), "1-5~7");
        assert_eq!(names.short(&boxes[1]), "parse<\"&\">");
        let text = in_markup(&names.table(sides(9, 8), true, "samples"));
        assert!(!text.contains(['<', '>', '&']), "{text}");
        let table: Value = serde_json::from_str(&text).unwrap();
        let expected =
            json!([["main", 1], ["parse<\"&\">", 2, "parse<\"&\">(int)", 1, 7], ["[unknown]"], ["[too narrow to draw]"],]);
        assert_eq!((&table["names"], &table["whole"]), (&expected, &json!([9, 8])));
        assert_eq!(table["files"], json!(["/src/parse.c"]));
        assert_eq!([0, 35, 36, 1295, 1296].map(in_base_36), ["0", "z", "10", "zz", "100"]);
    }
}
