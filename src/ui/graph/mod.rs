//! Call trees as boxes, for the flame graph and for callers and callees of a function.

pub(in crate::ui) mod boxes;
pub(in crate::ui) mod layout;
