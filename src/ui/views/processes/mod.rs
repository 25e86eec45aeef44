//! View 3: processes and threads, as top shows them.

mod draw;
mod rows;

pub(in crate::ui) use draw::draw;
pub(in crate::ui) use rows::{ProcessSort, Processes, processes_of};
