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
//! | our own root | our user, or the caller of sudo; never to root, because it is not known who has started the program |
//!
//! The same user must also be allowed to pass all directories above the file's real place, with links followed.
//!
//! Our own root is not searched while a process with another root is alive, as in a container: the process has no right to see files
//! outside of it. It is also not searched after a file was refused.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::object::mapped_file::US;
use crate::object::open::{Root, in_time, reopen};
use crate::object::process;
use crate::object::reach::{may_be_reached, resolve};
use crate::object::reason::Reason;
use crate::profile::{Row, Tgid, UserId, sanitize};

/// Longest file read. The largest sources that people write have some 300 kB; SQLite's amalgamation has 9 MB.
const MAX_SIZE: u64 = 16 << 20;
/// Most lines of a file. The longest sources that people write have some 300,000. Each line costs memory, however short it is.
const MAX_LINES: usize = 500_000;
/// Columns kept of a line. Some generated files have all their text on one line.
const MAX_COLUMNS: usize = 1000;
const TAB: usize = 8;
/// A file's lines, and when the file was written.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) rows: Vec<Row>,
    pub(super) modified: (i64, i64),
}

/// Why a file is not shown.
#[derive(Debug)]
enum Refusal {
    /// Only its owner may read it, and the owner is not the user who would see it.
    Private,
    TooManyLines,
    Other(Reason),
}

impl<E: Into<Reason>> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal::Other(error.into())
    }
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

    /// Whether it is alive and has a root that is not ours. Also true if its root cannot be read.
    fn has_another_root(&self) -> bool {
        let own = rustix::fs::stat("/").map(|about| (about.st_dev, about.st_ino));
        match rustix::fs::statat(&self.directory, "root", AtFlags::empty()) {
            Ok(about) => own != Ok((about.st_dev, about.st_ino)),
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

/// Reads the file at this path, from the root of one of the processes or from our own.
///
/// The error says in words which file is missing and why.
pub(super) fn read(path: &str, hosts: &[Tgid]) -> Result<Text, String> {
    if !path.starts_with('/') {
        return Err(format!("the compiler recorded no directory for {path}"));
    }
    let mut worst = Refusal::Other(Reason::NotFound);
    let mut is_elsewhere = false;
    for process in hosts.iter().filter_map(|tgid| Process::open(*tgid)) {
        is_elsewhere |= process.has_another_root();
        match read_patiently(Root::Under(process.path_of("root")), path, process.user()) {
            Ok(text) => return Ok(text),
            Err(Refusal::Other(Reason::NotFound)) => {}
            Err(why) => worst = why,
        }
    }
    if !is_elsewhere && !matches!(worst, Refusal::Private) {
        match read_patiently(Root::Own, path, own_user()) {
            Ok(text) => return Ok(text),
            Err(Refusal::Other(Reason::NotFound)) => {}
            Err(why) => worst = why,
        }
    }
    Err(match worst {
        Refusal::Private => format!("{path} is readable only by its owner"),
        Refusal::TooManyLines => format!("{path} has more than {MAX_LINES} lines"),
        Refusal::Other(Reason::NotFound) => format!("{path} was not found; the compiler recorded this path"),
        Refusal::Other(Reason::TooLarge) => format!("{path} is longer than {} MB", MAX_SIZE >> 20),
        Refusal::Other(reason) => format!("{path}: {reason}"),
    })
}

/// Reads a whole source file, since such files are short. Uses a thread that can be left behind. `user` is the user who will see the file.
fn read_patiently(root: Root, path: &str, user: Option<UserId>) -> Result<Text, Refusal> {
    let path = PathBuf::from(path);
    in_time(user.unwrap_or(US), root.place(&path), move || Ok(read_in(&root, &path, user)))?
}

fn read_in(root: &Root, path: &Path, user: Option<UserId>) -> Result<Text, Refusal> {
    let place = resolve(root, path)?;
    let file = reopen(user.unwrap_or(US), &place.file)?;
    if !may_be_shown(file.facts.mode, file.facts.owner, user) || !may_be_reached(root, place.directory, user)? {
        return Err(Refusal::Private);
    }
    // This thread can be left behind, so it may wait for the file.
    let bytes = file.opened.ask(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut bytes).map(|_| bytes)
    })?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(Reason::TooLarge.into());
    }
    if bytes.iter().filter(|byte| **byte == b'\n').count() > MAX_LINES {
        return Err(Refusal::TooManyLines);
    }
    let (seconds, nanoseconds) = file.facts.modified;
    Ok(Text { rows: rows(&bytes), modified: (seconds, nanoseconds.into()) })
}

