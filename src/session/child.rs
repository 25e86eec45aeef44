//! A command that flametop starts, sampled from its first instruction.
//!
//! flametop starts itself as `flametop __hold CMD…`. That process stops itself at once. When its number is among the collector's targets,
//! flametop lets it continue, and it becomes the command by `exec`, under the same number. No instruction of the command runs unseen, and
//! no code has to run between fork and exec.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{
    Pid, Signal, WaitOptions, ioctl_tiocsctty, kill_process, kill_process_group, set_parent_process_death_signal, setsid, waitpid,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::cli::Hold;
use crate::profile::{Tgid, sanitize};

use super::user::{Ids, User};

/// Where the command's output goes.
pub(super) enum Output {
    /// Where it goes without flametop.
    Leave,
    /// To flametop's standard error, all of it: flametop's standard output carries the stacks.
    ToStderr,
    /// To a pseudo-terminal; [`Child::output`] is its other side.
    Pane,
    /// To a file.
    File(File),
}

/// Terms under which the command runs: its input, the processes that signals reach, and the time that it has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// Whether it reads flametop's standard input.
    input: bool,
    bond: Bond,
    /// Time from SIGTERM to SIGKILL.
    patience: Duration,
}

/// The processes that a signal to the command reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bond {
    /// A new session, and so a new process group, because the live view needs the terminal. In a pane the pseudo-terminal belongs to that
    /// session, and closing it sends SIGHUP to the processes that remain.
    ///
    /// A recorded command of another user has one, too: in flametop's session it could type into the terminal (TIOCSTI), and root's shell
    /// would run that. It can still read and write the terminal that it inherits, but has no /dev/tty, and keys reach flametop only.
    Session,
    /// A new process group in flametop's session.
    Group,
    /// flametop's own group. A group in the background could not read the terminal (SIGTTIN would stop it), and Ctrl-C would
    /// not reach it. A signal goes to the command and its descendants, one by one.
    Shared,
}

impl Terms {
    /// Terms for the live view, which keeps the terminal to itself.
    pub(super) fn watched() -> Terms {
        Terms { input: false, bond: Bond::Session, patience: Duration::from_secs(2) }
    }

    /// Terms for a recording: the command runs as without flametop, unless another user runs it.
    pub(super) fn recorded(user: Option<&User>) -> Terms {
        let is_another = user.is_some_and(|user| user.uid() != rustix::process::geteuid());
        let bond = match File::open("/dev/tty") {
            Ok(_) if is_another => Bond::Session,
            Ok(_) => Bond::Shared,
            Err(_) => Bond::Group,
        };
        Terms { input: true, bond, patience: Duration::from_secs(5) }
    }
}

/// A command that was started. It is held before its first instruction until [`Child::go`].
pub(super) struct Child {
    process: Process,
    /// The command's first word, as the user wrote it.
    pub(super) program: OsString,
    /// The same word, as it can be printed in messages.
    pub(super) name: String,
    /// Its output, if it writes to a pane.
    pub(super) output: Option<File>,
    /// If set, the command is killed instead of waited for.
    pub(super) hurry: Arc<AtomicBool>,
    /// The start time, and the CPU time of other children up to then.
    began: OnceLock<(Instant, Option<(Duration, Duration)>)>,
    terms: Terms,
}

/// Stops this process. When flametop lets it continue, it becomes the command.
pub(super) fn hold(options: &Hold) -> Result<()> {
    let [program, arguments @ ..] = options.command.as_slice() else { bail!("no command to start") };
    // The kernel's part of exec runs under this process's name: it should be the command's name, not flametop's.
    let name = Path::new(program).file_name().map_or(&[][..], |name| name.as_bytes());
    if let Ok(name) = std::ffi::CString::new(name.get(..15).unwrap_or(name)) {
        let _ = rustix::thread::set_name(&name);
    }
    if let Some(user) = &options.user {
        let ids: Ids = user.parse().map_err(|error| anyhow!("--as {user}: {error}"))?;
        ids.become_them()?;
    }
    if options.session {
        setsid().context("failed to begin a session")?;
    }
    if options.terminal {
        ioctl_tiocsctty(std::io::stdout()).context("failed to take the pseudo-terminal")?;
    }
    // If flametop is killed now, no process would let this one continue. Then it must end as well.
    set_parent_process_death_signal(Some(Signal::KILL)).context("failed to set the parent-death signal")?;
    kill_process(rustix::process::getpid(), Signal::STOP).context("failed to wait for the profiler")?;
    set_parent_process_death_signal(None).context("failed to clear the parent-death signal")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("failed to start {}", shown(program)))
}

