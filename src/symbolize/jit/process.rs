//! The process whose JIT code is named: whether it is still the sampled one, and which files are its maps.
//!
//! # Which files
//!
//! | file | found |
//! | --- | --- |
//! | `/tmp/perf-PID.map` | in the process's root and mount namespace (`/proc/TGID/root`), PID as in its own pid namespace |
//! | `jit-PID.dump` | among the executable mappings of the process: runtimes map the file to tell profilers where it is |
//!
//! # Whether they may be read
//!
//! We may be root while the user of the process is not, and we show what we read. So a perf map is read only if it is a regular file of the
//! process's real user or of root, with one hard link. Its name must not be a symbolic link or a mount. Otherwise a link, a hard link or a
//! bind mount could show the content of `/etc/shadow`. The effective user does not count: for a set-uid program it is the owner of the
//! program's file, who did not start it. A dump needs no check: the process has mapped it, so it may read it.
//!
//! An earlier process of the same number may have left a map behind. So a map that was last written before the process began is rejected.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::object::io_timeout::FailureDomain;
use crate::object::open::{self, OpenError, OpenFile, Root};
use crate::object::process::directory;
use crate::object::reason::Reason;
use crate::profile::{Tgid, UserId};

/// How much older than its process a map may seem: clocks of file systems are coarse, and the machine's clock may have been set since.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of a process's list of mappings that are searched for a dump: over 100,000 lines.
const MAX_MAPS: u64 = 16 << 20;

/// Distinguishes a program from another one that runs under the same number, now or later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    /// Start time of the process, in clock ticks since boot.
    started: u64,
    /// Start address of its stack: it changes with each `execve`, as long as addresses are random and we may see them.
    stack: u64,
}

/// A process, as it was when it was first read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    tgid: Tgid,
    /// The program that it runs.
    pub(crate) life: Life,
    /// Its name in the kernel.
    pub(crate) name: String,
    /// Its number in its own pid namespace, the only number that it knows.
    pid: u32,
    /// Its real user, who has started it.
    user: UserId,
}

impl Process {
    /// Reads the process of this number. `None` if there is none, or if it has ended.
    pub(crate) fn read(tgid: Tgid) -> Option<Process> {
        let life = Life::of(tgid)?;
        let status = String::from_utf8_lossy(&std::fs::read(format!("/proc/{tgid}/status")).ok()?).into_owned();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        // The four fields are the real, effective, saved and file system user.
        let user = field("Uid")?.split_ascii_whitespace().next()?.parse().ok().map(UserId)?;
        // The fields go from the outermost namespace to its own. Before Linux 4.1 there is no such line.
        let pid = field("NSpid").and_then(|pids| pids.split_ascii_whitespace().next_back()?.parse().ok()).unwrap_or(tgid.0);
        Some(Process { tgid, life, name: field("Name")?.to_owned(), pid, user })
    }

    /// Whether the process still exists and runs the same program.
    pub(crate) fn is_alive(&self) -> bool {
        Life::of(self.tgid) == Some(self.life)
    }

    /// Returns its real user.
    pub(crate) fn user(&self) -> UserId {
        self.user
    }

    /// Returns the failure domain of its files.
    pub(crate) fn place(&self) -> FailureDomain {
        Root::Process(self.tgid).place(Path::new("/tmp/map"))
    }

    /// Opens its perf map. [`Reason::NotFound`] if there is none. `payer` is charged for it. May wait.
    pub(crate) fn perf_map(&self, payer: UserId) -> Result<OpenFile, Reason> {
        let name = format!("perf-{}.map", self.pid);
        let file = open::entry_now(payer, &Root::Process(self.tgid), Path::new("/tmp"), &name).map_err(|error| match error {
            OpenError::NotRegular | OpenError::NotStorage => Reason::CodeMapNotRegular,
            error => error.into(),
        })?;
        self.check(&file)?;
        // The file belongs to this process only if the process still exists.
        if self.is_alive() { Ok(file) } else { Err(Reason::ProcessGone) }
    }

    fn check(&self, file: &OpenFile) -> Result<(), Reason> {
        let facts = &file.facts;
        if facts.links > 1 || (facts.owner != self.user && facts.owner != UserId(0)) {
            return Err(Reason::CodeMapForeign);
        }
        let (seconds, nanoseconds) = facts.modified;
        let written = Duration::new(seconds.max(0).unsigned_abs(), nanoseconds);
        if written.saturating_add(GRACE) < self.life.began() { Err(Reason::CodeMapStale) } else { Ok(()) }
    }

    /// Reads bytes of its memory. May wait for a file system that does not answer: see [`io_timeout`](crate::object::io_timeout).
    pub(crate) fn memory(&self, addresses: Range<u64>) -> Result<Vec<u8>, Reason> {
        let memory = File::open(directory(self.tgid.0).join("mem"))?;
        let size = addresses.end.checked_sub(addresses.start).and_then(|size| usize::try_from(size).ok());
        let mut bytes = vec![0; size.ok_or(Reason::Malformed)?];
        memory.read_exact_at(&mut bytes, addresses.start)?;
        if self.is_alive() { Ok(bytes) } else { Err(Reason::ProcessGone) }
    }

