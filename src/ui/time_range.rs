//! Which time is looked at: chosen by keys, or by the mouse in the time strip.

use crate::profile::{SLOTS, TimeRange, Timestamp};

use super::keys::Action;
use super::messages::Message;
use super::scene::Scene;
use super::span::Span;

const SECOND: u64 = 1_000_000_000;

/// The shortest time that can be selected: a place of the map of time.
const SHORTEST: u64 = SECOND / SLOTS as u64;

impl Scene {
    /// The range of the query.
    pub(super) fn range(&self) -> TimeRange {
        match (self.span, self.frozen) {
            (Span::All, frozen) if self.since_baseline().is_some() => {
                TimeRange::Between(self.since_baseline().unwrap_or_default(), frozen.unwrap_or(Timestamp(u64::MAX)))
            }
            (Span::All, None) => TimeRange::All,
            (Span::Last(seconds), None) => TimeRange::Last(seconds * SECOND),
            (Span::All, Some(at)) => TimeRange::Between(Timestamp(0), at),
            (Span::Last(seconds), Some(at)) => TimeRange::Between(Timestamp(at.0.saturating_sub(seconds * SECOND)), at),
            (Span::Fading(seconds), frozen) => TimeRange::Fading(seconds * SECOND, frozen.unwrap_or(Timestamp(u64::MAX))),
            (Span::Between(from, to), _) => TimeRange::Between(from, to),
        }
    }

    pub(super) fn change_range(&mut self, action: Action) {
        if self.is_file() {
            self.message = Some(Message { text: "a file has no time to choose from".to_owned(), bad: false });
            return;
        }
        // In whole seconds, as the time strip has them, until what is selected is shorter.
        let Some((first, last)) = self.snapshot.span else { return };
        let (first, last) = (first.0 / SECOND * SECOND, (last.0 / SECOND + 1) * SECOND);
        let (from, to) = match self.span {
            Span::Between(from, to) => (from.0, to.0),
            Span::Last(seconds) => (last.saturating_sub(seconds * SECOND), last),
            Span::All | Span::Fading(_) => (last.saturating_sub(10 * SECOND).max(first), last),
        };
        // A selection may have left the store since it was made.
        let from = from.clamp(first, last - SHORTEST);
        let to = to.clamp(from + SHORTEST, last);
        let width = to - from;
        let step = if width >= 2 * SECOND { SECOND } else { SHORTEST };
        let shift = (width / 2 / step * step).max(step);
        let between = |from: u64, to: u64| Span::Between(Timestamp(from), Timestamp(to));
        self.span = match action {
            Action::CycleRange => match self.span {
                Span::All => Span::Last(10),
                Span::Last(10) => Span::Last(60),
                Span::Last(_) => Span::Fading(10),
                _ => Span::All,
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
                Span::All
            }
            _ => between(from, to),
        };
    }

    /// Selects the seconds that the time strip's columns stand for.
    pub fn select_seconds(&mut self, from: u64, to: u64) {
        self.span = Span::Between(Timestamp(from.min(to) * SECOND), Timestamp((from.max(to) + 1) * SECOND));
    }
}
