//! The part that touches the kernel: takes samples at each tick of the clock, and follows processes and their mappings.
//!
//! ```text
//! clock of each CPU ─► sampler.bpf.c ─► ring buffer ──┐
//!                                                     ├─ by time ─► processes ─► resolve ─► Batch
//! side-band events of each CPU ─► perf rings ─────────┘
//! ```
//!
//! Samples are handed over only when all events before them have been applied. So only samples up to a watermark are handed over, a moment
//! before the rings were read. A process that lived for milliseconds still has its mappings when its samples are resolved.
//!
//! Owes its caller: every sample taken, or a count of it in [`Batch::losses`]. The caller drains about every 100 ms, or more often: the
//! buffers hold a second of samples and some thousand short processes.
#![deny(clippy::indexing_slicing)]

mod batch;
mod bpf_errors;
mod error;
pub mod features;
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod kernel_memory;
mod options;
pub mod probes;
pub(crate) mod processes;
mod requests;
pub(crate) mod sources;
pub(crate) mod sys;
mod tables;
pub(crate) mod wire;

use crate::collector::sys::machine;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::collector::kernel_memory::{KernelNames, RunningKernel};
pub use crate::collector::processes::cgroups::{CgroupPaths, Cgroups};
pub use batch::{Batch, Collected};
pub use error::CollectorError;
pub use options::{CollectorOptions, EVENT_BUDGET, Targets};
pub use sources::walk::Walk;

pub use crate::collector::processes::dumps::DumpCounts;
pub use crate::collector::processes::engines::FoundEngine;
pub use crate::collector::processes::reading::Unread;
pub use crate::collector::processes::scripts::ScriptCounts;
use crate::collector::processes::table::{Happened, ProcessTable};
use crate::collector::sources::clock::{Reading, Sampler, Settings};
use crate::collector::sources::rings::ring_bytes;
use crate::collector::sys::perf_ring::EventRings;
use crate::collector::wire::perf_records::{Event, Parsed, Timed};
pub use crate::collector::wire::records::Walked;
use crate::collector::wire::records::{DUMP_REFUSED, HAS_DUMP, Record};
use crate::object::io_timeout::{self, FailureDomain};
use crate::profile::{EventSource, EventStatus, Names, Processes, Tgid, Timestamp};
pub use crate::runtimes::hotspot::Unfit as UnfitHotSpot;
pub use crate::runtimes::v8::{Unfit as UnfitV8, Version as V8Version};
pub use probes::{Backtrace, EventRequest, EventSpec};
use probes::{Probes, Refused};
use requests::Requests;
use tables::{Cache, Tables};
pub use tables::{ObjectState, ObjectStatus, Summary, TablesStatus};

/// An event is written to its ring some microseconds after the time in it, and a virtual CPU may be stopped in between. Records younger
/// than this when the rings are read wait for the next drain.
const SLACK: u64 = 1_000_000;

/// Most rounds of questions and answers about processes in one drain.
const ANSWER_ROUNDS: usize = 3;

/// Nanoseconds between two checks for CPUs and dead processes.
const TIDY_EVERY: u64 = 1_000_000_000;

/// Nanoseconds between two searches for unwind tables that nothing needs any longer.
const SWEEP_EVERY: u64 = 10_000_000_000;

/// A running collection. When it is dropped, it ends and leaves nothing in the kernel.
pub struct Collector {
    /// Dropped first: it ends its workers before the maps that they write to are closed.
    tables: Option<Tables>,
    probes: Probes,
    sampler: Sampler,
    rings: BTreeMap<u32, EventRings>,
    table: ProcessTable,
    /// Events that were read but are younger than the last watermark, oldest first.
    events: Vec<Timed>,
    /// Buffers for the bytes of a CPU's two rings, reused at each drain: names, and mappings with forks and exits.
    bytes: [Vec<u8>; 2],
    happened: Happened,
    requests: Requests,
    filters: bool,
    malformed: u64,
    tidied_at: u64,
    swept_at: u64,
    slept: u64,
}

