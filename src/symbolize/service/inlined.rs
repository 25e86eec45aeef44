//! Second step of naming: finds in debug information what was inlined into frames that have the names of their symbols.

use std::sync::atomic::Ordering;

use super::Service;
use super::objects::{Entry, EntryState, Objects};
use super::unnamed::Unnamed;
use crate::locks::lock;
use crate::object::reason::Reason;
use crate::profile::{FrameId, FrameKind, Label, LabelId, Object, ObjectKind, UserId};
use crate::symbolize::kernel::vmlinux::same_function;
use crate::symbolize::symbols::demangle::{Detail, demangle};

/// Most bytes of parsed debug information of one object. The last unit may exceed it.
const MAX_PARSED: usize = 512 << 20;
/// Frames looked up in debug information between two checks whether others wait for a first name.
const SLICE: usize = 1024;

impl Service {
    /// Looks up what was inlined into frames, and names frames without a symbol. Returns the frames that were not reached because others
    /// wait for their first name.
    pub(crate) fn name_inlined(&self, object: &Object, entry: &Entry, mut frames: Vec<FrameId>) -> Vec<FrameId> {
        self.sort_by_address(&mut frames);
        let mut done = 0;
        while let Some(rest) = frames.get(done..).filter(|rest| !rest.is_empty()) {
            let slice = rest.get(..SLICE).unwrap_or(rest);
            let mut state = entry.state();
            let found = self.find_inlined(object, &mut state, slice);
            let mut without_name = Unnamed::of(state.images());
            drop(state);
            if let Err(reason) = &found {
                entry.tally.set_reason(Some(*reason));
            }
            let chains = found.unwrap_or_default();
            let slice = chains.as_ref().and_then(|chains| slice.get(..chains.ends.len())).unwrap_or(slice);
            let (mut named, mut unnamed) = (0, 0);
            for (index, frame) in slice.iter().enumerate() {
                let had_name = self.symbol_of(*frame).is_some();
                match chains.as_ref().and_then(|chains| chains.of(index)) {
                    Some(chain) => {
                        self.names.name_frame(*frame, chain);
                        named += u64::from(!had_name);
                    }
                    None if had_name => {}
                    None => {
                        self.leave_unnamed(object, &mut without_name, *frame);
                        unnamed += 1;
                    }
                }
            }
            entry.tally.count(named, unnamed);
            done += slice.len();
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            // Without debug information all frames are done quickly.
            if chains.is_some() && done < frames.len() {
                let others_wait = !lock(&self.inbox).requests.is_empty() || lock(&self.queue).has_nameless();
                if others_wait {
                    break;
                }
            }
        }
        frames.split_off(done.min(frames.len()))
    }

    /// Returns the name that a frame has from a symbol.
    pub(crate) fn symbol_of(&self, frame: FrameId) -> Option<LabelId> {
        let mut first = None;
        self.names.labels_of(frame, |label| first = first.or(Some(label)));
        let is_symbol = |label: &Label| label.kind == FrameKind::User || label.kind == FrameKind::Kernel && !label.provisional;
        first.filter(|label| self.names.labels.get(*label).is_some_and(is_symbol))
    }

    /// Returns the functions at each address, root first. `Ok(None)` if the object has no debug information.
    fn find_inlined(&self, object: &Object, state: &mut EntryState, frames: &[FrameId]) -> Result<Option<Chains>, Reason> {
        let images = match self.objects.images(state, object, &[]) {
            // Its functions still have the names of their symbols.
            Err(_) if object.kind == ObjectKind::Kernel => {
                Objects::without_dwarf(state);
                return Ok(None);
            }
            images => images?,
        };
        let chains = self.objects.with_dwarf(state, &images, |state, dwarf| {
            let mut chains = Chains::default();
            let mut calls = Vec::new();
            let mut too_much = false;
            for frame in frames {
                calls.clear();
                let address = self.names.frames.get(*frame).and_then(|frame| images.elf_address(frame));
                let symbol = self.symbol_of(*frame);
                // An error in one unit does not affect other units.
                let asked = address.map(|address| {
                    dwarf.calls(address, |call| calls.push(call.name.map(|name| self.called(object, state, name))))
                });
                let is_other =
                    object.kind == ObjectKind::Kernel && !self.is_same_function(symbol, calls.last().copied().flatten());
                if !matches!(asked, Some(Ok(()))) || is_other {
                    calls.clear();
                }
                chains.push(symbol, &calls, |label| self.as_outermost(object.user, label));
                too_much = dwarf.memory() > MAX_PARSED;
                if too_much {
                    break;
                }
            }
            dwarf.give_back();
            (chains, dwarf.is_torn(), too_much)
        })?;
        // The remaining frames are looked up after the debug information is opened anew.
        if chains.as_ref().is_some_and(|(.., too_much)| *too_much) {
            self.objects.drop_dwarf(state);
        }
        images.check_unchanged()?;
        match chains {
            Some((_, true, _)) => Err(Reason::Changed),
            Some((chains, false, _)) => Ok(Some(chains)),
            None => Ok(None),
        }
    }

    /// Whether the kernel and its debug information mean the same function.
    fn is_same_function(&self, symbol: Option<LabelId>, called: Option<LabelId>) -> bool {
        let name = |label: Option<LabelId>| self.names.labels.get(label?).map(|label| &*label.name);
        name(symbol).zip(name(called)).is_some_and(|(symbol, called)| same_function(symbol, called))
    }

    /// Returns the label of a name in debug information, as that of an inlined function.
    fn called(&self, object: &Object, state: &mut EntryState, name: &[u8]) -> LabelId {
        let key = (name.as_ptr() as usize, name.len());
        if let Some(label) = state.called.get(&key) {
            return *label;
        }
        let label = self.names.labels.intern_for(
            object.user,
            &demangle(name, Detail::default()),
            object.short_name(),
            FrameKind::Inlined,
        );
        state.remember_called(key, label);
        label
    }

    /// Returns the label of the same function when it is not inlined.
    fn as_outermost(&self, user: UserId, label: LabelId) -> LabelId {
        let Some(inlined) = self.names.labels.get(label) else { return label };
        self.names.labels.intern_for(user, &inlined.name, &inlined.object, FrameKind::User)
    }
}

/// Results from debug information for many frames: the labels of each frame, one after the other.
#[derive(Default)]
struct Chains {
    labels: Vec<LabelId>,
    ends: Vec<usize>,
}

impl Chains {
    /// Adds the result for a frame: its symbol, and the functions at its address, innermost first.
    ///
    /// The outermost is the function itself. It keeps the name of its symbol, which is more precise: `f.cold`, `f.constprop.0`.
    fn push(&mut self, symbol: Option<LabelId>, calls: &[Option<LabelId>], as_outermost: impl Fn(LabelId) -> LabelId) {
        if let Some((outermost, inlined)) = calls.split_last()
            && let Some(root) = symbol.or_else(|| outermost.map(as_outermost))
            && (symbol.is_none() || !inlined.is_empty())
        {
            self.labels.push(root);
            self.labels.extend(inlined.iter().rev().flatten());
        }
        self.ends.push(self.labels.len());
    }

    /// Returns the labels of a frame, root first; `None` if there is nothing new.
    fn of(&self, index: usize) -> Option<&[LabelId]> {
        let start = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.labels.get(start..*self.ends.get(index)?).filter(|labels| !labels.is_empty())
    }
}
