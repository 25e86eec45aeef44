//! Sends profiles to engines: one that answers as it is told, one that OpenTelemetry's own library decodes, one with certificates.

// A test panics with a sentence if it cannot run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::{FLAMETOP, alone, flametop, root_or_fail};

/// Longest wait for what must happen.
const MINUTE: Duration = Duration::from_secs(60);

/// A request that an engine has got.
#[derive(Clone)]
struct Request {
    /// `POST /v1development/profiles HTTP/1.1`
    first: String,
    headers: HashMap<String, String>,
    /// Decompressed.
    body: Vec<u8>,
}

/// What an engine does with a request.
type Reaction = dyn Fn(usize, &mut TcpStream) + Send + Sync;

/// An engine on this machine.
struct Engine {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Engine {
    /// Starts an engine that answers the request of each number, from 0 on, in this way.
    fn start(reaction: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Engine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (got, reaction): (_, Arc<Reaction>) = (Arc::clone(&requests), Arc::new(reaction));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (got, reaction) = (Arc::clone(&got), Arc::clone(&reaction));
                std::thread::spawn(move || serve(stream, &got, &*reaction));
            }
        });
        Engine { address, requests }
    }

    /// An engine that takes everything.
    fn taking() -> Engine {
        Engine::start(|_, stream| answer(stream, "200 OK", "", b""))
    }

    fn url(&self) -> String {
        format!("otlp+http://{}", self.address)
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, got: &Mutex<Vec<Request>>, reaction: &Reaction) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
            Some(line.trim_end().to_owned())
        };
        let Some(first) = line() else { return };
        let mut headers = HashMap::new();
        while let Some((name, value)) = line().as_deref().and_then(|line| line.split_once(": ")) {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let plain = if headers.contains_key("content-encoding") { unpacked(&body) } else { body };
        let number = {
            let mut got = got.lock().unwrap();
            got.push(Request { first, headers, body: plain });
            got.len() - 1
        };
        reaction(number, &mut stream);
    }
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

