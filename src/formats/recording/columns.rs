//! Tables in columns of varints.

use crate::formats::varint;

/// Most columns of a table.
const COLUMNS: usize = 16;
/// Bytes of a column's tag and length.
const COLUMN_HEAD: usize = 5;

/// A table with this many bytes becomes a payload. A payload may have at most 16 MiB, and the rows that are added between two checks add less
/// than the difference.
const FULL: usize = 1 << 20;
/// Rows between two checks.
const UNCHECKED: u32 = 256;

/// A table that is being written.
#[derive(Default)]
pub(super) struct Columns {
    columns: [Vec<u8>; COLUMNS],
    rows: u32,
    sealed: Vec<Sealed>,
}

/// Rows that are ready to be written as a chunk.
pub(super) struct Sealed {
    pub(super) rows: u32,
    /// Times of the first and the last sample.
    pub(super) times: (u64, u64),
    pub(super) payload: Vec<u8>,
}

impl Columns {
    /// Appends a number to the column with this tag.
    pub(super) fn number(&mut self, tag: usize, value: u64) {
        if let Some(column) = self.columns.get_mut(tag) {
            varint::push(column, value);
        }
    }

    /// Appends a text: its length to the column with this tag, its bytes to the next column.
    pub(super) fn text(&mut self, tag: usize, text: &str) {
        self.number(tag, text.len() as u64);
        if let Some(column) = self.columns.get_mut(tag + 1) {
            column.extend_from_slice(text.as_bytes());
        }
    }

    /// Appends a row of numbers, to the columns from the first on. All rows of a table have the same columns.
    pub(super) fn row(&mut self, values: &[u64]) {
        for (tag, value) in values.iter().enumerate() {
            self.number(tag, *value);
        }
        self.end_row();
    }

    /// Ends a row.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
        let text = self.columns.get(1).map_or(0, Vec::len);
        if text >= FULL || self.rows.is_multiple_of(UNCHECKED) && self.columns.iter().map(Vec::len).sum::<usize>() >= FULL {
            self.seal((0, 0));
        }
    }

    /// Makes a payload of the rows so far.
    pub(super) fn seal(&mut self, times: (u64, u64)) {
        if self.rows == 0 {
            return;
        }
        let mut payload = Vec::new();
        for (tag, column) in (0u8..).zip(&mut self.columns) {
            // Zeros need no column.
            if column.iter().any(|byte| *byte != 0) {
                payload.push(tag);
                payload.extend_from_slice(&u32::try_from(column.len()).unwrap_or(u32::MAX).to_le_bytes());
                payload.extend_from_slice(column);
            }
            column.clear();
        }
        self.sealed.push(Sealed { rows: std::mem::take(&mut self.rows), times, payload });
    }

    /// Returns all payloads, and empties the table.
    pub(super) fn take(&mut self) -> Vec<Sealed> {
        self.seal((0, 0));
        std::mem::take(&mut self.sealed)
    }
}

/// Equal values that follow each other, written as value and count.
#[derive(Default)]
pub(super) struct Run {
    value: u64,
    count: u64,
}

impl Run {
    /// Adds a value of the column with this tag.
    pub(super) fn add(&mut self, columns: &mut Columns, tag: usize, value: u64) {
        if value != self.value {
            self.end(columns, tag);
            self.value = value;
        }
        self.count += 1;
    }

    /// Writes the last run.
    pub(super) fn end(&mut self, columns: &mut Columns, tag: usize) {
        if self.count > 0 {
            columns.number(tag, self.value);
            columns.number(tag, self.count);
        }
        self.count = 0;
    }
}

/// The values of one column.
#[derive(Clone, Copy, Default)]
pub(super) struct Values<'a>(Option<&'a [u8]>);

