//! The numbers of the sender for Prometheus, over HTTP on this machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::counts::Counts;

/// Waits for a reader of the numbers.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a request that are read.
const REQUEST: usize = 4096;

/// Reads where to listen: `127.0.0.1:9464`.
///
/// # Errors
///
/// A sentence, also for an address that other machines reach.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| format!("`{text}` is no address; write 127.0.0.1:9464"))?;
    if !address.ip().is_loopback() {
        return Err(format!("`{text}` could be reached from other machines; write 127.0.0.1:{}", address.port()));
    }
    Ok(address)
}

/// Answers all requests, one after another. `now` returns the counts, and how many packages and bytes wait.
pub(super) fn serve(listener: &TcpListener, now: impl Fn() -> (Counts, (usize, usize))) {
    for stream in listener.incoming().flatten() {
        let (counts, waiting) = now();
        // One who does not read gets no answer.
        let _ = answer(stream, &text(&counts, waiting));
    }
}

fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let begun = Instant::now();
    let mut request = [0; REQUEST];
    let mut have = 0;
    while let Some(rest) = request.get_mut(have..).filter(|rest| !rest.is_empty()) {
        let count = stream.read(rest)?;
        have += count;
        // A reader who sends its request byte by byte keeps nobody waiting.
        if count == 0
            || begun.elapsed() >= PATIENCE
            || request.get(..have).is_some_and(|bytes| bytes.windows(4).any(|end| end == b"\r\n\r\n"))
        {
            break;
        }
    }
    let is_asked = request.starts_with(b"GET / ") || request.starts_with(b"GET /metrics ");
    let (status, body) = if is_asked { ("200 OK", text) } else { ("404 Not Found", "") };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Returns the numbers in Prometheus' text format.
fn text(counts: &Counts, (packages, bytes): (usize, usize)) -> String {
    let lost = "Samples that no engine has taken";
    let rows: [(&str, &str, &str, u64); 11] = [
        ("flametop_export_requests_total", "counter", "Requests that were taken", counts.requests),
        ("flametop_export_bytes_total", "counter", "Their compressed bytes", counts.bytes),
        ("flametop_export_samples_total", "counter", "Their samples", counts.samples),
        ("flametop_export_failures_total", "counter", "Attempts that failed", counts.failures),
        (
            "flametop_export_rejected_profiles_total",
            "counter",
            "Profiles that were rejected in requests that were taken",
            counts.rejected,
        ),
        ("flametop_export_lost_samples_total{reason=\"refused\"}", "counter", lost, counts.refused),
        ("flametop_export_lost_samples_total{reason=\"waited\"}", "counter", lost, counts.given_up),
        ("flametop_export_lost_samples_total{reason=\"missed\"}", "counter", lost, counts.missed),
        ("flametop_export_waiting_requests", "gauge", "Requests that wait", packages as u64),
        ("flametop_export_waiting_bytes", "gauge", "Their compressed bytes", bytes as u64),
        ("flametop_export_waiting_most_bytes", "gauge", "At most so many wait", super::outbox::MOST as u64),
    ];
    let mut all = String::new();
    let mut last = "";
    for (name, kind, help, value) in rows {
        let family = name.split('{').next().unwrap_or(name);
        if family != last {
            all += &format!("# HELP {family} {help}\n# TYPE {family} {kind}\n");
        }
        all += &format!("{name} {value}\n");
        last = family;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, || (Counts { samples: 42, missed: 7, ..Counts::default() }, (1, 2000))));
        let get = |request: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            // After a request that is too long, the connection may be reset.
            let _ = stream.read_to_string(&mut answer);
            answer
        };
        let answer = get("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\nflametop_export_samples_total 42\n"), "{answer}");
        assert!(answer.contains("\nflametop_export_lost_samples_total{reason=\"missed\"} 7\n"), "{answer}");
        assert_eq!(answer.matches("# TYPE flametop_export_lost_samples_total counter").count(), 1);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert!(get("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(!get(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(REQUEST))).contains("42"));
        assert!(get("GET / HTTP/1.1\r\n\r\n").contains("42"));
    }

    #[test]
    fn only_this_machine_reaches_them() {
        assert!(parse("127.0.0.1:9464").is_ok() && parse("[::1]:1").is_ok());
        assert!(parse("0.0.0.0:9464").is_err() && parse("9464").is_err() && parse("10.0.0.1:80").is_err());
    }
}
