//! One connection to an engine.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::config::{Config, ConfigBuilder};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::{Agent, RequestBuilder};

use super::address::Address;
use super::answer::{self, Reply};
use super::certificates;
use super::environment::{self, Manners};
use super::question::{Question, Request};

/// Bytes of an answer that are read.
const ANSWER: u64 = 64 << 10;

/// How long a connection may take, to ask a question.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// Sends requests to one address.
pub(super) struct Client {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
}

/// Returns what speaks to a server, encrypted or not. Reads all files that are needed later.
fn agent(
    is_secure: bool,
    certificates: Option<&Path>,
    limit: impl FnOnce(ConfigBuilder<AgentScope>) -> ConfigBuilder<AgentScope>,
) -> Result<Agent, String> {
    let mut config = Config::builder()
        .max_redirects(0)
        .http_status_as_error(false)
        .max_idle_connections(1)
        .user_agent(concat!("flametop/", env!("CARGO_PKG_VERSION")));
    if is_secure {
        let roots = certificates::read(certificates)?;
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::from(roots.into_iter()))
            .build();
        config = config.tls_config(tls);
    } else {
        // Proxies are for other machines.
        config = config.proxy(None);
    }
    Ok(limit(config).build().new_agent())
}

/// Asks an engine for a profile. The answer is a file of pprof. `get` returns variables of the environment.
///
/// # Errors
///
/// A sentence.
pub fn ask(question: &Question, get: impl Fn(&str) -> Option<String>) -> Result<Box<dyn Read>, String> {
    let server = &question.server;
    let agent = agent(question.is_secure(), None, |config| config.timeout_connect(Some(CONNECTED_WITHIN)))?;
    let Request { url, body } = question.request();
    let headers = environment::headers(get, "FLAMETOP_HEADERS")?;
    if !headers.is_empty() && !question.is_private() {
        return Err(format!(
            "the headers in FLAMETOP_HEADERS would reach {server} unencrypted; write https, or unset the variable"
        ));
    }
    let answer = match body {
        Some((kind, body)) => with(agent.post(&url).header("content-type", kind), &headers).send(&body),
        None => with(agent.get(&url), &headers).call(),
    };
    let answer = answer.map_err(|error| format!("failed to ask {server}: {error}"))?;
    let status = answer.status().as_u16();
    let body = answer.into_body().into_reader();
    if status == 200 {
        return question.profile(body);
    }
    let mut said = Vec::new();
    // An answer that breaks off says enough by its status.
    let _ = body.take(ANSWER).read_to_end(&mut said);
    Err(answer::in_sentence(server, status, &said))
}

fn with<Any>(request: RequestBuilder<Any>, headers: &[(String, String)]) -> RequestBuilder<Any> {
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

impl Client {
    pub(super) fn new(address: &Address, manners: Manners) -> Result<Client, String> {
        let Manners { timeout, headers, certificates } = manners;
        let agent = agent(address.is_secure, certificates.as_deref(), |config| config.timeout_global(Some(timeout)))?;
        Ok(Client { agent, url: address.url(), headers })
    }

    /// Makes a request with a compressed body.
    ///
    /// # Errors
    ///
    /// A sentence, if there is no answer.
    pub(super) fn send(&self, body: &[u8]) -> Result<Reply, String> {
        let request = self
            .agent
            .post(&self.url)
            .header("content-type", "application/x-protobuf")
            .header("content-encoding", "gzip")
            // The version of the messages, until they are stable (opentelemetry-proto 857).
            .header("otlp-profiles-development-version", "1");
        let answer = with(request, &self.headers).send(body).map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        // An answer that breaks off says enough by its status.
        let _ = answer.into_body().into_reader().take(ANSWER).read_to_end(&mut body);
        Ok(Reply { status, retry_after, body })
    }
}
