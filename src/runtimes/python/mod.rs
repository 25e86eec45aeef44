//! CPython 3.7 to 3.15: from a thread to its Python functions, and from a code object to name, file and line.
//!
//! ```text
//! thread pointer ─► PyThreadState ─► frame ─► frame ─► …          [`chain`]: a run for each call of the evaluation loop
//!                                      │
//!                                      └─► code object ─► name, file, line table      [`Code`]
//! ```
//!
//! The offsets of fields differ between minor versions: [`Layout`]. From 3.13 on the interpreter itself publishes them
//! (`_Py_DebugOffsets`).
//!
//! The thread state is found by the key of the GIL state; from 3.15 on, by a thread-local variable. The variable of the running thread does
//! not help. It is empty while a thread has released the GIL, as in hashing or a system call, although the thread's functions are all
//! there.
//!
//! From 3.10 on each call of the evaluation loop leaves an address on the C stack, its [anchor](Run::anchor). The call's Python functions
//! belong after the native frame whose stack holds the anchor. So the order needs neither code ranges nor symbols of the loop.
//!
//! Sources: CPython's headers (`cpython/code.h`, `pycore_frame.h`, `pycore_debug_offsets.h`, `Objects/lnotab_notes.txt`,
//! `InternalDocs/code_objects.md`), and the debug information of each version's build.

mod chain;
mod code;
mod layout;
mod lines;
mod runtime;
mod state;
mod text;

pub use chain::{PythonFrame, Run, chain};
pub use code::{Code, MAX_FILE, MAX_NAME};
pub use layout::{Layout, Version};
pub use lines::Lines;
pub use state::{Clues, LeadsTo, StateSlot, find_slot, threads};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::memory::tests::Nonsense;

    /// Most words are small or near each other, so pointers lead into the memory, in circles too.
    fn word(random: u64) -> u64 {
        if random & 3 == 0 { random } else { random % 4096 * 8 }
    }

    #[test]
    fn nonsense_does_no_harm() {
        for seed in 0..3000 {
            let memory = Nonsense { seed, word, end: 1 << 62 };
            let version = Version { major: 3, minor: 7 + (seed % 9) as u8 };
            let layout = Layout::of(version, &memory, seed * 64).unwrap();
            threads(&memory, &layout, seed * 8);
            let clues = Clues { runtime: seed * 8, getter: Some(seed * 32), self_size: seed % 2 * 1984 };
            find_slot(&memory, &layout, &clues, seed * 4096);
            let (runs, _) = chain(&memory, &layout, seed * 16, 500);
            assert!(runs.iter().map(|run| run.frames.len()).sum::<usize>() <= 500);
            for frame in runs.iter().flat_map(|run| &run.frames).take(20) {
                if let Some(code) = Code::read(&memory, &layout, frame.code) {
                    assert!(code.name.chars().count() as u64 <= MAX_NAME && code.file.chars().count() as u64 <= MAX_FILE);
                    code.lines.line(frame.place);
                }
            }
        }
    }
}
