//! Stacks at events: functions of the kernel and of programs, tracepoints, counters.
//!
//! ```text
//! text ─► EventSpec ─► places ─► Programs: one loaded program a source, attached to all its places
//!  spec       functions, tracefs; of programs the caller's symbols        │
//!                                         records, counters ◄─────────────┘
//! ```
//!
//! Each source has a number, which its samples carry ([`EventSource`]). All events are counted. Stacks are taken only of as many events as
//! the budget allows; each stack also counts for the events since the last one (bpf/probes.bpf.c). The programs share the clock's ring
//! buffer, targets and unwind tables. Their other maps are made with the first program.
//!
//! Promises: a failed attempt to attach leaves nothing behind, and a dropped source is detached. The features of a kernel are found by
//! trying.

mod cost;
mod failure;
mod kernel_functions;
mod programs;
mod refused;
mod sleepers;
mod spec;
mod tracefs;
mod waits;

use crate::collector::sys::bpf_memory;
use crate::collector::sys::bpf_stats;
use crate::collector::sys::machine;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::MapCore;

use super::error::CollectorError;
use super::processes::proc;
use super::sources::clock::SharedMaps;
use super::sys::perf_event;
use super::wire::records;
use crate::object::io_timeout::{self, FailureDomain};
use crate::object::process::directory;
use crate::profile::{EventSource, EventStatus, Tgid};
use cost::{Costly, Traps};
use failure::Failed;
pub use kernel_functions::{KernelFunctions, nearest};
use programs::{MAX_SOURCES, OwnMaps, ProbeSettings, Programs, Runs};
pub use refused::Refused;
pub use spec::{Backtrace, COUNTERS, Counter, EventRequest, EventSpec, Mechanism, NamePattern, OFF_CPU, UserPlace};
use tracefs::TraceFs;
use waits::Waits;

/// Most functions with fentry: each one needs a separate program, which takes some 20 ms to load and 100 KB.
const MAX_FENTRY: usize = 32;
/// Most functions with kprobes, and most places in programs: each one needs a perf event.
const MAX_SINGLE: usize = 512;
/// Most functions by ftrace at once. All functions of a kernel have been seen to work, but nobody wants them.
const MAX_MULTI: usize = 20_000;

/// File with the kernel's number for opening kprobes; only with CONFIG_KPROBE_EVENTS.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe/type";

/// Nanoseconds of an epoch of the programs.
const EPOCH: u64 = 100_000_000;

/// Most time between two looks at threads that wait.
const SECOND: u64 = 1_000_000_000;

/// An attached source.
struct Attached {
    status: EventStatus,
    programs: Vec<Programs>,
    waits: Option<Waits>,
    /// The runs of its programs, when they were last read.
    runs: Runs,
    /// Nanoseconds of a trap, if each event is one.
    trap: u64,
    /// For a counter: the CPUs of its links, in the links' order.
    cpus: Vec<u32>,
    counter: Option<Counter>,
}

/// All attached sources of events.
pub(super) struct Probes {
    attached: Vec<Attached>,
    own: Option<OwnMaps>,
    shared: SharedMaps,
    backtrace: Backtrace,
    /// The last number that was given; 0 at first.
    last: u8,
    /// Most stacks a second on each CPU, for all sources together.
    budget: u32,
    /// Has the kernel count runs while it is open.
    counting: Option<OwnedFd>,
    /// Nanoseconds of a trap by each mechanism, once measured.
    traps: Vec<(Mechanism, Traps)>,
    epoch: u32,
    /// The start time of the epoch.
    began: u64,
    /// When waits were last cut, how many cuts there were until then, and how old a wait must be.
    cut_at: u64,
    cuts: u64,
    least_age: u64,
    /// A thread that waits for longer, in nanoseconds, is seen while it waits.
    least_wait: u64,
}

impl Probes {
    /// Makes an empty set of sources.
    pub(super) fn new(shared: SharedMaps, backtrace: Backtrace, budget: u32, least_wait: Duration) -> Probes {
        let least_wait = u64::try_from(least_wait.as_nanos()).unwrap_or(u64::MAX);
        Probes {
            attached: Vec::new(),
            own: None,
            shared,
            backtrace,
            last: 0,
            budget,
            counting: None,
            traps: Vec::new(),
            epoch: 1,
            began: 0,
            cut_at: 0,
            cuts: 0,
            least_wait,
            least_age: least_wait,
        }
    }

