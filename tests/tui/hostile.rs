//! Programs whose names attack the program that shows them.

use super::*;
use common::terminal::find;
use common::{Program, root_or_fail};

#[test]
fn names_of_running_programs_never_reach_the_terminal_raw() {
    root_or_fail();
    let long = "n".repeat(10_000);
    let evil = Program::build("hostile.c").patched(b"harmless", b"\x1b[2J;<\n&");
    let long_named = Program::build_with("hostile.c", &[&format!("-DHOSTILE_NAME={long}")]);
    let running = [evil.run(&[]), long_named.run(&[])];
    let pids = format!("{},{}", running[0].pid(), running[1].pid());
    let terminal = Terminal::start(&["-F", "499", "-p", &pids], 36, 132, &[]);
    terminal.wait_for(|screen| screen.contains("evil") && screen.contains("nnnnn"), SOON);
    terminal.keys("e");
    terminal.keys("e");
    // Each thread by its name.
    terminal.wait_for(|screen| screen.contains("per process and thread"), SOON);
    for (keys, sign) in [
        ("2", "self ▼"),
        // The heading is there before the first rows are, and no key has anything to open then.
        ("", "▸ "),
        ("j j Enter", "called by"),
        ("3", "PID"),
        ("Right", "owned"),
        ("5", "Cost of flametop"),
        ("p", "evil"),
        ("Esc T", "owned"),
    ] {
        terminal.keys(keys);
        terminal.wait_for_text(sign, SOON);
    }
    terminal.keys("Esc 1 g j");
    terminal.wait_for(|screen| screen.contains("evil") && !screen.contains("type to narrow"), SOON);
    // The names are also copied and searched for.
    terminal.keys("# n j j y");
    let raw = terminal.raw();
    // flametop itself clears the screen with CSI 2J. So theirs is recognised by the bytes after it.
    let forbidden: [&[u8]; 8] = [
        b"\x1b]0;owned",
        b"owned\x07",
        b"\x1b[2J\x1b[H",
        b"\x1b[2J;",
        b"\x1b[31mevil",
        b"\x1b[31mevil;\n",
        "\u{202e}".as_bytes(),
        b"byte\xff",
    ];
    for bytes in forbidden {
        assert!(find(&raw, bytes).is_none(), "{:?} reached the terminal", String::from_utf8_lossy(bytes));
    }
    let file = tempfile::tempdir().unwrap();
    for name in ["x.svg", "x.folded"] {
        let path = file.path().join(name);
        prompt(&terminal, SAVE, path.to_str().unwrap());
        terminal.wait_for_text("saved ", SOON);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t' && c != '\r'), "a control character in {name}");
        terminal.keys("j");
    }
    quit(terminal);
}

#[test]
fn a_command_s_output_cannot_touch_the_screen() {
    root_or_fail();
    let script = "printf '\\033]0;owned\\007\\033[2J\\033[?1049l\\033[10;10Hshown\\n'; while :; do :; done";
    let terminal = Terminal::start(&["--", "sh", "-c", script], 24, 80, &[]);
    terminal.wait_for_text("shown", SOON);
    let raw = terminal.raw();
    for bytes in [&b"owned"[..], b"\x1b[?1049l", b"\x1b[10;10Hshown"] {
        assert!(find(&raw, bytes).is_none(), "{:?} reached the terminal", String::from_utf8_lossy(bytes));
    }
    quit(terminal);
}
