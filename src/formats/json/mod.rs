//! Profiles in JSON: speedscope's files, those of Firefox's profiler and of samply, V8's `.cpuprofile`, and Chrome's traces with samples of V8.
//!
//! The keys of the document say which of them it is. A file is read twice: for its keys, and for its samples. The reader skips all other
//! values, so they take no memory.

mod firefox;
mod speedscope;
mod v8;

use std::io::BufRead;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::FormatError;
use super::reading::{Destination, Opened};

pub(super) use firefox::FirefoxWriter;
pub(super) use speedscope::write;

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
    const WORDS: [&str; 6] = [
        "speedscope",
        "\"traceEvents\"",
        "\"callFrame\"",
        "\"functionName\"",
        "\"preprocessedProfileVersion\"",
        "\"stringTable\"",
    ];
    WORDS.iter().any(|word| memchr::memmem::find(head, word.as_bytes()).is_some())
}

/// The keys that tell the kinds of documents apart.
#[derive(Deserialize)]
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
    let mut stacks = Stacks::new(into);
    if text.trim_ascii_start().starts_with(b"[") {
        v8::read_events(parse(text)?, &mut stacks);
        return stacks.end();
    }
    match parse::<Keys>(text)? {
        Keys { shared: Some(_), profiles: Some(_), .. } => speedscope::read(parse(text)?, &mut stacks)?,
        Keys { trace_events: Some(_), .. } => v8::read_events(parse::<v8::Trace>(text)?.events, &mut stacks),
        Keys { nodes: Some(_), .. } | Keys { head: Some(_), .. } => v8::read(parse(text)?, &mut stacks),
        Keys { threads: Some(_), meta, .. } => match meta.and_then(|meta| meta.preprocessed_profile_version) {
            Some(_) => firefox::read(parse(text)?, &mut stacks)?,
            None => firefox::read_gecko(parse(text)?, &mut stacks)?,
        },
        Keys { profile: Some(_), .. } => firefox::read_gecko(parse::<InTools>(text)?.profile, &mut stacks)?,
        _ => {
            let advice = "give a profile of speedscope, Firefox or samply, a .cpuprofile, or a trace of Chrome with samples";
            return Err(FormatError::OtherFormat { what: "JSON of another kind", advice });
        }
    }
    stacks.end()
}

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, FormatError> {
    serde_json::from_slice(text).map_err(|error| FormatError::Json { what: error.to_string() })
}
