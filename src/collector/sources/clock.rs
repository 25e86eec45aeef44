//! The clock's BPF program, the clock on each CPU, and the ring buffer of its records.

use crate::collector::machine::kernel_is_at_least;
use crate::collector::processes::moved::{MovedEntry, MovedPlace};
use crate::collector::sources::rings::{Rings, dump_ring_bytes, most_dump_pages};
use crate::collector::sources::walk::Walk;
use crate::collector::sys::machine;
use crate::collector::sys::scheduling;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use crate::collector::bpf_errors::{bpf_error, forget_complaint};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, OpenObject};

use rustix::event::{Timespec, epoll};

use crate::collector::error::CollectorError;
use crate::collector::sys::bpf_memory::Counters;
use crate::collector::sys::perf_event::{self, Clock};
use crate::collector::tables::{Cache, Tables};
use crate::collector::wire::pending::Pending;
use crate::collector::wire::records::{self, MAX_FRAMES, Walked};
use crate::runtimes::RuntimeBytes;
use crate::runtimes::hotspot::JvmBytes;

#[allow(unsafe_code, unreachable_pub, unused_qualifications, clippy::all, clippy::restriction)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/sampler.skel.rs"));
}

use skeleton::{SamplerSkel, SamplerSkelBuilder};

/// The first kernel that refuses to copy user memory in an NMI while it switches between processes: `nmi_uaccess_okay()` in
/// `copy_from_user_nofault()`, commit d319f344561d.
const COPIES_ARE_REFUSED: (u32, u32) = (6, 3);

/// Most targets that the kernel's map can hold: 32 bytes each and a bucket.
pub(crate) const MAX_TARGETS: u32 = 16_384;

/// Settings that the program gets before it is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How user stacks are walked.
    pub(crate) walk: Walk,
    /// Whether walks have a time limit: see `bpf/walk/budget.h`.
    pub(crate) limit_walks: bool,
    /// Samples a second on each CPU.
    pub(crate) frequency: u32,
    /// Whether idle CPUs are sampled.
    pub(crate) include_idle: bool,
    /// Whether flametop itself is sampled.
    pub(crate) include_self: bool,
    /// Whether only targets are sampled.
    pub(crate) filter: bool,
    /// Whether children of targets become targets.
    pub(crate) follow_forks: bool,
    /// Bytes of the ring buffer: a power of two, and a multiple of the page size.
    pub(crate) ring_bytes: u32,
}

impl Settings {
    /// Returns the process whose samples and events are left out: `own_tgid`, or 0 for none.
    pub(crate) fn left_out(&self) -> u32 {
        if self.include_self { 0 } else { std::process::id() }
    }
}

/// Maps and settings that event programs share with the clock's program.
pub(crate) struct SharedMaps {
    pub(crate) records: MapHandle,
    pub(crate) stack_dumps: MapHandle,
    pub(crate) targets: MapHandle,
    pub(crate) runtimes: MapHandle,
    pub(crate) jvms: MapHandle,
    pub(crate) moved: MapHandle,
    pub(crate) segments: MapHandle,
    pub(crate) objects: MapHandle,
    pub(crate) files: MapHandle,
    /// Number of elements of `cpu_states`. CPUs with a lower number have one.
    pub(crate) cpu_states: u32,
    pub(crate) settings: Settings,
    /// See `max_depth`.
    pub(crate) max_depth: u32,
}

/// The loaded sampling program. [`Sampler::attach`] attaches it to the clock of each CPU.
///
/// Fields are dropped in order: clocks before the ring, and the ring before its map.
pub(crate) struct Sampler {
    clocks: BTreeMap<u32, Link>,
    fork: Option<Link>,
    rings: Rings,
    /// Becomes readable when the program wakes the reader.
    wakes: OwnedFd,
    counters: Counters,
    forks: Counters,
    skeleton: SamplerSkel<'static>,
    clock: Clock,
    /// Whether the clock should tick.
    ticks: bool,
    settings: Settings,
    /// Processes that are in the map `runtimes`.
    runtimes: BTreeSet<u32>,
    /// Number of processes that were added so far, starting with one.
    runtimes_added: u32,
    /// Number of elements of `cpu_states`.
    states: u32,
    /// CPUs that are switched on but have no element.
    left_out: Vec<u32>,
    reading: Reading,
    /// The time when [`Sampler::watch_memory`] last checked for failed memory.
    memory_asked: u64,
}

