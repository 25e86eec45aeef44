//! Tables that the rooms of one session share.

#[cfg(feature = "live")]
use crate::collector::RunningKernel;
use crate::locks;
use crate::profile::Capabilities;
use crate::profile::Engine;
use crate::profile::Limits;
use crate::profile::Names;
use crate::profile::Processes;
use crate::profile::Profile;
use crate::symbolize::Symbolizer;
use std::sync::Arc;
use std::sync::RwLock;

/// The tables that all rooms share in one run.
#[derive(Clone)]
pub(super) struct Shared {
    /// The names of a file. A running session renews its names, so only the profile has them: nothing else may keep old tables.
    names_of_file: Option<Arc<Names>>,
    pub(super) processes: Arc<Processes>,
    pub(super) profile: Arc<RwLock<Profile>>,
    pub(super) symbolizer: Symbolizer,
}

impl Shared {
    /// Empty tables within these limits, for samples that are being taken.
    #[cfg(feature = "live")]
    pub(super) fn live(limits: Limits, runtime: &tokio::runtime::Handle) -> Shared {
        let names = Arc::new(Names::bounded(limits.names()));
        let profile = Profile::beside(&names, limits);
        Shared { names_of_file: None, ..Shared::of(names, profile, limits, runtime) }
    }

    /// Empty tables without limits, for a file.
    pub(super) fn of_file(runtime: &tokio::runtime::Handle) -> Shared {
        Shared::of(Arc::default(), Profile::fixed(Capabilities::STACKS), Limits::NONE, runtime)
    }

    fn of(names: Arc<Names>, profile: Profile, limits: Limits, runtime: &tokio::runtime::Handle) -> Shared {
        let profile = Arc::new(RwLock::new(profile));
        let symbolizer = Symbolizer::start(Arc::clone(&names), runtime.clone());
        #[cfg(feature = "live")]
        symbolizer.ask_kernel_by(Box::<RunningKernel>::default());
        symbolizer.limit_tables(limits.tables());
        Shared { names_of_file: Some(names), processes: Arc::default(), profile, symbolizer }
    }

    /// Returns the name tables that are used now.
    pub(super) fn names(&self) -> Arc<Names> {
        let current = || locks::read(&self.profile).names().map(Arc::clone);
        self.names_of_file.clone().or_else(current).unwrap_or_default()
    }

    /// Returns the name tables of a profile's ids. For callers that hold its lock.
    pub(super) fn names_of(&self, profile: &Profile) -> Arc<Names> {
        profile.names().map(Arc::clone).or_else(|| self.names_of_file.clone()).unwrap_or_default()
    }

    /// Makes an engine that answers requests about these tables.
    pub(super) fn engine(&self) -> Engine {
        Engine::new(self.names(), Arc::clone(&self.processes), Arc::clone(&self.profile))
    }
}

#[cfg(all(test, feature = "live"))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::profile::Renewals;
    use crate::session::runtime::runtime;

    #[test]
    fn nothing_keeps_the_first_names_once_others_have_replaced_them() {
        let runtime = runtime().unwrap();
        let shared = Shared::live(Limits::NONE, &runtime);
        let first = Arc::downgrade(&shared.names());
        let renewed = Renewals::at_once(&shared.profile).unwrap();
        shared.symbolizer.use_names(&renewed);
        assert!(Arc::ptr_eq(&shared.names(), &renewed.names));
        let begun = Instant::now();
        while first.upgrade().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60), "somebody keeps them");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
