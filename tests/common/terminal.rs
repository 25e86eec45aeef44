//! Runs a program in a real pseudo-terminal, drives it by keys and mouse, and reads its screen.
//!
//! Nothing here is a fake: the program gets its own controlling terminal, and its output goes through a terminal emulator
//! (vt100). So a test sees the same as a user. Used by integration tests (through `mod common`), by `examples/screenshot.rs` and
//! by `benches/table`.
//!
//! ```text
//! test ──keys, mouse, resize──► pty ──► program
//!   ▲                            │
//!   └── screen ◄── vt100 ◄───────┘   (a thread reads; waiting tests are woken by each read)
//! ```

use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

/// Between two keys: an Esc and the key after it, read at once, would be Alt and that key.
const KEY_PAUSE: Duration = Duration::from_millis(25);

/// Output that was read so far, and its effect on the screen.
struct Seen {
    emulator: vt100::Parser,
    /// Bytes of a picture that is not complete yet (synchronized output): a terminal shows none of it.
    held: Vec<u8>,
    raw: Vec<u8>,
    /// Questions that a terminal answers (colours, attributes), the answer, and the end of the part of `raw` that was searched.
    answers: Vec<(Vec<u8>, Vec<u8>, usize)>,
    last_output: Instant,
    /// The program and all its children have closed the terminal.
    ended: bool,
}

/// The question for the terminal's attributes (DA1), and the reply of a VT220 with colours.
const ATTRIBUTES: (&[u8], &[u8]) = (b"\x1b[c", b"\x1b[?62;22c");

/// Marks at the begin and the end of a picture (DEC private mode 2026, "synchronized output").
const PICTURE_BEGINS: &[u8] = b"\x1b[?2026h";
const PICTURE_ENDS: &[u8] = b"\x1b[?2026l";

impl Seen {
    fn show(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let begun = rfind(&self.held, PICTURE_BEGINS);
        let open = begun.filter(|begun| rfind(&self.held, PICTURE_ENDS).is_none_or(|ended| ended < *begun));
        let complete = open.unwrap_or(self.held.len());
        self.emulator.process(&self.held[..complete]);
        self.held.drain(..complete);
    }
}

struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
    writer: Mutex<Box<dyn Write + Send>>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        // A panicking test must not hide its message behind a poisoned lock.
        self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self, bytes: &[u8]) {
        let mut writer = self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // A program that has just ended cannot be written to; then the test fails where it waits for the result.
        let _ = writer.write_all(bytes).and_then(|()| writer.flush());
    }

    fn answer_questions(&self) {
        let mut replies = Vec::new();
        {
            let mut seen = self.seen();
            let Seen { raw, answers, .. } = &mut *seen;
            for (question, reply, from) in answers.iter_mut() {
                while let Some(at) = find(raw.get(*from..).unwrap_or_default(), question) {
                    *from += at + question.len();
                    replies.extend_from_slice(reply);
                }
                // The end may be the beginning of a question. Earlier bytes are not searched again. Otherwise each new piece of
                // output would take longer than the last.
                *from = (*from).max(raw.len().saturating_sub(question.len() - 1));
            }
        }
        if !replies.is_empty() {
            self.write(&replies);
        }
    }
}

/// Position of `needle` in `hay`.
pub(crate) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len().max(1)).position(|window| window == needle)
}

/// Position of the last `needle` in `hay`.
fn rfind(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len().max(1)).rposition(|window| window == needle)
}

/// A mouse event; see [`Terminal::mouse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mouse {
    /// Left button goes down.
    Press,
    /// Right button goes down.
    PressRight,
    /// Left button goes up.
    Release,
    /// Moved with the left button held.
    Drag,
    /// Moved with no button held.
    Move,
    /// Wheel, away from the user.
    WheelUp,
    /// Wheel, towards the user.
    WheelDown,
}

/// A program running in a pseudo-terminal. Dropping it kills the program, by its pid, if it still runs.
pub(crate) struct Terminal {
    shared: Arc<Shared>,
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    reader: Option<JoinHandle<()>>,
    /// The modes of the line discipline before the program changed them.
    modes: String,
    status: Option<ExitStatus>,
}

impl Terminal {
    /// Starts `program` in a terminal of `rows` × `cols`.
    ///
    /// The environment is a small fixed one (xterm-256color, C.UTF-8, no COLORTERM, no NO_COLOR) so that a test shows the
    /// same on every machine; `env` adds to it, and an empty value removes a name.
    pub(crate) fn spawn(program: &str, args: &[&str], rows: u16, cols: u16, env: &[(&str, &str)]) -> Self {
        Self::spawn_answering(program, args, (rows, cols), env, &[])
    }