/// How stacks are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// In place, through the kernel's direct map: see `bpf/lookup/physmap.h`.
    InPlace,
    /// From copies.
    Copied,
    /// From copies, because a part of the memory has failed.
    CopiedOfFailing,
}

/// Least number of CPUs that can be switched on later, unless the machine can have fewer.
const RESERVED: u32 = 8;

/// Nanoseconds between two checks for failed memory.
const ASK_OF_MEMORY: u64 = 60_000_000_000;

impl Sampler {
    /// Loads the program. Nothing is sampled yet, but forks of targets are followed.
    pub(crate) fn load(settings: Settings) -> Result<Sampler, CollectorError> {
        // Reading in place only makes sampling faster. If its program does not load, the others are loaded without it.
        let cpus = online_cpus()?;
        let possible = possible_cpus().map_err(|source| CollectorError::Read { path: "the list of CPUs", source })?;
        let states = room_for(&cpus, possible);
        let (skeleton, reading) = match load_programs(settings, states, true) {
            Ok(skeleton) => {
                #[cfg(target_arch = "x86_64")]
                let reads_in_place =
                    settings.walk != Walk::Copied && crate::collector::sys::direct_map::find(&skeleton.progs.find_direct_map);
                #[cfg(not(target_arch = "x86_64"))]
                let reads_in_place = false;
                (skeleton, if reads_in_place { Reading::InPlace } else { Reading::Copied })
            }
            Err(_) => (load_programs(settings, states, false)?, Reading::Copied),
        };

        let attach = |error| bpf_error("follow forks by the tracepoint sched_process_fork", &error);
        let fork = if settings.follow_forks { Some(skeleton.progs.follow_fork.attach_trace().map_err(attach)?) } else { None };
        let rings = Rings::new(&skeleton.maps.records, &skeleton.maps.stack_dumps)?;
        let wakes = wakes_of(&skeleton.maps.records)
            .map_err(|source| CollectorError::Read { path: "the ring buffer's wake-ups", source })?;
        let clock = Clock::CpuClock;
        let counters = counters_of(&skeleton.maps.counters, 1)?;
        let forks = counters_of(&skeleton.maps.forks, 1)?;
        Ok(Sampler {
            clocks: BTreeMap::new(),
            fork,
            rings,
            wakes,
            counters,
            forks,
            skeleton,
            clock,
            ticks: false,
            settings,
            runtimes: BTreeSet::new(),
            runtimes_added: 0,
            states,
            left_out: Vec::new(),
            reading,
            memory_asked: machine::now().0,
        })
    }

