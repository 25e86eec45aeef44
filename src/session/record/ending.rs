//! The end of a recording: signals, the command's end, the last names.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::formats::save::{Pipe, SaveError, remove_unfinished};
use crate::profile::UserId;
use crate::session::sampling::{Sampling, TABLES_WITHIN};
use crate::session::shared::Shared;
use crate::session::terminal::tell;
use crate::session::user::User;

/// Longest wait for the names of [`Ours`] before the file is written. The wait for other names is [`END_WITHIN`]; after a signal, so is the
/// wait for all names.
const NAMES_WITHIN: Duration = Duration::from_secs(20);
/// Least time for names after the end of a command.
pub(super) const NAMES_AT_LEAST: Duration = Duration::from_millis(500);
/// Time after which names are no longer waited for if their files do not answer.
const STUCK: Duration = Duration::from_millis(300);
/// How often the end's conditions are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Waits longer than this are announced on a terminal.
const QUIET: Duration = Duration::from_secs(1);
/// Signals that come closer together count as one: timeout(1) sends each signal to its child and to the child's group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// Handles SIGINT, SIGTERM and SIGHUP, all in the same way. The first signal ends sampling. The second ends the wait for the command and
/// for names. The third ends the program.
pub(super) struct Signals(watch::Receiver<u8>, Arc<watch::Sender<u8>>, Arc<AtomicBool>);

impl Signals {
    const SAMPLING: u8 = 0;
    pub(super) const ENDING: u8 = 1;
    pub(super) const IN_A_HURRY: u8 = 2;

    /// Handles signals from now on, so that they do not end the program by themselves.
    pub(super) fn watch(file: String) -> Result<Signals> {
        let (stage, seen) = watch::channel(Self::SAMPLING);
        let stage = Arc::new(stage);
        let (caught, mut all) = mpsc::unbounded_channel();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut one = signal(kind).context("failed to watch for signals")?;
            let caught = caught.clone();
            tokio::spawn(async move { while one.recv().await.is_some() && caught.send(Instant::now()).is_ok() {} });
        }
        let (sender, came) = (Arc::clone(&stage), Arc::new(AtomicBool::new(false)));
        let coming = Arc::clone(&came);
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            while let Some(at) = all.recv().await {
                if last.is_some_and(|last| at.saturating_duration_since(last) < ONE_SIGNAL) {
                    continue;
                }
                last = Some(at);
                coming.store(true, Ordering::Relaxed);
                if *sender.borrow() >= Self::IN_A_HURRY {
                    remove_unfinished();
                    drop(writeln!(io::stderr(), "flametop: ended before {file} was written"));
                    std::process::exit(130);
                }
                sender.send_modify(|stage| *stage += 1);
            }
        });
        Ok(Signals(seen, stage, came))
    }

    /// Waits until signals have reached this stage.
    pub(super) async fn reach(&mut self, stage: u8) {
        // The sender lives as long as the receiver.
        let _ = self.0.wait_for(|now| *now >= stage).await;
    }

    /// Tells whether a second signal came: then nothing is waited for any more.
    fn is_hurried(&self) -> bool {
        *self.0.borrow() >= Self::IN_A_HURRY
    }

    /// Tells whether a signal came.
    pub(super) fn came(&self) -> bool {
        self.2.load(Ordering::Relaxed)
    }

    /// Records that sampling has ended, by a signal or for another reason.
    pub(super) fn ending(&self) {
        self.1.send_modify(|stage| *stage = (*stage).max(Self::ENDING));
    }
}

/// Ends sampling and the command, at the latest at `by`.
pub(super) async fn end(sampling: &Sampling, by: Instant, name: Option<&str>, signals: &mut Signals) {
    sampling.end(Instant::now() + TABLES_WITHIN);
    let over = async {
        while !sampling.is_over() && Instant::now() < sampling.ends_by(by) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let hurry = async {
        signals.reach(Signals::IN_A_HURRY).await;
        sampling.hurry();
        std::future::pending().await
    };
    let patience = async {
        tokio::time::sleep(QUIET).await;
        if let Some(name) = name {
            tell(&format!("waiting for {name} to end; Ctrl-C kills it"));
        }
        std::future::pending().await
    };
    tokio::select! {
        () = over => {}
        () = hurry => {}
        () = patience => {}
    }
    tell("");
}

/// Users whose names are waited for longest: root, the user who ran flametop, and the user as whom the command runs. Other users could
/// delay the end by making names without end.
pub(super) struct Ours(Vec<UserId>);

impl Ours {
    pub(super) fn find(user_of_command: Option<&User>) -> Ours {
        let by_sudo = std::env::var("SUDO_UID").ok().and_then(|id| id.parse().ok());
        let own = rustix::process::getuid().as_raw();
        Ours([Some(0), Some(own), by_sudo, user_of_command.map(User::id)].into_iter().flatten().map(UserId).collect())
    }
}

/// Waits for the last names: until `by`, or longer for [`Ours`] if no signal came. Names whose files do not answer are not waited for.
pub(super) async fn settle(shared: &Shared, by: Instant, ours: &Ours, signals: &mut Signals) {
    let longest = Instant::now() + NAMES_WITHIN;
    let signal_came = signals.came();
    let stuck = async {
        let mut worked = Instant::now();
        while worked.elapsed() < STUCK {
            tokio::time::sleep(LOOK_EVERY).await;
            let is_late = Instant::now() >= by;
            if is_late && (signal_came || Instant::now() >= longest) {
                return;
            }
            if shared.symbolizer.works_for(|user| !is_late || ours.0.contains(&user)) {
                worked = Instant::now();
            } else if is_late {
                return;
            }
        }
    };
    let patience = async {
        tokio::time::sleep(QUIET).await;
        tell("looking up names; Ctrl-C skips the remaining names");
        std::future::pending().await
    };
    tokio::select! {
        _ = shared.symbolizer.settled(NAMES_WITHIN) => {}
        () = stuck => {}
        () = signals.reach(Signals::IN_A_HURRY) => {}
        () = patience => {}
    }
    tell("");
}

/// Waits for a reader of the pipe that the stacks go to: until `by` if a signal has ended the recording, else until a signal comes. Returns
/// `None` if the stacks do not go to a pipe.
pub(super) async fn reader(path: &Path, by: Instant, signals: &mut Signals) -> Result<Option<Pipe>, SaveError> {
    loop {
        let opened = Pipe::open(path);
        if !matches!(opened, Err(SaveError::NoReader { .. })) || signals.is_hurried() || signals.came() && Instant::now() >= by {
            tell("");
            return opened;
        }
        tell(&format!("waiting for a reader of {}; Ctrl-C gives up", path.display()));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub(super) async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
