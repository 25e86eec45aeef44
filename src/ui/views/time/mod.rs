//! View 4: the map of time.

mod draw;
mod map;

pub(in crate::ui) use draw::{describe, draw};
pub(in crate::ui) use map::{TimeMap, begin_of};
