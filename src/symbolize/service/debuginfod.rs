//! Fetches debug files from the network with the program `debuginfod-find`, if the user wants that. flametop itself opens no connection.
//!
//! ```text
//! object without debug information, with a build id ──► lane, one at a time ──► debuginfod-find debuginfo BUILDID
//!                                                                                         │ path of the file, in its cache
//!   all frames of the object are named anew ◄── opened like any debug file: build id compared ◄┘
//! ```
//!
//! A download takes seconds to minutes. So there is one at a time, on a separate thread that only waits. Lookups in symbols and debug
//! information that are already here are not delayed. A server that does not answer costs [`PATIENCE`] an object. Each object is requested
//! once. Root's objects come first; other users take turns, and at most [`MOST_WAITING_OF_USER`] objects of a user wait. See
//! debuginfod-find(1), and debuginfod(8) for its requests.
//!
//! The libraries libcurl and elfutils read the data from the network. Root does not take part: the program runs as the caller of sudo, else
//! as a user whom no other process has, without further groups ([`Runner`]). Otherwise a process of the same user could signal the program,
//! or put forged files into its cache. Root opens the fetched file like any file of that user.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Seek};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::object::debug_files::{self, Fetched};
use crate::profile::{BuildId, ObjectId, UserId};

/// The program that fetches.
pub const DEBUGINFOD_FIND: &str = "debuginfod-find";
/// Longest wait for one file. The program itself gives up when nothing comes for 90 s (DEBUGINFOD_TIMEOUT).
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two checks whether the program has ended.
const NAP: Duration = Duration::from_millis(20);
/// Longest path read.
const MAX_PATH: u64 = 4096;
/// Most objects of root and of another user that wait, and most users with waiting objects.
const MOST_WAITING_OF_ROOT: usize = 4096;
const MOST_WAITING_OF_USER: usize = 32;
const MOST_USERS: usize = 256;

/// Debug files to fetch.
#[derive(Default)]
pub(crate) struct Fetch {
    /// Path of `debuginfod-find`; unset if nothing is to be fetched.
    pub(crate) program: OnceLock<PathBuf>,
    /// The user to run it as; `None` if there is no place for its files.
    pub(super) runner: OnceLock<Option<Arc<Runner>>>,
    pub(super) lane: Mutex<Lane>,
}

/// A debug file to fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    pub(super) object: ObjectId,
    pub(super) id: BuildId,
}

/// The wishes that wait, by user, and the user whose wish is being fetched.
#[derive(Default)]
pub(super) struct Lane {
    waiting: BTreeMap<u32, VecDeque<Wish>>,
    /// The user other than root who was served last.
    last: u32,
    running: Option<UserId>,
}

impl Lane {
    /// Adds a wish. Returns whether a thread must be started for it; `None` if too many wishes of its user wait.
    pub(super) fn push(&mut self, user: UserId, wish: Wish) -> Option<bool> {
        let most = if user == UserId(0) { MOST_WAITING_OF_ROOT } else { MOST_WAITING_OF_USER };
        let is_known = self.waiting.contains_key(&user.0) || self.waiting.len() < MOST_USERS;
        if user != UserId(0) && !is_known {
            return None;
        }
        let waiting = self.waiting.entry(user.0).or_default();
        if waiting.len() >= most {
            return None;
        }
        waiting.push_back(wish);
        let is_first = self.running.is_none();
        self.running.get_or_insert(user);
        Some(is_first)
    }

    /// Takes the next wish: root's, else that of the user whose turn it is. Without a wish, nothing is running.
    pub(super) fn pop(&mut self) -> Option<Wish> {
        let after = self.last.saturating_add(1)..;
        let next = self
            .waiting
            .keys()
            .next()
            .filter(|user| **user == 0)
            .or_else(|| self.waiting.range(after).next().map(|(user, _)| user));
        let Some(user) = next.or_else(|| self.waiting.keys().next()).copied() else {
            self.running = None;
            return None;
        };
        let waiting = self.waiting.get_mut(&user)?;
        let wish = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&user);
        }
        self.last = if user == 0 { self.last } else { user };
        self.running = Some(UserId(user));
        wish
    }

    /// Drops all wishes. Returns how many.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.len()).sum()
    }
}

