//! The time: for samples, and for the names of files.

use crate::session::DateTime;
use crate::session::Format;
use crate::session::default_name;

/// A name for a file to save to, without its ending: it has the time in it, in UTC.
pub(super) fn default_file() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let name = default_name(Format::Svg, DateTime::from_unix(now.tv_sec, 0));
    name.trim_end_matches(".svg").to_owned()
}

/// `CLOCK_MONOTONIC` now, the clock of all samples.
pub(super) fn now() -> crate::profile::Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    crate::profile::Timestamp(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