    /// Returns the failure domain of its memory.
    pub(crate) fn place_of_memory(&self) -> FailureDomain {
        FailureDomain::beside(Path::new(&format!("/proc/{}/mem", self.tgid)), Path::new("/memory/of"))
    }

    /// Opens its jitdump, if it has one mapped. `payer` is charged for it. May wait.
    pub(crate) fn jitdump(&self, payer: UserId) -> Option<OpenFile> {
        let file = File::open(directory(self.tgid.0).join("maps")).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_MAPS).read_to_end(&mut bytes).ok()?;
        // Paths may hold any bytes, but ranges and names of dumps are ASCII.
        let maps = String::from_utf8_lossy(&bytes);
        let name = format!("/jit-{}.dump", self.pid);
        let dump = maps.lines().filter_map(|line| mapping_of(line, &name)).find_map(|mapping| {
            let file = open::mapping_now(payer, self.tgid, mapping.range).ok()?;
            (file.facts.inode == mapping.inode).then_some(file)
        })?;
        self.is_alive().then_some(dump)
    }
}

/// An executable mapping of a file.
struct Mapped {
    range: Range<u64>,
    inode: u64,
}

/// Parses `start-end perms offset major:minor inode path`. `None` unless it is executable and its path ends in `name`.
fn mapping_of(line: &str, name: &str) -> Option<Mapped> {
    let path = line.strip_suffix(" (deleted)").unwrap_or(line);
    if !path.ends_with(name) {
        return None;
    }
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let inode = fields.nth(2)?.parse().ok()?;
    let (start, end) = range.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok();
    let range = address(start)?..address(end)?;
    permissions.contains('x').then_some(Mapped { range, inode })
}

impl Life {
    /// Reads it from /proc. `None` if the process is gone or is a zombie, which has no memory and root any more.
    fn of(tgid: Tgid) -> Option<Life> {
        // The name may contain anything, so it ends at the last parenthesis. The fields are those of proc(5) from the third on.
        let fields = |stat: std::io::Result<Vec<u8>>| {
            let stat = stat.ok()?;
            let rest = stat.get(memchr::memrchr(b')', &stat)? + 1..)?;
            let fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace().map(str::to_owned);
            Some(fields.collect::<Vec<String>>())
        };
        let number = |fields: &[String], field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let is_dead = |fields: &[String]| matches!(fields.first().map(String::as_str), None | Some("Z" | "X" | "x"));
        let first = fields(std::fs::read(format!("/proc/{tgid}/stat")))?;
        // Only a living thread tells where the stack is.
        let living = if is_dead(&first) { fields(std::fs::read(directory(tgid.0).join("stat")))? } else { first.clone() };
        (!is_dead(&living)).then_some(Life { started: number(&first, 22)?, stack: number(&living, 28)? })
    }

