//! Proposes names for files; they contain the time.

use crate::formats::Format;
use crate::formats::save::SaveError;
use crate::formats::save::stream_of;
use std::ffi::OsStr;
use std::path::Path;

use time::OffsetDateTime;

/// A date and a time of day. The caller decides whether it is local time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DateTime {
    /// Such as 2026.
    pub year: i64,
    /// From 1 to 12.
    pub month: u8,
    /// From 1 to 31.
    pub day: u8,
    /// From 0 to 23.
    pub hour: u8,
    /// From 0 to 59.
    pub minute: u8,
    /// From 0 to 59.
    pub second: u8,
}

impl DateTime {
    /// Converts seconds since 1970 in UTC. `utc_offset` is the local time's offset from UTC in seconds; 0 gives UTC. Times beyond the year
    /// 9999 become 1970-01-01 00:00.
    pub fn from_unix(seconds: i64, utc_offset: i32) -> DateTime {
        let local = OffsetDateTime::from_unix_timestamp(seconds.saturating_add(utc_offset.into()));
        let at = local.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        DateTime {
            year: at.year().into(),
            month: at.month().into(),
            day: at.day(),
            hour: at.hour(),
            minute: at.minute(),
            second: at.second(),
        }
    }
}

/// Most characters of a command's name in the name of a file.
const MOST_OF_COMMAND: usize = 40;

/// Returns a name to propose: `flametop-20261121-101502.svg`, or `flametop-make-20261121-101502.svg` for a run of a command.
/// Characters of the command that do not belong in a file's name become `_`.
pub fn default_name(format: Format, command: Option<&str>, now: DateTime) -> String {
    let DateTime { year, month, day, hour, minute, second } = now;
    let fitting = |c: char| if c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+') { c } else { '_' };
    let command = command.map(|command| command.chars().take(MOST_OF_COMMAND).map(fitting).chain(['-']).collect::<String>());
    let command = command.unwrap_or_default();
    format!("flametop-{command}{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.{}", format.ending())
}

impl Format {
    /// Chooses the format by the ending of the file's name. Standard output and other streams (`-`, `/dev/…`) have no ending and
    /// take folded stacks.
    pub fn of(path: &Path) -> Result<Format, SaveError> {
        match path.file_name().and_then(OsStr::to_str).and_then(Format::of_name) {
            Some(format) => Ok(format),
            None if stream_of(path).is_some() => Ok(Format::Folded),
            None => Err(SaveError::UnknownEnding { path: path.into() }),
        }
    }
}
