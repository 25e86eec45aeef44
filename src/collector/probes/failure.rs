//! Reasons why an attempt to attach failed.

use crate::collector::bpf_errors::complaint;

/// The reason why one way of attaching failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failed {
    /// There is no such place.
    NotThere,
    /// The kernel does not allow it.
    NotPermitted,
    /// The place is there, but the kernel does not let it be traced.
    NotTraceable,
    /// The kernel has no such mechanism.
    NotOffered,
    /// Another reason, in the kernel's words.
    Said(String),
}

impl Failed {
    pub(super) fn of(error: &libbpf_rs::Error) -> Failed {
        let text = format!("{error:#}");
        let number = text.rsplit_once("(os error ").and_then(|(_, rest)| rest.split(')').next()?.parse().ok());
        Failed::by_number(number).unwrap_or_else(|| {
            let complaint = complaint();
            Failed::Said(if complaint.is_empty() { text } else { format!("{text} ({complaint})") })
        })
    }

    pub(super) fn by_number(number: Option<i32>) -> Option<Failed> {
        /// Error of ftrace on an architecture without direct calls. The number is not part of the user interface.
        const ENOTSUPP: i32 = 524;
        match number {
            Some(libc::ENOENT | libc::ESRCH) => Some(Failed::NotThere),
            Some(libc::EPERM | libc::EACCES) => Some(Failed::NotPermitted),
            Some(libc::EINVAL | libc::EADDRNOTAVAIL | libc::EBUSY | libc::EILSEQ) => Some(Failed::NotTraceable),
            Some(ENOTSUPP | libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV) => Some(Failed::NotOffered),
            _ => None,
        }
    }

    pub(super) fn of_io(error: &std::io::Error) -> Failed {
        Failed::by_number(error.raw_os_error()).unwrap_or_else(|| Failed::Said(error.to_string()))
    }

    pub(super) fn words(&self) -> &str {
        match self {
            Failed::NotThere => "there is no such function for this mechanism",
            Failed::NotPermitted => "the kernel does not permit it",
            Failed::NotTraceable => "the kernel does not allow tracing it",
            Failed::NotOffered => "this kernel does not support it",
            Failed::Said(words) => words,
        }
    }
}
