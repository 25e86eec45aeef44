//! The BPF programs of one source of events: loaded for this source only, and attached where its events happen.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapHandle, OpenMapMut, OpenObject, OpenProgramMut, ProgramMut, UprobeOpts};

use super::failure::Failed;
use super::spec::{Backtrace, Mechanism};
use crate::collector::bpf_errors::{bpf_error, forget_complaint};
use crate::collector::error::CollectorError;
use crate::collector::sources::clock::{SharedMaps, counters_of, possible_cpus};
use crate::collector::sources::rings::most_dump_pages;
use crate::collector::sys::bpf_memory::Counters;

#[allow(unsafe_code, unreachable_pub, unused_qualifications, clippy::all, clippy::restriction)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/probes.skel.rs"));
}

use skeleton::{OpenProbesProgs, ProbesProgs, ProbesSkel, ProbesSkelBuilder};

/// `MAX_SOURCES`: numbers of sources are below it. 0 is the clock's number.
pub(super) const MAX_SOURCES: u8 = 64;

/// The maps that the programs of all event sources share, in addition to the clock's maps.
pub(super) struct OwnMaps {
    /// Counts by the number of the source and the CPU.
    pub(super) events: MapHandle,
    pub(super) counters: Counters,
    /// The epoch and the budget of the programs, renewed at each epoch.
    pub(super) control: MapHandle,
    pub(super) states: MapHandle,
}

/// Settings that a program gets before it is loaded.
#[derive(Clone, Copy)]
pub(super) struct ProbeSettings {
    pub(super) number: u32,
    pub(super) backtrace: Backtrace,
}

/// The runs of a BPF program, as the kernel counted them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Runs {
    /// How often it ran. 0 if the kernel does not count that.
    pub(super) count: u64,
    /// Nanoseconds in which it ran. 0 if the kernel does not measure that.
    pub(super) time: u64,
    /// How often the kernel skipped it, because that CPU was already busy with a BPF program or map.
    pub(super) missed: u64,
}

impl Runs {
    /// Reads `/proc/self/fdinfo/NUMBER` of a program.
    pub(super) fn parse(info: &str) -> Runs {
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Runs { count: field("run_cnt"), time: field("run_time_ns"), missed: field("recursion_misses") }
    }

    /// Reads those of a program.
    pub(super) fn of(program: &ProgramMut<'_>) -> Runs {
        let number = program.as_fd().as_raw_fd();
        Runs::parse(&std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default())
    }

    pub(super) fn sum(runs: impl Iterator<Item = Runs>) -> Runs {
        runs.fold(Runs::default(), |sum, runs| Runs {
            count: sum.count + runs.count,
            time: sum.time + runs.time,
            missed: sum.missed + runs.missed,
        })
    }

    /// Returns the nanoseconds of these runs and their traps. `trap`: nanoseconds of one trap.
    pub(super) fn cost(&self, trap: u64) -> u64 {
        self.time.saturating_add(self.count.saturating_mul(trap))
    }
}

/// A loaded program, and where it is attached.
///
/// Fields are dropped in order: the links before the program.
pub(super) struct Programs {
    links: Vec<Link>,
    skeleton: ProbesSkel<'static>,
    mechanism: Mechanism,
}

fn open_program<'a, 'obj>(programs: &'a mut OpenProbesProgs<'obj>, mechanism: Mechanism) -> &'a mut OpenProgramMut<'obj> {
    match mechanism {
        Mechanism::PerfEvent => &mut programs.on_perf_event,
        Mechanism::Kprobe => &mut programs.on_kprobe,
        Mechanism::Kretprobe => &mut programs.on_kretprobe,
        Mechanism::KprobeMulti => &mut programs.on_kprobe_multi,
        Mechanism::KretprobeMulti => &mut programs.on_kretprobe_multi,
        Mechanism::Uprobe => &mut programs.on_uprobe,
        Mechanism::Uretprobe => &mut programs.on_uretprobe,
        Mechanism::Tracepoint => &mut programs.on_tracepoint,
        Mechanism::Fentry => &mut programs.on_entry,
        Mechanism::Fexit => &mut programs.on_exit,
    }
}