    /// Starts the clock on these CPUs: the cycle counter if all of them have one, else the kernel's timer.
    pub(crate) fn attach(&mut self, cpus: &[u32]) -> Result<(), CollectorError> {
        let counted = cpus.iter().all(|cpu| perf_event::open_clock(Clock::Cycles, self.settings.frequency, *cpu).is_ok());
        self.clock = if counted { Clock::Cycles } else { Clock::CpuClock };
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            bss.ticks_are_nmis = u32::from(counted);
            bss.copies_are_refused = u32::from(kernel_is_at_least(COPIES_ARE_REFUSED));
        }
        self.ticks = true;
        cpus.iter().try_for_each(|cpu| self.attach_cpu(*cpu))
    }

    fn attach_cpu(&mut self, cpu: u32) -> Result<(), CollectorError> {
        let frequency = self.settings.frequency;
        let event = perf_event::open_clock(self.clock, frequency, cpu);
        let event = event.map_err(|error| {
            too_frequent(frequency, &error).unwrap_or_else(|| CollectorError::event(self.clock.name(), cpu, error))
        })?;
        let link = self.skeleton.progs.take_sample.attach_perf_event(event.as_raw_fd());
        let link = link.map_err(|error| bpf_error("attach the BPF program to the sampling clock", &error))?;
        // The link closes it (libbpf: bpf_link_perf_dealloc).
        let _ = std::os::fd::IntoRawFd::into_raw_fd(event);
        self.clocks.insert(cpu, link);
        Ok(())
    }

    /// Returns how stacks are read.
    pub(crate) fn reading(&self) -> Reading {
        self.reading
    }

    /// Returns the CPUs that are not sampled because there is no room for their state.
    pub(crate) fn left_out(&self) -> &[u32] {
        &self.left_out
    }

    /// Checks once a minute whether memory has failed. If so, stacks are copied from then on: loading failed memory in the kernel stops the
    /// machine.
    pub(crate) fn watch_memory(&mut self, now: u64) {
        if self.reading != Reading::InPlace || now.saturating_sub(self.memory_asked) < ASK_OF_MEMORY {
            return;
        }
        self.memory_asked = now;
        #[cfg(target_arch = "x86_64")]
        if crate::collector::sys::direct_map::has_failed(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()) {
            self.copy_from_now_on();
        }
    }

    /// Stops reading in place, because memory has failed.
    #[cfg(target_arch = "x86_64")]
    fn copy_from_now_on(&mut self) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            bss.direct_map.begin = 0;
            self.reading = Reading::CopiedOfFailing;
        }
    }

    /// Stops the clock.
    pub(crate) fn stop(&mut self) {
        self.ticks = false;
        self.clocks.clear();
    }

    /// Follows CPUs that were switched on or off. If the clock of a CPU cannot be started, the next call tries again.
    pub(crate) fn follow_cpus(&mut self, online: &[u32]) {
        self.clocks.retain(|cpu, _| online.contains(cpu));
        self.left_out = online.iter().copied().filter(|cpu| *cpu >= self.states).collect();
        for cpu in online {
            if self.ticks && *cpu < self.states && !self.clocks.contains_key(cpu) {
                // The CPU may be off again.
                let _ = self.attach_cpu(*cpu);
            }
        }
    }

    /// Returns the clock that ticks.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads all records from the ring buffer, and gives the pending records to `with`.
    pub(crate) fn drain<R>(&mut self, with: impl FnOnce(&mut Pending) -> R) -> Result<R, CollectorError> {
        self.rings.read()?;
        Ok(with(&mut self.rings.pending()))
    }

    /// Returns the number of malformed records so far.
    pub(crate) fn malformed(&self) -> u64 {
        self.rings.pending().count_of_malformed()
    }

    /// Returns the number of ticks so far that found the ring buffer full, on all CPUs.
    pub(crate) fn ring_full(&self) -> u64 {
        self.counters.total(0, records::ring_full)
    }

    /// Returns the number of ticks so far in flametop itself, on all CPUs. They are left out.
    pub(crate) fn own(&self) -> u64 {
        self.counters.total(0, records::own)
    }

    /// Returns the counts of the walk by tables so far.
    pub(crate) fn walked(&self) -> Walked {
        let sum = |member| self.counters.total(0, |counters| records::walked(counters, member));
        Walked { frames: sum(0), mapping_misses: sum(1), rule_misses: sum(2), guesses: sum(3), retraced: sum(4), moved: sum(5) }
    }

    /// Returns the tables that the walk reads, still empty. They take at most `kernel_memory` bytes in the kernel.
    pub(crate) fn tables(&self, cache: Option<Cache>, kernel_memory: u64) -> Result<Tables, CollectorError> {
        let maps = &self.skeleton.maps;
        let handle = |map| MapHandle::try_from(map).map_err(|error| bpf_error("share the maps of unwind tables", &error));
        Ok(Tables::start(handle(&maps.segments)?, handle(&maps.objects)?, handle(&maps.files)?, cache, kernel_memory))
    }

    /// Returns the maps and settings that event programs need.
    pub(crate) fn share(&self) -> Result<SharedMaps, CollectorError> {
        let maps = &self.skeleton.maps;
        let handle = |map| MapHandle::try_from(map).map_err(|error| bpf_error("share the maps of samples", &error));
        Ok(SharedMaps {
            records: handle(&maps.records)?,
            stack_dumps: handle(&maps.stack_dumps)?,
            targets: handle(&maps.targets)?,
            runtimes: handle(&maps.runtimes)?,
            jvms: handle(&maps.jvms)?,
            moved: handle(&maps.moved)?,
            segments: handle(&maps.segments)?,
            objects: handle(&maps.objects)?,
            files: handle(&maps.files)?,
            cpu_states: self.states,
            settings: self.settings,
            max_depth: max_depth(),
        })
    }

    /// Returns the number of forks so far that could not be followed. Their processes are not sampled.
    pub(crate) fn forks_lost(&self) -> u64 {
        if self.fork.is_some() { self.forks.total(0, records::targets_full) } else { 0 }
    }

    /// Makes [`Sampler::wait`] also end when this descriptor becomes readable. A closed descriptor is forgotten.
    pub(crate) fn wake_for(&self, readable: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.wakes, readable, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }

    /// Sleeps until the ring buffer is more than half full, a table is requested, a descriptor of [`Sampler::wake_for`] is readable, or the
    /// timeout is over.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout = Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() };
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 1];
        // A signal ends the wait early; then the caller only does its checks early.
        let _ = epoll::wait(&self.wakes, &mut events, Some(&timeout));
    }

    /// Makes a process a target.
    pub(crate) fn add_target(&self, tgid: u32) -> Result<(), CollectorError> {
        let targets = &self.skeleton.maps.targets;
        let added = scheduling::undisturbed(|| targets.update(&tgid.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY));
        added.map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => bpf_error("add a target", &error),
            _ => CollectorError::TooManyTargets { limit: MAX_TARGETS },
        })
    }

    /// Removes a process from the targets, so that a later process with the same number is no target.
    pub(crate) fn remove_target(&self, tgid: u32) {
        // The process may never have been a target.
        let _ = scheduling::undisturbed(|| self.skeleton.maps.targets.delete(&tgid.to_ne_bytes()));
    }

    /// Tells BPF which code is in anonymous memory of a process. `None`: not known any more.
    pub(crate) fn set_moved(&self, (tgid, start): MovedPlace, entry: Option<MovedEntry>) {
        let map = &self.skeleton.maps.moved;
        let [start, offset, beside] = [start, entry.map_or(0, |entry| entry.offset), entry.map_or(0, |entry| entry.beside)];
        let key = [start.to_ne_bytes(), [tgid.to_ne_bytes(), [0; 4]].concat().try_into().unwrap_or_default()].concat();
        // Without the entry, BPF asks again.
        let _ = scheduling::undisturbed(|| match entry {
            Some(_) => map.update(&key, &[offset.to_ne_bytes(), beside.to_ne_bytes()].concat(), MapFlags::ANY),
            None => map.delete(&key),
        });
    }

    /// Tells BPF where the JVM of a process has its code. To be called before [`set_runtime`](Self::set_runtime).
    pub(crate) fn set_jvm(&mut self, tgid: u32, jvm: Option<&JvmBytes>) {
        let map = &self.skeleton.maps.jvms;
        let key = tgid.to_ne_bytes();
        // Without the entry, BPF takes the process for one without a JVM.
        let _ = scheduling::undisturbed(|| match jvm {
            Some(jvm) => map.update(&key, jvm, MapFlags::ANY),
            None => map.delete(&key),
        });
    }

    /// Tells BPF where a process keeps the functions of its interpreter. `None` means that the process no longer has any.
    pub(crate) fn set_runtime(&mut self, tgid: u32, runtime: Option<&RuntimeBytes>) {
        let map = &self.skeleton.maps.runtimes;
        let key = tgid.to_ne_bytes();
        let done = scheduling::undisturbed(|| match runtime {
            Some(runtime) => map.update(&key, runtime, MapFlags::ANY),
            None => map.delete(&key),
        });
        if done.is_ok() {
            match runtime {
                Some(_) => {
                    self.runtimes.insert(tgid);
                    self.runtimes_added = self.runtimes_added.wrapping_add(1).max(1);
                }
                None => drop(self.runtimes.remove(&tgid)),
            }
        }
        // The stamp is written after the map: BPF remembers under this number which processes the map lacked.
        let stamp = if self.runtimes.is_empty() { 0 } else { self.runtimes_added };
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut().filter(|bss| bss.runtimes_stamp != stamp) {
            bss.runtimes_stamp = stamp;
        }
    }
}