fn answer(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    // The other side may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// A program that is busy.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        root_or_fail();
        Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `flametop export`, with these variables in its environment.
fn export(url: &str, busy: &Busy, words: &[&str], environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(FLAMETOP);
    command.args(["export", "--to", url, "-F", "97", "-p", &busy.0.id().to_string()]).args(words);
    command.envs(environment.iter().copied()).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What is said at the end.
fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the number before a word.
fn number_before(said: &str, word: &str) -> u64 {
    let before = said.split(word).next().unwrap();
    before.trim_end().rsplit([' ', '(']).next().unwrap().parse().unwrap_or_else(|_| panic!("no number before `{word}`: {said}"))
}

/// Returns the folded stacks of a request, with their counts.
fn folded(request: &Request) -> Vec<(String, u64)> {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("x.otlp"), place.path().join("x.folded"));
    std::fs::write(&from, &request.body).unwrap();
    let output = flametop(&["convert", from.to_str().unwrap(), to.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let text = std::fs::read_to_string(to).unwrap();
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(stack, count)| (stack.to_owned(), count.parse().unwrap())).collect()
}

fn samples(requests: &[Request]) -> u64 {
    requests.iter().flat_map(folded).map(|(_, count)| count).sum()
}

#[test]
fn profiles_reach_an_engine() {
    let _alone = alone();
    let (busy, engine) = (Busy::start(), Engine::taking());
    let environment =
        [("OTEL_EXPORTER_OTLP_HEADERS", "x-scope-orgid=team%207"), ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")];
    let output = export(&engine.url(), &busy, &["-d", "13"], &environment).wait_with_output().unwrap();
    let requests = engine.requests();
    assert!(output.status.success(), "{}", said(&output));
    // Ten seconds, and the rest.
    assert_eq!(requests.len(), 2, "{}", said(&output));
    for request in &requests {
        assert_eq!(request.first, "POST /v1development/profiles HTTP/1.1");
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        assert_eq!(header("content-type"), Some("application/x-protobuf"));
        assert_eq!(header("x-scope-orgid"), Some("team 7"));
        assert!(folded(request).iter().all(|(stack, _)| stack.starts_with("sh;")), "{:?}", folded(request));
        for word in [&b"deployment.environment"[..], b"host.name"] {
            assert!(request.body.windows(word.len()).any(|part| part == word));
        }
    }
    let sent = number_before(&said(&output), "samples sent");
    assert_eq!(sent, samples(&requests), "{}", said(&output));
    assert!((600..=1300).contains(&sent), "{}", said(&output));
    assert!(said(&output).contains("sent in 2 requests"), "{}", said(&output));
}

/// The protocol's own Python library decodes it, and the rules of OpenTelemetry's `profcheck` hold.
#[test]
fn requests_keep_the_rules_of_the_protocol() {
    let _alone = alone();
    let (busy, engine, place) = (Busy::start(), Engine::taking(), tempfile::tempdir().unwrap());
    let output = export(&engine.url(), &busy, &["-d", "2"], &[]).wait_with_output().unwrap();
    let [request] = &engine.requests()[..] else { panic!("{}", said(&output)) };
    let file = place.path().join("x.otlp");
    std::fs::write(&file, &request.body).unwrap();
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("otlp-python-fleet");
    let python = packages.join("bin/python");
    if !python.exists() {
        assert!(
            Command::new("python3").args(["-m", "venv"]).arg(&packages).status().unwrap().success(),
            "python3 -m venv failed"
        );
    }
    let pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "opentelemetry-proto==1.45.2"];
    assert!(Command::new(&python).args(pip).status().unwrap().success(), "pip failed");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/others/profcheck.py");
    let checked = Command::new(&python).arg(&script).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let counted: u64 = String::from_utf8(checked.stdout)
        .unwrap()
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(counted, number_before(&said(&output), "samples sent"));
}

/// The process that samples has no socket of the network. The one that sends has nothing else.
#[test]
fn only_a_process_without_privileges_speaks() {
    let _alone = alone();
    let (busy, engine) = (Busy::start(), Engine::taking());
    let mut flametop = export(&engine.url(), &busy, &["--metrics", "127.0.0.1:0"], &[]);
    let pid = flametop.id();
    let since = Instant::now();
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let sender = loop {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let sender = children.split_whitespace().next().and_then(|child| child.parse().ok());
        if let Some(sender) =
            sender.filter(|sender| status(*sender).contains("Seccomp:\t2") && status(pid).contains("Seccomp:\t2"))
        {
            break sender;
        }
        assert!(since.elapsed() < MINUTE, "no sender");
        std::thread::sleep(Duration::from_millis(10));
    };
    // It has opened its own by then.
    std::thread::sleep(Duration::from_millis(500));
    let told = status(sender);
    for line in [
        "Uid:\t65534\t65534\t65534\t65534",
        "Gid:\t65534\t65534\t65534\t65534",
        "NoNewPrivs:\t1",
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    // Sockets of the network. Signals come through a pair of sockets of the process.
    let sockets = |pid: u32| {
        let table = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
        let network = ["tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet", "netlink"].map(table).concat();
        let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .flatten()
            .filter_map(|file| std::fs::read_link(file.path()).ok());
        let number = |file: std::path::PathBuf| Some(file.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
        files.filter_map(number).filter(|number| network.split_whitespace().any(|word| word == number)).count()
    };
    assert_eq!((sockets(pid), sockets(sender) > 0), (0, true));
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
    let ended = flametop.wait().unwrap();
    assert!(ended.success() && !Path::new(&format!("/proc/{sender}")).exists(), "{ended}");
}

#[test]
fn an_engine_that_fails_is_asked_again() {
    let _alone = alone();
    let busy = Busy::start();
    let engine = Engine::start(|number, stream| match number {
        0 => answer(stream, "503 Service Unavailable", "retry-after: 1\r\n", b"starting\n"),
        1 => drop(stream.shutdown(std::net::Shutdown::Both)),
        _ => answer(stream, "200 OK", "", b""),
    });
    let output = export(&engine.url(), &busy, &["-d", "18"], &[]).wait_with_output().unwrap();
    let (said, requests) = (said(&output), engine.requests());
    assert!(output.status.success() && requests.len() == 4, "{} requests: {said}", requests.len());
    assert!(requests[0].body == requests[1].body && requests[1].body == requests[2].body && requests[2].body != requests[3].body);
    assert!(said.contains("answers 503 Service Unavailable: starting; samples wait") && !said.contains("lost"), "{said}");
    assert_eq!(number_before(&said, "samples sent"), samples(&requests[2..]));
}

#[test]
fn what_an_engine_refuses_is_told_and_not_sent_again() {
    let _alone = alone();
    let busy = Busy::start();
    for (status, body, told) in [
        (
            "400 Bad Request",
            &b"\x08\x03\x12\x1fUnsupported development version"[..],
            "does not know this version of OTLP profiles",
        ),
        ("404 Not Found", b"404 page not found", "--feature-gates=service.profilesSupport"),
        ("302 Found", b"", "flametop sends only where it was told to"),
    ] {
        let engine = Engine::start(move |_, stream| answer(stream, status, "location: http://127.0.0.1:1/\r\n", body));
        let output = export(&engine.url(), &busy, &["-d", "2"], &[]).wait_with_output().unwrap();
        let said = said(&output);
        assert!(engine.requests().len() == 1 && said.contains(told), "{said}");
        assert!(number_before(&said, "samples are lost") > 50 && said.contains("0 samples sent"), "{said}");
    }
}

/// Answers without end, without sense, or none.
#[test]
fn a_hostile_engine_is_left_in_time() {
    let _alone = alone();
    let busy = Busy::start();
    let reactions: [(&str, Box<Reaction>); 4] = [
        (
            "a body without end",
            Box::new(|_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n");
                while stream.write_all(&[b'x'; 65536]).is_ok() {}
            }),
        ),
        (
            "a header without end",
            Box::new(|_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ");
                while stream.write_all(&[b'x'; 65536]).is_ok() {}
            }),
        ),
        (
            "no HTTP",
            Box::new(|_, stream| drop(stream.write_all(&[0xff; 4096]).and_then(|()| stream.shutdown(std::net::Shutdown::Both)))),
        ),
        ("nothing", Box::new(|_, _| std::thread::sleep(MINUTE))),
    ];
    for (what, reaction) in reactions {
        let engine = Engine::start(reaction);
        let flametop = export(&engine.url(), &busy, &["-d", "2"], &[("OTEL_EXPORTER_OTLP_TIMEOUT", "1500")]);
        let since = Instant::now();
        let output = flametop.wait_with_output().unwrap();
        // 2 s of samples, and at most 5 s for the sender.
        assert!(since.elapsed() < Duration::from_secs(20), "{what}: {:?}", since.elapsed());
        assert!(
            output.status.success() && said(&output).contains("lost") || what == "a body without end",
            "{what}: {}",
            said(&output)
        );
    }
}

#[test]
fn certificates_are_checked() {
    let _alone = alone();
    let (busy, place) = (Busy::start(), tempfile::tempdir().unwrap());
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = openssl.args(["-keyout", &path("key"), "-out", &path("certificate")]).output().expect("this test needs openssl");
    assert!(made.status.success(), "{}", said(&made));
    // nobody reads it.
    Command::new("chmod").args(["-R", "a+rX", place.path().to_str().unwrap()]).status().unwrap();
    const SERVER: &str = "
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        self.send_response(200); self.send_header('content-length', '0'); self.end_headers()
        print('got', self.path, flush=True)
    def log_message(self, *_): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
";
    let mut server = Command::new("python3");
    server.args(["-c", SERVER, &path("certificate"), &path("key")]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Busy(server.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let url = format!("otlp+https://localhost:{}", lines.next().unwrap().unwrap());
    let output = export(&url, &busy, &["-d", "1"], &[]).wait_with_output().unwrap();
    assert!(said(&output).contains("certificate") && said(&output).contains("lost"), "{}", said(&output));
    let environment = [("OTEL_EXPORTER_OTLP_CERTIFICATE", &*path("certificate"))];
    let output = export(&url, &busy, &["-d", "1"], &environment).wait_with_output().unwrap();
    assert!(number_before(&said(&output), "samples sent") > 20 && !said(&output).contains("lost"), "{}", said(&output));
    assert_eq!(lines.next().unwrap().unwrap(), "got /v1development/profiles");
}

#[test]
fn addresses_that_are_wrong_are_told_at_once() {
    root_or_fail();
    for (words, told) in [
        (&["export"][..], "--to otlp+https://collector:4318"),
        (&["export", "--to", "otlp://collector:4317"], "not gRPC"),
        (&["export", "--to", "otlp+http://collector:4318"], "--insecure"),
        (&["export", "--to", "otlp+http://localhost:1", "--metrics", "0.0.0.0:1"], "could be reached from other machines"),
    ] {
        let output = Command::new(FLAMETOP)
            .args(words)
            .args(["-d", "1"])
            .stdin(Stdio::null())
            .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
            .output();
        let output = output.unwrap();
        assert!(!output.status.success() && said(&output).contains(told), "{words:?}: {}", said(&output));
    }
}

/// The folded stacks that an engine keeps.
const KEPT: &str = "main;rest 1\nmain;work 41\n";

/// Returns them as a file of pprof.
fn kept() -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("x.folded"), place.path().join("x.pprof"));
    std::fs::write(&from, KEPT).unwrap();
    let output = flametop(&["convert", from.to_str().unwrap(), to.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    unpacked(&std::fs::read(to).unwrap())
}

#[test]
fn engines_are_asked_for_what_they_have_kept() {
    let profile = kept();
    let report = format!("{{\"total\":\"42\",\"filtered\":\"0\",\"pprof\":\"{}\"}}", BASE64_STANDARD.encode(&profile));
    let engine = Engine::start(move |number, stream| match number {
        0 => answer(stream, "200 OK", "content-type: application/proto\r\n", &profile),
        1 => answer(stream, "200 OK", "content-type: application/json\r\n", report.as_bytes()),
        _ => answer(stream, "400 Bad Request", "", b"{\"code\":\"invalid_argument\",\"message\":\"no such type\"}"),
    });
    let asked = |name: &str, times: &str| {
        let address = format!("{name}+http://{}/{{service_name=\"x\"}}{times}", engine.address);
        let mut command = Command::new(FLAMETOP);
        command.args(["convert", &address, "-"]).env("FLAMETOP_HEADERS", "x-scope-orgid=7").output().unwrap()
    };
    for (name, times) in [("pyroscope", "@-2h..-1h"), ("parca", "")] {
        let output = asked(name, times);
        assert_eq!(String::from_utf8_lossy(&output.stdout), KEPT, "{}", said(&output));
    }
    let output = asked("pyroscope", "");
    assert!(
        !output.status.success() && said(&output).contains("400 Bad Request") && said(&output).contains("no such type"),
        "{}",
        said(&output)
    );
    // Headers may have a password.
    let mut command = Command::new(FLAMETOP);
    command.args(["convert", "pyroscope+http://192.0.2.1/{}", "-"]).env("FLAMETOP_HEADERS", "authorization=x");
    assert!(said(&command.output().unwrap()).contains("unencrypted"));
    let requests = engine.requests();
    let firsts: Vec<&str> = requests.iter().map(|request| &*request.first).collect();
    assert_eq!(firsts[0], "POST /querier.v1.QuerierService/SelectMergeProfile HTTP/1.1");
    assert!(firsts[1].starts_with("GET /api/profiles/query?mode=2&report_type=1&merge.query=parca_agent"), "{}", firsts[1]);
    assert!(requests.iter().all(|request| request.headers["x-scope-orgid"] == "7"));
    let wanted = b"{service_name=\"x\"}";
    assert!(requests[0].body.windows(wanted.len()).any(|part| part == wanted));
}
