//! V8 9.4 to 14.6, as in Node.js 16 to 26: from a frame of JavaScript to name, file and line.
//!
//! ```text
//! frame pointer ─► JSFunction ─► SharedFunctionInfo ─┬─► ScopeInfo ─► name, begin        [`Function`]
//!  BPF reads these: v8.h                             ├─► Script ─► file, ends of lines
//!                                                    └─► BytecodeArray ─► position of each instruction
//!
//! instruction ─► Code ─► position of each instruction, functions that are inlined         [`Reader::calls`]
//! ```
//!
//! Every frame of JavaScript keeps a frame pointer and, below it, its function, whatever made its code: the interpreter (Ignition), Sparkplug,
//! Maglev or TurboFan. The JSFunction may move within milliseconds, so a frame is known by its SharedFunctionInfo, which is old when its
//! function runs, and by a [check](Function::check) of it.
//!
//! A frame of Maglev or TurboFan is shared by several functions if some were inlined. Its code has the position of each instruction, without a flag.
//! Code of Sparkplug has positions, too, but only with the sizes of all bytecodes, which V8 exports up to Node.js 22: such a frame has the line
//! where its function begins. V8's own functions that are inlined, as `Array.prototype.map`, leave no trace.
//!
//! A frame of WebAssembly has no function, only the instance of its module, which leads to a script. The script is called after the module.
//!
//! A word is a small integer (Smi: the upper 32 bits, bit 0 clear) or a pointer to an object (bits 0 and 1 are 01). Node.js compresses no
//! pointers. The first word of an object leads to its map, which has the object's type. The offsets of fields and the numbers of types are
//! constants of a build. V8 exports most of them as `v8dbg_…` for debuggers: [`Layout`].
//!
//! Sources: V8's headers (`objects/shared-function-info.tq`, `scope-info.tq`, `script.tq`, `string.h`, `source-position-table.cc`,
//! `code-inl.h`, `deoptimization-data.h`), its
//! `gen-postmortem-metadata.py`, and the memory of Node.js 16 to 26.

mod code;
mod function;
mod heap;
mod layout;
mod lines;
mod source;
mod wasm;

pub use function::{Call, Function, Known, MAX_FILE, MAX_NAME, Reader};
pub use layout::{Layout, Unfit, Version};
pub use lines::Lines;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::memory::tests::Nonsense;

    /// Small integers, and pointers into a few kilobytes, so that objects refer to each other, in circles too.
    fn word(random: u64) -> u64 {
        match random & 7 {
            0 => random,
            1 => (random >> 40) << 32,
            2 => (random >> 8 & 3) << 32,
            // Types are in the first half of a map's second word.
            3 => (random >> 8 & 0x1ff) << 32 | random >> 60,
            _ => (random >> 8) % 4096 * 8 + 1,
        }
    }

    fn layout(major: i32) -> Layout {
        let value = |name: &str| {
            Some(match name {
                name if name.contains("major") => major,
                name if name.contains("minor") => 4,
                name if name.contains("instance_type") => 12,
                name if name.contains("type_S") => 3,
                name if name.contains("type_") => 2,
                name if name.contains("Nonstring") => 128,
                name if name.contains("first_vars") => 3 + 2 * i32::from(major > 12),
                name => (name.len() as i32 % 6 + 1) * 8,
            })
        };
        Layout::of(value).unwrap()
    }

    #[test]
    fn nonsense_does_no_harm() {
        let mut read = 0;
        for seed in 0..20_000 {
            let (memory, layout) = (Nonsense { seed, word, end: 1 << 40 }, layout(9 + (seed % 6) as i32));
            let mut known = Known::default();
            let mut reader = Reader::new(&memory, &layout, &mut known);
            for object in 0..8 {
                Function::check(&memory, &layout, object * 64 + 1);
                if seed % 200 == object {
                    let calls = reader.calls(object * 64 + 1, 20_000 + object * 1001);
                    assert!(calls.is_none_or(|calls| calls.last().is_some_and(|call| call.shared == object * 64 + 1)));
                }
                if let Some(function) = reader.function(object * 64 + 1) {
                    assert!(
                        function.name.chars().count() <= MAX_NAME as usize && function.file.chars().count() <= MAX_FILE as usize
                    );
                    function.lines.line(7);
                    read += 1;
                }
            }
        }
        assert!(read > 100, "{read} functions");
    }
}
