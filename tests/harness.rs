//! Tests of the harness itself. If it waited for the wrong text, or a program were not as its header says, failures of other
//! tests could not be explained.

mod common;

use std::time::Duration;

use common::{Program, Terminal, terminal};

const SOON: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Terminal {
    Terminal::spawn("sh", &["-c", script], 10, 40, &[])
}

#[test]
fn a_screen_is_what_the_program_has_drawn() {
    let mut terminal = shell(r"printf 'one\r\ntwo \033[31mred\033[0m'; read -r line; echo got $line");
    terminal.wait_for_text("two red", SOON);
    let colour = terminal.with_screen(|screen| screen.cell(1, 4).unwrap().fgcolor());
    assert_eq!(colour, vt100::Color::Idx(1));
    terminal.keys("abc Enter");
    assert!(terminal.wait_exit().success());
    assert!(terminal.screen().contains("got abc"), "{}", terminal.screen());
}

#[test]
fn a_new_size_reaches_the_program() {
    let mut terminal = shell("trap 'stty size; exit' WINCH; echo begin; while :; do sleep 0.05; done");
    terminal.wait_for_text("begin", SOON);
    terminal.resize(20, 70);
    terminal.wait_exit();
    assert!(terminal.screen().contains("20 70"), "{}", terminal.screen());
}

#[test]
fn a_terminal_left_in_disorder_is_noticed() {
    for (disorder, word) in [
        (r"\033[?1049h", "alternate screen"),
        (r"\033[?25l", "cursor"),
        (r"\033[?1003h", "mouse"),
        (r"\033[?2004h", "paste"),
        (r"\033[44m", "colours"),
    ] {
        let mut terminal = shell(&format!("printf '{disorder}'"));
        terminal.wait_exit();
        let complaint = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| terminal.assert_restored())).unwrap_err();
        let complaint = complaint.downcast_ref::<String>().unwrap();
        assert!(complaint.contains(word), "{complaint}");
    }
    let mut raw = shell("stty raw -echo");
    raw.wait_exit();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| raw.assert_restored())).is_err());
    let mut tidy = shell(
        r"was=$(stty -g); printf '\033[?1049h\033[?25l\033[?1003h'; stty raw; stty $was; printf '\033[?1003l\033[?25h\033[?1049l'",
    );
    tidy.wait_exit();
    tidy.assert_restored();
}

#[test]
fn a_screen_that_never_comes_is_shown_in_the_complaint() {
    let terminal = shell("echo something else; sleep 30");
    let wait = || terminal.wait_for(|screen| screen.contains("never"), Duration::from_millis(500));
    let complaint = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).unwrap_err();
    let complaint = complaint.downcast_ref::<String>().unwrap();
    assert!(complaint.contains("something else"), "{complaint}");
}

#[test]
fn dropping_a_terminal_ends_its_program() {
    let terminal = shell("sleep 30");
    let pid = terminal.pid();
    drop(terminal);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn questions_to_the_terminal_are_answered_when_a_test_says_so() {
    let script = r"stty raw -echo; printf '\033]11;?\007'; head -c 5 | od -An -tx1; sleep 30";
    let terminal = Terminal::spawn_answering("sh", &["-c", script], (10, 40), &[], &[(b"\x1b]11;?\x07", b"hello")]);
    terminal.wait_for_text("68 65 6c 6c 6f", SOON);
}

#[test]
fn the_mouse_is_reported_as_xterm_does() {
    let terminal = shell(r"stty raw -echo; printf 'go\r\n'; head -c 11 | cat -v; sleep 30");
    terminal.wait_for_text("go", SOON);
    terminal.mouse(terminal::Mouse::WheelDown, 2, 9);
    // Row 2, column 9, counted from 1.
    terminal.wait_for_text("^[[<65;10;3M", SOON);
}

#[test]
fn every_program_builds_runs_and_ends_by_itself() {
    for source in ["chain.c", "threads.c", "forks.c", "names.cpp", "rusty.rs", "hostile.c", "syscalls.c"] {
        let program = Program::build(source);
        let mut running = program.run(&["1"]);
        // It may end by SIGALRM or by its clock: it only has to end.
        running.wait(Duration::from_secs(15));
    }
}

#[test]
fn a_name_of_ten_thousand_letters_can_be_built() {
    let name = "n".repeat(10_000);
    let program = Program::build_with("hostile.c", &[&format!("-DHOSTILE_NAME={name}")]);
    let bytes = std::fs::read(&program.path).unwrap();
    assert!(terminal::find(&bytes, name.as_bytes()).is_some());
}

#[test]
fn bytes_of_any_kind_can_be_a_symbol() {
    let program = Program::build("hostile.c").patched(b"harmless", b"\x1b[2J;<\n&");
    let bytes = std::fs::read(&program.path).unwrap();
    assert!(terminal::find(&bytes, b"\x1b[2J;<\n&").is_some() && terminal::find(&bytes, b"harmless").is_none());
    program.run(&["1"]).wait(Duration::from_secs(15));
}
