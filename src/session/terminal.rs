//! Checks that there is a terminal to draw on.

use std::io::IsTerminal;

use anyhow::{Result, bail};

/// Returns an error if standard output is no terminal.
pub(super) fn need_a_terminal() -> Result<()> {
    if !std::io::stdout().is_terminal() {
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
