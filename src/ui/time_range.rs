//! The time on screen: choosing it by keys or on the time strip, and the words of its chip.

use crate::profile::{SLOTS, TimeRange, Timestamp};

use super::keys::Action;
use super::scene::Scene;
use super::span::Span;
use super::text;

const SECOND: u64 = 1_000_000_000;

/// The shortest time that can be selected: one slot of the map of time.
const SHORTEST: u64 = SECOND / SLOTS as u64;

impl Scene {
    /// Returns the range of the query.
    pub(super) fn range(&self) -> TimeRange {
        let end = self.frozen.unwrap_or(Timestamp(u64::MAX));
        match (self.span, self.since_baseline()) {
            (Span::All | Span::Last(_), Some(since)) => TimeRange::Between(since, end),
            (Span::All, None) if self.frozen.is_none() => TimeRange::All,
            (Span::All, None) => TimeRange::Between(Timestamp(0), end),
            (Span::Last(seconds), None) if self.frozen.is_none() => TimeRange::Last(seconds * SECOND),
            (Span::Last(seconds), None) => TimeRange::Between(Timestamp(end.0.saturating_sub(seconds * SECOND)), end),
            (Span::Fading(seconds), _) => TimeRange::Fading(seconds * SECOND, end),
            (Span::Between(from, to), _) => TimeRange::Between(from, to),
        }
    }

    /// Describes the range, for its chip. `None` if the samples have no times.
    pub(super) fn range_words(&self) -> Option<String> {
        if !self.has().time {
            return None;
        }
        let words = match (self.span, self.since_baseline()) {
            (Span::All | Span::Last(_), Some(since)) => match self.time_of_day(since) {
                Some(time) => format!("since {time}"),
                None => "since the baseline".to_owned(),
            },
            (Span::All, None) => "since start".to_owned(),
            (Span::Last(seconds), None) => format!("last {seconds} s"),
            (Span::Fading(seconds), _) => format!("fading, half {seconds} s"),
            (Span::Between(from, to), _) => self.between(from, to),
        };
        Some(words)
    }

    /// Formats a time span: `14:31:02–14:31:06`, with hundredths if it is shorter than two seconds.
    pub(super) fn between(&self, from: Timestamp, to: Timestamp) -> String {
        let length = to.since(from);
        let (Some(begin), Some(end)) = (self.time_of_day(from), self.time_of_day(to)) else {
            return format!("{} s selected", text::seconds(length));
        };
        let dash = if self.theme.ascii { "-" } else { "–" };
        if from == Timestamp(0) {
            return format!("start{dash}{end}");
        }
        let is_whole = from.0.is_multiple_of(SECOND) && to.0.is_multiple_of(SECOND);
        if is_whole || length >= 2 * SECOND {
            format!("{begin}{dash}{end}")
        } else {
            format!("{begin}, {} s", text::seconds(length))
        }
    }

    /// Formats a moment as local time of day, if the machine's offset is known: `14:31:02`.
    pub(in crate::ui) fn time_of_day(&self, at: Timestamp) -> Option<String> {
        let of_day = self.second_of_day(at)?;
        Some(format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60))
    }

    /// Returns the local time of day in seconds, if the machine's offset is known.
    pub(in crate::ui) fn second_of_day(&self, at: Timestamp) -> Option<u64> {
        let seconds = (i128::from(at.0) + i128::from(self.status.wall?)).div_euclid(i128::from(SECOND));
        u64::try_from(seconds.rem_euclid(24 * 60 * 60)).ok()
    }

    pub(super) fn change_range(&mut self, action: Action) {
        if !self.has().time {
            return self.say("this file has no times to choose from".to_owned());
        }
        // Times are whole seconds, as in the time strip, unless the selection is shorter.
        let Some((first, last)) = self.snapshot.span else { return };
        let (first, last) = (first.0 / SECOND * SECOND, (last.0 / SECOND + 1) * SECOND);
        let (from, to) = match self.span {
            Span::Between(from, to) => (from.0, to.0),
            Span::Last(seconds) => (last.saturating_sub(seconds * SECOND), last),
            Span::All | Span::Fading(_) => (last.saturating_sub(10 * SECOND).max(first), last),
        };
        // The store may have dropped the selected samples meanwhile.
        let from = from.clamp(first, last - SHORTEST);
        let to = to.clamp(from + SHORTEST, last);
        let width = to - from;
        let step = if width >= 2 * SECOND { SECOND } else { SHORTEST };
        let shift = (width / 2 / step * step).max(step);
        let between = |from: u64, to: u64| Span::Between(Timestamp(from), Timestamp(to));
        self.span = match action {
            Action::CycleRange => match self.span {
                Span::All => Span::Last(60),
                Span::Last(10) => Span::Fading(10),
                Span::Last(_) => Span::Last(10),
                Span::Fading(_) => Span::All,
                Span::Between(..) => self.home,
            },
            Action::RangeEarlier if matches!(self.span, Span::Between(..)) => {
                let from = from.saturating_sub(shift).max(first);
                between(from, (from + width).min(last))
            }
            Action::RangeLater if matches!(self.span, Span::Between(..)) => {
                let to = (to + shift).min(last);
                between(to.saturating_sub(width).max(first), to)
            }
            Action::RangeNarrower => {
                let less = width / 4 / step * step;
                between(from + less, (to - less).max(from + less + SHORTEST))
            }
            Action::RangeWider => between(from.saturating_sub(shift).max(first), (to + shift).min(last)),
            Action::RangeLive => {
                self.frozen = None;
                self.home
            }
            _ => between(from, to),
        };
    }

    /// Returns to the usual time. Returns whether another time was selected.
    pub(super) fn leave_range(&mut self) -> bool {
        let was_chosen = self.span != self.home;
        self.span = self.home;
        was_chosen
    }

    /// Selects the seconds of columns of the time strip.
    pub fn select_seconds(&mut self, from: u64, to: u64) {
        self.span = Span::Between(Timestamp(from.min(to) * SECOND), Timestamp((from.max(to) + 1) * SECOND));
    }
}
