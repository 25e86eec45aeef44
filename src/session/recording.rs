//! Writes a recording while samples are taken.
//!
//! ```text
//! collecting thread: kernel ─► Profile          this thread, once a second: Profile ─► Recorder ─► one write
//! ```

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::sync::watch;

use crate::formats::recording::Recorder;
use crate::formats::save::{Growing, Overwrite, SaveError};
use crate::formats::{About, Sink};
use crate::locks;
use crate::session::shared::Shared;

use super::about::about_of;
use super::status::StatusMaker;

/// A crash loses at most the samples of this time.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Writes between two looks at the machine: the names of cgroups, command lines, notes.
const LOOK_EVERY: u32 = 5;

/// A recording that is being written.
pub(super) struct Recording {
    thread: JoinHandle<Writing>,
    stop: Sender<()>,
    failed: watch::Receiver<bool>,
}

struct Writing {
    path: PathBuf,
    overwrite: Overwrite,
    /// The file. It begins with the first sample, so that a run without samples replaces nothing.
    file: Option<Growing>,
    recorder: Recorder,
    maker: StatusMaker,
    watched: String,
    shared: Shared,
    failure: Option<SaveError>,
}

/// What was written.
pub(super) struct Written {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// Samples in it.
    pub(super) samples: u64,
    /// Samples that were dropped before they were written.
    pub(super) missed: u64,
}

impl Recording {
    /// Begins to write into the file of this name. `watched` says which processes are sampled; it is empty for all.
    pub(super) fn start(
        path: &Path,
        overwrite: Overwrite,
        maker: StatusMaker,
        watched: String,
        shared: &Shared,
    ) -> Result<Recording> {
        let (stop, stopped) = channel::<()>();
        let (fails, failed) = watch::channel(false);
        let (path, recorder, shared) = (path.to_owned(), Recorder::new(), shared.clone());
        let mut writing = Writing { path, overwrite, file: None, recorder, maker, watched, shared, failure: None };
        let body = move || {
            for turn in 0u32.. {
                writing.write(turn.is_multiple_of(LOOK_EVERY));
                if writing.failure.is_some() {
                    fails.send_replace(true);
                    break;
                }
                if stopped.recv_timeout(WRITE_EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            writing
        };
        let thread = std::thread::Builder::new().name("flametop-record".to_owned()).spawn(body);
        Ok(Recording { thread: thread.context("failed to start a thread")?, stop, failed })
    }

    /// Waits until writing has failed.
    pub(super) async fn failed(&self) {
        if self.failed.clone().wait_for(|failed| *failed).await.is_err() {
            std::future::pending().await
        }
    }

    /// Writes the last samples and names, and ends the file. Without samples there is no file.
    pub(super) fn finish(self) -> Result<Written> {
        drop(self.stop);
        let mut writing =
            self.thread.join().map_err(|_| anyhow!("the thread that writes the recording failed; please report this"))?;
        if writing.failure.is_none() {
            writing.write(true);
        }
        let Writing { file, mut recorder, failure, .. } = writing;
        let (samples, missed) = (recorder.samples(), recorder.missed());
        if let Some(failure) = failure {
            return Err(anyhow!(failure).context("the recording is incomplete"));
        }
        let Some(mut file) = file else { return Ok(Written { bytes: 0, samples, missed }) };
        recorder.end()?;
        file.write(&recorder.bytes())?;
        let bytes = file.bytes();
        file.finish()?;
        Ok(Written { bytes, samples, missed })
    }
}

impl Writing {
    /// Writes all that has come since the last time. If `looks`, looks at the machine as well.
    fn write(&mut self, looks: bool) {
        loop {
            let profile = locks::read(&self.shared.profile);
            let names = self.shared.names_of(&profile);
            if !self.recorder.take(&profile, &names) {
                break;
            }
        }
        if looks {
            self.maker.look_around();
            let (status, _) = self.maker.make(false);
            self.recorder.tell(&About { watched: self.watched.clone(), ..about_of(&status) }, &self.shared.processes);
        }
        if self.recorder.samples() > 0 {
            self.failure = self.write_bytes().err();
        }
    }

    fn write_bytes(&mut self) -> Result<(), SaveError> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(Growing::begin(&self.path, self.overwrite)?),
        };
        file.write(&self.recorder.bytes())
    }
}
