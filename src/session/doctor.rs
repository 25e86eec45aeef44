//! `flametop doctor`: checks what works on this machine, and tells how to fix the rest.

use crate::session::looks::theme;
use std::io::{self, IsTerminal, Write};

use anyhow::{Result, bail};

use crate::cli::{Background, Colours, Looks};
use crate::collector::features::{self, Support};
use crate::symbolize::{self, Reason};
use crate::ui::Depth;

/// The state of a checked thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Good,
    Limited,
    Missing,
    /// It is missing, and nothing needs it.
    None,
}

impl State {
    fn mark(self) -> &'static str {
        match self {
            State::Good => "ok",
            State::Limited => "limited",
            State::Missing => "MISSING",
            State::None => "none",
        }
    }

    /// Returns the sequence that gives a terminal its colour.
    fn colour(self) -> &'static str {
        match self {
            State::Good => "\x1b[32m",
            State::Limited => "\x1b[33m",
            State::Missing => "\x1b[1;31m",
            State::None => "\x1b[2m",
        }
    }
}

/// One check and its result.
struct Check {
    state: State,
    name: String,
    /// The result of the check.
    found: String,
    /// The way to fix it; empty if there is nothing to fix.
    remedy: String,
}

impl Check {
    fn new(state: State, name: &str, found: String, remedy: String) -> Check {
        Check { state, name: name.to_owned(), found, remedy }
    }

    fn print(&self, out: &mut impl Write, is_coloured: bool) -> io::Result<()> {
        let Check { state, name, found, remedy } = self;
        writeln!(out, "{}  {name:<22} {found}", painted(&format!("{:<7}", state.mark()), *state, is_coloured))?;
        if !remedy.is_empty() {
            writeln!(out, "{:9}{:<22} {remedy}", "", "")?;
        }
        Ok(())
    }
}

/// Returns words in the colour of a state.
fn painted(words: &str, state: State, is_coloured: bool) -> String {
    if is_coloured { format!("{}{words}\x1b[0m", state.colour()) } else { words.to_owned() }
}

/// Runs all checks and prints them, after one sentence that sums them up.
///
/// # Errors
///
/// If the live view lacks something that it needs.
pub(super) fn run() -> Result<()> {
    let uname = rustix::system::uname();
    let mut checks: Vec<Check> = features::probe()
        .into_iter()
        .map(|feature| {
            let state = match feature.state {
                Support::Good => State::Good,
                Support::Limited => State::Limited,
                Support::Missing => State::Missing,
            };
            Check::new(state, feature.name, feature.found, feature.remedy)
        })
        .collect();
    checks.push(kernel_debug_information(&uname.release().to_string_lossy()));
    let (terminal, is_coloured) = terminal();
    checks.push(terminal);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "flametop {} on {} {}, {} CPUs",
        env!("CARGO_PKG_VERSION"),
        uname.sysname().to_string_lossy(),
        uname.machine().to_string_lossy(),
        std::thread::available_parallelism().map_or(1, usize::from)
    )?;
    let (state, words) = summary(&checks);
    writeln!(out, "{}\n", painted(&words, state, is_coloured))?;
    for check in &checks {
        check.print(&mut out, is_coloured)?;
    }
    out.flush()?;
    let missing = count(&checks, State::Missing);
    if missing > 0 {
        bail!("the live view cannot start; requirements missing: {missing} (see above)");
    }
    Ok(())
}

fn count(checks: &[Check], state: State) -> usize {
    checks.iter().filter(|check| check.state == state).count()
}

/// Sums up all checks in a sentence.
fn summary(checks: &[Check]) -> (State, String) {
    let missing: Vec<&str> =
        checks.iter().filter(|check| check.state == State::Missing).map(|check| check.name.as_str()).collect();
    if !missing.is_empty() {
        return (State::Missing, format!("flametop cannot sample this machine yet: see {}", missing.join(", ")));
    }
    let words = match count(checks, State::Limited) {
        0 => "flametop can do everything on this machine".to_owned(),
        1 => "flametop can sample this machine; 1 thing is limited".to_owned(),
        limited => format!("flametop can sample this machine; {limited} things are limited"),
    };
    (State::Good, words)
}

/// Checks for the kernel's debug information. Nothing needs it, so its absence is no fault of the machine.
fn kernel_debug_information(release: &str) -> Check {
    let (state, found, remedy) = match symbolize::kernel_debug_information() {
        Ok(()) => (State::Good, "inlined functions and lines of the kernel are shown".to_owned(), String::new()),
        Err(Reason::NotFound) => (
            State::None,
            "the kernel's functions have names, but no inlined calls and no lines".to_owned(),
            format!("Debian: linux-image-{release}-dbg; Ubuntu: …-dbgsym; Fedora: kernel-debuginfo"),
        ),
        Err(reason) => {
            (State::Limited, format!("no inlined calls and no lines of the kernel: {reason}"), reason.remedy().to_owned())
        }
    };
    Check::new(state, "kernel debug info", found, remedy)
}

/// Checks the terminal. Also returns whether it has colours.
fn terminal() -> (Check, bool) {
    let check = |state, found| Check::new(state, "terminal", found, String::new());
    if !io::stdout().is_terminal() {
        return (check(State::Limited, "standard output is not a terminal; the live view needs one".to_owned()), false);
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
    let found = format!("{size}, {colours} on a {ground} background, {glyphs}, TERM={term}");
    (check(State::Good, found), theme.depth != Depth::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_tells_whether_flametop_works_here() {
        let checks = |states: &[State]| -> Vec<Check> {
            let named = states.iter().zip(["kernel", "BTF", "capabilities"]);
            named.map(|(state, name)| Check::new(*state, name, String::new(), String::new())).collect()
        };
        use State::{Good, Limited, Missing};
        assert_eq!(summary(&checks(&[Good, State::None])).1, "flametop can do everything on this machine");
        assert_eq!(summary(&checks(&[Good, Limited])).1, "flametop can sample this machine; 1 thing is limited");
        let (state, words) = summary(&checks(&[Good, Missing, Missing]));
        assert_eq!((state, &*words), (Missing, "flametop cannot sample this machine yet: see BTF, capabilities"));
        let mut out = Vec::new();
        Check::new(Limited, "kprobe", "refused".to_owned(), "ask".to_owned()).print(&mut out, false).unwrap();
        let expected = "limited  kprobe                 refused\n                                ask\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
