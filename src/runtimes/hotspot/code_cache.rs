//! The code cache: which code an address belongs to.
//!
//! ```text
//! heap     │ segment │ segment │ segment │ …        of 2^shift bytes
//!            header, CodeBlob …   its code
//! segments │ 0       │ 1       │ 2       │ 255      of each: how far back to go on searching for the first one of its block. 255: free
//! ```

use super::layout::{CodePlace, Layout};
use crate::runtimes::Memory;

/// Most code heaps. JDK 27 has four.
pub(super) const MAX_HEAPS: usize = 8;
/// Most steps back to the first segment of a block.
const MAX_STEPS: usize = 64;
/// Bytes of a blob's name that are read.
const MAX_NAME: u64 = 32;
const FREE: u8 = 255;

/// A part of the code cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeHeap {
    /// Its first address, and the one after the last.
    pub begin: u64,
    /// See `begin`.
    pub end: u64,
    /// The map of its segments.
    pub segments: u64,
    /// The logarithm of a segment's size.
    pub shift: u8,
}

/// What code does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlobKind {
    /// A compiled method.
    Compiled,
    /// The interpreter.
    Interpreter,
    /// Other code of the JVM.
    Stub,
}

/// A piece of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// The address of its CodeBlob.
    pub address: u64,
    /// Its name: `nmethod`, `Interpreter`, `StubRoutines (1)`.
    pub name: String,
    /// What it does.
    pub kind: BlobKind,
    /// Its first instruction.
    pub begin: u64,
    /// The words of its frame, with the return address.
    pub frame_size: u32,
}

impl CodeHeap {
    /// Reads the heaps of a process. There are none while the JVM begins.
    pub fn all(memory: &impl Memory, layout: &Layout) -> Option<Vec<CodeHeap>> {
        let list = memory.u64(layout.heaps).filter(|list| *list != 0)?;
        let count = layout.list_length.of(memory, list).filter(|count| (1..=MAX_HEAPS as u64).contains(count))?;
        let first = layout.list_data.of(memory, list)?;
        (0..count).map(|number| CodeHeap::of(memory, layout, memory.u64(first.checked_add(8 * number)?)?)).collect()
    }

    fn of(memory: &impl Memory, layout: &Layout, heap: u64) -> Option<CodeHeap> {
        let [begin, end, segments, shift] =
            [layout.heap_low, layout.heap_high, layout.heap_segments, layout.heap_shift].map(|field| field.of(memory, heap));
        let shift = u8::try_from(shift?).ok().filter(|shift| (3..=16).contains(shift))?;
        Some(CodeHeap { begin: begin?, end: end?, segments: segments?, shift }).filter(|heap| heap.begin < heap.end)
    }

    /// Returns the code at an address.
    pub fn blob(&self, memory: &impl Memory, layout: &Layout, address: u64) -> Option<Blob> {
        if !(self.begin..self.end).contains(&address) {
            return None;
        }
        let mut segment = (address - self.begin) >> self.shift;
        for _ in 0..MAX_STEPS {
            match memory.u8(self.segments.checked_add(segment)?)? {
                FREE => return None,
                0 => return Blob::read(memory, layout, self.begin + (segment << self.shift) + layout.block_header),
                back => segment = segment.checked_sub(u64::from(back))?,
            }
        }
        None
    }
}

impl Blob {
    /// Reads the blob at this address.
    pub(super) fn read(memory: &impl Memory, layout: &Layout, address: u64) -> Option<Blob> {
        let name = memory.bytes(layout.blob_name.of(memory, address)?, MAX_NAME, MAX_NAME)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        let begin = match layout.blob_code {
            CodePlace::Address(field) => field.of(memory, address)?,
            CodePlace::Distance(field) => address.checked_add(field.of(memory, address)?)?,
        };
        let kind = match &*name {
            "nmethod" | "native nmethod" => BlobKind::Compiled,
            "Interpreter" => BlobKind::Interpreter,
            _ => BlobKind::Stub,
        };
        let frame_size = layout.blob_frame_size.of(memory, address)? as u32;
        Some(Blob { address, name, kind, begin, frame_size })
    }
}