    /// Returns when the process began, since 1970.
    fn began(self) -> Duration {
        let now = |clock| {
            let now = clock_gettime(clock);
            Duration::new(now.tv_sec.max(0).unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
        };
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let rest = self.started % ticks * 1_000_000_000 / ticks;
        let started = Duration::new(self.started / ticks, u32::try_from(rest).unwrap_or(0));
        let age = now(ClockId::Boottime).saturating_sub(started);
        now(ClockId::Realtime).saturating_sub(age)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{hard_link, remove_file, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::process::{Child, Command};
    use std::time::SystemTime;

    use super::*;

    /// A process that sleeps, and the path of its map, which is removed when this is dropped.
    struct Sleeper(Child, PathBuf);

    impl Sleeper {
        fn start() -> Sleeper {
            let child = Command::new("sleep").arg("60").spawn().unwrap();
            let map = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
            let _ = remove_file(&map);
            // Until the child runs its program it is a copy of this process. For a moment more its stack is not at its final address. Once
            // it sleeps, both are over.
            let own = std::env::current_exe().unwrap();
            let sleeps = || std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap().contains("State:\tS");
            while std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap() == own || !sleeps() {
                std::thread::yield_now();
            }
            Sleeper(child, map)
        }

        fn process(&self) -> Process {
            Process::read(Tgid(self.0.id())).unwrap()
        }

        fn open(&self) -> Result<String, Reason> {
            let process = self.process();
            let file = process.perf_map(process.user())?;
            let mut text = String::new();
            file.opened.near().unwrap().read_to_string(&mut text).unwrap();
            Ok(text)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            let _ = remove_file(&self.1);
        }
    }

    #[test]
    fn a_process_is_told_from_another_of_its_number() {
        let mut sleeper = Sleeper::start();
        let process = sleeper.process();
        assert_eq!((process.name.as_str(), process.pid, process.is_alive()), ("sleep", sleeper.0.id(), true));
        let earlier = Process { life: Life { started: process.life.started - 1, ..process.life }, ..process.clone() };
        assert!(!earlier.is_alive() && earlier.perf_map(UserId(0)).is_err());
        let age = SystemTime::UNIX_EPOCH.elapsed().unwrap().saturating_sub(process.life.began());
        assert!(age < Duration::from_secs(20), "{age:?}");
        sleeper.0.kill().unwrap();
        // The process ends before its parent has noticed that.
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert_eq!(Process::read(Tgid(u32::MAX)), None);
    }

    #[test]
    fn the_own_map_of_a_process_is_read() {
        let sleeper = Sleeper::start();
        assert_eq!(sleeper.open(), Err(Reason::NotFound));
        write(&sleeper.1, "1000 10 f\n").unwrap();
        assert_eq!(sleeper.open().as_deref(), Ok("1000 10 f\n"));
    }

    #[test]
    fn what_is_no_regular_file_of_that_name_is_refused() {
        let sleeper = Sleeper::start();
        let map = &sleeper.1;
        let secret = tempfile::NamedTempFile::new().unwrap();
        symlink(secret.path(), map).unwrap();
        assert_eq!(sleeper.open(), Err(Reason::CodeMapNotRegular));
        remove_file(map).unwrap();
        std::fs::create_dir(map).unwrap();
        assert_eq!(sleeper.open(), Err(Reason::CodeMapNotRegular));
        std::fs::remove_dir(map).unwrap();
        assert!(Command::new("mkfifo").arg(map).status().unwrap().success());
        assert_eq!(sleeper.open(), Err(Reason::CodeMapNotRegular));
    }

    #[test]
    fn a_map_of_another_user_or_a_second_name_of_roots_file_is_refused() {
        assert!(rustix::process::geteuid().is_root(), "this test needs root: it gives files away");
        let sleeper = Sleeper::start();
        let map = &sleeper.1;
        write(map, "1000 10 f\n").unwrap();
        let user = UserId(65534);
        let nobody = Process { user, ..sleeper.process() };
        assert!(nobody.perf_map(user).is_ok(), "root may have written it");
        let second = map.with_extension("second");
        hard_link(map, &second).unwrap();
        assert_eq!(nobody.perf_map(user).err(), Some(Reason::CodeMapForeign));
        assert_eq!(sleeper.open(), Err(Reason::CodeMapForeign), "another name may be anywhere");
        remove_file(second).unwrap();
        std::os::unix::fs::chown(map, Some(65533), None).unwrap();
        set_permissions(map, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(nobody.perf_map(user).err(), Some(Reason::CodeMapForeign));
        assert_eq!(sleeper.open(), Err(Reason::CodeMapForeign), "not even root's process names its code by a user's file");
    }

    #[test]
    fn the_user_that_counts_is_the_one_who_has_started_the_process() {
        use std::os::unix::fs::chown;
        assert!(rustix::process::geteuid().is_root(), "this test needs root: it runs a set-uid program");
        let directory = tempfile::tempdir().unwrap();
        set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let program = directory.path().join("sleep");
        std::fs::copy("/bin/sleep", &program).unwrap();
        chown(&program, Some(65533), None).unwrap();
        set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
        let mut child = Command::new(&program);
        let mut child = std::os::unix::process::CommandExt::uid(&mut child, 65534).arg("60").spawn().unwrap();
        let effective = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            status.lines().find(|line| line.starts_with("Uid:")).unwrap().split_whitespace().nth(2).unwrap().to_owned()
        };
        while effective() != "65533" {
            std::thread::yield_now();
        }
        let process = Process::read(Tgid(child.id())).unwrap();
        let map = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
        write(&map, "1000 10 f\n").unwrap();
        let opened_of = |owner| {
            chown(&map, Some(owner), None).unwrap();
            process.perf_map(process.user()).map(drop)
        };
        let outcomes = [opened_of(65533), opened_of(65534)];
        remove_file(&map).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((process.user(), outcomes), (UserId(65534), [Err(Reason::CodeMapForeign), Ok(())]));
    }

    #[test]
    fn what_an_earlier_process_of_that_number_left_behind_is_refused() {
        let sleeper = Sleeper::start();
        let file = File::create(&sleeper.1).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        assert_eq!(sleeper.open(), Err(Reason::CodeMapStale));
        file.set_modified(SystemTime::now()).unwrap();
        assert_eq!(sleeper.open().as_deref(), Ok(""));
    }

    #[test]
    fn a_dump_is_an_executable_mapping_of_its_name() {
        let line = "7f00-8f00 r-xp 00000000 fe:00 326279                     /home/me/.debug/my jit/jit-77.dump (deleted)";
        let mapped = mapping_of(line, "/jit-77.dump").unwrap();
        assert_eq!((mapped.range, mapped.inode), (0x7f00..0x8f00, 326279));
        assert!(mapping_of(line, "/jit-7.dump").is_none());
        assert!(mapping_of("7f00-8f00 r--p 00000000 fe:00 326279      /tmp/jit-77.dump", "/jit-77.dump").is_none());
        assert!(mapping_of("/jit-77.dump", "/jit-77.dump").is_none());
        assert!(mapping_of("7f00-8f00 r-xp 0 fe:00 x /jit-77.dump", "/jit-77.dump").is_none());
    }
}
