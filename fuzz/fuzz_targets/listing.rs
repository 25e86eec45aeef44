//! Shows functions of hostile programs: code of x86_64 and arm64, source text, mangled names, source maps. It must not panic, overflow, or show control
//! characters, and rows must be in order. The first byte chooses the reader: `flametop::symbolize::ListingReader`.
#![no_main]

use flametop::symbolize::ListingReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let reader = ListingReader::ALL[usize::from(*kind) % ListingReader::ALL.len()];
    if let Err(broken) = reader.read(bytes) {
        panic!("{reader:?}: {broken}");
    }
});
