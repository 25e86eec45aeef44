//! How a flame graph is drawn, and what was drawn.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::palette::Palette;
use crate::profile::{LabelId, SourceLocation, sanitize};

/// How the flame graph is drawn.
#[derive(Clone, Debug)]
pub struct SvgOptions {
    /// Written above it. Default: `flametop`.
    pub title: String,
    /// Written below the title, for what was recorded, when and where. Default: none.
    pub subtitle: Option<String>,
    /// Whether callers are at the top, as in an icicle graph. Default: no.
    pub inverted: bool,
    /// What is counted. Default: `samples`.
    pub count_name: String,
    /// The colours of kinds.
    pub palette: Palette,
    /// The lines of functions, for tooltips. Default: none.
    pub lines: FxHashMap<LabelId, SourceLocation>,
    /// Makes a short name, which stands on a box. Default: the name as it is.
    pub short: fn(&str) -> Cow<'_, str>,
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
        }
    }
}

/// What was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Frames, without the one for everything.
    pub frames: usize,
    /// The weight below which frames were left out.
    pub narrowest: u64,
    /// The depth below which frames were left out, if any were.
    pub deepest: Option<usize>,
    /// The weight of everything.
    pub total: u64,
}

impl Drawn {
    /// Says which frames were left out because they lie too deep, as half a sentence.
    pub fn cut(&self) -> Option<String> {
        self.deepest.map(|deepest| format!("frames below level {deepest} are not drawn"))
    }
}

/// Text that may stand in XML: without control characters, and without the two characters that XML forbids besides.
pub(in crate::formats) fn printable(text: &str) -> String {
    sanitize(text).replace(['\u{fffe}', '\u{ffff}'], "·")
}
