//! Compares two walks of the same stacks: `--backtrace both`.

use crate::profile::FrameId;
use crate::profile::Tid;
use crate::profile::Timestamp;
use std::collections::HashMap;

/// The moment and the thread of a stack: equal in its two forms.
pub(super) type Moment = (Timestamp, Tid);

/// The kernel part of a stack, in one of its two forms.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct KernelPart {
    /// Root first.
    pub(super) frames: Vec<FrameId>,
    /// Whether the walk by hand found it, and not the kernel's.
    pub(super) is_by_hand: bool,
    /// Whether the root side is missing. On x86_64 the walk by hand may find only the inner side.
    pub(super) is_cut: bool,
}

impl KernelPart {
    /// Whether the kernel's walk and the walk by hand found the same.
    fn agrees_with(&self, by_hand: &KernelPart) -> bool {
        match self.frames.len().checked_sub(by_hand.frames.len()) {
            Some(0) => self.frames == by_hand.frames,
            Some(more) => by_hand.is_cut && self.frames.get(more..) == Some(&by_hand.frames),
            None => false,
        }
    }
}

/// Result of comparing two ways to find the same stack.
#[derive(Default)]
pub(super) struct Comparison {
    equal: u64,
    different: u64,
    /// Forms whose other form has not come yet. Either may come first: only one of them waits for an unwind table.
    waiting: HashMap<Moment, KernelPart>,
}

impl Comparison {
    /// Most forms that wait. If more wait, their events have no other form.
    const MAX_WAITING: usize = 4096;

    /// Adds one form, and compares it with the other form if that has come.
    pub(super) fn add(&mut self, moment: Moment, part: KernelPart) {
        match self.waiting.remove(&moment) {
            Some(other) if other.is_by_hand != part.is_by_hand => {
                let same = if part.is_by_hand { other.agrees_with(&part) } else { part.agrees_with(&other) };
                *if same { &mut self.equal } else { &mut self.different } += 1;
            }
            _ => {
                if self.waiting.len() >= Comparison::MAX_WAITING {
                    self.waiting.clear();
                }
                self.waiting.insert(moment, part);
            }
        }
    }

    /// Forgets the forms that wait: names have new ids.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Describes the result in words.
    pub(super) fn describe(&self) -> Option<String> {
        let any = self.equal + self.different > 0;
        any.then(|| format!("kernel and manual backtraces: {} equal, {} different", self.equal, self.different))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(frames: &[u32], is_by_hand: bool, is_cut: bool) -> KernelPart {
        KernelPart { frames: frames.iter().copied().map(FrameId).collect(), is_by_hand, is_cut }
    }

    #[test]
    fn two_forms_are_compared_whichever_comes_first() {
        let mut comparison = Comparison::default();
        let mut add = |time, part| comparison.add((Timestamp(time), Tid(1)), part);
        add(1, part(&[1, 2, 3], false, false));
        add(1, part(&[1, 2, 3], true, false));
        // The form of the kernel's walk waited for a table.
        add(2, part(&[2, 3], true, true));
        add(3, part(&[1, 2], true, false));
        add(2, part(&[1, 2, 3], false, false));
        add(3, part(&[1, 3], false, false));
        // Only a part that is cut may be shorter.
        add(4, part(&[1, 2, 3], false, false));
        add(4, part(&[2, 3], true, false));
        add(5, part(&[1], false, false));
        assert_eq!(comparison.describe().as_deref(), Some("kernel and manual backtraces: 2 equal, 2 different"));
        assert_eq!(comparison.waiting.len(), 1);
    }
}