impl Collector {
    /// Starts collecting: first the events, then the list of processes, then the clock.
    ///
    /// # Errors
    ///
    /// If something is missing: privileges, BTF, a new enough kernel, a process among the targets.
    pub fn start(options: CollectorOptions, names: Arc<Names>, processes: Arc<Processes>) -> Result<Collector, CollectorError> {
        let cpus = online()?;
        let ring_bytes = ring_bytes(options.frequency, cpus.len());
        Collector::start_with_ring(options, names, processes, ring_bytes)
    }

    /// Returns the bytes held about processes, their mappings, and files with unwind tables.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.tables.as_ref().map_or(0, Tables::memory)
    }

    /// Makes all further names in these tables. The old tables are dropped.
    pub fn use_names(&mut self, names: Arc<Names>) {
        self.table.use_names(names);
    }

    fn start_with_ring(
        options: CollectorOptions,
        names: Arc<Names>,
        processes: Arc<Processes>,
        ring_bytes: u32,
    ) -> Result<Collector, CollectorError> {
        if options.frequency == 0 {
            return Err(CollectorError::NoFrequency);
        }
        features::required()?;
        let cpus = online()?;
        // Each CPU needs a ring of events, a clock and its link; tables need their segments. The other 256 are for maps, programs and other
        // files.
        machine::allow_descriptors(3 * cpus.len() as u64 + tables::descriptors(options.kernel_memory) + 256);
        let (wanted, follow_forks) = match options.targets {
            Targets::All => (None, false),
            Targets::Processes(wanted) => (Some(wanted), false),
            Targets::Families(wanted) => (Some(wanted), true),
        };
        let filter = wanted.is_some();
        let CollectorOptions { frequency, include_idle, include_self, walk, event_budget, kernel_memory, .. } = options;
        let limit_walks = options.limit_walks && !matches!(walk, Walk::Twice | Walk::Compared);
        let sampler = Sampler::load(Settings {
            walk,
            limit_walks,
            frequency,
            include_idle,
            include_self,
            filter,
            follow_forks,
            ring_bytes,
        })?;
        let by_tables = !matches!(walk, Walk::FramePointers | Walk::Nothing);
        let cache = if options.cache_tables && by_tables { Cache::of_user() } else { None };
        let mut collector = Collector {
            tables: if by_tables { Some(sampler.tables(cache, kernel_memory)?) } else { None },
            probes: Probes::new(sampler.share()?, options.backtrace, event_budget, options.least_wait),
            sampler,
            rings: BTreeMap::new(),
            table: ProcessTable::bounded(names, processes, options.memory),
            events: Vec::new(),
            bytes: Default::default(),
            happened: Happened::default(),
            filters: filter,
            malformed: 0,
            requests: Requests::default(),
            tidied_at: machine::now().0,
            swept_at: machine::now().0,
            slept: machine::slept(),
        };
        if walk == Walk::Dumped {
            collector.table.compare_dumps();
        }
        for tgid in wanted.iter().flatten() {
            collector.add_target(*tgid)?;
        }
        for cpu in &cpus {
            let opened = collector.open_ring(*cpu, event_ring_bytes(cpus.len()));
            opened.map_err(|error| CollectorError::event("the events of processes", *cpu, error))?;
        }
        let families = if follow_forks { wanted.clone().unwrap_or_default() } else { Vec::new() };
        collector.find_processes(families, |tgid| wanted.as_ref().is_none_or(|wanted| wanted.contains(&Tgid(tgid))))?;
        if options.clock {
            collector.sampler.attach(&cpus)?;
        }
        probes::prepare();
        for event in &options.events {
            collector.probes.attach(event, &cpus)?;
        }
        Ok(collector)
    }

    /// Opens the events of a CPU. Many unread events wake [`Collector::wait`].
    fn open_ring(&mut self, cpu: u32, bytes: usize) -> io::Result<()> {
        let ring = EventRings::open(cpu, bytes)?;
        ring.wakes().into_iter().try_for_each(|wakes| self.sampler.wake_for(wakes))?;
        self.rings.insert(cpu, ring);
        Ok(())
    }

    /// Reads the list of processes, and makes targets of all descendants of `families`. Finds the interpreters of those processes and of
    /// `is_target`, so that their first samples have functions. The time for this is limited.
    fn find_processes(&mut self, families: Vec<Tgid>, is_target: impl Fn(u32) -> bool) -> Result<(), CollectorError> {
        let found = io_timeout::within(0, FailureDomain::process("all"), io_timeout::PATIENCE, || {
            let found = processes::proc::scan()?;
            let interpreters = processes::interpreter::interpreters_of(&found);
            Ok((found, interpreters))
        });
        let found = found.and_then(|found: io::Result<_>| found);
        let (found, interpreters) = found.map_err(|source| CollectorError::Read { path: "/proc", source })?;
        let mut members: Vec<u32> = families.iter().map(|tgid| tgid.0).collect();
        let mut next = 0;
        while let Some(&parent) = members.get(next) {
            next += 1;
            let children = found.iter().filter(|child| child.parent == parent && child.tgid != parent);
            for child in children {
                self.sampler.add_target(child.tgid)?;
                members.push(child.tgid);
            }
        }
        found.into_iter().for_each(|process| self.table.add_found(process));
        for (tgid, user) in interpreters.into_iter().filter(|(tgid, _)| is_target(*tgid) || members.contains(tgid)) {
            self.table.expect_interpreter(tgid, user);
        }
        self.read_events();
        self.exchange(false, Instant::now() + ProcessTable::patience(false), &mut Batch::default());
        Ok(())
    }

    /// Returns the name of the clock: `cycles`, or `cpu-clock` on machines without counters.
    pub fn event_name(&self) -> &'static str {
        self.sampler.clock().name()
    }

    /// Takes stacks at one more source of events.
    ///
    /// # Errors
    ///
    /// If there is no event of this name, if the kernel refuses it, or if it costs the programs much and the request does not agree to that.
    /// Nothing is left behind then.
    pub fn attach_event(&mut self, event: &EventRequest) -> Result<EventSource, CollectorError> {
        if matches!(event.spec, EventSpec::Clock) {
            self.sampler.attach(&online()?)?;
            return Ok(EventSource::CLOCK);
        }
        self.probes.attach(event, &online()?)
    }

    /// Finds the events that this machine refuses. Nothing stays attached.
    pub fn refused_events(&mut self) -> Refused {
        self.probes.refused(&online().unwrap_or_default())
    }

    /// Stops taking stacks at these events. Earlier samples stay.
    pub fn detach_event(&mut self, source: EventSource) {
        if source == EventSource::CLOCK {
            self.sampler.stop();
        } else {
            self.probes.detach(source);
        }
    }

    /// Returns how many samples of this process itself the clock's program has left out. For events see [`EventStatus::own`].
    pub fn own_left_out(&self) -> u64 {
        self.sampler.own()
    }

    /// Reads the kernel's counts of programs that ran. They are in [`Collector::events`] from then on. To be called about once a second.
    pub fn read_runs(&mut self) {
        self.probes.read_runs();
    }

    /// Returns the counts of each source of events.
    pub fn events(&self) -> Vec<EventStatus> {
        self.probes.status()
    }

    /// Makes a process a target.
    ///
    /// # Errors
    ///
    /// If there is no such process, if there is no room, or if all processes are sampled anyway.
    pub fn add_target(&mut self, tgid: Tgid) -> Result<(), CollectorError> {
        if !self.filters {
            return Err(CollectorError::NotFiltering);
        }
        if !machine::exists(tgid.0) {
            return Err(CollectorError::NoSuchProcess(tgid));
        }
        if let Some(process) = machine::process_of(tgid.0).map(Tgid).filter(|process| *process != tgid) {
            return Err(CollectorError::IsThread { thread: tgid, process });
        }
        self.sampler.add_target(tgid.0)
    }

    /// Returns the number of watched CPUs: the clock ticks on them, if it is used.
    pub fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// Sleeps for this time, or until the kernel's buffers must be drained earlier: because one is half full, or because code ran that has
    /// no unwind table yet.
    pub fn wait(&self, timeout: Duration) {
        self.sampler.wait(timeout);
    }

    /// Returns the state of unwind tables; `None` if stacks are walked by frame pointers.
    pub fn tables(&self) -> Option<TablesStatus> {
        self.tables.as_ref().map(Tables::status)
    }

    /// Returns the objects whose code ran, and the state of their unwind tables.
    pub fn objects(&self) -> Vec<ObjectStatus> {
        self.tables.as_ref().map(Tables::objects).unwrap_or_default()
    }

    /// Describes problems of the walk, one line each.
    pub fn walk_notes(&self) -> Vec<String> {
        let mut notes = self.probes.notes();
        if self.sampler.reading() == Reading::CopiedOfFailing {
            notes.push(
                "some memory has failed (HardwareCorrupted in /proc/meminfo): stacks are copied, not read in place".to_owned(),
            );
        }
        let left_out = self.sampler.left_out();
        if let Some(first) = left_out.first() {
            notes.push(format!(
                "{} CPUs (first: {first}) were switched on later and are not sampled: restart flametop to sample them",
                left_out.len()
            ));
        }
        notes
    }

    /// Forgets processes that ended before this time. No sample may need them any more.
    pub fn forget_before(&mut self, time: Timestamp) {
        self.table.forget_before(time);
    }

    /// Returns the counts of the walk by tables so far.
    pub fn walked(&self) -> Walked {
        self.sampler.walked()
    }

    /// Drains the kernel's buffers without sleeping, and replaces the contents of the batch.
    ///
    /// # Errors
    ///
    /// If the ring buffer cannot be read, which is not expected to happen.
    pub fn drain(&mut self, batch: &mut Batch) -> Result<(), CollectorError> {
        batch.clear();
        let now = machine::now().0;
        let watermark = now.saturating_sub(SLACK);
        self.drain_now(watermark, batch, None)?;
        if now.saturating_sub(self.tidied_at) >= TIDY_EVERY {
            self.tidied_at = now;
            self.table.tidy(now, &mut self.happened);
            self.tables.iter().for_each(|tables| tables.tidy(now));
            if now.saturating_sub(self.swept_at) >= SWEEP_EVERY {
                self.swept_at = now;
                self.tables.iter().for_each(|tables| tables.forget_unused(now, self.table.mapped_files()));
            }
            self.follow_cpus();
            self.sampler.watch_memory(now);
        }
        self.probes.tick(now);
        self.report(batch);
        Ok(())
    }

    /// Drains for the last time. Some samples still wait for a table, or for their process to be read. They are handed over unfinished at
    /// `until`, or as soon as nothing more can come.
    ///
    /// # Errors
    ///
    /// As [`Collector::drain`].
    pub fn drain_last(&mut self, batch: &mut Batch, until: Instant) -> Result<(), CollectorError> {
        batch.clear();
        if self.probes.cut_last() {
            // The records of the last cut are due then.
            std::thread::sleep(Duration::from_nanos(SLACK));
        }
        self.drain_now(machine::now().0.saturating_sub(SLACK), batch, Some(until))?;
        self.report(batch);
        Ok(())
    }

    /// Drains once. `last` is set at the last drain: the time until which the drain may wait.
    fn drain_now(&mut self, watermark: u64, batch: &mut Batch, last: Option<Instant>) -> Result<(), CollectorError> {
        self.read_events();
        self.merge(watermark, batch)?;
        let is_last = last.is_some();
        let until = Instant::now() + ProcessTable::patience(is_last);
        let until = last.map_or(until, |last| last.min(until));
        self.exchange(is_last, until, batch);
        self.requests.make_due(machine::now().0, self.tables.as_ref(), &mut self.table);
        self.tables.iter().for_each(Tables::tick);
        self.settle_dumped(batch, last);
        if is_last {
            self.table.settle(u64::MAX, Vec::new(), batch, |_| false);
        }
        Ok(())
    }

    /// Sends questions about processes, and applies the answers that come before `until`.
    fn exchange(&mut self, is_last: bool, until: Instant, batch: &mut Batch) {
        // Answers may lead to new questions: the mappings of a process lead to the build ids of its files.
        for round in 0..ANSWER_ROUNDS {
            let asked = self.table.send_questions();
            if round > 0 && !asked {
                break;
            }
            // If no sample needs the answers, the next drain takes them. Waiting for them would cost two switches of threads.
            let waits = is_last || asked && self.table.is_sample_waiting();
            let answers = self.table.answers(waits, until);
            if !answers.is_empty() {
                // The process may have started another program after the watermark but before the answer was read.
                self.read_events();
            }
            let events = &self.events;
            self.table
                .settle(machine::now().0, answers, batch, |tgid| events.iter().any(|timed| timed.event.begins_program(tgid)));
        }
        for (tgid, jvm) in self.table.jvms.take_changes() {
            self.sampler.set_jvm(tgid, jvm.as_ref());
        }
        for (tgid, runtime) in self.table.runtimes.take_changes() {
            self.sampler.set_runtime(tgid, runtime.as_ref());
        }
        for (place, entry) in self.table.moved.take_changes() {
            self.sampler.set_moved(place, entry);
        }
    }

    /// Continues samples that waited for tables. At the last drain, waits until `last` for the tables that are being made.
    fn settle_dumped(&mut self, batch: &mut Batch, last: Option<Instant>) {
        let Some(tables) = &self.tables else { return };
        loop {
            let mut rules = tables.rules();
            let (version, is_any_coming) = (rules.version(), rules.is_any_coming());
            let give_up = last.is_some_and(|last| !is_any_coming || Instant::now() >= last);
            self.table.settle_dumped(machine::now().0, version, give_up, &mut rules, batch);
            drop(rules);
            self.table.take_requests().into_iter().for_each(|request| tables.request(request));
            if last.is_none() || give_up || !self.table.is_any_dumped() {
                return;
            }
            tables.tick();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the outcome of samples that met code without an unwind table.
    pub fn dumps(&self) -> DumpCounts {
        self.table.dump_counts()
    }

    /// Returns the outcome for the functions of interpreters.
    pub fn scripts(&self) -> ScriptCounts {
        self.table.script_counts()
    }

    /// Returns the known files with V8 or HotSpot.
    pub fn engines(&self) -> Vec<(Arc<str>, FoundEngine)> {
        self.table.engines()
    }

    /// Returns the processes whose data could not be read, and related counts.
    pub fn unread(&self) -> Unread {
        self.table.unread()
    }

    /// Moves events from the rings to `events`, in the order of time.
    fn read_events(&mut self) {
        for ring in self.rings.values_mut() {
            let [names, mappings] = &mut self.bytes;
            names.clear();
            mappings.clear();
            let is_full = ring.drain(names, mappings);
            let mut latest = 0;
            // Names come first: a program starts before its mappings are made.
            for (bytes, of_names) in [(&*names, true), (&*mappings, false)] {
                let rest = wire::perf_records::split(bytes, |record| match wire::perf_records::parse(record) {
                    // Both rings have it: see `EventRings::drain`.
                    Parsed::Event(Timed { event: Event::Fork { .. } | Event::Exit { .. }, .. }) if of_names != is_full => (),
                    Parsed::Event(timed) => {
                        latest = timed.time.max(latest);
                        match self.events.last_mut().filter(|last| last.event.is_renamed_by(&timed.event)) {
                            Some(last) => *last = timed,
                            None => self.events.push(timed),
                        }
                    }
                    Parsed::Ignored => (),
                    Parsed::Malformed => self.malformed += 1,
                });
                self.malformed += u64::from(rest > 0);
            }
            if is_full {
                self.events.push(Timed { time: latest, event: Event::Full });
            }
        }
        // The sort is stable: events of the same moment stay in the order of their CPU.
        self.events.sort_by_key(|timed| timed.time);
        if self.events.iter().any(|timed| matches!(timed.event, Event::Lost(_))) {
            self.tables.iter().for_each(Tables::events_were_lost);
        }
    }

    /// Applies events and resolves samples up to the watermark, all in the order of time.
    fn merge(&mut self, watermark: u64, batch: &mut Batch) -> Result<(), CollectorError> {
        let ready = self.events.partition_point(|timed| timed.time <= watermark);
        let mut events = self.events.drain(..ready).peekable();
        let (table, tables, happened) = (&mut self.table, &self.tables, &mut self.happened);
        let (requests, now) = (&mut self.requests, machine::now().0);
        let mut refused = 0;
        self.sampler.drain(|pending| {
            pending.sort();
            let mut malformed = 0;
            let mut dumps = pending.take_dumps(watermark);
            let mut questions = pending.take_questions(watermark).into_iter().peekable();
            for (time, bytes) in pending.until(watermark) {
                while let Some(timed) = events.next_if(|timed| timed.time <= time) {
                    table.apply(timed, happened);
                }
                // Asked before the sample is resolved, so that it waits for the answer.
                while let Some(wish) = questions.next_if(|wish| wish.time <= time) {
                    requests.make(wish, now, tables.as_ref(), table);
                }
                match (Record::parse(bytes), tables) {
                    (Some(record), Some(tables)) if record.flags & HAS_DUMP != 0 => {
                        match dumps.remove(&(record.cpu, record.time)) {
                            Some(dump) => table.take_dumped(&record, bytes, dump, &mut tables.rules(), batch),
                            None => table.take(&record, bytes, batch),
                        }
                    }
                    (Some(record), _) => {
                        refused += u64::from(record.flags & DUMP_REFUSED != 0);
                        table.take(&record, bytes, batch);
                    }
                    (None, _) => malformed += 1,
                }
            }
            events.for_each(|timed| table.apply(timed, happened));
            for wish in pending.take_wishes() {
                requests.make(wish, now, tables.as_ref(), table);
            }
            pending.forget_until(watermark);
            pending.malformed(malformed);
        })?;
        self.table.dumps_refused(refused);
        Ok(())
    }

    fn report(&mut self, batch: &mut Batch) {
        batch.exited.append(&mut self.happened.exited);
        batch.kernel_symbols_changed = std::mem::take(&mut self.happened.kernel_symbols_changed);
        if self.filters {
            // Removed at once: the number may be given to another process.
            let gone = batch.exited.iter().filter(|tgid| !self.table.is_alive(tgid.0));
            gone.for_each(|tgid| self.sampler.remove_target(tgid.0));
        }
        batch.losses.ring_full = self.sampler.ring_full() + self.probes.ring_full();
        // A child that could not be made a target is never sampled, so its fork counts as a lost event.
        batch.losses.events_lost = self.happened.lost + self.sampler.forks_lost();
        batch.losses.malformed = self.malformed + self.sampler.malformed();
    }

    /// Follows CPUs that are switched on and off. If a CPU went off and on within a second, its old events never tick again. That is
    /// noticed only if the machine slept.
    fn follow_cpus(&mut self) {
        let Ok(cpus) = machine::online_cpus() else { return };
        let slept = machine::slept();
        // Half a second of tolerance: the two clocks are not read at the same moment.
        if slept.abs_diff(self.slept) > 500_000_000 {
            self.slept = slept;
            self.rings.clear();
            self.sampler.follow_cpus(&[]);
        }
        // Events are opened before the clock, as at the start.
        self.rings.retain(|cpu, _| cpus.contains(cpu));
        for cpu in &cpus {
            if !self.rings.contains_key(cpu) {
                // The CPU may be off again.
                let _ = self.open_ring(*cpu, event_ring_bytes(cpus.len()));
            }
        }
        self.sampler.follow_cpus(&cpus);
        self.probes.follow_cpus(&cpus);
    }
}

fn online() -> Result<Vec<u32>, CollectorError> {
    machine::online_cpus().map_err(|source| CollectorError::Read { path: "/sys/devices/system/cpu/online", source })
}

/// Returns the bytes of a CPU's ring of mappings. A program that starts and ends writes about 1.5 KB of events, a twentieth of it names. An
/// unprivileged user may lock 516 KiB for each CPU (`kernel.perf_event_mlock_kb`). That is enough for a ring of 256 KiB, a ring of names of
/// half that size, and the first page of each. Large machines get less for each CPU.
fn event_ring_bytes(cpus: usize) -> usize {
    if cpus <= 32 { 256 << 10 } else { 128 << 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_find_the_ring_full_are_counted() {
        let options = CollectorOptions { frequency: 999, include_idle: true, include_self: true, ..Default::default() };
        let (names, processes) = (Arc::default(), Arc::default());
        let mut collector = Collector::start_with_ring(options, names, processes, 4096).expect("this test needs root");
        let until = Instant::now() + Duration::from_secs(60);
        let mut batch = Batch::default();
        while batch.losses.ring_full == 0 && Instant::now() < until {
            // Long enough to fill 4 KiB on one CPU alone.
            std::thread::sleep(Duration::from_millis(200));
            collector.drain(&mut batch).unwrap();
        }
        assert!(batch.losses.ring_full > 0);
        assert_eq!(batch.losses.malformed, 0);
    }

    #[test]
    fn cpus_that_come_and_go_are_followed() {
        let options = CollectorOptions { include_idle: true, include_self: true, ..Default::default() };
        let mut collector = Collector::start(options, Arc::default(), Arc::default()).expect("this test needs root");
        let all = collector.cpus();
        let first = machine::online_cpus().unwrap()[0];
        // Simulates that all other CPUs are off: switching one off would disturb other programs on this machine.
        collector.sampler.follow_cpus(&[first]);
        collector.rings.retain(|cpu, _| *cpu == first);
        assert_eq!(collector.cpus(), 1);
        collector.follow_cpus();
        assert_eq!((collector.cpus(), collector.rings.len()), (all, all));
        // Simulates that the machine has slept: all events are opened again, and tick.
        collector.slept += 10_000_000_000;
        collector.follow_cpus();
        assert_eq!((collector.cpus(), collector.rings.len()), (all, all));
        // All CPUs are kept busy, because on some virtual machines the clock of an idle CPU does not tick, for perf neither.
        let until = Instant::now() + Duration::from_secs(60);
        let done = std::sync::atomic::AtomicBool::new(false);
        let spin = || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop()
            }
        };
        let mut cpus = std::collections::BTreeSet::new();
        std::thread::scope(|scope| {
            (0..all).for_each(|_| drop(scope.spawn(spin)));
            let mut batch = Batch::default();
            while cpus.len() < all && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
                collector.drain(&mut batch).unwrap();
                cpus.extend(batch.samples.iter().map(|sample| sample.cpu.0));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(cpus.len(), all);
    }

    #[test]
    fn a_collector_can_be_sent_to_a_thread() {
        fn sendable<T: Send>() {}
        sendable::<Collector>();
        sendable::<Batch>();
    }

    #[test]
    fn a_frequency_of_zero_and_processes_that_are_not_there_are_refused() {
        let start = |frequency, targets| {
            let options = CollectorOptions { frequency, targets, ..Default::default() };
            Collector::start(options, Arc::default(), Arc::default()).map(drop)
        };
        assert!(matches!(start(0, Targets::All), Err(CollectorError::NoFrequency)));
        let nobody = Tgid(5_000_000);
        assert!(matches!(start(9, Targets::Processes(vec![nobody])), Err(CollectorError::NoSuchProcess(who)) if who == nobody));
        assert!(matches!(start(u32::MAX, Targets::All), Err(CollectorError::TooFrequent { .. })));
    }
}
