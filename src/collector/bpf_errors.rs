//! Keeps libbpf's complaints for the error that follows.

use std::io;
use std::sync::Mutex;

use libbpf_rs::PrintLevel;

use super::error::CollectorError;
use crate::locks;

/// The first complaint of libbpf since the last call of `forget_complaint`. There is one for all threads, as there is one printing function
/// in libbpf.
static COMPLAINT: Mutex<String> = Mutex::new(String::new());

fn keep_complaint(_level: PrintLevel, message: String) {
    let message = message.trim();
    // The verifier's log has pages. Its last line is its reason, but libbpf prints "-- END PROG LOAD LOG --" after it.
    let line = message
        .lines()
        .rev()
        .find(|line| !line.is_empty() && !line.contains("END PROG LOAD LOG") && !line.starts_with("processed "));
    let mut kept = locks::lock(&COMPLAINT);
    // The first complaint is the cause; later complaints are its consequences.
    if let Some(line) = line.filter(|_| kept.is_empty()) {
        line.trim_start_matches("libbpf: ").clone_into(&mut kept);
    }
}

pub(crate) fn forget_complaint() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_complaint)));
    locks::lock(&COMPLAINT).clear();
}

/// Returns libbpf's complaint; empty if there is none.
pub(crate) fn complaint() -> String {
    locks::lock(&COMPLAINT).clone()
}

pub(crate) fn bpf_error(what: &'static str, error: &libbpf_rs::Error) -> CollectorError {
    error_with(what, error, &complaint())
}

fn error_with(what: &'static str, error: &libbpf_rs::Error, complaint: &str) -> CollectorError {
    // EPERM: a capability is missing. EACCES: the verifier or a security module refuses the program, whoever loads it.
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !complaint.contains("-EACCES") {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, format!("{error:#}"));
        return CollectorError::NotPermitted { what: "load BPF programs", source };
    }
    let message = if complaint.is_empty() { format!("{error:#}") } else { format!("{error:#} ({complaint})") };
    CollectorError::Bpf { what, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_kernel_refuses_is_told_from_a_missing_capability() {
        let denied = |complaint| {
            let error = libbpf_rs::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error());
            error_with("load the BPF programs", &error, complaint)
        };
        let refused = denied("prog 'take_sample': BPF program load failed: -EACCES");
        assert!(matches!(&refused, CollectorError::Bpf { message, .. } if message.contains("take_sample")), "{refused}");
        let missing = denied("prog 'take_sample': BPF program load failed: -EPERM");
        assert!(matches!(missing, CollectorError::NotPermitted { .. }), "{missing}");
    }
}
