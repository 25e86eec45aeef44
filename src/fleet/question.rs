//! Asks an engine for what it has kept.
//!
//! ```text
//! pyroscope+https://HOST:PORT/PREFIX/TYPE{SELECTOR}@FROM..UNTIL        parca+https://HOST:PORT/PREFIX/TYPE{SELECTOR}@FROM..UNTIL
//!
//! Pyroscope   POST /querier.v1.QuerierService/SelectMergeProfile      a message: type (1), selector (2), from (3), until (4), in milliseconds
//!             the answer is a profile of pprof
//! Parca       GET /api/profiles/query?mode=2&report_type=1&…           2: samples of all profiles together; 1: pprof
//!             the answer is JSON: {"pprof": "…"}, in base64
//! ```
//!
//! TYPE, FROM and UNTIL may be left out. Times are before now (`-1h`), seconds since 1970, or `2026-11-30T22:00Z`.
//!
//! Sources: <https://github.com/grafana/pyroscope> (`api/querier/v1/querier.proto`), <https://github.com/parca-dev/parca>
//! (`proto/parca/query/v1alpha1/query.proto`).

use std::io::{Cursor, Read};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::address::{is_loopback, split_port};
use crate::formats::pyroscope_question;

/// An engine that answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Pyroscope,
    Parca,
}

impl Asked {
    /// The name in addresses, the port, and the type of profiles if none is given: CPU time.
    const ALL: [(&str, Asked, u16, &str); 2] = [
        ("pyroscope", Asked::Pyroscope, 4040, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"),
        ("parca", Asked::Parca, 7070, "parca_agent:samples:count:cpu:nanoseconds:delta"),
    ];
}

/// Longest answer in JSON: more than flametop keeps of a profile.
const LONGEST: u64 = 512 << 20;
/// Seconds before now, if no time is given: an hour.
const USUAL: u64 = 3600;

/// A question to an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    asked: Asked,
    is_secure: bool,
    /// `pyroscope:4040`
    pub server: String,
    prefix: String,
    kind: String,
    selector: String,
    /// Seconds since 1970.
    from: u64,
    until: u64,
}

/// A request over HTTP.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) url: String,
    /// The body of a POST, and its type. A GET has none.
    pub(super) body: Option<(&'static str, Vec<u8>)>,
}

impl Question {
    /// Reads an address. Returns `None` if it is no address of an engine. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// A sentence that says how to write it.
    pub fn parse(text: &str, now: u64) -> Option<Result<Question, String>> {
        let (kind, rest) = text.split_once("://")?;
        let (name, transport) = kind.split_once('+')?;
        let (_, asked, port, usual) = *Asked::ALL.iter().find(|(word, ..)| *word == name)?;
        let how = || format!("`{text}` is no question; write {name}+https://HOST:{port}/{{service_name=\"x\"}}@-1h");
        let is_secure = match transport {
            "https" => true,
            "http" => false,
            _ => return Some(Err(how())),
        };
        let parsed = || {
            let (server, path) = rest.split_once('/')?;
            let (before, after) = path.split_once('{')?;
            let (inside, times) = after.rsplit_once('}')?;
            let (prefix, kind) = before.rsplit_once('/').map_or(("", before), |(prefix, kind)| (prefix, kind));
            let (_, given) = split_port(server).filter(|_| !server.contains('@'))?;
            let is_plain = !text.chars().any(char::is_control) && !prefix.contains(['?', '#', ' ']);
            let (from, until) = times_of(times, now)?;
            is_plain.then(|| Question {
                asked,
                is_secure,
                server: if given.is_some() { server.to_owned() } else { format!("{server}:{port}") },
                prefix: if prefix.is_empty() { String::new() } else { format!("/{prefix}") },
                kind: if kind.is_empty() { usual } else { kind }.to_owned(),
                selector: format!("{{{inside}}}"),
                from,
                until,
            })
        };
        Some(parsed().ok_or_else(how))
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Whether nobody else reads what is sent: the connection is encrypted, or does not leave this machine.
    pub(super) fn is_private(&self) -> bool {
        self.is_secure || split_port(&self.server).is_some_and(|(host, _)| is_loopback(host))
    }

    /// Returns the request.
    pub(super) fn request(&self) -> Request {
        let Question { server, prefix, kind, selector, .. } = self;
        let transport = if self.is_secure { "https" } else { "http" };
        match self.asked {
            Asked::Pyroscope => Request {
                url: format!("{transport}://{server}{prefix}/querier.v1.QuerierService/SelectMergeProfile"),
                body: Some((
                    "application/proto",
                    pyroscope_question(kind, selector, (self.from.saturating_mul(1000), self.until.saturating_mul(1000))),
                )),
            },
            Asked::Parca => {
                let query = encoded(&format!("{kind}{selector}"));
                let [from, until] = [self.from, self.until].map(|time| encoded(&date(time)));
                let times = format!("merge.query={query}&merge.start={from}&merge.end={until}");
                Request {
                    url: format!("{transport}://{server}{prefix}/api/profiles/query?mode=2&report_type=1&{times}"),
                    body: None,
                }
            }
        }
    }

    /// Returns the profile in an answer: a file of pprof.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub(super) fn profile(&self, answer: impl Read + 'static) -> Result<Box<dyn Read>, String> {
        #[derive(serde::Deserialize)]
        struct Report {
            pprof: String,
        }
        match self.asked {
            Asked::Pyroscope => Ok(Box::new(answer)),
            Asked::Parca => {
                let report: Report = serde_json::from_reader(answer.take(LONGEST))
                    .map_err(|error| format!("{} did not answer with a profile: {error}", self.server))?;
                let bytes = BASE64_STANDARD.decode(report.pprof);
                Ok(Box::new(Cursor::new(bytes.map_err(|error| format!("{} answers no base64: {error}", self.server))?)))
            }
        }
    }
}

