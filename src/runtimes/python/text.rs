//! Python's strings.

use super::layout::Layout;
use crate::runtimes::Memory;

/// Offset of a string's length, in characters.
const LENGTH: u64 = 16;
/// Offset of a string's form. Bits 2 to 4: bytes of a character. Bit 5: the characters follow the header. Bit 6: all characters are ASCII.
const FORM: u64 = 32;

/// Reads a string: its first `limit` characters. Returns `None` if there is no string.
pub(super) fn read(memory: &impl Memory, layout: &Layout, address: u64, limit: u64) -> Option<String> {
    let (length, form) = (memory.u64(address.checked_add(LENGTH)?)?, memory.u32(address.checked_add(FORM)?)?);
    let (width, is_compact, is_ascii) = (u64::from(form >> 2 & 7), form >> 5 & 1 == 1, form >> 6 & 1 == 1);
    if !is_compact || !matches!(width, 1 | 2 | 4) {
        return None;
    }
    let characters = length.min(limit);
    let begin = address.checked_add(if is_ascii { layout.ascii_text } else { layout.other_text })?;
    let bytes = memory.bytes(begin, characters * width, limit.checked_mul(4)?)?;
    let code = |bytes: &[u8]| bytes.iter().rev().fold(0, |code, byte| code << 8 | u32::from(*byte));
    let characters = bytes.chunks_exact(width as usize).map(code);
    Some(characters.map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}
