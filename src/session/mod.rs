//! One run of the program: builds the rooms, connects them, and ends in order.
//!
//! ```text
//! collecting thread:  kernel ─► Collector ─► Profile          (every 100 ms)
//!                                   └──────► Symbolizer       (new frames)
//! engine thread:      Request ─► Engine(Profile) ─► Snapshot  (when asked, and four times a second)
//! main thread:        keys, Snapshot, Status ─► App ─► screen
//! ```

mod about;
#[cfg(feature = "live")]
mod child;
mod clock;
#[cfg(feature = "live")]
mod compare_walks;
mod config;
#[cfg(feature = "live")]
mod containers;
mod convert;
#[cfg(feature = "live")]
mod cost;
#[cfg(feature = "live")]
mod doctor;
#[cfg(feature = "live")]
mod event_commands;
#[cfg(feature = "live")]
pub(crate) mod event_targets;
mod fetch;
mod lines;
#[cfg(feature = "live")]
mod live;
mod looks;
#[cfg(feature = "live")]
mod notes;
mod opened;
#[cfg(feature = "live")]
mod options;
mod print_names;
#[cfg(feature = "live")]
mod progress;
#[cfg(feature = "live")]
mod record;
#[cfg(feature = "live")]
mod recording;
mod runtime;
#[cfg(feature = "live")]
mod sampling;
mod save_samples;
pub(crate) mod screen;
#[cfg(feature = "live")]
mod send;
mod shared;
mod stack_copies;
#[cfg(feature = "live")]
mod status;
mod terminal;
mod unwind_check;
#[cfg(feature = "live")]
mod user;
mod view;

use crate::formats::Format;

use anyhow::Result;

pub use crate::session::screen::answer_requests;

use crate::cli::{Background, Cli, Colours, Command, Looks, PaletteName};
use crate::formats::save::{DateTime, default_name};
use crate::privileges::{self, Duties};

/// Returns the mistake in a configuration file's text, if there is one. For the fuzzer.
#[doc(hidden)]
pub fn mistake_in_configuration(text: &str) -> Option<String> {
    config::understood(&"config.toml", text).err().map(|error| error.to_string())
}

/// Returns the lines of a command's output, as its pane shows them. For the fuzzer.
#[cfg(feature = "live")]
#[doc(hidden)]
pub fn lines_of_output(bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    child::read_lines(bytes, |lines| {
        all.extend(lines);
        true
    });
    all
}

/// Does what the command line says, and returns the exit status. If a recorded command ends before flametop ends it, its own status is
/// returned.
///
/// # Errors
///
/// Each error is a sentence: what failed, on what, and what to do about it.
pub fn run(cli: Cli) -> Result<u8> {
    match cli.command {
        #[cfg(feature = "live")]
        None => live::run(cli.live)?,
        #[cfg(not(feature = "live"))]
        None => anyhow::bail!("this flametop was built without sampling; `flametop view FILE` opens a file"),
        #[cfg(feature = "live")]
        Some(Command::Record(options)) => return record::run(options),
        #[cfg(feature = "live")]
        Some(Command::Export(options)) => return record::export::run(&options),
        #[cfg(feature = "live")]
        Some(Command::Dump(options)) => record::dump::run(&options)?,
        Some(Command::View(options)) => {
            give_up_all_but(Duties::Views);
            view::run(&options)?;
        }
        Some(Command::Convert(options)) => {
            give_up_all_but(Duties::Views);
            convert::run(&options)?;
        }
        #[cfg(feature = "live")]
        Some(Command::Doctor) => doctor::run()?,
        Some(Command::UnwindCheck(options)) => {
            give_up_all_but(Duties::Reads);
            unwind_check::run(&options)?;
        }
        Some(Command::Names(options)) => {
            give_up_all_but(Duties::Reads);
            print_names::run(&options)?;
        }
        #[cfg(feature = "live")]
        Some(Command::Hold(options)) => child::hold(&options)?,
        #[cfg(feature = "live")]
        Some(Command::Send(options)) => send::run(&options)?,
    }
    Ok(0)
}

/// Gives up the privileges that these duties do not need, before there are other threads.
fn give_up_all_but(duties: Duties) {
    privileges::keep(duties);
    privileges::close();
}
