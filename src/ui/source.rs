//! The source of one function, or its instructions, opened over a view. Holds the weight of each row and the reader's position.
//!
//! ```text
//! o ─► Request::addresses_of ─► Snapshot::addresses ─► Effect::List ─► Event::Listing      once, and for addresses that are new
//!                               Snapshot::addresses ─► weights of rows                     with each picture
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{Addresses, FrameId, FrameKind, LabelId, Listing, Names, RowWeights, Rows, SourceLocation, Timestamp};

use super::keys::Action;
use super::position::Position;

/// The pane on screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pane {
    /// Lines of the source.
    #[default]
    Source,
    /// Instructions.
    Code,
}

/// Least share of the function that makes a row hot, in thousandths.
const HOT: u64 = 10;
/// Least nanoseconds between two readings of the same function. New addresses may arrive all the time; files are not read that
/// often.
const LEAST_BETWEEN_READINGS: u64 = 1_000_000_000;
/// Columns that left and right scroll the text by.
const STEP: usize = 8;

/// An open function, and the reader's position in it.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The function.
    pub label: LabelId,
    /// The answer to the request; `None` before it arrives. The error is a sentence.
    pub listing: Option<Result<Arc<Listing>, String>>,
    /// The pane on screen.
    pub pane: Pane,
    /// The reader's position.
    pub place: Position,
    /// The reader's position in the other pane.
    other: Position,
    /// Columns of the text that are scrolled out on the left.
    pub shift: usize,
    /// Weights of the rows on screen.
    pub weights: RowWeights,
    /// The newest weights of addresses.
    pub addresses: Option<Arc<Addresses>>,
    /// Whether a listing was requested and has not arrived.
    waiting: bool,
    /// Time of the last request.
    asked: Option<Timestamp>,
    /// Whether the listing has all addresses, as far as known.
    covers: Covers,
    /// Whether it is an address without a name. Its neighbours' weights arrive together with its own.
    unnamed: bool,
}

/// Whether a listing contains all current addresses. There may be thousands, so this is not checked at each key.
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

    /// Returns the rows on screen, or the reason why there are none; `None` while they are being read.
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

    /// Returns why the other pane cannot be shown, or a note about this pane. May be empty.
    pub fn note(&self) -> Cow<'_, str> {
        let Some(Ok(listing)) = &self.listing else { return Cow::default() };
        match (&listing.source, &listing.code, self.pane) {
            (Err(why), Ok(rows), Pane::Code) if !rows.note.is_empty() => Cow::from(format!("{} ({why})", rows.note)),
            (Err(why), _, Pane::Code) => Cow::from(why),
            (Ok(rows), _, Pane::Source) | (_, Ok(rows), Pane::Code) => Cow::from(&rows.note),
            _ => Cow::default(),
        }
    }

    /// Returns the divisor for the rows' shares: all samples that contain the function.
    pub fn whole(&self) -> u64 {
        match &self.addresses {
            // The addresses' total includes many other functions.
            _ if self.unnamed => self.weights.all.1,
            Some(addresses) => addresses.total,
            None => 0,
        }
    }

    /// Returns whether it is an address without a name.
    pub fn is_unnamed(&self) -> bool {
        self.unnamed
    }

    /// Follows the function to its new name, if it has one.
    pub(super) fn refresh(&mut self, names: &Names) {
        let current = names.labels.current(self.label);
        if current != self.label {
            *self = Source::of(names, current);
        }
    }

    /// Gives the function another label. The frames of its rows have other ids now, so the function is read again.
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

    /// Returns the addresses to request as of `now`, and the address of the function to read. `None` if nothing is missing or an
    /// answer is still pending.
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
        // The function that is being read stays, even if another one weighs more now.
        let by = self.listing.as_ref().and_then(|listing| Some(listing.as_ref().ok()?.by));
        Some((Arc::clone(addresses), by))
    }

    pub(super) fn take_listing(&mut self, listing: Result<Arc<Listing>, String>, height: usize) {
        (self.waiting, self.covers) = (false, Covers::Unknown);
        let first = !matches!(self.listing, Some(Ok(_)));
        self.listing = match (self.listing.take(), listing) {
            // The old listing is more useful than the reason why it cannot be read any longer. The same addresses are not requested
            // again.
            (Some(Ok(mut before)), Err(_)) => {
                let asked = self.addresses.iter().flat_map(|addresses| addresses.frames.iter().map(|weight| weight.frame));
                Arc::make_mut(&mut before).known.extend(asked);
                Some(Ok(before))
            }
            (Some(Ok(before)), Ok(now))
                if before.source.is_ok() && now.source.is_err() || before.code.is_ok() && now.code.is_err() =>
            {
                // There are no other owners, so nothing is copied.
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
            // Each pane is centred. The loop ends on the pane that is on screen.
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

    /// Moves to the next hot row; the first follows the last.
    pub(super) fn next_hot(&mut self, forward: bool, height: usize) -> bool {
        let (_, all) = self.weights.all;
        let is_hot = |(_, total): &(u64, u64)| *total > 0 && total * 1000 >= all * HOT;
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

    /// Puts the cursor on a clicked row.
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

/// Source lines of the heaviest addresses of the function under the cursor.
#[derive(Clone, Debug, Default)]
pub(super) struct Hottest {
    pub(super) label: Option<LabelId>,
    pub(super) asked: FxHashSet<FrameId>,
    pub(super) lines: FxHashMap<FrameId, SourceLocation>,
}
