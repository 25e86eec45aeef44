//! Makes the numbers that BPF uses to walk through the code of a JVM: `struct jvm` of `bpf/record.h`.

use super::code_cache::{CodeHeap, MAX_HEAPS};
use super::layout::{CodePlace, Layout};
use super::tables::Field;
use crate::runtimes::{HAS_HOTSPOT, RuntimeBytes, add_runtime};

/// Bytes of a CodeBlob that BPF reads: `BLOB_BYTES`.
const BLOB_BYTES: u64 = 128;
/// Bytes of a ConstMethod that BPF reads: `CONSTANT_BYTES`.
const CONSTANT_BYTES: u64 = 64;
const HEAP: usize = 32;
/// Where the offsets begin, behind the heaps and the bounds of all.
const OFFSETS: usize = HEAP * MAX_HEAPS + 16;
/// Where the last bytes are, behind ten offsets.
const FLAGS: usize = OFFSETS + 20;
/// The bytes of a `struct jvm`.
const JVM_BYTES: usize = FLAGS + 12;

/// A `struct jvm`.
pub type JvmBytes = [u8; JVM_BYTES];

/// Adds HotSpot to the runtimes of a process. Its `struct jvm` must be there before.
pub fn add_to(runtime: &mut RuntimeBytes) {
    add_runtime(runtime, HAS_HOTSPOT);
}

impl Layout {
    /// Makes the `struct jvm` of a process with these code heaps. Returns `None` if a structure differs from those that BPF knows.
    pub fn for_walks(&self, heaps: &[CodeHeap]) -> Option<JvmBytes> {
        let mut jvm = [0; JVM_BYTES];
        let (begin, end) = (heaps.iter().map(|heap| heap.begin).min()?, heaps.iter().map(|heap| heap.end).max()?);
        let of_heaps = heaps.iter().flat_map(|heap| [heap.begin, heap.end - heap.begin, heap.segments, heap.shift.into()]);
        put(&mut jvm, 0, of_heaps.flat_map(u64::to_ne_bytes));
        put(&mut jvm, HEAP * MAX_HEAPS, [begin, end - begin].into_iter().flat_map(u64::to_ne_bytes));
        let in_blob = |field: Field, width: u8| (field.width == width && field.offset + 8 <= BLOB_BYTES).then_some(field.offset);
        let (code, is_distance) = match self.blob_code {
            CodePlace::Address(field) => (in_blob(field, 8)?, false),
            CodePlace::Distance(field) => (in_blob(field, 4)?, true),
        };
        let is_short = self.blob_complete.width == 2;
        let offsets = [
            self.block_header,
            in_blob(self.blob_name, 8)?,
            in_blob(self.blob_frame_size, 4)?,
            in_blob(self.blob_complete, if is_short { 2 } else { 4 })?,
            code,
            self.compile_id.offset,
            self.const_method.offset,
            self.constants.offset,
            self.code_size.offset,
            self.const_method_size,
        ];
        let offsets: Option<Vec<u16>> = offsets.into_iter().map(|offset| u16::try_from(offset).ok()).collect();
        put(&mut jvm, OFFSETS, offsets?.into_iter().flat_map(u16::to_ne_bytes));
        put(&mut jvm, FLAGS, [u8::from(is_distance), u8::from(is_short), self.sender_sp()]);
        let is_near = |field: Field| field.offset + 8 <= CONSTANT_BYTES;
        let is_known =
            self.compile_id.width == 4 && self.code_size.width == 2 && is_near(self.constants) && is_near(self.code_size);
        is_known.then_some(jvm)
    }
}

impl Layout {
    /// The register in which an interpreted method begins with the stack pointer of its caller: r13, on arm64 x13, from JDK 20 on x19.
    fn sender_sp(&self) -> u8 {
        if cfg!(target_arch = "aarch64") && self.version >= 20 { 19 } else { 13 }
    }
}

fn put(into: &mut [u8], at: usize, bytes: impl IntoIterator<Item = u8>) {
    into.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = byte);
}
