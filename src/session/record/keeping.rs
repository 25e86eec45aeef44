//! The flight recorder: keeps the last minutes in memory, and writes them when asked.
//!
//! ```text
//! collecting thread: kernel ─► Profile, which forgets what is older than the window
//! this thread: SIGUSR1, the condition, the end ─► Profile ─► Recorder ─► a new file, with its name once it is whole
//! ```
//!
//! Its memory is the store, which `--memory` limits. So it can run for weeks.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::When;
use crate::formats::recording::Recorder;
use crate::formats::save::{Overwrite, SaveError, check, save};
use crate::formats::{About, Format, FormatError};
use crate::locks;
use crate::profile::{Query, TimeRange, Timestamp};
use crate::session::about::about_of;
use crate::session::clock::file_name;
use crate::session::recording::Written;
use crate::session::save_samples::save_samples;
use crate::session::shared::Shared;
use crate::session::status::StatusMaker;
use crate::ui::{format_bytes, format_grouped};

use super::when::Watch;
use crate::session::terminal::tell;

/// How often the condition is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for names before a file is written.
const NAMES_WITHIN: Duration = Duration::from_secs(2);
/// Most files of one name within a second.
const MOST_OF_ONE_NAME: u32 = 1_000;

/// What the thread is asked to do.
enum Order {
    Write,
    End,
}

/// Samples that are kept until they are asked for.
pub(super) struct Keeping {
    thread: JoinHandle<Keeper>,
    orders: Sender<Order>,
}

/// Where the files go, and what they say about the run.
pub(super) struct Plan {
    /// The directory.
    pub(super) directory: PathBuf,
    /// What is recorded, for the names of the files.
    pub(super) name: Option<String>,
    /// The same, as the header of a view says it; empty for the whole machine.
    pub(super) watched: String,
    /// The time that is kept.
    pub(super) keep: Duration,
    /// The condition on which a file is written.
    pub(super) when: Option<When>,
}

