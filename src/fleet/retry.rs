//! When a request is made again.

use std::time::Duration;

/// The first wait, and the longest. Each wait may be twice the one before.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// The longest wait that an engine may ask for.
const ASKED: Duration = Duration::from_secs(3600);

/// Waits between attempts, longer each time.
#[derive(Debug, Default)]
pub(super) struct Waits {
    failures: u32,
}

impl Waits {
    /// Returns the time until the next attempt. `asked` is what the engine has asked for, `chance` any number: machines that have failed at the same
    /// moment do not all come back at the same moment.
    pub(super) fn next(&mut self, asked: Option<Duration>, chance: u64) -> Duration {
        let most = LONGEST.min(FIRST * 2u32.saturating_pow(self.failures.min(10)));
        self.failures = self.failures.saturating_add(1);
        // Between half of it and all.
        let half = most / 2;
        let wait = half + Duration::from_nanos(chance % (half.as_nanos() as u64 + 1));
        wait.max(asked.unwrap_or_default().min(ASKED))
    }

    /// Notes that an attempt has succeeded.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// Reads `Retry-After`: seconds, or a date such as `Sun, 06 Nov 1994 08:49:37 GMT`. `now` is in seconds since 1970.
pub(super) fn retry_after(text: &str, now: u64) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let [_, day, month, year, clock, "GMT"] = text.split_ascii_whitespace().collect::<Vec<_>>()[..] else { return None };
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = u8::try_from(MONTHS.iter().position(|name| *name == month)? + 1).ok()?;
    let mut parts = clock.split(':').map(|part| part.parse::<u8>().ok());
    let mut part = || parts.next().flatten();
    let clock = time::Time::from_hms(part()?, part()?, part()?).ok()?;
    let date = time::Date::from_calendar_date(year.parse().ok()?, month.try_into().ok()?, day.parse().ok()?).ok()?;
    let at = u64::try_from(date.with_time(clock).assume_utc().unix_timestamp()).ok()?;
    Some(Duration::from_secs(at.saturating_sub(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_begin_again() {
        let mut waits = Waits::default();
        let longest: Vec<u64> = (0..9).map(|_| waits.next(None, u64::MAX - 1).as_millis() as u64).collect();
        assert!(longest.windows(2).all(|pair| pair[0] <= pair[1] + 500 || pair[1] >= 30_000), "{longest:?}");
        for chance in [0, 1 << 20, u64::MAX, 12_345_678_901] {
            let wait = waits.next(None, chance);
            assert!((LONGEST / 2..=LONGEST).contains(&wait), "{wait:?}");
        }
        waits.succeeded();
        assert!((FIRST / 2..=FIRST).contains(&waits.next(None, 77)));
        assert_eq!(waits.next(Some(Duration::from_secs(300)), 0), Duration::from_secs(300));
        assert_eq!(waits.next(Some(Duration::MAX), 0), ASKED);
    }

    #[test]
    fn both_forms_of_retry_after_are_read() {
        assert_eq!(retry_after(" 120 ", 0), Some(Duration::from_secs(120)));
        let now = 784_111_777;
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:47 GMT", now), Some(Duration::from_secs(10)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:07 GMT", now), Some(Duration::ZERO));
        for wrong in
            ["", "soon", "-1", "Sun, 32 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 8 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"]
        {
            assert_eq!(retry_after(wrong, now), None, "{wrong}");
        }
    }
}
