//! What this machine offers, and how to mend what it lacks.

use crate::session::looks::theme;
use std::io::{self, IsTerminal, Write};

use anyhow::{Result, bail};

use crate::cli::{Background, Colours, Looks};
use crate::collector::features::{self, Support};
use crate::symbolize::{self, Reason};
use crate::ui::Depth;

/// Tries everything and prints it; an error if something is missing without which nothing works.
pub(super) fn run() -> Result<()> {
    let mut out = io::stdout().lock();
    let uname = rustix::system::uname();
    writeln!(
        out,
        "flametop {} on {} {}, {} CPUs",
        env!("CARGO_PKG_VERSION"),
        uname.sysname().to_string_lossy(),
        uname.machine().to_string_lossy(),
        std::thread::available_parallelism().map_or(1, usize::from)
    )?;
    let mut missing = 0;
    for feature in features::probe() {
        let mark = match feature.state {
            Support::Good => "ok     ",
            Support::Limited => "limited",
            Support::Missing => {
                missing += 1;
                "MISSING"
            }
        };
        writeln!(out, "{mark}  {:<22} {}", feature.name, feature.found)?;
        if !feature.remedy.is_empty() {
            writeln!(out, "{:9}{:<22} {}", "", "", feature.remedy)?;
        }
    }
    kernel_debug_information(&mut out, &uname.release().to_string_lossy())?;
    terminal(&mut out)?;
    out.flush()?;
    if missing > 0 {
        bail!("{missing} things are missing without which there is no live view; see above");
    }
    Ok(())
}

/// Nothing needs it, so that there is none is no fault of the machine.
fn kernel_debug_information(out: &mut impl Write, release: &str) -> Result<()> {
    const NAME: &str = "kernel debug info";
    match symbolize::kernel_debug_information() {
        Ok(()) => writeln!(out, "ok       {NAME:<22} inlined functions and lines of the kernel are shown")?,
        Err(Reason::NotFound) => {
            writeln!(out, "none     {NAME:<22} the kernel's functions have names, but no inlined calls and no lines")?;
            writeln!(out, "{:9}{:<22} Debian: linux-image-{release}-dbg; Ubuntu: …-dbgsym; Fedora: kernel-debuginfo", "", "")?;
        }
        Err(reason) => {
            writeln!(out, "limited  {NAME:<22} no inlined calls and no lines of the kernel: {reason}")?;
            writeln!(out, "{:9}{:<22} {}", "", "", reason.remedy())?;
        }
    }
    Ok(())
}

fn terminal(out: &mut impl Write) -> Result<()> {
    if !io::stdout().is_terminal() {
        writeln!(out, "limited  {:<22} standard output is not one; the live view needs it", "terminal")?;
        return Ok(());
    }
    let looks = Looks { ascii: false, theme: Background::Auto, color: Colours::Auto, palette: None, icicle: false, config: None };
    let theme = theme(&looks, &super::config::Settings::default());
    let colours = match theme.depth {
        Depth::None => "no colours",
        Depth::Sixteen => "16 colours",
        Depth::Indexed => "256 colours",
        Depth::True => "true colour",
    };
    let ground = if theme.dark { "dark" } else { "light" };
    let glyphs = if theme.ascii { "ASCII only: the locale is not UTF-8" } else { "UTF-8" };
    let size = rustix::termios::tcgetwinsize(io::stdout())
        .map_or_else(|_| "size unknown".to_owned(), |size| format!("{}×{}", size.ws_col, size.ws_row));
    let term = std::env::var("TERM").unwrap_or_else(|_| "not set".to_owned());
    writeln!(out, "ok       {:<22} {size}, {colours} on a {ground} background, {glyphs}, TERM={term}", "terminal")?;
    Ok(())
}
