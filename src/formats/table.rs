//! The formats that flametop writes or reads, and formats that it only recognizes. Help, prompts and errors list them from these
//! tables. A new format is a module with a reader or a writer, a variant of [`Format`], and a row in [`FORMATS`].

use std::io::Write;

use super::options::{SaveOptions, Writer};
use super::reading::ReadFn;
use super::sink::Sink;
use super::{FormatError, Part, folded, html, json, otlp, perf_data, perf_script, pprof, recording, svg};

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// An interactive flame graph.
    Svg,
    /// The same graph, with a table of functions.
    Html,
    /// The tree of a view in JSON.
    Tree,
    /// Folded stacks.
    Folded,
    /// All samples, with their times and threads.
    Recording,
    /// pprof's protocol buffer.
    Pprof,
    /// A profile of OpenTelemetry.
    Otlp,
    /// The same in JSON.
    OtlpJson,
    /// The text of `perf script`.
    PerfScript,
    /// The file of `perf record`.
    PerfData,
    /// speedscope's JSON. Its row reads the profiles of V8 and of Firefox as well.
    Speedscope,
    /// The JSON of Firefox's profiler, compressed by gzip.
    Firefox,
}

/// Properties of a format.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The format.
    pub format: Format,
    /// The endings of its files, without the dot. The first is offered.
    pub endings: &'static [&'static str],
    /// Short description for help.
    pub what: &'static str,
    /// The word for such a file in a list.
    pub short: &'static str,
    /// Whether the format contains source lines.
    pub shows_lines: bool,
    /// Whether a file that begins with these bytes is of this format.
    pub(super) recognizes: fn(&[u8]) -> bool,
    /// The reader, if such files can be opened.
    pub(super) read: Option<ReadFn>,
    /// The writer, if such files can be written.
    pub(super) write: Option<Writer>,
}

