//! Reads source files, which are as hostile as everything else that a profiled program names.
//!
//! A path is opened within a root directory, first in the root of a process that runs the program. Links of `/proc` are not followed. Only
//! regular files in a storage file system are read. Reading a file in another file system may have side effects, or never end.
//!
//! # Whose files are shown
//!
//! We may read everything, but the program that names the file may not. If a program's debug information gives its source as `/etc/shadow`,
//! we must not show that file.
//!
//! | found in | shown if everyone may read it, or if it belongs to |
//! | --- | --- |
//! | the root of a process | the user who started that process |
//! | our own root | our user, or the caller of sudo, if the program is that user's or the kernel; never to root |
//!
//! The same user must also be allowed to pass all directories above the file's real place, with links followed.
//!
//! A process has ended if another process has its number: one that began at another time, or one of another user ([`Host`]).
//!
//! Our own root is not searched for a process with another root, as in a container, also after the process has ended: it has no right to
//! see files outside of its root. Our own root is also not searched after a file was refused.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::object::mapped_file::US;
use crate::object::open::{Root, in_time, own_files, reopen};
use crate::object::process;
use crate::object::reach::{may_be_reached, resolve};
use crate::object::reason::Reason;
use crate::profile::{FileNamespace, NameRequest, Object, Row, Tgid, UserId, sanitize};

/// Longest file read. The largest sources that people write have some 300 kB; SQLite's amalgamation has 9 MB.
const MAX_SIZE: u64 = 16 << 20;
/// Most lines of a file. The longest sources that people write have some 300,000. Each line costs memory, however short it is.
const MAX_LINES: usize = 500_000;
/// Columns kept of a line. Some generated files have all their text on one line.
const MAX_COLUMNS: usize = 1000;
const TAB: usize = 8;
/// Numbers of namespaces begin here, numbers of devices end below: see `find_owner` in bpf/sample.h.
const FIRST_NAMESPACE: u32 = 0xf000_0000;

/// A file's lines, and when the file was written.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) rows: Vec<Row>,
    pub(crate) modified: Modified,
}

/// When a file was written: seconds, and nanoseconds.
pub(crate) type Modified = (i64, i64);

/// Why a file is not shown.
#[derive(Debug)]
enum Refusal {
    /// Only its owner may read it, and the owner is not the user who would see it.
    Private,
    Other(Reason),
}

impl<E: Into<Reason>> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal::Other(error.into())
    }
}

/// A process that had an object when it was sampled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) tgid: Tgid,
    /// The user and the files of the sample: see [`NameRequest`].
    user: UserId,
    files: FileNamespace,
    /// When the process began; `None` if it was gone when it should be remembered.
    start: Option<u64>,
    has_another_root: bool,
}

impl Host {
    /// Remembers a process that was sampled a moment ago.
    pub(crate) fn of(request: &NameRequest) -> Host {
        let NameRequest { tgid, user, files, .. } = *request;
        let has_another_root = files != own_files() || Process::open(tgid).is_some_and(|process| process.has_another_root());
        Host { tgid, user, files, start: start_of(tgid), has_another_root }
    }

    /// Opens the process, unless it has ended or is another user's by now.
    fn process(&self) -> Option<Process> {
        let process = Process::open(self.tgid)?;
        let is_it = self.start.is_some() && start_of(self.tgid) == self.start && process.is_of(self.user, self.files);
        is_it.then_some(process)
    }
}

/// Returns when a process began: field 22 of its `stat`. It also has that after its first thread has ended.
fn start_of(Tgid(tgid): Tgid) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{tgid}/stat")).ok()?;
    // The name before may contain anything.
    let behind = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 2..)?;
    std::str::from_utf8(behind).ok()?.split(' ').nth(19)?.parse().ok()
}

/// A process that runs the program. Its directory in `/proc` stays open, so all answers are about the same process even if another one gets
/// its number.
struct Process {
    directory: OwnedFd,
}

impl Process {
    fn open(tgid: Tgid) -> Option<Process> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(process::directory(tgid.0), flags, Mode::empty()).ok()?;
        Some(Process { directory })
    }

    fn path_of(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    /// Returns the real user, who has started it. The owner of its directory is no proof: a process can make that root (`PR_SET_DUMPABLE`).
    /// The effective user differs in a set-uid program.
    fn user(&self) -> Option<UserId> {
        let status = std::fs::read_to_string(self.path_of("status")).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        users.split_whitespace().next()?.parse().ok().map(UserId)
    }

    /// Whether its samples have this user and these files. The user of a sample in a user namespace is the owner of the namespace, who acts
    /// as all users inside. Else it is the real user.
    fn is_of(&self, user: UserId, files: FileNamespace) -> bool {
        if files.0 >= FIRST_NAMESPACE {
            return std::fs::metadata(self.path_of("ns/user")).is_ok_and(|about| about.ino() == u64::from(files.0));
        }
        self.user() == Some(user)
    }

    /// Whether it is alive and has a root that is not ours. Also true if its root cannot be read. Does not wait for the root's file system.
    fn has_another_root(&self) -> bool {
        let root_in = |directory: BorrowedFd<'_>, name: &str| {
            let about = rustix::fs::statx(directory, name, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
            Ok((about.stx_dev_major, about.stx_dev_minor, about.stx_ino))
        };
        match root_in(self.directory.as_fd(), "root") {
            Ok(root) => root_in(rustix::fs::CWD, "/") != Ok(root),
            Err(Errno::NOENT | Errno::SRCH) => false,
            Err(_) => true,
        }
    }
}

