//! Names of code made at run time, by a program whose map the test writes and by real runtimes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Child;

use super::common::Running;
use super::*;

/// Where `jit.c` has its code: `outer`, and `inner` 64 bytes on.
const CODE: u64 = 0x1000_0000_0040;
/// Bytes of `outer`, which ends with a call, and of what comes after it.
const OUTER: u64 = if cfg!(target_arch = "x86_64") { 6 } else { 12 };
const REST: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 8 };
const INNER: u64 = if cfg!(target_arch = "x86_64") { 12 } else { 24 };

/// The functions of `jit.c`, named with a `word`.
fn functions(word: &str) -> [(u64, u64, String); 3] {
    [
        (CODE, OUTER, format!("{word} outer")),
        (CODE + OUTER, REST, format!("{word} rest")),
        (CODE + 64, INNER, format!("{word} inner")),
    ]
}

fn map_text(word: &str) -> String {
    functions(word).iter().map(|(start, size, name)| format!("{start:x} {size:x} {name}\n")).collect()
}

/// A jitdump, by its specification.
fn dump_bytes(word: &str) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = [words(&[0x4a69_5444, 1, 40, 62, 0, 1]), longs(&[0, 0])].concat();
    for (index, (start, size, name)) in (0..).zip(functions(word)) {
        let total = 56 + name.len() as u32 + 1 + size as u32;
        bytes.extend([words(&[0, total]), longs(&[0]), words(&[1, 1]), longs(&[start, start, size, index])].concat());
        bytes.extend(name.bytes().chain([0]).chain(std::iter::repeat_n(0x90, size as usize)));
    }
    bytes
}

/// A file in /tmp that is removed when the test is over, however it ends.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn map_of(pid: u32) -> TemporaryFile {
        let file = TemporaryFile(PathBuf::from(format!("/tmp/perf-{pid}.map")));
        file.remove();
        file
    }

    fn write(&self, bytes: impl AsRef<[u8]>) {
        std::fs::write(&self.0, bytes).unwrap_or_else(|error| panic!("failed to write {}: {error}", self.0.display()));
    }

    fn remove(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The stacks of `lines` that are in `chain`, of the process `jit`: most are.
#[track_caller]
fn assert_named(lines: &[Line], chain: &str) {
    assert_chain(lines, "jit", chain);
    let all: u64 = lines.iter().map(|line| line.count).sum();
    let named: u64 = lines.iter().filter(|line| line.text().contains(chain)).map(|line| line.count).sum();
    assert!(named * 10 >= all * 9, "{named} of {all} are in {chain}:\n{}", listing(lines));
}

#[test]
fn code_without_a_map_is_one_frame() {
    let place = Place::new();
    let program = Program::build("jit.c").run(&[]);
    let _none = TemporaryFile::map_of(program.pid());
    let lines = place.folded(&["-p", &program.pid_text(), "-d", "2"]);
    assert_named(&lines, "main;[anon]_[j];[anon]_[j]");
}

#[test]
fn a_perf_map_names_code_and_who_called_it() {
    let place = Place::new();
    let program = Program::build("jit.c").run(&[]);
    let map = TemporaryFile::map_of(program.pid());
    map.write(map_text("map"));
    let lines = place.folded(&["-p", &program.pid_text(), "-d", "2"]);
    assert_named(&lines, "main;map outer_[j];map inner_[j]");
    assert!(!listing(&lines).contains("[anon]") && !listing(&lines).contains("map rest"), "{}", listing(&lines));
}

#[test]
fn a_perf_map_that_is_written_while_it_is_recorded_names_what_was_seen_before() {
    let place = Place::new();
    let program = Program::build("jit.c").run(&[]);
    let map = TemporaryFile::map_of(program.pid());
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        let text = map_text("late");
        let (first, second) = text.split_at(text.len() / 2);
        map.write(first);
        std::thread::sleep(Duration::from_millis(300));
        std::fs::OpenOptions::new().append(true).open(&map.0).unwrap().write_all(second.as_bytes()).unwrap();
        map
    });
    let lines = place.folded(&["-p", &program.pid_text(), "-d", "3"]);
    assert_named(&lines, "main;late outer_[j];late inner_[j]");
    drop(writer.join().unwrap());
}