/// Returns the number of elements of `cpu_states`. Each CPU number up to the highest that is switched on gets one. In addition there are as
/// many as CPUs are on, at least [`RESERVED`]. The number of possible CPUs is the limit. It can be large: a hypervisor may announce 512
/// CPUs and switch on two.
fn room_for(online: &[u32], possible: u32) -> u32 {
    let there = online.iter().max().map_or(1, |highest| highest.saturating_add(1));
    let to_come = u32::try_from(online.len()).unwrap_or(u32::MAX).max(RESERVED);
    there.saturating_add(to_come).min(possible.max(there))
}

/// Loads the programs, with `states` elements of `cpu_states`, and with or without the program that finds the direct map (x86_64).
fn load_programs(settings: Settings, states: u32, finds_direct_map: bool) -> Result<SamplerSkel<'static>, CollectorError> {
    forget_complaint();
    // The skeleton borrows this object for its whole life, and the sampler must own the skeleton. So one pointer is leaked for each
    // collector; the object that it points to is closed when the skeleton is dropped.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = SamplerSkelBuilder::default().open(place).map_err(|error| bpf_error("open the BPF programs", &error))?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.include_idle = u32::from(settings.include_idle);
        rodata.filter_targets = u32::from(settings.filter);
        rodata.own_tgid = settings.left_out();
        rodata.walk_how = settings.walk as u32;
        rodata.max_depth = max_depth();
        if !settings.limit_walks {
            rodata.walk_time = 0;
        }
        rodata.half_ring = u64::from(settings.ring_bytes / 2);
        rodata.most_dump_pages = most_dump_pages(settings.walk);
        #[cfg(target_arch = "aarch64")]
        {
            rodata.signature_mask = crate::collector::sys::kcore::signature_mask();
            rodata.linear_offset = crate::collector::sys::kcore::linear_offset();
        }
    }
    open.progs.follow_fork.set_autoload(settings.follow_forks);
    #[cfg(target_arch = "x86_64")]
    open.progs.find_direct_map.set_autoload(finds_direct_map);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = finds_direct_map;
    let sized = open.maps.records.set_max_entries(settings.ring_bytes);
    let sized = sized.and_then(|()| open.maps.targets.set_max_entries(if settings.filter { MAX_TARGETS } else { 1 }));
    let sized = sized.and_then(|()| open.maps.stack_dumps.set_max_entries(dump_ring_bytes(settings.walk)));
    let sized = sized.and_then(|()| {
        let cpus = possible_cpus()?;
        open.maps.cpu_states.set_max_entries(states)?;
        open.maps.counters.set_max_entries(cpus)?;
        open.maps.forks.set_max_entries(cpus)
    });
    sized.map_err(|error| bpf_error("size the BPF maps", &error))?;
    open.load().map_err(|error| bpf_error("load the BPF programs", &error))
}

