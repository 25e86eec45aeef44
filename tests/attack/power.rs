//! Dropped privileges (B4, B5), and files that no other user can read or redirect.

use std::os::unix::fs::MetadataExt;

use flametop::formats::save::{Overwrite, save};

use super::common::Terminal;
use super::*;

/// Bits of `CapEff`: what no thread needs after the start.
const NEEDLESS: [(&str, u32); 9] = [
    ("setpcap", 8),
    ("net_admin", 12),
    ("net_raw", 13),
    ("sys_module", 16),
    ("sys_rawio", 17),
    ("sys_admin", 21),
    ("sys_boot", 22),
    ("sys_nice", 23),
    ("sys_time", 25),
];

const SYS_ADMIN: u64 = 1 << 21;
const SYS_NICE: u64 = 1 << 23;

/// One thread's privileges, from its `status`.
#[derive(Debug)]
struct Power {
    name: String,
    effective: u64,
    permitted: u64,
    no_new_privileges: bool,
    filtered: bool,
}

/// The privileges of all threads of a process.
fn powers(pid: u32) -> Vec<Power> {
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let power = |text: String| Power {
        name: field(&text, "Name"),
        effective: u64::from_str_radix(&field(&text, "CapEff"), 16).unwrap(),
        permitted: u64::from_str_radix(&field(&text, "CapPrm"), 16).unwrap(),
        no_new_privileges: field(&text, "NoNewPrivs") == "1",
        filtered: field(&text, "Seccomp") == "2",
    };
    status.map(power).collect()
}

/// Waits until all threads have dropped what they do not need; says which have not.
#[track_caller]
fn assert_less_power(pid: u32, what: &str) {
    let is_less = |power: &Power| {
        // A reserved privilege may be acquired, but is not held. The live view's collector thread attaches to events; the main thread
        // changes priorities at the end, and threads that it starts inherit that reserve.
        let attaches = what.starts_with("live") && power.name == "flametop-drain";
        let reserved = if attaches { SYS_ADMIN } else { SYS_NICE };
        let permitted = power.permitted & !reserved;
        let needless = NEEDLESS.iter().any(|(_, bit)| (power.effective | permitted) >> bit & 1 == 1);
        !needless && power.no_new_privileges && power.filtered
    };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let all = powers(pid);
        if !all.is_empty() && all.iter().all(is_less) {
            println!("{what}: {} threads with {:x}", all.len(), all[0].effective);
            return;
        }
        let strong: Vec<&Power> = all.iter().filter(|power| !is_less(power)).collect();
        assert!(Instant::now() < until, "{what}: of {} threads these have too much: {strong:#?}", all.len());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_recording_keeps_no_power_that_it_does_not_need() {
    let _alone = alone();
    let recording = Recording::start(&["-F", "499", "-d", "8"]);
    assert_less_power(recording.pid(), "record");
    let witness = Witness::start("weaker");
    std::thread::sleep(Duration::from_secs(2));
    // Threads that began meanwhile have no further privileges.
    assert_less_power(recording.pid(), "record, later");
    let (lines, _) = recording.end(Duration::from_secs(8));
    drop(witness);
    Witness::assert_seen("weaker", &lines);
    let kernel = |line: &&Line| line.frames.iter().any(|frame| frame.ends_with("_[k]"));
    let named = |line: &Line| !line.frames.iter().any(|frame| frame.starts_with("0x") || frame.starts_with("[kernel]+"));
    assert!(lines.iter().filter(kernel).any(named), "the kernel's functions have names");
}

#[test]
fn other_users_programs_in_private_directories_have_names_all_the_same() {
    let _alone = alone();
    let lair = Lair::new();
    std::fs::create_dir(lair.path().join("private")).unwrap();
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/chain.c")).unwrap();
    let program = Program::build_text("private.c", &source, &[]);
    let copy = lair.path().join("private/hidden");
    std::fs::copy(&program.path, &copy).unwrap();
    for path in [copy.as_path(), copy.parent().unwrap()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
        rustix::fs::chown(path, owner(), None).unwrap();
    }
    let recording = Recording::start(&["-F", "499", "-d", "8"]);
    assert_less_power(recording.pid(), "record");
    let run = |path: &Path| {
        let child = Command::new(path).uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).spawn().unwrap();
        Running { child }
    };
    // Runs until its table is there, as a witness does.
    let first = run(&early(&copy).path);
    std::thread::sleep(Duration::from_secs(2));
    drop(first);
    let running = run(&copy);
    let (lines, _) = recording.end(Duration::from_secs(8));
    drop(running);
    Witness::assert_seen("hidden", &lines);
}

