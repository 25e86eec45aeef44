//! A function's source and its instructions, and the rows on which the function's addresses are. Plain data: the symbolizer makes it, the
//! screen shows it beside the weights of [`Addresses`](super::Addresses).

use crate::profile::FrameWeight;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::ids::{FrameId, LabelId, UserId};

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct SourceLocation {
    /// The file as the compiler wrote it down, with the directory it ran in; safe to print.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
}

/// The source and the instructions of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The function.
    pub label: LabelId,
    /// The address by which the function was selected, because other functions may have the same name.
    pub by: FrameId,
    /// The function's source; or a sentence that says why there is none.
    pub source: Result<Rows, String>,
    /// The function's instructions; or a sentence that says why there are none.
    pub code: Result<Rows, String>,
    /// The user whose program this is, if other users run other programs that have a function of this name.
    pub user: Option<UserId>,
    /// The function's addresses that were known when the listing was made. Addresses that come later are on no row yet.
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
    /// A note for the reader about the rows; may be empty.
    pub note: String,
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// The index of an address's row. Addresses of the function that are on no row are not in the map.
    pub row_of: FxHashMap<FrameId, usize>,
}

/// One line or instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Line number, from 1 on; or address in the object's file, as `objdump` shows it.
    pub place: u64,
    /// Safe to print, tabs expanded.
    pub text: Box<str>,
}

/// The weights of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowWeights {
    /// Own and total weight of each row. A row's total is the sum of the totals of its addresses. In a recursion, a sample can have several
    /// of these addresses and then counts several times.
    pub rows: Vec<(u64, u64)>,
    /// Own and total weight of the addresses that are on no row.
    pub elsewhere: (u64, u64),
    /// Own and total weight of all rows together.
    pub all: (u64, u64),
}

impl RowWeights {
    /// Adds up the weights of addresses by row.
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

    /// Returns the index of the row with the most total weight. Among rows with equal total weight, returns the one with the most own weight,
    /// and of several such rows the first. Returns `None` if no row has weight.
    pub fn hottest(&self) -> Option<usize> {
        let heaviest = self.rows.iter().enumerate().max_by_key(|(at, (own, total))| (*total, *own, std::cmp::Reverse(*at)));
        heaviest.filter(|(_, weight)| **weight != (0, 0)).map(|(at, _)| at)
    }
}

/// Returns the line with the most weight, as [`RowWeights::hottest`] chooses a row, from the weights of addresses and their lines.
pub fn hottest_line<'a>(weights: impl Iterator<Item = (FrameWeight, &'a SourceLocation)>) -> Option<&'a SourceLocation> {
    let mut lines: Vec<(u64, u64, &SourceLocation)> = Vec::new();
    for (FrameWeight { own, total, .. }, place) in weights {
        match lines.iter_mut().find(|(.., line)| *line == place) {
            Some((all, of_line, _)) => (*all, *of_line) = (*all + total, *of_line + own),
            None => lines.push((total, own, place)),
        }
    }
    let heaviest = lines.into_iter().max_by_key(|(total, own, place)| (*total, *own, std::cmp::Reverse(place.line)));
    heaviest.map(|(.., place)| place)
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
        assert_eq!((weights.all, weights.elsewhere, weights.hottest()), ((12, 16), (1, 2), Some(0)));
        assert_eq!(RowWeights::of(&rows, &[]).hottest(), None);
        let only_callers = RowWeights::of(&rows, &[weight(1, 0, 9), weight(2, 0, 10)]);
        assert_eq!(only_callers.hottest(), Some(2));
    }
}
