//! Gives the fuzzer (`fuzz/`) the readers of code, source text, source maps and names of functions.
//!
//! The fuzzer can call only public functions. The program itself calls none of these.

use super::called::Called;
use super::code::Code;

use crate::object::headers::Arch;
use crate::profile::{FrameId, Row};
use crate::symbolize::source_files::map::{self, Map};
use crate::symbolize::source_files::text;
use crate::symbolize::symbols::demangle::{Detail, MAX_OUTPUT, demangle};

/// The reader that gets the bytes of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListingReader {
    /// Code of x86_64.
    X86,
    /// Code of arm64.
    Arm64,
    /// Source text.
    Source,
    /// A mangled name.
    Name,
    /// A source map, or a script that names one.
    SourceMap,
}

impl ListingReader {
    /// All readers. The first byte of an input selects one.
    pub const ALL: [ListingReader; 5] =
        [ListingReader::X86, ListingReader::Arm64, ListingReader::Source, ListingReader::Name, ListingReader::SourceMap];

    /// Gives the bytes to the reader and checks its result.
    ///
    /// # Errors
    ///
    /// The promise that the reader did not keep.
    pub fn read(self, bytes: &[u8]) -> Result<(), String> {
        match self {
            ListingReader::X86 => code(Arch::X86_64, bytes),
            ListingReader::Arm64 => code(Arch::Aarch64, bytes),
            ListingReader::Source => are_in_order(&text::rows(bytes)),
            ListingReader::Name => [Detail::Short, Detail::Normal, Detail::Full].into_iter().try_for_each(|detail| {
                let name = demangle(bytes, detail);
                // Bytes that are not UTF-8 become characters of three bytes; a stub keeps its `@plt`.
                keep(name.len() <= 3 * bytes.len() + MAX_OUTPUT, || format!("a name of {} bytes", name.len()))
            }),
            ListingReader::SourceMap => source_map(bytes),
        }
    }
}

/// Names every address with a string that only a hostile file would contain.
struct Hostile;

impl Called for Hostile {
    fn name(&self, address: u64) -> Option<(u64, String)> {
        Some((address & !7, "f\u{1b}[31m\u{202e}".repeat(100)))
    }
}

fn keep(is_kept: bool, promise: impl FnOnce() -> String) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(promise()) }
}

/// Lists a function whose address is in the first eight bytes and whose code is the rest.
fn code(arch: Arch, bytes: &[u8]) -> Result<(), String> {
    let Some((start, bytes)) = bytes.split_first_chunk() else { return Ok(()) };
    let start = u64::from_le_bytes(*start);
    // The end must be an address, too.
    let Some(end) = start.checked_add(bytes.len() as u64) else { return Ok(()) };
    let places = [start, end - 1, end].map(|place| (FrameId(1), place));
    let rows = Code { arch, bytes, range: start..end, note: "", file: "file" }.rows(Hostile, places.into_iter())?;
    keep(rows.row_of.iter().all(|(_, row)| *row < rows.rows.len()), || "a frame on a row that is not there".to_owned())?;
    are_in_order(&rows.rows)
}

fn source_map(bytes: &[u8]) -> Result<(), String> {
    map::place_of(bytes);
    let Ok(map) = Map::parse(bytes) else { return Ok(()) };
    Map::content(bytes, 0);
    for (line, column) in (0..100).flat_map(|line| [None, Some(0), Some(1), Some(100)].map(|column| (line, column))) {
        let found = map.original(line, column);
        keep(found.is_none_or(|(source, line)| source < map.sources.len() && line > 0), || format!("no source for {found:?}"))?;
    }
    map.sources
        .iter()
        .try_for_each(|source| keep(map::beside("/a/b", source).starts_with('/'), || format!("{source:?} is nowhere")))
}

fn are_in_order(rows: &[Row]) -> Result<(), String> {
    keep(rows.is_sorted_by(|one, next| one.place < next.place), || "rows out of order".to_owned())?;
    let printed = rows.iter().find(|row| row.text.contains(char::is_control) || row.text.contains('\u{202e}'));
    printed.map_or(Ok(()), |row| Err(format!("control characters in {:?}", row.text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_corpus_is_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/listing");
        let mut read = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            let (kind, bytes) = bytes.split_first().unwrap();
            let reader = ListingReader::ALL[usize::from(*kind) % ListingReader::ALL.len()];
            assert_eq!(reader.read(bytes), Ok(()), "{reader:?}");
            read += 1;
        }
        assert!(read >= ListingReader::ALL.len());
    }
}
