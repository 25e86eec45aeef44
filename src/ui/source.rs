//! The source of one function, or its instructions, open over a view: what each row weighs, and where the reader is in it.
//!
//! ```text
//! o ─► Request::addresses_of ─► Snapshot::addresses ─► Effect::List ─► Event::Listing      once, and for addresses that are new
//!                               Snapshot::addresses ─► weights of rows                     with each picture
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use crate::profile::{Addresses, FrameId, FrameKind, LabelId, Listing, Names, RowWeights, Rows, SourceLocation, Timestamp};

use super::keys::Action;
use super::position::Position;

/// Which of the two is on screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pane {
    /// Lines of the source.
    #[default]
    Source,
    /// Instructions.
    Code,
}

/// A row's share of the function from which on it is hot, in thousandths.
const HOT: u64 = 10;
/// The same function is read at most this often: while addresses of it are new again and again, files are left in peace.
const LEAST_BETWEEN_READINGS: u64 = 1_000_000_000;
/// Columns by which left and right move the text.
const STEP: usize = 8;

/// What is read, and where the reader is.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The function.
    pub label: LabelId,
    /// What came of asking for it; nothing yet at first. The error is a sentence.
    pub listing: Option<Result<Arc<Listing>, String>>,
    /// What is on screen.
    pub pane: Pane,
    /// Where the reader is.
    pub place: Position,
    /// The same where the other pane was left.
    other: Position,
    /// Columns of the text that are left of the screen.
    pub shift: usize,
    /// What rows weigh, of what is on screen.
    pub weights: RowWeights,
    /// The newest weights of addresses.
    pub addresses: Option<Arc<Addresses>>,
    /// A listing was asked for and has not come.
    waiting: bool,
    /// As of when it was asked for.
    asked: Option<Timestamp>,
    /// What is known of whether the listing has all addresses.
    covers: Covers,
    /// An address without a name: its neighbours' weights come with its own.
    unnamed: bool,
}

/// Whether a listing was made for all addresses that there are now. They are some thousand, so that is not looked at with each key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Covers {
    /// Listing or addresses are new.
    #[default]
    Unknown,
    All,
    NotAll,
}

impl Source {
    pub(super) fn of(names: &Names, label: LabelId) -> Source {
        let unnamed = names.labels.get(label).is_some_and(|label| label.kind == FrameKind::Unknown);
        Source { label, unnamed, ..Source::default() }
    }

    /// The rows on screen, or why there are none; `None` while they are read.
    pub fn rows(&self) -> Option<Result<&Rows, &str>> {
        let listing = match self.listing.as_ref()? {
            Ok(listing) => listing,
            Err(why) => return Some(Err(why)),
        };
        let rows = match self.pane {
            Pane::Source => &listing.source,
            Pane::Code => &listing.code,
        };
        Some(rows.as_ref().map_err(String::as_str))
    }

