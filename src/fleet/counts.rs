//! Counts samples that were sent and samples that were lost, and says so from time to time.

use std::time::{Duration, Instant};

/// Numbers since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) samples: u64,
    /// Attempts that an engine did not take.
    pub(super) failures: u64,
    /// Samples of requests that were never taken.
    pub(super) refused: u64,
    /// Samples that had to make room for newer ones.
    pub(super) given_up: u64,
    /// Samples that did not reach the sender.
    pub(super) missed: u64,
    /// Profiles that an engine has taken no more than in part.
    pub(super) rejected: u64,
}

/// Least time between two messages.
const EVERY: Duration = Duration::from_secs(60);

/// Says what goes wrong: at once, and then once a minute.
#[derive(Default)]
pub(super) struct Teller {
    told: Counts,
    last: Option<Instant>,
    why: String,
}

impl Teller {
    /// Notes why something went wrong.
    pub(super) fn note(&mut self, why: String) {
        self.why = why;
    }

    /// Returns a message, if it is time for one.
    pub(super) fn message(&mut self, now: Instant, counts: &Counts) -> Option<String> {
        let is_due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= EVERY);
        let since = |of: fn(&Counts) -> u64| of(counts) - of(&self.told);
        let lost = since(|counts| counts.refused + counts.given_up + counts.missed);
        let (failures, rejected) = (since(|counts| counts.failures), since(|counts| counts.rejected));
        if !is_due || lost + failures + rejected == 0 {
            return None;
        }
        let mut message = match self.why.as_str() {
            "" => "the sender cannot keep up".to_owned(),
            why => why.to_owned(),
        };
        if failures > 1 {
            message += &format!("; {failures} attempts failed");
        }
        if lost > 0 {
            message += &format!("; {lost} samples are lost");
        } else if failures > 0 {
            message += "; samples wait";
        }
        (self.told, self.last) = (*counts, Some(now));
        self.why.clear();
        Some(message)
    }
}

impl Counts {
    /// Returns the numbers in one line, for the end.
    pub(super) fn line(&self) -> String {
        let Counts { requests, samples, bytes, refused, given_up, missed, .. } = *self;
        let lost = match refused + given_up + missed {
            0 => String::new(),
            lost => format!(", {lost} lost"),
        };
        format!("{samples} samples sent in {requests} requests of {} KB together{lost}", bytes.div_ceil(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_once_a_minute() {
        let (mut teller, mut counts, begin) = (Teller::default(), Counts::default(), Instant::now());
        assert_eq!(teller.message(begin, &counts), None);
        (counts.failures, counts.requests) = (1, 7);
        teller.note("c answers 503".to_owned());
        assert_eq!(teller.message(begin, &counts).as_deref(), Some("c answers 503; samples wait"));
        (counts.failures, counts.given_up) = (9, 300);
        teller.note("c answers 502".to_owned());
        assert_eq!(teller.message(begin + EVERY / 2, &counts), None);
        let said = teller.message(begin + EVERY, &counts);
        assert_eq!(said.as_deref(), Some("c answers 502; 8 attempts failed; 300 samples are lost"));
        assert_eq!(teller.message(begin + 3 * EVERY, &counts), None);
        counts.missed = 5;
        assert_eq!(teller.message(begin + 3 * EVERY, &counts).as_deref(), Some("the sender cannot keep up; 5 samples are lost"));
        assert_eq!(counts.line(), "0 samples sent in 7 requests of 0 KB together, 305 lost");
    }
}
