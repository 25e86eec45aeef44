//! Files that may not answer: files of a network file system whose server is gone, or of a file system that a program serves (FUSE).
//!
//! A thread that opens such a file, or only reads its metadata, may wait without end and cannot be interrupted. So a thread that can be
//! left behind does the work:
//!
//! ```text
//! within(user, place, time, work) ──► a thread ──► work ──► its answer, in time
//!                                        └────────────────► none in time: the thread is left behind, and as long as it waits
//!                                                           nothing else is asked of that place for that user
//! ```
//!
//! `place` is a [`FailureDomain`]. `user` is the user who chose the file: the user whose process names it. When a few threads have been
//! left behind for a user's files, no further work is done for that user until one of them comes back. Other users are not affected.
//!
//! Files are opened this way, and remote files are read this way ([`Opened`]). Files on a disk of this machine are read directly.

use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use rustc_hash::{FxBuildHasher, FxHashMap};
use rustix::process::Pid;

use super::crew;
use crate::locks;
use crate::privileges;

/// How long opening a file, or one read of a remote file, may take. A disk that has to start turning takes longer than a working server.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// While this many threads are left behind, work is done only for root's files.
const MAX_LEFT: usize = 256;
/// While this many threads are left behind for the files of one user, no more work is done for that user. Root's number is larger, because
/// all users share root's file systems.
const MAX_LEFT_OF_USER: usize = 8;
const MAX_LEFT_OF_ROOT: usize = 64;
/// Most idle threads that are kept for the next work.
const MAX_IDLE: usize = 2;
/// File systems that live on other machines or in other programs: `f_type` of statfs(2), and linux/magic.h.
const FAR: [u64; 15] = [
    0x6969,      // NFS
    0x6573_5546, // FUSE
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x517b,      // SMB
    0x0102_1997, // 9p
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x7375_7245, // Coda
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0xbacb_acbc, // VMware's shared folders
    0x786f_4256, // VirtualBox's
];

/// A device, as `st_dev` has it.
pub type Device = u64;

/// A place: a part of the file systems that answers, or fails to answer, as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FailureDomain(u64);

impl FailureDomain {
    /// Returns the place of all files on a device.
    pub fn device(device: Device) -> FailureDomain {
        FailureDomain(FxBuildHasher.hash_one(("device", device)))
    }

    /// Returns the place of a process's files in `/proc`. They do not answer while its memory lock is held.
    pub fn process(tgid: impl std::hash::Hash) -> FailureDomain {
        FailureDomain(FxBuildHasher.hash_one(("process", tgid)))
    }

    /// Returns the place of all files in the directory of `file`, under a process's root or our own.
    pub fn beside(root: &Path, file: &Path) -> FailureDomain {
        FailureDomain(FxBuildHasher.hash_one((root, file.parent())))
    }
}

/// A user, numbered as in the initial user namespace.
pub type User = u32;

/// Returns whether the thread may do further work.
type Work = Box<dyn FnOnce() -> bool + Send>;

/// The threads that wait for work, and the threads left behind.
#[derive(Default)]
struct Waiting {
    idle: Vec<Sender<Work>>,
    /// Number of threads left behind, by the user who chose the file and by place.
    left: FxHashMap<(User, FailureDomain), usize>,
}

impl Waiting {
    /// Whether new work at this place may be done for this user.
    fn may_ask(&self, user: User, place: FailureDomain) -> bool {
        let of_user: usize = self.left.iter().filter(|((other, _), _)| *other == user).map(|(_, count)| count).sum();
        let all: usize = self.left.values().sum();
        let has_room = if user == 0 { of_user < MAX_LEFT_OF_ROOT } else { of_user < MAX_LEFT_OF_USER && all < MAX_LEFT };
        has_room && !self.left.contains_key(&(user, place))
    }
}

static WAITING: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);

fn waiting() -> MutexGuard<'static, Waiting> {
    locks::lock(&WAITING)
}

/// The phase of a piece of work; changed under the lock of [`WAITING`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Asked,
    /// A thread does it.
    Begun(Pid),
    Answered,
    Left,
}

