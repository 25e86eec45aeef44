//! Functions of stripped Go programs, from `.gopclntab`. Go's runtime names its own stacks with this table, so stripped programs keep it.
//!
//! Format: `src/runtime/symtab.go` and `src/cmd/link/internal/ld/pcln.go` of Go 1.16 to 1.26.
//!
//! ```text
//! header    magic u32 · 0 u16 · quantum u8 · 8 u8 · functions u64 · files u64 · text u64 (from 1.18) · places of the parts, u64 each:
//!           names · units · files · steps · entries
//! entries   (entry, place of the function) × functions, and an entry that is the end; u32 each, before 1.18 u64
//! function  entry u32 (u64) · place of its name i32 · …
//! ```

use super::elf::Image;
use super::numbers::{u32_at, u64_at};
use super::reason::Reason;

/// The largest table read. Kubernetes' has 30 MB.
const MAX_TABLE: u64 = 256 << 20;
/// More functions than the largest programs have.
const MAX_FUNCTIONS: u64 = 2_000_000;

/// Where the names are in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GoNames {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// A function: `[start, end)`, and where its name begins among the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GoFunction {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) name: u32,
}

/// Returns the place of the names of Go code, if the image has a table that is understood.
pub(crate) fn names(image: &Image) -> Result<Option<GoNames>, Reason> {
    Ok(functions(image)?.map(|(names, _)| names))
}

/// Returns all functions of Go code in an image; `None` if there is no such table, or it is not understood.
///
/// Fails if the file cannot be read.
pub(crate) fn functions(image: &Image) -> Result<Option<(GoNames, Vec<GoFunction>)>, Reason> {
    let sections = image.sections_named(|name| matches!(name, ".gopclntab" | ".data.rel.ro.gopclntab" | ".text"))?;
    let Some(section) = sections.iter().find(|section| section.name.ends_with(".gopclntab")) else { return Ok(None) };
    let text = sections.iter().find(|section| &*section.name == ".text").map_or(0, |section| section.address);
    let size = section.file.end - section.file.start;
    let bytes = image.source.read(section.file.start, size, MAX_TABLE)?;
    Ok(parse(&bytes, text, |address| image.code_around(address).is_some()).map(|(names, functions)| {
        let names = GoNames { offset: section.file.start + names as u64, size: size - names as u64 };
        (names, functions)
    }))
}

/// The header of a table.
pub(crate) struct Header {
    /// Whether entries are addresses of 8 bytes, as before Go 1.18.
    pub(crate) wide: bool,
    /// Whether functions have their first line, as from Go 1.20 on.
    pub(crate) has_line: bool,
    /// The smallest length of an instruction: the unit of program counters.
    pub(crate) quantum: u8,
    /// Number of functions.
    pub(crate) functions: u64,
    /// The base address of entries. It is 0 from Go 1.26 on, and in programs that may be loaded anywhere.
    pub(crate) text: u64,
    parts: [usize; 5],
}

impl Header {
    /// Parses the begin of a table. Returns `None` for unknown versions.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let magic = u32_at(bytes, 0)?;
        let (wide, has_line) = (magic == 0xffff_fffa, magic == 0xffff_fff1);
        let is_known = wide || has_line || magic == 0xffff_fff0;
        let [0, 0, quantum, 8] = *bytes.get(4..8)? else { return None };
        if !is_known {
            return None;
        }
        let first = if wide { 24 } else { 32 };
        let mut parts = [0; 5];
        for (number, part) in parts.iter_mut().enumerate() {
            *part = usize::try_from(u64_at(bytes, first + 8 * number)?).ok()?;
        }
        let text = if wide { 0 } else { u64_at(bytes, 24)? };
        Some(Header { wide, has_line, quantum, functions: u64_at(bytes, 8)?, text, parts })
    }

    /// Returns the offset of the names.
    pub(crate) fn names(&self) -> usize {
        let [names, ..] = self.parts;
        names
    }

    /// Returns the offset of the steps: tables of values by program counter.
    pub(crate) fn steps(&self) -> usize {
        let [.., steps, _] = self.parts;
        steps
    }

    /// Returns the offset of the entries. The places of functions are also relative to it.
    pub(crate) fn entries(&self) -> usize {
        let [.., entries] = self.parts;
        entries
    }

    /// Returns an entry: the address of a function, and the place of its description. The entry after the last function is the end, and has
    /// none.
    pub(crate) fn entry(&self, entries: &[u8], number: u64) -> Option<(u64, Option<usize>)> {
        let width = if self.wide { 8 } else { 4 };
        let at = usize::try_from(number).ok()?.checked_mul(2 * width)?;
        let number_at = |at| if self.wide { u64_at(entries, at) } else { u32_at(entries, at).map(u64::from) };
        let entry = self.text.checked_add(number_at(at)?)?;
        Some((entry, number_at(at.checked_add(width)?).and_then(|place| usize::try_from(place).ok())))
    }
}