/// Memory of functions is reused by other functions during the run: each sample gets the name that was valid at its time.
#[test]
fn code_that_is_made_over_other_code_has_a_name_of_its_own() {
    let place = Place::new();
    let program = Program::build("jit.c").run(&[]);
    let map = TemporaryFile::map_of(program.pid());
    map.write(map_text("before"));
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        std::fs::OpenOptions::new().append(true).open(&map.0).unwrap().write_all(map_text("after").as_bytes()).unwrap();
        map
    });
    let lines = place.folded(&["-p", &program.pid_text(), "-d", "8"]);
    drop(writer.join().unwrap());
    assert_chain(&lines, "jit", "main;before outer_[j];before inner_[j]");
    assert_chain(&lines, "jit", "main;after outer_[j];after inner_[j]");
    // Each has half of the time, but for the pause between two looks and for the start.
    let share = share_of(&lines, |frame| frame.starts_with("after"));
    assert!((30..=60).contains(&share), "{share} %:\n{}", listing(&lines));
    // In between, two different looks may see a new function for a frame and for its caller.
    let mixed = lines.iter().filter(|line| line.text().contains("before") && line.text().contains("after"));
    assert!(mixed.map(|line| line.count).sum::<u64>() <= 2, "{}", listing(&lines));
}

#[test]
fn a_jitdump_names_code_and_has_the_last_word_where_there_is_a_perf_map_too() {
    let place = Place::new();
    let directory = place.0.path().to_str().unwrap().to_owned();
    let program = Program::build("jit.c").run(&["60", &directory]);
    let dump = place.path(&format!("jit-{}.dump", program.pid()));
    std::fs::write(&dump, dump_bytes("dump")).unwrap();
    let map = TemporaryFile::map_of(program.pid());
    for text in [None, Some(map_text("map"))] {
        text.iter().for_each(|text| map.write(text));
        let lines = place.folded(&["-p", &program.pid_text(), "-d", "2"]);
        assert_named(&lines, "main;dump outer_[j];dump inner_[j]");
    }
    // The file stays mapped, even if its name is removed.
    std::fs::remove_file(&dump).unwrap();
    let lines = place.folded(&["-p", &program.pid_text(), "-d", "2"]);
    assert_named(&lines, "main;dump outer_[j];dump inner_[j]");
}

#[test]
fn a_map_that_is_a_link_or_another_users_is_not_read() {
    let place = Place::new();
    let file = Program::build("jit.c");
    let secret = place.path("secret");
    std::fs::write(&secret, map_text("secret")).unwrap();
    let mut running = started(Command::new(&file.path).uid(65534).gid(65534));
    let map = TemporaryFile::map_of(running.child.id());
    let recorded = |place: &Place| place.folded(&["-p", &running.child.id().to_string(), "-d", "1.5"]);
    std::os::unix::fs::symlink(&secret, &map.0).unwrap();
    assert_named(&recorded(&place), "main;[anon]_[j];[anon]_[j]");
    map.remove();
    // A hard link to a file that another user owns. (Another file system cannot have one.)
    let own = TemporaryFile(PathBuf::from(format!("/tmp/flametop-secret-{}", running.child.id())));
    own.write(map_text("secret"));
    std::fs::hard_link(&own.0, &map.0).unwrap();
    assert_named(&recorded(&place), "main;[anon]_[j];[anon]_[j]");
    map.remove();
    map.write(map_text("stranger"));
    std::os::unix::fs::chown(&map.0, Some(65533), None).unwrap();
    assert_named(&recorded(&place), "main;[anon]_[j];[anon]_[j]");
    std::os::unix::fs::chown(&map.0, Some(65534), None).unwrap();
    assert_named(&recorded(&place), "main;stranger outer_[j];stranger inner_[j]");
    running.kill();
}

/// Starts a command that runs a program of `programs/` in the end, and waits until the program is ready.
#[track_caller]
fn started(command: &mut Command) -> Running {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{command:?}");
    Running { child }
}

/// A copy of a program that is there when something else is mounted on /tmp, below which the tests may have been built.
fn outside_of_tmp(program: &Program) -> (TempDir, Program) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join(program.path.file_name().unwrap());
    std::fs::copy(&program.path, &path).unwrap();
    (directory, Program { path })
}

