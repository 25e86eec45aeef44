//! The current time: of samples, and for names of files.

use crate::formats::table::offered_endings;
use crate::session::DateTime;
use crate::session::Format;
use crate::session::default_name;
use crate::ui::SaveOffer;

/// Returns the file name and the formats that the screen offers at `w`. The name contains the time in UTC.
pub(super) fn save_offer() -> SaveOffer {
    SaveOffer { name: || file_name(Format::Svg, None), endings: offered_endings() }
}

/// Returns a name for a file made now. It contains the command's name, if there is a command.
pub(super) fn file_name(format: Format, command: Option<&str>) -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    default_name(format, command, DateTime::from_unix(now.tv_sec, 0))
}

/// Returns the line below the title of a saved picture: these facts and the time in UTC.
pub(super) fn below_title(mut facts: Vec<String>) -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    facts.push(format!("{} UTC", minute(now.tv_sec, 0)));
    facts.join(" · ")
}

/// Formats a time in seconds since 1970, to the minute: `2026-11-29 21:40`. `ahead` is in seconds ahead of UTC.
pub(super) fn minute(seconds: i64, ahead: i64) -> String {
    let DateTime { year, month, day, hour, minute, .. } = DateTime::from_unix(seconds, i32::try_from(ahead).unwrap_or(0));
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// Returns when a run of this length began if it ends now, in nanoseconds since 1970. The length is in seconds.
pub(super) fn began(seconds: f64) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let now = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
    now.saturating_sub((seconds * 1e9) as u64)
}

/// Returns how many seconds local time is ahead of UTC now, or `None` if that is unknown. Call it before other threads exist: the time zone
/// depends on the environment, which other threads may change.
pub(super) fn local_offset() -> Option<i64> {
    time::UtcOffset::current_local_offset().ok().map(|offset| i64::from(offset.whole_seconds()))
}

/// Returns the nanoseconds to add to a sample's time to get the local time of day. `local_offset` is in seconds ahead of UTC.
#[cfg(feature = "live")]
pub(super) fn to_wall(local_offset: i64) -> Option<i64> {
    let utc = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let local = utc.tv_sec.checked_add(local_offset)?.checked_mul(1_000_000_000)?.checked_add(utc.tv_nsec)?;
    local.checked_sub_unsigned(now().0)
}

/// Returns the current time of `CLOCK_MONOTONIC`, the clock of all samples.
pub(super) fn now() -> crate::profile::Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    crate::profile::Timestamp(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
