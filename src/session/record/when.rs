//! The condition on which a recording is written: `cpu > 90% for 5s`.

use std::time::{Duration, Instant};

use crate::cli::When;
use crate::profile::{EventSource, Profile, Tgid};

/// Watches a condition on the CPU use of what is recorded. A CPU counts as busy for the period before each sample of the clock.
pub(super) struct Watch {
    when: When,
    /// Least time between two recordings. They would have the same samples otherwise.
    rest: Duration,
    /// Number of the next sample to count, and when the last one was counted.
    counted: (u64, Instant),
    /// Since when the condition has held.
    holds_since: Option<Instant>,
    /// Whether the condition has been met, and has held ever since.
    is_met: bool,
    rests_until: Option<Instant>,
}

impl Watch {
    pub(super) fn new(when: When, rest: Duration) -> Watch {
        Watch { when, rest, counted: (0, Instant::now()), holds_since: None, is_met: false, rests_until: None }
    }

    /// Counts the samples since the last look. Returns whether the condition has just been met.
    pub(super) fn look(&mut self, profile: &Profile) -> bool {
        let (next, before) = std::mem::replace(&mut self.counted, (profile.samples.end(), Instant::now()));
        let elapsed = self.counted.1.saturating_duration_since(before);
        let Some(clock) = profile.clock() else { return false };
        // Idle CPUs have samples of their own with --idle.
        let is_idle = |thread| profile.threads.get(thread).is_some_and(|thread| thread.tgid == Tgid(0));
        let of_clock = profile.samples.slices_from(next).flatten().filter(|sample| sample.source == EventSource::CLOCK);
        let ticks: u64 = of_clock.filter(|sample| !is_idle(sample.thread)).map(|sample| sample.weight).sum();
        let whole = elapsed.as_nanos() as f64 * f64::from(clock.cpus.max(1));
        let percent = 100.0 * (ticks as f64 * clock.period as f64) / whole.max(1.0);
        self.step(percent, self.counted.1)
    }

    /// Returns whether the condition is met at `now`, with this CPU use since the last look.
    fn step(&mut self, percent: f64, now: Instant) -> bool {
        if !self.when.holds(percent) {
            (self.holds_since, self.is_met) = (None, false);
            return false;
        }
        let since = *self.holds_since.get_or_insert(now);
        let rests = self.rests_until.is_some_and(|until| now < until);
        if self.is_met || rests || now.saturating_duration_since(since) < self.when.lasting {
            return false;
        }
        self.is_met = true;
        self.rests_until = Some(now + self.rest);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Capabilities, Clock, Sample, Thread, Timestamp};

    #[test]
    fn a_condition_is_met_once_while_it_holds_and_not_again_within_the_time_that_is_kept() {
        let when = When::parse("cpu > 50% for 3s").unwrap();
        let mut watch = Watch::new(when, Duration::from_secs(20));
        let start = Instant::now();
        let use_at = |second: u64| match second {
            4 | 13..=14 => 50.0,
            ..=11 | 15.. => 51.0,
            _ => 1.0,
        };
        let met: Vec<u64> = (0..60).filter(|second| watch.step(use_at(*second), start + Duration::from_secs(*second))).collect();
        assert_eq!(met, [3, 23], "the break at 4 s begins anew, but 8 s lie within the rest");
    }

    #[test]
    fn cpu_use_is_that_of_all_cpus_without_the_idle_ones() {
        let mut profile = Profile::fixed(Capabilities::LIVE);
        profile.set_clock(Clock { period: 10_000_000, cpus: 2, since: Timestamp(0), until: None });
        let mut add = |tgid, source, weight| {
            let sample = Sample { source, weight, ..Sample::default() };
            profile.record(Thread { tgid: Tgid(tgid), ..Thread::default() }, [], sample);
        };
        add(1, EventSource::CLOCK, 60);
        add(0, EventSource::CLOCK, 140);
        add(1, EventSource(1), 1_000);
        for (condition, is_met) in [("cpu > 25% for 0s", true), ("cpu > 31% for 0s", false), ("cpu < 31% for 0s", true)] {
            let mut watch = Watch::new(When::parse(condition).unwrap(), Duration::ZERO);
            watch.counted.1 = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
            assert_eq!(watch.look(&profile), is_met, "{condition}");
        }
    }
}
