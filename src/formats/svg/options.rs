//! Options of a flame graph, and the result of drawing it.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::palette::Palette;
use crate::profile::{LabelId, SourceLocation, sanitize};

/// Options of a flame graph.
#[derive(Clone, Debug)]
pub struct SvgOptions {
    /// Title above the picture. Default: `flametop`.
    pub title: String,
    /// Text below the title: the subject, time and place of the recording. Default: none.
    pub subtitle: Option<String>,
    /// Whether callers are at the top, as in an icicle graph. Default: no.
    pub inverted: bool,
    /// The counted unit. Default: `samples`.
    pub count_name: String,
    /// The colours of kinds.
    pub palette: Palette,
    /// The lines of functions, for tooltips. Default: none.
    pub lines: FxHashMap<LabelId, SourceLocation>,
    /// Shortens a name for the label of a box. Default: the name unchanged.
    pub short: fn(&str) -> Cow<'_, str>,
    /// Shortens a label to a number of characters. `script.js` does the same in a browser. Default: the label, or nothing.
    pub fit: fn(&str, usize) -> String,
}

impl Default for SvgOptions {
    fn default() -> Self {
        SvgOptions {
            title: "flametop".into(),
            subtitle: None,
            inverted: false,
            count_name: "samples".into(),
            palette: Palette::default(),
            lines: FxHashMap::default(),
            short: |name| Cow::Borrowed(name),
            fit: |label, room| if label.chars().count() <= room { label.to_owned() } else { String::new() },
        }
    }
}

/// Result of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Number of frames, without the frame for everything.
    pub frames: usize,
    /// The weight below which frames were left out.
    pub narrowest: u64,
    /// The depth below which frames were left out, if any were.
    pub deepest: Option<usize>,
    /// The weight of everything.
    pub total: u64,
}

impl Drawn {
    /// Describes the frames that were left out because they are too deep, as half a sentence.
    pub fn cut(&self) -> Option<String> {
        self.deepest.map(|deepest| format!("frames below level {deepest} are not drawn"))
    }
}

/// Returns text that may stand in XML: without control characters, and without the two other characters that XML forbids.
pub(in crate::formats) fn printable(text: &str) -> String {
    sanitize(text).replace(['\u{fffe}', '\u{ffff}'], "·")
}
