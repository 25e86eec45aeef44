//! However flametop ends, the terminal is restored and the kernel holds none of our programs.

use super::*;
use common::{BpfProgram, Program, Running, bpf_programs_of, loaded_bpf_programs, root_or_fail};
use rustix::process::Signal;

fn watching() -> (Running, Terminal, Vec<BpfProgram>) {
    root_or_fail();
    let chain = Program::build("chain.c").run(&[]);
    let terminal = Terminal::start(&["-F", "499", "-p", &chain.pid_text()], 24, 80, &[]);
    terminal.wait_for_text("inner", SOON);
    let held = bpf_programs_of(terminal.pid());
    assert!(!held.is_empty(), "flametop holds no BPF program while it runs");
    (chain, terminal, held)
}

#[track_caller]
fn assert_nothing_left(held: &[BpfProgram]) {
    let left: Vec<_> = loaded_bpf_programs().into_iter().filter(|program| held.contains(program)).collect();
    assert!(left.is_empty(), "left in the kernel: {left:?}");
}

#[test]
fn by_keys() {
    for keys in ["q", "Ctrl-c", "? Ctrl-c", "/ abc Ctrl-c", "p Ctrl-c"] {
        let (_chain, mut terminal, held) = watching();
        terminal.keys(keys);
        let status = terminal.wait_exit_within(SOON);
        assert!(status.success(), "{keys}: {status:?}");
        terminal.assert_restored();
        assert_nothing_left(&held);
    }
}

#[test]
fn by_signals() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let (_chain, mut terminal, held) = watching();
        terminal.signal(signal);
        terminal.wait_exit_within(SOON);
        terminal.assert_restored();
        assert_nothing_left(&held);
    }
}

#[test]
fn by_its_terminal_being_closed() {
    use std::io::Read;
    root_or_fail();
    let chain = Program::build("chain.c").run(&[]);
    // Not a `Terminal`: its reader would hold the terminal open.
    let size = portable_pty::PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pty = portable_pty::native_pty_system().openpty(size).unwrap();
    let mut command = portable_pty::CommandBuilder::new(common::FLAMETOP);
    command.args(["-p", &chain.pid_text()]);
    command.env("TERM", "xterm-256color");
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let pid = child.process_id().unwrap();
    let mut reader = pty.master.try_clone_reader().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut emulator = vt100::Parser::new(24, 80, 0);
        let mut buffer = [0; 4096];
        while !emulator.screen().contents().contains("inner") {
            let read = reader.read(&mut buffer).unwrap();
            emulator.process(&buffer[..read]);
        }
        drop(reader);
        tell.send(()).unwrap();
    });
    let shown = told.recv_timeout(SOON);
    let held = bpf_programs_of(pid);
    drop(pty.master);
    let end = std::time::Instant::now() + SOON;
    while shown.is_ok() && child.try_wait().unwrap().is_none() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = child.try_wait().unwrap().is_some();
    if !ended {
        child.kill().unwrap();
    }
    assert!(shown.is_ok(), "nothing was shown within {SOON:?}");
    assert!(ended, "it runs on without a terminal");
    assert!(!held.is_empty());
    assert_nothing_left(&held);
}

#[test]
fn by_being_killed_nothing_is_left_in_the_kernel() {
    let (_chain, mut terminal, held) = watching();
    terminal.signal(Signal::KILL);
    terminal.wait_exit_within(SOON);
    assert_nothing_left(&held);
}

#[test]
fn a_process_that_is_gone_leaves_a_picture_of_itself() {
    let (mut chain, terminal, held) = watching();
    chain.kill();
    terminal.wait_for_text("ended", SOON);
    quit(terminal);
    assert_nothing_left(&held);
}

/// Started by [`by_a_panic`] in a terminal: takes the screen and then panics.
#[test]
#[ignore = "does nothing by itself: `by_a_panic` starts it"]
fn panics_when_told_to() {
    if std::env::var_os("PANIC_WHEN_TOLD_TO").is_none() {
        return;
    }
    use flametop::profile::{Capabilities, Names, Query};
    use flametop::ui::{App, Depth, Link, SaveOffer, Theme};
    use tokio::sync::{mpsc, watch};
    let theme = Theme { depth: Depth::Indexed, dark: true, ascii: false, ..Theme::default() };
    let offer = SaveOffer { name: || "x.svg".to_owned(), endings: Vec::new() };
    let app = App::new(std::sync::Arc::new(Names::default()), theme, Query::default(), Capabilities::LIVE, offer);
    let (_snapshots, snapshots) = watch::channel(Default::default());
    let (_status, status) = watch::channel(Default::default());
    let (_events, events) = mpsc::channel(1);
    let (requests, _requests) = watch::channel(Default::default());
    let (saves, _saves) = mpsc::unbounded_channel();
    let (orders, _orders) = mpsc::unbounded_channel();
    let (_stop, stop) = watch::channel(Default::default());
    let ((listings, _listings), (places, _places)) = (watch::channel(None), watch::channel(None));
    let link = Link { snapshots, status, events, requests, listings, places, saves, orders, stop };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
        tokio::select! {
            _ = flametop::ui::run(app, link) => {}
            _ = told.recv() => panic!("told to"),
        }
    });
}

#[test]
fn by_a_panic() {
    let this = std::env::current_exe().unwrap();
    let args = ["--ignored", "--exact", "ending::panics_when_told_to", "--nocapture"];
    let mut terminal =
        Terminal::spawn(this.to_str().unwrap(), &args, 24, 80, &[("PANIC_WHEN_TOLD_TO", "1"), ("RUST_BACKTRACE", "0")]);
    terminal.wait_for(|screen| screen.contains("flametop") && screen.contains("quit"), SOON);
    assert!(terminal.with_screen(vt100::Screen::alternate_screen));
    terminal.signal(Signal::USR1);
    let status = terminal.wait_exit_within(SOON);
    assert!(!status.success());
    terminal.assert_restored();
    // The panic's message is on the screen.
    assert!(terminal.screen().contains("told to"), "{}", terminal.screen());
}
