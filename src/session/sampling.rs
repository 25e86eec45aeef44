//! The collecting thread: starts it, drains the kernel's buffers, and publishes its status.

use crate::collector::probes::Refused;
use crate::collector::sources::walk::Walk;
use crate::session::clock::now;
use crate::session::compare_walks::{Comparison, KernelPart};
use crate::session::shared::Shared;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::watch;

use crate::cli;
use crate::collector::{Backtrace, Batch, Collector, CollectorError, CollectorOptions, EventRequest, Targets};
use crate::locks;
use crate::privileges;
use crate::profile::{Clock, EventSource, EventStatus, Renewals, Sample, Tgid};
use crate::ui::NotAttached;

use super::child::{Child, Ending};
use super::event_targets::{self, Watched};
use super::notes;
use super::options::debuginfod_find;

/// Interval between two reads of the kernel's buffers. It is shorter in the first second, so that the first picture comes soon.
const DRAIN_EVERY: Duration = Duration::from_millis(100);
const DRAIN_AT_FIRST: Duration = Duration::from_millis(20);
/// Least interval, even if the kernel wakes the thread more often.
const DRAIN_AT_MOST: Duration = Duration::from_millis(5);

/// Longest time to end a run, from the end of sampling until nothing is waited for. Names and tables that are not there by then are left
/// out. The file is written after that; all together takes less than 2 s.
pub(super) const END_WITHIN: Duration = Duration::from_millis(1500);
/// The part of [`END_WITHIN`] in which the last samples wait for their tables.
pub(super) const TABLES_WITHIN: Duration = Duration::from_secs(1);
/// Longest wait for the end of a command that is killed.
const KILLED_WITHIN: Duration = Duration::from_secs(1);
/// Extra time at the end of a run if a command must be ended first: the command gets SIGTERM, and SIGKILL after 5 seconds.
const END_OF_COMMAND_WITHIN: Duration = Duration::from_secs(6);

/// The reason why sampling ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The started command or the watched processes have ended.
    Target(Ending),
    /// Sampling failed, with a description.
    Failed(String),
}

/// A running collection, with its thread.
pub(super) struct Sampling {
    /// Set when sampling ends: the time until which the last samples may wait for their tables.
    stop: Arc<OnceLock<Instant>>,
    told: Arc<Mutex<CollectorStatus>>,
    orders: Sender<AttachCommand>,
    ended: watch::Receiver<Option<Ended>>,
    thread: Option<JoinHandle<()>>,
    /// Time of the last read of samples.
    until: Arc<OnceLock<Instant>>,
    /// See [`Child::hurry`].
    hurry: Option<Arc<AtomicBool>>,
    /// CPUs sampled at the start.
    pub(super) cpus: usize,
    /// The start time.
    pub(super) since: Instant,
}

/// The collecting thread's status, published once a second and at the end.
#[derive(Clone, Default)]
pub(super) struct CollectorStatus {
    /// Whether the clock ticks.
    pub(super) ticks: bool,
    /// Name of the clock.
    pub(super) clock: &'static str,
    /// Counts of each source of events.
    pub(super) events: Vec<EventStatus>,
    /// Samples of flametop itself that the clock's program left out.
    pub(super) own_left_out: u64,
    /// The state of unwind tables, in lines.
    pub(super) notes: Vec<String>,
    /// The files without an unwind table, in lines. `notes` contains these lines as well.
    pub(super) without_tables: Vec<String>,
    /// Processes whose data could not be read, in lines.
    pub(super) unread: Vec<String>,
    /// How two ways of finding a stack compare, in words, if both were used.
    pub(super) comparison: Option<String>,
}

/// Read access to a running collection from other threads.
#[derive(Clone)]
pub(super) struct Watcher {
    ended: watch::Receiver<Option<Ended>>,
    told: Arc<Mutex<CollectorStatus>>,
    /// CPUs sampled at the start.
    pub(super) cpus: usize,
    /// The start time.
    pub(super) since: Instant,
}

