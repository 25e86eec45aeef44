//! The terminal, before and after there is a screen.

use std::io::{self, IsTerminal, Write};

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