    /// Why the other pane cannot be shown, or what is to be known about this one; empty for nothing.
    pub fn note(&self) -> Cow<'_, str> {
        let Some(Ok(listing)) = &self.listing else { return Cow::default() };
        match (&listing.source, &listing.code, self.pane) {
            (Err(why), Ok(rows), Pane::Code) if !rows.note.is_empty() => Cow::from(format!("{} ({why})", rows.note)),
            (Err(why), _, Pane::Code) => Cow::from(why),
            (Ok(rows), _, Pane::Source) | (_, Ok(rows), Pane::Code) => Cow::from(&rows.note),
            _ => Cow::default(),
        }
    }

    /// What a row's weights are shares of: all samples that the function is in.
    pub fn whole(&self) -> u64 {
        match &self.addresses {
            // The others' sum is that of many functions.
            _ if self.unnamed => self.weights.all.1,
            Some(addresses) => addresses.total,
            None => 0,
        }
    }

    /// Whether it is an address without a name.
    pub fn is_unnamed(&self) -> bool {
        self.unnamed
    }

    /// The function may have got its name meanwhile.
    pub(super) fn refresh(&mut self, names: &Names) {
        let current = names.labels.current(self.label);
        if current != self.label {
            *self = Source::of(names, current);
        }
    }

    /// Gives the function another label. Its rows are of frames that have other ids now: it is read again.
    pub(super) fn rename(&mut self, rename: impl Fn(LabelId) -> LabelId) {
        let Source { label, pane, place, other, shift, unnamed, .. } = *self;
        *self = Source { label: rename(label), pane, place, other, shift, unnamed, ..Source::default() };
    }

    pub(super) fn take_addresses(&mut self, addresses: &Arc<Addresses>) {
        if addresses.label == self.label && self.addresses.as_ref().is_none_or(|known| !Arc::ptr_eq(known, addresses)) {
            self.addresses = Some(Arc::clone(addresses));
            self.covers = Covers::Unknown;
            self.weigh();
        }
    }

    fn weigh(&mut self) {
        self.weights = match (self.rows(), &self.addresses) {
            (Some(Ok(rows)), Some(addresses)) => RowWeights::of(rows, &addresses.frames),
            _ => RowWeights::default(),
        };
    }

    /// What is to be asked for, as of `now`, and of which function; nothing while the answer is on its way.
    pub(super) fn wanted(&mut self, now: Timestamp) -> Option<(Arc<Addresses>, Option<FrameId>)> {
        let addresses = self.addresses.as_ref().filter(|addresses| !self.waiting && !addresses.frames.is_empty())?;
        if self.covers == Covers::Unknown {
            let all = match &self.listing {
                None => false,
                Some(Ok(listing)) => addresses.frames.iter().all(|weight| listing.known.contains(&weight.frame)),
                Some(Err(_)) => true,
            };
            self.covers = if all { Covers::All } else { Covers::NotAll };
        }
        let is_early = self.asked.is_some_and(|asked| now.0.saturating_sub(asked.0) < LEAST_BETWEEN_READINGS);
        if self.covers == Covers::All || is_early {
            return None;
        }
        (self.waiting, self.asked) = (true, Some(now));
        // Whichever weighs more now, what is being read stays.
        let by = self.listing.as_ref().and_then(|listing| Some(listing.as_ref().ok()?.by));
        Some((Arc::clone(addresses), by))
    }

    pub(super) fn take_listing(&mut self, listing: Result<Arc<Listing>, String>, height: usize) {
        (self.waiting, self.covers) = (false, Covers::Unknown);
        let first = !matches!(self.listing, Some(Ok(_)));
        self.listing = match (self.listing.take(), listing) {
            // What was read before is better than why it cannot be read any more. The same addresses need not be asked for again.
            (Some(Ok(mut before)), Err(_)) => {
                let asked = self.addresses.iter().flat_map(|addresses| addresses.frames.iter().map(|weight| weight.frame));
                Arc::make_mut(&mut before).known.extend(asked);
                Some(Ok(before))
            }
            (Some(Ok(before)), Ok(now))
                if before.source.is_ok() && now.source.is_err() || before.code.is_ok() && now.code.is_err() =>
            {
                // Nobody else holds them: nothing is copied.
                let (before, mut now) = (Arc::unwrap_or_clone(before), Arc::unwrap_or_clone(now));
                now.source = now.source.or_else(|why| before.source.map_err(|_| why));
                now.code = now.code.or_else(|why| before.code.map_err(|_| why));
                Some(Ok(Arc::new(now)))
            }
            (_, listing) => Some(listing),
        };
        if first {
            let Some(Ok(listing)) = &self.listing else { return };
            self.pane = if listing.source.is_ok() || listing.code.is_err() { Pane::Source } else { Pane::Code };
            // The other first: what is centred last is on screen.
            for _ in 0..2 {
                self.turn();
                self.centre(height);
            }
        }
        self.weigh();
    }

    pub(super) fn turn(&mut self) {
        self.pane = match self.pane {
            Pane::Source => Pane::Code,
            Pane::Code => Pane::Source,
        };
        std::mem::swap(&mut self.place, &mut self.other);
        self.weigh();
    }

    /// Puts the hottest row in the middle.
    fn centre(&mut self, height: usize) {
        let at = self.weights.hottest().unwrap_or(0);
        self.place = Position { at, scroll: at.saturating_sub(height / 2) };
    }

    /// To the next row that is hot, round in a circle.
    pub(super) fn next_hot(&mut self, forward: bool, height: usize) -> bool {
        let own = self.weights.all.0 > 0;
        let part = |weight: &(u64, u64)| if own { weight.0 } else { weight.1 };
        let all = part(&self.weights.all);
        let is_hot = |weight: &(u64, u64)| part(weight) > 0 && part(weight) * 1000 >= all * HOT;
        let hot = || self.weights.rows.iter().enumerate().filter(|(_, weight)| is_hot(weight)).map(|(at, _)| at);
        let next = if forward {
            hot().find(|at| *at > self.place.at).or_else(|| hot().next())
        } else {
            hot().rev().find(|at| *at < self.place.at).or_else(|| hot().next_back())
        };
        let Some(at) = next else { return false };
        let scroll = self.place.scroll;
        let seen = (scroll..scroll + height).contains(&at);
        self.place = Position { at, scroll: if seen { scroll } else { at.saturating_sub(height / 2) } };
        true
    }

    /// Puts the cursor on a row that was clicked.
    pub(super) fn select(&mut self, row: usize) {
        let rows = self.weights.rows.len();
        self.place.at = (self.place.scroll + row).min(rows.saturating_sub(1));
    }

    pub(super) fn go(&mut self, action: Action, height: usize) {
        match action {
            Action::Left => self.shift = self.shift.saturating_sub(STEP),
            Action::Right => self.shift += STEP,
            _ => {
                let rows = match self.listing.as_ref() {
                    Some(Ok(_)) => self.weights.rows.len(),
                    _ => 0,
                };
                self.place.go(action, rows, height);
            }
        }
    }
}

/// Where in the source the function under the cursor is hot.
#[derive(Clone, Debug, Default)]
pub(super) struct Hottest {
    pub(super) asked: Option<(LabelId, FrameId)>,
    pub(super) found: Option<(LabelId, SourceLocation)>,
}
