//! Gets a profile that a program serves over HTTP, as Go's do: `http://localhost:6060/debug/pprof/profile?seconds=10`.
//!
//! One plain request, for this address and nothing else: no redirection, no proxy, no cookie.

use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ureq::config::Config;

use super::terminal::tell;

/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// How often a line says that the program has not answered.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Returns the address, if this is one and no file.
pub(super) fn address(file: &Path) -> Option<&str> {
    file.to_str().filter(|name| name.starts_with("http://") || name.starts_with("https://"))
}

/// Returns the program that serves an address: `localhost:6060`.
pub(super) fn server(address: &str) -> &str {
    address.split('/').nth(2).unwrap_or(address)
}

/// Requests the profile, and waits until it begins to come.
pub(super) fn get(address: &str) -> Result<impl Read + use<>> {
    if address.starts_with("https:") {
        bail!("flametop has no encryption; `curl {address} | flametop view -` opens it");
    }
    let config = Config::builder()
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECTED_WITHIN))
        .user_agent(concat!("flametop/", env!("CARGO_PKG_VERSION")));
    let waiting = Waiting::begin(server(address).to_owned());
    let answer = config.build().new_agent().get(address).call();
    drop(waiting);
    let answer = answer.with_context(|| format!("failed to get {address}"))?;
    let status = answer.status();
    if status != 200 {
        bail!("{} answers {} {}", server(address), status.as_str(), status.canonical_reason().unwrap_or_default());
    }
    Ok(answer.into_body().into_reader())
}

/// A line on the terminal that counts seconds. It goes when this is dropped.
struct Waiting {
    counter: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Waiting {
    fn begin(server: String) -> Waiting {
        let (end, ended) = channel();
        let begun = Instant::now();
        let count = move || {
            while ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
                tell(&format!("waiting for {server}: {} s (Ctrl-C ends)", begun.elapsed().as_secs()));
            }
            tell("");
        };
        let thread = std::thread::Builder::new().name("flametop-wait".to_owned()).spawn(count);
        Waiting { counter: thread.ok().map(|thread| (end, thread)) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.counter.take() {
            drop(end);
            drop(thread.join());
        }
    }
}
