//! Finds out what an engine's answer means.

use std::time::Duration;

use super::address::{Address, Engine};
use super::retry::retry_after;
use crate::formats::{message_of_status, rejected};
use crate::profile::sanitize;

/// An answer, as it came.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
    /// Its first bytes.
    pub(super) body: Vec<u8>,
}

/// What it means.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The request was taken. `rejected` is the number of its profiles that were not.
    Taken { rejected: u64, why: String },
    /// It may be taken later.
    Later { after: Option<Duration>, why: String },
    /// It is never taken.
    Refused { why: String },
}

/// Most letters of an engine's own words.
const LONGEST: usize = 200;

/// Returns what a reply means. `now` is in seconds since 1970.
pub(super) fn of(reply: &Reply, address: &Address, now: u64) -> Answer {
    let server = &address.server;
    match reply.status {
        200..=299 => {
            let (rejected, why) = rejected(&reply.body);
            Answer::Taken { rejected, why: format!("{server} did not take some profiles{}", said(&why)) }
        }
        408 | 429 | 500 | 502 | 503 | 504 => Answer::Later {
            after: reply.retry_after.as_deref().and_then(|text| retry_after(text, now)),
            why: in_sentence(server, reply.status, &reply.body),
        },
        status => {
            let words = words(&reply.body);
            let lower = words.to_ascii_lowercase();
            let why = match (status, address.engine) {
                (400, _) if lower.contains("unsupported") && lower.contains("version") => {
                    format!(
                        "{server} does not know this version of OTLP profiles (opentelemetry-proto 1.10): it or flametop is too old"
                    )
                }
                (404, Engine::Otlp) => format!(
                    "{server} takes no profiles; an OpenTelemetry Collector needs a pipeline `profiles` and --feature-gates=service.profilesSupport"
                ),
                (404, Engine::Pyroscope) => format!("{server} takes no OTLP profiles; Pyroscope does from version 1.20 on"),
                (401 | 403, _) => {
                    format!("{server} answers {}; OTEL_EXPORTER_OTLP_HEADERS=authorization=… sends credentials", in_words(status))
                }
                (301..=308, _) => {
                    format!("{server} answers {} to elsewhere; flametop sends only where it was told to", in_words(status))
                }
                _ => in_sentence(server, status, &reply.body),
            };
            Answer::Refused { why }
        }
    }
}

/// Returns the answer in a sentence.
pub(super) fn in_sentence(server: &str, status: u16, body: &[u8]) -> String {
    format!("{server} answers {}{}", in_words(status), said(&words(body)))
}

fn in_words(status: u16) -> String {
    let word = ureq::http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
    format!("{status} {word}").trim_end().to_owned()
}

/// Returns the engine's words: a `Status`, or text.
fn words(body: &[u8]) -> String {
    let message = message_of_status(body);
    let message = if message.is_empty() { String::from_utf8_lossy(body).into_owned() } else { message };
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn said(words: &str) -> String {
    let words: String = words.chars().take(LONGEST).collect();
    if words.is_empty() { words } else { format!(": {}", sanitize(&words)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &[u8]) -> Answer {
        let address = Address::parse("otlp+https://c:1", false).unwrap();
        of(&Reply { status, retry_after: Some("7".to_owned()), body: body.to_vec() }, &address, 0)
    }

    #[test]
    fn answers_are_told_apart() {
        assert!(matches!(answer(200, b""), Answer::Taken { rejected: 0, .. }));
        let Answer::Taken { rejected: 5, why } = answer(202, b"\x0a\x07\x08\x05\x12\x03old") else { panic!() };
        assert!(why.ends_with(": old"), "{why}");
        for status in [408, 429, 500, 502, 503, 504] {
            let Answer::Later { after: Some(after), why } = answer(status, b"busy\x1b[2J\r\n") else { panic!("{status}") };
            assert_eq!(after, Duration::from_secs(7));
            assert!(why.contains(&status.to_string()) && !why.contains('\x1b'), "{why}");
        }
        for status in [100, 300, 301, 400, 401, 403, 404, 413, 415, 501, 599] {
            assert!(matches!(answer(status, &[0xff; 9000]), Answer::Refused { why } if why.len() < 1000), "{status}");
        }
    }

    #[test]
    fn what_helps_is_said() {
        let why = |status, body: &[u8]| match answer(status, body) {
            Answer::Refused { why } => why,
            other => panic!("{other:?}"),
        };
        assert!(why(400, b"\x08\x03\x12\x1fUnsupported development version").contains("too old"));
        assert!(why(404, b"").contains("feature-gates") && why(401, b"").contains("HEADERS"));
        assert_eq!(why(413, b"too large"), "c:1 answers 413 Payload Too Large: too large");
    }
}
