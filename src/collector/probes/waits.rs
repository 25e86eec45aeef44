//! Waits of threads: the programs of bpf/waits.bpf.c.

use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapHandle, OpenMapMut, OpenObject};

use super::failure::Failed;
use super::kernel_functions::KernelFunctions;
use super::programs::{MAX_SOURCES, OwnMaps, Runs, own_maps, prepare_events};
use crate::collector::bpf_errors::{bpf_error, forget_complaint};
use crate::collector::error::CollectorError;
use crate::collector::sources::clock::{SharedMaps, counters_of, possible_cpus};
use crate::collector::sources::rings::most_dump_pages;

#[allow(unsafe_code, unreachable_pub, unused_qualifications, clippy::all, clippy::restriction)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/waits.skel.rs"));
}

use skeleton::{WaitsSkel, WaitsSkelBuilder};

/// What a thread that is back on the CPU calls first, where the kernel has no tracepoint there. Compilers add a suffix.
const FINISH: &str = "finish_task_switch";

/// The loaded programs, attached.
///
/// Fields are dropped in order: the links before the programs.
pub(super) struct Waits {
    _links: Vec<Link>,
    skeleton: WaitsSkel<'static>,
    /// Whether the tracepoint at the end of a switch is used.
    has_return: bool,
}

impl Waits {
    /// Loads the programs, attaches them, and begins to follow all threads.
    pub(super) fn attach(number: u32, shared: &SharedMaps, own: Option<&OwnMaps>) -> Result<Waits, Failed> {
        let begin = |has_return| {
            let mut waits = Waits::load(number, shared, own, has_return)?;
            waits.begin()?;
            Ok(waits)
        };
        // Only kernels from 6.15 on have the tracepoint.
        begin(true).or_else(|why: Failed| begin(false).map_err(|other| if other == Failed::NotOffered { why } else { other }))
    }

    fn load(number: u32, shared: &SharedMaps, own: Option<&OwnMaps>, has_return: bool) -> Result<Waits, Failed> {
        forget_complaint();
        // As in the sampler, one pointer is leaked.
        let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = WaitsSkelBuilder::default().open(place).map_err(|error| Failed::of(&error))?;
        open.progs.on_return.set_autoload(has_return);
        open.progs.on_finish.set_autoload(!has_return);
        prepare_events!(&mut open, number, shared, own);
        let skeleton = open.load().map_err(|error| Failed::of(&error))?;
        Ok(Waits { _links: Vec::new(), skeleton, has_return })
    }

    fn begin(&mut self) -> Result<(), Failed> {
        let programs = &self.skeleton.progs;
        let failed = |error: libbpf_rs::Error| Failed::of(&error);
        // First those that tell that a wait has ended: a thread that is followed already when they begin would seem to wait on.
        let end = match self.has_return {
            true => programs.on_return.attach_trace().map_err(failed)?,
            false => programs.on_finish.attach_kprobe(false, finish()?).map_err(failed)?,
        };
        self._links.extend([
            end,
            programs.on_switch.attach_trace().map_err(failed)?,
            programs.on_fork.attach_trace().map_err(failed)?,
        ]);
        let walk = programs.follow.attach().map_err(failed)?;
        // The program is called for each thread while this is read. It writes nothing.
        Iter::new(&walk).map_err(failed)?.read_to_end(&mut Vec::new()).map_err(|error| Failed::of_io(&error))?;
        Ok(())
    }

    /// Returns the maps, for programs that are loaded later.
    pub(super) fn own_maps(&self) -> Result<OwnMaps, CollectorError> {
        own_maps!(self.skeleton)
    }

    /// Returns the name of what tells that a wait has ended.
    pub(super) fn how(&self) -> &'static str {
        if self.has_return { "sched_exit_tp" } else { FINISH }
    }

    /// Returns how often the programs at switches ran.
    pub(super) fn runs(&self) -> Runs {
        let programs = &self.skeleton.progs;
        let end = if self.has_return { &programs.on_return } else { &programs.on_finish };
        Runs::sum([end, &programs.on_switch].into_iter().map(Runs::of))
    }
}

/// Returns the name that the function has in this kernel.
fn finish() -> Result<String, Failed> {
    let all = KernelFunctions::symbols().map_err(|error| Failed::of_io(&error))?;
    let is_it = |name: &&String| name.strip_prefix(FINISH).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.'));
    all.names().iter().find(is_it).cloned().ok_or(Failed::NotThere)
}