fn program<'a, 'obj>(programs: &'a ProbesProgs<'obj>, mechanism: Mechanism) -> &'a ProgramMut<'obj> {
    match mechanism {
        Mechanism::PerfEvent => &programs.on_perf_event,
        Mechanism::Kprobe => &programs.on_kprobe,
        Mechanism::Kretprobe => &programs.on_kretprobe,
        Mechanism::KprobeMulti => &programs.on_kprobe_multi,
        Mechanism::KretprobeMulti => &programs.on_kretprobe_multi,
        Mechanism::Uprobe => &programs.on_uprobe,
        Mechanism::Uretprobe => &programs.on_uretprobe,
        Mechanism::Tracepoint => &programs.on_tracepoint,
        Mechanism::Fentry => &programs.on_entry,
        Mechanism::Fexit => &programs.on_exit,
    }
}

/// What both kinds of programs at events need before they are loaded: their settings, and the maps that exist already. (Their skeletons have
/// the same fields in different types.) Without `$states`, the programs have their own: one if `$own` is there, else one for each CPU.
macro_rules! prepare_events {
    ($open:expr, $number:expr, $shared:expr, $own:expr, $states:expr) => {{
        let (open, shared, own): (_, &SharedMaps, Option<&OwnMaps>) = ($open, $shared, $own);
        let cpus = possible_cpus().map_err(|error| Failed::of_io(&error))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.filter_targets = u32::from(shared.settings.filter);
            rodata.own_tgid = shared.settings.left_out();
            rodata.walk_how = shared.settings.walk as u32;
            rodata.max_depth = shared.max_depth;
            if !shared.settings.limit_walks {
                rodata.walk_time = 0;
            }
            rodata.half_ring = u64::from(shared.settings.ring_bytes / 2);
            rodata.most_dump_pages = most_dump_pages(shared.settings.walk);
            rodata.source_number = $number;
            rodata.cpus = cpus;
            #[cfg(target_arch = "aarch64")]
            {
                rodata.signature_mask = crate::collector::sys::kcore::signature_mask();
                rodata.linear_offset = crate::collector::sys::kcore::linear_offset();
            }
        }
        let maps = &mut open.maps;
        let mut share = || -> libbpf_rs::Result<()> {
            let reuse = |map: &mut OpenMapMut<'_>, handle: &MapHandle| map.reuse_fd(handle.as_fd());
            reuse(&mut maps.records, &shared.records)?;
            reuse(&mut maps.stack_dumps, &shared.stack_dumps)?;
            reuse(&mut maps.targets, &shared.targets)?;
            reuse(&mut maps.runtimes, &shared.runtimes)?;
            reuse(&mut maps.jvms, &shared.jvms)?;
            reuse(&mut maps.moved, &shared.moved)?;
            reuse(&mut maps.segments, &shared.segments)?;
            reuse(&mut maps.objects, &shared.objects)?;
            reuse(&mut maps.files, &shared.files)?;
            match own {
                Some(own) => {
                    reuse(&mut maps.events, &own.events)?;
                    reuse(&mut maps.control, &own.control)?;
                }
                None => maps.events.set_max_entries(u32::from(MAX_SOURCES) * cpus)?,
            }
            let states: Option<&MapHandle> = $states;
            match states {
                Some(states) => reuse(&mut maps.cpu_states, states),
                None => maps.cpu_states.set_max_entries(if own.is_some() { 1 } else { shared.cpu_states }),
            }
        };
        share().map_err(|error| Failed::of(&error))?;
    }};
}

/// Returns the maps of a loaded skeleton, for programs that are loaded later.
macro_rules! own_maps {
    ($skeleton:expr) => {{
        let maps = &$skeleton.maps;
        let handle = |map| MapHandle::try_from(map).map_err(|error| bpf_error("share the maps of events", &error));
        let counters = counters_of(&maps.events, MAX_SOURCES)?;
        Ok(OwnMaps {
            events: handle(&maps.events)?,
            counters,
            control: handle(&maps.control)?,
            states: handle(&maps.cpu_states)?,
        })
    }};
}

pub(super) use {own_maps, prepare_events};