    /// Attaches a source, and returns its number. A source that costs the programs much is detached again, unless the request agrees to it.
    pub(super) fn attach(&mut self, request: &EventRequest, cpus: &[u32]) -> Result<EventSource, CollectorError> {
        self.counting = self.counting.take().or_else(bpf_stats::count_runs);
        let attached = self.attach_counted(request, cpus);
        self.stop_counting();
        attached
    }

    /// Stops the kernel's counting of runs, unless a source is attached.
    fn stop_counting(&mut self) {
        if self.attached.is_empty() {
            self.counting = None;
        }
    }

    fn attach_counted(&mut self, request: &EventRequest, cpus: &[u32]) -> Result<EventSource, CollectorError> {
        let taken = |number: &u8| self.attached.iter().any(|attached| attached.status.source.0 == *number);
        // Numbers are given in turn, because samples of a detached source still carry its number.
        let following = (0..MAX_SOURCES - 1).map(|step| (self.last + step) % (MAX_SOURCES - 1) + 1);
        let Some(number) = following.into_iter().find(|number| !taken(number)) else {
            return Err(CollectorError::TooManyEvents { limit: usize::from(MAX_SOURCES - 1) });
        };
        // Also if it fails: a source that costs too much has taken stacks already.
        self.last = number;
        self.forget_counts(number)?;
        let source = EventSource(number);
        let status = EventStatus { source, name: request.name.clone(), ..EventStatus::default() };
        let mut new = Attached::new(status);
        let failed = |why: String| CollectorError::NotAttached { event: request.name.clone(), why };
        match &request.spec {
            // The caller handles the clock.
            EventSpec::Clock => return Ok(EventSource::CLOCK),
            EventSpec::Kernel { mechanism, functions } => self.attach_to_kernel(&mut new, *mechanism, functions)?,
            EventSpec::User { mechanism, .. } => {
                if request.places.len() > MAX_SINGLE {
                    return Err(too_many(&request.name, request.places.len(), MAX_SINGLE));
                }
                let mut program = self.load(*mechanism, None, number).map_err(|why| failed(why.words().to_owned()))?;
                new.trap = self.traps(*mechanism, &mut program).of(&request.places);
                // Its measurement counted events of flametop itself.
                self.forget_counts(number)?;
                for place in &request.places {
                    let attached = program.attach_to_file(&place.path, place.offset);
                    attached.map_err(|why| failed(format!("{}: {}", place.path.display(), why.words())))?;
                }
                new.finish(*mechanism, request.places.len(), program);
            }
            EventSpec::Tracepoint { category, name } => {
                let id = tracepoint(category, name)?;
                let event = perf_event::open_tracepoint(id).map_err(|error| failed(Failed::of_io(&error).words().to_owned()))?;
                let mut program = self.load(Mechanism::Tracepoint, None, number).map_err(|why| failed(why.words().to_owned()))?;
                program.attach_to_event(event).map_err(|why| failed(why.words().to_owned()))?;
                new.finish(Mechanism::Tracepoint, 1, program);
            }
            EventSpec::Counter(counter) => {
                let mut program = self.load(Mechanism::PerfEvent, None, number).map_err(|why| failed(why.words().to_owned()))?;
                for cpu in cpus {
                    let event = self.open_counter(*counter, *cpu).map_err(|error| failed(no_counter(*counter, &error)))?;
                    program.attach_to_event(event).map_err(|why| failed(why.words().to_owned()))?;
                }
                new.cpus = cpus.to_vec();
                new.counter = Some(*counter);
                new.finish(Mechanism::PerfEvent, 1, program);
            }
            EventSpec::Waits => {
                let waits = Waits::attach(number.into(), &self.shared, &mut self.own);
                let waits = waits.map_err(|why| failed(why.words().to_owned()))?;
                new.status.how = waits.how().into();
                new.status.places = 1;
                new.waits = Some(waits);
            }
        }
        let tried = if request.is_agreed { Ok(()) } else { new.try_out() };
        tried.map_err(|Costly { per_second, cpus }| CollectorError::Costly { event: request.name.clone(), per_second, cpus })?;
        new.read_runs();
        self.attached.push(new);
        self.tell();
        Ok(source)
    }

