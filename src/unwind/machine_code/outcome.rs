//! Results of following functions, and the budget for it.

use super::state::Facts;
use crate::unwind::control::Control;
use crate::unwind::table::block::Block;

/// Reason of a failed proof: the function gives back more of the stack than its return address. Its callers have to know that.
pub(crate) const POPS: &str = "takes arguments off the stack";
/// The bit for the stack pointer, among the registers that a function changes.
pub(crate) const STACK: u16 = 1 << 15;

/// A range of code and the facts about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `None` where ways contradict each other.
    pub(crate) facts: Option<Facts>,
}

/// The result of following a function.
#[derive(Default, Debug)]
pub(crate) struct Outcome {
    /// Why the function is not proved.
    pub(crate) failed: Option<&'static str>,
    pub(crate) rows: Vec<Row>,
    /// Whether a return, or a jump in place of a return, was found with the stack pointer as at the entry.
    pub(crate) proof: bool,
    /// Whether it ends with a jump to an unknown address, with the stack pointer as at the entry.
    pub(crate) jumps: bool,
    /// Whether it makes a call with a stack pointer that psABI, 3.2.2, forbids for calls. Compilers do so where they know the
    /// callee.
    pub(crate) is_crooked: bool,
    /// Whether at least one of its ways may return.
    pub(crate) returns: bool,
    pub(crate) changed: u16,
    pub(crate) calls: Vec<u64>,
    /// Calls, and the functions that they call, if no code behind the call could be returned to. Calls of code elsewhere are
    /// included.
    pub(crate) silent: Vec<(u64, u64)>,
    /// Other functions that it ends by jumping to.
    pub(crate) tails: Vec<u64>,
    pub(crate) references: Vec<u64>,
    /// Places that were assumed to be functions and are none: code jumps there with a frame.
    pub(crate) inside: Vec<u64>,
}

/// All results of an analysis.
#[derive(Default)]
pub(crate) struct Findings {
    /// The code with known facts, in the order of addresses.
    pub(crate) blocks: Vec<Block>,
    /// The rows of that code, with all facts.
    #[cfg(test)]
    pub(crate) rows: Vec<(u64, Row)>,
    /// Functions that were followed, and why they are not proved.
    #[cfg(test)]
    pub(crate) functions: Vec<(u64, Option<&'static str>)>,
}

/// A limit to the work: how many instructions may still be visited, and whether the caller wants to continue.
pub(crate) struct Budget<'c> {
    left: u64,
    control: &'c dyn Control,
    is_stopped: bool,
}

/// The caller is asked each time after this many instructions: every few milliseconds.
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

    /// Takes `count` instructions at once.
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