/// Returns a word of the command line in a form that can be printed.
pub(super) fn shown(word: &OsStr) -> String {
    sanitize(&word.to_string_lossy()).into_owned()
}

impl Child {
    /// Starts the command, as another user if one is given, and holds it before its first instruction.
    pub(super) fn start(command: &[OsString], output: Output, terms: Terms, user: Option<&User>) -> Result<Child> {
        let [program, ..] = command else { bail!("no command to start") };
        let name = shown(program);
        match executable(program) {
            Executable::Yes => {}
            Executable::Directory(path) => bail!("{} is a directory, not a command", shown(path.as_os_str())),
            Executable::Forbidden(path) => {
                let path = shown(path.as_os_str());
                bail!("{path} is not executable; allow it with chmod +x, or start it by its interpreter, as in sh {path}");
            }
            Executable::Nowhere => bail!("{name}: no such command; check its spelling, or give its path"),
        }
        let mut holder = Command::new("/proc/self/exe");
        holder.arg("__hold");
        match terms.bond {
            Bond::Session => drop(holder.arg("--session")),
            Bond::Group => drop(holder.process_group(0)),
            Bond::Shared => {}
        }
        if matches!(output, Output::Pane) && terms.bond == Bond::Session {
            holder.arg("--terminal");
        }
        if let Some(user) = user {
            holder.args(["--as", &user.ids.to_text()]).envs(user.environment());
            // The directory belongs to another user.
            holder.env_remove("XDG_RUNTIME_DIR");
        }
        holder.arg("--").args(command);
        if !terms.input {
            holder.stdin(Stdio::null());
        }
        let mut reading = None;
        match output {
            Output::Leave => {}
            Output::ToStderr => drop(holder.stdout(std::io::stderr())),
            Output::Pane => {
                let (master, slave) = pseudo_terminal().context("failed to make a pseudo-terminal for the command's output")?;
                if let Some(user) = user {
                    // The command may open the terminal again by its name, as /dev/stdout does: so it must belong to the user.
                    rustix::fs::fchown(&slave, Some(user.uid()), None)
                        .context("failed to give the pseudo-terminal to the user")?;
                }
                let also = slave.try_clone().context("failed to share the command's output")?;
                holder.stdout(slave).stderr(also);
                reading = Some(master);
            }
            Output::File(file) => {
                let also = file.try_clone().context("failed to share the command's output")?;
                holder.stdout(file).stderr(also);
            }
        }
        let process = holder.spawn().with_context(|| format!("failed to start {name}"))?;
        let child = Child {
            process,
            program: program.clone(),
            name,
            output: reading,
            hurry: Arc::default(),
            began: OnceLock::new(),
            terms,
        };
        child.wait_until_it_holds()?;
        Ok(child)
    }

    /// Returns the command's name without its directories.
    pub(super) fn short_name(&self) -> &str {
        self.name.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.name)
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// Returns its process number, which is the same before and after exec.
    pub(super) fn tgid(&self) -> Tgid {
        Tgid(self.process.id())
    }

