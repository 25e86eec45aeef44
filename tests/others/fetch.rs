//! Profiles that a program serves.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread::JoinHandle;

/// Serves one answer. Returns the address, and the request that came.
fn serve(answer: Vec<u8>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "the request ends: {}", String::from_utf8_lossy(&request));
            request.push(byte[0]);
        }
        stream.write_all(&answer).unwrap();
        String::from_utf8(request).unwrap()
    });
    (address, served)
}

fn fetched(address: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flametop"));
    // A proxy would learn the address.
    command.args(["convert", address, "-"]).env("http_proxy", "http://127.0.0.1:1").env("HTTP_PROXY", "http://127.0.0.1:1");
    command.output().unwrap()
}

#[track_caller]
fn assert_refused(address: &str, reason: &str) {
    let output = fetched(address);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(reason), "{said}");
}

#[test]
fn one_plain_request_gets_a_profile() {
    let body = b"main;work 41\nmain;rest 1\n";
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in body.chunks(10) {
        answer.extend(format!("{:x}\r\n", piece.len()).bytes());
        answer.extend(piece);
        answer.extend(b"\r\n");
    }
    answer.extend(b"0\r\n\r\n");
    let (server, served) = serve(answer);
    let output = fetched(&format!("http://{server}/debug/pprof/profile?seconds=1"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "main;rest 1\nmain;work 41\n", "{said}");
    let request = served.join().unwrap();
    let mut lines: Vec<_> = request.trim_end().lines().map(str::to_ascii_lowercase).collect();
    assert_eq!(lines.remove(0), "get /debug/pprof/profile?seconds=1 http/1.1");
    lines.retain(|line| !["accept: */*", &format!("host: {server}")].contains(&line.as_str()));
    assert_eq!(lines, [concat!("user-agent: flametop/", env!("CARGO_PKG_VERSION"))]);
}

#[test]
fn other_answers_are_told_in_a_sentence() {
    let (server, _) = serve(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec());
    assert_refused(&format!("http://{server}/x"), &format!("{server} answers 404 Not Found"));
    // Nothing is requested elsewhere.
    let (server, _) = serve(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_vec());
    assert_refused(&format!("http://{server}/x"), &format!("{server} answers 302 Found"));
    let (server, _) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\nmain;work 41\n".to_vec());
    assert_refused(&format!("http://{server}/x"), "failed to read");
    assert_refused("http://127.0.0.1:1/x", "failed to get http://127.0.0.1:1/x: ");
    assert_refused("https://localhost/x", "`curl https://localhost/x | flametop view -`");
}