/// Returns a descriptor that becomes readable when a program wakes the ring buffer's reader. It is edge-triggered: otherwise it would be
/// readable whenever there is a record, and most records are sent without a wake-up.
fn wakes_of(ring: &impl AsFd) -> io::Result<OwnedFd> {
    let wakes = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&wakes, ring, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    Ok(wakes)
}

/// Maps the counters of a map.
pub(crate) fn counters_of(map: &impl MapCore, numbers: u8) -> Result<Counters, CollectorError> {
    let counters = possible_cpus().and_then(|cpus| Counters::new(map.as_fd(), map.value_size() as usize, cpus, numbers));
    counters.map_err(|source| CollectorError::Read { path: "the counters of the BPF programs", source })
}

/// Tries to load the programs, including the program that follows forks, and drops them: to find out what the kernel supports.
pub(crate) fn try_following_forks() -> Result<(), CollectorError> {
    let (filter, follow_forks) = (true, true);
    Sampler::load(Settings { filter, follow_forks, ..TRYING }).map(drop)
}

/// Settings for trying to load a sampler.
const TRYING: Settings = Settings {
    walk: Walk::Tables,
    limit_walks: true,
    frequency: 99,
    include_idle: false,
    include_self: false,
    filter: false,
    follow_forks: false,
    ring_bytes: 4096 * 16,
};

