//! The processes that have objects: source files are searched in their roots.

use std::collections::VecDeque;

use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;
use rustc_hash::FxBuildHasher;

use super::text::Host;
use crate::profile::{NameRequest, Names, ObjectId, Renewed};

/// Processes remembered for each object. Most objects are run by few programs, and the first process usually has the file.
const MAX_HOSTS: usize = 4;

/// Processes of each object, the last remembered first.
#[derive(Default)]
pub(crate) struct Hosts(DashMap<ObjectId, VecDeque<Host>, FxBuildHasher>);

impl Hosts {
    /// Returns the processes of the objects that the new tables also have.
    pub(crate) fn successor(&self, renewed: &Renewed) -> Hosts {
        let of_object =
            |entry: RefMulti<'_, ObjectId, VecDeque<Host>>| Some((*renewed.objects.get(entry.key())?, entry.value().clone()));
        Hosts(self.0.iter().filter_map(of_object).collect())
    }

    /// Remembers which processes have which objects.
    pub(crate) fn remember(&self, names: &Names, requests: &[NameRequest]) {
        for request in requests {
            let Some(frame) = names.frames.get(request.frame) else { continue };
            let mut hosts = self.0.entry(frame.object()).or_default();
            if hosts.iter().all(|host| host.tgid != request.tgid) {
                hosts.push_front(Host::of(request));
                hosts.truncate(MAX_HOSTS);
            }
        }
    }

    /// Returns the processes of an object.
    pub(crate) fn of(&self, object: ObjectId) -> Vec<Host> {
        self.0.get(&object).map(|hosts| hosts.iter().cloned().collect()).unwrap_or_default()
    }
}