#[test]
fn the_live_view_and_the_view_of_a_file_keep_no_power_either() {
    let _alone = alone();
    root_or_fail();
    let live = Terminal::start(&[], 30, 100, &[]);
    live.wait_for_text("live", Duration::from_secs(60));
    assert_less_power(live.pid(), "live");
    // The remaining privileges suffice to attach to further events after the start. None is so frequent that a question comes first.
    for event in ["sched:sched_switch", "uprobe:libc:setlocale", "page-faults"] {
        live.keys("E");
        live.text(event);
        live.wait_for_text(event, Duration::from_secs(60));
        live.keys("Enter");
        live.wait_for(
            |screen| screen.lines().next().is_some_and(|line| line.contains(&format!("· {event} ("))),
            Duration::from_secs(60),
        );
    }
    assert_less_power(live.pid(), "live, later");
    drop(live);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.folded");
    std::fs::write(&file, "a;b 3\n").unwrap();
    let view = Terminal::start(&["view", file.to_str().unwrap()], 30, 100, &[]);
    view.wait_for_text("a.folded", Duration::from_secs(60));
    assert_less_power(view.pid(), "view");
}

/// Runs `flametop record -- COMMAND`; returns the output of both, and the directory.
fn recorded(options: &[&str], command: &[&str], environment: &[(&str, &str)]) -> (Output, TempDir) {
    root_or_fail();
    let directory = tempfile::tempdir().unwrap();
    let mut flametop = Command::new(FLAMETOP);
    flametop.args(["record", "-F", "997", "-o", "x.folded"]).args(options).arg("--").args(command);
    flametop.env_remove("SUDO_UID").env_remove("SUDO_GID").env_remove("SUDO_USER").envs(environment.iter().copied());
    let output = flametop.current_dir(directory.path()).stdin(Stdio::null()).output().unwrap();
    (output, directory)
}

/// Prints its user and privileges, and works for a moment, so that there are samples to write.
const WHO: &str = "id -u; id -g; id -G; grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs|Seccomp):' /proc/self/status; echo $HOME $USER $LOGNAME \
                   $SHELL; i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";

#[test]
fn a_command_runs_as_another_user_with_nothing_of_roots() {
    let _alone = alone();
    for user in ["nobody", "65534"] {
        let (output, _directory) = recorded(&["--user", user], &["sh", "-c", WHO], &[]);
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{errors}");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..3], ["65534", "65534", "65534"], "{said}");
        let capabilities: Vec<&&str> = lines.iter().filter(|line| line.starts_with("Cap")).collect();
        assert!(capabilities.len() == 4 && capabilities.iter().all(|line| line.ends_with("\t0000000000000000")), "{said}");
        let last = lines.last().unwrap();
        assert!(last.ends_with(" nobody nobody /usr/sbin/nologin") || last.contains(" nobody nobody "), "{said}");
        assert!(!errors.contains("as root"), "{errors}");
    }
}

/// The nice values of all threads of a process, with their names.
fn nice_values(pid: u32) -> Vec<(String, i32)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let stat = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let nice = |stat: String| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        Some((name.to_owned(), rest.split(' ').nth(16)?.parse().ok()?))
    };
    stat.filter_map(nice).collect()
}

/// Beside many busy programs the rings would fill before its turn comes.
#[test]
fn the_thread_that_drains_the_rings_comes_first_and_no_other() {
    let _alone = alone();
    root_or_fail();
    let recording = Recording::start(&["-F", "499", "-d", "3"]);
    recording.wait_for_clocks();
    let witness = Witness::start("before-others");
    let (pid, until) = (recording.pid(), Instant::now() + SOON);
    let is_as_wanted = |nice: &[(String, i32)]| {
        let (draining, others): (Vec<_>, Vec<_>) = nice.iter().partition(|(name, _)| name == "flametop-drain");
        matches!(draining[..], [(_, -10)]) && others.len() > 3 && others.iter().all(|(_, nice)| *nice == 0)
    };
    while !is_as_wanted(&nice_values(pid)) {
        assert!(Instant::now() < until, "{:?}", nice_values(pid));
        std::thread::sleep(Duration::from_millis(20));
    }
    let (lines, _) = recording.end(Duration::from_secs(3));
    drop(witness);
    Witness::assert_seen("before-others", &lines);
}

