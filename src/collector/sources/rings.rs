//! The two ring buffers that the programs write to: records, and stack dumps.

use std::sync::{Arc, Mutex, MutexGuard};

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::collector::bpf_errors::bpf_error;
use crate::collector::error::CollectorError;
use crate::collector::sources::walk::Walk;
use crate::collector::sys::windowed_ring::WindowedRing;
use crate::collector::wire::pending::Pending;
use crate::collector::wire::records::MAX_DUMP;
use crate::locks;

/// The rings, and the records that were read from them.
pub(super) struct Rings {
    records: RingBuffer<'static>,
    dumps: WindowedRing,
    pending: Arc<Mutex<Pending>>,
}

impl Rings {
    /// Maps the rings.
    pub(super) fn new(records: &impl MapCore, dumps: &impl MapCore) -> Result<Rings, CollectorError> {
        let failed = |error| bpf_error("map the ring buffer", &error);
        let dumps = WindowedRing::new(dumps, MAX_DUMP);
        let dumps = dumps.map_err(|source| CollectorError::Read { path: "the ring of stack dumps", source })?;
        let pending = Arc::new(Mutex::new(Pending::default()));
        let sink = Arc::clone(&pending);
        let take = move |record: &[u8]| {
            locks::lock(&sink).push(record);
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(records, take).map_err(failed)?;
        Ok(Rings { records: builder.build().map_err(failed)?, dumps, pending })
    }

    /// Reads all records of the rings. A dump that cannot be mapped now stays in its ring until the next read.
    pub(super) fn read(&mut self) -> Result<(), CollectorError> {
        self.records.consume().map_err(|error| bpf_error("read the ring buffer", &error))?;
        // Dumps are read after the samples, because a dump is sent before its sample.
        let mut pending = locks::lock(&self.pending);
        // A sample without its dump gets a shorter stack, with the reason.
        let _ = self.dumps.read(|dump| pending.push_dump(dump));
        Ok(())
    }

    /// Returns the records that were read and wait for their turn.
    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        locks::lock(&self.pending)
    }
}

/// Returns the size of the ring of records, 2 to 64 MiB. It has room for half a second of samples of 512 bytes (about 57 frames) if all
/// CPUs are busy. The deepest samples have 17 KiB. A ring that is half full wakes the reader.
pub(crate) fn ring_bytes(frequency: u32, cpus: usize) -> u32 {
    let wanted = u64::from(frequency).saturating_mul(1024).saturating_mul(cpus as u64);
    u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1 << 21, 1 << 26).next_power_of_two()
}

/// Returns the size of the ring of dumps: 200 small dumps, 60 large ones, or 31 with a far end. Fewer dumps come between two drains, because each request for a
/// table wakes the reader.
pub(super) fn dump_ring_bytes(walk: Walk) -> u32 {
    match most_dump_pages(walk) {
        0 => 4096,
        _ => 4 << 20,
    }
}

/// Returns the number of stack pages that each CPU may copy in a second: `most_dump_pages` of bpf/walk/dump.h. Copying 8,192 takes less
/// than one percent of the CPU.
pub(crate) fn most_dump_pages(walk: Walk) -> u32 {
    match walk {
        Walk::Tables | Walk::Anew | Walk::Copied => 8192,
        Walk::Dumped => u32::MAX,
        Walk::FramePointers | Walk::Compared | Walk::Nothing | Walk::Twice => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_grows_with_cpus_and_frequency_within_bounds() {
        assert_eq!(ring_bytes(99, 2), 1 << 21);
        assert_eq!(ring_bytes(999, 64), 1 << 26);
        assert_eq!(ring_bytes(u32::MAX, 8192), 1 << 26);
    }
}
