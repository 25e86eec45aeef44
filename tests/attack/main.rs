//! Attacks of an ordinary user on a flametop that runs as root. No attack may change the profile of other users' programs.
//!
//! The attackers are programs in `tests/programs/attack/`, run as `nobody` (uid 65534) in a directory of theirs. A program of
//! root's is started **after** each attack has begun. Its samples must be whole and named: [`Witness`]. Needs root, gcc and what
//! `common` needs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod tables;

mod power;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

mod files;
mod first_come;
mod names;
mod processes;
mod walk;

use common::{FLAMETOP, Program, Running, alone, root_or_fail};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use tempfile::TempDir;

/// The ordinary user.
const NOBODY: u32 = 65534;

/// How long a witness runs under another name first, see [`Witness::start`].
const UNTIL_ITS_TABLE: Duration = Duration::from_millis(1500);

/// How long the end of a run may take.
const SOON: Duration = Duration::from_secs(20);

/// Builds an attacker from `tests/programs/attack/<source>`, to a place where everybody may run it.
fn attacker(source: &str, flags: &[&str]) -> Program {
    Program::build_with(&format!("attack/{source}"), flags)
}

/// A directory that belongs to the attacker, with copies of programs.
struct Lair(TempDir);

impl Lair {
    #[track_caller]
    fn new() -> Lair {
        Lair::under(&std::env::temp_dir())
    }

