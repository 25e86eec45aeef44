//! One run of the program: builds the rooms, connects them, and ends in order.
//!
//! ```text
//! collecting thread:  kernel ─► Collector ─► Profile          (every 100 ms)
//!                                   └──────► Symbolizer       (new frames)
//! engine thread:      Request ─► Engine(Profile) ─► Snapshot  (when asked, and four times a second)
//! main thread:        keys, Snapshot, Status ─► App ─► screen
//! ```

mod child;
mod config;
mod cost;
mod doctor;
mod events;
mod link;
mod live;
mod names;
mod notes;
mod record;
mod sampling;
mod unwind_check;
mod user;
mod view;

use std::ffi::OsString;
use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context, Result};

pub use link::answer_requests;

use crate::cli::{Background, Cli, Colours, Command, Looks, PaletteName, Sampling};
use crate::formats::save::{DateTime, Format, default_name};
use crate::privileges::{self, Duties};
use crate::ui::{ColourMode, Depth, Palette, Theme};

/// Why this is no configuration file, if it is none. For the fuzzer.
#[doc(hidden)]
pub fn mistake_in_configuration(text: &str) -> Option<String> {
    config::understood(&"config.toml", text).err().map(|error| error.to_string())
}

/// The lines of a command's output, as its pane shows them. For the fuzzer.
#[doc(hidden)]
pub fn lines_of_output(bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    child::read_lines(bytes, |lines| {
        all.extend(lines);
        true
    });
    all
}

/// Does what the command line says.
///
/// # Errors
///
/// One sentence each: what failed, on what, and what to do about it.
pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        None => live::run(cli.live),
        Some(Command::Record(options)) => record::run(options),
        Some(Command::View(options)) => {
            give_up_all_but(Duties::Views);
            view::run(&options)
        }
        Some(Command::Doctor) => doctor::run(),
        Some(Command::UnwindCheck(options)) => {
            give_up_all_but(Duties::Reads);
            unwind_check::run(&options)
        }
        Some(Command::Names(options)) => {
            give_up_all_but(Duties::Reads);
            names::run(&options)
        }
        Some(Command::Hold(options)) => child::hold(&options),
    }
}

/// Gives up the privileges that these duties do not need, before there are other threads.
fn give_up_all_but(duties: Duties) {
    privileges::keep(duties);
    privileges::close();
}

/// The tasks of a run that samples, after its start.
fn duties(sampling: &Sampling, program: &[OsString], attaches: bool) -> Duties {
    Duties::Samples { command: !program.is_empty(), fetches: sampling.debuginfod, attaches }
}

/// Threads for tasks that wait, and blocking threads for work. One of the former is enough: nothing computes there.
fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(6)
        .thread_name("flametop-task")
        .on_thread_start(privileges::drop_unneeded)
        .enable_all()
        .build()
        .context("failed to start threads")?;
    Ok(Runtime { handle: runtime.handle().clone(), runtime: Some(runtime) })
}

/// A runtime whose end waits for no thread: one may hang in a file system that does not answer.
struct Runtime {
    handle: tokio::runtime::Handle,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Runtime {
    /// How long threads have to end by themselves.
    const PATIENCE: Duration = Duration::from_millis(200);
}

impl Deref for Runtime {
    type Target = tokio::runtime::Handle;

    fn deref(&self) -> &Self::Target {
        &self.handle
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(|runtime| runtime.shutdown_timeout(Runtime::PATIENCE));
    }
}

/// What the options, the configuration file and the environment say about the terminal, in this order.
fn theme(looks: &Looks, settings: &config::Settings) -> Theme {
    let environment = |name: &str| std::env::var(name).ok();
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_ascii_lowercase();
    let utf8 = locale.contains("utf-8") || locale.contains("utf8");
    let color = if looks.color == Colours::Auto { settings.color.unwrap_or(Colours::Auto) } else { looks.color };
    let depth = match color {
        Colours::Auto => Depth::from_environment(environment),
        Colours::Never => Depth::None,
        Colours::Sixteen => Depth::Sixteen,
        Colours::Indexed => Depth::Indexed,
        Colours::True => Depth::True,
    };
    let ground = if looks.theme == Background::Auto { settings.theme.unwrap_or(Background::Auto) } else { looks.theme };
    let dark = match ground {
        Background::Dark => true,
        Background::Light => false,
        // `15;0`: foreground and background, as rxvt, Konsole and others set it; 7 and 15 are light grounds.
        Background::Auto => !set("COLORFGBG").is_some_and(|value| matches!(value.rsplit(';').next(), Some("7" | "15"))),
    };
    let palette = match looks.palette.or(settings.palette) {
        Some(PaletteName::ColourBlind) => Palette::ColourBlind,
        Some(PaletteName::Standard) | None => Palette::Standard,
    };
    Theme { depth, dark, ascii: looks.ascii || settings.ascii || !utf8, mode: ColourMode::Kind, palette }
}

/// A name for a file to save to, without its ending: it has the time in it, in UTC.
fn default_file() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let name = default_name(Format::Svg, DateTime::from_unix(now.tv_sec, 0));
    name.trim_end_matches(".svg").to_owned()
}

/// `CLOCK_MONOTONIC` now, the clock of all samples.
fn now() -> crate::profile::Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    crate::profile::Timestamp(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
