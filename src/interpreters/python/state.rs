//! From a thread to its state.

use super::layout::Layout;
use crate::interpreters::Memory;

/// Where a thread's state is found, from the thread pointer on (`fs` on x86_64, `TPIDR_EL0` on arm64). The same for all threads of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateSlot {
    /// Distance from the thread pointer to a pointer.
    pub distance: i64,
    /// The meaning of that pointer.
    pub leads_to: LeadsTo,
}

/// The meaning of the first pointer of a [`StateSlot`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeadsTo {
    /// The state.
    State,
    /// A list of pointers, in which the one at this offset leads to the state.
    List(u64),
    /// A list of blocks of thread-local variables, one for each library. In the block at `block`, the variable at `variable` leads to the
    /// state. A thread that does not use the library has no block.
    Blocks {
        /// Offset in the list.
        block: u64,
        /// Offset in the block.
        variable: u64,
    },
}

impl StateSlot {
    /// The state of the thread with this thread pointer.
    pub fn state(&self, memory: &impl Memory, thread_pointer: u64) -> Option<u64> {
        let first = memory.u64(thread_pointer.wrapping_add_signed(self.distance))?;
        match self.leads_to {
            LeadsTo::State => Some(first),
            LeadsTo::List(offset) => memory.u64(first.checked_add(offset)?),
            LeadsTo::Blocks { block, variable } => memory.u64(memory.u64(first.checked_add(block)?)?.checked_add(variable)?),
        }
    }
}

/// Most threads that are tried, and most interpreters.
const MAX_THREADS: usize = 64;
const MAX_INTERPRETERS: usize = 16;
/// Keys of thread-specific data whose values are beside the thread's own data: of glibc, and of musl for sure.
const NEAR_KEYS: u64 = 32;
/// The largest distance from `pthread_self()` to the thread pointer, where that is not the same.
const SELF_WITHIN: u64 = 4096;
/// Bytes of `PyGILState_GetThisThreadState` that are read. It has at most 29.
const GETTER: usize = 48;

/// Finds where the threads of a process have their states, by a thread that has one: the state says whose it is. `runtime` is the address of
/// `_PyRuntime`, and `getter` that of `PyGILState_GetThisThreadState`, which is read from 3.15 on. Returns `None` if this thread has no
/// state, or the C library is not known.
pub fn find_slot(
    memory: &impl Memory,
    layout: &Layout,
    runtime: u64,
    getter: Option<u64>,
    thread_pointer: u64,
) -> Option<StateSlot> {
    let is_right = |slot: &StateSlot| {
        let state = slot.state(memory, thread_pointer).filter(|state| *state != 0 && state % 8 == 0);
        let owner = state.and_then(|state| memory.u64(state.checked_add(layout.thread_id)?));
        let is_below = slot.distance < 0 && layout.runtime_key.is_some();
        owner.is_some_and(|owner| match thread_pointer.checked_sub(owner) {
            Some(distance) if is_below => (1..SELF_WITHIN).contains(&distance),
            distance => distance == Some(0),
        })
    };
    match layout.runtime_key {
        Some(place) => candidates_of_key(memory, runtime.checked_add(place)?)?.into_iter().find(is_right),
        None => variable_of(memory, getter?).filter(is_right),
    }
}

/// Where the values of a key of thread-specific data may be. `place` is the address of its `Py_tss_t`: whether it was made, and the key.
fn candidates_of_key(memory: &impl Memory, place: u64) -> Option<[StateSlot; 7]> {
    let key = memory.u64(place)?;
    let (made, key) = (key as u32, key >> 32);
    if made == 0 || key >= NEAR_KEYS {
        return None;
    }
    let glibc = |first: i64| StateSlot { distance: first + 8 + 16 * key.cast_signed(), leads_to: LeadsTo::State };
    let musl = |list: i64| StateSlot { distance: list, leads_to: LeadsTo::List(8 * key) };
    // Above the thread pointer on x86_64; below on arm64, as far as `struct pthread` of each version is long.
    Some([glibc(0x310), musl(0x80), musl(0x88), glibc(-0x6b0), glibc(-0x630), glibc(-0x680), musl(-88)])
}