/// Counts the threads that are left behind now.
pub fn left_behind() -> usize {
    waiting().left.values().sum()
}

/// Does work that may wait for files of a place, for at most `time`. `user` is the user who chose the file.
///
/// Fails with [`io::ErrorKind::TimedOut`] after that. The thread still finishes `work`, and its result is dropped. Fails in the same way
/// at once, without doing the work, while a thread is left behind at this place for this user, or too many threads are left behind. Also
/// fails if `work` panics.
pub fn within<T: Send + 'static>(
    user: User,
    place: FailureDomain,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let silent = || io::Error::from(io::ErrorKind::TimedOut);
    let (tell, told) = channel();
    let phase = Arc::new(Mutex::new(Phase::Asked));
    let theirs = Arc::clone(&phase);
    let work: Work = Box::new(move || {
        {
            let mut phase = locks::lock(&theirs);
            if *phase == Phase::Asked {
                *phase = Phase::Begun(rustix::thread::gettid());
            }
        }
        let answer = catch_unwind(AssertUnwindSafe(work));
        let mut waiting = waiting();
        let before = std::mem::replace(&mut *locks::lock(&theirs), Phase::Answered);
        if before == Phase::Left {
            waiting.left.entry((user, place)).and_modify(|count| *count -= 1);
            waiting.left.retain(|_, count| *count > 0);
        } else if let Ok(answer) = answer {
            // The caller still waits: it checks the phase under the same lock before it leaves.
            let _ = tell.send(answer);
        }
        before != Phase::Left
    });
    {
        let mut waiting = waiting();
        if !waiting.may_ask(user, place) {
            return Err(silent());
        }
        let work = match waiting.idle.pop() {
            Some(thread) => thread.send(work).err().map(|refused| refused.0),
            None => Some(work),
        };
        if let Some(work) = work {
            std::thread::Builder::new().name("files".to_owned()).spawn(move || serve(work))?;
        }
    }
    let waits = crew::Waiting::begin();
    let answer = told.recv_timeout(time);
    drop(waits);
    if let Ok(answer) = answer {
        return Ok(answer);
    }
    let mut waiting = waiting();
    let mut phase = locks::lock(&phase);
    if *phase == Phase::Answered {
        // The answer came a moment ago; or the work has panicked, and there is none.
        return told.try_recv().map_err(|_| io::Error::other("reading a file failed unexpectedly"));
    }
    if let Phase::Begun(thread) = *phase
        && user != 0
    {
        privileges::give_way(thread);
    }
    *phase = Phase::Left;
    *waiting.left.entry((user, place)).or_default() += 1;
    Err(silent())
}

/// Runs on a thread: does one piece of work after the other, as long as few threads are idle.
fn serve(first: Work) {
    privileges::drop_unneeded();
    let mut next = Some(first);
    while let Some(work) = next {
        if !work() {
            // It may have the lowest priority.
            return;
        }
        let (tell, told) = channel();
        {
            let mut waiting = waiting();
            if waiting.idle.len() >= MAX_IDLE {
                return;
            }
            waiting.idle.push(tell);
        }
        next = told.recv().ok();
    }
}

/// Whether the number of a device is that of a disk of this machine. Its files mostly need no time limit. But a program may serve the file
/// system on a disk: see [`Opened::new`].
pub fn is_disk(device: Device) -> bool {
    // File systems without a disk have major number 0: all remote ones, but also file systems in memory, btrfs and overlayfs.
    rustix::fs::major(device) != 0
}

/// An open file, and whether it may stop answering.
#[derive(Clone, Debug)]
pub struct Opened {
    file: Arc<File>,
    /// If the file is remote: the user who chose it, and its place.
    place: Option<(User, FailureDomain)>,
}

impl Opened {
    /// Takes an open file, and queries whether its file system is remote. The query may wait, like opening the file, so it must be done
    /// [`within`] a time.
    pub fn new(user: User, file: File) -> io::Result<Opened> {
        let device = file.metadata()?.dev();
        // The device number does not decide, because a program may serve a disk (fuseblk).
        let is_far = FAR.contains(&(rustix::fs::fstatfs(&file)?.f_type as u64 & 0xffff_ffff));
        Ok(Opened { file: Arc::new(file), place: is_far.then(|| (user, FailureDomain::device(device))) })
    }