/// The user to run the program as.
#[derive(Debug)]
pub(crate) struct Runner {
    user: UserId,
    group: u32,
    /// Whether that user is not ours.
    is_other: bool,
    home: PathBuf,
    /// Directory for the program's files if it does not run as the caller of sudo; removed when flametop ends.
    cache: Option<Arc<tempfile::TempDir>>,
}

/// `nobody`, if /etc/passwd has no such user: the kernel's default `overflowuid`.
const NOBODY: u32 = 65534;
/// User numbers that no system assigns: above the ranges for subordinate users and containers, below the numbers that are negative to some
/// programs (systemd's `UIDS-GIDS`).
const UNASSIGNED: Range<u32> = 0x7000_0000..0x7fff_ffff;

impl Runner {
    /// Chooses the caller of sudo, or else a user whom no process has. If flametop does not run as root, chooses its own user.
    pub(super) fn find() -> Option<Runner> {
        let own = rustix::process::geteuid().as_raw();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok().filter(|id| *id != 0 && *id != u32::MAX);
        Runner::of(own, number("SUDO_UID"), &passwd)
    }

    fn of(own: u32, caller: Option<u32>, passwd: &str) -> Option<Runner> {
        if own != 0 {
            let group = rustix::process::getegid().as_raw();
            return Some(Runner { user: UserId(own), group, is_other: false, home: PathBuf::new(), cache: None });
        }
        if let Some((user, group, home)) = caller.and_then(|caller| entry(passwd, |_, user| user == caller)) {
            return Some(Runner { user: UserId(user), group, is_other: true, home, cache: None });
        }
        let nobody = || entry(passwd, |name, user| name == "nobody" && user != 0).map(|(user, group, _)| (user, group));
        let (user, group) = unused_user().map(|user| (user, user)).or_else(nobody).unwrap_or((NOBODY, NOBODY));
        let only_its_own = std::fs::Permissions::from_mode(0o700);
        let cache =
            tempfile::Builder::new().prefix("flametop-debuginfod-").permissions(only_its_own).tempdir_in("/var/tmp").ok()?;
        let ids = (rustix::process::Uid::from_raw(user), rustix::process::Gid::from_raw(group));
        rustix::fs::chown(cache.path(), Some(ids.0), Some(ids.1)).ok()?;
        let home = cache.path().to_owned();
        Some(Runner { user: UserId(user), group, is_other: true, home, cache: Some(Arc::new(cache)) })
    }

    /// Returns the command that runs the program as that user.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if self.is_other {
            // If root sets a user, std clears the supplementary groups: std::os::unix::process::CommandExt::uid.
            command.uid(self.user.0).gid(self.group).current_dir("/").env("HOME", &self.home);
        }
        if let Some(cache) = &self.cache {
            command.env("DEBUGINFOD_CACHE_PATH", cache.path()).env_remove("XDG_CACHE_HOME");
        }
        command
    }
}

/// Returns the number of a user whom no process has. `None` if our user namespace has no numbers that nobody assigns.
fn unused_user() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    if !map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    let used: Vec<u32> =
        std::fs::read_dir("/proc").ok()?.flatten().filter_map(|process| Some(process.metadata().ok()?.uid())).collect();
    // Two flametops that start at the same moment choose different numbers.
    let first = UNASSIGNED.start + std::process::id() % (UNASSIGNED.end - UNASSIGNED.start);
    (first..UNASSIGNED.end).find(|user| !used.contains(user))
}

