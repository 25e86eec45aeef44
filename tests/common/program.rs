//! Sample programs: built from their sources in `tests/programs/`, started, and ended by pid.
//!
//! Each is built once for a given source and flags: the name of the directory is a hash of both. So tests in one process, tests
//! in many (nextest) and later runs share the built files.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::kernel::cpu_of;
use super::terminal::kill;

/// Flags that keep the call chains which the sources promise: frame pointers everywhere, and no function merged into another.
/// `-O1`, because code without any optimisation is unlike what people profile. Leaves keep their frames by `KEEP_FRAME()` in the
/// sources: gcc has no flag for that.
const C_FLAGS: &[&str] = &["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-inline", "-pthread"];
const RUST_FLAGS: &[&str] = &["--edition=2024", "-Copt-level=1", "-Cforce-frame-pointers=yes", "-Cdebuginfo=1"];

/// How long a program may take until it says that it is ready.
const READY: Duration = Duration::from_secs(60);

/// A built program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Where it is; the last part is its name, and so its `comm`.
    pub(crate) path: PathBuf,
}

impl Program {
    /// Builds `tests/programs/<source>` (`.c`, `.cpp` or `.rs`) with the usual flags.
    pub(crate) fn build(source: &str) -> Self {
        Self::build_with(source, &[])
    }

    /// [`Program::build`] with more flags after the usual flags: `-fomit-frame-pointer`, `-static`, `-s`, …
    pub(crate) fn build_with(source: &str, flags: &[&str]) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("failed to read {}: {error}", file.display()));
        Self::build_text(source, &text, flags)
    }

    /// Builds source text made by a test; `source` gives its name and its language.
    pub(crate) fn build_text(source: &str, text: &str, flags: &[&str]) -> Self {
        let (name, language) = file_name(source).rsplit_once('.').expect("a source has an ending");
        let (compiler, usual) = match language {
            "c" => ("gcc", C_FLAGS),
            "cpp" => ("g++", C_FLAGS),
            "rs" => ("rustc", RUST_FLAGS),
            other => panic!("no compiler for .{other}"),
        };
        let path = place_of(&(text, compiler, usual, flags)).join(name);
        if !path.exists() {
            compile(compiler, usual, flags, source, text, &path);
        }
        Self { path }
    }

    /// Returns a file or directory that `make` writes to the path it is given. It is made once for a name and a `key`; the key
    /// must contain everything the result depends on.
    pub(crate) fn made(name: &str, key: &impl Hash, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Self {
        let path = place_of(key).join(name);
        if !path.exists() {
            put_in_place(&path, make);
        }
        Self { path }
    }

    /// A copy in which every `from` is replaced by `to`, of the same length. It makes symbols with bytes that no compiler would write.
    pub(crate) fn patched(&self, from: &[u8], to: &[u8]) -> Self {
        assert_eq!(from.len(), to.len(), "a patch must not move what comes after it");
        let mut bytes = std::fs::read(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        let mut found = false;
        for at in 0..bytes.len().saturating_sub(from.len()) {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
                found = true;
            }
        }
        assert!(found, "{} has no such bytes to patch", self.path.display());
        let mut hasher = DefaultHasher::new();
        (from, to).hash(&mut hasher);
        let name = self.path.file_name().expect("a program has a name");
        let path = self.path.with_file_name(format!("patched-{:016x}", hasher.finish())).join(name);
        if !path.exists() {
            put_in_place(&path, |output| {
                // The copy keeps the right to be executed; its content is then overwritten.
                std::fs::copy(&self.path, output)?;
                std::fs::write(output, &bytes)
            });
        }
        Self { path }
    }

    /// Starts it and waits until it says `ready`: until then its threads and children may not exist yet.
    ///
    /// All programs take the seconds after which they end by themselves as first argument; it defaults to 60, so that
    /// nothing outlives a test that was killed.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Running {
        let mut command = Command::new(&self.path);
        command.args(args);
        Self::run_command(command)
    }

    /// Starts a command that becomes such a program, and waits for it.
    #[track_caller]
    pub(crate) fn run_command(mut command: Command) -> Running {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut running = Running { child: child.unwrap_or_else(|error| panic!("failed to start {command:?}: {error}")) };
        let output = running.child.stdout.take().expect("piped above");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line == "ready" {
                    let _ = tell.send(());
                }
                // Keeps reading: a full pipe would stop the program.
            }
        });
        assert!(told.recv_timeout(READY).is_ok(), "{command:?} did not say that it is ready within {READY:?}");
        running
    }
}

/// A program that runs; killed, by its pid, when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process id as arguments and screens have it.
    pub(crate) fn pid_text(&self) -> String {
        self.pid().to_string()
    }

    /// Its CPU time so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        cpu_of(self.pid())
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            kill(self.pid(), rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
    }

    /// Waits until it has ended without a signal from us.
    #[track_caller]
    pub(crate) fn wait(&mut self, timeout: Duration) -> std::process::ExitStatus {
        let end = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait().expect("failed to wait for a test program") {
                return status;
            }
            assert!(Instant::now() < end, "the test program still runs after {timeout:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Has `go` build a program. A program that calls C is linked with libc.
pub(crate) fn go_build(mut go: Command, calls_c: bool, output: &Path, input: &Path) -> Command {
    go.env("CGO_ENABLED", if calls_c { "1" } else { "0" }).env("GOFLAGS", "").env("GO111MODULE", "off");
    if std::env::var_os("HOME").is_none() {
        go.env("HOME", env!("CARGO_TARGET_TMPDIR"));
    }
    go.arg("build").arg("-o").arg(output).arg(input);
    go
}

/// The directory for files built from `key`. Each user has another: a user could not replace files that root has built.
fn place_of(key: &impl Hash) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let user = rustix::process::geteuid().as_raw();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("programs-{user}")).join(format!("{:016x}", hasher.finish()))
}

/// Compiles `text` to `path`.
fn compile(compiler: &str, usual: &[&str], flags: &[&str], source: &str, text: &str, path: &Path) {
    put_in_place(path, |output| {
        let input = output.with_file_name(file_name(source));
        std::fs::write(&input, text)?;
        let result = Command::new(compiler).args(usual).arg("-o").arg(output).arg(&input).args(flags).output();
        let result = result.unwrap_or_else(|error| panic!("failed to run {compiler} (`make test` installs it): {error}"));
        assert!(result.status.success(), "{compiler} failed on {source}:\n{}", String::from_utf8_lossy(&result.stderr));
        Ok(())
    });
}

/// Makes a program under a unique name, then renames it: another process may be making the same program, and must never see half of it.
fn put_in_place(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let workshop = path.with_file_name(unique);
    let output = workshop.join("program");
    // A directory does not replace one that is not empty: another test has made the same meanwhile.
    let rename = || match std::fs::rename(&output, path) {
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty && path.is_dir() => Ok(()),
        renamed => renamed,
    };
    let made = std::fs::create_dir_all(&workshop).and_then(|()| make(&output)).and_then(|()| rename());
    made.unwrap_or_else(|error| panic!("failed to make {}: {error}", path.display()));
    let _ = std::fs::remove_dir_all(&workshop);
}

/// The last part of a source's path.
fn file_name(source: &str) -> &str {
    source.rsplit('/').next().unwrap_or(source)
}