/// Returns the offset of the names, and the functions.
fn parse(bytes: &[u8], section_text: u64, is_code: impl Fn(u64) -> bool) -> Option<(usize, Vec<GoFunction>)> {
    let mut header = Header::parse(bytes)?;
    if header.functions == 0 || header.functions > MAX_FUNCTIONS {
        return None;
    }
    if !header.wide && !is_code(header.text) {
        header.text = section_text;
    }
    let names = Some(header.names()).filter(|names| *names <= bytes.len())?;
    let entries = bytes.get(header.entries()..)?;
    let width = if header.wide { 8 } else { 4 };
    let mut functions = Vec::new();
    for number in 0..header.functions {
        let ((start, place), (end, _)) = (header.entry(entries, number)?, header.entry(entries, number + 1)?);
        let function = GoFunction { start, end, name: u32_at(entries, place?.checked_add(width)?)? };
        if function.start < function.end {
            functions.push(function);
        }
    }
    Some((names, functions))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a table of Go 1.20 with these functions. Their names are `a`, `b`, ….
    fn table(entries: &[u32], end: u32) -> Vec<u8> {
        let mut bytes = 0xffff_fff1u32.to_le_bytes().to_vec();
        bytes.extend([0, 0, 1, 8]);
        let names_at = 8 + 8 * 8;
        let entries_at = names_at + 2 * entries.len();
        let head = [entries.len() as u64, 0, 0x1000, names_at as u64, 0, 0, 0, entries_at as u64];
        bytes.extend(head.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend((0..entries.len()).flat_map(|number| [b'a' + number as u8, 0]));
        let described = 8 * entries.len() + 4;
        for (number, entry) in entries.iter().enumerate() {
            bytes.extend(entry.to_le_bytes());
            bytes.extend(((described + 8 * number) as u32).to_le_bytes());
        }
        bytes.extend(end.to_le_bytes());
        for (number, entry) in entries.iter().enumerate() {
            bytes.extend(entry.to_le_bytes());
            bytes.extend((2 * number as u32).to_le_bytes());
        }
        bytes
    }

    #[test]
    fn functions_reach_to_the_next_and_have_their_names() {
        let bytes = table(&[0, 0x10, 0x40], 0x50);
        let (names, functions) = parse(&bytes, 0, |_| true).unwrap();
        let read: Vec<_> = functions.iter().map(|f| (f.start, f.end, bytes[names + f.name as usize] as char)).collect();
        assert_eq!(read, [(0x1000, 0x1010, 'a'), (0x1010, 0x1040, 'b'), (0x1040, 0x1050, 'c')]);
        let (_, functions) = parse(&bytes, 0x7000, |address| address >= 0x7000).unwrap();
        assert_eq!(functions[0].start, 0x7000, "where the header does not say");
    }

    #[test]
    fn names_behind_the_tables_end_are_none() {
        let mut bytes = table(&[0, 0x10], 0x20);
        let names_at = 8 + 3 * 8 + 8;
        assert!(parse(&bytes, 0, |_| true).is_some());
        for place in [bytes.len() as u64 + 1, u64::MAX] {
            bytes[names_at - 8..names_at].copy_from_slice(&place.to_le_bytes());
            assert!(parse(&bytes, 0, |_| true).is_none(), "{place:#x}");
        }
    }

    #[test]
    fn what_is_cut_or_claims_too_much_is_no_table() {
        let bytes = table(&[0, 0x10], 0x20);
        for length in 0..bytes.len() - 1 {
            assert!(parse(&bytes[..length], 0, |_| true).is_none(), "{length}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] = 0xff;
            let _ = parse(&bytes, 0, |_| true);
        }
    }
}