/// Returns user, group and home from the first line of /etc/passwd whose name and number `is_it` accepts.
fn entry(passwd: &str, is_it: impl Fn(&str, u32) -> bool) -> Option<(u32, u32, PathBuf)> {
    passwd.lines().find_map(|line| {
        // name:password:user:group:about:home:shell
        let fields: Vec<&str> = line.split(':').collect();
        let user = fields.get(2)?.parse().ok().filter(|user| fields.first().is_some_and(|name| is_it(name, *user)))?;
        Some((user, fields.get(3)?.parse().ok()?, PathBuf::from(fields.get(5)?)))
    })
}

pub(super) fn fetch(program: &Path, runner: &Runner, id: BuildId, is_over: impl Fn() -> bool) -> Option<Fetched> {
    let debug = find(program, runner, id, &is_over)?;
    let link = debug_files::alternative_link(&debug_files::fetched(runner.user, &debug, id)?);
    let alternative = link.and_then(|(_, id)| find(program, runner, id, &is_over));
    Some(Fetched::new(runner.user, debug, alternative, runner.cache.clone()))
}

impl Fetch {
    /// Whether debug files are being fetched for one of these users, or will be.
    pub(crate) fn works_for(&self, is_one: impl Fn(UserId) -> bool) -> bool {
        let lane = crate::locks::lock(&self.lane);
        lane.running.into_iter().chain(lane.waiting.keys().map(|user| UserId(*user))).any(is_one)
    }

    /// Whether debug files are fetched at all.
    pub(crate) fn is_on(&self) -> bool {
        self.program.get().is_some()
    }
}

/// Runs the program and returns the path that it prints. `None` if it finds nothing, takes too long, or does not exist.
fn find(program: &Path, runner: &Runner, id: BuildId, is_over: impl Fn() -> bool) -> Option<PathBuf> {
    // Not a pipe: a program that has filled a pipe waits for us, while we wait for its end.
    let mut said = tempfile::tempfile().ok()?;
    let mut command = runner.command(program);
    command.args(["debuginfo", &id.to_string()]).stdin(Stdio::null()).stdout(said.try_clone().ok()?).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let began = Instant::now();
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if is_over() || began.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            None => std::thread::sleep(NAP),
        }
    };
    let mut answer = Vec::new();
    said.rewind().ok()?;
    said.take(MAX_PATH).read_to_end(&mut answer).ok()?;
    path_in_answer(&answer).filter(|_| status.success())
}

/// Returns the path in the program's output: its first line, if that is absolute.
#[doc(hidden)]
pub fn path_in_answer(answer: &[u8]) -> Option<PathBuf> {
    let path = PathBuf::from(std::str::from_utf8(answer).ok()?.lines().next()?);
    path.is_absolute().then_some(path)
}

/// Finds a program by its name, as the shell does.
pub fn program_called(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(name)).find(is_program)
}

#[cfg(test)]
mod tests {
    use crate::profile::FileOffset;
    use crate::profile::FrameId;
    use crate::symbolize::service::Service;

    use super::*;
    use crate::profile::{Frame, NameRequest, Object, ObjectKind, ProcessAddress, Tgid};

    const SOURCE: &str = "\
static inline __attribute__((always_inline)) int inner(volatile int *x) { *x = *x * 3; return *x; }
static __attribute__((noinline)) int hidden(volatile int *x) { return inner(x) + inner(x + 1); }
int main(int c, char **v) { volatile int x[2] = { c, c }; return hidden(x); }
";

    /// A program without symbols, its debug file elsewhere, and a `debuginfod-find` that finds the debug file.
    struct Place {
        directory: tempfile::TempDir,
        hidden: u64,
    }

