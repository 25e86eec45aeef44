//! Python's strings.

use super::layout::Layout;
use crate::interpreters::Memory;

/// Where the length of a string is, in characters.
const LENGTH: u64 = 16;
/// Where its form is: bits 2 to 4 the bytes of a character, bit 5 that the characters follow the header, bit 6 that all are ASCII.
const FORM: u64 = 32;

/// Reads a string, the first `limit` characters of it. Returns `None` for what is none.
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