/// Reads `@FROM..UNTIL`, `@FROM`, or nothing.
fn times_of(text: &str, now: u64) -> Option<(u64, u64)> {
    if text.is_empty() {
        return Some((now.saturating_sub(USUAL), now));
    }
    let text = text.strip_prefix('@')?;
    let (from, until) = text.split_once("..").unwrap_or((text, ""));
    let until = if until.is_empty() { now } else { time_of(until, now)? };
    let from = time_of(from, now)?;
    (from < until).then_some((from, until))
}

/// Reads a time: `-90s`, `-1.5h`, `-2d`, seconds since 1970, or `2026-11-30T22:00Z`.
fn time_of(text: &str, now: u64) -> Option<u64> {
    if let Some(ago) = text.strip_prefix('-') {
        let factor = match ago.chars().last()? {
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            'd' => 86400.0,
            _ => return None,
        };
        let ago: f64 = ago.get(..ago.len() - 1)?.parse().ok()?;
        let seconds = (ago * factor).round();
        return (0.0..=now as f64).contains(&seconds).then(|| now - seconds as u64);
    }
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let (day, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut parts = day.split('-');
    let year = parts.next()?.parse().ok()?;
    let month: u8 = parts.next()?.parse().ok()?;
    let date = time::Date::from_calendar_date(year, month.try_into().ok()?, parts.next()?.parse().ok()?).ok()?;
    let mut parts = clock.split(':').map(|part| part.parse::<u8>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().map_or(Some(0), |second| second)?);
    let clock = time::Time::from_hms(hour, minute, second).ok()?;
    u64::try_from(date.with_time(clock).assume_utc().unix_timestamp()).ok()
}

/// Writes a time as RFC 3339 has it.
fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    let time = time.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second())
}

/// Writes a text into the query of an address.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_796_000_000;

    fn question(text: &str) -> Question {
        Question::parse(text, NOW).unwrap().unwrap()
    }

    #[test]
    fn pyroscope_is_asked() {
        let asked = question("pyroscope+http://localhost/{service_name=\"x\"}");
        assert_eq!((asked.from, asked.until, &*asked.server), (NOW - 3600, NOW, "localhost:4040"));
        let Request { url, body: Some((kind, body)) } = asked.request() else { panic!() };
        assert_eq!((&*url, kind), ("http://localhost:4040/querier.v1.QuerierService/SelectMergeProfile", "application/proto"));
        assert!(body.starts_with(b"\x0a\x2bprocess_cpu:cpu:nanoseconds:cpu:nanoseconds\x12\x12{service_name=\"x\"}\x18"));
        let asked = question("pyroscope+https://p:1/a/b/memory:alloc_space:bytes::{a=\"/{\",b=~\"}\"}@-2h..-1h");
        assert_eq!(
            (&*asked.kind, &*asked.selector, &*asked.prefix),
            ("memory:alloc_space:bytes::", "{a=\"/{\",b=~\"}\"}", "/a/b")
        );
        assert_eq!((asked.from, asked.until), (NOW - 7200, NOW - 3600));
        // However late it is.
        assert!(question("pyroscope+http://localhost/{}@0..18446744073709551615").request().body.is_some());
    }

    #[test]
    fn parca_is_asked() {
        let asked = question("parca+http://localhost:7070/{comm=\"a b\"}@2026-11-30T22:00Z..2026-11-30T22:00:59Z");
        let Request { url, body: None } = asked.request() else { panic!() };
        let query = "merge.query=parca_agent%3Asamples%3Acount%3Acpu%3Ananoseconds%3Adelta%7Bcomm%3D%22a%20b%22%7D";
        let times = "merge.start=2026-11-30T22%3A00%3A00Z&merge.end=2026-11-30T22%3A00%3A59Z";
        assert_eq!(url, format!("http://localhost:7070/api/profiles/query?mode=2&report_type=1&{query}&{times}"));
        let mut profile = Vec::new();
        asked.profile(&b"{\"total\":\"7\",\"pprof\":\"aGVsbG8=\"}"[..]).unwrap().read_to_end(&mut profile).unwrap();
        assert_eq!(profile, b"hello");
        for wrong in [&b"{}"[..], b"{\"pprof\":\"!\"}", b"<html>"] {
            assert!(asked.profile(wrong).is_err());
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(times_of("@-90s", NOW), Some((NOW - 90, NOW)));
        assert_eq!(times_of("@-1.5h..-30m", NOW), Some((NOW - 5400, NOW - 1800)));
        assert_eq!(times_of("@1000..2000", NOW), Some((1000, 2000)));
        assert_eq!(time_of("1970-01-02T00:00:01Z", NOW), Some(86401));
        for wrong in ["-1h", "@", "@-1h..-2h", "@-1", "@-1y", "@soon", "@1970-13-02T00:00Z", "@-é", "@-infs", "@-nanh"] {
            assert_eq!(times_of(wrong, NOW), None, "{wrong}");
        }
    }

    #[test]
    fn other_names_are_no_questions() {
        for text in ["file.pprof", "http://localhost/", "otlp+http://localhost/{}", "./pyroscope+x", "a://b"] {
            assert_eq!(Question::parse(text, NOW), None, "{text}");
        }
        for text in [
            "pyroscope+http://localhost",
            "pyroscope+ftp://x/{}",
            "parca+https:///{}",
            "parca+https://x/{}@",
            "parca+https://u@x/{}",
        ] {
            assert!(Question::parse(text, NOW).unwrap().is_err(), "{text}");
        }
    }
}
