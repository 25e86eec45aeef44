//! A file system that can fall silent, as if its server were gone: FUSE, served by this process.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A mounted file system with one file. The kernel caches all parts of the file that were read once. It is unmounted when
/// dropped; processes that wait for it then get an error.
pub(crate) struct SilentDisk {
    at: PathBuf,
    silent: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
    /// Closing it ends all waiting requests.
    _device: File,
}

/// Requests, and answers: linux/fuse.h.
mod fuse {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const KEEP_CACHE: u32 = 1 << 1;
    pub(super) const HEADER: usize = 40;
    /// Node numbers of the directory and of the file.
    pub(super) const ROOT: u64 = 1;
    pub(super) const PROGRAM: u64 = 2;
}

const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

impl SilentDisk {
    /// Mounts it on an existing directory, with a program of this name.
    #[track_caller]
    pub(crate) fn mount(at: &Path, name: &str, content: Vec<u8>) -> SilentDisk {
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("NOT TESTED: there is no /dev/fuse here");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = std::ffi::CString::new(options).expect("no zeros");
        mount("flametop-test", at, "fuse", MountFlags::empty(), options.as_c_str()).expect("NOT TESTED: FUSE cannot be mounted");
        let silent = Arc::new(AtomicBool::new(false));
        let server = Server {
            device: device.try_clone().expect("a descriptor more"),
            silent: Arc::clone(&silent),
            name: name.to_owned(),
            content,
        };
        let server = Some(std::thread::spawn(move || server.serve()));
        SilentDisk { at: at.to_owned(), silent, server, _device: device }
    }

    /// Stops answering. It does not accept requests either: a process whose request was accepted cannot even be killed while it
    /// waits, and servers on a network never cause that.
    pub(crate) fn fall_silent(&mut self) {
        self.silent.store(true, Ordering::SeqCst);
        if let Some(server) = self.server.take() {
            server.join().expect("the server has not failed");
        }
    }
}

impl Drop for SilentDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::FORCE | UnmountFlags::DETACH);
        self.fall_silent();
    }
}

struct Server {
    device: File,
    silent: Arc<AtomicBool>,
    name: String,
    content: Vec<u8>,
}

impl Server {
    fn serve(mut self) {
        let mut request = vec![0; 1 << 18];
        while !self.silent.load(Ordering::SeqCst) {
            let mut ready = [PollFd::new(&self.device, PollFlags::IN)];
            if !matches!(poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 })), Ok(1)) {
                continue;
            }
            // It is unmounted.
            let Ok(length) = self.device.read(&mut request) else { return };
            let Some(header) = request[..length].first_chunk::<{ fuse::HEADER }>() else { return };
            let kind = u32::from_ne_bytes(header[4..8].try_into().unwrap());
            let node = u64::from_ne_bytes(header[16..24].try_into().unwrap());
            if [fuse::FORGET, fuse::INTERRUPT, fuse::BATCH_FORGET].contains(&kind) {
                continue;
            }
            let answer = self.answer(kind, node, &request[fuse::HEADER..length]);
            let (error, body) = answer.map_or_else(|error| (-error, Vec::new()), |body| (0, body));
            let size = u32::try_from(16 + body.len()).unwrap();
            let reply = [&size.to_ne_bytes()[..], &error.to_ne_bytes(), &header[8..16], &body].concat();
            let _ = self.device.write_all(&reply);
        }
    }

    fn answer(&self, kind: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        match kind {
            fuse::INIT => {
                // Version, bytes read ahead, no flags; two queues' lengths; bytes written at most; times to the nanosecond.
                let mut answer = [7u32, 31, 1 << 17, 0, 12 << 16 | 16, 1 << 17, 1].map(u32::to_ne_bytes).concat();
                answer.resize(64, 0);
                Ok(answer)
            }
            fuse::LOOKUP if body.strip_suffix(b"\0") == Some(self.name.as_bytes()) => {
                // Node and generation. They are valid for no time at all, so the kernel requests them again.
                let entry = [fuse::PROGRAM, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
                Ok([entry, self.attributes(fuse::PROGRAM)].concat())
            }
            fuse::LOOKUP => Err(ENOENT),
            fuse::GETATTR => Ok([[0u64, 0].map(u64::to_ne_bytes).concat(), self.attributes(node)].concat()),
            fuse::OPEN => Ok([0u64.to_ne_bytes(), u64::from(fuse::KEEP_CACHE).to_ne_bytes()].concat()),
            fuse::READ => {
                let offset = usize::try_from(u64::from_ne_bytes(body[8..16].try_into().unwrap())).unwrap();
                let size = u32::from_ne_bytes(body[16..20].try_into().unwrap()) as usize;
                let rest = self.content.get(offset..).unwrap_or_default();
                Ok(rest[..size.min(rest.len())].to_vec())
            }
            fuse::RELEASE | fuse::FLUSH => Ok(Vec::new()),
            _ => Err(ENOSYS),
        }
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let size = if node == fuse::ROOT { 0 } else { self.content.len() as u64 };
        let mode = if node == fuse::ROOT { 0o040_755 } else { 0o100_755 };
        let longs = [node, size, size.div_ceil(512), 0, 0, 0].map(u64::to_ne_bytes).concat();
        // Parts of seconds, then mode, links, user, group, device, size of blocks, flags.
        let words = [0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat();
        [longs, words].concat()
    }
}
