//! Addresses of engines: `otlp+https://collector:4318`.

use std::net::IpAddr;

/// An engine that collects profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// OpenTelemetry's Collector, and others that take its protocol over HTTP.
    Otlp,
    /// Grafana Pyroscope, which takes the same protocol.
    Pyroscope,
}

impl Engine {
    const ALL: [(&str, Engine, u16); 2] = [("otlp", Engine::Otlp, 4318), ("pyroscope", Engine::Pyroscope, 4040)];

    /// Returns the path that takes profiles.
    fn path(self) -> &'static str {
        match self {
            Engine::Otlp | Engine::Pyroscope => "/v1development/profiles",
        }
    }
}

/// Where an engine is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The engine.
    pub engine: Engine,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// `collector:4318`
    pub server: String,
    /// The path in front of the engine's own, without a slash at its end.
    prefix: String,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// A sentence that says how to write it.
    pub fn parse(text: &str, is_insecure: bool) -> Result<Address, String> {
        let how = || {
            format!(
                "`{text}` is no engine that flametop sends to; write otlp+https://collector:4318 or pyroscope+https://pyroscope:4040"
            )
        };
        let (kind, rest) = text.split_once("://").ok_or_else(how)?;
        let (name, transport) = kind.split_once('+').ok_or_else(|| match kind {
            "otlp" => "flametop sends OTLP over HTTP, not gRPC; write otlp+https://collector:4318, the port for HTTP".to_owned(),
            "http" | "https" => format!("write which engine this is: otlp+{text} or pyroscope+{text}"),
            _ => how(),
        })?;
        let (_, engine, port) = Engine::ALL.into_iter().find(|(word, ..)| *word == name).ok_or_else(how)?;
        let is_secure = match transport {
            "https" => true,
            "http" => false,
            _ => return Err(how()),
        };
        let (server, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if server.contains('@') {
            return Err(
                "an address has no password; put it into a header, with OTEL_EXPORTER_OTLP_HEADERS=authorization=…".to_owned()
            );
        }
        if prefix.contains(['?', '#']) || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(how());
        }
        let (host, after) = split_port(server).ok_or_else(how)?;
        let server = match after {
            Some(_) => server.to_owned(),
            None => format!("{server}:{port}"),
        };
        if !is_secure && !is_insecure && !is_loopback(host) {
            return Err(format!(
                "`{text}` would send profiles unencrypted to another machine; write {name}+https://, or allow it with --insecure"
            ));
        }
        Ok(Address { engine, is_secure, server, prefix: prefix.trim_end_matches('/').to_owned() })
    }

    /// Returns the address of requests.
    pub(super) fn url(&self) -> String {
        let transport = if self.is_secure { "https" } else { "http" };
        format!("{transport}://{}{}{}", self.server, self.prefix, self.engine.path())
    }
}

/// Splits `host:port`. The host of `[::1]:80` is `::1`.
pub(super) fn split_port(server: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let port =
        port.map(|port| port.parse().ok().filter(|port| *port > 0)).map_or(Some(None), |port: Option<u16>| port.map(Some))?;
    (!host.is_empty()).then_some((host, port))
}

pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let url = |text: &str| Address::parse(text, false).map(|address| address.url());
        assert_eq!(url("otlp+http://localhost:4318").as_deref(), Ok("http://localhost:4318/v1development/profiles"));
        assert_eq!(url("otlp+https://collector").as_deref(), Ok("https://collector:4318/v1development/profiles"));
        assert_eq!(url("otlp+http://127.0.0.1/").as_deref(), Ok("http://127.0.0.1:4318/v1development/profiles"));
        assert_eq!(url("otlp+http://[::1]:80/a/b/").as_deref(), Ok("http://[::1]:80/a/b/v1development/profiles"));
        assert_eq!(url("pyroscope+https://p.example").as_deref(), Ok("https://p.example:4040/v1development/profiles"));
        for wrong in [
            "collector:4318",
            "otlp://collector:4317",
            "http://collector",
            "otlp+ftp://x",
            "parca+grpc://x",
            "otlp+https://",
            "otlp+https://:1",
            "otlp+https://x:0",
            "otlp+https://x:port",
            "otlp+https://[::1",
            "otlp+https://u:p@x",
            "otlp+https://x/?a",
            "otlp+https://x y",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_machines_need_encryption() {
        assert!(Address::parse("otlp+http://collector:4318", false).unwrap_err().contains("--insecure"));
        assert!(
            Address::parse("otlp+http://10.0.0.1", false).is_err()
                && Address::parse("otlp+http://localhost.example", false).is_err()
        );
        assert!(Address::parse("otlp+http://collector:4318", true).is_ok());
    }
}
