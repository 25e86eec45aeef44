//! Names: the objects, frames and labels that all rooms share, and how much memory they may take.

pub(crate) mod budget;
pub(crate) mod folding;
pub(crate) mod frame;
pub(crate) mod labels;
pub(crate) mod objects;
pub(crate) mod table;
pub(crate) mod text;
