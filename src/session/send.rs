//! The process that sends profiles to an engine: `flametop __send`, which `flametop export` starts.

use std::io::{Write, stderr, stdin};

use anyhow::{Result, anyhow};

use super::user::Ids;
use crate::cli::Send;
use crate::fleet::{self, Address, Settings};
use crate::privileges;

/// Sends what comes through standard input. It has no privileges.
pub(super) fn run(options: &Send) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        Ids::NOBODY.become_them()?;
    }
    privileges::close_for_sending();
    let address = Address::parse(&options.to, options.insecure).map_err(|why| anyhow!(why))?;
    let settings = Settings { address, metrics: options.metrics.clone() };
    let tell = |line: &str| drop(writeln!(stderr(), "flametop: {line}"));
    fleet::run(&settings, stdin(), |name| std::env::var(name).ok(), tell).map_err(|why| anyhow!(why))
}
