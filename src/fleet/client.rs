//! One connection to an engine.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::config::Config;
use ureq::tls::{RootCerts, TlsConfig};

use super::address::Address;
use super::answer::Reply;
use super::certificates;

/// Bytes of an answer that are read.
const ANSWER: u64 = 64 << 10;

/// How an engine is spoken to.
#[derive(Clone, Debug, Default)]
pub(super) struct Manners {
    /// The longest time of a request.
    pub timeout: Duration,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
    /// A file with the authorities whose certificates are believed, instead of those of the machine.
    pub certificates: Option<PathBuf>,
}

/// Sends requests to one address.
pub(super) struct Client {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
}

impl Client {
    /// Reads all files that are needed later.
    pub(super) fn new(address: &Address, manners: Manners) -> Result<Client, String> {
        let mut config = Config::builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_global(Some(manners.timeout))
            .max_idle_connections(1)
            .user_agent(concat!("flametop/", env!("CARGO_PKG_VERSION")));
        if address.is_secure {
            let roots = certificates::read(manners.certificates.as_deref())?;
            let tls = TlsConfig::builder()
                .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .root_certs(RootCerts::from(roots.into_iter()))
                .build();
            config = config.tls_config(tls);
        } else {
            // Proxies are for other machines.
            config = config.proxy(None);
        }
        Ok(Client { agent: config.build().new_agent(), url: address.url(), headers: manners.headers })
    }

    /// Makes a request with a compressed body.
    ///
    /// # Errors
    ///
    /// A sentence, if there is no answer.
    pub(super) fn send(&self, body: &[u8]) -> Result<Reply, String> {
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", "application/x-protobuf")
            .header("content-encoding", "gzip")
            // Of the messages before they are stable (opentelemetry-proto 857).
            .header("otlp-profiles-development-version", "1");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let answer = request.send(body).map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        // An answer that breaks off says enough by its status.
        let _ = answer.into_body().into_reader().take(ANSWER).read_to_end(&mut body);
        Ok(Reply { status, retry_after, body })
    }
}
