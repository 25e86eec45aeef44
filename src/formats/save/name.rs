//! The name that is offered for a file: it has the time in it.

use crate::formats::save::SaveError;
use crate::formats::save::stream_of;
use std::ffi::OsStr;
use std::path::Path;

/// A date and a time of day, local or not as the caller has it.
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
    /// From seconds since 1970 in UTC and the local time's offset from UTC, in seconds (0 gives UTC).
    ///
    /// Gregorian calendar by H. Hinnant's `civil_from_days`
    /// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>): eras of 400 years that begin in March.
    pub fn from_unix(seconds: i64, utc_offset: i32) -> DateTime {
        let local = seconds.saturating_add(i64::from(utc_offset));
        let (days, second_of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let days = days.saturating_add(719_468);
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let small = |number: i64| u8::try_from(number).unwrap_or(0);
        DateTime {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: small(month),
            day: small(day_of_year - (153 * from_march + 2) / 5 + 1),
            hour: small(second_of_day / 3_600),
            minute: small(second_of_day / 60 % 60),
            second: small(second_of_day % 60),
        }
    }
}

/// A name to offer: `flametop-20261121-101502.svg`.
pub fn default_name(format: Format, now: DateTime) -> String {
    let DateTime { year, month, day, hour, minute, second } = now;
    format!("flametop-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.{}", format.ending())
}

/// A kind of file that can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// An interactive flame graph.
    Svg,
    /// Folded stacks.
    Folded,
}

impl Format {
    /// By the ending of the file's name: `.svg`, `.folded` or `.txt`, in upper or lower case. Standard output and other
    /// streams (`-`, `/dev/…`) have no ending and take folded stacks.
    pub fn of(path: &Path) -> Result<Format, SaveError> {
        let ending = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("svg") => Ok(Format::Svg),
            Some("folded" | "txt") => Ok(Format::Folded),
            _ if stream_of(path).is_some() => Ok(Format::Folded),
            _ => Err(SaveError::UnknownEnding { path: path.into() }),
        }
    }

    /// The ending of its files, without the dot.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Svg => "svg",
            Format::Folded => "folded",
        }
    }
}