    /// Returns how long traps by this mechanism take. If samples of flametop itself are wanted, that is not measured, and is 0.
    fn traps(&mut self, mechanism: Mechanism, program: &mut Programs) -> Traps {
        if let Some((_, known)) = self.traps.iter().find(|(known, _)| *known == mechanism) {
            return *known;
        }
        let are_left_out = self.shared.settings.left_out() != 0;
        let traps = if are_left_out { Traps::measure(program) } else { Traps::default() };
        self.traps.push((mechanism, traps));
        traps
    }

    /// Detaches a source. Its number may be given again.
    pub(super) fn detach(&mut self, source: EventSource) {
        self.attached.retain(|attached| attached.status.source != source);
        self.stop_counting();
        self.tell();
    }

    /// Resets the counts of a number that is given again.
    fn forget_counts(&self, number: u8) -> Result<(), CollectorError> {
        self.own.as_ref().map_or(Ok(()), |own| forget_counts(own, number))
    }

    fn open_counter(&self, counter: Counter, cpu: u32) -> std::io::Result<OwnedFd> {
        perf_event::open_counter(counter.hardware, counter.number, self.shared.settings.frequency, cpu)
    }

    /// Loads a program. The first program brings the maps that all programs share.
    fn load(&mut self, mechanism: Mechanism, function: Option<&str>, number: u8) -> Result<Programs, Failed> {
        let told = ProbeSettings { number: number.into(), backtrace: self.backtrace };
        let loaded = Programs::load(mechanism, function, told, &self.shared, self.own.as_ref())?;
        if self.own.is_none() {
            self.own = Some(loaded.own_maps().map_err(|error| Failed::Said(error.to_string()))?);
            self.tell();
        }
        Ok(loaded)
    }

    /// Attaches to functions of the kernel: by the given mechanism, or by the first one that works.
    fn attach_to_kernel(
        &mut self,
        new: &mut Attached,
        asked: Option<Mechanism>,
        pattern: &NamePattern,
    ) -> Result<(), CollectorError> {
        let event = new.status.name.clone();
        let known = || KernelFunctions::read().map_err(|source| CollectorError::Read { path: "/proc/kallsyms", source });
        let names = match pattern.exact() {
            Some(name) => vec![name.to_owned()],
            None => known()?.matching(pattern),
        };
        if names.is_empty() {
            return Err(CollectorError::NoSuchFunction { event, near: String::new() });
        }
        let mechanisms = match asked {
            Some(mechanism) => vec![mechanism],
            None => vec![Mechanism::Fentry, Mechanism::KprobeMulti, Mechanism::Kprobe],
        };
        let limit = |mechanism| match mechanism {
            Mechanism::Fentry | Mechanism::Fexit => MAX_FENTRY,
            Mechanism::KprobeMulti | Mechanism::KretprobeMulti => MAX_MULTI,
            _ => MAX_SINGLE,
        };
        let mut reasons: Vec<(Mechanism, Failed)> = Vec::new();
        for mechanism in mechanisms {
            if matches!(mechanism, Mechanism::Kprobe | Mechanism::Kretprobe) && !Path::new(KPROBES).exists() {
                reasons.push((mechanism, Failed::NotOffered));
                continue;
            }
            if names.len() > limit(mechanism) {
                if asked.is_some() {
                    return Err(too_many(&event, names.len(), limit(mechanism)));
                }
                let words = format!("{} functions are too many, the limit is {}", names.len(), limit(mechanism));
                reasons.push((mechanism, Failed::Said(words)));
                continue;
            }
            match self.attach_functions(new, mechanism, &names) {
                Ok(()) => return Ok(()),
                Err(why) => {
                    new.programs.clear();
                    new.status.places = 0;
                    reasons.push((mechanism, why));
                }
            }
        }
        // The spelling is checked only after a failure, because reading all names takes a moment.
        if let Some(name) = pattern.exact()
            && let Ok(all) = KernelFunctions::symbols()
            && !all.contains(name)
        {
            let near = all.near(name);
            let near = if near.is_empty() { String::new() } else { format!(": is it {}?", near.join(", ")) };
            return Err(CollectorError::NoSuchFunction { event, near });
        }
        let words = |(mechanism, why): &(Mechanism, Failed)| {
            let why = match (mechanism, why) {
                (Mechanism::Fentry | Mechanism::Fexit, Failed::NotThere) => "the kernel's types (BTF) have no such function",
                _ => why.words(),
            };
            // A user who chose the mechanism needs no reminder of it.
            if asked.is_some() { why.to_owned() } else { format!("{}: {why}", mechanism.name()) }
        };
        let why: Vec<String> = reasons.iter().map(words).collect();
        Err(CollectorError::NotAttached { event, why: why.join("; ") })
    }