/// A shell of root's would run what the command types.
#[test]
fn a_command_of_another_user_cannot_type_into_roots_terminal() {
    let _alone = alone();
    root_or_fail();
    let legacy = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or("1".to_owned());
    assert_eq!(legacy.trim(), "1", "NOT TESTED: this kernel refuses TIOCSTI to everybody");
    let lair = Lair::new();
    let program = lair.copy(&attacker("tiocsti.c", &[]).path, "tiocsti");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("x.folded");
    let record = ["record", "-F", "499", "-o", file.to_str().unwrap()];
    for (user, said) in [(&["--user", "nobody"][..], "refused"), (&[], "typed")] {
        let words = [&record, &["--force"][..], user, &["--", program.to_str().unwrap()]].concat();
        let mut terminal = Terminal::start(&words, 24, 100, &[]);
        terminal.wait_for_text(said, SOON);
        terminal.send(b"hello\r");
        terminal.wait_for_text("heard", SOON);
        let has_samples = |line: &str| line.contains("recording:") && !line.contains(" 0 samples");
        terminal.wait_for(|screen| screen.lines().any(has_samples), SOON);
        terminal.keys("Ctrl-c");
        let status = terminal.wait_exit_within(SOON);
        assert!(status.success() && terminal.screen().contains("samples written to"), "{status:?} {}", terminal.screen());
        let is_it = |process: std::fs::DirEntry| std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program);
        assert!(!std::fs::read_dir("/proc").unwrap().flatten().any(is_it), "the command has ended");
    }
}

#[test]
fn a_command_as_root_is_said_under_sudo_and_keeps_its_power() {
    let _alone = alone();
    let sudo = [("SUDO_USER", "alice"), ("SUDO_UID", "65534"), ("SUDO_GID", "65534")];
    let (output, directory) = recorded(&[], &["sh", "-c", WHO], &sudo);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("flametop: sh runs as root, as flametop does; --user alice starts it as alice\n"), "{errors}");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| own.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    for same in [line("CapEff:"), line("NoNewPrivs:"), line("Seccomp:")] {
        assert!(said.lines().any(|line| line == same), "{same} as before: {said}");
    }
    let file = std::fs::metadata(directory.path().join("x.folded")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (65534, 65534, 0o600));
    let (output, _directory) = recorded(&[], &["sh", "-c", WHO], &[]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("as root"), "without sudo it is nobody's surprise");
}

#[test]
fn a_user_that_is_not_there_is_said_before_anything_starts() {
    let _alone = alone();
    let (output, directory) = recorded(&["--user", "no-such-user"], &["touch", "made"], &[]);
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "flametop: --user no-such-user: there is no such user\n");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_root_saw_is_for_its_owner_alone() {
    let _alone = alone();
    root_or_fail();
    let recording = Recording::start(&["-F", "499", "-d", "1"]);
    let file = recording.directory.path().join("x.folded");
    let witness = Witness::start_unseen("private_file");
    let until = Instant::now() + Duration::from_secs(60);
    while !file.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    drop(witness);
    recording.end(Duration::from_secs(1));
}

#[test]
fn links_that_are_swapped_while_a_file_is_saved_lead_nowhere() {
    let _alone = alone();
    let lair = Lair::new();
    let precious = tempfile::tempdir().unwrap();
    let (own, link) = (lair.path().join("own"), lair.path().join("link"));
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::symlink(precious.path(), &link).unwrap();
    for path in [&own, &link] {
        std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let swapper = attacker("swap.c", &["-O2", "-Wno-unused-result"]);
    let running = lair.start(&swapper.path, &["own", "link"]);
    let until = Instant::now() + Duration::from_secs(5);
    let (mut saved, mut refused) = (0, 0);
    for number in 0.. {
        let path = own.join(format!("{number}.folded"));
        match save(&path, Overwrite::Yes, |out| Ok(out.write_all(b"root's")?)) {
            Ok(_) => saved += 1,
            Err(_) => refused += 1,
        }
        if Instant::now() > until {
            break;
        }
    }
    drop(running);
    let landed: Vec<(String, String)> = std::fs::read_dir(precious.path())
        .unwrap()
        .flatten()
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    println!("{saved} saved, {refused} refused, {} landed elsewhere", landed.len());
    assert!(saved > 0 && refused > 0, "the attack met nobody: {saved} saved, {refused} refused");
    let evil = landed.iter().filter(|(_, text)| text == "evil").count();
    assert!(landed.is_empty(), "{} files landed elsewhere, {evil} of them the attacker's: {:?}", landed.len(), &landed[..1]);
}
