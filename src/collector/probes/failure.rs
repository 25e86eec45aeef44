//! Why a way of attaching did not work.

use crate::collector::bpf_errors::complaint;

/// Why one way of attaching did not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failed {
    /// There is no such place.
    NotThere,
    /// The kernel does not allow it.
    NotPermitted,
    /// The place is there, and the kernel does not let it be traced.
    NotTraceable,
    /// The kernel has no such mechanism.
    NotOffered,
    /// Something else, in its words.
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
        /// What ftrace says where an architecture has no direct calls; not of the user interface.
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
            Failed::NotThere => "there is no such function for it",
            Failed::NotPermitted => "the kernel does not permit it",
            Failed::NotTraceable => "the kernel does not let that be traced",
            Failed::NotOffered => "this kernel has no such thing",
            Failed::Said(words) => words,
        }
    }
}
