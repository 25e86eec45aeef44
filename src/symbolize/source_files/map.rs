//! Source maps tell the source and the line that a compiler or bundler made a piece of a script from. Scripts and maps are hostile: profiled
//! programs name them.
//!
//! ```text
//! app.js       …  //# sourceMappingURL=app.js.map          a path, or the map itself in base64
//! app.js.map   { "sources": ["sums.ts"], "sourcesContent": ["…"], "mappings": "AAAA;AACA,IAAIA" }
//!
//! mappings     lines of the script, separated by `;`, their segments by `,`; a segment has 1, 4 or 5 numbers, each a distance from the
//!              one before: column, source, its line, its column, a name
//! a number     digits of 6 bits, the lowest first: bit 5 says that another one follows; bit 0 of the number is its sign
//! ```
//!
//! Source: ECMA-426.

use std::borrow::Cow;
use std::fmt::{self, Formatter};
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Longest map. The maps of the largest bundles, with their sources, have some 50 MB.
pub(crate) const MAX_SIZE: u64 = 64 << 20;
/// Most places of a map where another line begins: 20 MB. A bundle of 10 MB has less than a million.
const MAX_STEPS: usize = 1 << 20;
/// Most sources of a map, and bytes of all their names.
const MAX_SOURCES: usize = 1 << 16;
const MAX_NAMES: usize = 8 << 20;
/// Lines at the end of a script that may be comments after the one that names the map.
const LAST_LINES: usize = 4;
/// Most digits of a number.
const MAX_DIGITS: u32 = 7;

/// A parsed source map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Map {
    /// Paths of the sources.
    pub(crate) sources: Vec<String>,
    /// Where the line of the source changes.
    steps: Box<[Step]>,
}

/// The begin of a piece of the script that was made from another line than the piece before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    /// From 0.
    line: u32,
    column: u32,
    /// The number of the source, and the line, from 0. `None`: no source has this.
    origin: Option<Origin>,
}

type Origin = (u32, u32);

#[derive(serde::Deserialize)]
struct Written<'a> {
    #[serde(default, rename = "sourceRoot")]
    root: Option<String>,
    #[serde(default, deserialize_with = "bounded")]
    sources: Vec<Option<String>>,
    #[serde(borrow, default, rename = "sourcesContent")]
    contents: Option<&'a RawValue>,
    #[serde(borrow)]
    mappings: Option<Cow<'a, str>>,
}

#[derive(serde::Deserialize)]
struct Contents<'a>(#[serde(borrow, deserialize_with = "bounded")] Vec<&'a RawValue>);

/// Parses a list of sources. It ends with an error once it is too long, because each entry takes more memory than its two bytes of text.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of sources")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut sources = Vec::new();
            while let Some(source) = list.next_element()? {
                if sources.len() == MAX_SOURCES {
                    return Err(de::Error::custom(format!("it has more than {MAX_SOURCES} sources")));
                }
                sources.push(source);
            }
            Ok(sources)
        }
    }
    deserializer.deserialize_seq(Bounded(PhantomData))
}

impl<'a> Written<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Written<'a>, String> {
        // Some servers put a line before it, so that it is no script.
        let bytes = match bytes.strip_prefix(b")]}'") {
            Some(rest) => rest.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default(),
            None => bytes,
        };
        let written: Written<'a> = serde_json::from_slice(bytes).map_err(|error| format!("it is no source map: {error}"))?;
        // The root comes before each name.
        let root = written.root.as_ref().map_or(0, String::len);
        let names = written.sources.iter().map(|source| root + source.as_ref().map_or(0, String::len)).sum::<usize>();
        if names > MAX_NAMES { Err(format!("the names of its sources have more than {MAX_NAMES} bytes")) } else { Ok(written) }
    }
}

