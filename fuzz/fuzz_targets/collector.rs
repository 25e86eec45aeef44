//! Parses texts and records of the kernel in which users choose names and paths, and tables of the cache.
//!
//! The kernel's inputs are perf's side-band records, records of the ring buffer, /proc/PID/{stat,maps,cmdline,mountinfo}, and notes of
//! mapped files. The first byte chooses the parser: `flametop::collector::fuzzing::CollectorReader`.
#![no_main]

use flametop::collector::fuzzing::CollectorReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let reader = CollectorReader::ALL[usize::from(*kind) % CollectorReader::ALL.len()];
    if let Err(broken) = reader.read(bytes) {
        panic!("{reader:?}: {broken}");
    }
});
