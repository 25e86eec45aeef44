//! Tells what a file is, without reading all of it.

use std::io::{Read, Seek, SeekFrom};

use super::folded;
use super::json;
use super::packed::unpack;
use super::recording;
use super::table::{FORMATS, Foreign, Format};

/// The kind and the length of a profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Glance {
    /// In a few words, without an article: `recording`.
    pub what: &'static str,
    /// How long it was sampled, if its first bytes or the heads of its chunks say so.
    pub seconds: Option<f64>,
}

/// Looks at the first bytes of a file. Returns `None` if it is no profile, or none that can be opened.
pub fn glance(mut file: impl Read + Seek) -> Option<Glance> {
    let head = unpack(&mut file).ok()?.head;
    if head.is_empty() || Foreign::of(&head).is_some() {
        return None;
    }
    let row = FORMATS.iter().find(|row| row.read.is_some() && (row.recognizes)(&head))?;
    // These two take more than profiles.
    let is_likely = match row.format {
        Format::Folded => folded::begins_with_a_stack(&head),
        Format::Speedscope => json::is_likely(&head),
        _ => true,
    };
    if !is_likely {
        return None;
    }
    file.seek(SeekFrom::Start(0)).ok()?;
    let seconds = if row.format == Format::Recording { recording::seconds(file) } else { None };
    Some(Glance { what: row.short, seconds })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn only_profiles_are_profiles() {
        let of = |bytes: &[u8]| glance(Cursor::new(bytes)).map(|glance| glance.what);
        assert_eq!(of(b"main;work 41\n"), Some("folded stacks"));
        assert_eq!(of(b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\"}"), Some("JSON profile"));
        assert_eq!(of(b"a 1 cycles:\n\t ff f (m)\n\n"), Some("perf script"));
        for other in [
            &b""[..],
            b"#!/bin/sh\nexit 1\n",
            b"[section]\nkey = 1\n",
            b"hello world\n",
            b"\x7fELF\x02",
            b"\0\0\0\0 1\n",
            b"{\"name\": \"npm\"}",
        ] {
            assert_eq!(of(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
