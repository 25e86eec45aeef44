//! Where a function of a language begins, as [`Label::object`](super::labels::Label::object) has it.

use std::fmt::{Display, Formatter, Result};

/// The place where a function begins: `views.py:12`, and of JavaScript, where a line may have thousands of functions, `app.js:12:5`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin<'a> {
    /// Its file, as a path or a part of one.
    pub file: &'a str,
    /// Its line, from 1.
    pub line: u32,
    /// Its column, from 1.
    pub column: Option<u32>,
}

impl<'a> Begin<'a> {
    /// Parses a place. Returns `None` for a file without a line, or an object.
    pub fn parse(text: &'a str) -> Option<Begin<'a>> {
        let number = |text: &'a str| {
            let (before, number) = text.rsplit_once(':')?;
            Some((before, number.parse::<u32>().ok().filter(|number| *number > 0)?))
        };
        let (before, last) = number(text)?;
        Some(match number(before) {
            Some((file, line)) => Begin { file, line, column: Some(last) },
            None => Begin { file: before, line: last, column: None },
        })
    }
}

impl Display for Begin<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{}:{}", self.file, self.line)?;
        self.column.map_or(Ok(()), |column| write!(formatter, ":{column}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_line_and_perhaps_a_column() {
        for (text, file, line, column) in [
            ("views.py:12", "views.py", 12, None),
            ("/srv/app.js:12:5", "/srv/app.js", 12, Some(5)),
            ("node:internal/timers:12:5", "node:internal/timers", 12, Some(5)),
            ("node:fs:12", "node:fs", 12, None),
        ] {
            assert_eq!(Begin::parse(text), Some(Begin { file, line, column }));
            assert_eq!(Begin { file, line, column }.to_string(), text);
        }
        assert_eq!(["libc.so.6", "node:fs", "views.py:0", ""].map(Begin::parse), [None; 4]);
    }
}