/// Makes the lines of a file safe to print.
pub(super) fn rows(bytes: &[u8]) -> Vec<Row> {
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

    #[test]
    fn lines_are_safe_to_print_and_tabs_are_blanks() {
        let rows = rows(b"int f()\r\n{\n\tx\ty\x1b[31m\n\xff\n\n");
        let texts: Vec<&str> = rows.iter().map(|row| &*row.text).collect();
        assert_eq!(texts, ["int f()", "{", "        x       y·[31m", "\u{fffd}", ""]);
        assert_eq!(rows.last().map(|row| row.place), Some(5));
        assert_eq!(super::rows(&[b'x'; 100_000]).first().map(|row| row.text.len()), Some(MAX_COLUMNS));
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
        let own = [Tgid(std::process::id())];
        let directory = open_directory();
        let here = directory.path().join("here.c");
        std::fs::write(&here, "int main(void) { return 0; }\n").unwrap();
        let here = here.to_str().unwrap();
        assert!(read(here, &own).is_ok_and(|text| text.rows.iter().any(|row| row.text.contains("int main"))));
        assert!(read(here, &[Tgid(u32::MAX)]).is_ok(), "a process that is gone leaves our own root");
        for path in ["/proc/self/maps", "/proc/self/exe", "/dev/zero", "/dev/tty", "/", "/sys/kernel/profiling", "/proc/kmsg"] {
            let said = read(path, &own).unwrap_err();
            assert!(said.contains(path), "{said}");
        }
        assert!(read("/no/such/file.c", &own).unwrap_err().contains("/no/such/file.c was not found"));
        assert!(read("file.c", &own).unwrap_err().contains("no directory for file.c"));
        let large = directory.path().join("large.c");
        std::fs::File::create(&large).unwrap().set_len(MAX_SIZE + 1).unwrap();
        assert!(read(large.to_str().unwrap(), &[]).unwrap_err().contains("longer than 16 MB"));
        std::fs::write(&large, "\n".repeat(MAX_LINES + 1)).unwrap();
        assert!(read(large.to_str().unwrap(), &[]).unwrap_err().contains("has more than 500000 lines"));
        std::fs::write(&large, "\n".repeat(MAX_LINES)).unwrap();
        assert_eq!(read(large.to_str().unwrap(), &[]).map(|text| text.rows.len()), Ok(MAX_LINES));
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
        let own = Tgid(std::process::id());
        for (path, hosts, is_shown) in [
            (&of_root, vec![nobody.tgid()], false),
            (&of_root, vec![], false),
            (&of_root, vec![Tgid(u32::MAX)], false),
            (&of_root, vec![own], true),
            (&of_root, vec![nobody.tgid(), own], true),
            (&of_nobody, vec![own], false),
            (&of_nobody, vec![nobody.tgid()], true),
            (&of_all, vec![nobody.tgid()], true),
            (&of_all, vec![], true),
            (&hidden, vec![nobody.tgid()], false),
            (&hidden, vec![], false),
            (&hidden, vec![own], true),
            (&link, vec![nobody.tgid()], false),
            (&link, vec![own], true),
            (&through, vec![nobody.tgid()], false),
            (&through, vec![own], true),
        ] {
            let found = read(path, &hosts);
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
            assert!(start.elapsed().as_secs() < 20, "chroot (coreutils) needs root");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let pause = pause.to_str().unwrap();
        assert!(read("/pause.c", &[contained.tgid()]).is_ok(), "in its own root");
        assert!(read(pause, &[contained.tgid()]).unwrap_err().contains("was not found"));
        assert!(read(pause, &[contained.tgid(), Tgid(std::process::id())]).is_ok(), "of a process that has our root");
        drop(contained);
        assert!(!process.has_another_root());
    }
}