    fn attach_functions(&mut self, new: &mut Attached, mechanism: Mechanism, names: &[String]) -> Result<(), Failed> {
        let number = new.status.source.0;
        match mechanism {
            Mechanism::Fentry | Mechanism::Fexit => {
                for name in names {
                    let mut program = self.load(mechanism, Some(name), number)?;
                    program.attach_to_target()?;
                    new.finish(mechanism, 1, program);
                }
            }
            Mechanism::KprobeMulti | Mechanism::KretprobeMulti => {
                let mut program = self.load(mechanism, None, number)?;
                program.attach_to_functions(names)?;
                new.finish(mechanism, names.len(), program);
            }
            _ => {
                let mut program = self.load(mechanism, None, number)?;
                names.iter().try_for_each(|name| program.attach_to_function(name))?;
                new.finish(mechanism, names.len(), program);
            }
        }
        Ok(())
    }

    /// Starts a new epoch for the programs. It must be called at least ten times a second: then they take as many stacks as the budget
    /// allows.
    pub(super) fn tick(&mut self, now: u64) {
        if self.attached.is_empty() || now.saturating_sub(self.began) < EPOCH {
            return;
        }
        self.began = now;
        self.epoch = self.epoch.wrapping_add(1);
        self.tell();
        if now.saturating_sub(self.cut_at) >= self.least_wait.min(SECOND) {
            self.cut_at = now;
            self.cut_waits();
        }
    }

    /// Cuts the waits of threads that still wait. All threads together are cut as often as the budget of stacks allows.
    fn cut_waits(&mut self) {
        let cuts = self.count_of_waits(records::EventCount::Cuts);
        let (before, budget) = (std::mem::replace(&mut self.cuts, cuts), u64::from(self.budget));
        match cuts.saturating_sub(before) {
            many if many > budget => self.least_age *= 2,
            few if few < budget / 4 => self.least_age = (self.least_age / 2).max(self.least_wait),
            _ => {}
        }
        self.cut_older(self.least_age);
    }

    /// Cuts all waits whose stacks are known, if waits are counted. To be called at the end.
    pub(super) fn cut_last(&mut self) -> bool {
        self.cut_older(0);
        self.attached.iter().any(|attached| attached.waits.is_some())
    }

    fn cut_older(&mut self, least_age: u64) {
        let Some(own) = &self.own else { return };
        for attached in &mut self.attached {
            let number = attached.status.source.0.into();
            attached.waits.iter_mut().for_each(|waits| waits.cut(least_age, self.least_wait, number, &self.shared, own));
        }
    }

    fn count_of_waits(&self, which: records::EventCount) -> u64 {
        let Some(own) = &self.own else { return 0 };
        let of_waits = self.attached.iter().filter(|attached| attached.waits.is_some());
        of_waits.map(|attached| own.counters.total(attached.status.source.0, |bytes| records::event_count(bytes, which))).sum()
    }

    fn tell(&self) {
        let Some(own) = &self.own else { return };
        let sources = u32::try_from(self.attached.len()).unwrap_or(1).max(1);
        let budget = (self.budget / 10 / sources).max(1);
        let value: Vec<u8> = [self.epoch, budget].into_iter().flat_map(u32::to_ne_bytes).collect();
        // Writing cannot fail. If it did, ever fewer stacks would be taken, but the counts would stay right.
        let _ = bpf_memory::write_mapped(own.control.as_fd(), 0, &value);
    }

