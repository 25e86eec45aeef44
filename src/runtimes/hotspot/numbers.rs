//! UNSIGNED5: the numbers of HotSpot's tables.

/// Bytes below this one end a number.
const LAST: u8 = 192;
/// Most bytes of a number.
const MAX_BYTES: u32 = 5;

/// Reads numbers of one to five bytes, six bits each, the lowest first.
pub(super) struct Numbers<'a> {
    bytes: &'a [u8],
    /// From JDK 20 on, each byte is greater by one: none is zero.
    excess: u8,
}

impl<'a> Numbers<'a> {
    /// Returns a reader of these bytes, of this JDK.
    pub(super) fn of(bytes: &'a [u8], version: u32) -> Numbers<'a> {
        Numbers { bytes, excess: u8::from(version >= 20) }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.bytes.split_off_first().copied()
    }

    pub(super) fn unsigned(&mut self) -> Option<u32> {
        let mut sum = 0u32;
        for place in 0..MAX_BYTES {
            let byte = self.byte()?;
            sum = sum.wrapping_add(u32::from(byte.checked_sub(self.excess)?) << (6 * place));
            if byte < LAST {
                break;
            }
        }
        Some(sum)
    }

    pub(super) fn signed(&mut self) -> Option<i32> {
        let number = self.unsigned()?;
        Some((number >> 1) as i32 ^ -((number & 1) as i32))
    }
}
