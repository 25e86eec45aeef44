//! The terminal: taken over once, given back however the program ends.
//!
//! [`Guard`] gives it back when dropped; a panic hook does so before the panic's words are printed. Signals are the session's:
//! it ends the loop, and the guard is dropped on the way out. Giving back twice does no harm.

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

/// What is drawn to.
pub(super) type Screen = Terminal<Drawn>;

/// crossterm's, but for the size: it is asked for twice a picture, and crossterm opens the terminal's device each time.
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
            // A terminal that does not know, as over a serial line: crossterm asks elsewhere.
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

    /// The cursor is hidden, so its place does not matter. The terminal is not asked: not every one answers.
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

/// Collects what is written and hands it to the terminal in one piece for each picture: standard output would take a lock, and
/// look for the end of a line, for each of the thousands of pieces that a picture is written in. What was not handed over when the
/// terminal is given back is dropped with this, not written to the shell's screen.
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

/// How often it is looked whether the terminal is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Put the window's title onto the terminal's stack, and take it back.
const PUSH_TITLE: &str = "\x1b[22;0t";
const POP_TITLE: &str = "\x1b[23;0t";

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Holds the terminal; giving it back is dropping this.
pub(super) struct Guard {
    /// What is drawn to.
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
    /// Draws a picture that the terminal shows at once when it is complete (synchronized output, mode 2026): never half of it,
    /// however slow the line is. Terminals that do not know the mode ignore it.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.open.set(true);
        queue!(self.screen.backend_mut(), BeginSynchronizedUpdate)?;
        self.screen.draw(render)?;
        self.open.set(false);
        execute!(self.screen.backend_mut(), EndSynchronizedUpdate)
    }
}

impl Guard {
    /// Gives the terminal to the shell for a while.
    pub(super) fn pause(&self) {
        give_back();
    }

    /// Takes the terminal again, whatever was done to it meanwhile, and draws the next picture whole.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // Without this, raw mode would be taken for what it was when the shell left it otherwise.
        disable_raw_mode()?;
        enter()?;
        self.screen.clear()
    }
}

/// Returns when the terminal is gone, as when its window is closed. crossterm does not tell: it reads the end again and again.
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

/// Whether a shell could continue this process after a stop: one that gives each of its jobs a process group. Without one, the kernel ignores
/// Ctrl-Z, too.
pub(super) fn has_a_shell() -> bool {
    let session = |pid| rustix::process::getsid(pid).ok();
    let own = session(None);
    let parent = rustix::process::getppid();
    own != Some(rustix::process::getpgrp()) && parent.is_some_and(|parent| session(Some(parent)) == own)
}

/// Stops the process group as Ctrl-Z does, with a script or sudo that waits for this process: else the shell would not see that its job has
/// stopped. Some threads may run for a moment longer; SIGCONT tells when the process continues.
pub(super) fn stop() -> io::Result<()> {
    Ok(rustix::process::kill_current_process_group(rustix::process::Signal::STOP)?)
}

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

/// Takes the terminal over, or leaves it as it was.
fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    // The title is pushed onto the terminal's stack (xterm, XTWINOPS 22) before it is set; who does not know that, ignores it.
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

/// Undoes what [`Guard::take`] did. A terminal that is gone cannot be mended, so errors are of no use here.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A panic may come in the middle of a picture: first the terminal has to show again what it is told.
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

/// Gives the terminal back before a panic's message is printed, so that it can be read.
fn install_panic_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::SeqCst) {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // A symbolizer's worker that fails on a hostile file is caught and reported in the health view.
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
