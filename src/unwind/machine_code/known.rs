//! Facts about functions while code is analysed: where they begin, and what they do to their callers.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

/// Why a place is taken for the begin of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Evidence {
    Part,
    Gap,
    Taken,
    Symbol,
    Called,
}

/// Facts about functions in code that is analysed separately.
#[derive(Default)]
pub(crate) struct Others {
    /// Ranges of that code and of the code analysed now, sorted.
    pub(crate) code: Vec<Range<u64>>,
    pub(crate) endless: FxHashSet<u64>,
    pub(crate) changes: FxHashMap<u64, u16>,
}

impl Others {
    pub(crate) fn contains(&self, address: u64) -> bool {
        let next = self.code.partition_point(|range| range.start <= address);
        next.checked_sub(1).and_then(|at| self.code.get(at)).is_some_and(|range| address < range.end)
    }
}

/// Facts about other functions.
pub(crate) struct Known<'o> {
    pub(crate) others: &'o Others,
    pub(crate) starts: BTreeMap<u64, Evidence>,
    /// Functions that never return.
    pub(crate) endless: FxHashSet<u64>,
    /// Registers that a function ought to preserve and does not: bits as [`MachineState::changed`](super::state::MachineState::changed) has them.
    pub(crate) changes: FxHashMap<u64, u16>,
}

impl<'o> Known<'o> {
    pub(crate) fn new(others: &'o Others) -> Known<'o> {
        Known { others, starts: BTreeMap::new(), endless: FxHashSet::default(), changes: FxHashMap::default() }
    }

    pub(crate) fn is_endless(&self, function: u64) -> bool {
        self.endless.contains(&function) || self.others.endless.contains(&function)
    }

    /// Returns the registers that a function changes though it ought not to.
    pub(crate) fn changed(&self, function: u64) -> u16 {
        let changed = |changes: &FxHashMap<u64, u16>| changes.get(&function).copied();
        changed(&self.changes).or_else(|| changed(&self.others.changes)).unwrap_or(0)
    }
}
