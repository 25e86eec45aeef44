//! The formats that flametop writes or reads, and formats that it only recognizes. Help, prompts and errors list them from these
//! tables.

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// An interactive flame graph.
    Svg,
    /// The same graph, with a table of functions.
    Html,
    /// Folded stacks.
    Folded,
}

/// The input of a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// The tree of a view, with its filters, range and zoom.
    Tree,
    /// All samples, each with its time and thread.
    Profile,
}

/// Properties of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The format.
    pub format: Format,
    /// The endings of its files, without the dot. The first is offered.
    pub endings: &'static [&'static str],
    /// The first bytes of its files, if they are always the same.
    pub magic: Option<&'static [u8]>,
    /// Whether such files can be opened.
    pub is_read: bool,
    /// Whether such files can be written.
    pub is_written: bool,
    /// The input of its writer.
    pub takes: Takes,
    /// Whether the format contains source lines.
    pub shows_lines: bool,
    /// Short description for help.
    pub what: &'static str,
}

/// All formats.
pub const FORMATS: &[Entry] = &[
    Entry {
        format: Format::Svg,
        endings: &["svg"],
        magic: Some(b"<?xml"),
        is_read: false,
        is_written: true,
        takes: Takes::Tree,
        shows_lines: true,
        what: "a flame graph for a browser",
    },
    Entry {
        format: Format::Html,
        endings: &["html", "htm"],
        magic: Some(b"<!DOCTYPE html"),
        is_read: false,
        is_written: true,
        takes: Takes::Tree,
        shows_lines: true,
        what: "a flame graph with a table of functions",
    },
    Entry {
        format: Format::Folded,
        endings: &["folded", "txt"],
        magic: None,
        is_read: true,
        is_written: true,
        takes: Takes::Tree,
        shows_lines: false,
        what: "folded stacks",
    },
];

/// Number of first bytes that are enough to recognize a format.
pub(super) const MAGIC_BYTES: usize = 16;

/// A format that cannot be opened, and what can be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Foreign {
    /// The first bytes of its files.
    magic: &'static [u8],
    /// Its name, with an article.
    pub(super) what: &'static str,
    /// How to get folded stacks from it.
    pub(super) advice: &'static str,
}

const fn foreign(magic: &'static [u8], what: &'static str, advice: &'static str) -> Foreign {
    Foreign { magic, what, advice }
}

/// Formats that people mistake for folded stacks.
const FOREIGN: &[Foreign] = &[
    foreign(
        b"\x1f\x8b",
        "gzip-compressed data",
        "unpack it with `gzip -dc` first; if it is a pprof profile, convert it to folded stacks",
    ),
    foreign(b"\x28\xb5\x2f\xfd", "zstd-compressed data", "unpack it with `zstd -dc` first"),
    foreign(b"\xfd7zXZ\0", "xz-compressed data", "unpack it with `xz -dc` first"),
    foreign(b"BZh", "bzip2-compressed data", "unpack it with `bzip2 -dc` first"),
    foreign(b"PERFILE2", "a perf recording", "convert it to folded stacks with `perf script | inferno-collapse-perf`"),
    foreign(b"\x7fELF", "an executable", "give a file of folded stacks"),
    foreign(b"<?xml", "XML, perhaps a finished flame graph", "give the folded stacks it was made from"),
    foreign(b"<!DOCTYPE html", "an HTML page, perhaps a finished flame graph", "give the folded stacks it was made from"),
];

impl Foreign {
    /// Returns the foreign format of a file with these first bytes.
    pub(super) fn of(head: &[u8]) -> Option<&'static Foreign> {
        FOREIGN.iter().find(|foreign| head.starts_with(foreign.magic))
    }
}

impl Format {
    /// Returns the format of files with this ending, in upper or lower case.
    pub fn of_ending(ending: &str) -> Option<Format> {
        let has_it = |entry: &&Entry| entry.endings.iter().any(|known| known.eq_ignore_ascii_case(ending));
        FORMATS.iter().find(has_it).map(|entry| entry.format)
    }

    /// Returns the format's row in [`FORMATS`].
    fn entry(self) -> Option<&'static Entry> {
        FORMATS.iter().find(|entry| entry.format == self)
    }

    /// Returns the ending of its files, without the dot.
    pub fn ending(self) -> &'static str {
        self.entry().and_then(|entry| entry.endings.first()).copied().unwrap_or_default()
    }

    /// Returns whether the format contains source lines.
    pub fn shows_lines(self) -> bool {
        self.entry().is_some_and(|entry| entry.shows_lines)
    }
}

/// Returns the endings of files that can be written, each with its dot.
fn written_endings() -> Vec<String> {
    let written = FORMATS.iter().filter(|entry| entry.is_written);
    written.flat_map(|entry| entry.endings).map(|ending| format!(".{ending}")).collect()
}

/// Returns the endings of files that can be written, for an error: `.svg, .html, .htm, .folded and .txt`.
pub fn known_endings() -> String {
    let endings = written_endings();
    match endings.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => endings.concat(),
    }
}

/// Returns the endings that are offered, for a prompt: `.svg`, `.html`, `.folded`.
pub fn offered_endings() -> Vec<String> {
    FORMATS.iter().filter(|entry| entry.is_written).map(|entry| format!(".{}", entry.format.ending())).collect()
}

/// Describes the formats that can be written, for help: `.svg (a flame graph for a browser), .folded or .txt (folded stacks)`.
pub fn described() -> String {
    let described = FORMATS.iter().filter(|entry| entry.is_written).map(|entry| {
        let endings: Vec<String> = entry.endings.iter().map(|ending| format!(".{ending}")).collect();
        format!("{} ({})", endings.join(" or "), entry.what)
    });
    described.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ending_tells_one_format_and_each_format_is_listed() {
        for entry in FORMATS {
            assert!(entry.is_read || entry.is_written, "{entry:?}");
            assert_eq!(Format::of_ending(entry.format.ending()), Some(entry.format));
            // Files that cannot be opened are recognized by their first bytes.
            assert_eq!(entry.magic.and_then(Foreign::of).is_some(), !entry.is_read, "{entry:?}");
            for ending in entry.endings {
                assert_eq!(Format::of_ending(&ending.to_uppercase()), Some(entry.format), "{ending}");
                assert!(described().contains(&format!(".{ending}")), "{ending}");
            }
        }
        assert!(FOREIGN.iter().all(|foreign| foreign.magic.len() <= MAGIC_BYTES));
        assert_eq!(Format::of_ending("png"), None);
        assert_eq!(known_endings(), ".svg, .html, .htm, .folded and .txt");
        assert_eq!(offered_endings(), [".svg", ".html", ".folded"]);
        assert_eq!(
            described(),
            ".svg (a flame graph for a browser), .html or .htm (a flame graph with a table of functions), .folded or .txt (folded stacks)"
        );
    }
}
