//! Takes the terminal over once, and restores it however the program ends.
//!
//! [`Guard`] restores the terminal when it is dropped. A panic hook does so before the panic's message is printed. The session
//! handles signals: it ends the loop, and the guard is dropped on the way out. Restoring twice does no harm.

use std::cell::Cell;
use std::io::{self, Stdout, Write, stdout};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::clipboard::CopyToClipboard;
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, SetTitle, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell as ScreenCell;
use ratatui::layout::{Position, Size};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The screen for drawing.
pub(super) type Screen = Terminal<Drawn>;

/// crossterm's backend with a different query for the size. The size is needed twice a picture, and crossterm opens the terminal's
/// device each time.
pub(super) struct Drawn(CrosstermBackend<Pictures>);

impl Write for Drawn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Write::flush(&mut self.0)
    }
}

impl Backend for Drawn {
    type Error = io::Error;

    fn size(&self) -> io::Result<Size> {
        match rustix::termios::tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Ok(Size::new(size.ws_col, size.ws_row)),
            // The terminal does not know its size, for example over a serial line: crossterm tries other ways.
            _ => self.0.size(),
        }
    }

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a ScreenCell)>>(&mut self, content: I) -> io::Result<()> {
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    /// Returns a fixed position. The cursor is hidden, so its position does not matter. The terminal is not queried, because some
    /// terminals do not answer.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.0.clear_region(region)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.0.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.0)
    }
}

/// Collects output and passes it to the terminal in one piece for each picture. A picture is written in thousands of pieces.
/// Standard output would take a lock and search for the end of a line for each of them. Output still waiting when the terminal is
/// restored is dropped with this buffer, so it never reaches the shell's screen.
pub(super) struct Pictures {
    bytes: Vec<u8>,
    /// A picture was begun and is not complete.
    open: Rc<Cell<bool>>,
    out: Stdout,
}

impl Write for Pictures {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.open.get() {
            return Ok(());
        }
        let written = self.out.write_all(&self.bytes).and_then(|()| self.out.flush());
        self.bytes.clear();
        written
    }
}

/// Interval between two checks that the terminal still exists. Each check wakes two threads.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pushes the window's title onto the terminal's stack, and pops it.
const PUSH_TITLE: &str = "\x1b[22;0t";
const POP_TITLE: &str = "\x1b[23;0t";

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Holds the terminal. Dropping this restores it.
pub(super) struct Guard {
    /// The screen for drawing.
    pub screen: Screen,
    /// See [`Pictures`].
    open: Rc<Cell<bool>>,
}

impl Guard {
    /// Takes the terminal over: alternate screen, raw mode, mouse, pasted text as such.
    pub(super) fn take() -> io::Result<Guard> {
        install_panic_hook();
        enter()?;
        let open = Rc::new(Cell::new(false));
        let pictures = Pictures { bytes: Vec::new(), open: Rc::clone(&open), out: stdout() };
        Terminal::new(Drawn(CrosstermBackend::new(pictures))).map(|screen| Guard { screen, open }).inspect_err(|_| give_back())
    }
}

impl Guard {
    /// Draws a picture that the terminal shows only when it is complete (synchronized output, mode 2026), however slow the line is.
    /// Terminals without that mode ignore it.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.open.set(true);
        queue!(self.screen.backend_mut(), BeginSynchronizedUpdate)?;
        self.screen.draw(render)?;
        self.open.set(false);
        execute!(self.screen.backend_mut(), EndSynchronizedUpdate)
    }
}

impl Guard {
    /// Gives the terminal to the shell until [`Guard::resume`].
    pub(super) fn pause(&self) {
        give_back();
    }

    /// Takes the terminal again, in any state, and draws the next picture whole.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // Otherwise crossterm would assume that raw mode is still on, although the shell may have changed it.
        disable_raw_mode()?;
        enter()?;
        self.screen.clear()
    }
}

/// Returns when the terminal has disappeared, for example because its window was closed. crossterm does not report that: it reads
/// the end again and again.
pub(super) async fn gone() {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tick.tick().await;
        let out = stdout();
        let mut watched = [PollFd::new(&out, PollFlags::empty())];
        let asked = poll(&mut watched, Some(&Timespec::default()));
        if asked.is_ok() && watched.iter().any(|it| it.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)) {
            return;
        }
    }
}

/// Returns whether a shell could continue this process after a stop. Such a shell gives each of its jobs a process group. Without
/// one, the kernel ignores Ctrl-Z, too.
pub(super) fn has_a_shell() -> bool {
    let session = |pid| rustix::process::getsid(pid).ok();
    let own = session(None);
    let parent = rustix::process::getppid();
    own != Some(rustix::process::getpgrp()) && parent.is_some_and(|parent| session(Some(parent)) == own)
}

/// Stops the process group as Ctrl-Z does. The group includes a script or sudo that waits for this process; if they went on, the
/// shell would not see that its job has stopped. Some threads may run for a moment longer; SIGCONT arrives when the process
/// continues.
pub(super) fn stop() -> io::Result<()> {
    Ok(rustix::process::kill_current_process_group(rustix::process::Signal::STOP)?)
}

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

/// Takes the terminal over. On failure, it stays unchanged.
fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    // The title is pushed onto the terminal's stack (xterm, XTWINOPS 22) before it is set. Terminals without that stack ignore the
    // sequence.
    execute!(
        stdout(),
        Print(PUSH_TITLE),
        EnterAlternateScreen,
        EnableMouseCapture,
        EnableBracketedPaste,
        cursor::Hide,
        SetTitle("flametop")
    )
    .inspect_err(|_| give_back())
}

/// Undoes [`Guard::take`]. Errors are ignored: a terminal that has disappeared cannot be restored.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A panic may come in the middle of a picture. The terminal must first leave synchronized output.
        let _ = execute!(
            stdout(),
            EndSynchronizedUpdate,
            DisableBracketedPaste,
            DisableMouseCapture,
            LeaveAlternateScreen,
            cursor::Show,
            Print(POP_TITLE)
        );
        let _ = disable_raw_mode();
    }
}

/// Restores the terminal before a panic's message is printed, so that the message can be read.
fn install_panic_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::SeqCst) {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // If a symbolizer's worker fails on a hostile file, the panic is caught and reported in the health view.
            let is_worker = std::thread::current().name().is_some_and(|name| name.starts_with("flametop-task"));
            if is_worker && TAKEN.load(Ordering::SeqCst) {
                return;
            }
            give_back();
            before(info);
        }));
    }
}

/// Puts text into the clipboard of the terminal's own machine (OSC 52), so that it works over ssh.
pub(super) fn copy(text: &str) -> io::Result<()> {
    crossterm::execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
}
