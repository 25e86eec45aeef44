//! A command that flametop starts, sampled from its first instruction.
//!
//! flametop starts itself as `flametop __hold CMD…`. That process stops itself at once; when its number is among the
//! collector's targets it is told to go on and becomes the command by `exec`, under the same number. No instruction of the
//! command runs unseen, and no code has to run between fork and exec.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::profile::Tgid;

/// Where the command's output goes.
pub(super) enum Output {
    /// Where it goes without flametop.
    Leave,
    /// To a pseudo-terminal whose other end is [`Child::output`].
    Pane,
    /// To a file.
    File(File),
}

/// A command that was started and does not run yet, or that runs.
pub(super) struct Child {
    process: Process,
    /// The command, for messages.
    pub(super) name: String,
    /// What it writes, if it writes to a pane.
    pub(super) output: Option<File>,
}

/// Stops itself, and becomes the command when it is let go on.
pub(super) fn hold(command: &[String]) -> Result<()> {
    let [program, arguments @ ..] = command else { bail!("no command to start") };
    // Seen in the kernel's part of exec: there it should have the command's name, not ours.
    let name = Path::new(program).file_name().map_or(&[][..], |name| name.as_bytes());
    if let Ok(name) = std::ffi::CString::new(name.get(..15).unwrap_or(name)) {
        let _ = rustix::thread::set_name(&name);
    }
    // Should flametop be killed now, nobody would let this process go on: then it is to end, too.
    set_parent_process_death_signal(Some(Signal::KILL)).context("failed to be tied to the profiler")?;
    kill_process(rustix::process::getpid(), Signal::STOP).context("failed to wait for the profiler")?;
    set_parent_process_death_signal(None).context("failed to be let go by the profiler")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("failed to start {program}"))
}

impl Child {
    /// Starts the command and leaves it before its first instruction.
    pub(super) fn start(command: &[String], output: Output, keep_input: bool) -> Result<Child> {
        let [program, ..] = command else { bail!("no command to start") };
        if !is_executable(program) {
            bail!("{program}: no such command; check its spelling, or give its path");
        }
        let mut holder = Command::new("/proc/self/exe");
        holder.arg("__hold").args(command);
        if !keep_input {
            holder.stdin(Stdio::null());
        }
        let mut reading = None;
        match output {
            Output::Leave => {}
            Output::Pane => {
                let (master, slave) = pseudo_terminal().context("failed to make a pseudo-terminal for the command's output")?;
                let also = slave.try_clone().context("failed to share the command's output")?;
                holder.stdout(slave).stderr(also);
                reading = Some(master);
            }
            Output::File(file) => {
                let also = file.try_clone().context("failed to share the command's output")?;
                holder.stdout(file).stderr(also);
            }
        }
        let process = holder.spawn().with_context(|| format!("failed to start {program}"))?;
        let child = Child { process, name: program.clone(), output: reading };
        child.wait_until_it_holds()?;
        Ok(child)
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// Its process number, the same before and after exec.
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
                Some(_) => bail!("{} ended before it began", self.name),
                None if Instant::now() > deadline => bail!("{} did not stop before its start", self.name),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Lets it begin.
    pub(super) fn go(&self) -> Result<()> {
        let pid = self.pid().context("the command has no process number")?;
        kill_process(pid, Signal::CONT).with_context(|| format!("failed to let {} begin", self.name))
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Asks it to end, if it has not, and gives it a moment to.
    pub(super) fn stop(&mut self) {
        for (signal, wait) in [(Signal::TERM, 1_000), (Signal::KILL, 1_000)] {
            if self.ended().is_some() {
                return;
            }
            if let Some(pid) = self.pid() {
                // It may have ended just now; then there is nobody to ask.
                let _ = kill_process(pid, signal);
                let _ = kill_process(pid, Signal::CONT);
            }
            let until = Instant::now() + Duration::from_millis(wait);
            while Instant::now() < until && self.ended().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Child {
    /// A command that was never let go on would stay stopped for good, and hold open what its caller reads.
    fn drop(&mut self) {
        self.stop();
    }
}

/// `make ended with status 2`.
pub(super) fn describe(name: &str, status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => format!("{name} ended"),
        (Some(code), _) => format!("{name} ended with status {code}"),
        (None, Some(signal)) => format!("{name} was ended by signal {signal}"),
        (None, None) => format!("{name} ended"),
    }
}

fn is_executable(program: &str) -> bool {
    let runnable = |path: &Path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return runnable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| runnable(&directory.join(program)))
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

/// Reads a command's output and hands it over line by line, without what would disturb the screen.
pub(super) fn read_lines(mut from: File, mut take: impl FnMut(Vec<String>) -> bool) {
    let mut buffer = [0; 4096];
    let mut rest: Vec<u8> = Vec::new();
    // A pseudo-terminal whose other end is closed gives an error, which is its end.
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        rest.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let mut lines = Vec::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            lines.push(printable(&line));
        }
        if rest.len() > 64 * 1024 {
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

/// A line as text: escape sequences left out, what came before a carriage return overwritten, tabs as spaces.
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
    crate::profile::sanitize(&out).into_owned()
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
}