    fn wait_until_it_holds(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let status = waitpid(self.pid(), WaitOptions::UNTRACED | WaitOptions::NOHANG)
                .with_context(|| format!("failed to wait for {}", self.name))?;
            match status {
                Some((_, status)) if status.stopped() => return Ok(()),
                Some(_) => bail!("{} ended before its start", self.name),
                None if Instant::now() > deadline => bail!("{} did not stop before its start", self.name),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Lets the command begin.
    pub(super) fn go(&self) -> Result<()> {
        let _ = self.began.set((Instant::now(), cpu_of_children()));
        let pid = self.pid().context("the command has no process number")?;
        kill_process(pid, Signal::CONT).with_context(|| format!("failed to start {}", self.name))
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Returns how it ended, or `None` if it still runs. The time until now is counted as the command's time.
    pub(super) fn ending(&mut self) -> Option<Ending> {
        let status = self.ended()?;
        let used = self.began.get().and_then(|(began, before)| {
            let (before, after) = ((*before)?, cpu_of_children()?);
            let [user, kernel] = [after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)];
            Some(Used { wall: began.elapsed(), user, kernel })
        });
        Some(Ending::of_command(&self.name, status, used))
    }

    /// Asks the command and its descendants to end, if the command has not ended, and waits for that. Kills them when the patience is over.
    ///
    /// Processes that a command leaves running when it ends on its own are left alone, as a shell does.
    fn stop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let began = Instant::now();
        let mut family = BTreeSet::new();
        self.signal(Signal::TERM, &mut family);
        // Interactive shells ignore SIGTERM, so SIGHUP follows. It does not come at once: few programs that end in order on SIGTERM do so
        // on SIGHUP.
        let mut hung_up = self.terms.bond != Bond::Session;
        while began.elapsed() < self.terms.patience && !self.hurry.load(Ordering::Relaxed) {
            let ended = self.ended().is_some();
            if ended && self.living(&mut family).is_empty() {
                return;
            }
            if !hung_up && began.elapsed() > self.terms.patience / 2 {
                hung_up = true;
                self.signal(Signal::HUP, &mut family);
            }
            std::thread::sleep(Duration::from_millis(if ended { 20 } else { 5 }));
        }
        self.signal(Signal::KILL, &mut family);
        // A killed process may still have to finish a system call. The wait for it is limited.
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && self.ended().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal to all processes that it should reach. Processes that have just ended are skipped.
    fn signal(&self, signal: Signal, family: &mut BTreeSet<Identity>) {
        let living = self.living(family);
        for signal in [signal, Signal::CONT] {
            match self.terms.bond {
                // One call for the whole group, so that no process forks in between. No other group has that number while a member lives.
                Bond::Session | Bond::Group if !living.is_empty() => {
                    if let Some(group) = self.pid() {
                        let _ = kill_process_group(group, signal);
                    }
                }
                Bond::Session | Bond::Group => {}
                Bond::Shared => {
                    for pid in living.iter().filter_map(|pid| Pid::from_raw(*pid)) {
                        let _ = kill_process(pid, signal);
                    }
                }
            }
        }
    }

    /// Returns the living processes that a signal should reach. `family` holds those found before, because an orphan's descent is
    /// forgotten.
    fn living(&self, family: &mut BTreeSet<Identity>) -> Vec<i32> {
        let own = i32::try_from(self.process.id()).unwrap_or(0);
        let processes = processes();
        if self.terms.bond != Bond::Shared {
            return processes.iter().filter(|process| process.group == own).map(|process| process.identity.pid).collect();
        }
        family.retain(|known| processes.iter().any(|process| process.identity == *known));
        family.extend(processes.iter().filter(|process| process.identity.pid == own).map(|process| process.identity));
        loop {
            let before = family.len();
            let parents: BTreeSet<i32> = family.iter().map(|identity| identity.pid).collect();
            family.extend(processes.iter().filter(|process| parents.contains(&process.parent)).map(|process| process.identity));
            if family.len() == before {
                return parents.into_iter().collect();
            }
        }
    }
}

/// Identity of a process: its number and its start time, because a later process may get the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Identity {
    pid: i32,
    /// Start time, in ticks since the machine started.
    start: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Relations {
    identity: Identity,
    parent: i32,
    group: i32,
}

/// Returns all living processes. A process that has ended and was not waited for does not count. If only its first thread has ended, it
/// lives.
fn processes() -> Vec<Relations> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| relations(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// Parses /proc/PID/stat: `pid (name) state parent group … threads … start`. These are the fields 20 and 22. The name may have `)` in it.
fn relations(stat: &[u8]) -> Option<Relations> {
    let stat = String::from_utf8_lossy(stat);
    let (pid, _) = stat.split_once(' ')?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The state is that of the first thread, and the first thread counts until all others have ended.
    let has_threads = fields.get(17)?.parse::<u32>().is_ok_and(|threads| threads > 1);
    if matches!(*fields.first()?, "Z" | "X") && !has_threads {
        return None;
    }
    let identity = Identity { pid: pid.parse().ok()?, start: fields.get(19)?.parse().ok()? };
    Some(Relations { identity, parent: fields.get(1)?.parse().ok()?, group: fields.get(2)?.parse().ok()? })
}

/// Tells whether the process exists and has not ended.
pub(super) fn lives(tgid: Tgid) -> bool {
    std::fs::read(format!("/proc/{tgid}/stat")).is_ok_and(|stat| relations(&stat).is_some())
}

impl Drop for Child {
    /// Ends the command: if it was never let continue, it would stay stopped for good, and hold open the pipe that its caller reads.
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the exit status that a shell would report: after a signal, 128 plus the signal's number.
pub(super) fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The end of a command, or of watched processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    /// For the header: `exit 2 after 9.1 s`.
    pub(super) short: String,
    /// In a sentence: `make ended with status 2 after 9.1 s, 14.4 s of CPU (user 12.9 s, kernel 1.5 s)`.
    pub(super) words: String,
    /// The exit status that a shell would report.
    pub(super) status: u8,
}

impl Ending {
    /// Returns the end of watched processes.
    pub(super) fn of_watched() -> Ending {
        Ending { short: "ended".to_owned(), words: "the process has ended".to_owned(), status: 0 }
    }

    fn of_command(name: &str, status: ExitStatus, used: Option<Used>) -> Ending {
        let (short, how) = match (status.code(), status.signal()) {
            (Some(code), _) => (format!("exit {code}"), format!("{name} ended with status {code}")),
            (None, Some(signal)) => (format!("signal {signal}"), format!("{name} was ended by signal {signal}")),
            (None, None) => ("ended".to_owned(), format!("{name} ended")),
        };
        let status = exit_status(status);
        let Some(Used { wall, user, kernel }) = used else { return Ending { short, words: how, status } };
        let [wall, cpu, user, kernel] = [wall, user + kernel, user, kernel].map(in_seconds);
        Ending {
            short: format!("{short} after {wall}"),
            words: format!("{how} after {wall}, {cpu} of CPU (user {user}, kernel {kernel})"),
            status,
        }
    }
}

/// The time that a command took.
#[derive(Clone, Copy, Debug)]
struct Used {
    wall: Duration,
    /// CPU time in user mode, including all processes that the command waited for.
    user: Duration,
    kernel: Duration,
}

fn in_seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ ..100.0 => format!("{seconds:.1} s"),
        seconds => format!("{seconds:.0} s"),
    }
}

/// Returns the CPU time of children that have ended and were waited for, in user mode and in the kernel: `cutime` and `cstime` of
/// proc_pid_stat(5).
fn cpu_of_children() -> Option<(Duration, Duration)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name stands in parentheses, and may itself contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut time = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    };
    Some((time()?, time()?))
}

