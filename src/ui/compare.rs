//! Comparing: marks a baseline, and shows the current samples as a difference to it.
//!
//! ```text
//!            b             b: the samples on screen become the baseline, as a copy
//! ───────────┼────────►    d: compares later samples with it, or those of the chosen range of time, process or filter
//!  baseline  │  since
//!
//!                 d        d without a baseline: compares the last 10 s with the 60 s before them,
//! ─────┼──────┼───┼────    or a chosen time with the time before it, six times as long
//!      │ 60 s │10 s
//! ```

use crate::profile::{Baseline, Change, Mark, Measure, Query, TimeRange, Timestamp, Unit};

use super::baseline::Compare;
use super::keys::Action;
use super::messages::Message;
use super::scene::Scene;
use super::span::Span;
use super::text;

const SECOND: u64 = 1_000_000_000;

/// Length of the time that is compared with the time before, in seconds, if no other time is chosen.
const RECENT: u64 = 10;

/// Length of the time before, as a multiple of the compared time.
const TIMES_BEFORE: u64 = 6;

/// Least length of the time before, in nanoseconds: a shorter time is no basis for a difference.
const LEAST_BEFORE: u64 = SECOND;

impl Scene {
    /// Marks the samples on screen as the baseline.
    pub(super) fn mark_baseline(&mut self) {
        if self.snapshot.amount() == 0 {
            return self.say("there are no samples to compare with".to_owned());
        }
        let range = self.fixed_range();
        self.compare.marks += 1;
        self.compare.before = None;
        self.compare.baseline = Some(Mark { number: self.compare.marks, query: Query { range, ..self.query.clone() } });
        let key = self.keys.first(Action::Compare);
        let what = match (self.compare.on, self.has().live) {
            (true, _) => String::new(),
            (false, true) => format!("; {key} compares later samples with it"),
            (false, false) => format!("; {key} compares your next selection with it"),
        };
        // The chip shows how many samples the baseline has. The count may still grow: some earlier samples have yet to arrive.
        self.say(format!("the samples shown are the baseline{what}"));
    }

    /// Returns the time on screen as a range that does not depend on the present.
    pub(super) fn fixed_range(&self) -> TimeRange {
        let now = self.snapshot.now;
        match self.range() {
            TimeRange::Last(span) => TimeRange::Between(Timestamp(now.0.saturating_sub(span)), now),
            TimeRange::Between(from, to) => TimeRange::Between(from, to.min(now)),
            // Samples that weigh a tenth or more.
            TimeRange::Fading(half_life, to) => {
                let to = to.min(now);
                TimeRange::Between(Timestamp(to.0.saturating_sub(half_life * 10 / 3)), to)
            }
            // No samples come any more.
            TimeRange::All if !self.has().live => TimeRange::All,
            TimeRange::All => TimeRange::Between(Timestamp(0), now),
        }
    }

    /// Shows the difference, or, if it is shown, the current samples alone. Without a baseline, the time before becomes the baseline.
    pub(super) fn toggle_difference(&mut self) {
        if self.compare.on {
            return self.leave_difference();
        }
        if self.compare.baseline.is_none()
            && let Err(why) = self.mark_the_time_before()
        {
            return self.say(why);
        }
        self.compare.on = true;
        self.say_what_is_compared();
    }

    /// Shows the current samples alone. A baseline that [`toggle_difference`](Self::toggle_difference) has marked is forgotten, and the
    /// time on screen is as before. A baseline that the user has marked stays.
    pub(super) fn leave_difference(&mut self) {
        self.compare.on = false;
        if let Some(before) = self.compare.before.take() {
            self.compare.baseline = None;
            if self.span == Span::Last(RECENT) {
                self.span = before;
            }
        }
    }

    /// Marks the time before the chosen time, or before the last seconds. The error gives the reason if that is impossible.
    fn mark_the_time_before(&mut self) -> Result<(), String> {
        let key = self.keys.first(Action::MarkBaseline);
        let refused = |what: &str| format!("{what}; {key} marks a baseline");
        let Some((first, _)) = self.snapshot.span.filter(|_| self.has().time) else {
            return Err(refused("nothing to compare with yet"));
        };
        let now = self.frozen.unwrap_or(self.snapshot.now);
        let (span, from, length) = match self.span {
            Span::Between(from, to) => (self.span, from, to.since(from)),
            Span::Last(seconds) if self.span != self.home => {
                (self.span, Timestamp(now.0.saturating_sub(seconds * SECOND)), seconds * SECOND)
            }
            _ => (Span::Last(RECENT), Timestamp(now.0.saturating_sub(RECENT * SECOND)), RECENT * SECOND),
        };
        if from.since(first) < LEAST_BEFORE {
            let time = match span {
                Span::Last(seconds) => format!("the last {seconds} s"),
                _ => "the selected time".to_owned(),
            };
            return Err(refused(&format!("no samples before {time}")));
        }
        self.compare.marks += 1;
        let range = TimeRange::Between(Timestamp(from.0.saturating_sub(length * TIMES_BEFORE)).max(first), from);
        self.compare.baseline = Some(Mark { number: self.compare.marks, query: Query { range, ..self.query.clone() } });
        self.compare.before = Some(self.span);
        self.span = span;
        Ok(())
    }