    /// Returns the file itself, if it is on this machine.
    pub fn near(&self) -> Option<&File> {
        self.place.is_none().then_some(&*self.file)
    }

    /// Calls `question` with the file, within [`PATIENCE`] if the file is remote.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(&File) -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let Some((user, place)) = self.place else { return question(&self.file) };
        let file = Arc::clone(&self.file);
        within(user, place, PATIENCE, move || question(&file))?
    }

    /// Reads at an offset, as [`FileExt::read_at`] does. May read less than the buffer holds.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(file) = self.near() {
            return file.read_at(buffer, offset);
        }
        let length = buffer.len();
        let read = move |file: &File| {
            let mut bytes = vec![0; length];
            file.read_at(&mut bytes, offset).map(|count| (bytes, count))
        };
        let (bytes, count) = self.ask(read)?;
        buffer.copy_from_slice(&bytes);
        Ok(count)
    }

    /// Fills a buffer from an offset, as [`FileExt::read_exact_at`] does.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(file) = self.near() {
            return file.read_exact_at(buffer, offset);
        }
        let length = buffer.len();
        let read = move |file: &File| {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset).map(|()| bytes)
        };
        buffer.copy_from_slice(&self.ask(read)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A place that no other test uses.
    const NOBODY: FailureDomain = FailureDomain(1);

    #[test]
    fn what_answers_in_time_is_told_and_threads_are_used_again() {
        for number in 0..100 {
            assert_eq!(within(1, NOBODY, PATIENCE, move || number * 2).unwrap(), number * 2);
        }
        assert!(waiting().idle.len() <= MAX_IDLE);
        let panicked = within(1, NOBODY, PATIENCE, || -> u32 { panic!("on purpose") });
        assert_eq!(panicked.unwrap_err().kind(), io::ErrorKind::Other);
    }

    #[test]
    fn what_does_not_answer_is_left_and_its_device_not_asked_until_it_does() {
        let (release, held) = channel::<()>();
        let place = FailureDomain(2);
        let begun = Instant::now();
        let short = Duration::from_millis(50);
        let outcome = within(1, place, short, move || held.recv().is_ok());
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= short);
        assert_eq!(within(1, place, PATIENCE, || 1).unwrap_err().kind(), io::ErrorKind::TimedOut, "it is not asked");
        assert!(begun.elapsed() < PATIENCE, "and nobody waits");
        assert_eq!(within(1, NOBODY, PATIENCE, || 2).unwrap(), 2, "others are");
        assert_eq!(within(2, place, PATIENCE, || 2).unwrap(), 2, "and so are other users");
        release.send(()).unwrap();
        while within(1, place, PATIENCE, || 3).is_err() {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    }

    #[test]
    fn files_here_are_not_far() {
        let file = tempfile::tempfile().unwrap();
        let opened = Opened::new(0, file).unwrap();
        assert!(opened.near().is_some() && opened.ask(|file| file.metadata()).unwrap().len() == 0);
        assert!(is_disk(rustix::fs::makedev(8, 1)) && !is_disk(rustix::fs::makedev(0, 40)));
    }

    #[test]
    fn a_user_whose_files_do_not_answer_blocks_nobody_else() {
        let user = 77;
        let mut held = Vec::new();
        for number in 0..MAX_LEFT_OF_USER {
            let (release, waits) = channel::<()>();
            held.push(release);
            let place = FailureDomain(1000 + number as u64);
            assert!(within(user, place, Duration::from_millis(10), move || waits.recv().is_ok()).is_err());
        }
        assert_eq!(within(user, NOBODY, PATIENCE, || 1).unwrap_err().kind(), io::ErrorKind::TimedOut, "that user has had enough");
        assert_eq!(within(78, NOBODY, PATIENCE, || 1).unwrap(), 1);
        assert_eq!(within(0, NOBODY, PATIENCE, || 1).unwrap(), 1);
        drop(held);
        let begun = Instant::now();
        while within(user, NOBODY, PATIENCE, || 1).is_err() {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    }
}
