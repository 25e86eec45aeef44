//! `flametop -- CMD` and `flametop -p PID`: programs that begin and end while they are watched.

use super::*;
use common::{Program, root_or_fail};

#[test]
fn a_command_is_shown_with_its_output_and_its_end_and_the_screen_stays() {
    root_or_fail();
    let chain = Program::build("chain.c");
    let script = format!("printf 'from \\033[31mthe\\033[0m pane\\n'; '{}' 2; exit 3", chain.path.display());
    let terminal = Terminal::start(&["-F", "499", "--", "sh", "-c", &script], 36, 132, &[]);
    terminal.wait_for(|screen| screen.contains("from the pane") && screen.contains("inner"), SOON);
    let header = terminal.screen().lines().next().unwrap_or_default().to_owned();
    assert!(header.contains(" sh and children ") && !header.contains("all processes"), "{header}");
    // Its exit status and CPU time are in the last line until the next key, and in the header.
    let told = |screen: &str| {
        screen
            .lines()
            .last()
            .is_some_and(|line| line.contains("sh ended with status 3 after 2.") && line.contains(" s of CPU (user "))
    };
    let screen = terminal.wait_for(told, SOON);
    assert!(screen.lines().next().is_some_and(|header| header.contains("exit 3 after 2.")), "{screen}");
    // The picture of the ended program is still there, and the cursor can move in it.
    terminal.keys("g");
    terminal.wait_for(|screen| detail(screen).starts_with(" all "), SOON);
    assert!(terminal.screen().contains("inner"));
    terminal.keys("O");
    terminal.wait_for(|screen| !screen.contains("from the pane"), SOON);
    // CPU use is that of its life. About all of it was in the two seconds of the program.
    terminal.keys("3");
    let use_of_chain = |screen: &str| {
        let row = screen.lines().find(|line| line.contains(" chain ") && line.contains("exited"))?;
        row.split_whitespace().nth(2)?.parse::<f64>().ok()
    };
    terminal.wait_for(|screen| use_of_chain(screen).is_some_and(|percent| (20.0..=101.0).contains(&percent)), SOON);
    let mut terminal = terminal;
    terminal.keys("q");
    terminal.wait_exit_within(SOON);
    // The same line is left on the terminal.
    let left = terminal.screen();
    assert!(left.contains("flametop: sh ended with status 3 after 2."), "{left}");
    terminal.assert_restored();
}

#[test]
fn output_can_go_to_a_file() {
    let shop = Shop::new();
    root_or_fail();
    let file = shop.path("said");
    let args =
        ["--output", file.to_str().unwrap(), "--", "sh", "-c", "echo heard; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"];
    let terminal = Terminal::start(&args, 24, 80, &[]);
    terminal.wait_for_text("ended", SOON);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "heard\n");
    assert!(!terminal.screen().contains("heard"));
    quit(terminal);
}