/// The only child of a process.
fn child_of(child: &Child) -> u32 {
    let pid = child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap_or_else(|| panic!("{pid} has no child")).parse().unwrap()
}

#[test]
fn a_map_is_found_where_its_process_has_its_files_and_its_number() {
    let place = Place::new();
    let (_elsewhere, file) = outside_of_tmp(&Program::build("jit.c"));
    let script = "mount -t tmpfs none /tmp && exec \"$0\" 60";
    // Other files under /tmp.
    let mut running = started(Command::new("unshare").args(["--mount", "sh", "-c", script]).arg(&file.path));
    let pid = running.child.id();
    let outside = TemporaryFile::map_of(pid);
    outside.write(map_text("outside"));
    std::fs::write(format!("/proc/{pid}/root/tmp/perf-{pid}.map"), map_text("inside")).unwrap();
    let lines = place.folded(&["-p", &pid.to_string(), "-d", "2"]);
    assert_named(&lines, "main;inside outer_[j];inside inner_[j]");
    running.kill();
    // And the process has another number in its namespace.
    let arguments = ["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script];
    let mut running = started(Command::new("unshare").args(arguments).arg(&file.path));
    let pid = child_of(&running.child);
    for (number, word) in [(pid, "wrong"), (1, "first")] {
        std::fs::write(format!("/proc/{pid}/root/tmp/perf-{number}.map"), map_text(word)).unwrap();
    }
    let lines = place.folded(&["-p", &pid.to_string(), "-d", "2"]);
    assert_named(&lines, "main;first outer_[j];first inner_[j]");
    running.kill();
}

#[test]
fn a_file_that_is_mounted_in_the_place_of_a_map_is_not_read() {
    let place = Place::new();
    let (_elsewhere, file) = outside_of_tmp(&Program::build("jit.c"));
    let secret = place.path("secret");
    std::fs::write(&secret, map_text("secret")).unwrap();
    // A user who may make a user namespace can do this with any file whose name is visible.
    let script =
        "cd \"$1\" && mount -t tmpfs none /tmp && : >/tmp/perf-$$.map && mount --bind secret /tmp/perf-$$.map && exec \"$0\" 60";
    let mut command = Command::new("unshare");
    let mut running = started(command.args(["--mount", "sh", "-c", script]).arg(&file.path).arg(place.0.path()));
    let pid = running.child.id();
    let inside = std::fs::read_to_string(format!("/proc/{pid}/root/tmp/perf-{pid}.map")).unwrap();
    assert!(inside.contains("secret"), "the test has mounted nothing");
    let lines = place.folded(&["-p", &pid.to_string(), "-d", "1.5"]);
    assert_named(&lines, "main;[anon]_[j];[anon]_[j]");
    running.kill();
}

/// Functions that take long enough to be compiled, and that call each other.
const SCRIPT: &str = "
function hotInner(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i); return s; }
function hotOuter() { let t = 0; for (let i = 0; i < 100; i++) t += hotInner(20000); return t; }
const end = Date.now() + 60000;
console.log('ready');
while (Date.now() < end) hotOuter();
";

/// Copies Node.js, but with a V8 that flametop does not know: without the symbol of its version. Then names come from the files that V8 writes.
fn node_of_unknown_version(place: &Place) -> PathBuf {
    const VERSION: &[u8] = b"_ZN2v88internal7Version6major_E";
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join("node"))
        .find(|path| path.exists());
    let mut bytes = std::fs::read(found.expect("Node.js")).unwrap();
    let places: Vec<usize> = memchr::memmem::find_iter(&bytes, VERSION).collect();
    assert!(!places.is_empty(), "this Node.js does not export the version of V8");
    for at in places {
        bytes[at + VERSION.len() - 7] = b'M';
    }
    let path = place.path("node");
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The share of samples in percent in whose stack there is a frame that `is_it`.
fn share_of(lines: &[Line], is_it: impl Fn(&str) -> bool) -> u64 {
    let all: u64 = lines.iter().map(|line| line.count).sum();
    let found = lines.iter().filter(|line| line.frames.iter().any(|frame| is_it(frame)));
    found.map(|line| line.count).sum::<u64>() * 100 / all.max(1)
}

