//! Gets a profile that a program serves over HTTP, as Go's do: `http://localhost:6060/debug/pprof/profile?seconds=10`.
//!
//! One plain request, for this address and nothing else: no redirection, no proxy, no cookie.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ureq::config::Config;

use super::terminal::Waiting;

/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

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
    let server_name = server(address).to_owned();
    let waiting = Waiting::begin(move |since| format!("waiting for {server_name}: {} s (Ctrl-C ends)", since.as_secs()));
    let answer = config.build().new_agent().get(address).call();
    drop(waiting);
    let answer = answer.with_context(|| format!("failed to get {address}"))?;
    let status = answer.status();
    if status != 200 {
        bail!("{} answers {} {}", server(address), status.as_str(), status.canonical_reason().unwrap_or_default());
    }
    Ok(answer.into_body().into_reader())
}
