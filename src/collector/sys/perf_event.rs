//! `perf_event_open`: the sampling clock, tracepoints and counters.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::machine::online_cpus;
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;

/// The sampling clock's source of ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// The CPU's cycle counter: it also ticks in kernel sections with interrupts off.
    Cycles,
    /// A timer of the kernel: available everywhere, but blind where interrupts are off.
    CpuClock,
}

impl Clock {
    /// Returns its name in `perf list`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Clock::Cycles => "cycles",
            Clock::CpuClock => "cpu-clock",
        }
    }
}

pub(super) fn attributes(kind: u32, config: u64) -> sys::perf_event_attr {
    let mut attributes = sys::perf_event_attr::default();
    // A kernel that knows a shorter structure accepts a longer one if the unknown part is zero.
    attributes.size = u32::try_from(size_of::<sys::perf_event_attr>()).unwrap_or(sys::PERF_ATTR_SIZE_VER0);
    attributes.type_ = kind;
    attributes.config = config;
    attributes
}

pub(super) fn open(mut attributes: sys::perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a whole structure of the size written in it. They live during the call, which keeps no pointer to them.
    let fd = unsafe { perf::perf_event_open(&raw mut attributes, pid, cpu, -1, sys::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned this new descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a disabled event on one CPU, which will tick `frequency` times a second of CPU time in every program.
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

/// Opens a tracepoint by its number. It counts all passes, and calls the program that is attached to it.
pub(crate) fn open_tracepoint(id: u64) -> io::Result<OwnedFd> {
    // The program is called on all CPUs, whichever CPU is named here.
    open(attributes(sys::PERF_TYPE_TRACEPOINT, id), -1, i32::try_from(*online_cpus()?.first().unwrap_or(&0)).unwrap_or(0))
}

/// Opens a counter on one CPU, disabled. A counter of the kernel calls the program at each event. A counter of the processor calls it about
/// `frequency` times a second; each call says how many events it covers.
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

/// Tries to open an event of this clock for this process, to find out what the machine supports.
pub(crate) fn try_clock(clock: Clock) -> io::Result<()> {
    open_clock(clock, 1, *online_cpus()?.first().unwrap_or(&0)).map(drop)
}