    fn run(command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    impl Place {
        fn new() -> Place {
            let directory = tempfile::tempdir().unwrap();
            // The program runs as another user, who needs to read and write here.
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
            let at = |name: &str| directory.path().join(name);
            std::fs::write(at("prog.c"), SOURCE).unwrap();
            let options = ["-g", "-O1", "-no-pie", "-Wl,--build-id"];
            run(Command::new("gcc").args(options).arg("-o").arg(at("prog")).arg(at("prog.c")));
            let symbols = run(Command::new("nm").arg(at("prog")));
            let line = symbols.lines().find(|line| line.ends_with(" t hidden")).unwrap();
            let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
            run(Command::new("objcopy").arg("--only-keep-debug").arg(at("prog")).arg(at("prog.debug")));
            run(Command::new("strip").arg(at("prog")));
            let image = Place::image(&at("prog"));
            let offset = image.file_offset(crate::profile::ElfAddress(address)).unwrap().0;
            Place { directory, hidden: offset }
        }

        fn image(path: &Path) -> crate::object::elf::Image {
            crate::object::elf::Image::read(crate::object::bytes::Source::file(std::fs::File::open(path).unwrap()).unwrap())
                .unwrap()
        }

        fn at(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        /// Returns the names of `hidden`'s frames with this script as `debuginfod-find`; also how many of the frames have names.
        fn names_by(&self, script: &str) -> (Vec<String>, u64, u64) {
            let program = self.at("find");
            let id = Place::image(&self.at("prog")).build_id().unwrap();
            let head = format!("#!/bin/sh\n[ \"$*\" = \"debuginfo {id}\" ] || exit 2\necho x >>{}\n", self.at("asked").display());
            std::fs::write(&program, head + script).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let service = Arc::new(Service::new(Arc::default(), runtime.handle().clone()));
            service.fetch.program.set(program).unwrap();
            let meta = self.at("prog").metadata().unwrap();
            let path = self.at("prog").to_str().unwrap().into();
            let object = Object {
                kind: ObjectKind::Elf,
                path,
                build_id: None,
                file: Some((meta.dev(), meta.ino())),
                ..Default::default()
            };
            let object = service.names.objects.intern(object);
            let frame = |by| Frame::File { object, offset: FileOffset(self.hidden + by), is_return: false };
            let frames: Vec<FrameId> = (0..8).map(|by| service.names.intern_frame(frame(by)).0).collect();
            let nowhere = ProcessAddress(0)..ProcessAddress(0);
            let request = |frame: &FrameId| NameRequest {
                frame: *frame,
                tgid: Tgid(1),
                user: UserId(0),
                files: crate::object::open::own_files(),
                mapping: nowhere.clone(),
            };
            // The frames come in two requests, as samples do. The file must be requested only once.
            for part in frames.chunks(4) {
                service.request(part.iter().map(request).collect());
                while service.pending() > 0 {
                    std::thread::sleep(NAP);
                }
            }
            let mut names = Vec::new();
            for frame in frames {
                service.names.labels_of(frame, |label| names.push(service.names.labels.name(label).to_owned()));
            }
            names.dedup();
            let counts = service.objects.counts();
            (names, counts.named, counts.unnamed)
        }
    }

    #[test]
    fn what_comes_names_what_was_nameless() {
        let place = Place::new();
        let script = format!("sleep 0.2; echo {}\n", place.at("prog.debug").display());
        let (names, named, unnamed) = place.names_by(&script);
        assert!(names.iter().all(|name| name == "hidden" || name == "inner") && names.contains(&"inner".to_owned()), "{names:?}");
        assert_eq!((named, unnamed), (8, 0));
        assert_eq!(std::fs::read_to_string(place.at("asked")).unwrap(), "x\n", "asked once");
    }

    #[test]
    fn nothing_another_file_and_nonsense_leave_everything_as_it_is() {
        let place = Place::new();
        std::fs::copy("/bin/true", place.at("other")).unwrap();
        let scripts = [
            "exit 1\n".to_owned(),
            "echo /no/such/file\n".to_owned(),
            "echo prog.debug\n".to_owned(),
            "head -c 100000 /dev/zero\n".to_owned(),
            format!("echo {}; exit 1\n", place.at("prog.debug").display()),
            format!("echo {}\n", place.at("other").display()),
            "echo /dev/zero\n".to_owned(),
        ];
        let begin = Place::image(&place.at("prog")).elf_address(FileOffset(place.hidden)).unwrap();
        for script in scripts {
            let (names, named, unnamed) = place.names_by(&script);
            assert_eq!(names, [format!("prog+{:#x}", begin.0)], "{script}");
            assert_eq!((named, unnamed), (0, 8), "{script}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let place = Place::new();
        std::fs::write(place.at("hang"), "#!/bin/sh\nexec sleep 100\n").unwrap();
        std::fs::set_permissions(place.at("hang"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let runner = Runner::find().unwrap();
        let began = Instant::now();
        let id = Place::image(&place.at("prog")).build_id().unwrap();
        assert_eq!(find(&place.at("hang"), &runner, id, || began.elapsed() > Duration::from_millis(100)), None);
        assert!(began.elapsed() < Duration::from_secs(60));
        assert_eq!(find(&place.at("missing"), &runner, id, || false), None);
    }

    #[test]
    fn root_has_it_run_by_the_caller_of_sudo_or_by_a_user_of_its_own() {
        assert!(rustix::process::geteuid().is_root(), "this test needs root: it becomes another user");
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:4711:4712:Me:/home/me:/bin/sh\nnobody:x:65533:65532::/:/bin/false\n";
        let place = Place::new();
        let script = "#!/bin/sh\nid -u; id -g; id -G; echo $HOME; echo $DEBUGINFOD_CACHE_PATH\n";
        std::fs::write(place.at("id"), script).unwrap();
        std::fs::set_permissions(place.at("id"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let said = |runner: &Runner| run(&mut runner.command(&place.at("id")));
        let caller = Runner::of(0, Some(4711), passwd).unwrap();
        assert_eq!(said(&caller), "4711\n4712\n4712\n/home/me\n\n");
        // A caller that nobody knows is no caller.
        for (caller, passwd) in [(None, passwd), (Some(4711), "")] {
            let own = Runner::of(0, caller, passwd).unwrap();
            let user = own.user.0;
            assert!(UNASSIGNED.contains(&user), "{user}");
            let cache = own.cache.as_ref().unwrap().path().to_owned();
            assert_eq!(said(&own), format!("{user}\n{user}\n{user}\n{0}\n{0}\n", cache.display()));
            let about = std::fs::metadata(&cache).unwrap();
            assert_eq!((about.uid(), about.mode() & 0o777), (user, 0o700), "no other user puts a file there");
            drop(own);
            assert!(!cache.exists());
        }
    }

    #[test]
    fn root_is_served_first_and_other_users_in_turns() {
        let wish = |number: u32| Wish { object: ObjectId(number), id: BuildId::new(&number.to_ne_bytes()).unwrap() };
        let mut lane = Lane::default();
        let pushed: Vec<Option<bool>> = (0..200).map(|number| lane.push(UserId(7), wish(number))).collect();
        assert_eq!(pushed.iter().flatten().count(), MOST_WAITING_OF_USER, "200 files of one user");
        assert_eq!((pushed.first(), pushed.get(1)), (Some(&Some(true)), Some(&Some(false))));
        for (user, number) in [(9, 1000), (0, 2000), (9, 1001)] {
            assert_eq!(lane.push(UserId(user), wish(number)), Some(false));
        }
        let order: Vec<u32> = (0..5).map(|_| lane.pop().unwrap().object.0).collect();
        assert_eq!(order, [2000, 0, 1000, 1, 1001]);
        while lane.pop().is_some() {}
        assert_eq!(lane.push(UserId(9), wish(0)), Some(true), "a new thread is started");
    }

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        assert!(program_called("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(program_called("no-such-program-anywhere"), None);
    }
}
