//! Reads symbols and debug information from arbitrary bytes. flametop does this as root for files of all users' processes. It must not
//! panic or overflow, and memory and time must be in proportion to the input.
#![no_main]

use flametop::profile::ElfAddress;
use flametop::symbolize::{Detail, Resolver};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut resolver) = Resolver::of_bytes(bytes, Some(Detail::Full)) else { return };
    // Programs are linked at 0, at 4 MiB, or anywhere. The addresses are in the first code, and a few are outside any program.
    for address in (0x1000..0x1400).chain(0x40_1000..0x40_1100).step_by(5).chain([0, 1 << 47, u64::MAX - 1]) {
        let _ = resolver.resolve(ElfAddress(address));
    }
});
