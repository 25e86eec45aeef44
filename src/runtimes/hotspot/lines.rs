//! Lines of instructions.

use super::numbers::Numbers;

/// The lines of a method's instructions: the place of the first instruction of each line, and the line, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lines(Box<[(u16, u16)]>);

impl Lines {
    /// Parses a table: steps of one byte, 5 bits to the next instruction and 3 to its line, or after 255 of two signed numbers.
    pub(super) fn parse(bytes: &[u8], version: u32) -> Lines {
        const LONG: u8 = 255;
        let mut numbers = Numbers::of(bytes, version);
        let (mut place, mut line) = (0i32, 0i32);
        let mut lines: Vec<(u16, u16)> = Vec::new();
        let mut step = || {
            let (to_place, to_line) = match numbers.byte()? {
                0 => return None,
                LONG => (numbers.signed()?, numbers.signed()?),
                byte => (i32::from(byte >> 3), i32::from(byte & 7)),
            };
            place = place.wrapping_add(to_place);
            line = line.wrapping_add(to_line);
            Some((place, line))
        };
        while let Some((place, line)) = step() {
            if let Some(entry) = u16::try_from(place).ok().zip(u16::try_from(line).ok()) {
                lines.push(entry);
            }
        }
        // The compiler of Java does not sort them.
        lines.sort_unstable();
        lines.dedup_by_key(|(_, line)| *line);
        Lines(lines.into())
    }

    /// Returns the line of an instruction.
    pub fn line(&self, place: u16) -> Option<u32> {
        let next = self.0.partition_point(|(begin, _)| *begin <= place);
        self.0.get(next.checked_sub(1)?).map(|(_, line)| u32::from(*line))
    }

    /// Returns the line of the first instruction.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|(_, line)| u32::from(*line))
    }

    /// Returns the bytes of memory that it takes.
    pub fn size(&self) -> usize {
        size_of::<Lines>() + size_of_val(&*self.0)
    }
}