#[test]
fn output_takes_no_file_away() {
    root_or_fail();
    let shop = Shop::new();
    let (there, link) = (shop.path("there"), shop.path("link"));
    std::fs::write(&there, "mine").unwrap();
    std::os::unix::fs::symlink(&there, &link).unwrap();
    for path in [&there, &link] {
        let mut terminal = Terminal::start(&["--output", path.to_str().unwrap(), "--", "true"], 24, 250, &[]);
        let status = terminal.wait_exit_within(SOON);
        let screen = terminal.screen();
        assert!(!status.success() && screen.contains("exists; choose another name or remove it"), "{status:?} {screen}");
        terminal.assert_restored();
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
    let file = shop.path("said");
    let sudo = [("SUDO_UID", "65534"), ("SUDO_GID", "65533")];
    let args = ["--output", file.to_str().unwrap(), "--", "sh", "-c", "echo heard"];
    let terminal = Terminal::start(&args, 24, 80, &sudo);
    terminal.wait_for_text("ended", SOON);
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(&file).unwrap();
    assert_eq!((about.uid(), about.gid()), (65534, 65533));
    quit(terminal);
}

#[test]
fn a_command_in_the_pane_has_a_terminal_of_its_own_and_all_it_started_ends_with_the_view() {
    root_or_fail();
    let directory = tempfile::tempdir().unwrap();
    let copies = ["just-me", "deaf"].map(|name| directory.path().join(name));
    for copy in &copies {
        std::fs::copy(Program::build("chain.c").path, copy).unwrap();
    }
    let running = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let found = processes.filter_map(|entry| std::fs::read_link(entry.path().join("exe")).ok());
        found.filter(|exe| copies.contains(exe)).count()
    };
    // Two shells stay between flametop and the programs. The second shell ignores SIGTERM.
    let (just_me, deaf) = (copies[0].display(), copies[1].display());
    let script = format!("echo own > /dev/tty; (trap '' TERM HUP; '{deaf}' 55; true) & '{just_me}' 55; true");
    let terminal = Terminal::start(&["-F", "499", "--", "sh", "-c", &script], 36, 132, &[]);
    terminal.wait_for(|screen| screen.contains("own") && screen.contains("inner"), SOON);
    let end = std::time::Instant::now() + SOON;
    while running() < 2 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(running(), 2);
    quit(terminal);
    let end = std::time::Instant::now() + SOON;
    while running() > 0 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(running(), 0, "something runs on");
}

#[test]
fn quitting_ends_the_command() {
    root_or_fail();
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("just-me");
    std::fs::copy(Program::build("chain.c").path, &copy).unwrap();
    let runs = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|entry| std::fs::read_link(entry.path().join("exe")).ok()).any(|exe| exe == copy)
    };
    let terminal = Terminal::start(&["-F", "499", "--", copy.to_str().unwrap(), "55"], 24, 80, &[]);
    terminal.wait_for_text("inner", SOON);
    assert!(runs());
    quit(terminal);
    assert!(!runs(), "the command runs on");
}

#[test]
fn a_process_that_ends_while_watched_is_said_to_have_ended() {
    root_or_fail();
    let mut chain = Program::build("chain.c").run(&[]);
    let terminal = Terminal::start(&["-F", "499", "-p", &chain.pid_text()], 24, 80, &[]);
    terminal.wait_for_text("inner", SOON);
    chain.kill();
    terminal.wait_for_text("the process has ended", SOON);
    terminal.keys("g");
    // The header tells it for good.
    let header = |screen: &str| screen.lines().next().unwrap_or_default().contains("ended");
    terminal.wait_for(|screen| header(screen) && detail(screen).starts_with(" all ") && screen.contains("inner"), SOON);
    quit(terminal);
}

#[test]
fn what_cannot_be_started_is_refused_before_the_screen_is_taken() {
    root_or_fail();
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let gone = gone.id().to_string();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
    let shop = Shop::new();
    let copy = shop.path("flametop");
    std::fs::copy(common::FLAMETOP, &copy).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(shop.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = [&nobody[..], &[copy.to_str().unwrap()]].concat();
    let cases: [(&str, Vec<&str>, &str); 6] = [
        (common::FLAMETOP, vec!["-p", &gone], "no process"),
        (common::FLAMETOP, vec!["--", "no-such-command-anywhere"], "no such command"),
        (common::FLAMETOP, vec!["--", "/etc/passwd"], "/etc/passwd is not executable; allow it with chmod +x"),
        (common::FLAMETOP, vec!["--", "/etc"], "/etc is a directory"),
        ("setpriv", as_nobody.clone(), "sudo"),
        ("setpriv", [&as_nobody[..], &["--", "true"]].concat(), "sudo"),
    ];
    for (program, args, part) in cases {
        let mut terminal = Terminal::spawn(program, &args, 24, 250, &[]);
        let status = terminal.wait_exit_within(SOON);
        let screen = terminal.screen();
        assert!(!status.success() && screen.starts_with("flametop: ") && screen.contains(part), "{args:?}: {status:?} {screen}");
        assert!(common::terminal::find(&terminal.raw(), b"\x1b[?1049h").is_none(), "the screen was taken: {screen}");
        terminal.assert_restored();
    }
}
