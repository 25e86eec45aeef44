//! Draws boxes that are too narrow for a name as paths: a few bytes for each. `script.js` converts them to boxes.
//!
//! ```text
//! M444 1125h1m3 0h2      boxes of 1 and 2 in the row 1125: at 444, and 3 after the end of that
//! ```
//!
//! A path contains the boxes of one colour. Its attribute `b` has their `b` attributes, in the same order (see [`super::names`]).
//! Lengths are weights, so nothing is rounded.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// A box that is part of a path.
struct NarrowBox {
    row: u64,
    start: u64,
    weight: u64,
    reference: String,
}

/// All narrow boxes of a picture, by the class of their colours.
#[derive(Default)]
pub(super) struct NarrowBoxes(BTreeMap<usize, Vec<NarrowBox>>);

impl NarrowBoxes {
    /// Adds a box: its upper edge in pixels, where it begins and how wide it is in weights, and its attribute `b`.
    pub(super) fn push(&mut self, class: usize, row: u64, start: u64, weight: u64, reference: String) {
        self.0.entry(class).or_default().push(NarrowBox { row, start, weight, reference });
    }

    /// Writes the paths. `colour` returns the colour of a class on a light background.
    pub(super) fn write(&mut self, colour: impl Fn(usize) -> String, out: &mut dyn Write) -> io::Result<()> {
        for (class, boxes) in &mut self.0 {
            boxes.sort_unstable_by_key(|of| (of.row, of.start));
            write!(out, r#"<path class="c{class}" stroke="{}" d=""#, colour(*class))?;
            // Row and end of the box before.
            let mut before: Option<(u64, u64)> = None;
            for of in &*boxes {
                match before.filter(|(row, end)| *row == of.row && *end <= of.start) {
                    Some((_, end)) => write!(out, "m{} 0h{}", of.start - end, of.weight)?,
                    None => write!(out, "M{} {}h{}", of.start, of.row, of.weight)?,
                }
                before = Some((of.row, of.start.saturating_add(of.weight)));
            }
            write!(out, r#"" b=""#)?;
            for (number, of) in boxes.iter().enumerate() {
                let space = if number > 0 { " " } else { "" };
                write!(out, "{space}{}", of.reference)?;
            }
            out.write_all(b"\"/>")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_one_colour_are_one_path() {
        let mut narrow = NarrowBoxes::default();
        for (class, row, start, weight, reference) in
            [(3, 16, 9, 2, "b"), (3, 16, 4, 5, "a!"), (1, 0, 1, 1, "c"), (3, 32, 0, 1, "d"), (3, 32, 4, 1, "e")]
        {
            narrow.push(class, row, start, weight, reference.to_owned());
        }
        let mut out = Vec::new();
        narrow.write(|class| format!("#00000{class}"), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r##"<path class="c1" stroke="#000001" d="M1 0h1" b="c"/>"##,
                r##"<path class="c3" stroke="#000003" d="M4 16h5m0 0h2M0 32h1m3 0h1" b="a! b d e"/>"##
            )
        );
    }
}
