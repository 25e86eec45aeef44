//! The directory of a process in `/proc`.

use std::path::{Path, PathBuf};

/// Most threads that are asked after the first one has ended. Those that a process began first come first.
const MAX_ASKED: usize = 64;

/// Returns the directory in `/proc` that shows the memory and the files of a process.
///
/// It is that of the first thread. If the first thread has ended before the others, its directory has no program, mappings, memory, mounts
/// or root any more. Then this is the directory of another thread.
pub fn directory(tgid: u32) -> PathBuf {
    let own = PathBuf::from(format!("/proc/{tgid}"));
    if has_memory(&own) {
        return own;
    }
    let threads = std::fs::read_dir(own.join("task")).into_iter().flatten().take(MAX_ASKED).flatten();
    let directories = threads.map(|thread| Path::new("/proc").join(thread.file_name()));
    directories.into_iter().find(|directory| has_memory(directory)).unwrap_or(own)
}

/// Whether a thread runs a program. One that has ended does not, and a thread of the kernel does not either. Takes no lock for long.
fn has_memory(directory: &Path) -> bool {
    std::fs::read_link(directory.join("exe")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_first_thread_lives_has_its_own_directory() {
        let own = std::process::id();
        assert_eq!(directory(own), PathBuf::from(format!("/proc/{own}")));
        // A thread of the kernel, and a process that does not exist.
        assert_eq!([directory(2), directory(u32::MAX)], [PathBuf::from("/proc/2"), PathBuf::from("/proc/4294967295")]);
    }
}
