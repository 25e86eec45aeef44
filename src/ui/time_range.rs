//! Which time is looked at: chosen by keys, or by the mouse in the time strip.

use crate::profile::{TimeRange, Timestamp};

use super::app::App;
use super::keys::Action;
use super::messages::Message;

const SECOND: u64 = 1_000_000_000;

/// Which time is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Span {
    /// Everything that is stored.
    #[default]
    All,
    /// The last so many seconds.
    Last(u64),
    /// From one second of the clock to before another.
    Seconds(u64, u64),
}

impl App {
    /// The range of the query.
    pub(super) fn range(&self) -> TimeRange {
        match (self.span, self.frozen) {
            (Span::All, None) => TimeRange::All,
            (Span::Last(seconds), None) => TimeRange::Last(seconds * SECOND),
            (Span::All, Some(at)) => TimeRange::Between(Timestamp(0), at),
            (Span::Last(seconds), Some(at)) => TimeRange::Between(Timestamp(at.0.saturating_sub(seconds * SECOND)), at),
            (Span::Seconds(from, to), _) => TimeRange::Between(Timestamp(from * SECOND), Timestamp(to * SECOND)),
        }
    }

    pub(super) fn change_range(&mut self, action: Action) {
        if self.status.frequency == 0 {
            self.message = Some(Message { text: "a file has no time to choose from".to_owned(), bad: false });
            return;
        }
        let Some((first, last)) = self.snapshot.span.map(|(first, last)| (first.0 / SECOND, last.0 / SECOND + 1)) else { return };
        let (from, to) = match self.span {
            Span::Seconds(from, to) => (from, to),
            Span::Last(seconds) => (last.saturating_sub(seconds), last),
            Span::All => (last.saturating_sub(10).max(first), last),
        };
        // A selection may have left the store since it was made.
        let from = from.clamp(first, last - 1);
        let to = to.clamp(from + 1, last);
        let width = to - from;
        let shift = (width / 2).max(1);
        self.span = match action {
            Action::CycleRange => match self.span {
                Span::All => Span::Last(10),
                Span::Last(10) => Span::Last(60),
                _ => Span::All,
            },
            Action::RangeEarlier if matches!(self.span, Span::Seconds(..)) => {
                let from = from.saturating_sub(shift).max(first);
                Span::Seconds(from, (from + width).min(last))
            }
            Action::RangeLater if matches!(self.span, Span::Seconds(..)) => {
                let to = (to + shift).min(last);
                Span::Seconds(to.saturating_sub(width).max(first), to)
            }
            Action::RangeNarrower => Span::Seconds(from + width / 4, (to - width / 4).max(from + width / 4 + 1)),
            Action::RangeWider => Span::Seconds(from.saturating_sub(shift).max(first), (to + shift).min(last)),
            Action::RangeLive => {
                self.frozen = None;
                Span::All
            }
            _ => Span::Seconds(from, to),
        };
    }

    /// Selects the seconds that the time strip's columns stand for.
    pub fn select_seconds(&mut self, from: u64, to: u64) {
        self.span = Span::Seconds(from.min(to), from.max(to) + 1);
    }
}
