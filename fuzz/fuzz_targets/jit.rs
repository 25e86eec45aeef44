//! What reads the maps that runtimes write of the code they make, which anybody may write: no panic, no overflow, memory and time
//! in proportion to the input. The first byte says which kind it is.
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