    /// Follows CPUs that were switched on or off: each counter belongs to one CPU.
    pub(super) fn follow_cpus(&mut self, online: &[u32]) {
        for at in 0..self.attached.len() {
            let Some(Attached { counter: Some(counter), cpus, programs, .. }) = self.attached.get_mut(at) else { continue };
            let counter = *counter;
            let Some(program) = programs.first_mut() else { continue };
            program.keep_links(|number| cpus.get(number).is_some_and(|cpu| online.contains(cpu)));
            cpus.retain(|cpu| online.contains(cpu));
            for cpu in online.iter().filter(|cpu| !cpus.contains(cpu)).copied().collect::<Vec<_>>() {
                // The CPU may be off again.
                let opened = perf_event::open_counter(counter.hardware, counter.number, self.shared.settings.frequency, cpu);
                if opened.is_ok_and(|event| program.attach_to_event(event).is_ok()) {
                    cpus.push(cpu);
                }
            }
        }
    }

    /// Reads how often the kernel ran and skipped the programs. [`Probes::status`] has it from then on.
    pub(super) fn read_runs(&mut self) {
        self.attached.iter_mut().for_each(Attached::read_runs);
    }

    /// Returns the status of each source, in the order in which they were attached.
    pub(super) fn status(&self) -> Vec<EventStatus> {
        let Some(own) = &self.own else { return Vec::new() };
        let of = |attached: &Attached| {
            let mut status = attached.status.clone();
            let counts = |field| own.counters.total(status.source.0, |bytes| records::event_count(bytes, field));
            let missed = attached.runs.missed;
            status.cost = attached.runs.cost(attached.trap);
            if self.shared.settings.filter {
                status.unsure = missed;
            } else {
                status.missed = missed;
            }
            status.events = counts(records::EventCount::Events) + status.missed;
            status.stacks = counts(records::EventCount::Stacks);
            status.cut = counts(records::EventCount::Cut);
            status.busy = counts(records::EventCount::Busy);
            status.own = counts(records::EventCount::Own);
            if attached.waits.is_some() {
                status.waited = Some(status.events + counts(records::EventCount::Asleep));
                status.events = counts(records::EventCount::Waits);
                status.unknown = counts(records::EventCount::Unknown);
                status.stacks += counts(records::EventCount::Cuts);
            }
            status
        };
        self.attached.iter().map(of).collect()
    }

    /// Describes what is not seen, one line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let why = self.attached.iter().filter_map(|attached| attached.waits.as_ref()?.unwatched());
        why.map(|why| format!("waits show when they end, not before: {why}")).collect()
    }

    /// Returns the number of samples so far that found the ring buffer full. The next sample of the source takes over their weight.
    pub(super) fn ring_full(&self) -> u64 {
        let Some(own) = &self.own else { return 0 };
        let of = |attached: &Attached| {
            own.counters.total(attached.status.source.0, |bytes| records::event_count(bytes, records::EventCount::RingFull))
        };
        self.attached.iter().map(of).sum()
    }
}

impl Attached {
    fn new(status: EventStatus) -> Attached {
        Attached { status, programs: Vec::new(), waits: None, runs: Runs::default(), trap: 0, cpus: Vec::new(), counter: None }
    }

    fn read_runs(&mut self) {
        self.runs = Runs::sum(self.programs.iter().map(Programs::runs).chain(self.waits.iter().map(Waits::runs)));
    }

    fn try_out(&mut self) -> Result<(), Costly> {
        cost::try_out(|| {
            self.read_runs();
            (self.runs.count, self.runs.cost(self.trap))
        })
    }

    fn finish(&mut self, mechanism: Mechanism, places: usize, program: Programs) {
        self.status.how = mechanism.name().into();
        self.status.places += places;
        self.programs.push(program);
    }
}

/// Resets the counts of a number.
fn forget_counts(own: &OwnMaps, number: u8) -> Result<(), CollectorError> {
    let length = own.events.value_size() as usize * (own.events.max_entries() / u32::from(MAX_SOURCES)) as usize;
    let forgotten = bpf_memory::write_mapped(own.events.as_fd(), usize::from(number) * length, &vec![0; length]);
    forgotten.map_err(|source| CollectorError::Read { path: "the counters of events", source })
}

fn too_many(event: &str, found: usize, limit: usize) -> CollectorError {
    CollectorError::TooManyFunctions { event: event.to_owned(), found, limit }
}

/// Opens the tracing file system, or mounts it, while flametop still has that privilege. An error is reported later, when tracing is
/// needed.
pub(super) fn prepare() {
    drop(TraceFs::open());
}