impl Programs {
    /// Loads the program of a mechanism. For fentry and fexit, loads it for this function.
    pub(super) fn load(
        mechanism: Mechanism,
        function: Option<&str>,
        told: ProbeSettings,
        shared: &SharedMaps,
        own: Option<&OwnMaps>,
    ) -> Result<Programs, Failed> {
        forget_complaint();
        // As in the sampler, one pointer is leaked.
        let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ProbesSkelBuilder::default().open(place).map_err(|error| Failed::of(&error))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.backtrace = told.backtrace as u32;
        }
        for other in Mechanism::ALL {
            open_program(&mut open.progs, other).set_autoload(other == mechanism);
        }
        if let Some(function) = function {
            let target = open_program(&mut open.progs, mechanism).set_attach_target(0, Some(function.to_owned()));
            target.map_err(|error| Failed::of(&error))?;
        }
        prepare_events!(&mut open, told.number, shared, own, own.map(|own| &own.states));
        let skeleton = open.load().map_err(|error| Failed::of(&error))?;
        Ok(Programs { links: Vec::new(), skeleton, mechanism })
    }

    /// Returns the maps, for programs that are loaded later.
    pub(super) fn own_maps(&self) -> Result<OwnMaps, CollectorError> {
        own_maps!(self.skeleton)
    }

    fn keep(&mut self, link: libbpf_rs::Result<Link>) -> Result<(), Failed> {
        self.links.push(link.map_err(|error| Failed::of(&error))?);
        Ok(())
    }

    /// Attaches an fentry or fexit program to its function.
    pub(super) fn attach_to_target(&mut self) -> Result<(), Failed> {
        let link = program(&self.skeleton.progs, self.mechanism).attach_trace();
        self.keep(link)
    }

    /// Attaches the program to a function by a kprobe.
    pub(super) fn attach_to_function(&mut self, function: &str) -> Result<(), Failed> {
        let returns = self.mechanism == Mechanism::Kretprobe;
        let link = program(&self.skeleton.progs, self.mechanism).attach_kprobe(returns, function);
        self.keep(link)
    }

    /// Attaches the program to any number of functions at once.
    pub(super) fn attach_to_functions(&mut self, functions: &[String]) -> Result<(), Failed> {
        let returns = self.mechanism == Mechanism::KretprobeMulti;
        let link = program(&self.skeleton.progs, self.mechanism).attach_kprobe_multi(returns, functions.to_vec());
        self.keep(link)
    }

    /// Attaches the program to a place in a file, for all processes that have the file mapped, now or later.
    pub(super) fn attach_to_file(&mut self, path: &PathBuf, offset: u64) -> Result<(), Failed> {
        let retprobe = self.mechanism == Mechanism::Uretprobe;
        let offset = usize::try_from(offset).map_err(|_| Failed::Said("its address is too high".to_owned()))?;
        let options = UprobeOpts { retprobe, ..UprobeOpts::default() };
        let everybody = -1;
        let link = program(&self.skeleton.progs, self.mechanism).attach_uprobe_with_opts(everybody, path, offset, options);
        self.keep(link)
    }

    /// Attaches the program to a perf event, and takes ownership of the event.
    pub(super) fn attach_to_event(&mut self, event: OwnedFd) -> Result<(), Failed> {
        let link = program(&self.skeleton.progs, self.mechanism).attach_perf_event(event.as_raw_fd());
        self.keep(link)?;
        // The link closes it (libbpf: bpf_link_perf_dealloc).
        let _ = event.into_raw_fd();
        Ok(())
    }

    /// Drops all links that are not wanted. Links are numbered in the order in which they were made.
    pub(super) fn keep_links(&mut self, mut wanted: impl FnMut(usize) -> bool) {
        let mut number = 0;
        self.links.retain(|_| {
            number += 1;
            wanted(number - 1)
        });
    }

    /// Returns how often the program ran, and how often the kernel skipped it. Only this program's counts are read, since a machine may have
    /// thousands of programs.
    pub(super) fn runs(&self) -> Runs {
        Runs::of(program(&self.skeleton.progs, self.mechanism))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_runs_in_the_description_of_a_descriptor() {
        let info = "pos:\t0\nflags:\t02000000\nprog_type:\t5\nrun_time_ns:\t1200\nrun_cnt:\t10\nrecursion_misses:\t2\nverified_insns:\t9\n";
        let runs = Runs::parse(info);
        assert_eq!(runs, Runs { count: 10, time: 1200, missed: 2 });
        assert_eq!(runs.cost(1000), 11_200);
        assert_eq!(Runs::parse("prog_type:\t5\n"), Runs::default());
    }
}