/// All formats. A file is of the first one that recognizes it. Folded stacks come last: they take any file.
pub const FORMATS: &[Entry] = &[
    Entry {
        format: Format::Svg,
        endings: &["svg"],
        what: "a flame graph for a browser",
        short: "picture",
        shows_lines: true,
        recognizes: |head| head.starts_with(b"<?xml"),
        read: None,
        write: Some(Writer::Tree(|part, options, out| svg::write(part, &options.picture, out).map(|drawn| drawn.cut()))),
    },
    Entry {
        format: Format::Html,
        endings: &["html", "htm"],
        what: "a flame graph with a table of functions",
        short: "page",
        shows_lines: true,
        recognizes: |head| head.starts_with(b"<!DOCTYPE html"),
        read: None,
        write: Some(Writer::Tree(|part, options, out| html::write(part, &options.picture, out).map(|drawn| drawn.cut()))),
    },
    Entry {
        format: Format::Recording,
        endings: &["flametop"],
        what: "a recording, to be opened again",
        short: "recording",
        shows_lines: false,
        recognizes: recording::recognizes,
        read: Some(recording::open),
        write: Some(Writer::Samples(|| Box::new(recording::Recorder::new()))),
    },
    Entry {
        format: Format::Pprof,
        endings: &["pprof", "pb.gz"],
        what: "a profile for pprof",
        short: "pprof",
        shows_lines: false,
        recognizes: pprof::recognizes,
        read: Some(pprof::open),
        write: Some(Writer::Tree(|part, options, out| pprof::write(part, options, out).map(|()| None))),
    },
    Entry {
        format: Format::Otlp,
        endings: &["otlp"],
        what: "a profile for OpenTelemetry",
        short: "OpenTelemetry",
        shows_lines: false,
        recognizes: otlp::recognizes,
        read: Some(otlp::open),
        write: Some(Writer::Samples(|| Box::new(otlp::OtlpWriter::default()))),
    },
    Entry {
        format: Format::OtlpJson,
        endings: &["otlp.json"],
        what: "the same in JSON",
        short: "OpenTelemetry",
        shows_lines: false,
        // The reader of JSON knows its keys.
        recognizes: |_| false,
        read: None,
        write: Some(Writer::Samples(|| Box::new(otlp::OtlpWriter::json()))),
    },
    Entry {
        format: Format::PerfScript,
        endings: &["perf"],
        what: "the text of perf script",
        short: "perf script",
        shows_lines: false,
        recognizes: perf_script::recognizes,
        read: Some(perf_script::open),
        write: None,
    },
    Entry {
        format: Format::PerfData,
        endings: &["data"],
        what: "the file of perf record",
        short: "perf.data",
        shows_lines: false,
        recognizes: perf_data::recognizes,
        read: Some(perf_data::open),
        write: None,
    },
    Entry {
        format: Format::Speedscope,
        endings: &["speedscope.json", "speedscope", "json"],
        what: "a profile for speedscope",
        short: "JSON profile",
        shows_lines: false,
        recognizes: json::recognizes,
        read: Some(json::open),
        write: Some(Writer::Tree(|part, options, out| json::write(part, options, out).map(|()| None))),
    },
    Entry {
        format: Format::Firefox,
        endings: &["firefox.json.gz", "firefox", "json.gz"],
        what: "a profile for profiler.firefox.com",
        short: "JSON profile",
        shows_lines: false,
        // The row above reads all JSON.
        recognizes: |_| false,
        read: None,
        write: Some(Writer::Samples(|| Box::new(json::FirefoxWriter::default()))),
    },
    Entry {
        format: Format::Tree,
        endings: &["tree.json", "tree"],
        what: "the graph as nested JSON objects",
        short: "tree",
        shows_lines: false,
        recognizes: |_| false,
        read: None,
        write: Some(Writer::Tree(|part, options, out| json::write_tree(part, options, out).map(|()| None))),
    },
    Entry {
        format: Format::Folded,
        endings: &["folded", "txt"],
        what: "folded stacks",
        short: "folded stacks",
        shows_lines: false,
        recognizes: |_| true,
        read: Some(folded::open),
        write: Some(Writer::Tree(|part, options, out| folded::write_part(part, options.folded, out).map(|_| None))),
    },
];

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
    foreign(b"BZh", "bzip2-compressed data", "unpack it with `bzip2 -dc` first"),
    foreign(b"2ELIFREP", "a perf recording of a big-endian machine", "print it with `perf script -F +pid | flametop view -`"),
    foreign(b"PERFFILE", "a perf recording of before 2012", "print it with `perf script -F +pid | flametop view -`"),
    foreign(b"PK\x03\x04", "a zip archive", "unpack it with `unzip` first"),
    foreign(b"FLR\0", "a recording of Java's Flight Recorder", "convert it with async-profiler's `jfrconv --collapsed`"),
    foreign(b"Nettrace", "a trace of .NET", "convert it with `dotnet-trace convert --format speedscope`"),
    foreign(b"@", "output of bpftrace", "fold it with FlameGraph's `stackcollapse-bpftrace.pl`"),
    foreign(b"Attaching ", "output of bpftrace", "fold it with FlameGraph's `stackcollapse-bpftrace.pl`"),
    foreign(b"# callgrind format", "a profile of Callgrind, which has no stacks", "open it in KCachegrind"),
    foreign(b"version: 1\n", "a profile of Callgrind, which has no stacks", "open it in KCachegrind"),
    foreign(b"events: ", "a profile of Callgrind, which has no stacks", "open it in KCachegrind"),
    foreign(b"PeriodType: ", "the text of `pprof -raw`", "give the profile that it was made from"),
    foreign(b"Analysis of sampling ", "output of macOS's `sample`", "fold it with FlameGraph's `stackcollapse-sample.awk`"),
    foreign(b"\x7fELF", "an executable", "give a recording, or record it with `flametop record`"),
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

    /// Whether it is a picture, which a person looks at.
    pub fn is_picture(self) -> bool {
        matches!(self, Format::Svg | Format::Html)
    }

    /// Returns the format of a file of this name: `cpu.pb.gz`.
    pub(super) fn of_name(name: &str) -> Option<Format> {
        let endings = name.match_indices('.').filter(|(at, _)| *at > 0).map(|(at, _)| name.get(at + 1..).unwrap_or_default());
        endings.into_iter().find_map(Format::of_ending)
    }

    /// Returns the format's row in [`FORMATS`].
    fn entry(self) -> Option<&'static Entry> {
        FORMATS.iter().find(|entry| entry.format == self)
    }

    /// Returns the ending of its files, without the dot.
    pub fn ending(self) -> &'static str {
        self.entry().and_then(|entry| entry.endings.first()).copied().unwrap_or_default()
    }

    /// Returns a writer of samples, if such files have samples with their times, and not the tree of a view.
    pub fn sink(self) -> Option<Box<dyn Sink>> {
        match self.entry()?.write? {
            Writer::Samples(begin) => Some(begin()),
            Writer::Tree(_) => None,
        }
    }

    /// Writes a part of a tree. Returns a description of omitted parts, as half a sentence.
    ///
    /// `out` should be buffered. A tree without weight is an error.
    pub fn write(self, part: Part<'_>, options: &SaveOptions, out: &mut dyn Write) -> Result<Option<String>, FormatError> {
        match self.entry().and_then(|entry| entry.write) {
            Some(Writer::Tree(write)) => write(part, options, out),
            Some(Writer::Samples(_)) | None => Err(FormatError::NotWritten),
        }
    }

    /// Returns whether a file holds samples of several sources beside each other.
    pub fn holds_all_sources(self) -> bool {
        matches!(self, Format::Recording | Format::Otlp | Format::OtlpJson)
    }

    /// Returns whether the format contains source lines.
    pub fn shows_lines(self) -> bool {
        self.entry().is_some_and(|entry| entry.shows_lines)
    }
}