    /// [`Terminal::spawn`] in a terminal that answers questions, in this order: each a question and a reply.
    ///
    /// A real terminal answers such questions: `("\x1b]11;?", "\x1b]11;rgb:ffff/ffff/ffff\x1b\\")` makes a light one. The question for its
    /// attributes is answered in any case, last.
    pub(crate) fn spawn_answering(
        program: &str,
        args: &[&str],
        (rows, cols): (u16, u16),
        env: &[(&str, &str)],
        answers: &[(&[u8], &[u8])],
    ) -> Self {
        let pty = native_pty_system().openpty(size(rows, cols)).expect("failed to open a pseudo-terminal");
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env_clear();
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME"] {
            if let Ok(value) = std::env::var(name) {
                command.env(name, value);
            }
        }
        // No configuration file: the user's own may say anything. And the environment tells the background: while a program asks
        // the terminal for it, keys get lost.
        let fixed = [
            ("TERM", "xterm-256color"),
            ("LANG", "C.UTF-8"),
            ("RUST_BACKTRACE", "1"),
            ("XDG_CONFIG_HOME", "/nonexistent"),
            ("COLORFGBG", "15;0"),
        ];
        for (name, value) in fixed.iter().chain(env) {
            if value.is_empty() {
                command.env_remove(name);
            } else {
                command.env(name, value);
            }
        }
        // Without it portable-pty starts programs in the home directory.
        command.cwd(std::env::current_dir().expect("no working directory"));
        let modes = format!("{:?}", pty.master.get_termios());
        let child = pty.slave.spawn_command(command).unwrap_or_else(|error| panic!("failed to start {program}: {error}"));
        // While we hold the other end open, the reader would never see the end.
        drop(pty.slave);

