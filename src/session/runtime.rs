//! The threads on which a session's tasks run.

use crate::privileges;
use crate::symbolize;
use anyhow::{Context, Result};
use std::ops::Deref;
use std::time::Duration;

/// Number of blocking threads for work other than names.
const BLOCKING_THREADS: usize = 4;

/// Starts a session's runtime. It has one worker thread, for tasks that wait and compute nothing, and blocking threads for work.
pub(super) fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS + symbolize::BLOCKING_THREADS)
        .thread_name("flametop-task")
        .on_thread_start(privileges::drop_unneeded)
        .enable_all()
        .build()
        .context("failed to start threads")?;
    Ok(Runtime { handle: runtime.handle().clone(), runtime: Some(runtime) })
}

/// A runtime that waits for no thread when it ends: a thread may hang in a file system that does not answer.
pub(super) struct Runtime {
    handle: tokio::runtime::Handle,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Runtime {
    /// How long [`Runtime`]'s threads may take to end.
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
        privileges::give_way_no_more();
        self.runtime.take().into_iter().for_each(|runtime| runtime.shutdown_timeout(Runtime::PATIENCE));
    }
}
