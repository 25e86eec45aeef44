//! Functions of stripped Go programs, from `.gopclntab`: the table that Go's runtime names its own stacks by stays in.
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
use super::problem::Reason;
use super::source::{u32_at, u64_at};

/// The largest table read. Kubernetes' has 30 MB.
const MAX_TABLE: u64 = 256 << 20;
/// More functions than the largest programs have.
const MAX_FUNCTIONS: u64 = 2_000_000;

/// Where the names are in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GoNames {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// A function: `[start, end)`, and where its name begins among the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GoFunction {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) name: u32,
}

/// Where the names of Go code are, if it has a table that is understood.
pub(super) fn names(image: &Image) -> Result<Option<GoNames>, Reason> {
    Ok(functions(image)?.map(|(names, _)| names))
}

/// All functions of Go code in an image; none where there is no such table, or one that is not understood.
///
/// Fails where the file cannot be read.
pub(super) fn functions(image: &Image) -> Result<Option<(GoNames, Vec<GoFunction>)>, Reason> {
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

/// Where the names begin, and the functions.
fn parse(bytes: &[u8], section_text: u64, is_code: impl Fn(u64) -> bool) -> Option<(usize, Vec<GoFunction>)> {
    let magic = u32_at(bytes, 0)?;
    let wide = magic == 0xffff_fffa;
    let is_known = wide || matches!(magic, 0xffff_fff0 | 0xffff_fff1);
    let [0, 0, _, 8] = *bytes.get(4..8)? else { return None };
    let count = u64_at(bytes, 8)?;
    if !is_known || count == 0 || count > MAX_FUNCTIONS {
        return None;
    }
    let text = if wide { 0 } else { u64_at(bytes, 24)? };
    // From Go 1.26 on, and where the program may be loaded anywhere, the field is 0.
    let text = if !wide && !is_code(text) { section_text } else { text };
    let parts = if wide { 24 } else { 32 };
    let part = |number: usize| u64_at(bytes, parts + 8 * number).and_then(|place| usize::try_from(place).ok());
    let names = part(0).filter(|names| *names <= bytes.len())?;
    let entries = bytes.get(part(4)?..)?;
    let width = if wide { 8 } else { 4 };
    let number_at = |at: usize| if wide { u64_at(entries, at) } else { u32_at(entries, at).map(u64::from) };
    let entry = |index: usize| number_at(index * 2 * width).and_then(|entry| text.checked_add(entry));
    let count = usize::try_from(count).ok()?;
    let mut functions = Vec::new();
    for index in 0..count {
        let (start, end) = (entry(index)?, entry(index + 1)?);
        let place = usize::try_from(number_at((index * 2 + 1) * width)?).ok()?;
        let function = GoFunction { start, end, name: u32_at(entries, place.checked_add(width)?)? };
        if function.start < function.end {
            functions.push(function);
        }
    }
    Some((names, functions))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of Go 1.20 with these functions, whose names are `a`, `b`, ….
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
