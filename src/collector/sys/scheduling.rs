//! bpf(2) calls that no ordinary task interrupts.

/// Runs bpf(2) calls on maps, or a short load that includes such a call, without interruption by ordinary tasks. During a call the kernel
/// keeps programs at probes from running on this CPU (`bpf_prog_active`). A (lazily) preemptible kernel would let other tasks run in
/// between, and they would not be counted.
///
/// The thread has a real-time priority during the call. If that is not permitted, the call runs without it.
pub(crate) fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    let _priority = RealTime::take();
    call()
}

/// The calling thread's real-time priority, restored when this is dropped.
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
        // A thread may always lower its priority.
        set_scheduling(self.policy, 0);
    }
}

/// Returns the calling thread's policy. It makes the system call, because in some C libraries the function works on processes.
fn scheduling_policy() -> libc::c_int {
    // SAFETY: the call touches no memory.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    libc::c_int::try_from(policy).unwrap_or(-1)
}

fn set_scheduling(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel reads one `struct sched_param`, which has only this member. It lives until the call is over.
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
            println!("NOT TESTED: real-time priority is not permitted here (CAP_SYS_NICE)");
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