    /// Shows a message with the unit of the difference, its colours, and the key for the other unit.
    fn say_what_is_compared(&mut self) {
        let key = self.keys.first(Action::Measure);
        let other = match self.has().time {
            false => String::new(),
            true => format!("; {key} compares {}", if self.compares_rates() { "shares" } else { "rates" }),
        };
        let unit = match (self.compares_rates(), self.unit()) {
            (false, _) => "percentage points of all samples",
            (true, Unit::Samples) if self.ticks() > 0 => "CPUs",
            (true, Unit::Samples) => "samples a second",
            (true, Unit::Events) => "events a second",
            (true, Unit::Nanoseconds) => "seconds a second",
            (true, Unit::Bytes) => "bytes a second",
        };
        self.say(format!("difference in {unit}: {}{other}", self.key_of_colours()));
    }

    fn compares_rates(&self) -> bool {
        !self.compare.by_shares && self.has().time
    }

    /// Describes the colours of a difference.
    pub(super) fn key_of_colours(&self) -> String {
        let (grown, shrunk, chance) = self.theme.names_of_changes();
        format!("{grown} grew, {shrunk} shrank, {chance} may be chance")
    }

    /// Switches between comparing shares and comparing rates.
    pub(super) fn change_measure(&mut self) {
        if !self.has().time {
            return self.say("this file has no times, so its difference is in shares".to_owned());
        }
        if !self.compare.on {
            let key = self.keys.first(Action::Compare);
            return self.say(format!("no comparison is shown; {key} starts one"));
        }
        self.compare.by_shares = !self.compare.by_shares;
        self.say_what_is_compared();
    }

    /// Returns the unit of changes, as the heading of a column. Empty without a comparison.
    pub(super) fn change_unit(&self) -> &'static str {
        match self.snapshot.difference.as_ref().map(|difference| difference.measure()) {
            None => "",
            Some(Measure::Shares) => "points",
            Some(Measure::Rates { .. }) if self.ticks() == 0 => "change",
            Some(Measure::Rates { .. }) => "CPUs",
        }
    }

    /// Formats a change: points of a share, CPUs, or events a second.
    pub(super) fn change(&self, change: Change) -> String {
        let sign = if change.by < 0.0 { '-' } else { '+' };
        let is_of_shares = self.snapshot.difference.as_ref().is_none_or(|difference| difference.measure() == Measure::Shares);
        if is_of_shares {
            return text::points(change.by);
        }
        match self.rate(change.by.abs()) {
            none if matches!(&*none, "0.00" | "0/s") => format!("{}{none}", if self.theme.ascii { "" } else { "±" }),
            rate => format!("{sign}{rate}"),
        }
    }

    /// Returns the end of the baseline if a difference is shown and this end lies within the time on screen. Only samples after it are then
    /// compared with the baseline. `None` if a time from one moment to another is chosen, or if old samples fade.
    pub(super) fn since_baseline(&self) -> Option<Timestamp> {
        let mark = self.compare.baseline.as_ref().filter(|_| self.compare.on)?;
        let TimeRange::Between(_, to) = mark.query.range else { return None };
        let now = self.frozen.unwrap_or(self.snapshot.now);
        let is_within = match self.span {
            Span::All => true,
            Span::Last(seconds) => now.since(to) < seconds * SECOND,
            Span::Fading(_) | Span::Between(..) => false,
        };
        is_within.then_some(to)
    }

    /// Describes the baseline, for the chip.
    pub(super) fn baseline_words(&self) -> String {
        let sign = if self.theme.ascii { "difference" } else { "Δ" };
        let range = self.compare.baseline.as_ref().map(|mark| mark.query.range);
        let of = match (range, self.snapshot.baseline) {
            (Some(TimeRange::Between(from, to)), _) if self.status.wall.is_some() => self.between(from, to),
            (_, Baseline::Samples(weight, Unit::Nanoseconds)) => text::duration(weight),
            (_, Baseline::Samples(weight, Unit::Bytes)) => text::bytes(usize::try_from(weight).unwrap_or(usize::MAX)),
            (_, Baseline::Samples(weight, unit)) => format!("{} {}", text::count(weight), unit.word()),
            (_, Baseline::None | Baseline::TooLarge) => "baseline".to_owned(),
        };
        format!("{sign} to {of}")
    }

    /// Ends the comparison if the engine found the baseline too large to keep.
    pub(super) fn check_baseline(&mut self) {
        if self.snapshot.baseline == Baseline::TooLarge && self.snapshot.request.baseline == self.compare.baseline {
            self.compare = Compare { marks: self.compare.marks, by_shares: self.compare.by_shares, ..Compare::default() };
            let text = "the baseline would take more than a quarter of --memory; choose a shorter time or one process";
            self.message = Some(Message { text: text.to_owned(), bad: true });
        }
    }
}
