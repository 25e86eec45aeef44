//! Converts the status of a run to the facts of a recording, and back.

use std::sync::Arc;

use crate::formats::{self, About};
use crate::ui::{self, Status};

/// Returns the facts for a recording.
pub(super) fn about_of(status: &Status) -> About {
    let system = rustix::system::uname();
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let problem = |problem: &ui::Problem| {
        let ui::Problem { path, reason, unnamed, remedy } = problem.clone();
        formats::Problem { path, reason, unnamed, remedy }
    };
    About {
        host: status.host.clone(),
        system: format!("{} {}", word(system.release()), word(system.machine())),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
        watched: String::new(),
        source: status.source.clone(),
        clock: status.clock,
        frequency: status.frequency,
        cpus: status.cpus,
        wall: status.wall,
        utc: status.utc,
        ended: status.ended.as_ref().map(|ended| (ended.short.clone(), ended.words.clone())),
        failed: status.ended.as_ref().is_some_and(|ended| ended.failed),
        own_cpu: status.own_cpu,
        own_memory: status.own_memory,
        probes_cpu: status.probes_cpu,
        own_left_out: status.own_left_out,
        cgroups: Arc::clone(&status.cgroups),
        containers: Arc::clone(&status.containers),
        users: Arc::clone(&status.users),
        problems: status.problems.iter().map(problem).collect(),
        notes: status.notes.clone(),
        unread: status.unread.clone(),
    }
}

/// Returns the status that a recorded run had at its end. `file` is the name of the recording.
pub(super) fn status_of(about: &About, file: &str, seconds: u64) -> Status {
    let problem = |problem: &formats::Problem| {
        let formats::Problem { path, reason, unnamed, remedy } = problem.clone();
        ui::Problem { path, reason, unnamed, remedy }
    };
    let ended = about.ended.clone().map(|(short, words)| ui::Ended { short, words, failed: about.failed });
    Status {
        host: if about.host.is_empty() { file.to_owned() } else { format!("{file} of {}", about.host) },
        source: about.source.clone(),
        clock: about.clock,
        frequency: about.frequency,
        cpus: about.cpus,
        cgroups: Arc::clone(&about.cgroups),
        containers: Arc::clone(&about.containers),
        users: Arc::clone(&about.users),
        wall: about.wall,
        utc: about.utc,
        elapsed: seconds,
        live: false,
        ended,
        own_cpu: about.own_cpu,
        own_memory: about.own_memory,
        probes_cpu: about.probes_cpu,
        own_left_out: about.own_left_out,
        problems: about.problems.iter().map(problem).collect(),
        notes: about.notes.clone(),
        unread: about.unread.clone(),
        ..Status::default()
    }
}
