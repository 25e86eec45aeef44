//! Addresses of symbols that a file exports.

use super::elf::{Image, TableKind};
use super::numbers::{u16_at, u32_at, u64_at};
use super::reason::Reason;
use crate::profile::ElfAddress;

/// Most bytes of a symbol table that are read, and most bytes of its names. libpython has 60 and 50 KB.
const MAX_SYMBOLS: u64 = 1 << 20;
const MAX_NAMES: u64 = 2 << 20;
/// Bytes of a symbol, and where its fields are: `Elf64_Sym`.
const SYMBOL: usize = 24;
const SECTION: usize = 6;
const VALUE: usize = 8;

/// Returns the addresses of the symbols with these names, in the order of the names; `None` for a name that the file does not define.
pub(crate) fn addresses_of<const N: usize>(image: &Image, names: [&str; N]) -> Result<[Option<ElfAddress>; N], Reason> {
    let mut found = [None; N];
    let Some(table) = image.table(TableKind::Dynamic) else { return Ok(found) };
    let symbols = image.source.read(table.offset, table.count.saturating_mul(SYMBOL as u64), MAX_SYMBOLS)?;
    let strings = image.source.read(table.strings, table.strings_size, MAX_NAMES)?;
    for symbol in symbols.chunks_exact(SYMBOL).filter(|symbol| u16_at(symbol, SECTION) != Some(0)) {
        let Some(name) = u32_at(symbol, 0).and_then(|at| strings.get(at as usize..)) else { continue };
        for (place, wanted) in found.iter_mut().zip(names) {
            if name.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)) {
                *place = u64_at(symbol, VALUE).map(ElfAddress);
            }
        }
    }
    Ok(found)
}
