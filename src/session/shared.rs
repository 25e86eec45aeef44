//! What the rooms of one session share.

use crate::cli;
use crate::collector::RunningKernel;
use crate::profile::Capabilities;
use crate::profile::Engine;
use crate::profile::Limits;
use crate::profile::Names;
use crate::profile::Processes;
use crate::profile::Profile;
use crate::symbolize::DEBUGINFOD_FIND;
use crate::symbolize::Symbolizer;
use crate::symbolize::program_called;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::RwLock;
use std::time::Duration;

/// What the rooms share in one run.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) names: Arc<Names>,
    pub(super) processes: Arc<Processes>,
    pub(super) profile: Arc<RwLock<Profile>>,
    pub(super) symbolizer: Symbolizer,
}

impl Shared {
    /// Empty tables within these limits, for samples that are being taken.
    pub(super) fn live(limits: Limits, runtime: &tokio::runtime::Handle) -> Shared {
        let names = Arc::new(Names::bounded(limits.names()));
        let profile = Profile::beside(&names, limits);
        Shared::of(names, profile, limits, runtime)
    }

    /// Empty tables without limits, for a file.
    pub(super) fn of_file(runtime: &tokio::runtime::Handle) -> Shared {
        Shared::of(Arc::default(), Profile::fixed(Capabilities::STACKS), Limits::NONE, runtime)
    }

    fn of(names: Arc<Names>, profile: Profile, limits: Limits, runtime: &tokio::runtime::Handle) -> Shared {
        let profile = Arc::new(RwLock::new(profile));
        let symbolizer = Symbolizer::start(Arc::clone(&names), runtime.clone());
        symbolizer.ask_kernel_by(Box::<RunningKernel>::default());
        symbolizer.limit_tables(limits.tables());
        Shared { names, processes: Arc::default(), profile, symbolizer }
    }

    /// Who answers what is asked of these tables.
    pub(super) fn engine(&self) -> Engine {
        Engine::new(Arc::clone(&self.names), Arc::clone(&self.processes), Arc::clone(&self.profile))
    }
}

/// The program that fetches debug files, where it can do so.
pub(super) fn debuginfod_find() -> Result<PathBuf> {
    if std::env::var_os("DEBUGINFOD_URLS").is_none_or(|urls| urls.is_empty()) {
        bail!(
            "`--debuginfod` asks the servers in DEBUGINFOD_URLS, and that is not set: distributions say which is theirs (sudo keeps \
             it with --preserve-env=DEBUGINFOD_URLS)"
        );
    }
    program_called(DEBUGINFOD_FIND).with_context(|| {
        format!(
            "`--debuginfod` needs the program {DEBUGINFOD_FIND}, which is not here; install the package debuginfod or elfutils"
        )
    })
}

/// The limits that the options set; without `window`, time has none but the options'.
pub(super) fn limits(options: &cli::Sampling, window: Option<Duration>) -> Limits {
    let window = options.window.or(window).and_then(|window| u64::try_from(window.as_nanos()).ok());
    Limits { window: window.unwrap_or(u64::MAX), memory: options.memory }
}