impl<'a> Values<'a> {
    /// Returns the next value. `None` if the column is damaged. All values of a column that is not there are 0.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        let Some(bytes) = &mut self.0 else { return Some(0) };
        varint::take(bytes)
    }

    /// Returns the next value as a smaller number.
    #[inline]
    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.next()?).ok()
    }

    /// Returns the next `length` bytes as text.
    pub(super) fn text(&mut self, length: u64) -> Option<&'a str> {
        let Some(bytes) = &mut self.0 else { return (length == 0).then_some("") };
        let (text, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        *bytes = rest;
        std::str::from_utf8(text).ok()
    }
}

/// Values that are written in runs.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a> {
    values: Values<'a>,
    value: u64,
    left: u64,
}

impl Runs<'_> {
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.values.0.is_some() && self.left == 0 {
            self.value = self.values.next()?;
            self.left = self.values.next()?.checked_sub(1)?;
        } else {
            self.left = self.left.saturating_sub(1);
        }
        Some(self.value)
    }
}

/// A table that is being read.
#[derive(Default)]
pub(super) struct Table<'a> {
    columns: [Values<'a>; COLUMNS],
}

impl<'a> Table<'a> {
    /// Splits a payload into columns. `None` if it is damaged.
    pub(super) fn of(mut payload: &'a [u8]) -> Option<Table<'a>> {
        let mut table = Table::default();
        while !payload.is_empty() {
            let (head, rest) = payload.split_at_checked(COLUMN_HEAD)?;
            let length = head.get(1..)?.first_chunk().copied().map(u32::from_le_bytes)?;
            let (column, rest) = rest.split_at_checked(length as usize)?;
            if let Some(place) = table.columns.get_mut(usize::from(*head.first()?)) {
                *place = Values(Some(column));
            }
            payload = rest;
        }
        Some(table)
    }

    /// Returns the columns with the tags from 0 on.
    pub(super) fn columns<const N: usize>(&self) -> [Values<'a>; N] {
        const { assert!(N <= COLUMNS) };
        std::array::from_fn(|tag| self.columns.get(tag).copied().unwrap_or_default())
    }

    /// Returns a column that is written in runs.
    pub(super) fn runs(&self, tag: usize) -> Runs<'a> {
        Runs { values: self.columns.get(tag).copied().unwrap_or_default(), value: 0, left: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in prop::collection::vec((any::<u64>(), ".{0,12}", 0u64..3), 0..200)) {
            let (mut columns, mut run) = (Columns::default(), Run::default());
            for (number, text, often) in &rows {
                columns.number(0, *number);
                columns.text(1, text);
                run.add(&mut columns, 3, *often);
                columns.end_row();
            }
            run.end(&mut columns, 3);
            let sealed = columns.take();
            prop_assert_eq!(sealed.iter().map(|part| part.rows as usize).sum::<usize>(), rows.len());
            let Some(Sealed { payload, .. }) = sealed.first() else { return Ok(()) };
            let table = Table::of(payload).unwrap();
            let [mut numbers, mut lengths, mut texts] = table.columns();
            let mut runs = table.runs(3);
            for row in rows {
                let text = lengths.next().and_then(|length| texts.text(length)).unwrap().to_owned();
                let read = (numbers.next().unwrap(), text, runs.next().unwrap());
                prop_assert_eq!(read, row);
            }
        }

        #[test]
        fn large_tables_become_several_payloads(length in 1usize..3_000_000, rows in 1usize..20) {
            let text = "x".repeat(length);
            let mut columns = Columns::default();
            for _ in 0..rows {
                columns.text(0, &text);
                columns.end_row();
            }
            let sealed = columns.take();
            prop_assert_eq!(sealed.iter().map(|part| part.rows as usize).sum::<usize>(), rows);
            prop_assert!(sealed.iter().all(|part| part.payload.len() < FULL + length + 100));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let Some(table) = Table::of(&payload) else { return Ok(()) };
            let [mut numbers, mut texts] = table.columns();
            let mut runs = table.runs(2);
            for _ in 0..300 {
                let _ = (numbers.next(), texts.text(3), runs.next());
            }
        }
    }
}
