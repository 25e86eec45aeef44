//! `perf_event_open`: the sampling clock, tracepoints and counters.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::machine::online_cpus;
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;

/// What makes the sampling clock tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// The CPU's cycle counter: ticks in kernel sections with interrupts off, too.
    Cycles,
    /// A timer of the kernel: everywhere, but blind where interrupts are off.
    CpuClock,
}

impl Clock {
    /// As `perf list` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Clock::Cycles => "cycles",
            Clock::CpuClock => "cpu-clock",
        }
    }
}

pub(super) fn attributes(kind: u32, config: u64) -> sys::perf_event_attr {
    let mut attributes = sys::perf_event_attr::default();
    // A kernel that knows a shorter structure takes ours as long as what it does not know is zero.
    attributes.size = u32::try_from(size_of::<sys::perf_event_attr>()).unwrap_or(sys::PERF_ATTR_SIZE_VER0);
    attributes.type_ = kind;
    attributes.config = config;
    attributes
}

pub(super) fn open(mut attributes: sys::perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a whole structure of the size written in it, alive during the call, which keeps no
    // pointer to them.
    let fd = unsafe { perf::perf_event_open(&raw mut attributes, pid, cpu, -1, sys::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A disabled event on one CPU that will tick `frequency` times a second of CPU time, whatever runs.
pub(crate) fn open_clock(clock: Clock, frequency: u32, cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = match clock {
        Clock::Cycles => attributes(sys::PERF_TYPE_HARDWARE, u64::from(sys::PERF_COUNT_HW_CPU_CYCLES)),
        Clock::CpuClock => attributes(sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_CPU_CLOCK)),
    };
    attributes.set_freq(1);
    attributes.sample_freq = u64::from(frequency);
    attributes.set_disabled(1);
    open(attributes, -1, i32::try_from(cpu).unwrap_or(i32::MAX))
}

/// A tracepoint, by its number, wherever it is passed. It counts, and calls the program that is attached to it.
pub(crate) fn open_tracepoint(id: u64) -> io::Result<OwnedFd> {
    // The program is called on all CPUs, whichever one is named here.
    open(attributes(sys::PERF_TYPE_TRACEPOINT, id), -1, i32::try_from(*online_cpus()?.first().unwrap_or(&0)).unwrap_or(0))
}

/// A counter on one CPU, disabled. Of software, each event calls the program; of the processor, so many a second that there are
/// `frequency` calls, each of which says how many events it stands for.
pub(crate) fn open_counter(hardware: bool, number: u64, frequency: u32, cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = attributes(if hardware { sys::PERF_TYPE_HARDWARE } else { sys::PERF_TYPE_SOFTWARE }, number);
    if hardware {
        attributes.set_freq(1);
        attributes.sample_freq = u64::from(frequency);
    } else {
        attributes.sample_period = 1;
    }
    attributes.set_disabled(1);
    open(attributes, -1, i32::try_from(cpu).unwrap_or(i32::MAX))
}

/// Whether an event of this clock for ourselves can be opened at all, for telling what the machine offers.
pub(crate) fn try_clock(clock: Clock) -> io::Result<()> {
    open_clock(clock, 1, *online_cpus()?.first().unwrap_or(&0)).map(drop)
}
