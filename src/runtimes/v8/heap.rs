//! Words, objects and strings of V8's heap.

use super::layout::Layout;
use crate::runtimes::Memory;

/// Offset of a string's length, in characters, and of what follows.
const LENGTH: u64 = 12;
const CHARACTERS: u64 = 16;
/// Bits of a string's type: its representation, and whether its characters have one byte.
const REPRESENTATION: u16 = 7;
const ONE_BYTE: u16 = 8;
/// Most strings that refer to each other. V8 refers from a sliced or thin string to a flat one at once.
const MAX_STEPS: usize = 4;

/// The heap of a process.
pub(super) struct Heap<'a, M> {
    pub(super) memory: &'a M,
    pub(super) layout: &'a Layout,
}

impl<M> Clone for Heap<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Heap<'_, M> {}

/// Characters of a string, side by side in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flat {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) is_one_byte: bool,
}

impl Flat {
    /// Returns the bytes of a character.
    pub(super) fn width(self) -> u64 {
        if self.is_one_byte { 1 } else { 2 }
    }
}

/// Returns the number in a word, if it is a small integer.
pub(super) fn smi(word: u64) -> Option<i32> {
    (word & 0xffff_ffff == 0).then_some((word >> 32) as u32 as i32)
}

impl<M: Memory> Heap<'_, M> {
    /// Returns the field of an object.
    pub(super) fn field(&self, object: u64, offset: u64) -> Option<u64> {
        self.memory.u64(address(object)?.checked_add(offset)?)
    }

    /// Returns the type of an object. `None` if the word is no pointer to an object. The object may have been copied elsewhere while what refers
    /// to it still leads here; all but its first word is as before.
    pub(super) fn type_of(&self, object: u64) -> Option<u16> {
        let mut map = self.field(object, 0)?;
        if let Some(moved) = forwarded(map) {
            map = self.field(moved, 0)?;
        }
        let at = address(map)?.checked_add(self.layout.map_type)?;
        let mut bytes = [0; 2];
        self.memory.read(at, &mut bytes).then_some(u16::from_le_bytes(bytes))
    }

    pub(super) fn is_string(&self, object: u64) -> bool {
        self.type_of(object).is_some_and(|kind| kind < self.layout.first_nonstring)
    }

    /// Returns the place of a string's characters. `None` for a string that is not flat.
    pub(super) fn flat(&self, string: u64) -> Option<Flat> {
        const SEQUENTIAL: u16 = 0;
        const CONS: u16 = 1;
        const EXTERNAL: u16 = 2;
        const SLICED: u16 = 3;
        const THIN: u16 = 5;
        /// Bit of the type of an external string whose characters' address is not kept in the string.
        const UNCACHED: u16 = 16;
        let length = self.memory.u32(address(string)?.checked_add(LENGTH)?)?;
        let (mut string, mut skipped) = (string, 0u64);
        for _ in 0..MAX_STEPS {
            let kind = self.type_of(string).filter(|kind| *kind < self.layout.first_nonstring)?;
            let is_one_byte = kind & ONE_BYTE != 0;
            let width = if is_one_byte { 1 } else { 2 };
            let at = |begin: u64| Some(Flat { address: begin.checked_add(skipped.checked_mul(width)?)?, length, is_one_byte });
            match kind & REPRESENTATION {
                SEQUENTIAL => return at(address(string)?.checked_add(CHARACTERS)?),
                EXTERNAL if kind & UNCACHED == 0 => return at(self.field(string, CHARACTERS + 8)?),
                // It is flat if its second part is empty.
                CONS if self.length(self.field(string, CHARACTERS + 8)?) == Some(0) => string = self.field(string, CHARACTERS)?,
                SLICED => {
                    skipped = skipped.checked_add(u64::try_from(smi(self.field(string, CHARACTERS + 8)?)?).ok()?)?;
                    string = self.field(string, CHARACTERS)?;
                }
                THIN => string = self.field(string, CHARACTERS)?,
                _ => return None,
            }
        }
        None
    }

    fn length(&self, string: u64) -> Option<u32> {
        self.memory.u32(address(string)?.checked_add(LENGTH)?)
    }

    /// Reads the first characters of a string, at most `limit`.
    pub(super) fn text(&self, string: u64, limit: u32) -> Option<String> {
        let mut text = String::new();
        self.add_text(string, limit, 0, &mut text)?;
        Some(text)
    }

    /// Names that programs put together are trees of strings: `get ` and `total`.
    fn add_text(&self, string: u64, limit: u32, depth: usize, text: &mut String) -> Option<()> {
        let left = limit.saturating_sub(u32::try_from(text.chars().count()).ok()?);
        if let Some(flat) = self.flat(string) {
            let length = u64::from(flat.length.min(left));
            if flat.is_one_byte {
                text.extend(self.memory.bytes(flat.address, length, length)?.into_iter().map(char::from));
            } else {
                let bytes = self.memory.bytes(flat.address, 2 * length, 2 * length)?;
                let units = bytes.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
                text.extend(char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)));
            }
            return Some(());
        }
        if depth >= MAX_STEPS || !self.is_string(string) {
            return None;
        }
        [CHARACTERS, CHARACTERS + 8].into_iter().try_for_each(|part| {
            let part = self.field(string, part)?;
            self.add_text(part, limit, depth + 1, text)
        })
    }
}

/// Returns the copy of an object, from its first word. V8 notes there, without bit 0, where it has copied the object to.
fn forwarded(first: u64) -> Option<u64> {
    (first & 3 == 0 && first != 0).then_some(first | 1)
}

/// Returns the address that a word points to, if it points to an object.
pub(super) fn address(word: u64) -> Option<u64> {
    (word & 3 == 1).then(|| word - 1)
}
