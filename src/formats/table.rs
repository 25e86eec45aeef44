//! The formats that flametop writes or reads. Help, prompts and errors list them by this table.

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// An interactive flame graph.
    Svg,
    /// The same, with a table of functions.
    Html,
    /// Folded stacks.
    Folded,
}

/// What is known of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which.
    pub format: Format,
    /// The endings of its files, without the dot. The first is offered.
    pub endings: &'static [&'static str],
    /// Whether such files can be opened.
    pub is_read: bool,
    /// Whether such files can be written.
    pub is_written: bool,
    /// A few words for help.
    pub what: &'static str,
}

/// All formats.
pub const FORMATS: &[Entry] = &[
    Entry { format: Format::Svg, endings: &["svg"], is_read: false, is_written: true, what: "a flame graph for a browser" },
    Entry {
        format: Format::Html,
        endings: &["html", "htm"],
        is_read: false,
        is_written: true,
        what: "a flame graph with a table of functions",
    },
    Entry { format: Format::Folded, endings: &["folded", "txt"], is_read: true, is_written: true, what: "folded stacks" },
];

impl Format {
    /// The format of files with this ending, in upper or lower case.
    pub fn of_ending(ending: &str) -> Option<Format> {
        let has_it = |entry: &&Entry| entry.endings.iter().any(|known| known.eq_ignore_ascii_case(ending));
        FORMATS.iter().find(has_it).map(|entry| entry.format)
    }

    /// The ending of its files, without the dot.
    pub fn ending(self) -> &'static str {
        let endings = FORMATS.iter().find(|entry| entry.format == self).map(|entry| entry.endings);
        endings.and_then(<[_]>::first).copied().unwrap_or_default()
    }
}

/// The endings of files that can be written, each with its dot.
fn written_endings() -> Vec<String> {
    let written = FORMATS.iter().filter(|entry| entry.is_written);
    written.flat_map(|entry| entry.endings).map(|ending| format!(".{ending}")).collect()
}

/// The endings of files that can be written, for an error: `.svg, .html, .htm, .folded and .txt`.
pub fn known_endings() -> String {
    let endings = written_endings();
    match endings.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => endings.concat(),
    }
}

/// The endings that are offered, for a prompt: `.svg`, `.html`, `.folded`.
pub fn offered_endings() -> Vec<String> {
    FORMATS.iter().filter(|entry| entry.is_written).map(|entry| format!(".{}", entry.format.ending())).collect()
}

/// What can be written, for help: `.svg (a flame graph for a browser), .folded or .txt (folded stacks)`.
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
            for ending in entry.endings {
                assert_eq!(Format::of_ending(&ending.to_uppercase()), Some(entry.format), "{ending}");
                assert!(described().contains(&format!(".{ending}")), "{ending}");
            }
        }
        assert_eq!(Format::of_ending("png"), None);
        assert_eq!(known_endings(), ".svg, .html, .htm, .folded and .txt");
        assert_eq!(offered_endings(), [".svg", ".html", ".folded"]);
        assert_eq!(
            described(),
            ".svg (a flame graph for a browser), .html or .htm (a flame graph with a table of functions), .folded or .txt (folded stacks)"
        );
    }
}
