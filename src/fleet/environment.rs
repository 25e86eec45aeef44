//! The environment variables of OpenTelemetry, as its specification defines them for all exporters.

use std::path::PathBuf;
use std::time::Duration;

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

/// The longest time of a request, if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the variable for profiles, else the one for everything. An empty one is not set.
fn either(get: impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    let set = |name: String| get(&name).filter(|value| !value.trim().is_empty());
    set(format!("OTEL_EXPORTER_OTLP_PROFILES_{name}")).or_else(|| set(format!("OTEL_EXPORTER_OTLP_{name}")))
}

/// Returns the engine's address: `http://localhost:4318` is `otlp+http://localhost:4318`.
pub fn endpoint(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let endpoint = either(get, "ENDPOINT")?;
    Some(if endpoint.starts_with("http") { format!("otlp+{endpoint}") } else { endpoint })
}

/// Returns how the engine is spoken to.
///
/// # Errors
///
/// A sentence about a variable that is wrong.
pub(super) fn manners(get: impl Fn(&str) -> Option<String>) -> Result<Manners, String> {
    let headers = headers(|_| either(&get, "HEADERS"), "OTEL_EXPORTER_OTLP_HEADERS")?;
    let timeout = match either(&get, "TIMEOUT") {
        Some(text) => {
            let time = text.trim().parse().ok().filter(|time| *time > 0);
            Duration::from_millis(
                time.ok_or_else(|| format!("OTEL_EXPORTER_OTLP_TIMEOUT is `{text}`; write milliseconds, as in 10000"))?,
            )
        }
        None => TIMEOUT,
    };
    Ok(Manners { timeout, headers, certificates: either(&get, "CERTIFICATE").map(PathBuf::from) })
}

/// Reads the headers in a variable.
///
/// # Errors
///
/// A sentence about what is wrong.
pub(super) fn headers(get: impl Fn(&str) -> Option<String>, variable: &str) -> Result<Vec<(String, String)>, String> {
    let Some(text) = get(variable) else { return Ok(Vec::new()) };
    let headers = pairs(&text).map_err(|pair| format!("{variable} has no name or value in `{pair}`; write name=value"))?;
    let is_header = |name: &str, value: &str| {
        ureq::http::HeaderName::try_from(name).is_ok() && ureq::http::HeaderValue::try_from(value).is_ok()
    };
    match headers.iter().find(|(name, value)| !is_header(name, value)) {
        Some((name, _)) => Err(format!("{variable} has a header `{}` that HTTP does not allow", name.escape_debug())),
        None => Ok(headers),
    }
}

/// Returns what is said of all processes (`OTEL_RESOURCE_ATTRIBUTES`), and of the service that all of them are (`OTEL_SERVICE_NAME`).
///
/// # Errors
///
/// A sentence about a variable that is wrong.
pub fn attributes(get: impl Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>, String> {
    let mut all = match get("OTEL_RESOURCE_ATTRIBUTES") {
        Some(text) => {
            pairs(&text).map_err(|pair| format!("OTEL_RESOURCE_ATTRIBUTES has no name or value in `{pair}`; write name=value"))?
        }
        None => Vec::new(),
    };
    if let Some(service) = get("OTEL_SERVICE_NAME").filter(|name| !name.is_empty()) {
        all.retain(|(name, _)| name != "service.name");
        all.push(("service.name".to_owned(), service));
    }
    Ok(all)
}

/// Reads `name=value,name=value`. Values may have `%2C` for a comma.
fn pairs(text: &str) -> Result<Vec<(String, String)>, &str> {
    let parts = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    parts
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or(pair)?;
            let name = name.trim();
            if name.is_empty() { Err(pair) } else { Ok((name.to_owned(), decoded(value.trim()))) }
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.split_at_checked(2).filter(|_| *first == b'%');
        let byte = digits.and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        let (byte, after) = byte.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(all: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn variables_for_profiles_come_first() {
        let all =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://all"), ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://localhost:4318")];
        assert_eq!(endpoint(of(&all)).as_deref(), Some("otlp+http://localhost:4318"));
        assert_eq!(endpoint(of(&all[..1])).as_deref(), Some("otlp+https://all"));
        assert_eq!(endpoint(of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")])), None);
    }

    #[test]
    fn manners_are_read() {
        let manners = |name, value| manners(of(&[(name, value)]));
        let headers = manners("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20YTpi, x-scope-orgid=7,").unwrap().headers;
        assert_eq!(headers, [("authorization".into(), "Basic YTpi".into()), ("x-scope-orgid".into(), "7".into())]);
        assert_eq!(manners("OTEL_EXPORTER_OTLP_TIMEOUT", "2500").unwrap().timeout, Duration::from_millis(2500));
        assert_eq!(manners("", "").unwrap().timeout, TIMEOUT);
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0d%0ac"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ] {
            assert!(manners(name, value).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn attributes_are_read() {
        let all = [("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=pro%2Cd,service.name=a"), ("OTEL_SERVICE_NAME", "b")];
        let expected =
            [("deployment.environment", "pro,d"), ("service.name", "b")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(attributes(of(&all)).unwrap(), expected);
        assert!(attributes(of(&[("OTEL_RESOURCE_ATTRIBUTES", "=1")])).is_err());
        assert_eq!(
            (decoded("%"), decoded("%4"), decoded("%zz%41"), decoded("%+1")),
            ("%".into(), "%4".into(), "%zzA".into(), "%+1".into())
        );
    }
}