/// Loads a sampler that is never attached, for trying features that need one.
pub(crate) fn for_trying() -> Result<Sampler, CollectorError> {
    Sampler::load(TRYING)
}

/// Returns the CPUs that are switched on.
fn online_cpus() -> Result<Vec<u32>, CollectorError> {
    machine::online_cpus().map_err(|source| CollectorError::Read { path: "/sys/devices/system/cpu/online", source })
}

/// Returns the highest possible CPU number plus one. (libbpf counts the CPUs instead, but numbers may be left out.)
pub(crate) fn possible_cpus() -> io::Result<u32> {
    static FOUND: OnceLock<u32> = OnceLock::new();
    match FOUND.get() {
        Some(found) => Ok(*found),
        None => {
            let last = machine::possible_cpus()?.into_iter().max();
            Ok(*FOUND.get_or_init(|| last.map_or(1, |last| last + 1)))
        }
    }
}

/// Returns `kernel.perf_event_max_stack`, the kernel's limit for stacks, but at most the limit of the records.
fn max_depth() -> u32 {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").ok();
    limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(MAX_FRAMES).clamp(1, MAX_FRAMES)
}

/// Returns an error about too high a frequency, if that caused the `EINVAL`.
fn too_frequent(frequency: u32, error: &io::Error) -> Option<CollectorError> {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?.trim().parse().ok()?;
    let too_high = error.raw_os_error() == Some(libc::EINVAL) && u64::from(frequency) > limit;
    too_high.then_some(CollectorError::TooFrequent { frequency, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Then all tests of stack walks test reading in place. A machine that copies stacks would test the other way.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn stacks_are_read_in_place() {
        assert_eq!(for_trying().expect("this test needs root").reading(), Reading::InPlace, "see `flametop doctor`");
        let copies = Sampler::load(Settings { walk: Walk::Copied, ..TRYING }).expect("this test needs root");
        assert_eq!(copies.reading(), Reading::Copied);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn stacks_are_copied_once_memory_has_failed() {
        let mut sampler = for_trying().expect("this test needs root");
        let begin = |sampler: &Sampler| sampler.skeleton.maps.bss_data.as_deref().unwrap().direct_map.begin;
        assert!(begin(&sampler) > 0);
        sampler.copy_from_now_on();
        assert_eq!((sampler.reading(), begin(&sampler)), (Reading::CopiedOfFailing, 0));
    }

    #[test]
    fn cpus_that_are_switched_on_and_some_to_come_have_a_state() {
        assert_eq!(room_for(&[0, 1], 2), 2);
        assert_eq!(room_for(&[0, 1], 512), 10, "2.2 MB instead of 115");
        assert_eq!(room_for(&(0..64).collect::<Vec<_>>(), 128), 128);
        assert_eq!(room_for(&(0..64).collect::<Vec<_>>(), 72), 72);
        assert_eq!(room_for(&[0, 300], 512), 309, "numbers may have gaps");
        assert_eq!(room_for(&[0, 16], 8), 17, "what is there counts more than what there may be");
        let sampler = for_trying().expect("this test needs root");
        let room = room_for(&machine::online_cpus().unwrap(), possible_cpus().unwrap());
        assert_eq!(sampler.skeleton.maps.cpu_states.max_entries(), room);
    }

    #[test]
    fn a_cpu_without_a_state_is_left_out() {
        let mut sampler = for_trying().expect("this test needs root");
        let online = machine::online_cpus().unwrap();
        sampler.attach(&online).unwrap();
        let (first, others) = online.split_first().unwrap();
        assert!(!others.is_empty(), "NOT TESTED: this machine has one CPU");
        sampler.states = first + 1;
        sampler.follow_cpus(&[*first]);
        assert!(sampler.left_out().is_empty());
        sampler.follow_cpus(&online);
        assert_eq!(sampler.left_out(), others);
        assert_eq!(sampler.clocks.keys().collect::<Vec<_>>(), [first]);
    }

    #[test]
    fn a_frequency_above_the_limit_is_said_to_be() {
        let einval = io::Error::from_raw_os_error(libc::EINVAL);
        assert!(matches!(too_frequent(u32::MAX, &einval), Some(CollectorError::TooFrequent { .. })));
        assert!(too_frequent(1, &einval).is_none());
    }
}
