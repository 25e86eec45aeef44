//! Names: the objects, frames and labels that all rooms share, and the limit of their memory.

pub(crate) mod begin;
pub(crate) mod budget;
pub(crate) mod folding;
pub(crate) mod frame;
pub(crate) mod labels;
pub(crate) mod language;
pub(crate) mod list;
pub(crate) mod objects;
pub(crate) mod reason;
pub(crate) mod table;
pub(crate) mod text;
