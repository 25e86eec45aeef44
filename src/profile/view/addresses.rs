//! The weights of one function's addresses.
//!
//! A builder that counts addresses counts nothing else. The addresses that a sample counts for depend only on its stack: they are the
//! function's frames in it. Stacks with common callers share this set. The set of a stack is its caller's set, plus its own innermost frame
//! if that frame belongs to the function.
//!
//! ```text
//!  0 (empty)           {}
//!  └─ 1 main           {}
//!     └─ 2 f+8         {f+8}
//!        └─ 3 f+24     {f+8, f+24}      a recursion
//!           └─ 4 g     {f+8, f+24}
//! ```

use crate::profile::Profile;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{Folding, FrameId, FrameKind, Label, LabelId, Names, StackId};

/// Most addresses of a function whose lines are looked up to find its hottest line.
pub const ADDRESSES_OF_A_LINE: usize = 16;

/// An address, and its weight in the samples that are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameWeight {
    /// The address.
    pub frame: FrameId,
    /// Weight of the samples that ended there, in the function itself.
    pub own: u64,
    /// Weight of the samples that have it in their stack. Each sample counts once, even if the address recurs.
    pub total: u64,
}

impl FrameWeight {
    /// Returns the key by which addresses are ordered. The total weight comes first: where a function mostly calls, its hottest line is the
    /// call. Where it does not, own and total weight are nearly the same.
    pub fn rank(&self) -> (u64, u64) {
        (self.total, self.own)
    }
}

/// The addresses of one function. For a function without a name, these are all addresses of its object that have no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The function.
    pub label: LabelId,
    /// Weight of the samples that ended in it.
    pub own: u64,
    /// Weight of the samples that have it in their stack.
    pub total: u64,
    /// Its addresses, the heaviest first: see [`FrameWeight::rank`].
    pub frames: Vec<FrameWeight>,
    /// Whether they are in different files of different users: see [`Names::users_differ`].
    pub users_differ: bool,
}

/// A set of frames, stored as another set and one more frame. Set 0 means "not known yet"; set 1 is empty.
type SetId = u32;
const EMPTY: SetId = 1;

/// The counts of one function's addresses.
pub(super) struct Counter {
    pub(super) label: LabelId,
    /// Set if the function has no name and its label is only an address. Then all unnamed addresses of this object are counted, since it is
    /// not known which of them belong to the same function.
    pub(super) unnamed_of: Option<Arc<str>>,
    /// The set of frames of each stack.
    pub(super) set_of: Vec<SetId>,
    pub(super) sets: Vec<(SetId, FrameId)>,
    pub(super) set_with: FxHashMap<(SetId, FrameId), SetId>,
    pub(super) weights: FxHashMap<FrameId, (u64, u64)>,
    pub(super) own: u64,
    pub(super) total: u64,
    /// Provisional labels that were compared with the function's label. They may yet be replaced, perhaps by that label.
    pub(super) provisional: FxHashSet<LabelId>,
}

impl Counter {
    pub(super) fn new(names: &Names, label: LabelId) -> Counter {
        let unnamed = names.labels.get(label).filter(|label| is_unnamed(label, &label.object));
        Counter {
            label,
            unnamed_of: unnamed.map(|label| Arc::clone(&label.object)),
            set_of: Vec::new(),
            sets: vec![(0, FrameId(0)); 2],
            set_with: FxHashMap::default(),
            weights: FxHashMap::default(),
            own: 0,
            total: 0,
            provisional: FxHashSet::default(),
        }
    }

    /// Returns an empty counter for the same function.
    pub(super) fn anew(&self, names: &Names) -> Counter {
        Counter::new(names, self.label)
    }

    pub(super) fn is_ours(&self, names: &Names, label: LabelId) -> bool {
        let unnamed = |object: &Arc<str>| names.labels.get(label).is_some_and(|label| is_unnamed(label, object));
        label == self.label || self.unnamed_of.as_ref().is_some_and(unnamed)
    }

    pub(super) fn a_label_was_renamed(&self, names: &Names) -> bool {
        names.labels.current(self.label) != self.label
            || self.provisional.iter().any(|label| names.labels.current(*label) != *label)
    }

    pub(super) fn contains(&self, mut set: SetId, frame: FrameId) -> bool {
        while let Some((rest, first)) = self.sets.get(set as usize).filter(|_| set > EMPTY) {
            if *first == frame {
                return true;
            }
            set = *rest;
        }
        false
    }

    /// Returns the set of the function's frames in a stack.
    pub(super) fn set(
        &mut self,
        profile: &Profile,
        names: &Names,
        asked: &mut Vec<u64>,
        folding: Folding,
        stack: StackId,
    ) -> SetId {
        if self.set_of.len() < profile.stacks.len() {
            self.set_of.resize(profile.stacks.len(), 0);
        }
        let mut unknown = Vec::new();
        let mut at = stack;
        let mut set = loop {
            match self.set_of.get(at.0 as usize) {
                Some(0) => {}
                known => break known.copied().unwrap_or(EMPTY),
            }
            let Some((caller, frame)) = profile.stacks.split(at) else { break EMPTY };
            unknown.push((at, frame));
            at = caller;
        };
        for (at, frame) in unknown.into_iter().rev() {
            note(asked, names.frames.index(frame));
            let mut is_ours = false;
            names.labels_shown(frame, folding, |label| {
                is_ours |= self.is_ours(names, label);
                if names.labels.get(label).is_some_and(|label| label.provisional) {
                    self.provisional.insert(label);
                }
            });
            if is_ours && !self.contains(set, frame) {
                let next = SetId::try_from(self.sets.len()).unwrap_or(EMPTY);
                let wanted = *self.set_with.entry((set, frame)).or_insert(next);
                if wanted == next {
                    self.sets.push((set, frame));
                }
                set = wanted;
            }
            self.set_of[at.0 as usize] = set;
        }
        set
    }

    pub(super) fn count(
        &mut self,
        profile: &Profile,
        names: &Names,
        asked: &mut Vec<u64>,
        folding: Folding,
        (stack, weight): (StackId, i64),
    ) {
        let mut set = self.set(profile, names, asked, folding, stack);
        if set == EMPTY {
            return;
        }
        let add = |slot: &mut u64| *slot = slot.saturating_add_signed(weight);
        add(&mut self.total);
        while let Some((rest, frame)) = self.sets.get(set as usize).filter(|_| set > EMPTY) {
            add(&mut self.weights.entry(*frame).or_default().1);
            set = *rest;
        }
        // Below it, all frames are folded.
        let mut innermost = None;
        let shown = profile.stacks.frames(stack).find(|frame| {
            names.labels_shown(*frame, folding, |label| innermost = Some(label));
            innermost.is_some()
        });
        let Some(leaf) = shown else { return };
        if innermost.is_some_and(|label| self.is_ours(names, label)) {
            add(&mut self.own);
            add(&mut self.weights.entry(leaf).or_default().0);
        }
    }
}

/// Whether a label is `object+0x12`.
fn is_unnamed(label: &Label, object: &str) -> bool {
    let address = label.name.strip_prefix(object).and_then(|rest| rest.strip_prefix("+0x"));
    label.kind == FrameKind::Unknown && *label.object == *object && address.is_some()
}

/// Notes that the view has used the names of a frame, given by its index in the table.
pub(super) fn note(frames: &mut Vec<u64>, index: Option<usize>) {
    let Some(index) = index else { return };
    if frames.len() <= index / 64 {
        frames.resize(index / 64 + 1, 0);
    }
    frames[index / 64] |= 1 << (index % 64);
}
