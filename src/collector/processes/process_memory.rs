//! Reads the memory of a process, on the threads of [`reader`](super::reader).

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::object::process::directory;
use crate::runtimes::Memory;

/// A process's memory. Reading it takes the process's memory lock.
pub(super) struct ProcessMemory(File);

impl ProcessMemory {
    pub(super) fn open(tgid: u32) -> Option<ProcessMemory> {
        File::open(directory(tgid).join("mem")).ok().map(ProcessMemory)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.0.read_exact_at(buffer, address).is_ok()
    }
}

/// Reads code of a process, so that its page is in memory.
pub(super) fn bring_into_memory(tgid: u32, address: u64) {
    // A process that is gone needs no code.
    let _ = ProcessMemory::open(tgid).is_some_and(|memory| memory.read(address, &mut [0; 8]));
}
