//! The time: for samples, and for the names of files.

use crate::formats::table::offered_endings;
use crate::session::DateTime;
use crate::session::Format;
use crate::session::default_name;
use crate::ui::SaveOffer;

/// Makes what `w` offers. The name has the time in it, in UTC.
pub(super) fn save_offer() -> SaveOffer {
    let name = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        default_name(Format::Svg, DateTime::from_unix(now.tv_sec, 0))
    };
    SaveOffer { name, endings: offered_endings() }
}

/// `CLOCK_MONOTONIC` now, the clock of all samples.
pub(super) fn now() -> crate::profile::Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    crate::profile::Timestamp(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
