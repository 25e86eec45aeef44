//! Finds and reads the files that belong to an object, for unwind tables and for names. Object and files are arbitrary bytes. The files
//! are separate debug files by build id and by link, alternate files of dwz, and split DWARF. It must not panic or overflow, and memory and
//! time must be bounded.
//!
//! ```text
//! length of the object u32 │ the object … │ the other file …
//! ```
//!
//! The other file is present under every name that the seeds use for such files.
#![no_main]

use std::path::{Path, PathBuf};

use flametop::unwind::{OnDisk, convert};
use flametop::object::open::Root;
use flametop::profile::{BuildId, ElfAddress, UserId};
use flametop::symbolize::{Detail, Resolver};
use libfuzzer_sys::fuzz_target;

/// The build id of the seeds; it determines the path of a debug file.
const BUILD_ID: [u8; 8] = [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
const NAMES: [&str; 5] = ["usr/lib/debug/.build-id/00/11223344556677.debug", "a.debug", "alt", "a.dwo", "object.dwp"];

/// A directory in memory, made once.
fn root() -> PathBuf {
    let root = PathBuf::from(format!("/dev/shm/flametop-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(root.join(NAMES[0]).parent().expect("it has one")).expect("/dev/shm can be written to");
    root
}

fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
    let (object, other) = rest.split_at(length);
    let root = root();
    std::fs::write(root.join(NAMES[0]), other).expect("it can be written");
    for name in &NAMES[1..] {
        let _ = std::fs::hard_link(root.join(NAMES[0]), root.join(name));
    }
    let beside = OnDisk::under(UserId(0), Root::Under(root.clone()), Some(Path::new("/").to_owned()), BuildId::new(&BUILD_ID));
    let _ = convert(object, &beside);
    if let Ok(mut resolver) = Resolver::of_bytes_beside(object, &root, Some(Detail::Full)) {
        for address in (0x1000..0x1400).chain(0x40_1000..0x40_1100).step_by(5).chain([0, 1 << 47, u64::MAX - 1]) {
            let _ = resolver.resolve(ElfAddress(address));
        }
    }
});
