//! Opens the source of a function, carries out its keys, and requests listings.

use std::sync::Arc;

use crate::profile::{ADDRESSES_OF_A_LINE, FrameId, FrameKind, LabelId, Listing, Snapshot, SourceLocation, hottest_line};

use super::app::App;
use super::keys::{Action, a_move};
use super::messages::Effect;
use super::source::{Hottest, Source};
use super::view::View;

impl App {
    /// Opens the source of the function under the cursor.
    pub(super) fn open_source(&mut self) {
        let label = self.selected_label().and_then(|label| Some((label, self.scene.names.labels.get(label)?.kind)));
        match label {
            _ if !self.scene.has().addresses => {
                self.scene.say("this file has only names, no addresses: source lines are unknown".to_owned())
            }
            // The box contains many functions, and its place is their caller's.
            Some(_) if self.scene.view == View::Flame && self.views.flame.cursor.rest => {
                self.scene.say("these are several narrow callees: zoom into the caller and select one".to_owned());
            }
            None | Some((_, FrameKind::Process)) => self.scene.say("select a function to see its source".to_owned()),
            Some((label, _)) => {
                self.scene.hover = None;
                self.source = Some(Source::of(&self.scene.names, label));
                // Usually the cursor has been there for a while, so the addresses are known.
                self.take_addresses(&Arc::clone(&self.scene.snapshot));
            }
        }
    }

    /// Carries out an action in the source. Returns `false` if the source does not have that action.
    pub(super) fn act_on_source(&mut self, action: Action, effects: &mut Vec<Effect>) -> bool {
        let height = self.source_height();
        let Some(source) = &mut self.source else { return false };
        match action {
            a_move!() => source.go(action, height),
            Action::NextMatch | Action::PreviousMatch => {
                if !source.next_hot(action == Action::NextMatch, height) {
                    self.scene.say("none of these rows has samples".to_owned());
                }
            }
            Action::NextView | Action::PreviousView => source.turn(),
            Action::Source | Action::ZoomOut => self.source = None,
            // These actions change the view below, which is hidden.
            Action::ZoomIn
            | Action::ResetZoom
            | Action::BottomUp
            | Action::Grouping
            | Action::Orientation
            | Action::Chains
            | Action::MachineWidths
            | Action::Order => {}
            Action::Copy => {
                if let Some(Ok(rows)) = source.rows()
                    && let Some(row) = rows.rows.get(source.place.at)
                {
                    effects.push(Effect::Copy(row.text.trim().to_owned()));
                    self.scene.say("copied one line".to_owned());
                }
            }
            Action::Show(_) | Action::Sandwich => {
                let label = source.label;
                self.source = None;
                if action == Action::Sandwich {
                    self.open_sandwich(label);
                    return true;
                }
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Returns the number of source rows on screen.
    pub(super) fn source_height(&self) -> usize {
        usize::from(self.scene.areas().body.height).saturating_sub(self.source_head())
    }

    /// Returns the number of lines above the rows: title, note and heading.
    pub(super) fn source_head(&self) -> usize {
        2 + usize::from(self.source.as_ref().is_some_and(|source| !source.note().is_empty()))
    }

    /// Processes a click on a line of the body.
    pub(super) fn click_source(&mut self, line: usize) {
        let head = self.source_head();
        if let (Some(source), Some(row)) = (&mut self.source, line.checked_sub(head)) {
            source.select(row);
        }
    }

    /// Returns the function whose per-address sample counts are wanted.
    pub(super) fn addresses_wanted(&self) -> Option<LabelId> {
        if let Some(source) = &self.source {
            return Some(source.label);
        }
        let is_there = self.scene.has().addresses && !(self.scene.view == View::Flame && self.views.flame.cursor.rest);
        let label = self.selected_label().filter(|_| is_there)?;
        let about = self.scene.names.labels.get(label)?;
        match about.kind {
            FrameKind::User | FrameKind::Inlined | FrameKind::Kernel => Some(label),
            // Without a name, such a frame has no object either, and there is nothing to read.
            FrameKind::Jit | FrameKind::Script(_) => Some(label).filter(|_| !about.object.is_empty()),
            FrameKind::Process | FrameKind::Wait | FrameKind::Unknown => None,
        }
    }

    pub(super) fn take_addresses(&mut self, snapshot: &Snapshot) {
        if let Some(source) = &mut self.source {
            source.refresh(&self.scene.names);
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

    pub(super) fn take_lines(&mut self, label: LabelId, lines: Vec<(FrameId, SourceLocation)>) {
        if self.hottest.label == Some(label) {
            self.hottest.lines.extend(lines);
        }
    }

    /// Requests the listing, and the lines of the heaviest addresses of the function under the cursor.
    pub(super) fn ask_for_code(&mut self, effects: &mut Vec<Effect>) {
        let now = self.scene.snapshot.now;
        if let Some(source) = &mut self.source {
            effects.extend(source.wanted(now).map(|(addresses, by)| Effect::List(addresses, by)));
            return;
        }
        let wanted = self.addresses_wanted();
        let Some(addresses) = self.scene.snapshot.addresses.as_ref().filter(|addresses| Some(addresses.label) == wanted) else {
            return;
        };
        if self.hottest.label != wanted {
            self.hottest = Hottest { label: wanted, ..Hottest::default() };
        }
        // No line is true of all users' programs.
        if addresses.users_differ {
            self.hottest = Hottest { label: wanted, ..Hottest::default() };
            return;
        }
        let frames: Vec<FrameId> = addresses.frames.iter().take(ADDRESSES_OF_A_LINE).map(|weight| weight.frame).collect();
        // A newer question replaces an older one that waits, so it has all addresses.
        if frames.iter().any(|frame| !self.hottest.asked.contains(frame)) {
            self.hottest.asked.extend(&frames);
            effects.push(Effect::Locate(addresses.label, frames));
        }
    }

    /// Returns file and line where the function under the cursor is hottest, if they are known.
    pub fn hottest_place(&self) -> Option<&SourceLocation> {
        let wanted = self.addresses_wanted().filter(|wanted| self.source.is_none() && self.hottest.label == Some(*wanted))?;
        let addresses = self.scene.snapshot.addresses.as_ref().filter(|addresses| addresses.label == wanted)?;
        let weights = addresses.frames.iter().take(ADDRESSES_OF_A_LINE);
        hottest_line(weights.filter_map(|weight| Some((*weight, self.hottest.lines.get(&weight.frame)?))))
    }
}
