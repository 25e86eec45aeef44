//! The first user who runs a file does not decide whether other users have its unwind table.

use super::processes::{assert_unharmed, beside_late_answers, late_answerers};
use super::*;

/// An ordinary user beside the attacker's.
const OTHER: u32 = 100_007;

/// A directory of root's with programs that need unwind tables: they keep no frame pointers.
struct Programs(TempDir);

impl Programs {
    fn new() -> Programs {
        root_or_fail();
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Programs(directory)
    }

    /// Adds a file that was never run.
    fn add(&self, name: &str) -> PathBuf {
        let program = Program::build_with("chain.c", &["-fomit-frame-pointer", "-DKEEP_NO_FRAME"]);
        let path = self.0.path().join(name);
        std::fs::copy(&program.path, &path).unwrap();
        path
    }
}

/// Runs a program as this user.
fn run_as(user: u32, program: &Path) -> Running {
    let mut command = Command::new(program);
    command.uid(user).gid(user);
    Program::run_command(command)
}

/// Runs `script` in an overlay over a directory, which an ordinary user mounts in a user namespace: a rootless container. The script's
/// first argument is `argument`.
fn run_on_overlay(lair: &Lair, user: u32, lower: &Path, script: &str, argument: &str) -> Running {
    let script = format!(
        r#"set -e; cd "$1"; mkdir upper; mount -t tmpfs tmpfs upper; cd upper; mkdir empty merged
        mount -t overlay overlay -o "lowerdir=$2:empty" merged; shift 2; {script}"#
    );
    rustix::fs::chown(lair.path(), Some(rustix::process::Uid::from_raw(user)), None).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "overlay"]);
    command.arg(lair.path()).arg(lower).arg(argument).uid(user).gid(user);
    Program::run_command(command)
}

/// The user's own stacks are whole, too: their tables are made from the bytes of the user's files, and serve this user.
#[test]
fn an_overlay_over_roots_directory_takes_no_stack_of_roots() {
    let _alone = alone();
    let (lair, programs) = (Lair::new(), Programs::new());
    let program = programs.add("from-overlay");
    std::fs::hard_link(&program, program.with_file_name("on-overlay")).unwrap();
    let recording = Recording::start(&["-F", "499", "-d", "8"]);
    recording.wait_for_clocks();
    let attack = run_on_overlay(&lair, NOBODY, programs.0.path(), r#"exec "merged/$1""#, "on-overlay");
    std::thread::sleep(Duration::from_millis(1500));
    let witness = Program { path: program }.run(&[]);
    let (lines, said) = recording.end(Duration::from_secs(8));
    drop((attack, witness));
    Witness::assert_seen("from-overlay", &lines);
    Witness::assert_seen("on-overlay", &lines);
    assert!(!said.contains("on an overlay"), "{said}");
}

#[test]
fn overlays_over_the_system_s_libraries_take_them_from_nobody() {
    let _alone = alone();
    let programs = Programs::new();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so")).expect("libc");
    let libraries = Path::new(libc).parent().unwrap();
    let start = |user: u32| {
        let lair = Lair::new();
        let program = lair.copy(&programs.add("with-overlay"), "with-overlay");
        let script = r#"export LD_LIBRARY_PATH="$PWD/merged"; exec "$1""#;
        let running = run_on_overlay(&lair, user, libraries, script, program.to_str().unwrap());
        (running, lair)
    };
    let attack: Vec<(Running, Lair)> = [NOBODY, NOBODY, OTHER].map(start).into();
    let recording = Recording::start(&["-F", "499", "-d", "8"]);
    recording.wait_for_clocks();
    let witness = Program { path: programs.add("with-libc") }.run(&[]);
    let (lines, said) = recording.end(Duration::from_secs(8));
    drop((attack, witness));
    Witness::assert_seen("with-libc", &lines);
    Witness::assert_seen("with-overlay", &lines);
    assert!(!said.contains("on an overlay"), "{said}");
}

/// Whoever waits for his own file systems asked for these tables first, and has no time left. His requests wait, the others' do not.
#[test]
fn a_file_that_a_user_without_time_has_run_first_is_everybody_s() {
    let _alone = alone();
    for (name, user) in [("after-late-root", 0), ("after-late-user", OTHER)] {
        let programs = Programs::new();
        let program = programs.add(name);
        let first = program.with_file_name("first");
        std::fs::hard_link(&program, &first).unwrap();
        let start = || {
            let early = run_as(100_000, &first);
            std::thread::sleep(Duration::from_millis(500));
            drop(early);
            run_as(user, &program)
        };
        assert_unharmed(beside_late_answers(late_answerers(1), name, start), 200);
    }
}
