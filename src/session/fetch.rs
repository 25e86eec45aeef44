//! Gets a profile that a program serves over HTTP, as Go's do: `http://localhost:6060/debug/pprof/profile?seconds=10`, or that an engine has kept:
//! `pyroscope+https://pyroscope:4040/{service_name="x"}@-1h`.
//!
//! One request, for this address and nothing else: no redirection, no cookie. Requests to programs are plain, and have no proxy.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
#[cfg(feature = "live")]
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(feature = "live")]
use anyhow::anyhow;
use anyhow::{Context, Result, bail};
use ureq::config::Config;

use super::terminal::Waiting;
#[cfg(feature = "live")]
use crate::fleet::{self, Question};

/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// Returns the address, if this is one and no file.
pub(super) fn address(file: &Path) -> Option<&str> {
    file.to_str().filter(|name| name.starts_with("http://") || name.starts_with("https://") || is_question(name))
}

/// Returns the address with these times. Fails if the address has times already.
pub(super) fn between(file: &Path, from: Option<&str>, until: Option<&str>) -> Result<PathBuf> {
    if from.is_none() && until.is_none() {
        return Ok(file.to_owned());
    }
    let Some(address) = file.to_str().filter(|name| is_question(name)) else {
        bail!("--from and --until are for engines, as in pyroscope+https://HOST:4040/{{service_name=\"x\"}}");
    };
    if !address.ends_with('}') {
        bail!("`{address}` has a time already, behind the @");
    }
    Ok(format!("{address}@{}..{}", from.unwrap_or("-1h"), until.unwrap_or_default()).into())
}

/// Returns the program that serves an address: `localhost:6060`.
pub(super) fn server(address: &str) -> &str {
    address.split('/').nth(2).unwrap_or(address)
}

/// Whether an engine is asked.
#[cfg(feature = "live")]
fn is_question(address: &str) -> bool {
    Question::parse(address, 0).is_some()
}

#[cfg(not(feature = "live"))]
fn is_question(_: &str) -> bool {
    false
}

/// Asks an engine, if this is the address of one.
#[cfg(feature = "live")]
fn ask(address: &str) -> Result<Option<Box<dyn Read>>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let question = Question::parse(address, now).transpose().map_err(|why| anyhow!(why))?;
    let Some(question) = question else { return Ok(None) };
    let _waiting = waiting(question.server.clone());
    fleet::ask(&question, |name| std::env::var(name).ok()).map(Some).map_err(|why| anyhow!(why))
}

#[cfg(not(feature = "live"))]
fn ask(_: &str) -> Result<Option<Box<dyn Read>>> {
    Ok(None)
}

/// Says that a server is waited for.
fn waiting(server: String) -> Waiting {
    Waiting::begin(move |since| format!("waiting for {server}: {} s (Ctrl-C ends)", since.as_secs()))
}

/// Requests the profile, and waits until it begins to come.
pub(super) fn get(address: &str) -> Result<Box<dyn Read>> {
    if let Some(profile) = ask(address)? {
        return Ok(profile);
    }
    if address.starts_with("https:") {
        bail!("flametop has no encryption; `curl {address} | flametop view -` opens it");
    }
    let config = Config::builder()
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECTED_WITHIN))
        .user_agent(concat!("flametop/", env!("CARGO_PKG_VERSION")));
    let waiting = waiting(server(address).to_owned());
    let answer = config.build().new_agent().get(address).call();
    drop(waiting);
    let answer = answer.with_context(|| format!("failed to get {address}"))?;
    let status = answer.status();
    if status != 200 {
        bail!("{} answers {} {}", server(address), status.as_str(), status.canonical_reason().unwrap_or_default());
    }
    Ok(Box::new(answer.into_body().into_reader()))
}
