//! libjvm.so describes its structures to debuggers: it exports these tables.
//!
//! ```text
//! gHotSpotVMStructs ─► { type "Method", field "_constMethod", type of the field, is static, offset, address }, …   ended by a null type
//! gHotSpotVMTypes   ─► { type "Method", …, size }, …
//! ```
//!
//! Other symbols have the places of these fields in an entry, and the distance between entries: `gHotSpotVMStructEntryOffsetOffset`.

use std::collections::HashMap;

use crate::runtimes::Memory;

/// Most entries of a table. JDK 17 has 788 fields and 768 types.
const MAX_ENTRIES: u64 = 8192;
/// Most bytes of an entry. It has 48.
const MAX_STRIDE: u64 = 256;
/// Most bytes of a name.
const MAX_NAME: usize = 96;

/// A field of a structure, or a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The offset of a field, the address of a static one, or the size of a type.
    pub offset: u64,
    /// The bytes of a field.
    pub width: u8,
}

/// The fields of structures and the types, by their names: `Method._constMethod`, `Method`.
pub(super) type Tables = HashMap<String, Field>;

/// The exported symbols that lead to the tables.
pub(super) const SYMBOLS: [&str; 12] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryTypeStringOffset",
    "gHotSpotVMStructEntryIsStaticOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMTypes",
    "gHotSpotVMTypeEntryArrayStride",
    "gHotSpotVMTypeEntryTypeNameOffset",
    "gHotSpotVMTypeEntrySizeOffset",
];

/// Reads the tables. `symbols` are the addresses of [`SYMBOLS`]. Returns `None` if they cannot be read, as before libjvm.so is relocated.
pub(super) fn read(memory: &impl Memory, symbols: &[u64; SYMBOLS.len()]) -> Option<Tables> {
    let mut values = [0; SYMBOLS.len()];
    for (value, symbol) in values.iter_mut().zip(symbols) {
        *value = memory.u64(*symbol)?;
    }
    let [structs, stride, type_name, field_name, type_string, is_static, offset, address, types, type_stride, name, size] =
        values;
    let mut tables = Tables::new();
    each(memory, structs, stride, type_name, |entry| {
        let named = format!("{}.{}", text(memory, word(entry, type_name)?)?, text(memory, word(entry, field_name)?)?);
        let is_static = word(entry, is_static)? as u32 != 0;
        let width = text(memory, word(entry, type_string)?).map_or(8, |name| width(&name));
        let offset = word(entry, if is_static { address } else { offset })?;
        tables.insert(named, Field { offset, width });
        Some(())
    })?;
    each(memory, types, type_stride, name, |entry| {
        tables.insert(text(memory, word(entry, name)?)?, Field { offset: word(entry, size)?, width: 8 });
        Some(())
    })?;
    Some(tables)
}

/// Calls `each` with the bytes of each entry of a table. It ends at an entry without a name.
fn each(memory: &impl Memory, table: u64, stride: u64, name: u64, mut each: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    for number in 0..MAX_ENTRIES {
        let entry = memory.bytes(table.checked_add(number.checked_mul(stride)?)?, stride, MAX_STRIDE)?;
        if word(&entry, name)? == 0 {
            return Some(());
        }
        // An entry without a readable name is left out.
        let _ = each(&entry);
    }
    None
}

fn word(entry: &[u8], at: u64) -> Option<u64> {
    entry.get(usize::try_from(at).ok()?..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Reads a name that ends with a zero byte.
fn text(memory: &impl Memory, address: u64) -> Option<String> {
    const AT_ONCE: u64 = 32;
    let mut bytes = Vec::new();
    while bytes.len() < MAX_NAME {
        let at = address.checked_add(bytes.len() as u64)?;
        // Reads do not cross pages: the next one may not be there.
        bytes.extend(memory.bytes(at, AT_ONCE - at % AT_ONCE, AT_ONCE)?);
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
            return String::from_utf8(bytes).ok();
        }
    }
    None
}

/// Returns the bytes of a field of this type. Pointers have 8.
fn width(name: &str) -> u8 {
    match name {
        "int" | "jint" | "uint" | "u4" | "int32_t" | "uint32_t" | "unsigned int" | "volatile int" => 4,
        "u2" | "jshort" | "jushort" | "short" | "unsigned short" | "int16_t" | "uint16_t" => 2,
        "u1" | "jbyte" | "char" | "bool" | "unsigned char" | "int8_t" | "uint8_t" | "CodeBlobKind" => 1,
        _ => 8,
    }
}
