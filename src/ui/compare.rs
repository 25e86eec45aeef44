//! Comparing: what is marked as baseline, and whether what is seen is shown as a difference to it.
//!
//! ```text
//!            b             b: what is seen becomes the baseline, a copy that stays
//! ───────────┼────────►    d: what was sampled since, beside it; with a range of time, a process or a filter chosen, that
//!  baseline  │  since
//! ```

use crate::profile::{Baseline, Change, Mark, Measure, Query, TimeRange, Timestamp};

use super::baseline::Compare;
use super::keys::Action;
use super::messages::Message;
use super::scene::Scene;
use super::span::Span;
use super::text;

impl Scene {
    /// Marks what is seen.
    pub(super) fn mark_baseline(&mut self) {
        if self.snapshot.amount() == 0 {
            return self.say("there are no samples to compare with".to_owned());
        }
        let now = self.snapshot.now;
        let range = match self.range() {
            TimeRange::Last(span) => TimeRange::Between(Timestamp(now.0.saturating_sub(span)), now),
            TimeRange::Between(from, to) => TimeRange::Between(from, to.min(now)),
            // What weighs a tenth or more.
            TimeRange::Fading(half_life, to) => {
                let to = to.min(now);
                TimeRange::Between(Timestamp(to.0.saturating_sub(half_life * 10 / 3)), to)
            }
            // Samples of a file have no time.
            TimeRange::All if self.is_file() => TimeRange::All,
            TimeRange::All => TimeRange::Between(Timestamp(0), now),
        };
        self.compare.marks += 1;
        self.compare.baseline = Some(Mark { number: self.compare.marks, query: Query { range, ..self.query.clone() } });
        let key = self.keys.first(Action::Compare);
        let what = match (self.compare.on, self.is_file()) {
            (true, _) => String::new(),
            (false, false) => format!("; {key} shows how what follows differs"),
            (false, true) => format!("; {key} shows how what is seen then differs"),
        };
        // How many samples it has is on its chip: some that are of before now have yet to arrive.
        self.say(format!("what is seen is the baseline now{what}"));
    }

    /// Shows the difference, or what is seen alone.
    pub(super) fn toggle_difference(&mut self) {
        if self.compare.baseline.is_none() {
            let key = self.keys.first(Action::MarkBaseline);
            return self.say(format!("nothing to compare with yet: {key} marks what is seen"));
        }
        self.compare.on = !self.compare.on;
        if self.compare.on {
            self.say_what_is_compared();
        }
    }

    /// Tells what the figures of a difference are, and its colours.
    fn say_what_is_compared(&mut self) {
        let (grown, shrunk, chance) = self.theme.names_of_changes();
        let is_of_rates = !self.compare.by_shares && !self.is_file();
        let unit = match (is_of_rates, self.shown_event().is_some()) {
            (false, _) => "points of the share of all",
            (true, false) => "CPUs",
            (true, true) => "events a second",
        };
        let key = self.keys.first(Action::Measure);
        let other = if self.is_file() {
            String::new()
        } else {
            format!("; {key} compares {}", if is_of_rates { "shares" } else { "rates" })
        };
        self.say(format!("difference in {unit}: {grown} has grown, {shrunk} has shrunk, {chance} may be chance{other}"));
    }

    /// Compares shares instead of rates, or rates again.
    pub(super) fn change_measure(&mut self) {
        if self.is_file() {
            return self.say("a file has no time, so its difference is in shares".to_owned());
        }
        if !self.compare.on {
            let key = self.keys.first(Action::Compare);
            return self.say(format!("this is for a difference: {key} shows one"));
        }
        self.compare.by_shares = !self.compare.by_shares;
        self.say_what_is_compared();
    }

    /// Formats a weight per second: CPUs, or events a second.
    pub(super) fn rate(&self, weight: f64) -> String {
        match self.ticks() {
            0 => format!("{}/s", text::count(weight.round() as u64)),
            ticks => format!("{:.2}", weight / f64::from(ticks)),
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

    /// From when on samples are compared with the baseline, if all of them are to be.
    pub(super) fn since_baseline(&self) -> Option<Timestamp> {
        let mark = self.compare.baseline.as_ref().filter(|_| self.compare.on && self.span == Span::All)?;
        match mark.query.range {
            TimeRange::Between(_, to) => Some(to),
            TimeRange::All | TimeRange::Last(_) | TimeRange::Fading(..) => None,
        }
    }

    /// The engine may have found that there is too much to keep.
    pub(super) fn check_baseline(&mut self) {
        if self.snapshot.baseline == Baseline::TooLarge && self.snapshot.request.baseline == self.compare.baseline {
            self.compare = Compare { marks: self.compare.marks, by_shares: self.compare.by_shares, ..Compare::default() };
            let text = "the baseline would take more than a quarter of --memory; choose a shorter time or one process";
            self.message = Some(Message { text: text.to_owned(), bad: true });
        }
    }
}
