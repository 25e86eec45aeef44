//! View 2: functions by self and total, with callers and callees of the open one.

mod draw;
mod rows;

pub(in crate::ui) use draw::{draw, draw_detail};
pub(in crate::ui) use rows::Functions;