impl Map {
    /// Parses a map.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Map, String> {
        let Written { root, sources, mappings, .. } = Written::parse(bytes)?;
        let mappings = mappings.ok_or("it has no mappings: maps of several parts are not read")?;
        let root = root.map(|root| root.trim_end_matches('/').to_owned()).filter(|root| !root.is_empty());
        let path = |source: Option<String>| match (&root, source.unwrap_or_default()) {
            (Some(root), source) if !source.starts_with('/') && !source.contains("://") => format!("{root}/{source}"),
            (_, source) => source,
        };
        let sources: Vec<String> = sources.into_iter().map(path).collect();
        let steps = steps(mappings.as_bytes(), sources.len())?;
        Ok(Map { sources, steps: steps.into() })
    }

    /// Returns the number of the source and the line, from 1, that a place of the script was made from. Without a column: the first one of
    /// the line. Lines and columns count from 1.
    pub(crate) fn original(&self, line: u32, column: Option<u32>) -> Option<(usize, u32)> {
        let line = line.checked_sub(1)?;
        let begin = self.steps.partition_point(|step| step.line < line);
        let count = self.steps.get(begin..)?.partition_point(|step| step.line == line);
        let steps = self.steps.get(begin..begin + count)?;
        let before = column.map_or(0, |column| steps.partition_point(|step| step.column < column));
        let origin = match before.checked_sub(1) {
            Some(last) => steps.get(last)?.origin,
            None => steps.iter().find_map(|step| step.origin),
        };
        origin.map(|(source, line)| (source as usize, line.saturating_add(1)))
    }

    /// Returns the text of a source, if the map has it.
    pub(crate) fn content(bytes: &[u8], source: usize) -> Option<String> {
        let written = Written::parse(bytes).ok()?;
        let Contents(contents) = serde_json::from_str(written.contents?.get()).ok()?;
        serde_json::from_str(contents.get(source)?.get()).ok()
    }

    /// Returns the bytes of memory that it takes.
    pub(crate) fn size(&self) -> usize {
        size_of_val(&*self.steps) + self.sources.iter().map(|source| size_of::<String>() + source.len()).sum::<usize>()
    }
}

/// Where the map of a script is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In a file: an absolute path, or one that begins at the directory of the script.
    File(String),
    /// In the script.
    Inside(Vec<u8>),
}