/// Returns the kernel's tracepoints as `category:name`. Returns none if the kernel does not list them.
pub fn tracepoints() -> Vec<String> {
    TraceFs::open().and_then(|tracing| tracing.tracepoints()).unwrap_or_default()
}

/// A function that every kernel has and that can be traced.
const TRIED_FUNCTION: &str = "vfs_read";
/// A tracepoint that every kernel has.
const TRIED_EVENT: (&str, &str) = ("sched", "sched_process_exec");

/// Tries each mechanism for a moment. For a mechanism that fails, returns the reason in words.
pub(super) fn try_all(shared: SharedMaps) -> Vec<(Mechanism, Result<(), String>)> {
    let mut probes = Probes::new(shared, Backtrace::Kernel, 10, Duration::from_secs(1));
    let cpus = machine::online_cpus().unwrap_or_default();
    let mut attempt = |mechanism: Mechanism| {
        let (spec, places) = match mechanism {
            Mechanism::Tracepoint => {
                let (category, name) = TRIED_EVENT;
                (EventSpec::Tracepoint { category: category.to_owned(), name: name.to_owned() }, Vec::new())
            }
            Mechanism::PerfEvent => (EventSpec::Counter(COUNTERS[2]), Vec::new()),
            Mechanism::Uprobe | Mechanism::Uretprobe => {
                let functions = NamePattern::Exact(String::new());
                (
                    EventSpec::User { mechanism, file: None, functions },
                    cost::own_place(try_all as *const () as usize).into_iter().collect(),
                )
            }
            _ => {
                let functions = NamePattern::Exact(TRIED_FUNCTION.to_owned());
                (EventSpec::Kernel { mechanism: Some(mechanism), functions }, Vec::new())
            }
        };
        let request = EventRequest { name: mechanism.name().to_owned(), spec, places, is_agreed: true };
        let attached = probes.attach(&request, &cpus).map(|source| probes.detach(source));
        attached.map_err(|error| match error {
            CollectorError::NotAttached { why, .. } => why,
            other => other.to_string(),
        })
    };
    Mechanism::ALL.into_iter().map(|mechanism| (mechanism, attempt(mechanism))).collect()
}

/// A file that a process has mapped as code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeFile {
    /// A link that opens the file even if its path has changed or lies in another root directory.
    pub link: PathBuf,
    /// The path in the process's view.
    pub path: String,
}

/// Returns the files that a process has mapped as code, each once. Returns none if the process is gone.
pub fn code_files(tgid: Tgid) -> Vec<CodeFile> {
    let mut seen = HashSet::new();
    // The user waits for the answer, so the wait is bounded.
    let read = io_timeout::within(0, FailureDomain::process(tgid), io_timeout::PATIENCE, move || proc::maps(tgid.0));
    let mapped = read.ok().flatten().unwrap_or_default().mapped.into_iter();
    let files = mapped.filter(|mapped| mapped.path.starts_with('/') && seen.insert((mapped.identity, mapped.path.clone())));
    let links = directory(tgid.0).join("map_files");
    let link = |mapped: &proc::Mapped| links.join(format!("{:x}-{:x}", mapped.start, mapped.end));
    files.map(|mapped| CodeFile { link: link(&mapped), path: mapped.path }).collect()
}

/// Returns the number of a tracepoint. The error suggests similar names.
fn tracepoint(category: &str, name: &str) -> Result<u64, CollectorError> {
    let tracing = TraceFs::open().map_err(|source| CollectorError::Read { path: "/sys/kernel/tracing", source })?;
    tracing.tracepoint(category, name).map_err(|source| {
        if source.kind() != std::io::ErrorKind::NotFound {
            return CollectorError::Read { path: "/sys/kernel/tracing/events", source };
        }
        let all = tracing.tracepoints().unwrap_or_default();
        let near = nearest(&format!("{category}:{name}"), all.iter().map(String::as_str));
        let near = if near.is_empty() { String::new() } else { format!(": is it {}?", near.join(", ")) };
        CollectorError::NoSuchTracepoint { event: format!("{category}:{name}"), near }
    })
}

fn no_counter(counter: Counter, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) if counter.hardware => {
            "the processor has no such counter, or the virtual machine does not provide it".to_owned()
        }
        _ => Failed::of_io(error).words().to_owned(),
    }
}
