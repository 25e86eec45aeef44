//! Addresses of symbols that a file exports.

use super::elf::{Image, SymbolTable, TableKind};
use super::numbers::{u16_at, u32_at, u64_at};
use super::reason::Reason;
use crate::profile::ElfAddress;

/// Most bytes of a symbol table that are read, and most bytes of its names. libpython has 60 and 50 KB.
const MAX_SYMBOLS: u64 = 1 << 20;
const MAX_NAMES: u64 = 2 << 20;
/// Most symbols of one bucket that are compared. On average there is one.
const MAX_IN_BUCKET: usize = 64;
/// Bytes of a symbol, and where its fields are: `Elf64_Sym`.
const SYMBOL: usize = 24;
const SECTION: usize = 6;
const VALUE: usize = 8;

/// Returns the addresses of the symbols with these names, in the order of the names; `None` for a name that the file does not define.
pub(crate) fn addresses_of<const N: usize>(image: &Image, names: [&str; N]) -> Result<[Option<ElfAddress>; N], Reason> {
    let Some(table) = image.table(TableKind::Dynamic) else { return Ok([None; N]) };
    match HashTable::of(image, table) {
        Some(hashes) => Ok(names.map(|name| hashes.find(name))),
        None => search(image, table, names),
    }
}

/// Goes through all symbols, of a file that has no table of their hashes.
fn search<const N: usize>(image: &Image, table: SymbolTable, names: [&str; N]) -> Result<[Option<ElfAddress>; N], Reason> {
    let mut found = [None; N];
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

/// The file's table of hashes (`.gnu.hash`). The dynamic linker finds symbols with it. Node.js has 75,000 symbols: 7 MB with their names.
///
/// ```text
/// buckets n u32 │ first symbol u32 │ words w of the filter u32 │ - u32 │ filter: w u64 │ first symbol of each bucket: n u32 │ a hash for each symbol
/// ```
///
/// The symbols of a bucket follow each other. The hash of the last one has bit 0 set. Source: `dl-lookup.c` of glibc.
struct HashTable<'a> {
    image: &'a Image,
    table: SymbolTable,
    buckets: u32,
    first: u32,
    /// Places in the file.
    buckets_at: u64,
    hashes_at: u64,
}

impl<'a> HashTable<'a> {
    fn of(image: &'a Image, table: SymbolTable) -> Option<HashTable<'a>> {
        const HEADER: u64 = 16;
        let section = image.sections_named(|name| name == ".gnu.hash").ok()?.into_iter().next()?;
        let header = image.source.read(section.file.start, HEADER, HEADER).ok()?;
        let [buckets, first, words] = [0, 4, 8].map(|at| u32_at(&header, at));
        let buckets = buckets.filter(|count| *count > 0)?;
        let buckets_at = section.file.start.checked_add(HEADER + 8 * u64::from(words?))?;
        let hashes_at = buckets_at.checked_add(4 * u64::from(buckets))?;
        Some(HashTable { image, table, buckets, first: first?, buckets_at, hashes_at })
    }

    fn find(&self, name: &str) -> Option<ElfAddress> {
        let read = |at: u64, size: u64| self.image.source.read(at, size, size).ok();
        let hash = name.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let begin = u32_at(&read(self.buckets_at.saturating_add(4 * u64::from(hash % self.buckets)), 4)?, 0)?;
        for symbol in (begin.max(self.first)..).take(MAX_IN_BUCKET) {
            let known = u32_at(&read(self.hashes_at.checked_add(4 * u64::from(symbol - self.first))?, 4)?, 0)?;
            if (known | 1) == (hash | 1)
                && let Some(address) = self.is_called(symbol, name)
            {
                return Some(address);
            }
            if known & 1 == 1 {
                return None;
            }
        }
        None
    }

    /// Returns the address of a symbol, if it is defined and has this name.
    fn is_called(&self, symbol: u32, name: &str) -> Option<ElfAddress> {
        let source = &self.image.source;
        let at = self.table.offset.checked_add(SYMBOL as u64 * u64::from(symbol))?;
        let symbol = source.read(at, SYMBOL as u64, SYMBOL as u64).ok()?;
        let length = name.len() as u64 + 1;
        let found = source.read(self.table.strings.checked_add(u32_at(&symbol, 0)?.into())?, length, length).ok()?;
        let is_it = found.strip_prefix(name.as_bytes()) == Some(&[0]) && u16_at(&symbol, SECTION) != Some(0);
        u64_at(&symbol, VALUE).filter(|_| is_it).map(ElfAddress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::bytes::Source;

    /// The dynamic linker's table and a search of all symbols agree. Symbols of versioned libraries may be there twice; these are not.
    #[test]
    fn symbols_are_found_by_their_hashes() {
        let path =
            ["/lib/x86_64-linux-gnu/libz.so.1", "/lib/aarch64-linux-gnu/libz.so.1", "/usr/lib64/libz.so.1", "/usr/lib/libz.so.1"];
        let file = path.iter().find_map(|path| std::fs::read(path).ok()).expect("zlib, which flametop needs");
        let image = Image::read(Source::Memory(file.into())).unwrap();
        let table = image.table(TableKind::Dynamic).unwrap();
        let names = ["inflate", "deflate", "crc32", "zlibVersion", "malloc", "no_such_symbol"];
        let found = addresses_of(&image, names).unwrap();
        assert!(HashTable::of(&image, table).is_some());
        assert_eq!(found, search(&image, table, names).unwrap());
        assert_eq!(found.map(|address| address.is_some()), [true, true, true, true, false, false]);
    }
}
