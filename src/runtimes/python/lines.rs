//! Line tables: the line of each instruction of a code object.

use super::layout::LineTable;

/// The lines of a function's instructions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lines {
    form: LineTable,
    table: Box<[u8]>,
    /// The line of the `def`.
    first: u32,
    /// Whether the table was cut: it is longer in the process.
    is_cut: bool,
}

impl Lines {
    /// Returns the lines of a table. `is_cut`: the table has more bytes than these.
    pub(super) fn new(form: LineTable, table: Vec<u8>, first: u32, is_cut: bool) -> Lines {
        Lines { form, table: table.into(), first, is_cut }
    }

    /// Returns the line of an instruction, by its place in the bytecode: see [`PythonFrame::place`](super::PythonFrame::place). Before the
    /// first instruction it is the line of the `def`. Returns `None` if the table says that there is no line, or ends before the
    /// instruction. But up to 3.9, the last line of a table that was not cut holds for all later instructions.
    pub fn line(&self, place: i32) -> Option<u32> {
        let Ok(place) = u32::try_from(place) else { return Some(self.first) };
        let (first, at) = (i64::from(self.first), i64::from(place));
        let line = match self.form {
            LineTable::Steps => steps(&self.table, first, at, self.is_cut),
            LineTable::Ranges => ranges(&self.table, first, at),
            LineTable::Locations => locations(&self.table, first, at),
        };
        line.and_then(|line| u32::try_from(line).ok())
    }

    /// Returns the bytes of memory that it takes.
    pub fn size(&self) -> usize {
        size_of::<Lines>() + self.table.len()
    }
}

impl Default for Lines {
    /// Returns a table without lines.
    fn default() -> Lines {
        Lines::new(LineTable::Locations, Vec::new(), 0, false)
    }
}

/// Reads pairs of a step in bytes and a signed step in lines. Each pair leads to the place where the next line begins. Returns the last
/// line that begins at or before the instruction. If no line begins after the instruction, a table that was cut does not tell its line.
fn steps(table: &[u8], first: i64, at: i64, is_cut: bool) -> Option<i64> {
    let (mut line, mut begin) = (first, 0);
    for pair in table.chunks_exact(2) {
        begin += i64::from(pair[0]);
        if begin > at {
            return Some(line);
        }
        line += i64::from(pair[1].cast_signed());
    }
    (!is_cut).then_some(line)
}

/// Reads pairs of a length in bytes and a signed step in lines. The step comes before the range. A step of -128 means that the range has no
/// line.
fn ranges(table: &[u8], first: i64, at: i64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut line, mut end) = (first, 0);
    for pair in table.chunks_exact(2) {
        let step = pair[1].cast_signed();
        if step != NO_LINE {
            line += i64::from(step);
        }
        end += i64::from(pair[0]);
        if at < end {
            return (step != NO_LINE).then_some(line);
        }
    }
    None
}

/// Reads entries of a byte `1 kind:4 length:3`. The length is one less than the number of units of two bytes. The data of the kind follow:
/// a step in lines, and columns. An entry without a line does not change the current line.
fn locations(table: &[u8], first: i64, at: i64) -> Option<i64> {
    const WITHOUT_LINE: u8 = 15;
    const LONG: u8 = 14;
    const WITHOUT_COLUMNS: u8 = 13;
    const FIRST_WITH_STEP: u8 = 10;
    let (mut line, mut end) = (first, 0i64);
    let mut bytes = table.iter().copied();
    while let Some(entry) = bytes.next() {
        let kind = entry >> 3 & 15;
        match kind {
            WITHOUT_LINE => {}
            WITHOUT_COLUMNS => line = line.checked_add(signed(&mut bytes)?)?,
            LONG => {
                line = line.checked_add(signed(&mut bytes)?)?;
                for _ in 0..3 {
                    number(&mut bytes)?;
                }
            }
            FIRST_WITH_STEP.. => {
                line = line.checked_add(i64::from(kind - FIRST_WITH_STEP))?;
                bytes.nth(1)?;
            }
            _ => drop(bytes.next()?),
        }
        end += i64::from(entry & 7) * 2 + 2;
        if at < end {
            return (kind != WITHOUT_LINE).then_some(line);
        }
    }
    None
}

/// Reads a number with six bits in each byte, the lowest bits first. Bit 6 says that more bytes follow.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut value = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        value |= i64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a number with its sign in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = number(bytes)?;
    Some(if value & 1 == 1 { -(value >> 1) } else { value >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_from_the_instruction_they_come_to() {
        // Lines 10, 11 from byte 4 on, 9 from byte 6 on.
        let table = [4, 1, 2, 254];
        let lines = Lines::new(LineTable::Steps, table.to_vec(), 10, false);
        assert_eq!([-1, 0, 3, 4, 6, 600].map(|at| lines.line(at)), [10, 10, 10, 11, 9, 9].map(Some));
        let begin = Lines::new(LineTable::Steps, table.to_vec(), 10, true);
        assert_eq!([4, 600].map(|at| begin.line(at)), [Some(11), None]);
    }

    #[test]
    fn a_range_may_have_no_line() {
        let table = [4, 1, 2, 128, 2, 1];
        let lines = Lines::new(LineTable::Ranges, table.to_vec(), 10, false);
        assert_eq!([0, 4, 6, 8].map(|at| lines.line(at)), [Some(11), None, Some(12), None]);
    }

    #[test]
    fn locations_are_read_in_each_form() {
        // Short, with a step of 2, without columns and a step of -1, without a line, long with a step of 40.
        let table = [0x80, 0, 0x80 | 12 << 3, 1, 2, 0x80 | 13 << 3 | 1, 3, 0x80 | 15 << 3, 0x80 | 14 << 3, 64 | 16, 1, 0, 1, 2];
        let lines = Lines::new(LineTable::Locations, table.to_vec(), 10, false);
        assert_eq!(
            [0, 2, 4, 6, 8, 10, 12].map(|at| lines.line(at)),
            [Some(10), Some(12), Some(11), Some(11), None, Some(51), None]
        );
    }

    #[test]
    fn what_is_damaged_has_no_line_and_does_no_harm() {
        for form in [LineTable::Steps, LineTable::Ranges, LineTable::Locations] {
            for byte in 0..=255 {
                Lines::new(form, vec![byte; 300], u32::MAX, byte < 128).line(100_000);
                Lines::new(form, vec![byte], 0, false).line(0);
                // Steps of 2^59 lines.
                let step = [byte, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f];
                Lines::new(form, step.repeat(18), 3, false).line(64);
            }
        }
    }
}
