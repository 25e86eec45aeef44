//! From a thread to its state.

use super::layout::Layout;
use crate::interpreters::Memory;

/// Where a thread's state is found, from the thread pointer on (`fs` on x86_64, `TPIDR_EL0` on arm64). The same for all threads of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateSlot {
    /// Distance from the thread pointer to a pointer.
    pub distance: i64,
    /// Where the pointer leads to a list of pointers: the offset in it. Otherwise it leads to the state.
    pub within: Option<u64>,
}

impl StateSlot {
    /// The state of the thread with this thread pointer.
    pub fn state(&self, memory: &impl Memory, thread_pointer: u64) -> Option<u64> {
        let first = memory.u64(thread_pointer.wrapping_add_signed(self.distance))?;
        match self.within {
            Some(offset) => memory.u64(first.checked_add(offset)?),
            None => Some(first),
        }
    }
}

/// Most threads that are tried.
const MAX_THREADS: usize = 64;
/// Keys of thread-specific data whose values are beside the thread's own data: of glibc, and of musl for sure.
const NEAR_KEYS: u64 = 32;
/// The largest distance from `pthread_self()` to the thread pointer, where that is not the same.
const SELF_WITHIN: u64 = 4096;

/// Finds where the threads of a process have their states, by a thread that has one: the state says whose it is. `runtime` is the address of
/// `_PyRuntime`. Returns `None` if this thread has none, or the C library is not known.
pub fn find_slot(memory: &impl Memory, layout: &Layout, runtime: u64, thread_pointer: u64) -> Option<StateSlot> {
    // `Py_tss_t`: whether it was made, and the key.
    let key = memory.u64(runtime.checked_add(layout.runtime_key)?)?;
    let (made, key) = (key as u32, key >> 32);
    if made == 0 || key >= NEAR_KEYS {
        return None;
    }
    let glibc = |first: i64| StateSlot { distance: first + 8 + 16 * key.cast_signed(), within: None };
    let musl = |list: i64| StateSlot { distance: list, within: Some(8 * key) };
    // Above the thread pointer on x86_64; below on arm64, as far as `struct pthread` of each version is long.
    let candidates = [glibc(0x310), musl(0x80), musl(0x88), glibc(-0x6b0), glibc(-0x630), glibc(-0x680), musl(-88)];
    candidates.into_iter().find(|slot| {
        let Some(state) = slot.state(memory, thread_pointer).filter(|state| *state != 0 && state % 8 == 0) else { return false };
        let owner = state.checked_add(layout.thread_id).and_then(|at| memory.u64(at));
        let is_below = slot.distance < 0;
        owner.is_some_and(|owner| match thread_pointer.checked_sub(owner) {
            Some(distance) if is_below => (1..SELF_WITHIN).contains(&distance),
            distance => distance == Some(0),
        })
    })
}

/// `pthread_self()` of threads of the first interpreter, the youngest first. `runtime` is the address of `_PyRuntime`.
pub fn threads(memory: &impl Memory, layout: &Layout, runtime: u64) -> Vec<u64> {
    let at = |base: u64, offset: u64| memory.u64(base.checked_add(offset)?).filter(|word| *word != 0);
    let interpreter = at(runtime, layout.runtime_interpreters);
    let first = interpreter.and_then(|interpreter| at(interpreter, layout.interpreter_threads));
    let states = std::iter::successors(first, |state| at(*state, layout.thread_next));
    states.take(MAX_THREADS).filter_map(|state| at(state, layout.thread_id)).collect()
}