        let shared = Arc::new(Shared {
            seen: Mutex::new(Seen {
                emulator: vt100::Parser::new(emulated_rows(rows), cols, 0),
                held: Vec::new(),
                raw: Vec::new(),
                answers: answers.iter().chain([&ATTRIBUTES]).map(|(ask, reply)| (ask.to_vec(), reply.to_vec(), 0)).collect(),
                last_output: Instant::now(),
                ended: false,
            }),
            changed: Condvar::new(),
            writer: Mutex::new(pty.master.take_writer().expect("the pseudo-terminal has one writer")),
        });
        let output = pty.master.try_clone_reader().expect("failed to read the pseudo-terminal");
        let reader = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || read_all(output, &shared)
        });
        Self { shared, child, master: pty.master, reader: Some(reader), modes, status: None }
    }

    /// The program's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.process_id().expect("a process on Linux has an id")
    }

    /// Types keys, separated by blanks. A key is a name (`Up`, `Enter`, `Ctrl-C`, see [`key_bytes`]); any other text is sent unchanged.
    pub(crate) fn keys(&self, keys: &str) {
        for key in keys.split_whitespace() {
            match key_bytes(key) {
                Some(bytes) => self.send(&bytes),
                None => self.text(key),
            }
            std::thread::sleep(KEY_PAUSE);
        }
    }

    /// Types `text` unchanged, with its blanks.
    pub(crate) fn text(&self, text: &str) {
        self.send(text.as_bytes());
    }

    /// Sends bytes unchanged.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.shared.write(bytes);
    }

    /// Sends a mouse event at a cell counted from 0, as xterm's SGR mode writes it.
    pub(crate) fn mouse(&self, event: Mouse, row: u16, col: u16) {
        let (button, end) = match event {
            Mouse::Press => (0, 'M'),
            Mouse::PressRight => (2, 'M'),
            Mouse::Release => (0, 'm'),
            Mouse::Drag => (32, 'M'),
            Mouse::Move => (35, 'M'),
            Mouse::WheelUp => (64, 'M'),
            Mouse::WheelDown => (65, 'M'),
        };
        self.text(&format!("\x1b[<{button};{};{}{end}", col + 1, row + 1));
    }

    /// Presses and releases the left button.
    pub(crate) fn click(&self, row: u16, col: u16) {
        self.mouse(Mouse::Press, row, col);
        self.mouse(Mouse::Release, row, col);
    }

    /// Changes the size of the terminal; the program gets SIGWINCH.
    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        // The emulator first: what the program draws for the new size must find it.
        self.shared.seen().emulator.screen_mut().set_size(emulated_rows(rows), cols);
        self.master.resize(size(rows, cols)).expect("failed to resize the pseudo-terminal");
    }

    /// The screen as text, one line a row, trailing blanks cut.
    pub(crate) fn screen(&self) -> String {
        text_of(self.shared.seen().emulator.screen())
    }

    /// Looks at the emulator's screen: colours of cells, cursor, modes.
    pub(crate) fn with_screen<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.shared.seen().emulator.screen())
    }

    /// Every byte the program has written.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.shared.seen().raw.clone()
    }

    /// Number of bytes the program has written. With [`Terminal::wait_for_output`] a test measures the time of a reaction.
    pub(crate) fn written(&self) -> usize {
        self.shared.seen().raw.len()
    }

    /// Waits until the program has written more than `already` bytes; false if it has not within `timeout`.
    pub(crate) fn wait_for_output(&self, already: usize, timeout: Duration) -> bool {
        self.wait_until(timeout, |seen| seen.raw.len() > already)
    }

    /// Waits until `wanted` accepts the screen, and returns that screen.
    ///
    /// # Panics
    ///
    /// With the last screen, if that takes longer than `timeout` or the program ends before.
    #[track_caller]
    pub(crate) fn wait_for(&self, wanted: impl Fn(&str) -> bool, timeout: Duration) -> String {
        let mut screen = String::new();
        let mut ended = false;
        let reached = self.wait_until(timeout, |seen| {
            screen = text_of(seen.emulator.screen());
            ended = seen.ended;
            wanted(&screen) || ended
        });
        if reached && wanted(&screen) {
            return screen;
        }
        let why = if ended { "the program has ended".to_owned() } else { format!("not reached within {timeout:?}") };
        panic!("waited for a screen: {why}. The last one was:\n{}", framed(&screen));
    }

    /// Waits until `text` is on the screen.
    #[track_caller]
    pub(crate) fn wait_for_text(&self, text: &str, timeout: Duration) -> String {
        if !self.wait_until(timeout, |seen| text_of(seen.emulator.screen()).contains(text)) {
            panic!("{text:?} did not appear within {timeout:?}. The last screen was:\n{}", framed(&self.screen()));
        }
        self.screen()
    }

    /// Waits until the program has written nothing for `quiet`; false if it never was quiet within `timeout`.
    pub(crate) fn wait_quiet(&self, quiet: Duration, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        loop {
            let silent = self.shared.seen().last_output.elapsed();
            if silent >= quiet {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(quiet.saturating_sub(silent).min(Duration::from_millis(20)));
        }
    }

    /// Waits until the program has ended, and its last output has been read.
    ///
    /// # Panics
    ///
    /// With the last screen, if the program has not ended within `timeout`.
    #[track_caller]
    pub(crate) fn wait_exit_within(&mut self, timeout: Duration) -> ExitStatus {
        let end = Instant::now() + timeout;
        while self.status.is_none() {
            self.status = self.child.try_wait().expect("failed to wait for the program");
            if self.status.is_none() {
                if Instant::now() >= end {
                    panic!("the program still runs after {timeout:?}. The last screen was:\n{}", framed(&self.screen()));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // A child of the program may hold the terminal open for longer; then only the output of one second is read.
        self.wait_until(Duration::from_secs(1), |seen| seen.ended);
        self.status.clone().expect("the loop ends with a status")
    }

    /// [`Terminal::wait_exit_within`] ten seconds.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        self.wait_exit_within(Duration::from_secs(10))
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        if self.status.is_none() {
            kill(self.pid(), signal);
        }
    }

    /// Checks that the program, now ended, has left the terminal as it found it.
    ///
    /// # Panics
    ///
    /// With all that was left behind: alternate screen, hidden cursor, mouse or paste reports, title, raw mode.
    #[track_caller]
    pub(crate) fn assert_restored(&self) {
        let mut left = Vec::new();
        self.with_screen(|screen| {
            if screen.alternate_screen() {
                left.push("the alternate screen is still shown".to_owned());
            }
            if screen.hide_cursor() {
                left.push("the cursor is still hidden".to_owned());
            }
            if screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None {
                left.push("the mouse is still reported".to_owned());
            }
            if screen.bracketed_paste() {
                left.push("bracketed paste is still on".to_owned());
            }
            if screen.fgcolor() != vt100::Color::Default || screen.bgcolor() != vt100::Color::Default {
                left.push("colours are still set".to_owned());
            }
        });
        // The emulator does not know these modes. They have to come in pairs, and the one that undoes the other must be last.
        let raw = self.raw();
        for (name, set, undone) in [("the title", "\x1b[22;0t", "\x1b[23;0t"), ("half a picture", "\x1b[?2026h", "\x1b[?2026l")] {
            if rfind(&raw, set.as_bytes()) > rfind(&raw, undone.as_bytes()) {
                left.push(format!("{name} was left behind"));
            }
        }
        let modes = format!("{:?}", self.master.get_termios());
        if modes != self.modes {
            left.push(format!("the terminal's modes were {} and are {modes}", self.modes));
        }
        assert!(left.is_empty(), "the terminal was not restored: {}", left.join("; "));
    }

    fn wait_until(&self, timeout: Duration, mut reached: impl FnMut(&Seen) -> bool) -> bool {
        let end = Instant::now() + timeout;
        let mut seen = self.shared.seen();
        loop {
            if reached(&seen) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || seen.ended {
                return false;
            }
            seen = self.shared.changed.wait_timeout(seen, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.status.is_none() && matches!(self.child.try_wait(), Ok(None)) {
            kill(self.pid(), rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
        // The reader ends when the terminal is closed everywhere; grandchildren may keep it, so it is not joined then.
        let ended = self.wait_until(Duration::from_millis(200), |seen| seen.ended);
        if let Some(reader) = self.reader.take().filter(|_| ended) {
            let _ = reader.join();
        }
    }
}

/// Sends `signal` to exactly one process.
pub(crate) fn kill(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// A screen of one row makes vt100 0.16 panic when text reaches its end (`prev_pos.row -= scrolled` in `Grid::col_wrap`): it
/// gets a second one, which the program does not know of.
fn emulated_rows(rows: u16) -> u16 {
    rows.max(2)
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

fn read_all(mut output: Box<dyn Read + Send>, shared: &Shared) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // Linux reports the other end's closing as EIO.
        let count = output.read(&mut buffer).unwrap_or(0);
        let mut seen = shared.seen();
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            seen.ended = true;
            let Seen { emulator, held, .. } = &mut *seen;
            emulator.process(&std::mem::take(held));
            shared.changed.notify_all();
            return;
        };
        seen.raw.extend_from_slice(bytes);
        seen.show(bytes);
        seen.last_output = Instant::now();
        drop(seen);
        shared.changed.notify_all();
        shared.answer_questions();
    }
}

fn text_of(screen: &vt100::Screen) -> String {
    let (_, cols) = screen.size();
    let rows: Vec<String> = screen.rows(0, cols).map(|row| row.trim_end().to_owned()).collect();
    rows.join("\n")
}

/// The screen in a frame with row numbers, for messages.
pub(crate) fn framed(screen: &str) -> String {
    screen.lines().enumerate().map(|(row, line)| format!("{row:3} │{line}\n")).collect()
}

/// The bytes that a terminal sends for a named key; `None` for anything that is not a name.
///
/// Names: Up Down Left Right Home End PgUp PgDn Insert Delete Enter Esc Tab Shift-Tab Backspace Space F1…F12, any of the
/// arrows with Shift- or Ctrl-, Ctrl-a…Ctrl-z, Alt-x for any x.
pub(crate) fn key_bytes(key: &str) -> Option<Vec<u8>> {
    let fixed = match key {
        "Up" => "\x1b[A",
        "Down" => "\x1b[B",
        "Right" => "\x1b[C",
        "Left" => "\x1b[D",
        "Home" => "\x1b[H",
        "End" => "\x1b[F",
        "Insert" => "\x1b[2~",
        "Delete" => "\x1b[3~",
        "PgUp" => "\x1b[5~",
        "PgDn" => "\x1b[6~",
        "Enter" => "\r",
        "Esc" => "\x1b",
        "Tab" => "\t",
        "Shift-Tab" => "\x1b[Z",
        "Backspace" => "\x7f",
        "Space" => " ",
        "F1" => "\x1bOP",
        "F2" => "\x1bOQ",
        "F3" => "\x1bOR",
        "F4" => "\x1bOS",
        "F5" => "\x1b[15~",
        "F6" => "\x1b[17~",
        "F7" => "\x1b[18~",
        "F8" => "\x1b[19~",
        "F9" => "\x1b[20~",
        "F10" => "\x1b[21~",
        "F11" => "\x1b[23~",
        "F12" => "\x1b[24~",
        _ => "",
    };
    if !fixed.is_empty() {
        return Some(fixed.as_bytes().to_vec());
    }
    let modified = |modifier: char, rest: &str| {
        let end = match rest {
            "Up" => 'A',
            "Down" => 'B',
            "Right" => 'C',
            "Left" => 'D',
            "Home" => 'H',
            "End" => 'F',
            _ => return None,
        };
        Some(format!("\x1b[1;{modifier}{end}").into_bytes())
    };
    if let Some(rest) = key.strip_prefix("Shift-") {
        return modified('2', rest);
    }
    if let Some(rest) = key.strip_prefix("Ctrl-") {
        return match rest.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => Some(vec![letter & 0x1f]),
            _ => modified('5', rest),
        };
    }
    let rest = key.strip_prefix("Alt-").filter(|rest| rest.chars().count() == 1)?;
    Some(format!("\x1b{rest}").into_bytes())
}