/// Returns the user whose private files are shown from our own root: the person at the screen, if that is not root.
fn own_user() -> Option<UserId> {
    let user = rustix::process::getuid();
    let caller = || std::env::var("SUDO_UID").ok()?.parse().ok();
    let user = if user.is_root() { caller() } else { Some(user.as_raw()) };
    // `u32::MAX` is the kernel's "nobody in particular".
    user.filter(|user| *user != 0 && *user != u32::MAX).map(UserId)
}

/// Whether a file may be shown for this user.
fn may_be_shown(mode: u32, owner: UserId, user: Option<UserId>) -> bool {
    mode & 0o004 != 0 || user == Some(owner)
}

/// Reads the lines of the file at this path: see [`bytes`].
pub(crate) fn read(path: &str, hosts: &[Host], object: Option<&Object>) -> Result<Text, String> {
    let (bytes, modified) = bytes(path, hosts, object, MAX_SIZE)?;
    Ok(Text { rows: lines(path, &bytes)?, modified })
}

/// Returns the lines of a file with this path, unless it has too many.
pub(crate) fn lines(path: &str, bytes: &[u8]) -> Result<Vec<Row>, String> {
    if bytes.iter().filter(|byte| **byte == b'\n').count() > MAX_LINES {
        return Err(format!("{path} has more than {MAX_LINES} lines"));
    }
    Ok(rows(bytes))
}

/// Reads the file at this path, from the root of one of the processes or from our own. `object` has the function; `None` for the kernel.
///
/// The error says in words which file is missing and why.
pub(crate) fn bytes(path: &str, hosts: &[Host], object: Option<&Object>, limit: u64) -> Result<(Vec<u8>, Modified), String> {
    if !path.starts_with('/') {
        return Err(format!("the compiler recorded no directory for {path}"));
    }
    let mut worst = Refusal::Other(Reason::NotFound);
    let mut is_elsewhere = object.is_some_and(|object| object.files != own_files());
    for host in hosts {
        is_elsewhere |= host.has_another_root;
        let Some(process) = host.process() else { continue };
        is_elsewhere |= process.has_another_root();
        match read_patiently(Root::Under(process.path_of("root")), path, process.user(), limit) {
            Ok(read) => return Ok(read),
            Err(Refusal::Other(Reason::NotFound)) => {}
            Err(why) => worst = why,
        }
    }
    if !is_elsewhere && !matches!(worst, Refusal::Private) {
        let user = own_user().filter(|user| object.is_none_or(|object| object.user == *user));
        match read_patiently(Root::Own, path, user, limit) {
            Ok(read) => return Ok(read),
            Err(Refusal::Other(Reason::NotFound)) => {}
            Err(why) => worst = why,
        }
    }
    Err(match worst {
        Refusal::Private => format!("{path} is readable only by its owner"),
        Refusal::Other(Reason::NotFound) => format!("{path} was not found; the compiler recorded this path"),
        Refusal::Other(Reason::TooLarge) => format!("{path} is longer than {} MB", limit >> 20),
        Refusal::Other(reason) => format!("{path}: {reason}"),
    })
}

/// Reads a whole source file, since such files are short. Uses a thread that can be left behind. `user` is the user who will see the file.
fn read_patiently(root: Root, path: &str, user: Option<UserId>, limit: u64) -> Result<(Vec<u8>, Modified), Refusal> {
    let path = PathBuf::from(path);
    in_time(user.unwrap_or(US), root.place(&path), move || Ok(read_in(&root, &path, user, limit)))?
}

fn read_in(root: &Root, path: &Path, user: Option<UserId>, limit: u64) -> Result<(Vec<u8>, Modified), Refusal> {
    let place = resolve(root, path)?;
    let file = reopen(user.unwrap_or(US), &place.file)?;
    if !may_be_shown(file.facts.mode, file.facts.owner, user) || !may_be_reached(root, place.directory, user)? {
        return Err(Refusal::Private);
    }
    // This thread can be left behind, so it may wait for the file.
    let bytes = file.opened.ask(move |file| {
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map(|_| bytes)
    })?;
    if bytes.len() as u64 > limit {
        return Err(Reason::TooLarge.into());
    }
    let (seconds, nanoseconds) = file.facts.modified;
    Ok((bytes, (seconds, nanoseconds.into())))
}