/// Returns where a script says that its map is.
///
/// # Errors
///
/// A sentence that says why it cannot be read.
pub(crate) fn place_of(script: &[u8]) -> Option<Result<Place, String>> {
    const MARKS: [&[u8]; 2] = [b"//# sourceMappingURL=", b"//@ sourceMappingURL="];
    let lines = script.rsplit(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let comments = lines.take(LAST_LINES).take_while(|line| line.starts_with(b"//"));
    let url = comments.flat_map(|line| MARKS.map(|mark| line.strip_prefix(mark))).flatten().next()?;
    let Ok(url) = std::str::from_utf8(url) else { return Some(Err("its place is no text".to_owned())) };
    Some(match url.strip_prefix("data:") {
        Some(data) => match data.split_once(',') {
            Some((kind, text)) if kind.ends_with(";base64") => {
                let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
                bytes.map(Place::Inside).map_err(|_| "it is no base64".to_owned())
            }
            _ => Err("it is inside the script, but not in base64".to_owned()),
        },
        None => path_of(url).map(|path| Place::File(path.to_owned())).ok_or_else(|| "it is no file of this machine".to_owned()),
    })
}

/// Returns the path of a file that a URL names. `None` if the URL leads elsewhere.
pub(crate) fn path_of(url: &str) -> Option<&str> {
    match url.strip_prefix("file://") {
        Some(path) => Some(path),
        None if url.contains("://") => None,
        None => Some(url),
    }
}

/// Returns the path of a file that is named beside another file.
pub(crate) fn beside(file: &str, named: &str) -> String {
    if named.starts_with('/') {
        return named.to_owned();
    }
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in named.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.len() > 1 => drop(parts.pop()),
            ".." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Parses mappings. Places that another place with the same line precedes are left out.
fn steps(mappings: &[u8], sources: usize) -> Result<Vec<Step>, String> {
    const WRONG: &str = "its mappings are damaged";
    let mut steps: Vec<Step> = Vec::new();
    let (mut source, mut at) = (0i64, 0i64);
    for (number, line) in (0u32..).zip(mappings.split(|byte| *byte == b';')) {
        let (first, mut column) = (steps.len(), 0i64);
        for segment in line.split(|byte| *byte == b',').filter(|segment| !segment.is_empty()) {
            let (distance, of_source) = numbers(segment).ok_or(WRONG)?;
            column += distance;
            let mut origin = None;
            if let Some((sources_on, lines_on)) = of_source {
                (source, at) = (source + sources_on, at + lines_on);
                let has_source = usize::try_from(source).is_ok_and(|source| source < sources);
                origin = u32::try_from(source).ok().zip(u32::try_from(at).ok()).filter(|_| has_source);
                origin.ok_or(WRONG)?;
            }
            let step = Step { line: number, column: u32::try_from(column).map_err(|_| WRONG)?, origin };
            let of_line = steps.get(first..).and_then(<[Step]>::last);
            // Some writers do not sort them.
            if of_line.is_some_and(|last| last.origin == origin || last.column > step.column) {
                continue;
            }
            if steps.len() == MAX_STEPS {
                return Err(format!("it has more than {MAX_STEPS} places"));
            }
            steps.push(step);
        }
    }
    Ok(steps)
}

/// Parses a segment: the distance of its column, and those of its source and line.
fn numbers(mut segment: &[u8]) -> Option<(i64, Option<(i64, i64)>)> {
    let (mut numbers, mut count) = ([0; 5], 0);
    while !segment.is_empty() {
        *numbers.get_mut(count)? = number(&mut segment)?;
        count += 1;
    }
    let [column, source, line, ..] = numbers;
    match count {
        1 => Some((column, None)),
        4 | 5 => Some((column, Some((source, line)))),
        _ => None,
    }
}

/// Parses the number that these digits begin with.
fn number(digits: &mut &[u8]) -> Option<i64> {
    let mut number = 0u64;
    for digit in 0..MAX_DIGITS {
        let value = u64::from(match *digits.split_off_first()? {
            upper @ b'A'..=b'Z' => upper - b'A',
            lower @ b'a'..=b'z' => lower - b'a' + 26,
            digit @ b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        });
        number |= (value & 31) << (5 * digit);
        if value & 32 == 0 {
            let size = (number >> 1) as i64;
            return Some(if number & 1 == 1 { -size } else { size });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(mappings: &str) -> Result<Map, String> {
        Map::parse(format!(r#"{{"version":3,"sources":["a","b"],"mappings":"{mappings}"}}"#).as_bytes())
    }

    #[test]
    fn places_have_the_lines_of_their_sources() {
        // Line 1: columns 0 and 5 are line 1 of `a`, 9 is line 3 of `b`, 12 is of none. Line 3: column 2 is line 2 of `b`.
        let map = map("AAAA,KAAK,ICEA,G;;EADA").unwrap();
        let places = [
            (1, Some(1)),
            (1, Some(9)),
            (1, Some(10)),
            (1, Some(13)),
            (1, None),
            (2, None),
            (3, None),
            (3, Some(1)),
            (3, Some(9)),
            (4, None),
            (0, None),
        ];
        let found = places.map(|(line, column)| map.original(line, column));
        let (a, b) = (Some((0, 1)), Some((1, 3)));
        let last = Some((1, 2));
        assert_eq!(found, [a, a, b, None, a, None, last, last, last, None, None]);
        assert_eq!(map.steps.len(), 4, "a place with the line of the one before is not kept");
    }

    #[test]
    fn damaged_maps_are_refused() {
        for mappings in ["AA", "AAA", "A!AA", "AEAA", "ADAA", "AADA", "gggggggB", "D"] {
            assert_eq!(map(mappings), Err("its mappings are damaged".to_owned()), "{mappings}");
        }
        assert!(map("").unwrap().original(1, None).is_none());
        assert!(Map::parse(b")]}'\n{\"mappings\":\"\"}").is_ok());
        assert_eq!(map(&"AAAA,AACA,".repeat(MAX_STEPS)), Err(format!("it has more than {MAX_STEPS} places")));
        assert!(Map::parse(br#"{"version":3,"sections":[]}"#).unwrap_err().contains("several parts"));
        // The list is not read to its end, where it is damaged.
        let many = |name: &str| format!(r#"{{"{name}":[{}!"#, r#""","#.repeat(MAX_SOURCES + 1));
        assert!(Map::parse(many("sources").as_bytes()).unwrap_err().contains("more than 65536 sources"));
        let list = many("").split_once(':').unwrap().1.to_owned();
        assert!(serde_json::from_str::<Contents<'_>>(&list).is_err_and(|error| error.to_string().contains("more than 65536")));
        let long = |root: &str| format!(r#"{{"sourceRoot":"{root}","sources":[{}""],"mappings":""}}"#, r#""","#.repeat(1000));
        assert!(Map::parse(long(&"x".repeat(8000)).as_bytes()).is_ok());
        assert!(Map::parse(long(&"x".repeat(9000)).as_bytes()).unwrap_err().contains("names of its sources"));
    }

    #[test]
    fn sources_have_the_paths_and_texts_of_the_map() {
        let text = br#"{"sourceRoot":"../","sources":["a.ts","/b.ts","webpack://x/c.ts",null],"sourcesContent":["a\n",null],"mappings":""}"#;
        assert_eq!(Map::parse(text).unwrap().sources, ["../a.ts", "/b.ts", "webpack://x/c.ts", "../"]);
        assert_eq!([0, 1, 2].map(|source| Map::content(text, source)), [Some("a\n".to_owned()), None, None]);
        for (file, named, path) in [
            ("/srv/dist/app.js", "app.js.map", "/srv/dist/app.js.map"),
            ("/srv/dist/app.js", "../src/./a.ts", "/srv/src/a.ts"),
            ("/app.js", "../../etc/a.ts", "/etc/a.ts"),
            ("/app.js", "/a.ts", "/a.ts"),
        ] {
            assert_eq!(beside(file, named), path);
        }
    }

    #[test]
    fn the_last_comment_of_a_script_says_where_its_map_is() {
        let place = |script: &str| place_of(script.as_bytes());
        let file = |path: &str| Some(Ok(Place::File(path.to_owned())));
        assert_eq!(place("f()\n//# sourceMappingURL=f.js.map\n"), file("f.js.map"));
        assert_eq!(place("f()\r\n//# sourceMappingURL=file:///f.js.map\r\n//# sourceURL=f.js\r\n\r\n"), file("/f.js.map"));
        assert_eq!(place("//@ sourceMappingURL=f.js.map"), file("f.js.map"));
        for script in ["", "f()", "//# sourceMappingURL=f.js.map\nf()", "f() //# sourceMappingURL=f.js.map"] {
            assert_eq!(place(script), None, "{script}");
        }
        let data = "//# sourceMappingURL=data:application/json;charset=utf-8;base64,e30=";
        assert_eq!(place(data), Some(Ok(Place::Inside(b"{}".to_vec()))));
        assert_eq!(place(data.trim_end_matches('=')), Some(Ok(Place::Inside(b"{}".to_vec()))));
        for (script, why) in
            [("https://x/f.js.map", "no file of this machine"), ("data:,{}", "not in base64"), ("data:;base64,!", "no base64")]
        {
            let found = place(&format!("//# sourceMappingURL={script}"));
            assert!(matches!(&found, Some(Err(told)) if told.contains(why)), "{found:?}");
        }
    }
}