/// Returns the endings of files that can be written, each with its dot.
fn written_endings() -> Vec<String> {
    let written = FORMATS.iter().filter(|entry| entry.write.is_some());
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
    FORMATS.iter().filter(|entry| entry.write.is_some()).map(|entry| format!(".{}", entry.format.ending())).collect()
}

/// Describes the formats that can be written, for help: `.svg (a flame graph for a browser), .folded or .txt (folded stacks)`.
pub fn described() -> String {
    let described = FORMATS.iter().filter(|entry| entry.write.is_some()).map(|entry| {
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
            assert!(entry.read.is_some() || entry.write.is_some(), "{entry:?}");
            assert_eq!(Format::of_ending(entry.format.ending()), Some(entry.format));
            for ending in entry.endings {
                assert_eq!(Format::of_ending(&ending.to_uppercase()), Some(entry.format), "{ending}");
                assert_eq!(described().contains(&format!(".{ending}")), entry.write.is_some(), "{ending}");
            }
        }
        // A file that cannot be opened is refused with advice. Only the last row takes what no other row recognizes.
        for foreign in FOREIGN {
            let row = FORMATS.iter().find(|entry| (entry.recognizes)(foreign.magic)).unwrap();
            assert!(row.read.is_none() || row.format == Format::Folded, "{foreign:?}");
        }
        assert_eq!(FORMATS.iter().position(|entry| (entry.recognizes)(b"main;f 1")), Some(FORMATS.len() - 1));
        assert_eq!(Format::of_ending("png"), None);
        assert_eq!(Format::of_name("a.b.PB.gz"), Some(Format::Pprof));
        assert_eq!((Format::of_name(".svg"), Format::of_name("svg"), Format::of_name("a.svg.bak")), (None, None, None));
        assert_eq!(
            known_endings(),
            ".svg, .html, .htm, .flametop, .pprof, .pb.gz, .otlp, .otlp.json, .speedscope.json, .speedscope, .json, .firefox.json.gz, .firefox, .json.gz, .tree.json, .tree, .folded and .txt"
        );
        assert_eq!(
            offered_endings(),
            [
                ".svg",
                ".html",
                ".flametop",
                ".pprof",
                ".otlp",
                ".otlp.json",
                ".speedscope.json",
                ".firefox.json.gz",
                ".tree.json",
                ".folded"
            ]
        );
        assert_eq!(
            described(),
            ".svg (a flame graph for a browser), .html or .htm (a flame graph with a table of functions), \
             .flametop (a recording, to be opened again), .pprof or .pb.gz (a profile for pprof), .otlp (a profile for OpenTelemetry), .otlp.json (the same in JSON), \
             .speedscope.json or .speedscope or .json (a profile for speedscope), \
             .firefox.json.gz or .firefox or .json.gz (a profile for profiler.firefox.com), \
             .tree.json or .tree (the graph as nested JSON objects), .folded or .txt (folded stacks)"
        );
    }
}
