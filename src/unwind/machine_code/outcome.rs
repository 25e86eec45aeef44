//! What comes of following functions, and how long they may be followed.

use super::state::Facts;
use crate::unwind::control::Control;
use crate::unwind::table::block::Block;

/// Why a function is not proved that gives back more of the stack than its return address, which its callers have to know.
pub(crate) const POPS: &str = "takes arguments off the stack";
/// Among registers that a function changes: that one.
pub(crate) const STACK: u16 = 1 << 15;

/// Code and what is known in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `None` where ways contradict each other.
    pub(crate) facts: Option<Facts>,
}

/// What came of a function.
#[derive(Default, Debug)]
pub(crate) struct Outcome {
    /// Why nothing is proved.
    pub(crate) failed: Option<&'static str>,
    pub(crate) rows: Vec<Row>,
    /// Whether a return, or a jump in its place, was found where the stack pointer is as at the entry.
    pub(crate) proof: bool,
    /// Whether it goes on by a jump to anywhere, with the stack pointer as at the entry.
    pub(crate) jumps: bool,
    /// Whether it calls with a stack pointer that no function may call with: psABI, 3.2.2. Compilers do, where they know the callee.
    pub(crate) is_crooked: bool,
    /// Whether it may come back, of itself.
    pub(crate) returns: bool,
    pub(crate) changed: u16,
    pub(crate) calls: Vec<u64>,
    /// Of those, and of calls of code elsewhere: calls behind which there is nothing that they could come back to.
    pub(crate) silent: Vec<(u64, u64)>,
    /// Other functions that it ends by jumping to.
    pub(crate) tails: Vec<u64>,
    pub(crate) references: Vec<u64>,
    /// Places that were taken for functions, and are none: jumped to with a frame.
    pub(crate) inside: Vec<u64>,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Findings {
    /// The code of which something is known, in the order of addresses.
    pub(crate) blocks: Vec<Block>,
    /// The same with all that is known.
    #[cfg(test)]
    pub(crate) rows: Vec<(u64, Row)>,
    /// Functions that were looked at, and why they are not proved.
    #[cfg(test)]
    pub(crate) functions: Vec<(u64, Option<&'static str>)>,
}

/// How many instructions may still be looked at, and whether the caller wants it.
pub(crate) struct Budget<'c> {
    left: u64,
    control: &'c dyn Control,
    is_stopped: bool,
}

/// The caller is asked each time that so many instructions were looked at: every few milliseconds.
const ASKED_EVERY: u64 = 1 << 12;

impl<'c> Budget<'c> {
    pub(crate) fn new(visits: u64, control: &'c dyn Control) -> Budget<'c> {
        Budget { left: visits, control, is_stopped: false }
    }

    /// Takes one instruction; `false` if there is none left.
    pub(crate) fn take(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        if left % ASKED_EVERY == 0 && !self.control.keep_going() {
            (self.is_stopped, self.left) = (true, 0);
        }
        !self.is_stopped
    }

    /// Takes so many instructions at once.
    pub(crate) fn take_many(&mut self, count: u64) -> bool {
        let asked = self.left / ASKED_EVERY;
        self.left = self.left.saturating_sub(count);
        if self.left / ASKED_EVERY != asked && !self.control.keep_going() {
            (self.is_stopped, self.left) = (true, 0);
        }
        self.left > 0
    }

    pub(crate) fn limit(&mut self, visits: u64) {
        self.left = self.left.min(visits);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}
