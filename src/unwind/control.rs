//! Conversions that can be stopped, and that hand out what they have so far.

use std::ops::Range;

use super::table::rows::Table;

/// Lets the caller of a conversion stop and steer it while it runs.
///
/// Analysis of machine code may take seconds. The methods are called from the thread that converts, every few milliseconds of
/// work, so they should return at once.
pub trait Control {
    /// Returns whether to continue. After the first `false` the conversion ends and publishes nothing more.
    fn keep_going(&self) -> bool;

    /// Appends the ELF addresses of samples since the last call. Code around them is analysed first. Only the order depends on
    /// them: the last table is the same without.
    fn take_hints(&self, hints: &mut Vec<u64>);

    /// Says whether a hint named the code that is analysed next. Nobody waits for other code.
    fn goes_on_with(&self, is_hinted: bool) {
        let _ = is_hinted;
    }
}

/// A caller that waits for the whole table.
#[derive(Clone, Copy, Debug)]
pub struct Unhurried;

impl Control for Unhurried {
    fn keep_going(&self) -> bool {
        true
    }

    fn take_hints(&self, _: &mut Vec<u64>) {}
}

/// A table that can be used, and what is still missing in it.
#[derive(Clone, Copy, Debug)]
pub struct Step<'t> {
    /// The table. Its rules are as good as those of the last one: code that was not analysed yet is a gap.
    pub table: &'t Table,
    /// Code without unwind information that is still to be analysed, as ELF addresses. Empty in the last step.
    pub unknown: &'t [Range<u64>],
}

impl Step<'_> {
    /// Returns the bytes of code that are still to be analysed.
    pub fn left(&self) -> u64 {
        self.unknown.iter().map(|range| range.end - range.start).sum()
    }
}

/// How a conversion in steps ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The table that was published last is the whole table, even if its [`Step::unknown`] was not empty: that code added nothing.
    Whole,
    /// [`Control::keep_going`] said no. The table that was published last may be used.
    Stopped,
}
