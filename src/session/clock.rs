//! The time: for samples, and for the names of files.

use crate::formats::table::offered_endings;
use crate::session::DateTime;
use crate::session::Format;
use crate::session::default_name;
use crate::ui::SaveOffer;

/// Makes what `w` offers. The name has the time in it, in UTC.
pub(super) fn save_offer() -> SaveOffer {
    SaveOffer { name: || picture_name(None), endings: offered_endings() }
}

/// A name for a picture of now, of what a command did if there is one.
pub(super) fn picture_name(command: Option<&str>) -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    default_name(Format::Svg, command, DateTime::from_unix(now.tv_sec, 0))
}

/// The line below the title of a saved picture: these facts and the time, in UTC.
pub(super) fn below_title(mut facts: Vec<String>) -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let DateTime { year, month, day, hour, minute, .. } = DateTime::from_unix(now.tv_sec, 0);
    facts.push(format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC"));
    facts.join(" · ")
}

/// Seconds that the local time of day is ahead of UTC now; `None` if that is not known. To be asked before there are other threads: the time
/// zone is a matter of the environment, which others may change.
#[cfg(feature = "live")]
pub(super) fn local_offset() -> Option<i64> {
    time::UtcOffset::current_local_offset().ok().map(|offset| i64::from(offset.whole_seconds()))
}

/// Nanoseconds from the clock of samples to the local time of day. `local_offset` is in seconds ahead of UTC.
#[cfg(feature = "live")]
pub(super) fn to_wall(local_offset: i64) -> Option<i64> {
    let utc = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let local = utc.tv_sec.checked_add(local_offset)?.checked_mul(1_000_000_000)?.checked_add(utc.tv_nsec)?;
    local.checked_sub_unsigned(now().0)
}

/// `CLOCK_MONOTONIC` now, the clock of all samples.
pub(super) fn now() -> crate::profile::Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    crate::profile::Timestamp(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
