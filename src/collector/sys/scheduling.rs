//! Calls of bpf(2) that no ordinary task may interrupt.

/// Runs bpf(2) calls on maps, or a short load that has one in it, so that no ordinary task comes in between: while one lasts, the
/// kernel keeps programs at probes from running on this CPU (`bpf_prog_active`), and who interrupts it, as a (lazily) preemptible
/// kernel lets others, would not be counted.
///
/// By a real-time priority for that long; where that is not permitted, without.
pub(crate) fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    let _priority = RealTime::take();
    call()
}

/// The calling thread's real-time priority, given back in the end.
struct RealTime {
    policy: libc::c_int,
}

impl RealTime {
    fn take() -> Option<RealTime> {
        let policy = scheduling_policy();
        let is_ordinary = matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE);
        let flag = policy & libc::SCHED_RESET_ON_FORK;
        (is_ordinary && set_scheduling(libc::SCHED_FIFO | flag, 1)).then_some(RealTime { policy })
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // A thread may always have less.
        set_scheduling(self.policy, 0);
    }
}

/// Of the calling thread. By the system call: libc's functions are of processes in some libcs.
fn scheduling_policy() -> libc::c_int {
    // SAFETY: no memory is touched.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    libc::c_int::try_from(policy).unwrap_or(-1)
}

fn set_scheduling(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel reads one `struct sched_param`, which is its first member alone, and it lives until the call is over.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_comes_between_while_a_map_is_changed() {
        let before = scheduling_policy();
        let is_permitted = set_scheduling(libc::SCHED_FIFO, 1);
        set_scheduling(before, 0);
        if !is_permitted {
            println!("NOT TESTED: no real-time priority is to be had here (CAP_SYS_NICE)");
        }
        let within = if is_permitted { libc::SCHED_FIFO } else { before };
        assert_eq!(undisturbed(scheduling_policy), within);
        assert_eq!(scheduling_policy(), before);
        let nested = undisturbed(|| (undisturbed(scheduling_policy), scheduling_policy()));
        assert_eq!((nested, scheduling_policy()), ((within, within), before));
        assert!(std::panic::catch_unwind(|| undisturbed(|| panic!("on purpose"))).is_err());
        assert_eq!(scheduling_policy(), before);
    }
}
