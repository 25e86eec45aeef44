//! Waits of threads: the programs of bpf/waits.bpf.c.

use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapHandle, OpenMapMut, OpenObject};

use super::failure::Failed;
use super::kernel_functions::KernelFunctions;
use super::programs::{MAX_SOURCES, OwnMaps, Runs, own_maps, prepare_events};
use super::sleepers::Sleepers;
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
    /// Cuts waits, each time it is read.
    cut: Link,
    /// `Err`: why threads are not walked before their waits have ended. Kernels before 6.2 cannot.
    sleepers: Result<Sleepers, Box<str>>,
    skeleton: WaitsSkel<'static>,
    /// Whether the tracepoint at the end of a switch is used.
    has_return: bool,
}

impl Waits {
    /// Loads the programs, attaches them, and begins to follow all threads. Without maps, makes them.
    pub(super) fn attach(number: u32, shared: &SharedMaps, own: &mut Option<OwnMaps>) -> Result<Waits, Failed> {
        let mut begin = |has_return| {
            let skeleton = Waits::load(number, shared, own.as_ref(), has_return)?;
            let maps = match own.take() {
                Some(maps) => maps,
                None => own_maps(&skeleton).map_err(|error| Failed::Said(error.to_string()))?,
            };
            // Before threads are followed: a program that is started by flametop waits meanwhile.
            let threads = MapHandle::try_from(&skeleton.maps.threads).map_err(|error| Failed::of(&error))?;
            let sleepers = Sleepers::load(number, shared, own.insert(maps), threads);
            Waits::begin(skeleton, sleepers.map_err(|why| why.words().into()), has_return)
        };
        // Only kernels from 6.15 on have the tracepoint.
        begin(true).or_else(|why: Failed| begin(false).map_err(|other| if other == Failed::NotOffered { why } else { other }))
    }

    fn load(number: u32, shared: &SharedMaps, own: Option<&OwnMaps>, has_return: bool) -> Result<WaitsSkel<'static>, Failed> {
        forget_complaint();
        // As in the sampler, one pointer is leaked.
        let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = WaitsSkelBuilder::default().open(place).map_err(|error| Failed::of(&error))?;
        open.progs.on_return.set_autoload(has_return);
        open.progs.on_finish.set_autoload(!has_return);
        prepare_events!(&mut open, number, shared, own, own.map(|own| &own.states));
        open.load().map_err(|error| Failed::of(&error))
    }

    fn begin(skeleton: WaitsSkel<'static>, sleepers: Result<Sleepers, Box<str>>, has_return: bool) -> Result<Waits, Failed> {
        let programs = &skeleton.progs;
        let failed = |error: libbpf_rs::Error| Failed::of(&error);
        // First those that tell that a wait has ended: a thread that is followed already when they begin would seem to wait on.
        let end = match has_return {
            true => programs.on_return.attach_trace().map_err(failed)?,
            false => programs.on_finish.attach_kprobe(false, finish()?).map_err(failed)?,
        };
        let links =
            vec![end, programs.on_switch.attach_trace().map_err(failed)?, programs.on_fork.attach_trace().map_err(failed)?];
        let walk = programs.follow.attach().map_err(failed)?;
        // The program is called for each thread while this is read. It writes nothing.
        Iter::new(&walk).map_err(failed)?.read_to_end(&mut Vec::new()).map_err(|error| Failed::of_io(&error))?;
        let cut = programs.cut_waits.attach().map_err(failed)?;
        Ok(Waits { _links: links, cut, sleepers, skeleton, has_return })
    }

    /// Returns why threads are not walked before their waits have ended.
    pub(super) fn unwatched(&self) -> Option<&str> {
        self.sleepers.as_ref().err().map(|why| &**why)
    }

    /// Cuts the waits that last since `least_age`, in nanoseconds. Asks for the stacks of those that last since `least_wait`. To be called once
    /// a second.
    pub(super) fn cut(&mut self, least_age: u64, least_wait: u64, number: u32, shared: &SharedMaps, own: &OwnMaps) {
        let Ok(sleepers) = &mut self.sleepers else { return };
        if let Some(data) = self.skeleton.maps.data_data.as_deref_mut() {
            data.least_age = least_age;
            data.least_wait = least_wait;
        }
        let mut named = Vec::new();
        // If it cannot be read, the waits count when they end.
        if Iter::new(&self.cut).is_ok_and(|mut threads| threads.read_to_end(&mut named).is_ok()) {
            sleepers.ask(&named);
        }
        sleepers.replace(number, shared, own);
    }

    /// Returns the name of what tells that a wait has ended; and if that is all that is seen of waits, says so.
    pub(super) fn how(&self) -> String {
        let end = if self.has_return { "sched_exit_tp" } else { FINISH };
        if self.sleepers.is_ok() { end.to_owned() } else { format!("{end}, waits show when they end") }
    }

    /// Returns how often the programs at switches ran.
    pub(super) fn runs(&self) -> Runs {
        let programs = &self.skeleton.progs;
        let end = if self.has_return { &programs.on_return } else { &programs.on_finish };
        Runs::sum([end, &programs.on_switch].into_iter().map(Runs::of))
    }
}

/// Returns the maps, for programs that are loaded later.
fn own_maps(skeleton: &WaitsSkel<'static>) -> Result<OwnMaps, CollectorError> {
    own_maps!(skeleton)
}

/// Returns the name that the function has in this kernel.
fn finish() -> Result<String, Failed> {
    let all = KernelFunctions::symbols().map_err(|error| Failed::of_io(&error))?;
    let is_it = |name: &&String| name.strip_prefix(FINISH).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.'));
    all.names().iter().find(is_it).cloned().ok_or(Failed::NotThere)
}
