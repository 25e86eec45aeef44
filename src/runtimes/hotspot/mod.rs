//! HotSpot, the JVM of JDK 11 to 27: from an instruction in the code cache to methods, with names and lines.
//!
//! ```text
//! address ─► CodeHeap ─► Blob ─┬─ compiled ─► Blob::calls ─┬─► Method ─► class, name, parameters, file, lines
//!                              └─ interpreter: the frame leads to it ─┘
//! ```
//!
//! libjvm.so describes its structures in tables, so a new version works unless a structure changed ([`Layout`]). Compiled code and methods are
//! freed, and others take their places. So compiled code is known by address and number, a method by address and [check](Method::check).
//!
//! Sources: HotSpot's `vmStructs.cpp`, `codeBlob.hpp`, `nmethod.hpp`, `heap.cpp`, `constMethod.hpp`, `pcDesc.hpp`, `scopeDesc.cpp`,
//! `unsigned5.hpp`, and the memory of JDK 17 and 25.

mod bpf;
mod code_cache;
mod layout;
mod lines;
mod method;
mod numbers;
mod scopes;
mod tables;

pub use bpf::{JvmBytes, add_to};
pub use code_cache::{Blob, BlobKind, CodeHeap};
pub use layout::{Layout, Unfit};
pub use lines::Lines;
pub use method::{MAX_NAME, Method};
pub use scopes::Call;
pub use tables::Field;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::memory::tests::{Nonsense, random};

    /// Small numbers, pointers into a few kilobytes, and names.
    fn word(random: u64) -> u64 {
        match random & 7 {
            0 => random,
            1 => u64::from_le_bytes(*b"nmethod\0"),
            2..=4 => random >> 8 & 0xff,
            _ => (random >> 8) % 4096 * 8,
        }
    }

    fn layout(version: u32, seed: u64) -> Layout {
        let field = |name| {
            let random = random(seed, name);
            Some(Field { offset: random % 12 * 8, width: 1 << (random >> 32 & 3) })
        };
        Layout::of(version, field).unwrap()
    }

    #[test]
    fn nonsense_does_no_harm() {
        let (mut methods, mut blobs) = (0, 0);
        for seed in 0..20_000 {
            let (memory, layout) = (Nonsense { seed, word, end: 1 << 40 }, layout(11 + (seed % 16) as u32, seed));
            if let Some(method) = Method::read(&memory, &layout, 64) {
                assert!(method.size() < 1 << 17);
                method.lines.line(7);
                methods += 1;
            }
            Method::check(&memory, &layout, 64);
            CodeHeap::all(&memory, &layout);
            let heap = CodeHeap { begin: 0x1000, end: 0x9000, segments: 0x9000, shift: 7 };
            for address in (heap.begin..heap.end).step_by(1001) {
                let Some(blob) = heap.blob(&memory, &layout, address) else { continue };
                let calls = blob.calls(&memory, &layout, blob.begin.wrapping_add(seed % 64), seed % 2 == 0);
                assert!(calls.is_none_or(|calls| (1..=64).contains(&calls.len())));
                blobs += 1;
            }
        }
        assert!(methods > 1000 && blobs > 100, "{methods} methods, {blobs} blobs");
    }
}