/// The result of looking for a command's file.
#[derive(Debug, PartialEq, Eq)]
enum Executable {
    Yes,
    /// There is a file of that name, but it may not be executed.
    Forbidden(PathBuf),
    Directory(PathBuf),
    Nowhere,
}

/// Looks for a command as a shell does: at its path if it has one, else along `PATH`. Files that may not be executed are passed over.
fn executable(program: &OsStr) -> Executable {
    let look = |path: PathBuf| match std::fs::metadata(&path) {
        Ok(about) if about.is_dir() => Executable::Directory(path),
        Ok(_) if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok() => Executable::Yes,
        Ok(_) => Executable::Forbidden(path),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Executable::Forbidden(path),
        Err(_) => Executable::Nowhere,
    };
    if program.as_bytes().contains(&b'/') {
        return look(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut best = Executable::Nowhere;
    for directory in std::env::split_paths(&path) {
        match look(directory.join(program)) {
            Executable::Yes => return Executable::Yes,
            // A directory of that name in `PATH` is never the command.
            found @ Executable::Forbidden(_) if best == Executable::Nowhere => best = found,
            _ => {}
        }
    }
    best
}

fn pseudo_terminal() -> rustix::io::Result<(File, File)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
    Ok((master.into(), slave.into()))
}

/// Longest line of output. A longer line is continued in the next line.
const LONGEST_LINE: usize = 64 * 1024;

/// Reads a command's output and hands it over line by line. Characters that would disturb the screen are removed.
pub(super) fn read_lines(mut from: impl Read, mut take: impl FnMut(Vec<String>) -> bool) {
    let mut buffer = vec![0; 16 * 1024];
    let mut rest: Vec<u8> = Vec::new();
    // A pseudo-terminal whose other side is closed gives an error instead of an end of file.
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let read = buffer.get(..read).unwrap_or_default();
        let mut lines = Vec::new();
        let mut begin = 0;
        // Only new bytes are searched, and no bytes are moved.
        for end in memchr::memchr_iter(b'\n', read) {
            rest.extend_from_slice(read.get(begin..end).unwrap_or_default());
            lines.push(printable(&rest));
            rest.clear();
            begin = end + 1;
        }
        rest.extend_from_slice(read.get(begin..).unwrap_or_default());
        if rest.len() > LONGEST_LINE {
            lines.push(printable(&std::mem::take(&mut rest)));
        }
        if !lines.is_empty() && !take(lines) {
            return;
        }
    }
    if !rest.is_empty() {
        take(vec![printable(&rest)]);
    }
}

