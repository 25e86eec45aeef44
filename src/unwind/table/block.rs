//! Rules of a piece of code from other sources than call frame information.

use crate::unwind::Packed;

/// Code and the rules that hold in it, each from its address on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) source: &'static str,
    /// Whether it wins over a description that begins at the same place.
    pub(crate) wins: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rows: Vec<(u64, Packed)>,
}