impl Plan {
    /// Fails if no file can be written into the directory.
    pub(super) fn check(&self) -> Result<()> {
        if !self.directory.is_dir() {
            bail!("`{}` is not a directory; `--keep` writes its files into a directory that exists", self.directory.display());
        }
        match check(&self.path(1), Overwrite::No, None) {
            Ok(_) | Err(SaveError::Exists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the name of a file that is written now; `number` tells files of one second apart.
    fn path(&self, number: u32) -> PathBuf {
        let name = file_name(Format::Recording, self.name.as_deref());
        match number {
            1 => self.directory.join(name),
            _ => self.directory.join(name.replace(".flametop", &format!("-{number}.flametop"))),
        }
    }
}

struct Keeper {
    plan: Plan,
    maker: StatusMaker,
    shared: Shared,
    watch: Option<Watch>,
    handle: Handle,
}

impl Keeping {
    /// Begins to wait for SIGUSR1 and for the condition. Call it within a runtime.
    pub(super) fn start(plan: Plan, maker: StatusMaker, shared: &Shared) -> Result<Keeping> {
        let (orders, ordered) = channel();
        let mut asked = signal(SignalKind::user_defined1()).context("failed to watch for signals")?;
        let asking = orders.clone();
        tokio::spawn(async move { while asked.recv().await.is_some() && asking.send(Order::Write).is_ok() {} });
        let watch = plan.when.map(|when| Watch::new(when, plan.keep));
        say(&plan.announced());
        let keeper = Keeper { plan, maker, shared: shared.clone(), watch, handle: Handle::current() };
        let body = move || keeper.run(&ordered);
        let thread = std::thread::Builder::new().name("flametop-keep".to_owned()).spawn(body);
        Ok(Keeping { thread: thread.context("failed to start a thread")?, orders })
    }

    /// Writes what is kept at the end of the run.
    pub(super) fn finish(self) -> Result<(PathBuf, Written)> {
        let _ = self.orders.send(Order::End);
        let mut keeper =
            self.thread.join().map_err(|_| anyhow!("the thread that writes recordings failed; please report this"))?;
        match keeper.save() {
            // The caller knows why there are none.
            Err(SaveError::Content(FormatError::NothingToSave)) => {
                Ok((keeper.plan.directory, Written { bytes: 0, samples: 0, missed: 0 }))
            }
            saved => Ok(saved?),
        }
    }
}

impl Plan {
    fn announced(&self) -> String {
        let when = self.when.map_or_else(String::new, |when| format!(", and when {when}"));
        format!(
            "keeping the last {}; `kill -USR1 {}` writes them to {}, the end does as well{when}",
            seconds(self.keep),
            std::process::id(),
            self.directory.display()
        )
    }
}

impl Keeper {
    fn run(mut self, ordered: &Receiver<Order>) -> Keeper {
        loop {
            let order = match self.watch {
                Some(_) => ordered.recv_timeout(LOOK_EVERY),
                None => ordered.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Write) => self.write("SIGUSR1"),
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return self,
                Err(RecvTimeoutError::Timeout) => {
                    let is_met = |watch: &mut Watch| watch.look(&locks::read(&self.shared.profile));
                    if let Some(when) = self.plan.when.filter(|_| self.watch.as_mut().is_some_and(is_met)) {
                        self.write(&when.to_string());
                    }
                }
            }
        }
    }

    /// Writes a file and says so. What fails is said too, and the run goes on: the disk may have room for the next file.
    fn write(&mut self, why: &str) {
        // The names of the last moments are on their way.
        let _ = self.handle.block_on(self.shared.symbolizer.settled(NAMES_WITHIN));
        match self.save() {
            Ok((path, Written { bytes, samples, .. })) => say(&format!(
                "{} samples written to {} ({}): {why}",
                format_grouped(samples),
                path.display(),
                format_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
            )),
            Err(error) => say(&format!("nothing was written ({why}): {error}")),
        }
    }

    /// Writes all that is kept into a new file.
    fn save(&mut self) -> Result<(PathBuf, Written), SaveError> {
        self.maker.look_around();
        let (status, _) = self.maker.make(false);
        let about = About { watched: self.plan.watched.clone(), ..about_of(&status) };
        let mut number = 1;
        loop {
            let path = self.plan.path(number);
            match self.save_as(&path, &about) {
                Err(SaveError::Exists { .. }) if number < MOST_OF_ONE_NAME => number += 1,
                saved => return saved.map(|written| (path, written)),
            }
        }
    }

    fn save_as(&self, path: &Path, about: &About) -> Result<Written, SaveError> {
        // The store lets samples go in chunks, so it has older ones as well.
        let last = locks::read(&self.shared.profile).samples.last_time().unwrap_or_default();
        let keep = u64::try_from(self.plan.keep.as_nanos()).unwrap_or(u64::MAX);
        let range = TimeRange::Between(Timestamp(last.0.saturating_sub(keep)), Timestamp(u64::MAX));
        let query = Query { range, ..Query::default() };
        let mut samples = 0;
        let saved = save(path, Overwrite::No, |out| {
            samples = save_samples(Box::new(Recorder::new()), &self.shared, &query, about, out)?;
            Ok(())
        })?;
        Ok(Written { bytes: saved.bytes, samples, missed: 0 })
    }
}

/// Says a line on standard error, above the progress.
fn say(line: &str) {
    tell("");
    drop(writeln!(io::stderr(), "flametop: {line}"));
}

/// Writes a time as people do: `90 s`, `10 min`, `2 h`.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        hours if hours >= 7200 && hours.is_multiple_of(3600) => format!("{} h", hours / 3600),
        minutes if minutes >= 120 && minutes.is_multiple_of(60) => format!("{} min", minutes / 60),
        seconds => format!("{seconds} s"),
    }
}
