//! Detects whether the terminal's background is dark, by querying its colours (OSC 10 and 11).

use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use terminal_colorsaurus::{QueryOptions, ThemeMode, theme_mode};

/// Longest wait for the answer, which may come over a slow line. A later answer would be mistaken for keys. A terminal without
/// colours answers at once, because the query includes the terminal's attributes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Queries the terminal. Returns `None` if it does not answer, or if keys were pressed already: the answer comes behind the keys,
/// and reading it would discard them. Call this before [`run`](super::run) takes the terminal over, and before another program
/// reads from it.
pub fn has_dark_background() -> Option<bool> {
    if !io::stdin().is_terminal() {
        return None;
    }
    // Without raw mode, keys arrive only at the end of the line.
    enable_raw_mode().ok()?;
    let mode = if keys_wait() { None } else { ask() };
    disable_raw_mode().ok()?;
    mode
}

fn keys_wait() -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

fn ask() -> Option<bool> {
    let mut options = QueryOptions::default();
    options.timeout = PATIENCE;
    theme_mode(options).ok().map(|mode| mode == ThemeMode::Dark)
}
