//! Profiles of Firefox's profiler, which samply writes as well.
//!
//! A *processed* profile has tables in columns: a stack is a frame and the stack of its caller, a frame belongs to a function, names are
//! numbers in a list of strings. Up to version 59 each thread has its tables, later ones share them; version 66 stores a caller's stack as
//! the distance to it. A *Gecko* profile comes from the browser itself: its tables are lists of rows, and a frame is a text.
//!
//! The shapes are those of the versions that `profiler.firefox.com` upgrades (`processed-profile-versioning`), versions 1 to 75.

mod gecko;
mod read;
mod write;

use serde::Deserialize;

use crate::formats::FormatError;
use crate::profile::{FrameKind, Language};

use crate::formats::stacks::Stacks;

pub(super) use gecko::{Document as Gecko, read as read_gecko};
pub(super) use read::read;
pub(in crate::formats) use write::FirefoxWriter;

/// The categories of frames that flametop writes: the kind, the name, and the colour that the profiler gives it.
const CATEGORIES: [(FrameKind, &str, &str); 10] = [
    (FrameKind::Unknown, "Other", "grey"),
    (FrameKind::Process, "Process", "darkgrey"),
    (FrameKind::User, "User", "yellow"),
    (FrameKind::Kernel, "Kernel", "orange"),
    (FrameKind::Inlined, "Inlined", "lightblue"),
    (FrameKind::Jit, "JIT", "green"),
    (FrameKind::Script(Language::Python), "Python", "blue"),
    (FrameKind::Script(Language::JavaScript), "JavaScript", "magenta"),
    (FrameKind::Script(Language::Java), "Java", "purple"),
    (FrameKind::Wait, "Wait", "blue"),
];

/// The facts about a profile that its reader needs.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    /// Only processed profiles have it.
    pub(super) preprocessed_profile_version: Option<u32>,
    /// Milliseconds between samples.
    interval: Option<f64>,
    /// When the time was 0, in milliseconds since 1970.
    start_time: Option<f64>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Category {
    name: String,
}

impl Meta {
    /// Returns the kind of frames of a category.
    fn kind(&self, category: Option<f64>) -> FrameKind {
        let name = category.and_then(|number| self.categories.get(number as usize)).map_or("", |category| &*category.name);
        match name {
            "Other" | "Process" => FrameKind::User,
            _ => CATEGORIES.iter().find(|(_, known, _)| *known == name).map_or(FrameKind::User, |(kind, ..)| *kind),
        }
    }

    /// Tells the tables when the profile began, and how often it was sampled.
    fn tell(&self, stacks: &mut Stacks<'_, '_>) {
        stacks.has_threads = true;
        let about = stacks.about.get_or_insert_default();
        let began = self.start_time.filter(|began| (1.0..1e14).contains(began)).map(|began| (began * 1e6) as i64);
        (about.utc, about.wall) = (began, began);
        let hertz = self.interval.map(|interval| (1e3 / interval).round()).filter(|hertz| (1.0..=1e6).contains(hertz));
        about.frequency = hertz.map_or(0, |hertz| hertz as u32);
    }
}

/// A number of a process or of a thread: a number, or a text as in `"1234.1"`.
#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Number {
    Digits(f64),
    Text(String),
    #[default]
    None,
}

impl Number {
    fn get(&self) -> u32 {
        match self {
            Number::Digits(number) => *number as u32,
            Number::Text(text) => text.split('.').next().and_then(|text| text.parse().ok()).unwrap_or(0),
            Number::None => 0,
        }
    }
}

/// A sample's time in nanoseconds.
fn nanoseconds(milliseconds: f64) -> u64 {
    (milliseconds * 1e6).max(0.0) as u64
}

fn nonsense(what: String) -> FormatError {
    FormatError::Json { what }
}
