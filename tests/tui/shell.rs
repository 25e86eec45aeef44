//! Beside a shell: Ctrl-Z and fg, a terminal that goes away, terminals that can show nothing.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::*;
use common::FLAMETOP;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;

/// The command that shows the shop.
fn shows(shop: &Shop) -> String {
    format!("'{FLAMETOP}' view '{}'", shop.path("shop.folded").display())
}

/// A shell with job control, in which a command shows the shop.
fn in_a_shell(command: &str) -> Terminal {
    let terminal = Terminal::spawn("bash", &["--norc", "--noprofile", "-i"], 24, 100, &[("PS1", "shell> ")]);
    terminal.wait_for_text("shell>", SOON);
    terminal.text(&format!("{command}\r"));
    terminal.wait_for(is_drawn, SOON);
    terminal
}

fn is_drawn(screen: &str) -> bool {
    screen.contains("serve") && screen.contains("all 1,000")
}

/// The modes that a program turns on: alternate screen, pasted text as such, mouse.
fn is_taken(terminal: &Terminal) -> (bool, bool, bool) {
    terminal.with_screen(|screen| {
        let mouse = screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None;
        (screen.alternate_screen(), screen.bracketed_paste(), mouse)
    })
}

/// flametop, the shell's child.
fn child_of(shell: u32) -> Pid {
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let mut pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
    let is_flametop =
        |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("flametop"));
    Pid::from_raw(pids.rfind(is_flametop).expect("flametop runs")).unwrap()
}

/// Brings flametop back with fg, checks that it works, and ends it; the shell then has its terminal.
fn comes_back_and_ends(mut terminal: Terminal) {
    terminal.text("fg\r");
    terminal.wait_for(is_drawn, SOON);
    assert_eq!(is_taken(&terminal), (true, true, true));
    terminal.keys("2");
    terminal.wait_for_text("self ▼", SOON);
    terminal.keys("q");
    terminal.wait_for(|screen| !screen.contains("self ▼") && screen.contains("shell>"), SOON);
    assert_eq!(is_taken(&terminal), (false, is_taken(&terminal).1, false));
    terminal.text("stty -a | grep -o ' icanon'; exit 7\r");
    terminal.wait_for_text(" icanon", SOON);
    assert_eq!(terminal.wait_exit_within(SOON).exit_code(), 7);
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() {
    let shop = Shop::new();
    let terminal = in_a_shell(&shows(&shop));
    terminal.keys("Ctrl-z");
    terminal.wait_for(|screen| screen.contains("Stopped") && !screen.contains("all 1,000"), SOON);
    let (alternate, _, mouse) = is_taken(&terminal);
    assert!(!alternate && !mouse);
    terminal.text("echo still $((6 * 7))\r");
    terminal.wait_for_text("still 42", SOON);
    comes_back_and_ends(terminal);
}

#[test]
fn a_script_that_waits_for_it_is_stopped_as_well() {
    let shop = Shop::new();
    let terminal = in_a_shell(&format!("sh -c \"{}; true\"", shows(&shop)));
    terminal.keys("Ctrl-z");
    terminal.wait_for(|screen| screen.contains("Stopped") && !screen.contains("all 1,000"), SOON);
    comes_back_and_ends(terminal);
}

#[test]
fn without_job_control_ctrl_z_says_so() {
    let shop = Shop::new();
    let terminal = Terminal::spawn("sh", &["-c", &format!("{}; true", shows(&shop))], 24, 100, &[]);
    terminal.wait_for(is_drawn, SOON);
    terminal.keys("Ctrl-z");
    terminal.wait_for_text("there is no shell to go back to", SOON);
    quit(terminal);
}

#[test]
fn so_does_a_signal_from_outside() {
    let shop = Shop::new();
    let terminal = in_a_shell(&shows(&shop));
    let flametop = child_of(terminal.pid());
    rustix::process::kill_process(flametop, Signal::TSTP).unwrap();
    terminal.wait_for(|screen| screen.contains("Stopped") && !screen.contains("all 1,000"), SOON);
    comes_back_and_ends(terminal);
}

#[test]
fn after_a_stop_that_nobody_could_catch_it_is_drawn_again() {
    let shop = Shop::new();
    let terminal = in_a_shell(&shows(&shop));
    let flametop = child_of(terminal.pid());
    rustix::process::kill_process(flametop, Signal::STOP).unwrap();
    terminal.wait_for_text("Stopped", SOON);
    // The shell writes over what was there.
    terminal.text("clear\r");
    terminal.wait_for(|screen| !screen.contains("Stopped"), SOON);
    comes_back_and_ends(terminal);
}

#[test]
fn without_a_shell_ctrl_z_says_so() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 80, &[]);
    terminal.keys("Ctrl-z");
    terminal.wait_for_text("there is no shell to go back to", SOON);
    quit(terminal);
}

#[test]
fn it_ends_when_a_terminal_that_is_not_its_own_goes_away() {
    let shop = Shop::new();
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let slave = || rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&master, size).unwrap();
    let mut child = Command::new(FLAMETOP)
        .args(["view", shop.path("shop.folded").to_str().unwrap()])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::from(slave()))
        .stdout(Stdio::from(slave()))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut master = std::fs::File::from(master);
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains("serve") {
        let read = master.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..read]);
    }
    drop(master);
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = child.try_wait().unwrap();
    drop(child.kill());
    assert!(ended.is_some(), "it runs on without a terminal");
}

#[test]
fn a_terminal_that_can_place_no_text_is_refused() {
    let shop = Shop::new();
    let path = shop.path("shop.folded");
    let mut terminal = Terminal::start(&["view", path.to_str().unwrap()], 24, 100, &[("TERM", "dumb")]);
    assert!(!terminal.wait_exit_within(SOON).success());
    assert!(terminal.screen().contains("this terminal cannot position text (TERM=dumb)"), "{}", terminal.screen());
}
