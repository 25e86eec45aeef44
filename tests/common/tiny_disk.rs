//! A file system that is soon full.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of 64 kB, unmounted when dropped.
pub(crate) struct TinyDisk(pub(crate) PathBuf);

impl TinyDisk {
    /// Mounts it on an existing directory.
    #[track_caller]
    pub(crate) fn mount(at: &Path) -> TinyDisk {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "flametop-test"]).arg(at).status();
        assert!(mounted.is_ok_and(|status| status.success()), "NOT TESTED: tmpfs cannot be mounted here");
        TinyDisk(at.to_owned())
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
