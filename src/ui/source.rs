//! The source of one function, or its instructions, open over a view: what each row weighs, and where the reader is in it.
//!
//! ```text
//! o ─► Request::addresses_of ─► Snapshot::addresses ─► Effect::List ─► Event::Listing      once, and for addresses that are new
//!                               Snapshot::addresses ─► weights of rows                     with each picture
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use crate::profile::{Addresses, FrameId, FrameKind, LabelId, Listing, Names, RowWeights, Rows, Snapshot, Timestamp};

use super::app::{App, View};
use super::keys::{Action, a_move};
use super::messages::{CodePlace, Effect};
use super::tables::Position;

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
    fn of(names: &Names, label: LabelId) -> Source {
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
    fn refresh(&mut self, names: &Names) {
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

    fn take_addresses(&mut self, addresses: &Arc<Addresses>) {
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
    fn wanted(&mut self, now: Timestamp) -> Option<(Arc<Addresses>, Option<FrameId>)> {
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

    fn take_listing(&mut self, listing: Result<Arc<Listing>, String>, height: usize) {
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

    fn turn(&mut self) {
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
    fn next_hot(&mut self, forward: bool, height: usize) -> bool {
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
    fn select(&mut self, row: usize) {
        let rows = self.weights.rows.len();
        self.place.at = (self.place.scroll + row).min(rows.saturating_sub(1));
    }

    fn go(&mut self, action: Action, height: usize) {
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
    asked: Option<(LabelId, FrameId)>,
    found: Option<(LabelId, CodePlace)>,
}

impl App {
    /// Opens the source of the function under the cursor.
    pub(super) fn open_source(&mut self) {
        let label = self.selected_label().and_then(|label| Some((label, self.names.labels.get(label)?.kind)));
        match label {
            _ if self.is_file() => self.say("a file has only names: it does not tell where in the code samples were".to_owned()),
            // The box is of many functions, and its place that of their caller.
            Some(_) if self.view == View::Flame && self.flame.cursor.rest => {
                self.say(
                    "these are narrow callees of many names: zoom into their caller and select one, to see its source".to_owned(),
                );
            }
            None | Some((_, FrameKind::Process)) => self.say("select a function, to see its source".to_owned()),
            Some((label, _)) => {
                self.hover = None;
                self.source = Some(Source::of(&self.names, label));
                // Mostly the cursor has been there for a while.
                self.take_addresses(&Arc::clone(&self.snapshot));
            }
        }
    }

    /// Does what a key asks for in the source; `false` if that is none of its keys.
    pub(super) fn act_on_source(&mut self, action: Action, effects: &mut Vec<Effect>) -> bool {
        let height = self.source_height();
        let Some(source) = &mut self.source else { return false };
        match action {
            a_move!() => source.go(action, height),
            Action::NextMatch | Action::PreviousMatch => {
                if !source.next_hot(action == Action::NextMatch, height) {
                    self.say("no sample is in what is shown".to_owned());
                }
            }
            Action::NextView | Action::PreviousView => source.turn(),
            Action::Source | Action::ZoomOut => self.source = None,
            // What they change is the view below, which is not seen.
            Action::ZoomIn
            | Action::ResetZoom
            | Action::BottomUp
            | Action::Grouping
            | Action::Orientation
            | Action::Chains
            | Action::Order => {}
            Action::Copy => {
                if let Some(Ok(rows)) = source.rows()
                    && let Some(row) = rows.rows.get(source.place.at)
                {
                    effects.push(Effect::Copy(row.text.trim().to_owned()));
                    self.say("copied one line".to_owned());
                }
            }
            Action::FlameView
            | Action::FunctionsView
            | Action::ProcessesView
            | Action::TimeView
            | Action::HealthView
            | Action::Sandwich => {
                let label = source.label;
                self.source = None;
                if action == Action::Sandwich {
                    self.functions.open_function(label);
                    self.view = View::Functions;
                    return true;
                }
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Rows of the source that are on screen.
    pub(super) fn source_height(&self) -> usize {
        usize::from(self.areas().body.height).saturating_sub(self.source_head())
    }

    /// Lines above the rows: what it is, what is to be known about it, what columns mean.
    pub(super) fn source_head(&self) -> usize {
        2 + usize::from(self.source.as_ref().is_some_and(|source| !source.note().is_empty()))
    }

    /// A click on a line of the body.
    pub(super) fn click_source(&mut self, line: usize) {
        let head = self.source_head();
        if let (Some(source), Some(row)) = (&mut self.source, line.checked_sub(head)) {
            source.select(row);
        }
    }

    /// The function of which it matters where its samples are.
    pub(super) fn addresses_wanted(&self) -> Option<LabelId> {
        if let Some(source) = &self.source {
            return Some(source.label);
        }
        let is_there = !(self.is_file() || self.view == View::Flame && self.flame.cursor.rest);
        let label = self.selected_label().filter(|_| is_there)?;
        let about = self.names.labels.get(label)?;
        match about.kind {
            FrameKind::User | FrameKind::Inlined | FrameKind::Kernel => Some(label),
            // What has no name is of no object either, and has nothing that could be told of it.
            FrameKind::Jit => Some(label).filter(|_| !about.object.is_empty()),
            FrameKind::Process | FrameKind::Unknown => None,
        }
    }

    pub(super) fn take_addresses(&mut self, snapshot: &Snapshot) {
        if let Some(source) = &mut self.source {
            source.refresh(&self.names);
            if let Some(addresses) = &snapshot.addresses {
                source.take_addresses(addresses);
            }
        }
    }

    pub(super) fn take_listing(&mut self, label: LabelId, listing: Result<Arc<Listing>, String>) {
        let height = self.source_height();
        if let Some(source) = self.source.as_mut().filter(|source| source.label == label) {
            source.take_listing(listing, height);
        }
    }

    pub(super) fn take_place(&mut self, asked: (LabelId, FrameId), place: Option<CodePlace>) {
        if self.hottest.asked == Some(asked) {
            self.hottest.found = place.map(|place| (asked.0, place));
        }
    }

    /// Asks for what is to be read, and for the line of the cursor's function that is hottest.
    pub(super) fn ask_for_code(&mut self, effects: &mut Vec<Effect>) {
        let now = self.snapshot.now;
        if let Some(source) = &mut self.source {
            effects.extend(source.wanted(now).map(|(addresses, by)| Effect::List(addresses, by)));
            return;
        }
        let wanted = self.addresses_wanted();
        let addresses = self.snapshot.addresses.as_ref().filter(|addresses| Some(addresses.label) == wanted);
        let asked = addresses.and_then(|addresses| Some((addresses.label, addresses.frames.first()?.frame)));
        if let Some(asked) = asked.filter(|asked| self.hottest.asked != Some(*asked)) {
            self.hottest.asked = Some(asked);
            effects.push(Effect::Locate(asked.0, asked.1));
        }
    }

    /// File and line where the function under the cursor is hottest, if they are known.
    pub fn hottest_place(&self) -> Option<&CodePlace> {
        let wanted = self.addresses_wanted().filter(|_| self.source.is_none())?;
        self.hottest.found.as_ref().filter(|(label, _)| *label == wanted).map(|(_, place)| place)
    }
}
