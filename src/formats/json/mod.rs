//! Profiles in JSON: speedscope's files, those of Firefox's profiler and of samply, V8's `.cpuprofile`, and Chrome's traces with samples of V8.
//! The tree of a view is written as nested objects.
//!
//! The keys of the document say which of them it is. A file is read twice: for its keys, and for its samples. The reader skips all other
//! values, so they take no memory.

mod firefox;
mod speedscope;
mod tree;
mod v8;

use std::io::BufRead;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::FormatError;
use super::otlp;
use super::reading::{Destination, Opened};

pub(super) use firefox::FirefoxWriter;
pub(super) use speedscope::write;
pub(super) use tree::write as write_tree;

use crate::formats::stacks::Stacks;

/// Whether a file that begins with these bytes is JSON: an object or a list.
pub(super) fn recognizes(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let second = head.get(1..).unwrap_or_default().trim_ascii_start().first();
    match head.first() {
        Some(b'{') => matches!(second, Some(b'"' | b'}')),
        Some(b'[') => matches!(second, Some(b'{' | b']')),
        _ => false,
    }
}

/// Whether the beginning of a document has a word that is only in profiles.
pub(super) fn is_likely(head: &[u8]) -> bool {
    const WORDS: [&str; 7] = [
        "speedscope",
        "\"traceEvents\"",
        "\"callFrame\"",
        "\"functionName\"",
        "\"preprocessedProfileVersion\"",
        "\"stringTable\"",
        "\"resourceProfiles\"",
    ];
    WORDS.iter().any(|word| memchr::memmem::find(head, word.as_bytes()).is_some())
}

/// The keys that tell the kinds of documents apart.
#[derive(Deserialize, Default)]
struct Keys {
    shared: Option<IgnoredAny>,
    profiles: Option<IgnoredAny>,
    nodes: Option<IgnoredAny>,
    head: Option<IgnoredAny>,
    #[serde(rename = "traceEvents")]
    trace_events: Option<IgnoredAny>,
    threads: Option<IgnoredAny>,
    meta: Option<firefox::Meta>,
    profile: Option<IgnoredAny>,
    #[serde(rename = "resourceProfiles")]
    resource_profiles: Option<IgnoredAny>,
}

/// A profile as the developer tools of older versions of Firefox saved it.
#[derive(Deserialize)]
struct InTools {
    profile: firefox::Gecko,
}

/// Reads a document into the tables.
pub(super) fn open(input: &mut dyn BufRead, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(FormatError::Read)?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let is_list = text.trim_ascii_start().starts_with(b"[");
    let keys = if is_list { Keys::default() } else { parse::<Keys>(text)? };
    if keys.resource_profiles.is_some() {
        return otlp::open_json(text, into);
    }
    let mut stacks = Stacks::new(into);
    if is_list {
        v8::read_events(parse(text)?, &mut stacks);
        return stacks.end();
    }
    match keys {
        Keys { shared: Some(_), profiles: Some(_), .. } => speedscope::read(parse(text)?, &mut stacks)?,
        Keys { trace_events: Some(_), .. } => v8::read_events(parse::<v8::Trace>(text)?.events, &mut stacks),
        Keys { nodes: Some(_), .. } | Keys { head: Some(_), .. } => v8::read(parse(text)?, &mut stacks),
        Keys { threads: Some(_), meta, .. } => match meta.and_then(|meta| meta.preprocessed_profile_version) {
            Some(_) => firefox::read(parse(text)?, &mut stacks)?,
            None => firefox::read_gecko(parse(text)?, &mut stacks)?,
        },
        Keys { profile: Some(_), .. } => firefox::read_gecko(parse::<InTools>(text)?.profile, &mut stacks)?,
        _ => {
            let advice = "give a profile of speedscope, OpenTelemetry, Firefox or samply, a .cpuprofile, or a trace of Chrome with samples";
            return Err(FormatError::OtherFormat { what: "JSON of another kind", advice });
        }
    }
    stacks.end()
}

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, FormatError> {
    serde_json::from_slice(text).map_err(|error| FormatError::Json { what: error.to_string() })
}
