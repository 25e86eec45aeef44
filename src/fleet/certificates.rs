//! The authorities whose certificates are believed.

use std::path::Path;

use ureq::tls::{Certificate, PemItem, parse_pem};

/// Where distributions keep them: Debian, Fedora, SUSE, Alpine.
const PLACES: [&str; 4] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"];

/// Reads the authorities of this machine, or those in `file`.
///
/// # Errors
///
/// A sentence.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<Certificate<'static>>, String> {
    let place = file.or_else(|| PLACES.map(Path::new).into_iter().find(|place| place.exists()));
    let place = place.ok_or("no certificates of authorities were found; install the package ca-certificates")?;
    let shown = place.display();
    let text = std::fs::read(place).map_err(|error| format!("failed to read the certificates in {shown}: {error}"))?;
    let found: Vec<_> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() { Err(format!("{shown} has no certificate (PEM)")) } else { Ok(found) }
}
