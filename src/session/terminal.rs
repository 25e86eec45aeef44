//! The terminal, before and after there is a screen.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Returns an error if standard output is no terminal.
pub(super) fn need_a_terminal() -> Result<()> {
    if !io::stdout().is_terminal() {
        bail!("standard output is not a terminal, so there is nowhere to draw; `flametop record -o FILE` writes to a file");
    }
    if std::env::var_os("TERM").is_some_and(|name| name == "dumb") {
        bail!(
            "this terminal cannot position text (TERM=dumb); set TERM to its real type, or write to a file with \
             `flametop record -o FILE`"
        );
    }
    Ok(())
}

/// Replaces the last line on standard error, if that is a terminal.
pub(super) fn tell(line: &str) {
    if io::stderr().is_terminal() {
        drop(io::stderr().write_all(format!("\r\x1b[K{line}").as_bytes()));
    }
}

/// How often a line says what is awaited, and when it does so first.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// A line on the terminal that says what is awaited. It goes when this is dropped.
pub(super) struct Waiting {
    teller: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Waiting {
    /// `words` makes the line; it gets the time since the beginning.
    pub(super) fn begin(words: impl Fn(Duration) -> String + Send + 'static) -> Waiting {
        let (end, ended) = channel();
        let begun = Instant::now();
        let body = move || {
            let mut has_told = false;
            while ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
                tell(&words(begun.elapsed()));
                has_told = true;
            }
            if has_told {
                tell("");
            }
        };
        let thread = std::thread::Builder::new().name("flametop-wait".to_owned()).spawn(body);
        Waiting { teller: thread.ok().map(|thread| (end, thread)) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.teller.take() {
            drop(end);
            drop(thread.join());
        }
    }
}
