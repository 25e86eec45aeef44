//! Makes the status of a run: for the screen, and for recordings.

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::collector::{CgroupPaths, Cgroups, features};
use crate::locks;
use crate::profile::{CgroupId, UserId};
use crate::session::clock::to_wall;
use crate::session::shared::Shared;
use crate::ui::{self, Status};

use super::child::Ending;
use super::containers::Containers;
use super::cost::{Cost, CostOfProbes, own_heap, own_memory};
use super::sampling::{Ended, Watcher};
use super::user::all_users;

/// Makes the status of a run, about once a second.
pub(super) struct StatusMaker {
    sampling: Watcher,
    shared: Shared,
    local_offset: Option<i64>,
    first: Status,
    cost: Cost,
    probes: CostOfProbes,
    around: Around,
    /// Seconds of sampling at the end.
    stood: Option<u64>,
}

impl StatusMaker {
    /// `local_offset` is in seconds ahead of UTC.
    pub(super) fn new(sampling: Watcher, shared: &Shared, frequency: u32, local_offset: Option<i64>) -> StatusMaker {
        let told = sampling.told();
        let first = Status {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            source: format!("{} {frequency} Hz", told.clock),
            clock: told.ticks,
            events: told.events.into(),
            frequency,
            cpus: sampling.cpus,
            live: true,
            ..Status::default()
        };
        StatusMaker {
            sampling,
            shared: shared.clone(),
            local_offset,
            first,
            cost: Cost::new(),
            probes: CostOfProbes::default(),
            around: Around::default(),
            stood: None,
        }
    }

    /// Returns the status before anything has been measured. Nothing in it takes time to read, so the first picture has it.
    pub(super) fn first(&self) -> Status {
        self.first.clone()
    }

    /// Reads the names of cgroups and users, and which CPUs are on. May wait for files.
    pub(super) fn look_around(&mut self) {
        self.around.look(&self.shared);
    }

    /// Returns the status, and how sampling ended, if it has. The sizes of the heap take about a millisecond.
    pub(super) fn make(&mut self, with_heap: bool) -> (Status, Option<Ended>) {
        let ended = self.sampling.ended();
        let told = self.sampling.told();
        let own_cpu = self.cost.measure();
        let probes_cpu = self.probes.measure(&told.events);
        let (own_memory, own_mapped) = own_memory();
        let own_heap = if with_heap { own_heap() } else { None };
        let elapsed = self.stood.filter(|_| ended.is_some()).unwrap_or_else(|| self.sampling.since.elapsed().as_secs());
        self.stood = Some(elapsed);
        let status = Status {
            clock: told.ticks,
            events: told.events.into(),
            online: Arc::clone(&self.around.online),
            cgroups: Arc::clone(&self.around.paths),
            containers: Arc::clone(&self.around.containers),
            users: Arc::clone(&self.around.users),
            wall: self.local_offset.and_then(to_wall),
            utc: to_wall(0),
            elapsed,
            live: ended.is_none(),
            ended: ended.clone().map(|ended| match ended {
                Ended::Target(Ending { short, words, status }) => ui::Ended { short, words, failed: status != 0 },
                Ended::Failed(words) => ui::Ended { short: "ended".to_owned(), words, failed: true },
            }),
            own_cpu,
            probes_cpu,
            own_memory,
            own_mapped,
            own_heap,
            own_left_out: told.own_left_out,
            problems: problems(&self.shared),
            notes: told.notes,
            unread: told.unread,
            ..self.first.clone()
        };
        (status, ended)
    }
}

/// Facts for pickers and tables that samples lack: the CPUs that are on, the names of cgroups, containers and users.
#[derive(Default)]
struct Around {
    cgroups: Option<Cgroups>,
    paths: Arc<CgroupPaths>,
    names_of_containers: Option<Containers>,
    containers: Arc<FxHashMap<CgroupId, Arc<str>>>,
    online: Arc<[u16]>,
    users: Arc<FxHashMap<UserId, Arc<str>>>,
    /// Reading many cgroups takes time: at most a fiftieth of all time is spent on it.
    rest_until: Option<Instant>,
}

impl Around {
    /// Reads the facts again.
    fn look(&mut self, shared: &Shared) {
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let began = Instant::now();
        let wanted = locks::read(&shared.profile).threads.cgroups();
        self.paths = self.cgroups.get_or_insert_with(Cgroups::new).paths(&wanted);
        self.containers = self.names_of_containers.get_or_insert_with(Containers::new).names(&self.paths);
        self.online = features::cpus_on().into();
        if self.users.is_empty() {
            self.users = Arc::new(all_users());
        }
        self.rest_until = Some(Instant::now() + began.elapsed() * 50);
    }
}

fn problems(shared: &Shared) -> Vec<ui::Problem> {
    let describe = |problem: crate::symbolize::Problem| ui::Problem {
        path: problem.path.to_string(),
        reason: problem.reason.to_string(),
        unnamed: problem.unnamed,
        remedy: problem.reason.remedy().to_owned(),
    };
    shared.symbolizer.problems().into_iter().take(100).map(describe).collect()
}
