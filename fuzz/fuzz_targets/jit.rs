//! Reads maps of JIT code. Runtimes write them, but any user may write one. It must not panic or overflow, and memory and time must be in
//! proportion to the input. The first byte chooses the kind of map.
#![no_main]

use flametop::symbolize::code_names;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let addresses: Vec<u64> = (0xff0..0x1100).step_by(3).chain([0, u64::MAX]).collect();
    if let Ok(names) = code_names(bytes, kind & 1 == 1, &addresses) {
        assert!(names.iter().flatten().all(|name| !name.is_empty() && name.len() <= 8 << 10));
    }
});