    /// Makes a lair on the file system of another directory.
    #[track_caller]
    fn under(place: &Path) -> Lair {
        root_or_fail();
        let directory = tempfile::Builder::new().prefix("flametop-attack-").tempdir_in(place).expect("no directory there");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        rustix::fs::chown(directory.path(), owner(), None).unwrap();
        Lair(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A copy of a file here, the attacker's own.
    fn copy(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.path().join(name);
        std::fs::copy(from, &to).unwrap_or_else(|error| panic!("failed to copy {}: {error}", from.display()));
        rustix::fs::chown(&to, owner(), None).unwrap();
        to
    }

    /// Starts a program here as the ordinary user. It ends with its handle.
    #[track_caller]
    fn start(&self, program: &Path, args: &[&str]) -> Running {
        let name = program.file_name().unwrap().to_str().unwrap();
        self.run(&self.copy(program, name), args)
    }

    /// Starts a program that is in this directory already, as the ordinary user.
    #[track_caller]
    fn run(&self, program: &Path, args: &[&str]) -> Running {
        self.run_as(NOBODY, program, args)
    }

    /// Starts a program that is in this directory already, as this user, who gets the directory.
    #[track_caller]
    fn run_as(&self, user: u32, program: &Path, args: &[&str]) -> Running {
        rustix::fs::chown(self.path(), Some(rustix::process::Uid::from_raw(user)), None).unwrap();
        let mut command = Command::new(program);
        command.args(args).current_dir(self.path()).stdin(Stdio::null()).stdout(Stdio::null()).uid(user).gid(user);
        Running { child: command.spawn().expect("the attacker can be started") }
    }
}

fn owner() -> Option<rustix::process::Uid> {
    Some(rustix::process::Uid::from_raw(NOBODY))
}

/// `flametop record` that runs while something else happens.
struct Recording {
    child: Child,
    directory: TempDir,
}

impl Recording {
    /// Starts to record everything into `x.folded` of a new directory, with a new cache.
    #[track_caller]
    fn start(args: &[&str]) -> Recording {
        Recording::start_with(Command::new(FLAMETOP), args)
    }

    /// Like [`Recording::start`], with the highest priority. How long it takes then hardly depends on how many other programs want a CPU.
    #[track_caller]
    fn start_with_priority(args: &[&str]) -> Recording {
        let mut command = Command::new("nice");
        command.args(["-n", "-20", FLAMETOP]);
        Recording::start_with(command, args)
    }

    fn start_with(command: Command, args: &[&str]) -> Recording {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        std::fs::create_dir(&cache).unwrap();
        Recording::start_in(command, directory, &cache, args)
    }

    /// Starts to record everything with a cache that other recordings use as well.
    #[track_caller]
    fn start_with_cache(cache: &Path, args: &[&str]) -> Recording {
        Recording::start_in(Command::new(FLAMETOP), tempfile::tempdir().unwrap(), cache, args)
    }

    fn start_in(mut command: Command, directory: TempDir, cache: &Path, args: &[&str]) -> Recording {
        command.args(["record", "-o", "x.folded", "--force"]).args(args).current_dir(directory.path());
        command.env("XDG_CACHE_HOME", cache).env_remove("SUDO_UID").env_remove("SUDO_GID");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Recording { child, directory }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives all its threads the highest priority, but for those that have given it up. How long the end takes then hardly depends on how
    /// many other programs want a CPU.
    fn raise_priority(&self) {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
        for thread in numbers.filter(|thread| getpriority_process(Some(*thread)).is_ok_and(|priority| priority < 19)) {
            // A thread that has just ended is no failure.
            let _ = setpriority_process(Some(thread), -20);
        }
    }

    /// Waits until it samples: then it has a clock for each CPU.
    #[track_caller]
    fn wait_for_clocks(&self) -> Instant {
        let limit = Instant::now() + SOON;
        let cpus = std::thread::available_parallelism().unwrap().get();
        let open = || std::fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten().flatten();
        let is_clock = |path: PathBuf| path.as_os_str() == "anon_inode:[perf_event]";
        while open().filter(|file| std::fs::read_link(file.path()).is_ok_and(is_clock)).count() < cpus {
            assert!(Instant::now() < limit, "the recording has not begun within {SOON:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Instant::now()
    }

    /// Waits for its end, at most `after` and [`SOON`] together. Returns the file's lines, and its messages.
    #[track_caller]
    fn end(mut self, after: Duration) -> (Vec<Line>, String) {
        let limit = Instant::now() + after + SOON;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > limit {
                common::terminal::kill(self.child.id(), rustix::process::Signal::KILL);
                panic!("the recording has not ended within {SOON:?} after its time");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // A child that outlives it holds its output open.
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(self.child.wait_with_output()));
        let output: Output = told.recv_timeout(SOON).expect("nothing that it started lives on").unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let text = std::fs::read_to_string(self.directory.path().join("x.folded")).expect("the file was written");
        (text.lines().map(Line::parse).collect(), said)
    }
}

/// One stack of a folded file.
#[derive(Debug, Clone)]
struct Line {
    frames: Vec<String>,
    count: u64,
}

impl Line {
    fn parse(line: &str) -> Line {
        let (stack, count) = line.rsplit_once(' ').expect("a line has a count");
        Line { frames: stack.split(';').map(str::to_owned).collect(), count: count.parse().expect("a count is a number") }
    }
}

/// A program of root's that must be seen without faults: `chain.c`. Its samples all end in `main;outer;middle;inner`.
struct Witness {
    _running: Running,
}

impl Witness {
    /// Starts it when its unwind table can be there. Each test gives its own `name`, to tell its witness from those of other tests.
    ///
    /// The first samples of a new program have no callers, until its table is made. That takes some 20 ms. With three busy loops
    /// on two CPUs it took 120 ms, without any attack: 2 % of six seconds. So the same file runs for [`UNTIL_ITS_TABLE`] under
    /// another name first. The table is still made during the attack.
    #[track_caller]
    fn start(name: &str) -> Witness {
        let program = Witness::build(name);
        let running = early(&program.path).run(&[]);
        std::thread::sleep(UNTIL_ITS_TABLE);
        drop(running);
        Witness { _running: program.run(&[]) }
    }

    /// Starts it at once: no sample of this program was seen before.
    #[track_caller]
    fn start_unseen(name: &str) -> Witness {
        Witness { _running: Witness::build(name).run(&[]) }
    }

    #[track_caller]
    fn build(name: &str) -> Program {
        root_or_fail();
        let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/chain.c")).unwrap();
        Program::build_text(&format!("{name}.c"), &source, &[])
    }

    /// Number of its samples in a recording, and of those that are whole and named.
    fn count(name: &str, lines: &[Line]) -> (u64, u64) {
        let (mut all, mut whole) = (0, 0);
        for line in lines.iter().filter(|line| line.frames[0] == name) {
            all += line.count;
            let user: Vec<&str> = line.frames.iter().map(String::as_str).filter(|frame| !frame.ends_with("_[k]")).collect();
            let entered = user.get(1).is_some_and(|root| *root == "_start");
            let named = !user.iter().any(|frame| frame.contains("+0x") || frame.starts_with('['));
            // The chain may lack a function: functions are entered and left all the time.
            let in_chain = user.contains(&"main");
            whole += if entered && named && in_chain { line.count } else { 0 };
        }
        (all, whole)
    }

    /// Asserts that it has samples, and that at least 99 % of them are whole and named.
    #[track_caller]
    fn assert_seen(name: &str, lines: &[Line]) {
        let (all, whole) = Witness::count(name, lines);
        println!("{name}: {whole} of {all} samples whole and named");
        let of_it: Vec<&Line> = lines.iter().filter(|line| line.frames[0] == name).collect();
        assert!(all >= 20, "{name} has {all} samples only");
        assert!(whole * 100 >= all * 99, "{name}: {whole} of {all} whole and named: {of_it:#?}");
    }
}

/// The same file under another name, which tells its samples from the witness's.
fn early(program: &Path) -> Program {
    let name = format!("early-{}", program.file_name().unwrap().to_str().unwrap());
    let path = program.with_file_name(name);
    let _ = std::fs::remove_file(&path);
    std::fs::hard_link(program, &path).unwrap();
    Program { path }
}

#[test]
fn without_an_attack_the_witness_is_seen() {
    let _alone = alone();
    let recording = Recording::start(&["-F", "499", "-d", "6"]);
    std::thread::sleep(Duration::from_millis(700));
    let witness = Witness::start("witness");
    let pid = recording.pid();
    let (lines, _) = recording.end(Duration::from_secs(6));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    drop(witness);
    Witness::assert_seen("witness", &lines);
}