impl Watcher {
    /// Returns how it ended, or `None` while it runs.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Returns the last status of the collecting thread.
    pub(super) fn told(&self) -> CollectorStatus {
        locks::lock(&self.told).clone()
    }
}

/// Time that the live view keeps by default. A recording keeps all samples that fit into its memory.
pub(super) const LIVE_WINDOW: Duration = Duration::from_secs(600);

impl Sampling {
    /// Starts sampling, then lets the command begin, if there is one.
    pub(super) fn start(options: &cli::Sampling, child: Option<Child>, shared: &Shared) -> Result<Sampling> {
        if options.debuginfod {
            shared.symbolizer.fetch_by(debuginfod_find()?);
        }
        let mut watched: Vec<Tgid> = options.pids.iter().copied().map(Tgid).collect();
        let targets = match &child {
            Some(child) => Targets::Families([&[child.tgid()], watched.as_slice()].concat()),
            None if watched.is_empty() => Targets::All,
            None => Targets::Processes(watched.clone()),
        };
        let command = child.as_ref().map(|child| child.program.clone());
        let (clock, events) =
            event_targets::read(&options.events, &Watched { command: command.as_deref(), pids: &options.pids })?;
        let (ready, started) = std::sync::mpsc::channel();
        let backtrace = match options.backtrace {
            cli::Backtrace::Kernel => Backtrace::Kernel,
            cli::Backtrace::Manual => Backtrace::Manual,
            cli::Backtrace::Both => Backtrace::Both,
            cli::Backtrace::Scan => Backtrace::Scan,
        };
        let walk = match options.unwind {
            cli::Unwind::Tables => Walk::Tables,
            cli::Unwind::Fp => Walk::FramePointers,
            cli::Unwind::Copied => Walk::Copied,
        };
        let collector_options = CollectorOptions {
            frequency: options.frequency,
            include_idle: options.idle,
            include_self: options.include_self,
            targets,
            walk,
            clock,
            events,
            backtrace,
            event_budget: options.event_stacks,
            least_wait: if options.at_once { Duration::ZERO } else { CollectorOptions::default().least_wait },
            kernel_memory: options.kernel_memory as u64,
            memory: options.memory,
            ..Default::default()
        };
        let stop = Arc::new(OnceLock::new());
        let (ending, ended) = watch::channel(None);
        let until = Arc::new(OnceLock::new());
        let told = Arc::new(Mutex::new(CollectorStatus { ticks: clock, ..CollectorStatus::default() }));
        let frequency = options.frequency;
        let (orders, ordered) = std::sync::mpsc::channel();
        let hurry = child.as_ref().map(|child| Arc::clone(&child.hurry));
        let thread = {
            let (shared, stop, until) = (shared.clone(), Arc::clone(&stop), Arc::clone(&until));
            let telling = Arc::clone(&told);
            let body = move || {
                let begun = Collector::start(collector_options, shared.names(), Arc::clone(&shared.processes));
                let collector = match begun {
                    Ok(collector) => collector,
                    Err(error) => {
                        // The command is dropped before the caller learns of the error and ends: otherwise the held command would remain.
                        drop(child);
                        return drop(ready.send(Err(error)));
                    }
                };
                privileges::take_precedence();
                privileges::drop_but_reserve();
                locks::lock(&telling).clock = collector.event_name();
                locks::write(&shared.profile).set_clock(Clock {
                    period: 1_000_000_000 / u64::from(frequency.max(1)),
                    cpus: u32::try_from(collector.cpus()).unwrap_or(u32::MAX),
                    since: now(),
                    until: None,
                });
                drop(ready.send(Ok(collector.cpus())));
                if let Some(child) = &child
                    && let Err(error) = child.go()
                {
                    let failed = Ended::Failed(format!("{error:#}"));
                    return drop(ending.send_replace(Some(failed)));
                }
                let watched = std::mem::take(&mut watched);
                let compares = matches!(backtrace, Backtrace::Both | Backtrace::Scan);
                let compared = compares.then(Comparison::default);
                let profile = Arc::clone(&shared.profile);
                let collecting = Collecting {
                    collector,
                    shared,
                    child,
                    watched,
                    stop,
                    until,
                    told: telling,
                    ordered,
                    compared,
                    renewals: Renewals::default(),
                };
                let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| collecting.run()));
                let outcome = outcome.unwrap_or_else(|_| Some(Ended::Failed("the collector thread failed".to_owned())));
                locks::write(&profile).end_clock(now());
                ending.send_replace(outcome);
            };
            std::thread::Builder::new().name("flametop-drain".to_owned()).spawn(body).context("failed to start a thread")?
        };
        let cpus = started.recv().map_err(|_| anyhow!("the collector thread failed at its start"))??;
        Ok(Sampling { stop, ended, told, orders, thread: Some(thread), until, hurry, cpus, since: Instant::now() })
    }

    /// Returns how it ended, or `None` while it runs.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Waits until it ends for another reason than [`Sampling::end`], and returns that reason.
    pub(super) async fn ended_unasked(&self) -> Ended {
        let mut ended = self.ended.clone();
        let told = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        match told {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Returns a handle for tasks that watch this collection.
    pub(super) fn watcher(&self) -> Watcher {
        let (ended, told) = (self.ended.clone(), Arc::clone(&self.told));
        Watcher { ended, told, cpus: self.cpus, since: self.since }
    }

    /// Returns the last status of the collecting thread.
    pub(super) fn told(&self) -> CollectorStatus {
        locks::lock(&self.told).clone()
    }

    /// Returns the channel for orders to attach and detach.
    pub(super) fn orders(&self) -> Sender<AttachCommand> {
        self.orders.clone()
    }

    /// Returns how long samples have been taken so far, or were taken if sampling has ended.
    pub(super) fn lasted(&self) -> Duration {
        self.until.get().copied().unwrap_or_else(Instant::now).saturating_duration_since(self.since)
    }

    /// Starts to end sampling, and the command if it still runs. [`Sampling::is_over`] tells when that is done. The last samples wait for
    /// their tables until `tables`.
    pub(super) fn end(&self, tables: Instant) {
        let _ = self.stop.set(tables);
    }

    /// Tells whether nothing is left to wait for: neither samples nor a command.
    pub(super) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Has the command killed instead of waited for.
    pub(super) fn hurry(&self) {
        if let Some(hurry) = &self.hurry {
            hurry.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the latest end of sampling, if all other work ends by `by`. A command that is not killed gets more time.
    pub(super) fn ends_by(&self, by: Instant) -> Instant {
        match &self.hurry {
            Some(hurry) if !hurry.load(Ordering::Relaxed) => by + END_OF_COMMAND_WITHIN,
            _ => by,
        }
    }

    /// Ends sampling, and the command if it still runs. The buffers are read once more. Returns `false` if the collecting thread did not
    /// end by `by` (see [`Sampling::ends_by`]): then the thread is left behind, and the samples read so far are kept.
    pub(super) fn finish(&mut self, by: Instant) -> bool {
        self.end(Instant::now());
        let Some(thread) = self.thread.take() else { return true };
        // The thread has only just learned that it must kill the command. If this process ended first, the command would live on.
        let is_killing = self.hurry.as_ref().is_some_and(|hurry| hurry.load(Ordering::Relaxed));
        let by = if is_killing { by.max(Instant::now() + KILLED_WITHIN) } else { by };
        while !thread.is_finished() {
            if Instant::now() > self.ends_by(by) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // The thread has recorded in `ended` how it ended.
        let _ = thread.join();
        true
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.finish(Instant::now() + END_WITHIN);
    }
}

/// Orders for the running collecting thread.
pub(super) enum AttachCommand {
    /// Takes stacks at one more event. The answer is the source's number, or why not.
    Attach(EventRequest, tokio::sync::oneshot::Sender<Result<EventSource, NotAttached>>),
    /// Stops taking stacks at this source.
    Detach(EventSource),
    /// Finds the events that this machine refuses.
    Try(tokio::sync::oneshot::Sender<Refused>),
}

struct Collecting {
    collector: Collector,
    shared: Shared,
    child: Option<Child>,
    /// Processes given by the user that still live.
    watched: Vec<Tgid>,
    stop: Arc<OnceLock<Instant>>,
    until: Arc<OnceLock<Instant>>,
    told: Arc<Mutex<CollectorStatus>>,
    ordered: Receiver<AttachCommand>,
    compared: Option<Comparison>,
    renewals: Renewals,
}

impl Collecting {
    /// Samples until told to stop, or until no watched process lives; then ends the command.
    fn run(mut self) -> Option<Ended> {
        let ended = self.sample();
        self.tell();
        let _ = self.until.set(Instant::now());
        ended
    }

    /// Reads the kernel's buffers until told to stop, or until no watched process lives.
    fn sample(&mut self) -> Option<Ended> {
        let mut batch = Batch::default();
        let began = Instant::now();
        let mut trimmed = began;
        let watching = !self.watched.is_empty();
        // A process that ended while sampling began would never be reported as ended.
        self.watched.retain(|tgid| super::child::lives(*tgid));
        loop {
            let stop = self.stop.get().copied();
            let child_ended = self.child.as_mut().and_then(Child::ending);
            let last = stop.or_else(|| child_ended.as_ref().map(|_| Instant::now() + TABLES_WITHIN));
            if last.is_some() {
                // Samples are handed over a moment after they are taken; this waits for the last samples.
                std::thread::sleep(Duration::from_millis(3));
            }
            if let Err(error) = self.drain(&mut batch, last) {
                return Some(Ended::Failed(error.to_string()));
            }
            if let Some(ending) = child_ended {
                return Some(Ended::Target(ending));
            }
            if stop.is_some() {
                return None;
            }
            self.watched.retain(|tgid| !batch.exited.contains(tgid));
            if watching && self.watched.is_empty() && self.child.is_none() {
                return Some(Ended::Target(Ending::of_watched()));
            }
            if trimmed.elapsed() > Duration::from_secs(1) {
                trimmed = Instant::now();
                self.tell();
                let usage = self.shared.symbolizer.usage();
                let known = usage.kernel + self.collector.memory();
                let mut profile = locks::write(&self.shared.profile);
                profile.set_beside(usage.tables, known);
                profile.trim(now());
                let oldest = profile.oldest(now());
                drop(profile);
                self.collector.forget_before(oldest);
            }
            self.renew_names();
            self.obey();
            let waited = Instant::now();
            self.collector.wait(if began.elapsed() < Duration::from_secs(1) { DRAIN_AT_FIRST } else { DRAIN_EVERY });
            // Each sample that lacks a table wakes this thread. After a short sleep, all samples of the same moment are read at once.
            std::thread::sleep(DRAIN_AT_MOST.saturating_sub(waited.elapsed()));
        }
    }

    /// Frees the names that no sample needs: step by step, and rarely.
    fn renew_names(&mut self) {
        let Shared { profile, symbolizer, .. } = &self.shared;
        if let Some(renewed) = self.renewals.step(profile, now(), symbolizer.pending() == 0) {
            symbolizer.use_names(&renewed);
            self.collector.use_names(renewed.names);
            // They hold frames by their old ids.
            self.compared.iter_mut().for_each(|comparison| comparison.forget_waiting());
        }
    }

    fn tell(&mut self) {
        self.collector.read_runs();
        let comparison = self.compared.as_ref().and_then(Comparison::describe);
        let without_tables = notes::without_tables(&self.collector);
        let mut notes = notes::of_tables(&self.collector, &without_tables);
        notes.extend(comparison.clone());
        let unread = notes::of_unread(&self.collector.unread());
        let (events, own_left_out) = (self.collector.events(), self.collector.own_left_out());
        let mut told = locks::lock(&self.told);
        let clock = self.collector.event_name();
        *told = CollectorStatus { clock, events, own_left_out, notes, without_tables, unread, comparison, ..*told };
    }

    /// Carries out the screen's orders to attach and detach.
    fn obey(&mut self) {
        let mut changed = false;
        while let Ok(order) = self.ordered.try_recv() {
            changed = true;
            match order {
                AttachCommand::Attach(request, answer) => {
                    let attached = privileges::attaching(|| self.collector.attach_event(&request)).map_err(|error| match error {
                        CollectorError::Costly { per_second, cpus, .. } => NotAttached::Costly { per_second, cpus },
                        error => NotAttached::Failed(error.to_string()),
                    });
                    if attached == Ok(EventSource::CLOCK) {
                        locks::lock(&self.told).ticks = true;
                    }
                    // If the screen is gone, the answer is dropped.
                    drop(answer.send(attached));
                }
                AttachCommand::Try(answer) => {
                    drop(answer.send(privileges::attaching(|| self.collector.refused_events())));
                }
                AttachCommand::Detach(source) => {
                    self.collector.detach_event(source);
                    if source == EventSource::CLOCK {
                        locks::lock(&self.told).ticks = false;
                    }
                }
            }
        }
        if changed {
            self.tell();
        }
    }

    /// Compares the kernel parts of samples that were walked in two ways.
    fn compare(&mut self, batch: &Batch) {
        let Some(comparison) = &mut self.compared else { return };
        for sample in &batch.samples {
            let frames = batch.frames.get(sample.frames.clone()).unwrap_or_default();
            let kernel = frames.get(frames.len().saturating_sub(sample.kernel_frames)..).unwrap_or_default();
            let part = KernelPart { frames: kernel.to_vec(), is_by_hand: sample.compared, is_cut: sample.kernel_cut };
            comparison.add((sample.time, sample.thread.tid), part);
        }
    }

    /// Drains the collector once. `last` is set at the last drain: the time until which samples may wait for their tables.
    fn drain(&mut self, batch: &mut Batch, last: Option<Instant>) -> Result<(), CollectorError> {
        let begun = now();
        match last {
            Some(until) => self.collector.drain_last(batch, until)?,
            None => self.collector.drain(batch)?,
        }
        // Names come first, so that most of them are known before a picture is made of the samples.
        if batch.kernel_symbols_changed {
            self.shared.symbolizer.kernel_symbols_changed();
        }
        if !batch.wanted.is_empty() {
            self.shared.symbolizer.request(batch.wanted.drain(..));
        }
        self.compare(batch);
        // Read after the samples, so that no picture has more events than were counted.
        let events = self.collector.events();
        let mut profile = locks::write(&self.shared.profile);
        profile.set_complete_to(begun);
        profile.losses.ring_full = batch.losses.ring_full;
        profile.losses.events_lost = batch.losses.events_lost;
        profile.losses.malformed = batch.losses.malformed;
        profile.events = events.into();
        for collected in batch.samples.iter().filter(|collected| !collected.compared) {
            let frames = batch.frames.get(collected.frames.clone()).unwrap_or_default();
            let sample = Sample {
                time: collected.time,
                weight: collected.weight,
                cpu: collected.cpu,
                source: collected.source,
                user_end: collected.user_end,
                ..Sample::default()
            };
            profile.set_unit(collected.source, collected.unit);
            profile.record(collected.thread, frames.iter().copied(), sample);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::options::limits;

    #[test]
    fn the_window_is_what_was_asked_for_or_the_commands_own() {
        let options = |window| cli::Sampling {
            pids: Vec::new(),
            frequency: 99,
            at_once: false,
            idle: false,
            include_self: false,
            no_inline: false,
            interpreter: false,
            window,
            memory: 5,
            kernel_memory: 5,
            debuginfod: false,
            unwind: cli::Unwind::Tables,
            events: Vec::new(),
            off_cpu: false,
            event_stacks: 1000,
            backtrace: cli::Backtrace::Kernel,
        };
        let window = |asked: Option<u64>, own| limits(&options(asked.map(Duration::from_secs)), own).window;
        assert_eq!(window(None, Some(LIVE_WINDOW)), 600_000_000_000);
        assert_eq!(window(None, None), u64::MAX);
        assert_eq!(window(Some(2), Some(LIVE_WINDOW)), 2_000_000_000);
        assert_eq!(window(Some(2), None), 2_000_000_000);
    }
}
