//! Samples of whole cases: programs that wait for their turn, and one collection that sees them all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flametop::collector::{Batch, Collector, CollectorOptions, Walk, Walked};
use flametop::profile::{Frame, FrameId, Names, ObjectId, Processes, Tgid, UserEnd};

use super::common::Running;
use super::programs;

/// Divides no frequency of the programs' work.
pub(crate) const FREQUENCY: u32 = 997;

/// On an emulated processor a walk takes ten to twenty times as long, and should take the same share of time.
const FREQUENCY_IN_GUEST: u32 = 97;

/// A program that is started and waits for a byte.
pub(crate) struct Waiting(Running);

impl Waiting {
    #[track_caller]
    pub(crate) fn start(path: &Path, arguments: &[String]) -> Waiting {
        // If the test is killed, the program soon ends.
        let limited = ["-c", "ulimit -t 120; exec \"$0\" \"$@\""];
        let mut command = Command::new("sh");
        let child = command.args(limited).arg(path).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.unwrap_or_else(|error| panic!("failed to start {}: {error}", path.display()));
        let mut waiting = Waiting(Running { child });
        let output = waiting.0.child.stdout.take().expect("piped above");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        assert!(read.is_ok() && line == "ready\n", "{} said {line:?}, not ready", path.display());
        waiting
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }

    pub(crate) fn go(&mut self) {
        self.0.child.stdin.take().expect("once").write_all(b"g").expect("it reads");
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }
}

/// A sample as it came: ranges are of [`Sampling::frames`], root first.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) time: u64,
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) end: UserEnd,
    /// The sample before, walked in another way.
    pub(crate) compared: bool,
    pub(crate) user: Range<usize>,
    pub(crate) kernel: Range<usize>,
}

/// A collection under way.
pub(crate) struct Sampling {
    collector: Collector,
    pub(crate) names: Arc<Names>,
    processes: Arc<Processes>,
    batch: Batch,
    pub(crate) frames: Vec<FrameId>,
    pub(crate) taken: Vec<Taken>,
    /// The programs whose turn it is.
    pub(crate) running: Vec<u32>,
    /// How many samples each process has.
    counts: BTreeMap<u32, usize>,
    parents: BTreeMap<u32, u32>,
}

impl Sampling {
    /// By tables, which are made for this run alone.
    pub(crate) fn start() -> Sampling {
        Sampling::walking(Walk::Tables)
    }

    pub(crate) fn walking(walk: Walk) -> Sampling {
        let (names, processes) = (Arc::new(Names::default()), Arc::new(Processes::default()));
        let frequency = if programs::in_guest() { FREQUENCY_IN_GUEST } else { FREQUENCY };
        // No limit of time: stacks of 900 frames must be right, and may take more than 100 µs on a busy machine or an emulated
        // processor. The limit is tested in tests/attack/walk.rs.
        let limit_walks = false;
        // perf counts the ticks of this process, too.
        let include_self = true;
        let options = CollectorOptions { frequency, walk, limit_walks, include_self, cache_tables: false, ..Default::default() };
        let collector = Collector::start(options, names.clone(), processes.clone());
        let collector = collector.unwrap_or_else(|error| panic!("these tests need root and BPF: {error}"));
        Sampling {
            collector,
            names,
            processes,
            batch: Batch::default(),
            // A vector that grows is copied, and the rings fill meanwhile.
            frames: Vec::with_capacity(1 << 24),
            taken: Vec::with_capacity(1 << 20),
            running: Vec::new(),
            counts: BTreeMap::new(),
            parents: BTreeMap::new(),
        }
    }

    /// Statistics of the walks.
    pub(crate) fn walked(&self) -> Walked {
        self.collector.walked()
    }

    pub(crate) fn drain(&mut self) {
        self.collector.drain(&mut self.batch).expect("the ring buffer can be read");
        for sample in self.batch.samples.drain(..) {
            let frames = &self.batch.frames[sample.frames.clone()];
            let is_kernel = |id: &FrameId| self.names.frames.get(*id).is_some_and(|frame| frame.object() == ObjectId::KERNEL);
            let from = self.frames.len();
            let user = from..from + frames.iter().take_while(|id| !is_kernel(id)).count();
            self.frames.extend_from_slice(frames);
            let kernel = user.end..self.frames.len();
            let tgid = sample.thread.tgid.0;
            *self.counts.entry(tgid).or_default() += usize::from(!sample.compared);
            if let std::collections::btree_map::Entry::Vacant(parent) = self.parents.entry(tgid)
                && let Some(process) = self.processes.get(&Tgid(tgid))
            {
                parent.insert(process.parent.0);
            }
            self.taken.push(Taken {
                time: sample.time.0,
                tgid,
                tid: sample.thread.tid.0,
                end: sample.user_end,
                compared: sample.compared,
                user,
                kernel,
            });
        }
    }

    /// Drains for some time.
    pub(crate) fn watch(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            self.drain();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// A process and, if wanted, all that descend from it.
    pub(crate) fn family(&self, tgid: u32, children: bool) -> BTreeSet<u32> {
        let mut family = BTreeSet::from([tgid]);
        loop {
            let more: Vec<u32> = self
                .parents
                .iter()
                .filter(|(child, parent)| family.contains(parent) && !family.contains(child))
                .map(|(child, _)| *child)
                .collect();
            if !children || more.is_empty() {
                break;
            }
            family.extend(more);
        }
        family
    }

    pub(crate) fn count(&self, family: &BTreeSet<u32>) -> usize {
        family.iter().filter_map(|tgid| self.counts.get(tgid)).sum()
    }

    /// The samples of some processes in some time, oldest first.
    pub(crate) fn of(&self, family: &BTreeSet<u32>, time: Range<u64>) -> Vec<&Taken> {
        let mut of: Vec<&Taken> =
            self.taken.iter().filter(|taken| family.contains(&taken.tgid) && time.contains(&taken.time)).collect();
        // Samples of a process whose mappings are being read come some milliseconds late.
        of.sort_by_key(|taken| taken.time);
        of
    }

    pub(crate) fn look(&self, range: &Range<usize>) -> Vec<Frame> {
        self.frames[range.clone()].iter().filter_map(|id| self.names.frames.get(*id)).collect()
    }

    pub(crate) fn losses(&self) -> flametop::profile::Losses {
        self.batch.losses
    }
}

/// CLOCK_MONOTONIC in nanoseconds, the clock of samples.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
