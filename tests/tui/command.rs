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
    terminal.wait_for_text("status 3", SOON);
    // The picture of what was is still there, and can be walked in.
    terminal.keys("g");
    terminal.wait_for(|screen| detail(screen).starts_with(" all "), SOON);
    assert!(terminal.screen().contains("inner"));
    terminal.keys("O");
    terminal.wait_for(|screen| !screen.contains("from the pane"), SOON);
    quit(terminal);
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
    let cases: [(&str, Vec<&str>, &str); 4] = [
        (common::FLAMETOP, vec!["-p", &gone], "no process"),
        (common::FLAMETOP, vec!["--", "no-such-command-anywhere"], "no such command"),
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
