//! Finds the state of a thread.

use super::layout::Layout;
use crate::runtimes::Memory;

/// The place of a thread's state, relative to the thread pointer (`fs` on x86_64, `TPIDR_EL0` on arm64). It is equal in all threads of a
/// process.
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
    /// A list of pointers. The pointer at this offset leads to the state.
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
    /// Returns the state of the thread with this thread pointer.
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
/// glibc keeps values of thread-specific data in blocks of this many keys. The first block is part of the thread's own data. A list of
/// pointers to the others follows it.
const KEYS_IN_BLOCK: u64 = 32;
/// Most keys: `PTHREAD_KEYS_MAX` of glibc. musl has fewer.
const MAX_KEYS: u64 = 1024;
/// Words that are searched for the key, from its place on x86_64 on. Locks of the C library may be longer than there.
const KEY_WITHIN: u64 = 8;
/// Bytes of `PyGILState_GetThisThreadState` that are read. On x86_64 it has at most 29.
const GETTER: usize = 48;

/// Addresses and sizes that lead to the states of a process's threads.
#[derive(Clone, Copy, Debug)]
pub struct Clues {
    /// The address of `_PyRuntime`.
    pub runtime: u64,
    /// The address of `PyGILState_GetThisThreadState`, which is read from 3.15 on.
    pub getter: Option<u64>,
    /// Bytes from `pthread_self()` of a thread to its thread pointer: 0 on x86_64; on arm64 the size of the C library's record of a thread.
    pub self_size: u64,
}

/// Finds the place of the states of a process's threads. `thread` is the `pthread_self()` of a thread that has a state; the state says
/// which thread it belongs to. Returns `None` if this thread has no state, or the C library is not known.
pub fn find_slot(memory: &impl Memory, layout: &Layout, clues: &Clues, thread: u64) -> Option<StateSlot> {
    let thread_pointer = thread.checked_add(clues.self_size)?;
    let is_right = |slot: &StateSlot| {
        let state = slot.state(memory, thread_pointer).filter(|state| *state != 0 && state % 8 == 0);
        state.and_then(|state| memory.u64(state.checked_add(layout.thread_id)?)) == Some(thread)
    };
    match layout.runtime_key {
        Some(place) => {
            let place = clues.runtime.checked_add(place)?;
            let places = (0..KEY_WITHIN).filter_map(|word| place.checked_add(8 * word));
            places.flat_map(|place| slots_of_key(memory, place, clues.self_size)).find(is_right)
        }
        None => variable_of(memory, clues.getter?).filter(is_right),
    }
}

/// Returns the possible places of a key's values. `place` is the address of the key's `Py_tss_t`: whether it was made, and the key.
fn slots_of_key(memory: &impl Memory, place: u64, self_size: u64) -> Vec<StateSlot> {
    let key = memory.u64(place).map(|words| (words as u32, words >> 32));
    let Some((_, key)) = key.filter(|(made, key)| *made != 0 && *key < MAX_KEYS) else { return Vec::new() };
    // A value follows a count.
    let (block, within) = (key / KEYS_IN_BLOCK, 8 + 16 * (key % KEYS_IN_BLOCK));
    let glibc = |first: i64| match block {
        0 => StateSlot { distance: first + within.cast_signed(), leads_to: LeadsTo::State },
        _ => StateSlot { distance: first + (16 * KEYS_IN_BLOCK + 8 * block).cast_signed(), leads_to: LeadsTo::List(within) },
    };
    let musl = |list: i64| StateSlot { distance: list, leads_to: LeadsTo::List(8 * key) };
    match self_size {
        0 => vec![glibc(0x310), musl(0x80), musl(0x88)],
        size => vec![glibc(0x110 - size.cast_signed()), musl(112 - size.cast_signed())],
    }
}

/// Finds the thread-local variable that a function returns, from the function's instructions.
///
/// ```text
/// x86_64, of a program    mov %fs:distance,%rax; ret
///         of a library    lea place(%rip),%rdi; call __tls_get_addr; …; mov offset(%rax),%rax; ret  place: the library's number, an offset
/// arm64, of a program     mrs x0, TPIDR_EL0; add x0, x0, #part; …; ldr x0, [x0, #rest]; ret
/// ```
fn variable_of(memory: &impl Memory, getter: u64) -> Option<StateSlot> {
    /// Distance from the thread pointer to the list of blocks, size of a list entry, and the most entries that are accepted.
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
    if let Some(distance) = arm64_distance(&code) {
        return Some(StateSlot { distance, leads_to: LeadsTo::State });
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

/// Returns the distance from the thread pointer that arm64 instructions add up before they load from there.
fn arm64_distance(code: &[u8]) -> Option<i64> {
    let mut words = code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
    // mrs: into register 0 to 30.
    let register = words.find(|word| word & !31 == 0xd53b_d040)? & 31;
    let mut distance = 0;
    for word in words {
        let is_of_register = word >> 5 & 31 == register;
        let number = i64::from(word >> 10 & 0xfff);
        match word {
            // add, of a number of 12 bits, or of one 4096 times as large
            _ if is_of_register && word & 31 == register && word & 0xff80_0000 == 0x9100_0000 => {
                distance += number << (12 * (word >> 22 & 1));
            }
            // ldr
            _ if is_of_register && word & 0xffc0_0000 == 0xf940_0000 => return Some(distance + 8 * number),
            0xd65f_03c0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns `pthread_self()` of threads of all interpreters, the youngest first. `runtime` is the address of `_PyRuntime`.
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

    /// The instructions of Debian's CPython 3.15.
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
        // bti; mrs x0, TPIDR_EL0; paciasp; stp; nop; add x0, x0, #32; mov; ldp; autiasp; ldr x0, [x0]; ret
        let words: [u32; 11] = [
            0xd503_245f,
            0xd53b_d040,
            0xd503_233f,
            0xa9bf_7bfd,
            0xd503_201f,
            0x9100_8000,
            0x9100_03fd,
            0xa8c1_7bfd,
            0xd503_23bf,
            0xf940_0000,
            0xd65f_03c0,
        ];
        let of_arm64: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let found = variable_of(&Pieces(vec![(0x1000, code(&of_arm64))]), 0x1000);
        assert_eq!(found, Some(StateSlot { distance: 32, leads_to: LeadsTo::State }));
    }
}
