//! A function's source and its instructions, and on which row of them each of its addresses is. Plain data: the symbolizer makes
//! it, the screen shows it beside the weights of [`Addresses`](super::Addresses).

use crate::profile::FrameWeight;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::ids::{FrameId, LabelId};

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct SourceLocation {
    /// The file as the compiler wrote it down, with the directory it ran in; safe to print.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
}

/// A function, to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The function.
    pub label: LabelId,
    /// The address by which it was chosen: other functions may have the same name.
    pub by: FrameId,
    /// Its source; or why there is none, in a sentence.
    pub source: Result<Rows, String>,
    /// Its instructions; or why there are none, in a sentence.
    pub code: Result<Rows, String>,
    /// The addresses that it was made for: others, which come later, are on no row yet.
    pub known: FxHashSet<FrameId>,
}

impl Listing {
    /// Whether an address is on a row of the source or of the instructions.
    pub fn shows(&self, frame: FrameId) -> bool {
        [&self.source, &self.code].into_iter().flatten().any(|rows| rows.row_of.contains_key(&frame))
    }
}

/// Lines of a file, or instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The file of the source, or the object.
    pub file: Arc<str>,
    /// What the reader should know about it; empty for nothing.
    pub note: String,
    /// In order.
    pub rows: Vec<Row>,
    /// Index of the row that an address belongs to; of the function's other addresses there is none.
    pub row_of: FxHashMap<FrameId, usize>,
}

/// One line or instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Line number from 1; or address in the object's file, as `objdump` tells it.
    pub place: u64,
    /// Safe to print, tabs expanded.
    pub text: Box<str>,
}

/// What rows weigh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowWeights {
    /// Own and total weight of each row. A total is the sum of those of the row's addresses: a sample that has several of them,
    /// in a recursion, is in it several times.
    pub rows: Vec<(u64, u64)>,
    /// The same of addresses that are on no row.
    pub elsewhere: (u64, u64),
    /// The same of all rows.
    pub all: (u64, u64),
}

impl RowWeights {
    /// Puts weights on rows.
    pub fn of(rows: &Rows, frames: &[FrameWeight]) -> RowWeights {
        let mut weights = RowWeights { rows: vec![(0, 0); rows.rows.len()], ..RowWeights::default() };
        let add = |slot: &mut (u64, u64), frame: &FrameWeight| *slot = (slot.0 + frame.own, slot.1 + frame.total);
        for frame in frames {
            match rows.row_of.get(&frame.frame).and_then(|row| weights.rows.get_mut(*row)) {
                Some(row) => {
                    add(row, frame);
                    add(&mut weights.all, frame);
                }
                None => add(&mut weights.elsewhere, frame),
            }
        }
        weights
    }

    /// The row with the most own weight; where none has any, that with the most total weight.
    pub fn hottest(&self) -> Option<usize> {
        let heaviest = self.rows.iter().enumerate().max_by_key(|(at, weight)| (**weight, std::cmp::Reverse(*at)));
        heaviest.filter(|(_, weight)| **weight != (0, 0)).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_weight_is_that_of_its_addresses() {
        let row = |place| Row { place, text: "".into() };
        let row_of = [(FrameId(1), 0), (FrameId(2), 2), (FrameId(3), 2)].into_iter().collect();
        let rows = Rows { rows: vec![row(7), row(8), row(9)], row_of, ..Rows::default() };
        let weight = |frame, own, total| FrameWeight { frame: FrameId(frame), own, total };
        let weights = RowWeights::of(&rows, &[weight(1, 5, 9), weight(2, 4, 4), weight(3, 3, 3), weight(4, 1, 2)]);
        assert_eq!(weights.rows, [(5, 9), (0, 0), (7, 7)]);
        assert_eq!((weights.all, weights.elsewhere, weights.hottest()), ((12, 16), (1, 2), Some(2)));
        assert_eq!(RowWeights::of(&rows, &[]).hottest(), None);
        let only_callers = RowWeights::of(&rows, &[weight(1, 0, 9), weight(2, 0, 10)]);
        assert_eq!(only_callers.hottest(), Some(2));
    }
}
