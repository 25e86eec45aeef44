//! Facts that a file tells besides samples: the machine, the run, and what could not be read.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profile::{CgroupId, UserId};

/// Facts about a run and its machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// The machine's name.
    pub host: String,
    /// The kernel's release and the machine's architecture: `6.18.0 x86_64`.
    pub system: String,
    /// The version of flametop that recorded.
    pub version: String,
    /// The kernel's id of this boot: times of one boot can be compared.
    pub boot: String,
    /// What was watched: `3 processes`; empty for everything.
    pub watched: String,
    /// The clock: `cpu-clock 99 Hz`.
    pub source: String,
    /// Whether the clock ticked.
    pub clock: bool,
    /// Samples a second and CPU.
    pub frequency: u32,
    /// Number of sampled CPUs.
    pub cpus: usize,
    /// Nanoseconds from the clock of samples to the local time of day.
    pub wall: Option<i64>,
    /// Nanoseconds from the clock of samples to the time since 1970.
    pub utc: Option<i64>,
    /// How the command or the watched processes ended: in few words, and as a sentence.
    pub ended: Option<(String, String)>,
    /// Whether that was a failure.
    pub failed: bool,
    /// flametop's CPU time over its last seconds, in per cent of one CPU.
    pub own_cpu: f64,
    /// flametop's resident memory, in bytes.
    pub own_memory: usize,
    /// CPU time that programs lost to sources of events in the last second, in per cent of one CPU.
    pub probes_cpu: f64,
    /// Samples of flametop itself that were left out for the clock.
    pub own_left_out: u64,
    /// Paths of cgroups.
    pub cgroups: Arc<FxHashMap<CgroupId, Arc<str>>>,
    /// Names of the containers that cgroups belong to.
    pub containers: Arc<FxHashMap<CgroupId, Arc<str>>>,
    /// Names of users.
    pub users: Arc<FxHashMap<UserId, Arc<str>>>,
    /// Objects without names.
    pub problems: Vec<Problem>,
    /// Status of unwind tables, and objects without one.
    pub notes: Vec<String>,
    /// Processes that could not be read, as lines.
    pub unread: Vec<String>,
}

/// An object without names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Its path, or `JIT code of PROGRAM`.
    pub path: String,
    /// Why.
    pub reason: String,
    /// Number of its frames without a name; 0 if only lines are missing.
    pub unnamed: u64,
    /// How to get the names; empty if that is impossible.
    pub remedy: String,
}

impl About {
    /// Returns the facts by name, for a file. Tables and lists are not among them.
    pub(in crate::formats) fn facts(&self) -> Vec<(&'static str, String)> {
        let (short, words) = self.ended.clone().unwrap_or_default();
        vec![
            ("host", self.host.clone()),
            ("system", self.system.clone()),
            ("version", self.version.clone()),
            ("boot", self.boot.clone()),
            ("watched", self.watched.clone()),
            ("source", self.source.clone()),
            ("clock", u8::from(self.clock).to_string()),
            ("frequency", self.frequency.to_string()),
            ("cpus", self.cpus.to_string()),
            ("wall", self.wall.map_or_else(String::new, |wall| wall.to_string())),
            ("utc", self.utc.map_or_else(String::new, |utc| utc.to_string())),
            ("ended", short),
            ("ended in words", words),
            ("failed", u8::from(self.failed).to_string()),
            ("own cpu", format!("{:.1}", self.own_cpu)),
            ("own memory", self.own_memory.to_string()),
            ("probes cpu", format!("{:.1}", self.probes_cpu)),
            ("own left out", self.own_left_out.to_string()),
        ]
    }

    /// Takes a fact of a file. Facts that are not known, and values that make no sense, change nothing.
    pub(in crate::formats) fn set(&mut self, name: &str, value: &str) {
        fn read<T: std::str::FromStr>(into: &mut T, value: &str) {
            if let Ok(value) = value.parse() {
                *into = value;
            }
        }
        let text = || crate::profile::sanitize(value).into_owned();
        let mut flag = 0u8;
        match name {
            "host" => self.host = text(),
            "system" => self.system = text(),
            "version" => self.version = text(),
            "boot" => self.boot = text(),
            "watched" => self.watched = text(),
            "source" => self.source = text(),
            "clock" => {
                read(&mut flag, value);
                self.clock = flag != 0;
            }
            "frequency" => read(&mut self.frequency, value),
            "cpus" => read(&mut self.cpus, value),
            "wall" => self.wall = value.parse().ok(),
            "utc" => self.utc = value.parse().ok(),
            "ended" if value.is_empty() => self.ended = None,
            "ended" => self.ended.get_or_insert_default().0 = text(),
            "ended in words" if !value.is_empty() => self.ended.get_or_insert_default().1 = text(),
            "failed" => {
                read(&mut flag, value);
                self.failed = flag != 0;
            }
            "own cpu" => read(&mut self.own_cpu, value),
            "own memory" => read(&mut self.own_memory, value),
            "probes cpu" => read(&mut self.probes_cpu, value),
            "own left out" => read(&mut self.own_left_out, value),
            _ => {}
        }
    }
}