/// Makes the lines of a file safe to print.
pub(crate) fn rows(bytes: &[u8]) -> Vec<Row> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.zip(1..).map(|(line, place)| Row { place, text: printable(line.strip_suffix(b"\r").unwrap_or(line)) }).collect()
}

fn printable(line: &[u8]) -> Box<str> {
    let line = line.get(..4 * MAX_COLUMNS).unwrap_or(line);
    let mut text = String::with_capacity(line.len());
    let mut columns = 0;
    for c in String::from_utf8_lossy(line).chars().take(MAX_COLUMNS) {
        if c == '\t' {
            let to = (columns / TAB + 1) * TAB;
            text.extend(std::iter::repeat_n(' ', to - columns));
            columns = to;
        } else {
            text.push(c);
            columns += 1;
        }
    }
    sanitize(text.trim_end()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FrameId, ObjectKind, ProcessAddress};

    #[test]
    fn lines_are_safe_to_print_and_tabs_are_blanks() {
        let rows = rows(b"int f()\r\n{\n\tx\ty\x1b[31m\n\xff\n\n");
        let texts: Vec<&str> = rows.iter().map(|row| &*row.text).collect();
        assert_eq!(texts, ["int f()", "{", "        x       y·[31m", "\u{fffd}", ""]);
        assert_eq!(rows.last().map(|row| row.place), Some(5));
        assert_eq!(super::rows(&[b'x'; 100_000]).first().map(|row| row.text.len()), Some(MAX_COLUMNS));
    }

    /// A process as a sample of this user remembers it.
    fn host(tgid: Tgid, user: u32) -> Host {
        let mapping = ProcessAddress(0)..ProcessAddress(0);
        Host::of(&NameRequest { frame: FrameId(0), tgid, user: UserId(user), files: own_files(), mapping })
    }

    fn own_host() -> Host {
        host(Tgid(std::process::id()), rustix::process::getuid().as_raw())
    }

    /// An object whose processes have our files.
    fn object(user: u32) -> Object {
        let (kind, path, build_id, file) = (ObjectKind::Elf, "/x".into(), None, None);
        Object { kind, path, build_id, file, files: own_files(), user: UserId(user) }
    }

    fn read_of(path: &str, hosts: &[Host]) -> Result<Text, String> {
        read(path, hosts, Some(&object(0)))
    }

    /// Creates a temporary directory that everyone may search.
    fn open_directory() -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        directory
    }

    #[test]
    fn only_regular_files_in_storage_are_read() {
        let own = [own_host()];
        let directory = open_directory();
        let here = directory.path().join("here.c");
        std::fs::write(&here, "int main(void) { return 0; }\n").unwrap();
        let here = here.to_str().unwrap();
        assert!(read_of(here, &own).is_ok_and(|text| text.rows.iter().any(|row| row.text.contains("int main"))));
        assert!(read_of(here, &[host(Tgid(u32::MAX), 0)]).is_ok(), "a process that is gone leaves our own root");
        for path in ["/proc/self/maps", "/proc/self/exe", "/dev/zero", "/dev/tty", "/", "/sys/kernel/profiling", "/proc/kmsg"] {
            let said = read_of(path, &own).unwrap_err();
            assert!(said.contains(path), "{said}");
        }
        assert!(read_of("/no/such/file.c", &own).unwrap_err().contains("/no/such/file.c was not found"));
        assert!(read_of("file.c", &own).unwrap_err().contains("no directory for file.c"));
        let large = directory.path().join("large.c");
        std::fs::File::create(&large).unwrap().set_len(MAX_SIZE + 1).unwrap();
        assert!(read_of(large.to_str().unwrap(), &[]).unwrap_err().contains("longer than 16 MB"));
        std::fs::write(&large, "\n".repeat(MAX_LINES + 1)).unwrap();
        assert!(read_of(large.to_str().unwrap(), &[]).unwrap_err().contains("has more than 500000 lines"));
        std::fs::write(&large, "\n".repeat(MAX_LINES)).unwrap();
        assert_eq!(read_of(large.to_str().unwrap(), &[]).map(|text| text.rows.len()), Ok(MAX_LINES));
    }

    #[test]
    fn private_files_are_shown_only_for_their_owners() {
        let (root, one) = (UserId(0), UserId(1));
        assert!(may_be_shown(0o100_644, one, None) && may_be_shown(0o100_600, one, Some(one)));
        assert!(!may_be_shown(0o100_640, root, Some(one)) && !may_be_shown(0o100_660, root, None));
    }

    /// A process that is ended when this is dropped.
    struct Running(std::process::Child);

    impl Running {
        fn start(command: &mut std::process::Command) -> Running {
            Running(command.spawn().expect("this test needs root"))
        }

        fn tgid(&self) -> Tgid {
            Tgid(self.0.id())
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn no_program_has_us_show_what_its_user_may_not_read() {
        use std::os::unix::fs::{PermissionsExt, chown};
        use std::os::unix::process::CommandExt;
        use std::process::Command;

        let directory = open_directory();
        let private = directory.path().join("private");
        std::fs::create_dir(&private).unwrap();
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
        let file = |name: &str, mode: u32, owner: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, "text\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(owner), None).expect("this test needs root");
            path.to_str().unwrap().to_owned()
        };
        let (of_root, of_nobody, of_all) = (file("root.c", 0o600, 0), file("nobody.c", 0o640, 65534), file("all.c", 0o644, 0));
        // Everyone could read this file if it were in another directory; tried by its name and through links.
        let hidden = file("private/all.c", 0o644, 0);
        let (link, through) = (directory.path().join("link.c"), directory.path().join("through"));
        std::os::unix::fs::symlink("private/all.c", &link).unwrap();
        std::os::unix::fs::symlink(&private, &through).unwrap();
        let (link, through) = (link.to_str().unwrap().to_owned(), through.join("all.c").to_str().unwrap().to_owned());
        let nobody = Running::start(Command::new("sleep").arg("60").uid(65534).gid(65534));
        let (own, nobody) = (&own_host(), &host(nobody.tgid(), 65534));
        // The process of `nobody` has ended, and one of root's has its number: when it is read, or before it was remembered.
        let another = &Host { tgid: own.tgid, ..nobody.clone() };
        let replaced = &Host { start: own.start, ..another.clone() };
        for (path, hosts, is_shown) in [
            (&of_root, vec![nobody], false),
            (&of_root, vec![], false),
            (&of_root, vec![&host(Tgid(u32::MAX), 0)], false),
            (&of_root, vec![own], true),
            (&of_root, vec![nobody, own], true),
            (&of_root, vec![another], false),
            (&of_root, vec![replaced], false),
            (&of_root, vec![&Host { start: None, ..own.clone() }], false),
            (&of_nobody, vec![own], false),
            (&of_nobody, vec![nobody], true),
            (&of_all, vec![nobody], true),
            (&of_all, vec![replaced], true),
            (&of_all, vec![], true),
            (&hidden, vec![nobody], false),
            (&hidden, vec![], false),
            (&hidden, vec![own], true),
            (&link, vec![nobody], false),
            (&link, vec![own], true),
            (&through, vec![nobody], false),
            (&through, vec![own], true),
        ] {
            let hosts: Vec<Host> = hosts.into_iter().cloned().collect();
            let found = read_of(path, &hosts);
            assert_eq!(found.is_ok(), is_shown, "{path} for {hosts:?}: {found:?}");
            if let Err(said) = found {
                assert_eq!(said, format!("{path} is readable only by its owner"));
            }
        }
    }

    #[test]
    fn a_program_in_a_container_has_us_show_nothing_of_our_own_root() {
        let directory = tempfile::tempdir().unwrap();
        let pause = directory.path().join("pause.c");
        std::fs::write(&pause, "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n").unwrap();
        let gcc = std::process::Command::new("gcc").current_dir(&directory).args(["-static", "-o", "pause", "pause.c"]).status();
        assert!(gcc.expect("gcc is needed by this test").success());
        let contained = Running::start(std::process::Command::new("chroot").arg(directory.path()).arg("/pause"));
        let process = Process::open(contained.tgid()).unwrap();
        let start = std::time::Instant::now();
        while !process.has_another_root() {
            assert!(start.elapsed().as_secs() < 60, "chroot (coreutils) needs root");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let pause = pause.to_str().unwrap();
        let remembered = host(contained.tgid(), 0);
        let hosts = [remembered.clone()];
        assert!(read_of("/pause.c", &hosts).is_ok(), "in its own root");
        assert!(read_of(pause, &hosts).unwrap_err().contains("was not found"));
        assert!(read_of(pause, &[remembered, own_host()]).is_ok(), "of a process that has our root");
        drop(contained);
        assert!(!process.has_another_root());
        assert!(read_of(pause, &hosts).unwrap_err().contains("was not found"), "also when it has ended");
        let elsewhere = Object { files: FileNamespace(own_files().0 + 1), ..object(0) };
        assert!(read(pause, &[], Some(&elsewhere)).unwrap_err().contains("was not found"));
    }
}
