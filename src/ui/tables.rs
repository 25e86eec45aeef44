//! The two tables: functions with their callers and callees, and processes with their threads.
//!
//! Both keep the row under the cursor by what it is, not by its number, so that it stays under the cursor while rows move.

mod functions;
mod processes;

pub(super) use functions::{Functions, FunctionsRow};
pub(super) use processes::{ProcessRow, ProcessSort, Processes, processes_of};

use super::keys::Action;

/// Moves a cursor in a list and scrolls after it.
pub(super) fn move_cursor(action: Action, at: &mut usize, scroll: &mut usize, rows: usize, height: usize) {
    let last = rows.saturating_sub(1);
    *at = match action {
        Action::Up => at.saturating_sub(1),
        Action::Down => *at + 1,
        Action::PageUp => at.saturating_sub(height.max(1)),
        Action::PageDown => *at + height.max(1),
        Action::Top => 0,
        Action::Bottom => last,
        _ => *at,
    }
    .min(last);
    if *at < *scroll {
        *scroll = *at;
    } else if height > 0 && *at >= *scroll + height {
        *scroll = *at + 1 - height;
    }
}
