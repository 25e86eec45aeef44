//! The cost of a source of events: CPU time that the programs lose in which its events happen.
//!
//! ```text
//! cost = time in which the source's BPF programs ran + number of runs × time of a trap
//! ```
//!
//! The kernel measures the first part (`BPF_ENABLE_STATS`, Linux 5.8). A trap is the way into the kernel and back at a probed
//! function of a program: half a microsecond or more. It is measured once, on functions of flametop itself. Elsewhere only the first part is
//! counted: of the 97 ns that a tracepoint costs a system call, 50 ns.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::UserPlace;
use super::programs::Programs;
use crate::collector::processes::proc;
use crate::collector::sys::probed;
use crate::cpu_time;

/// A new source is observed for this long to find its cost.
const TRIAL: Duration = Duration::from_millis(50);
/// Time between two rounds of measuring a trap.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(2);
/// The CPUs that a source may cost the programs without a question.
const MOST_UNASKED: f64 = 0.1;

/// A source that costs the programs more than it may cost unasked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costly {
    pub(super) per_second: u64,
    pub(super) cpus: f64,
}

/// Observes a source that was just attached, for a moment. `cost` returns its runs and nanoseconds so far.
pub(super) fn try_out(mut cost: impl FnMut() -> (u64, u64)) -> Result<(), Costly> {
    let begun = Instant::now();
    let (runs, before) = cost();
    std::thread::sleep(TRIAL);
    let (more, after) = cost();
    let seconds = begun.elapsed().as_secs_f64();
    let cpus = after.saturating_sub(before) as f64 / 1e9 / seconds;
    if cpus <= MOST_UNASKED {
        return Ok(());
    }
    Err(Costly { per_second: (more.saturating_sub(runs) as f64 / seconds) as u64, cpus })
}

/// Returns the place of a function in flametop's own program.
pub(super) fn own_place(function: usize) -> Option<UserPlace> {
    let address = function as u64;
    let mapped = proc::own_maps().into_iter().find(|mapped| (mapped.start..mapped.end).contains(&address))?;
    Some(UserPlace { path: PathBuf::from("/proc/self/exe"), offset: address - mapped.start + mapped.offset, begins: [0; 4] })
}

/// How long traps take, in nanoseconds: see [`probed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Traps {
    carried_out: u64,
    stepped: u64,
}

impl Traps {
    /// Measures them with a program that is not attached yet, and that takes no stacks of flametop itself.
    pub(super) fn measure(program: &mut Programs) -> Traps {
        let mut measure = |function| of_trap(program, function).unwrap_or(0);
        Traps { carried_out: measure(probed::carried_out), stepped: measure(probed::stepped) }
    }

    /// Returns the mean over these places.
    pub(super) fn of(self, places: &[UserPlace]) -> u64 {
        let of_place = |place: &UserPlace| if is_carried_out(place.begins) { self.carried_out } else { self.stepped };
        places.iter().map(of_place).sum::<u64>().checked_div(places.len() as u64).unwrap_or(0)
    }
}

/// Whether the kernel carries out this instruction itself: a call, a jump, a push of a register, or a one-byte nop. Source: the kernel's
/// `branch_setup_xol_ops` and `push_setup_xol_ops`.
#[cfg(target_arch = "x86_64")]
fn is_carried_out(code: [u8; 4]) -> bool {
    matches!(code, [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x41, 0x50..=0x57, ..] | [0x0f, 0x80..=0x8f, ..])
}

/// Whether the kernel carries out this instruction itself: a jump, an instruction that reads pc, or a nop. Source: the kernel's
/// `arm_probe_decode_insn`.
#[cfg(target_arch = "aarch64")]
fn is_carried_out(code: [u8; 4]) -> bool {
    let word = u32::from_le_bytes(code);
    let is = |mask, value| word & mask == value;
    word == 0xd503_201f // nop
        || is(0x7c00_0000, 0x1400_0000) // b, bl
        || is(0xff00_0010, 0x5400_0000) // b.cond
        || is(0x7c00_0000, 0x3400_0000) // cbz, cbnz, tbz, tbnz
        || is(0x1f00_0000, 0x1000_0000) // adr, adrp
        || is(0x3b00_0000, 0x1800_0000) // ldr, literal
        || is(0xff9f_fc1f, 0xd61f_0000) // br, blr, ret
}

/// Measures the nanoseconds that a probe adds to a call of this function. The run time of the BPF program is subtracted, since the kernel
/// counts it at each event.
fn of_trap(program: &mut Programs, function: extern "C" fn()) -> Option<u64> {
    let place = own_place(function as usize)?;
    let without = of_call(function);
    program.attach_to_file(&place.path, place.offset).ok()?;
    let before = program.runs();
    let with = of_call(function);
    let runs = program.runs();
    program.keep_links(|_| false);
    let own = runs.time.saturating_sub(before.time).checked_div(runs.count.saturating_sub(before.count)).unwrap_or(0);
    Some(with.saturating_sub(without).saturating_sub(own))
}

/// Returns the nanoseconds of CPU of a call: the least of some rounds. A CPU of a virtual machine may be slow for a tenth of a second. A trap then
/// takes up to three times as long. So the rounds are spread over time and over CPUs.
fn of_call(function: extern "C" fn()) -> u64 {
    const CALLS: u64 = 32;
    let allowed = sched_getaffinity(None).unwrap_or_default();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let round = |number: usize| {
        if number > 0 {
            std::thread::sleep(BETWEEN_ROUNDS);
        }
        if let Some(cpu) = number.checked_rem(cpus.len()).and_then(|at| cpus.get(at)) {
            let mut one = CpuSet::new();
            one.set(*cpu);
            // If it cannot be chosen, the round still counts.
            let _ = sched_setaffinity(None, &one);
        }
        let begun = cpu_time::of_this_thread();
        (0..CALLS).for_each(|_| std::hint::black_box(function)());
        cpu_time::since(begun).as_nanos() as u64 / CALLS
    };
    let least = (0..16).map(round).min().unwrap_or(0);
    let _ = sched_setaffinity(None, &allowed);
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_costs_a_tenth_of_a_cpu_needs_consent() {
        let mut times = [(0, 0), (20_000, 40_000_000)].into_iter();
        let costly = try_out(|| times.next().unwrap()).unwrap_err();
        assert!(costly.per_second > 10_000 && costly.cpus > 0.1, "{costly:?}");
        let mut times = [(0, 0), (200, 400_000)].into_iter();
        assert!(try_out(|| times.next().unwrap()).is_ok());
    }
}