/// Where the thread-local variable is that a function returns, by its instructions on x86_64.
///
/// ```text
/// of a program    mov %fs:distance,%rax; ret
/// of a library    lea place(%rip),%rdi; call __tls_get_addr; …; mov offset(%rax),%rax; ret       place: the library's number, an offset
/// ```
fn variable_of(memory: &impl Memory, getter: u64) -> Option<StateSlot> {
    /// From the thread pointer to the list of blocks, bytes of its entries, and how many entries are believed.
    const LIST: i64 = 8;
    const ENTRY: u64 = 16;
    const MAX_MODULES: u64 = 4096;
    let mut code = [0; GETTER];
    if !memory.read(getter, &mut code) {
        return None;
    }
    let after = |pattern: &[u8]| code.windows(pattern.len()).position(|window| window == pattern).map(|at| at + pattern.len());
    let number = |at: usize| code.get(at..)?.first_chunk().map(|bytes| i64::from(i32::from_le_bytes(*bytes)));
    if let Some(distance) = after(&[0x64, 0x48, 0x8b, 0x04, 0x25]) {
        return Some(StateSlot { distance: number(distance)?, leads_to: LeadsTo::State });
    }
    let place = after(&[0x48, 0x8d, 0x3d])?;
    let index = getter.checked_add(place as u64 + 4)?.checked_add_signed(number(place)?)?;
    let (module, offset) = (memory.u64(index)?, memory.u64(index.checked_add(8)?)?);
    let within = match (after(&[0x48, 0x8b, 0x40]), after(&[0x48, 0x8b, 0x80]), after(&[0x48, 0x8b, 0x00, 0xc3])) {
        (Some(at), ..) => u64::from(*code.get(at)?),
        (_, Some(at), _) => u64::try_from(number(at)?).ok()?,
        (.., Some(_)) => 0,
        _ => return None,
    };
    let variable = offset.checked_add(within).filter(|variable| *variable < u64::from(u16::MAX))?;
    let block = ENTRY * Some(module).filter(|module| *module < MAX_MODULES)?;
    Some(StateSlot { distance: LIST, leads_to: LeadsTo::Blocks { block, variable } })
}

/// `pthread_self()` of threads of all interpreters, the youngest first. `runtime` is the address of `_PyRuntime`.
pub fn threads(memory: &impl Memory, layout: &Layout, runtime: u64) -> Vec<u64> {
    let at = |base: u64, offset: u64| memory.u64(base.checked_add(offset)?).filter(|word| *word != 0);
    let first = at(runtime, layout.runtime_interpreters);
    let interpreters =
        std::iter::successors(first, |interpreter| at(*interpreter, layout.interpreter_next)).take(MAX_INTERPRETERS);
    let states = interpreters.flat_map(|interpreter| {
        std::iter::successors(at(interpreter, layout.interpreter_threads), |state| at(*state, layout.thread_next))
    });
    states.take(MAX_THREADS).filter_map(|state| at(state, layout.thread_id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few pieces of memory.
    struct Pieces(Vec<(u64, Vec<u8>)>);

    impl Memory for Pieces {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let mut pieces = self.0.iter().filter_map(|(begin, bytes)| {
                let from = usize::try_from(address.checked_sub(*begin)?).ok()?;
                bytes.get(from..from + buffer.len())
            });
            pieces.next().map(|bytes| buffer.copy_from_slice(bytes)).is_some()
        }
    }

    /// The instructions of Debian's CPython 3.15.2.
    #[test]
    fn the_variable_of_a_thread_is_found_by_the_function_that_returns_it() {
        let code = |bytes: &[u8]| [bytes, &[0xcc; 64]].concat();
        let of_program = code(&[0xf3, 0x0f, 0x1e, 0xfa, 0x64, 0x48, 0x8b, 0x04, 0x25, 0xd8, 0xff, 0xff, 0xff, 0xc3]);
        let found = variable_of(&Pieces(vec![(0x1000, of_program)]), 0x1000);
        assert_eq!(found, Some(StateSlot { distance: -0x28, leads_to: LeadsTo::State }));
        // endbr64; push %rbp; mov %rsp,%rbp; lea 0x100(%rip),%rdi; call; pop %rbp; mov 0x28(%rax),%rax; ret
        let of_library = code(&[
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x3d, 0x00, 0x01, 0x00, 0x00, 0xe8, 0x00, 0x00, 0x00,
            0x00, 0x5d, 0x48, 0x8b, 0x40, 0x28, 0xc3,
        ]);
        let index = [2u64.to_le_bytes(), 0u64.to_le_bytes()].concat();
        let memory = Pieces(vec![(0x1000, of_library), (0x1000 + 15 + 0x100, index)]);
        let slot = StateSlot { distance: 8, leads_to: LeadsTo::Blocks { block: 32, variable: 0x28 } };
        assert_eq!(variable_of(&memory, 0x1000), Some(slot));
        assert_eq!(variable_of(&Pieces(vec![(0x1000, code(&[]))]), 0x1000), None);
    }
}