#[test]
fn functions_of_node_have_their_names() {
    let place = Place::new();
    std::fs::write(place.path("app.js"), SCRIPT).unwrap();
    // Its log goes to the directory that it is started in.
    let mut command = Command::new(node_of_unknown_version(&place));
    // If `hotInner` were inlined, it would have no separate code.
    let mut running =
        started(command.args(["--perf-basic-prof", "--no-turbo-inlining"]).arg(place.path("app.js")).current_dir(place.0.path()));
    let _map = TemporaryFile(PathBuf::from(format!("/tmp/perf-{}.map", running.child.id())));
    let lines = place.folded(&["-p", &running.child.id().to_string(), "-d", "3"]);
    running.kill();
    let app = place.path("app.js").display().to_string();
    let is_one = |frame: &str, function: &str| frame.starts_with(&format!("{function} {app}:")) && frame.ends_with("_[j]");
    for function in ["hotInner", "hotOuter"] {
        assert!(share_of(&lines, |frame| is_one(frame, function)) > 0, "no {function} in\n{}", listing(&lines));
    }
    let any = share_of(&lines, |frame| is_one(frame, "hotInner") || is_one(frame, "hotOuter"));
    let anonymous = share_of(&lines, |frame| frame == "[anon]_[j]");
    println!("node: {any} % of samples are in the program's functions, {anonymous} % in code without a name");
    assert!(any >= 90, "{any} %:\n{}", listing(&lines));
}

#[test]
fn functions_of_node_have_their_names_by_its_jitdump_when_it_ends() {
    let place = Place::new();
    let script = SCRIPT.replace("60000", "2500");
    std::fs::write(place.path("app.js"), script).unwrap();
    let app = place.path("app.js").display().to_string();
    // V8 keeps back up to 2 MB of its dump until it ends.
    let node = node_of_unknown_version(&place);
    let output = place.record(&["-F", "997", "-o", "x.folded", "--", node.to_str().unwrap(), "--perf-prof", &app]);
    assert!(output.status.success(), "{}", words(&output));
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    let any = share_of(&lines, |frame| frame.contains(&format!(" {app}:")) && frame.ends_with("_[j]"));
    println!("node --perf-prof: {any} % of samples are in the program's functions");
    assert!(any >= 50, "{any} %:\n{}", listing(&lines));
}

#[test]
fn functions_of_python_have_their_names() {
    let place = Place::new();
    // Versions before 3.12 write no maps.
    let writes_maps = |python: &String| {
        let output = Command::new(python).args(["-c", "import sys; sys.activate_stack_trampoline"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let known = ["python3", "python3.14", "python3.13", "python3.12"].map(str::to_owned);
    let given = std::env::var("FLAMETOP_TEST_PYTHON").ok();
    let Some(python) = given.into_iter().chain(known).find(writes_maps) else {
        println!("NOT TESTED: no Python 3.12 or later here; FLAMETOP_TEST_PYTHON takes the path of one");
        return;
    };
    let script = "
import time
def hot_inner(n):
    return sum(i * i for i in range(n))
def hot_outer():
    return [hot_inner(2000) for _ in range(100)]
print('ready', flush=True)
end = time.time() + 60
while time.time() < end:
    hot_outer()
";
    std::fs::write(place.path("app.py"), script).unwrap();
    let mut running = started(Command::new(python).args(["-X", "perf"]).arg(place.path("app.py")));
    let _map = TemporaryFile(PathBuf::from(format!("/tmp/perf-{}.map", running.child.id())));
    let lines = place.folded(&["-p", &running.child.id().to_string(), "-d", "3"]);
    running.kill();
    // What the interpreter's own objects tell comes once; the trampoline of the function is not shown beside it.
    assert!(!lines.iter().any(|line| line.text().contains("py::")), "{}", listing(&lines));
    let share = share_of(&lines, |frame| frame == "hot_inner.<locals>.<genexpr>_[p]");
    println!("python: {share} % of samples are in the innermost function");
    assert!(share >= 50, "{share} %:\n{}", listing(&lines));
}