/// Returns a line as text: without escape sequences, with tabs as spaces. Text after a carriage return overwrites the text before it.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\r', '\n']);
    let text = text.rsplit('\r').next().unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\t' => out.push_str("    "),
            '\x1b' => match chars.next() {
                // CSI: parameters up to a letter. OSC: up to BEL or ST.
                Some('[') => drop(chars.by_ref().find(|c| ('\x40'..='\x7e').contains(c))),
                Some(']') => drop(chars.by_ref().find(|c| matches!(c, '\x07' | '\\'))),
                _ => {}
            },
            c => out.push(c),
        }
    }
    sanitize(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_shown_without_what_would_disturb_the_screen() {
        assert_eq!(printable(b"\x1b[1;31merror\x1b[0m: x\r\n"), "error: x");
        assert_eq!(printable(b"10 %\r20 %\r30 %\n"), "30 %");
        assert_eq!(printable(b"\x1b]0;title\x07a\tb\x08"), "a    b·");
        assert_eq!(printable(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }
    #[test]
    fn output_comes_line_by_line_wherever_it_is_cut() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let lines: Vec<String> = (0..40_000).map(|number| format!("line {number}")).collect();
        let long = "x".repeat(3 * LONGEST_LINE);
        std::fs::write(path.path(), format!("\n{}\n{long}\nno end", lines.join("\n"))).unwrap();
        let mut got = Vec::new();
        read_lines(File::open(path.path()).unwrap(), |lines| {
            got.extend(lines);
            true
        });
        assert_eq!((got[0].as_str(), &got[1..=40_000], got.last().unwrap().as_str()), ("", lines.as_slice(), "no end"));
        let parts = &got[40_001..got.len() - 1];
        assert!(parts.len() >= 3 && parts.iter().all(|part| part.starts_with('x')), "{} parts", parts.len());
        let mut calls = 0;
        read_lines(File::open(path.path()).unwrap(), |_| {
            calls += 1;
            false
        });
        assert_eq!(calls, 1, "nobody listens any more");
    }

    #[test]
    fn a_command_that_cannot_be_started_is_told_from_one_that_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().join("plain");
        std::fs::write(&plain, "text").unwrap();
        assert_eq!(executable(plain.as_os_str()), Executable::Forbidden(plain.clone()));
        assert_eq!(executable(directory.path().as_os_str()), Executable::Directory(directory.path().to_owned()));
        assert_eq!(executable(OsStr::new("/bin/sh")), Executable::Yes);
        assert_eq!(executable(OsStr::new("sh")), Executable::Yes);
        assert_eq!(executable(OsStr::new("no-such-command-anywhere")), Executable::Nowhere);
        assert_eq!(executable(OsStr::new("/no/such")), Executable::Nowhere);
    }

    #[test]
    fn relations_are_read_past_a_name_that_looks_like_them() {
        let stat = b"12 (a) Z 9 (b\xff) S 3 4 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 10 11";
        let wanted = Relations { identity: Identity { pid: 12, start: 777 }, parent: 3, group: 4 };
        assert_eq!(relations(stat), Some(wanted));
        assert_eq!(relations(b"12 (a) Z 3 4 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 10 11"), None);
        // Its first thread has ended, and another one lives.
        assert_eq!(relations(b"12 (a) Z 3 4 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 2 0 777 10 11"), Some(wanted));
        assert_eq!(relations(b""), None);
    }

    #[test]
    fn a_process_that_has_ended_does_not_live_even_if_nobody_has_waited_for_it() {
        let own = Tgid(std::process::id());
        assert!(lives(own) && !lives(Tgid(u32::MAX)));
        let mut ended = Command::new("true").spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while lives(Tgid(ended.id())) {
            assert!(Instant::now() < until, "it lives");
            std::thread::yield_now();
        }
        ended.wait().unwrap();
    }
}
