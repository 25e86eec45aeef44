//! Reads the kernel's tracing file system: the numbers of tracepoints, and the functions that can be traced.
//!
//! If it is not mounted, flametop mounts it privately, without a mount point: other processes do not see it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::locks;

/// Usual mount points.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Most bytes that are read of a file; the rest is ignored. The functions of a kernel with all its modules take 3 MB.
const MAX_BYTES: u64 = 64 << 20;

/// The file system's root directory.
pub(super) struct TraceFs(OwnedFd);

/// The root directory, kept open since the first call: the privilege to mount it may be gone later.
static OPENED: Mutex<Option<OwnedFd>> = Mutex::new(None);

impl TraceFs {
    /// Opens the root directory once; later calls return the same one.
    pub(super) fn open() -> io::Result<TraceFs> {
        let mut opened = locks::lock(&OPENED);
        let root = match opened.as_ref() {
            Some(root) => root.try_clone()?,
            None => opened.insert(TraceFs::open_or_mount()?.0).try_clone()?,
        };
        Ok(TraceFs(root))
    }

    /// Opens the root directory where it is mounted, or mounts the file system privately.
    fn open_or_mount() -> io::Result<TraceFs> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        for place in PLACES {
            // The directory exists even if no file system is mounted there.
            if let Ok(root) = rustix::fs::open(place, flags, Mode::empty())
                && rustix::fs::accessat(&root, "events", rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty()).is_ok()
            {
                return Ok(TraceFs(root));
            }
        }
        let system = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&system)?;
        Ok(TraceFs(fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?))
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let file = openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).take(MAX_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Returns the number of a tracepoint, for `perf_event_open`.
    pub(super) fn tracepoint(&self, category: &str, name: &str) -> io::Result<u64> {
        let text = self.read(&format!("events/{category}/{name}/id"))?;
        text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("not a number: {text:?}")))
    }

    /// Returns the tracepoints, as `category:name`.
    pub(super) fn tracepoints(&self) -> io::Result<Vec<String>> {
        let text = self.read("available_events")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns the functions that ftrace can trace, without the names of their modules.
    pub(super) fn functions(&self) -> io::Result<Vec<String>> {
        let text = self.read("available_filter_functions")?;
        Ok(text.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_have_numbers_wherever_it_is_mounted() {
        let tracing = TraceFs::open().expect("this test needs root");
        assert!(tracing.tracepoint("sched", "sched_switch").unwrap() > 0);
        assert!(tracing.tracepoints().unwrap().iter().any(|name| name == "sched:sched_switch"));
        assert_eq!(tracing.tracepoint("sched", "no_such").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
